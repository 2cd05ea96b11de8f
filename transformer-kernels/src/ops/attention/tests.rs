//! Attention kernels against the reference implementation.

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
on_each!(packed_attention_without_gradients_is_the_composition);
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

/// Head widths that libtorch's own attention requires.
const EQUAL_WIDTHS: Heads = Heads {
    n_heads: 3,
    d_k: 8,
    d_v: 8,
};

/// A probability with which dropout drops nothing, but uses the kernel with dropout.
const NEXT_TO_ZERO: f64 = 1e-12;

/// Kinds of masks.
#[derive(Debug, Clone, Copy)]
enum Kind {
    None,
    Causal,
    Padding,
    CausalPadding,
    /// Causality, padding, and a bias with this shape.
    Biased([usize; 4]),
    /// Blocked keys without structure.
    Blocked([usize; 4]),
}

/// Masks of all kinds and shapes that fit scores of this shape.
fn masks([batch, n_heads, query_len, key_len]: [usize; 4]) -> Vec<Kind> {
    vec![
        Kind::None,
        Kind::Causal,
        Kind::Padding,
        Kind::CausalPadding,
        Kind::Biased([batch, 1, 1, key_len]),
        Kind::Biased([1, n_heads, query_len, key_len]),
        Kind::Blocked([batch, 1, 1, key_len]),
        Kind::Blocked([1, 1, query_len, key_len]),
        Kind::Blocked([batch, 1, query_len, key_len]),
        Kind::Blocked([batch, n_heads, query_len, key_len]),
    ]
}

/// A mask for scores of this shape. In some rows all keys are blocked.
fn mask<B: Backend>(kind: Kind, scores: [usize; 4]) -> Option<Mask<B>> {
    let [batch, _, query_len, key_len] = scores;
    let first = key_len.saturating_sub(query_len);
    let device: B::Device = Default::default();
    let padding = || {
        let padding = (0..batch * key_len).map(|at| match (at / key_len, at % key_len) {
            (0, key) => 2 * key > key_len || key % 7 == 5,
            (1, key) => key < key_len / 3,
            _ => true,
        });
        let padding = TensorData::new(padding.collect::<Vec<bool>>(), [batch, key_len]);
        Tensor::<B, 2, Bool>::from_data(padding, &device)
    };
    match kind {
        Kind::None => None,
        Kind::Causal => Some(Mask::causal_from(first, query_len, key_len, &device)),
        Kind::Padding => Some(Mask::padding(padding())),
        Kind::CausalPadding => Some(Mask::causal_padding_from(first, query_len, padding())),
        Kind::Biased(shape) => {
            let mask = Mask::causal_padding_from(first, query_len, padding());
            Some(mask.with_bias(plain_numbers(4, shape)))
        }
        Kind::Blocked(shape) => {
            let blocked = (0..shape.iter().product()).map(|at: usize| {
                let (row, column) = (at / key_len, at % key_len);
                column > row % shape[2].max(2) || row % 5 == 3
            });
            let blocked = TensorData::new(blocked.collect::<Vec<bool>>(), shape);
            Some(Mask::from_blocked(Tensor::from_data(blocked, &device)))
        }
    }
}

