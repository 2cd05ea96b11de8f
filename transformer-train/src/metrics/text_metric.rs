//! Text metrics, by their names in run files, displays and `transformer evaluate`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::metrics::bleu::{Bleu, corpus_bleu};
use crate::metrics::chrf::{Chrf, corpus_chrf};
use crate::metrics::criterion::{Criterion, Goal};
use crate::metrics::error::MetricError;
use crate::metrics::error_rate::{ErrorRates, corpus_error_rates};

/// A metric of hypotheses with one reference each. Values are percentages, or 0 to 100 for BLEU and chrF.
///
/// | in files | in displays | meaning |
/// |---|---|---|
/// | `bleu` | BLEU | [`corpus_bleu`] |
/// | `chrf` | chrF | [`corpus_chrf`] |
/// | `exact_match` | Exact match % | fraction of lines that are exactly right |
/// | `wer` | WER % | fraction of lines that are not: the word error rate of grapheme-to-phoneme conversion, where a line is a word |
/// | `token_error_rate` | Token error rate % | edits per token: the word error rate of speech recognition, where tokens are words |
///
/// *Word error rate* has two meanings ([`ErrorRates`]); here it has that of the SIGMORPHON shared tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextMetric {
    /// BLEU, as in sacreBLEU.
    Bleu,
    /// chrF2, as in sacreBLEU.
    Chrf,
    /// Lines that are exactly right ([`ErrorRates::exact_match`]).
    ExactMatch,
    /// Lines that are not exactly right ([`ErrorRates::sequence_error_rate`]).
    WordErrorRate,
    /// Edits per token ([`ErrorRates::token_error_rate`]).
    TokenErrorRate,
}

impl TextMetric {
    /// All metrics.
    pub const ALL: [Self; 5] = [
        Self::Bleu,
        Self::Chrf,
        Self::ExactMatch,
        Self::WordErrorRate,
        Self::TokenErrorRate,
    ];

    /// The name in files and flags.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Bleu => "bleu",
            Self::Chrf => "chrf",
            Self::ExactMatch => "exact_match",
            Self::WordErrorRate => "wer",
            Self::TokenErrorRate => "token_error_rate",
        }
    }

    /// The name in displays and in the record of a run.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bleu => "BLEU",
            Self::Chrf => "chrF",
            Self::ExactMatch => "Exact match %",
            Self::WordErrorRate => "WER %",
            Self::TokenErrorRate => "Token error rate %",
        }
    }

    /// Which values are better.
    pub const fn goal(self) -> Goal {
        match self {
            Self::Bleu | Self::Chrf | Self::ExactMatch => Goal::Highest,
            Self::WordErrorRate | Self::TokenErrorRate => Goal::Lowest,
        }
    }

    /// Scores hypotheses with one reference each.
    ///
    /// # Errors
    ///
    /// [`MetricError`] when there are no lines or the counts differ.
    ///
    /// # Example
    ///
    /// ```
    /// use transformer_train::metrics::TextMetric;
    ///
    /// // The phones of two words; the first has one error.
    /// let (hypotheses, references) = (["b ɛ t", "a n"], ["b ɛ d", "a n"]);
    /// let score = TextMetric::WordErrorRate.measure(&hypotheses, &references)?;
    /// assert_eq!(score.value, 50.0);
    /// assert_eq!(score.to_string(), "WER = 50.00 %  1 of 2 lines is not exactly right");
    /// # Ok::<(), transformer_train::metrics::MetricError>(())
    /// ```
    pub fn measure<H: AsRef<str>, R: AsRef<str>>(
        self,
        hypotheses: &[H],
        references: &[R],
    ) -> Result<TextScore, MetricError> {
        let (value, line) = match self {
            Self::Bleu => {
                let bleu = corpus_bleu(hypotheses, references)?;
                (bleu.score, format!("{bleu}  {}", Bleu::signature()))
            }
            Self::Chrf => {
                let chrf = corpus_chrf(hypotheses, references)?;
                (chrf.score, format!("{chrf}  {}", Chrf::signature()))
            }
            Self::ExactMatch => exact_match(&corpus_error_rates(hypotheses, references)?),
            Self::WordErrorRate => word_error_rate(&corpus_error_rates(hypotheses, references)?),
            Self::TokenErrorRate => token_error_rate(&corpus_error_rates(hypotheses, references)?),
        };
        Ok(TextScore {
            metric: self,
            value,
            line,
        })
    }
}

fn exact_match(rates: &ErrorRates) -> (f64, String) {
    let value = rates.exact_match();
    let right = rates.sequences - rates.wrong_sequences;
    let counted = of_lines(right, rates.sequences);
    (
        value,
        format!("exact match = {value:.2} %  {counted} exactly right"),
    )
}

fn word_error_rate(rates: &ErrorRates) -> (f64, String) {
    let value = rates.sequence_error_rate();
    let counted = of_lines(rates.wrong_sequences, rates.sequences);
    (
        value,
        format!("WER = {value:.2} %  {counted} not exactly right"),
    )
}

