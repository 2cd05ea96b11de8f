//! The kernels on tensors: from tensors to slices and back.

use std::borrow::Cow;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};
use burn::tensor::{Shape, TensorData, TensorMetadata, try_read_sync};

use super::attention::AttendedView;
use super::heads::HeadRows;
use super::linear::LinearShape;
use super::mask::Mask;
use crate::adam::AdamStep;
use crate::heads::Heads;
use crate::kernels::{Attendable, AttentionParents, Kernels, MaskTensors, NormParents, Packed};
use crate::linear::WeightLayout;
use crate::precision::ProductPrecision;
use crate::random::{Keep, draw};

/// A backend whose tensors can be read as slices.
pub trait Host: Backend {
    /// Whether the numbers are `f32`.
    fn is_f32(tensor: &FloatTensor<Self>) -> bool;

    /// The numbers, if the tensor is contiguous.
    fn slice(tensor: &FloatTensor<Self>) -> Option<&[f32]>;

    /// Whether the numbers have no other holder.
    fn is_unique(tensor: &FloatTensor<Self>) -> bool;
}

#[cfg(feature = "flex")]
impl Host for burn_flex::Flex {
    fn is_f32(tensor: &FloatTensor<Self>) -> bool {
        tensor.dtype() == burn::tensor::DType::F32
    }

    fn slice(tensor: &FloatTensor<Self>) -> Option<&[f32]> {
        tensor.as_slice()
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

    fn slice(tensor: &FloatTensor<Self>) -> Option<&[f32]> {
        match tensor {
            burn_ndarray::NdArrayTensor::F32(storage) => storage.view().to_slice(),
            _ => None,
        }
    }

    fn is_unique(tensor: &FloatTensor<Self>) -> bool {
        match tensor {
            burn_ndarray::NdArrayTensor::F32(storage) => storage.is_unique(),
            _ => false,
        }
    }
}

/// The numbers in order, copied if the tensor is not contiguous.
fn read<I: Host>(tensor: &FloatTensor<I>) -> Cow<'_, [f32]> {
    match I::slice(tensor) {
        Some(values) => Cow::Borrowed(values),
        None => Cow::Owned(into_vec::<I>(tensor.clone())),
    }
}

fn into_vec<I: Host>(tensor: FloatTensor<I>) -> Vec<f32> {
    let data = try_read_sync(I::float_into_data(tensor)).expect("the tensor is in memory");
    data.expect("nothing can fail").into_vec().expect("f32")
}

/// The numbers to be changed: moved if they have no other holder, else copied.
fn take<I: Host>(tensor: FloatTensor<I>) -> Vec<f32> {
    match I::slice(&tensor) {
        Some(values) if !I::is_unique(&tensor) => values.to_vec(),
        _ => into_vec::<I>(tensor),
    }
}

/// A tensor on the device of another.
fn tensor<I: Host>(
    values: Vec<f32>,
    shape: impl Into<Shape>,
    beside: &FloatTensor<I>,
) -> FloatTensor<I> {
    let data = TensorData::new(values, shape);
    I::float_from_data(data, &I::float_device(beside))
}

/// Negative labels become too large, which the kernels refuse.
fn labels<I: Host>(labels: &IntTensor<I>) -> Vec<usize> {
    let data = try_read_sync(I::int_into_data(labels.clone())).expect("the tensor is in memory");
    let data = data.expect("nothing can fail");
    data.iter::<i64>().map(|label| label as usize).collect()
}

fn booleans<I: Host>(tensor: &BoolTensor<I>) -> Vec<bool> {
    let data = try_read_sync(I::bool_into_data(tensor.clone())).expect("the tensor is in memory");
    data.expect("nothing can fail").iter::<bool>().collect()
}

fn dims<I: Host, const D: usize>(tensor: &FloatTensor<I>) -> [usize; D] {
    tensor.shape().dims()
}

fn last_dim<I: Host>(tensor: &FloatTensor<I>) -> usize {
    let shape = tensor.shape();
    shape[shape.num_dims() - 1]
}

