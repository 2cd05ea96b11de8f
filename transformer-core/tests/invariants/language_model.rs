//! The language model: causal, the same cached and not, and decoded like any other model.

use burn::tensor::Tensor;
use transformer_core::decoding::{
    Ensemble, MaxLength, Sampling, SourceTarget, cross_attention, greedy, score,
};
use transformer_core::models::WeightTying;
use transformer_core::nn::{
    Activation, AttentionWeights, Mixer, NormKind, NormPlacement, Positions,
};
use transformer_core::{DecodeOptions, LanguageModel, Request, Search, TransformerConfig};

use crate::common::*;

const SEQUENCES: [[u32; 5]; 3] = [[1, 5, 3, 7, 9], [1, 4, 8, 8, 6], [1, 9, 3, 0, 0]];

fn config() -> TransformerConfig {
    TransformerConfig {
        d_model: 12,
        n_heads: 2,
        d_k: Some(3),
        d_v: Some(5),
        d_ff: 14,
        n_decoder_layers: 2,
        attention_bias: true,
        generator_bias: true,
        tying: WeightTying::None,
        attention_dropout: 0.2,
        activation_dropout: 0.3,
        ..TransformerConfig::language_model(11)
    }
}

fn variants() -> Vec<TransformerConfig> {
    let pre_norm = TransformerConfig {
        norm: NormPlacement::Pre,
        final_norm: true,
        positions: Positions::Learned { max_len: 16 },
        tying: WeightTying::TargetGenerator,
        ..config()
    };
    let relative = TransformerConfig {
        positions: Positions::RelativeBias {
            buckets: 4,
            max_distance: 3,
        },
        ..config()
    };
    let alibi = TransformerConfig {
        positions: Positions::Alibi,
        ..config()
    };
    let recurrent = TransformerConfig {
        decoder_mixer: Mixer::Recurrence,
        ..config()
    };
    let llama = TransformerConfig {
        norm: NormPlacement::Pre,
        final_norm: true,
        layer_norm: NormKind::RootMeanSquare,
        positions: Positions::Rotary { base: 100.0 },
        n_kv_heads: Some(1),
        d_k: Some(4),
        activation: Activation::Silu,
        gated: true,
        feed_forward_bias: false,
        attention_bias: false,
        generator_bias: false,
        ..config()
    };
    vec![config(), pre_norm, relative, alibi, recurrent, llama]
}

fn model(config: &TransformerConfig, seed: u64) -> LanguageModel<NdArray> {
    shaken(
        config
            .init_language_model(seed, &Default::default())
            .unwrap(),
        seed,
    )
}

#[test]
fn a_later_token_changes_nothing_before_it() {
    for config in variants() {
        let model = model(&config, 1);
        let before = model.forward(tokens(&SEQUENCES));
        for changed in 1..5 {
            let mut others = SEQUENCES;
            others.iter_mut().for_each(|row| row[changed] = 10);
            let after = model.forward(tokens(&others));
            let [first, last] = [&before, &after].map(|x| x.clone().slice_dim(1, 0..changed));
            assert_close(first, last, 1e-6);
            let [at, other] = [&before, &after].map(|x| values(x.clone().slice_dim(1, changed..5)));
            assert!(largest_difference(&at, &other) > 1e-3);
        }
    }
}

#[test]
fn padding_changes_nothing_before_it() {
    let model = model(&config(), 2);
    let padded = model.forward(tokens(&[SEQUENCES[2]]));
    let short = model.forward(tokens(&[[1, 9, 3]]));
    assert_close(padded.slice_dim(1, 0..3), short, 1e-6);
}

#[test]
fn token_by_token_is_all_at_once() {
    for config in variants() {
        let model = model(&config, 3);
        let mut cache = model.start_decoding(3);
        let parts = (0..5).map(|at| {
            let column = tokens::<NdArray>(&SEQUENCES).slice_dim(1, at..at + 1);
            let output = model.decode_next(column, &mut cache, AttentionWeights::Return);
            let layers = match config.decoder_mixer {
                Mixer::SelfAttention => 2,
                Mixer::Recurrence => 0,
            };
            assert_eq!(output.self_attention.len(), layers);
            for weights in &output.self_attention {
                assert_eq!(weights.dims(), [3, 2, 1, at + 1]);
            }
            assert!(output.cross_attention.is_empty());
            model.generate(output.hidden)
        });
        let parts = Tensor::cat(parts.collect(), 1);
        assert_close(parts, model.forward(tokens(&SEQUENCES)), 1e-5);
    }
}

/// Greedy decoding without cache or batch.
fn argmax_loop(model: &LanguageModel<NdArray>, prompt: &[u32], limit: usize) -> (Vec<u32>, bool) {
    let mut sequence = [&[1], prompt].concat();
    while sequence.len() <= limit {
        let logits = values(model.forward(tokens(&[&sequence])));
        let last = &logits[logits.len() - 11..];
        let best = (0..11).max_by(|&a, &b| last[a].total_cmp(&last[b]));
        match best.unwrap() as u32 {
            2 => return (sequence[1..].to_vec(), true),
            token => sequence.push(token),
        }
    }
    (sequence[1..].to_vec(), false)
}

