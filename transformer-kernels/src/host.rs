//! Kernels on slices, for the backends whose tensors are in this process' memory.

use std::borrow::Cow;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};
use burn::tensor::{Shape, TensorData, TensorMetadata, try_read_sync};
use rayon::prelude::*;

use crate::adam::AdamStep;
use crate::attention::Heads;
use crate::kernels::{Attended, Kernels, Packed};
use crate::matrix::Matrix;
use crate::random::Keep;
use crate::simd::{exp, max, sum, sum2, vectorised};

/// A backend whose tensors can be read in place.
pub trait Host: Backend {
    /// Whether the numbers are `f32`.
    fn is_f32(tensor: &FloatTensor<Self>) -> bool;

    /// The numbers, where they stand in order.
    fn slice(tensor: &FloatTensor<Self>) -> Option<&[f32]>;

    /// Whether nobody else holds them.
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

/// The numbers in order, copied where they are not.
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

/// The numbers to be changed: moved, where nobody else holds them.
fn take<I: Host>(tensor: FloatTensor<I>) -> Vec<f32> {
    match I::slice(&tensor) {
        Some(values) if !I::is_unique(&tensor) => values.to_vec(),
        _ => into_vec::<I>(tensor),
    }
}

/// A tensor beside another.
fn tensor<I: Host>(
    values: Vec<f32>,
    shape: impl Into<Shape>,
    beside: &FloatTensor<I>,
) -> FloatTensor<I> {
    let data = TensorData::new(values, shape);
    I::float_from_data(data, &I::float_device(beside))
}

fn labels<I: Host>(labels: &IntTensor<I>) -> Vec<usize> {
    let data = try_read_sync(I::int_into_data(labels.clone())).expect("the tensor is in memory");
    let data = data.expect("nothing can fail");
    data.iter::<i64>().map(|label| label as usize).collect()
}

fn booleans<I: Host>(tensor: &BoolTensor<I>) -> Vec<bool> {
    let data = try_read_sync(I::bool_into_data(tensor.clone())).expect("the tensor is in memory");
    data.expect("nothing can fail").iter::<bool>().collect()
}

fn last_dim(shape: &Shape) -> usize {
    shape[shape.num_dims() - 1]
}

/// Numbers that one thread takes at a time. It does not depend on the threads, so that neither do sums.
const TASK: usize = 16_384;

/// Rows of a width that one thread takes at a time.
fn rows_of_task(width: usize) -> usize {
    (TASK / width.max(1)).max(1)
}

impl<I: Host> Kernels for I {
    type Dropped = Keep;

    fn takes(tensor: &FloatTensor<I>) -> bool {
        I::is_f32(tensor)
    }

    fn linear_forward(
        x: &FloatTensor<I>,
        weight: &FloatTensor<I>,
        bias: Option<&FloatTensor<I>>,
        transposed: bool,
    ) -> FloatTensor<I> {
        let (input, weights) = (read::<I>(x), read::<I>(weight));
        let (input, weights) = matrices::<I>([x, weight], [&input, &weights]);
        let (weights, d_output) = oriented(weights, &weight.shape(), transposed);
        let mut output = input.product(weights);
        if let Some(bias) = bias {
            let bias = read::<I>(bias);
            let task = rows_of_task(d_output) * d_output;
            output.par_chunks_mut(task).for_each(|rows| {
                vectorised(|| {
                    for row in rows.chunks_exact_mut(d_output) {
                        row.iter_mut().zip(&*bias).for_each(|(y, &b)| *y += b);
                    }
                });
            });
        }
        tensor::<I>(output, [x.shape()[0], d_output], x)
    }

    fn linear_backward(
        grad: &FloatTensor<I>,
        x: &FloatTensor<I>,
        weight: &FloatTensor<I>,
        transposed: bool,
    ) -> [FloatTensor<I>; 2] {
        let (grads, input, weights) = (read::<I>(grad), read::<I>(x), read::<I>(weight));
        let (input, weights) = matrices::<I>([x, weight], [&input, &weights]);
        let (weights, d_output) = oriented(weights, &weight.shape(), transposed);
        let grads = Matrix::new(&grads, x.shape()[0], d_output, d_output);
        let x_grad = grads.product(weights.transposed());
        let weight_grad = if transposed {
            grads.transposed().product(input)
        } else {
            input.transposed().product(grads)
        };
        [
            tensor::<I>(x_grad, x.shape(), x),
            tensor::<I>(weight_grad, weight.shape(), x),
        ]
    }

