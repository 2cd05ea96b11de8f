//! Measures: translation quality as sacreBLEU computes it, error rates as jiwer does, and the progress of
//! training.

mod bleu;
mod chrf;
pub(crate) mod criterion;
mod error;
mod error_rate;
mod text_metric;

pub use criterion::{Criterion, Goal};

pub use crate::objective::statistics::{DeviceStatistics, Statistics, UpdateItem};
pub use bleu::{Bleu, corpus_bleu, tokenize_13a};
pub use chrf::{Chrf, corpus_chrf};
pub use error::MetricError;
pub(crate) use error_rate::levenshtein;
pub use error_rate::{ErrorRates, corpus_error_rates};
pub use text_metric::{TextMetric, TextScore, UnknownMetric};
