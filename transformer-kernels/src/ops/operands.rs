//! The operands of attention: queries, keys and values in their possible layouts.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use transformer_cpu::Heads;

use crate::ops::heads::split_heads;

/// Queries, keys and values, in their possible layouts.
#[derive(Debug)]
pub enum Operands<'a, B: Backend> {
    /// Queries, keys and values of one sequence, as one projection produces them: the queries of all heads, then
    /// their keys, then their values. `[batch, len, n_heads · (2 d_k + d_v)]`
    SelfPacked(&'a Tensor<B, 3>),
    /// Queries of one sequence, keys and values of another.
    CrossPacked {
        /// `[batch, query_len, n_heads · d_k]`
        query: &'a Tensor<B, 3>,
        /// The keys of all heads, then their values: `[batch, key_len, n_heads · (d_k + d_v)]`
        key_value: &'a Tensor<B, 3>,
    },
}

impl<B: Backend> Clone for Operands<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Operands<'_, B> {}

impl<'a, B: Backend> Operands<'a, B> {
    /// The tensor whose first columns are the queries.
    pub fn query(&self) -> &'a Tensor<B, 3> {
        match *self {
            Self::SelfPacked(query) | Self::CrossPacked { query, .. } => query,
        }
    }

    /// The tensor of keys and values, if it is a separate one.
    pub(crate) fn key_value(&self) -> Option<&'a Tensor<B, 3>> {
        match *self {
            Self::SelfPacked(_) => None,
            Self::CrossPacked { key_value, .. } => Some(key_value),
        }
    }

    /// The same, with another tensor in place of the one with the queries.
    pub fn with_query(self, query: &'a Tensor<B, 3>) -> Self {
        match self {
            Self::SelfPacked(_) => Self::SelfPacked(query),
            Self::CrossPacked { key_value, .. } => Self::CrossPacked { query, key_value },
        }
    }

    /// The shape of the scores: `[batch, n_heads, query_len, key_len]`.
    ///
    /// # Panics
    /// When the shapes do not agree.
    pub(crate) fn scores(&self, heads: Heads) -> [usize; 4] {
        let Heads { n_heads, d_k, d_v } = heads;
        match self {
            Self::SelfPacked(packed) => {
                let [batch, len, width] = packed.dims();
                assert_eq!(width, n_heads * (2 * d_k + d_v), "width of {heads:?}");
                [batch, n_heads, len, len]
            }
            Self::CrossPacked { query, key_value } => {
                let [[batch, query_len, width], [others, key_len, both]] =
                    [query.dims(), key_value.dims()];
                assert_eq!(width, n_heads * d_k, "width of the queries of {heads:?}");
                assert_eq!(
                    both,
                    n_heads * (d_k + d_v),
                    "width of the keys and values of {heads:?}"
                );
                assert_eq!(batch, others, "batch size of queries and of keys");
                [batch, n_heads, query_len, key_len]
            }
        }
    }

    /// Queries, keys and values, split into heads.
    pub(crate) fn split(&self, heads: Heads) -> [Tensor<B, 4>; 3] {
        let Heads { n_heads, d_k, d_v } = heads;
        let (rows, column) = match *self {
            Self::SelfPacked(packed) => (packed, n_heads * d_k),
            Self::CrossPacked { key_value, .. } => (key_value, 0),
        };
        [
            split_heads(self.query(), 0, n_heads, d_k),
            split_heads(rows, column, n_heads, d_k),
            split_heads(rows, column + n_heads * d_k, n_heads, d_v),
        ]
    }
}
