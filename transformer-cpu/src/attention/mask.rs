//! A mask in the form that tiled attention uses.

use std::ops::Range;

use crate::sizes::count;

/// The score of a blocked key: half the lowest finite value. Adding it to any score gives a finite value, whose
/// exponential is zero relative to any unblocked score's.
pub const LOWEST: f32 = f32::MIN / 2.0;

/// Which keys a query may not attend to, and a bias on the scores of the others. `Mask::default()` blocks nothing.
/// A key is blocked if any part blocks it.
///
/// Nothing is computed for keys after a query, or for padding at either end of a sentence.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mask<'a> {
    causal: Option<usize>,
    /// `[batch or 1, key_len]`
    padding: Option<(&'a [bool], [usize; 2])>,
    bias: Option<Bias<'a>>,
}

/// Added to the scores; dimensions of size 1 are broadcast.
#[derive(Debug, Clone, Copy)]
struct Bias<'a> {
    values: &'a [f32],
    blocked_rows: Option<&'a [bool]>,
    shape: [usize; 4],
}

impl<'a> Mask<'a> {
    /// Blocks the keys after each query; the first query is at key position `first`.
    pub fn causal(self, first: usize) -> Self {
        Self {
            causal: Some(first),
            ..self
        }
    }

    /// Blocks the keys at padded positions: `[batch or 1, key_len]`, `true` = blocked.
    ///
    /// # Panics
    /// When the number of values does not match the shape.
    pub fn padding(self, padding: &'a [bool], shape: [usize; 2]) -> Self {
        assert_eq!(
            padding.len(),
            count(&shape),
            "length of the padding {shape:?}"
        );
        Self {
            padding: Some((padding, shape)),
            ..self
        }
    }

    /// Adds a bias of shape `[batch or 1, n_heads or 1, query_len or 1, key_len]` to the scores. If it blocks
    /// keys, `blocked_rows` has one boolean per row of the bias, `true` if every key is blocked.
    ///
    /// Its values at keys blocked by padding or causality have no effect.
    ///
    /// # Panics
    /// When the number of values does not match the shape.
    pub fn bias(
        self,
        values: &'a [f32],
        blocked_rows: Option<&'a [bool]>,
        shape: [usize; 4],
    ) -> Self {
        assert_eq!(values.len(), count(&shape), "length of a bias {shape:?}");
        if let Some(rows) = blocked_rows {
            assert_eq!(rows.len(), count(&shape[..3]), "rows of a bias {shape:?}");
        }
        Self {
            bias: Some(Bias {
                values,
                blocked_rows,
                shape,
            }),
            ..self
        }
    }

    /// Panics unless it fits scores `[batch, n_heads, query_len, key_len]`.
    pub(super) fn check(&self, scores: [usize; 4]) {
        let [batch, _, _, key_len] = scores;
        let fits = |mask: &[usize], scores: &[usize]| {
            let fits = |(&mask, &all): (&usize, &usize)| mask == 1 || mask == all;
            mask.last() == scores.last() && mask.iter().zip(scores).all(fits)
        };
        if let Some((_, shape)) = self.padding {
            assert!(
                fits(&shape, &[batch, key_len]),
                "padding {shape:?} for scores {scores:?}"
            );
        }
        if let Some(Bias { shape, .. }) = self.bias {
            assert!(
                fits(&shape, &scores),
                "a bias {shape:?} for scores {scores:?}"
            );
        }
    }

    /// The mask of one head of one sentence with `key_len` keys.
    pub(super) fn of_head(&self, [sentence, head]: [usize; 2], key_len: usize) -> HeadMask<'a> {
        let padding = self.padding.map(|(padding, [sentences, _])| {
            let sentence = if sentences == 1 { 0 } else { sentence };
            &padding[sentence * key_len..][..key_len]
        });
        let keys = match padding {
            None => 0..key_len,
            Some(padding) => {
                let last = padding.iter().rposition(|&blocked| !blocked);
                let end = last.map_or(0, |last| last + 1);
                let first = padding.iter().position(|&blocked| !blocked);
                first.unwrap_or(0)..end
            }
        };
        HeadMask {
            padding: padding.filter(|padding| padding[keys.clone()].contains(&true)),
            keys,
            causal: self.causal,
            bias: self.bias.map(|bias| bias.of_head([sentence, head])),
        }
    }
}

impl<'a> Bias<'a> {
    fn of_head(self, [sentence, head]: [usize; 2]) -> HeadBias<'a> {
        let [sentences, heads, queries, key_len] = self.shape;
        let index = |size: usize, at: usize| if size == 1 { 0 } else { at };
        let first = (index(sentences, sentence) * heads + index(heads, head)) * queries;
        HeadBias {
            values: &self.values[first * key_len..][..queries * key_len],
            blocked_rows: self.blocked_rows.map(|rows| &rows[first..][..queries]),
            key_len,
        }
    }
}

/// The mask of one head of one sentence.
#[derive(Debug, Clone)]
pub(super) struct HeadMask<'a> {
    /// From the first key that is not padding to the last.
    keys: Range<usize>,
    /// The padding of all keys, if any key in `keys` is padding.
    padding: Option<&'a [bool]>,
    causal: Option<usize>,
    bias: Option<HeadBias<'a>>,
}

