//! Packed models: in single precision they decode as the model does, in 8 bits nearly so, and a row's numbers depend
//! on its own tokens only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use burn::tensor::backend::Backend;
use rayon::ThreadPoolBuilder;
use transformer_core::decoding::{
    Ensemble, Hypothesis, MaxLength, Next, NextToken, RequestProblem, Sampling, Shortlist,
    SourceTarget, Threads, Vocabulary, greedy, score,
};
use transformer_core::models::WeightTying;
use transformer_core::nn::{
    Activation, AttentionWeights, Mixer, NormKind, NormPlacement, Positions,
};
use transformer_core::packed::{PackedPrecision, PackedState};
use transformer_core::{
    DecodeOptions, PackedModel, Request, Search, Transformer, TransformerConfig,
};

use crate::common::*;

/// With a token 0 inside, which most configurations take for padding.
const SOURCES: [&[u32]; 4] = [&[5, 3, 7, 10, 2], &[4, 2], &[9, 0, 8, 2], &[6, 6, 2]];

/// [`variants`], and a model of other sizes with every other key at some other value.
fn configs() -> Vec<TransformerConfig> {
    let tied = TransformerConfig {
        d_model: 16,
        n_heads: 4,
        d_ff: 20,
        n_encoder_layers: 1,
        n_decoder_layers: 2,
        ..TransformerConfig::base(11)
    };
    let mut configs = variants();
    configs.extend([
        tied.clone(),
        TransformerConfig {
            tying: WeightTying::SourceTarget,
            activation: Activation::Gelu,
            generator_bias: true,
            ..tied.clone()
        },
        TransformerConfig {
            tying: WeightTying::TargetGenerator,
            src_vocab_size: 13,
            tgt_vocab_size: 12,
            activation: Activation::Silu,
            ..tied.clone()
        },
        TransformerConfig {
            layer_norm: NormKind::UnbiasedDeviation,
            layer_norm_eps: 1e-3,
            embedding_scale: false,
            ..tied.clone()
        },
        TransformerConfig {
            norm: NormPlacement::Pre,
            final_norm: true,
            embedding_norm: true,
            layer_norm: NormKind::RootMeanSquare,
            layer_norm_eps: 1e-3,
            activation: Activation::Silu,
            gated: true,
            feed_forward_bias: false,
            n_kv_heads: Some(2),
            positions: Positions::Rotary { base: 100.0 },
            ..tied.clone()
        },
        TransformerConfig {
            activation: Activation::GeluTanh,
            gated: true,
            decoder_d_ff: Some(9),
            n_heads: 2,
            decoder_n_heads: Some(6),
            n_kv_heads: Some(2),
            d_k: Some(8),
            d_v: Some(3),
            attention_bias: true,
            ..tied.clone()
        },
        TransformerConfig {
            norm: NormPlacement::Pre,
            positions: Positions::SinesThenCosines {
                inclusive: false,
                first: 0,
            },
            excluded_tokens: vec![0, 7],
            ..tied.clone()
        },
        // The start token pads, or ends.
        TransformerConfig {
            bos_id: 0,
            attention_bias: true,
            ..tied.clone()
        },
        TransformerConfig {
            bos_id: 2,
            d_k: Some(5),
            ..tied.clone()
        },
        TransformerConfig {
            pad_id: 3,
            bos_id: 4,
            eos_id: 5,
            ..tied
        },
    ]);
    configs
}

#[test]
fn every_key_of_the_configuration_is_tried() {
    let configs = configs();
    let configs = configs
        .iter()
        .map(|config| serde_json::to_value(config).unwrap());
    let configs: Vec<_> = configs.collect();
    let mut tried: BTreeMap<&String, BTreeSet<String>> = BTreeMap::new();
    for config in &configs {
        for key in config.as_object().unwrap().keys() {
            let values = configs.iter().map(|config| config[key].to_string());
            tried.entry(key).or_default().extend(values);
        }
    }
    for (key, values) in tried {
        // A packed model drops nothing out.
        if !key.ends_with("dropout") {
            assert!(values.len() > 1, "`{key}` is {values:?} only");
        }
    }
}

