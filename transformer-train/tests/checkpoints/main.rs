//! The promises of checkpoints: when they are made and which are kept, the average of weights beside them,
//! which model is the best, when patience is over, and that a run which was stopped or killed anywhere is
//! resumed to the same end.
//!
//! | module | promises |
//! |---|---|
//! | `between` | checkpoints by updates and by time, with or without a validation |
//! | `best` | the best model, the best checkpoints, patience |
//! | `moving_average` | the moving average of the weights |
//! | `average_last` | the mean of the last checkpoints at the end of a run |
//! | `killed` | a kill between any two writes |
//! | `damaged` | damage to checkpoints, and the older one to go on from |

use transformer_instances as _;

mod average_last;
mod best;
mod between;
mod damaged;
mod killed;
mod moving_average;
mod points;
