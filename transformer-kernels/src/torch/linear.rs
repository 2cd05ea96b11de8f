//! Linear maps.

use tch::Tensor;

use crate::linear::WeightLayout;

/// `x W + b`
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, layout: WeightLayout) -> Tensor {
    let weight = oriented(weight, layout);
    match bias {
        Some(bias) => bias.addmm(x, &weight),
        None => x.mm(&weight),
    }
}

/// Gradient of the weight, in its layout.
pub fn weight_gradient(grad: &Tensor, x: &Tensor, layout: WeightLayout) -> Tensor {
    match layout {
        WeightLayout::InputByOutput => x.tr().mm(grad),
        WeightLayout::OutputByInput => grad.tr().mm(x),
    }
}

/// The weight as `[d_input, d_output]`.
pub fn oriented(weight: &Tensor, layout: WeightLayout) -> Tensor {
    match layout {
        WeightLayout::InputByOutput => weight.shallow_clone(),
        WeightLayout::OutputByInput => weight.tr(),
    }
}
