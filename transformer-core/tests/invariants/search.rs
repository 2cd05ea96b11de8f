//! Search: its results against exhaustive search, and its promises with any options.

use std::ops::ControlFlow;

use burn::tensor::Tensor;
use proptest::prelude::*;
use transformer_core::decoding::{
    DecodeOptionsError, Ensemble, LengthPenalty, MaxLength, Next, NextToken, RequestProblem,
    Sampling, SourceTarget, Threads, Vocabulary, greedy, score,
};
use transformer_core::nn::{
    AttentionWeights, Memory, Mixer, NormPlacement, Positions, StackOutput,
};
use transformer_core::{DecodeOptions, Request, Search, Transformer, TransformerConfig};

use crate::common::*;

const PENALTIES: [LengthPenalty; 5] = [
    LengthPenalty::None,
    LengthPenalty::Paper(0.6),
    LengthPenalty::Paper(2.0),
    LengthPenalty::AVERAGE,
    LengthPenalty::Power(-0.5),
];

fn sources() -> Vec<Vec<u32>> {
    [
        &[5, 3, 7, 12, 2][..],
        &[4, 2],
        &[9, 8, 11, 2],
        &[6, 6, 2],
        &[10, 3, 4, 5, 6, 7, 2],
        &[12, 2],
    ]
    .map(<[u32]>::to_vec)
    .to_vec()
}

fn short() -> DecodeOptions {
    DecodeOptions {
        max_length: MaxLength::SourcePlus(3),
        ..DecodeOptions::beam(3)
    }
}

/// A hypothesis, as search finds it or a test expects it.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    tokens: Vec<u32>,
    finished: bool,
    log_prob: f64,
    score: f64,
}

impl From<transformer_core::decoding::Hypothesis> for Found {
    fn from(hypothesis: transformer_core::decoding::Hypothesis) -> Self {
        Self {
            tokens: hypothesis.tokens,
            finished: hypothesis.finished,
            log_prob: hypothesis.log_prob,
            score: hypothesis.score,
        }
    }
}

fn all_found(hypotheses: Vec<Vec<transformer_core::decoding::Hypothesis>>) -> Vec<Vec<Found>> {
    let each = hypotheses.into_iter();
    each.map(|of_one| of_one.into_iter().map(Found::from).collect())
        .collect()
}

fn run(
    models: &[&Transformer<NdArray>],
    options: &DecodeOptions,
    sources: &[Vec<u32>],
) -> Vec<Vec<Found>> {
    let ensemble = Ensemble::new(models.to_vec()).unwrap();
    let search = Search::new(&ensemble, options.clone()).unwrap();
    all_found(search.run(&exact(sources)).unwrap())
}

/// A model with so few tokens that every target of up to three can be tried.
fn exhaustible() -> TransformerConfig {
    TransformerConfig {
        tgt_vocab_size: 5,
        ..tiny()
    }
}

/// All targets of a source: those of fewer than three tokens end in `<eos>`, those of three are cut.
fn all_targets(
    models: &[&Transformer<NdArray>],
    source: &[u32],
    penalty: LengthPenalty,
) -> Vec<Found> {
    let mut all = Vec::new();
    let mut begun = vec![Vec::new()];
    for len in 0..=3 {
        let mut longer = Vec::new();
        for tokens in begun {
            let finished = len < 3;
            let target = [&tokens[..], if finished { &[2] } else { &[] }].concat();
            let log_prob = log_prob_without_cache(models, source, &target);
            all.push(Found {
                finished,
                log_prob,
                score: log_prob / penalty.of(target.len()),
                tokens: tokens.clone(),
            });
            longer.extend([0, 1, 3, 4].map(|token| [&tokens[..], &[token]].concat()));
        }
        begun = longer;
    }
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    all
}

/// The log-probability of a target by the mean of the models' probabilities, in double precision from
/// their logits.
fn log_prob_without_cache(models: &[&Transformer<NdArray>], source: &[u32], target: &[u32]) -> f64 {
    let tgt = [&[1], target].concat();
    let probs = models.iter().map(|model| {
        let logits = values(model.forward(tokens(&[source]), tokens(&[&tgt])));
        let rows = logits.chunks(model.config().tgt_vocab_size);
        let probs = rows.zip(target).map(|(row, &token)| {
            let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
            row[token as usize].exp() / sum
        });
        probs.collect::<Vec<f64>>()
    });
    let mut mean = vec![0.0; target.len()];
    for probs in probs {
        for (mean, prob) in mean.iter_mut().zip(probs) {
            *mean += prob / models.len() as f64;
        }
    }
    mean.into_iter().map(f64::ln).sum()
}

/// The tokens whose log-probability the hypothesis has.
fn with_eos(hypothesis: &Found) -> Vec<u32> {
    let end: &[u32] = if hypothesis.finished { &[2] } else { &[] };
    [&hypothesis.tokens, end].concat()
}

#[track_caller]
fn assert_same(found: &[Found], expected: &[Found], tolerance: f64) {
    let tokens = |hypotheses: &[Found]| -> Vec<_> {
        let each = hypotheses.iter();
        each.map(|hypothesis| (hypothesis.tokens.clone(), hypothesis.finished))
            .collect()
    };
    assert_eq!(tokens(found), tokens(expected));
    for (found, expected) in found.iter().zip(expected) {
        assert_close(
            &vec![found.log_prob, found.score],
            &vec![expected.log_prob, expected.score],
            tolerance,
        );
    }
}

#[test]
fn a_wide_beam_finds_the_best_of_all_targets() {
    let options = DecodeOptions {
        n_best: 10,
        max_length: MaxLength::Tokens(3),
        ..DecodeOptions::beam(100)
    };
    let mut best_lengths = Vec::new();
    for seed in 0..6 {
        let model = model::<NdArray>(&exhaustible(), seed);
        for length_penalty in PENALTIES {
            let options = DecodeOptions {
                length_penalty,
                ..options.clone()
            };
            let found = run(&[&model], &options, &sources());
            for (source, found) in sources().iter().zip(found) {
                let expected = all_targets(&[&model], source, length_penalty);
                assert_same(&found, &expected[..10], 1e-5);
                best_lengths.push(found[0].tokens.len());
            }
        }
    }
    best_lengths.sort();
    best_lengths.dedup();
    assert!(best_lengths.len() >= 3, "lengths: only {best_lengths:?}");
}

