//! The promises of the model, of decoding and of training, on every backend that is compiled in.
//!
//! `transformer-core/tests/invariants/` and `transformer-train/tests/` keep them for many more shapes,
//! options and weights, on ndarray and flex; the models here are tiny, for llvmpipe. A failure names its
//! backends: `cargo test --features flex,wgpu,tch --test promises`.

#[path = "support/devices.rs"]
mod devices;

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};
use burn::train::TrainStep;
use burn_autodiff::Autodiff;
use transformer_core::PackedModel;
use transformer_core::decoding::{
    Hypothesis, MaxLength, Next, NextToken, RequestProblem, Sampling, SourceTarget, Strategy,
    Threads, Vocabulary, padded, score,
};
use transformer_core::models::WeightTying;
use transformer_core::nn::{
    AttentionConfig, AttentionInput, AttentionWeights, Mask, NormPlacement, Positions,
    ProductPrecision, WeightInit, padding_positions,
};
use transformer_core::ops::multiplies_in;
use transformer_core::packed::PackedPrecision;
use transformer_core::{
    DecodeOptions, Request, Search, Tokenizers, Transformer, TransformerConfig, Translator,
};
use transformer_program::{BackendTask, run_on};
use transformer_train::data::{TokenizedPair, Update, train_bpe};
use transformer_train::learner::TrainingModel;
use transformer_train::objective::{LossOptions, LossSums, Objective, sequence_loss};
use transformer_train::progress::ProgressDisplay;
use transformer_train::{TrainError, Trainer, TrainingConfig};

use devices::every_backend;

