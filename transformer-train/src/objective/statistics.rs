//! Sums over tokens, from which means are computed.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::train::ItemLazy;
use burn::train::metric::{Adaptor, LossInput};
use serde::{Deserialize, Deserializer, Serialize};

use crate::objective::loss::LossSums;

/// JSON has no NaN: it is `null`.
pub(crate) fn null_is_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

/// A value that JSON can represent, so that a resumed run has the same one.
pub(crate) fn finite_or_nan(value: f64) -> f64 {
    if value.is_finite() { value } else { f64::NAN }
}

/// Sums over the tokens of one or more batches.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Statistics {
    /// The label-smoothed loss, in nats.
    pub loss: f64,
    /// The negative log-likelihood of the labels, in nats.
    #[serde(deserialize_with = "null_is_nan")]
    pub nll: f64,
    /// Labels that the model predicted.
    #[serde(deserialize_with = "null_is_nan")]
    pub correct: f64,
    /// Non-padding tokens, or the weight of a loss that is not per token.
    pub tokens: f64,
}

impl Statistics {
    /// Label-smoothed loss per token, in nats.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.tokens
    }

    /// Negative log-likelihood per token, in nats.
    pub fn mean_nll(&self) -> f64 {
        self.nll / self.tokens
    }

    /// `exp` of the negative log-likelihood per token.
    pub fn perplexity(&self) -> f64 {
        self.mean_nll().exp()
    }

    /// Fraction of labels that the model predicted, in percent.
    pub fn accuracy(&self) -> f64 {
        100.0 * self.correct / self.tokens
    }

    /// Adds the sums of further tokens.
    pub fn add(&mut self, other: &Self) {
        self.loss += other.loss;
        self.nll += other.nll;
        self.correct += other.correct;
        self.tokens += other.tokens;
    }
}

impl From<[f64; 4]> for Statistics {
    /// From loss, negative log-likelihood, correct labels and tokens.
    fn from([loss, nll, correct, tokens]: [f64; 4]) -> Self {
        Self {
            loss,
            nll,
            correct,
            tokens,
        }
    }
}

/// [`LossSums`] on the device, in one tensor, so that they are read back together.
#[derive(Debug, Clone)]
pub struct DeviceStatistics<B: Backend>(Tensor<B, 1>);

impl<B: Backend> DeviceStatistics<B> {
    /// Packs sums into one tensor.
    pub(crate) fn new(sums: LossSums<B>) -> Self {
        Self(Tensor::cat(
            vec![sums.loss, sums.nll, sums.correct, sums.weight],
            0,
        ))
    }

    /// Adds the sums of earlier batches, if any.
    pub(crate) fn added_to(self, before: Option<Self>) -> Self {
        match before {
            Some(Self(before)) => {
                let device = before.device();
                Self(before + self.0.to_device(&device))
            }
            None => self,
        }
    }
}

impl<B: Backend> ItemLazy for DeviceStatistics<B> {
    type ItemSync = Statistics;

    fn sync(self) -> Statistics {
        read::<B, 4>(self.0).into()
    }
}

/// The first values of a tensor; NaN for missing ones.
fn read<B: Backend, const N: usize>(tensor: Tensor<B, 1>) -> [f64; N] {
    let numbers = tensor.into_data().convert::<f64>().into_vec::<f64>();
    let numbers = numbers.unwrap_or_default();
    std::array::from_fn(|index| numbers.get(index).copied().unwrap_or(f64::NAN))
}

/// For Burn's [`LossMetric`](burn::train::metric::LossMetric): the mean loss, repeated once per token, so that the
/// metric averages over the tokens of an epoch.
impl<B: Backend> Adaptor<LossInput<B>> for Statistics {
    fn adapt(&self) -> LossInput<B> {
        let tokens = (self.tokens as usize).max(1);
        let device = B::Device::default();
        LossInput::new(Tensor::full([tokens], self.mean_loss(), &device))
    }
}

/// The result of an update.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct UpdateItem {
    /// Sums over the update's tokens.
    pub statistics: Statistics,
    /// The Euclidean norm of all gradients, before clipping.
    pub gradient_norm: f64,
}

impl UpdateItem {
    /// Reads back sums and norm together, synchronizing with the device once.
    pub(crate) fn read<B: Backend>(sums: DeviceStatistics<B>, gradient_norm: Tensor<B, 1>) -> Self {
        let numbers = Tensor::cat(vec![sums.0, gradient_norm], 0);
        let [sums @ .., gradient_norm] = read::<B, 5>(numbers);
        Self {
            statistics: Statistics::from(sums),
            gradient_norm,
        }
    }

    /// Whether loss and gradients are finite; if not, the update is skipped.
    pub fn is_finite(&self) -> bool {
        self.statistics.loss.is_finite() && self.gradient_norm.is_finite()
    }
}

impl ItemLazy for UpdateItem {
    type ItemSync = Self;

    fn sync(self) -> Self {
        self
    }
}

/// The same as for its [`Statistics`].
impl<B: Backend> Adaptor<LossInput<B>> for UpdateItem {
    fn adapt(&self) -> LossInput<B> {
        self.statistics.adapt()
    }
}
