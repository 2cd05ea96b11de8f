//! Errors of the metrics.

use thiserror::Error;

/// Why a corpus cannot be scored.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MetricError {
    /// The corpus is empty.
    #[error("a corpus metric needs at least one hypothesis and its reference")]
    Empty,

    /// The corpus has different numbers of hypotheses and references.
    #[error("{hypotheses} hypotheses for {references} references; a metric needs one of each")]
    UnequalCounts {
        /// The number of hypotheses.
        hypotheses: usize,
        /// The number of references.
        references: usize,
    },
}

/// Pairs each hypothesis with its reference.
pub(crate) fn pairs<'a, H: AsRef<str>, R: AsRef<str>>(
    hypotheses: &'a [H],
    references: &'a [R],
) -> Result<impl Iterator<Item = (&'a str, &'a str)>, MetricError> {
    if hypotheses.len() != references.len() {
        return Err(MetricError::UnequalCounts {
            hypotheses: hypotheses.len(),
            references: references.len(),
        });
    }
    if hypotheses.is_empty() {
        return Err(MetricError::Empty);
    }
    Ok(hypotheses
        .iter()
        .map(H::as_ref)
        .zip(references.iter().map(R::as_ref)))
}
