//! The pieces of a unigram language model, estimated from words (Kudo, 2018, §3.2). The seed pieces are frequent
//! substrings; expectation maximization fits their probabilities; the pieces whose removal costs the least
//! likelihood are pruned, until few enough are left.
//!
//! As in SentencePiece: each round fits the probabilities twice and keeps three quarters of the pieces; the M-step
//! uses a sparse prior (digamma); rare characters are not pieces, and are spelled in bytes. Substrings count as
//! often as their words occur.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;

use crate::data::tokenizers::unigram::pieces::{Piece, Pieces};

/// Maximum characters of a piece.
const MAX_LENGTH: usize = 16;
/// Maximum number of seed substrings.
const MAX_SEEDS: usize = 1_000_000;
/// A substring that occurs once is not a piece: it would only memorize its word.
const MIN_COUNT: u64 = 2;
/// Pieces with fewer expected occurrences are pruned at once.
const MIN_EXPECTED: f64 = 0.5;
/// Fits of the probabilities between two rounds of pruning.
const FITS: usize = 2;
/// Fraction of the pieces that a round keeps.
const KEPT: f64 = 0.75;
/// Characters of text, out of 10 000, that the character pieces must cover; rarer characters are not pieces.
const COVERED: u64 = 9_995;
/// Parts in which sums over words are computed. The number is fixed, so that the sums do not depend on the
/// threads.
const PARTS: usize = 16;

/// A word, or a part of one between characters that are not pieces.
struct Word {
    text: Vec<char>,
    count: u64,
}

/// At most `n_pieces` pieces of these words, the most probable first.
pub fn estimated(words: &HashMap<String, u64>, n_pieces: usize) -> Vec<Piece> {
    let alphabet = alphabet(words, n_pieces);
    let words = cut(words, &alphabet);
    let mut pieces = Pieces::new(seeds(&alphabet, &words));
    // More than requested, so that the final selection is by probability.
    let enough = n_pieces + n_pieces / 10;
    loop {
        for _ in 0..FITS {
            pieces = fitted(&pieces, &words);
        }
        if pieces.list().len() <= enough {
            return most_probable(pieces.list(), n_pieces);
        }
        pieces = pruned(&pieces, &words, enough);
    }
}

/// The characters that are pieces, with their counts.
fn alphabet(words: &HashMap<String, u64>, n_pieces: usize) -> BTreeMap<char, u64> {
    let mut counts: BTreeMap<char, u64> = BTreeMap::new();
    for (word, count) in words {
        for character in word.chars() {
            *counts.entry(character).or_default() += count;
        }
    }
    let total: u64 = counts.values().sum();
    let mut counts: Vec<(char, u64)> = counts.into_iter().collect();
    // Stable: equally frequent characters keep their order.
    counts.sort_by_key(|&(_, count)| Reverse(count));
    let mut covered = 0;
    let is_needed = |&(_, count): &(char, u64)| {
        let is_needed = covered * 10_000 < total * COVERED;
        covered += count;
        is_needed
    };
    counts
        .into_iter()
        .take(n_pieces)
        .take_while(is_needed)
        .collect()
}

/// The words, split at characters outside the alphabet, sorted by text.
fn cut(words: &HashMap<String, u64>, alphabet: &BTreeMap<char, u64>) -> Vec<Word> {
    let mut parts: BTreeMap<&str, u64> = BTreeMap::new();
    for (word, count) in words {
        for part in word.split(|character: char| !alphabet.contains_key(&character)) {
            *parts.entry(part).or_default() += count;
        }
    }
    parts
        .into_iter()
        .filter(|(text, _)| !text.is_empty())
        .map(|(text, count)| Word {
            text: text.chars().collect(),
            count,
        })
        .collect()
}

/// The seed pieces: the alphabet, and the substrings that cover the most text.
fn seeds(alphabet: &BTreeMap<char, u64>, words: &[Word]) -> Vec<Piece> {
    let mut longer: Vec<(&[char], u64)> = substrings(words)
        .into_iter()
        .map(|(text, count)| (text, count * text.len() as u64))
        .collect();
    longer.sort_unstable_by(|(a, a_fills), (b, b_fills)| b_fills.cmp(a_fills).then(a.cmp(b)));
    longer.truncate(MAX_SEEDS);
    let characters = alphabet
        .iter()
        .map(|(&character, &count)| (vec![character], count));
    let longer = longer
        .into_iter()
        .map(|(text, fills)| (text.to_vec(), fills));
    let all: Vec<(Vec<char>, u64)> = characters.chain(longer).collect();
    let total: u64 = all.iter().map(|(_, fills)| fills).sum();
    all.into_iter()
        .map(|(text, fills)| Piece {
            text,
            log_probability: (fills as f64 / total as f64).ln(),
        })
        .collect()
}

