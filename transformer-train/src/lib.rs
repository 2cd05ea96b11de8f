//! Training for [`transformer_core`]: the paper's optimizer, schedule and loss (§5) for any model with a loss, and
//! everything from parallel text to a translation model.
//!
//! From two text files to a model directory with its tokenizer:
//!
#![cfg_attr(feature = "flex", doc = "```no_run")]
#![cfg_attr(not(feature = "flex"), doc = "```ignore")]
//! use transformer_core::backend::{Autodiff, Flex};
//! use transformer_core::{Tokenizers, TransformerConfig};
//! use transformer_train::{Trainer, TrainingConfig};
//! use transformer_train::data::{Corpus, train_bpe};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (train, valid) = Corpus::from_parallel("text.en", "text.fr")?.hold_out(1000, 0)?;
//! let tokenizer = train_bpe(train.sentences(), 8000)?;
//! let config = TransformerConfig::base(tokenizer.vocab_size());
//! let tokenizers = Tokenizers::shared(tokenizer);
//! let (train, valid) = (train.tokenize(&tokenizers, 128)?, valid.tokenize(&tokenizers, 128)?);
//! println!("training: {train}; validation: {valid}");
//! let model = config.init::<Autodiff<Flex>>(0, &Default::default())?;
//! Trainer::new(model, TrainingConfig::default())
//!     .directory("model")
//!     .tokenizers(&tokenizers)
//!     .train(train.pairs, valid.pairs)?;
//! # Ok(())
//! # }
//! ```
//!
//! Fine-tuning starts from a model directory and its tokenizers; [`freeze`](optim::freeze) excludes parts of the
//! model from training:
//!
#![cfg_attr(feature = "flex", doc = "```no_run")]
#![cfg_attr(not(feature = "flex"), doc = "```ignore")]
//! use transformer_core::backend::{Autodiff, Flex};
//! use transformer_core::{Tokenizers, Transformer};
//! use transformer_train::{Trainer, TrainingConfig};
//! use transformer_train::data::Corpus;
//! use transformer_train::optim::freeze;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tokenizers = Tokenizers::load("model")?;
//! let model = Transformer::<Autodiff<Flex>>::load("model", &Default::default())?;
//! let (model, _) = freeze(model, &["encoder.*"])?;
//! let (train, valid) = Corpus::from_tsv("new.tsv")?.hold_out(500, 0)?;
//! let (train, valid) = (train.tokenize(&tokenizers, 128)?, valid.tokenize(&tokenizers, 128)?);
//! let config = TrainingConfig { peak_rate: Some(1e-4), warmup: 100, ..TrainingConfig::default() };
//! Trainer::new(model, config)
//!     .directory("tuned")
//!     .tokenizers(&tokenizers)
//!     .train(train.pairs, valid.pairs)?;
//! # Ok(())
//! # }
//! ```
//!
//! | step | here |
//! |---|---|
//! | sentence pairs from files | [`Corpus`](data::Corpus); [`CorpusFiles`](data::CorpusFiles), larger than memory |
//! | examples by position, in memory or in a file | [`ExampleSource`](data::ExampleSource), `PairCache` |
//! | one shared subword vocabulary | `train_bpe` (§5.1), with the feature `text` |
//! | other vocabularies: unigram, characters, decomposed characters, words | `train_tokenizer`, with the feature `text` |
//! | batches of similar length | [`BatchSampler`](data::BatchSampler) (§5.1) |
//! | the interface of a model that can be trained | [`Objective`](objective::Objective) |
//! | label-smoothed loss, without padding | [`LabelSmoothedCrossEntropy`](objective::LabelSmoothedCrossEntropy) (§5.4), [`Labels`](objective::Labels) |
//! | learning rate | [`Schedule`](optim::Schedule), [`RateSchedule`](optim::RateSchedule) (§5.3) |
//! | optimizer | [`Adam`](optim::Adam) (§5.3); any optimizer of Burn's, with [`Clipped`](optim::Clipped) gradients |
//! | training, checkpoints, resume | [`Trainer`] |
//! | training in Burn's own loop, with its metrics and display | [`learner()`], [`Updates`](learner::Updates), [`Batches`](learner::Batches) |
//! | training in several processes | [`Ranks`](ranks::Ranks); `Mpi`, with the feature `mpi` |
//! | decoding at each validation | `TextValidation`, with the feature `text`; [`ValidationMetrics`](validation::ValidationMetrics) |
//! | a shortlist of translations per source token, for faster decoding | [`ShortlistConfig`] |
//! | fine-tuning, frozen parameters | [`Trainer`], [`freeze`](optim::freeze) |
//! | which model is saved, early stopping | [`Criterion`](metrics::Criterion), [`TrainingConfig`] |
//! | the record of a run | [`RunRecord`](run::RunRecord) |
//! | metrics during a run, and its logs | [`RunObserver`](progress::RunObserver), [`JsonLog`](progress::JsonLog), [`TensorBoardLog`](progress::TensorBoardLog), [`RunLog`](progress::RunLog) |
//! | checkpoint averaging | [`average_models`](run::average_models) (§6.1), [`TrainingConfig::average_last`] |
//! | BLEU, chrF, error rates | [`metrics`] |

// On docs.rs, which has a nightly compiler, each item names the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
pub mod data;
mod error;
mod files;
pub mod learner;
mod loaders;
pub mod metrics;
pub mod objective;
pub mod optim;
mod printable;
pub mod progress;
pub mod ranks;
pub mod run;
mod shortlist;
pub mod validation;

pub use config::TrainingConfig;
pub use error::TrainError;
pub use learner::learner;
pub use run::{Trained, Trainer};
pub use shortlist::ShortlistConfig;

#[cfg(all(doctest, feature = "flex", feature = "text"))]
#[doc = include_str!("../README.md")]
struct Readme;
