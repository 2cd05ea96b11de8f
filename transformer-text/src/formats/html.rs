//! HTML.

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{Token, Tokenizer};

use super::spaced_text;
use crate::builder::Builder;
use crate::document::{Document, Piece, Template, push_raw, raw};
use crate::writing::Writing;

/// Elements within a line of text. All others end a passage.
const INLINE: [&str; 41] = [
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em",
    "font", "i", "img", "input", "ins", "kbd", "label", "mark", "math", "q", "rp", "rt", "ruby",
    "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "svg", "textarea", "time",
    "tt", "u", "var", "wbr",
];

/// Elements without content.
const VOID: [&str; 13] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track",
    "wbr",
];

/// Elements whose content is not translated.
const KEPT: [&str; 15] = [
    "code", "kbd", "math", "noscript", "pre", "rp", "rt", "samp", "script", "style", "svg",
    "template", "textarea", "tt", "var",
];

/// Elements whose end tag may be left out, and those whose start tags end them.
const OPEN_ENDED: [(&str, &[&str]); 14] = [
    ("dd", &["dd", "dt"]),
    ("dt", &["dd", "dt"]),
    ("li", &["li"]),
    ("optgroup", &["optgroup"]),
    ("option", &["optgroup", "option"]),
    (
        "p",
        &[
            "address",
            "article",
            "aside",
            "blockquote",
            "center",
            "dd",
            "details",
            "dialog",
            "div",
            "dl",
            "dt",
            "fieldset",
            "figcaption",
            "figure",
            "footer",
            "form",
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "header",
            "hgroup",
            "hr",
            "li",
            "main",
            "menu",
            "nav",
            "ol",
            "p",
            "pre",
            "search",
            "section",
            "summary",
            "table",
            "tbody",
            "td",
            "tfoot",
            "th",
            "tr",
            "ul",
        ],
    ),
    ("rp", &["rp", "rt"]),
    ("rt", &["rp", "rt"]),
    ("tbody", &["tbody", "tfoot"]),
    ("td", &["tbody", "td", "tfoot", "th", "tr"]),
    ("tfoot", &["tbody"]),
    ("th", &["tbody", "td", "tfoot", "th", "tr"]),
    ("thead", &["tbody", "tfoot"]),
    ("tr", &["tbody", "tfoot", "tr"]),
];

/// Of these, those whose content is no part of the sentence: pictures, formulas, fields, pronunciations.
const BESIDE: [&str; 5] = ["math", "rp", "rt", "svg", "textarea"];

/// Attributes that are translated.
const TRANSLATED: [&str; 4] = ["alt", "aria-label", "placeholder", "title"];

/// Elements that are open at once within one that is not translated. No page has more.
const MOST_OPEN: usize = 2000;

/// Attributes that any thread has the stack for.
const FEW: usize = 100;

/// The stack for an attribute, with room to spare.
const PER_ATTRIBUTE: usize = 2 << 10;

/// The largest stack: for more than half a million attributes.
const MOST_STACK: usize = 1 << 30;

