//! Scaled dot-product attention of all heads.

use rayon::prelude::*;

use super::heads::{HeadRows, join_heads};
use super::matrix::Matrix;
use crate::heads::score_scale;
use crate::kernels::AttentionParents;
use crate::random::Keep;
use crate::simd::{exp, max, sum, sum2, vectorised};
use crate::sizes::count;

/// Which keys a query may not attend to; dimensions of size 1 are broadcast.
#[derive(Debug, Clone, Copy)]
pub struct Mask<'a> {
    bias: &'a [f32],
    blocked_rows: Option<&'a [bool]>,
    shape: [usize; 4],
}

impl<'a> Mask<'a> {
    /// A mask of the shape `[batch or 1, n_heads or 1, query_len or 1, key_len]`: a bias that is added to
    /// the scores, and one boolean for each row of it, `true` where every key is blocked.
    ///
    /// # Panics
    /// When there are not so many numbers.
    pub fn new(bias: &'a [f32], blocked_rows: Option<&'a [bool]>, shape: [usize; 4]) -> Self {
        assert_eq!(bias.len(), count(&shape), "numbers of a mask {shape:?}");
        if let Some(rows) = blocked_rows {
            assert_eq!(rows.len(), count(&shape[..3]), "rows of a mask {shape:?}");
        }
        Self {
            bias,
            blocked_rows,
            shape,
        }
    }

    /// Panics when it does not fit scores `[batch, n_heads, query_len, key_len]`.
    fn check(&self, scores: [usize; 4]) {
        let fits = |(&mask, all): (&usize, usize)| mask == 1 || mask == all;
        assert!(
            self.shape[3] == scores[3] && self.shape.iter().zip(scores).all(fits),
            "a mask {:?} for scores {scores:?}",
            self.shape
        );
    }

    /// The bias of the row of scores at `[sentence, head, query]`; `None` where it is blocked.
    #[inline(always)]
    fn row(&self, index: [usize; 3]) -> Option<&'a [f32]> {
        let mut row = 0;
        for (size, at) in self.shape.into_iter().zip(index) {
            row = row * size + if size == 1 { 0 } else { at };
        }
        match self.blocked_rows {
            Some(rows) if rows[row] => None,
            _ => Some(&self.bias[row * self.shape[3]..][..self.shape[3]]),
        }
    }
}

