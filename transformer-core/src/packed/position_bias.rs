//! The bias on the scores of self-attention, by the distance of query and key.

use crate::nn::position_bias::{BiasKind, Buckets, PositionBiasConfig};
use crate::packed::weights::NamedWeights;

/// Distances on either side whose buckets are stored; others are computed.
const TABLE_LEN: i64 = 512;

/// The bias of a stack; [`PositionBias`](crate::PositionBias) has the formulas.
pub struct PositionBias {
    buckets: Buckets,
    /// The buckets of the distances from `-TABLE_LEN` to `TABLE_LEN`.
    near: Vec<usize>,
    /// `[buckets, n_heads]`
    learned: Vec<f32>,
    n_heads: usize,
}

impl PositionBias {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        config: &PositionBiasConfig,
    ) -> Result<Self, W::Error> {
        let BiasKind::Relative(buckets) = config.kind;
        let near = -TABLE_LEN..=TABLE_LEN;
        let count = buckets.buckets * config.n_heads;
        Ok(Self {
            buckets,
            near: near.map(|distance| buckets.of(distance)).collect(),
            learned: weights.numbers(&format!("{path}.learned"), count)?,
            n_heads: config.n_heads,
        })
    }

    /// Writes the biases of keys at some positions, for a query at another: `[keys, n_heads]`.
    pub fn fill(&self, query: u32, keys: impl Iterator<Item = u32>, out: &mut Vec<f32>) {
        out.clear();
        for key in keys {
            let distance = i64::from(key) - i64::from(query);
            let near = usize::try_from(distance + TABLE_LEN).ok();
            let near = near.and_then(|index| self.near.get(index));
            let bucket = near.map_or_else(|| self.buckets.of(distance), |&bucket| bucket);
            out.extend_from_slice(&self.learned[bucket * self.n_heads..][..self.n_heads]);
        }
    }
}
