//! Optimizer and schedule (§5.3), and frozen parameters.

pub(crate) mod adam;
pub(crate) mod freeze;
pub(crate) mod moments_file;
pub(crate) mod moving_average;
pub(crate) mod schedule;

pub use crate::config::Schedule;
pub use adam::{Adam, AdamConfig, AdamRule, Clipped, clip_global_norm, global_norm};
pub use freeze::{FreezeError, freeze, frozen_names};
pub use schedule::RateSchedule;