/// Substrings of at least two characters that occur often enough, with their counts. A substring that occurs only
/// within one longer substring is excluded.
///
/// They are found by increasing length: the prefix and the suffix of a frequent substring are frequent, too.
fn substrings(words: &[Word]) -> HashMap<&[char], u64> {
    let mut found: HashMap<&[char], u64> = HashMap::new();
    let mut shorter: HashSet<&[char]> = HashSet::new();
    for length in 2..=MAX_LENGTH {
        let mut counts: HashMap<&[char], u64> = HashMap::new();
        for word in words {
            for text in word.text.windows(length) {
                let ends = [&text[1..], &text[..length - 1]];
                if length == 2 || ends.iter().all(|end| shorter.contains(end)) {
                    *counts.entry(text).or_default() += word.count;
                }
            }
        }
        counts.retain(|_, count| *count >= MIN_COUNT);
        for (text, count) in &counts {
            for end in [&text[1..], &text[..length - 1]] {
                if found.get(end) == Some(count) {
                    found.remove(end);
                }
            }
        }
        if counts.is_empty() {
            break;
        }
        shorter = counts.keys().copied().collect();
        found.extend(counts);
    }
    found
}

/// The pieces with re-estimated probabilities (one E-step and one M-step), without those whose expected count is
/// too low.
fn fitted(pieces: &Pieces, words: &[Word]) -> Pieces {
    let expected = summed(words, pieces.list().len(), |word, expected| {
        pieces.add_expected(&word.text, word.count, expected);
    });
    let kept = || {
        let all = pieces.list().iter().zip(&expected);
        all.filter(|(piece, expected)| piece.is_character() || **expected >= MIN_EXPECTED)
            .map(|(piece, &expected)| (piece, expected.max(MIN_EXPECTED)))
    };
    let total = digamma(kept().map(|(_, expected)| expected).sum());
    let list = kept().map(|(piece, expected)| Piece {
        text: piece.text.clone(),
        log_probability: digamma(expected) - total,
    });
    Pieces::new(list.collect())
}

/// The pieces without those whose removal costs the least likelihood; at least `enough` remain.
fn pruned(pieces: &Pieces, words: &[Word], enough: usize) -> Pieces {
    let list = pieces.list();
    let counts = summed(words, list.len(), |word, counts| {
        for piece in pieces.best(&word.text, None) {
            counts[piece] += word.count as f64;
        }
    });
    let total: f64 = counts.iter().sum();
    let mut losses: Vec<(f64, &Piece)> = Vec::new();
    for (index, (piece, &count)) in list.iter().zip(&counts).enumerate() {
        if !piece.is_character() && count > 0.0 {
            let others = pieces.best(&piece.text, Some(index));
            losses.push((loss(count, total, &others, &counts), piece));
        }
    }
    losses.sort_unstable_by(|(a, a_piece), (b, b_piece)| {
        b.total_cmp(a).then_with(|| a_piece.text.cmp(&b_piece.text))
    });
    let characters = list.iter().filter(|piece| piece.is_character());
    let longer = losses.into_iter().map(|(_, piece)| piece);
    let most = enough.max((list.len() as f64 * KEPT) as usize);
    Pieces::new(characters.chain(longer).take(most).cloned().collect())
}

/// The decrease of the words' log-likelihood if each of the `count` occurrences of a piece, out of `total` of all
/// pieces, is replaced by `others`.
fn loss(count: f64, total: f64, others: &[usize], counts: &[f64]) -> f64 {
    let new_total = total + count * (others.len() as f64 - 1.0);
    let replaced: f64 = others
        .iter()
        .map(|&other| ((counts[other] + count) / new_total).ln())
        .sum();
    count * ((count / total).ln() - replaced)
}

/// All characters, and the most probable longer pieces up to `n_pieces`; the most probable first.
fn most_probable(list: &[Piece], n_pieces: usize) -> Vec<Piece> {
    let by_probability = |a: &Piece, b: &Piece| {
        let (a_text, b_text) = (&a.text, &b.text);
        b.log_probability
            .total_cmp(&a.log_probability)
            .then_with(|| a_text.cmp(b_text))
    };
    let (mut chosen, mut longer): (Vec<Piece>, Vec<Piece>) =
        list.iter().cloned().partition(Piece::is_character);
    longer.sort_by(by_probability);
    longer.truncate(n_pieces.saturating_sub(chosen.len()));
    chosen.extend(longer);
    chosen.sort_by(by_probability);
    chosen
}

/// `n` sums over all words, to which `add` adds the terms of a word.
fn summed(words: &[Word], n: usize, add: impl Fn(&Word, &mut [f64]) + Sync) -> Vec<f64> {
    let parts: Vec<Vec<f64>> = words
        .par_chunks(words.len().div_ceil(PARTS).max(1))
        .map(|part| {
            let mut sums = vec![0.0; n];
            for word in part {
                add(word, &mut sums);
            }
            sums
        })
        .collect();
    let mut total = vec![0.0; n];
    for part in parts {
        for (total, sum) in total.iter_mut().zip(part) {
            *total += sum;
        }
    }
    total
}