type Attend<B> = fn(Operands<'_, B>, Heads, Option<&Mask<B>>) -> Tensor<B, 3>;

fn by_kernel<B: Backend, I: Kernels>(
    operands: Operands<'_, B>,
    heads: Heads,
    mask: Option<&Mask<B>>,
) -> Tensor<B, 3> {
    fused::<B, I>(operands, heads, mask, 0.0, ProductPrecision::F32).expect("a kernel")
}

fn by_kernel_with_dropout<B: Backend, I: Kernels>(
    operands: Operands<'_, B>,
    heads: Heads,
    mask: Option<&Mask<B>>,
) -> Tensor<B, 3> {
    let f32 = ProductPrecision::F32;
    fused::<B, I>(operands, heads, mask, NEXT_TO_ZERO, f32).expect("a kernel")
}

fn by_composition<B: Backend>(
    operands: Operands<'_, B>,
    heads: Heads,
    mask: Option<&Mask<B>>,
) -> Tensor<B, 3> {
    composed(
        operands,
        heads,
        mask,
        0.0,
        AttentionWeights::Discard,
        ProductPrecision::F32,
    )
    .output
}

fn self_attention_kernel_is_the_composition<I: Kernels>() {
    fn run<B: AutodiffBackend>(
        [batch, len]: [usize; 2],
        heads: Heads,
        kind: Kind,
        attend: Attend<B>,
    ) -> Vec<Vec<f64>> {
        let Heads { n_heads, d_k, d_v } = heads;
        let x = tensor::<B, 3>(1, [batch, len, n_heads * (2 * d_k + d_v)]) * 2.0;
        let x = x.detach().require_grad();
        let mask = mask::<B>(kind, [batch, n_heads, len, len]);
        let output = attend(Operands::SelfPacked(&x), heads, mask.as_ref());
        outcome(output, &[Input::Three(x)])
    }
    // Dropout draws a seed.
    let _held = generator();
    for [batch, len] in [[1, 1], [2, 7], [3, 33], [2, 99]] {
        for heads in [HEADS, EQUAL_WIDTHS] {
            for kind in masks([batch, heads.n_heads, len, len]) {
                let case = format!("batch {batch}, length {len}, {heads:?}, {kind:?}");
                let sizes = [batch, len];
                let expected = run::<Reference>(sizes, heads, kind, by_composition);
                let found = run::<Autodiff<I>>(sizes, heads, kind, by_kernel::<_, I>);
                assert_close(&case, &found, &expected);
                let found = run::<Autodiff<I>>(sizes, heads, kind, by_kernel_with_dropout::<_, I>);
                assert_close(&format!("{case}, dropout"), &found, &expected);
            }
        }
    }
}

fn cross_attention_kernel_is_the_composition<I: Kernels>() {
    fn run<B: AutodiffBackend>(
        [batch, query_len, key_len]: [usize; 3],
        heads: Heads,
        kind: Kind,
        attend: Attend<B>,
    ) -> Vec<Vec<f64>> {
        let Heads { n_heads, d_k, d_v } = heads;
        let query = &tensor::<B, 3>(1, [batch, query_len, n_heads * d_k]);
        let key_value = &tensor::<B, 3>(2, [batch, key_len, n_heads * (d_k + d_v)]);
        let operands = Operands::CrossPacked { query, key_value };
        let mask = mask::<B>(kind, [batch, n_heads, query_len, key_len]);
        let output = attend(operands, heads, mask.as_ref());
        let inputs = [query, key_value].map(|x| Input::Three(x.clone()));
        outcome(output, &inputs)
    }
    for sizes in [[1, 1, 6], [2, 7, 4], [3, 9, 40], [2, 100, 260]] {
        let [batch, query_len, key_len] = sizes;
        for heads in [HEADS, EQUAL_WIDTHS] {
            for kind in masks([batch, heads.n_heads, query_len, key_len]) {
                assert_close(
                    &format!("{sizes:?}, {heads:?}, {kind:?}"),
                    &run::<Autodiff<I>>(sizes, heads, kind, by_kernel::<_, I>),
                    &run::<Reference>(sizes, heads, kind, by_composition),
                );
            }
        }
    }
}

fn packed_attention_without_gradients_is_the_composition<I: Kernels>() {
    fn run<B: Backend>(heads: Heads, kind: Kind, attend: Attend<B>) -> Vec<Vec<f64>> {
        let Heads { n_heads, d_k, d_v } = heads;
        let packed = plain_numbers::<B, 3>(1, [2, 7, n_heads * (2 * d_k + d_v)]);
        let query = &plain_numbers::<B, 3>(2, [2, 7, n_heads * d_k]);
        let key_value = &plain_numbers::<B, 3>(3, [2, 7, n_heads * (d_k + d_v)]);
        let operands = [
            Operands::SelfPacked(&packed),
            Operands::CrossPacked { query, key_value },
        ];
        let mask = mask::<B>(kind, [2, n_heads, 7, 7]);
        let outputs = operands.map(|operands| attend(operands, heads, mask.as_ref()));
        outputs.map(values).into()
    }
    fn by_kernel_or_composition<B: Backend>(
        operands: Operands<'_, B>,
        heads: Heads,
        mask: Option<&Mask<B>>,
    ) -> Tensor<B, 3> {
        attention(
            operands,
            heads,
            mask,
            0.0,
            AttentionWeights::Discard,
            ProductPrecision::F32,
        )
        .output
    }
    for heads in [HEADS, EQUAL_WIDTHS] {
        for kind in masks([2, heads.n_heads, 7, 7]) {
            assert_close(
                &format!("{heads:?}, {kind:?}"),
                &run::<I>(heads, kind, by_kernel_or_composition),
                &run::<burn_ndarray::NdArray<f64>>(heads, kind, by_composition),
            );
        }
    }
}

/// Rows that are blocked in every head and sentence, given once or once per head and sentence, under a larger
/// bias.
fn blocked_rows_are_broadcast<I: Kernels>() {
    fn run<B: AutodiffBackend>(blocked: [usize; 4], attend: Attend<B>) -> Vec<Vec<f64>> {
        let x = tensor::<B, 3>(1, [2, 7, 2 * KEYS + VALUES]);
        let rows = (0..7 * 7).map(|at| at / 7 % 3 == 1).collect::<Vec<bool>>();
        let rows = TensorData::new(rows, [1, 1, 7, 7]);
        let rows = Tensor::<B, 4, Bool>::from_data(rows, &Default::default());
        let mask = Mask::from_blocked(rows.expand(blocked));
        let mask = mask.with_bias(plain_numbers::<B, 4>(2, [2, 3, 7, 7]));
        let output = attend(Operands::SelfPacked(&x), HEADS, Some(&mask));
        outcome(output, &[Input::Three(x)])
    }
    let expected = run::<Reference>([2, 3, 7, 7], by_composition);
    for blocked in [[1, 1, 7, 7], [2, 1, 7, 7], [1, 3, 7, 7], [2, 3, 7, 7]] {
        let found = run::<Autodiff<I>>(blocked, by_kernel::<_, I>);
        assert_close(&format!("blocked {blocked:?}"), &found, &expected);
        let composed = run::<Reference>(blocked, by_composition);
        let case = format!("blocked {blocked:?}, composed");
        assert_close(&case, &composed, &expected);
    }
}

fn attend_with<B: Backend>(mask: &Mask<B>) -> AttentionOutput<B> {
    let packed = plain_numbers::<B, 3>(1, [2, 7, 2 * KEYS + VALUES]);
    let operands = Operands::SelfPacked(&packed);
    let discard = AttentionWeights::Discard;
    attention(
        operands,
        HEADS,
        Some(mask),
        0.0,
        discard,
        ProductPrecision::F32,
    )
}

/// Kernels derive positions from the query index, so the mask of one query is not valid for all.
#[test]
#[should_panic(expected = "a mask [1, 1, 1, 7] for scores [2, 3, 7, 7]")]
fn causality_of_other_queries_is_refused() {
    attend_with(&Mask::<burn_ndarray::NdArray>::causal(
        1,
        7,
        &Default::default(),
    ));
}

#[test]
#[should_panic(expected = "a bias of F64 for scores of F32")]
fn a_bias_of_another_type_is_refused() {
    let bias = plain_numbers::<burn_ndarray::NdArray, 4>(2, [1, 1, 7, 7]);
    attend_with(&Mask::from_bias(bias.cast(burn::tensor::DType::F64)));
}

#[test]
#[should_panic(expected = "a mask [1, 1, 5, 5] for scores [1, 2, 1, 5]")]
fn a_mask_of_more_queries_is_not_broadcast() {
    let [query, key] =
        [1, 5].map(|len| plain_numbers::<burn_ndarray::NdArray, 4>(1, [1, 2, len, 4]));
    let mask = Mask::<burn_ndarray::NdArray>::causal(5, 5, &Default::default());
    scaled_dot_product_attention(query, key.clone(), key, Some(&mask), 0.0);
}

#[test]
#[should_panic(expected = "keys for queries [1, 2, 3, 4]")]
fn keys_of_one_head_are_not_broadcast() {
    let [query, key] =
        [2, 1].map(|n_heads| plain_numbers::<burn_ndarray::NdArray, 4>(1, [1, n_heads, 3, 4]));
    scaled_dot_product_attention(query, key.clone(), key, None, 0.0);
}

/// The reference implementation against the formula: a sum over keys for every query.
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

/// The gradients against finite differences of outputs with the same seed.
fn backward_drops_the_same<I: Kernels>() {
    let _held = generator();
    type B<I> = Autodiff<I>;
    let device = Default::default();
    let (shape, width) = ([2, 6, 63], 63);
    let count: usize = shape.iter().product();
    for kind in [Kind::None, Kind::CausalPadding] {
        let loss = |x: Tensor<B<I>, 3>| {
            B::<I>::seed(&device, 5);
            let mask = mask::<B<I>>(kind, [2, 3, 6, 6]);
            let (operands, f32) = (Operands::SelfPacked(&x), ProductPrecision::F32);
            let output = fused::<_, I>(operands, HEADS, mask.as_ref(), 0.4, f32);
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
                "{kind:?}, index {index}: {} for {difference}",
                grad[index]
            );
        }
    }
}

