//! The translation as it is written, once its spans have their places.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Cell, Place, Placing};
use crate::document::{Kind, Piece, Span, Template, extend, push_raw};
use crate::scripts::has_no_spaces;
use crate::writing::Writing;

impl Placing<'_> {
    /// The translation with its spans.
    pub(super) fn written(&self) -> Template {
        let spans = &self.sentence.spans;
        // Spans at each cell, in the order of the sentence.
        let mut starting: Vec<Vec<usize>> = vec![Vec::new(); self.cells.len()];
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); self.cells.len()];
        let mut ending: Vec<Vec<usize>> = vec![Vec::new(); self.cells.len()];
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); spans.len()];
        let mut homeless = Vec::new();
        for (index, span) in spans.iter().enumerate() {
            match &self.places[index] {
                _ if matches!(span.kind, Kind::Break(_)) => {}
                Place::Cells(cells) if matches!(span.kind, Kind::Element { .. }) => {
                    starting[cells.start].push(index);
                    ending[cells.end - 1].push(index);
                }
                // Written with its cell.
                Place::Cells(_) => {}
                Place::Before(at) => {
                    // Before the elements that it is not in.
                    let starting = &mut starting[*at];
                    let is_around = |&other: &usize| self.is_in(index, other);
                    let from = starting.iter().rposition(is_around).map_or(0, |at| at + 1);
                    let is_element = |&other: &usize| matches!(self.places[other], Place::Cells(_));
                    let next = starting[from..].iter().position(is_element);
                    starting.insert(next.map_or(starting.len(), |next| from + next), index);
                }
                Place::After(at) => after[*at].push(index),
                Place::WithParent => match self.parents[index] {
                    Some(parent) => children[parent].push(index),
                    None => homeless.push(index),
                },
            }
        }
        let breaks = self.breaks();
        let mut written = Template::new();
        let mut at = 0;
        for (index, cell) in self.cells.iter().enumerate() {
            if cell.is_covered {
                at = cell.range.end;
                self.write_ends(index, &after, &ending, &children, &mut written);
                continue;
            }
            match breaks.get(&index) {
                Some(texts) => texts.iter().for_each(|text| push_raw(&mut written, text)),
                None => self.write(at..cell.range.start, &mut written),
            }
            let begins_line = |index: usize| index == 0 || breaks.contains_key(&index);
            let is_markup_here = cell.fixed.is_none() && self.is_markup(index, begins_line);
            for &span in &starting[index] {
                match (&spans[span].kind, &self.places[span]) {
                    (Kind::Element { open, .. }, Place::Cells(_)) => {
                        extend(&mut written, open.as_ref().unwrap_or(&Vec::new()));
                    }
                    _ => {
                        self.write_alone(span, &children, &mut written);
                        self.space_after(span, &mut written);
                    }
                }
            }
            match cell.fixed {
                Some(span) => self.write_solid(span, cell, &mut written),
                None if is_markup_here => {
                    push_raw(&mut written, "\\");
                    self.write(cell.range.clone(), &mut written);
                }
                None => self.write(cell.range.clone(), &mut written),
            }
            at = cell.range.end;
            self.write_ends(index, &after, &ending, &children, &mut written);
        }
        for text in breaks.get(&self.cells.len()).into_iter().flatten() {
            push_raw(&mut written, text);
        }
        for span in homeless {
            self.write_alone(span, &children, &mut written);
        }
        written
    }

    /// Writes what is after a cell.
    fn write_ends(
        &self,
        cell: usize,
        after: &[Vec<usize>],
        ending: &[Vec<usize>],
        children: &[Vec<usize>],
        written: &mut Template,
    ) {
        // An element that ends here, and what comes after it in the sentence and is not in it, in this order.
        let mut ends: Vec<usize> = ending[cell].clone();
        for &span in &after[cell] {
            while let Some(&element) = ends.last()
                && !self.is_in(span, element)
            {
                self.write_close(element, written);
                ends.pop();
            }
            self.space_before(span, written);
            self.write_alone(span, children, written);
        }
        for element in ends.into_iter().rev() {
            self.write_close(element, written);
        }
    }

    /// Whether a span is in an element.
    pub(super) fn is_in(&self, span: usize, element: usize) -> bool {
        let mut parent = self.parents[span];
        while let Some(index) = parent {
            if index == element {
                return true;
            }
            parent = self.parents[index];
        }
        false
    }

    fn write_close(&self, element: usize, written: &mut Template) {
        if let Kind::Element {
            close: Some(close), ..
        } = &self.sentence.spans[element].kind
        {
            extend(written, close);
        }
    }

    /// Writes a span that covers no cell, and those in it.
    fn write_alone(&self, span: usize, children: &[Vec<usize>], written: &mut Template) {
        // Spans to open, and elements to close.
        let mut left = vec![(span, false)];
        while let Some((span, is_end)) = left.pop() {
            match &self.sentence.spans[span].kind {
                Kind::Element { open, .. } if self.is_emphasis(open.as_ref()) => {
                    left.extend(children[span].iter().rev().map(|&child| (child, false)));
                }
                Kind::Element { .. } if is_end => self.write_close(span, written),
                Kind::Element { open, .. } => {
                    extend(written, open.as_ref().unwrap_or(&Vec::new()));
                    left.push((span, true));
                    left.extend(children[span].iter().rev().map(|&child| (child, false)));
                }
                Kind::Fixed(template) | Kind::Point(template) => extend(written, template),
                Kind::Term(term) => self.write_text(term, written),
                Kind::Break(_) => {}
            }
        }
    }

    /// Whether a cell would be markup in Markdown: at the beginning of a line, the marker of a block such as a list.
    fn is_markup(&self, index: usize, begins_line: impl Fn(usize) -> bool) -> bool {
        if self.sentence.writing != Writing::Markdown {
            return false;
        }
        let text = |index: usize| &self.translation[self.cells[index].range.clone()];
        let end = self.cells[index].range.end;
        let follows_space = self.translation[end..].starts_with(char::is_whitespace);
        match text(index) {
            "#" | ">" | "=" => begins_line(index),
            "-" | "+" => begins_line(index) && follows_space,
            // A reference to a character.
            "&" => {
                let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '#';
                let after = self.translation[end..].trim_start_matches(is_name);
                after.len() < self.translation.len() - end && after.starts_with(';')
            }
            "." | ")" => {
                let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
                index > 0 && begins_line(index - 1) && is_number(text(index - 1)) && follows_space
            }
            _ => false,
        }
    }

    /// Whether this is the beginning of Markdown's emphasis, which is none without text in it.
    fn is_emphasis(&self, open: Option<&Template>) -> bool {
        let is_sign = |piece: &Piece| match piece {
            Piece::Raw(text) => text.bytes().all(|byte| b"*_~".contains(&byte)),
            _ => false,
        };
        self.sentence.writing == Writing::Markdown
            && open.is_some_and(|open| !open.is_empty() && open.iter().all(is_sign))
    }

    /// The space after an inserted fixed span, where the sentence has one.
    fn space_after(&self, span: usize, written: &mut Template) {
        let Range { end, .. } = self.sentence.spans[span].range;
        let follows = self.sentence.text[end..].starts_with(char::is_whitespace);
        if self.sentence.spans[span].kind.is_solid() && follows {
            push_raw(written, " ");
        }
    }

    /// The space before an inserted fixed span, where the sentence has one.
    fn space_before(&self, span: usize, written: &mut Template) {
        let Range { start, .. } = self.sentence.spans[span].range;
        let precedes = self.sentence.text[..start].ends_with(char::is_whitespace);
        if self.sentence.spans[span].kind.is_solid() && precedes {
            push_raw(written, " ");
        }
    }

    fn write_solid(&self, span: usize, cell: &Cell, written: &mut Template) {
        match &self.sentence.spans[span].kind {
            Kind::Fixed(template) => extend(written, template),
            Kind::Term(term) => self.write_text(term, written),
            _ => self.write(cell.range.clone(), written),
        }
    }

    fn write(&self, range: Range<usize>, written: &mut Template) {
        self.write_text(&self.translation[range], written);
    }

    fn write_text(&self, text: &str, written: &mut Template) {
        push_raw(written, &self.sentence.writing.written(text));
    }

    /// The line breaks before each cell: those nearest to their relative positions in the sentence, with at least one
    /// cell between two, if there are enough.
    fn breaks(&self) -> BTreeMap<usize, Vec<&str>> {
        let count = |text: &str| {
            text.chars()
                .filter(|letter| !letter.is_whitespace())
                .count()
        };
        let breaks = self
            .sentence
            .spans
            .iter()
            .enumerate()
            .filter_map(|span| match span {
                (
                    index,
                    Span {
                        range,
                        kind: Kind::Break(text),
                    },
                ) => Some((index, count(&self.sentence.text[..range.start]), text)),
                _ => None,
            });
        let breaks: Vec<(usize, usize, &String)> = breaks.collect();
        // Where a line may end, with the characters before it.
        let mut before = 0;
        let mut places: Vec<(usize, usize)> = Vec::new();
        for (at, cell) in self.cells.iter().enumerate() {
            if at > 0 && self.may_break(at) {
                places.push((at, before));
            }
            before += count(&self.translation[cell.range.clone()]);
        }
        let before_all = before as f64;
        let scale = before_all / count(&self.sentence.text).max(1) as f64;
        let is_inside = |cells: &Range<usize>, at: usize| cells.start < at && at < cells.end;
        // Before each cell, the number of elements that it is in the middle of.
        let mut inside = vec![0_usize; self.cells.len()];
        for (span, place) in self.sentence.spans.iter().zip(&self.places) {
            if let (Kind::Element { .. }, Place::Cells(cells)) = (&span.kind, place) {
                let middle = cells.start + 1..cells.end.max(cells.start + 1);
                inside[middle].iter_mut().for_each(|count| *count += 1);
            }
        }
        let mut found = BTreeMap::<usize, Vec<&str>>::new();
        let mut next = 0;
        for (index, (span, position, text)) in breaks.iter().enumerate() {
            let left = breaks.len() - index - 1;
            // Those that leave one for each break after this one.
            let most = places.len().saturating_sub(left).max(next);
            let ideal = *position as f64 * scale;
            // Rather than in an element that the break is not in, anywhere else.
            let around = self.elements_around(*span);
            let distance = |&(at, before): &(usize, usize)| {
                let of_break = around.iter().filter(|cells| is_inside(cells, at)).count();
                let distance = (before as f64 - ideal).abs();
                if of_break == inside[at] {
                    distance
                } else {
                    distance + before_all
                }
            };
            let best = (next..most)
                .min_by(|&one, &other| distance(&places[one]).total_cmp(&distance(&places[other])));
            let at = best.map_or(self.cells.len(), |best| places[best].0);
            next = best.map_or(next, |best| best + 1);
            found.entry(at).or_default().push(text);
        }
        found
    }

    /// The cells of the elements that a span is in.
    fn elements_around(&self, span: usize) -> Vec<Range<usize>> {
        let mut around = Vec::new();
        let mut parent = self.parents[span];
        while let Some(element) = parent {
            if let Place::Cells(cells) = &self.places[element] {
                around.push(cells.clone());
            }
            parent = self.parents[element];
        }
        around
    }

    /// Whether a line may end before a cell.
    fn may_break(&self, at: usize) -> bool {
        let [one, other] = [&self.cells[at - 1].range, &self.cells[at].range];
        let first = |range: &Range<usize>| self.translation[range.clone()].chars().next();
        let is_dense = |range: &Range<usize>| {
            first(range).is_some_and(|letter| has_no_spaces(letter) && letter.is_alphanumeric())
        };
        !self.cells[at].is_covered && (one.end < other.start || is_dense(one) && is_dense(other))
    }
}
