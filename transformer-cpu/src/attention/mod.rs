//! Scaled dot-product attention (§3.2.1) of all heads.

pub mod heads;
pub mod mask;
mod tiles;

use self::heads::{HeadRows, join_heads};
use self::mask::Mask;
pub use self::tiles::HeadGradients;
use crate::random::Keep;
use crate::sizes::count;
use crate::types::AttentionParents;

/// The output of attention, and the statistics that its backward pass needs besides its inputs.
///
/// A weight is `e^(score - largest) · reciprocal`. The logarithm of the sum would be one value instead of two, but
/// in single precision a large score would leave it no digits for the sum.
#[derive(Debug, Clone, Copy)]
pub struct Attended<V = Vec<f32>> {
    /// `[batch, query_len, n_heads · d_v]`
    pub output: V,
    /// The largest score of each query: `[batch, n_heads, query_len]`.
    pub largest_scores: V,
    /// `1 / Σ e^(score - largest)`, or zero if every key of the query is blocked: `[batch, n_heads, query_len]`.
    pub reciprocal_sums: V,
}

/// Attention with dropout on its weights. The weights are computed in tiles of some queries and some keys, and not
/// stored: the [backward pass](attention_backward) recomputes them.
///
/// The softmax of a tile is relative to the largest score so far, and earlier sums are rescaled when a larger
/// score is found (Milakov and Gimelshein 2018; Rabe and Staats 2021; Dao et al. 2022).
///
/// # Panics
/// When the shapes do not agree.
///
/// ```
/// use transformer_cpu::{HeadRows, Mask, attention_forward};
///
/// // One query, two keys, d_k = 1: the scores are 2 ln 3 and 0, so the weights are 9/10 and 1/10 and the
/// // output 0.9 · 10 + 0.1 · 20 = 11.
/// let (keys, values) = ([3.0_f32.ln(), 0.0], [10.0, 20.0]);
/// let query = HeadRows::in_rows(&[2.0], [1, 1, 1], 0, [1, 1]);
/// let [key, value] = [&keys, &values].map(|rows| HeadRows::in_rows(rows, [1, 2, 1], 0, [1, 1]));
/// let attended = attention_forward([query, key, value], Mask::default(), None);
/// assert!((attended.output[0] - 11.0).abs() < 1e-5);
/// ```
pub fn attention_forward(heads: [HeadRows<'_>; 3], mask: Mask<'_>, keep: Option<Keep>) -> Attended {
    let [batch, n_heads, query_len, _] = heads[0].shape();
    let d_v = check(heads, mask);
    let attended = tiles::forward(heads, mask, keep);
    Attended {
        output: join_heads(&[&attended.output], &[d_v], [batch, n_heads, query_len]),
        ..attended
    }
}

/// Gradients of the inputs. `grad` is the gradient of the output, `[batch, query_len, n_heads · d_v]`; the other
/// arguments are the result of [`attention_forward`] for the same inputs, mask and dropout.
///
/// # Panics
/// When the shapes do not agree.
pub fn attention_backward(
    grad: &[f32],
    [query, key, value]: [HeadRows<'_>; 3],
    attended: Attended<&[f32]>,
    mask: Mask<'_>,
    keep: Option<Keep>,
    wanted: AttentionParents,
) -> HeadGradients {
    let [batch, n_heads, query_len, _] = query.shape();
    let d_v = check([query, key, value], mask);
    let shape = [batch, n_heads, query_len];
    for statistic in [attended.largest_scores, attended.reciprocal_sums] {
        assert_eq!(
            statistic.len(),
            count(&shape),
            "length of the statistics for queries {shape:?}"
        );
    }
    let rows = |values| {
        let shape = [batch, query_len, n_heads * d_v];
        HeadRows::in_rows(values, shape, 0, [n_heads, d_v])
    };
    let backward = tiles::Backward {
        query,
        key,
        value,
        grad: rows(grad),
        output: rows(attended.output),
        largest_scores: attended.largest_scores,
        reciprocal_sums: attended.reciprocal_sums,
        mask,
        keep,
    };
    backward.gradients(wanted)
}

/// Returns `d_v`. Panics unless the shapes of keys, values and mask fit the queries.
fn check([query, key, value]: [HeadRows<'_>; 3], mask: Mask<'_>) -> usize {
    let [batch, n_heads, query_len, d_k] = query.shape();
    let d_v = value.width();
    assert_eq!(
        [key.shape(), value.shape()],
        [d_k, d_v].map(|width| [batch, n_heads, key.len(), width]),
        "keys and values for queries {:?}",
        query.shape()
    );
    mask.check([batch, n_heads, query_len, key.len()]);
    d_v
}

#[cfg(test)]
mod tests;