/// Attention without dropout and without a backward pass, to keys and values in parts that follow one
/// another.
///
/// Returns `[batch, query_len, n_heads · d_v]`.
///
/// # Panics
/// When the shapes do not agree, or there is no part.
///
/// ```
/// use transformer_kernels::host::{HeadRows, attention};
///
/// // One query, two keys, d_k = 1: the scores are 2 ln 3 and 0, so the weights are 9/10 and 1/10 and the
/// // output 0.9 · 10 + 0.1 · 20 = 11.
/// let (keys, values) = ([3.0_f32.ln(), 0.0], [10.0, 20.0]);
/// let query = HeadRows::split(&[2.0], [1, 1, 1, 1]);
/// let [key, value] = [&keys, &values].map(|rows| HeadRows::split(rows, [1, 1, 2, 1]));
/// assert!((attention(query, &[[key, value]], None)[0] - 11.0).abs() < 1e-5);
/// ```
pub fn attention(
    query: HeadRows<'_>,
    parts: &[[HeadRows<'_>; 2]],
    mask: Option<Mask<'_>>,
) -> Vec<f32> {
    let [batch, n_heads, query_len, d_k] = query.shape();
    let key_len = parts.iter().map(|[key, _]| key.len()).sum();
    let d_v = parts.first().expect("a part to attend to")[1].width();
    for part in parts {
        check_part(query, *part, d_v);
    }
    if let Some(mask) = mask {
        mask.check([batch, n_heads, query_len, key_len]);
    }
    let mut outputs = vec![0.0; count(&[batch, n_heads, query_len, d_v])];
    outputs
        .par_chunks_mut((query_len * d_v).max(1))
        .enumerate()
        .for_each(|(index, output)| {
            let query = query.head(index);
            let mut weights = vec![0.0; query_len * key_len];
            let mut first = 0;
            for [key, _] in parts {
                let scores = query.product(key.head(index).transposed());
                let rows = weights.chunks_exact_mut(key_len.max(1));
                for (row, scores) in rows.zip(scores.chunks_exact(key.len().max(1))) {
                    row[first..first + key.len()].copy_from_slice(scores);
                }
                first += key.len();
            }
            let scale = score_scale(d_k) as f32;
            vectorised!(weights.iter_mut().for_each(|score| *score *= scale));
            softmax(
                &mut weights,
                key_len,
                [index / n_heads, index % n_heads],
                mask,
            );
            let mut first = 0;
            for [_, value] in parts {
                let weights = weights.get(first..).unwrap_or_default();
                let weights = Matrix::new(weights, query_len, value.len(), key_len);
                let sums = weights.product(value.head(index));
                output.iter_mut().zip(sums).for_each(|(y, sum)| *y += sum);
                first += value.len();
            }
        });
    join_heads(&[&outputs], &[d_v], [batch, n_heads, query_len])
}

/// The output of attention, and the weights that its backward pass needs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Attended {
    /// `[batch, query_len, n_heads · d_v]`
    pub output: Vec<f32>,
    /// Before dropout: `[batch, n_heads, query_len, key_len]`.
    pub weights: Vec<f32>,
}

/// Attention with dropout on its weights, which are kept for the backward pass.
///
/// # Panics
/// When the shapes do not agree.
pub fn attention_forward(
    [query, key, value]: [HeadRows<'_>; 3],
    mask: Option<Mask<'_>>,
    keep: Option<Keep>,
) -> Attended {
    let [batch, n_heads, query_len, d_k] = query.shape();
    let (key_len, d_v) = (key.len(), value.width());
    check_part(query, [key, value], d_v);
    let shape = [batch, n_heads, query_len, key_len];
    if let Some(mask) = mask {
        mask.check(shape);
    }
    let mut weights = vec![0.0; count(&shape)];
    let mut outputs = vec![0.0; count(&[batch, n_heads, query_len, d_v])];
    weights
        .par_chunks_mut((query_len * key_len).max(1))
        .zip(outputs.par_chunks_mut((query_len * d_v).max(1)))
        .enumerate()
        .for_each(|(index, (weights, output))| {
            let keys = key.head(index).transposed();
            let scale = score_scale(d_k) as f32;
            query.head(index).multiply(keys, scale, weights);
            softmax(weights, key_len, [index / n_heads, index % n_heads], mask);
            let dropped = keep.map(|keep| kept(weights, index * query_len, key_len, keep));
            let weights = dropped.as_deref().unwrap_or(weights);
            let weights = square(weights, shape);
            weights.multiply(value.head(index), 1.0, output);
        });
    Attended {
        output: join_heads(&[&outputs], &[d_v], [batch, n_heads, query_len]),
        weights,
    }
}

/// Gradients of attention, those that are wanted: `[batch, n_heads, len, width]` each.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HeadGradients {
    /// Of the queries.
    pub query: Option<Vec<f32>>,
    /// Of keys and values.
    pub key_value: Option<[Vec<f32>; 2]>,
}

/// Gradients from that of the output, `[batch, query_len, n_heads · d_v]`, and the weights that
/// [`attention_forward`] kept.
///
/// # Panics
/// When the shapes do not agree.
pub fn attention_backward(
    grad: &[f32],
    [query, key, value]: [HeadRows<'_>; 3],
    weights: &[f32],
    keep: Option<Keep>,
    wanted: AttentionParents,
) -> HeadGradients {
    let [batch, n_heads, query_len, d_k] = query.shape();
    let (key_len, d_v) = (key.len(), value.width());
    check_part(query, [key, value], d_v);
    let shape = [batch, query_len, n_heads * d_v];
    let grad = HeadRows::in_rows(grad, shape, 0, [n_heads, d_v]);
    let shape = [batch, n_heads, query_len, key_len];
    assert_eq!(weights.len(), count(&shape), "numbers of weights {shape:?}");
    let heads = batch * n_heads;
    let mut query_grads = Wanted::new(wanted.query, heads, query_len * d_k);
    let mut key_grads = Wanted::new(wanted.key_value, heads, key_len * d_k);
    let mut value_grads = Wanted::new(wanted.key_value, heads, key_len * d_v);
    query_grads
        .by_head()
        .into_par_iter()
        .zip(key_grads.by_head())
        .zip(value_grads.by_head())
        .zip(weights.par_chunks((query_len * key_len).max(1)))
        .enumerate()
        .for_each(|(index, (((query_grad, key_grad), value_grad), weights))| {
            let (grad, first_row) = (grad.head(index), index * query_len);
            if let Some(value_grad) = value_grad {
                let dropped = keep.map(|keep| kept(weights, first_row, key_len, keep));
                let dropped = dropped.as_deref().unwrap_or(weights);
                square(dropped, shape)
                    .transposed()
                    .multiply(grad, 1.0, value_grad);
            }
            let mut scores = vec![0.0; query_len * key_len];
            grad.multiply(value.head(index).transposed(), 1.0, &mut scores);
            softmax_backward(&mut scores, weights, key_len, first_row, keep);
            let scale = score_scale(d_k) as f32;
            if let Some(query_grad) = query_grad {
                square(&scores, shape).multiply(key.head(index), scale, query_grad);
            }
            if let Some(key_grad) = key_grad {
                let scores = square(&scores, shape).transposed();
                scores.multiply(query.head(index), scale, key_grad);
            }
        });
    HeadGradients {
        query: query_grads.values,
        key_value: key_grads.values.zip(value_grads.values).map(Into::into),
    }
}

/// The scores or weights of a head, as a matrix.
fn square(values: &[f32], [_, _, query_len, key_len]: [usize; 4]) -> Matrix<'_> {
    Matrix::new(values, query_len, key_len, key_len)
}

/// A gradient to be computed head by head, or not at all.
struct Wanted {
    values: Option<Vec<f32>>,
    heads: usize,
    of_head: usize,
}

impl Wanted {
    fn new(wanted: bool, heads: usize, of_head: usize) -> Self {
        Self {
            values: wanted.then(|| vec![0.0; count(&[heads, of_head])]),
            heads,
            of_head,
        }
    }

    /// Each head's numbers.
    fn by_head(&mut self) -> Vec<Option<&mut [f32]>> {
        let Some(values) = &mut self.values else {
            return (0..self.heads).map(|_| None).collect();
        };
        let mut heads: Vec<_> = values.chunks_mut(self.of_head.max(1)).map(Some).collect();
        heads.resize_with(self.heads, || Some(&mut []));
        heads
    }
}

/// Panics when the shapes of keys and values do not fit the queries.
fn check_part(query: HeadRows<'_>, part: [HeadRows<'_>; 2], d_v: usize) {
    let [key, value] = part;
    let [batch, n_heads, _, d_k] = query.shape();
    let expected = [d_k, d_v].map(|width| [batch, n_heads, key.len(), width]);
    assert_eq!(
        [key.shape(), value.shape()],
        expected,
        "keys and values for queries {:?}",
        query.shape()
    );
}

