//! The builder of documents, which the readers of formats use.

use std::ops::Range;

use crate::document::{Document, Kind, Passage, Piece, Span, Template, extend, push_raw, raw};
use crate::sentence::sentences;
use crate::writing::Writing;

/// The most elements around a passage that are noticed when they end.
pub(crate) const DEEPEST: usize = 100;

/// An element that is not closed yet.
struct Open {
    name: String,
    /// The index of its span.
    span: usize,
    /// The element that ended just before it.
    after: Option<usize>,
}

/// Builds a document from its parts in order, as the reader of a format finds them.
pub(crate) struct Builder {
    document: Document,
    writing: Writing,
    passage: Passage,
    /// The elements of the passage that are not closed yet: their names, and the indices of their spans.
    open: Vec<Open>,
    /// The element that ends where the passage does.
    ended: Option<usize>,
    /// The names of elements that began in a passage before and are not closed yet.
    open_before: Vec<String>,
    /// The elements of the passage that may be parts of words.
    in_words: Vec<usize>,
    /// The links and labels of the passage.
    labels: Vec<usize>,
}

impl Builder {
    /// An empty document, whose passages are written so.
    pub fn new(writing: Writing) -> Self {
        Self {
            document: Document::default(),
            passage: Passage::new(writing),
            writing,
            open: Vec::new(),
            ended: None,
            open_before: Vec::new(),
            in_words: Vec::new(),
            labels: Vec::new(),
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
        let (text, in_document) = match text.strip_prefix(' ') {
            Some(rest) if self.takes_space() => {
                (rest, in_document.strip_prefix(' ').unwrap_or(in_document))
            }
            _ => (text, in_document),
        };
        if !text.is_empty() {
            self.ended = None;
            self.passage.push(text, in_document);
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
        if self.open.last().is_some_and(|open| open.span == last) {
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
        self.ended = None;
        let start = self.passage.text.len();
        self.passage.text += text;
        self.span(start, Kind::Fixed(template));
    }

    /// Markup without text.
    pub fn point(&mut self, template: Template) {
        match self.ended {
            // It stays outside.
            Some(element) => {
                extend(&mut self.passage.raw, &template);
                self.extend_close(element, &template);
            }
            None => self.span(self.passage.text.len(), Kind::Point(template)),
        }
    }

    /// Writes markup after the end of an element.
    fn extend_close(&mut self, element: usize, template: &Template) {
        if let Kind::Element {
            close: Some(close), ..
        } = &mut self.passage.spans[element].kind
        {
            extend(close, template);
        }
    }

    /// A line break within a passage, which stands for a space.
    pub fn line_break(&mut self, in_document: &str) {
        let start = self.passage.text.len();
        if !self.passage.text.is_empty() && !self.passage.text.ends_with(' ') {
            self.ended = None;
            self.passage.text.push(' ');
        }
        self.span(start, Kind::Break(in_document.to_owned()));
    }

    /// The start of an element.
    pub fn open(&mut self, name: &str, template: Template) {
        self.open.push(Open {
            name: name.to_owned(),
            span: self.passage.spans.len(),
            after: self.ended.take(),
        });
        self.point(template);
    }

    /// The end of an element; of markup without a beginning, a point.
    pub fn close(&mut self, name: &str, template: Template) {
        let raw = template.clone();
        self.close_as(name, &raw, template);
    }

    /// The end of an element that is written in another way where its passage is translated.
    pub fn close_as(&mut self, name: &str, in_document: &Template, template: Template) {
        let Some(at) = self.open.iter().rposition(|open| open.name == name) else {
            return self.close_before(name, template);
        };
        // Elements in it that are not closed stay points.
        let Open {
            span: index, after, ..
        } = self.open.drain(at..).next().expect("found");
        extend(&mut self.passage.raw, in_document);
        let end = self.passage.text.len();
        let Kind::Point(open) = &mut self.passage.spans[index].kind else {
            return;
        };
        let open = std::mem::take(open);
        let span = &mut self.passage.spans[index];
        span.range.end = end;
        span.kind = Kind::Element {
            open: Some(open),
            close: Some(template),
        };
        self.ended = Some(index);
        if self.join_empty(index) {
            self.ended = after;
            // Right after another element, it stays outside of that.
            if let Some(after) = after
                && let Some(Span {
                    kind: Kind::Point(template),
                    ..
                }) = self.passage.spans.pop()
            {
                self.extend_close(after, &template);
            }
        }
    }

    /// The end of an element of a passage before, in which all of this one so far is.
    fn close_before(&mut self, name: &str, template: Template) {
        let Some(at) = self.open_before.iter().rposition(|open| open == name) else {
            return self.point(template);
        };
        self.open_before.remove(at);
        if self.passage.text.is_empty() {
            return self.point(template);
        }
        extend(&mut self.passage.raw, &template);
        let kind = Kind::Element {
            open: None,
            close: Some(template),
        };
        let range = 0..self.passage.text.len();
        // It is around all others.
        self.passage.spans.insert(0, Span { range, kind });
        for open in &mut self.open {
            open.span += 1;
            open.after = open.after.map(|after| after + 1);
        }
        let in_words = self.in_words.iter_mut();
        let indices = in_words.chain(&mut self.labels);
        indices.for_each(|index| *index += 1);
        self.ended = Some(0);
    }

    /// Makes one point of an element without text, such as a link around an image, and of what is in it. Returns
    /// whether it is one.
    fn join_empty(&mut self, element: usize) -> bool {
        let spans = &mut self.passage.spans;
        let is_point = |span: &Span| matches!(span.kind, Kind::Point(_));
        if !spans[element].range.is_empty() || !spans[element + 1..].iter().all(is_point) {
            return false;
        }
        let inside = spans.split_off(element + 1);
        let span = &mut spans[element];
        let Kind::Element { open, close } = &span.kind else {
            return false;
        };
        let mut joined = open.clone().unwrap_or_default();
        for span in &inside {
            if let Kind::Point(template) = &span.kind {
                extend(&mut joined, template);
            }
        }
        extend(&mut joined, close.as_ref().unwrap_or(&Vec::new()));
        span.kind = Kind::Point(joined);
        self.in_words.retain(|&index| index < element);
        self.labels.retain(|&index| index < element);
        true
    }

    /// A passage by itself, for a template.
    pub fn passage_of(&mut self, text: &str, in_document: &str, writing: Writing) -> Piece {
        let mut passage = Passage::new(writing);
        passage.push(text, in_document);
        passage.raw = raw(in_document);
        self.document.passages.push(passage);
        Piece::Passage(self.document.passages.len() - 1)
    }

    /// The end of an element that may be a part of a word, such as the 2 of H₂O: the word is then not translated. The
    /// mark of a footnote is markup without text.
    pub fn close_in_word(&mut self, name: &str, template: Template) {
        if let Some(open) = self.open.iter().rfind(|open| open.name == name) {
            self.in_words.push(open.span);
        }
        self.close(name, template);
    }

    /// Says that the element that ends here is a link or a label, which may be beside others, such as in a menu.
    pub fn label(&mut self) {
        self.labels.extend(self.ended);
    }

    /// Whether a passage has begun.
    pub fn is_in_passage(&self) -> bool {
        !self.passage.raw.is_empty()
    }

    /// Ends a passage.
    pub fn end_passage(&mut self) {
        let end = self.passage.text.len();
        // What begins right after an element, and has no text here, stays outside of it.
        let is_point = |span: &Span| matches!(span.kind, Kind::Point(_));
        let outside = self.open.iter().find_map(|open| {
            let spans = self.passage.spans.get(open.span..)?;
            let after = open.after.filter(|_| spans.iter().all(is_point))?;
            Some((open.span, after))
        });
        if let Some((first, after)) = outside {
            for span in self.passage.spans.split_off(first) {
                if let Kind::Point(template) = &span.kind {
                    self.extend_close(after, template);
                }
            }
        }
        // What is not closed yet is around the rest.
        self.ended = None;
        for Open { name, span, .. } in self.open.drain(..) {
            if let Some(span) = self.passage.spans.get_mut(span)
                && let Kind::Point(open) = &mut span.kind
                && span.range.start < end
            {
                let open = Some(std::mem::take(open));
                span.range.end = end;
                span.kind = Kind::Element { open, close: None };
            }
            self.open_before.push(name);
        }
        // Text that is no markup, really, opens elements without end.
        let surplus = self.open_before.len().saturating_sub(DEEPEST);
        self.open_before.drain(..surplus);
        let mut passage = std::mem::replace(&mut self.passage, Passage::new(self.writing));
        let labels = std::mem::take(&mut self.labels);
        passage.cuts = passage.cuts_between(&labels);
        let in_words = std::mem::take(&mut self.in_words).into_iter();
        let in_words = in_words.map(|index| passage.spans[index].range.clone());
        let in_words: Vec<Range<usize>> = in_words.collect();
        // From the end, since text is taken out.
        for range in in_words.into_iter().rev() {
            if passage.is_footnote(&range) {
                passage.take_out(range);
                passage.cuts.clear();
            } else if let Some(word) = passage.word_around(&range) {
                passage.fix(word);
            }
        }
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
    /// The edges of labels, if there are several and no text besides them: each is translated by itself.
    fn cuts_between(&self, labels: &[usize]) -> Vec<usize> {
        let mut cuts = Vec::new();
        let mut at = 0;
        for label in labels {
            let Range { start, end } = self.spans[*label].range;
            if start < at {
                continue;
            }
            cuts.extend([start, end]);
            if self.text[at..start].contains(char::is_alphanumeric) {
                return Vec::new();
            }
            at = end;
        }
        match cuts.len() > 2 && !self.text[at..].contains(char::is_alphanumeric) {
            true => cuts,
            false => Vec::new(),
        }
    }

    /// Whether this is the mark of a footnote, rather than a part of the word before it.
    fn is_footnote(&self, range: &Range<usize>) -> bool {
        /// Before a number, fewer letters are a unit or a formula.
        const WORD: usize = 4;
        let inside = &self.text[range.clone()];
        let before = self.text[..range.start].chars().rev();
        let letters = before.take_while(|letter| letter.is_alphabetic()).count();
        let is_number = !inside.is_empty() && !inside.contains(char::is_alphabetic);
        is_number && (letters >= WORD || inside.contains(['[', '(', '*', '†']))
    }

    /// Makes markup without text of a part of the text, and of the markup in it.
    fn take_out(&mut self, part: Range<usize>) {
        self.fix(part.clone());
        let is_part = |span: &&mut Span| span.range == part && span.kind.is_solid();
        let Some(span) = self.spans.iter_mut().find(is_part) else {
            return;
        };
        if let Kind::Fixed(template) = &mut span.kind {
            span.kind = Kind::Point(std::mem::take(template));
        }
        self.text.replace_range(part.clone(), "");
        let spans = self.spans.iter_mut().map(|span| &mut span.range);
        let escaped = self.escaped.iter_mut().map(|(range, _)| range);
        for range in spans.chain(escaped) {
            for at in [&mut range.start, &mut range.end] {
                if *at >= part.end {
                    *at -= part.len();
                } else {
                    *at = (*at).min(part.start);
                }
            }
        }
        self.escaped.retain(|(range, _)| !range.is_empty());
    }

    /// The word of which a part is in this range, unless all of it is.
    fn word_around(&self, range: &Range<usize>) -> Option<Range<usize>> {
        if range.is_empty() || self.text[range.clone()].contains(char::is_whitespace) {
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
        let inside = Self {
            spans: self
                .spans
                .iter()
                .filter(|span| is_part(span))
                .cloned()
                .collect(),
            ..self.clone()
        };
        let whole = sentences(&inside, 0, &[part.start, part.end]);
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
        // What ends nothing is written after the element before it.
        assert!(
            matches!(kinds[1..], [Kind::Point(_), Kind::Break(_), Kind::Fixed(_)]),
            "{kinds:?}"
        );
        assert_eq!(document.write(vec![None]), "- a <b>b<i></b></i>\n`x`\n123");
        let translated = document.write(vec![Some(raw("T"))]);
        assert_eq!(translated, "- T\n123");
    }
}
