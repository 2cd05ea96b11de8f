//! Attention in tiles of some queries and some keys, so that memory never holds more weights than one tile's.
//!
//! A tile is transposed: it has one row per key and one column per query. Multiplications by keys and values then
//! read these in place, and only the tile's queries are copied. In the softmax, a vector holds several queries,
//! each with its own largest score and sum.

use std::ops::Range;

use rayon::prelude::*;

use super::Attended;
use super::heads::{HeadRows, score_scale};
use super::mask::{HeadMask, Mask};
use crate::buffer::sized;
use crate::products::matrix::Matrix;
use crate::random::{Keep, KeptRows};
use crate::simd::{exp, sum2, vectorised};
use crate::sizes::count;
use crate::types::AttentionParents;

/// Maximum queries of a tile: whole vectors, and whole blocks of gemm's inner loop with AVX2 and AVX-512.
pub const QUERIES: usize = 96;

/// Maximum keys of a tile. Two tiles and their queries, keys and values fit into a second-level cache.
pub const KEYS: usize = 256;

/// Number of lanes of the widest vector.
const LANES: usize = 16;

/// The tile length that splits `len` evenly, in whole vectors.
fn tile_len(len: usize, most: usize) -> usize {
    let tiles = len.div_ceil(most).max(1);
    len.div_ceil(tiles).next_multiple_of(LANES).max(1)
}

/// Splits a range into tiles; the last may be shorter.
fn tiles(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let (end, len) = (range.end, tile_len(range.len(), most));
    range
        .step_by(len)
        .map(move |start| start..end.min(start + len))
}

/// Buffers of a thread, as long as its largest tile.
#[derive(Default)]
struct Buffers {
    query: Vec<f32>,
    grad: Vec<f32>,
    weights: Vec<f32>,
    weight_grads: Vec<f32>,
}

/// `scale` times a matrix, transposed into a buffer.
fn transposed<'a>(
    matrix: Matrix<'_>,
    [rows, columns]: [usize; 2],
    scale: f32,
    buffer: &'a mut Vec<f32>,
) -> Matrix<'a> {
    let out = sized(buffer, rows * columns);
    matrix.write_transposed(scale, rows, out);
    Matrix::new(out, columns, rows, rows)
}

/// The queries of a head that one task computes, and the destination of their results.
struct Task<'a> {
    head: usize,
    queries: Range<usize>,
    output: &'a mut [f32],
    largest: &'a mut [f32],
    sums: &'a mut [f32],
}

/// Attention from queries to keys and values; the output is stored by heads, `[batch, n_heads, query_len, d_v]`.
pub fn forward(heads: [HeadRows<'_>; 3], mask: Mask<'_>, keep: Option<Keep>) -> Attended {
    let [query, key, value] = heads;
    let [batch, n_heads, query_len, _] = query.shape();
    let d_v = value.width();
    let queries = count(&[batch, n_heads, query_len]);
    let mut attended = Attended {
        output: vec![0.0; count(&[queries, d_v])],
        largest_scores: vec![f32::NEG_INFINITY; queries],
        reciprocal_sums: vec![0.0; queries],
    };
    tasks(&mut attended, query_len, d_v)
        .into_par_iter()
        .for_each_init(Buffers::default, |buffers, task| {
            let head = [task.head / n_heads, task.head % n_heads];
            let mask = mask.of_head(head, key.len());
            let first_row = task.head * query_len;
            let rows = first_row + task.queries.start..first_row + task.queries.end;
            let kept = keep.map(|keep| keep.rows(rows));
            sum_values(task, heads, &mask, kept.as_ref(), buffers);
        });
    attended
}

/// One task per tile of queries.
fn tasks(attended: &mut Attended, query_len: usize, d_v: usize) -> Vec<Task<'_>> {
    let len = tile_len(query_len, QUERIES);
    let heads = attended
        .output
        .chunks_mut((query_len * d_v).max(1))
        .zip(attended.largest_scores.chunks_mut(query_len.max(1)))
        .zip(attended.reciprocal_sums.chunks_mut(query_len.max(1)));
    let tasks = heads
        .enumerate()
        .flat_map(|(head, ((output, largest), sums))| {
            output
                .chunks_mut((len * d_v).max(1))
                .zip(largest.chunks_mut(len))
                .zip(sums.chunks_mut(len))
                .zip(tiles(0..query_len, QUERIES))
                .map(move |(((output, largest), sums), queries)| Task {
                    head,
                    queries,
                    output,
                    largest,
                    sums,
                })
        });
    tasks.collect()
}

