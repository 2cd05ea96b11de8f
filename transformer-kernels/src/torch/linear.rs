//! Linear layers.

use tch::{Kind, Tensor};
use transformer_cpu::WeightLayout;

/// `x W + b`
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, layout: WeightLayout) -> Tensor {
    let weight = oriented(weight, layout);
    match bias {
        Some(bias) if x.kind() == Kind::Float => bias.addmm(x, &weight),
        Some(bias) => {
            let mut output = product(x, &weight);
            output += bias;
            output
        }
        None => product(x, &weight),
    }
}

/// Multiplies two matrices, in f32.
pub fn product(left: &Tensor, right: &Tensor) -> Tensor {
    in_f32(left.mm(right))
}

/// The result of a matrix multiplication, in f32. On the CPU, libtorch sums bf16 products in f32, but returns the
/// result in bf16.
pub fn in_f32(result: Tensor) -> Tensor {
    match result.kind() {
        Kind::Float => result,
        _ => result.to_kind(Kind::Float),
    }
}

/// Gradient of the weight, in its layout.
pub fn weight_gradient(grad: &Tensor, x: &Tensor, layout: WeightLayout) -> Tensor {
    match layout {
        WeightLayout::InputByOutput => product(&x.tr(), grad),
        WeightLayout::OutputByInput => product(&grad.tr(), x),
    }
}

/// The weight as `[d_input, d_output]`.
pub fn oriented(weight: &Tensor, layout: WeightLayout) -> Tensor {
    match layout {
        WeightLayout::InputByOutput => weight.shallow_clone(),
        WeightLayout::OutputByInput => weight.tr(),
    }
}
