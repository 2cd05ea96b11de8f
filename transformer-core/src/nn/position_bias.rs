//! Positions as a bias on the scores of self-attention, which depends on the distance between query and key.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Element, Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use transformer_kernels as ops;

use crate::nn::error::{ConfigError, check_sizes};
use crate::nn::init::WeightInit;
use crate::nn::parameters::Parameter;

/// The rule that maps distances to biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BiasKind {
    /// A learned bias per distance bucket and head: the relative position embeddings of Raffel et al., 2020,
    /// ["Exploring the Limits of Transfer Learning"](https://arxiv.org/abs/1910.10683), section 2.1.
    Relative(Buckets),
    /// `-m |i - j|` for query i and key j, with a slope m per head: the attention with linear biases of Press et al.,
    /// 2022, ["Train Short, Test Long"](https://arxiv.org/abs/2108.12409), defined there for causal attention. In an
    /// encoder, keys on both sides of a query have the bias.
    Alibi,
}

/// The slopes of ALiBi: the powers 1 to n of `2^(-8/n)` for n heads, if n is a power of two. Otherwise the slopes of
/// the next lower power of two, followed by every second slope of the next higher one, as in the authors' code.
pub(crate) fn slopes(n_heads: usize) -> Vec<f32> {
    let powers = |n: usize, power: usize| 2_f64.powf(-8.0 * power as f64 / n as f64) as f32;
    // The logarithm of 0 is undefined.
    let before = 1 << n_heads.max(1).ilog2();
    let own = (1..=before).map(|power| powers(before, power));
    let between = (1..).step_by(2).map(|power| powers(2 * before, power));
    own.chain(between).take(n_heads).collect()
}

/// Buckets of distances between a query and a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buckets {
    /// Number of buckets.
    pub buckets: usize,
    /// From this distance on, all keys share one bucket.
    pub max_distance: usize,
    /// Whether keys after the query have half of the buckets to themselves, as in an encoder. Otherwise all buckets are
    /// for keys before the query, and later keys are in the bucket of distance 0.
    pub both_ways: bool,
}

impl Buckets {
    fn validate(&self) -> Result<(), ConfigError> {
        let Self {
            buckets,
            max_distance,
            ..
        } = *self;
        check_sizes(&[("buckets", buckets), ("max_distance", max_distance)])?;
        match buckets < 4 || max_distance <= buckets / 2 {
            true => Err(ConfigError::Buckets {
                buckets,
                max_distance,
            }),
            false => Ok(()),
        }
    }

    /// The bucket of a key at this distance: its position minus the query's.
    ///
    /// Of the n buckets of a side, half hold a single distance each. The others widen with the distance d:
    /// `n/2 + ⌊ln(d / (n/2)) / ln(max_distance / (n/2)) · n/2⌋`, and the last one is unbounded. It is computed in
    /// single precision, as in T5, so that the bounds are those of its trained biases.
    pub(crate) fn of(&self, distance: i64) -> usize {
        let (first, buckets, distance) = match self.both_ways {
            true if distance > 0 => (self.buckets / 2, self.buckets / 2, distance),
            true => (0, self.buckets / 2, distance),
            false => (0, self.buckets, distance.min(0)),
        };
        let (distance, exact) = (distance.unsigned_abs() as usize, buckets / 2);
        if distance < exact {
            return first + distance;
        }
        let most = (self.max_distance as f64 / exact as f64).ln() as f32;
        let share = (distance as f32 / exact as f32).ln() / most;
        let bucket = exact + (share * (buckets - exact) as f32) as usize;
        first + bucket.min(buckets - 1)
    }
}

/// The configuration of [`PositionBias`].
#[derive(Config, Debug, PartialEq)]
pub struct PositionBiasConfig {
    /// The rule.
    pub kind: BiasKind,
    /// Attention heads.
    pub n_heads: usize,
    /// Width of the layers, which sets the variance of initial learned biases.
    pub d_model: usize,
}