#[test]
fn an_ensemble_has_the_mean_of_its_models_probabilities() {
    let models = [1, 2, 3].map(|seed| model::<NdArray>(&exhaustible(), seed));
    let other_sizes = TransformerConfig {
        d_model: 8,
        norm: NormPlacement::Pre,
        ..exhaustible()
    };
    let fourth = model::<NdArray>(&other_sizes, 4);
    let models = [&models[0], &models[1], &models[2], &fourth];
    let options = DecodeOptions {
        n_best: 10,
        max_length: MaxLength::Tokens(3),
        ..DecodeOptions::beam(100)
    };
    let found = run(&models, &options, &sources());
    for (source, found) in sources().iter().zip(&found) {
        let expected = all_targets(&models, source, options.length_penalty);
        assert_same(found, &expected[..10], 1e-5);
    }
    let alone = run(&models[..1], &options, &sources());
    let twice = run(&[models[0], models[0]], &options, &sources());
    for (alone, twice) in alone.iter().zip(&twice) {
        assert_same(alone, twice, 1e-5);
    }
}

#[test]
fn a_beam_of_one_is_greedy() {
    for config in variants() {
        let model = model::<NdArray>(&config, 5);
        for length_penalty in PENALTIES {
            let options = DecodeOptions {
                length_penalty,
                ..DecodeOptions::beam(1)
            };
            let found = run(&[&model], &options, &sources());
            let expected = greedy(&model, &exact(&sources()), MaxLength::default());
            for (found, expected) in found.into_iter().flatten().zip(expected.unwrap()) {
                assert_eq!(found.tokens, expected.tokens);
                assert_close(&vec![found.log_prob], &vec![expected.log_prob], 1e-6);
            }
        }
    }
}

#[test]
fn the_first_of_n_is_the_best_whatever_n() {
    for seed in 0..8 {
        let model = model::<NdArray>(&tiny(), seed);
        for length_penalty in PENALTIES {
            let best = |n_best| {
                let options = DecodeOptions {
                    n_best,
                    length_penalty,
                    max_length: MaxLength::SourcePlus(3),
                    ..DecodeOptions::beam(4)
                };
                run(&[&model], &options, &sources())
            };
            let all = best(4);
            for n in 1..4 {
                for (few, all) in best(n).iter().zip(&all) {
                    assert_eq!(few.len(), n);
                    assert_same(&few[..1], &all[..1], 1e-6);
                }
            }
            for of_source in all {
                assert!(of_source.is_sorted_by(|a, b| a.score >= b.score));
                let mut tokens: Vec<_> =
                    of_source.iter().map(|h| (&h.tokens, h.finished)).collect();
                tokens.sort();
                tokens.dedup();
                assert_eq!(tokens.len(), of_source.len(), "no hypothesis twice");
            }
        }
    }
}

/// Without a penalty even a narrow beam continues while a growing target may exceed the ended ones.
#[test]
fn without_penalties_no_better_target_is_left_growing() {
    let mut more_than_beam = 0;
    for seed in 0..40 {
        let model = model::<NdArray>(&tiny(), seed);
        let options = DecodeOptions {
            length_penalty: LengthPenalty::None,
            max_length: MaxLength::Tokens(12),
            ..DecodeOptions::beam(2)
        };
        let found = run(&[&model], &options, &sources());
        for (source, found) in sources().iter().zip(found) {
            let no_better = |live: &[Growing], ended: &[Found]| {
                live.iter().all(|(log_prob, _)| *log_prob <= ended[0].score)
            };
            let (best, ended) = beam_of_two(&model, source, &options, no_better);
            more_than_beam += usize::from(ended > 2);
            assert_same(&found, &[best], 1e-4);
        }
    }
    assert!(more_than_beam > 0, "the test has no search that continues");
}

/// Hugging Face's rule: with as many ended targets as the beam has, the search goes on while a growing one has a better
/// score, by its length so far, than the worst of the best ended ones.
#[test]
fn without_early_stopping_no_target_that_scores_better_is_left_growing() {
    let mut more_than_beam = 0;
    for seed in 0..20 {
        let model = model::<NdArray>(&tiny(), seed);
        for length_penalty in [LengthPenalty::AVERAGE, LengthPenalty::Paper(0.6)] {
            let options = DecodeOptions {
                length_penalty,
                early_stopping: false,
                max_length: MaxLength::Tokens(12),
                ..DecodeOptions::beam(2)
            };
            let found = run(&[&model], &options, &sources());
            for (source, found) in sources().iter().zip(found) {
                let no_better = |live: &[Growing], ended: &[Found]| {
                    let score =
                        |(log_prob, tokens): &Growing| log_prob / length_penalty.of(tokens.len());
                    ended.len() >= 2 && live.iter().all(|live| score(live) <= ended[1].score)
                };
                let (best, ended) = beam_of_two(&model, source, &options, no_better);
                more_than_beam += usize::from(ended > 2);
                assert_same(&found, &[best], 1e-4);
            }
        }
    }
    assert!(more_than_beam > 0, "the test has no search that continues");
}

/// The log-probability of a growing target, and its tokens.
type Growing = (f64, Vec<u32>);

/// Textbook beam search, without cache or batch, until `is_done` of the growing and the ended targets; there is at
/// least one ended target, and the best is the first. Returns also the number of ended ones.
fn beam_of_two(
    model: &Transformer<NdArray>,
    source: &[u32],
    options: &DecodeOptions,
    is_done: impl Fn(&[Growing], &[Found]) -> bool,
) -> (Found, usize) {
    let MaxLength::Tokens(limit) = options.max_length else {
        unreachable!("the tests set a length");
    };
    let mut live: Vec<Growing> = vec![(0.0, Vec::new())];
    let mut ended: Vec<Found> = Vec::new();
    let hypothesis = |log_prob: f64, tokens: &[u32], finished: bool| Found {
        tokens: tokens.to_vec(),
        finished,
        log_prob,
        score: log_prob
            / options
                .length_penalty
                .of(tokens.len() + usize::from(finished)),
    };
    for _ in 0..limit {
        ended.sort_by(|a, b| b.score.total_cmp(&a.score));
        if live.is_empty() || (!ended.is_empty() && is_done(&live, &ended)) {
            break;
        }
        let mut longer = Vec::new();
        for (log_prob, target) in &live {
            let tgt = [&[1], &target[..]].concat();
            let logits = values(model.forward(tokens(&[source]), tokens(&[&tgt])));
            let row = &logits[logits.len() - model.config().tgt_vocab_size..];
            let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
            for (token, logit) in row.iter().enumerate() {
                let log_prob = log_prob + logit - sum.ln();
                longer.push((log_prob, [&target[..], &[token as u32]].concat()));
            }
        }
        longer.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        for (log_prob, target) in &longer[..2] {
            if let Some((2, target)) = target.split_last() {
                ended.push(hypothesis(*log_prob, target, true));
            }
        }
        longer.truncate(4);
        longer.retain(|(_, target)| target.last() != Some(&2));
        longer.truncate(2);
        live = longer;
    }
    let count = ended.len();
    if live.iter().any(|(_, target)| target.len() == limit) {
        ended.extend(
            live.iter()
                .map(|(log_prob, target)| hypothesis(*log_prob, target, false)),
        );
    }
    ended.sort_by(|a, b| b.score.total_cmp(&a.score));
    (ended.swap_remove(0), count)
}

