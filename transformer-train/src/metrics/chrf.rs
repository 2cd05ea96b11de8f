//! chrF: the F-score of character n-grams.

use std::fmt;

use crate::metrics::bleu::{Overlap, overlap, words};
use crate::metrics::error::{MetricError, pairs};

/// The longest n-gram order of chrF, in characters.
const MAX_ORDER: usize = 6;

/// Weight of recall relative to precision.
const BETA: f64 = 2.0;

/// Corpus chrF2; [`Display`](fmt::Display) prints sacreBLEU's line.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Chrf {
    /// chrF2, from 0 to 100.
    pub score: f64,
}

impl Chrf {
    /// sacreBLEU's signature: the settings of the score, with the version whose results [`corpus_chrf`] was
    /// verified against.
    pub const fn signature() -> &'static str {
        "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0"
    }

    fn from_overlaps(orders: [Overlap; MAX_ORDER]) -> Self {
        let (mut precision, mut recall, mut occurring) = (0.0, 0.0, 0.0);
        for order in orders {
            if order.hypothesis > 0 && order.reference > 0 {
                precision += order.matches as f64 / order.hypothesis as f64;
                recall += order.matches as f64 / order.reference as f64;
                occurring += 1.0;
            }
        }
        let score = match precision {
            0.0 => 0.0,
            _ => 100.0 * f_score(precision / occurring, recall / occurring),
        };
        Self { score }
    }
}

impl fmt::Display for Chrf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chrF2 = {:.2}", self.score)
    }
}

/// Corpus chrF2 (Popović 2015) of hypotheses, with one reference each and sacreBLEU's defaults: cased, no word
/// n-grams, effective order.
///
/// Precision P and recall R of the character n-grams, without white space, are each averaged over those orders
/// from 1 to 6 that occur in both hypotheses and references:
///
/// ```text
/// chrF2 = 100 · (1 + β²) · P · R / (β² · P + R),  β = 2
/// ```
///
/// # Errors
///
/// [`MetricError`] when there are no segments or the counts differ.
///
/// # Example
///
/// ```
/// use transformer_train::metrics::corpus_chrf;
///
/// // "abc" and "ab" share 2 of 3 and 2, and 1 of 2 and 1, n-grams of orders 1 and 2; "ab" has no
/// // longer ones. P = (2/3 + 1/2) / 2 = 7/12 and R = 1, so chrF2 = 100 · 5P / (4P + 1) = 87.5.
/// let chrf = corpus_chrf(&["a bc"], &["ab"])?;
/// assert!((chrf.score - 87.5).abs() < 1e-9);
/// # Ok::<(), transformer_train::metrics::MetricError>(())
/// ```
pub fn corpus_chrf<H: AsRef<str>, R: AsRef<str>>(
    hypotheses: &[H],
    references: &[R],
) -> Result<Chrf, MetricError> {
    let mut totals = [Overlap::default(); MAX_ORDER];
    for (hypothesis, reference) in pairs(hypotheses, references)? {
        let (hypothesis, reference) = (characters(hypothesis), characters(reference));
        for (n, total) in (1..).zip(&mut totals) {
            *total += comparable(overlap(&hypothesis, &reference, n));
        }
    }
    Ok(Chrf::from_overlaps(totals))
}

fn characters(segment: &str) -> Vec<char> {
    words(segment).flat_map(str::chars).collect()
}

/// As in sacreBLEU, hypothesis n-grams of an order count only if the reference has n-grams of that order, too.
fn comparable(order: Overlap) -> Overlap {
    match order.reference {
        0 => Overlap::default(),
        _ => order,
    }
}

fn f_score(precision: f64, recall: f64) -> f64 {
    let weight = BETA * BETA;
    (1.0 + weight) * precision * recall / (weight * precision + recall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_common() {
        for hypothesis in ["", " ", "xyz"] {
            assert_eq!(corpus_chrf(&[hypothesis], &["abc"]).unwrap().score, 0.0);
        }
    }

    #[test]
    fn white_space_does_not_count() {
        let chrf = corpus_chrf(&["a\u{a0}b\tc"], &["abc"]).unwrap();
        assert!((chrf.score - 100.0).abs() < 1e-9);
    }

    #[test]
    fn precision_and_recall_are_not_symmetric() {
        let score = |a, b| corpus_chrf(&[a], &[b]).unwrap().score;
        assert!(score("abcd", "abc") > score("abc", "abcd"));
    }
}
