//! Pieces with probabilities, and the segmentations of a word into them.

use std::collections::HashMap;

/// A piece of words.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Its characters.
    pub text: Vec<char>,
    /// The natural logarithm of its probability.
    pub log_probability: f64,
}

impl Piece {
    /// Whether it is one character. Such a piece is never pruned: every word can be split into them.
    pub fn is_character(&self) -> bool {
        self.text.len() == 1
    }
}

/// Pieces, including every character of the words, and a trie over them.
#[derive(Debug)]
pub struct Pieces {
    list: Vec<Piece>,
    /// The child of a node for a character; the root is 0.
    children: HashMap<(usize, char), usize>,
    /// Per node, the position in `list` of the piece that ends there.
    ends: Vec<Option<usize>>,
}

/// A piece at a position of a word.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    end: usize,
    /// Position in the list.
    piece: usize,
}

impl Pieces {
    /// Builds the trie of these pieces.
    pub fn new(list: Vec<Piece>) -> Self {
        let mut children = HashMap::new();
        let mut ends = vec![None];
        for (position, piece) in list.iter().enumerate() {
            let mut node = 0;
            for &character in &piece.text {
                let new = ends.len();
                node = *children.entry((node, character)).or_insert(new);
                if node == new {
                    ends.push(None);
                }
            }
            ends[node] = Some(position);
        }
        Self {
            list,
            children,
            ends,
        }
    }

    /// The pieces, in the given order.
    pub fn list(&self) -> &[Piece] {
        &self.list
    }

    /// Adds to `expected` the expected count of each piece in a word that occurs `count` times, over all
    /// segmentations (the E-step).
    pub fn add_expected(&self, word: &[char], count: u64, expected: &mut [f64]) {
        let spans = self.spans(word);
        // Per prefix of the word, the log-probability summed over all its segmentations.
        let mut prefix = vec![f64::NEG_INFINITY; word.len() + 1];
        prefix[0] = 0.0;
        for span in &spans {
            let ways = prefix[span.start] + self.list[span.piece].log_probability;
            prefix[span.end] = log_add(prefix[span.end], ways);
        }
        // Per position, the expected number of cuts there, computed from the end of the word: each piece that ends
        // at a cut receives its fraction of the prefix's probability.
        let mut cuts = vec![0.0; word.len() + 1];
        cuts[word.len()] = count as f64;
        for span in spans.iter().rev() {
            let ways = prefix[span.start] + self.list[span.piece].log_probability;
            let share = cuts[span.end] * (ways - prefix[span.end]).exp();
            expected[span.piece] += share;
            cuts[span.start] += share;
        }
    }

    /// The most probable segmentation of a word: positions in the list, unordered. The piece `without` is not
    /// used.
    pub fn best(&self, word: &[char], without: Option<usize>) -> Vec<usize> {
        let mut best: Vec<(f64, Option<Span>)> = vec![(f64::NEG_INFINITY, None); word.len() + 1];
        best[0].0 = 0.0;
        for span in self.spans(word) {
            let ways = best[span.start].0 + self.list[span.piece].log_probability;
            if Some(span.piece) != without && ways > best[span.end].0 {
                best[span.end] = (ways, Some(span));
            }
        }
        let mut found = Vec::new();
        let mut end = word.len();
        while let Some(span) = best[end].1 {
            found.push(span.piece);
            end = span.start;
        }
        found
    }

    /// All pieces in a word, ordered by start.
    fn spans(&self, word: &[char]) -> Vec<Span> {
        let mut spans = Vec::new();
        for start in 0..word.len() {
            let mut node = 0;
            for (position, &character) in word.iter().enumerate().skip(start) {
                match self.children.get(&(node, character)) {
                    Some(&child) => node = child,
                    None => break,
                }
                if let Some(piece) = self.ends[node] {
                    let end = position + 1;
                    spans.push(Span { start, end, piece });
                }
            }
        }
        spans
    }
}

/// `ln(exp(a) + exp(b))`, where at least one is finite.
fn log_add(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    high + (low - high).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The pieces with these texts and probabilities.
    fn pieces(probabilities: &[(&str, f64)]) -> Pieces {
        let piece = |&(text, probability): &(&str, f64)| Piece {
            text: text.chars().collect(),
            log_probability: probability.ln(),
        };
        Pieces::new(probabilities.iter().map(piece).collect())
    }

    /// Every segmentation of a word, with its probability, by trying each piece at the start of the rest.
    fn ways(probabilities: &[(&str, f64)], word: &str) -> Vec<(Vec<usize>, f64)> {
        if word.is_empty() {
            return vec![(Vec::new(), 1.0)];
        }
        let mut found = Vec::new();
        for (index, (text, probability)) in probabilities.iter().enumerate() {
            if let Some(rest) = word.strip_prefix(text) {
                for (mut pieces, of_rest) in ways(probabilities, rest) {
                    pieces.push(index);
                    found.push((pieces, probability * of_rest));
                }
            }
        }
        found
    }

    const PROBABILITIES: [(&str, f64); 7] = [
        ("a", 0.3),
        ("b", 0.1),
        ("é", 0.05),
        ("ab", 0.2),
        ("ba", 0.15),
        ("aba", 0.05),
        ("bé", 0.15),
    ];

    proptest! {
        #[test]
        fn expected_counts_are_sums_over_all_ways_to_cut_a_word(
            word in "[abé]{1,8}",
            count in 1_u64..5,
        ) {
            let all = ways(&PROBABILITIES, &word);
            let total: f64 = all.iter().map(|(_, probability)| probability).sum();
            let mut by_hand = [0.0; PROBABILITIES.len()];
            for (pieces, probability) in &all {
                for &piece in pieces {
                    by_hand[piece] += count as f64 * probability / total;
                }
            }
            let mut expected = [0.0; PROBABILITIES.len()];
            let word: Vec<char> = word.chars().collect();
            pieces(&PROBABILITIES).add_expected(&word, count, &mut expected);
            for (expected, by_hand) in expected.iter().zip(by_hand) {
                prop_assert!((expected - by_hand).abs() < 1e-9, "{expected} {by_hand}");
            }
        }

        #[test]
        fn the_best_way_is_the_most_probable(word in "[abé]{1,8}", without in 3_usize..7) {
            let characters: Vec<char> = word.chars().collect();
            for without in [None, Some(without)] {
                let mut all = ways(&PROBABILITIES, &word);
                all.retain(|(pieces, _)| !pieces.iter().any(|&piece| Some(piece) == without));
                let most = all.iter().map(|(_, p)| *p).fold(0.0, f64::max);
                let best = pieces(&PROBABILITIES).best(&characters, without);
                let found: f64 = best.iter().map(|&piece| PROBABILITIES[piece].1).product();
                prop_assert!((found / most - 1.0).abs() < 1e-9);
                prop_assert!(!best.iter().any(|&piece| Some(piece) == without));
                let length: usize = best
                    .iter()
                    .map(|&piece| PROBABILITIES[piece].0.chars().count())
                    .sum();
                prop_assert_eq!(length, characters.len());
            }
        }
    }

    #[test]
    fn a_long_word_underflows_nothing() {
        let word = vec!['b'; 100_000];
        let mut expected = [0.0; PROBABILITIES.len()];
        pieces(&PROBABILITIES).add_expected(&word, 2, &mut expected);
        assert!((expected[1] - 200_000.0).abs() < 1e-3, "{expected:?}");
    }
}
