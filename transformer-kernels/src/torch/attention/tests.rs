//! Tiled attention against attention with all weights.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Bool, TensorData};

use super::*;
use crate::ProductPrecision;
use crate::precision::factor;
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
        query: factor::<LibTorch>(&query, precision),
        key_value: Some(factor::<LibTorch>(&key_value, precision)),
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

/// No mask, and one with each part.
fn masks() -> Vec<Option<MaskTensors<LibTorch>>> {
    let none = MaskTensors {
        causal: None,
        padding: None,
        bias: None,
        blocked_rows: None,
    };
    // The second sentence begins with padding: under causality, its first queries have only blocked keys.
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
    let gradients = backward(&grad, &packed, mask, &attended, p, wanted);
    let tensors = [Some(output)].into_iter().chain(gradients).flatten();
    let numbers = tensors.map(|tensor| {
        assert_eq!(tensor.tensor.kind(), Kind::Float);
        values(burn::tensor::Tensor::<LibTorch, 3>::from_primitive(
            burn::tensor::TensorPrimitive::Float(tensor),
        ))
    });
    (numbers.collect(), attended)
}

fn is_tiles(attended: &Attended) -> bool {
    matches!(attended, Attended::Tiles(_))
}

#[test]
fn tiles_are_all_weights() {
    let _held = generator();
    let f32 = ProductPrecision::F32;
    let weights = BATCH * 3 * QUERIES * KEYS;
    for (which, mask) in masks().iter().enumerate() {
        let (expected, kept) = outcome(mask.as_ref(), 0.0, weights, f32);
        assert!(matches!(kept, Attended::Weights { .. }));
        let (found, kept) = outcome(mask.as_ref(), 0.0, weights - 1, f32);
        assert!(is_tiles(&kept));
        assert_close(&format!("mask {which}"), &found, &expected);
    }
}

/// For given weights, the output is linear in the values, so that the dot product of the output and its gradient
/// equals that of the values and theirs, unless forward and backward pass drop different entries.
#[test]
fn the_same_entries_are_dropped_forward_and_backward() {
    let _held = generator();
    let f32 = ProductPrecision::F32;
    let Heads { n_heads, d_k, d_v } = HEADS;
    let [grad, key_value] = [
        values(plain::<LibTorch, 3>(4, [BATCH, QUERIES, n_heads * d_v])),
        values(plain::<LibTorch, 3>(
            2,
            [BATCH, KEYS, n_heads * (d_k + d_v)],
        )),
    ];
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    for (which, mask) in masks().iter().enumerate() {
        for most_weights in [usize::MAX, 0] {
            let (whole, _) = outcome(mask.as_ref(), 0.0, most_weights, f32);
            let (found, kept) = outcome(mask.as_ref(), 0.3, most_weights, f32);
            assert_eq!(is_tiles(&kept), most_weights == 0);
            assert_ne!(found[0], whole[0], "nothing is dropped");
            let width = n_heads * (d_k + d_v);
            let rows = key_value.chunks(width).zip(found[2].chunks(width));
            let of_values = rows.map(|(x, grad)| dot(&x[n_heads * d_k..], &grad[n_heads * d_k..]));
            let (of_values, of_output) = (of_values.sum::<f64>(), dot(&found[0], &grad));
            let case = format!("mask {which}: {of_values} and {of_output}");
            assert!((of_values - of_output).abs() < 1e-4, "{case}");
        }
    }
}

/// In bf16, with all weights and with tiles: as close to f32 as in attention's own test.
#[test]
fn bf16_is_off_by_its_roundings() {
    let _held = generator();
    let [f32, bf16] = [ProductPrecision::F32, ProductPrecision::Bf16];
    let norm = |numbers: &[f64]| numbers.iter().map(|x| x * x).sum::<f64>().sqrt();
    for (which, mask) in masks().iter().enumerate() {
        for most_weights in [usize::MAX, 0] {
            for p in [0.0, 0.3] {
                let (exact, _) = outcome(mask.as_ref(), p, most_weights, f32);
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