#[test]
fn scores_of_search_are_those_of_scoring() {
    let config = &variants()[3];
    let [first, second] = [1, 2].map(|seed| model::<NdArray>(config, seed));
    let sample = DecodeOptions {
        n_best: 3,
        length_penalty: LengthPenalty::AVERAGE,
        max_length: MaxLength::SourcePlus(3),
        ..DecodeOptions::sample(Sampling {
            temperature: 1.5,
            top_p: 0.9,
            ..Sampling::default()
        })
    };
    let penalized = DecodeOptions {
        repetition_penalty: 1.3,
        no_repeat_ngram: 2,
        min_length: 2,
        ..short()
    };
    for models in [&[&first][..], &[&first, &second]] {
        for options in [short(), sample.clone(), penalized.clone()] {
            let found = run(models, &options, &sources());
            for (source, found) in sources().iter().zip(found) {
                for hypothesis in found {
                    let target = with_eos(&hypothesis);
                    let pair = SourceTarget::exact(&source[..], &target[..]);
                    let ensemble = Ensemble::new(models.to_vec()).unwrap();
                    let score = &score(&ensemble, &[pair], 64).unwrap()[0];
                    assert_eq!(score.log_probs.len(), target.len());
                    assert_close(&vec![score.log_prob()], &vec![hypothesis.log_prob], 1e-4);
                    if options.repetition_penalty == 1.0 {
                        let expected = score.log_prob() / options.length_penalty.of(target.len());
                        assert_close(&vec![hypothesis.score], &vec![expected], 1e-4);
                    }
                }
            }
        }
    }
}

/// The score is the sum of log-probabilities among the tokens that the rules leave; the log-probability stays the
/// model's, and samples are the same ones.
#[test]
fn renormalized_ranks_are_shares_of_the_tokens_that_rules_leave() {
    let model = model::<NdArray>(&tiny(), 3);
    let sample = DecodeOptions::sample(Sampling::default());
    let mut differing = 0;
    for options in [short(), sample] {
        let options = DecodeOptions {
            n_best: 3,
            banned_tokens: vec![7, 4],
            min_length: 2,
            repetition_penalty: 1.3,
            forced_first: Some(9),
            ..options
        };
        let renormalized = DecodeOptions {
            renormalize: true,
            ..options.clone()
        };
        let is_sample = options.strategy != short().strategy;
        let plain = run(&[&model], &options, &sources());
        let found = run(&[&model], &renormalized, &sources());
        for ((source, found), plain) in sources().iter().zip(found).zip(plain) {
            for hypothesis in &found {
                let target = with_eos(hypothesis);
                let expected = log_prob_without_cache(&[&model], source, &target);
                let mut rank = 0.0;
                for at in 1..target.len() {
                    let log_prob = |token: u32| {
                        let longer = [&target[..at], &[token]].concat();
                        let pair = SourceTarget::exact(&source[..], longer);
                        let score = score(&model, &[pair], 64).unwrap();
                        let log_prob = f64::from(score[0].log_probs[at]);
                        let is_repeated = token == 1 || target[..at].contains(&token);
                        if is_repeated {
                            1.3 * log_prob
                        } else {
                            log_prob
                        }
                    };
                    let left = (0..11).filter(|token| {
                        ![7, 4].contains(token) && (*token != 2 || at >= options.min_length)
                    });
                    let sum: f64 = left.map(|token| log_prob(token).exp()).sum();
                    rank += log_prob(target[at]) - sum.ln();
                }
                let score = rank / options.length_penalty.of(target.len());
                let found = vec![hypothesis.log_prob, hypothesis.score];
                assert_close(&found, &vec![expected, score], 1e-4);
            }
            let mut tokens = [found, plain].map(|found| {
                let tokens = found.into_iter().map(|hypothesis| hypothesis.tokens);
                tokens.collect::<Vec<_>>()
            });
            if is_sample {
                tokens.iter_mut().for_each(|tokens| tokens.sort());
                assert_eq!(tokens[0], tokens[1]);
            }
            differing += usize::from(tokens[0] != tokens[1]);
        }
    }
    assert!(differing > 0, "no beam of the test differs");
}

#[test]
fn scores_are_those_of_every_target_alone() {
    let model = model::<NdArray>(&tiny(), 3);
    let targets: Vec<Vec<u32>> = [&[3, 4, 2][..], &[], &[10, 2], &[5], &[2], &[7, 7, 7, 7, 2]]
        .map(<[u32]>::to_vec)
        .to_vec();
    for batch_tokens in [1, 12, 1000] {
        let pairs = sources().into_iter().zip(&targets);
        let pairs: Vec<_> = pairs
            .map(|(source, target)| SourceTarget::exact(source, &target[..]))
            .collect();
        let scores = score(&model, &pairs, batch_tokens);
        for ((source, target), score) in sources().iter().zip(&targets).zip(scores.unwrap()) {
            let expected = log_prob_without_cache(&[&model], source, target);
            assert_close(&vec![score.log_prob()], &vec![expected], 1e-5);
            let perplexity = (-expected / target.len().max(1) as f64).exp();
            assert_close(&vec![score.perplexity()], &vec![perplexity], 1e-3);
        }
    }
}

