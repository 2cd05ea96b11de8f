//! Attention: by libtorch's own operation if possible, by our tiles on a CPU if there are many weights, otherwise
//! by matrix multiplication and softmax.
//!
//! Queries, keys and values, and so the operands of libtorch's matrix multiplications, are in f32 or bf16. All
//! other tensors are in f32, except the output that libtorch's own attention keeps.

mod gradients;
mod inputs;

use burn_tch::{LibTorch, LibTorchDevice, TchTensor};
use tch::{Device, Kind, Tensor};
use transformer_cpu::{AttentionParents, Heads};

use self::gradients::Gradients;
use self::inputs::{Inputs, joined, split};
use super::dropout::{Dropped, dropout};
use super::linear::in_f32;
use crate::host::attention::{self as tiles, KeptAttention};
use crate::kernels::{MaskTensors, Packed};
use crate::ops::dropout::draw;

/// Maximum number of weights kept for the backward pass on a CPU. With more, tiles are as fast or faster.
pub const MOST_WEIGHTS: usize = 1 << 20;

/// What is kept for the backward pass besides inputs and mask.
#[derive(Debug, Clone)]
pub enum Attended {
    /// From libtorch's attention.
    Flash {
        /// In the type of the queries: `[batch, query_len, n_heads · d_v]`.
        output: TchTensor,
        /// The log-sum-exp of the scores: `[batch, n_heads, query_len]`.
        log_sums: TchTensor,
    },
    /// All weights, before dropout: `[batch, n_heads, query_len, key_len]`.
    Weights {
        weights: TchTensor,
        dropped: Option<Dropped>,
    },
    /// From tiles, whose weights are recomputed.
    Tiles(KeptAttention<LibTorch>),
}

/// The output, and the state for the backward pass. On a CPU, at most `most_weights` weights are kept.
pub fn forward(
    packed: &Packed<LibTorch>,
    mask: Option<&MaskTensors<LibTorch>>,
    p: f64,
    most_weights: usize,
) -> (TchTensor, Attended) {
    let inputs = Inputs::of(packed, mask);
    if p == 0.0
        && let Some((output, log_sums)) = inputs.flash()
    {
        let kept = TchTensor::new(joined(&output));
        let output = as_f32(&kept);
        let attended = Attended::Flash {
            output: kept,
            log_sums: TchTensor::new(log_sums),
        };
        return (output, attended);
    }
    if inputs.query.device() == Device::Cpu && inputs.count_weights() > most_weights {
        let keep = draw::<LibTorch>(p, &LibTorchDevice::Cpu);
        let (output, kept) = tiles::forward(&packed_in_f32(packed), mask, keep);
        return (output, Attended::Tiles(kept));
    }
    let (output, attended) = with_weights(&inputs, p);
    (TchTensor::new(output), attended)
}

fn with_weights(inputs: &Inputs<'_>, p: f64) -> (Tensor, Attended) {
    let weights = inputs.weights();
    let (output, dropped) = if p > 0.0 {
        let (kept, dropped) = dropout(weights.copy(), p);
        (inputs.factor(&kept).matmul(&inputs.value), Some(dropped))
    } else {
        (inputs.factor(&weights).matmul(&inputs.value), None)
    };
    let weights = TchTensor::new(weights);
    let output = in_f32(joined(&output));
    (output, Attended::Weights { weights, dropped })
}

/// Tiles compute in f32.
fn packed_in_f32(packed: &Packed<LibTorch>) -> Packed<LibTorch> {
    Packed {
        query: as_f32(&packed.query),
        key_value: packed.key_value.as_ref().map(as_f32),
        heads: packed.heads,
    }
}

/// The tensor in f32; if it already is, a clone, so that Burn does not write to either in place.
fn as_f32(tensor: &TchTensor) -> TchTensor {
    match tensor.tensor.kind() {
        Kind::Float => tensor.clone(),
        _ => TchTensor::new(tensor.tensor.to_kind(Kind::Float)),
    }
}

/// The output alone, by libtorch's attention; `None` if that cannot be used.
pub fn without_gradients(
    packed: &Packed<LibTorch>,
    mask: Option<&MaskTensors<LibTorch>>,
) -> Option<TchTensor> {
    let (output, _) = Inputs::of(packed, mask).flash()?;
    Some(TchTensor::new(joined(&output)))
}

/// Gradients of the packed tensors. If keys and values follow the queries, the first holds their gradients, too.
pub fn backward(
    grad: &TchTensor,
    packed: &Packed<LibTorch>,
    mask: Option<&MaskTensors<LibTorch>>,
    attended: &Attended,
    p: f64,
    wanted: AttentionParents,
) -> [Option<TchTensor>; 2] {
    let inputs = Inputs::of(packed, mask);
    let Heads { n_heads, d_v, .. } = packed.heads;
    let head_grad = || inputs.factor(&split(&grad.tensor, 0, n_heads, d_v));
    match attended {
        Attended::Flash { output, log_sums } => {
            let output = split(&output.tensor, 0, n_heads, d_v);
            let gradients = inputs.flash_gradients(&head_grad(), &output, &log_sums.tensor);
            let mut all = Gradients::of(packed, wanted);
            all.write(&gradients);
            all.finish()
        }
        Attended::Weights { weights, dropped } => {
            let (weights, grad) = (&weights.tensor, head_grad());
            let drop = |tensor: Tensor| match dropped {
                Some(dropped) => dropped.drop(&tensor, p),
                None => tensor,
            };
            let kept = drop(weights.shallow_clone());
            let kept_grad = drop(in_f32(grad.matmul(&inputs.value.transpose(-2, -1))));
            let mut all = Gradients::of(packed, wanted);
            all.compute(&inputs, &grad, [weights, &kept, &kept_grad]);
            all.finish()
        }
        Attended::Tiles(kept) => {
            let packed = packed_in_f32(packed);
            tiles::backward(grad, &packed, mask, kept, wanted)
        }
    }
}

#[cfg(test)]
mod tests;
