//! A run: its loop, its directory, and how it is resumed.
//!
//! | file | has |
//! |---|---|
//! | `trainer` | the settings of a run, and its result |
//! | `trainer/start` | all before the first update: checks, examples, directory, checkpoint |
//! | `trainer/joining` | the same run in every process |
//! | `update_loop` | the loop, when it pauses, and when it ends |
//! | `update_loop/` | one update; one validation; the mean of the last checkpoints |
//! | `lock`, `state`, `record`, `checkpoints`, `scheduled` | the directory of a run |
//! | `average` | the average of models |

pub mod average;
pub mod checkpoints;
pub mod lock;
pub mod record;
mod scheduled;
pub mod state;
pub mod trainer;
pub mod update_loop;