/// Reads HTML, a page or a part of one.
pub(super) fn read(source: &str) -> Document {
    // The tokenizer calls itself for each attribute in double quotation marks that a tag has.
    let attributes = source.bytes().filter(|&byte| byte == b'"').count() / 2;
    if attributes <= FEW {
        return tokenize(source);
    }
    let stack = (attributes * PER_ATTRIBUTE).min(MOST_STACK) + (1 << 20);
    let read = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(stack);
        let thread = thread.spawn_scoped(scope, || tokenize(source)).ok()?;
        Some(
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    // Without memory for the stack, it is kept as it is.
    read.unwrap_or_else(|| {
        let mut builder = Builder::new(Writing::Html);
        builder.skeleton(source);
        builder.end()
    })
}

fn tokenize(source: &str) -> Document {
    let mut reader = Reader {
        source,
        at: 0,
        builder: Builder::new(Writing::Html),
        kept: None,
        text: String::new(),
    };
    let mut emitter = DefaultEmitter::<usize>::new_with_span();
    // The content of scripts and styles is no markup.
    emitter.naively_switch_states(true);
    for token in Tokenizer::new_with_emitter(source, emitter) {
        let Ok(token) = token;
        reader.token(token);
    }
    reader.end()
}

/// An element that is not translated.
struct Kept {
    name: String,
    /// It, and the elements in it that are open.
    open: Vec<String>,
    start: usize,
    /// The start tag.
    tag: Template,
    is_inline: bool,
    /// The text in it.
    text: String,
}

impl Kept {
    /// Reads a start tag. Returns whether the element ends before it.
    fn open(&mut self, name: &str, is_void: bool) -> bool {
        let is_ended = |open: &mut String| ended_by(open).contains(&name);
        while self.open.pop_if(is_ended).is_some() {}
        if self.open.is_empty() {
            return true;
        }
        // Deeper, text only looks like tags.
        if !is_void && self.open.len() < MOST_OPEN {
            self.open.push(name.to_owned());
        }
        false
    }

    /// Reads an end tag.
    fn close(&mut self, name: &str) -> End {
        match self.open.iter().rposition(|open| open == name) {
            Some(0) => End::With,
            // It ends no block in it.
            Some(at) if is_inline(name) && !self.open[at..].iter().all(|open| is_inline(open)) => {
                self.open.remove(at);
                End::Not
            }
            Some(at) => {
                self.open.truncate(at);
                End::Not
            }
            // Around a block, there is no inline element, no void one and no `p` that could end.
            None if !is_inline(&self.open[0])
                && (name == "p" || VOID.contains(&name) || is_inline(name)) =>
            {
                End::Not
            }
            // It ends an element around this one.
            None if self.open.iter().all(|open| !ended_by(open).is_empty()) => End::Before,
            None => End::Not,
        }
    }
}

/// Whether an element is within a line of text.
fn is_inline(name: &str) -> bool {
    INLINE.contains(&name)
}

/// The elements whose start tags end an element; none if its end tag cannot be left out.
fn ended_by(name: &str) -> &'static [&'static str] {
    let found = OPEN_ENDED.iter().find(|(open, _)| *open == name);
    found.map_or(&[], |(_, next)| next)
}

/// Whether an element ends at an end tag.
enum End {
    With,
    Before,
    Not,
}

struct Reader<'a> {
    source: &'a str,
    /// All before it is read.
    at: usize,
    builder: Builder,
    kept: Option<Kept>,
    /// Text since `at`, without character references.
    text: String,
}

