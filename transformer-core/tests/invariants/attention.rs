//! Attention, against its equation in plain loops of double precision.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Tensor, TensorData};
use rand::RngExt;
use transformer_core::nn::{
    AttentionConfig, AttentionInput, AttentionWeights, Dropout, Mask, WeightInit,
    scaled_dot_product_attention,
};

use crate::common::*;

/// Sizes of one call; every two of them differ in most of the cases drawn.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    n_heads: usize,
    query_len: usize,
    key_len: usize,
    d_k: usize,
    d_v: usize,
}

/// A mask, and the keys that it must block.
struct Case<B: Backend> {
    mask: Option<Mask<B>>,
    /// Indexed as `[batch, n_heads, query_len, key_len]`.
    blocked: Vec<bool>,
}

#[test]
fn attention_is_its_equation() {
    for seed in 0..40 {
        attention_of_seed::<NdArray>(seed);
        attention_of_seed::<Flex>(seed);
    }
}

fn attention_of_seed<B: Backend>(seed: u64) {
    let rng = &mut rng(seed);
    let query_len = rng.random_range(1..6);
    let sizes = Sizes {
        batch: rng.random_range(1..4),
        n_heads: rng.random_range(1..4),
        query_len,
        key_len: query_len + rng.random_range(0..4),
        d_k: rng.random_range(1..7),
        d_v: rng.random_range(1..7),
    };
    let Sizes {
        batch,
        n_heads,
        query_len,
        key_len,
        d_k,
        d_v,
    } = sizes;
    // Large scores, so that the softmax is far from uniform.
    let query = uniform::<B, 4>(rng, [batch, n_heads, query_len, d_k]) * 3.0;
    let key = uniform::<B, 4>(rng, [batch, n_heads, key_len, d_k]) * 3.0;
    let value = uniform::<B, 4>(rng, [batch, n_heads, key_len, d_v]);

    for case in cases::<B>(sizes, seed) {
        let (weights, output) = plain_attention(
            sizes,
            &values(query.clone()),
            &values(key.clone()),
            &values(value.clone()),
            &case.blocked,
        );
        let (found_output, found_weights) = scaled_dot_product_attention(
            query.clone(),
            key.clone(),
            value.clone(),
            case.mask.as_ref(),
            &Dropout::new(0.5),
        );
        let found = values(found_weights);
        assert_close(&found, &weights, 1e-5);
        assert_close(found_output, &output, 1e-5);

        for (weight, blocked) in found.iter().zip(&case.blocked) {
            assert!(!blocked || *weight == 0.0, "{weight} on a blocked key");
        }
        for (row, blocked) in found.chunks(key_len).zip(case.blocked.chunks(key_len)) {
            let sum: f64 = row.iter().sum();
            let expected = if blocked.iter().all(|&b| b) { 0.0 } else { 1.0 };
            assert!((sum - expected).abs() < 1e-5, "a row sums to {sum}");
        }
    }
}

/// One of each kind of mask, with the blocked keys computed from its definition.
fn cases<B: Backend>(sizes: Sizes, seed: u64) -> Vec<Case<B>> {
    let Sizes {
        batch,
        n_heads,
        query_len,
        key_len,
        ..
    } = sizes;
    let device = B::Device::default();
    let rng = &mut rng(seed + 1000);
    let mut flips = |count: usize| -> Vec<bool> { (0..count).map(|_| rng.random()).collect() };
    let padding = flips(batch * key_len);
    let any = flips(batch * n_heads * query_len * key_len);
    let per_head = flips(n_heads * key_len);

    let of = |blocked: &dyn Fn(usize, usize, usize, usize) -> bool| {
        let mut all = Vec::new();
        for b in 0..batch {
            for h in 0..n_heads {
                for i in 0..query_len {
                    all.extend((0..key_len).map(|j| blocked(b, h, i, j)));
                }
            }
        }
        all
    };
    let padding_tensor = || {
        Tensor::<B, 2, Bool>::from_data(TensorData::new(padding.clone(), [batch, key_len]), &device)
    };
    let future = |i: usize, j: usize| j + query_len > i + key_len;
    vec![
        Case {
            mask: None,
            blocked: of(&|_, _, _, _| false),
        },
        Case {
            mask: Some(Mask::padding(padding_tensor())),
            blocked: of(&|b, _, _, j| padding[b * key_len + j]),
        },
        Case {
            mask: Some(Mask::causal(query_len, key_len, &device)),
            blocked: of(&|_, _, i, j| future(i, j)),
        },
        Case {
            mask: Some(Mask::causal_padding(query_len, padding_tensor())),
            blocked: of(&|b, _, i, j| padding[b * key_len + j] || future(i, j)),
        },
        Case {
            mask: Some(Mask::from_blocked(Tensor::from_data(
                TensorData::new(any.clone(), [batch, n_heads, query_len, key_len]),
                &device,
            ))),
            blocked: any.clone(),
        },
        Case {
            mask: Some(Mask::from_blocked(Tensor::from_data(
                TensorData::new(per_head.clone(), [1, n_heads, 1, key_len]),
                &device,
            ))),
            blocked: of(&|_, h, _, j| per_head[h * key_len + j]),
        },
    ]
}