/// Sums the weighted values of all keys, for the queries of a task.
fn sum_values(
    task: Task<'_>,
    [query, key, value]: [HeadRows<'_>; 3],
    mask: &HeadMask<'_>,
    kept: Option<&KeptRows>,
    buffers: &mut Buffers,
) {
    let Task {
        head,
        queries,
        output,
        largest,
        sums,
    } = task;
    let (columns, d_k) = (queries.len(), query.width());
    let scale = score_scale(d_k) as f32;
    let rows = query.head(head).rows(queries.clone());
    let query = transposed(rows, [columns, d_k], scale, &mut buffers.query);
    for keys in tiles(mask.keys_of(queries.clone()), KEYS) {
        let [key, value] = [key, value].map(|heads| heads.head(head).rows(keys.clone()));
        let scores = sized(&mut buffers.weights, keys.len() * columns);
        let tile = Tile {
            queries: queries.clone(),
            keys,
            mask,
        };
        key.multiply(query, 1.0, scores);
        tile.add_bias(scores);
        tile.weigh(scores, kept, [&mut *largest, &mut *sums], output);
        let weights = Matrix::new(scores, tile.keys.len(), columns, columns);
        weights.transposed().add_product(value, 1.0, output);
    }
    vectorised!({
        let d_v = output.len() / columns;
        let rows = output.chunks_exact_mut(d_v.max(1)).zip(queries);
        for ((row, query), sum) in rows.zip(sums) {
            if *sum == 0.0 || mask.is_blocked_row(query) {
                *sum = 0.0;
                row.fill(0.0);
            } else {
                *sum = 1.0 / *sum;
                row.iter_mut().for_each(|y| *y *= *sum);
            }
        }
    });
}

/// Scores or weights of some queries and keys: `[keys, queries]`.
struct Tile<'a> {
    queries: Range<usize>,
    keys: Range<usize>,
    mask: &'a HeadMask<'a>,
}

impl Tile<'_> {
    /// How many of the queries, counted from the first, may not attend to a key.
    #[inline(always)]
    fn blocked_queries(&self, key: usize) -> usize {
        self.mask.blocked_queries(key, self.queries.clone())
    }

    fn add_bias(&self, scores: &mut [f32]) {
        /// Rows of the bias that are read together.
        const SIDE_BY_SIDE: usize = 8;
        let Some(bias) = self.mask.bias() else {
            return;
        };
        let columns = self.queries.len();
        if bias.is_broadcast() {
            let bias = bias.row(0, self.keys.clone());
            for (scores, bias) in scores.chunks_exact_mut(columns).zip(bias) {
                scores.iter_mut().for_each(|score| *score += bias);
            }
            return;
        }
        for first in (0..columns).step_by(SIDE_BY_SIDE) {
            let block = first..columns.min(first + SIDE_BY_SIDE);
            let rows: Vec<_> = block
                .clone()
                .map(|column| bias.row(self.queries.start + column, self.keys.clone()))
                .collect();
            for (key, scores) in scores.chunks_exact_mut(columns).enumerate() {
                for (score, row) in scores[block.clone()].iter_mut().zip(&rows) {
                    *score += row[key];
                }
            }
        }
    }

    /// Turns scores into unnormalized weights, relative to the largest score so far. If this tile has a larger
    /// score, rescales the sums and outputs of the earlier keys.
    fn weigh(
        &self,
        scores: &mut [f32],
        kept: Option<&KeptRows>,
        [largest, sums]: [&mut [f32]; 2],
        output: &mut [f32],
    ) {
        let columns = self.queries.len();
        let mut before = [f32::NEG_INFINITY; QUERIES];
        let before = &mut before[..columns];
        let mut sums_here = [0.0; QUERIES];
        let mut factors = [0.0; QUERIES];
        vectorised!({
            before.copy_from_slice(largest);
            for (key, row) in self.keys.clone().zip(scores.chunks_exact(columns)) {
                let first = self.blocked_queries(key);
                for (largest, &score) in largest[first..].iter_mut().zip(&row[first..]) {
                    *largest = if score > *largest { score } else { *largest };
                }
            }
            let d_v = output.len() / columns;
            let rows = output.chunks_exact_mut(d_v.max(1));
            scale_rows(before, largest, sums, rows);
            for (key, row) in self.keys.clone().zip(scores.chunks_exact_mut(columns)) {
                let first = self.blocked_queries(key);
                let (blocked, row) = row.split_at_mut(first);
                blocked.fill(0.0);
                let statistics = largest[first..].iter().zip(&mut sums_here[first..]);
                for (score, (&largest, sum)) in row.iter_mut().zip(statistics) {
                    *score = exp(*score - largest);
                    *sum += *score;
                }
                if let Some(kept) = kept {
                    let factors = &mut factors[first..columns];
                    kept.column(key, first, factors);
                    for (weight, &factor) in row.iter_mut().zip(&*factors) {
                        *weight *= factor;
                    }
                }
            }
            for (sum, here) in sums.iter_mut().zip(sums_here) {
                *sum += here;
            }
        });
    }
}

