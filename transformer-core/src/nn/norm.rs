//! Layer normalisation (§3.1; Ba et al., 2016).

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use crate::nn::error::{ConfigError, assert_sizes, check_sizes};
use crate::nn::parameters::Parameter;
use transformer_kernels as ops;

/// How a norm measures the spread of a position's features; [`Norm`] has the formulas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// By the root of the sum of variance and ε, as usual.
    Variance,
    /// By the sum of the unbiased standard deviation and ε, as in The Annotated Transformer.
    UnbiasedDeviation,
}

/// The configuration of [`Norm`].
#[derive(Config, Debug, PartialEq)]
pub struct NormConfig {
    /// Features of a position.
    pub d_model: usize,
    /// ε of the formula.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Its formula.
    #[config(default = "NormKind::Variance")]
    pub kind: NormKind,
}

impl NormConfig {
    /// Checks that the configuration describes a norm.
    ///
    /// # Errors
    /// The first contradiction found, with its values.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_sizes(&[("d_model", self.d_model)])?;
        let value = self.epsilon;
        match value > 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(ConfigError::Epsilon { value }),
        }
    }

    /// The parameters of a [`Norm`].
    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let names = ["gamma", "beta"];
        names
            .map(|name| (name.to_owned(), vec![self.d_model]))
            .to_vec()
    }

    /// A new one: scale 1, shift 0.
    ///
    /// # Panics
    /// When `d_model` is zero.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Norm<B> {
        assert_sizes(&[("d_model", self.d_model)]);
        Norm {
            gamma: Param::from_tensor(Tensor::ones([self.d_model], device)),
            beta: Param::from_tensor(Tensor::zeros([self.d_model], device)),
            epsilon: self.epsilon,
            kind: self.kind,
        }
    }
}

/// Brings every position to mean 0 and deviation 1, then scales and shifts it (§3.1; Ba et al., 2016).
///
/// Over the `d` features of a position `x`, with their mean `m`:
///
/// | [`NormKind`] | output |
/// |---|---|
/// | `Variance` | `γ (x - m) / √(v + ε) + β`, where `v = Σ (x - m)² / d` |
/// | `UnbiasedDeviation` | `γ (x - m) / (s + ε) + β`, where `s² = Σ (x - m)² / (d - 1)` |
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::Tensor;
/// use transformer_core::{NormConfig, NormKind};
///
/// // Four features -3, -1, 1, 3: m = 0, Σ (x - m)² = 20, so v = 5 and s² = 20/3.
/// let device = Default::default();
/// let x = Tensor::<NdArray, 1>::from_data([-3.0, -1.0, 1.0, 3.0], &device);
/// let config = NormConfig::new(4);
/// let last = |config: &NormConfig| {
///     let norm = config.init(&device);
///     norm.forward(x.clone()).into_data().iter::<f32>().last().unwrap()
/// };
/// assert!((last(&config) - 3.0 / 5.0_f32.sqrt()).abs() < 1e-5);
///
/// let unbiased = config.with_kind(NormKind::UnbiasedDeviation);
/// assert!((last(&unbiased) - 3.0 / (20.0_f32 / 3.0).sqrt()).abs() < 1e-4);
/// ```
#[derive(Module, Debug)]
pub struct Norm<B: Backend> {
    /// Scale, `[d_model]`.
    pub gamma: Param<Tensor<B, 1>>,
    /// Shift, `[d_model]`.
    pub beta: Param<Tensor<B, 1>>,
    epsilon: f64,
    #[module(skip)]
    kind: NormKind,
}

/// Its root is negligible beside any ε, and both the root and its derivative are finite in single
/// precision.
const SMALLEST_VARIANCE: f64 = 1e-36;

impl<B: Backend> Norm<B> {
    /// Normalises the last dimension.
    ///
    /// # Shapes
    /// - x: `[.., d_model]`
    /// - output: `[.., d_model]`
    ///
    /// # Panics
    /// When `x` is not `d_model` wide.
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        match self.kind {
            NormKind::Variance => {
                ops::layer_norm(x, self.gamma.val(), self.beta.val(), self.epsilon)
            }
            NormKind::UnbiasedDeviation => self.by_unbiased_deviation(x),
        }
    }

    fn by_unbiased_deviation<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let [d_model] = self.gamma.dims();
        let centred = x.clone() - x.mean_dim(D - 1);
        let squares = centred.clone().powi_scalar(2).sum_dim(D - 1);
        // If all features are equal, the derivative of the root, and so of the norm, would be infinite.
        let deviation = (squares / (d_model - 1) as f64)
            .clamp_min(SMALLEST_VARIANCE)
            .sqrt();
        let normed = centred / (deviation + self.epsilon);
        normed * self.gamma.val().unsqueeze() + self.beta.val().unsqueeze()
    }
}
