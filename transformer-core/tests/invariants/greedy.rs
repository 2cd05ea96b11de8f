//! Greedy decoding: for each source by itself, the argmax of the whole model at each step.

use burn::tensor::backend::Backend;
use transformer_core::decoding::{DecodeError, MaxLength, greedy, padded};
use transformer_core::nn::Positions;
use transformer_core::{Transformer, TransformerConfig};

use crate::common::*;

const SOURCES: [&[u32]; 6] = [
    &[5, 3, 7, 12, 2],
    &[4, 2],
    &[9, 8, 11, 2],
    &[6, 6, 2],
    &[10, 3, 4, 5, 6, 7, 2],
    &[12, 2],
];

#[test]
fn greedy_is_an_argmax_without_cache_or_batch() {
    cached_is_uncached::<NdArray>();
    cached_is_uncached::<Flex>();
}

fn cached_is_uncached<B: Backend>() {
    let mut lengths = Vec::new();
    for config in variants() {
        for seed in 0..4 {
            let model = model::<B>(&config, seed);
            for (tokens, finished) in same_as_argmax(&model, MaxLength::SourcePlus(3)) {
                lengths.push((finished, tokens.len()));
            }
        }
    }
    // The test is only of use if rows end at different steps, and some at their limits.
    lengths.sort();
    lengths.dedup();
    let finished = lengths.iter().filter(|(finished, _)| *finished).count();
    let cut = lengths.len() - finished;
    assert!(finished >= 3 && cut >= 3, "{lengths:?}");
}

#[test]
fn a_limit_in_tokens_holds_for_every_source() {
    let model = model::<NdArray>(&variants()[0], 1);
    for limit in [0, 1, 4] {
        for (tokens, finished) in same_as_argmax(&model, MaxLength::Tokens(limit)) {
            let len = tokens.len();
            assert!(len == limit || (finished && len < limit));
        }
    }
}

#[test]
fn learned_positions_are_used_up_and_no_more() {
    let config = TransformerConfig {
        positions: Positions::Learned { max_len: 7 },
        ..tiny()
    };
    let longest = (0..8)
        .flat_map(|seed| same_as_argmax(&model::<NdArray>(&config, seed), MaxLength::default()))
        .map(|(tokens, _)| tokens.len())
        .max();
    assert_eq!(longest, Some(7));
}

/// Decodes all sources with [`greedy`], and asserts that each target is the plain loop's.
fn same_as_argmax<B: Backend>(model: &Transformer<B>, max_length: MaxLength) -> Vec<Target> {
    let sources: Vec<Vec<u32>> = SOURCES.iter().map(|source| source.to_vec()).collect();
    let found = greedy(model, &exact(&sources), max_length).unwrap();
    let found: Vec<Target> = found
        .into_iter()
        .map(|hypothesis| (hypothesis.tokens, hypothesis.finished))
        .collect();
    let expected: Vec<_> = sources
        .iter()
        .map(|source| {
            let wanted = match max_length {
                MaxLength::SourcePlus(more) => source.len() + more,
                MaxLength::Tokens(limit) => limit,
            };
            argmax_loop(
                model,
                source,
                wanted.min(model.config().max_len().unwrap_or(wanted)),
            )
        })
        .collect();
    assert_eq!(found, expected);
    found
}

/// Its tokens, and whether it ended in `<eos>`.
type Target = (Vec<u32>, bool);

fn argmax_loop<B: Backend>(model: &Transformer<B>, source: &[u32], limit: usize) -> Target {
    let mut target = vec![1];
    while target.len() <= limit {
        let logits = values(model.forward(tokens(&[source]), tokens(&[&target])));
        let last = &logits[logits.len() - model.config().tgt_vocab_size..];
        let best = (0..last.len()).max_by(|&a, &b| last[a].total_cmp(&last[b]));
        let token = best.unwrap() as u32;
        if token == 2 {
            return (target[1..].to_vec(), true);
        }
        target.push(token);
    }
    (target[1..].to_vec(), false)
}

#[test]
fn no_sources_are_no_hypotheses() {
    let model = model::<NdArray>(&tiny(), 1);
    let found = greedy(&model, &[], MaxLength::default());
    assert_eq!(found, Ok(Vec::new()));
}

#[test]
fn a_source_that_cannot_be_read_is_named() {
    let config = TransformerConfig {
        positions: Positions::Learned { max_len: 3 },
        ..tiny()
    };
    let model = model::<NdArray>(&config, 1);
    for (source, expected) in [
        (vec![], "source 1 is empty"),
        (
            vec![5, 6, 7, 2],
            "source 1 has 4 tokens, more than the model's 3 learned positions",
        ),
        (
            vec![5, 13],
            "source 1 holds token 13, outside the vocabulary of 13",
        ),
    ] {
        let sources = [vec![5, 2], source];
        let found = greedy(&model, &exact(&sources), MaxLength::default());
        let error: DecodeError = found.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn rows_are_padded_at_their_ends() {
    let rows: [&[u32]; 3] = [&[5], &[], &[6, 7, 8]];
    let filled = padded::<NdArray>(&rows, 9, &Default::default());
    assert_eq!(filled.dims(), [3, 3]);
    let filled: Vec<i64> = filled.into_data().iter().collect();
    assert_eq!(filled, [5, 9, 9, 9, 9, 9, 6, 7, 8]);
}