/// Weights and output of every head of every row.
fn plain_attention(
    sizes: Sizes,
    query: &[f64],
    key: &[f64],
    value: &[f64],
    blocked: &[bool],
) -> (Vec<f64>, Vec<f64>) {
    let Sizes {
        batch,
        n_heads,
        query_len,
        key_len,
        d_k,
        d_v,
    } = sizes;
    let (mut weights, mut output) = (Vec::new(), Vec::new());
    for head in 0..batch * n_heads {
        for i in head * query_len..(head + 1) * query_len {
            let keys = head * key_len..(head + 1) * key_len;
            let exponentials: Vec<f64> = keys
                .clone()
                .enumerate()
                .map(|(at, j)| {
                    if blocked[i * key_len + at] {
                        return 0.0;
                    }
                    let score: f64 = (0..d_k)
                        .map(|d| query[i * d_k + d] * key[j * d_k + d])
                        .sum();
                    (score / (d_k as f64).sqrt()).exp()
                })
                .collect();
            let sum: f64 = exponentials.iter().sum();
            let row: Vec<f64> = exponentials
                .iter()
                .map(|e| if sum == 0.0 { 0.0 } else { e / sum })
                .collect();
            output.extend((0..d_v).map(|d| {
                let terms = keys.clone().zip(&row);
                terms
                    .map(|(j, weight)| weight * value[j * d_v + d])
                    .sum::<f64>()
            }));
            weights.extend(row);
        }
    }
    (weights, output)
}

#[test]
#[should_panic(expected = "4 queries cannot be the last of 3 positions")]
fn more_queries_than_keys_are_refused() {
    Mask::<NdArray>::causal(4, 3, &Default::default());
}

#[test]
fn scores_of_any_size_leave_no_weight_on_a_blocked_key() {
    let query = Tensor::<NdArray, 4>::from_data([[[[1e4]]]], &Default::default());
    let key = Tensor::from_data([[[[1e4], [-1e4]]]], &Default::default());
    let value = Tensor::from_data([[[[3.0], [5.0]]]], &Default::default());
    let blocked = Tensor::from_data([[[[true, false]]]], &Default::default());
    let (output, weights) = scaled_dot_product_attention(
        query,
        key,
        value,
        Some(&Mask::from_blocked(blocked)),
        &Dropout::new(0.0),
    );
    assert_close(weights, &vec![0.0, 1.0], 0.0);
    assert_close(output, &vec![5.0], 0.0);
}

const D_MODEL: usize = 6;
const N_HEADS: usize = 3;
const D_K: usize = 4;
const D_V: usize = 5;

fn config() -> AttentionConfig {
    AttentionConfig::new(D_MODEL, N_HEADS)
        .with_d_k(Some(D_K))
        .with_d_v(Some(D_V))
        .with_bias(true)
}

#[test]
fn self_attention_is_its_heads_one_by_one() {
    let device = Default::default();
    let layer = config().init_self_from::<NdArray>(&mut WeightInit::new(1), &device);
    let layer = shaken(layer, 1);
    let x = uniform(&mut rng(2), [2, 4, D_MODEL]);
    let padding = tokens::<NdArray>(&[[7, 7, 7, 7], [7, 7, 0, 7]]).equal_elem(0);
    let mask = Mask::causal_padding(4, padding);

    let found = layer.forward(x.clone(), Some(&mask), AttentionWeights::Return);

    let packed = &layer.query_key_value;
    let (keys, values) = (N_HEADS * D_K, 2 * N_HEADS * D_K);
    let heads: Vec<_> = (0..N_HEADS)
        .map(|head| Head {
            query: columns(packed, head * D_K, D_K),
            key: columns(packed, keys + head * D_K, D_K),
            value: columns(packed, values + head * D_V, D_V),
            output: output_rows(&layer.heads.projection, head),
        })
        .collect();
    let (expected, weights) = head_by_head(&heads, &layer.heads.projection, &x, &x, &mask);
    assert_close(found.output, expected, 1e-5);
    assert_close(found.weights.unwrap(), weights, 1e-5);
}

#[test]
fn cross_attention_is_its_heads_one_by_one() {
    let device = Default::default();
    let layer = config().init_from::<NdArray>(&mut WeightInit::new(3), &device);
    let layer = shaken(layer, 3);
    let x = uniform(&mut rng(4), [2, 3, D_MODEL]);
    let memory = uniform(&mut rng(5), [2, 5, D_MODEL]);
    let padding = tokens::<NdArray>(&[[7, 7, 7, 7, 7], [7, 7, 7, 0, 0]]).equal_elem(0);
    let mask = Mask::padding(padding);

    let input = AttentionInput::to_memory(x.clone(), memory.clone());
    let found = layer.forward(input.mask(&mask).with_weights());

    let heads: Vec<_> = (0..N_HEADS)
        .map(|head| Head {
            query: columns(&layer.query, head * D_K, D_K),
            key: columns(&layer.key_value, head * D_K, D_K),
            value: columns(&layer.key_value, N_HEADS * D_K + head * D_V, D_V),
            output: output_rows(&layer.heads.projection, head),
        })
        .collect();
    let (expected, weights) = head_by_head(&heads, &layer.heads.projection, &x, &memory, &mask);
    assert_close(found.output, expected, 1e-5);
    assert_close(found.weights.unwrap(), weights, 1e-5);
}

