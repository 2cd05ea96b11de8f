//! The better values of a number.

use serde::{Deserialize, Serialize};

/// Which values of a number are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Lower ones, as of a loss or an error rate.
    Lowest,
    /// Higher ones, as of BLEU or an accuracy.
    Highest,
}
