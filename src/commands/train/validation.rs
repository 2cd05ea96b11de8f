//! Validation by translating, where the run asks for it.

use transformer_core::DecodeOptions;
use transformer_train::{Pair, TextValidation};

use super::plan::Plan;
use super::prepared::Prepared;

/// What measures the translations of the validation pairs; `None` where neither metrics nor samples are wanted.
/// Pairs that are too long to validate on are not translated, either.
pub fn by_translating(plan: &Plan, prepared: &Prepared) -> Option<TextValidation> {
    let keys = &plan.run.validation;
    if keys.metrics.is_empty() && keys.samples == 0 {
        return None;
    }
    let max_pieces = prepared.valid.max_pieces;
    let tokenizers = &prepared.tokenizers;
    let fits = |pair: &&Pair| {
        let sides = [
            tokenizers.encode_source(&pair.source),
            tokenizers.encode_target(&pair.target),
        ];
        let fits = |pieces: &Vec<u32>| pieces.len() <= max_pieces;
        sides.iter().all(|side| side.as_ref().is_ok_and(fits))
    };
    let pairs = prepared.valid_text.pairs().iter().filter(fits);
    let pairs = pairs.take(keys.sentences.unwrap_or(usize::MAX));
    let options = match keys.beam {
        1 => DecodeOptions::greedy(),
        beam => DecodeOptions::beam(beam),
    };
    let options = DecodeOptions {
        max_src_len: options.max_src_len.max(max_pieces.saturating_add(1)),
        ..options
    };
    Some(
        TextValidation::new(pairs.cloned(), tokenizers)
            .metrics(keys.metrics.iter().copied())
            .options(options)
            .samples(keys.samples),
    )
}