fn any_source() -> impl proptest::strategy::Strategy<Value = Vec<u32>> {
    prop::collection::vec(3_u32..13, 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// In any batch and any order.
    #[test]
    fn hypotheses_do_not_depend_on_the_batch(
        sources in prop::collection::vec(any_source(), 1..8),
        order in any::<u64>(),
        batch_tokens in 1_usize..60,
        seed in 0_u64..4,
        width in 1_usize..4,
    ) {
        let model = model::<NdArray>(&variants()[seed as usize], seed);
        let mut shuffled: Vec<usize> = (0..sources.len()).collect();
        shuffled.sort_by_key(|&at| (at as u64 + 1).wrapping_mul(order | 1));
        let sampling = Sampling { top_k: 6, seed, ..Sampling::default() };
        for options in [
            DecodeOptions::greedy(),
            DecodeOptions { n_best: width, ..DecodeOptions::beam(width) },
            DecodeOptions { n_best: width, ..DecodeOptions::sample(sampling) },
        ] {
            let options = DecodeOptions { max_length: MaxLength::SourcePlus(4), ..options };
            let batched = DecodeOptions { batch_tokens, ..options.clone() };
            let order: Vec<_> = shuffled.iter().map(|&at| sources[at].clone()).collect();
            let found = run(&[&model], &batched, &order);
            for (&at, found) in shuffled.iter().zip(found) {
                let alone = run(&[&model], &options, &sources[at..=at]);
                // A hypothesis adds up its tokens' log-probabilities, each rounded in another order: of 13
                // tokens, the largest error seen is 1.01e-5.
                let longest = alone[0].iter().map(|found| found.tokens.len()).max();
                let tolerance = 2e-6 * longest.unwrap_or(0) as f64;
                assert_same(&found, &alone[0], tolerance.max(1e-5));
            }
        }
    }
}

#[test]
fn targets_obey_the_rules() {
    let mut ended = 0;
    for seed in 0..6 {
        let model = model::<NdArray>(&tiny(), seed);
        let options = DecodeOptions {
            n_best: 3,
            banned_tokens: vec![0, 1, 7],
            no_repeat_ngram: 2,
            min_length: 3,
            max_length: MaxLength::Tokens(6),
            ..DecodeOptions::beam(3)
        };
        for strategy in [
            options.strategy.clone(),
            DecodeOptions::sample(Sampling::default()).strategy,
        ] {
            let options = DecodeOptions {
                strategy,
                ..options.clone()
            };
            for hypothesis in run(&[&model], &options, &sources()).into_iter().flatten() {
                let tokens = hypothesis.tokens;
                assert!((3..=6).contains(&tokens.len()), "{tokens:?}");
                assert!(hypothesis.finished || tokens.len() == 6);
                assert!(!tokens.iter().any(|token| [0, 1, 2, 7].contains(token)));
                let mut pairs: Vec<_> = tokens.windows(2).collect();
                pairs.sort();
                pairs.dedup();
                assert_eq!(pairs.len(), tokens.len() - 1, "{tokens:?}");
                ended += usize::from(hypothesis.finished);
            }
        }
    }
    assert!(ended > 20, "the test has too few targets that end: {ended}");
}

#[test]
fn targets_begin_with_their_prefixes() {
    let model = model::<NdArray>(&tiny(), 1);
    let prefixes = vec![
        vec![9, 4, 4],
        vec![],
        vec![6],
        vec![3, 2],
        vec![10, 10],
        vec![8],
    ];
    for options in [short(), DecodeOptions::greedy()] {
        let requests = exact(&sources()).into_iter().zip(&prefixes);
        let requests: Vec<_> = requests
            .map(|(request, prefix)| request.with_prefix(&prefix[..]))
            .collect();
        let search = Search::new(&model, options.clone()).unwrap();
        let found = all_found(search.run(&requests).unwrap());
        let free = run(&[&model], &options, &sources());
        assert_same(&found[1], &free[1], 1e-6);
        // Ends in the prefix's <eos>.
        assert_eq!(
            (&found[3][0].tokens[..], found[3][0].finished),
            (&[3][..], true)
        );
        for (at, prefix) in prefixes.iter().enumerate().filter(|(at, _)| *at != 3) {
            for hypothesis in &found[at] {
                assert!(hypothesis.tokens.starts_with(prefix), "{hypothesis:?}");
                let target = with_eos(hypothesis);
                let expected = log_prob_without_cache(&[&model], &sources()[at], &target);
                assert_close(&vec![hypothesis.log_prob], &vec![expected], 1e-4);
            }
        }
    }
}

/// Like `<bos>`, it is part of no rank.
#[test]
fn targets_begin_with_the_forced_token() {
    let model = model::<NdArray>(&tiny(), 1);
    let sampling = DecodeOptions::sample(Sampling::default());
    for options in [short(), DecodeOptions::greedy(), sampling] {
        let options = DecodeOptions {
            forced_first: Some(9),
            ..options
        };
        let found = run(&[&model], &options, &sources());
        for (source, found) in sources().iter().zip(found) {
            for hypothesis in found {
                assert_eq!(hypothesis.tokens[0], 9);
                let target = with_eos(&hypothesis);
                let log_prob =
                    |len: usize| log_prob_without_cache(&[&model], source, &target[..len]);
                let (first, all) = (log_prob(1), log_prob(target.len()));
                let score = (all - first) / options.length_penalty.of(target.len());
                assert_close(
                    &vec![hypothesis.log_prob, hypothesis.score],
                    &vec![all, score],
                    1e-4,
                );
            }
        }
    }
}

#[test]
fn a_prefix_comes_after_the_forced_token_or_begins_with_it() {
    let model = model::<NdArray>(&tiny(), 1);
    let options = DecodeOptions {
        forced_first: Some(9),
        ..short()
    };
    let search = Search::new(&model, options).unwrap();
    let [none, itself, after, both] =
        [&[][..], &[9], &[4, 6], &[9, 4, 6]].map(|prefix: &[u32]| {
            let request = Request::exact([5, 3, 2]).with_prefix(prefix);
            search.run(&[request]).unwrap()
        });
    assert_eq!(none, itself);
    assert_eq!(after, both);
    assert!(after[0][0].tokens.starts_with(&[9, 4, 6]));
}

/// That `<eos>` is part of no rank, either.
#[test]
fn a_target_at_its_limit_ends_where_that_is_forced() {
    let mut at_limit = 0;
    for seed in 0..4 {
        let model = model::<NdArray>(&tiny(), seed);
        let sampling = DecodeOptions::sample(Sampling::default());
        for options in [DecodeOptions::greedy(), short(), sampling] {
            let at_most = |tokens, forced_last| DecodeOptions {
                max_length: MaxLength::Tokens(tokens),
                forced_last,
                ..options.clone()
            };
            let found = run(&[&model], &at_most(4, true), &sources());
            for (source, found) in sources().iter().zip(&found) {
                let found = &found[0];
                let len = found.tokens.len();
                assert!(found.finished && len <= 3, "{found:?}");
                let log_prob = |target: &[u32]| log_prob_without_cache(&[&model], source, target);
                let all = log_prob(&with_eos(found));
                let ranked = match len {
                    3 => log_prob(&found.tokens),
                    _ => all,
                };
                let score = ranked / options.length_penalty.of(len + 1);
                assert_close(&vec![found.log_prob, found.score], &vec![all, score], 1e-4);
                at_limit += usize::from(len == 3);
            }
            if options == DecodeOptions::greedy() {
                // The `<eos>` comes in place of a fourth token.
                let cut = run(&[&model], &at_most(3, false), &sources());
                for (found, cut) in found.iter().zip(cut) {
                    assert_eq!(found[0].tokens, cut[0].tokens);
                }
            }
        }
    }
    assert!(at_limit > 10, "too few targets reach the limit: {at_limit}");
}

#[test]
fn a_repetition_penalty_makes_other_targets() {
    let model = model::<NdArray>(&tiny(), 0);
    let repeated = |repetition_penalty| {
        let options = DecodeOptions {
            repetition_penalty,
            max_length: MaxLength::Tokens(12),
            min_length: 12,
            ..DecodeOptions::greedy()
        };
        let found = run(&[&model], &options, &sources());
        let repeated = found.iter().flatten().map(|hypothesis| {
            let mut tokens = hypothesis.tokens.clone();
            tokens.sort();
            tokens.dedup();
            hypothesis.tokens.len() - tokens.len()
        });
        repeated.sum::<usize>()
    };
    let counts = [4.0, 1.0, 0.25].map(repeated);
    assert!(
        counts[0] < counts[1] && counts[1] <= counts[2],
        "{counts:?}"
    );
}

/// Score = log-probability / penalty + β Σ ln min(attention, 1), from the maps of the whole target.
#[test]
fn the_coverage_penalty_is_that_of_its_attention() {
    let model = model::<NdArray>(&tiny(), 2);
    let options = DecodeOptions {
        coverage_penalty: 0.4,
        n_best: 3,
        ..short()
    };
    let mut covered = 0;
    for (source, found) in sources().iter().zip(run(&[&model], &options, &sources())) {
        for hypothesis in found {
            // One row for each token, and for <eos>.
            let end: &[u32] = if hypothesis.finished { &[2] } else { &[] };
            let target = [&hypothesis.tokens, end].concat();
            let len = target.len();
            let pair = SourceTarget::exact(&source[..], target);
            let maps = model.attention_maps(&pair).unwrap().cross;
            let mut sums = vec![0.0; source.len()];
            for map in &maps {
                let [_, heads, _, src_len] = map.dims();
                for (at, weight) in values(map.clone()).into_iter().enumerate() {
                    sums[at % src_len] += weight / (heads * maps.len()) as f64;
                }
            }
            covered += sums.iter().filter(|&&sum| sum >= 1.0).count();
            let penalty: f64 = sums.iter().map(|sum| sum.min(1.0).ln()).sum();
            let expected = hypothesis.log_prob / options.length_penalty.of(len) + 0.4 * penalty;
            assert_close(&vec![hypothesis.score], &vec![expected], 1e-4);
        }
    }
    assert!(covered > 0, "some source tokens are covered, others not");
}

#[test]
fn tokens_are_emitted_in_order() {
    let model = model::<NdArray>(&tiny(), 4);
    let sampling = DecodeOptions::sample(Sampling::default());
    for options in [DecodeOptions::greedy(), short(), sampling] {
        let options = DecodeOptions {
            max_length: MaxLength::SourcePlus(3),
            batch_tokens: 12,
            ..options
        };
        let search = Search::new(&model, options).unwrap();
        let mut emitted = vec![Vec::new(); 6];
        let found = search
            .stream(&exact(&sources()), |source, token| {
                emitted[source].push(token);
                ControlFlow::Continue(())
            })
            .unwrap();
        let best: Vec<_> = found.iter().map(|found| found[0].tokens.clone()).collect();
        assert_eq!(emitted, best);
    }
}

/// A prefix is part of its target.
#[test]
fn the_tokens_of_a_prefix_are_emitted_first() {
    let model = model::<NdArray>(&tiny(), 4);
    for options in [DecodeOptions::greedy(), short()] {
        let search = Search::new(&model, options).unwrap();
        let requests = [
            Request::new([5, 3]).with_prefix([7, 4]),
            Request::new([9, 8, 11]).with_prefix([6]),
        ];
        let mut emitted = [Vec::new(), Vec::new()];
        let found = search
            .stream(&requests, |request, token| {
                emitted[request].push(token);
                ControlFlow::Continue(())
            })
            .unwrap();
        for ((request, emitted), found) in requests.iter().zip(&emitted).zip(&found) {
            assert!(emitted.starts_with(request.prefix()));
            assert_eq!(*emitted, found[0].tokens);
        }
    }
}

/// When the caller returns `Break`, the hypotheses so far are returned, and no more tokens are emitted.
#[test]
fn a_stream_stops_at_a_break() {
    let model = model::<NdArray>(&tiny(), 4);
    let greedy = DecodeOptions {
        max_length: MaxLength::Tokens(9),
        min_length: 9,
        batch_tokens: 1,
        ..DecodeOptions::greedy()
    };
    let beam = DecodeOptions {
        strategy: DecodeOptions::beam(3).strategy,
        ..greedy.clone()
    };
    for (options, stop_at, tokens_of_last) in [(greedy, 9 + 4, 4), (beam, 9 + 4, 9)] {
        let requests = exact(&sources()[..4]);
        let search = Search::new(&model, options).unwrap();
        let mut emitted = Vec::new();
        let found = search
            .stream(&requests, |request, token| {
                emitted.push((request, token));
                match emitted.len() == stop_at {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })
            .unwrap();
        assert_eq!(emitted.len(), stop_at);
        // Batches hold one source; the longest comes first.
        let (first, second) = (emitted[0].0, emitted[9].0);
        assert_ne!(first, second);
        assert_eq!(found[first][0].tokens.len(), 9);
        let last = &found[second][0];
        assert_eq!((last.tokens.len(), last.finished), (tokens_of_last, false));
        let begun = emitted[9..].iter().map(|&(_, token)| token);
        assert!(begun.eq(last.tokens[..4].iter().copied()));
        for (request, found) in found.iter().enumerate() {
            assert_eq!(found.is_empty(), request != first && request != second);
        }
    }
}

#[test]
fn several_targets_of_a_source_share_its_memory() {
    for config in variants() {
        let model = model::<NdArray>(&config, 3);
        let memory = model.encode(tokens(&sources()[..2]));
        let targets = [
            [1, 4, 6],
            [1, 9, 9],
            [1, 3, 10],
            [1, 8, 2],
            [1, 5, 0],
            [1, 7, 7],
        ];
        let rows = Tensor::from_data([0, 0, 0, 1, 1, 1], &Default::default());
        let repeated = Memory {
            hidden: memory.hidden.clone().select(0, rows.clone()),
            padding: memory.padding.clone().select(0, rows),
        };
        let mut cache = model.start_decoding(&repeated);
        let expected = model.decode_next(tokens(&targets), &mut cache, AttentionWeights::Return);

        let mut cache = model.start_decoding(&memory);
        let found = model.decode_next(tokens(&targets), &mut cache, AttentionWeights::Return);
        assert_eq!((cache.sources(), cache.rows(), cache.len()), (2, 6, 3));
        assert_close(found.hidden.clone(), expected.hidden.clone(), 1e-5);
        assert_same_weights(&config, &found, &expected);
    }
}

/// Of all three layers; a recurrence has none of self-attention.
fn assert_same_weights(
    config: &TransformerConfig,
    found: &StackOutput<NdArray>,
    expected: &StackOutput<NdArray>,
) {
    let own = match config.decoder_mixer {
        Mixer::SelfAttention => 3,
        Mixer::Recurrence => 0,
    };
    for (layers, found, expected) in [
        (own, &found.self_attention, &expected.self_attention),
        (3, &found.cross_attention, &expected.cross_attention),
    ] {
        assert_eq!((found.len(), expected.len()), (layers, layers));
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.dims(), expected.dims());
            assert_close(found.clone(), expected.clone(), 1e-5);
        }
    }
}

