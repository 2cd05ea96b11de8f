//! BLEU: the geometric mean of clipped n-gram precisions, times a brevity penalty.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::ops::AddAssign;
use std::sync::LazyLock;

use regex::Regex;

use crate::metrics::error::{MetricError, pairs};

/// N, the longest n-gram order of BLEU.
const MAX_ORDER: usize = 4;

/// Corpus BLEU and its terms; [`Display`](fmt::Display) prints sacreBLEU's line.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Bleu {
    /// BLEU, from 0 to 100.
    pub score: f64,
    /// Smoothed n-gram precisions p_1 to p_4, in percent; all 0 when nothing matches.
    pub precisions: [f64; MAX_ORDER],
    /// Brevity penalty BP, from 0 to 1.
    pub brevity_penalty: f64,
    /// Tokens in all hypotheses, h.
    pub hypothesis_length: usize,
    /// Tokens in all references, r.
    pub reference_length: usize,
}

impl Bleu {
    /// sacreBLEU's signature: the settings of the score, with the version whose results [`corpus_bleu`] was
    /// verified against.
    pub const fn signature() -> &'static str {
        "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
    }

    fn from_overlaps(orders: [Overlap; MAX_ORDER]) -> Self {
        let [unigrams, ..] = orders;
        let precisions = smoothed_precisions(orders);
        let brevity_penalty = brevity_penalty(unigrams.hypothesis, unigrams.reference);
        let mean_log = precisions.iter().map(|p| p.ln()).sum::<f64>() / MAX_ORDER as f64;
        Self {
            score: brevity_penalty * mean_log.exp(),
            precisions,
            brevity_penalty,
            hypothesis_length: unigrams.hypothesis,
            reference_length: unigrams.reference,
        }
    }
}

impl fmt::Display for Bleu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p1, p2, p3, p4] = self.precisions;
        let (hypothesis, reference) = (self.hypothesis_length, self.reference_length);
        let ratio = match reference {
            0 => 0.0,
            _ => hypothesis as f64 / reference as f64,
        };
        write!(
            f,
            "BLEU = {:.2} {p1:.1}/{p2:.1}/{p3:.1}/{p4:.1} (BP = {:.3} ratio = {ratio:.3} \
             hyp_len = {hypothesis} ref_len = {reference})",
            self.score, self.brevity_penalty,
        )
    }
}

/// Corpus BLEU (Papineni et al. 2002) of detokenized hypotheses, with one reference each and sacreBLEU's defaults
/// (Post 2018): 13a tokenization, cased, exponential smoothing, no effective order.
///
/// With c_n clipped matches among t_n hypothesis n-grams of order n, hypothesis length h and reference length r in
/// tokens, each summed over the corpus:
///
/// ```text
/// p_n  = 100 · c_n / t_n                      (§2.1)
/// BP   = 1 if h ≥ r, else exp(1 − r / h)      (§2.2.2)
/// BLEU = BP · exp(¼ Σ ln p_n),  n = 1..4      (§2.3)
/// ```
///
/// Unlike in the paper, the k-th order with c_n = 0 gets p_n = 100 / (2^k · t_n) (Chen and Cherry 2014, method 3).
/// BLEU is 0 if no token matches, or if no hypothesis has four tokens.
///
/// # Errors
///
/// [`MetricError`] when there are no segments or the counts differ.
///
/// # Example
///
/// ```
/// use transformer_train::metrics::corpus_bleu;
///
/// // Tokens "the cat sat down ." and "the cat sat ." share 4 of 5, 2 of 4, 1 of 3 and 0 of 2
/// // n-grams; the last is smoothed to 1/(2·2), so BLEU = 100 · (4/5 · 2/4 · 1/3 · 1/4)^¼.
/// let bleu = corpus_bleu(&["the cat sat down."], &["the cat sat."])?;
/// assert!((bleu.score - 42.728700639623).abs() < 1e-9);
/// # Ok::<(), transformer_train::metrics::MetricError>(())
/// ```
pub fn corpus_bleu<H: AsRef<str>, R: AsRef<str>>(
    hypotheses: &[H],
    references: &[R],
) -> Result<Bleu, MetricError> {
    let mut totals = [Overlap::default(); MAX_ORDER];
    for (hypothesis, reference) in pairs(hypotheses, references)? {
        let (hypothesis, reference) = (segment_tokens(hypothesis), segment_tokens(reference));
        for (n, total) in (1..).zip(&mut totals) {
            *total += overlap(&hypothesis, &reference, n);
        }
    }
    Ok(Bleu::from_overlaps(totals))
}