fn packed<B: Backend>(model: &Transformer<B>, precision: PackedPrecision) -> PackedModel {
    PackedModel::new(model.clone(), precision)
}

/// The sources and rows that are kept before a step, and the tokens that it reads.
type Step = (&'static [usize], &'static [usize], &'static [u32]);

const STEPS: [Step; 6] = [
    // Two targets of each source.
    (
        &[0, 1, 2, 3],
        &[0, 0, 1, 1, 2, 2, 3, 3],
        &[8, 3, 3, 9, 10, 6, 5, 5],
    ),
    // Targets change places, one replaces the other; some go on with a token that pads.
    (
        &[0, 1, 2, 3],
        &[1, 0, 3, 2, 4, 5, 7, 7],
        &[4, 0, 10, 7, 0, 9, 3, 6],
    ),
    // Another order, without the second source.
    (&[3, 0, 2], &[7, 6, 0, 1, 5, 5], &[0, 4, 6, 6, 9, 1]),
    // A source twice.
    (&[1, 1, 2], &[3, 2, 2, 3, 4, 5], &[5, 8, 3, 10, 4, 4]),
    // Three targets of one source, then one.
    (&[2], &[5, 4, 5], &[7, 8, 2]),
    (&[0], &[2], &[3]),
];

/// The log-probabilities and the attention of [`STEPS`], after a first step.
fn decoded<M: NextToken>(model: &M) -> Vec<[Vec<f64>; 2]> {
    let mut state = model.start(&SOURCES, Threads::All);
    let step = |state: &mut M::State, tokens: &[u32]| {
        let output = model.next(tokens, state, AttentionWeights::Return);
        let attention = output.attention.expect("attention to the sources");
        [finite(doubles(output.log_probs)), doubles(attention)]
    };
    let bos = model.vocabulary().special_tokens.bos;
    let mut found = vec![step(&mut state, &[bos; 4])];
    for (sources, rows, tokens) in STEPS {
        model.select(&mut state, sources, rows);
        found.push(step(&mut state, tokens));
    }
    found
}

fn doubles(numbers: Vec<f32>) -> Vec<f64> {
    numbers.into_iter().map(f64::from).collect()
}

/// The same numbers, with one far from all others in place of −∞.
fn finite(mut log_probs: Vec<f64>) -> Vec<f64> {
    for log_prob in &mut log_probs {
        if *log_prob == f64::NEG_INFINITY {
            *log_prob = -1e9;
        }
    }
    log_probs
}

#[test]
fn in_single_precision_it_decodes_as_the_model_does() {
    decodes_as_the_model::<NdArray>();
    decodes_as_the_model::<Flex>();
}

fn decodes_as_the_model<B: Backend>() {
    // The model adds in another order. Log-probabilities reach -50, in which a rounding is 4e-6.
    let bound = 3e-5;
    for config in configs() {
        let model = model::<B>(&config, 1);
        let packed = packed(&model, PackedPrecision::F32);
        assert_eq!(packed.config(), &config);
        assert_eq!(packed.precision(), PackedPrecision::F32);
        let (found, expected) = (decoded(&packed), decoded(&model));
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert_close(found, expected, bound);
        }
    }
}

