//! Attention from one position to slots of a cache.

use pulp::{Simd, WithSimd};

use crate::attention::heads::score_scale;
use crate::simd::{arch, exp};
use crate::sizes::count;
use crate::types::Heads;

/// The positions that a query may attend to, in rows `stride` values apart.
#[derive(Debug, Clone, Copy)]
pub struct Slots<'a> {
    /// `[slots, stride]`
    pub rows: &'a [f32],
    /// Distance from one row to the next.
    pub stride: usize,
    /// Number of heads of a row's keys and values: as many as the query's, or a divisor.
    pub n_heads: usize,
    /// Offset of a row's keys, `[n_heads, d_k]`.
    pub keys: usize,
    /// Offset of a row's values, `[n_heads, d_v]`.
    pub values: usize,
    /// Added to the scores of the chosen slots, `[chosen, n_heads]`.
    pub bias: Option<&'a [f32]>,
}

/// Attention from one position to the chosen slots (§3.2.1), in the given order, with an optional bias on the
/// scores.
///
/// If the slots have fewer heads than the query, each serves a group of neighboring query heads (grouped-query
/// and multi-query attention; Ainslie et al., 2023).
///
/// If `weights`, `[chosen]`, is given, each slot's weights, summed over all heads, are added to it. `scores` is
/// reusable memory.
///
/// # Shapes
/// - query: `[n_heads, d_k]`
/// - out: `[n_heads, d_v]`, overwritten; zeros if no slot is chosen
///
/// # Panics
/// When the lengths do not agree, the slots' heads do not divide the query's, or a slot is out of range.
///
/// ```
/// use transformer_cpu::Heads;
/// use transformer_cpu::rows::{Slots, attend};
///
/// // One head, d_k = 1: keys ln 3, 7 and 0, values 10, 5 and 20. For the first and the last slot the scores
/// // are 2 ln 3 and 0, so the weights are 9/10 and 1/10 and the output is 0.9 · 10 + 0.1 · 20 = 11.
/// let rows = [3.0_f32.ln(), 10.0, 7.0, 5.0, 0.0, 20.0];
/// let slots = Slots { rows: &rows, stride: 2, n_heads: 1, keys: 0, values: 1, bias: None };
/// let heads = Heads { n_heads: 1, d_k: 1, d_v: 1 };
/// let (mut out, mut weights) = ([0.0], [0.0; 2]);
/// attend(&[2.0], slots, &[0, 2], heads, &mut out, Some(&mut weights), &mut vec![]);
/// assert!((out[0] - 11.0).abs() < 1e-5);
/// assert!((weights[0] - 0.9).abs() < 1e-6);
/// ```
pub fn attend(
    query: &[f32],
    slots: Slots<'_>,
    chosen: &[u32],
    heads: Heads,
    out: &mut [f32],
    weights: Option<&mut [f32]>,
    scores: &mut Vec<f32>,
) {
    let Heads { n_heads, d_k, d_v } = heads;
    let widths = |n_heads| [d_k, d_v].map(|width| count(&[n_heads, width]));
    assert_eq!(
        [query.len(), out.len()],
        widths(n_heads),
        "lengths of a query and of its output, for {heads:?}"
    );
    assert!(
        n_heads.is_multiple_of(slots.n_heads),
        "{} heads of keys and values, for {heads:?}",
        slots.n_heads
    );
    let [keys, values] = widths(slots.n_heads);
    let end = slots.keys.saturating_add(keys);
    let end = end.max(slots.values.saturating_add(values));
    assert!(
        end <= slots.stride,
        "keys and values up to {end} in rows of {}",
        slots.stride
    );
    let most = chosen.iter().max().map_or(0, |&slot| slot as usize + 1);
    let held = slots.rows.len() / slots.stride.max(1);
    assert!(most <= held, "slot {} of {held}", most.max(1) - 1);
    if let Some(weights) = &weights {
        assert_eq!(weights.len(), chosen.len(), "number of weights");
    }
    if let Some(bias) = slots.bias {
        assert_eq!(bias.len(), chosen.len() * n_heads, "number of biases");
    }
    if chosen.is_empty() || n_heads == 0 {
        return out.fill(0.0);
    }
    arch().dispatch(Attend {
        query,
        slots,
        chosen,
        heads,
        out,
        weights,
        scores,
    });
}

struct Attend<'a> {
    query: &'a [f32],
    slots: Slots<'a>,
    chosen: &'a [u32],
    heads: Heads,
    out: &'a mut [f32],
    weights: Option<&'a mut [f32]>,
    scores: &'a mut Vec<f32>,
}