/// Rescales sums of exponentials and of values to a new largest score.
#[inline(always)]
fn scale_rows<'a>(
    before: &[f32],
    largest: &[f32],
    sums: &mut [f32],
    rows: impl Iterator<Item = &'a mut [f32]>,
) {
    let mut factors = [1.0; QUERIES];
    let changes = before.iter().zip(largest);
    for (factor, (&before, &largest)) in factors.iter_mut().zip(changes) {
        // Nothing to scale before the first key.
        let changed = largest > before && before > f32::NEG_INFINITY;
        *factor = if changed { exp(before - largest) } else { 1.0 };
    }
    for (sum, factor) in sums.iter_mut().zip(factors) {
        *sum *= factor;
    }
    for (row, factor) in rows.zip(factors) {
        if factor != 1.0 {
            row.iter_mut().for_each(|y| *y *= factor);
        }
    }
}

/// The requested gradients of attention: `[batch, n_heads, len, width]` each.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HeadGradients {
    /// Gradient of the queries.
    pub query: Option<Vec<f32>>,
    /// Gradients of keys and values.
    pub key_value: Option<[Vec<f32>; 2]>,
}

/// The backward pass of attention.
pub struct Backward<'a> {
    pub query: HeadRows<'a>,
    pub key: HeadRows<'a>,
    pub value: HeadRows<'a>,
    /// The gradient of the output.
    pub grad: HeadRows<'a>,
    pub output: HeadRows<'a>,
    /// `[batch, n_heads, query_len]`
    pub largest_scores: &'a [f32],
    /// `[batch, n_heads, query_len]`
    pub reciprocal_sums: &'a [f32],
    pub mask: Mask<'a>,
    pub keep: Option<Keep>,
}