impl Reader<'_> {
    fn token(&mut self, token: Token<usize>) {
        match token {
            Token::String(text) => self.text += &String::from_utf8_lossy(&text.value),
            Token::Error(_) => {}
            Token::StartTag(tag) => {
                let range = self.until(tag.span.start, tag.span.end);
                let name = String::from_utf8_lossy(&tag.name).into_owned();
                let attribute = |name: &str| {
                    let value = tag.attributes.get(name.as_bytes())?;
                    Some(String::from_utf8_lossy(&value.value).to_lowercase())
                };
                let is_void = VOID.contains(&&name[..]) || tag.self_closing;
                if let Some(kept) = &mut self.kept {
                    if !kept.open(&name, is_void) {
                        return;
                    }
                    self.end_kept(range.start);
                }
                let no = attribute("translate").is_some_and(|value| value == "no")
                    || attribute("class").is_some_and(|class| {
                        class
                            .split_ascii_whitespace()
                            .any(|class| class == "notranslate")
                    });
                let is_inline = is_inline(&name);
                let mut values: Vec<(std::ops::Range<usize>, String)> = Vec::new();
                for (name, value) in &tag.attributes {
                    let name = String::from_utf8_lossy(name);
                    if TRANSLATED.contains(&&name[..]) && !no {
                        let text = String::from_utf8_lossy(&value.value).into_owned();
                        values.push((self.value(value.span.start..value.span.end), text));
                    }
                }
                values.sort_by_key(|(range, _)| range.start);
                let end = range.end;
                let template = self.tag(range, values);
                if (KEPT.contains(&&name[..]) || no) && !is_void {
                    self.kept = Some(Kept {
                        open: vec![name.clone()],
                        name,
                        start: end,
                        tag: template,
                        is_inline,
                        text: String::new(),
                    });
                    return;
                }
                match (is_inline, is_void) {
                    (true, true) => self.builder.point(template),
                    (true, false) => self.builder.open(&name, template),
                    (false, _) => self.builder.skeleton_with(template),
                }
            }
            Token::EndTag(tag) => {
                let range = self.until(tag.span.start, tag.span.end);
                let name = String::from_utf8_lossy(&tag.name).into_owned();
                if let Some(kept) = &mut self.kept {
                    match kept.close(&name) {
                        End::Not => return,
                        End::With => return self.end_kept(range.end),
                        End::Before => self.end_kept(range.start),
                    }
                }
                let template = raw(&self.source[range]);
                match &name[..] {
                    name @ ("sub" | "sup") => self.builder.close_in_word(name, template),
                    name @ ("a" | "label") => {
                        self.builder.close(name, template);
                        self.builder.label();
                    }
                    name if is_inline(name) => self.builder.close(name, template),
                    _ => self.builder.skeleton_with(template),
                }
            }
            Token::Comment(comment) => {
                let range = self.until(comment.span.start, comment.span.end);
                if self.kept.is_none() {
                    self.builder.point(raw(&self.source[range]));
                }
            }
            Token::Doctype(doctype) => {
                let range = self.until(doctype.span.start, doctype.span.end);
                if self.kept.is_none() {
                    self.builder.skeleton(&self.source[range]);
                }
            }
        }
    }

    /// Reads the text before a token, and returns the token's range.
    fn until(&mut self, start: usize, end: usize) -> std::ops::Range<usize> {
        let start = start.clamp(self.at, self.source.len());
        let end = end.clamp(start, self.source.len());
        let text = std::mem::take(&mut self.text);
        let in_document = &self.source[self.at..start];
        match &mut self.kept {
            Some(kept) => kept.text += &text,
            None => spaced_text(&mut self.builder, &text, in_document),
        }
        self.at = end;
        start..end
    }

    /// A start tag, with passages for the values of attributes.
    fn tag(
        &mut self,
        range: std::ops::Range<usize>,
        values: Vec<(std::ops::Range<usize>, String)>,
    ) -> Template {
        let mut template = Template::new();
        let mut at = range.start;
        for (value, text) in values {
            let is_in = at <= value.start && value.end <= range.end && value.start < value.end;
            if !is_in || !crate::document::has_letters(&text) {
                continue;
            }
            let quote = self.source[..value.start].chars().next_back();
            let writing = Writing::Attribute(quote.filter(|quote| matches!(quote, '"' | '\'')));
            push_raw(&mut template, &self.source[at..value.start]);
            let in_document = &self.source[value.clone()];
            let passage: Piece = self.builder.passage_of(&text, in_document, writing);
            template.push(passage);
            at = value.end;
        }
        push_raw(&mut template, &self.source[at..range.end]);
        template
    }

    /// The value in an attribute, without its quotation marks.
    fn value(&self, attribute: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let text = self.source.get(attribute.clone()).unwrap_or_default();
        let Some((_, value)) = text.split_once('=') else {
            return 0..0;
        };
        let value = value.trim_start();
        let start = attribute.end - value.len();
        match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let inside = &value[1..];
                start + 1..start + 1 + inside.find(quote).unwrap_or(inside.len())
            }
            _ => {
                let end = value.find(|letter: char| letter.is_ascii_whitespace() || letter == '>');
                start..end.map_or(attribute.end, |end| start + end)
            }
        }
    }

    /// The end of an element that is not translated.
    fn end_kept(&mut self, end: usize) {
        let Some(kept) = self.kept.take() else {
            return;
        };
        let mut template = kept.tag;
        push_raw(&mut template, &self.source[kept.start..end]);
        match kept.is_inline {
            true if BESIDE.contains(&&kept.name[..]) => self.builder.point(template),
            true => self.builder.fixed(&kept.text, template),
            false => self.builder.skeleton_with(template),
        }
    }

    fn end(mut self) -> Document {
        let end = self.source.len();
        let rest = &self.source[self.at..];
        // A tag that is cut off is no token.
        let cut_off = rest.match_indices('<').find(|(at, _)| {
            let next = rest[at + 1..].chars().next();
            next.is_some_and(|next| next.is_ascii_alphabetic() || "/!?".contains(next))
        });
        let start = cut_off.map_or(end, |(at, _)| self.at + at);
        let rest = self.until(start, end);
        match self.kept {
            Some(_) => self.end_kept(end),
            None => self.builder.skeleton(&self.source[rest]),
        }
        self.builder.end()
    }
}
