//! Layer normalization (§3.1; Ba et al., 2016), and root mean square normalization (Zhang and Sennrich, 2019).

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use serde::{Deserialize, Serialize};

use crate::nn::error::{ConfigError, assert_sizes, check_sizes};
use crate::nn::parameters::Parameter;
use transformer_kernels as ops;

/// The kind of normalization; [`Norm`] has the formulas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// Layer normalization, which divides by `√(variance + ε)`, as usual.
    Variance,
    /// Layer normalization, which divides by the unbiased standard deviation plus ε, as in The Annotated Transformer.
    UnbiasedDeviation,
    /// RMSNorm, which divides by `√(mean square + ε)`, without mean and shift (Zhang and Sennrich, 2019).
    RootMeanSquare,
}

impl NormKind {
    /// Whether the norm has a shift, β.
    pub(crate) fn has_shift(self) -> bool {
        match self {
            Self::Variance | Self::UnbiasedDeviation => true,
            Self::RootMeanSquare => false,
        }
    }
}

/// The configuration of [`Norm`].
#[derive(Config, Debug, PartialEq)]
pub struct NormConfig {
    /// Features per position.
    pub d_model: usize,
    /// ε in the formula.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// The formula.
    #[config(default = "NormKind::Variance")]
    pub kind: NormKind,
}

impl NormConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The first invalid value or contradiction.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_sizes(&[("d_model", self.d_model)])?;
        let value = self.epsilon;
        // It is added to values in single precision.
        match value as f32 > 0.0 && (value as f32).is_finite() {
            true => Ok(()),
            false => Err(ConfigError::Epsilon { value }),
        }
    }

    /// The parameters of a [`Norm`].
    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let beta = self.kind.has_shift().then_some("beta");
        let names = ["gamma"].into_iter().chain(beta);
        names
            .map(|name| (name.to_owned(), vec![self.d_model]))
            .collect()
    }

    /// A norm with scale 1 and, if it has one, shift 0.
    ///
    /// # Panics
    /// When `d_model` is zero.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Norm<B> {
        assert_sizes(&[("d_model", self.d_model)]);
        let beta = || Param::from_tensor(Tensor::zeros([self.d_model], device));
        Norm {
            gamma: Param::from_tensor(Tensor::ones([self.d_model], device)),
            beta: self.kind.has_shift().then(beta),
            epsilon: self.epsilon,
            kind: self.kind,
        }
    }
}

/// Normalizes each position to zero mean and unit variance, then scales and shifts it (layer normalization; §3.1; Ba et
/// al., 2016); or to root mean square 1, then scales it (RMSNorm; Zhang and Sennrich, 2019, equation 4).
///
/// For the `d` features of a position `x` with mean `m`:
///
/// | [`NormKind`] | output |
/// |---|---|
/// | `Variance` | `γ (x - m) / √(v + ε) + β`, where `v = Σ (x - m)² / d` |
/// | `UnbiasedDeviation` | `γ (x - m) / (s + ε) + β`, where `s² = Σ (x - m)² / (d - 1)` |
/// | `RootMeanSquare` | `γ x / √(q + ε)`, where `q = Σ x² / d`; ε as in Llama, not in the paper |
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::Tensor;
/// use transformer_core::nn::{NormConfig, NormKind};
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
/// let unbiased = config.clone().with_kind(NormKind::UnbiasedDeviation);
/// assert!((last(&unbiased) - 3.0 / (20.0_f32 / 3.0).sqrt()).abs() < 1e-4);
///
/// // -2, 0, 2, 4: the mean square is (4 + 0 + 4 + 16) / 4 = 6, whatever the mean.
/// let rms = config.with_kind(NormKind::RootMeanSquare).init(&device);
/// let y: Vec<f32> = rms.forward(x + 1.0).into_data().into_vec().unwrap();
/// assert!((y[3] - 4.0 / 6.0_f32.sqrt()).abs() < 1e-5);
/// ```
#[derive(Module, Debug)]
pub struct Norm<B: Backend> {
    /// Scale, `[d_model]`.
    pub gamma: Param<Tensor<B, 1>>,
    /// Shift, `[d_model]`; `None` without a shift.
    pub beta: Option<Param<Tensor<B, 1>>>,
    epsilon: f64,
    #[module(skip)]
    kind: NormKind,
}

/// A lower bound: its root is negligible beside any ε, and both the root and its derivative are finite in single
/// precision.
const SMALLEST_VARIANCE: f64 = 1e-36;

impl<B: Backend> Norm<B> {
    /// Normalizes the last dimension. For a 16-bit `x`, it computes in f32, because squares overflow in f16.
    ///
    /// # Shapes
    /// - x: `[.., d_model]`
    /// - output: `[.., d_model]`
    ///
    /// # Panics
    /// When `x` is not `d_model` wide.
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        match x.dtype() {
            half @ (DType::F16 | DType::BF16) => self.normalized(x.cast(DType::F32)).cast(half),
            _ => self.normalized(x),
        }
    }

    /// Computes in the type of `x`.
    fn normalized<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let gamma = self.gamma.val().cast(x.dtype());
        let beta = || match &self.beta {
            Some(beta) => beta.val().cast(x.dtype()),
            None => gamma.zeros_like(),
        };
        match self.kind {
            NormKind::Variance => {
                let beta = beta();
                ops::layer_norm(x, gamma, beta, self.epsilon)
            }
            NormKind::UnbiasedDeviation => {
                let shift = beta().unsqueeze();
                self.by_unbiased_deviation(x) * gamma.unsqueeze() + shift
            }
            NormKind::RootMeanSquare => {
                let squares = x.clone().powi_scalar(2).mean_dim(D - 1);
                x / (squares + self.epsilon).sqrt() * gamma.unsqueeze()
            }
        }
    }

    fn by_unbiased_deviation<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let [d_model] = self.gamma.dims();
        let centred = x.clone() - x.mean_dim(D - 1);
        let squares = centred.clone().powi_scalar(2).sum_dim(D - 1);
        // Without the bound, the derivative of the norm would be infinite where all features are equal.
        let deviation = (squares / (d_model - 1).max(1) as f64)
            .clamp_min(SMALLEST_VARIANCE)
            .sqrt();
        centred / (deviation + self.epsilon)
    }
}
