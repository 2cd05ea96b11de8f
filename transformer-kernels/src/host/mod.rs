//! The kernels of flex and ndarray: those of `transformer-cpu`, on tensors. libtorch uses them for attention over
//! long sequences.

pub mod attention;
pub mod slices;

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{TensorMetadata, try_read_sync};
use transformer_cpu::{
    self as cpu, AdamStep, AttentionParents, Keep, LinearShape, NormParents, ProductPrecision,
    WeightLayout,
};

use self::attention::KeptAttention;
use self::slices::{Slices, dims, into_vec, read, tensor};
use crate::kernels::{Kernels, MaskTensors, Packed};
use crate::ops::dropout::draw;

/// A backend that has these kernels.
pub trait Host: Slices {
    /// Whether the values are `f32`.
    fn is_f32(tensor: &FloatTensor<Self>) -> bool;

    /// Whether nothing else holds the values.
    fn is_unique(tensor: &FloatTensor<Self>) -> bool;
}

#[cfg(feature = "flex")]
impl Host for burn_flex::Flex {
    fn is_f32(tensor: &FloatTensor<Self>) -> bool {
        tensor.dtype() == burn::tensor::DType::F32
    }

    fn is_unique(tensor: &FloatTensor<Self>) -> bool {
        tensor.is_unique()
    }
}

#[cfg(feature = "ndarray")]
impl Host for burn_ndarray::NdArray {
    fn is_f32(tensor: &FloatTensor<Self>) -> bool {
        matches!(tensor, burn_ndarray::NdArrayTensor::F32(_))
    }

    fn is_unique(tensor: &FloatTensor<Self>) -> bool {
        match tensor {
            burn_ndarray::NdArrayTensor::F32(storage) => storage.is_unique(),
            _ => false,
        }
    }
}

/// The values, to be modified: moved if nothing else holds them, otherwise copied.
fn take<I: Host>(tensor: FloatTensor<I>) -> Vec<f32> {
    match I::slice(&tensor) {
        Some(values) if !I::is_unique(&tensor) => values.to_vec(),
        _ => into_vec::<I>(tensor),
    }
}

/// Labels or tokens. Negative ones become too large, and the kernels refuse these.
fn indices<I: Host>(tensor: &IntTensor<I>) -> Vec<usize> {
    let data = try_read_sync(I::int_into_data(tensor.clone())).expect("the tensor is in memory");
    let data = data.expect("nothing can fail");
    data.iter::<i64>().map(|index| index as usize).collect()
}

fn last_dim<I: Host>(tensor: &FloatTensor<I>) -> usize {
    let shape = tensor.shape();
    shape[shape.num_dims() - 1]
}

impl<I: Host> Kernels for I {
    type Dropped = Keep;
    type Attended = KeptAttention<I>;

    const BF16_LINEAR: bool = true;

    fn supports(tensor: &FloatTensor<I>) -> bool {
        I::is_f32(tensor)
    }

    fn embed(table: &FloatTensor<I>, tokens: &IntTensor<I>, scale: f64) -> FloatTensor<I> {
        let (shape, [batch, len]) = (dims::<I, 2>(table), tokens.shape().dims());
        let indices = indices::<I>(tokens);
        let output = cpu::embedding(&read::<I>(table), shape, &indices, scale as f32);
        tensor::<I>(output, [batch, len, shape[1]], table)
    }

    fn embed_backward(
        grad: &FloatTensor<I>,
        table: &FloatTensor<I>,
        tokens: &IntTensor<I>,
        scale: f64,
    ) -> FloatTensor<I> {
        let shape = dims::<I, 2>(table);
        let indices = indices::<I>(tokens);
        let sums = cpu::embedding_gradient(&read::<I>(grad), &indices, shape, scale as f32);
        tensor::<I>(sums, shape, grad)
    }

    fn linear_forward(
        x: &FloatTensor<I>,
        weight: &FloatTensor<I>,
        bias: Option<&FloatTensor<I>>,
        layout: WeightLayout,
        precision: ProductPrecision,
    ) -> FloatTensor<I> {
        let [rows, _] = dims::<I, 2>(x);
        let shape = linear_shape(rows, dims::<I, 2>(weight), layout, precision);
        let bias = bias.map(read::<I>);
        let output = cpu::linear(&read::<I>(x), &read::<I>(weight), bias.as_deref(), shape);
        tensor::<I>(output, [rows, shape.d_output], x)
    }