/// A number in 8 bits is off by up to 1/254 of the largest of its row. In 600 models of these sizes, simulated in
/// double precision, log-probabilities were off by up to 0.23, in the mean of a model by up to 0.06; they differ
/// from each other by 1.2. Here the most is 0.55, without a norm before the logits.
#[test]
fn in_8_bits_it_decodes_nearly_as_the_model_does() {
    for config in configs() {
        let model = model::<NdArray>(&config, 1);
        let packed = packed(&model, PackedPrecision::Int8);
        assert_eq!(packed.precision(), PackedPrecision::Int8);
        let (found, expected) = (decoded(&packed), decoded(&model));
        let [mut sum, mut count, mut most] = [0.0, 0.0, 0.0_f64];
        for ([found, _], [expected, _]) in found.iter().zip(&expected) {
            for (found, expected) in found.iter().zip(expected) {
                let error = (found - expected).abs();
                assert!(error.is_finite());
                (sum, count, most) = (sum + error, count + 1.0, most.max(error));
            }
        }
        let mean = sum / count;
        assert!(mean < 0.1 && most < 0.7, "{mean}, {most}: {config:?}");
        // The other bits are gone.
        assert!(most > 1e-4, "{most}: {config:?}");
    }
}

#[test]
fn searches_find_the_same() {
    let beam = DecodeOptions {
        n_best: 3,
        coverage_penalty: 0.2,
        ..DecodeOptions::beam(3)
    };
    for config in configs() {
        let models = [2, 3].map(|seed| model::<NdArray>(&config, seed));
        let packed = models.each_ref().map(packed_f32);
        let renormalized = DecodeOptions {
            no_repeat_ngram: 1,
            repetition_penalty: 1.3,
            renormalize: true,
            ..beam.clone()
        };
        for options in [DecodeOptions::greedy(), beam.clone(), renormalized] {
            let options = DecodeOptions {
                max_length: MaxLength::SourcePlus(3),
                ..options
            };
            assert_found_alike(&packed[0], &models[0], &options);
            let packed = Ensemble::new(packed.to_vec()).unwrap();
            let models = Ensemble::new(models.to_vec()).unwrap();
            assert_found_alike(&packed, &models, &options);
        }
    }
}

/// A packed model limits its targets itself; from a model that does not, the search picks the candidates. Both are what
/// comes of excluding all other tokens, whatever the other sources of the batch.
#[test]
fn a_shortlist_leaves_only_its_candidates() {
    let sources: [&[u32]; 4] = [&[5, 3, 7, 10, 2], &[4, 2], &[9, 3, 8, 2], &[6, 6, 2]];
    for config in configs() {
        let [model, other] = [4, 5].map(|seed| model::<NdArray>(&config, seed));
        let packed = packed_f32(&model);
        let other_packed = packed_f32(&other);
        let vocab_size = config.tgt_vocab_size as u32;
        // Lists of different lengths, one of them out of order. Targets that differ only in where they have padding
        // tie: token 0 is in no list.
        let lists = [&[][..], &[], &[1], &[4, 7], &[], &[9, 3], &[6], &[4, 8, 5]];
        let shortlist = Shortlist::new(0, &lists);
        for shortlist in [shortlist.clone(), shortlist.with_source_tokens()] {
            let sampling = Sampling {
                top_p: 0.9,
                ..Sampling::default()
            };
            for options in [
                DecodeOptions::greedy(),
                DecodeOptions {
                    n_best: 3,
                    ..DecodeOptions::beam(3)
                },
                DecodeOptions {
                    n_best: 3,
                    ..DecodeOptions::sample(sampling)
                },
            ] {
                let options = DecodeOptions {
                    max_length: MaxLength::Tokens(6),
                    shortlist: Some(Arc::new(shortlist.clone())),
                    ..options
                };
                assert_found_alike_of(&sources, &packed, &model, &options);
                let two = Ensemble::new(vec![&packed, &other_packed]).unwrap();
                let expected = Ensemble::new(vec![&model, &other]).unwrap();
                assert_found_alike_of(&sources, &two, &expected, &options);
                let together = Search::new(&packed, options.clone()).unwrap();
                let together = together.run(&exact(&sources)).unwrap();
                for (source, together) in sources.iter().zip(&together) {
                    let mut candidates = shortlist.candidates(source);
                    candidates.push(config.eos_id);
                    let others =
                        (0..vocab_size).filter(|&token| token == 0 || !candidates.contains(&token));
                    let excluded = DecodeOptions {
                        banned_tokens: others.collect(),
                        renormalize: true,
                        shortlist: None,
                        ..options.clone()
                    };
                    let expected = Search::new(&model, excluded).unwrap();
                    let expected = expected.run(&exact(&[source])).unwrap().concat();
                    assert_eq!(together.len(), expected.len());
                    for (found, expected) in together.iter().zip(&expected) {
                        assert_eq!(found.tokens, expected.tokens);
                        assert_close(&vec![found.score], &vec![expected.score], 1e-4);
                    }
                }
            }
        }
    }
}

