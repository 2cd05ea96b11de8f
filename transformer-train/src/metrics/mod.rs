//! What is measured: translation quality as sacreBLEU measures it, and training as it goes.

mod bleu;
mod chrf;
mod error;
mod training;

pub use bleu::{Bleu, corpus_bleu, tokenize_13a};
pub use chrf::{Chrf, corpus_chrf};
pub use error::MetricError;
pub(crate) use training::PERPLEXITY;
pub use training::{DeviceStatistics, Statistics, Throughput, TokenMean};