    fn linear_input_gradient(
        grad: &FloatTensor<I>,
        weight: &FloatTensor<I>,
        layout: WeightLayout,
        precision: ProductPrecision,
    ) -> FloatTensor<I> {
        let [rows, _] = dims::<I, 2>(grad);
        let shape = linear_shape(rows, dims::<I, 2>(weight), layout, precision);
        let x_grad = cpu::linear_input_gradient(&read::<I>(grad), &read::<I>(weight), shape);
        tensor::<I>(x_grad, [rows, shape.d_input], grad)
    }

    fn linear_weight_gradient(
        grad: &FloatTensor<I>,
        x: &FloatTensor<I>,
        layout: WeightLayout,
        precision: ProductPrecision,
    ) -> FloatTensor<I> {
        let ([rows, d_input], [_, d_output]) = (dims::<I, 2>(x), dims::<I, 2>(grad));
        let weight = layout.oriented([d_input, d_output]);
        let shape = linear_shape(rows, weight, layout, precision);
        let weight_grad = cpu::linear_weight_gradient(&read::<I>(grad), &read::<I>(x), shape);
        tensor::<I>(weight_grad, weight, grad)
    }

    fn sum_rows(x: &FloatTensor<I>) -> FloatTensor<I> {
        let width = last_dim::<I>(x);
        tensor::<I>(cpu::sum_rows(&read::<I>(x), width), [width], x)
    }

    fn sum_of_squares(x: &FloatTensor<I>) -> FloatTensor<I> {
        tensor::<I>(vec![cpu::sum_of_squares(&read::<I>(x))], [1], x)
    }

    fn relu_dropout(x: &FloatTensor<I>, bias: &FloatTensor<I>, p: f64) -> FloatTensor<I> {
        let keep = draw::<I>(p, &I::float_device(x));
        let output = cpu::relu_dropout(&read::<I>(x), &read::<I>(bias), keep);
        tensor::<I>(output, x.shape(), x)
    }

    fn relu_dropout_backward(
        grad: &FloatTensor<I>,
        output: &FloatTensor<I>,
        p: f64,
    ) -> FloatTensor<I> {
        let scale = (1.0 / (1.0 - p)) as f32;
        let x_grad = cpu::relu_dropout_backward(&read::<I>(grad), &read::<I>(output), scale);
        tensor::<I>(x_grad, grad.shape(), grad)
    }

    fn layer_norm_forward(
        x: &FloatTensor<I>,
        gamma: &FloatTensor<I>,
        beta: &FloatTensor<I>,
        epsilon: f64,
    ) -> [FloatTensor<I>; 3] {
        let (gamma, beta) = (read::<I>(gamma), read::<I>(beta));
        let normed = cpu::layer_norm(&read::<I>(x), &gamma, &beta, epsilon as f32);
        let rows = normed.means.len();
        [
            tensor::<I>(normed.output, x.shape(), x),
            tensor::<I>(normed.means, [rows], x),
            tensor::<I>(normed.reciprocal_deviations, [rows], x),
        ]
    }

    fn layer_norm_backward(
        grad: &FloatTensor<I>,
        x: &FloatTensor<I>,
        gamma: &FloatTensor<I>,
        statistics: &[FloatTensor<I>; 2],
        wanted: NormParents,
    ) -> (Option<FloatTensor<I>>, Option<[FloatTensor<I>; 2]>) {
        let (grads, input, gammas) = (read::<I>(grad), read::<I>(x), read::<I>(gamma));
        let statistics = statistics.each_ref().map(read::<I>);
        let [means, deviations] = &statistics;
        let gradients =
            cpu::layer_norm_backward(&grads, &input, &gammas, [means, deviations], wanted);
        let of_parameter = |values| tensor::<I>(values, gamma.shape(), x);
        (
            gradients.x.map(|values| tensor::<I>(values, x.shape(), x)),
            gradients.parameters.map(|both| both.map(of_parameter)),
        )
    }

