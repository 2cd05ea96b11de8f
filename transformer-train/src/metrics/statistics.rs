//! Sums over tokens, from which all means are computed.

use std::sync::Arc;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::train::ItemLazy;
use burn::train::metric::Adaptor;
use serde::{Deserialize, Serialize};

use crate::loss::TokenSums;

/// Sums over the tokens of one or more batches.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Statistics {
    /// The label-smoothed loss, in nats.
    pub loss: f64,
    /// The negative log-likelihood of the labels, in nats.
    pub nll: f64,
    /// Labels that were the model's first choice.
    pub correct: f64,
    /// Real tokens.
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

    /// Share of the labels that were the model's first choice, in percent.
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

/// [`TokenSums`] on the device, in one tensor, so that they are read back at once.
#[derive(Debug, Clone)]
pub struct DeviceStatistics<B: Backend>(Tensor<B, 1>);

impl<B: Backend> DeviceStatistics<B> {
    /// Puts sums together.
    pub(crate) fn new(sums: TokenSums<B>) -> Self {
        Self(Tensor::cat(
            vec![sums.loss, sums.nll, sums.correct, sums.tokens],
            0,
        ))
    }

    /// Adds the sums of further batches.
    pub(crate) fn add(self, other: Self) -> Self {
        let device = self.0.device();
        Self(self.0 + other.0.to_device(&device))
    }
}

impl<B: Backend> ItemLazy for DeviceStatistics<B> {
    type ItemSync = Statistics;

    fn sync(self) -> Statistics {
        let mut sums = self
            .0
            .into_data()
            .convert::<f64>()
            .into_vec::<f64>()
            .into_iter()
            .flatten();
        let mut next = || sums.next().unwrap_or(f64::NAN);
        Statistics {
            loss: next(),
            nll: next(),
            correct: next(),
            tokens: next(),
        }
    }
}

impl Adaptor<Statistics> for Statistics {
    fn adapt(&self) -> Statistics {
        *self
    }
}

/// A batch of the validation, as passed to the displays.
#[derive(Debug, Clone)]
pub struct ValidationItem<S> {
    /// The batch's own sums.
    pub statistics: S,
    /// Numbers of the whole validation, with its last batch only.
    pub(crate) numbers: Numbers,
}

/// A number for each name of [`Trainer::on_validation`](crate::Trainer::on_validation), or no numbers.
#[derive(Debug, Clone, Default)]
pub struct Numbers(pub(crate) Arc<[f64]>);

impl Numbers {
    /// The numbers, in the order of their names; empty if there are none.
    pub fn values(&self) -> &[f64] {
        &self.0
    }
}

impl<S> ValidationItem<S> {
    pub(crate) fn new(statistics: S) -> Self {
        let numbers = Numbers::default();
        Self {
            statistics,
            numbers,
        }
    }
}

impl<B: Backend> ItemLazy for ValidationItem<DeviceStatistics<B>> {
    type ItemSync = ValidationItem<Statistics>;

    fn sync(self) -> ValidationItem<Statistics> {
        ValidationItem {
            statistics: self.statistics.sync(),
            numbers: self.numbers,
        }
    }
}

impl Adaptor<Statistics> for ValidationItem<Statistics> {
    fn adapt(&self) -> Statistics {
        self.statistics
    }
}

impl Adaptor<Numbers> for ValidationItem<Statistics> {
    fn adapt(&self) -> Numbers {
        self.numbers.clone()
    }
}
