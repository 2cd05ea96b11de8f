//! The bias on the scores of self-attention, which depends on the distance between query and key.

use crate::nn::position_bias::{BiasKind, Buckets, PositionBiasConfig, slopes};
use crate::packed::weights::NamedWeights;

/// Largest distance, on either side, whose bucket is stored; others are computed.
const TABLE_LEN: i64 = 512;

/// The bias of a stack; [`PositionBias`](crate::nn::PositionBias) has the formulas.
pub enum PositionBias {
    Relative {
        buckets: Buckets,
        /// The buckets of the distances from `-TABLE_LEN` to `TABLE_LEN`.
        near: Vec<usize>,
        /// `[buckets, n_heads]`
        learned: Vec<f32>,
        n_heads: usize,
    },
    Alibi {
        /// `[n_heads]`
        slopes: Vec<f32>,
    },
}

impl PositionBias {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        config: &PositionBiasConfig,
    ) -> Result<Self, W::Error> {
        let n_heads = config.n_heads;
        Ok(match config.kind {
            BiasKind::Relative(buckets) => Self::Relative {
                buckets,
                near: (-TABLE_LEN..=TABLE_LEN)
                    .map(|distance| buckets.of(distance))
                    .collect(),
                learned: weights.numbers(&format!("{path}.learned"), buckets.buckets * n_heads)?,
                n_heads,
            },
            BiasKind::Alibi => Self::Alibi {
                slopes: slopes(n_heads),
            },
        })
    }

    /// Writes the biases of a query at position `query` and of keys at positions `keys`: `[keys, n_heads]`.
    pub fn fill(&self, query: u32, keys: impl Iterator<Item = u32>, out: &mut Vec<f32>) {
        out.clear();
        let distances = keys.map(|key| i64::from(key) - i64::from(query));
        match self {
            Self::Relative {
                buckets,
                near,
                learned,
                n_heads,
            } => {
                for distance in distances {
                    let stored = usize::try_from(distance + TABLE_LEN).ok();
                    let stored = stored.and_then(|index| near.get(index));
                    let bucket = stored.map_or_else(|| buckets.of(distance), |&bucket| bucket);
                    out.extend_from_slice(&learned[bucket * n_heads..][..*n_heads]);
                }
            }
            Self::Alibi { slopes } => {
                for distance in distances {
                    let steps = -distance.abs() as f32;
                    out.extend(slopes.iter().map(|slope| slope * steps));
                }
            }
        }
    }
}
