//! What attention reads, some queries at a time.

use std::ops::Range;

use burn_tch::LibTorch;
use tch::{Device, Kind, Tensor};

use crate::heads::{Heads, score_scale};
use crate::kernels::{MaskTensors, Packed};
use crate::mask::LOWEST;
use crate::random::Keep;
use crate::torch::dropout::drop_part;
use crate::torch::linear::in_f32;

/// Queries, keys and values, `[batch, n_heads, len, d_head]`, views of the packed tensors, in f32 or bf16; and the
/// mask.
pub struct Inputs<'a> {
    pub query: Tensor,
    pub key: Tensor,
    pub value: Tensor,
    pub heads: Heads,
    mask: Option<&'a MaskTensors<LibTorch>>,
}

/// Some queries, and the keys up to the last that any of them may attend to.
pub struct Part {
    queries: Range<usize>,
    pub keys: usize,
}

impl Part {
    /// Its queries' rows of `[batch, n_heads, query_len, ..]`.
    pub fn queries_of(&self, rows: &Tensor) -> Tensor {
        rows.narrow(2, self.queries.start as i64, self.queries.len() as i64)
    }

    /// Its keys' rows of `[batch, n_heads, key_len, ..]`.
    pub fn keys_of(&self, rows: &Tensor) -> Tensor {
        rows.narrow(2, 0, self.keys as i64)
    }

    /// Its scores of `[batch or 1, n_heads or 1, query_len or 1, key_len or 1]`.
    fn scores_of(&self, scores: &Tensor) -> Tensor {
        let [.., queries, keys] = sizes(scores);
        let rows = match queries {
            1 => scores.shallow_clone(),
            _ => self.queries_of(scores),
        };
        match keys {
            1 => rows,
            _ => rows.narrow(3, 0, self.keys as i64),
        }
    }
}

impl<'a> Inputs<'a> {
    pub fn of(packed: &Packed<LibTorch>, mask: Option<&'a MaskTensors<LibTorch>>) -> Self {
        let Heads { n_heads, d_k, d_v } = packed.heads;
        let query = &packed.query.tensor;
        let (keys, first) = match &packed.key_value {
            Some(key_value) => (&key_value.tensor, 0),
            None => (query, n_heads * d_k),
        };
        Self {
            query: split(query, 0, n_heads, d_k),
            key: split(keys, first, n_heads, d_k),
            value: split(keys, first + n_heads * d_k, n_heads, d_v),
            heads: packed.heads,
            mask,
        }
    }

    /// The shape of the scores: `[batch, n_heads, query_len, key_len]`.
    fn scores(&self) -> [usize; 4] {
        let [batch, n_heads, query_len, _] = sizes(&self.query);
        let [_, _, key_len, _] = sizes(&self.key);
        [batch, n_heads, query_len, key_len]
    }

    /// Where an output can be written: `[batch, query_len, n_heads · d_v]`.
    pub fn empty_output(&self) -> Tensor {
        let [batch, n_heads, query_len, _] = self.scores();
        let shape = [batch, query_len, n_heads * self.heads.d_v].map(|size| size as i64);
        Tensor::empty(shape, (Kind::Float, self.query.device()))
    }

    /// All queries and keys.
    pub fn all(&self) -> Part {
        let [_, _, query_len, keys] = self.scores();
        Part {
            queries: 0..query_len,
            keys,
        }
    }

    /// How many queries to compute at a time, so that there are at most so many weights; `None` for all. On
    /// a GPU it is always all: libtorch keeps there which weights were dropped.
    pub fn tile(&self, most_weights: usize) -> Option<usize> {
        let [batch, n_heads, query_len, key_len] = self.scores();
        let of_query = batch * n_heads * key_len;
        let fits = of_query.saturating_mul(query_len) <= most_weights;
        let is_whole = fits || self.query.device() != Device::Cpu;
        (!is_whole).then(|| (most_weights / of_query).max(1))
    }

    pub fn tiles(&self, tile: usize) -> impl Iterator<Item = Part> {
        let [_, _, query_len, key_len] = self.scores();
        let causal = self.mask.and_then(|mask| mask.causal);
        (0..query_len).step_by(tile).map(move |start| {
            let queries = start..query_len.min(start + tile);
            let last = causal.map_or(key_len, |first| first.saturating_add(queries.end));
            Part {
                queries,
                keys: last.min(key_len),
            }
        })
    }

    /// A part's weights before dropout.
    pub fn weights(&self, part: &Part) -> Tensor {
        let mut scores = self.scaled_products(part);
        let blocked = self.blocked(part);
        if let Some(bias) = self.bias(part, blocked.as_ref()) {
            scores += &bias;
        }
        let mut weights = scores.softmax(-1, Kind::Float);
        for rows in self.blocked_rows(part, blocked.as_ref()) {
            // On the CPU the check is cheaper than the fill.
            if rows.device() != Device::Cpu || rows.any().int64_value(&[]) != 0 {
                let _ = weights.masked_fill_(&rows, 0.0);
            }
        }
        weights
    }

    /// A part's `Q Kᵀ / √d_k`.
    fn scaled_products(&self, part: &Part) -> Tensor {
        let query = part.queries_of(&self.query);
        let keys = part.keys_of(&self.key).transpose(-2, -1);
        let scale = score_scale(self.heads.d_k);
        match query.kind() {
            Kind::Float => (query * scale).matmul(&keys),
            // Scaled queries would be rounded once more.
            _ => {
                let mut products = in_f32(query.matmul(&keys));
                let _ = products.g_mul_scalar_(scale);
                products
            }
        }
    }

    /// A tensor in f32 as a factor of products with these.
    pub fn factor(&self, tensor: &Tensor) -> Tensor {
        tensor.to_kind(self.value.kind())
    }

