//! Errors.

/// A line of a glossary without a term and its translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: a term and its translation must be separated by a tab")]
pub struct GlossaryError {
    /// The line, from 1.
    pub line: usize,
}

/// The name of a format that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown format {name:?}; the formats are {}", crate::Format::NAMES.join(", "))]
pub struct UnknownFormat {
    /// The name.
    pub name: String,
}
