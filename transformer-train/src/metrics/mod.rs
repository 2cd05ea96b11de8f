//! Measures: translation quality as sacreBLEU computes it, and the progress of training.

mod bleu;
mod chrf;
mod displayed;
mod error;
mod statistics;

pub use bleu::{Bleu, corpus_bleu, tokenize_13a};
pub use chrf::{Chrf, corpus_chrf};
pub(crate) use displayed::{GradientNorm, PERPLEXITY, SKIPPED, SkippedUpdates, ValidationNumber};
pub use displayed::{Throughput, TokenMean};
pub use error::MetricError;
pub use statistics::{DeviceStatistics, Numbers, Statistics, UpdateItem, ValidationItem};
