//! Attention of few queries, as in decoding: each row of scores is whole.

use std::ops::Range;

use rayon::prelude::*;

use super::heads::{HeadRows, score_scale};
use super::mask::{HeadMask, LOWEST, Mask};
use super::parts::{Portion, key_len};
use crate::products::matrix::Matrix;
use crate::products::product;
use crate::simd::{exp, max, sum, vectorised};
use crate::sizes::count;
use crate::types::ProductPrecision;

/// The outputs of all heads: `[batch, n_heads, query_len, d_v]`.
pub fn attention(query: HeadRows<'_>, parts: &[[HeadRows<'_>; 2]], mask: Mask<'_>) -> Vec<f32> {
    let [batch, n_heads, query_len, d_k] = query.shape();
    let (key_len, d_v) = (key_len(parts), parts[0][1].width());
    let scale = score_scale(d_k) as f32;
    let mut outputs = vec![0.0; count(&[batch, n_heads, query_len, d_v])];
    outputs
        .par_chunks_mut((query_len * d_v).max(1))
        .enumerate()
        .for_each(|(index, output)| {
            let query = query.head(index);
            let mask = mask.of_head([index / n_heads, index % n_heads], key_len);
            let keys = mask.keys_of(0..query_len);
            let width = keys.len();
            let mut weights = vec![0.0; query_len * width];
            for portion in Portion::all(parts, index, keys.clone()) {
                let scores = product(query, portion.key.transposed(), ProductPrecision::F32);
                let columns = columns(&portion, &keys);
                for (row, scores) in weights
                    .chunks_exact_mut(width)
                    .zip(scores.chunks_exact(columns.len()))
                {
                    row[columns.clone()].copy_from_slice(scores);
                }
            }
            softmax(&mut weights, &keys, scale, &mask);
            for portion in Portion::all(parts, index, keys.clone()) {
                let columns = columns(&portion, &keys);
                let weights = &weights[columns.start..];
                let weights = Matrix::new(weights, query_len, columns.len(), width);
                let sums = product(weights, portion.value, ProductPrecision::F32);
                output.iter_mut().zip(sums).for_each(|(y, sum)| *y += sum);
            }
        });
    outputs
}

/// Where a portion's scores stand in a row of scores of `keys`.
fn columns(portion: &Portion<'_>, keys: &Range<usize>) -> Range<usize> {
    portion.positions.start - keys.start..portion.positions.end - keys.start
}

/// Turns products of queries and keys into weights: a row of `keys` for each query.
fn softmax(scores: &mut [f32], keys: &Range<usize>, scale: f32, mask: &HeadMask<'_>) {
    vectorised!({
        let rows = scores.chunks_exact_mut(keys.len().max(1));
        for (query, row) in rows.enumerate() {
            let attended = match mask.is_blocked_row(query) {
                true => 0,
                false => mask.keys_of(query..query + 1).len(),
            };
            let (scores, blocked) = row.split_at_mut(attended);
            blocked.fill(0.0);
            scores.iter_mut().for_each(|score| *score *= scale);
            let keys = keys.start..keys.start + attended;
            if let Some(bias) = mask.bias() {
                for (score, &bias) in scores.iter_mut().zip(bias.row(query, keys.clone())) {
                    *score += bias;
                }
            }
            if mask.has_padding() {
                for (score, key) in scores.iter_mut().zip(keys) {
                    *score = if mask.is_padding(key) { LOWEST } else { *score };
                }
            }
            softmax_row(scores);
        }
    });
}

/// Turns a row of scores into weights.
#[inline(always)]
fn softmax_row(scores: &mut [f32]) {
    let largest = max(scores);
    for score in scores.iter_mut() {
        *score = exp(*score - largest);
    }
    let scale = 1.0 / sum(scores, |x| x);
    for score in scores.iter_mut() {
        *score *= scale;
    }
}