/// Targets that branch, are reordered and end, as those of a beam, attend to the same tokens as alone:
/// beyond the cache's first capacity, too, and with padding among their tokens.
#[test]
fn targets_that_branch_are_those_decoded_alone() {
    for mut config in variants() {
        if let Positions::Learned { max_len } = &mut config.positions {
            *max_len = 30;
        }
        let model = model::<NdArray>(&config, 5);
        let sources = sources();
        let memory = model.encode(tokens(&sources[..3]));
        let mut cache = model.start_decoding(&memory);
        // For each row, its source and its tokens.
        let mut rows: Vec<(usize, Vec<u32>)> = (0..3).map(|source| (source, vec![])).collect();
        let mut kept = vec![0, 1, 2];
        for step in 0..30_usize {
            let column: Vec<[u32; 1]> = (0..rows.len())
                .map(|row| [((7 * step + 5 * row + step * row) % 11) as u32])
                .collect();
            for ((_, target), [token]) in rows.iter_mut().zip(&column) {
                target.push(*token);
            }
            let found = model.decode_next(tokens(&column), &mut cache, AttentionWeights::Return);
            if step % 7 == 0 || step == 29 {
                let indices: Vec<i64> = rows.iter().map(|&(source, _)| kept[source]).collect();
                let indices = Tensor::from_data(indices.as_slice(), &Default::default());
                let alone = Memory {
                    hidden: memory.hidden.clone().select(0, indices.clone()),
                    padding: memory.padding.clone().select(0, indices),
                };
                let targets: Vec<&[u32]> = rows.iter().map(|(_, target)| &target[..]).collect();
                let mut fresh = model.start_decoding(&alone);
                let targets = tokens(&targets);
                let mut whole = model.decode_next(targets, &mut fresh, AttentionWeights::Return);
                let expected = whole.hidden.clone().slice_dim(1, step..step + 1);
                assert_close(found.hidden.clone(), expected, 1e-5);
                for maps in [&mut whole.self_attention, &mut whole.cross_attention] {
                    for map in maps {
                        *map = map.clone().slice_dim(2, step..step + 1);
                    }
                }
                assert_same_weights(&config, &found, &whole);
            }
            // The sources that continue, and their rows.
            let width = rows.len() / kept.len();
            let sources: Vec<usize> = match step {
                12 => vec![2, 0],
                20 => vec![1],
                _ => (0..kept.len()).collect(),
            };
            let chosen: Vec<usize> = sources
                .iter()
                .flat_map(|&source| {
                    (0..3).map(move |at| source * width + (at * step + 1) * (step + 2) % width)
                })
                .collect();
            cache.select(&sources, &chosen);
            kept = sources.iter().map(|&source| kept[source]).collect();
            rows = chosen
                .iter()
                .enumerate()
                .map(|(at, &row)| (at / 3, rows[row].1.clone()))
                .collect();
        }
    }
}

