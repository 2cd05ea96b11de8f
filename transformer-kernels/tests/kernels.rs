//! Each kernel against the composition of Burn's operations in double precision.
//!
//! `cargo test --workspace --features flex` covers flex and ndarray; with `tch`, libtorch too.

#![cfg(all(feature = "flex", feature = "ndarray"))]

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::optim::{AdamConfig, SimpleOptimizer};
use burn::tensor::activation::softmax;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Bool, Int, Tensor, TensorData};
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;
#[cfg(feature = "tch")]
use burn_tch::LibTorch;
use transformer_kernels::{AdamStep, AttentionMask, Heads, Moments};

/// Where every number is computed in double precision, by Burn's operations alone.
type Reference = Autodiff<NdArray<f64>>;

/// Numbers between -1 and 1 that repeat nothing.
fn numbers(seed: usize, count: usize) -> Vec<f64> {
    (0..count)
        .map(|i| ((i * 7919 + seed * 104_729) % 65_537) as f64 / 32_768.5 - 1.0)
        .collect()
}

fn tensor<B: AutodiffBackend, const D: usize>(seed: usize, shape: [usize; D]) -> Tensor<B, D> {
    let data = TensorData::new(numbers(seed, shape.iter().product()), shape);
    Tensor::from_data(data.convert::<B::FloatElem>(), &Default::default()).require_grad()
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// The output, and the gradient of each input for an output gradient of assorted numbers.
fn outcome<B: AutodiffBackend, const D: usize>(
    output: Tensor<B, D>,
    inputs: &[Input<B>],
) -> Vec<Vec<f64>> {
    let mut all = vec![values(output.clone())];
    let weights = tensor::<B, D>(99, output.dims()).detach();
    let grads = (output * weights).sum().backward();
    for input in inputs {
        all.push(match input {
            Input::One(x) => values(x.grad(&grads).expect("a gradient")),
            Input::Two(x) => values(x.grad(&grads).expect("a gradient")),
            Input::Three(x) => values(x.grad(&grads).expect("a gradient")),
        });
    }
    all
}

enum Input<B: Backend> {
    One(Tensor<B, 1>),
    Two(Tensor<B, 2>),
    Three(Tensor<B, 3>),
}

fn assert_close(what: &str, found: &[Vec<f64>], expected: &[Vec<f64>]) {
    assert_eq!(found.len(), expected.len());
    for (part, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{what}, part {part}");
        let largest = expected.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
        for (place, (f, e)) in found.iter().zip(expected).enumerate() {
            let error = (f - e).abs() / largest;
            // Sums of at most a few hundred single-precision numbers. NaN fails, too.
            assert!(
                error < 3e-6,
                "{what}, part {part}, place {place}: {f} for {e}"
            );
        }
    }
}

/// Runs a test on every backend with kernels, or `on slices` on those whose kernels are ours.
macro_rules! on_each {
    ($test:ident on slices) => {
        on_each!($test, flex Flex, ndarray NdArray);
    };
    ($test:ident) => {
        #[cfg(feature = "tch")]
        on_each!($test, flex Flex, ndarray NdArray, libtorch LibTorch);
        #[cfg(not(feature = "tch"))]
        on_each!($test on slices);
    };
    ($test:ident, $($name:ident $backend:ident),+) => {
        mod $test {
            $(
                #[test]
                fn $name() {
                    super::$test::<super::$backend>();
                }
            )+
        }
    };
}

/// The backends' generators are one for the process: held by a test that seeds or draws.
static GENERATOR: Mutex<()> = Mutex::new(());

fn generator() -> MutexGuard<'static, ()> {
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

on_each!(without_gradients_the_same_comes_out);
on_each!(linear);
on_each!(relu);
on_each!(what_is_no_number_stays_none);
on_each!(relu_drops_the_same_on_the_way_back);
on_each!(layer_norm);
on_each!(self_attention);
on_each!(cross_attention);
on_each!(attend on slices);
on_each!(log_softmax);
on_each!(write_heads on slices);
on_each!(cross_entropy);
on_each!(adam);
on_each!(dropout_keeps_what_it_says);
on_each!(attention_drops_the_same_on_the_way_back);

fn without_gradients_the_same_comes_out<I: Backend>() {
    fn run<B: Backend>(input: impl Fn(usize, usize) -> Tensor<B, 2>) -> Vec<Vec<f64>> {
        let (x, weight) = (input(1, 63), input(2, 42));
        let bias: Tensor<B, 1> = input(3, 1).flatten::<1>(0, 1).slice([0..42]);
        let product =
            transformer_kernels::linear(&x.clone().slice([0..42]), &weight, Some(&bias), false);
        let product = product.expect("a kernel");
        let hidden = transformer_kernels::add_bias_relu_dropout(&product, &bias, 0.0);
        let normed = transformer_kernels::layer_norm(&product, &bias, &bias, 1e-5);
        let labels = Tensor::<B, 1, Int>::from_data([3, 5, 7], &x.device());
        let losses = transformer_kernels::cross_entropy(&x.slice([0..3]), &labels, 0.1);
        let losses = losses.expect("a kernel");
        vec![
            values(product),
            values(hidden.expect("a kernel")),
            values(normed.expect("a kernel")),
            values(losses.loss),
            values(losses.log_sum_exp),
        ]
    }
    let tracked = |seed, width| tensor::<Autodiff<I>, 2>(seed, [63, width]);
    assert_eq!(
        run::<I>(|seed, width| tracked(seed, width).inner()),
        run::<Autodiff<I>>(tracked)
    );
}

fn linear<I: Backend>() {
    fn run<B: AutodiffBackend>(
        [rows, d_input, d_output]: [usize; 3],
        transposed: bool,
        with_bias: bool,
        kernel: bool,
    ) -> Vec<Vec<f64>> {
        let shape = match transposed {
            true => [d_output, d_input],
            false => [d_input, d_output],
        };
        let (x, weight) = (tensor::<B, 2>(1, [rows, d_input]), tensor::<B, 2>(2, shape));
        let bias = with_bias.then(|| tensor::<B, 1>(3, [d_output]));
        let output = if kernel {
            transformer_kernels::linear(&x, &weight, bias.as_ref(), transposed).expect("a kernel")
        } else {
            let product = match transposed {
                true => x.clone().matmul(weight.clone().transpose()),
                false => x.clone().matmul(weight.clone()),
            };
            match &bias {
                Some(bias) => product + bias.clone().unsqueeze(),
                None => product,
            }
        };
        let inputs = [Input::Two(x), Input::Two(weight)];
        outcome(
            output,
            &inputs
                .into_iter()
                .chain(bias.map(Input::One))
                .collect::<Vec<_>>(),
        )
    }
    // The last on several threads.
    for sizes in [[1, 1, 1], [5, 7, 11], [200, 160, 170]] {
        for (transposed, with_bias) in [(false, false), (false, true), (true, false), (true, true)]
        {
            assert_close(
                &format!("{sizes:?}, transposed {transposed}, bias {with_bias}"),
                &run::<Autodiff<I>>(sizes, transposed, with_bias, true),
                &run::<Reference>(sizes, transposed, with_bias, false),
            );
        }
    }
}

fn relu<I: Backend>() {
    fn run<B: AutodiffBackend>(rows: usize, d_ff: usize, kernel: bool) -> Vec<Vec<f64>> {
        let (x, bias) = (
            tensor::<B, 3>(1, [2, rows, d_ff]),
            tensor::<B, 1>(2, [d_ff]),
        );
        let output = if kernel {
            transformer_kernels::add_bias_relu_dropout(&x, &bias, 0.0).expect("a kernel")
        } else {
            burn::tensor::activation::relu(x.clone() + bias.clone().unsqueeze())
        };
        outcome(output, &[Input::Three(x), Input::One(bias)])
    }
    for (rows, d_ff) in [(1, 3), (9, 33), (30, 2048)] {
        assert_close(
            &format!("2 x {rows} rows of {d_ff}"),
            &run::<Autodiff<I>>(rows, d_ff, true),
            &run::<Reference>(rows, d_ff, false),
        );
    }
}

/// A run whose weights are lost must not look sound.
fn what_is_no_number_stays_none<I: Backend>() {
    let device = Default::default();
    let x = Tensor::<Autodiff<I>, 2>::from_data([[f32::NAN, -1.0, 2.0]], &device).require_grad();
    let zeros = Tensor::<Autodiff<I>, 1>::zeros([3], &device).require_grad();
    let output = transformer_kernels::add_bias_relu_dropout(&x, &zeros, 0.0).expect("a kernel");
    let output = values(output);
    assert!(output[0].is_nan(), "{output:?}");
    assert_eq!(output[1..], [0.0, 2.0]);
}

fn relu_drops_the_same_on_the_way_back<I: Backend>() {
    let _held = generator();
    type B<I> = Autodiff<I>;
    let x = tensor::<B<I>, 2>(1, [300, 200]);
    let zeros = Tensor::<B<I>, 1>::zeros([200], &Default::default()).require_grad();
    let output = transformer_kernels::add_bias_relu_dropout(&x, &zeros, 0.25).expect("a kernel");
    let grads = output.clone().sum().backward();
    let (x_grad, bias_grad) = (x.grad(&grads).unwrap(), zeros.grad(&grads).unwrap());
    let sums = values(x_grad.clone().sum_dim(0));
    assert_close("bias", &[values(bias_grad)], &[sums]);
    let (x, output, x_grad) = (values(x), values(output), values(x_grad));
    let mut dropped = 0;
    for ((x, y), dx) in x.iter().zip(&output).zip(&x_grad) {
        let kept = *y > 0.0;
        dropped += usize::from(*x > 0.0 && !kept);
        let factor = if kept { 4.0 / 3.0 } else { 0.0 };
        assert!((y - x.max(0.0) * factor).abs() < 1e-6, "{y} of {x}");
        assert!((dx - factor).abs() < 1e-6, "{dx} where {y}");
    }
    // A quarter of 30 000: 7500 ± 75.
    assert!(dropped.abs_diff(7500) < 450, "{dropped}");
}

fn layer_norm<I: Backend>() {
    fn run<B: AutodiffBackend>(rows: usize, d_model: usize, kernel: bool) -> Vec<Vec<f64>> {
        let x = tensor::<B, 3>(1, [rows, 3, d_model]) * 3.0 + 5.0;
        let x = x.detach().require_grad();
        let (gamma, beta) = (tensor::<B, 1>(2, [d_model]), tensor::<B, 1>(3, [d_model]));
        let output = if kernel {
            transformer_kernels::layer_norm(&x, &gamma, &beta, 1e-5).expect("a kernel")
        } else {
            let centred = x.clone() - x.clone().mean_dim(2);
            let variance = centred.clone().powi_scalar(2).mean_dim(2);
            centred / (variance + 1e-5).sqrt() * gamma.clone().unsqueeze()
                + beta.clone().unsqueeze()
        };
        outcome(
            output,
            &[Input::Three(x), Input::One(gamma), Input::One(beta)],
        )
    }
    for (rows, d_model) in [(1, 4), (5, 37), (40, 512)] {
        assert_close(
            &format!("{rows} x 3 rows of {d_model}"),
            &run::<Autodiff<I>>(rows, d_model, true),
            &run::<Reference>(rows, d_model, false),
        );
    }
}

/// Attention by Burn's operations: `[batch, len, n_heads · d]` each.
fn composed<B: Backend>(
    query: Tensor<B, 3>,
    key: Tensor<B, 3>,
    value: Tensor<B, 3>,
    heads: Heads,
    blocked: Option<Tensor<B, 4, Bool>>,
) -> Tensor<B, 3> {
    let split = |x: Tensor<B, 3>, width| {
        let [batch, len, _] = x.dims();
        x.reshape([batch, len, heads.n_heads, width])
            .swap_dims(1, 2)
    };
    let [batch, query_len, _] = query.dims();
    let (query, key) = (split(query, heads.d_k), split(key, heads.d_k));
    let value = split(value, heads.d_v);
    let scores = query.matmul(key.swap_dims(2, 3)) / (heads.d_k as f64).sqrt();
    let weights = match blocked {
        Some(blocked) => {
            let shape = scores.dims();
            let rows = blocked.clone().all_dim(3).expand(shape);
            let scores = scores.mask_fill(blocked.expand(shape), -1e9);
            softmax(scores, 3).mask_fill(rows, 0.0)
        }
        None => softmax(scores, 3),
    };
    let output = weights.matmul(value).swap_dims(1, 2);
    output.reshape([batch, query_len, heads.n_heads * heads.d_v])
}

/// Blocked keys in the shape of a mask, of which some rows have no other.
fn blocked<B: Backend>(shape: [usize; 4]) -> Tensor<B, 4, Bool> {
    let [_, _, queries, keys] = shape;
    let blocked: Vec<bool> = (0..shape.iter().product())
        .map(|i| {
            let (row, column) = (i / keys, i % keys);
            column > row % queries.max(2) || row % 5 == 3
        })
        .collect();
    Tensor::from_data(TensorData::new(blocked, shape), &Default::default())
}

fn masks(
    batch: usize,
    n_heads: usize,
    query_len: usize,
    key_len: usize,
) -> Vec<Option<[usize; 4]>> {
    vec![
        None,
        Some([batch, 1, 1, key_len]),
        Some([1, 1, query_len, key_len]),
        Some([batch, 1, query_len, key_len]),
        Some([batch, n_heads, query_len, key_len]),
    ]
}

const HEADS: Heads = Heads {
    n_heads: 3,
    d_k: 8,
    d_v: 5,
};

fn self_attention<I: Backend>() {
    fn run<B: AutodiffBackend>(
        batch: usize,
        len: usize,
        mask: Option<[usize; 4]>,
        kernel: bool,
    ) -> Vec<Vec<f64>> {
        let (keys, all) = (3 * 8, 3 * (8 + 8 + 5));
        let x = tensor::<B, 3>(1, [batch, len, all]) * 2.0;
        let x = x.detach().require_grad();
        let blocked = mask.map(blocked::<B>);
        let output = if kernel {
            kernel_attention(blocked, |mask| {
                transformer_kernels::self_attention(&x, HEADS, mask, 0.0)
            })
        } else {
            let part = |range| x.clone().slice_dim(2, range);
            let (query, key) = (part(0..keys), part(keys..2 * keys));
            composed(query, key, part(2 * keys..all), HEADS, blocked)
        };
        outcome(output, &[Input::Three(x)])
    }
    for (batch, len) in [(1, 1), (2, 7), (3, 33)] {
        for mask in masks(batch, 3, len, len) {
            assert_close(
                &format!("batch {batch}, length {len}, mask {mask:?}"),
                &run::<Autodiff<I>>(batch, len, mask, true),
                &run::<Reference>(batch, len, mask, false),
            );
        }
    }
}

fn cross_attention<I: Backend>() {
    fn run<B: AutodiffBackend>(
        [batch, query_len, key_len]: [usize; 3],
        mask: Option<[usize; 4]>,
        kernel: bool,
    ) -> Vec<Vec<f64>> {
        let (keys, all) = (3 * 8, 3 * (8 + 5));
        let query = tensor::<B, 3>(1, [batch, query_len, keys]);
        let key_value = tensor::<B, 3>(2, [batch, key_len, all]);
        let blocked = mask.map(blocked::<B>);
        let output = if kernel {
            kernel_attention(blocked, |mask| {
                transformer_kernels::cross_attention(&query, &key_value, HEADS, mask, 0.0)
            })
        } else {
            let part = |range| key_value.clone().slice_dim(2, range);
            composed(
                query.clone(),
                part(0..keys),
                part(keys..all),
                HEADS,
                blocked,
            )
        };
        outcome(output, &[Input::Three(query), Input::Three(key_value)])
    }
    for sizes in [[1, 1, 6], [2, 7, 4], [3, 9, 40]] {
        let [batch, query_len, key_len] = sizes;
        for mask in masks(batch, 3, query_len, key_len) {
            assert_close(
                &format!("{sizes:?}, mask {mask:?}"),
                &run::<Autodiff<I>>(sizes, mask, true),
                &run::<Reference>(sizes, mask, false),
            );
        }
    }
}

fn attend<I: Backend>() {
    /// Queries with other columns after them, and the keys in two parts.
    fn run<B: Backend>(
        inner: impl Fn(usize, [usize; 3]) -> Tensor<B, 3>,
        [batch, query_len, key_len, first]: [usize; 4],
        mask: Option<[usize; 4]>,
        kernel: bool,
    ) -> Vec<Vec<f64>> {
        let query = inner(1, [batch, query_len, 3 * 8 + 7]);
        let [key, value] =
            [(2, 3 * 8), (3, 3 * 5)].map(|(seed, width)| inner(seed, [batch, key_len, width]));
        let blocked = mask.map(blocked::<B>);
        vec![values(if kernel {
            let split = |x: &Tensor<B, 3>, places| {
                let x = x.clone().slice_dim(1, places);
                let [batch, len, width] = x.dims();
                x.reshape([batch, len, 3, width / 3]).swap_dims(1, 2)
            };
            let places = match first {
                0 => vec![0..key_len],
                _ => vec![0..first, first..key_len],
            };
            let parts = places
                .into_iter()
                .map(|places| [split(&key, places.clone()), split(&value, places)]);
            let parts: Vec<_> = parts.collect();
            let parts: Vec<_> = parts.iter().map(|[key, value]| [key, value]).collect();
            kernel_attention(blocked, |mask| {
                transformer_kernels::attend(&query, &parts, HEADS, mask)
            })
        } else {
            composed(query.slice_dim(2, 0..24), key, value, HEADS, blocked)
        })]
    }
    for sizes in [
        [1, 1, 6, 0],
        [1, 1, 6, 2],
        [2, 7, 4, 3],
        [3, 9, 40, 39],
        [2, 70, 80, 33],
    ] {
        let [batch, query_len, key_len, _] = sizes;
        for mask in masks(batch, 3, query_len, key_len) {
            let input = |seed, shape| tensor::<Autodiff<I>, 3>(seed, shape).inner() * 2.0;
            let exact = |seed, shape| tensor::<Reference, 3>(seed, shape).inner() * 2.0;
            assert_close(
                &format!("{sizes:?}, mask {mask:?}"),
                &run(input, sizes, mask, true),
                &run(exact, sizes, mask, false),
            );
        }
    }
}

fn write_heads<I: Backend>() {
    let room = tensor::<Autodiff<I>, 4>(1, [2, 3, 6, 4]).inner();
    let rows = tensor::<Autodiff<I>, 3>(2, [2, 2, 5 + 3 * 4 + 1]).inner();
    // Also to a cache that somebody else holds.
    let kept = room.clone();
    let before = values(room.clone());
    let written = transformer_kernels::write_heads(room, 3, &rows, 5).expect("a kernel");
    let heads: Tensor<I, 4> = rows.clone().slice_dim(2, 5..17).reshape([2, 2, 3, 4]);
    let heads = heads.swap_dims(1, 2);
    let expected = kept.clone().slice_assign([0..2, 0..3, 3..5, 0..4], heads);
    assert_eq!(values(written.clone()), values(expected.clone()));
    assert_eq!(values(kept), before);
    let again = transformer_kernels::write_heads(written, 3, &rows, 5).expect("a kernel");
    assert_eq!(values(again), values(expected));
}

fn log_softmax<I: Backend>() {
    for shape in [[1, 1, 1], [2, 3, 33], [4, 5, 1000]] {
        let x = tensor::<Autodiff<I>, 3>(1, shape).inner() * 20.0;
        let exact = tensor::<Reference, 3>(1, shape).inner() * 20.0;
        assert_close(
            &format!("{shape:?}"),
            &[values(
                transformer_kernels::log_softmax(&x).expect("a kernel"),
            )],
            &[values(burn::tensor::activation::log_softmax(exact, 2))],
        );
    }
}

fn kernel_attention<B: Backend>(
    blocked: Option<Tensor<B, 4, Bool>>,
    attend: impl FnOnce(Option<AttentionMask<'_, B>>) -> Option<Tensor<B, 3>>,
) -> Tensor<B, 3> {
    let Some(blocked) = blocked else {
        return attend(None).expect("a kernel");
    };
    let bias = Tensor::zeros(blocked.dims(), &blocked.device());
    let bias = bias.mask_fill(blocked.clone(), f64::from(f32::MIN / 2.0));
    let rows = blocked.all_dim(3);
    let mask = AttentionMask {
        bias: &bias,
        blocked_rows: Some(&rows),
    };
    attend(Some(mask)).expect("a kernel")
}

fn cross_entropy<I: Backend>() {
    fn run<B: AutodiffBackend>(rows: usize, vocab_size: usize, kernel: bool) -> Vec<Vec<f64>> {
        let logits = tensor::<B, 2>(1, [rows, vocab_size]) * 6.0;
        let logits = logits.detach().require_grad();
        let labels: Vec<i64> = (0..rows)
            .map(|row| (row * 31 % vocab_size) as i64)
            .collect();
        let labels = Tensor::<B, 1, Int>::from_data(labels.as_slice(), &Default::default());
        let (loss, others) = if kernel {
            let rows = transformer_kernels::cross_entropy(&logits, &labels, 0.1);
            let rows = rows.expect("a kernel");
            (rows.loss, [rows.log_sum_exp, rows.at_label, rows.largest])
        } else {
            let at_label = logits.clone().gather(1, labels.reshape([rows, 1]));
            let lse = logits.clone().exp().sum_dim(1).log();
            let mean = logits.clone().mean_dim(1);
            let loss = lse.clone() - at_label.clone() * 0.9 - mean * 0.1;
            let largest = logits.clone().max_dim(1);
            (
                loss.reshape([rows]),
                [lse, at_label, largest].map(|x| x.reshape([rows])),
            )
        };
        let mut all = outcome(loss, &[Input::Two(logits)]);
        all.extend(others.map(values));
        all
    }
    for (rows, vocab_size) in [(1, 2), (9, 33), (20, 1000)] {
        assert_close(
            &format!("{rows} rows of {vocab_size}"),
            &run::<Autodiff<I>>(rows, vocab_size, true),
            &run::<Reference>(rows, vocab_size, false),
        );
    }
}

fn adam<I: Backend>() {
    const SHAPE: [usize; 2] = [300, 1000];
    let rule = AdamConfig::new()
        .with_beta_1(0.9)
        .with_beta_2(0.98)
        .with_epsilon(1e-9)
        .build();
    let inner = |seed| tensor::<Autodiff<I>, 2>(seed, SHAPE).inner();
    let (mut expected, mut state) = (inner(1), None);
    let mut found = expected.clone();
    let mut moments = Moments {
        first: inner(1).zeros_like(),
        second: inner(1).zeros_like(),
    };
    for time in 1..=5 {
        let (grad, learning_rate) = (inner(time + 1), 1e-3 * time as f64);
        (expected, state) = rule.step(learning_rate, expected, grad.clone(), state);
        let step = AdamStep {
            beta_1: 0.9,
            beta_2: 0.98,
            epsilon: 1e-9,
            learning_rate,
            time,
        };
        let held = moments.second.clone();
        let before = values(held.clone());
        (found, moments) = transformer_kernels::adam(found, grad, moments, &step)
            .unwrap_or_else(|_| panic!("no kernel"));
        assert_eq!(values(held), before, "what others hold does not change");
    }
    let momentum = state.expect("moments").momentum;
    assert_close(
        "parameter and moments",
        &[values(found), values(moments.first), values(moments.second)],
        &[
            values(expected),
            values(momentum.moment_1),
            values(momentum.moment_2),
        ],
    );
}

fn dropout_keeps_what_it_says<I: Backend>() {
    let _held = generator();
    type B<I> = Autodiff<I>;
    let shape = [200, 300];
    let x = Tensor::<B<I>, 2>::ones(shape, &Default::default()).require_grad();
    let residual = tensor::<B<I>, 2>(1, shape);
    let kept = transformer_kernels::dropout(&x, 0.1).expect("a kernel");
    let grad = x.grad(&kept.clone().sum().backward()).expect("a gradient");
    let kept = values(kept);
    assert_eq!(values(grad), kept, "what was kept forward is kept back");
    let dropped = kept.iter().filter(|x| **x == 0.0).count();
    assert!(dropped.abs_diff(6000) < 450, "{dropped} of 60000");
    assert!(
        kept.iter()
            .all(|x| *x == 0.0 || (x - 1.0 / 0.9).abs() < 1e-6)
    );

    let sum = transformer_kernels::dropout_and_add(&residual, &x, 0.1).expect("a kernel");
    let grads = sum.clone().sum().backward();
    let ones = vec![1.0; 60_000];
    assert_eq!(values(residual.grad(&grads).expect("a gradient")), ones);
    let kept = values(x.grad(&grads).expect("a gradient"));
    let places = values(sum).into_iter().zip(values(residual)).zip(&kept);
    for ((sum, residual), kept) in places {
        assert!((sum - residual - kept).abs() < 1e-6);
    }
    assert!(kept.iter().filter(|x| **x == 0.0).count().abs_diff(6000) < 450);
}

/// The gradients, by differences of what the same seed computes.
fn attention_drops_the_same_on_the_way_back<I: Backend>() {
    let _held = generator();
    type B<I> = Autodiff<I>;
    let device = Default::default();
    let (shape, width) = ([2, 6, 63], 63);
    let count: usize = shape.iter().product();
    let loss = |x: Tensor<B<I>, 3>| {
        B::<I>::seed(&device, 5);
        let output = transformer_kernels::self_attention(&x, HEADS, None, 0.4).expect("a kernel");
        let weights = tensor::<B<I>, 3>(9, output.dims()).detach();
        (output * weights).sum()
    };
    let x = tensor::<B<I>, 3>(1, shape);
    let grads = loss(x.clone()).backward();
    let grad = values(x.grad(&grads).expect("a gradient"));
    let at = |place: usize, step: f64| {
        let mut numbers = numbers(1, count);
        numbers[place] += step;
        let data = TensorData::new(numbers, shape).convert::<f32>();
        values(loss(Tensor::from_data(data, &device)))[0]
    };
    for place in (0..count).step_by(width / 4) {
        let difference = (at(place, 0.02) - at(place, -0.02)) / 0.04;
        assert!(
            (difference - grad[place]).abs() < 3e-3,
            "place {place}: {} for {difference}",
            grad[place]
        );
    }
}