/// A mask as slices, each with its shape.
#[derive(Default)]
struct ReadMask<'a> {
    causal: Option<usize>,
    padding: Option<(Vec<bool>, [usize; 2])>,
    bias: Option<(Cow<'a, [f32]>, [usize; 4])>,
    blocked_rows: Option<Vec<bool>>,
}

impl<'a> ReadMask<'a> {
    fn of<I: Host>(mask: Option<&'a MaskTensors<I>>) -> Self {
        let Some(mask) = mask else {
            return Self::default();
        };
        let padding = mask.padding.as_ref();
        let bias = mask.bias.as_ref();
        Self {
            causal: mask.causal,
            padding: padding.map(|padding| (booleans::<I>(padding), padding.shape().dims())),
            bias: bias.map(|bias| (read::<I>(bias), dims::<I, 4>(bias))),
            blocked_rows: mask.blocked_rows.as_ref().map(booleans::<I>),
        }
    }

    fn as_mask(&self) -> Mask<'_> {
        let mut mask = Mask::default();
        if let Some(first) = self.causal {
            mask = mask.causal(first);
        }
        if let Some((padding, shape)) = &self.padding {
            mask = mask.padding(padding, *shape);
        }
        if let Some((bias, shape)) = &self.bias {
            mask = mask.bias(bias, self.blocked_rows.as_deref(), *shape);
        }
        mask
    }
}

/// Kept by attention for its backward pass.
#[derive(Debug, Clone)]
pub struct KeptAttention<I: Backend> {
    output: FloatTensor<I>,
    /// `[batch, n_heads, query_len]`
    largest_scores: FloatTensor<I>,
    /// `[batch, n_heads, query_len]`
    reciprocal_sums: FloatTensor<I>,
    dropped: Option<Keep>,
}

