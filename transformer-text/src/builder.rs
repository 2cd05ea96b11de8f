//! The builder of documents, which the readers of formats use.

use std::ops::Range;

use crate::document::{Document, Kind, Passage, Piece, Span, Template, extend, push_raw, raw};
use crate::sentence::sentences;
use crate::writing::Writing;

/// Builds a document from its parts in order, as the reader of a format finds them.
pub(crate) struct Builder {
    document: Document,
    writing: Writing,
    passage: Passage,
    /// The elements of the passage that are not closed yet: their names, and the indices of their spans.
    open: Vec<(String, usize)>,
    /// The elements of the passage that may be parts of words.
    in_words: Vec<usize>,
}

impl Builder {
    /// An empty document, whose passages are written so.
    pub fn new(writing: Writing) -> Self {
        Self {
            document: Document::default(),
            passage: Passage::new(writing),
            writing,
            open: Vec::new(),
            in_words: Vec::new(),
        }
    }

    /// A part of the skeleton; ends a passage.
    pub fn skeleton(&mut self, text: &str) {
        self.skeleton_with(raw(text));
    }

    /// A part of the skeleton with passages in it, such as a tag with attributes; ends a passage.
    pub fn skeleton_with(&mut self, template: Template) {
        self.end_passage();
        extend(&mut self.document.skeleton, &template);
    }

    /// Text of a passage, and how it stands in the document.
    pub fn text(&mut self, text: &str, in_document: &str) {
        push_raw(&mut self.passage.raw, in_document);
        match text.strip_prefix(' ') {
            Some(rest) if self.takes_space() => self.passage.text += rest,
            _ => self.passage.text += text,
        }
    }

    /// Gives markup without text the space that follows it, if there is a space before it, too: the text has one.
    fn takes_space(&mut self) -> bool {
        let end = self.passage.text.len();
        if !(self.passage.text.is_empty() || self.passage.text.ends_with(' ')) {
            return false;
        }
        // An open element is not markup without text yet.
        let last = self.passage.spans.len().saturating_sub(1);
        if self.open.last().is_some_and(|(_, index)| *index == last) {
            return false;
        }
        let mut spans = self.passage.spans.iter_mut().rev();
        let span = spans.find(|span| span.range == (end..end));
        match span.map(|span| &mut span.kind) {
            Some(
                Kind::Point(template)
                | Kind::Element {
                    close: Some(template),
                    ..
                },
            ) => {
                push_raw(template, " ");
                true
            }
            _ => false,
        }
    }

    /// Text that is not translated.
    pub fn fixed(&mut self, text: &str, template: Template) {
        let start = self.passage.text.len();
        self.passage.text += text;
        self.span(start, Kind::Fixed(template));
    }

    /// Markup without text.
    pub fn point(&mut self, template: Template) {
        self.span(self.passage.text.len(), Kind::Point(template));
    }

    /// A line break within a passage, which stands for a space.
    pub fn line_break(&mut self, in_document: &str) {
        let start = self.passage.text.len();
        if !self.passage.text.is_empty() && !self.passage.text.ends_with(' ') {
            self.passage.text.push(' ');
        }
        self.span(start, Kind::Break(in_document.to_owned()));
    }

    /// The start of an element.
    pub fn open(&mut self, name: &str, template: Template) {
        self.open.push((name.to_owned(), self.passage.spans.len()));
        self.point(template);
    }

    /// The end of an element; of markup without a beginning, a point.
    pub fn close(&mut self, name: &str, template: Template) {
        let Some(at) = self.open.iter().rposition(|(open, _)| open == name) else {
            return self.point(template);
        };
        // Elements in it that are not closed stay points.
        let (_, index) = self.open.drain(at..).next().expect("found");
        extend(&mut self.passage.raw, &template);
        let end = self.passage.text.len();
        let span = &mut self.passage.spans[index];
        if let Kind::Point(open) = &mut span.kind {
            span.range.end = end;
            span.kind = Kind::Element {
                open: Some(std::mem::take(open)),
                close: Some(template),
            };
        }
    }

    /// A passage by itself, for a template.
    pub fn passage_of(&mut self, text: &str, in_document: &str, writing: Writing) -> Piece {
        self.document.passages.push(Passage {
            text: text.to_owned(),
            raw: raw(in_document),
            ..Passage::new(writing)
        });
        Piece::Passage(self.document.passages.len() - 1)
    }

    /// The end of an element that is a part of a word, such as the 2 of H₂O: the word is then not translated.
    pub fn close_in_word(&mut self, name: &str, template: Template) {
        if let Some(&(_, index)) = self.open.iter().rfind(|(open, _)| open == name) {
            self.in_words.push(index);
        }
        self.close(name, template);
    }

