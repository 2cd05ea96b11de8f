//! Error rates: token edits, and sequences that are not exactly right.

use std::sync::LazyLock;

use regex::Regex;

use crate::metrics::bleu::is_python_space;
use crate::metrics::error::{MetricError, pairs};

/// The errors of a corpus, counted by token and by sequence.
///
/// *Word error rate* has two meanings: in speech recognition, a line is a sentence and its tokens are words; in
/// grapheme-to-phoneme conversion, a line is a word and its tokens are phones. No method here has that name;
/// [`TextMetric::WordErrorRate`](super::TextMetric) is the latter.
///
/// | here | in speech recognition | in grapheme-to-phoneme conversion |
/// |---|---|---|
/// | [`token_error_rate`](Self::token_error_rate) | **word error rate**, jiwer's `wer` | phone error rate |
/// | [`sequence_error_rate`](Self::sequence_error_rate) | sentence error rate | **word error rate**, SIGMORPHON's |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorRates {
    /// Minimum number of token insertions, deletions and substitutions that make all hypotheses equal to their
    /// references.
    pub token_edits: usize,
    /// Tokens in all references.
    pub reference_tokens: usize,
    /// Hypotheses whose tokens differ from their reference's.
    pub wrong_sequences: usize,
    /// Number of hypotheses.
    pub sequences: usize,
}

impl ErrorRates {
    /// Edits per reference token, in percent: 0 if everything is right, above 100 if hypotheses are much too long.
    ///
    /// If no reference has a token, it is 100 per hypothesis token, as in jiwer.
    pub fn token_error_rate(&self) -> f64 {
        percent(self.token_edits, self.reference_tokens.max(1))
    }

    /// Hypotheses that are not exactly right, in percent.
    pub fn sequence_error_rate(&self) -> f64 {
        percent(self.wrong_sequences, self.sequences)
    }

    /// Hypotheses that are exactly right, in percent.
    pub fn exact_match(&self) -> f64 {
        percent(self.sequences - self.wrong_sequences, self.sequences)
    }
}

/// The error rates of hypotheses with one reference each; tokens are separated by spaces.
///
/// With E(h, r) the Levenshtein distance between two token lists and |r| the length of a list:
///
/// ```text
/// token error rate    = 100 · Σ E(h, r) / Σ |r|
/// sequence error rate = 100 · (number of pairs with E(h, r) > 0) / (number of pairs)
/// ```
///
/// Tokens are compared cased and with punctuation. They are separated by one space, or by two or more white-space
/// characters; as in jiwer, a single no-break space is part of its token.
///
/// # Errors
///
/// [`MetricError`] when there are no sequences or the counts differ.
///
/// # Example
///
/// ```
/// use transformer_train::metrics::corpus_error_rates;
///
/// // The phones of two words: "t" for "d", and one right. 1 edit in 3 + 2 phones, 1 wrong word of 2.
/// let rates = corpus_error_rates(&["b ɛ t", "a n"], &["b ɛ d", "a n"])?;
/// assert_eq!(rates.token_error_rate(), 20.0);
/// assert_eq!(rates.sequence_error_rate(), 50.0);
/// # Ok::<(), transformer_train::metrics::MetricError>(())
/// ```
pub fn corpus_error_rates<H: AsRef<str>, R: AsRef<str>>(
    hypotheses: &[H],
    references: &[R],
) -> Result<ErrorRates, MetricError> {
    let mut rates = ErrorRates {
        token_edits: 0,
        reference_tokens: 0,
        wrong_sequences: 0,
        sequences: 0,
    };
    for (hypothesis, reference) in pairs(hypotheses, references)? {
        let hypothesis = tokens(hypothesis);
        let reference = tokens(reference);
        let edits = levenshtein(&hypothesis, &reference);
        rates.token_edits += edits;
        rates.reference_tokens += reference.len();
        rates.wrong_sequences += usize::from(edits > 0);
        rates.sequences += 1;
    }
    Ok(rates)
}