    fn sum_rows(x: &FloatTensor<I>) -> FloatTensor<I> {
        let width = last_dim(&x.shape());
        let values = read::<I>(x);
        let parts: Vec<Vec<f32>> = values
            .par_chunks(rows_of_task(width) * width)
            .map(|rows| {
                let mut sums = vec![0.0; width];
                vectorised(|| {
                    for row in rows.chunks_exact(width) {
                        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
                    }
                });
                sums
            })
            .collect();
        tensor::<I>(add_up(&parts, width), [width], x)
    }

    fn relu_dropout_forward(x: &FloatTensor<I>, bias: &FloatTensor<I>, p: f64) -> FloatTensor<I> {
        let (input, bias) = (read::<I>(x), read::<I>(bias));
        let width = bias.len();
        let keep = Keep::draw::<I>(p, &I::float_device(x));
        let mut output = vec![0.0; input.len()];
        let rows = rows_of_task(width);
        output
            .par_chunks_mut(rows * width)
            .zip(input.par_chunks(rows * width))
            .enumerate()
            .for_each(|(task, (output, input))| {
                vectorised(|| {
                    let pairs = output
                        .chunks_exact_mut(width)
                        .zip(input.chunks_exact(width));
                    for (row, (y, x)) in pairs.enumerate() {
                        for ((y, &x), &b) in y.iter_mut().zip(x).zip(&*bias) {
                            let sum = x + b;
                            // What is no number stays none.
                            *y = if sum <= 0.0 { 0.0 } else { sum };
                        }
                        if let Some(keep) = keep {
                            keep.apply(task * rows + row, y);
                        }
                    }
                });
            });
        tensor::<I>(output, x.shape(), x)
    }

    fn relu_dropout_backward(
        grad: &FloatTensor<I>,
        output: &FloatTensor<I>,
        p: f64,
    ) -> FloatTensor<I> {
        let (grads, outputs) = (read::<I>(grad), read::<I>(output));
        let scale = (1.0 / (1.0 - p)) as f32;
        let mut x_grad = vec![0.0; grads.len()];
        x_grad
            .par_chunks_mut(TASK)
            .zip(grads.par_chunks(TASK).zip(outputs.par_chunks(TASK)))
            .for_each(|(dx, (dy, y))| {
                vectorised(|| {
                    for ((dx, &dy), &y) in dx.iter_mut().zip(dy).zip(y) {
                        *dx = if y <= 0.0 { 0.0 } else { dy * scale };
                    }
                });
            });
        tensor::<I>(x_grad, grad.shape(), grad)
    }

    fn layer_norm_forward(
        x: &FloatTensor<I>,
        gamma: &FloatTensor<I>,
        beta: &FloatTensor<I>,
        epsilon: f64,
    ) -> [FloatTensor<I>; 3] {
        let shape = x.shape();
        let d_model = last_dim(&shape);
        let (input, gamma, beta) = (read::<I>(x), read::<I>(gamma), read::<I>(beta));
        let rows = input.len() / d_model;
        let mut output = vec![0.0; input.len()];
        let mut means = vec![0.0; rows];
        let mut deviations = vec![0.0; rows];
        let task = rows_of_task(d_model);
        output
            .par_chunks_mut(task * d_model)
            .zip(input.par_chunks(task * d_model))
            .zip(
                means
                    .par_chunks_mut(task)
                    .zip(deviations.par_chunks_mut(task)),
            )
            .for_each(|((output, input), (means, deviations))| {
                vectorised(|| {
                    let rows = output
                        .chunks_exact_mut(d_model)
                        .zip(input.chunks_exact(d_model));
                    let statistics = means.iter_mut().zip(deviations);
                    for ((y, x), (mean, deviation)) in rows.zip(statistics) {
                        let m = sum(x, |x| x) / d_model as f32;
                        let variance = sum(x, |x| (x - m) * (x - m)) / d_model as f32;
                        let r = 1.0 / (variance + epsilon as f32).sqrt();
                        for (((y, &x), &g), &b) in y.iter_mut().zip(x).zip(&*gamma).zip(&*beta) {
                            *y = (x - m) * r * g + b;
                        }
                        (*mean, *deviation) = (m, r);
                    }
                });
            });
        [
            tensor::<I>(output, shape, x),
            tensor::<I>(means, [rows], x),
            tensor::<I>(deviations, [rows], x),
        ]
    }