impl PositionBiasConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// When a size is zero or above 2²⁴, there are fewer than 4 buckets, or `max_distance` is not above half their
    /// number.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_sizes(&[("n_heads", self.n_heads), ("d_model", self.d_model)])?;
        match self.kind {
            BiasKind::Relative(buckets) => buckets.validate(),
            BiasKind::Alibi => Ok(()),
        }
    }

    /// A bias with values drawn from the backend's random number generator.
    ///
    /// # Panics
    /// When the configuration is not [valid](Self::validate).
    pub fn init<B: Backend>(&self, device: &B::Device) -> PositionBias<B> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// A bias with values from `init`; learned biases are `N(0, 1/d_model)`, as in T5.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> PositionBias<B> {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
        let std = (self.d_model as f64).powf(-0.5);
        PositionBias {
            learned: self.table().map(|shape| init.normal(shape, std, device)),
            kind: self.kind,
            n_heads: self.n_heads,
        }
    }

    /// The parameters of a [`PositionBias`].
    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let table = self.table().into_iter();
        table
            .map(|shape| ("learned".to_owned(), shape.to_vec()))
            .collect()
    }

    /// The shape of the learned biases.
    fn table(&self) -> Option<[usize; 2]> {
        match self.kind {
            BiasKind::Relative(buckets) => Some([buckets.buckets, self.n_heads]),
            BiasKind::Alibi => None,
        }
    }
}

/// A bias per head, added to the scores of self-attention in every layer of a stack.
///
/// The bias depends only on the distance between query and key, so there is no maximum length. See [`BiasKind`] for the
/// rules.
///
/// ```
/// use burn_ndarray::NdArray;
/// use transformer_core::nn::{BiasKind, Buckets, PositionBiasConfig};
///
/// # fn main() -> Result<(), transformer_core::nn::ConfigError> {
/// let buckets = Buckets { buckets: 32, max_distance: 128, both_ways: true };
/// let config = PositionBiasConfig::new(BiasKind::Relative(buckets), 8, 512);
/// config.validate()?;
///
/// // The last two of five positions attend to all five.
/// let device = Default::default();
/// let bias = config.init::<NdArray>(&device).forward(2, 5, &device);
/// assert_eq!(bias.dims(), [1, 8, 2, 5]);
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct PositionBias<B: Backend> {
    /// The learned biases, `[buckets, n_heads]`; `None` for ALiBi, whose slopes are fixed.
    pub learned: Option<Param<Tensor<B, 2>>>,
    n_heads: usize,
    #[module(skip)]
    kind: BiasKind,
}

impl<B: Backend> PositionBias<B> {
    /// The biases for queries at the last `query_len` of `key_len` positions, and keys at all of them.
    ///
    /// # Shapes
    /// - output: `[1, n_heads, query_len, key_len]`
    ///
    /// # Panics
    /// When there are more queries than keys, or the kind is [`Relative`](BiasKind::Relative) and `learned` is `None`.
    pub fn forward(&self, query_len: usize, key_len: usize, device: &B::Device) -> Tensor<B, 4> {
        let shape = [query_len, key_len];
        match self.kind {
            BiasKind::Relative(buckets) => {
                let learned = self.learned.as_ref().expect("relative biases are learned");
                let buckets = by_distance(shape, |distance| buckets.of(distance) as i32);
                let buckets = Tensor::<B, 2, Int>::from_data(buckets, device);
                let bias = ops::embedding(learned.val(), buckets, 1.0);
                bias.permute([2, 0, 1]).unsqueeze()
            }
            BiasKind::Alibi => {
                let distances = by_distance(shape, |distance| -distance.abs() as f32);
                let slopes = TensorData::new(slopes(self.n_heads), [self.n_heads, 1, 1]);
                let floats = |data: TensorData| data.convert::<B::FloatElem>();
                let distances = Tensor::<B, 2>::from_data(floats(distances), device);
                let slopes = Tensor::<B, 3>::from_data(floats(slopes), device);
                (slopes * distances.unsqueeze()).unsqueeze()
            }
        }
    }
}

/// Maps the distances between each of the last `query_len` of `key_len` positions and all positions.
fn by_distance<E: Element>(
    [query_len, key_len]: [usize; 2],
    number: impl Fn(i64) -> E,
) -> TensorData {
    assert!(
        query_len <= key_len,
        "{query_len} queries exceed {key_len} keys"
    );
    // All distances, in increasing order.
    let last = key_len as i64 - 1;
    let numbers: Vec<E> = (-last..=last).map(number).collect();
    let queries = key_len - query_len..key_len;
    let rows = queries.map(|query| &numbers[key_len - 1 - query..][..key_len]);
    TensorData::new(rows.collect::<Vec<_>>().concat(), [query_len, key_len])
}