/// The tokens that a target must begin with are candidates, and have their probabilities among these.
#[test]
fn a_shortlist_does_not_exclude_what_is_forced() {
    let model = model::<NdArray>(&tiny(), 4);
    let shortlist = Arc::new(Shortlist::new(3, &[[]; 0]));
    let options = DecodeOptions {
        shortlist: Some(shortlist),
        max_length: MaxLength::Tokens(8),
        ..DecodeOptions::beam(2)
    };
    let request = [Request::exact(SOURCES[0]).with_prefix([9, 4, 7])];
    for search in [
        Search::new(&packed_f32(&model), options.clone())
            .unwrap()
            .run(&request),
        Search::new(&model, options.clone()).unwrap().run(&request),
    ] {
        let found = &search.unwrap()[0][0];
        assert_eq!(found.tokens[..3], [9, 4, 7]);
        assert!(
            found
                .tokens
                .iter()
                .all(|token| [0, 1, 2, 4, 7, 9].contains(token))
        );
        assert!(found.log_prob.is_finite());
    }
    let outside = DecodeOptions {
        shortlist: Some(Arc::new(Shortlist::new(3, &[[11]]))),
        ..options
    };
    assert_eq!(
        Search::new(&model, outside).unwrap_err().to_string(),
        "the shortlist has token 11, outside the vocabulary of 11"
    );
}

fn packed_f32<B: Backend>(model: &Transformer<B>) -> PackedModel {
    packed(model, PackedPrecision::F32)
}

fn assert_found_alike(packed: &impl NextToken, model: &impl NextToken, options: &DecodeOptions) {
    assert_found_alike_of(&SOURCES, packed, model, options);
}

fn assert_found_alike_of(
    sources: &[&[u32]],
    packed: &impl NextToken,
    model: &impl NextToken,
    options: &DecodeOptions,
) {
    let requests = exact(sources);
    let found = Search::new(packed, options.clone()).unwrap();
    let found = found.run(&requests).unwrap().concat();
    let expected = Search::new(model, options.clone()).unwrap();
    let expected = expected.run(&requests).unwrap().concat();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.tokens, expected.tokens);
        assert_eq!(found.finished, expected.finished);
        let found = vec![found.log_prob, found.score];
        assert_close(&found, &vec![expected.log_prob, expected.score], 1e-4);
    }
}

fn log_probs(model: &impl NextToken, pairs: &[SourceTarget], batch_tokens: usize) -> Vec<f64> {
    let scores = score(model, pairs, batch_tokens).unwrap().into_iter();
    let log_probs = scores.flat_map(|score| score.log_probs);
    finite(log_probs.map(f64::from).collect())
}

/// Targets of several lengths, one without a token, one with a token that pads; in one batch, in several, and in so
/// large a one that it is several tasks.
#[test]
fn targets_have_the_same_log_probabilities() {
    const TARGETS: [&[u32]; 4] = [&[8, 4, 2], &[], &[3, 0, 7, 9, 2], &[10, 2]];
    for config in configs() {
        let model = model::<NdArray>(&config, 4);
        let packed = packed_f32(&model);
        let pairs =
            (0..40).map(|index| SourceTarget::exact(SOURCES[index * 3 % 4], TARGETS[index % 4]));
        let pairs: Vec<_> = pairs.collect();
        for (pairs, batch_tokens) in [(&pairs[..4], 100), (&pairs[..], 12), (&pairs[..], 1000)] {
            let found = log_probs(&packed, pairs, batch_tokens);
            assert_close(&found, &log_probs(&model, pairs, batch_tokens), 1e-5);
        }
    }
}

