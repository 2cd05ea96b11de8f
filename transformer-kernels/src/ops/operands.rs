//! Operands of attention: queries, keys and values in the layouts that occur.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use transformer_cpu::Heads;

use crate::ops::heads::split_heads;

/// Queries, keys and values, in the layouts that occur.
#[derive(Debug)]
pub enum Operands<'a, B: Backend> {
    /// Queries, keys and values of a sequence, as one projection leaves them: the queries of all heads, then
    /// their keys, then their values. `[batch, len, n_heads · (2 d_k + d_v)]`
    SelfPacked(&'a Tensor<B, 3>),
    /// Queries of one sequence, keys and values of another.
    CrossPacked {
        /// `[batch, query_len, n_heads · d_k]`
        query: &'a Tensor<B, 3>,
        /// The keys of all heads, then their values: `[batch, key_len, n_heads · (d_k + d_v)]`
        key_value: &'a Tensor<B, 3>,
    },
    /// Keys and values of a cache, split into heads, in one part or several that follow one another.
    Cached {
        /// The queries of all heads in the first columns: `[batch, query_len, n_heads · d_k or more]`
        query: &'a Tensor<B, 3>,
        /// Keys `[batch, n_heads, len, d_k]` and values `[batch, n_heads, len, d_v]`; key_len is the sum
        /// of the parts' len.
        parts: &'a [[&'a Tensor<B, 4>; 2]],
    },
}

impl<B: Backend> Clone for Operands<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Operands<'_, B> {}

impl<'a, B: Backend> Operands<'a, B> {
    /// The tensor that holds the queries, in its first columns.
    pub fn query(&self) -> &'a Tensor<B, 3> {
        match *self {
            Self::SelfPacked(query)
            | Self::CrossPacked { query, .. }
            | Self::Cached { query, .. } => query,
        }
    }

    /// The same with another tensor in place of that which holds the queries.
    pub fn with_query(self, query: &'a Tensor<B, 3>) -> Self {
        match self {
            Self::SelfPacked(_) => Self::SelfPacked(query),
            Self::CrossPacked { key_value, .. } => Self::CrossPacked { query, key_value },
            Self::Cached { parts, .. } => Self::Cached { query, parts },
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
                assert_eq!(batch, others, "sentences of queries and of keys");
                [batch, n_heads, query_len, key_len]
            }
            Self::Cached { query, parts } => {
                let [batch, query_len, width] = query.dims();
                assert!(
                    width >= n_heads * d_k,
                    "width {width} of the queries of {heads:?}"
                );
                assert!(!parts.is_empty(), "attention to a cache without parts");
                let lens = parts.iter().map(|[key, value]| {
                    let [_, _, len, _] = key.dims();
                    let expected = [d_k, d_v].map(|width| [batch, n_heads, len, width]);
                    let found = [key.dims(), value.dims()];
                    assert_eq!(found, expected, "keys and values of {heads:?}");
                    len
                });
                [batch, n_heads, query_len, lens.sum()]
            }
        }
    }

    /// Keys and values in parts, split into heads.
    pub(crate) fn key_value(&self, heads: Heads) -> Vec<[Tensor<B, 4>; 2]> {
        let Heads { n_heads, d_k, d_v } = heads;
        let key_value = |rows, column| {
            [
                split_heads(rows, column, n_heads, d_k),
                split_heads(rows, column + n_heads * d_k, n_heads, d_v),
            ]
        };
        match *self {
            Self::SelfPacked(packed) => vec![key_value(packed, n_heads * d_k)],
            Self::CrossPacked {
                key_value: packed, ..
            } => vec![key_value(packed, 0)],
            Self::Cached { parts, .. } => parts.iter().map(|part| part.map(Clone::clone)).collect(),
        }
    }
}