/// The weights of a head after dropout.
fn kept(weights: &[f32], first_row: usize, key_len: usize, keep: Keep) -> Vec<f32> {
    let mut kept = weights.to_vec();
    vectorised!({
        for (row, kept) in kept.chunks_exact_mut(key_len.max(1)).enumerate() {
            keep.apply(first_row + row, kept);
        }
    });
    kept
}

/// Turns the scores of a head into weights.
fn softmax(scores: &mut [f32], key_len: usize, head: [usize; 2], mask: Option<Mask<'_>>) {
    let [sentence, head] = head;
    vectorised!({
        for (position, scores) in scores.chunks_exact_mut(key_len.max(1)).enumerate() {
            match mask.map(|mask| mask.row([sentence, head, position])) {
                None => softmax_row(scores, None),
                Some(None) => scores.fill(0.0),
                Some(bias) => softmax_row(scores, bias),
            }
        }
    });
}

/// Turns a row of scores into weights.
#[inline(always)]
fn softmax_row(scores: &mut [f32], bias: Option<&[f32]>) {
    if let Some(bias) = bias {
        for (score, &bias) in scores.iter_mut().zip(bias) {
            *score += bias;
        }
    }
    let largest = max(scores);
    for score in scores.iter_mut() {
        *score = exp(*score - largest);
    }
    let scale = 1.0 / sum(scores, |x| x);
    for score in scores.iter_mut() {
        *score *= scale;
    }
}

/// Turns gradients of a head's weights, after dropout, into those of its scores.
fn softmax_backward(
    grads: &mut [f32],
    weights: &[f32],
    key_len: usize,
    first_row: usize,
    keep: Option<Keep>,
) {
    vectorised!({
        let rows = grads.chunks_exact_mut(key_len.max(1));
        for (row, (ds, w)) in rows.zip(weights.chunks_exact(key_len.max(1))).enumerate() {
            if let Some(keep) = keep {
                keep.apply(first_row + row, ds);
            }
            let mean = sum2(ds, w, |ds, w| ds * w);
            for (ds, &w) in ds.iter_mut().zip(w) {
                *ds = w * (*ds - mean);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wanted_is_computed() {
        let numbers = |seed: usize, shape: [usize; 4]| -> Vec<f32> {
            let number = |i: usize| ((i * 37 + seed) % 101) as f32 / 50.0 - 1.0;
            (0..count(&shape)).map(number).collect()
        };
        let [queries, keys, values] = [[2, 3, 7, 4], [2, 3, 9, 4], [2, 3, 9, 5]];
        let (q, k, v) = (numbers(1, queries), numbers(2, keys), numbers(3, values));
        let heads = [
            HeadRows::split(&q, queries),
            HeadRows::split(&k, keys),
            HeadRows::split(&v, values),
        ];
        let keep = Some(Keep::new(0.2, 5));
        let attended = attention_forward(heads, None, keep);
        let grad = numbers(4, [2, 7, 3, 5]);
        let backward = |query, key_value| {
            let wanted = AttentionParents { query, key_value };
            let gradients = attention_backward(&grad, heads, &attended.weights, keep, wanted);
            (gradients.query, gradients.key_value)
        };
        let all = backward(true, true);
        assert!(all.0.is_some() && all.1.is_some());
        assert_eq!(backward(true, false), (all.0.clone(), None));
        assert_eq!(backward(false, true), (None, all.1));
    }
}
