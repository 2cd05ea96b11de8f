//! Documents of every format, translated by a model whose translations are known.
//!
//! `tests/texts` has the documents and their expected translations. `UPDATE=1 cargo test -p transformer-text --test
//! texts` writes the latter: read the difference before you commit it.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use support::{Reverser, translator};
use transformer_text::{Format, Glossary, Note, Problem, TextTranslator};

/// Bytes that the model reads.
const LONGEST: usize = 400;

fn reverser(longest: usize) -> TextTranslator<Reverser> {
    let model = Reverser {
        longest,
        ..Reverser::default()
    };
    TextTranslator::new(translator(model))
}

fn translated(text: &str, format: Format) -> String {
    reverser(LONGEST).translate(text, format).unwrap().text
}

/// The document of a folder's file, if it is one.
fn documents() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/texts");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let is_expected = |path: &PathBuf| path.to_string_lossy().contains(".expected.");
    let mut documents: Vec<PathBuf> = files.filter(|path| !is_expected(path)).collect();
    documents.sort();
    documents
}

#[test]
fn documents_are_translated_as_expected() {
    let mut differ = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let extension = document.extension().unwrap().to_string_lossy().into_owned();
        let found = translated(&text, Format::of_file(&document));
        let expected_file = document.with_extension(format!("expected.{extension}"));
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&expected_file, &found).unwrap();
        }
        let expected = fs::read_to_string(&expected_file).unwrap_or_default();
        if found != expected {
            let differing = found
                .lines()
                .zip(expected.lines())
                .find(|(one, other)| one != other);
            differ.push(format!("{}: {differing:?}", document.display()));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn inline_tags_go_where_their_words_go() {
    for (source, expected) in [
        (
            "<p>Where is <b>the station</b> now?</p>",
            "<p>NOW? <b>STATION THE</b> IS wHERE</p>",
        ),
        ("<b>one two</b>", "<b>TWO ONE</b>"),
        (
            "a <a href=\"u\">b <i>c</i></a> d",
            "D <a href=\"u\"><i>C</i> B</a> A",
        ),
        ("<i>a</i> b <u>c</u>", "<u>C</u> B <i>A</i>"),
        ("one <img src=x> two", "<img src=x> TWO ONE"),
        ("<p>1 &lt; 2 &amp; so on", "<p>ON SO &amp; 2 &lt; 1"),
    ] {
        assert_eq!(translated(source, Format::Html), expected, "{source}");
    }
}

#[test]
fn markup_of_html_keeps_its_nesting() {
    for (source, expected) in [
        (
            "<p>Hi <img alt=a title=b src=c> you",
            "<p><img alt=A title=B src=c> YOU hI",
        ),
        (
            "<img src=x alt=dog><img alt=dog/>",
            "<img src=x alt=DOG><img alt=DOG/>",
        ),
        (
            "<label for=n>Your name:</label> <input><label>Your message <textarea title='a b'>c d</textarea></label>",
            "<label for=n>NAME: yOUR</label> <input><label>MESSAGE yOUR <textarea title='B A'>c d</textarea></label>",
        ),
        (
            "<p>Hello <a href=x title='my dog'><img src=y alt='my cat'></a> you</p>",
            "<p><a href=x title='DOG MY'><img src=y alt='CAT MY'></a> YOU hELLO</p>",
        ),
        (
            "<p><span class=b>the dog</span><span class=c></span> here</p>",
            "<p>HERE <span class=b>DOG THE</span><span class=c></span></p>",
        ),
        (
            "<p>the cat<sup><a href='#1'>[1]</a></sup> is black<sup>2</sup>, H<sub>2</sub>O and 5 m<sup>2</sup></p>",
            "<p>m<sup>2</sup> 5 AND H<sub>2</sub>O BLACK<sup>2</sup>, IS CAT<sup><a href='#1'>[1]</a></sup> THE</p>",
        ),
        (
            "<nav><a href='/'>Home</a> <a href='/about'>About us</a> | <a href='/contact'>Contact us</a></nav>",
            "<nav><a href='/'>hOME</a> <a href='/about'>US aBOUT</a> | <a href='/contact'>US cONTACT</a></nav>",
        ),
        (
            "<ruby>one<rp>(</rp><rt>wan</rt><rp>)</rp></ruby> two",
            "TWO <ruby>ONE<rp>(</rp><rt>wan</rt><rp>)</rp></ruby>",
        ),
        (
            "<a href=x>all of <div>a block</div> it</a> end",
            "<a href=x>OF ALL <div>BLOCK A</div> END IT</a>",
        ),
        (
            "<a>Where <i>is <div>it</div> now</i> and</a> then",
            "<a><i>IS wHERE <div>IT</div> THEN AND NOW</i></a>",
        ),
        // What is not translated ends with its element, also without an end tag.
        (
            "<ul><li translate=no>a b<li>c d<ul><li class=notranslate>e <b>f</b></ul>g h</ul>i j",
            "<ul><li translate=no>a b<li>D C<ul><li class=notranslate>e <b>f</b></ul>H G</ul>J I",
        ),
        (
            "<p translate=no>a b<p>c d<div translate=no>e <div>f g</div> h</li> i</div> j k",
            "<p translate=no>a b<p>D C<div translate=no>e <div>f g</div> h</li> i</div> K J",
        ),
        (
            "<table><tr><td translate=no>a<ul><li>b<li>c</ul><td>d e<tr><td>f g</table>",
            "<table><tr><td translate=no>a<ul><li>b<li>c</ul><td>E D<tr><td>G F</table>",
        ),
        // Placeholders stand as in the document.
        (
            "<p>to <%= user.name %> {{ a > b }} and {{ c &gt; d }}</p>",
            "<p>{{ c &gt; d }} AND {{ a > b }} <%= user.name %> TO</p>",
        ),
        (
            "<p><a href='https://e.org/?a=1&copy=2'>see https://e.org/?a=1&amp;copy=2 now</a></p>",
            "<p><a href='https://e.org/?a=1&copy=2'>NOW https://e.org/?a=1&amp;copy=2 SEE</a></p>",
        ),
        (
            "<p>one <!-- {{ a > b }} -->two {{ a &gt; b }} {{ c&#62;d }} {{ e > f }}</p>",
            "<p>{{ e > f }} {{ c&#62;d }} {{ a &gt; b }} <!-- {{ a > b }} -->TWO ONE</p>",
        ),
        (
            "<p>five<sup>[1]</sup> &amp; ten {{ a&amp;b }} x&lt;{{c&gt;d}}</p>",
            "<p>X&lt;{{c&gt;d}} {{ a&amp;b }} TEN &amp; FIVE<sup>[1]</sup></p>",
        ),
        (
            "<p>use {a}&amp;{b} or %d&amp;%s;</p>",
            "<p>%d&amp;%s; OR {a}&amp;{b} USE</p>",
        ),
        ("<p>a&nbsp;b</p>", "<p>A&#160;B</p>"),
        // End tags that end nothing end no element around them.
        (
            "<ul><li translate=no>a b <p>c<div>d e</div>f</p> g h</b> i<br></br>j<li>k l</ul>",
            "<ul><li translate=no>a b <p>c<div>d e</div>f</p> g h</b> i<br></br>j<li>L K</ul>",
        ),
        (
            "<div translate=no>a <span>b<div>c d</span>e</div>f g</div>h i",
            "<div translate=no>a <span>b<div>c d</span>e</div>f g</div>I H",
        ),
        (
            "<ul><li translate=no><font>a<p>b</font><li>c d</ul><p>e f</p>",
            "<ul><li translate=no><font>a<p>b</font><li>D C</ul><p>F E</p>",
        ),
        (
            "<p><ruby>one<rt>wan</p><p>two three</p>",
            "<p><ruby>ONE<rt>wan</p><p>THREE TWO</p>",
        ),
        (
            "<table><tbody translate=no><tr><td>a b<tbody><tr><td>c d</table>",
            "<table><tbody translate=no><tr><td>a b<tbody><tr><td>D C</table>",
        ),
        (
            "<ruby>one<rt>wan</ruby> two <p translate=no>a b<li>c d",
            "TWO <ruby>ONE<rt>wan</ruby> <p translate=no>a b<li>D C",
        ),
    ] {
        assert_eq!(translated(source, Format::Html), expected, "{source}");
    }
}

#[test]
fn markup_of_markdown_stays_markup() {
    for (source, expected) in [
        (
            "# My project [![Build it](b.svg)](url)\n",
            "# PROJECT mY [![IT bUILD](b.svg)](url)\n",
        ),
        (
            "The [full text][], a [short one] and [other][full text].\n\n[full text]: u\n[short one]: v\n",
            "[OTHER][full text]. AND [ONE SHORT][short one] A [TEXT, FULL][full text] tHE\n\n[full text]: u\n[short one]: v\n",
        ),
        (
            "[unknown] and [what][]\n",
            "\\[WHAT\\]\\[\\] AND \\[UNKNOWN\\]\n",
        ),
        ("\\# no heading \\* here\n", "HERE \\* HEADING NO #\n"),
        ("here is one #\n", "\\# ONE IS HERE\n"),
        ("the year was 1986.\n", "1986\\. WAS YEAR THE\n"),
        ("is it a -\n", "\\- A IT IS\n"),
        (
            "a \\_b\\_ c_d \\~~x\\~~ \\$5 \\&copy; R&D\n",
            "r&d \\&COPY; \\$5 \\~~X\\~~ C_D \\_B\\_ A\n",
        ),
        (
            "**bold**ly and un*believ*able\n",
            "*UNBELIEVABLE* AND **BOLDLY**\n",
        ),
        (
            "[Home](/) | [About us](/about)\n",
            "[hOME](/) \\| [US aBOUT](/about)\n",
        ),
        (
            "***very*** **_both_** text\n",
            "TEXT **_BOTH_** ***VERY***\n",
        ),
        (
            "see <https://a.example/~user/_b_*c> or <first_last_@example.org> now\n",
            "NOW <first_last_@example.org> OR <https://a.example/~user/_b_*c> SEE\n",
        ),
        (
            "the {{ _page.title | upcase }} and {{< ref \"x\" >}} here\n",
            "HERE {{< ref \"x\" >}} AND {{ _page.title | upcase }} THE\n",
        ),
        (
            "+++\ntitle = \"The post\"\n+++\n\n# The station {#station}\n\n> [!WARNING]\n> one two\n",
            "+++\ntitle = \"The post\"\n+++\n\n# STATION tHE {#station}\n\n> [!WARNING]\n> TWO ONE\n",
        ),
    ] {
        assert_eq!(translated(source, Format::Markdown), expected, "{source}");
    }
}

#[test]
fn other_formats_keep_what_they_are_made_of() {
    for (source, expected, format) in [
        (
            "50%% of %%s on %Y-%m-%d at %H:%M, <%= name %> has {n, plural, one {# cat} other {# cats}}, {d, date, short}",
            "{d, date, short} {n, plural, one {# cat} other {# cats}} HAS <%= name %> %H:%M, AT %Y-%m-%d ON %%S OF 50%%",
            "text",
        ),
        (
            "app.title=a great app\nbutton_save: save it\napple\nbanana\nerror.404=no page\n",
            "APP GREAT APP.TITLE=A\nIT SAVE BUTTON_SAVE:\nAPPLE\nBANANA\nPAGE ERROR.404=NO\n",
            "text",
        ),
        (
            "1\n00:00:01,000 --> 00:00:02,000\none two\n2\n00:00:03,000 --> 00:00:04,000\nthree.\n\nfour\n",
            "1\n00:00:01,000 --> 00:00:02,000\nTHREE.\n2\n00:00:03,000 --> 00:00:04,000\nTWO ONE\n\nFOUR\n",
            "srt",
        ),
        (
            "1\n00:00:01,000 --> 00:00:02,000\n<i>one two</i> three\n\n2\n00:00:03,000 --> 00:00:04,000\nfour <i>five</i> six.\n",
            "1\n00:00:01,000 --> 00:00:02,000\nSIX. <i>FIVE</i> FOUR\n\n2\n00:00:03,000 --> 00:00:04,000\nTHREE <i>TWO ONE</i>\n",
            "srt",
        ),
        (
            "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\n<v Roger>\n<c>one two</c>\n",
            "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\n<v Roger>\n<c>TWO ONE</c>\n",
            "vtt",
        ),
        (
            "msgid \"a b\"\nmsgstr \"\"\nmsgstr \"\"\n",
            "msgid \"a b\"\nmsgstr \"B A\"\nmsgstr \"\"\n",
            "po",
        ),
        (
            "msgid \"a b\"\nmsgstr \"\"\n\nmsgid \"cut off\nmsgstr \"\"\n\nmsgid \"tab\\there\\x41 \\101 \\a end\"\nmsgstr \"\"\n",
            "msgid \"a b\"\nmsgstr \"B A\"\n\nmsgid \"cut off\nmsgstr \"\"\n\nmsgid \"tab\\there\\x41 \\101 \\a end\"\nmsgstr \"END \\007 a TAB\\tHEREa\"\n",
            "po",
        ),
    ] {
        assert_eq!(
            translated(source, format.parse().unwrap()),
            expected,
            "{source}"
        );
    }
}

/// A byte-order mark is kept, and hides nothing of the format.
#[test]
fn a_byte_order_mark_is_kept() {
    for (source, format) in [
        ("- one two\n", "text"),
        ("# One two\n", "markdown"),
        ("---\ntitle: one\n---\none two\n", "markdown"),
        ("<?xml version=\"1.0\"?><p>one two</p>", "xml"),
        ("<p>one two</p>", "html"),
        ("one two\tb\n", "tsv"),
        ("WEBVTT\n\n00:00:01.000 --> 00:00:02.000\none two\n", "vtt"),
        ("1\n00:00:01,000 --> 00:00:02,000\none two\n", "srt"),
        ("msgid \"a b\"\nmsgstr \"\"\n", "po"),
    ] {
        let format: Format = format.parse().unwrap();
        let marked = translated(&format!("\u{feff}{source}"), format);
        let expected = format!("\u{feff}{}", translated(source, format));
        assert_eq!(marked, expected, "{source}");
    }
}

#[test]
fn a_tag_with_very_many_attributes_is_read() {
    let text = format!("<p {}>one two</p>", "a=\"1\" ".repeat(100_000));
    let found = translated(&text, Format::Html);
    assert_eq!(found, text.replace("one two", "TWO ONE"));
}

/// The parts of a text that are markup, or must be copied.
fn skeleton(text: &str, format: Format) -> Vec<String> {
    let markup = match format {
        Format::Html | Format::Xml => r"<[^>]*>",
        Format::Srt | Format::Vtt => r"(?m)^.*-->.*$|<[^>]*>|\{\\[^}]*\}",
        Format::Markdown => r"`[^`]*`|\]\([^)]*\)",
        _ => r"https?://\S+[a-z]|\{\w+\}|%\d\$s",
    };
    let markup = regex::Regex::new(markup).unwrap();
    // These are translated.
    let values = r#"(alt|title|placeholder|aria-label)=("[^"]*"|'[^']*'|[^\s>/]+)"#;
    let values = regex::Regex::new(values).unwrap();
    let mut found: Vec<String> = markup
        .find_iter(text)
        .map(|found| values.replace_all(found.as_str(), "").into_owned())
        .collect();
    found.sort();
    found
}

#[test]
fn nothing_of_a_documents_markup_is_lost() {
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let format = Format::of_file(&document);
        let found = translated(&text, format);
        let name = document.display();
        // A cell ends within the code.
        if !name.to_string().contains("pipes") {
            let (found, text) = (skeleton(&found, format), skeleton(&text, format));
            let differs = found.iter().zip(&text).find(|(one, other)| one != other);
            assert!(found == text, "{name}: {differs:?}");
        }
        assert_eq!(found.lines().count(), text.lines().count(), "{name}");
    }
}

