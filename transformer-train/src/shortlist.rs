//! Lexical shortlists from sentence pairs.

use std::collections::HashMap;

use transformer_core::decoding::{Shortlist, SpecialTokens};

use crate::data::TokenizedPair;

/// How a lexical shortlist is made from sentence pairs.
///
/// A source token's translations are learned by IBM's model 1 (Brown et al., 1993): any token of a target sentence may
/// translate any token of its source, and expectation–maximization finds the probabilities of translations that make
/// the targets most likely.
///
/// ```
/// use transformer_core::decoding::SpecialTokens;
/// use transformer_train::ShortlistConfig;
/// use transformer_train::data::TokenizedPair;
///
/// // 4 is always beside 7, and 5 beside 8.
/// let pair = |source: &[u32], target: &[u32]| TokenizedPair { source: source.into(), target: target.into() };
/// let pairs = [pair(&[4], &[7]), pair(&[5, 4], &[8, 7]), pair(&[5], &[8])];
/// let config = ShortlistConfig { frequent: 0, best: 1, ..ShortlistConfig::default() };
/// let shortlist = config.learn(&pairs, SpecialTokens { eos: 2, ..SpecialTokens::default() });
/// assert_eq!(shortlist.candidates(&[4, 2]), [7]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortlistConfig {
    /// The number of most frequent target tokens that are candidates of every source.
    pub frequent: usize,
    /// The number of most likely translations that are listed per source token.
    pub best: usize,
    /// The iterations of expectation–maximization.
    pub iterations: usize,
}

impl Default for ShortlistConfig {
    /// 100 tokens each, as Marian's, and 5 iterations.
    fn default() -> Self {
        Self {
            frequent: 100,
            best: 100,
            iterations: 5,
        }
    }
}

impl ShortlistConfig {
    /// Learns a shortlist. The frequent tokens are listed as translations of `<eos>`, in which sources end, or if they
    /// do not, as translations of every token up to the largest of the sources. The memory it needs grows with that token.
    pub fn learn(&self, pairs: &[TokenizedPair], special_tokens: SpecialTokens) -> Shortlist {
        let end = special_tokens.source_eos.then_some(special_tokens.eos);
        let mut lists = self.translations(pairs);
        let frequent = self.frequent_tokens(pairs);
        match end {
            Some(end) => {
                let end = end as usize;
                let len = lists.len().max(end + 1);
                lists.resize_with(len, Vec::new);
                lists[end].extend(frequent);
            }
            None => lists.iter_mut().for_each(|list| list.extend(&frequent)),
        }
        for list in &mut lists {
            list.sort_unstable();
            list.dedup();
        }
        Shortlist::new(0, &lists)
    }

    /// The most frequent target tokens.
    fn frequent_tokens(&self, pairs: &[TokenizedPair]) -> Vec<u32> {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for &token in pairs.iter().flat_map(|pair| &pair.target) {
            *counts.entry(token).or_default() += 1;
        }
        let mut counts: Vec<(u32, usize)> = counts.into_iter().collect();
        counts.sort_unstable_by_key(|&(token, count)| (std::cmp::Reverse(count), token));
        counts.truncate(self.frequent);
        counts.into_iter().map(|(token, _)| token).collect()
    }

    /// The most likely translations of each source token.
    fn translations(&self, pairs: &[TokenizedPair]) -> Vec<Vec<u32>> {
        let mut table = Table::new(pairs);
        for _ in 0..self.iterations {
            table.learn(pairs);
        }
        let lists = table.rows.into_iter().map(|mut row| {
            row.sort_unstable_by(|one, other| {
                let by_probability = other.probability.total_cmp(&one.probability);
                by_probability.then(one.target.cmp(&other.target))
            });
            row.truncate(self.best);
            row.into_iter().map(|entry| entry.target).collect()
        });
        // Row 0 belongs to no token.
        lists.skip(1).collect()
    }
}

/// The probability of each target token as the translation of a source token, of those that occur together.
struct Table {
    /// Per source token, its entries in the order of target tokens. Row 0 belongs to the empty word, which target
    /// tokens without a counterpart translate; row i + 1 to token i.
    rows: Vec<Vec<Entry>>,
}

#[derive(Clone, Copy)]
struct Entry {
    target: u32,
    probability: f32,
    /// The expected number of times that it is the translation.
    count: f32,
}

/// The rows of a source: the empty word's, and its tokens'.
fn rows_of(pair: &TokenizedPair) -> impl Iterator<Item = usize> + Clone {
    let tokens = pair.source.iter().map(|&token| token as usize + 1);
    std::iter::once(0).chain(tokens)
}

impl Table {
    /// All translations of a token are equally likely.
    fn new(pairs: &[TokenizedPair]) -> Self {
        let rows = pairs
            .iter()
            .flat_map(rows_of)
            .max()
            .map_or(0, |row| row + 1);
        let mut targets: Vec<Vec<u32>> = vec![Vec::new(); rows];
        // Sorted again whenever it has doubled, so that it stays near the number of different tokens.
        let mut limits = vec![64; rows];
        for pair in pairs {
            for row in rows_of(pair) {
                targets[row].extend(&pair.target);
                if targets[row].len() > limits[row] {
                    sort_distinct(&mut targets[row]);
                    limits[row] = 2 * targets[row].len().max(32);
                }
            }
        }
        let rows = targets.into_iter().map(|mut row| {
            sort_distinct(&mut row);
            let probability = 1.0 / row.len() as f32;
            let entries = row.into_iter().map(|target| Entry {
                target,
                probability,
                count: 0.0,
            });
            entries.collect()
        });
        Self {
            rows: rows.collect(),
        }
    }