    fn layer_norm_backward(
        grad: &FloatTensor<I>,
        x: &FloatTensor<I>,
        gamma: &FloatTensor<I>,
        statistics: &[FloatTensor<I>; 2],
    ) -> [FloatTensor<I>; 3] {
        let shape = x.shape();
        let d_model = last_dim(&shape);
        let (grads, input, gammas) = (read::<I>(grad), read::<I>(x), read::<I>(gamma));
        let [means, deviations] = statistics.each_ref().map(read::<I>);
        let mut output = vec![0.0; input.len()];
        let task = rows_of_task(d_model);
        let parts: Vec<(Vec<f32>, Vec<f32>)> = output
            .par_chunks_mut(task * d_model)
            .zip(
                grads
                    .par_chunks(task * d_model)
                    .zip(input.par_chunks(task * d_model)),
            )
            .zip(means.par_chunks(task).zip(deviations.par_chunks(task)))
            .map(|((output, (grads, input)), (means, deviations))| {
                let mut gamma_grad = vec![0.0; d_model];
                let mut beta_grad = vec![0.0; d_model];
                vectorised(|| {
                    let rows = output.chunks_exact_mut(d_model);
                    let rows =
                        rows.zip(grads.chunks_exact(d_model).zip(input.chunks_exact(d_model)));
                    for ((dx, (dy, x)), (&m, &r)) in rows.zip(means.iter().zip(deviations)) {
                        let places = dx.iter_mut().zip(dy.iter().zip(x).zip(&*gammas));
                        let sums = gamma_grad.iter_mut().zip(&mut beta_grad);
                        for ((dx, ((&dy, &x), &g)), (dg, db)) in places.zip(sums) {
                            *dx = dy * g;
                            *dg += dy * (x - m) * r;
                            *db += dy;
                        }
                        let mean = sum(dx, |dx| dx) / d_model as f32;
                        let along = sum2(dx, x, |dx, x| dx * (x - m)) * r * r / d_model as f32;
                        for (dx, &x) in dx.iter_mut().zip(x) {
                            *dx = (*dx - mean - (x - m) * along) * r;
                        }
                    }
                });
                (gamma_grad, beta_grad)
            })
            .collect();
        let (gammas, betas): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let [gamma_grad, beta_grad] =
            [gammas, betas].map(|parts| tensor::<I>(add_up(&parts, d_model), [d_model], x));
        [tensor::<I>(output, shape, x), gamma_grad, beta_grad]
    }

    fn dropout(
        x: &FloatTensor<I>,
        onto: Option<&FloatTensor<I>>,
        p: f64,
    ) -> (FloatTensor<I>, Keep) {
        let keep = Keep::draw::<I>(p, &I::float_device(x)).expect("p is above zero");
        let input = read::<I>(x);
        let onto = onto.map(read::<I>);
        let mut output = match &onto {
            Some(onto) => onto.to_vec(),
            None => vec![0.0; input.len()],
        };
        add_kept(&mut output, &input, keep);
        (tensor::<I>(output, x.shape(), x), keep)
    }

    fn dropout_backward(grad: &FloatTensor<I>, keep: &Keep, _p: f64) -> FloatTensor<I> {
        let grads = read::<I>(grad);
        let mut output = vec![0.0; grads.len()];
        add_kept(&mut output, &grads, *keep);
        tensor::<I>(output, grad.shape(), grad)
    }