/// Number of heads whose softmax is computed together.
const BLOCK: usize = 8;

impl WithSimd for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let Heads { n_heads, d_k, d_v } = self.heads;
        // `[chosen, n_heads]`, zero-padded after the last head.
        let width = n_heads.next_multiple_of(BLOCK);
        self.scores.clear();
        self.scores.resize(self.chosen.len() * width, 0.0);
        // Heads of the common widths have a fixed number of vectors.
        match vectors::<S>(d_k) {
            Some(1) => self.score::<S, 1>(simd),
            Some(2) => self.score::<S, 2>(simd),
            Some(4) => self.score::<S, 4>(simd),
            Some(8) => self.score::<S, 8>(simd),
            _ => self.score_any(simd),
        }
        if let Some(bias) = self.slots.bias {
            let biases = bias.chunks_exact(n_heads);
            for (scores, biases) in self.scores.chunks_exact_mut(width).zip(biases) {
                let heads = scores.iter_mut().zip(biases);
                heads.for_each(|(score, bias)| *score += bias);
            }
        }
        softmax(self.scores, width);
        if let Some(weights) = &mut self.weights {
            for (weight, heads) in weights.iter_mut().zip(self.scores.chunks_exact(width)) {
                *weight += heads[..n_heads].iter().sum::<f32>();
            }
        }
        match vectors::<S>(d_v) {
            Some(1) => self.add_up::<S, 1, 8>(simd),
            Some(2) => self.add_up::<S, 2, 4>(simd),
            Some(4) => self.add_up::<S, 4, 2>(simd),
            Some(8) => self.add_up::<S, 8, 1>(simd),
            _ => self.add_up_any(),
        }
    }
}

/// The number of vectors that a head fills, if it fills whole ones.
#[inline(always)]
fn vectors<S: Simd>(width: usize) -> Option<usize> {
    width
        .is_multiple_of(S::F32_LANES)
        .then(|| width / S::F32_LANES)
}

