//! What the model promises whatever its sizes and weights, one file per promise.
//!
//! One crate, because each would compile the backends anew. Run one promise with
//! `cargo test -p transformer-core --test invariants causality`.

mod common;

// Which positions see which.
mod blocked_rows;
mod causality;
mod padding;

// However it is computed, the result is one.
mod batch;
mod cache;
mod greedy;
mod language_model;
mod search;

// The paper's formulas, computed again by plain loops.
mod attention;
mod layer_math;

// Parameters: how many, how they start, how they are stored.
mod init;
mod tying;
mod weights;
