//! Readers of formats: each takes a text apart into a skeleton and passages.

mod html;
mod markdown;
mod plain;
mod po;
mod subtitles;
mod tsv;
mod xml;

use std::path::Path;
use std::str::FromStr;

use crate::builder::Builder;
use crate::document::{Document, raw};

/// The format of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Plain text. A line is a paragraph, unless the lines are wrapped at a width. Indentation, list markers and blank
    /// lines are kept.
    Text,
    /// HTML. Tags are kept, and so is the content of `code`, `pre`, `script`, `style` and of elements with
    /// `translate="no"`. The attributes `alt`, `title`, `placeholder` and `aria-label` are translated.
    Html,
    /// XML. An element beside text is a part of it; all others end it. Elements with `translate="no"` or
    /// `translatable="false"`, attributes and CDATA are kept.
    Xml,
    /// Markdown (CommonMark with tables). Code, links' addresses and markup are kept.
    Markdown,
    /// Subtitles in SubRip's format. A sentence may extend over several cues.
    Srt,
    /// Subtitles in the format WebVTT.
    Vtt,
    /// Lines of fields with tabs between them, of which one is translated.
    Tsv {
        /// The field, from 0.
        column: usize,
    },
    /// Messages of gettext: translations are filled in where they are missing.
    Po,
}

impl Format {
    /// The names of the formats, as [`from_str`](Self::from_str) reads them. `tsv` translates the first field, `tsv:2`
    /// the second.
    pub const NAMES: [&str; 8] = ["text", "html", "xml", "markdown", "srt", "vtt", "tsv", "po"];

    /// The extensions of file names that say a format.
    pub const EXTENSIONS: [(&str, Self); 13] = [
        ("txt", Self::Text),
        ("html", Self::Html),
        ("htm", Self::Html),
        ("xhtml", Self::Html),
        ("xml", Self::Xml),
        ("md", Self::Markdown),
        ("markdown", Self::Markdown),
        ("srt", Self::Srt),
        ("vtt", Self::Vtt),
        ("tsv", Self::Tsv { column: 0 }),
        ("tab", Self::Tsv { column: 0 }),
        ("po", Self::Po),
        ("pot", Self::Po),
    ];

    /// The format that the extension of a file name says; text if it says none.
    pub fn of_file(path: &Path) -> Self {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let extension = extension.to_lowercase();
        let known = Self::EXTENSIONS
            .iter()
            .find(|(known, _)| *known == extension);
        known.map_or(Self::Text, |(_, format)| *format)
    }

    /// Takes a text apart. What does not have the format is kept unchanged, and so is a byte-order mark.
    pub(crate) fn read(self, text: &str) -> Document {
        const MARK: &str = "\u{feff}";
        let Some(text) = text.strip_prefix(MARK) else {
            return self.read_after_mark(text);
        };
        let mut document = self.read_after_mark(text);
        document.skeleton.splice(0..0, raw(MARK));
        document
    }

    fn read_after_mark(self, text: &str) -> Document {
        match self {
            Self::Text => plain::read(text),
            Self::Html => html::read(text),
            Self::Xml => xml::read(text),
            Self::Markdown => markdown::read(text),
            Self::Srt => subtitles::read(text, false),
            Self::Vtt => subtitles::read(text, true),
            Self::Tsv { column } => tsv::read(text, column),
            Self::Po => po::read(text),
        }
    }

    /// Whether the format has tags, so that tags in its text are markup.
    pub(crate) fn has_tags(self) -> bool {
        matches!(
            self,
            Self::Html | Self::Xml | Self::Markdown | Self::Srt | Self::Vtt
        )
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Ok(match name {
            "text" => Self::Text,
            "html" => Self::Html,
            "xml" => Self::Xml,
            "markdown" => Self::Markdown,
            "srt" => Self::Srt,
            "vtt" => Self::Vtt,
            "tsv" => Self::Tsv { column: 0 },
            "po" => Self::Po,
            _ => {
                let column = name
                    .strip_prefix("tsv:")
                    .and_then(|column| column.parse().ok());
                match column {
                    Some(column @ 1..) => Self::Tsv { column: column - 1 },
                    _ => {
                        return Err(UnknownFormat {
                            name: name.to_owned(),
                        });
                    }
                }
            }
        })
    }
}