impl<'a> Attend<'a> {
    /// Each chosen slot's values from a column on, and its scores or weights for all heads.
    #[inline(always)]
    fn slots<'s>(
        slots: Slots<'a>,
        chosen: &'a [u32],
        columns: [usize; 2],
        scores: &'s mut [f32],
    ) -> impl Iterator<Item = (&'a [f32], &'s mut [f32])> + use<'a, 's> {
        let [first, width] = columns;
        let scores = scores.chunks_exact_mut(scores.len() / chosen.len());
        chosen.iter().zip(scores).map(move |(&slot, scores)| {
            (
                &slots.rows[slot as usize * slots.stride + first..][..width],
                scores,
            )
        })
    }

    /// Number of query heads per slot head.
    #[inline(always)]
    fn group(&self) -> usize {
        self.heads.n_heads / self.slots.n_heads
    }

    /// Scores for heads of `N` vectors.
    #[inline(always)]
    fn score<S: Simd, const N: usize>(&mut self, simd: S) {
        let (query, _) = S::as_simd_f32s(self.query);
        let (query, _) = query.as_chunks::<N>();
        let scale = score_scale(self.heads.d_k) as f32;
        let group = self.group();
        let columns = [self.slots.keys, self.query.len() / group];
        for (keys, scores) in Self::slots(self.slots, self.chosen, columns, self.scores) {
            let (keys, _) = S::as_simd_f32s(keys);
            let (keys, _) = keys.as_chunks::<N>();
            if group == 1 {
                for ((score, q), k) in scores.iter_mut().zip(query).zip(keys) {
                    *score = product(simd, q, k) * scale;
                }
                continue;
            }
            for (of_slot, k) in keys.iter().enumerate() {
                for head in of_slot * group..(of_slot + 1) * group {
                    scores[head] = product(simd, &query[head], k) * scale;
                }
            }
        }
    }

    /// Scores for heads of any width.
    #[inline(always)]
    fn score_any<S: Simd>(&mut self, simd: S) {
        let d_k = self.heads.d_k;
        let scale = score_scale(d_k) as f32;
        let group = self.group();
        let columns = [self.slots.keys, self.query.len() / group];
        for (keys, scores) in Self::slots(self.slots, self.chosen, columns, self.scores) {
            let heads = self.query.chunks_exact(d_k.max(1)).enumerate();
            for (score, (head, q)) in scores.iter_mut().zip(heads) {
                let k = &keys[head / group * d_k..][..d_k];
                let ((q, q_rest), (k, k_rest)) = (S::as_simd_f32s(q), S::as_simd_f32s(k));
                let [q_rest, k_rest] = [q_rest, k_rest].map(|rest| simd.partial_load_f32s(rest));
                let mut sum = simd.mul_f32s(q_rest, k_rest);
                for (&q, &k) in q.iter().zip(k) {
                    sum = simd.mul_add_e_f32s(q, k, sum);
                }
                *score = simd.reduce_sum_f32s(sum) * scale;
            }
        }
    }

    /// Sums the values for heads of `N` vectors, `H` heads at a time, in registers.
    #[inline(always)]
    fn add_up<S: Simd, const N: usize, const H: usize>(&mut self, simd: S) {
        if self.group() > 1 {
            for head in 0..self.heads.n_heads {
                self.add_up_heads::<S, N, 1>(simd, head);
            }
            return;
        }
        let mut head = 0;
        while head + H <= self.heads.n_heads {
            self.add_up_heads::<S, N, H>(simd, head);
            head += H;
        }
        while head < self.heads.n_heads {
            self.add_up_heads::<S, N, 1>(simd, head);
            head += 1;
        }
    }

    #[inline(always)]
    fn add_up_heads<S: Simd, const N: usize, const H: usize>(&mut self, simd: S, first: usize) {
        let d_v = N * S::F32_LANES;
        let mut sums = [[simd.splat_f32s(0.0); N]; H];
        let columns = [self.slots.values + first / self.group() * d_v, H * d_v];
        for (values, weights) in Self::slots(self.slots, self.chosen, columns, self.scores) {
            let (values, _) = S::as_simd_f32s(&values[..H * d_v]);
            let (values, _) = values.as_chunks::<N>();
            let heads = values[..H].iter().zip(&weights[first..first + H]);
            for (sums, (values, &weight)) in sums.iter_mut().zip(heads) {
                let weight = simd.splat_f32s(weight);
                for (sum, &value) in sums.iter_mut().zip(values) {
                    *sum = simd.mul_add_e_f32s(weight, value, *sum);
                }
            }
        }
        let (out, _) = S::as_mut_simd_f32s(&mut self.out[first * d_v..][..H * d_v]);
        out.copy_from_slice(sums.as_flattened());
    }

    /// Sums the values for heads of any width.
    #[inline(always)]
    fn add_up_any(&mut self) {
        let d_v = self.heads.d_v.max(1);
        self.out.fill(0.0);
        let group = self.group();
        let columns = [self.slots.values, self.out.len() / group];
        for (values, weights) in Self::slots(self.slots, self.chosen, columns, self.scores) {
            let heads = self.out.chunks_exact_mut(d_v).zip(&*weights).enumerate();
            for (head, (out, &weight)) in heads {
                let values = &values[head / group * d_v..][..d_v];
                out.iter_mut()
                    .zip(values)
                    .for_each(|(y, v)| *y += weight * v);
            }
        }
    }
}

/// The dot product of a query and a key.
#[inline(always)]
fn product<S: Simd, const N: usize>(simd: S, q: &[S::f32s; N], k: &[S::f32s; N]) -> f32 {
    let mut sum = simd.splat_f32s(0.0);
    for (&q, &k) in q.iter().zip(k) {
        sum = simd.mul_add_e_f32s(q, k, sum);
    }
    simd.reduce_sum_f32s(sum)
}

/// Turns scores into weights, `[chosen, width]`: the softmax of each column.
#[inline(always)]
fn softmax(scores: &mut [f32], width: usize) {
    for block in (0..width).step_by(BLOCK) {
        let mut largest = [f32::NEG_INFINITY; BLOCK];
        for scores in scores.chunks_exact(width) {
            for (largest, &score) in largest.iter_mut().zip(&scores[block..block + BLOCK]) {
                *largest = if *largest > score { *largest } else { score };
            }
        }
        for scores in scores.chunks_exact_mut(width) {
            let scores = &mut scores[block..block + BLOCK];
            scores
                .iter_mut()
                .zip(largest)
                .for_each(|(score, largest)| *score -= largest);
        }
    }
    scores.iter_mut().for_each(|score| *score = exp(*score));
    for block in (0..width).step_by(BLOCK) {
        let mut sums = [0.0; BLOCK];
        for scores in scores.chunks_exact(width) {
            let scores = &scores[block..block + BLOCK];
            sums.iter_mut()
                .zip(scores)
                .for_each(|(sum, score)| *sum += score);
        }
        let scales = sums.map(|sum| 1.0 / sum);
        for scores in scores.chunks_exact_mut(width) {
            let scores = &mut scores[block..block + BLOCK];
            scores
                .iter_mut()
                .zip(scales)
                .for_each(|(score, scale)| *score *= scale);
        }
    }
}
