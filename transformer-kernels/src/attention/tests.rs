//! Attention's kernels against the composition.

use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Bool, TensorData};
use burn_autodiff::Autodiff;

use super::*;
use crate::testing::{
    Input, Reference, assert_close, generator, numbers, on_each, outcome, plain as plain_numbers,
    tensor, values,
};

on_each!(self_attention_kernel_is_the_composition);
on_each!(cross_attention_kernel_is_the_composition);
on_each!(cached_attention_kernel_is_the_composition on slices);
on_each!(packed_attention_without_gradients_is_the_composition on slices);
on_each!(blocked_rows_are_broadcast);
on_each!(backward_drops_the_same);
on_each!(bf16_is_off_by_its_roundings);

const HEADS: Heads = Heads {
    n_heads: 3,
    d_k: 8,
    d_v: 5,
};
const KEYS: usize = 3 * 8;
const VALUES: usize = 3 * 5;

/// Blocked keys in the shape of a mask; in some rows all are blocked.
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

/// No mask, and masks of all shapes that fit scores of this shape.
fn masks([batch, n_heads, query_len, key_len]: [usize; 4]) -> Vec<Option<[usize; 4]>> {
    vec![
        None,
        Some([batch, 1, 1, key_len]),
        Some([1, 1, query_len, key_len]),
        Some([batch, 1, query_len, key_len]),
        Some([batch, n_heads, query_len, key_len]),
    ]
}