/// The name of a format that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown format {name:?}; the formats are {}", Format::NAMES.join(", "))]
pub struct UnknownFormat {
    /// The name.
    pub name: String,
}

/// The lines of a text with their ends.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split_inclusive('\n').map(|line| {
        let content = line.strip_suffix('\n').unwrap_or(line);
        let content = content.strip_suffix('\r').unwrap_or(content);
        line.split_at(content.len())
    })
}

/// Adds text to a passage, in which whitespace is one space.
fn spaced_text(builder: &mut Builder, text: &str, in_document: &str) {
    // The parts of both between whitespace: character references are never spaces of the source.
    let is_space = |letter: char| matches!(letter, ' ' | '\t' | '\n' | '\r' | '\u{c}');
    let words = |text: &str| text.split(is_space).filter(|word| !word.is_empty()).count();
    if words(text) != words(in_document) {
        // A reference that is a space, such as `&#32;`.
        return builder.text(text, in_document);
    }
    let mut words = text.split(is_space).filter(|word| !word.is_empty());
    let mut rest = in_document;
    while !rest.is_empty() {
        let space = rest.len() - rest.trim_start_matches(is_space).len();
        let (spaces, after) = rest.split_at(space);
        match spaces {
            "" => {}
            spaces if spaces.contains(['\n', '\r']) => builder.line_break(spaces),
            spaces => builder.text(" ", spaces),
        }
        let (word, after) = after.split_at(after.find(is_space).unwrap_or(after.len()));
        if !word.is_empty() {
            builder.text(words.next().unwrap_or_default(), word);
        }
        rest = after;
    }
}

/// The name of a tag, such as `<b>` or `</b>`.
fn tag_name(tag: &str) -> &str {
    let name = tag.trim_start_matches(['<', '/']);
    let mut parts = name.split(|letter: char| !letter.is_alphanumeric());
    parts.next().unwrap_or_default()
}

/// Whether a text ends as a sentence does.
fn ends_sentence(text: &str) -> bool {
    let closing = [
        '"', '”', '’', '\'', '»', '«', ')', ']', '」', '』', '）', '*', '_',
    ];
    let text = text.trim_end().trim_end_matches(closing);
    text.ends_with([
        '.', '!', '?', '…', ':', '。', '！', '？', '♪', '।', '؟', '۔',
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Whatever is not translated is written as it was read.
        #[test]
        fn any_text_is_written_as_it_was_read(parts in prop::collection::vec(r#"[a-zé日]{1,4}|[ \n\r\t<>/&;#!"'`*_\[\]()|\\{}$:.,=-]|<b>|</b>|<i>|<p alt='b c'>|<code>|</code>|<!--|-->|&amp;|msgid "|msgstr ""\n|\n\n|00:00:01,000 --> 00:00:02,000\n|```"#, 0..40)) {
            let text = parts.concat();
            for name in Format::NAMES {
                let format: Format = name.parse().expect("a format");
                let document = format.read(&text);
                let untranslated = vec![None; document.passages.len()];
                prop_assert_eq!(document.write(untranslated), &text[..], "{}", name);
            }
        }
    }

    #[test]
    fn formats_have_names() {
        assert_eq!("tsv:3".parse(), Ok(Format::Tsv { column: 2 }));
        assert!("tsv:0".parse::<Format>().is_err());
        let error = "docx".parse::<Format>().unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown format \"docx\"; the formats are text, html, xml, markdown, srt, vtt, tsv, po"
        );
        assert_eq!(Format::of_file(Path::new("a/B.HTM")), Format::Html);
    }
}
