//! libtorch's own fused operations, and the tiled attention of `transformer-cpu`.

mod adam;
mod attention;
mod dropout;
mod linear;
mod loss;
mod mkl;
mod norm;
mod slices;

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_tch::{LibTorch, TchTensor};
use tch::{Kind, Tensor};
use transformer_cpu::{AdamStep, AttentionParents, NormParents, ProductPrecision, WeightLayout};

use self::dropout::Dropped;
use crate::autodiff::wrapped;
use crate::kernels::{Kernels, MaskTensors, Packed};
use crate::ops::turn::composed;

impl Kernels for LibTorch {
    type Dropped = Dropped;
    type Attended = attention::Attended;

    const BF16_LINEAR: bool = true;
    const BF16_ATTENTION: bool = true;

    fn bf16_factor(tensor: &TchTensor) -> TchTensor {
        TchTensor::new(tensor.tensor.to_kind(Kind::BFloat16))
    }

    fn supports(tensor: &FloatTensor<Self>) -> bool {
        tensor.tensor.kind() == Kind::Float
    }

    fn prepare() {
        mkl::start();
    }

    fn linear_forward(
        x: &TchTensor,
        weight: &TchTensor,
        bias: Option<&TchTensor>,
        layout: WeightLayout,
        _precision: ProductPrecision,
    ) -> TchTensor {
        let bias = bias.map(|bias| &bias.tensor);
        TchTensor::new(linear::linear(&x.tensor, &weight.tensor, bias, layout))
    }

    fn linear_input_gradient(
        grad: &TchTensor,
        weight: &TchTensor,
        layout: WeightLayout,
        _precision: ProductPrecision,
    ) -> TchTensor {
        let weight = linear::oriented(&weight.tensor, layout);
        TchTensor::new(linear::product(&grad.tensor, &weight.tr()))
    }

    fn linear_weight_gradient(
        grad: &TchTensor,
        x: &TchTensor,
        layout: WeightLayout,
        _precision: ProductPrecision,
    ) -> TchTensor {
        TchTensor::new(linear::weight_gradient(&grad.tensor, &x.tensor, layout))
    }

    fn sum_rows(x: &TchTensor) -> TchTensor {
        let width = x.tensor.size().last().copied().unwrap_or(1);
        TchTensor::new(sum_rows(&x.tensor, width))
    }

    fn sum_of_squares(x: &TchTensor) -> TchTensor {
        let sum = x.tensor.square().sum(Kind::Float);
        TchTensor::new(sum.reshape([1]))
    }

    fn relu_dropout(x: &TchTensor, bias: &TchTensor, p: f64) -> TchTensor {
        let mut output = &x.tensor + &bias.tensor;
        let _ = output.relu_();
        TchTensor::new(match p > 0.0 {
            true => dropout::dropout(output, p).0,
            false => output,
        })
    }

    fn relu_dropout_backward(grad: &TchTensor, output: &TchTensor, p: f64) -> TchTensor {
        let mut x_grad = output.tensor.threshold_backward(&grad.tensor, 0.0);
        if p > 0.0 {
            let _ = x_grad.g_mul_scalar_(1.0 / (1.0 - p));
        }
        TchTensor::new(x_grad)
    }

    fn layer_norm_forward(
        x: &TchTensor,
        gamma: &TchTensor,
        beta: &TchTensor,
        epsilon: f64,
    ) -> [TchTensor; 3] {
        let (output, mean, deviation) = x.tensor.native_layer_norm(
            gamma.tensor.size(),
            Some(&gamma.tensor),
            Some(&beta.tensor),
            epsilon,
        );
        [output, mean, deviation].map(TchTensor::new)
    }

    fn layer_norm_backward(
        grad: &TchTensor,
        x: &TchTensor,
        gamma: &TchTensor,
        statistics: &[TchTensor; 2],
        wanted: NormParents,
    ) -> (Option<TchTensor>, Option<[TchTensor; 2]>) {
        let [mean, deviation] = statistics.each_ref().map(|tensor| &tensor.tensor);
        let rows = norm::Rows::new(&grad.tensor, &x.tensor, &gamma.tensor, [mean, deviation]);
        let x_grad = wanted.x.then(|| rows.x_gradient());
        let parameters = wanted.parameters.then(|| rows.parameter_gradients());
        (
            x_grad.map(TchTensor::new),
            parameters.map(|both| both.map(TchTensor::new)),
        )
    }

