//! Training for [`transformer_core`]: Burn's Learner with the paper's optimizer, schedule and loss
//! (§5), and what it takes to get from parallel text to a translation model.
//!
//! | step | here |
//! |---|---|
//! | sentence pairs from files | [`Corpus`] |
//! | shared subword vocabulary | [`train_bpe`] (§5.1) |
//! | batches of similar length | [`BatchSampler`] (§5.1) |
//! | label-smoothed loss | [`LabelSmoothedCrossEntropy`] (§5.4) |
//! | learning rate | [`noam_schedule`] (§5.3) |
//! | optimizer | [`PaperAdam`] (§5.3) |
//! | training, checkpoints, resume | [`Trainer`] |
//! | BLEU, chrF | [`metrics`] |

mod batch;
mod checkpoint;
mod config;
mod corpus;
mod error;
mod learner;
mod loader;
mod loss;
pub mod metrics;
mod optimizer;
mod progress;
mod schedule;
mod tokenizer;

pub use batch::{BatchError, BatchSampler, TokenizedPair};
pub use checkpoint::{Validation, holds_model};
pub use config::TrainingConfig;
pub use corpus::{Corpus, CorpusError, Pair};
pub use error::TrainError;
pub use learner::{StopReason, Trained, Trainer, TrainingModel, evaluate};
pub use loader::{Batch, Update};
pub use loss::{LabelSmoothedCrossEntropy, TokenSums};
pub use optimizer::{PaperAdam, clip_global_norm};
pub use progress::{PlainLines, ProgressDisplay};
pub use schedule::noam_schedule;
pub use tokenizer::{MIN_VOCAB_SIZE, SPECIAL_TOKENS, TokenizerError, train_bpe};