#[test]
fn greedy_goes_on_from_prompts_of_any_length() {
    for config in variants() {
        for seed in 0..4 {
            let model = model(&config, seed);
            let prompts = [&[5, 3, 7][..], &[], &[9], &[4, 4, 4, 4, 4, 4]];
            let requests = prompts.map(Request::prompt);
            let found = greedy(&model, &requests, MaxLength::Tokens(9)).unwrap();
            for (prompt, found) in prompts.iter().zip(found) {
                let expected = argmax_loop(&model, prompt, 9);
                assert_eq!((found.tokens, found.finished), expected);
            }
            // Without a source its length is the prompt's.
            let found = greedy(&model, &requests, MaxLength::SourcePlus(2)).unwrap();
            for (prompt, found) in prompts.iter().zip(found) {
                let expected = argmax_loop(&model, prompt, prompt.len() + 2);
                assert_eq!((found.tokens, found.finished), expected);
            }
        }
    }
}

/// log P of a sequence after `<bos>`, in double precision from the logits.
fn log_prob(model: &LanguageModel<NdArray>, sequence: &[u32]) -> f64 {
    let read = [&[1], &sequence[..sequence.len() - 1]].concat();
    let logits = values(model.forward(tokens(&[&read])));
    let rows = logits.chunks(11).zip(sequence);
    rows.map(|(row, &token)| {
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        row[token as usize] - sum.ln()
    })
    .sum()
}

#[test]
fn every_strategy_has_the_log_probabilities_of_the_model() {
    let model = model(&config(), 5);
    let sampling = DecodeOptions::sample(Sampling::default());
    for options in [DecodeOptions::greedy(), DecodeOptions::beam(3), sampling] {
        let options = DecodeOptions {
            max_length: MaxLength::Tokens(6),
            ..options
        };
        let requests = [Request::prompt([5, 3]), Request::prompt([8])];
        let found = Search::new(&model, options)
            .unwrap()
            .run(&requests)
            .unwrap();
        for (hypothesis, prompt) in found.into_iter().flatten().zip([&[5, 3][..], &[8]]) {
            let end: &[u32] = if hypothesis.finished { &[2] } else { &[] };
            let sequence = [&hypothesis.tokens, end].concat();
            let expected = log_prob(&model, &sequence);
            // The prompt is not predicted.
            let continuation = expected - log_prob(&model, prompt);
            assert_close(&vec![hypothesis.log_prob], &vec![continuation], 1e-4);
            let pair = SourceTarget::exact([], sequence);
            let scored = score(&model, &[pair], 64).unwrap()[0].log_prob();
            assert_close(&vec![scored], &vec![expected], 1e-5);
        }
    }
}

/// Samples of different prompts draw different numbers, those of one prompt the same.
#[test]
fn samples_depend_on_the_prompt_and_the_seed() {
    let model = model(&config(), 6);
    let drawn = |prompts: &[&[u32]], seed| {
        let options = DecodeOptions {
            max_length: MaxLength::Tokens(12),
            min_length: 12,
            ..DecodeOptions::sample(Sampling {
                seed,
                temperature: 5.0,
                ..Sampling::default()
            })
        };
        let requests: Vec<_> = prompts
            .iter()
            .map(|&prompt| Request::prompt(prompt))
            .collect();
        let found = Search::new(&model, options)
            .unwrap()
            .run(&requests)
            .unwrap();
        let tails = found.into_iter().flatten().map(|found| found.tokens);
        tails.collect::<Vec<_>>()
    };
    let both = drawn(&[&[5, 3], &[8, 4]], 1);
    assert_eq!(drawn(&[&[8, 4]], 1)[0], both[1]);
    assert_ne!(both[0][2..], both[1][2..]);
    assert_ne!(drawn(&[&[8, 4]], 2)[0], both[1]);
}

#[test]
fn language_models_make_ensembles() {
    let [first, second] = [1, 2].map(|seed| model(&config(), seed));
    let ensemble = Ensemble::new(vec![&first, &second]).unwrap();
    let sequence = [5, 3, 7, 2];
    let pair = SourceTarget::exact([], sequence);
    let found = score(&ensemble, &[pair], 64).unwrap()[0].log_probs.clone();
    for at in 0..4 {
        let up_to = |model| log_prob(model, &sequence[..=at]);
        let before = |model| match at {
            0 => 0.0,
            at => log_prob(model, &sequence[..at]),
        };
        let probs = [&first, &second].map(|model| (up_to(model) - before(model)).exp());
        let mean = (probs[0] + probs[1]) / 2.0;
        assert_close(&vec![f64::from(found[at])], &vec![mean.ln()], 1e-5);
    }
}

#[test]
fn invalid_requests_are_named() {
    let model = model(&config(), 1);
    let error = greedy(&model, &[Request::new([5])], MaxLength::default()).unwrap_err();
    let expected = "source 0 has 2 source tokens, but the model reads no source";
    assert_eq!(error.to_string(), expected);
    let error = greedy(&model, &[Request::prompt([11])], MaxLength::default()).unwrap_err();
    let expected = "source 0 has a prefix with token 11, outside the vocabulary of 11";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn its_parameters_are_counted_without_building_it() {
    use burn::module::Module;
    for config in variants() {
        let model = model(&config, 1);
        assert_eq!(config.num_params(), model.num_params() as u128);
    }
}

#[test]
fn it_has_no_attention_to_sources() {
    let pairs = [[5, 6], [7, 8]].map(|target| SourceTarget::exact([], target));
    let found = cross_attention(&model(&config(), 1), &pairs, 100).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|pair| pair.weights.is_empty()));
}
