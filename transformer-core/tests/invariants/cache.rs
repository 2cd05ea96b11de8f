//! Cached decoding: if the target is read in several calls, the logits are those of one call.

use crate::common::*;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};
use transformer_core::Transformer;
use transformer_core::nn::{
    AttentionInput, AttentionWeights, Cache, Context, LayerState, Mask, Memory,
};

const SOURCES: [&[u32]; 4] = [&[5, 3, 7, 12, 2], &[4, 2], &[9, 8, 11, 2], &[6, 6, 2]];
// One row ends early; one starts with a padded position, whose every key is blocked.
const TARGETS: [[u32; 6]; 4] = [
    [1, 8, 4, 10, 6, 5],
    [1, 3, 7, 0, 0, 0],
    [0, 1, 9, 9, 4, 8],
    [1, 5, 10, 7, 3, 2],
];

#[test]
fn token_by_token_is_all_at_once() {
    same_in_chunks::<NdArray>(&[1, 1, 1, 1, 1, 1]);
    same_in_chunks::<Flex>(&[1, 1, 1, 1, 1, 1]);
}

#[test]
fn several_tokens_at_a_time_is_all_at_once() {
    same_in_chunks::<NdArray>(&[2, 3, 1]);
    same_in_chunks::<Flex>(&[2, 3, 1]);
}

fn same_in_chunks<B: Backend>(chunks: &[usize]) {
    for config in variants() {
        let model = model::<B>(&config, 1);
        let memory = model.encode(tokens(&SOURCES));
        let mut cache = model.start_decoding(&memory);
        assert!(cache.is_empty());

        let parts = in_chunks(&model, &mut cache, tokens(&TARGETS), chunks);
        assert_eq!(cache.len(), 6);
        let whole = model.generate(model.decode(tokens(&TARGETS), &memory));
        assert_close(parts, whole, 1e-5);
    }
}

/// What a layer of one's own needs of attention to decode step by step.
#[test]
fn attention_with_a_state_is_attention_to_all() {
    let model = model::<NdArray>(&tiny(), 1);
    let layer = &model.decoder.layers[0];
    let (own, cross) = (&layer.self_attention, &layer.cross_attention);
    let (own, cross) = (own.as_ref().unwrap(), cross.as_ref().unwrap());
    let device = Default::default();
    let normal = Distribution::Normal(0.0, 1.0);
    let x = Tensor::<NdArray, 3>::random([4, 5, 12], normal, &device);

    let mask = Mask::causal(5, 5, &device);
    let whole = own.forward(x.clone(), Some(&mask), AttentionWeights::Discard);
    let mut known = None;
    let steps = x.clone().split(1, 1).into_iter().map(|step| {
        let attended = own.forward_after(step, &Context::default(), &mut known);
        attended.output
    });
    assert_close(Tensor::cat(steps.collect(), 1), whole.output, 1e-5);

    // Two rows for each of two sources.
    let memory = Tensor::<NdArray, 3>::random([2, 3, 12], normal, &device);
    let found = cross.forward_to(
        &cross.key_value(memory.clone()),
        x.clone(),
        &Context::default(),
    );
    let memory = memory.select(0, Tensor::from_data([0, 0, 1, 1], &device));
    let whole = cross.forward(AttentionInput::to_memory(x, memory));
    assert_close(found.output, whole.output, 1e-5);
}

#[test]
#[should_panic(expected = "a memory for a layer without cross-attention")]
fn an_encoder_does_not_ignore_a_memory() {
    let model = model::<NdArray>(&tiny(), 1);
    let memory = model.encode(tokens(&SOURCES)).hidden;
    let at = Context {
        memory: Some(&memory),
        ..Context::default()
    };
    model.encoder.forward(memory.clone(), &at);
}

/// Beyond the table of sinusoids, too.
#[test]
fn long_targets_are_cut_alike() {
    let config = transformer_core::TransformerConfig {
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..tiny()
    };
    let model = model::<NdArray>(&config, 2);
    let memory = model.encode(tokens(&SOURCES[..1]));
    let target: Vec<u32> = (0..530).map(|at| 1 + at * at % 10).collect();
    let target = tokens(&[target]);

    let mut cache = model.start_decoding(&memory);
    let parts = in_chunks(&model, &mut cache, target.clone(), &[510, 1, 1, 1, 17]);
    let whole = model.generate(model.decode(target, &memory));
    assert_close(parts, whole, 1e-4);
}

#[test]
fn rows_are_reordered_repeated_and_dropped() {
    rows_selected::<NdArray>();
    rows_selected::<Flex>();
}

fn rows_selected<B: Backend>() {
    for config in variants() {
        let model = model::<B>(&config, 3);
        let memory = model.encode(tokens(&SOURCES));
        let rows = [3, 0, 0, 2, 2];
        let next: [[u32; 3]; 5] = [[7, 3, 2], [9, 4, 4], [10, 6, 5], [3, 3, 2], [5, 0, 0]];

        let mut cache = model.start_decoding(&memory);
        in_chunks(&model, &mut cache, first_columns(&TARGETS, 3), &[1, 2]);
        cache.select(&rows, &rows);
        let parts = in_chunks(&model, &mut cache, tokens(&next), &[1, 2]);

        let chosen = Memory {
            hidden: memory.hidden.select(0, indices(&rows)),
            padding: memory.padding.select(0, indices(&rows)),
        };
        let targets: Vec<Vec<u32>> = rows
            .iter()
            .zip(next)
            .map(|(&row, next)| [&TARGETS[row][..3], &next].concat())
            .collect();
        let whole = model.generate(model.decode(tokens(&targets), &chosen));
        assert_close(parts, whole.slice([0..5, 3..6]), 1e-5);
    }
}

