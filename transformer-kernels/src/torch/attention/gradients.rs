//! Gradients of the packed tensors of attention.

use burn_tch::{LibTorch, TchTensor};
use tch::{Kind, Tensor};
use transformer_cpu::{AttentionParents, Heads, score_scale};

use super::inputs::{Inputs, split};
use crate::kernels::Packed;

/// The requested gradients of queries, keys and values.
pub struct Gradients {
    /// The gradients of the packed tensors, in f32; the other fields are views of them.
    rows: [Option<Tensor>; 2],
    query: Option<Tensor>,
    /// `[batch, n_heads, key_len, d_head]` each.
    key_value: Option<[Tensor; 2]>,
}

impl Gradients {
    pub fn of(packed: &Packed<LibTorch>, wanted: AttentionParents) -> Self {
        let Heads { n_heads, d_k, d_v } = packed.heads;
        let empty = |beside: &TchTensor| {
            let beside = &beside.tensor;
            Tensor::empty(beside.size(), (Kind::Float, beside.device()))
        };
        let key_value = |rows: &Tensor, first| {
            [
                split(rows, first, n_heads, d_k),
                split(rows, first + n_heads * d_k, n_heads, d_v),
            ]
        };
        match &packed.key_value {
            Some(other) => {
                let query = wanted.query.then(|| empty(&packed.query));
                let keys = wanted.key_value.then(|| empty(other));
                Self {
                    query: query.as_ref().map(|rows| split(rows, 0, n_heads, d_k)),
                    key_value: keys.as_ref().map(|rows| key_value(rows, 0)),
                    rows: [query, keys],
                }
            }
            None => {
                let rows = empty(&packed.query);
                Self {
                    query: Some(split(&rows, 0, n_heads, d_k)),
                    key_value: Some(key_value(&rows, n_heads * d_k)),
                    rows: [Some(rows), None],
                }
            }
        }
    }

    /// Writes the gradients of all queries, keys and values.
    pub fn write(&mut self, [query, key, value]: &[Tensor; 3]) {
        if let Some(rows) = &mut self.query {
            rows.copy_(query);
        }
        if let Some([keys, values]) = &mut self.key_value {
            keys.copy_(key);
            values.copy_(value);
        }
    }

    /// Computes the gradients, in f32. The arguments are the gradient of the output, as an operand; the weights;
    /// and, in f32, the weights that dropout kept and their gradient.
    pub fn compute(
        &mut self,
        inputs: &Inputs<'_>,
        grad: &Tensor,
        [weights, kept, kept_grad]: [&Tensor; 3],
    ) {
        let mut score_grad =
            Tensor::internal_softmax_backward_data(kept_grad, weights, -1, Kind::Float);
        let _ = score_grad.g_mul_scalar_(score_scale(inputs.heads.d_k));
        let score_grad = inputs.factor(&score_grad);
        if let Some(query) = &mut self.query {
            query.copy_(&score_grad.matmul(&inputs.key));
        }
        if let Some([keys, values]) = &mut self.key_value {
            keys.copy_(&score_grad.transpose(-2, -1).matmul(&inputs.query));
            values.copy_(&inputs.factor(kept).transpose(-2, -1).matmul(grad));
        }
    }

    /// The gradients of the packed tensors.
    pub fn finish(self) -> [Option<TchTensor>; 2] {
        self.rows.map(|rows| rows.map(TchTensor::new))
    }
}
