//! Attention in parts against attention at once.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Bool, TensorData};

use super::*;
use crate::ProductPrecision;
use crate::testing::{assert_close, generator, plain, values};

const BATCH: usize = 2;
const QUERIES: usize = 11;
const KEYS: usize = 13;
const HEADS: Heads = Heads {
    n_heads: 3,
    d_k: 8,
    d_v: 5,
};

fn numbers<const D: usize>(seed: usize, shape: [usize; D]) -> FloatTensor<LibTorch> {
    plain::<LibTorch, D>(seed, shape).into_primitive().tensor()
}

fn packed(precision: ProductPrecision) -> Packed<LibTorch> {
    let Heads { n_heads, d_k, d_v } = HEADS;
    let query = numbers(1, [BATCH, QUERIES, n_heads * d_k]);
    let key_value = numbers(2, [BATCH, KEYS, n_heads * (d_k + d_v)]);
    Packed {
        query: precision.factor::<LibTorch>(&query),
        key_value: Some(precision.factor::<LibTorch>(&key_value)),
        heads: HEADS,
    }
}

fn booleans<const D: usize>(shape: [usize; D], is_blocked: impl Fn(usize) -> bool) -> TchTensor {
    let count = shape.iter().product();
    let blocked: Vec<bool> = (0..count).map(is_blocked).collect();
    let blocked = TensorData::new(blocked, shape);
    burn::tensor::Tensor::<LibTorch, D, Bool>::from_data(blocked, &Default::default())
        .into_primitive()
}

/// Without a mask, and with each of its parts.
fn masks() -> Vec<Option<MaskTensors<LibTorch>>> {
    let none = MaskTensors {
        causal: None,
        padding: None,
        bias: None,
        blocked_rows: None,
    };
    // The second sentence begins with padding: under causality, its first queries may attend to nothing.
    let padding = booleans([BATCH, KEYS], |at| {
        [at % KEYS > 9, at % KEYS < 4][at / KEYS]
    });
    let causal = Some(KEYS - QUERIES);
    let padding = Some(padding);
    vec![
        None,
        Some(MaskTensors {
            causal,
            ..none.clone()
        }),
        Some(MaskTensors {
            padding: padding.clone(),
            ..none.clone()
        }),
        Some(MaskTensors {
            causal: Some(0),
            padding: padding.clone(),
            bias: Some(numbers(3, [1, 3, QUERIES, KEYS])),
            ..none.clone()
        }),
        Some(MaskTensors {
            causal: Some(0),
            padding,
            ..none.clone()
        }),
        Some(MaskTensors {
            bias: Some(numbers(3, [BATCH, 1, QUERIES, KEYS])),
            blocked_rows: Some(booleans([BATCH, 1, QUERIES, 1], |at| at % 5 == 3)),
            ..none
        }),
    ]
}

/// The output, and the gradients of the packed tensors, in f32.
fn outcome(
    mask: Option<&MaskTensors<LibTorch>>,
    p: f64,
    most_weights: usize,
    precision: ProductPrecision,
) -> (Vec<Vec<f64>>, Attended) {
    LibTorch::<f32>::seed(&Default::default(), 5);
    let packed = packed(precision);
    let (output, attended) = forward(&packed, mask, p, most_weights);
    let grad = numbers(4, [BATCH, QUERIES, 3 * 5]);
    let wanted = AttentionParents {
        query: true,
        key_value: true,
    };
    let gradients = backward(&grad.tensor, &packed, mask, &attended, p, wanted);
    let tensors = [Some(output)].into_iter().chain(gradients).flatten();
    let numbers = tensors.map(|tensor| {
        assert_eq!(tensor.tensor.kind(), Kind::Float);
        values(burn::tensor::Tensor::<LibTorch, 3>::from_primitive(
            burn::tensor::TensorPrimitive::Float(tensor),
        ))
    });
    (numbers.collect(), attended)
}

/// Also where entries are dropped: the same ones.
#[test]
fn parts_of_the_queries_are_all_of_them() {
    let _held = generator();
    let of_query = BATCH * 3 * KEYS;
    let f32 = ProductPrecision::F32;
    for (which, mask) in masks().iter().enumerate() {
        for p in [0.0, 0.3] {
            let (expected, kept) = outcome(mask.as_ref(), p, usize::MAX, f32);
            assert!(matches!(kept, Attended::Weights { .. }));
            for queries in [1, 4, QUERIES - 1] {
                let (found, kept) = outcome(mask.as_ref(), p, queries * of_query, f32);
                // No weights, and nothing else of the size of the scores.
                assert!(matches!(kept, Attended::Nothing { tile, .. } if tile == queries));
                let case = format!("mask {which}, p {p}, {queries} at a time");
                assert_close(&case, &found, &expected);
            }
        }
    }
}

/// In bf16, at once and in parts: as near to f32 as attention's own test has it.
#[test]
fn parts_in_bf16_are_off_by_their_roundings() {
    let _held = generator();
    let [f32, bf16] = [ProductPrecision::F32, ProductPrecision::Bf16];
    let norm = |numbers: &[f64]| numbers.iter().map(|x| x * x).sum::<f64>().sqrt();
    for (which, mask) in masks().iter().enumerate() {
        for p in [0.0, 0.3] {
            let (exact, _) = outcome(mask.as_ref(), p, usize::MAX, f32);
            for most_weights in [usize::MAX, 4 * BATCH * 3 * KEYS] {
                let (found, _) = outcome(mask.as_ref(), p, most_weights, bf16);
                for (part, (exact, found)) in exact.iter().zip(&found).enumerate() {
                    let differences = exact.iter().zip(found).map(|(a, b)| a - b);
                    let off = norm(&differences.collect::<Vec<_>>()) / norm(exact);
                    let case = format!("mask {which}, p {p}, {most_weights} weights, part {part}");
                    assert!((1e-4..1.0 / 64.0).contains(&off), "{case}: off by {off:e}");
                }
            }
        }
    }
}