#[test]
#[should_panic(expected = "targets [0, 1] of sources [1, 0]")]
fn a_target_stays_with_its_source() {
    let model = model::<NdArray>(&tiny(), 5);
    let memory = model.encode(tokens(&sources()[..2]));
    model.start_decoding(&memory).select(&[1, 0], &[0, 1]);
}

/// One source, one target that begins with `<bos>`: every row of weights sums to one.
#[test]
fn attention_maps_are_of_every_layer_head_and_position() {
    let model = model::<NdArray>(&tiny(), 6);
    let pair = SourceTarget::new([5, 3, 7], [8, 9]);
    let maps = model.attention_maps(&pair).unwrap();
    assert_eq!(maps.source, [5, 3, 7, 2]);
    assert_eq!(maps.target, [1, 8, 9]);
    for (maps, layers, shape) in [
        (&maps.encoder, 2, [1, 2, 4, 4]),
        (&maps.decoder, 3, [1, 2, 3, 3]),
        (&maps.cross, 3, [1, 2, 3, 4]),
    ] {
        assert_eq!(maps.len(), layers);
        for map in maps {
            assert_eq!(map.dims(), shape);
            for row in values(map.clone()).chunks(shape[3]) {
                assert_close(&vec![row.iter().sum()], &vec![1.0], 1e-5);
            }
        }
    }
}