    fn attention_forward(
        packed: &Packed<I>,
        bias: Option<&FloatTensor<I>>,
        blocked_rows: Option<&BoolTensor<I>>,
        p: f64,
    ) -> (FloatTensor<I>, Attended<I>) {
        let bias = bias.map(|bias| (bias.shape(), read::<I>(bias)));
        let blocked_rows = blocked_rows.map(booleans::<I>);
        let views = Views::new::<I>(packed);
        let Sizes {
            batch,
            query_len,
            key_len,
            heads,
        } = views.sizes;
        let Heads { n_heads, d_v, .. } = heads;
        let keep = Keep::draw::<I>(p, &I::float_device(&packed.query));
        let mut weights = vec![0.0; batch * n_heads * query_len * key_len];
        let mut outputs = vec![0.0; batch * n_heads * query_len * d_v];
        weights
            .par_chunks_mut((query_len * key_len).max(1))
            .zip(outputs.par_chunks_mut((query_len * d_v).max(1)))
            .enumerate()
            .for_each(|(index, (weights, output))| {
                let (sentence, head) = (index / n_heads, index % n_heads);
                let [query, key, value] = views.head(sentence, head);
                let scale = 1.0 / (heads.d_k as f32).sqrt();
                query.multiply(key.transposed(), scale, weights);
                softmax(weights, key_len, [sentence, head], &bias, &blocked_rows);
                let dropped = keep.map(|keep| kept(weights, index * query_len, key_len, keep));
                let weights = dropped.as_deref().unwrap_or(weights);
                Matrix::new(weights, query_len, key_len, key_len).multiply(value, 1.0, output);
            });
        let output = join_heads(&[&outputs], &[d_v], batch, n_heads, query_len);
        let shape = [batch, query_len, n_heads * d_v];
        let attended = Attended {
            weights: tensor::<I>(weights, [batch, n_heads, query_len, key_len], &packed.query),
            dropped: keep,
        };
        (tensor::<I>(output, shape, &packed.query), attended)
    }

    fn attend(
        query: &FloatTensor<I>,
        parts: &[[FloatTensor<I>; 2]],
        heads: Heads,
        bias: Option<&FloatTensor<I>>,
        blocked_rows: Option<&BoolTensor<I>>,
    ) -> Option<FloatTensor<I>> {
        let Heads { n_heads, d_k, d_v } = heads;
        let shape = query.shape();
        let (batch, query_len, row) = (shape[0], shape[1], shape[2]);
        let queries = read::<I>(query);
        let parts: Vec<_> = parts
            .iter()
            .map(|[key, value]| (key.shape()[2], read::<I>(key), read::<I>(value)))
            .collect();
        let key_len: usize = parts.iter().map(|(len, _, _)| len).sum();
        let bias = bias.map(|bias| (bias.shape(), read::<I>(bias)));
        let blocked_rows = blocked_rows.map(booleans::<I>);
        let mut outputs = vec![0.0; batch * n_heads * query_len * d_v];
        outputs
            .par_chunks_mut((query_len * d_v).max(1))
            .enumerate()
            .for_each(|(index, output)| {
                let (sentence, head) = (index / n_heads, index % n_heads);
                let query = &queries[sentence * query_len * row + head * d_k..];
                let query = Matrix::new(query, query_len, d_k, row);
                let mut weights = vec![0.0; query_len * key_len];
                let mut first = 0;
                for (len, keys, _) in &parts {
                    let key = Matrix::new(&keys[index * len * d_k..], *len, d_k, d_k);
                    let scores = query.product(key.transposed());
                    let rows = weights.chunks_exact_mut(key_len.max(1));
                    for (row, scores) in rows.zip(scores.chunks_exact((*len).max(1))) {
                        row[first..first + len].copy_from_slice(scores);
                    }
                    first += len;
                }
                let scale = 1.0 / (d_k as f32).sqrt();
                vectorised(|| weights.iter_mut().for_each(|score| *score *= scale));
                softmax(
                    &mut weights,
                    key_len,
                    [sentence, head],
                    &bias,
                    &blocked_rows,
                );
                let mut first = 0;
                for (len, _, values) in &parts {
                    let value = Matrix::new(&values[index * len * d_v..], *len, d_v, d_v);
                    let weights = weights.get(first..).unwrap_or_default();
                    let sums = Matrix::new(weights, query_len, *len, key_len).product(value);
                    output.iter_mut().zip(sums).for_each(|(y, sum)| *y += sum);
                    first += len;
                }
            });
        let output = join_heads(&[&outputs], &[d_v], batch, n_heads, query_len);
        Some(tensor::<I>(
            output,
            [batch, query_len, n_heads * d_v],
            query,
        ))
    }

