//! Byte-pair encoding: adjacent symbols are merged, the pair with the highest score first, leftmost on a tie.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use crate::text::sentence_piece::model_file::Kind;
use crate::text::sentence_piece::normalizer::character;
use crate::text::sentence_piece::pieces::{Part, Pieces};

/// Maximum number of times that an unused merged piece is split again.
const MOST_CUTS: usize = 100;

/// Splits a normalized text into parts.
pub(super) fn parts(text: &[u8], pieces: &Pieces) -> Vec<Part> {
    let mut word = Merging::new(text, pieces);
    for right in 1..word.symbols.len() {
        word.consider(Some(right - 1), Some(right));
    }
    while let Some(pair) = word.queue.pop() {
        word.merge(&pair);
    }
    word.parts()
}

/// A text whose symbols are being merged.
struct Merging<'a> {
    text: &'a [u8],
    pieces: &'a Pieces,
    /// Initially its characters. A merged symbol becomes part of the one before it.
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Pair>,
    /// For each text that is an unused piece, the length of the first of the two parts from which it was merged.
    halves: HashMap<&'a [u8], usize>,
}

struct Symbol {
    start: usize,
    /// In bytes; 0 once it is merged.
    length: usize,
    before: Option<usize>,
    after: Option<usize>,
    /// A user-defined piece, which is not merged.
    is_kept: bool,
}

/// Two neighbors that may be merged.
#[derive(Debug)]
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// The length of both together, which shows whether either has been merged since.
    length: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

impl<'a> Merging<'a> {
    fn new(text: &'a [u8], pieces: &'a Pieces) -> Self {
        let mut symbols: Vec<Symbol> = Vec::new();
        let mut start = 0;
        while start < text.len() {
            let rest = &text[start..];
            let kept = pieces.user_defined().longest(rest);
            let length = kept.unwrap_or_else(|| character(rest));
            let index = symbols.len();
            let next = start + length;
            symbols.push(Symbol {
                start,
                length,
                before: index.checked_sub(1),
                after: (next < text.len()).then_some(index + 1),
                is_kept: kept.is_some(),
            });
            start = next;
        }
        Self {
            text,
            pieces,
            symbols,
            queue: BinaryHeap::new(),
            halves: HashMap::new(),
        }
    }

    /// Puts two neighbors into the queue, if there is a piece for both together.
    fn consider(&mut self, left: Option<usize>, right: Option<usize>) {
        let (Some(left), Some(right)) = (left, right) else {
            return;
        };
        let [first, second] = [&self.symbols[left], &self.symbols[right]];
        if first.is_kept || second.is_kept {
            return;
        }
        let length = first.length + second.length;
        let text = &self.text[first.start..first.start + length];
        let Some(id) = self.pieces.of_text(text) else {
            return;
        };
        let piece = self.pieces.get(id);
        if piece.kind == Kind::Unused {
            self.halves.insert(text, first.length);
        }
        self.queue.push(Pair {
            score: piece.score,
            left,
            right,
            length,
        });
    }

    fn merge(&mut self, pair: &Pair) {
        let &Pair {
            left,
            right,
            length,
            ..
        } = pair;
        let [first, second] = [left, right].map(|symbol| self.symbols[symbol].length);
        if first == 0 || second == 0 || first + second != length {
            return;
        }
        let after = self.symbols[right].after;
        self.symbols[right].length = 0;
        self.symbols[left].length = length;
        self.symbols[left].after = after;
        if let Some(after) = after {
            self.symbols[after].before = Some(left);
        }
        self.consider(self.symbols[left].before, Some(left));
        self.consider(Some(left), after);
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        for symbol in self.symbols.iter().filter(|symbol| symbol.length > 0) {
            // The parts still to be split, the first one last.
            let mut uncut = vec![(symbol.start, symbol.length, 0)];
            while let Some((start, length, cuts)) = uncut.pop() {
                let text = &self.text[start..start + length];
                let piece = self.pieces.of_text(text);
                let is_unused = |&id: &u32| self.pieces.get(id).kind == Kind::Unused;
                if cuts > MOST_CUTS || !piece.as_ref().is_some_and(is_unused) {
                    parts.push(Part { length, piece });
                    continue;
                }
                match self.halves.get(text) {
                    Some(&half) => {
                        uncut.push((start + half, length - half, cuts + 1));
                        uncut.push((start, half, cuts + 1));
                    }
                    None => parts.push(Part {
                        length,
                        piece: None,
                    }),
                }
            }
        }
        parts
    }
}
