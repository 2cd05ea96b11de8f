//! Training for [`transformer_core`]: the paper's optimizer, schedule and loss (§5), for any model with a loss; and
//! the steps from parallel text to a translation model.
//!
//! From two files of text to a model directory, with its tokenizer:
//!
//! ```no_run
//! use burn_autodiff::Autodiff;
//! use burn_ndarray::NdArray;
//! use transformer_core::{Tokenizers, TransformerConfig};
//! use transformer_train::{Corpus, Trainer, TrainingConfig, train_bpe};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (train, valid) = Corpus::from_parallel("text.en", "text.fr")?.hold_out(1000, 0)?;
//! let tokenizer = train_bpe(train.sentences(), 8000)?;
//! let config = TransformerConfig::base(tokenizer.vocab_size());
//! let tokenizers = Tokenizers::shared(tokenizer);
//! let (train, valid) = (train.tokenize(&tokenizers, 128)?, valid.tokenize(&tokenizers, 128)?);
//! println!("training: {train}; validation: {valid}");
//! let model = config.init::<Autodiff<NdArray>>(0, &Default::default())?;
//! Trainer::new(model, TrainingConfig::default())
//!     .directory("model")
//!     .tokenizers(&tokenizers)
//!     .train(train.pairs, valid.pairs)?;
//! # Ok(())
//! # }
//! ```
//!
//! A run can start from any model directory, with its tokenizers ([`freeze`] keeps parts of the model as they are):
//!
//! ```no_run
//! use burn_autodiff::Autodiff;
//! use burn_ndarray::NdArray;
//! use transformer_core::{Tokenizers, Transformer};
//! use transformer_train::{Corpus, Trainer, TrainingConfig, freeze};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tokenizers = Tokenizers::load("model")?;
//! let model = Transformer::<Autodiff<NdArray>>::load("model", &Default::default())?;
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
//! | sentence pairs from files | [`Corpus`]; [`CorpusFiles`], larger than memory |
//! | examples by position, in memory or in a file | [`ExampleSource`], `PairCache` |
//! | shared subword vocabulary | `train_bpe` (§5.1), with the feature `text` |
//! | other vocabularies: unigram, characters, words | `train_tokenizer`, with the feature `text` |
//! | batches of similar length | [`BatchSampler`] (§5.1) |
//! | the interface of a model that can be trained | [`Objective`] |
//! | label-smoothed loss, at the positions of labels only | [`LabelSmoothedCrossEntropy`] (§5.4), [`Labels`] |
//! | learning rate | [`Schedule`], [`RateSchedule`] (§5.3) |
//! | optimizer | [`Adam`] (§5.3); any of Burn's, with [`Clipped`] gradients |
//! | training, checkpoints, resume | [`Trainer`] |
//! | training in Burn's own loop, with its metrics and display | [`learner`], [`Updates`], [`Batches`] |
//! | training by several processes | [`Ranks`]; `Mpi`, with the feature `mpi` |
//! | decoding at each validation | `TextValidation`, with the feature `text`; [`ValidationMetrics`] |
//! | training from a model, in part | [`Trainer`], [`freeze`] |
//! | which model is kept, and when training is over | [`Criterion`], [`TrainingConfig`] |
//! | the record of a run | [`RunRecord`] |
//! | the numbers of a run as it goes, and its logs | [`RunObserver`], [`JsonLog`], [`TensorBoardLog`], [`RunLog`] |
//! | averaging of checkpoints | [`average_models`] (§6.1), [`TrainingConfig::average_last`] |
//! | BLEU, chrF, error rates | [`metrics`] |

mod config;
mod data;
mod error;
mod files;
mod learner;
mod loaders;
pub mod metrics;
mod objective;
mod optim;
mod printable;
mod progress;
mod ranks;
mod run;
mod validation;

pub use config::{Schedule, TrainingConfig};
pub use data::{
    BatchError, BatchSampler, Checksum, Corpus, CorpusError, CorpusFile, CorpusFiles, Example,
    ExampleProblem, ExampleSource, Lengths, MAX_LINE_BYTES, Pair, PairPlaces, TRAINING_FILE,
    TextLine, TextLines, TextReader, TokenizedPair, UnusablePairs, Update, VALIDATION_FILE,
    is_standard_stream, read_sentences, trimmed,
};
#[cfg(feature = "text")]
pub use data::{
    CacheOptions, FailedPairs, Filtered, LeftOut, MAX_VOCAB_SIZE, MIN_VOCAB_SIZE, PairCache,
    PairFilters, Tokenized, TokenizerConfig, TokenizerError, TokenizerKind, WeightedPairs,
    train_bpe, train_tokenizer,
};
pub use error::{AverageError, ConfigRule, ObserverError, TrainError, same_config};
pub use learner::{TrainingLearner, TrainingModel, learner};
pub use loaders::{Batches, Updates};
pub use metrics::criterion::{Criterion, Goal};
pub use objective::loss::{LabelSmoothedCrossEntropy, LossOptions, LossSums};
pub use objective::{
    Labels, Objective, PairBatch, SequenceBatch, Trainable, check_tokens, sequence_loss,
};
pub use optim::adam::{Adam, AdamConfig, AdamRule, Clipped, clip_global_norm, global_norm};
pub use optim::freeze::{FreezeError, freeze, frozen_names};
pub use optim::schedule::RateSchedule;
pub use printable::printable;
pub use progress::{
    JsonLog, LOG_FILE, PlainLines, ProgressDisplay, RunLog, RunObserver, RunStart, SkippedUpdate,
    TensorBoardLog, TrainingPoint,
};
#[cfg(feature = "mpi")]
pub use ranks::Mpi;
pub use ranks::{Communicator, Ranks};
pub use run::average::{average_models, newest_checkpoints};
pub use run::checkpoints::holds_model;
pub use run::lock::RunLock;
pub use run::record::{KeptModel, RunRecord, holds_run};
pub use run::trainer::{Trained, Trainer};
pub use run::update_loop::StopReason;
pub use validation::evaluate::evaluate;
#[cfg(feature = "text")]
pub use validation::text::TextValidation;
pub use validation::{
    AverageOutcome, HookError, Measurement, SampleOutput, Validation, ValidationContext,
    ValidationMetrics,
};
