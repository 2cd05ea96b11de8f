//! Validation by translating, if the run has metrics or samples.

use transformer_core::DecodeOptions;
use transformer_core::decoding::LengthPenalty;
use transformer_train::validation::TextValidation;

use super::plan::Plan;
use super::prepared::Prepared;

/// The validation that translates pairs, with this length penalty if it searches with a beam; `None` if the run has
/// neither metrics nor samples. Pairs that are too long for the validation loss are not translated, either.
pub fn by_translating(
    plan: &Plan,
    prepared: &Prepared,
    length_penalty: LengthPenalty,
) -> Option<TextValidation> {
    let keys = &plan.run.validation;
    if keys.metrics.is_empty() && keys.samples == 0 {
        return None;
    }
    let valid = &prepared.valid;
    let text = prepared.valid_text.pairs();
    let pairs = valid
        .positions
        .iter()
        .map(|&position| text[position].clone());
    let pairs = pairs.take(keys.sentences.unwrap_or(usize::MAX));
    let options = match keys.beam {
        1 => DecodeOptions::greedy(),
        beam => DecodeOptions {
            length_penalty,
            ..DecodeOptions::beam(beam)
        },
    };
    let options = DecodeOptions {
        max_src_len: options.max_src_len.max(valid.max_pieces.saturating_add(1)),
        ..options
    };
    Some(
        TextValidation::new(pairs, &prepared.tokenizers)
            .metrics(keys.metrics.iter().copied())
            .options(options)
            .samples(keys.samples),
    )
}
