//! The sentences of a passage.

use std::ops::Range;

use crate::document::{Kind, Passage, Span, Template, extend, has_letters, push_raw};
use crate::writing::Writing;

/// A sentence of a document, or a part of a long one.
///
/// Its text goes to the model; its markup, placeholders and line breaks are set again in the translation.
#[derive(Debug, Clone)]
pub struct Sentence {
    /// Index of its passage in the document.
    pub(crate) passage: usize,
    /// Its bytes in the passage's text, without the whitespace around it; with the whitespace before markup at its end.
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
    /// Ranges are in `text`.
    pub(crate) spans: Vec<Span>,
    pub(crate) writing: Writing,
}

impl Sentence {
    /// Where its text begins in the sentence that it is a part of.
    fn text_start(&self, whole: &Self) -> usize {
        self.range.start - whole.range.start
    }

    /// Where its text ends in the sentence that it is a part of.
    fn text_end(&self, whole: &Self) -> usize {
        self.text_start(whole) + self.text.len()
    }

    /// The text, without markup.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether there is something to translate in it.
    pub(crate) fn is_translatable(&self) -> bool {
        let mut from = 0;
        for span in &self.spans {
            if let Kind::Fixed(_) = span.kind {
                if has_letters(&self.text[from..span.range.start]) {
                    return true;
                }
                from = span.range.end;
            }
        }
        has_letters(&self.text[from..])
    }

    /// Whether its spans are placed by the attention of the model: whether one covers a part of it.
    pub(crate) fn needs_alignment(&self) -> bool {
        let is_partial = |span: &Span| match span.kind {
            Kind::Element { .. } => !self.is_covered_by(span),
            Kind::Fixed(_) | Kind::Term(_) | Kind::Point(_) => true,
            Kind::Break(_) => false,
        };
        self.spans.iter().any(is_partial)
    }

    /// Whether a span covers all of the text.
    pub(crate) fn is_covered_by(&self, span: &Span) -> bool {
        let around = [&self.text[..span.range.start], &self.text[span.range.end..]];
        around.iter().all(|text| text.trim().is_empty())
    }

    /// The sentence as it was read, with its spans.
    pub(crate) fn untranslated(&self) -> Template {
        let mut written = Template::new();
        let mut ends: Vec<(usize, &Template)> = Vec::new();
        let mut at = 0;
        for span in &self.spans {
            while let Some((end, _)) = ends.last()
                && *end <= span.range.start
                && !(span.range.is_empty() && *end == span.range.start)
            {
                let (end, close) = ends.pop().expect("just seen");
                self.write(at..end, &mut written);
                at = at.max(end);
                extend(&mut written, close);
            }
            self.write(at..span.range.start, &mut written);
            at = at.max(span.range.start);
            match &span.kind {
                Kind::Element { open, close } => {
                    extend(&mut written, open.as_ref().unwrap_or(&Vec::new()));
                    if let Some(close) = close {
                        ends.push((span.range.end, close));
                    }
                }
                Kind::Fixed(template) | Kind::Point(template) => {
                    extend(&mut written, template);
                    at = at.max(span.range.end);
                }
                Kind::Break(text) => {
                    push_raw(&mut written, text);
                    at = at.max(span.range.end);
                }
                Kind::Term(_) => {}
            }
        }
        for (end, close) in ends.into_iter().rev() {
            self.write(at..end, &mut written);
            at = at.max(end);
            extend(&mut written, close);
        }
        self.write(at..self.text.len(), &mut written);
        written
    }

    fn write(&self, range: Range<usize>, written: &mut Template) {
        if range.start < range.end {
            push_raw(written, &self.writing.written(&self.text[range]));
        }
    }
}

/// The sentences of a passage, which begin at these offsets of its text.
pub(crate) fn sentences(passage: &Passage, index: usize, starts: &[usize]) -> Vec<Sentence> {
    let whole = Sentence {
        passage: index,
        range: 0..passage.text.len(),
        text: passage.text.clone(),
        spans: passage.spans.clone(),
        writing: passage.writing,
    };
    cut(&whole, starts)
}