/// Texts that look like documents, mostly broken ones.
fn any_document() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[a-zé日ก😀]{1,6}",
        prop::sample::select(vec![
            " ",
            " ",
            " ",
            "\n",
            "\r\n",
            "\n\n",
            "\t",
            ". ",
            "! ",
            ", ",
            "<b>",
            "</b>",
            "<i>",
            "</i>",
            "<p>",
            "</p>",
            "<br>",
            "<img src=x>",
            "<a title='x y'>",
            "</a>",
            "<code>",
            "</code>",
            "<!-- c -->",
            "<script>",
            "</script>",
            "<sub>",
            "</sub>",
            "<",
            ">",
            "&amp;",
            "&#32;",
            "&",
            "*",
            "**",
            "_",
            "`",
            "```\n",
            "[",
            "](u)",
            "![",
            "# ",
            "- ",
            "1. ",
            "> ",
            "| ",
            "\\",
            "~~",
            "$",
            "1\n00:00:01,000 --> 00:00:02,000\n",
            "{\\an8}",
            "-->",
            "msgid \"",
            "msgstr \"\"\n",
            "\"",
            "%1$s",
            "{x}",
            "{{y}}",
            ":id",
            "https://e.org/a",
            "a@b.cd",
            "\u{feff}",
            "\0",
            "\u{a0}",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(part, 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    // The same texts in each run; tests/fuzz tries others.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(300) })]

    /// Any text can be read in any format, and no tag is lost or doubled.
    #[test]
    fn any_text_is_translated_in_any_format(text in any_document()) {
        let translator = reverser(60);
        let tag = regex::Regex::new(r"</?(b|i|p|br|img|a|code|sub|script)\b").unwrap();
        let names = |text: &str| {
            let mut names: Vec<String> = tag.find_iter(text).map(|tag| tag.as_str().to_owned()).collect();
            names.sort();
            names
        };
        let formats = Format::NAMES.iter().map(|name| name.parse().unwrap());
        for format in formats {
            let translated = translator.translate(&text, format).unwrap();
            if format == Format::Html {
                // Attributes may change.
                prop_assert_eq!(names(&translated.text), names(&text));
            }
        }
    }
}

#[test]
fn a_glossary_is_obeyed() {
    let glossary =
        Glossary::parse("# terms\npull request\tdemande de tirage\n\nIssue\tticket\n").unwrap();
    let translator = reverser(LONGEST).with_glossary(glossary);
    let translated = translator
        .translate(
            "Close the issue, not the pull request. Issues stay.",
            Format::Text,
        )
        .unwrap();
    assert_eq!(
        translated.text,
        "demande de tirage THE NOT ticket, THE cLOSE STAY. iSSUES"
    );
    let placed = translated
        .report
        .notes
        .iter()
        .filter(|noted| matches!(&noted.note, Note::Placed { replaces: true, .. }));
    assert_eq!(placed.count(), 2);
    // A sign may become a word.
    let glossary = Glossary::parse("€\teuros\n").unwrap();
    let translator = reverser(LONGEST).with_glossary(glossary);
    let translated = translator.translate("it costs 5 € now", Format::Text);
    assert_eq!(translated.unwrap().text, "NOW euros 5 COSTS IT");
    assert_eq!(Glossary::parse("one\ttwo\nthree").unwrap_err().line, 2);
}

#[test]
fn a_loop_is_decoded_again_and_reported() {
    let looping = TextTranslator::new(translator(Reverser {
        loops: true,
        ..Reverser::default()
    }));
    let translated = looping.translate("ab cd", Format::Text).unwrap();
    let notes: Vec<&Note> = translated
        .report
        .notes
        .iter()
        .map(|noted| &noted.note)
        .collect();
    let problem = Problem::Loop;
    assert!(
        matches!(notes[0], Note::Repeated { problem: found, .. } if *found == problem),
        "{notes:?}"
    );
    // What the text says again and again may be said again and again.
    let text = "ha ha ha ha ha ha";
    let translated = reverser(LONGEST).translate(text, Format::Text).unwrap();
    assert_eq!(translated.text, "HA HA HA HA HA HA");
    assert!(translated.report.notes.is_empty());
}

#[test]
fn a_sentence_that_is_too_long_is_translated_in_parts() {
    let text = "one two three, four five six, seven eight nine";
    let translated = reverser(20).translate(text, Format::Text).unwrap();
    assert_eq!(
        translated.text,
        "THREE, TWO ONE SIX, FIVE FOUR NINE EIGHT SEVEN"
    );
    let notes: Vec<&Note> = translated
        .report
        .notes
        .iter()
        .map(|noted| &noted.note)
        .collect();
    assert_eq!(notes, [&Note::Divided { parts: 3 }]);
    assert_eq!(translated.report.sentences, 3);
}
