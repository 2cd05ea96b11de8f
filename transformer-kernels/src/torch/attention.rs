//! Attention: by libtorch's own where it can be used, else by products and softmax, some queries at a time.
//!
//! Queries, keys and values, and with them the factors of all products, are in f32 or bf16; all other tensors, but
//! for the output that libtorch's own attention keeps, are in f32.

mod gradients;
mod inputs;

use burn_tch::{LibTorch, LibTorchDevice, TchTensor};
use tch::{Kind, Tensor};

use self::gradients::Gradients;
use self::inputs::{Inputs, Part, joined, split};
use super::dropout::{Dropped, dropout};
use super::linear::in_f32;
use crate::heads::Heads;
use crate::kernels::{AttentionParents, MaskTensors, Packed};
use crate::random::{Keep, draw};

/// Most weights in memory on a CPU: attention with more computes them for some queries at a time, and again
/// in the backward pass.
pub const MOST_WEIGHTS: usize = 1 << 22;

/// What the backward pass needs beside inputs and mask.
#[derive(Debug, Clone)]
pub enum Attended {
    /// Of libtorch's attention.
    Flash {
        /// In the type of the queries: `[batch, query_len, n_heads · d_v]`.
        output: TchTensor,
        /// Logarithms of the sums of exponentials: `[batch, n_heads, query_len]`.
        log_sums: TchTensor,
    },
    /// All weights, before dropout: `[batch, n_heads, query_len, key_len]`.
    Weights {
        weights: TchTensor,
        dropped: Option<Dropped>,
    },
    /// The weights are computed again.
    Nothing {
        /// Queries that are computed at a time.
        tile: usize,
        keep: Option<Keep>,
    },
}

/// The output, and the state for the backward pass. On a CPU, at most so many weights are in memory.
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
        let output = match kept.tensor.kind() {
            // A clone, so that Burn writes to neither in place.
            Kind::Float => kept.clone(),
            _ => TchTensor::new(kept.tensor.to_kind(Kind::Float)),
        };
        let attended = Attended::Flash {
            output: kept,
            log_sums: TchTensor::new(log_sums),
        };
        return (output, attended);
    }
    let (output, attended) = match inputs.tile(most_weights) {
        None => at_once(&inputs, p),
        Some(tile) => by_tiles(&inputs, p, tile),
    };
    (TchTensor::new(output), attended)
}

fn at_once(inputs: &Inputs<'_>, p: f64) -> (Tensor, Attended) {
    let weights = inputs.weights(&inputs.all());
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

fn by_tiles(inputs: &Inputs<'_>, p: f64, tile: usize) -> (Tensor, Attended) {
    let Heads { n_heads, d_v, .. } = inputs.heads;
    let keep = draw::<LibTorch>(p, &LibTorchDevice::Cpu);
    let output = inputs.empty_output();
    let heads = split(&output, 0, n_heads, d_v);
    for part in inputs.tiles(tile) {
        let mut weights = inputs.weights(&part);
        inputs.drop_part(&mut weights, &part, keep);
        let sums = inputs.factor(&weights).matmul(&part.keys_of(&inputs.value));
        part.queries_of(&heads).copy_(&sums);
    }
    (output, Attended::Nothing { tile, keep })
}

/// The output alone, by libtorch's attention; `None` where that cannot be used.
pub fn without_gradients(
    packed: &Packed<LibTorch>,
    mask: Option<&MaskTensors<LibTorch>>,
) -> Option<TchTensor> {
    let (output, _) = Inputs::of(packed, mask).flash()?;
    Some(TchTensor::new(joined(&output)))
}

/// Gradients of the packed tensors: the first holds keys and values, too, where they follow the queries.
pub fn backward(
    grad: &Tensor,
    packed: &Packed<LibTorch>,
    mask: Option<&MaskTensors<LibTorch>>,
    attended: &Attended,
    p: f64,
    wanted: AttentionParents,
) -> [Option<TchTensor>; 2] {
    let inputs = Inputs::of(packed, mask);
    let Heads { n_heads, d_v, .. } = packed.heads;
    let grad = inputs.factor(&split(grad, 0, n_heads, d_v));
    let mut gradients = Gradients::of(packed, wanted);
    match attended {
        Attended::Flash { output, log_sums } => {
            let output = split(&output.tensor, 0, n_heads, d_v);
            gradients.write(&inputs.flash_gradients(&grad, &output, &log_sums.tensor));
        }
        Attended::Weights { weights, dropped } => {
            let weights = &weights.tensor;
            let drop = |tensor: Tensor| match dropped {
                Some(dropped) => dropped.drop(&tensor, p),
                None => tensor,
            };
            let kept = drop(weights.shallow_clone());
            let kept_grad = drop(in_f32(grad.matmul(&inputs.value.transpose(-2, -1))));
            gradients.add(&inputs, &inputs.all(), &grad, [weights, &kept, &kept_grad]);
        }
        Attended::Nothing { tile, keep } => {
            for part in inputs.tiles(*tile) {
                let grad = part.queries_of(&grad);
                add_part(&mut gradients, &inputs, &part, &grad, *keep);
            }
        }
    }
    gradients.finish()
}

/// Computes a part's weights again, and adds its gradients.
fn add_part(
    gradients: &mut Gradients,
    inputs: &Inputs<'_>,
    part: &Part,
    grad: &Tensor,
    keep: Option<Keep>,
) {
    let weights = inputs.weights(part);
    let mut kept = match keep {
        Some(_) => weights.copy(),
        None => weights.shallow_clone(),
    };
    inputs.drop_part(&mut kept, part, keep);
    let value = part.keys_of(&inputs.value);
    let mut kept_grad = in_f32(grad.matmul(&value.transpose(-2, -1)));
    inputs.drop_part(&mut kept_grad, part, keep);
    gradients.add(inputs, part, grad, [&weights, &kept, &kept_grad]);
}

#[cfg(test)]
mod tests;
