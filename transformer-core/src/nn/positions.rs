//! Positional encodings (§3.5).

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::nn::error::{ConfigError, assert_sizes};
use crate::nn::init::WeightInit;
use crate::nn::position_bias::{BiasKind, Buckets};

/// Number of positions whose sines and cosines are stored; later ones are computed on demand.
pub(crate) const TABLE_LEN: usize = 512;

/// Kind of positional encoding (§3.5).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Positions {
    /// Fixed sines and cosines, interleaved by frequency, for any length.
    Sinusoidal,
    /// Fixed sines in the first half of the features, cosines in the second, for any length.
    ///
    /// Frequency i of each half, counted from 0, is `10000^(-i/n)`.
    SinesThenCosines {
        /// Whether n is `⌊d_model/2⌋ - 1`, so that the last frequency is exactly 1/10000, as in tensor2tensor and
        /// fairseq; the last feature of an odd `d_model` is then 0. Otherwise n is `d_model/2`, as in the paper; an odd
        /// `d_model` then has one more sine than cosines.
        inclusive: bool,
        /// The position of the first token.
        first: usize,
    },
    /// A learned bias on the scores of self-attention instead of vectors: T5's relative positions
    /// ([`PositionBias`](crate::nn::PositionBias)). Bidirectional in the encoder, causal in the decoder.
    RelativeBias {
        /// Number of distance buckets; 32 in T5.
        buckets: usize,
        /// From this distance on, all keys share one bucket; 128 in T5.
        max_distance: usize,
    },
    /// A bias on the scores of self-attention instead of vectors: ALiBi ([`PositionBias`](crate::nn::PositionBias)). It
    /// falls linearly with the distance between query and key, with a slope per head; in the encoder, on both sides of
    /// the query.
    Alibi,
    /// One learned vector per position (Table 3 row E).
    Learned {
        /// Number of positions; no sequence may be longer.
        max_len: usize,
    },
    /// Rotations of the queries and keys of self-attention instead of vectors, for any length
    /// ([`Rotary`](crate::nn::Rotary); Su et al., 2021).
    Rotary {
        /// The frequency of feature pair i of a head is `base^(-2i/d_k)`; the paper's base is 10000.
        base: f64,
    },
    /// A learned vector per distance, added to each key and value in every layer's self-attention, instead of vectors
    /// per position ([`RelativePositions`](crate::nn::RelativePositions); Shaw et al., 2018).
    Relative {
        /// Larger distances share a vector, on either side.
        max_distance: usize,
    },
}

impl Positions {
    /// The position of the first token.
    pub(crate) fn first(self) -> usize {
        match self {
            Self::SinesThenCosines { first, .. } => first,
            _ => 0,
        }
    }

    /// The rule of the bias on the scores of self-attention; `None` where positions are not a bias.
    pub(crate) fn bias(self, both_ways: bool) -> Option<BiasKind> {
        match self {
            Self::RelativeBias {
                buckets,
                max_distance,
            } => Some(BiasKind::Relative(Buckets {
                buckets,
                max_distance,
                both_ways,
            })),
            Self::Alibi => Some(BiasKind::Alibi),
            _ => None,
        }
    }

    /// The base of rotary positions; `None` for other kinds.
    pub(crate) fn rotary_base(self) -> Option<f64> {
        match self {
            Self::Rotary { base } => Some(base),
            _ => None,
        }
    }

    /// The largest distance of relative positions; `None` for other kinds.
    pub(crate) fn max_distance(self) -> Option<usize> {
        match self {
            Self::Relative { max_distance } => Some(max_distance),
            _ => None,
        }
    }

    /// Whether a vector per position is added to the embeddings.
    pub(crate) fn are_added(self) -> bool {
        match self {
            Self::Sinusoidal | Self::SinesThenCosines { .. } | Self::Learned { .. } => true,
            Self::RelativeBias { .. }
            | Self::Alibi
            | Self::Rotary { .. }
            | Self::Relative { .. } => false,
        }
    }

    /// Checks that `d_model` suits the kind of positions.
    pub(crate) fn check(self, d_model: usize) -> Result<(), ConfigError> {
        match self {
            Self::Sinusoidal if !d_model.is_multiple_of(2) => {
                Err(ConfigError::OddWidth { d_model })
            }
            Self::SinesThenCosines { inclusive, .. } if inclusive && d_model < 4 => {
                Err(ConfigError::OneFrequency { d_model })
            }
            _ => Ok(()),
        }
    }
}