/// Nothing but `<bos>` is added to exact tokens, and a target's last token is only predicted.
#[test]
fn attention_maps_name_the_tokens_that_are_read() {
    let model = model::<NdArray>(&tiny(), 6);
    let read = |pair: SourceTarget| {
        let maps = model.attention_maps(&pair).unwrap();
        let [_, _, tgt_len, src_len] = maps.cross[0].dims();
        assert_eq!((maps.source.len(), maps.target.len()), (src_len, tgt_len));
        (maps.source, maps.target)
    };
    let expected = (vec![5, 3], vec![1, 8]);
    assert_eq!(read(SourceTarget::exact([5, 3], [8, 9])), expected);
    let expected = (vec![5, 3, 2], vec![1, 8]);
    assert_eq!(read(SourceTarget::unfinished([5, 3], [8, 9])), expected);
    assert_eq!(read(SourceTarget::exact([5], [])), (vec![5], vec![1]));
}

#[test]
fn options_out_of_range_are_named() {
    let beam = DecodeOptions::beam;
    let sample = |sampling| DecodeOptions::sample(sampling);
    let paper = |alpha| DecodeOptions {
        length_penalty: LengthPenalty::Paper(alpha),
        ..beam(2)
    };
    let number = "non-negative and finite";
    for (options, problem) in [
        (beam(0), "`beam` is 0; it must be at least 1".to_owned()),
        (
            DecodeOptions {
                n_best: 3,
                ..beam(2)
            },
            "`n_best` is 3; it must be at most the beam size".to_owned(),
        ),
        (
            DecodeOptions {
                n_best: 0,
                ..beam(2)
            },
            "`n_best` is 0; it must be at least 1".to_owned(),
        ),
        (
            DecodeOptions {
                n_best: usize::MAX,
                ..sample(Sampling::default())
            },
            format!("`n_best` is {}; it must be at most 1000", usize::MAX),
        ),
        (
            DecodeOptions {
                min_length: 5,
                max_length: MaxLength::Tokens(4),
                ..beam(2)
            },
            "`min_length` is 5; it must be at most `max_length`".to_owned(),
        ),
        (
            paper(f64::NAN),
            format!("`length_penalty` is NaN; it must be {number}"),
        ),
        (
            paper(-1.0),
            format!("`length_penalty` is -1; it must be {number}"),
        ),
        (
            DecodeOptions {
                length_penalty: LengthPenalty::Power(f64::NEG_INFINITY),
                ..beam(2)
            },
            "`length_penalty` is -inf; it must be finite".to_owned(),
        ),
        (
            DecodeOptions {
                coverage_penalty: f64::INFINITY,
                ..beam(2)
            },
            format!("`coverage_penalty` is inf; it must be {number}"),
        ),
        (
            DecodeOptions {
                repetition_penalty: 0.0,
                ..beam(2)
            },
            "`repetition_penalty` is 0; it must be positive and finite".to_owned(),
        ),
        (
            DecodeOptions {
                batch_tokens: 0,
                ..beam(2)
            },
            "`batch_tokens` is 0; it must be at least 1".to_owned(),
        ),
        (
            DecodeOptions {
                banned_tokens: vec![3, 11],
                ..beam(2)
            },
            "`banned_tokens` has token 11, outside the vocabulary of 11".to_owned(),
        ),
        (
            DecodeOptions {
                forced_first: Some(11),
                ..beam(2)
            },
            "`forced_first` is token 11, outside the vocabulary of 11".to_owned(),
        ),
        (
            sample(Sampling {
                top_p: 2.0,
                ..Sampling::default()
            }),
            "`top_p` is 2; it must be above 0 and at most 1".to_owned(),
        ),
        (
            sample(Sampling {
                temperature: 0.0,
                ..Sampling::default()
            }),
            "`temperature` is 0; it must be positive and finite".to_owned(),
        ),
    ] {
        let model = model::<NdArray>(&tiny(), 1);
        let search = Search::new(&model, options);
        assert_eq!(search.unwrap_err().to_string(), problem);
    }
}

#[test]
fn an_ensemble_has_one_vocabulary() {
    let [first, second] = [tiny(), exhaustible()].map(|config| model::<NdArray>(&config, 1));
    let new = |models: &[&Transformer<NdArray>]| {
        let ensemble = Ensemble::new(models.to_vec());
        ensemble.map(|_| ()).unwrap_err()
    };
    let (index, what) = (2, "vocabulary sizes");
    let expected = DecodeOptionsError::Vocabularies { index, what };
    assert_eq!(new(&[&first, &first, &second]), expected);
    assert_eq!(new(&[]), DecodeOptionsError::NoModel);
}

/// A model with a rule of its own for targets: none is accepted.
struct AcceptsNone;

impl NextToken for AcceptsNone {
    type State = ();

    fn vocabulary(&self) -> Vocabulary {
        Vocabulary {
            size: 11,
            special_tokens: tiny().special_tokens(),
        }
    }

    fn check_source(&self, _source: &[u32]) -> Result<(), RequestProblem> {
        Ok(())
    }

    fn check_target(&self, target: &[u32]) -> Result<(), RequestProblem> {
        Err(RequestProblem::TargetTooLong {
            length: target.len(),
            max_len: 0,
        })
    }

    fn start(&self, _sources: &[&[u32]], _threads: Threads) {}

    fn next(&self, _: &[u32], _: &mut (), _: AttentionWeights) -> Next {
        unreachable!("the target is refused")
    }

    fn select(&self, _state: &mut (), _sources: &[usize], _rows: &[usize]) {}
}

#[test]
fn references_and_ensembles_refuse_the_targets_that_their_models_refuse() {
    fn problem(model: &impl NextToken) -> RequestProblem {
        let pair = SourceTarget::exact([5, 2], [4, 2]);
        score(model, &[pair], 64).unwrap_err().problem
    }
    let expected = RequestProblem::TargetTooLong {
        length: 2,
        max_len: 0,
    };
    assert_eq!(problem(&AcceptsNone), expected);
    assert_eq!(problem(&&AcceptsNone), expected);
    let ensemble = Ensemble::new(vec![&AcceptsNone, &AcceptsNone]).unwrap();
    assert_eq!(problem(&ensemble), expected);
}

