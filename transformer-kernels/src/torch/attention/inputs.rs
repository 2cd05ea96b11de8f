//! The inputs of attention.

use burn_tch::LibTorch;
use tch::{Device, Kind, Tensor};
use transformer_cpu::{Heads, LOWEST, count, score_scale};

use crate::kernels::{MaskTensors, Packed};
use crate::torch::linear::in_f32;

/// Queries, keys and values, `[batch, n_heads, len, d_head]`, as views of the packed tensors, in f32 or bf16; and
/// the mask.
pub struct Inputs<'a> {
    pub query: Tensor,
    pub key: Tensor,
    pub value: Tensor,
    pub heads: Heads,
    mask: Option<&'a MaskTensors<LibTorch>>,
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

    /// One per query, key and head.
    pub fn count_weights(&self) -> usize {
        count(&self.scores())
    }

    /// The weights before dropout.
    pub fn weights(&self) -> Tensor {
        let mut scores = self.scaled_products();
        let blocked = self.blocked();
        if let Some(bias) = self.bias(blocked.as_ref()) {
            scores += &bias;
        }
        let mut weights = scores.softmax(-1, Kind::Float);
        for rows in self.blocked_rows(blocked.as_ref()) {
            // On the CPU the check is cheaper than the fill.
            if rows.device() != Device::Cpu || rows.any().int64_value(&[]) != 0 {
                let _ = weights.masked_fill_(&rows, 0.0);
            }
        }
        weights
    }

    /// `Q Kᵀ / √d_k`
    fn scaled_products(&self) -> Tensor {
        let keys = self.key.transpose(-2, -1);
        let scale = score_scale(self.heads.d_k);
        match self.query.kind() {
            Kind::Float => (&self.query * scale).matmul(&keys),
            // Scaling the queries would round them once more.
            _ => {
                let mut products = in_f32(self.query.matmul(&keys));
                let _ = products.g_mul_scalar_(scale);
                products
            }
        }
    }

    /// An f32 tensor as an operand of matrix multiplication with these.
    pub fn factor(&self, tensor: &Tensor) -> Tensor {
        tensor.to_kind(self.value.kind())
    }

    /// The keys blocked by causality or padding: `[batch or 1, 1, query_len or 1, key_len]`.
    fn blocked(&self) -> Option<Tensor> {
        let mask = self.mask?;
        let padding = mask.padding.as_ref().map(|padding| {
            let padding = &padding.tensor;
            padding.unsqueeze(1).unsqueeze(1)
        });
        let future = mask.causal.map(|first| {
            let [_, _, query_len, key_len] = self.scores();
            let shape = [1, 1, query_len as i64, key_len as i64];
            let all = Tensor::ones(shape, (Kind::Bool, self.query.device()));
            all.triu(first as i64 + 1)
        });
        match (padding, future) {
            (Some(padding), Some(future)) => Some(padding.logical_or(&future)),
            (padding, future) => padding.or(future),
        }
    }

    fn bias(&self, blocked: Option<&Tensor>) -> Option<Tensor> {
        let bias = self.mask.and_then(|mask| mask.bias.as_ref());
        let bias = bias.map(|bias| bias.tensor.shallow_clone());
        match blocked {
            // Filled in, not added: the bias has no effect at blocked keys.
            Some(blocked) => {
                let zero = || Tensor::zeros([1], (Kind::Float, self.query.device()));
                let bias = bias.unwrap_or_else(zero);
                Some(bias.masked_fill(blocked, f64::from(LOWEST)))
            }
            None => bias,
        }
    }

    /// Queries with only blocked keys.
    fn blocked_rows(&self, blocked: Option<&Tensor>) -> impl Iterator<Item = Tensor> {
        let mask = self.mask;
        // With causality alone, a query always attends to the first key.
        let is_padded = mask.is_some_and(|mask| mask.padding.is_some());
        let by_structure = blocked.filter(|_| is_padded);
        let by_bias = mask.and_then(|mask| mask.blocked_rows.as_ref());
        let rows = [
            by_structure.map(|blocked| blocked.all_dim(-1, true)),
            by_bias.map(|rows| rows.tensor.shallow_clone()),
        ];
        rows.into_iter().flatten()
    }

    /// libtorch's attention: the output, `[batch, n_heads, query_len, d_v]`, in the type of the queries, and the
    /// log-sum-exp of the scores, in f32. It supports CPUs, padding masks, and causal masks that begin at the
    /// first position.
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

    /// Gradients of queries, keys and values, in their type, given the gradient of the output as a
    /// [factor](Self::factor).
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

    /// The padding in the form of libtorch's attention: a query with only −∞ keys has output zero.
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
