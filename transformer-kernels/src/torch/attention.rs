//! Attention.

use burn_tch::{LibTorch, TchTensor};
use tch::{Device, Kind, Tensor};

use super::dropout::dropout;
use super::linear::in_f32;
use crate::heads::{Heads, score_scale};
use crate::kernels::{Attended, AttentionParents, Bias, Packed};

/// The output, and the state for the backward pass.
pub fn forward(
    packed: &Packed<LibTorch>,
    mask: Option<&Bias<LibTorch>>,
    p: f64,
) -> (TchTensor, Attended<LibTorch>) {
    let parts = Parts::of(packed);
    let scores = match mask {
        Some(mask) => parts.scores() + &mask.bias.tensor,
        None => parts.scores(),
    };
    let mut weights = scores.softmax(-1, Kind::Float);
    if let Some(rows) = mask.and_then(|mask| mask.blocked_rows.as_ref())
        // On the CPU the check is cheaper than the fill.
        && (rows.tensor.device() != Device::Cpu || rows.tensor.any().int64_value(&[]) != 0)
    {
        let _ = weights.masked_fill_(&rows.tensor, 0.0);
    }
    let (output, dropped) = if p > 0.0 {
        let (kept, dropped) = dropout(weights.copy(), p);
        (parts.factor(&kept).matmul(&parts.value), Some(dropped))
    } else {
        (parts.factor(&weights).matmul(&parts.value), None)
    };
    let attended = Attended {
        weights: TchTensor::new(weights),
        dropped,
    };
    (TchTensor::new(in_f32(joined(&output))), attended)
}

/// Gradients of the packed tensors: the first holds keys and values, too, where they follow the queries.
pub fn backward(
    grad: &Tensor,
    packed: &Packed<LibTorch>,
    attended: &Attended<LibTorch>,
    p: f64,
    wanted: AttentionParents,
) -> [Option<TchTensor>; 2] {
    let Heads { n_heads, d_k, d_v } = packed.heads;
    let parts = Parts::of(packed);
    let grad = parts.factor(&split(grad, 0, n_heads, d_v));
    let weights = &attended.weights.tensor;
    let mut weight_grad = in_f32(grad.matmul(&parts.value.transpose(-2, -1)));
    if let Some(dropped) = &attended.dropped {
        weight_grad = dropped.drop(&weight_grad, p);
    }
    let mut score_grad =
        Tensor::internal_softmax_backward_data(&weight_grad, weights, -1, Kind::Float);
    let _ = score_grad.g_mul_scalar_(parts.scale);
    let score_grad = parts.factor(&score_grad);
    let query_grad = || score_grad.matmul(&parts.key);
    // Keys and values, written into rows from a column on.
    let write_key_value = |rows: &Tensor, column| {
        let key_grad = score_grad.transpose(-2, -1).matmul(&parts.query);
        let weights = match &attended.dropped {
            Some(dropped) => dropped.drop(weights, p),
            None => weights.shallow_clone(),
        };
        let value_grad = parts.factor(&weights).transpose(-2, -1).matmul(&grad);
        split(rows, column, n_heads, d_k).copy_(&key_grad);
        split(rows, column + n_heads * d_k, n_heads, d_v).copy_(&value_grad);
    };
    match &packed.key_value {
        Some(key_value) => [
            wanted
                .query
                .then(|| TchTensor::new(in_f32(joined(&query_grad())))),
            wanted.key_value.then(|| {
                let rows = empty_like(&key_value.tensor);
                write_key_value(&rows, 0);
                TchTensor::new(rows)
            }),
        ],
        None => {
            let rows = empty_like(&packed.query.tensor);
            split(&rows, 0, n_heads, d_k).copy_(&query_grad());
            write_key_value(&rows, n_heads * d_k);
            [Some(TchTensor::new(rows)), None]
        }
    }
}

/// Room for the gradient of a packed tensor, in f32.
fn empty_like(tensor: &Tensor) -> Tensor {
    Tensor::empty(tensor.size(), (Kind::Float, tensor.device()))
}

/// Queries, keys and values: `[batch, n_heads, len, d_head]`, views of the packed tensors, in f32 or bf16.
struct Parts {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    /// The factor of the scores.
    scale: f64,
}

impl Parts {
    fn of(packed: &Packed<LibTorch>) -> Self {
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
            scale: score_scale(d_k),
        }
    }

    /// `Q Kᵀ / √d_k`, in f32.
    fn scores(&self) -> Tensor {
        let keys = self.key.transpose(-2, -1);
        match self.query.kind() {
            Kind::Float => (&self.query * self.scale).matmul(&keys),
            // Scaled queries would be rounded once more.
            _ => {
                let mut scores = in_f32(self.query.matmul(&keys));
                let _ = scores.g_mul_scalar_(self.scale);
                scores
            }
        }
    }

    /// A tensor in f32 as a factor of products with these.
    fn factor(&self, tensor: &Tensor) -> Tensor {
        tensor.to_kind(self.value.kind())
    }
}

/// Columns of `[batch, len, ..]` as heads: `[batch, n_heads, len, d_head]`.
fn split(rows: &Tensor, first: usize, n_heads: usize, d_head: usize) -> Tensor {
    let columns = rows.narrow(2, first as i64, (n_heads * d_head) as i64);
    let size = columns.size();
    let heads = [size[0], size[1], n_heads as i64, d_head as i64];
    columns.unflatten(2, &heads[2..]).transpose(1, 2)
}

/// `[batch, n_heads, len, d_head]` to `[batch, len, n_heads · d_head]`.
fn joined(heads: &Tensor) -> Tensor {
    let size = heads.size();
    heads
        .transpose(1, 2)
        .reshape([size[0], size[2], size[1] * size[3]])
}