/// A target may have as many tokens as there are positions, because its last token is not read.
#[test]
fn a_target_of_all_learned_positions_is_scored() {
    let config = TransformerConfig {
        positions: Positions::Learned { max_len: 7 },
        ..tiny()
    };
    let model = model::<NdArray>(&config, 1);
    let scored = |target: &[u32]| {
        let pair = SourceTarget::exact([5, 2], target);
        let scores = score(&model, &[pair], 64).unwrap();
        scores[0].log_probs.clone()
    };
    let (all, shorter) = (scored(&[3; 7]), scored(&[3; 6]));
    assert_eq!((all.len(), shorter.len()), (7, 6));
    for (found, expected) in all.iter().zip(&shorter) {
        assert!((found - expected).abs() < 1e-5);
    }
    let maps = |target: &[u32]| model.attention_maps(&SourceTarget::exact([5, 2], target));
    assert!(maps(&[3; 7]).is_ok());
    let error = maps(&[3; 8]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "source 0 has a target of 8 tokens, more than the model's 7 learned positions"
    );
}

#[test]
fn invalid_requests_are_named() {
    let config = TransformerConfig {
        positions: Positions::Learned { max_len: 7 },
        ..tiny()
    };
    let model = model::<NdArray>(&config, 1);
    let search = |max_src_len| {
        let options = DecodeOptions {
            max_src_len,
            ..DecodeOptions::beam(2)
        };
        Search::new(&model, options).unwrap()
    };
    let error = search(4)
        .run(&exact(&[vec![5, 2], vec![3, 4, 5, 6, 2]]))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "source 1 has 5 tokens, more than the limit of 4"
    );
    let requests = [
        Request::exact([5, 2]),
        Request::exact([6, 2]).with_prefix([10, 11]),
    ];
    let error = search(4).run(&requests);
    assert_eq!(
        error.unwrap_err().to_string(),
        "source 1 has a prefix with token 11, outside the vocabulary of 11"
    );
    // The forced token is one of them.
    let forced = DecodeOptions {
        forced_first: Some(9),
        max_length: MaxLength::Tokens(2),
        ..DecodeOptions::greedy()
    };
    let request = Request::exact([5, 2]).with_prefix([3, 4]);
    let error = Search::new(&model, forced).unwrap().run(&[request]);
    assert_eq!(
        error.unwrap_err().to_string(),
        "source 0 has a prefix of 3 tokens, more than the maximum target length of 2"
    );
    // No option makes room for eight tokens.
    let request = Request::exact([5, 2]).with_prefix([3; 8]);
    let error = search(4).run(&[request]);
    assert_eq!(
        error.unwrap_err().to_string(),
        "source 0 has a prefix of 8 tokens, more than the model's 7 learned positions"
    );
    let at_least = |min_length| {
        let options = DecodeOptions {
            min_length,
            ..DecodeOptions::beam(2)
        };
        Search::new(&model, options).map(drop)
    };
    assert_eq!(at_least(7), Ok(()));
    assert_eq!(
        at_least(8).unwrap_err().to_string(),
        "`min_length` asks for 8 tokens, more than the model's 7 learned positions"
    );
    for (target, problem) in [
        (
            &[3; 8][..],
            "has a target of 8 tokens, more than the model's 7 learned positions",
        ),
        (
            &[3, 11],
            "has a target with token 11, outside the vocabulary of 11",
        ),
    ] {
        let pairs = [
            SourceTarget::exact([5, 2], [2]),
            SourceTarget::exact([6, 2], target),
        ];
        let error = score(&model, &pairs, 64);
        assert_eq!(
            error.unwrap_err().to_string(),
            format!("source 1 {problem}")
        );
    }
}

#[test]
fn any_limit_of_length_is_a_limit() {
    let model = model::<NdArray>(&tiny(), 2);
    for max_length in [
        MaxLength::Tokens(usize::MAX),
        MaxLength::SourcePlus(usize::MAX),
    ] {
        let options = DecodeOptions {
            max_length,
            ..DecodeOptions::beam(2)
        };
        // Ends at once, by its prefix.
        let search = Search::new(&model, options).unwrap();
        let request = Request::exact([5, 2]).with_prefix([3, 2]);
        let found = search.run(&[request]).unwrap();
        assert_eq!(found[0][0].tokens, [3]);
    }
}

#[test]
fn a_model_of_nan_is_an_error() {
    let mut model = model::<NdArray>(&tiny(), 2);
    let bias = &mut model.decoder.layers[0].feed_forward.outer.bias;
    *bias = bias.take().map(|bias| bias.map(|bias| bias * f32::NAN));
    let sampling = DecodeOptions::sample(Sampling::default());
    for options in [DecodeOptions::greedy(), DecodeOptions::beam(3), sampling] {
        let search = Search::new(&model, options).unwrap();
        let error = search.run(&exact(&[[5, 2], [6, 2]])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "source 0 has NaN log-probabilities; the model's weights are damaged"
        );
    }
}

/// `<eos>` is added to a sentence, and a target's `<eos>` is scored.
#[test]
fn sentences_end_in_eos_by_themselves() {
    let model = model::<NdArray>(&tiny(), 3);
    let search = Search::new(&model, short()).unwrap();
    let sentences = [&[5, 3, 7][..], &[], &[12]];
    let requests: Vec<_> = sentences.map(Request::new).to_vec();
    let with_eos = sentences.map(|sentence| [sentence, &[2]].concat());
    assert_eq!(search.run(&requests), search.run(&exact(&with_eos)));

    let sentence = score(&model, &[SourceTarget::new([5, 3], [4, 9])], 64);
    let exact = score(&model, &[SourceTarget::exact([5, 3, 2], [4, 9, 2])], 64);
    assert_eq!(sentence, exact);
    let [sentence, exact] = [sentence, exact].map(|scores| scores.unwrap()[0].log_probs.len());
    assert_eq!((sentence, exact), (3, 3));
}

#[test]
fn samples_from_more_tokens_than_there_are_come_from_all() {
    let model = model::<NdArray>(&tiny(), 1);
    let sample = |top_k| {
        let sampling = Sampling {
            top_k,
            ..Sampling::default()
        };
        let options = DecodeOptions {
            n_best: 4,
            banned_tokens: vec![7],
            ..DecodeOptions::sample(sampling)
        };
        run(&[&model], &options, &sources())
    };
    assert_eq!(sample(usize::MAX), sample(0));
}

/// Beside a limit by the source, which is a default; a limit in tokens below the minimum is refused.
#[test]
fn a_minimum_length_is_reached() {
    let model = model::<NdArray>(&tiny(), 1);
    let options = DecodeOptions {
        min_length: 12,
        max_length: MaxLength::SourcePlus(1),
        forced_last: true,
        ..DecodeOptions::beam(2)
    };
    for found in run(&[&model], &options, &sources()) {
        assert!(found[0].tokens.len() >= 12 && found[0].finished);
    }
}