    /// An iteration of expectation–maximization.
    fn learn(&mut self, pairs: &[TokenizedPair]) {
        let mut places = Vec::new();
        for pair in pairs {
            for &target in &pair.target {
                places.clear();
                let place = |row: usize| {
                    let entries = &self.rows[row];
                    let at = entries.binary_search_by_key(&target, |entry| entry.target);
                    (row, at.expect("they occur together"))
                };
                places.extend(rows_of(pair).map(place));
                let probability = |&(row, at): &(usize, usize)| self.rows[row][at].probability;
                let sum: f32 = places.iter().map(probability).sum();
                for &(row, at) in &places {
                    let entry = &mut self.rows[row][at];
                    entry.count += entry.probability / sum;
                }
            }
        }
        for row in &mut self.rows {
            let sum: f64 = row.iter().map(|entry| f64::from(entry.count)).sum();
            for entry in row {
                entry.probability = (f64::from(entry.count) / sum) as f32;
                entry.count = 0.0;
            }
        }
    }
}

fn sort_distinct(tokens: &mut Vec<u32>) {
    tokens.sort_unstable();
    tokens.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(source: &[u32], target: &[u32]) -> TokenizedPair {
        TokenizedPair {
            source: source.to_vec(),
            target: target.to_vec(),
        }
    }

    /// "the house", "the book" and "a book", in English and German.
    #[test]
    fn probabilities_are_those_of_model_1() {
        // the = 0, house = 1, book = 2, a = 3; das = 0, Haus = 1, Buch = 2, ein = 3.
        let pairs = [
            pair(&[0, 1], &[0, 1]),
            pair(&[0, 2], &[0, 2]),
            pair(&[3, 2], &[3, 2]),
        ];
        let expected = by_hand(&pairs, 3);
        let mut table = Table::new(&pairs);
        for _ in 0..3 {
            table.learn(&pairs);
        }
        for (row, entries) in table.rows.iter().enumerate() {
            for entry in entries {
                let expected = expected[&(row, entry.target)];
                let error = (f64::from(entry.probability) - expected).abs();
                assert!(error < 1e-6, "{row} {}: {expected}", entry.target);
            }
        }
        // "book" is "Buch" more than anything else.
        assert!(expected[&(3, 2)] > 2.0 * expected[&(3, 0)]);
        assert!(expected[&(3, 2)] > 2.0 * expected[&(3, 3)]);
    }

    /// The same by dictionaries of pairs, as the definition has it.
    fn by_hand(pairs: &[TokenizedPair], iterations: usize) -> HashMap<(usize, u32), f64> {
        let mut table: HashMap<(usize, u32), f64> = HashMap::new();
        for pair in pairs {
            for row in rows_of(pair) {
                for &target in &pair.target {
                    table.insert((row, target), 1.0);
                }
            }
        }
        let normalize = |table: &mut HashMap<(usize, u32), f64>| {
            let mut sums: HashMap<usize, f64> = HashMap::new();
            for (&(row, _), value) in &*table {
                *sums.entry(row).or_default() += value;
            }
            for ((row, _), value) in table {
                *value /= sums[row];
            }
        };
        normalize(&mut table);
        for _ in 0..iterations {
            let mut counts: HashMap<(usize, u32), f64> = HashMap::new();
            for pair in pairs {
                for &target in &pair.target {
                    let sum: f64 = rows_of(pair).map(|row| table[&(row, target)]).sum();
                    for row in rows_of(pair) {
                        *counts.entry((row, target)).or_default() += table[&(row, target)] / sum;
                    }
                }
            }
            table = counts;
            normalize(&mut table);
        }
        table
    }

    #[test]
    fn frequent_tokens_are_candidates_of_every_source() {
        let pairs = [pair(&[4, 5], &[7, 9, 9]), pair(&[6], &[7, 8])];
        let config = ShortlistConfig {
            frequent: 2,
            best: 1,
            ..ShortlistConfig::default()
        };
        let special_tokens = SpecialTokens {
            eos: 9,
            ..SpecialTokens::default()
        };
        let ending = config.learn(&pairs, special_tokens);
        assert_eq!(ending.candidates(&[9]), [7, 9]);
        let unended = SpecialTokens {
            source_eos: false,
            ..special_tokens
        };
        let every = config.learn(&pairs, unended);
        assert!(
            [4, 5, 6]
                .iter()
                .all(|&token| every.candidates(&[token]).starts_with(&[7]))
        );
        assert!(every.candidates(&[9]).is_empty());
    }

    #[test]
    fn without_pairs_nothing_is_listed() {
        let shortlist = ShortlistConfig::default().learn(&[], SpecialTokens::default());
        assert!(shortlist.candidates(&[0, 1, 2, 3]).is_empty());
        let empty = [pair(&[], &[]), pair(&[4], &[]), pair(&[], &[5])];
        let shortlist = ShortlistConfig::default().learn(&empty, SpecialTokens::default());
        assert!(shortlist.candidates(&[4]).is_empty());
    }
}