/// The derivative of the logarithm of the gamma function, for positive numbers.
fn digamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    // ψ(x) = ψ(x + 1) - 1 / x, until the asymptotic series is exact.
    while x < 10.0 {
        shift -= 1.0 / x;
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    let series = square * (1.0 / 12.0 - square * (1.0 / 120.0 - square / 252.0));
    shift + x.ln() - 0.5 / x - series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(counts: &[(&str, u64)]) -> HashMap<String, u64> {
        let owned = |&(word, count): &(&str, u64)| (word.to_string(), count);
        counts.iter().map(owned).collect()
    }

    fn texts(pieces: &[Piece]) -> Vec<String> {
        pieces
            .iter()
            .map(|piece| piece.text.iter().collect())
            .collect()
    }

    const WORDS: [(&str, u64); 8] = [
        (" the", 9),
        (" there", 2),
        (" then", 3),
        (" other", 4),
        (" cat", 5),
        (" cats", 2),
        (" hat", 3),
        (".", 12),
    ];

    /// ψ(1) = -γ and ψ(1/2) = -γ - 2 ln 2, by Euler's constant.
    #[test]
    fn digamma_has_its_known_values() {
        let gamma = 0.577_215_664_901_532_9;
        assert!((digamma(1.0) + gamma).abs() < 1e-9);
        assert!((digamma(0.5) + gamma + 2.0 * 2.0_f64.ln()).abs() < 1e-9);
        assert!((digamma(1e6) - (1e6_f64.ln() - 5e-7)).abs() < 1e-9);
    }

    /// Counted by hand: `th` is always followed by `e`, and so is excluded; `he` occurs in 18 words, as `the`
    /// does; ` the` in 14.
    #[test]
    fn substrings_are_counted_and_closed() {
        let alphabet = alphabet(&words(&WORDS), 100);
        let cut = cut(&words(&WORDS), &alphabet);
        let found = substrings(&cut);
        let count = |text: &str| {
            let text: Vec<char> = text.chars().collect();
            found.get(&text[..]).copied()
        };
        assert_eq!(count("the"), Some(18));
        assert_eq!(count(" the"), Some(14));
        assert_eq!(count("at"), Some(10));
        assert_eq!(count(" cat"), Some(7));
        assert_eq!(count(" other"), Some(4));
        assert_eq!(count("th"), None);
        assert_eq!(count("he"), None);
        assert_eq!(count("ot"), None);
    }

    #[test]
    fn there_are_as_many_pieces_as_asked_for_and_all_characters() {
        let all = estimated(&words(&WORDS), 100);
        let characters: HashSet<char> = WORDS.iter().flat_map(|(word, _)| word.chars()).collect();
        for n_pieces in [characters.len(), characters.len() + 3, 100] {
            let pieces = estimated(&words(&WORDS), n_pieces);
            assert_eq!(pieces.len(), n_pieces.min(all.len()));
            let texts = texts(&pieces);
            for character in &characters {
                assert!(texts.contains(&character.to_string()), "{character}");
            }
        }
        let three_more = texts(&estimated(&words(&WORDS), characters.len() + 3));
        assert!(three_more.contains(&" the".to_string()), "{three_more:?}");
    }

    #[test]
    fn too_small_an_alphabet_has_the_most_frequent_characters() {
        assert_eq!(texts(&estimated(&words(&WORDS), 1)), [" "]);
        assert!(estimated(&words(&WORDS), 0).is_empty());
        assert!(estimated(&words(&[]), 10).is_empty());
    }

    /// `z` is two of 10 004 characters.
    #[test]
    fn rare_characters_are_no_pieces() {
        let pieces = texts(&estimated(
            &words(&[("ab", 5000), ("z", 1), ("azb", 1)]),
            10,
        ));
        assert!(
            !pieces.iter().any(|piece| piece.contains('z')),
            "{pieces:?}"
        );
        assert!(pieces.contains(&"a".to_string()) && pieces.contains(&"ab".to_string()));
    }

    #[test]
    fn neither_threads_nor_the_order_of_words_change_a_bit() {
        let counts: Vec<(String, u64)> = (0..1000_u64)
            .map(|n| (format!(" {:b}{n}", n * n % 97), 1 + n % 7))
            .collect();
        let estimate = |threads: usize, counts: HashMap<String, u64>| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            pool.build().unwrap().install(|| estimated(&counts, 60))
        };
        let forward = estimate(1, counts.iter().cloned().collect());
        let backward = estimate(3, counts.into_iter().rev().collect());
        assert_eq!(forward, backward);
        assert_eq!(forward.len(), 60);
    }
}