#[test]
fn rows_are_selected_before_the_first_token_too() {
    let model = model::<NdArray>(&tiny(), 4);
    let memory = model.encode(tokens(&SOURCES));
    let mut cache = model.start_decoding(&memory);
    cache.select(&[2, 1], &[2, 1]);
    let parts = in_chunks(&model, &mut cache, tokens(&[TARGETS[0], TARGETS[3]]), &[6]);

    let chosen = model.encode(tokens(&[SOURCES[2], SOURCES[1]]));
    let whole = model.generate(model.decode(tokens(&[TARGETS[0], TARGETS[3]]), &chosen));
    assert_close(parts, whole, 1e-5);
}

/// Several decodings at a time with one model do not change each other's caches.
#[test]
fn caches_are_independent() {
    let model = model::<NdArray>(&tiny(), 5);
    let memory = model.encode(tokens(&SOURCES));
    let mut cache = model.start_decoding(&memory);
    in_chunks(&model, &mut cache, first_columns(&TARGETS, 2), &[2]);

    let mut fork = cache.clone();
    let other = tokens(&[[9, 9], [9, 9], [9, 9], [9, 9]]);
    in_chunks(&model, &mut fork, other, &[1, 1]);
    assert_eq!((cache.len(), fork.len()), (2, 4));

    let rest = tokens::<NdArray>(&TARGETS).slice([0..4, 2..6]);
    let parts = in_chunks(&model, &mut cache, rest, &[4]);
    let whole = model.generate(model.decode(tokens(&TARGETS), &memory));
    assert_close(parts, whole.slice([0..4, 2..6]), 1e-5);
}

#[test]
fn attention_maps_are_the_same_cached_and_not() {
    let model = model::<NdArray>(&tiny(), 6);
    let memory = model.encode(tokens(&SOURCES));
    let mut cache = model.start_decoding(&memory);
    let whole = model.decode_next(tokens(&TARGETS), &mut cache, AttentionWeights::Return);
    assert_eq!(whole.self_attention.len(), 3);
    assert_eq!(whole.cross_attention.len(), 3);

    let mut cache = model.start_decoding(&memory);
    in_chunks(&model, &mut cache, first_columns(&TARGETS, 5), &[5]);
    let sixth = tokens::<NdArray>(&TARGETS).slice([0..4, 5..6]);
    let last = model.decode_next(sixth, &mut cache, AttentionWeights::Return);
    for layer in 0..3 {
        for (whole, last) in [
            (&whole.self_attention[layer], &last.self_attention[layer]),
            (&whole.cross_attention[layer], &last.cross_attention[layer]),
        ] {
            let [batch, n_heads, _, _] = whole.dims();
            let sixth = whole.clone().slice([0..batch, 0..n_heads, 5..6]);
            assert_close(sixth, last.clone(), 1e-5);
        }
    }
}

#[test]
#[should_panic(expected = "sequence length 17 exceeds the model's 16 learned positions")]
fn learned_positions_end() {
    let config = &variants()[1];
    let model = model::<NdArray>(config, 7);
    let memory = model.encode(tokens(&SOURCES[..1]));
    let mut cache = model.start_decoding(&memory);
    in_chunks(&model, &mut cache, tokens(&[[1; 17]]), &[16, 1]);
}

#[test]
#[should_panic(expected = "batch sizes of targets and memory")]
fn a_batch_of_another_size_is_refused() {
    let model = model::<NdArray>(&tiny(), 8);
    let memory = model.encode(tokens(&SOURCES));
    model.decode(tokens(&TARGETS[..1]), &memory);
}

/// The logits of calls with this many tokens each, side by side.
fn in_chunks<B: Backend>(
    model: &Transformer<B>,
    cache: &mut Cache<B, LayerState<B>>,
    targets: Tensor<B, 2, Int>,
    chunks: &[usize],
) -> Tensor<B, 3> {
    let [batch, tgt_len] = targets.dims();
    assert_eq!(chunks.iter().sum::<usize>(), tgt_len);
    let mut first = 0;
    let mut parts = Vec::new();
    for chunk in chunks {
        let next = targets.clone().slice([0..batch, first..first + chunk]);
        let output = model.decode_next(next, cache, AttentionWeights::Discard);
        parts.push(model.generate(output.hidden));
        first += chunk;
    }
    Tensor::cat(parts, 1)
}

fn first_columns<B: Backend>(rows: &[[u32; 6]], columns: usize) -> Tensor<B, 2, Int> {
    tokens(rows).slice([0..rows.len(), 0..columns])
}

fn indices<B: Backend>(rows: &[usize]) -> Tensor<B, 1, Int> {
    let rows: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    Tensor::from_data(rows.as_slice(), &B::Device::default())
}
