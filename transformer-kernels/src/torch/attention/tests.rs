//! Attention in parts against attention at once.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Bool, TensorData};

use super::*;
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

fn packed() -> Packed<LibTorch> {
    let Heads { n_heads, d_k, d_v } = HEADS;
    Packed {
        query: numbers(1, [BATCH, QUERIES, n_heads * d_k]),
        key_value: Some(numbers(2, [BATCH, KEYS, n_heads * (d_k + d_v)])),
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

/// The output, and the gradients of the packed tensors.
fn outcome(
    mask: Option<&MaskTensors<LibTorch>>,
    p: f64,
    most_weights: usize,
) -> (Vec<Vec<f64>>, Attended) {
    LibTorch::seed(&Default::default(), 5);
    let packed = packed();
    let (output, attended) = forward(&packed, mask, p, most_weights);
    let grad = numbers(4, [BATCH, QUERIES, 3 * 5]);
    let wanted = AttentionParents {
        query: true,
        key_value: true,
    };
    let gradients = backward(&grad.tensor, &packed, mask, &attended, p, wanted);
    let tensors = [Some(output)].into_iter().chain(gradients).flatten();
    let numbers = tensors.map(|tensor| {
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
    for (which, mask) in masks().iter().enumerate() {
        for p in [0.0, 0.3] {
            let (expected, kept) = outcome(mask.as_ref(), p, usize::MAX);
            assert!(matches!(kept, Attended::Weights { .. }));
            for queries in [1, 4, QUERIES - 1] {
                let (found, kept) = outcome(mask.as_ref(), p, queries * of_query);
                // No weights, and nothing else of the size of the scores.
                assert!(matches!(kept, Attended::Nothing { tile, .. } if tile == queries));
                let case = format!("mask {which}, p {p}, {queries} at a time");
                assert_close(&case, &found, &expected);
            }
        }
    }
}
