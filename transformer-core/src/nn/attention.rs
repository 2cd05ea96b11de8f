//! Scaled dot-product attention, and the configuration of every multi-head attention (§3.2).

use burn::config::Config;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::nn::dropout::Dropout;
use crate::nn::error::{ConfigError, check_dropout, check_sizes};
use crate::nn::parameters::{Parameter, linear_parameters, within};
use crate::nn::relative_positions;
use crate::nn::rotary::check_rotary;
use transformer_kernels::Mask;
use transformer_kernels::{self as ops, Heads};

/// `Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V` (§3.2.1, equation 1).
///
/// A blocked key has weight exactly zero; a query with all keys blocked has output zero. Dropout applies to the
/// weights, and only where gradients are computed.
///
/// # Shapes
/// - query: `[batch, n_heads, query_len, d_k]`
/// - key: `[batch, n_heads, key_len, d_k]`
/// - value: `[batch, n_heads, key_len, d_v]`
/// - output: `[batch, n_heads, query_len, d_v]`, and the weights before dropout,
///   `[batch, n_heads, query_len, key_len]`
///
/// # Panics
/// When the shapes do not agree.
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::Tensor;
/// use transformer_core::nn::{Dropout, scaled_dot_product_attention};
///
/// // One query, 2, and two keys, ln 3 and 0, with d_k = 1: the scores are 2 · ln 3 and 0, so the
/// // weights are 9/10 and 1/10, and the output is 0.9 · 10 + 0.1 · 20 = 11.
/// let device = Default::default();
/// let query = Tensor::<NdArray, 4>::from_data([[[[2.0]]]], &device);
/// let key = Tensor::from_data([[[[3.0_f32.ln()], [0.0]]]], &device);
/// let value = Tensor::from_data([[[[10.0], [20.0]]]], &device);
/// let no_dropout = Dropout::new(0.0);
/// let (output, weights) = scaled_dot_product_attention(query, key, value, None, &no_dropout);
/// assert!((output.into_scalar() - 11.0).abs() < 1e-5);
/// assert_eq!(weights.dims(), [1, 1, 1, 2]);
/// ```
pub fn scaled_dot_product_attention<B: Backend>(
    query: Tensor<B, 4>,
    key: Tensor<B, 4>,
    value: Tensor<B, 4>,
    mask: Option<&Mask<B>>,
    dropout: &Dropout,
) -> (Tensor<B, 4>, Tensor<B, 4>) {
    let p = dropout.probability(&query);
    ops::scaled_dot_product_attention(query, key, value, mask, p)
}

/// The output of multi-head attention (§3.2.2).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttentionOutput<B: Backend> {
    /// `[batch, query_len, d_model]`
    pub output: Tensor<B, 3>,
    /// The weights of every head, before dropout: `[batch, n_heads, query_len, key_len]`; `None` unless requested.
    pub weights: Option<Tensor<B, 4>>,
}

/// The configuration of [`MultiHeadAttention`](crate::nn::MultiHeadAttention) and
/// [`SelfAttention`](crate::nn::SelfAttention).
#[derive(Config, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Width of queries, keys, values and output.
    pub d_model: usize,
    /// Attention heads.
    pub n_heads: usize,
    /// Key/value heads, each shared by `n_heads / n_kv_heads` consecutive query heads (grouped-query attention; Ainslie
    /// et al., 2023); `n_heads` when absent.
    #[config(default = "None")]
    pub n_kv_heads: Option<usize>,
    /// Width of a head's queries and keys; `d_model / n_heads` when absent.
    #[config(default = "None")]
    pub d_k: Option<usize>,
    /// Width of a head's values; `d_model / n_heads` when absent.
    #[config(default = "None")]
    pub d_v: Option<usize>,
    /// Whether the projections have biases; the paper's have none.
    #[config(default = false)]
    pub bias: bool,
    /// Dropout on the attention weights.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether scores are divided by √d_k, as in the paper but not in T5.
    #[config(default = true)]
    pub scaled: bool,
    /// The base of rotary positions in a [`SelfAttention`](crate::nn::SelfAttention), see
    /// [`Rotary`](crate::nn::Rotary); no rotary positions when absent.
    #[config(default = "None")]
    pub rotary_base: Option<f64>,
    /// The largest distance of relative positions in a [`SelfAttention`](crate::nn::SelfAttention), see
    /// [`RelativePositions`](crate::nn::RelativePositions); no relative positions when absent.
    #[config(default = "None")]
    pub max_distance: Option<usize>,
}