    /// The keys that causality or padding blocks: `[batch or 1, 1, queries or 1, keys]`.
    fn blocked(&self, part: &Part) -> Option<Tensor> {
        let mask = self.mask?;
        let keys = part.keys as i64;
        let padding = mask.padding.as_ref().map(|padding| {
            let padding = padding.tensor.narrow(1, 0, keys);
            padding.unsqueeze(1).unsqueeze(1)
        });
        let future = mask.causal.map(|first| {
            let shape = [1, 1, part.queries.len() as i64, keys];
            let all = Tensor::ones(shape, (Kind::Bool, self.query.device()));
            all.triu((first + part.queries.start) as i64 + 1)
        });
        match (padding, future) {
            (Some(padding), Some(future)) => Some(padding.logical_or(&future)),
            (padding, future) => padding.or(future),
        }
    }

    fn bias(&self, part: &Part, blocked: Option<&Tensor>) -> Option<Tensor> {
        let bias = self.mask.and_then(|mask| mask.bias.as_ref());
        let bias = bias.map(|bias| part.scores_of(&bias.tensor));
        match blocked {
            // Not added: what the bias is there has no effect.
            Some(blocked) => {
                let zero = || Tensor::zeros([1], (Kind::Float, self.query.device()));
                let bias = bias.unwrap_or_else(zero);
                Some(bias.masked_fill(blocked, f64::from(LOWEST)))
            }
            None => bias,
        }
    }

    /// Queries whose every key is blocked.
    fn blocked_rows(&self, part: &Part, blocked: Option<&Tensor>) -> impl Iterator<Item = Tensor> {
        let mask = self.mask;
        // By causality alone, a query always attends to the first key.
        let is_padded = mask.is_some_and(|mask| mask.padding.is_some());
        let by_structure = blocked.filter(|_| is_padded);
        let by_bias = mask.and_then(|mask| mask.blocked_rows.as_ref());
        let rows = [
            by_structure.map(|blocked| blocked.all_dim(-1, true)),
            by_bias.map(|rows| part.scores_of(&rows.tensor)),
        ];
        rows.into_iter().flatten()
    }

    /// Drops weights of a part, or their gradients, the same whatever the parts.
    pub fn drop_part(&self, weights: &mut Tensor, part: &Part, keep: Option<Keep>) {
        let [_, _, query_len, key_len] = self.scores();
        if let Some(keep) = keep {
            drop_part(weights, [query_len, key_len], part.queries.start, keep);
        }
    }

    /// libtorch's attention: the output, `[batch, n_heads, query_len, d_v]`, in the type of the queries, and the
    /// logarithms of the sums of exponentials, in f32. It is for CPUs, and for masks by structure that begin with the first query.
    pub fn flash(&self) -> Option<(Tensor, Tensor)> {
        self.can_flash().then(|| {
            Tensor::internal_scaled_dot_product_flash_attention_for_cpu(
                &self.query,
                &self.key,
                &self.value,
                0.0,
                self.is_causal(),
                self.flash_mask().as_ref(),
                score_scale(self.heads.d_k),
            )
        })
    }

    /// Gradients of queries, keys and values, in their type; that of the output is a [factor](Self::factor).
    pub fn flash_gradients(
        &self,
        grad: &Tensor,
        output: &Tensor,
        log_sums: &Tensor,
    ) -> [Tensor; 3] {
        Tensor::internal_scaled_dot_product_flash_attention_for_cpu_backward(
            grad,
            &self.query,
            &self.key,
            &self.value,
            output,
            log_sums,
            0.0,
            self.is_causal(),
            self.flash_mask().as_ref(),
            score_scale(self.heads.d_k),
        )
        .into()
    }

    fn can_flash(&self) -> bool {
        let Heads { d_k, d_v, .. } = self.heads;
        let scores = self.scores();
        let [_, _, query_len, key_len] = scores;
        let by_structure = self.mask.is_none_or(|mask| {
            let from_first = mask.causal == Some(0) && query_len == key_len;
            mask.bias.is_none() && (mask.causal.is_none() || from_first)
        });
        self.query.device() == Device::Cpu && d_k == d_v && !scores.contains(&0) && by_structure
    }

    fn is_causal(&self) -> bool {
        self.mask.is_some_and(|mask| mask.causal.is_some())
    }

    /// The padding as libtorch's attention reads it: a query whose every key has −∞ has output zero.
    fn flash_mask(&self) -> Option<Tensor> {
        let padding = &self.mask?.padding.as_ref()?.tensor;
        let padding = padding.unsqueeze(1).unsqueeze(1);
        let zeros = Tensor::zeros(padding.size(), (Kind::Float, padding.device()));
        Some(zeros.masked_fill(&padding, f64::NEG_INFINITY))
    }
}

/// The sizes of four dimensions.
fn sizes(tensor: &Tensor) -> [usize; 4] {
    let (a, b, c, d) = tensor.size4().expect("four dimensions");
    [a, b, c, d].map(|size| size as usize)
}

/// Columns of `[batch, len, ..]` as heads: `[batch, n_heads, len, d_head]`.
pub fn split(rows: &Tensor, first: usize, n_heads: usize, d_head: usize) -> Tensor {
    let columns = rows.narrow(2, first as i64, (n_heads * d_head) as i64);
    columns
        .unflatten(2, [n_heads as i64, d_head as i64])
        .transpose(1, 2)
}

/// `[batch, n_heads, len, d_head]` to `[batch, len, n_heads · d_head]`.
pub fn joined(heads: &Tensor) -> Tensor {
    let size = heads.size();
    heads
        .transpose(1, 2)
        .reshape([size[0], size[2], size[1] * size[3]])
}
