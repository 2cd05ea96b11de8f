//! The start token: where it is `<pad>` or `<eos>`, a target is read as with a separate start token.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use transformer_core::decoding::{MaxLength, Sampling, SourceTarget, score};
use transformer_core::models::WeightTying;
use transformer_core::nn::AttentionWeights;
use transformer_core::{DecodeOptions, LanguageModel, Search, Transformer, TransformerConfig};

use crate::common::*;

const SOURCES: [&[u32]; 3] = [&[5, 3, 7, 12, 2], &[4, 2], &[9, 8, 11, 2]];
/// Without a start token.
const TARGETS: [&[u32]; 3] = [&[8, 4], &[3, 3, 7, 9, 4, 8], &[10, 6, 5]];

/// The ids of `<pad>` and `<eos>`.
const SHARED: [u32; 2] = [0, 2];

/// A model whose start token is `bos`, and the one whose start token is 1, with the same weights: the vector of `bos`
/// is that of token 1.
fn models<B: Backend>(config: &TransformerConfig, bos: u32) -> [Transformer<B>; 2] {
    let separate = model::<B>(config, 1);
    let shared = TransformerConfig {
        bos_id: bos,
        ..config.clone()
    };
    let mut shared = model::<B>(&shared, 1);
    let embedding = shared.tgt_embedding.as_mut().unwrap();
    let weight = embedding.weight.clone();
    embedding.weight = weight.map(|table| with_start(table, bos));
    [shared, separate]
}

fn with_start<B: Backend>(table: Tensor<B, 2>, bos: u32) -> Tensor<B, 2> {
    let start = table.clone().slice([1..2]);
    let bos = bos as usize;
    table.slice_assign([bos..bos + 1], start)
}

fn read(bos: u32) -> Vec<Vec<u32>> {
    TARGETS.map(|target| [&[bos], target].concat()).to_vec()
}

#[test]
fn a_start_token_that_pads_or_ends_is_read_as_any_other() {
    read_as_any_other::<NdArray>();
    read_as_any_other::<Flex>();
}

fn read_as_any_other<B: Backend>() {
    for config in variants() {
        for bos in SHARED {
            let [shared, separate] = models::<B>(&config, bos);
            let found = shared.forward(tokens(&SOURCES), tokens(&read(bos)));
            let expected = separate.forward(tokens(&SOURCES), tokens(&read(1)));
            for (row, target) in TARGETS.iter().enumerate() {
                let real = [row..row + 1, 0..target.len() + 1];
                let expected = expected.clone().slice(real.clone());
                assert_close(found.clone().slice(real), expected, 1e-5);
            }
        }
    }
}

#[test]
fn a_start_token_that_pads_is_read_alike_in_parts_and_at_once() {
    for config in variants() {
        let [model, _] = models::<NdArray>(&config, 0);
        let memory = model.encode(tokens(&SOURCES));
        let targets = tokens::<NdArray>(&read(0));
        let whole = model.decode(targets.clone(), &memory);
        for parts in [&[1; 7][..], &[3, 4], &[1, 6]] {
            let mut cache = model.start_decoding(&memory);
            let mut first = 0;
            for part in parts {
                let range = first..first + part;
                let next = targets.clone().slice_dim(1, range.clone());
                let output = model.decode_next(next, &mut cache, AttentionWeights::Discard);
                let expected = whole.clone().slice_dim(1, range.clone());
                assert_close(output.hidden, expected, 1e-5);
                first = range.end;
            }
        }
    }
}

/// Targets side by side from the first token on.
#[test]
fn each_of_several_targets_attends_to_its_start_token() {
    let targets = [[8, 4], [9, 9], [3, 10], [8, 2], [5, 7], [7, 7]];
    let with = |bos: u32| targets.map(|[first, second]| [bos, first, second]);
    for config in variants() {
        let [shared, separate] = models::<NdArray>(&config, 0);
        let hidden = |model: &Transformer<NdArray>, targets: [[u32; 3]; 6]| {
            let memory = model.encode(tokens(&SOURCES[..2]));
            let mut cache = model.start_decoding(&memory);
            let output = model.decode_next(tokens(&targets), &mut cache, AttentionWeights::Discard);
            output.hidden
        };
        assert_close(hidden(&shared, with(0)), hidden(&separate, with(1)), 1e-5);
    }
}

#[test]
fn every_strategy_finds_the_same() {
    for config in variants() {
        for bos in SHARED {
            let [shared, separate] = models::<NdArray>(&config, bos);
            for options in [
                DecodeOptions::greedy(),
                DecodeOptions::beam(3),
                DecodeOptions::sample(Sampling::default()),
            ] {
                let options = DecodeOptions {
                    max_length: MaxLength::SourcePlus(3),
                    // Within a target, the token that pads is padding.
                    banned_tokens: vec![0],
                    ..options
                };
                let find = |model: &Transformer<NdArray>| {
                    let search = Search::new(model, options.clone()).unwrap();
                    search.run(&exact(&SOURCES)).unwrap().concat()
                };
                let (found, expected) = (find(&shared), find(&separate));
                assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(&expected) {
                    assert_eq!(found.tokens, expected.tokens);
                    assert_close(&vec![found.log_prob], &vec![expected.log_prob], 1e-5);
                }
            }
        }
    }
}

#[test]
fn scores_and_attention_maps_are_the_same() {
    for bos in SHARED {
        let [shared, separate] = models::<NdArray>(&tiny(), bos);
        let pairs = SOURCES.iter().zip(TARGETS);
        let pairs: Vec<_> = pairs
            .map(|(&source, target)| SourceTarget::exact(source, [target, &[2]].concat()))
            .collect();
        let [found, expected] =
            [&shared, &separate].map(|model| score(model, &pairs, 100).unwrap());
        for (found, expected) in found.iter().zip(&expected) {
            let [found, expected] = [found, expected].map(|score| {
                let log_probs = score.log_probs.iter();
                log_probs.copied().map(f64::from).collect::<Vec<_>>()
            });
            assert_close(&found, &expected, 1e-5);
        }
        let [found, expected] =
            [&shared, &separate].map(|model| model.attention_maps(&pairs[0]).unwrap());
        assert_eq!(found.target, [bos, 8, 4]);
        for (found, expected) in found.decoder.into_iter().zip(expected.decoder) {
            assert_close(found, expected, 1e-5);
        }
    }
}

#[test]
fn a_language_model_may_start_with_the_token_that_pads() {
    let new = |bos_id| -> LanguageModel<NdArray> {
        let config = TransformerConfig {
            d_model: 12,
            n_heads: 2,
            d_ff: 14,
            n_decoder_layers: 2,
            tying: WeightTying::None,
            bos_id,
            ..TransformerConfig::language_model(11)
        };
        shaken(
            config.init_language_model(2, &Default::default()).unwrap(),
            2,
        )
    };
    let (mut shared, separate) = (new(0), new(1));
    let weight = shared.embedding.weight;
    shared.embedding.weight = weight.map(|table| with_start(table, 0));
    let found = shared.forward(tokens(&read(0)));
    let expected = separate.forward(tokens(&read(1)));
    for (row, target) in TARGETS.iter().enumerate() {
        let real = [row..row + 1, 0..target.len() + 1];
        let expected = expected.clone().slice(real.clone());
        assert_close(found.clone().slice(real), expected, 1e-5);
    }
}