impl AttentionConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The first invalid value or contradiction.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self {
            d_model, n_heads, ..
        } = *self;
        check_sizes(&[
            ("d_model", d_model),
            ("n_heads", n_heads),
            ("n_kv_heads", self.n_kv_heads.unwrap_or(1)),
            ("d_k", self.d_k.unwrap_or(1)),
            ("d_v", self.d_v.unwrap_or(1)),
            ("max_distance", self.max_distance.unwrap_or(1)),
        ])?;
        let is_shared = self.d_k.is_none() || self.d_v.is_none();
        if is_shared && !d_model.is_multiple_of(n_heads) {
            return Err(ConfigError::HeadsDoNotDivide {
                d_model,
                key: "n_heads",
                n_heads,
            });
        }
        check_groups("n_heads", n_heads, self.n_kv_heads)?;
        if let Some(base) = self.rotary_base {
            check_rotary(base, self.heads().d_k)?;
        }
        check_dropout("attention_dropout", self.dropout)
    }

    /// Number and widths of the heads of a layer.
    ///
    /// # Panics
    /// When the configuration is not [valid](Self::validate).
    pub(crate) fn checked_heads(&self) -> Heads {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
        self.heads()
    }

    /// Number and widths of the heads; the widths are 0 without heads.
    pub(crate) fn heads(&self) -> Heads {
        let share = self.d_model.checked_div(self.n_heads).unwrap_or(0);
        Heads {
            n_heads: self.n_heads,
            d_k: self.d_k.unwrap_or(share),
            d_v: self.d_v.unwrap_or(share),
        }
    }

    /// Number and widths of the key/value heads.
    pub(crate) fn key_value_heads(&self) -> Heads {
        let heads = self.heads();
        Heads {
            n_heads: self.n_kv_heads.unwrap_or(heads.n_heads),
            ..heads
        }
    }

    /// Widths of the queries, keys and values of all heads together.
    pub(crate) fn widths(&self) -> [usize; 3] {
        let (heads, key_value) = (self.heads(), self.key_value_heads());
        [
            heads.n_heads * heads.d_k,
            key_value.n_heads * heads.d_k,
            key_value.n_heads * heads.d_v,
        ]
    }

    /// Width of the concatenated outputs of all heads.
    pub(crate) fn width_of_sums(&self) -> usize {
        let heads = self.heads();
        heads.n_heads * heads.d_v
    }

    /// The parameters of a [`MultiHeadAttention`](crate::nn::MultiHeadAttention).
    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let [queries, keys, values] = self.widths();
        let query = linear_parameters(self.d_model, queries, self.bias);
        let key_value = linear_parameters(self.d_model, keys + values, self.bias);
        let mut parameters = within("query", query);
        parameters.extend(within("key_value", key_value));
        parameters.extend(self.head_parameters());
        parameters
    }

    /// The parameters of a [`SelfAttention`](crate::nn::SelfAttention).
    pub(crate) fn self_parameters(&self) -> Vec<Parameter> {
        let width = self.widths().iter().sum();
        let fused = linear_parameters(self.d_model, width, self.bias);
        let mut parameters = within("query_key_value", fused);
        parameters.extend(self.head_parameters());
        if let Some(max_distance) = self.max_distance {
            let tables = relative_positions::parameters(max_distance, self.heads());
            parameters.extend(within("relative", tables));
        }
        parameters
    }

    fn head_parameters(&self) -> Vec<Parameter> {
        let projection = linear_parameters(self.width_of_sums(), self.d_model, self.bias);
        within("heads.projection", projection)
    }
}

/// Checks that the key/value heads divide the query heads, whose configuration key is `key`.
pub(crate) fn check_groups(
    key: &'static str,
    n_heads: usize,
    n_kv_heads: Option<usize>,
) -> Result<(), ConfigError> {
    match n_kv_heads {
        Some(n_kv_heads) if !n_heads.is_multiple_of(n_kv_heads) => Err(ConfigError::Groups {
            key,
            n_heads,
            n_kv_heads,
        }),
        _ => Ok(()),
    }
}
