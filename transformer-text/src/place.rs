//! Sets the markup of a sentence in its translation.
//!
//! The translation is cut into cells: words, signs, or characters of a script without spaces. By the attention of the
//! model, each cell is aligned to a token of the sentence. An element is set around the cells that are aligned to what
//! it covers in the sentence: around the contiguous ones of which most are. Every tag is written once, and tags are
//! nested as they were.

mod cells;
mod written;

use std::collections::BTreeMap;
use std::ops::Range;

use transformer_core::text::Alignment;

use cells::{cells, is_whole};

use crate::document::{Kind, Span, Template};
use crate::report::Placed;
use crate::scripts::has_no_spaces;
use crate::sentence::Sentence;

/// A translation with the markup of its sentence.
pub(crate) struct Placement {
    pub template: Template,
    /// How each fixed span was set, and its text.
    pub fixed: Vec<(String, Placed)>,
}

/// Sets the spans of a sentence in its translation. Without an alignment, they are set by their relative positions.
pub(crate) fn place(
    sentence: &Sentence,
    translation: &str,
    alignment: Option<&Alignment>,
) -> Placement {
    let mut placing = Placing {
        sentence,
        translation,
        cells: Vec::new(),
        places: Vec::new(),
        parents: parents(sentence),
    };
    let literal = placing.literal();
    placing.cells = cells(translation, &literal);
    placing.align(alignment);
    let fixed = placing.place_fixed(&literal);
    placing.place_others();
    Placement {
        template: placing.written(),
        fixed,
    }
}

/// A part of the translation that is not divided.
#[derive(Debug, Clone)]
struct Cell {
    range: Range<usize>,
    /// The position in the sentence that it is aligned to.
    source: Option<usize>,
    /// Whether it has letters or digits: signs count less.
    is_word: bool,
    /// The fixed span that is written in its place.
    fixed: Option<usize>,
    /// Whether it is written as a part of the fixed span before it.
    is_covered: bool,
}

/// Where a span is set.
#[derive(Debug, Clone, PartialEq)]
enum Place {
    /// Around these cells; fixed spans in place of them.
    Cells(Range<usize>),
    /// Before a cell.
    Before(usize),
    /// After a cell.
    After(usize),
    /// With the span that it is in, which covers no cell; or the translation has none.
    WithParent,
}

struct Placing<'a> {
    sentence: &'a Sentence,
    translation: &'a str,
    cells: Vec<Cell>,
    /// One per span.
    places: Vec<Place>,
    /// The innermost element around each span.
    parents: Vec<Option<usize>>,
}

/// The innermost element around each span.
fn parents(sentence: &Sentence) -> Vec<Option<usize>> {
    let mut around: Vec<usize> = Vec::new();
    let mut found = Vec::with_capacity(sentence.spans.len());
    for (index, span) in sentence.spans.iter().enumerate() {
        let is_around = |&outer: &usize| {
            let outer = &sentence.spans[outer].range;
            outer.start <= span.range.start && span.range.end <= outer.end
        };
        while around.last().is_some_and(|outer| !is_around(outer)) {
            around.pop();
        }
        found.push(around.last().copied());
        if let Kind::Element { .. } = span.kind {
            around.push(index);
        }
    }
    found
}