    fn attention_backward(
        grad: &FloatTensor<I>,
        packed: &Packed<I>,
        attended: &Attended<I>,
        _p: f64,
    ) -> (FloatTensor<I>, Option<FloatTensor<I>>) {
        let views = Views::new::<I>(packed);
        let Sizes {
            batch,
            query_len,
            key_len,
            heads,
        } = views.sizes;
        let Heads { n_heads, d_k, d_v } = heads;
        let (grads, weights) = (read::<I>(grad), read::<I>(&attended.weights));
        let keep = attended.dropped;
        let count = batch * n_heads;
        let mut query_grads = vec![0.0; count * query_len * d_k];
        let mut key_grads = vec![0.0; count * key_len * d_k];
        let mut value_grads = vec![0.0; count * key_len * d_v];
        query_grads
            .par_chunks_mut((query_len * d_k).max(1))
            .zip(key_grads.par_chunks_mut((key_len * d_k).max(1)))
            .zip(value_grads.par_chunks_mut((key_len * d_v).max(1)))
            .zip(weights.par_chunks((query_len * key_len).max(1)))
            .enumerate()
            .for_each(|(index, (((query_grad, key_grad), value_grad), weights))| {
                let (sentence, head) = (index / n_heads, index % n_heads);
                let [query, key, value] = views.head(sentence, head);
                let width = n_heads * d_v;
                let first = sentence * query_len * width + head * d_v;
                let grad = Matrix::new(&grads[first..], query_len, d_v, width);
                let square = |values| Matrix::new(values, query_len, key_len, key_len);

                let first_row = index * query_len;
                let dropped = keep.map(|keep| kept(weights, first_row, key_len, keep));
                let dropped = dropped.as_deref().unwrap_or(weights);
                square(dropped).transposed().multiply(grad, 1.0, value_grad);
                let mut scores = vec![0.0; query_len * key_len];
                grad.multiply(value.transposed(), 1.0, &mut scores);
                vectorised(|| {
                    let rows = scores.chunks_exact_mut(key_len);
                    for (row, (ds, w)) in rows.zip(weights.chunks_exact(key_len)).enumerate() {
                        if let Some(keep) = keep {
                            keep.apply(first_row + row, ds);
                        }
                        let mean = sum2(ds, w, |ds, w| ds * w);
                        for (ds, &w) in ds.iter_mut().zip(w) {
                            *ds = w * (*ds - mean);
                        }
                    }
                });
                let scale = 1.0 / (d_k as f32).sqrt();
                square(&scores).multiply(key, scale, query_grad);
                square(&scores)
                    .transposed()
                    .multiply(query, scale, key_grad);
            });
        let beside = &packed.query;
        if packed.key_value.is_some() {
            let query = join_heads(&[&query_grads], &[d_k], batch, n_heads, query_len);
            let parts: [&[f32]; 2] = [&key_grads, &value_grads];
            let key_value = join_heads(&parts, &[d_k, d_v], batch, n_heads, key_len);
            let width = n_heads * (d_k + d_v);
            (
                tensor::<I>(query, [batch, query_len, n_heads * d_k], beside),
                Some(tensor::<I>(key_value, [batch, key_len, width], beside)),
            )
        } else {
            let parts: [&[f32]; 3] = [&query_grads, &key_grads, &value_grads];
            let all = join_heads(&parts, &[d_k, d_k, d_v], batch, n_heads, query_len);
            let width = n_heads * (2 * d_k + d_v);
            (tensor::<I>(all, [batch, query_len, width], beside), None)
        }
    }