/// With dropout from a fixed seed and without dropout, forward and backward.
fn bf16_is_off_by_its_roundings<I: Kernels>() {
    fn run<I: Kernels>(
        [query_len, key_len]: [usize; 2],
        heads: Heads,
        kind: Kind,
        p: f64,
        precision: ProductPrecision,
    ) -> Vec<Vec<f64>> {
        let device = Default::default();
        <Autodiff<I> as Backend>::seed(&device, 5);
        let attend = |operands, mask: Option<&Mask<Autodiff<I>>>| {
            let discard = AttentionWeights::Discard;
            attention(operands, heads, mask, p, discard, precision).output
        };
        let Heads { n_heads, d_k, d_v } = heads;
        let packed = tensor::<Autodiff<I>, 3>(1, [2, query_len, n_heads * (2 * d_k + d_v)]);
        let causal = Mask::<Autodiff<I>>::causal(query_len, query_len, &device);
        let itself = attend(Operands::SelfPacked(&packed), Some(&causal));
        let query = tensor::<Autodiff<I>, 3>(2, [2, query_len, n_heads * d_k]);
        let key_value = tensor::<Autodiff<I>, 3>(3, [2, key_len, n_heads * (d_k + d_v)]);
        let other = Operands::CrossPacked {
            query: &query,
            key_value: &key_value,
        };
        let mask = mask::<Autodiff<I>>(kind, [2, n_heads, query_len, key_len]);
        let other = attend(other, mask.as_ref());
        let inputs = [packed, query, key_value].map(Input::Three);
        outcome(Tensor::cat(vec![itself, other], 2), &inputs)
    }
    let norm = |numbers: &[f64]| numbers.iter().map(|x| x * x).sum::<f64>().sqrt();
    let compare = |sizes: [usize; 2], heads: Heads, kind: Kind, p: f64| {
        let [exact, found] = [ProductPrecision::F32, ProductPrecision::Bf16]
            .map(|precision| run::<I>(sizes, heads, kind, p, precision));
        for (part, (exact, found)) in exact.iter().zip(&found).enumerate() {
            let differences = exact.iter().zip(found).map(|(a, b)| a - b);
            let off = norm(&differences.collect::<Vec<_>>()) / norm(exact);
            // A gradient passes eight roundings, each by at most 1/256. As independent errors they amount to
            // 1/150; differently dropped entries or a wrong factor, to half and more.
            let expected = match I::BF16_ATTENTION {
                true => 1e-4..1.0 / 64.0,
                false => 0.0..1e-6,
            };
            let case = format!("{sizes:?}, {heads:?}, {kind:?}, p {p}, part {part}");
            assert!(expected.contains(&off), "{case}: off by {off:e}");
        }
    };
    let _held = generator();
    for sizes in [[7, 4], [9, 40], [40, 40]] {
        let [query_len, key_len] = sizes;
        for heads in [HEADS, EQUAL_WIDTHS] {
            for kind in masks([2, heads.n_heads, query_len, key_len]) {
                for p in [0.0, 0.3] {
                    compare(sizes, heads, kind, p);
                }
            }
        }
    }
}