/// The tokens of a line, separated as in jiwer.
fn tokens(line: &str) -> Vec<&str> {
    // Python's white space includes four control characters that Unicode's does not.
    static SEPARATOR: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[\s\x1c-\x1f]{2,}| ").expect("a constant"));
    let tokens = SEPARATOR.split(line.trim_matches(is_python_space));
    tokens.filter(|token| !token.is_empty()).collect()
}

/// The minimum number of insertions, deletions and substitutions that turn `from` into `to`.
pub(crate) fn levenshtein<T: Eq>(from: &[T], to: &[T]) -> usize {
    // distances[j]: from the items of `from` so far to the first j items of `to`.
    let mut distances: Vec<usize> = (0..=to.len()).collect();
    for (deleted, item) in (1usize..).zip(from) {
        // Without this item, to the first j - 1 items of `to`.
        let mut before = distances[0];
        distances[0] = deleted;
        for (j, other) in (1usize..).zip(to) {
            let substituted = before + usize::from(item != other);
            before = distances[j];
            distances[j] = substituted.min(before + 1).min(distances[j - 1] + 1);
        }
    }
    distances[to.len()]
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(from: &str, to: &str) -> usize {
        let characters = |text: &str| text.chars().collect::<Vec<_>>();
        levenshtein(&characters(from), &characters(to))
    }

    #[test]
    fn distances_by_hand() {
        for (from, to, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("kitten", "sitting", 3),
            ("intention", "execution", 5),
            ("abcdef", "bcdefa", 2),
            ("ab", "ba", 2),
        ] {
            assert_eq!(distance(from, to), expected, "{from} to {to}");
            assert_eq!(distance(to, from), expected, "{to} to {from}");
        }
    }

    #[test]
    fn rates_by_hand() {
        // 0 edits of 3 tokens; "x" inserted, of 2; "d" deleted, of 1; two substituted, of 2.
        let rates = corpus_error_rates(
            &["a b c", "a x b", "", "q r"],
            &["a b c", "a b", "d", "s t"],
        )
        .unwrap();
        let expected = ErrorRates {
            token_edits: 4,
            reference_tokens: 8,
            wrong_sequences: 3,
            sequences: 4,
        };
        assert_eq!(rates, expected);
        assert_eq!(rates.token_error_rate(), 50.0);
        assert_eq!(rates.sequence_error_rate(), 75.0);
        assert_eq!(rates.exact_match(), 25.0);
    }

    #[test]
    fn white_space_only_separates() {
        let rates = corpus_error_rates(&[" a\t b  c ", "\n"], &["a b c", ""]).unwrap();
        assert_eq!((rates.token_edits, rates.exact_match()), (0, 100.0));
        // As in jiwer 4.0.0.
        assert_eq!(tokens("a\tb"), ["a\tb"]);
        assert_eq!(tokens("a\u{3000}b \u{3000}c"), ["a\u{3000}b", "c"]);
    }

    #[test]
    fn references_without_a_token() {
        let rates = corpus_error_rates(&["a b", ""], &["", " "]).unwrap();
        assert_eq!(rates.token_error_rate(), 200.0);
        assert_eq!(rates.sequence_error_rate(), 50.0);
        let right = corpus_error_rates(&[""], &[""]).unwrap();
        assert_eq!(
            (right.token_error_rate(), right.exact_match()),
            (0.0, 100.0)
        );
    }

    #[test]
    fn unpaired_sequences_are_errors() {
        let error = corpus_error_rates(&["a"], &["a", "b"]).unwrap_err();
        let expected = MetricError::UnequalCounts {
            hypotheses: 1,
            references: 2,
        };
        assert_eq!(error, expected);
        assert_eq!(
            corpus_error_rates::<&str, &str>(&[], &[]),
            Err(MetricError::Empty)
        );
    }
}
