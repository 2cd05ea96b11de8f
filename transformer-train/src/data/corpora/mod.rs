//! Sentence pairs in files.

pub mod corpus;
pub mod files;
#[cfg(feature = "text")]
pub mod filters;
pub mod hold_out;
pub mod lines;
pub mod reader;
pub mod text_lines;
pub mod text_reader;
pub mod text_set;
pub mod unusable;
#[cfg(feature = "text")]
pub mod weighted_pairs;
pub mod writer;
