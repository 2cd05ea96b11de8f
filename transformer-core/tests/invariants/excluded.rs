//! Excluded tokens: they have no probability, and the others share all of it.

use burn::tensor::backend::Backend;
use transformer_core::decoding::{
    Ensemble, MaxLength, NextToken, Sampling, SourceTarget, Threads, score,
};
use transformer_core::nn::AttentionWeights;
use transformer_core::{DecodeOptions, Search, Transformer, TransformerConfig};

use crate::common::*;

const EXCLUDED: [u32; 2] = [0, 7];
const SOURCES: [&[u32]; 3] = [&[5, 3, 7, 12, 2], &[4, 2], &[9, 8, 11, 2]];

fn excluding() -> TransformerConfig {
    TransformerConfig {
        excluded_tokens: EXCLUDED.to_vec(),
        ..tiny()
    }
}

/// The probability of each token of a target, by the mean of the models, in double precision from the logits of all
/// tokens but the excluded ones.
fn probs<B: Backend>(models: &[&Transformer<B>], source: &[u32], target: &[u32]) -> Vec<f64> {
    let tgt = [&[1], &target[..target.len() - 1]].concat();
    let mut mean = vec![0.0; target.len()];
    for model in models {
        let logits = values(model.forward(tokens(&[source]), tokens(&[&tgt])));
        for ((mean, row), &token) in mean.iter_mut().zip(logits.chunks(11)).zip(target) {
            let exp = |token: usize| match EXCLUDED.contains(&(token as u32)) {
                true => 0.0,
                false => row[token].exp(),
            };
            let sum: f64 = (0..11).map(exp).sum();
            *mean += exp(token as usize) / sum / models.len() as f64;
        }
    }
    mean
}

#[test]
fn the_other_tokens_share_all_of_the_probability() {
    the_others_share_it::<NdArray>();
    the_others_share_it::<Flex>();
}

fn the_others_share_it<B: Backend>() {
    let model = model::<B>(&excluding(), 1);
    let mut state = model.start(&SOURCES, Threads::All);
    let output = model.next(&[1; 3], &mut state, AttentionWeights::Discard);
    let rows: Vec<f64> = output.log_probs.into_iter().map(f64::from).collect();
    for (source, row) in SOURCES.iter().zip(rows.chunks(11)) {
        let found: Vec<f64> = row.iter().map(|log_prob| log_prob.exp()).collect();
        let expected: Vec<f64> = (0..11)
            .map(|token| probs(&[&model], source, &[token])[0])
            .collect();
        assert_close(&found, &expected, 1e-6);
        assert_close(&vec![found.iter().sum::<f64>()], &vec![1.0], 1e-6);
        for token in EXCLUDED {
            assert_eq!(row[token as usize], f64::NEG_INFINITY);
        }
    }
}

/// They are excluded from decoding only.
#[test]
fn logits_have_all_tokens() {
    let [with, without] = [excluding(), tiny()].map(|config| {
        let model = model::<NdArray>(&config, 1);
        model.forward(tokens(&SOURCES), tokens(&[[1, 7], [1, 5], [1, 3]]))
    });
    assert_close(with, without, 0.0);
}

#[test]
fn searches_and_scores_know_no_excluded_token() {
    let [first, second, third] = [1, 2, 3].map(|seed| model::<NdArray>(&excluding(), seed));
    let sampling = DecodeOptions::sample(Sampling {
        temperature: 3.0,
        ..Sampling::default()
    });
    for models in [
        &[&first][..],
        &[&first, &second],
        &[&first, &second, &third],
    ] {
        let ensemble = Ensemble::new(models.to_vec()).unwrap();
        for options in [
            DecodeOptions::greedy(),
            DecodeOptions::beam(4),
            sampling.clone(),
        ] {
            let options = DecodeOptions {
                max_length: MaxLength::SourcePlus(3),
                ..options
            };
            let search = Search::new(&ensemble, options).unwrap();
            for (source, found) in SOURCES.iter().zip(search.run(&exact(&SOURCES)).unwrap()) {
                let found = &found[0];
                let end: &[u32] = if found.finished { &[2] } else { &[] };
                let target = [&found.tokens, end].concat();
                assert!(!target.iter().any(|token| EXCLUDED.contains(token)));
                let expected = probs(models, source, &target);
                let expected: f64 = expected.into_iter().map(f64::ln).sum();
                assert_close(&vec![found.log_prob], &vec![expected], 1e-4);
                let pair = SourceTarget::exact(*source, target);
                let scored = score(&ensemble, &[pair], 64).unwrap()[0].log_prob();
                assert_close(&vec![scored], &vec![expected], 1e-4);
            }
        }
    }
}

/// The prefix is kept, with a rank of the other tokens.
#[test]
fn a_prefix_with_an_excluded_token_is_kept() {
    let [first, second] = [1, 2].map(|seed| model::<NdArray>(&excluding(), seed));
    let prefix = [4, 7, 9];
    for models in [&[&first][..], &[&first, &second]] {
        let ensemble = Ensemble::new(models.to_vec()).unwrap();
        for options in [
            DecodeOptions::greedy(),
            DecodeOptions {
                n_best: 3,
                ..DecodeOptions::beam(4)
            },
            DecodeOptions {
                n_best: 3,
                ..DecodeOptions::sample(Sampling::default())
            },
        ] {
            let options = DecodeOptions {
                max_length: MaxLength::Tokens(6),
                ..options
            };
            let search = Search::new(&ensemble, options.clone()).unwrap();
            let requests = exact(&SOURCES).into_iter();
            let requests: Vec<_> = requests
                .map(|request| request.with_prefix(prefix))
                .collect();
            for (source, found) in SOURCES.iter().zip(search.run(&requests).unwrap()) {
                assert_eq!(found.len(), options.n_best);
                assert!(found.is_sorted_by(|a, b| a.score >= b.score));
                for found in found {
                    assert!(found.tokens.starts_with(&prefix), "{found:?}");
                    assert!(found.finished || found.tokens.len() == 6, "{found:?}");
                    assert_eq!(found.log_prob, f64::NEG_INFINITY);
                    let end: &[u32] = if found.finished { &[2] } else { &[] };
                    let target = [&found.tokens, end].concat();
                    let mut expected = probs(models, source, &target);
                    expected.remove(1);
                    let rank: f64 = expected.into_iter().map(f64::ln).sum();
                    let score = rank / options.length_penalty.of(target.len());
                    assert_close(&vec![found.score], &vec![score], 1e-4);
                }
            }
        }
    }
}

/// In an ensemble, too, they have no probability, and it is not NaN.
#[test]
fn a_target_with_an_excluded_token_is_impossible() {
    let [first, second] = [1, 2].map(|seed| model::<NdArray>(&excluding(), seed));
    let pair = SourceTarget::exact([5, 3, 2], [4, 7, 2]);
    for models in [&[&first][..], &[&first, &second]] {
        let ensemble = Ensemble::new(models.to_vec()).unwrap();
        let log_probs = score(&ensemble, std::slice::from_ref(&pair), 64).unwrap()[0]
            .log_probs
            .clone();
        assert!(log_probs[0].is_finite() && log_probs[2].is_finite());
        assert_eq!(log_probs[1], f32::NEG_INFINITY);
    }
}