/// Sines and cosines of geometrically decreasing frequencies (§3.5):
///
/// `PE(pos, 2i) = sin(pos / 10000^(2i/d_model))`,
/// `PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))`.
///
/// The frequencies are computed in log space, in double precision.
///
/// # Shapes
/// - output: `[len, d_model]`, the positions from `first` on
///
/// ```
/// use burn_ndarray::NdArray;
/// use transformer_core::nn::sinusoidal_encoding;
///
/// // Position 1, d_model 4: sin 1, cos 1, sin 1/100, cos 1/100.
/// let encoding = sinusoidal_encoding::<NdArray>(1, 1, 4, &Default::default());
/// let expected = [0.841471, 0.540302, 0.0099998, 0.99995];
/// for (value, expected) in encoding.into_data().iter::<f64>().zip(expected) {
///     assert!((value - expected).abs() < 1e-6);
/// }
/// ```
pub fn sinusoidal_encoding<B: Backend>(
    first: usize,
    len: usize,
    d_model: usize,
    device: &B::Device,
) -> Tensor<B, 2> {
    let encoding = Positions::Sinusoidal.fixed(first, len, d_model, device);
    encoding.expect("sines are fixed")
}

/// A constant in the backend's float type.
pub(crate) fn tensor<B: Backend>(
    values: Vec<f32>,
    shape: [usize; 2],
    device: &B::Device,
) -> Tensor<B, 2> {
    let data = TensorData::new(values, shape).convert::<B::FloatElem>();
    Tensor::from_data(data, device)
}

/// A feature of fixed positions: the sine or cosine of the position times the frequency.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wave {
    function: fn(f64) -> f64,
    frequency: f64,
}

impl Wave {
    /// The frequency is `10000^(-i/n)`.
    fn new(function: fn(f64) -> f64, i: usize, n: f64) -> Self {
        let frequency = (-(i as f64) * 10_000_f64.ln() / n).exp();
        Self {
            function,
            frequency,
        }
    }

    /// The value at a position.
    pub fn at(self, position: usize) -> f64 {
        (self.function)(position as f64 * self.frequency)
    }
}

impl Positions {
    /// The features of these positions: `[d_model]`; `None` if positions are learned or not added.
    pub(crate) fn waves(self, d_model: usize) -> Option<Vec<Wave>> {
        match self {
            Self::Sinusoidal => {
                let wave = |feature: usize| match feature % 2 {
                    0 => Wave::new(f64::sin, feature, d_model as f64),
                    _ => Wave::new(f64::cos, feature - 1, d_model as f64),
                };
                Some((0..d_model).map(wave).collect())
            }
            Self::SinesThenCosines { inclusive, .. } => {
                let half = d_model / 2;
                let (sines, n) = match inclusive {
                    true => (half, half as f64 - 1.0),
                    false => (d_model - half, d_model as f64 / 2.0),
                };
                let sines = (0..sines).map(|i| Wave::new(f64::sin, i, n));
                let cosines = (0..half).map(|i| Wave::new(f64::cos, i, n));
                let mut waves: Vec<_> = sines.chain(cosines).collect();
                // The extra feature of an odd width, which is 0 everywhere.
                waves.resize(d_model, Wave::new(|_| 0.0, 0, n));
                Some(waves)
            }
            _ => None,
        }
    }

    /// The encodings of `len` tokens of a sequence, from token `first` on, counted from 0: `[len, d_model]`; `None` if
    /// positions are learned or not added.
    pub(crate) fn fixed_values(self, first: usize, len: usize, d_model: usize) -> Option<Vec<f32>> {
        let waves = self.waves(d_model)?;
        let first = first + self.first();
        // Sines take time: hundreds of positions are computed on all threads.
        let positions = (first..first + len).into_par_iter().with_min_len(64);
        let values = positions.flat_map_iter(|at| waves.iter().map(move |wave| wave.at(at) as f32));
        Some(values.collect())
    }

    /// [`fixed_values`](Self::fixed_values) as a tensor.
    fn fixed<B: Backend>(
        self,
        first: usize,
        len: usize,
        d_model: usize,
        device: &B::Device,
    ) -> Option<Tensor<B, 2>> {
        let values = self.fixed_values(first, len, d_model);
        values.map(|values| tensor(values, [len, d_model], device))
    }
}