fn token_error_rate(rates: &ErrorRates) -> (f64, String) {
    let value = rates.token_error_rate();
    let (edits, tokens) = (rates.token_edits, rates.reference_tokens);
    let line = format!("token error rate = {value:.2} %  {edits} edits for {tokens} tokens");
    (value, line)
}

/// The subject and verb of a line count.
fn of_lines(count: usize, all: usize) -> String {
    let verb = if count == 1 { "is" } else { "are" };
    format!("{count} of {all} lines {verb}")
}

impl FromStr for TextMetric {
    type Err = UnknownMetric;

    /// Parses the name in files and flags.
    fn from_str(key: &str) -> Result<Self, UnknownMetric> {
        let found = Self::ALL.into_iter().find(|metric| metric.key() == key);
        found.ok_or_else(|| UnknownMetric(key.to_owned()))
    }
}

impl From<TextMetric> for Criterion {
    /// The criterion of a metric: its name in the record of a run.
    fn from(metric: TextMetric) -> Self {
        Self {
            number: metric.name().to_owned(),
            goal: metric.goal(),
        }
    }
}

impl Serialize for TextMetric {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.key())
    }
}

impl<'de> Deserialize<'de> for TextMetric {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let key = match name.as_str() {
            // The name in older files.
            "word_error_rate" => Self::WordErrorRate.key(),
            key => key,
        };
        key.parse().map_err(serde::de::Error::custom)
    }
}

/// The name of an unknown metric.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown metric `{0}`; known metrics: {known}", known = TextMetric::ALL.map(TextMetric::key).join(", "))]
pub struct UnknownMetric(pub String);

/// The result of a metric; [`Display`](fmt::Display) prints one line, with sacreBLEU's signature or with counts.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TextScore {
    /// The metric.
    pub metric: TextMetric,
    /// Its value, in percent or from 0 to 100.
    pub value: f64,
    line: String,
}

impl fmt::Display for TextScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_files_are_those_of_serde() {
        for metric in TextMetric::ALL {
            let json = format!("\"{}\"", metric.key());
            assert_eq!(serde_json::to_string(&metric).unwrap(), json);
            assert_eq!(serde_json::from_str::<TextMetric>(&json).unwrap(), metric);
            assert_eq!(metric.key().parse(), Ok(metric));
        }
        let spelled_out = serde_json::from_str::<TextMetric>("\"word_error_rate\"");
        assert_eq!(spelled_out.unwrap(), TextMetric::WordErrorRate);
        let unknown = serde_json::from_str::<TextMetric>("\"ter\"").unwrap_err();
        assert!(
            !unknown.to_string().contains("word_error_rate"),
            "{unknown}"
        );
        assert_eq!(
            "ter".parse::<TextMetric>().unwrap_err().to_string(),
            "unknown metric `ter`; known metrics: bleu, chrf, exact_match, wer, token_error_rate"
        );
    }

    #[test]
    fn lines_begin_with_the_value_and_say_what_was_counted() {
        // 0 edits of 3 tokens; "x" inserted, of 2; "d" deleted, of 1; two substituted, of 2.
        let hypotheses = ["a b c", "a x b", "", "q r"];
        let references = ["a b c", "a b", "d", "s t"];
        let line = |metric: TextMetric| {
            let score = metric.measure(&hypotheses, &references).unwrap();
            score.to_string()
        };
        assert_eq!(
            line(TextMetric::ExactMatch),
            "exact match = 25.00 %  1 of 4 lines is exactly right"
        );
        assert_eq!(
            line(TextMetric::WordErrorRate),
            "WER = 75.00 %  3 of 4 lines are not exactly right"
        );
        assert_eq!(
            line(TextMetric::TokenErrorRate),
            "token error rate = 50.00 %  4 edits for 8 tokens"
        );
        let bleu = corpus_bleu(&hypotheses, &references).unwrap();
        assert_eq!(
            line(TextMetric::Bleu),
            format!("{bleu}  {}", Bleu::signature())
        );
        let chrf = corpus_chrf(&hypotheses, &references).unwrap();
        assert_eq!(
            line(TextMetric::Chrf),
            format!("{chrf}  {}", Chrf::signature())
        );
    }

    /// As in the published results of the shared task: 18 of 1000 words.
    #[test]
    fn the_word_error_rate_is_the_share_of_lines_with_an_error() {
        let references = vec!["a b c"; 1000];
        let mut hypotheses = references.clone();
        hypotheses[..18].fill("d e");
        let score = TextMetric::WordErrorRate.measure(&hypotheses, &references);
        assert!(score.unwrap().to_string().starts_with("WER = 1.80 %"));
    }

    #[test]
    fn the_better_of_two_results_is_that_of_the_goal() {
        let (better, worse) = (["the cat sat on the mat"], ["the cat sat on"]);
        let reference = ["the cat sat on the mat"];
        for metric in TextMetric::ALL {
            let value = |hypothesis: &[&str]| metric.measure(hypothesis, &reference).unwrap().value;
            let (better, worse) = (value(&better), value(&worse));
            match metric.goal() {
                Goal::Highest => assert!(better > worse, "{metric:?}"),
                Goal::Lowest => assert!(better < worse, "{metric:?}"),
            }
        }
    }
}