impl Placing<'_> {
    /// The places of the translation where the text of a fixed span is found, in the order of the spans.
    fn literal(&self) -> Vec<Option<Range<usize>>> {
        let mut is_taken = vec![false; self.translation.len()];
        // Where the search for a text goes on: what is before is taken, or no whole word.
        let mut nexts: BTreeMap<&str, usize> = BTreeMap::new();
        let spans = self.sentence.spans.iter().map(|span| {
            let text = match &span.kind {
                Kind::Fixed(_) => &self.sentence.text[span.range.clone()],
                Kind::Term(term) => &term[..],
                _ => return None,
            };
            if text.is_empty() {
                return None;
            }
            let next = nexts.entry(text).or_default();
            let rest = &self.translation[*next..];
            let found = rest.match_indices(text);
            let mut found = found.map(|(start, text)| *next + start..*next + start + text.len());
            let free = found.find(|found| {
                !is_taken[found.clone()].contains(&true) && is_whole(self.translation, found)
            });
            *next = free
                .as_ref()
                .map_or(self.translation.len(), |free| free.end);
            if let Some(free) = &free {
                is_taken[free.clone()].fill(true);
            }
            free
        });
        spans.collect()
    }

    /// Aligns each cell to a position of the sentence.
    fn align(&mut self, alignment: Option<&Alignment>) {
        let Some(alignment) = alignment else {
            let (from, to) = (self.translation.len().max(1), self.sentence.text.len());
            for cell in &mut self.cells {
                cell.source = Some(cell.range.start * to / from);
            }
            return;
        };
        for cell in &mut self.cells {
            let mut weights = vec![0.0; alignment.source.len()];
            for (token, range) in alignment.target.iter().enumerate() {
                let both = range.start.max(cell.range.start)..range.end.min(cell.range.end);
                for (weight, attention) in weights.iter_mut().zip(alignment.row(token)) {
                    *weight += attention * both.len() as f32;
                }
            }
            let tokens = alignment.source.iter().zip(weights);
            let tokens = tokens.filter(|(range, weight)| !range.is_empty() && *weight > 0.0);
            let most = tokens.max_by(|(_, one), (_, other)| one.total_cmp(other));
            cell.source = most.map(|(range, _)| range.start);
        }
    }

    /// Puts fixed spans in the place of cells.
    fn place_fixed(&mut self, literal: &[Option<Range<usize>>]) -> Vec<(String, Placed)> {
        self.places = vec![Place::WithParent; self.sentence.spans.len()];
        let text_of = |span: &Span| match &span.kind {
            Kind::Term(term) => term.clone(),
            _ => self.sentence.text[span.range.clone()].to_owned(),
        };
        let mut placed = Vec::new();
        let of_cells = |cells: &[Cell], range: &Range<usize>| {
            let first = cells.partition_point(|cell| cell.range.end <= range.start);
            first..cells.partition_point(|cell| cell.range.start < range.end)
        };
        // Those that are found come first, so that no other is put in their place.
        for (index, range) in literal.iter().enumerate() {
            if let Some(range) = range {
                let cells = of_cells(&self.cells, range);
                self.cover(cells, index);
                placed.push((text_of(&self.sentence.spans[index]), Placed::Copied));
            }
        }
        for (index, span) in self.sentence.spans.iter().enumerate() {
            if literal[index].is_some() || !span.kind.is_solid() {
                continue;
            }
            let text = &self.sentence.text[span.range.clone()];
            let is_word = |text: &str| text.contains(char::is_alphanumeric);
            let is_word = is_word(text) || matches!(&span.kind, Kind::Term(term) if is_word(term));
            // A symbol takes the place of no word.
            let is_translated = |cell: &Cell| cell.fixed.is_none() && !cell.is_covered;
            let free = |cell: &Cell| is_translated(cell) && (is_word || !cell.is_word);
            let longest = 1 + cells(text, &[]).len();
            let best = self.best(&span.range, &(0..self.cells.len()), free);
            // Something of the translation is left, if the sentence has other words.
            let is_all = |best: &Range<usize>| {
                let mut others = (0..self.cells.len()).filter(|at| !best.contains(at));
                self.has_words_besides_solid()
                    && !others.any(|at| self.cells[at].is_word && is_translated(&self.cells[at]))
            };
            match best.filter(|best| best.len() <= longest && !is_all(best)) {
                Some(best) => {
                    self.cover(best, index);
                    placed.push((text_of(span), Placed::Aligned));
                }
                None => placed.push((text_of(span), Placed::Inserted)),
            }
        }
        placed
    }

    /// Whether the sentence has words that are in no fixed span.
    fn has_words_besides_solid(&self) -> bool {
        let mut at = 0;
        let mut has_words = false;
        for span in self
            .sentence
            .spans
            .iter()
            .filter(|span| span.kind.is_solid())
        {
            has_words |= self.sentence.text[at..span.range.start].contains(char::is_alphanumeric);
            at = span.range.end;
        }
        has_words || self.sentence.text[at..].contains(char::is_alphanumeric)
    }

    /// Puts a fixed span in the place of cells.
    fn cover(&mut self, cells: Range<usize>, span: usize) {
        let source = self.sentence.spans[span].range.start;
        for (index, cell) in self.cells[cells.clone()].iter_mut().enumerate() {
            cell.source = Some(source);
            cell.is_word = true;
            cell.is_covered = index > 0;
            cell.fixed = (index == 0).then_some(span);
        }
        self.places[span] = Place::Cells(cells);
    }

    /// Sets elements and points.
    fn place_others(&mut self) {
        let count = self.sentence.spans.len();
        let is_element = |span: &Span| matches!(span.kind, Kind::Element { .. });
        let elements: Vec<usize> = (0..count)
            .filter(|&index| is_element(&self.sentence.spans[index]))
            .collect();
        for &index in &elements {
            self.place_element(index);
        }
        // Those to which nothing is aligned are set around one word, once the others have theirs.
        for &index in &elements {
            if self.places[index] == Place::WithParent {
                self.place_around_one(index);
            }
        }
        for index in 0..count {
            let span = &self.sentence.spans[index];
            let is_unplaced = match span.kind {
                Kind::Break(_) => false,
                Kind::Element { .. } | Kind::Point(_) => self.places[index] == Place::WithParent,
                Kind::Fixed(_) | Kind::Term(_) => !matches!(self.places[index], Place::Cells(_)),
            };
            if is_unplaced {
                self.places[index] = self.outside_of_elements(index, self.beside(index));
            }
        }
    }

    /// The cells in which an element may be: those of the element around it. `None` if that has none.
    fn within(&self, index: usize) -> Option<Range<usize>> {
        match self.parents[index].map(|parent| &self.places[parent]) {
            None => Some(0..self.cells.len()),
            Some(Place::Cells(cells)) => Some(cells.clone()),
            Some(_) => None,
        }
    }

    /// The cells of the elements beside one, which are taken.
    fn siblings(&self, index: usize) -> Vec<Range<usize>> {
        let spans = &self.sentence.spans;
        let beside = (0..spans.len())
            .filter(|&other| other != index && self.parents[other] == self.parents[index]);
        let cells = beside.filter_map(|other| match &self.places[other] {
            Place::Cells(cells) if !spans[other].kind.is_solid() => Some(cells.clone()),
            _ => None,
        });
        cells.collect()
    }

    /// Sets an element around the cells that are aligned to it.
    fn place_element(&mut self, index: usize) {
        let span = &self.sentence.spans[index];
        let (Kind::Element { open, close }, Some(within)) = (&span.kind, self.within(index)) else {
            return;
        };
        let siblings = self.siblings(index);
        let is_free = |at: usize| siblings.iter().all(|cells| !cells.contains(&at));
        let mut best = match self.sentence.is_covered_by(span) {
            true => Some(within.clone()).filter(|all| !all.is_empty() && siblings.is_empty()),
            false => self.best_of(&self.whole_words(&span.range), &within, is_free),
        };
        if self.has_words(index) {
            best = best.filter(|best| self.cells[best.clone()].iter().any(|cell| cell.is_word));
        }
        // It goes on in the sentence before or after this one.
        if let Some(best) = &mut best {
            if open.is_none() && (within.start..best.start).all(is_free) {
                best.start = within.start;
            }
            if close.is_none() && (best.end..within.end).all(is_free) {
                best.end = within.end;
            }
        }
        if let Some(best) = best {
            self.places[index] = Place::Cells(self.widened(best));
        }
    }

    /// Whether a span covers letters or digits.
    fn has_words(&self, index: usize) -> bool {
        let range = self.sentence.spans[index].range.clone();
        self.sentence.text[range].contains(char::is_alphanumeric)
    }

    /// A part of the sentence with all of the words of which it has a part: a word is translated as one.
    fn whole_words(&self, range: &Range<usize>) -> Range<usize> {
        let text = &self.sentence.text;
        let is_word = |letter: char| letter.is_alphanumeric() && !has_no_spaces(letter);
        let (mut start, mut end) = (range.start, range.end);
        if text[start..end].starts_with(is_word) {
            start = text[..start].trim_end_matches(is_word).len();
        }
        if text[start..end].ends_with(is_word) {
            end = text.len() - text[end..].trim_start_matches(is_word).len();
        }
        start..end
    }

    /// Sets an element with text around the free word that is nearest to where it would be.
    fn place_around_one(&mut self, index: usize) {
        let (true, Some(within)) = (self.has_words(index), self.within(index)) else {
            return;
        };
        let (Place::Before(at) | Place::After(at)) = self.beside(index) else {
            return;
        };
        let siblings = self.siblings(index);
        let is_free = |&at: &usize| {
            let cell = &self.cells[at];
            let is_solid = cell.fixed.is_some() || cell.is_covered;
            cell.is_word && !is_solid && siblings.iter().all(|cells| !cells.contains(&at))
        };
        let nearest = within.filter(is_free).min_by_key(|&cell| cell.abs_diff(at));
        if let Some(cell) = nearest {
            self.places[index] = Place::Cells(cell..cell + 1);
        }
    }

    /// A place that is not in an element that the span is not in.
    fn outside_of_elements(&self, index: usize, mut place: Place) -> Place {
        // Elements in one another are few, and each move leaves one.
        for _ in 0..self.sentence.spans.len().min(64) {
            let is_inside = |cells: &Range<usize>| match place {
                Place::Before(at) => cells.start < at && at < cells.end,
                Place::After(at) => cells.start <= at && at + 1 < cells.end,
                _ => false,
            };
            let around =
                self.places
                    .iter()
                    .enumerate()
                    .find_map(|(other, of_other)| match of_other {
                        Place::Cells(cells)
                            if matches!(self.sentence.spans[other].kind, Kind::Element { .. })
                                && is_inside(cells)
                                && !self.is_in(index, other) =>
                        {
                            Some((other, cells))
                        }
                        _ => None,
                    });
            let Some((other, cells)) = around else {
                break;
            };
            place = match index < other {
                true => Place::Before(cells.start),
                false => Place::After(cells.end - 1),
            };
        }
        place
    }

    /// The cells, and all of a fixed span of which they have a part.
    fn widened(&self, mut cells: Range<usize>) -> Range<usize> {
        while cells.start > 0 && self.cells[cells.start].is_covered {
            cells.start -= 1;
        }
        while cells.end < self.cells.len() && self.cells[cells.end].is_covered {
            cells.end += 1;
        }
        cells
    }

    fn best(
        &self,
        source: &Range<usize>,
        within: &Range<usize>,
        is_free: impl Fn(&Cell) -> bool,
    ) -> Option<Range<usize>> {
        self.best_of(source, within, |at| is_free(&self.cells[at]))
    }

    /// The contiguous cells of which the most are aligned to a part of the sentence, and the fewest are not: the
    /// subarray of the greatest sum. `None` if none is aligned to it.
    fn best_of(
        &self,
        source: &Range<usize>,
        within: &Range<usize>,
        is_free: impl Fn(usize) -> bool,
    ) -> Option<Range<usize>> {
        let mut best = (0.0, 0..0);
        let mut sum = 0.0;
        let mut start = within.start;
        for at in within.clone() {
            let cell = &self.cells[at];
            if !is_free(at) {
                (sum, start) = (0.0, at + 1);
                continue;
            }
            let weight = if cell.is_word { 1.0 } else { 0.25 };
            let is_aligned = cell
                .source
                .is_some_and(|position| source.contains(&position));
            sum += if is_aligned { weight } else { -weight };
            if sum <= 0.0 {
                (sum, start) = (0.0, at + 1);
            } else if sum > best.0 {
                best = (sum, start..at + 1);
            }
        }
        (best.0 > 0.0).then_some(best.1)
    }

    /// Where a span without cells of its own is set: after the translation of the word before it, or before the word
    /// after it if a space precedes it, within the element that it is in.
    fn beside(&self, index: usize) -> Place {
        let within = match self.parents[index].map(|parent| &self.places[parent]) {
            None => 0..self.cells.len(),
            Some(Place::Cells(cells)) => cells.clone(),
            Some(_) => return Place::WithParent,
        };
        if within.is_empty() {
            return Place::WithParent;
        }
        let Range { start, end } = self.sentence.spans[index].range;
        let text = &self.sentence.text;
        if text[..start].trim().is_empty() {
            return Place::Before(within.start);
        }
        if text[end..].trim().is_empty() {
            return Place::After(within.end - 1);
        }
        // The cells aligned to the nearest positions on both sides.
        let position = |at: usize| self.cells[at].source;
        let of_word_before = within
            .clone()
            .filter(|&at| position(at).is_some_and(|position| position < start))
            .max_by_key(|&at| (position(at), at));
        let of_word_after = within
            .clone()
            .filter(|&at| position(at).is_some_and(|position| position >= end))
            .min_by_key(|&at| (position(at), at));
        let after = of_word_before.map(Place::After);
        let before = of_word_after.map(Place::Before);
        let place = match text[..start].ends_with(char::is_whitespace) {
            true => before.or(after),
            false => after.or(before),
        };
        let place = match place.unwrap_or(Place::After(within.end - 1)) {
            // Not between a word and the sign that follows it.
            Place::Before(at)
                if self.sentence.spans[index].kind.is_solid()
                    && at > within.start
                    && !self.cells[at].is_word
                    && self.cells[at - 1].range.end == self.cells[at].range.start =>
            {
                Place::After(at - 1)
            }
            place => place,
        };
        self.outside_of_fixed(place)
    }

    /// A place that is not in the middle of a fixed span.
    fn outside_of_fixed(&self, place: Place) -> Place {
        match place {
            Place::Before(mut at) => {
                while at > 0 && self.cells[at].is_covered {
                    at -= 1;
                }
                Place::Before(at)
            }
            Place::After(mut at) => {
                while self.cells.get(at + 1).is_some_and(|next| next.is_covered) {
                    at += 1;
                }
                Place::After(at)
            }
            place => place,
        }
    }
}