/// Calls with a mask that blocks some keys.
fn with_mask<B: Backend, T>(
    shape: Option<[usize; 4]>,
    attend: impl FnOnce(Option<Mask<'_, B>>) -> T,
) -> T {
    let Some(shape) = shape else {
        return attend(None);
    };
    let blocked = blocked::<B>(shape);
    let bias = plain_numbers::<B, 4>(1, shape) * 0.0;
    let bias = bias.mask_fill(blocked.clone(), f64::from(f32::MIN / 2.0));
    let rows = blocked.all_dim(3);
    attend(Some(Mask {
        bias: &bias,
        blocked_rows: Some(&rows),
    }))
}

type Attend<B> = fn(Operands<'_, B>, Option<Mask<'_, B>>) -> Tensor<B, 3>;

fn by_kernel<B: Backend, I: Kernels>(
    operands: Operands<'_, B>,
    mask: Option<Mask<'_, B>>,
) -> Tensor<B, 3> {
    fused::<B, I>(operands, HEADS, mask, 0.0, ProductPrecision::F32).expect("a kernel")
}

fn by_composition<B: Backend>(
    operands: Operands<'_, B>,
    mask: Option<Mask<'_, B>>,
) -> Tensor<B, 3> {
    composed(operands, HEADS, mask, 0.0, AttentionWeights::Discard).output
}

fn self_attention_kernel_is_the_composition<I: Kernels>() {
    fn run<B: AutodiffBackend>(
        [batch, len]: [usize; 2],
        mask: Option<[usize; 4]>,
        attend: Attend<B>,
    ) -> Vec<Vec<f64>> {
        let x = tensor::<B, 3>(1, [batch, len, 2 * KEYS + VALUES]) * 2.0;
        let x = x.detach().require_grad();
        let output = with_mask(mask, |mask| attend(Operands::SelfPacked(&x), mask));
        outcome(output, &[Input::Three(x)])
    }
    for [batch, len] in [[1, 1], [2, 7], [3, 33]] {
        for mask in masks([batch, 3, len, len]) {
            assert_close(
                &format!("batch {batch}, length {len}, mask {mask:?}"),
                &run::<Autodiff<I>>([batch, len], mask, by_kernel::<_, I>),
                &run::<Reference>([batch, len], mask, by_composition),
            );
        }
    }
}

fn cross_attention_kernel_is_the_composition<I: Kernels>() {
    fn run<B: AutodiffBackend>(
        [batch, query_len, key_len]: [usize; 3],
        mask: Option<[usize; 4]>,
        attend: Attend<B>,
    ) -> Vec<Vec<f64>> {
        let query = &tensor::<B, 3>(1, [batch, query_len, KEYS]);
        let key_value = &tensor::<B, 3>(2, [batch, key_len, KEYS + VALUES]);
        let operands = Operands::CrossPacked { query, key_value };
        let output = with_mask(mask, |mask| attend(operands, mask));
        let inputs = [query, key_value].map(|x| Input::Three(x.clone()));
        outcome(output, &inputs)
    }
    for sizes in [[1, 1, 6], [2, 7, 4], [3, 9, 40]] {
        let [batch, query_len, key_len] = sizes;
        for mask in masks([batch, 3, query_len, key_len]) {
            assert_close(
                &format!("{sizes:?}, mask {mask:?}"),
                &run::<Autodiff<I>>(sizes, mask, by_kernel::<_, I>),
                &run::<Reference>(sizes, mask, by_composition),
            );
        }
    }
}

/// Queries with other columns after them, and the keys in two parts.
fn cached_attention_kernel_is_the_composition<I: Kernels>() {
    fn run<B: Backend>(
        [batch, query_len, key_len, first]: [usize; 4],
        mask: Option<[usize; 4]>,
        attend: Attend<B>,
    ) -> Vec<f64> {
        let query = plain_numbers::<B, 3>(1, [batch, query_len, KEYS + 7]) * 2.0;
        let lens = match first {
            0 => vec![0..key_len],
            _ => vec![0..first, first..key_len],
        };
        let part = |seed, d_head, positions| {
            let rows = plain_numbers::<B, 3>(seed, [batch, key_len, 3 * d_head]) * 2.0;
            split_heads(&rows.slice_dim(1, positions), 0, 3, d_head)
        };
        let parts = lens
            .into_iter()
            .map(|positions| [part(2, 8, positions.clone()), part(3, 5, positions)]);
        let parts: Vec<_> = parts.collect();
        let parts: Vec<_> = parts.iter().map(|[key, value]| [key, value]).collect();
        let operands = Operands::Cached {
            query: &query,
            parts: &parts,
        };
        values(with_mask(mask, |mask| attend(operands, mask)))
    }
    for sizes in [
        [1, 1, 6, 0],
        [1, 1, 6, 2],
        [2, 7, 4, 3],
        [3, 9, 40, 39],
        [2, 70, 80, 33],
    ] {
        let [batch, query_len, key_len, _] = sizes;
        for mask in masks([batch, 3, query_len, key_len]) {
            assert_close(
                &format!("{sizes:?}, mask {mask:?}"),
                &[run::<I>(sizes, mask, by_kernel::<_, I>)],
                &[run::<burn_ndarray::NdArray<f64>>(
                    sizes,
                    mask,
                    by_composition,
                )],
            );
        }
    }
}

fn packed_attention_without_gradients_is_the_composition<I: Kernels>() {
    fn run<B: Backend>(mask: Option<[usize; 4]>, attend: Attend<B>) -> Vec<Vec<f64>> {
        let packed = plain_numbers::<B, 3>(1, [2, 7, 2 * KEYS + VALUES]);
        let query = &plain_numbers::<B, 3>(2, [2, 7, KEYS]);
        let key_value = &plain_numbers::<B, 3>(3, [2, 7, KEYS + VALUES]);
        let operands = [
            Operands::SelfPacked(&packed),
            Operands::CrossPacked { query, key_value },
        ];
        let outputs = operands.map(|operands| with_mask(mask, |mask| attend(operands, mask)));
        outputs.map(values).into()
    }
    for mask in masks([2, 3, 7, 7]) {
        assert_close(
            &format!("mask {mask:?}"),
            &run::<I>(mask, by_kernel::<_, I>),
            &run::<burn_ndarray::NdArray<f64>>(mask, by_composition),
        );
    }
}

/// Rows that are blocked in every head and sentence, said once, or once for each.
fn blocked_rows_are_broadcast<I: Kernels>() {
    fn run<B: AutodiffBackend>(rows: [usize; 4], attend: Attend<B>) -> Vec<Vec<f64>> {
        let x = tensor::<B, 3>(1, [2, 7, 2 * KEYS + VALUES]);
        let bias = plain_numbers::<B, 4>(2, [2, 3, 7, 7]);
        let blocked = (0..7).map(|row| row % 3 == 1).collect::<Vec<bool>>();
        let blocked = TensorData::new(blocked, [1, 1, 7, 1]);
        let blocked = Tensor::<B, 4, Bool>::from_data(blocked, &Default::default());
        let blocked = blocked.expand(rows);
        let mask = Mask {
            bias: &bias,
            blocked_rows: Some(&blocked),
        };
        let output = attend(Operands::SelfPacked(&x), Some(mask));
        outcome(output, &[Input::Three(x)])
    }
    let expected = run::<Reference>([2, 3, 7, 1], by_composition);
    for rows in [[1, 1, 7, 1], [2, 1, 7, 1], [1, 3, 7, 1], [2, 3, 7, 1]] {
        let found = run::<Autodiff<I>>(rows, by_kernel::<_, I>);
        assert_close(&format!("rows {rows:?}"), &found, &expected);
        let composed = run::<Reference>(rows, by_composition);
        assert_close(&format!("rows {rows:?}, composed"), &composed, &expected);
    }
}

#[test]
#[should_panic(expected = "blocked rows [2, 1, 7, 1] for a mask [1, 1, 7, 7]")]
fn blocked_rows_that_the_bias_lacks_are_refused() {
    type B = burn_ndarray::NdArray;
    let packed = plain_numbers::<B, 3>(1, [2, 7, 2 * KEYS + VALUES]);
    let bias = plain_numbers::<B, 4>(2, [1, 1, 7, 7]);
    let rows = Tensor::zeros([2, 1, 7, 1], &Default::default());
    let mask = Mask {
        bias: &bias,
        blocked_rows: Some(&rows),
    };
    let operands = Operands::SelfPacked(&packed);
    attention(operands, HEADS, Some(mask), 0.0, AttentionWeights::Discard);
}

/// The composition against the formula: a sum over keys for every query.
#[test]
fn composition_is_the_formula() {
    let (query_len, key_len) = (2, 3);
    let [query, key, value] =
        [(1, query_len, 8), (2, key_len, 8), (3, key_len, 5)].map(|(seed, len, width)| {
            plain_numbers::<burn_ndarray::NdArray<f64>, 4>(seed, [1, 1, len, width])
        });
    let [q, k, v] = [&query, &key, &value].map(|x| values(x.clone()));
    let (output, weights) = scaled_dot_product_attention(query, key, value, None, 0.0);
    let (output, weights) = (values(output), values(weights));
    for i in 0..query_len {
        let score = |j: usize| -> f64 {
            let products = (0..8).map(|c| q[i * 8 + c] * k[j * 8 + c]);
            products.sum::<f64>() / 8_f64.sqrt()
        };
        let all: f64 = (0..key_len).map(|j| score(j).exp()).sum();
        for j in 0..key_len {
            let weight = score(j).exp() / all;
            assert!((weights[i * key_len + j] - weight).abs() < 1e-12);
        }
        for c in 0..5 {
            let sums = (0..key_len).map(|j| score(j).exp() / all * v[j * 5 + c]);
            assert!((output[i * 5 + c] - sums.sum::<f64>()).abs() < 1e-12);
        }
    }
}

/// The gradients against differences of outputs with the same seed.
fn backward_drops_the_same<I: Kernels>() {
    let _held = generator();
    type B<I> = Autodiff<I>;
    let device = Default::default();
    let (shape, width) = ([2, 6, 63], 63);
    let count: usize = shape.iter().product();
    let loss = |x: Tensor<B<I>, 3>| {
        B::<I>::seed(&device, 5);
        let operands = Operands::SelfPacked(&x);
        let output = fused::<_, I>(operands, HEADS, None, 0.4, ProductPrecision::F32);
        let output = output.expect("a kernel");
        let weights = tensor::<B<I>, 3>(9, output.dims()).detach();
        (output * weights).sum()
    };
    let x = tensor::<B<I>, 3>(1, shape);
    let grads = loss(x.clone()).backward();
    let grad = values(x.grad(&grads).expect("a gradient"));
    let at = |index: usize, step: f64| {
        let mut numbers = numbers(1, count);
        numbers[index] += step;
        let data = TensorData::new(numbers, shape).convert::<f32>();
        values(loss(Tensor::from_data(data, &device)))[0]
    };
    for index in (0..count).step_by(width / 4) {
        let difference = (at(index, 0.02) - at(index, -0.02)) / 0.04;
        assert!(
            (difference - grad[index]).abs() < 3e-3,
            "index {index}: {} for {difference}",
            grad[index]
        );
    }
}

/// With dropout of a fixed seed, forward and backward.
fn bf16_is_off_by_its_roundings<I: Kernels>() {
    fn run<I: Kernels>(
        [query_len, key_len]: [usize; 2],
        mask: Option<[usize; 4]>,
        precision: ProductPrecision,
    ) -> Vec<Vec<f64>> {
        <Autodiff<I> as Backend>::seed(&Default::default(), 5);
        let discard = AttentionWeights::Discard;
        let packed = tensor::<Autodiff<I>, 3>(1, [2, query_len, 2 * KEYS + VALUES]);
        let itself = Operands::SelfPacked(&packed);
        let itself = attention_at(itself, HEADS, None, 0.3, discard, precision).output;
        let query = tensor::<Autodiff<I>, 3>(2, [2, query_len, KEYS]);
        let key_value = tensor::<Autodiff<I>, 3>(3, [2, key_len, KEYS + VALUES]);
        let other = Operands::CrossPacked {
            query: &query,
            key_value: &key_value,
        };
        let other = with_mask(mask, |mask| {
            attention_at(other, HEADS, mask, 0.3, discard, precision).output
        });
        let inputs = [packed, query, key_value].map(Input::Three);
        outcome(Tensor::cat(vec![itself, other], 2), &inputs)
    }
    let norm = |numbers: &[f64]| numbers.iter().map(|x| x * x).sum::<f64>().sqrt();
    let _held = generator();
    for sizes in [[7, 4], [9, 40]] {
        let [query_len, key_len] = sizes;
        for mask in masks([2, 3, query_len, key_len]) {
            let [exact, found] = [ProductPrecision::F32, ProductPrecision::Bf16]
                .map(|precision| run::<I>(sizes, mask, precision));
            for (part, (exact, found)) in exact.iter().zip(&found).enumerate() {
                let differences = exact.iter().zip(found).map(|(a, b)| a - b);
                let off = norm(&differences.collect::<Vec<_>>()) / norm(exact);
                // A gradient has passed eight roundings, each by 1/256 at most. As independent errors they come to
                // 1/150; entries that were dropped otherwise, or a wrong factor, to half and more.
                let expected = match I::BF16_PRODUCTS {
                    true => 1e-4..1.0 / 64.0,
                    false => 0.0..1e-6,
                };
                let case = format!("{sizes:?}, mask {mask:?}, part {part}");
                assert!(expected.contains(&off), "{case}: off by {off:e}");
            }
        }
    }
}