/// Each line is a test: a function on a type of backends, B being any that is compiled in.
macro_rules! promises {
    ($($(#[$attribute:meta])* $test:ident: $function:ident on $backend:ty,)*) => {
        #[derive(Debug, Clone, Copy)]
        #[allow(non_camel_case_types, reason = "failures print the name of the test")]
        enum Promise {
            $($(#[$attribute])* $test,)*
        }

        impl BackendTask for Promise {
            type Output = ();

            fn run<B: Backend>(self, device: B::Device) {
                match self {
                    $($(#[$attribute])* Self::$test => $function::<$backend>(&device),)*
                }
            }
        }

        $(
            $(#[$attribute])*
            #[test]
            fn $test() {
                Promise::$test.is_kept();
            }
        )*
    };
}

promises! {
    a_later_target_token_changes_no_logit: causality on B,
    padding_reaches_no_real_position: padding on B,
    a_query_without_keys_gives_zeros_and_finite_gradients: blocked_rows on Autodiff<B>,
    a_sentence_has_the_same_logits_in_a_batch_as_alone: batch on B,
    token_by_token_is_all_at_once: cache on B,
    search_agrees_with_forward_in_any_batch_and_with_score: search on B,
    the_most_likely_tokens_suffice_for_the_search: most_likely on B,
    translators_in_eight_threads_find_what_one_finds_alone: threads on B,
    packed_translators_in_eight_threads_find_what_one_finds_alone: packed_threads on B,
    a_packed_model_has_the_log_probabilities_of_its_model: packed_model on B,
    a_language_model_is_causal_and_the_same_token_by_token: language_model on B,
    tied_weights_stay_one_in_training: tied_weights on Autodiff<B>,
    two_batches_of_an_update_are_one_large_batch: accumulation on Autodiff<B>,
    logits_of_labels_give_the_loss_of_all_logits: labels on Autodiff<B>,
    frozen_parameters_stay_frozen: frozen_parameters on Autodiff<B>,
    a_resumed_run_is_the_run_that_was_not_stopped: resume on Autodiff<B>,
    a_run_and_a_search_beside_it_compute_what_each_computes_alone: side_by_side on Autodiff<B>,
    a_run_in_bf16_stays_near_that_in_f32_or_is_refused: bf16 on Autodiff<B>,
}

impl Promise {
    /// Runs it on every backend, and names those that it fails on.
    fn is_kept(self) {
        // Burn's random numbers come from one generator per process.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // With several threads, libtorch adds in an order that changes from run to run.
        #[cfg(feature = "tch")]
        tch::set_num_threads(1);

        let mut failed = Vec::new();
        for target in every_backend() {
            println!("{}:", target.backend);
            let run = || run_on(target, self).expect("the backend starts");
            if catch_unwind(run).is_err() {
                failed.push(target.backend.to_string());
            }
        }
        assert!(
            failed.is_empty(),
            "{self:?} fails on {}",
            failed.join(" and ")
        );
    }
}

/// The error of a logit that is summed in another order: some tens of 6e-8, of numbers up to 4.
const LOGIT_BOUND: f64 = 1e-5;

/// The same where TF32 keeps 11 bits of the factors.
const TF32_BOUND: f64 = 1e-2;

/// Whether the backend is cuda, whose matrix multiplications are in TF32.
fn multiplies_in_tf32<B: Backend>(device: &B::Device) -> bool {
    B::name(device).contains("cubecl<cuda>")
}

const PAD: u32 = 0;
const EOS: u32 = 2;
const D_MODEL: usize = 16;
const VOCAB_SIZE: usize = 11;

const SOURCES: [&[u32]; 4] = [&[5, 3, 7, 12, 2], &[4, 2], &[9, 8, 11, 2], &[6, 6, 2]];
static TARGETS: [[u32; 6]; 4] = [
    [1, 8, 4, 10, 6, 5],
    [1, 3, 3, 7, 9, 4],
    [1, 9, 5, 8, 4, 6],
    [1, 5, 10, 7, 3, 8],
];

/// Nothing is tied, and the two vocabularies differ.
fn config(norm: NormPlacement) -> TransformerConfig {
    TransformerConfig {
        tgt_vocab_size: VOCAB_SIZE,
        norm,
        final_norm: norm == NormPlacement::Pre,
        positions: match norm {
            NormPlacement::Post => Positions::Sinusoidal,
            NormPlacement::Pre => Positions::Learned { max_len: 16 },
        },
        tying: WeightTying::None,
        ..paper()
    }
}

/// The paper's model with other sizes: everything is tied, dropout is 0.1.
fn paper() -> TransformerConfig {
    paper_with_vocabulary(13)
}

fn paper_with_vocabulary(size: usize) -> TransformerConfig {
    TransformerConfig {
        d_model: D_MODEL,
        n_heads: 2,
        d_ff: 32,
        n_encoder_layers: 2,
        n_decoder_layers: 2,
        ..TransformerConfig::base(size)
    }
}

const NORMS: [NormPlacement; 2] = [NormPlacement::Post, NormPlacement::Pre];

fn models<B: Backend>(device: &B::Device) -> [Transformer<B>; 2] {
    NORMS.map(|norm| config(norm).init::<B>(1, device).unwrap())
}

fn causality<B: Backend>(device: &B::Device) {
    for model in models::<B>(device) {
        let memory = model.encode(padded(&SOURCES, PAD, device));
        assert_causal(|targets| {
            values(model.generate(model.decode(padded(&targets, PAD, device), &memory)))
        });
    }
}

/// Asserts that another token changes the logits of its own and all later positions, and not one bit
/// before: the weight of a blocked key is zero, and zero times a finite number is zero.
fn assert_causal(logits: impl Fn([[u32; 6]; 4]) -> Vec<f64>) {
    let before = logits(TARGETS);
    for changed in 1..6 {
        let mut targets = TARGETS;
        for target in &mut targets {
            target[changed] = if target[changed] == 5 { 6 } else { 5 };
        }
        let after = logits(targets);
        let positions = before.chunks(VOCAB_SIZE).zip(after.chunks(VOCAB_SIZE));
        for (index, (before, after)) in positions.enumerate() {
            let position = index % 6;
            if position < changed {
                assert_eq!(before, after, "{position} depends on {changed}");
            } else {
                let difference = largest_difference(before, after);
                // Far above any rounding.
                assert!(difference > 1e-3, "{position}, {changed}: {difference:e}");
            }
        }
    }
}

/// For padding before, between and after real tokens.
fn padding<B: Backend>(device: &B::Device) {
    let sources: [[u32; 5]; 3] = [[5, 0, 7, 12, 2], [0, 0, 4, 9, 2], [6, 8, 2, 0, 0]];
    let targets: [[u32; 4]; 3] = [[1, 8, 0, 4], [0, 1, 3, 7], [1, 9, 0, 0]];
    let with_garbage =
        |table: Tensor<B, 2>| table.slice_assign([0..1], wave::<B, 2>([1, D_MODEL], device) * 50.0);
    for model in models::<B>(device) {
        let mut garbage = model.clone();
        garbage.src_embedding.weight = garbage.src_embedding.weight.map(with_garbage);
        let embedding = garbage.tgt_embedding.as_mut().unwrap();
        embedding.weight = embedding.weight.clone().map(with_garbage);

        let [(memory, plain), (other_memory, other)] = [model, garbage].map(|model| {
            let memory = model.encode(padded(&sources, PAD, device));
            let hidden = model.decode(padded(&targets, PAD, device), &memory);
            (values(memory.hidden), values(model.generate(hidden)))
        });
        // Not a bit changes, as in `assert_causal`; the garbage is there, at its own positions.
        assert_only_padding_differs(&sources, D_MODEL, &memory, &other_memory);
        assert_only_padding_differs(&targets, VOCAB_SIZE, &plain, &other);
    }
}

fn assert_only_padding_differs<const LEN: usize>(
    rows: &[[u32; LEN]],
    width: usize,
    plain: &[f64],
    other: &[f64],
) {
    let tokens = rows.iter().flatten();
    let numbers = plain.chunks(width).zip(other.chunks(width));
    for ((index, &token), (plain, other)) in tokens.enumerate().zip(numbers) {
        assert_eq!(plain != other, token == PAD, "position {index} of {rows:?}");
    }
}

/// Attention by kernels and, where the weights are asked for, by its composition; then whole models.
fn blocked_rows<B: AutodiffBackend>(device: &B::Device) {
    // Under causality the first query of the second row has no key, those of the third have none.
    let rows: [[u32; 4]; 3] = [[5, 6, 7, 8], [0, 6, 7, 8], [0, 0, 0, 0]];
    let attention =
        AttentionConfig::new(D_MODEL, 2).init_from::<B>(&mut WeightInit::new(1), device);
    let padding = padding_positions::<B>(padded(&rows, PAD, device), PAD);
    let mask = Mask::causal_padding(4, padding);
    for weights in [AttentionWeights::Discard, AttentionWeights::Return] {
        let query = wave::<B, 3>([3, 4, D_MODEL], device).require_grad();
        let memory = wave::<B, 3>([3, 4, D_MODEL], device).require_grad();
        let input = AttentionInput::to_memory(query.clone(), memory.clone()).mask(&mask);
        let input = match weights {
            AttentionWeights::Discard => input,
            AttentionWeights::Return => input.with_weights(),
        };
        let output = attention.forward(input).output;
        let gradients = (output.clone() + 1.0).powi_scalar(2).sum().backward();
        let output = values(output);
        let of_query = values(query.grad(&gradients).unwrap());
        let of_memory = values(memory.grad(&gradients).unwrap());
        assert!(of_query.iter().chain(&of_memory).all(|g| g.is_finite()));
        let zero = |numbers: &[f64], index: usize| {
            let numbers = &numbers[index * D_MODEL..(index + 1) * D_MODEL];
            numbers.iter().all(|&number| number == 0.0)
        };
        for index in 0..12 {
            let (row, at) = (index / 4, index % 4);
            let blocked = rows[row][..=at].iter().all(|&token| token == PAD);
            assert_eq!(zero(&output, index), blocked, "output {row}, {at}");
            assert!(zero(&of_query, index) || !blocked, "query {row}, {at}");
            let padding = rows[row][at] == PAD;
            assert_eq!(zero(&of_memory, index), padding, "memory {row}, {at}");
        }
    }

    // An empty source, an empty target, both, neither.
    let sources: [[u32; 3]; 4] = [[0, 0, 0], [5, 6, 2], [0, 0, 0], [8, 2, 0]];
    let targets: [[u32; 3]; 4] = [[1, 5, 6], [0, 0, 0], [0, 0, 0], [1, 9, 0]];
    for model in models::<B>(device) {
        let src = padded(&sources, PAD, device);
        let logits = model.forward(src, padded(&targets, PAD, device));
        assert!(values(logits.clone()).iter().all(|x| x.is_finite()));
        let gradients = logits.powi_scalar(2).mean().backward();
        let gradients = GradientsParams::from_grads(gradients, &model);
        for gradient in numbers(&model.valid(), Some(&gradients)) {
            assert!(gradient.iter().all(|g| g.is_finite()));
            assert!(gradient.iter().any(|&g| g != 0.0));
        }
    }
}

fn batch<B: Backend>(device: &B::Device) {
    let targets: [&[u32]; 3] = [&TARGETS[0][..3], &TARGETS[1], &TARGETS[2][..4]];
    for model in models::<B>(device) {
        let forward = |rows: Range<usize>| {
            let src = padded(&SOURCES[rows.clone()], PAD, device);
            model.forward(src, padded(&targets[rows], PAD, device))
        };
        let together = forward(0..3);
        for (row, target) in targets.iter().enumerate() {
            let of_row = together.clone().slice([row..row + 1, 0..target.len()]);
            let alone = values(forward(row..row + 1));
            assert_close(&values(of_row), &alone, LOGIT_BOUND);
        }
    }
}

fn cache<B: Backend>(device: &B::Device) {
    for model in models::<B>(device) {
        let memory = model.encode(padded(&SOURCES, PAD, device));
        let targets: Tensor<B, 2, Int> = padded(&TARGETS, PAD, device);
        let whole = model.generate(model.decode(targets.clone(), &memory));
        let mut cache = model.start_decoding(&memory);
        assert_same_in_steps(whole, targets, |token| {
            let output = model.decode_next(token, &mut cache, AttentionWeights::Discard);
            model.generate(output.hidden)
        });
    }
}

fn assert_same_in_steps<B: Backend>(
    whole: Tensor<B, 3>,
    targets: Tensor<B, 2, Int>,
    next: impl FnMut(Tensor<B, 2, Int>) -> Tensor<B, 3>,
) {
    let steps: Vec<Tensor<B, 3>> = targets.split(1, 1).into_iter().map(next).collect();
    let steps = Tensor::cat(steps, 1);
    assert_close(&values(steps), &values(whole), LOGIT_BOUND);
}

/// Targets have at most six tokens, so that a log-probability is the sum of seven or fewer.
const MAX_LENGTH: usize = 6;
const LOG_PROB_BOUND: f64 = 7.0 * LOGIT_BOUND;

fn search<B: Backend>(device: &B::Device) {
    let mut distinct = BTreeSet::new();
    for model in models::<B>(device) {
        let run = |options: &DecodeOptions, sources: &[&[u32]]| {
            let requests = sources.iter().map(|&source| Request::exact(source));
            let requests: Vec<Request> = requests.collect();
            let search = Search::new(&model, options.clone()).unwrap();
            search.run(&requests).unwrap()
        };
        let greedy = DecodeOptions {
            max_length: MaxLength::Tokens(MAX_LENGTH),
            ..DecodeOptions::beam(1)
        };
        let found = targets(&run(&greedy, &SOURCES));
        let expected = SOURCES.map(|source| argmax_loop(&model, source, device));
        assert_eq!(found, expected);
        distinct.extend(found);

        let beam = DecodeOptions {
            max_length: MaxLength::Tokens(MAX_LENGTH),
            n_best: 2,
            ..DecodeOptions::beam(4)
        };
        let together = run(&beam, &SOURCES);
        let mut reversed = SOURCES;
        reversed.reverse();
        // Each source alone, and two of the four together.
        for batch_tokens in [1, 8] {
            let options = DecodeOptions {
                batch_tokens,
                ..beam.clone()
            };
            let mut again = run(&options, &reversed);
            again.reverse();
            assert_eq!(targets(&again), targets(&together));
            for (again, together) in again.iter().flatten().zip(together.iter().flatten()) {
                assert_close(&[again.score], &[together.score], LOG_PROB_BOUND);
            }
        }

        for (source, found) in SOURCES.iter().zip(&together) {
            let found_targets = found.iter().map(|hypothesis| {
                let end: &[u32] = if hypothesis.finished { &[EOS] } else { &[] };
                [&hypothesis.tokens[..], end].concat()
            });
            let pairs: Vec<SourceTarget> = found_targets
                .map(|target| SourceTarget::exact(*source, target))
                .collect();
            let scores = score(&model, &pairs, 64).unwrap();
            assert_eq!(scores.len(), 2);
            for (hypothesis, score) in found.iter().zip(scores) {
                let log_prob = score.log_prob();
                let penalized = log_prob / beam.length_penalty.of(score.log_probs.len());
                let found = [hypothesis.log_prob, hypothesis.score];
                assert_close(&found, &[log_prob, penalized], LOG_PROB_BOUND);
            }
        }
    }
    // A search that ignores its source would have two.
    assert!(distinct.len() > 2, "{distinct:?}");
}

/// A model of which the search always gets all log-probabilities.
struct All<'a, M>(&'a M);

impl<M: NextToken> NextToken for All<'_, M> {
    type State = M::State;

    fn vocabulary(&self) -> Vocabulary {
        self.0.vocabulary()
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

/// On a device that is not the host, only the most likely tokens are copied.
fn most_likely<B: Backend>(device: &B::Device) {
    const COUNT: usize = 9;
    // No multiple of any vector.
    const SIZE: usize = 401;
    let model = paper_with_vocabulary(SIZE).init::<B>(5, device).unwrap();

    let start = || model.start(&SOURCES, Threads::All);
    let (mut state, mut again) = (start(), start());
    for position in 0..3 {
        let last = TARGETS.map(|target| target[position]);
        let all = model.next(&last, &mut state, AttentionWeights::Discard);
        let best = model.next_best(&last, &mut again, AttentionWeights::Discard, COUNT);
        let Some(tokens) = best.tokens else {
            assert_eq!(best.log_probs, all.log_probs);
            continue;
        };
        let rows = tokens.chunks(COUNT).zip(best.log_probs.chunks(COUNT));
        assert_eq!(rows.len(), SOURCES.len());
        for (all, (tokens, log_probs)) in all.log_probs.chunks(SIZE).zip(rows) {
            let mut expected: Vec<u32> = (0..SIZE as u32).collect();
            expected.sort_by(|&a, &b| all[b as usize].total_cmp(&all[a as usize]));
            expected.truncate(COUNT);
            expected.sort_unstable();
            assert_eq!(tokens, expected);
            for (&token, &log_prob) in tokens.iter().zip(log_probs) {
                let expected = f64::from(all[token as usize]);
                assert_close(&[f64::from(log_prob)], &[expected], LOGIT_BOUND);
            }
        }
    }

    let requests = SOURCES.map(|source| Request::exact(source).with_prefix([source[0], 8]));
    let limited = DecodeOptions {
        max_length: MaxLength::Tokens(MAX_LENGTH),
        min_length: 3,
        banned_tokens: vec![8, 13],
        no_repeat_ngram: 1,
        ..DecodeOptions::beam(4)
    };
    let sampling = Sampling {
        top_k: 5,
        ..Sampling::default()
    };
    for options in [
        DecodeOptions {
            max_length: MaxLength::Tokens(MAX_LENGTH),
            ..DecodeOptions::greedy()
        },
        DecodeOptions {
            n_best: 4,
            ..limited.clone()
        },
        DecodeOptions {
            n_best: 3,
            strategy: Strategy::Sample(sampling),
            ..limited.clone()
        },
        DecodeOptions {
            repetition_penalty: 1.5,
            renormalize: true,
            ..limited
        },
    ] {
        let found = Search::new(&model, options.clone()).unwrap();
        let found = found.run(&requests).unwrap();
        let all = All(&model);
        let expected = Search::new(&all, options).unwrap();
        let expected = expected.run(&requests).unwrap();
        assert_eq!(targets(&found), targets(&expected));
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert_close(&[found.score], &[expected.score], LOG_PROB_BOUND);
        }
    }
}

const SENTENCES: [&str; 6] = [
    "one and two",
    "",
    "two and three and four and five",
    "one",
    "five and one",
    "two and two",
];

/// A translator whose model is the same each time, but shares nothing with the others.
fn translator<B: Backend>(
    options: DecodeOptions,
    device: &B::Device,
) -> Translator<Transformer<B>> {
    let tokenizers = Tokenizers::shared(train_bpe(SENTENCES.iter(), 280).unwrap());
    let config = paper_with_vocabulary(tokenizers.source().vocab_size());
    let model = config.init::<B>(3, device).unwrap();
    let options = DecodeOptions {
        max_length: MaxLength::Tokens(MAX_LENGTH),
        n_best: 2,
        ..options
    };
    let translator = Translator::new(model, tokenizers).unwrap();
    translator.with_options(options).unwrap()
}

fn threads<B: Backend>(device: &B::Device) {
    let bound = match has_fixed_sums(&B::name(device)) {
        true => 0.0,
        false => LOG_PROB_BOUND,
    };
    assert_same_in_eight_threads(|| translator::<B>(DecodeOptions::beam(2), device), bound);
}

fn packed_threads<B: Backend>(device: &B::Device) {
    let sampling = Sampling {
        seed: 5,
        ..Sampling::default()
    };
    for precision in [PackedPrecision::F32, PackedPrecision::Int8] {
        for options in [
            DecodeOptions::beam(2),
            DecodeOptions::sample(sampling.clone()),
        ] {
            let packed = || translator::<B>(options.clone(), device).packed(precision);
            assert_same_in_eight_threads(packed, 0.0);
        }
    }
}

/// One translator that eight threads use at once, and eight translators; `bound` is that of the scores.
fn assert_same_in_eight_threads<M: NextToken + Send + Sync + 'static>(
    translator: impl Fn() -> Translator<M> + Sync,
    bound: f64,
) {
    let translate = |translator: &Translator<M>| -> (Vec<String>, Vec<f64>) {
        let found = translator.translate_n_best(&SENTENCES, "").unwrap();
        let found = found.into_iter().flatten();
        found
            .map(|translation| (translation.text, translation.hypothesis.score))
            .unzip()
    };
    let shared = translator();
    let (texts, scores) = translate(&shared);
    assert!(texts.len() > SENTENCES.len());
    let by_the_shared = || translate(&shared);
    let by_its_own = || translate(&translator());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .flat_map(|_| [scope.spawn(by_the_shared), scope.spawn(by_its_own)])
            .collect();
        for thread in threads {
            let found = thread.join().unwrap();
            assert_eq!(found.0, texts);
            assert_close(&found.1, &scores, bound);
        }
    });
}

/// A packed model computes on the CPU, whatever the backend.
fn packed_model<B: Backend>(device: &B::Device) {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<PackedModel>();
    for model in models::<B>(device) {
        let expected = log_probs(&model);
        let packed = PackedModel::new(model, PackedPrecision::F32);
        // A logit, and the sum of all. A packed model multiplies in f32.
        let bound = match multiplies_in_tf32::<B>(device) {
            true => TF32_BOUND,
            false => 2.0 * LOGIT_BOUND,
        };
        assert_close(&log_probs(&packed), &expected, bound);
    }
}

/// The log-probabilities after each token of the targets.
fn log_probs(model: &impl NextToken) -> Vec<f64> {
    let mut state = model.start(&SOURCES, Threads::All);
    let steps = (0..6).map(|position| {
        let tokens = TARGETS.map(|target| target[position]);
        let output = model.next(&tokens, &mut state, AttentionWeights::Discard);
        output
            .log_probs
            .into_iter()
            .map(f64::from)
            .collect::<Vec<f64>>()
    });
    steps.collect::<Vec<_>>().concat()
}

/// The tokens of all hypotheses, and whether they ended in `<eos>`.
fn targets(found: &[Vec<Hypothesis>]) -> Vec<(Vec<u32>, bool)> {
    let all = found.iter().flatten();
    all.map(|hypothesis| (hypothesis.tokens.clone(), hypothesis.finished))
        .collect()
}

/// Greedy decoding without cache or batch.
fn argmax_loop<B: Backend>(
    model: &Transformer<B>,
    source: &[u32],
    device: &B::Device,
) -> (Vec<u32>, bool) {
    let mut target = vec![1_u32];
    while target.len() <= MAX_LENGTH {
        let src = padded(&[source], PAD, device);
        let logits = values(model.forward(src, padded(&[&target], PAD, device)));
        let last = &logits[logits.len() - VOCAB_SIZE..];
        let best = (0..VOCAB_SIZE).max_by(|&a, &b| last[a].total_cmp(&last[b]));
        match best.unwrap() as u32 {
            EOS => return (target[1..].to_vec(), true),
            token => target.push(token),
        }
    }
    (target[1..].to_vec(), false)
}

fn language_model<B: Backend>(device: &B::Device) {
    for norm in NORMS {
        let config = TransformerConfig {
            d_model: D_MODEL,
            n_heads: 2,
            d_ff: 32,
            n_decoder_layers: 2,
            norm,
            final_norm: norm == NormPlacement::Pre,
            tying: match norm {
                NormPlacement::Post => WeightTying::TargetGenerator,
                NormPlacement::Pre => WeightTying::None,
            },
            ..TransformerConfig::language_model(VOCAB_SIZE)
        };
        let model = config.init_language_model::<B>(2, device).unwrap();
        assert_causal(|targets| values(model.forward(padded(&targets, PAD, device))));

        let targets: Tensor<B, 2, Int> = padded(&TARGETS, PAD, device);
        let mut cache = model.start_decoding(TARGETS.len());
        assert_same_in_steps(model.forward(targets.clone()), targets, |token| {
            let output = model.decode_next(token, &mut cache, AttentionWeights::Discard);
            model.generate(output.hidden)
        });
    }
}

fn tied_weights<B: AutodiffBackend>(device: &B::Device) {
    let config = paper();
    let initial = config.init::<B>(1, device).unwrap();
    let before = values(initial.src_embedding.weight.val());
    let trained = trainer(initial, 2).train(pairs(15), pairs(3)).unwrap();
    let model = trained.model;
    assert_eq!(model.num_params() as u128, config.num_params());

    let table = values(model.src_embedding.weight.val());
    // The generator learns from every token, those too that no sentence has.
    for (before, after) in before.chunks(D_MODEL).zip(table.chunks(D_MODEL)) {
        assert_ne!(before, after);
    }
    // Exact in f32: a row times √16 and divided by it, and sums of a number and zeros.
    let every_token: Vec<u32> = (0..13).collect();
    let every_token = padded(&[every_token], PAD, device);
    let looked_up = model.target_embedding().forward(every_token) / 4.0;
    assert_eq!(values(looked_up), table);
    let units = Tensor::<B::InnerBackend, 2>::eye(D_MODEL, device).unsqueeze_dim::<3>(0);
    let multiplied = model.generate(units).squeeze_dim::<2>(0).transpose();
    let bound = match multiplies_in_tf32::<B>(device) {
        true => TF32_BOUND,
        false => 0.0,
    };
    assert_close(&values(multiplied), &table, bound);
}

fn accumulation<B: AutodiffBackend>(device: &B::Device) {
    let config = TransformerConfig {
        dropout: 0.0,
        ..paper()
    };
    let model = config.init::<B>(1, device).unwrap();
    let model = TrainingModel::<B, _>::new(model, LossOptions::smoothed(0.1));
    let pairs = pairs(7);
    let gradients = |batches: Vec<Vec<TokenizedPair>>| {
        let output = TrainStep::step(&model, Update::new(batches));
        numbers(&model.model.valid(), Some(&output.grads))
    };
    // Of unequal sizes: a mean of the batches' means would differ.
    let parts = gradients(vec![pairs[..2].to_vec(), pairs[2..].to_vec()]);
    let whole = gradients(vec![pairs]);
    assert_eq!(whole.len(), parts.len());
    for (whole, parts) in whole.iter().zip(&parts) {
        let largest = whole.iter().fold(0.0, |most: f64, g| most.max(g.abs()));
        assert!(largest > 0.0);
        // Differences of near numbers lose digits; the bound is that of backend_parity.
        assert_close(parts, whole, 5e-5 * largest);
    }
}

/// Training computes no logits of padding.
fn labels<B: AutodiffBackend>(device: &B::Device) {
    let all = pairs(5);
    // Targets of five lengths; of one, and so no padding; a batch of one.
    let batches = [all.clone(), vec![all[3].clone(); 2], all[2..3].to_vec()];
    for tying in [WeightTying::All, WeightTying::None] {
        let config = TransformerConfig {
            dropout: 0.0,
            generator_bias: true,
            tying,
            ..paper()
        };
        let model = config.init::<B>(1, device).unwrap();
        let outcome = |sums: LossSums<B>| {
            let parts = [&sums.loss, &sums.nll, &sums.correct, &sums.weight];
            let parts = parts.map(|sum| values(sum.clone())[0]);
            let gradients = GradientsParams::from_grads(sums.loss.backward(), &model);
            (parts, numbers(&model.valid(), Some(&gradients)))
        };
        for pairs in &batches {
            let targets = pairs.iter().map(|pair| [&pair.target[..], &[EOS]].concat());
            let targets: Vec<_> = targets.collect();
            let batch = model.batch(pairs, device);
            let logits = model.forward(batch.source.clone(), batch.target.clone());
            let whole = sequence_loss(logits, padded(&targets, PAD, device), PAD, 0.1);
            let (expected, whole) = outcome(whole);
            let (found, of_labels) = outcome(model.loss(batch, &LossOptions::smoothed(0.1)));
            for (found, expected) in found.iter().zip(expected) {
                assert_close(&[*found], &[expected], 1e-6 * expected);
            }
            assert_eq!(of_labels.len(), whole.len());
            for (found, expected) in of_labels.iter().zip(&whole) {
                let largest = expected.iter().fold(0.0, |most: f64, g| most.max(g.abs()));
                // As in `accumulation`.
                assert_close(found, expected, 5e-5 * largest);
            }
        }
    }
}

fn frozen_parameters<B: AutodiffBackend>(device: &B::Device) {
    let mut model = paper().init::<B>(1, device).unwrap();
    let before = numbers(&model.valid(), None);
    // The generator's matrix, too.
    model.src_embedding = model.src_embedding.no_grad();
    let trained = trainer(model, 2).train(pairs(15), pairs(3)).unwrap();
    let after = numbers(&trained.model, None);
    assert_eq!(before.len(), after.len());
    // The embedding is the first parameter; every other one learns.
    for (index, (before, after)) in before.iter().zip(&after).enumerate() {
        assert_eq!(before == after, index == 0, "parameter {index}");
    }
}

/// Whether the order of a backend's sums depends on shapes alone: then the same input gives the same bits.
fn has_fixed_sums(backend: &str) -> bool {
    matches!(backend, "ndarray" | "flex")
}

/// The most that the weights of a resumed run may differ by, relative to their movement in training.
///
/// Zero where sums are fixed. Elsewhere weights that are read from a file may
/// have other strides than updated ones, and so be multiplied in another order. A rounding of 1e-7 in a
/// gradient changes Adam's step by as much, except for the few entries near zero; lost moments, or
/// another dropout, batch or rate, change it by a tenth and more.
fn resume_bound(backend: &str) -> f64 {
    match has_fixed_sums(backend) {
        true => 0.0,
        false => 1e-3,
    }
}

fn resume<B: AutodiffBackend>(device: &B::Device) {
    let config = TransformerConfig {
        attention_dropout: 0.1,
        activation_dropout: 0.1,
        ..paper()
    };
    let model = || config.init::<B>(1, device).unwrap();
    let weights = |trainer: Trainer<B, Transformer<B>>| {
        let trained = trainer.train(pairs(15), pairs(3)).unwrap();
        numbers(&trained.model, None).concat()
    };
    let precisions = [ProductPrecision::F32, ProductPrecision::Bf16].into_iter();
    for precision in precisions.filter(|precision| multiplies_in::<B>(*precision, device)) {
        let trainer = |updates| trainer_at(precision, model(), updates);
        let whole = weights(trainer(8));
        let folder = tempfile::tempdir().unwrap();
        // The pairs make six batches: this is in the middle of an epoch.
        let stopped = weights(trainer(4).directory(folder.path()));
        let resumed = weights(trainer(8).directory(folder.path()).resume(true));

        let initial = numbers(&model().valid(), None).concat();
        let moved = distance(&initial, &whole);
        assert!(distance(&stopped, &whole) > 0.1 * moved);
        let off = distance(&resumed, &whole) / moved;
        let bound = resume_bound(&<B::InnerBackend as Backend>::name(device));
        assert!(off <= bound, "{precision}: off by {off:e}, bound {bound:e}");
    }
}

/// Dropout is drawn from Burn's generator, which the process shares. Initial weights and samples are not.
fn side_by_side<B: AutodiffBackend>(device: &B::Device) {
    let config = TransformerConfig {
        attention_dropout: 0.1,
        activation_dropout: 0.1,
        ..paper()
    };
    let model = || config.init::<B>(1, device).unwrap();
    let train = || {
        let trained = trainer(model(), 8).train(pairs(15), pairs(3)).unwrap();
        numbers(&trained.model, None).concat()
    };
    let options = DecodeOptions {
        max_length: MaxLength::Tokens(MAX_LENGTH),
        ..DecodeOptions::sample(Sampling::default())
    };
    let decode = || {
        let model = paper().init::<B::InnerBackend>(2, device).unwrap();
        let search = Search::new(&model, options.clone()).unwrap();
        targets(&search.run(&SOURCES.map(Request::exact)).unwrap())
    };
    let (weights, samples) = (train(), decode());
    let ended = AtomicBool::new(false);
    let beside = thread::scope(|scope| {
        let decoding = scope.spawn(|| {
            // So many only where the run fails.
            for _ in 0..10_000 {
                assert_eq!(decode(), samples);
                if ended.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let beside = train();
        ended.store(true, Ordering::Relaxed);
        decoding.join().unwrap();
        beside
    });
    let initial = numbers(&model().valid(), None).concat();
    let off = distance(&beside, &weights) / distance(&initial, &weights);
    let bound = resume_bound(&<B::InnerBackend as Backend>::name(device));
    assert!(off <= bound, "off by {off:e}, bound {bound:e}");
}

/// Twelve updates. The model is validated in f32 in either case.
fn bf16<B: AutodiffBackend>(device: &B::Device) {
    let losses = |precision| {
        let config = TrainingConfig {
            precision,
            validate_every: 1,
            ..settings(12)
        };
        let model = paper().init::<B>(1, device).unwrap();
        let trainer = Trainer::new(model, config).display(ProgressDisplay::Silent);
        let trained = trainer.train(pairs(15), pairs(3))?;
        let validations = trained.validations.iter();
        let losses = validations.map(|validation| [validation.train_loss, validation.valid_loss]);
        Ok::<_, TrainError>(losses.flatten().collect::<Vec<_>>())
    };
    let rounded = losses(ProductPrecision::Bf16);
    if !multiplies_in::<B>(ProductPrecision::Bf16, device) {
        let error = rounded.unwrap_err().to_string();
        assert!(error.starts_with("`precision` is bf16, "), "{error}");
        return;
    }
    let (rounded, exact) = (rounded.unwrap(), losses(ProductPrecision::F32).unwrap());
    assert_eq!(rounded.len(), 2 * 12);
    assert_ne!(rounded, exact);
    // Each rounding is by 1/256 at most, and the output of a few layers is off by some hundredth: a logit of 3 by
    // 0.03. The losses are means over dozens of tokens, in which such errors cancel in part, but Adam's first
    // updates depend on little more than the signs of gradients: here the most is 0.054, and in six models of this
    // size in PyTorch, with the same roundings, it was 0.012.
    assert_close(&rounded, &exact, 0.1);
}

fn trainer<B: AutodiffBackend>(
    model: Transformer<B>,
    updates: usize,
) -> Trainer<B, Transformer<B>> {
    trainer_at(ProductPrecision::F32, model, updates)
}

fn trainer_at<B: AutodiffBackend>(
    precision: ProductPrecision,
    model: Transformer<B>,
    updates: usize,
) -> Trainer<B, Transformer<B>> {
    let config = TrainingConfig {
        precision,
        ..settings(updates)
    };
    Trainer::new(model, config).display(ProgressDisplay::Silent)
}

/// A short run. The rate is so low that roundings do not grow from one update to the next.
fn settings(updates: usize) -> TrainingConfig {
    TrainingConfig {
        seed: 5,
        batch_tokens: 24,
        warmup: 40,
        updates,
        validate_every: 8,
        ..TrainingConfig::default()
    }
}

/// Sources of 1 to 5 tokens, 3 to 11 of the 13; targets twice as long.
fn pairs(count: usize) -> Vec<TokenizedPair> {
    let pair = |index: usize| {
        let source = (0..=index % 5).map(|at| 3 + ((index * 7 + at * 3) % 9) as u32);
        let source: Vec<u32> = source.collect();
        TokenizedPair {
            target: source.iter().flat_map(|&token| [token, token]).collect(),
            source,
        }
    };
    (0..count).map(pair).collect()
}

/// The numbers of every parameter, or of its gradient, in the order of the model.
fn numbers<B: Backend>(
    model: &Transformer<B>,
    gradients: Option<&GradientsParams>,
) -> Vec<Vec<f64>> {
    struct Numbers<'a>(Option<&'a GradientsParams>, Vec<Vec<f64>>);
    impl<B: Backend> ModuleVisitor<B> for Numbers<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.1.push(values(match self.0 {
                None => param.val(),
                Some(gradients) => {
                    let gradient = gradients.get::<B, D>(param.id);
                    gradient.expect("every parameter has a gradient")
                }
            }));
        }
    }
    let mut numbers = Numbers(gradients, Vec::new());
    model.visit(&mut numbers);
    numbers.1
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    tensor.into_data().iter().collect()
}

/// Numbers in [-1, 1], no two alike.
fn wave<B: Backend, const D: usize>(shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|at| (at as f32 * 0.7).sin()).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// The largest difference; NaN if there is one.
fn largest_difference(left: &[f64], right: &[f64]) -> f64 {
    assert_eq!(left.len(), right.len());
    let differences = left.iter().zip(right).map(|(a, b)| (a - b).abs());
    differences.max_by(f64::total_cmp).unwrap_or(0.0)
}

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64], bound: f64) {
    let off = largest_difference(found, expected);
    assert!(off <= bound, "off by {off:e}, bound {bound:e}");
}

/// The Euclidean distance of two lists of numbers.
fn distance(left: &[f64], right: &[f64]) -> f64 {
    assert_eq!(left.len(), right.len());
    let squares = left.iter().zip(right).map(|(a, b)| (a - b).powi(2));
    squares.sum::<f64>().sqrt()
}