/// Beyond the positions whose sines, and the distances whose buckets, are stored.
#[test]
fn long_sequences_have_the_same_log_probabilities() {
    let long = |step: u32| -> Vec<u32> { (0..530).map(|at| 1 + at * step % 10).collect() };
    let pair = [SourceTarget::exact(long(3), long(7))];
    let relative = Positions::RelativeBias {
        buckets: 32,
        max_distance: 525,
    };
    for positions in [
        Positions::Sinusoidal,
        relative,
        Positions::Alibi,
        Positions::Relative { max_distance: 525 },
    ] {
        let config = TransformerConfig {
            n_encoder_layers: 1,
            n_decoder_layers: 1,
            positions,
            ..tiny()
        };
        let model = model::<NdArray>(&config, 2);
        let found = log_probs(&packed_f32(&model), &pair, 600);
        assert_close(&found, &log_probs(&model, &pair, 600), 1e-4);
    }
}

#[test]
#[should_panic(expected = "sequence length 17 exceeds the model's 16 learned positions")]
fn learned_positions_end() {
    let packed = packed_f32(&model::<NdArray>(&variants()[1], 7));
    let mut state = packed.start(&SOURCES[..1], Threads::All);
    for _ in 0..17 {
        packed.next(&[1], &mut state, AttentionWeights::Discard);
    }
}

/// With so few rows that one thread computes them, with so many that each of several threads has some, and with
/// matrices so large that several threads share them.
#[test]
fn a_row_s_numbers_depend_on_its_own_tokens_only() {
    let config = TransformerConfig {
        d_model: 32,
        n_heads: 4,
        d_ff: 40_000,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..TransformerConfig::base(4200)
    };
    let model = model::<NdArray>(&config, 5);
    let sources: Vec<Vec<u32>> = (0..40_u32)
        .map(|index| {
            let tokens = 0..=index % 9;
            tokens.map(|at| 3 + (index * 31 + at * 17) % 4000).collect()
        })
        .collect();
    for precision in [PackedPrecision::F32, PackedPrecision::Int8] {
        let packed = packed(&model, precision);
        let alone = sources.iter().map(std::slice::from_ref);
        let alone: Vec<_> = alone
            .flat_map(|source| two_steps(&packed, source))
            .collect();
        for threads in [1, 2, 5] {
            let pool = ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().unwrap();
            // In steps of one task whose products are shared, and in steps of several tasks.
            for at_once in [1, 13, 40] {
                let together: Vec<_> = pool.install(|| {
                    let chunks = sources.chunks(at_once);
                    chunks.flat_map(|chunk| two_steps(&packed, chunk)).collect()
                });
                // Not `assert_eq`, which would print all of them.
                assert!(
                    together == alone,
                    "{precision:?}, {threads} threads, {at_once} at once"
                );
            }
        }
    }
}

/// For each source, the log-probabilities after a token of each of its two targets.
fn two_steps(model: &PackedModel, sources: &[Vec<u32>]) -> Vec<Vec<f64>> {
    let read: Vec<&[u32]> = sources.iter().map(|source| &source[..]).collect();
    let mut state = model.start(&read, Threads::All);
    let bos = vec![1; sources.len()];
    model.next(&bos, &mut state, AttentionWeights::Discard);
    let all: Vec<usize> = (0..sources.len()).collect();
    let twice: Vec<usize> = all.iter().flat_map(|&source| [source, source]).collect();
    model.select(&mut state, &all, &twice);
    let tokens = sources.iter().flat_map(|source| [source[0], source[0] + 1]);
    let tokens: Vec<u32> = tokens.collect();
    let output = model.next(&tokens, &mut state, AttentionWeights::Discard);
    let log_probs = doubles(output.log_probs);
    let sources = log_probs.chunks(2 * model.vocabulary().size);
    sources.map(<[f64]>::to_vec).collect()
}

