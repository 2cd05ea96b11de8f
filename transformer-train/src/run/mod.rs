//! A run: its loop, its directory, and how it is resumed.
//!
//! | file | contents |
//! |---|---|
//! | `trainer` | the settings of a run, and its result |
//! | `trainer/start` | everything before the first update: checks, examples, directory, checkpoint |
//! | `trainer/joining` | sharing the run with every process |
//! | `update_loop` | the loop: when it pauses, and when it ends |
//! | `update_loop/` | one update; one validation; the average of the last checkpoints |
//! | `lock`, `state`, `record`, `checkpoints`, `scheduled` | the directory of a run |
//! | `average` | averaging models |

pub(crate) mod average;
pub(crate) mod checkpoints;
pub(crate) mod lock;
pub(crate) mod record;
mod scheduled;
pub(crate) mod state;
pub(crate) mod trainer;
pub(crate) mod update_loop;

pub use crate::error::{AverageError, ConfigRule, same_config};
pub use average::{average_models, newest_checkpoints};
pub use checkpoints::holds_model;
pub use lock::RunLock;
pub use record::{KeptModel, RunRecord, holds_run};
pub use trainer::{Trained, Trainer};
pub use update_loop::StopReason;
