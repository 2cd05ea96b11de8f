//! A document: its skeleton, and the passages of text in it.

use std::ops::Range;

use crate::writing::Writing;

/// A text in some format, taken apart: the skeleton, which is written as it was read, and the passages between.
#[derive(Debug, Clone, Default)]
pub(crate) struct Document {
    pub(crate) skeleton: Template,
    pub(crate) passages: Vec<Passage>,
}

/// Text as it is written, with passages to fill in.
pub(crate) type Template = Vec<Piece>;

/// A part of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Written unchanged.
    Raw(String),
    /// The translation of a passage of the document.
    Passage(usize),
    /// Written if this passage is translated.
    With(usize, String),
}

/// Text without markup that is translated as a whole, such as a paragraph, a table's cell or an attribute.
#[derive(Debug, Clone)]
pub(crate) struct Passage {
    pub text: String,
    /// In document order: an element before what is in it.
    pub spans: Vec<Span>,
    pub writing: Writing,
    /// Offsets of the text where a sentence ends whatever the text is.
    pub cuts: Vec<usize>,
    /// Parts of the text that stand otherwise in the document, such as `&amp;` for `&`; in their order.
    pub escaped: Vec<(Range<usize>, String)>,
    /// The passage in the document, written instead if nothing in it is translated.
    pub raw: Template,
}

/// Something in a passage that is not text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// The bytes of the passage's text that it covers.
    pub range: Range<usize>,
    pub kind: Kind,
}

/// What a [`Span`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Markup around text, such as `<b>…</b>`. `None` where the other sentence of the text has the tag.
    Element {
        open: Option<Template>,
        close: Option<Template>,
    },
    /// Text that is not translated. It is written as given.
    Fixed(Template),
    /// A term of the glossary, written as given, unless the translation has it already.
    Term(String),
    /// Markup without text, such as an image. It covers nothing.
    Point(Template),
    /// A line break within a sentence. It covers a space, or nothing.
    Break(String),
}

impl Kind {
    /// Whether it covers text of which nothing else covers a part.
    pub fn is_solid(&self) -> bool {
        matches!(self, Self::Fixed(_) | Self::Term(_))
    }
}

impl Document {
    /// The document with each passage written by its template. Without one, a passage is written as it was read.
    pub(crate) fn write(&self, mut of_passages: Vec<Option<Template>>) -> String {
        let is_translated: Vec<bool> = of_passages.iter().map(Option::is_some).collect();
        let mut written = String::new();
        let mut left: Vec<std::vec::IntoIter<Piece>> = vec![self.skeleton.clone().into_iter()];
        while let Some(pieces) = left.last_mut() {
            match pieces.next() {
                None => drop(left.pop()),
                Some(Piece::Raw(raw)) => written += &raw,
                Some(Piece::With(index, text)) if is_translated[index] => written += &text,
                Some(Piece::With(..)) => {}
                Some(Piece::Passage(index)) => {
                    let template = of_passages[index].take();
                    let template = template.unwrap_or_else(|| self.passages[index].raw.clone());
                    left.push(template.into_iter());
                }
            }
        }
        written
    }
}

/// A template without passages.
pub(crate) fn raw(text: impl Into<String>) -> Template {
    vec![Piece::Raw(text.into())]
}

/// Appends text to a template.
pub(crate) fn push_raw(template: &mut Template, text: &str) {
    match template.last_mut() {
        _ if text.is_empty() => {}
        Some(Piece::Raw(last)) => last.push_str(text),
        _ => template.push(Piece::Raw(text.to_owned())),
    }
}

impl Passage {
    pub fn new(writing: Writing) -> Self {
        Self {
            text: String::new(),
            spans: Vec::new(),
            writing,
            cuts: Vec::new(),
            escaped: Vec::new(),
            raw: Vec::new(),
        }
    }

    /// Appends text, and notes how it stands in the document.
    pub fn push(&mut self, text: &str, in_document: &str) {
        let start = self.text.len();
        self.text += text;
        if text != in_document && !text.is_empty() {
            let range = start..self.text.len();
            self.escaped.push((range, in_document.to_owned()));
        }
    }

    /// A part of the text as it stands in the document; of what stands otherwise, a part has the escapes that the
    /// format needs, if it cannot be told apart.
    pub fn in_document(&self, part: Range<usize>) -> String {
        let mut written = String::with_capacity(part.len());
        let mut at = part.start;
        let first = self
            .escaped
            .partition_point(|(range, _)| range.end <= part.start);
        for (range, escaped) in &self.escaped[first..] {
            if range.start >= part.end {
                break;
            }
            let both = range.start.max(part.start)..range.end.min(part.end);
            written += &self.text[at..both.start];
            let before = &self.text[range.start..both.start];
            let after = &self.text[both.end..range.end];
            // Of an escape, the first or last character would be taken for the text itself.
            let is_plain = !before.contains(['&', '\\']) && !after.contains([';', '\\']);
            let inside = escaped.strip_prefix(before).filter(|_| is_plain);
            match inside.and_then(|inside| inside.strip_suffix(after)) {
                Some(inside) => written += inside,
                None => self.writing.write(&self.text[both.clone()], &mut written),
            }
            at = both.end;
        }
        written + &self.text[at..part.end]
    }

    /// Whether there is something to translate.
    pub fn has_letters(&self) -> bool {
        let solid = self.spans.iter().filter(|span| span.kind.is_solid());
        let mut from = 0;
        for span in solid {
            if has_letters(&self.text[from..span.range.start]) {
                return true;
            }
            from = span.range.end;
        }
        has_letters(&self.text[from..])
    }
}

/// Whether a text has letters, so that there is something to translate.
pub(crate) fn has_letters(text: &str) -> bool {
    text.chars().any(char::is_alphabetic)
}

/// Appends a template to another.
pub(crate) fn extend(written: &mut Template, template: &Template) {
    for piece in template {
        match piece {
            Piece::Raw(text) => push_raw(written, text),
            piece => written.push(piece.clone()),
        }
    }
}
