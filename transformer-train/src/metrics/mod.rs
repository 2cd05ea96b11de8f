//! Metrics: translation quality as in sacreBLEU, error rates as in jiwer, and the comparison of validations.

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
