//! Causality: a target token does not change the positions before it, and changes all others.

use crate::common::*;
use transformer_core::Transformer;

const SOURCES: [&[u32]; 2] = [&[5, 3, 7, 12, 2], &[4, 9, 2]];
const TARGETS: [[u32; 7]; 2] = [[1, 8, 4, 10, 6, 5, 3], [1, 3, 3, 7, 9, 4, 8]];

#[test]
fn a_target_token_changes_only_its_own_position_and_later_ones() {
    for config in variants() {
        let model = model::<NdArray>(&config, 1);
        let before = logits(&model, &SOURCES, TARGETS);
        for changed in 0..7 {
            let mut targets = TARGETS;
            for target in &mut targets {
                target[changed] = if target[changed] == 5 { 6 } else { 5 };
            }
            let after = logits(&model, &SOURCES, targets);
            for (index, difference) in differences(&before, &after).into_iter().enumerate() {
                let position = index % 7;
                if position < changed {
                    assert!(
                        difference <= 1e-6,
                        "{position} depends on {changed}: {difference}"
                    );
                } else {
                    assert!(
                        difference > 1e-3,
                        "{position} does not depend on {changed}: {difference}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_source_token_changes_every_target_position() {
    for config in variants() {
        let model = model::<NdArray>(&config, 2);
        let before = logits(&model, &SOURCES[..1], [TARGETS[0]]);
        for changed in 0..5 {
            let mut source = SOURCES[0].to_vec();
            source[changed] = 6;
            let after = logits(&model, &[&source], [TARGETS[0]]);
            for (position, difference) in differences(&before, &after).into_iter().enumerate() {
                assert!(
                    difference > 1e-4,
                    "{position} does not depend on {changed}: {difference}"
                );
            }
        }
    }
}

/// The order of tokens matters: without positions these would be permutations of each other.
#[test]
fn swapped_source_tokens_are_another_source() {
    for config in variants() {
        let model = model::<NdArray>(&config, 3);
        let straight = logits(&model, &[&[5, 3, 7]], [TARGETS[0]]);
        let swapped = logits(&model, &[&[3, 5, 7]], [TARGETS[0]]);
        assert!(largest_difference(&straight, &swapped) > 1e-3);
    }
}

fn logits<const ROWS: usize>(
    model: &Transformer<NdArray>,
    sources: &[&[u32]],
    targets: [[u32; 7]; ROWS],
) -> Vec<f64> {
    values(model.forward(tokens(sources), tokens(&targets)))
}

/// The largest difference at each position of each row.
fn differences(before: &[f64], after: &[f64]) -> Vec<f64> {
    let tgt_vocab_size = tiny().tgt_vocab_size;
    before
        .chunks(tgt_vocab_size)
        .zip(after.chunks(tgt_vocab_size))
        .map(|(before, after)| largest_difference(before, after))
        .collect()
}