    fn write_heads(
        room: FloatTensor<I>,
        place: usize,
        rows: &FloatTensor<I>,
        column: usize,
    ) -> Result<FloatTensor<I>, FloatTensor<I>> {
        let (shape, device) = (room.shape(), I::float_device(&room));
        let [n_heads, places, d_head] = [shape[1], shape[2], shape[3]];
        let [new_len, width] = [rows.shape()[1], rows.shape()[2]];
        let next = read::<I>(rows);
        let mut values = take::<I>(room);
        for (row, next) in next.chunks_exact(width).enumerate() {
            let (sentence, position) = (row / new_len, row % new_len);
            let heads = next[column..].chunks_exact(d_head).take(n_heads);
            for (head, next) in heads.enumerate() {
                let at = (sentence * n_heads + head) * places + place + position;
                values[at * d_head..][..d_head].copy_from_slice(next);
            }
        }
        Ok(I::float_from_data(TensorData::new(values, shape), &device))
    }

    fn log_softmax_of_rows(x: &FloatTensor<I>) -> FloatTensor<I> {
        let width = last_dim(&x.shape());
        let input = read::<I>(x);
        let mut output = vec![0.0; input.len()];
        output
            .par_chunks_mut(width.max(1))
            .zip(input.par_chunks(width.max(1)))
            .for_each(|(output, input)| {
                vectorised(|| {
                    let log_sum_exp = log_sum_exp(input, max(input));
                    for (y, x) in output.iter_mut().zip(input) {
                        *y = x - log_sum_exp;
                    }
                });
            });
        tensor::<I>(output, x.shape(), x)
    }

    fn cross_entropy(
        logits: &FloatTensor<I>,
        label_tensor: &IntTensor<I>,
        smoothing: f64,
    ) -> [FloatTensor<I>; 4] {
        let vocab_size = last_dim(&logits.shape());
        let values = read::<I>(logits);
        let labels = labels::<I>(label_tensor);
        let rows: Vec<[f32; 4]> = values
            .par_chunks(vocab_size)
            .zip(&labels)
            .map(|(x, &label)| {
                let [largest, all, log_sum_exp] = vectorised(|| {
                    let largest = max(x);
                    [largest, sum(x, |x| x), log_sum_exp(x, largest)]
                });
                let (smoothing, at_label) = (smoothing as f32, x[label]);
                let mean = all / vocab_size as f32;
                let loss = log_sum_exp - (1.0 - smoothing) * at_label - smoothing * mean;
                [loss, log_sum_exp, at_label, largest]
            })
            .collect();
        [0, 1, 2, 3].map(|which| {
            let values = rows.iter().map(|row| row[which]).collect();
            tensor::<I>(values, [rows.len()], logits)
        })
    }

    fn cross_entropy_backward(
        grad: &FloatTensor<I>,
        logits: FloatTensor<I>,
        label_tensor: &IntTensor<I>,
        log_sum_exp: &FloatTensor<I>,
        smoothing: f64,
    ) -> FloatTensor<I> {
        let shape = logits.shape();
        let vocab_size = last_dim(&shape);
        let (grads, lses) = (read::<I>(grad), read::<I>(log_sum_exp));
        let labels = labels::<I>(label_tensor);
        let mut values = take::<I>(logits);
        let share = (smoothing / vocab_size as f64) as f32;
        values
            .par_chunks_mut(vocab_size)
            .zip(grads.par_iter().zip(lses.par_iter()).zip(&labels))
            .for_each(|(x, ((&grad, &lse), &label))| {
                if grad == 0.0 {
                    // Padding.
                    x.fill(0.0);
                    return;
                }
                vectorised(|| {
                    for x in x.iter_mut() {
                        *x = grad * (exp(*x - lse) - share);
                    }
                });
                x[label] -= grad * (1.0 - smoothing as f32);
            });
        let data = TensorData::new(values, shape);
        I::float_from_data(data, &I::float_device(grad))
    }