/// Cuts a sentence at offsets of its text, but not within a span that is kept together. The parts have no whitespace
/// around them, and every span is in one of them, or for an element in one or more; line breaks between two parts are
/// in none.
pub(crate) fn cut(sentence: &Sentence, at: &[usize]) -> Vec<Sentence> {
    let parts = parts(sentence, at);
    let mut found: Vec<Sentence> = parts
        .iter()
        .map(|part| Sentence {
            passage: sentence.passage,
            range: sentence.range.start + part.start..sentence.range.start + part.end,
            text: sentence.text[part.clone()].to_owned(),
            spans: Vec::new(),
            writing: sentence.writing,
        })
        .collect();
    for span in &sentence.spans {
        let Range { start, end } = span.range;
        // The first part that ends at or after the span's beginning.
        let first = parts.partition_point(|part| part.end < start);
        if let Kind::Break(_) = span.kind {
            if let Some(part) = parts.get(first).filter(|part| is_within(&span.range, part)) {
                let range = start - part.start..end - part.start;
                let kind = span.kind.clone();
                found[first].spans.push(Span { range, kind });
            }
            continue;
        }
        // Those of which it covers something.
        let covered = parts.partition_point(|part| part.end <= start)
            ..parts.partition_point(|part| part.start < end);
        if covered.start >= covered.end {
            let Some(part) = found.get_mut(first.min(parts.len().saturating_sub(1))) else {
                continue;
            };
            let at = start.clamp(part.text_start(sentence), part.text_end(sentence));
            let mut template = Template::new();
            // Markup at the end has the space before it.
            let written = part.range.end - sentence.range.start;
            if written < start {
                let space = &sentence.text[written..start];
                push_raw(&mut template, &sentence.writing.written(space));
                part.range.end = sentence.range.start + start;
            }
            let at = at - part.text_start(sentence);
            let point = pointed(span, at, template);
            // Behind the elements that end before it, which the text's end does not tell.
            let text_end = part.text_end(sentence);
            let is_before = |other: &&Span| {
                matches!(other.kind, Kind::Element { close: Some(_), .. })
                    && (text_end..start).contains(&other.range.end)
                    && other.range.start < text_end
            };
            let before = sentence.spans.iter().filter(is_before).count();
            let closed = part
                .spans
                .iter_mut()
                .filter_map(|other| match &mut other.kind {
                    Kind::Element {
                        close: Some(close), ..
                    } if other.range.end == at => Some(close),
                    _ => None,
                });
            // Those that end after it are around those that end before it.
            let closed: Vec<&mut Template> = closed.collect();
            let outermost = closed.len().checked_sub(before);
            match outermost.and_then(|outermost| closed.into_iter().nth(outermost)) {
                Some(close) if start > text_end => {
                    if let Kind::Point(template) = &point.kind {
                        extend(close, template);
                    }
                }
                _ => part.spans.push(point),
            }
            continue;
        }
        for index in covered.clone() {
            let part = &parts[index];
            let range = start.max(part.start) - part.start..end.min(part.end) - part.start;
            let kind = match &span.kind {
                Kind::Element { open, close } => Kind::Element {
                    open: open.clone().filter(|_| index == covered.start),
                    close: close.clone().filter(|_| index + 1 == covered.end),
                },
                kind => kind.clone(),
            };
            // An element that neither begins nor ends here is of no concern.
            let is_around = matches!(
                kind,
                Kind::Element {
                    open: None,
                    close: None
                }
            );
            if !is_around {
                found[index].spans.push(Span { range, kind });
            }
        }
    }
    found
}

/// Whether a line break is within a sentence, rather than before or after it.
pub(crate) fn is_within(line_break: &Range<usize>, sentence: &Range<usize>) -> bool {
    sentence.start < line_break.start && line_break.end < sentence.end
}

/// The parts of a sentence's text.
fn parts(sentence: &Sentence, at: &[usize]) -> Vec<Range<usize>> {
    let solid = sentence.spans.iter().filter(|span| span.kind.is_solid());
    let solid: Vec<&Range<usize>> = solid.map(|span| &span.range).collect();
    let is_inside = |at: usize| {
        let next = solid.partition_point(|range| range.end <= at);
        solid.get(next).is_some_and(|range| range.start < at)
    };
    let text = &sentence.text;
    let inner = at.iter().copied().filter(|&at| !is_inside(at));
    let edges: Vec<usize> = [0].into_iter().chain(inner).chain([text.len()]).collect();
    let parts = edges.windows(2).filter(|edge| edge[0] < edge[1]);
    let parts = parts.map(|edge| {
        let part = &text[edge[0]..edge[1]];
        let start = edge[0] + part.len() - part.trim_start().len();
        start..start + part.trim().len()
    });
    parts.filter(|part| part.start < part.end).collect()
}

/// A span that covers nothing, after what is written before it.
fn pointed(span: &Span, at: usize, mut template: Template) -> Span {
    match &span.kind {
        Kind::Element { open, close } => {
            let tags = [open, close].into_iter().flatten();
            tags.for_each(|tag| extend(&mut template, tag));
        }
        Kind::Fixed(written) | Kind::Point(written) => extend(&mut template, written),
        Kind::Break(_) | Kind::Term(_) => {}
    }
    Span {
        range: at..at,
        kind: Kind::Point(template),
    }
}

/// A passage's template: what is between its sentences, as in the document, and the given ones for the sentences.
pub(crate) fn joined(passage: &Passage, sentences: &[(&Sentence, Template)]) -> Template {
    let mut written = Template::new();
    let mut breaks = passage.spans.iter().filter_map(|span| match &span.kind {
        Kind::Break(text) => Some((&span.range, text)),
        _ => None,
    });
    let mut next_break = breaks.next();
    let mut at = 0;
    let end = passage.text.len();
    let ranges = sentences.iter().map(|(sentence, _)| &sentence.range);
    let ranges = ranges.cloned().chain([end..end]);
    for (index, range) in ranges.enumerate() {
        // Between the sentence before and this one.
        while let Some((line_break, text)) = next_break
            && (line_break.end <= range.start || index == sentences.len())
        {
            let before = passage.text.get(at..line_break.start).unwrap_or_default();
            push_raw(&mut written, &passage.writing.written(before));
            push_raw(&mut written, text);
            at = at.max(line_break.end);
            next_break = breaks.next();
        }
        let before = passage.text.get(at..range.start).unwrap_or_default();
        push_raw(&mut written, &passage.writing.written(before));
        if let Some((_, template)) = sentences.get(index) {
            extend(&mut written, template);
        }
        at = at.max(range.end);
        // Line breaks within the sentence are in its template.
        while next_break.is_some_and(|(line_break, _)| is_within(line_break, &range)) {
            next_break = breaks.next();
        }
    }
    written
}
