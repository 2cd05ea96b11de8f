//! Attention.

use burn_tch::{LibTorch, TchTensor};
use tch::{Device, Kind, Tensor};

use super::dropout::dropout;
use crate::heads::{Heads, score_scale};
use crate::kernels::{Attended, AttentionParents, Bias, Packed};

/// The output, and the state for the backward pass.
pub fn forward(
    packed: &Packed<LibTorch>,
    mask: Option<&Bias<LibTorch>>,
    p: f64,
) -> (TchTensor, Attended<LibTorch>) {
    let parts = Parts::of(packed);
    let query = parts.query * score_scale(packed.heads.d_k);
    let scores = query.matmul(&parts.key.transpose(-2, -1));
    let scores = match mask {
        Some(mask) => scores + &mask.bias.tensor,
        None => scores,
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
        (kept.matmul(&parts.value), Some(dropped))
    } else {
        (weights.matmul(&parts.value), None)
    };
    let attended = Attended {
        weights: TchTensor::new(weights),
        dropped,
    };
    (TchTensor::new(joined(&output)), attended)
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
    let grad = split(grad, 0, n_heads, d_v);
    let weights = &attended.weights.tensor;
    let mut weight_grad = grad.matmul(&parts.value.transpose(-2, -1));
    if let Some(dropped) = &attended.dropped {
        weight_grad = dropped.drop(&weight_grad, p);
    }
    let mut score_grad =
        Tensor::internal_softmax_backward_data(&weight_grad, weights, -1, Kind::Float);
    let _ = score_grad.g_mul_scalar_(score_scale(d_k));
    let query_grad = || score_grad.matmul(&parts.key);
    // Keys and values, written into rows from a column on.
    let write_key_value = |rows: &Tensor, column| {
        let key_grad = score_grad.transpose(-2, -1).matmul(&parts.query);
        let weights = match &attended.dropped {
            Some(dropped) => dropped.drop(weights, p),
            None => weights.shallow_clone(),
        };
        let value_grad = weights.transpose(-2, -1).matmul(&grad);
        split(rows, column, n_heads, d_k).copy_(&key_grad);
        split(rows, column + n_heads * d_k, n_heads, d_v).copy_(&value_grad);
    };
    match &packed.key_value {
        Some(key_value) => [
            wanted.query.then(|| TchTensor::new(joined(&query_grad()))),
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

fn empty_like(tensor: &Tensor) -> Tensor {
    Tensor::empty(tensor.size(), (tensor.kind(), tensor.device()))
}

/// Queries, keys and values: `[batch, n_heads, len, d_head]`, views of the packed tensors.
struct Parts {
    query: Tensor,
    key: Tensor,
    value: Tensor,
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
        }
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