    fn dropout(x: &TchTensor, residual: Option<&TchTensor>, p: f64) -> (TchTensor, Dropped) {
        let (mut output, dropped) = dropout::dropout(x.tensor.copy(), p);
        if let Some(residual) = residual {
            output += &residual.tensor;
        }
        (TchTensor::new(output), dropped)
    }

    fn dropout_backward(grad: &TchTensor, dropped: &Dropped, p: f64) -> TchTensor {
        TchTensor::new(dropped.drop(&grad.tensor, p))
    }

    fn attention_without_gradients(
        packed: &Packed<Self>,
        mask: Option<&MaskTensors<Self>>,
    ) -> Option<TchTensor> {
        attention::without_gradients(packed, mask)
    }

    fn attention_forward(
        packed: &Packed<Self>,
        mask: Option<&MaskTensors<Self>>,
        p: f64,
    ) -> (TchTensor, attention::Attended) {
        attention::forward(packed, mask, p, attention::MOST_WEIGHTS)
    }

    fn attention_backward(
        grad: &TchTensor,
        packed: &Packed<Self>,
        mask: Option<&MaskTensors<Self>>,
        attended: &attention::Attended,
        p: f64,
        wanted: AttentionParents,
    ) -> [Option<TchTensor>; 2] {
        attention::backward(grad, packed, mask, attended, p, wanted)
    }

    fn turn_heads(x: &TchTensor, turns: &TchTensor, n_heads: usize) -> TchTensor {
        let turned = composed::<Self>(wrapped(x.clone()), wrapped(turns.clone()), n_heads);
        turned.into_primitive().tensor()
    }

    fn log_softmax_forward(x: &TchTensor) -> TchTensor {
        TchTensor::new(x.tensor.log_softmax(-1, Kind::Float))
    }

    fn cross_entropy(
        logits: &TchTensor,
        labels: &IntTensor<Self>,
        smoothing: f64,
    ) -> [TchTensor; 4] {
        loss::cross_entropy(&logits.tensor, &labels.tensor, smoothing).map(TchTensor::new)
    }

    fn cross_entropy_backward(
        grad: &TchTensor,
        logits: TchTensor,
        labels: &IntTensor<Self>,
        log_sum_exp: &TchTensor,
        smoothing: f64,
    ) -> TchTensor {
        TchTensor::new(loss::cross_entropy_backward(
            &grad.tensor,
            logits.tensor,
            &labels.tensor,
            &log_sum_exp.tensor,
            smoothing,
        ))
    }

    fn adam(
        parameter: TchTensor,
        grad: TchTensor,
        moments: [TchTensor; 2],
        step: &AdamStep,
    ) -> [TchTensor; 3] {
        let [first, second] = moments;
        let mut owned = [parameter, first, second].map(owned);
        adam::adam(&mut owned, &grad.tensor, step);
        owned.map(TchTensor::new)
    }
}

/// The sum of all rows, each of `width` values.
fn sum_rows(x: &Tensor, width: i64) -> Tensor {
    let rows = x.reshape([-1, width]);
    rows.sum_dim_intlist([0i64].as_slice(), false, Kind::Float)
}

/// A contiguous tensor that is not held elsewhere.
fn owned(tensor: TchTensor) -> Tensor {
    if tensor.storage.can_mut() && tensor.tensor.is_contiguous() {
        tensor.tensor
    } else {
        tensor.tensor.contiguous().copy()
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;
    use transformer_cpu::{PackedMatrix, PackedPrecision, ProductBuffer, Threads};

    use super::*;

    /// libtorch configures a thread's tiles once for several multiplications.
    #[test]
    fn libtorch_multiplies_by_amx_on_the_same_thread() {
        let x = Tensor::ones([64, 64], (Kind::BFloat16, Device::Cpu));
        // Values that 8 bits represent exactly, and enough for whole AMX tiles.
        let (rows, sizes) = ([127.0; 16 * 64], [64, 32]);
        let (layout, precision) = (WeightLayout::InputByOutput, PackedPrecision::Int8);
        let packed = PackedMatrix::new(&[127.0; 64 * 32], sizes, layout, precision);
        let mut buffer = ProductBuffer::default();
        for _ in 0..3 {
            let sums = x.matmul(&x).to_kind(Kind::Float);
            assert_eq!(
                (sums.min().double_value(&[]), sums.max().double_value(&[])),
                (64.0, 64.0)
            );
            let mut out = [0.0; 16 * 32];
            packed.product(&rows, None, &mut out, &mut buffer, Threads::This);
            assert_eq!(out, [127.0 * 127.0 * 64.0; 16 * 32]);
        }
    }
}