/// The configuration of [`PositionalEncoding`].
#[derive(Config, Debug)]
pub struct PositionalEncodingConfig {
    /// Width of the embeddings.
    pub d_model: usize,
    /// Kind of positions; sinusoidal in the paper.
    #[config(default = "Positions::Sinusoidal")]
    pub positions: Positions,
}

impl PositionalEncodingConfig {
    /// A positional encoding; learned vectors are drawn from the backend's random number generator.
    ///
    /// # Panics
    /// When a size is zero, or `d_model` is too small for [`Positions::SinesThenCosines`].
    pub fn init<B: Backend>(&self, device: &B::Device) -> PositionalEncoding<B> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// A positional encoding; learned vectors are drawn from `init`.
    ///
    /// Learned vectors are `N(0, 1)`, with the variance of the embeddings that they are added to.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> PositionalEncoding<B> {
        let Self { d_model, positions } = *self;
        assert_sizes(&[("d_model", d_model)]);
        let learned = match positions {
            Positions::Sinusoidal
            | Positions::Rotary { .. }
            | Positions::Relative { .. }
            | Positions::RelativeBias { .. }
            | Positions::Alibi => None,
            Positions::SinesThenCosines { .. } => {
                if let Err(error) = positions.check(d_model) {
                    panic!("{error}");
                }
                None
            }
            Positions::Learned { max_len } => {
                assert_sizes(&[("max_len", max_len)]);
                Some(init.normal([max_len, d_model], 1.0, device))
            }
        };
        PositionalEncoding {
            learned,
            fixed: positions.fixed(0, TABLE_LEN, d_model, device),
            positions,
        }
    }
}

/// Adds to each token's embedding the encoding of its position (§3.5); the identity if positions are not added.
#[derive(Module, Debug)]
pub struct PositionalEncoding<B: Backend> {
    /// One learned vector per position, `[max_len, d_model]`; `None` where positions are not learned vectors.
    pub learned: Option<Param<Tensor<B, 2>>>,
    /// The sines and cosines of the first positions, `[TABLE_LEN, d_model]`: a constant, not a weight.
    fixed: Option<Tensor<B, 2>>,
    #[module(skip)]
    positions: Positions,
}