/// Keys of one sequence, values of another: the weights depend on the keys only, and the output is the
/// values' sum with these weights.
#[test]
fn keys_and_values_may_differ() {
    let device = Default::default();
    let layer = config().init_from::<NdArray>(&mut WeightInit::new(3), &device);
    let layer = shaken(layer, 3);
    let [x, key, value] =
        [(4, 3), (5, 5), (6, 5)].map(|(seed, len)| uniform(&mut rng(seed), [2, len, D_MODEL]));
    let attend = |key: &Tensor<NdArray, 3>, value: &Tensor<NdArray, 3>| {
        let input = AttentionInput::new(x.clone(), key.clone(), value.clone());
        layer.forward(input.with_weights())
    };
    let found = attend(&key, &value);
    let same = AttentionInput::to_memory(x.clone(), key.clone());
    let same = layer.forward(same.with_weights());
    assert_close(found.weights.clone().unwrap(), same.weights.unwrap(), 1e-6);
    assert_close(attend(&key, &key).output, same.output, 1e-6);

    // softmax(Q Kᵀ) (V W^V + b) W^O + c, from the weights.
    let values_of_head = |head| columns(&layer.key_value, N_HEADS * D_K + head * D_V, D_V);
    let bias = layer.heads.projection.bias.as_ref().unwrap().val();
    let mut expected = bias.unsqueeze::<3>().expand([2, 3, D_MODEL]);
    for head in 0..N_HEADS {
        let weights = found.weights.clone().unwrap().slice_dim(1, head..head + 1);
        let of_head = values_of_head(head).forward(value.clone());
        expected = expected
            + weights
                .squeeze_dim::<3>(1)
                .matmul(of_head)
                .matmul(output_rows(&layer.heads.projection, head).unsqueeze());
    }
    assert_close(found.output, expected, 1e-5);
}

/// One head's own projections: `head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)` (§3.2.2).
struct Head {
    query: Linear<NdArray>,
    key: Linear<NdArray>,
    value: Linear<NdArray>,
    /// The rows of `W^O` that read this head.
    output: Tensor<NdArray, 2>,
}

/// The sum over heads of each head's contribution to the output, and the heads' weights side by side.
fn head_by_head(
    heads: &[Head],
    projection: &Linear<NdArray>,
    x: &Tensor<NdArray, 3>,
    memory: &Tensor<NdArray, 3>,
    mask: &Mask<NdArray>,
) -> (Tensor<NdArray, 3>, Tensor<NdArray, 4>) {
    let [batch, len, d_model] = x.dims();
    let bias = projection.bias.as_ref().unwrap().val();
    let mut output = bias.unsqueeze::<3>().expand([batch, len, d_model]);
    let mut weights = Vec::new();
    for head in heads {
        let (of_head, weights_of_head) = scaled_dot_product_attention(
            head.query.forward(x.clone()).unsqueeze_dim(1),
            head.key.forward(memory.clone()).unsqueeze_dim(1),
            head.value.forward(memory.clone()).unsqueeze_dim(1),
            Some(mask),
            &Dropout::new(0.0),
        );
        output = output
            + of_head
                .squeeze_dim::<3>(1)
                .matmul(head.output.clone().unsqueeze());
        weights.push(weights_of_head);
    }
    (output, Tensor::cat(weights, 1))
}

/// The linear layer that computes `width` of the outputs of a packed one, from `first` on.
fn columns(packed: &Linear<NdArray>, first: usize, width: usize) -> Linear<NdArray> {
    let mut part = packed.clone();
    part.weight = part.weight.map(|w| w.slice_dim(1, first..first + width));
    part.bias = part
        .bias
        .map(|bias| bias.map(|b| b.slice([first..first + width])));
    part
}

fn output_rows(projection: &Linear<NdArray>, head: usize) -> Tensor<NdArray, 2> {
    projection
        .weight
        .val()
        .slice([head * D_V..(head + 1) * D_V])
}

/// `W^O` has the heads' values as input; the packed projection has exactly its three parts.
#[test]
fn projections_have_the_sizes_of_the_paper() {
    let device = Default::default();
    let layer = config().init_self_from::<NdArray>(&mut WeightInit::new(1), &device);
    let width = N_HEADS * (2 * D_K + D_V);
    assert_eq!(layer.query_key_value.weight.dims(), [D_MODEL, width]);
    assert_eq!(
        layer.heads.projection.weight.dims(),
        [N_HEADS * D_V, D_MODEL]
    );
    assert_eq!(
        layer.num_params(),
        D_MODEL * width + width + N_HEADS * D_V * D_MODEL + D_MODEL
    );
}