    fn adam(
        parameter: FloatTensor<I>,
        grad: FloatTensor<I>,
        moments: [FloatTensor<I>; 2],
        step: &AdamStep,
    ) -> [FloatTensor<I>; 3] {
        let (shape, device) = (parameter.shape(), I::float_device(&parameter));
        let grads = read::<I>(&grad);
        let mut values = take::<I>(parameter);
        let [mut first, mut second] = moments.map(take::<I>);
        let (size, epsilon) = step.size_and_epsilon();
        let (beta_1, beta_2) = (step.beta_1, step.beta_2);
        values
            .par_chunks_mut(TASK)
            .zip(first.par_chunks_mut(TASK).zip(second.par_chunks_mut(TASK)))
            .zip(grads.par_chunks(TASK))
            .for_each(|((values, (first, second)), grads)| {
                vectorised(|| {
                    let moments = first.iter_mut().zip(second);
                    for ((x, (m, v)), &g) in values.iter_mut().zip(moments).zip(grads) {
                        *m = *m * beta_1 + g * (1.0 - beta_1);
                        *v = *v * beta_2 + g * g * (1.0 - beta_2);
                        *x -= size * *m / (v.sqrt() + epsilon);
                    }
                });
            });
        [values, first, second]
            .map(|values| I::float_from_data(TensorData::new(values, shape.clone()), &device))
    }
}

/// Inputs and weight as matrices.
fn matrices<'a, I: Host>(
    tensors: [&FloatTensor<I>; 2],
    values: [&'a [f32]; 2],
) -> (Matrix<'a>, Matrix<'a>) {
    let matrix = |which: usize| {
        let shape = tensors[which].shape();
        Matrix::new(values[which], shape[0], shape[1], shape[1])
    };
    (matrix(0), matrix(1))
}

/// The weight as `[d_input, d_output]`, and d_output.
fn oriented<'a>(weight: Matrix<'a>, shape: &Shape, transposed: bool) -> (Matrix<'a>, usize) {
    if transposed {
        (weight.transposed(), shape[0])
    } else {
        (weight, shape[1])
    }
}

/// The sum of all parts, one after another.
fn add_up(parts: &[Vec<f32>], width: usize) -> Vec<f32> {
    let mut all = vec![0.0; width];
    for part in parts {
        all.iter_mut()
            .zip(part)
            .for_each(|(all, part)| *all += part);
    }
    all
}

/// Adds to each number what dropout leaves of another.
fn add_kept(output: &mut [f32], input: &[f32], keep: Keep) {
    output
        .par_chunks_mut(TASK)
        .zip(input.par_chunks(TASK))
        .enumerate()
        .for_each(|(row, (output, input))| {
            vectorised(|| {
                let factor = keep.row(row);
                for (column, (y, &x)) in output.iter_mut().zip(input).enumerate() {
                    *y += x * factor(column);
                }
            });
        });
}

/// What dropout leaves of the weights of a head.
fn kept(weights: &[f32], first_row: usize, key_len: usize, keep: Keep) -> Vec<f32> {
    let mut kept = weights.to_vec();
    vectorised(|| {
        for (row, kept) in kept.chunks_exact_mut(key_len).enumerate() {
            keep.apply(first_row + row, kept);
        }
    });
    kept
}

/// Where a row of scores stands in a mask, whose dimensions of size 1 stand for all.
#[inline(always)]
fn row_of(mask: &Shape, place: [usize; 3]) -> usize {
    let mut row = 0;
    for (dim, at) in place.into_iter().enumerate() {
        row = row * mask[dim] + if mask[dim] == 1 { 0 } else { at };
    }
    row
}

/// `ln Σ eˣ`, given the largest.
#[inline(always)]
fn log_sum_exp(x: &[f32], largest: f32) -> f32 {
    sum(x, |x| exp(x - largest)).ln() + largest
}