impl<B: Backend> PositionalEncoding<B> {
    /// Adds the encodings of the positions from `first` on.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - output: `[batch, len, d_model]`
    ///
    /// # Panics
    /// When positions are learned and there are fewer than `first + len`, or `x` is not `d_model` wide.
    pub fn forward(&self, x: Tensor<B, 3>, first: usize) -> Tensor<B, 3> {
        if !self.positions.are_added() {
            return x;
        }
        let [_, len, d_model] = x.dims();
        let end = first + len;
        let encoding = match (&self.learned, &self.fixed) {
            (Some(learned), _) => {
                let [max_len, _] = learned.dims();
                assert!(
                    end <= max_len,
                    "sequence length {end} exceeds the model's {max_len} learned positions"
                );
                learned.val().slice_dim(0, first..end)
            }
            (None, Some(table)) if end <= table.dims()[0] => table.clone().slice_dim(0, first..end),
            (None, _) => self
                .positions
                .fixed(first, len, d_model, &x.device())
                .expect("positions that are added and not learned are fixed"),
        };
        x + encoding.unsqueeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    fn init(positions: Positions) -> PositionalEncoding<NdArray> {
        let config = PositionalEncodingConfig::new(6).with_positions(positions);
        config.init_from(&mut WeightInit::new(0), &Default::default())
    }

    fn encoded(positions: &PositionalEncoding<NdArray>, first: usize, len: usize) -> Vec<f32> {
        let zeros = Tensor::zeros([1, len, 6], &Default::default());
        values(positions.forward(zeros, first))
    }

    fn values<const D: usize>(tensor: Tensor<NdArray, D>) -> Vec<f32> {
        tensor.into_data().iter().collect()
    }

    #[test]
    fn sines_and_cosines_are_the_paper_s() {
        let encoding = sinusoidal_encoding::<NdArray>(0, 5001, 6, &Default::default());
        let found = values(encoding);
        for position in [0, 1, 2, 511, 5000] {
            for pair in 0..3 {
                let angle = f64::from(position) / 10_000_f64.powf(2.0 * f64::from(pair) / 6.0);
                let at = (position * 6 + 2 * pair) as usize;
                assert!((f64::from(found[at]) - angle.sin()).abs() < 1e-6);
                assert!((f64::from(found[at + 1]) - angle.cos()).abs() < 1e-6);
            }
        }
    }

    const MARIAN: Positions = Positions::SinesThenCosines {
        inclusive: false,
        first: 0,
    };
    const M2M100: Positions = Positions::SinesThenCosines {
        inclusive: true,
        first: 2,
    };

    #[test]
    fn positions_after_the_table_continue_it() {
        for kind in [Positions::Sinusoidal, MARIAN, M2M100] {
            let positions = init(kind);
            for (first, len) in [
                (0, 3),
                (TABLE_LEN - 3, 3),
                (TABLE_LEN - 3, 4),
                (TABLE_LEN, 1),
                (900, 2),
            ] {
                let expected = kind.fixed::<NdArray>(first, len, 6, &Default::default());
                let expected = values(expected.unwrap());
                assert_eq!(encoded(&positions, first, len), expected);
            }
        }
    }

    #[test]
    fn sines_come_before_cosines() {
        for (kind, n, shift) in [(MARIAN, 3.0, 0), (M2M100, 2.0, 2)] {
            let positions = init(kind);
            for first in [0_u16, 1, 5, 300, 5000] {
                let found = encoded(&positions, usize::from(first), 1);
                for i in 0..3 {
                    let frequency = 10_000_f64.powf(-(i as f64) / n);
                    let angle = f64::from(first + shift) * frequency;
                    assert!((f64::from(found[i]) - angle.sin()).abs() < 1e-6);
                    assert!((f64::from(found[3 + i]) - angle.cos()).abs() < 1e-6);
                }
            }
        }
    }

    /// The vectors of the eighth token, for width 6, from `MarianSinusoidalPositionalEmbedding` and
    /// `M2M100SinusoidalPositionalEmbedding` of Hugging Face's transformers 5.23.
    #[test]
    fn sines_then_cosines_are_hugging_face_s() {
        let marian = [
            0.656_986_6,
            0.319_224_7,
            0.015_080_5,
            0.753_902_3,
            0.947_679_0,
            0.999_886_3,
        ];
        let m2m100 = [
            0.412_118_49,
            0.089_878_544,
            0.000_899_999_81,
            -0.911_130_25,
            0.995_952_73,
            0.999_999_58,
        ];
        for (kind, expected) in [(MARIAN, marian), (M2M100, m2m100)] {
            let found = encoded(&init(kind), 7, 1);
            for (found, expected) in found.into_iter().zip(expected) {
                let found = f64::from(found);
                assert!((found - expected).abs() < 2e-7, "{found}, not {expected}");
            }
        }
    }

    /// From the same classes, for width 7.
    #[test]
    fn odd_widths_are_hugging_face_s() {
        let marian = [
            0.656_986_594,
            0.482_739_329,
            0.036_248_378_5,
            0.002_609_312_53,
            0.753_902_256,
            0.875_764_072,
            0.999_342_799,
        ];
        let m2m100 = [
            0.412_118_495,
            0.089_878_544_2,
            0.000_899_999_81,
            -0.911_130_25,
            0.995_952_725,
            0.999_999_583,
            0.0,
        ];
        for (kind, expected) in [(MARIAN, marian), (M2M100, m2m100)] {
            let found = kind.fixed_values(7, 1, 7).unwrap();
            for (found, expected) in found.into_iter().zip(expected) {
                let found = f64::from(found);
                assert!((found - expected).abs() < 2e-7, "{found}, not {expected}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "`d_model` 2 has a single frequency")]
    fn inclusive_frequencies_are_two_at_least() {
        let config = PositionalEncodingConfig::new(2).with_positions(M2M100);
        config.init::<NdArray>(&Default::default());
    }

    #[test]
    fn learned_positions_are_rows_of_their_table() {
        let positions = init(Positions::Learned { max_len: 5 });
        let table = values(positions.learned.as_ref().unwrap().val());
        assert_eq!(encoded(&positions, 0, 5), table);
        assert_eq!(encoded(&positions, 2, 3), table[12..]);
    }

    #[test]
    #[should_panic(expected = "sequence length 6 exceeds the model's 5 learned positions")]
    fn learned_positions_end() {
        let positions = init(Positions::Learned { max_len: 5 });
        encoded(&positions, 4, 2);
    }
}
