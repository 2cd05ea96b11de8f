//! Translations that cannot be right.

use transformer_core::DecodeOptions;
use transformer_core::decoding::{LengthPenalty, Strategy};
use transformer_core::text::Translation;

use crate::report::Problem;

/// What is wrong with the translation of a sentence with this many tokens.
pub(crate) fn problem(
    source: &str,
    source_len: usize,
    translation: &Translation,
) -> Option<Problem> {
    let tokens = &translation.hypothesis.tokens[..];
    let text = translation.text.trim();
    if repeats(tokens) && !repeats(&units(source)) {
        return Some(Problem::Loop);
    }
    if !translation.hypothesis.finished || tokens.len() > 3 * source_len + 20 {
        return Some(Problem::TooLong);
    }
    // A short sentence may have a translation of one word.
    if text.is_empty() || source_len >= 12 && tokens.len() * 4 < source_len {
        return Some(Problem::TooShort);
    }
    let words = source
        .split_whitespace()
        .filter(|word| word.chars().any(char::is_lowercase));
    if text == source.trim() && words.count() >= 4 {
        return Some(Problem::Copy);
    }
    None
}

/// Whether a sequence repeats one to eight tokens four times in succession, or a single one six times.
fn repeats<T: PartialEq>(tokens: &[T]) -> bool {
    (1..=8).any(|period| {
        let most = if period == 1 { 6 } else { 4 };
        let mut run = 0;
        tokens.windows(period + 1).any(|window| {
            run = if window[0] == window[period] {
                run + 1
            } else {
                0
            };
            run >= period * (most - 1)
        })
    })
}

/// The words of a text, or its characters, if it has no spaces.
fn units(text: &str) -> Vec<&str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.len() {
        0 | 1 => text.split("").collect(),
        _ => words,
    }
}

/// The options to decode a sentence of this many tokens again.
pub(crate) fn careful(
    options: &DecodeOptions,
    problem: Problem,
    source_len: usize,
) -> DecodeOptions {
    let size = match options.strategy {
        Strategy::Beam { size } => size.max(4),
        Strategy::Sample(_) => 4,
    };
    let mut careful = DecodeOptions {
        strategy: Strategy::Beam { size },
        n_best: size,
        ..options.clone()
    };
    match problem {
        Problem::Loop | Problem::TooLong => {
            careful.no_repeat_ngram = 3;
            careful.repetition_penalty = careful.repetition_penalty.max(1.1);
        }
        Problem::TooShort => {
            careful.length_penalty = LengthPenalty::Paper(1.5);
            careful.min_length = source_len / 3;
        }
        // Another of the beam.
        Problem::Copy => {}
    }
    careful
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_four_times_the_same() {
        assert!(repeats(&[9, 1, 2, 1, 2, 1, 2, 1, 2]));
        assert!(!repeats(&[9, 1, 2, 1, 2, 1, 2, 1, 3]));
        assert!(repeats(&[5; 6]));
        assert!(!repeats(&[5; 5]));
        assert!(!repeats::<u32>(&[]));
        assert!(repeats(&units("ha ha ha ha ha ha")));
        assert!(repeats(&units("ааааааа")));
    }
}
