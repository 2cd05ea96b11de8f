//! The promises of the model, whatever its sizes and weights, one file per promise.
//!
//! They are one crate, because each crate would compile the backends anew. Run one promise with
//! `cargo test -p transformer-core --test invariants causality`.

mod common;

// Which positions attend to which.
mod blocked_rows;
mod causality;
mod padding;

// Different ways of computing, one result.
mod batch;
mod cache;
mod excluded;
mod greedy;
mod language_model;
mod packed;
mod search;
mod start_token;

// The paper's formulas, compared with plain loops.
mod attention;
mod attention_bias;
mod layer_math;

// The same of other implementations.
mod layer_kinds;
// The layers of other models, compared with other implementations.
mod llama;

// Parameters: their initial values, number and storage.
mod init;
mod quantized;
#[cfg(feature = "text")]
mod saved;
mod tying;
mod weights;