/// Packed tensors as slices.
struct ReadPacked<'a> {
    query: (Cow<'a, [f32]>, [usize; 3]),
    /// `None` where keys and values follow the queries.
    key_value: Option<(Cow<'a, [f32]>, [usize; 3])>,
    heads: Heads,
}

impl<'a> ReadPacked<'a> {
    fn of<I: Host>(packed: &'a Packed<I>) -> Self {
        let rows = |tensor: &'a FloatTensor<I>| (read::<I>(tensor), dims::<I, 3>(tensor));
        Self {
            query: rows(&packed.query),
            key_value: packed.key_value.as_ref().map(rows),
            heads: packed.heads,
        }
    }

    /// Queries, keys and values.
    fn heads(&self) -> [HeadRows<'_>; 3] {
        let Heads { n_heads, d_k, d_v } = self.heads;
        let (query, query_shape) = &self.query;
        let ((keys, shape), first) = match &self.key_value {
            Some(key_value) => (key_value, 0),
            None => (&self.query, n_heads * d_k),
        };
        [
            HeadRows::in_rows(query, *query_shape, 0, [n_heads, d_k]),
            HeadRows::in_rows(keys, *shape, first, [n_heads, d_k]),
            HeadRows::in_rows(keys, *shape, first + n_heads * d_k, [n_heads, d_v]),
        ]
    }
}

impl<I: Host> Kernels for I {
    type Dropped = Keep;
    type Attended = KeptAttention<I>;

    const BF16_LINEAR: bool = true;

    fn accepts(tensor: &FloatTensor<I>) -> bool {
        I::is_f32(tensor)
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
        let output = super::linear(&read::<I>(x), &read::<I>(weight), bias.as_deref(), shape);
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
        let x_grad = super::linear_input_gradient(&read::<I>(grad), &read::<I>(weight), shape);
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
        let weight_grad = super::linear_weight_gradient(&read::<I>(grad), &read::<I>(x), shape);
        tensor::<I>(weight_grad, weight, grad)
    }

    fn sum_rows(x: &FloatTensor<I>) -> FloatTensor<I> {
        let width = last_dim::<I>(x);
        tensor::<I>(super::sum_rows(&read::<I>(x), width), [width], x)
    }

    fn sum_of_squares(x: &FloatTensor<I>) -> FloatTensor<I> {
        tensor::<I>(vec![super::sum_of_squares(&read::<I>(x))], [1], x)
    }

    fn relu_dropout(x: &FloatTensor<I>, bias: &FloatTensor<I>, p: f64) -> FloatTensor<I> {
        let keep = draw::<I>(p, &I::float_device(x));
        let output = super::relu_dropout(&read::<I>(x), &read::<I>(bias), keep);
        tensor::<I>(output, x.shape(), x)
    }

    fn relu_dropout_backward(
        grad: &FloatTensor<I>,
        output: &FloatTensor<I>,
        p: f64,
    ) -> FloatTensor<I> {
        let scale = (1.0 / (1.0 - p)) as f32;
        let x_grad = super::relu_dropout_backward(&read::<I>(grad), &read::<I>(output), scale);
        tensor::<I>(x_grad, grad.shape(), grad)
    }

    fn layer_norm_forward(
        x: &FloatTensor<I>,
        gamma: &FloatTensor<I>,
        beta: &FloatTensor<I>,
        epsilon: f64,
    ) -> [FloatTensor<I>; 3] {
        let (gamma, beta) = (read::<I>(gamma), read::<I>(beta));
        let normed = super::layer_norm(&read::<I>(x), &gamma, &beta, epsilon as f32);
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
            super::layer_norm_backward(&grads, &input, &gammas, [means, deviations], wanted);
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
            Some(residual) => super::add_dropout(&read::<I>(residual), &input, keep),
            None => super::dropout(&input, keep),
        };
        (tensor::<I>(output, x.shape(), x), keep)
    }

    fn dropout_backward(grad: &FloatTensor<I>, keep: &Keep, _p: f64) -> FloatTensor<I> {
        let x_grad = super::dropout(&read::<I>(grad), *keep);
        tensor::<I>(x_grad, grad.shape(), grad)
    }

    fn attention_without_gradients(
        attendable: &Attendable<I>,
        mask: Option<&MaskTensors<I>>,
    ) -> Option<FloatTensor<I>> {
        let mask = ReadMask::of::<I>(mask);
        let mask = mask.as_mask();
        let (query, heads, output) = match attendable {
            Attendable::Packed(packed) => {
                let read = ReadPacked::of::<I>(packed);
                let [query, key, value] = read.heads();
                let output = super::attention(query, &[[key, value]], mask);
                (&packed.query, packed.heads, output)
            }
            Attendable::Parts {
                query,
                parts,
                heads,
            } => {
                let queries = read::<I>(query);
                let parts: Vec<_> = parts
                    .iter()
                    .map(|part| part.each_ref().map(|x| (read::<I>(x), dims::<I, 4>(x))))
                    .collect();
                let parts: Vec<_> = parts
                    .iter()
                    .map(|part| part.each_ref().map(|(x, shape)| HeadRows::split(x, *shape)))
                    .collect();
                let shape = dims::<I, 3>(query);
                let queries = HeadRows::in_rows(&queries, shape, 0, [heads.n_heads, heads.d_k]);
                (query, *heads, super::attention(queries, &parts, mask))
            }
        };
        let [batch, query_len, _] = dims::<I, 3>(query);
        let shape = [batch, query_len, heads.n_heads * heads.d_v];
        Some(tensor::<I>(output, shape, query))
    }

    fn attention_forward(
        packed: &Packed<I>,
        mask: Option<&MaskTensors<I>>,
        p: f64,
    ) -> (FloatTensor<I>, KeptAttention<I>) {
        let beside = &packed.query;
        let mask = ReadMask::of::<I>(mask);
        let keep = draw::<I>(p, &I::float_device(beside));
        let read = ReadPacked::of::<I>(packed);
        let attended = super::attention_forward(read.heads(), mask.as_mask(), keep);
        let Heads { n_heads, d_v, .. } = packed.heads;
        let [batch, query_len, _] = dims::<I, 3>(beside);
        let output = tensor::<I>(attended.output, [batch, query_len, n_heads * d_v], beside);
        let of_queries = |values| tensor::<I>(values, [batch, n_heads, query_len], beside);
        let kept = KeptAttention {
            output: output.clone(),
            largest_scores: of_queries(attended.largest_scores),
            reciprocal_sums: of_queries(attended.reciprocal_sums),
            dropped: keep,
        };
        (output, kept)
    }

    fn attention_backward(
        grad: &FloatTensor<I>,
        packed: &Packed<I>,
        mask: Option<&MaskTensors<I>>,
        attended: &KeptAttention<I>,
        _p: f64,
        wanted: AttentionParents,
    ) -> [Option<FloatTensor<I>>; 2] {
        let mask = ReadMask::of::<I>(mask);
        let [output, largest_scores, reciprocal_sums] = [
            &attended.output,
            &attended.largest_scores,
            &attended.reciprocal_sums,
        ]
        .map(read::<I>);
        let view = AttendedView {
            output: &output,
            largest_scores: &largest_scores,
            reciprocal_sums: &reciprocal_sums,
        };
        let gradients = super::attention_backward(
            &read::<I>(grad),
            ReadPacked::of::<I>(packed).heads(),
            view,
            mask.as_mask(),
            attended.dropped,
            wanted,
        );
        let Heads { n_heads, d_k, d_v } = packed.heads;
        let joined = |parts: &[&[f32]], widths: &[usize], beside: &FloatTensor<I>| {
            let [batch, len, width] = dims::<I, 3>(beside);
            let rows = super::join_heads(parts, widths, [batch, n_heads, len]);
            tensor::<I>(rows, [batch, len, width], beside)
        };
        match (&packed.key_value, gradients.query, gradients.key_value) {
            (None, Some(query), Some([key, value])) => {
                let parts: [&[f32]; 3] = [&query, &key, &value];
                [Some(joined(&parts, &[d_k, d_k, d_v], &packed.query)), None]
            }
            (None, ..) => [None, None],
            (Some(beside), query, key_value) => [
                query.map(|query| joined(&[&query], &[d_k], &packed.query)),
                key_value.map(|[key, value]| joined(&[&key, &value], &[d_k, d_v], beside)),
            ],
        }
    }

    fn write_heads(
        cache: FloatTensor<I>,
        slot: usize,
        rows: &FloatTensor<I>,
        column: usize,
    ) -> Result<FloatTensor<I>, FloatTensor<I>> {
        let (shape, device) = (dims::<I, 4>(&cache), I::float_device(&cache));
        let [_, n_heads, capacity, d_head] = shape;
        let next = read::<I>(rows);
        let next = HeadRows::in_rows(&next, dims::<I, 3>(rows), column, [n_heads, d_head]);
        let mut values = take::<I>(cache);
        super::write_heads(&mut values, capacity, slot, next);
        Ok(I::float_from_data(TensorData::new(values, shape), &device))
    }

    fn log_softmax_forward(x: &FloatTensor<I>) -> FloatTensor<I> {
        let output = super::log_softmax(&read::<I>(x), last_dim::<I>(x));
        tensor::<I>(output, x.shape(), x)
    }

    fn cross_entropy(
        logits: &FloatTensor<I>,
        label_tensor: &IntTensor<I>,
        smoothing: f64,
    ) -> [FloatTensor<I>; 4] {
        let labels = labels::<I>(label_tensor);
        let rows = super::cross_entropy(&read::<I>(logits), &labels, smoothing as f32);
        let fields: [fn(&super::RowLoss) -> f32; 4] = [
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
        label_tensor: &IntTensor<I>,
        log_sum_exp: &FloatTensor<I>,
        smoothing: f64,
    ) -> FloatTensor<I> {
        let shape = logits.shape();
        let labels = labels::<I>(label_tensor);
        let mut values = take::<I>(logits);
        let (grads, lses) = (read::<I>(grad), read::<I>(log_sum_exp));
        super::cross_entropy_backward(&grads, &mut values, &labels, &lses, smoothing);
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
        super::adam(&mut values, [&mut first, &mut second], &grads, step);
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
