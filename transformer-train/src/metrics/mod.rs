//! Measures: translation quality as sacreBLEU computes it, error rates as jiwer does, and the progress of
//! training.

mod bleu;
mod chrf;
mod displayed;
mod error;
mod error_rate;
mod statistics;

pub use bleu::{Bleu, corpus_bleu, tokenize_13a};
pub use chrf::{Chrf, corpus_chrf};
pub(crate) use displayed::{GradientNorm, SkippedUpdates, ValidationNumber};
pub use displayed::{Throughput, TokenMean};
pub use error::MetricError;
pub use error_rate::{ErrorRates, corpus_error_rates};
pub use statistics::{DeviceStatistics, Numbers, Statistics, UpdateItem, ValidationItem};
