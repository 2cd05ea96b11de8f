//! Measures: translation quality as sacreBLEU computes it, error rates as jiwer does, and the progress of
//! training.

mod bleu;
mod chrf;
mod displayed;
mod error;
mod error_rate;
mod statistics;
mod text_metric;

pub use bleu::{Bleu, corpus_bleu, tokenize_13a};
pub use chrf::{Chrf, corpus_chrf};
pub(crate) use displayed::{GradientNorm, SampleText, SkippedUpdates, ValidationNumber};
pub use displayed::{Throughput, TokenMean};
pub use error::MetricError;
pub(crate) use error_rate::levenshtein;
pub use error_rate::{ErrorRates, corpus_error_rates};
pub(crate) use statistics::Samples;
pub use statistics::{DeviceStatistics, Numbers, Statistics, UpdateItem, ValidationItem};
pub use text_metric::{TextMetric, TextScore, UnknownMetric};
