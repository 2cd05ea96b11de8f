//! The buffers of a task, reused between operations and between steps.

use std::fmt;

use crate::packed::state::Queries;
use transformer_cpu::{ProductBuffer, Threads};

/// The buffers of a task.
#[derive(Default)]
pub struct Workspace {
    /// The residual stream: `[rows, d_model]`.
    pub x: Vec<f32>,
    /// The rows of a decoder call.
    pub queries: Queries,
    pub buffers: Buffers,
}

/// The buffers of a layer. A buffer may be longer than its contents.
#[derive(Default)]
pub struct Buffers {
    /// A sub-layer's normalized input, with pre-norm: `[rows, d_model]`.
    pub normed: Vec<f32>,
    /// A sub-layer's output: `[rows, d_model]`.
    pub output: Vec<f32>,
    /// Queries, or queries, keys and values side by side, or keys and values of a memory, or logits.
    pub projected: Vec<f32>,
    /// The heads' weighted sums, side by side: `[rows, n_heads · d_v]`.
    pub sums: Vec<f32>,
    /// The bias on the scores of a query: `[keys, n_heads]`.
    pub bias: Vec<f32>,
    /// The keys and values of a query with vectors of their distances: `[keys, n_kv_heads · (d_k + d_v)]`.
    pub placed: Vec<f32>,
    /// The numbers of their rows.
    pub rows: Vec<u32>,
    /// The scores of a query.
    pub scores: Vec<f32>,
    /// Hidden features of the feed-forward network, of some rows at a time: `[rows, d_ff]`.
    pub inner: Vec<f32>,
    pub products: Products,
}

/// The buffer and the threads of matrix multiplications.
pub struct Products {
    pub buffer: ProductBuffer,
    pub threads: Threads,
}

impl Default for Products {
    fn default() -> Self {
        Self {
            buffer: ProductBuffer::default(),
            threads: Threads::This,
        }
    }
}

/// A clone is empty: no operation reads what another has left in a buffer.
impl Clone for Workspace {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace").finish_non_exhaustive()
    }
}