    fn dropout(
        x: &FloatTensor<I>,
        residual: Option<&FloatTensor<I>>,
        p: f64,
    ) -> (FloatTensor<I>, Keep) {
        let keep = draw::<I>(p, &I::float_device(x)).expect("p is above zero");
        let input = read::<I>(x);
        let output = match residual {
            Some(residual) => cpu::add_dropout(&read::<I>(residual), &input, keep),
            None => cpu::dropout(&input, keep),
        };
        (tensor::<I>(output, x.shape(), x), keep)
    }

    fn dropout_backward(grad: &FloatTensor<I>, keep: &Keep, _p: f64) -> FloatTensor<I> {
        let x_grad = cpu::dropout(&read::<I>(grad), *keep);
        tensor::<I>(x_grad, grad.shape(), grad)
    }

    fn attention_without_gradients(
        packed: &Packed<I>,
        mask: Option<&MaskTensors<I>>,
    ) -> Option<FloatTensor<I>> {
        Some(attention::forward(packed, mask, None).0)
    }

    fn attention_forward(
        packed: &Packed<I>,
        mask: Option<&MaskTensors<I>>,
        p: f64,
    ) -> (FloatTensor<I>, KeptAttention<I>) {
        let keep = draw::<I>(p, &I::float_device(&packed.query));
        attention::forward(packed, mask, keep)
    }

    fn attention_backward(
        grad: &FloatTensor<I>,
        packed: &Packed<I>,
        mask: Option<&MaskTensors<I>>,
        attended: &KeptAttention<I>,
        _p: f64,
        wanted: AttentionParents,
    ) -> [Option<FloatTensor<I>>; 2] {
        attention::backward(grad, packed, mask, attended, wanted)
    }

    fn turn_heads(x: &FloatTensor<I>, turns: &FloatTensor<I>, n_heads: usize) -> FloatTensor<I> {
        let d_k = last_dim::<I>(turns);
        let (width, turned) = (last_dim::<I>(x), n_heads * d_k);
        let output = cpu::turn_heads(&read::<I>(x), width, turned, &read::<I>(turns), d_k);
        tensor::<I>(output, x.shape(), x)
    }

    fn log_softmax_forward(x: &FloatTensor<I>) -> FloatTensor<I> {
        let output = cpu::log_softmax(&read::<I>(x), last_dim::<I>(x));
        tensor::<I>(output, x.shape(), x)
    }

    fn cross_entropy(
        logits: &FloatTensor<I>,
        labels: &IntTensor<I>,
        smoothing: f64,
    ) -> [FloatTensor<I>; 4] {
        let labels = indices::<I>(labels);
        let rows = cpu::cross_entropy(&read::<I>(logits), &labels, smoothing as f32);
        let fields: [fn(&cpu::RowLoss) -> f32; 4] = [
            |row| row.loss,
            |row| row.log_sum_exp,
            |row| row.at_label,
            |row| row.largest,
        ];
        fields.map(|field| tensor::<I>(rows.iter().map(field).collect(), [rows.len()], logits))
    }

    fn cross_entropy_backward(
        grad: &FloatTensor<I>,
        logits: FloatTensor<I>,
        labels: &IntTensor<I>,
        log_sum_exp: &FloatTensor<I>,
        smoothing: f64,
    ) -> FloatTensor<I> {
        let shape = logits.shape();
        let labels = indices::<I>(labels);
        let mut values = take::<I>(logits);
        let (grads, lses) = (read::<I>(grad), read::<I>(log_sum_exp));
        cpu::cross_entropy_backward(&grads, &mut values, &labels, &lses, smoothing);
        tensor::<I>(values, shape, grad)
    }

    fn adam(
        parameter: FloatTensor<I>,
        grad: FloatTensor<I>,
        moments: [FloatTensor<I>; 2],
        step: &AdamStep,
    ) -> [FloatTensor<I>; 3] {
        let shape = parameter.shape();
        let grads = read::<I>(&grad);
        let mut values = take::<I>(parameter);
        let [mut first, mut second] = moments.map(take::<I>);
        cpu::adam(&mut values, [&mut first, &mut second], &grads, step);
        [values, first, second].map(|values| tensor::<I>(values, shape.clone(), &grad))
    }
}

fn linear_shape(
    rows: usize,
    weight: [usize; 2],
    layout: WeightLayout,
    precision: ProductPrecision,
) -> LinearShape {
    let [d_input, d_output] = layout.oriented(weight);
    LinearShape {
        rows,
        d_input,
        d_output,
        layout,
        precision,
    }
}
