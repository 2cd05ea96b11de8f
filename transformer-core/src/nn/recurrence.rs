//! A recurrence in place of self-attention.

use burn::config::Config;
use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::activation::{relu, sigmoid};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Tensor};
use transformer_kernels::ProductPrecision;

use crate::nn::error::assert_sizes;
use crate::nn::init::WeightInit;
use crate::nn::linear::linear;
use crate::nn::parameters::{Parameter, linear_parameters, within};

/// The configuration of [`Recurrence`].
#[derive(Config, Debug, PartialEq)]
pub struct RecurrenceConfig {
    /// Width of input, state and output.
    pub d_model: usize,
}

impl RecurrenceConfig {
    /// A recurrence with weights drawn from the backend's random number generator.
    ///
    /// # Panics
    /// When `d_model` is zero.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Recurrence<B> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// A recurrence with weights from `init`.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> Recurrence<B> {
        let d_model = self.d_model;
        assert_sizes(&[("d_model", d_model)]);
        Recurrence {
            input: init.linear(d_model, d_model, false, device),
            forget: init.linear(d_model, d_model, true, device),
            precision: ProductPrecision::F32,
        }
    }

    /// The parameters of a [`Recurrence`].
    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let linear = |bias| linear_parameters(self.d_model, self.d_model, bias);
        let mut parameters = within("input", linear(false));
        parameters.extend(within("forget", linear(true)));
        parameters
    }
}

/// The simpler simple recurrent unit (SSRU) of Kim et al., 2019, ["From Research to Production and
/// Back"](https://aclanthology.org/D19-5632), as in Marian's decoders:
///
/// `f_t = σ(x_t W_f + b_f)`, `c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ x_t W`, `y_t = max(0, c_t)`, with `c_0 = 0`.
///
/// The state is one vector, whatever the length of the sequence. Padding leaves it unchanged.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_ndarray::NdArray;
/// use transformer_core::nn::RecurrenceConfig;
///
/// let device = Default::default();
/// let recurrence = RecurrenceConfig::new(32).init::<NdArray>(&device);
///
/// // Five positions at once, then one more.
/// let mut state = None;
/// let y = recurrence.forward(Tensor::zeros([2, 5, 32], &device), None, Some(&mut state));
/// assert_eq!(y.dims(), [2, 5, 32]);
/// let y = recurrence.forward(Tensor::zeros([2, 1, 32], &device), None, Some(&mut state));
/// assert_eq!(y.dims(), [2, 1, 32]);
/// assert_eq!(state.unwrap().dims(), [2, 32]);
/// ```
#[derive(Module, Debug)]
pub struct Recurrence<B: Backend> {
    /// `W`: `[d_model, d_model]`, without a bias.
    pub input: Linear<B>,
    /// `W_f` and `b_f`: `[d_model, d_model]`.
    pub forget: Linear<B>,
    /// The precision of matrix multiplications in training.
    #[module(skip)]
    pub(crate) precision: ProductPrecision,
}

impl<B: Backend> Recurrence<B> {
    /// Reads whole sequences or, with a state, the positions that follow. The state is then updated to the last
    /// position.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - padding: `[batch or 1, len]`, `true` = blocked
    /// - state: `c` after the positions read so far, `[batch, d_model]`, or `Some(&mut None)` before the first; `None`
    ///   to keep no state
    /// - output: `[batch, len, d_model]`
    ///
    /// # Panics
    /// When the shapes do not agree, or a state is given and `len` is zero.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        padding: Option<Tensor<B, 2, Bool>>,
        state: Option<&mut Option<Tensor<B, 2>>>,
    ) -> Tensor<B, 3> {
        let [_, len, _] = x.dims();
        let mut forget = sigmoid(linear(&self.forget, x.clone(), self.precision));
        let mut kept = linear(&self.input, x, self.precision) * (-forget.clone() + 1.0);
        if let Some(padding) = padding {
            let padding: Tensor<B, 3, Bool> = padding.unsqueeze_dim(2);
            forget = forget.mask_fill(padding.clone(), 1.0);
            kept = kept.mask_fill(padding, 0.0);
        }
        let before = state.as_deref().and_then(Clone::clone);
        let sums = match before {
            None => sums(forget, kept),
            Some(before) => {
                // The first position adds the part of the state that it keeps.
                let first = forget.clone().slice_dim(1, 0..1) * before.unsqueeze_dim(1);
                let first = first + kept.clone().slice_dim(1, 0..1);
                let kept = match len {
                    1 => first,
                    _ => Tensor::cat(vec![first, kept.slice_dim(1, 1..len)], 1),
                };
                sums(forget, kept)
            }
        };
        if let Some(state) = state {
            *state = Some(sums.clone().slice_dim(1, len - 1..len).squeeze_dim(1));
        }
        relu(sums)
    }
}

/// `c_t = f_t c_{t-1} + k_t` at all positions, from `c_0 = 0`, by a parallel scan: the number of operations grows with
/// the logarithm of the length (Hillis and Steele, 1986).
///
/// # Shapes
/// - forget, kept and output: `[batch, len, d_model]`
fn sums<B: Backend>(mut forget: Tensor<B, 3>, mut kept: Tensor<B, 3>) -> Tensor<B, 3> {
    let [batch, len, width] = kept.dims();
    let mut summed = 1;
    while summed < len {
        // Shifts `x` by `summed` positions.
        let before = |x: &Tensor<B, 3>| {
            let first = Tensor::zeros([batch, summed, width], &x.device());
            Tensor::cat(vec![first, x.clone().slice_dim(1, 0..len - summed)], 1)
        };
        kept = forget.clone() * before(&kept) + kept.clone();
        forget = forget.clone() * before(&forget);
        summed *= 2;
    }
    kept
}