/// At each step, one of each source's targets is continued by several, for so many steps that the slots of the others
/// are freed several times. Some tokens pad.
#[test]
fn many_steps_of_a_wide_beam_are_those_of_its_ancestors_alone() {
    const WIDTH: usize = 8;
    let relative = TransformerConfig {
        positions: Positions::RelativeBias {
            buckets: 40,
            max_distance: 100,
        },
        ..tiny()
    };
    let recurrent = TransformerConfig {
        decoder_mixer: Mixer::Recurrence,
        ..tiny()
    };
    let continued = |source: usize, step: usize| source * WIDTH + (3 * step + source) % WIDTH;
    let models = [tiny(), relative, recurrent].map(|config| model::<NdArray>(&config, 9));
    let both = [PackedPrecision::F32, PackedPrecision::Int8];
    let each = models
        .iter()
        .flat_map(|model| both.map(|precision| (model, precision)));
    for (model, precision) in each {
        let packed = packed(model, precision);
        let next = |state: &mut PackedState, tokens: &[u32]| {
            let output = packed.next(tokens, state, AttentionWeights::Discard);
            let log_probs = doubles(output.log_probs);
            let rows = log_probs.chunks(packed.vocabulary().size);
            rows.map(<[f64]>::to_vec).collect::<Vec<_>>()
        };
        let [mut wide, mut alone] = [(); 2].map(|()| packed.start(&SOURCES[..2], Threads::All));
        packed.select(&mut wide, &[0, 1], &[[0_usize; WIDTH], [1; WIDTH]].concat());
        for step in 0..120_usize {
            let tokens = (0..2 * WIDTH).map(|row| ((7 * step + 5 * row + step * row) % 11) as u32);
            let tokens: Vec<u32> = tokens.collect();
            let of_both = next(&mut wide, &tokens);
            let ancestors = [0, 1].map(|source| continued(source, step));
            let expected = next(&mut alone, &ancestors.map(|row| tokens[row]));
            for (row, expected) in ancestors.into_iter().zip(expected) {
                assert_eq!(of_both[row], expected, "{precision:?}, step {step}");
            }
            let rows = ancestors.map(|row| [row; WIDTH]).concat();
            packed.select(&mut wide, &[0, 1], &rows);
        }
    }
}

#[test]
#[should_panic(expected = "no source to decode")]
fn a_batch_without_a_source_is_refused() {
    packed_f32(&model::<NdArray>(&tiny(), 8)).start(&[], Threads::All);
}

#[test]
#[should_panic(expected = "no source to decode")]
fn a_batch_without_a_source_is_refused_by_the_model() {
    model::<NdArray>(&tiny(), 8).start(&[], Threads::All);
}

/// With so many sources that each of several threads decodes batches of its own.
#[test]
fn hypotheses_do_not_depend_on_the_number_of_threads() {
    let model = model::<NdArray>(&tiny(), 8);
    let tokens = |index| (0..14).map(move |at| 3 + (index * 31 + at * 17) % 8);
    let requests = (0..460_u32).map(|index| Request::new(tokens(index).collect::<Vec<_>>()));
    let requests: Vec<Request> = requests.collect();
    let options = DecodeOptions {
        max_length: MaxLength::Tokens(5),
        ..DecodeOptions::beam(3)
    };
    for precision in [PackedPrecision::F32, PackedPrecision::Int8] {
        let packed = packed(&model, precision);
        let ensemble = Ensemble::new(vec![packed.clone(), packed.clone()]).unwrap();
        let found = |threads| {
            let pool = ThreadPoolBuilder::new().num_threads(threads);
            pool.build().unwrap().install(|| {
                let alone = Search::new(&packed, options.clone()).unwrap();
                let together = Search::new(&ensemble, options.clone()).unwrap();
                [
                    alone.run(&requests).unwrap(),
                    together.run(&requests).unwrap(),
                ]
            })
        };
        let one = found(1);
        for threads in [2, 3] {
            // Not `assert_eq`, which would print all of them.
            assert!(found(threads) == one, "{precision:?}, {threads} threads");
        }
    }
}