/// Where the gradients of a head are accumulated: of queries, of keys and values.
type OfHead<'a> = (Option<&'a mut [f32]>, Option<[&'a mut [f32]; 2]>);

impl Backward<'_> {
    /// The tiles of a head are computed one after another, because each adds to the gradients of its queries and
    /// of its keys.
    pub fn gradients(&self, wanted: AttentionParents) -> HeadGradients {
        let zeros = |rows: HeadRows<'_>| vec![0.0; count(&rows.shape())];
        let mut gradients = HeadGradients {
            query: wanted.query.then(|| zeros(self.query)),
            key_value: wanted.key_value.then(|| [self.key, self.value].map(zeros)),
        };
        self.by_head(&mut gradients)
            .into_par_iter()
            .enumerate()
            .for_each_init(Buffers::default, |buffers, (head, gradients)| {
                self.add_gradients(head, gradients, buffers);
            });
        gradients
    }

    fn by_head<'a>(&self, gradients: &'a mut HeadGradients) -> Vec<OfHead<'a>> {
        let [batch, n_heads, ..] = self.query.shape();
        let by_head = |values: &'a mut [f32], rows: HeadRows<'_>| {
            let of_head = rows.len() * rows.width();
            let mut heads = values.chunks_mut(of_head.max(1));
            move || heads.next().unwrap_or_default()
        };
        let query = gradients.query.as_deref_mut();
        let mut query = query.map(|values| by_head(values, self.query));
        let key_value = gradients.key_value.as_mut();
        let mut key_value = key_value.map(|[keys, values]| {
            let keys = by_head(keys, self.key);
            (keys, by_head(values, self.value))
        });
        (0..batch * n_heads)
            .map(|_| {
                let query = query.as_mut().map(|next| next());
                let key_value = key_value.as_mut();
                (query, key_value.map(|(keys, values)| [keys(), values()]))
            })
            .collect()
    }

    fn add_gradients(&self, head: usize, gradients: OfHead<'_>, buffers: &mut Buffers) {
        let [_, n_heads, query_len, d_k] = self.query.shape();
        let (key_len, d_v) = (self.key.len(), self.value.width());
        let (mut query_grads, mut key_value_grads) = gradients;
        let scale = score_scale(d_k) as f32;
        let mask = self.mask.of_head([head / n_heads, head % n_heads], key_len);
        for queries in tiles(0..query_len, QUERIES) {
            let columns = queries.len();
            let [query, grad, output] = [self.query, self.grad, self.output]
                .map(|heads| heads.head(head).rows(queries.clone()));
            let of_queries = head * query_len + queries.start..head * query_len + queries.end;
            let means = mean_gradients(grad, output, columns);
            let statistics = Statistics {
                largest: &self.largest_scores[of_queries.clone()],
                reciprocals: &self.reciprocal_sums[of_queries.clone()],
                means: &means[..columns],
                kept: self.keep.map(|keep| keep.rows(of_queries)),
            };
            let query_columns = transposed(query, [columns, d_k], scale, &mut buffers.query);
            let grad_columns = transposed(grad, [columns, d_v], 1.0, &mut buffers.grad);
            for keys in tiles(mask.keys_of(queries.clone()), KEYS) {
                let [key, value] =
                    [self.key, self.value].map(|heads| heads.head(head).rows(keys.clone()));
                let size = keys.len() * columns;
                let weights = sized(&mut buffers.weights, size);
                let score_grads = sized(&mut buffers.weight_grads, size);
                let tile = Tile {
                    queries: queries.clone(),
                    keys: keys.clone(),
                    mask: &mask,
                };
                key.multiply(query_columns, 1.0, weights);
                value.multiply(grad_columns, 1.0, score_grads);
                tile.add_bias(weights);
                tile.weigh_again(weights, score_grads, &statistics);
                let [weights, score_grads] = [&*weights, &*score_grads]
                    .map(|tile| Matrix::new(tile, keys.len(), columns, columns));
                if let Some([key_grads, value_grads]) = &mut key_value_grads {
                    let key_grads = &mut key_grads[keys.start * d_k..keys.end * d_k];
                    let value_grads = &mut value_grads[keys.start * d_v..keys.end * d_v];
                    weights.add_product(grad, 1.0, value_grads);
                    score_grads.add_product(query, scale, key_grads);
                }
                if let Some(query_grads) = &mut query_grads {
                    let query_grads = &mut query_grads[queries.start * d_k..queries.end * d_k];
                    score_grads
                        .transposed()
                        .add_product(key, scale, query_grads);
                }
            }
        }
    }
}

/// Per query, the mean gradient of its weights: the dot product of its output and that output's gradient.
fn mean_gradients(grad: Matrix<'_>, output: Matrix<'_>, queries: usize) -> [f32; QUERIES] {
    let mut means = [0.0; QUERIES];
    vectorised!({
        for (query, mean) in means[..queries].iter_mut().enumerate() {
            *mean = sum2(grad.row(query), output.row(query), |grad, y| grad * y);
        }
    });
    means
}

/// Per-query statistics for the backward pass of a tile.
struct Statistics<'a> {
    largest: &'a [f32],
    reciprocals: &'a [f32],
    means: &'a [f32],
    kept: Option<KeptRows>,
}

impl Tile<'_> {
    /// Turns scores into weights after dropout, and the gradients of the weights into gradients of the scores.
    fn weigh_again(&self, scores: &mut [f32], grads: &mut [f32], statistics: &Statistics<'_>) {
        let Statistics {
            largest,
            reciprocals,
            means,
            kept,
        } = statistics;
        let columns = self.queries.len();
        let mut factors = [1.0; QUERIES];
        vectorised!({
            let rows = scores.chunks_exact_mut(columns);
            let rows = rows.zip(grads.chunks_exact_mut(columns));
            for (key, (scores, grads)) in self.keys.clone().zip(rows) {
                let first = self.blocked_queries(key);
                scores[..first].fill(0.0);
                grads[..first].fill(0.0);
                let factors = &mut factors[first..columns];
                if let Some(kept) = kept {
                    kept.column(key, first, factors);
                }
                let of_queries = largest[first..].iter().zip(&reciprocals[first..]);
                let of_queries = of_queries.zip(&means[first..]).zip(&*factors);
                let entries = scores[first..].iter_mut().zip(&mut grads[first..]);
                for ((score, grad), (((&largest, &reciprocal), &mean), &factor)) in
                    entries.zip(of_queries)
                {
                    let weight = exp(*score - largest) * reciprocal;
                    *grad = weight * (factor * *grad - mean);
                    *score = weight * factor;
                }
            }
        });
    }
}