/// The bias of one head of one sentence: `[query_len or 1, key_len]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadBias<'a> {
    values: &'a [f32],
    blocked_rows: Option<&'a [bool]>,
    key_len: usize,
}

impl<'a> HeadMask<'a> {
    /// From the first to the last key that any of the queries may attend to.
    #[inline(always)]
    pub(super) fn keys_of(&self, queries: Range<usize>) -> Range<usize> {
        let end = match self.causal {
            Some(first) => self.keys.end.min(first.saturating_add(queries.end)),
            None => self.keys.end,
        };
        self.keys.start..end.max(self.keys.start)
    }

    /// How many of the queries, counted from the first, may not attend to a key.
    #[inline(always)]
    pub(super) fn blocked_queries(&self, key: usize, queries: Range<usize>) -> usize {
        match self.causal {
            _ if self.is_padding(key) => queries.len(),
            Some(first) => {
                let before = key.saturating_sub(first).saturating_sub(queries.start);
                before.min(queries.len())
            }
            None => 0,
        }
    }

    #[inline(always)]
    pub(super) fn is_padding(&self, key: usize) -> bool {
        self.padding.is_some_and(|padding| padding[key])
    }

    #[inline(always)]
    pub(super) fn bias(&self) -> Option<HeadBias<'a>> {
        self.bias
    }

    /// Whether the bias blocks every key of a query.
    #[inline(always)]
    pub(super) fn is_blocked_row(&self, query: usize) -> bool {
        let rows = self.bias.and_then(|bias| bias.blocked_rows);
        rows.is_some_and(|rows| rows[if rows.len() == 1 { 0 } else { query }])
    }
}

impl<'a> HeadBias<'a> {
    /// Whether the bias is the same for every query.
    #[inline(always)]
    pub(super) fn is_broadcast(&self) -> bool {
        self.values.len() == self.key_len
    }

    /// The bias of a query for some of the keys.
    #[inline(always)]
    pub(super) fn row(&self, query: usize, keys: Range<usize>) -> &'a [f32] {
        let row = if self.is_broadcast() { 0 } else { query };
        &self.values[row * self.key_len..][keys]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_with_padding_and_with_the_last_query() {
        // The second sentence has padding at its start, at its end and in between; the third is all padding.
        let padding = [
            [false, false, false, false, false, false],
            [true, false, true, false, false, true],
            [true; 6],
        ]
        .concat();
        let padded = Mask::default().padding(&padding, [3, 6]);
        for (mask, ends) in [(padded, [6, 5, 0]), (padded.causal(1), [4, 4, 0])] {
            for (sentence, (start, end)) in [0, 1, 0].into_iter().zip(ends).enumerate() {
                let mask = mask.of_head([sentence, 0], 6);
                assert_eq!(mask.keys_of(0..3), start..end);
                assert_eq!(mask.padding.is_some(), sentence == 1);
            }
        }
        let mask = padded.causal(1).of_head([1, 0], 6);
        // Queries 1 and 2, at positions 2 and 3.
        let blocked = (0..6).map(|key| mask.blocked_queries(key, 1..3));
        assert_eq!(blocked.collect::<Vec<_>>(), [2, 0, 2, 1, 2, 2]);
    }

    #[test]
    fn a_bias_is_broadcast() {
        let values: Vec<f32> = (0..2 * 3 * 5).map(|x| x as f32).collect();
        let rows = [false, true, false, true, false, true];
        let mask = Mask::default().bias(&values, Some(&rows), [2, 1, 3, 5]);
        mask.check([2, 4, 3, 5]);
        let mask = mask.of_head([1, 3], 5);
        let bias = mask.bias().expect("a bias");
        assert_eq!(bias.row(2, 1..3), [26.0, 27.0]);
        assert!(!bias.is_broadcast());
        let blocked = (0..3).map(|query| mask.is_blocked_row(query));
        assert_eq!(blocked.collect::<Vec<_>>(), [true, false, true]);

        let mask = Mask::default().bias(&values, None, [1, 6, 1, 5]);
        let bias = mask.of_head([1, 3], 5).bias().expect("a bias");
        assert!(bias.is_broadcast());
        assert_eq!(bias.row(2, 0..2), [15.0, 16.0]);
    }

    #[test]
    #[should_panic(expected = "padding [2, 6] for scores [3, 1, 6, 6]")]
    fn padding_of_other_sentences_is_refused() {
        let padding = [false; 12];
        Mask::default()
            .padding(&padding, [2, 6])
            .check([3, 1, 6, 6]);
    }

    #[test]
    #[should_panic(expected = "a bias [1, 1, 6, 1] for scores [3, 1, 6, 6]")]
    fn a_bias_without_a_number_for_each_key_is_refused() {
        let values = [0.0; 6];
        let mask = Mask::default().bias(&values, None, [1, 1, 6, 1]);
        mask.check([3, 1, 6, 6]);
    }
}