#[test]
fn a_damaged_model_is_named_by_its_first_source_on_any_number_of_threads() {
    let mut model = model::<NdArray>(&tiny(), 8);
    model.src_embedding.weight = model.src_embedding.weight.map(|table| table * f32::NAN);
    let packed = packed_f32(&model);
    let requests = vec![Request::new([3; 14]); 460];
    for threads in [1, 2] {
        let pool = ThreadPoolBuilder::new().num_threads(threads);
        let found = pool.build().unwrap().install(|| {
            let search = Search::new(&packed, DecodeOptions::greedy()).unwrap();
            search.run(&requests)
        });
        let error = found.unwrap_err();
        assert_eq!(error.problem, RequestProblem::NotANumber);
        assert_eq!(error.index, 0);
    }
}

#[test]
fn states_are_independent_and_models_shared() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<PackedModel>();
    is_shared::<PackedState>();

    let packed = packed_f32(&model::<NdArray>(&tiny(), 5));
    let clone = packed.clone();
    let step = |state: &mut PackedState, token| {
        let output = clone.next(&[token; 4], state, AttentionWeights::Discard);
        doubles(output.log_probs)
    };
    let mut state = packed.start(&SOURCES, Threads::All);
    step(&mut state, 1);
    let mut fork = state.clone();
    let expected = step(&mut state, 8);
    step(&mut fork, 3);
    let mut state = packed.start(&SOURCES, Threads::All);
    step(&mut state, 1);
    assert_eq!(step(&mut state, 8), expected);
}

#[test]
fn damaged_weights_are_noticed() {
    let mut model = model::<NdArray>(&tiny(), 6);
    let weight = model.src_embedding.weight;
    model.src_embedding.weight = weight.map(|table| table * f32::NAN);
    for precision in [PackedPrecision::F32, PackedPrecision::Int8] {
        let packed = packed(&model, precision);
        let requests = [Request::new([5, 3])];
        let error = greedy(&packed, &requests, MaxLength::default()).unwrap_err();
        assert_eq!(error.problem, RequestProblem::NotANumber);
    }
}

#[test]
#[should_panic(expected = "the model has no `generator.bias`")]
fn a_model_must_have_the_weights_of_its_configuration() {
    let mut model = model::<NdArray>(&tiny(), 6);
    model.generator.bias = None;
    packed_f32(&model);
}

#[test]
#[should_panic(expected = "one token per target is needed")]
fn another_number_of_tokens_is_refused() {
    let packed = packed_f32(&model::<NdArray>(&tiny(), 8));
    let mut state = packed.start(&SOURCES, Threads::All);
    packed.next(&[1; 3], &mut state, AttentionWeights::Discard);
}

#[test]
#[should_panic(expected = "targets [0, 2] of sources [0], each of which has 1")]
fn a_target_of_another_source_is_refused() {
    let packed = packed_f32(&model::<NdArray>(&tiny(), 8));
    let mut state = packed.start(&SOURCES, Threads::All);
    packed.select(&mut state, &[0], &[0, 2]);
}

/// A model that reads targets token by token, whatever the model can that it contains.
struct TokenByToken<M>(M);

impl<M: NextToken> NextToken for TokenByToken<M> {
    type State = M::State;

    fn vocabulary(&self) -> Vocabulary {
        self.0.vocabulary()
    }

    fn max_target_len(&self) -> Option<usize> {
        self.0.max_target_len()
    }

    fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
        self.0.check_source(source)
    }

    fn start(&self, sources: &[&[u32]], threads: Threads) -> M::State {
        self.0.start(sources, threads)
    }

    fn next(&self, last: &[u32], state: &mut M::State, attention: AttentionWeights) -> Next {
        self.0.next(last, state, attention)
    }

    fn select(&self, state: &mut M::State, sources: &[usize], rows: &[usize]) {
        self.0.select(state, sources, rows);
    }
}