/// Tokenizes a line by the rules of mteval-v13a, the tokenizer of WMT and sacreBLEU's default.
///
/// ```
/// use transformer_train::metrics::tokenize_13a;
///
/// let line = "&quot;1,000.5 km&quot;, 3-4 l'eau.";
/// assert_eq!(
///     tokenize_13a(line),
///     ["\"", "1,000.5", "km", "\"", ",", "3", "-", "4", "l'eau", "."]
/// );
/// ```
pub fn tokenize_13a(line: &str) -> Vec<String> {
    // In this order, "&amp;quot;" becomes "&quot;", while "&amp;lt;" becomes "<".
    const TEXT: [(&str, &str); 7] = [
        ("<skipped>", ""),
        ("-\n", ""),
        ("\n", " "),
        ("&quot;", "\""),
        ("&amp;", "&"),
        ("&lt;", "<"),
        ("&gt;", ">"),
    ];
    static RULES: LazyLock<[(Regex, &str); 4]> = LazyLock::new(|| {
        [
            // ASCII punctuation and symbols, except ' , - .
            (r"[ -&(-+/:-@\[-`{-~]", " $0 "),
            // Period and comma, unless preceded by a digit.
            (r"([^0-9])([.,])", "$1 $2 "),
            // Period and comma, unless followed by a digit.
            (r"([.,])([^0-9])", " $1 $2"),
            // Dash after a digit.
            (r"([0-9])-", "$1 - "),
        ]
        .map(|(pattern, spaced)| (Regex::new(pattern).expect("a valid pattern"), spaced))
    });

    let text = TEXT
        .iter()
        .fold(line.to_owned(), |text, (from, to)| text.replace(from, to));
    // The spaces at both ends let the rules match a non-digit there.
    let spaced = RULES.iter().fold(format!(" {text} "), |text, (rule, to)| {
        rule.replace_all(&text, *to).into_owned()
    });
    words(&spaced).map(str::to_owned).collect()
}

/// The words of a line, as Python's `str.split()` finds them.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_python_space).filter(|word| !word.is_empty())
}

/// Counts of n-grams of one order, and of matches.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Overlap {
    /// n-grams of the hypothesis.
    pub(crate) hypothesis: usize,
    /// n-grams of the reference.
    pub(crate) reference: usize,
    /// n-grams of the hypothesis that match the reference; each reference n-gram matches once.
    pub(crate) matches: usize,
}

impl AddAssign for Overlap {
    fn add_assign(&mut self, other: Self) {
        self.hypothesis += other.hypothesis;
        self.reference += other.reference;
        self.matches += other.matches;
    }
}

/// Counts the n-grams of order n of a segment pair.
pub(crate) fn overlap<T: Eq + Hash>(hypothesis: &[T], reference: &[T], n: usize) -> Overlap {
    let mut unused: HashMap<&[T], usize> = HashMap::new();
    for ngram in reference.windows(n) {
        *unused.entry(ngram).or_default() += 1;
    }
    let mut matches = 0;
    for ngram in hypothesis.windows(n) {
        if let Some(left) = unused.get_mut(ngram)
            && *left > 0
        {
            *left -= 1;
            matches += 1;
        }
    }
    Overlap {
        hypothesis: hypothesis.windows(n).len(),
        reference: reference.windows(n).len(),
        matches,
    }
}

/// Python counts the information separators as white space; Unicode, and so Rust, does not.
pub(crate) fn is_python_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// Tokens of a segment. A dash before a final line break is kept, because sacreBLEU strips the line before 13a
/// joins hyphenated words.
fn segment_tokens(segment: &str) -> Vec<String> {
    tokenize_13a(segment.trim_end_matches(is_python_space))
}

fn smoothed_precisions(orders: [Overlap; MAX_ORDER]) -> [f64; MAX_ORDER] {
    if orders.iter().all(|order| order.matches == 0) {
        return [0.0; MAX_ORDER];
    }
    let mut divisor = 1.0;
    orders.map(|order| match (order.matches, order.hypothesis as f64) {
        (_, 0.0) => 0.0,
        (0, total) => {
            divisor *= 2.0;
            100.0 / (divisor * total)
        }
        (matches, total) => 100.0 * matches as f64 / total,
    })
}

fn brevity_penalty(hypothesis: usize, reference: usize) -> f64 {
    if hypothesis >= reference {
        1.0
    } else {
        (1.0 - reference as f64 / hypothesis as f64).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hypothesis_tokens() {
        let bleu = corpus_bleu(&["", " "], &["a b", "c"]).unwrap();
        assert_eq!((bleu.score, bleu.brevity_penalty), (0.0, 0.0));
        assert_eq!((bleu.hypothesis_length, bleu.reference_length), (0, 3));
    }

    #[test]
    fn no_tokens_at_all() {
        let bleu = corpus_bleu(&[""], &[""]).unwrap();
        assert_eq!((bleu.score, bleu.brevity_penalty), (0.0, 1.0));
    }

    #[test]
    fn matches_are_clipped() {
        let overlap = overlap(&["the"; 7], &["the", "cat", "the"], 1);
        assert_eq!(overlap.matches, 2);
    }

    #[test]
    fn unpaired_segments_are_errors() {
        let error = corpus_bleu(&["a", "b"], &["a"]).unwrap_err();
        assert_eq!(
            error,
            MetricError::UnequalCounts {
                hypotheses: 2,
                references: 1
            }
        );
        assert_eq!(corpus_bleu::<&str, &str>(&[], &[]), Err(MetricError::Empty));
    }
}