    /// Whether a passage has begun.
    pub fn is_in_passage(&self) -> bool {
        !self.passage.raw.is_empty()
    }

    /// Ends a passage.
    pub fn end_passage(&mut self) {
        self.open.clear();
        let mut passage = std::mem::replace(&mut self.passage, Passage::new(self.writing));
        let in_words = std::mem::take(&mut self.in_words).into_iter();
        let words = in_words.filter_map(|index| passage.word_around(&passage.spans[index].range));
        let words: Vec<Range<usize>> = words.collect();
        words.into_iter().for_each(|word| passage.fix(word));
        if !passage.has_letters() {
            extend(&mut self.document.skeleton, &passage.raw);
            return;
        }
        let index = self.document.passages.len();
        self.document.skeleton.push(Piece::Passage(index));
        self.document.passages.push(passage);
    }

    /// The document.
    pub fn end(mut self) -> Document {
        self.end_passage();
        self.document
    }

    fn span(&mut self, start: usize, kind: Kind) {
        let template = match &kind {
            Kind::Fixed(template) | Kind::Point(template) => template.clone(),
            Kind::Break(text) => raw(text.clone()),
            Kind::Element { .. } | Kind::Term(_) => Vec::new(),
        };
        extend(&mut self.passage.raw, &template);
        let range = start..self.passage.text.len();
        self.passage.spans.push(Span { range, kind });
    }
}

impl Passage {
    /// The word of which a part is in this range, unless all of it is.
    fn word_around(&self, range: &Range<usize>) -> Option<Range<usize>> {
        if range.is_empty() {
            return None;
        }
        let start = self.text[..range.start]
            .trim_end_matches(char::is_alphanumeric)
            .len();
        let after = self.text[range.end..].trim_start_matches(char::is_alphanumeric);
        let word = start..self.text.len() - after.len();
        (word != *range).then_some(word)
    }

    /// Keeps a part of the text as it is, with the markup in it. A part that crosses an element stays as it was.
    fn fix(&mut self, part: Range<usize>) {
        let touches = |span: &Span| span.range.start < part.end && part.start < span.range.end;
        let is_in = |span: &Span| part.start <= span.range.start && span.range.end <= part.end;
        let is_around = |span: &Span| span.range.start <= part.start && part.end <= span.range.end;
        let element = |span: &Span| matches!(span.kind, Kind::Element { .. });
        if self
            .spans
            .iter()
            .any(|span| touches(span) && !is_in(span) && !(element(span) && is_around(span)))
        {
            return;
        }
        // Markup without text belongs to the word before it, if they touch.
        let follows_space =
            self.text[..part.start].trim_end().len() < part.start || part.start == 0;
        let is_part = |span: &Span| {
            let at = span.range.start;
            match &span.kind {
                _ if !span.range.is_empty() => is_in(span),
                Kind::Break(_) => part.start < at && at < part.end,
                _ => part.start < at && at <= part.end || at == part.start && follows_space,
            }
        };
        let whole = sentences(self, 0, &[part.start, part.end]);
        let Some(word) = whole.iter().find(|word| word.range == part) else {
            return;
        };
        let kind = Kind::Fixed(word.untranslated());
        let at = self
            .spans
            .iter()
            .position(is_part)
            .unwrap_or(self.spans.len());
        self.spans.retain(|span| !is_part(span));
        self.spans.insert(at, Span { range: part, kind });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_written_as_it_was_read() {
        let mut builder = Builder::new(Writing::Plain);
        builder.skeleton("- ");
        builder.text("a ", "a ");
        builder.open("b", raw("<b>"));
        builder.text("b", "b");
        builder.open("i", raw("<i>"));
        builder.close("b", raw("</b>"));
        builder.close("i", raw("</i>"));
        builder.line_break("\n");
        builder.fixed("x", raw("`x`"));
        builder.skeleton("\n123");
        let document = builder.end();
        let passage = &document.passages[0];
        assert_eq!(passage.text, "a b x");
        let kinds: Vec<_> = passage.spans.iter().map(|span| &span.kind).collect();
        assert!(matches!(kinds[0], Kind::Element { .. }));
        // Neither of the two ends what it begins.
        assert!(matches!(kinds[1..3], [Kind::Point(_), Kind::Point(_)]));
        assert_eq!(document.write(vec![None]), "- a <b>b<i></b></i>\n`x`\n123");
        let translated = document.write(vec![Some(raw("T"))]);
        assert_eq!(translated, "- T\n123");
    }
}