/// Targets that are read at once have the log-probabilities that they have token by token, and go on alike.
fn reads_as_token_by_token<M: NextToken>(model: M, sources: &[&[u32]]) {
    let targets: [&[u32]; 4] = [&[8, 4, 10], &[3, 7, 2], &[9, 9, 4], &[5, 0, 7]];
    let slowly = TokenByToken(&model);
    let [mut at_once, mut expected] = [(); 2].map(|()| model.start(sources, Threads::All));
    let found = model.read(&targets, &mut at_once).concat();
    let by_token = slowly.read(&targets, &mut expected).concat();
    assert_close(&finite(doubles(found)), &finite(doubles(by_token)), 1e-5);
    let last = targets.map(|target| target[2]);
    let next = |state: &mut M::State| {
        let next = model.next(&last, state, AttentionWeights::Discard);
        finite(doubles(next.log_probs))
    };
    assert_close(&next(&mut at_once), &next(&mut expected), 1e-5);

    let requests = sources.iter().zip(targets);
    let requests = requests.map(|(source, target)| Request::exact(*source).with_prefix(target));
    let requests: Vec<Request> = requests.collect();
    for options in [
        DecodeOptions::greedy(),
        DecodeOptions::beam(3),
        DecodeOptions {
            n_best: 2,
            ..DecodeOptions::sample(Sampling::default())
        },
    ] {
        let options = DecodeOptions {
            max_length: MaxLength::Tokens(7),
            ..options
        };
        let found = Search::new(&model, options.clone()).unwrap();
        let found = found.run(&requests).unwrap().concat();
        let slowly = Search::new(&slowly, options).unwrap();
        let expected = slowly.run(&requests).unwrap().concat();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.tokens, expected.tokens);
            let numbers = |found: &Hypothesis| finite(vec![found.log_prob, found.score]);
            assert_close(&numbers(found), &numbers(expected), 1e-4);
        }
    }
}

#[test]
fn targets_are_read_at_once_as_token_by_token() {
    for config in configs() {
        let model = model::<NdArray>(&config, 4);
        for precision in [PackedPrecision::F32, PackedPrecision::Int8] {
            reads_as_token_by_token(packed(&model, precision), &SOURCES);
        }
        reads_as_token_by_token(model, &SOURCES);
    }
}

/// A language model has no sources, and everything else in common.
#[test]
fn a_language_model_decodes_packed_as_it_does_itself() {
    for config in configs() {
        let config = TransformerConfig {
            n_encoder_layers: 0,
            src_vocab_size: config.tgt_vocab_size,
            ..config
        };
        let model = config.init_language_model::<NdArray>(5, &Default::default());
        let model = shaken(model.unwrap(), 5);
        let packed = PackedModel::of_language_model(model.clone(), PackedPrecision::F32);
        let prompts = [&[5, 3, 7][..], &[], &[9], &[4, 4, 4, 4]].map(Request::prompt);
        for options in [
            DecodeOptions::greedy(),
            DecodeOptions::beam(3),
            DecodeOptions::sample(Sampling::default()),
        ] {
            let options = DecodeOptions {
                max_length: MaxLength::Tokens(9),
                ..options
            };
            let found = Search::new(&packed, options.clone()).unwrap();
            let found = found.run(&prompts).unwrap().concat();
            let expected = Search::new(&model, options).unwrap();
            let expected = expected.run(&prompts).unwrap().concat();
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.tokens, expected.tokens);
                let log_prob = |found: &Hypothesis| finite(vec![found.log_prob]);
                assert_close(&log_prob(found), &log_prob(expected), 1e-4);
            }
        }
        reads_as_token_by_token(packed, &[&[][..]; 4]);
        reads_as_token_by_token(model, &[&[][..]; 4]);
    }
}
