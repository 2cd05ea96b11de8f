//! Optimizer, schedule, and which parameters they change (§5.3).

pub mod adam;
pub mod freeze;
pub mod moments_file;
pub mod moving_average;
pub mod schedule;