/// Scores of a head to weights.
fn softmax(
    scores: &mut [f32],
    key_len: usize,
    [sentence, head]: [usize; 2],
    bias: &Option<(Shape, Cow<'_, [f32]>)>,
    blocked_rows: &Option<Vec<bool>>,
) {
    vectorised(|| {
        for (position, scores) in scores.chunks_exact_mut(key_len.max(1)).enumerate() {
            let Some((shape, bias)) = bias else {
                softmax_row(scores, None);
                continue;
            };
            let row = row_of(shape, [sentence, head, position]);
            if blocked_rows.as_ref().is_some_and(|rows| rows[row]) {
                scores.fill(0.0);
            } else {
                softmax_row(scores, Some(&bias[row * key_len..][..key_len]));
            }
        }
    });
}

/// Scores to weights.
#[inline(always)]
fn softmax_row(scores: &mut [f32], bias: Option<&[f32]>) {
    if let Some(bias) = bias {
        for (score, &bias) in scores.iter_mut().zip(bias) {
            *score += bias;
        }
    }
    let largest = max(scores);
    for score in scores.iter_mut() {
        *score = exp(*score - largest);
    }
    let scale = 1.0 / sum(scores, |x| x);
    for score in scores.iter_mut() {
        *score *= scale;
    }
}

/// From heads one after another, `[batch, n_heads, len, width]` for each part, to rows
/// `[batch, len, n_heads · Σ widths]`: all heads of the first part, then of the second.
fn join_heads(
    parts: &[&[f32]],
    widths: &[usize],
    batch: usize,
    n_heads: usize,
    len: usize,
) -> Vec<f32> {
    let row_width = n_heads * widths.iter().sum::<usize>();
    let mut rows = vec![0.0; batch * len * row_width];
    let task = rows_of_task(row_width);
    rows.par_chunks_mut(task * row_width)
        .enumerate()
        .for_each(|(chunk, rows)| {
            for (row, values) in rows.chunks_exact_mut(row_width).enumerate() {
                let (sentence, position) = ((chunk * task + row) / len, (chunk * task + row) % len);
                let mut at = 0;
                for (part, &width) in parts.iter().zip(widths) {
                    for head in 0..n_heads {
                        let from = ((sentence * n_heads + head) * len + position) * width;
                        values[at..at + width].copy_from_slice(&part[from..from + width]);
                        at += width;
                    }
                }
            }
        });
    rows
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    query_len: usize,
    key_len: usize,
    heads: Heads,
}

/// Where each head's queries, keys and values are in packed rows.
struct Views<'a> {
    sizes: Sizes,
    query: Cow<'a, [f32]>,
    /// `None` where keys and values follow the queries.
    key_value: Option<Cow<'a, [f32]>>,
}

impl<'a> Views<'a> {
    fn new<I: Host>(packed: &'a Packed<I>) -> Self {
        let query = packed.query.shape();
        let key_len = match &packed.key_value {
            Some(key_value) => key_value.shape()[1],
            None => query[1],
        };
        Self {
            sizes: Sizes {
                batch: query[0],
                query_len: query[1],
                key_len,
                heads: packed.heads,
            },
            query: read::<I>(&packed.query),
            key_value: packed.key_value.as_ref().map(read::<I>),
        }
    }

    /// Queries, keys and values of a head.
    fn head(&self, sentence: usize, head: usize) -> [Matrix<'_>; 3] {
        let Sizes {
            query_len,
            key_len,
            heads,
            ..
        } = self.sizes;
        let Heads { n_heads, d_k, d_v } = heads;
        let widths = [n_heads * d_k, n_heads * d_k, n_heads * d_v];
        let (keys, first_key, query_row, key_row) = match &self.key_value {
            Some(key_value) => (key_value, 0, widths[0], widths[1] + widths[2]),
            None => {
                let row = widths.iter().sum();
                (&self.query, widths[0], row, row)
            }
        };
        let query = &self.query[sentence * query_len * query_row + head * d_k..];
        let keys = &keys[sentence * key_len * key_row + first_key..];
        [
            Matrix::new(query, query_len, d_k, query_row),
            Matrix::new(&keys[head * d_k..], key_len, d_k, key_row),
            Matrix::new(&keys[widths[1] + head * d_v..], key_len, d_v, key_row),
        ]
    }
}
