//! Scaled dot-product attention, and the heads that every multi-head attention has (§3.2).

use burn::config::Config;
use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::nn::dropout::Dropout;
use crate::nn::error::{ConfigError, assert_sizes, check_dropout, check_sizes};
use crate::nn::init::WeightInit;
use crate::nn::linear::linear;
use crate::nn::parameters::{Parameter, linear_parameters, within};
use crate::nn::rotary::check_rotary;
use transformer_kernels::Mask;
use transformer_kernels::{self as ops, AttentionWeights, Heads, Operands, ProductPrecision};

/// `Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V` (§3.2.1, equation 1).
///
/// A blocked key has weight exactly zero; a query whose every key is blocked has output zero.
/// Dropout is applied to the weights, and only where gradients are taken.
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
/// use transformer_core::{Dropout, scaled_dot_product_attention};
///
/// // One query, two keys, d_k = 1: the scores are 2·ln 3 and 0·ln 3 over √1 once the second key is
/// // zero, so the weights are 9/10 and 1/10 and the output 0.9 · 10 + 0.1 · 20 = 11.
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
    /// The weights of every head, before dropout: `[batch, n_heads, query_len, key_len]`; `None`
    /// unless asked for.
    pub weights: Option<Tensor<B, 4>>,
}

/// The configuration of [`MultiHeadAttention`](crate::MultiHeadAttention) and
/// [`SelfAttention`](crate::SelfAttention).
#[derive(Config, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Width of queries, keys, values and output.
    pub d_model: usize,
    /// Attention heads.
    pub n_heads: usize,
    /// Heads of keys and values, each of which serves `n_heads / n_kv_heads` neighbours (grouped-query attention; Ainslie
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
    /// The base of rotary positions in a [`SelfAttention`](crate::SelfAttention), see [`Rotary`](crate::Rotary); absent: it
    /// knows no positions.
    #[config(default = "None")]
    pub rotary_base: Option<f64>,
}

impl AttentionConfig {
    /// Checks that the configuration describes an attention.
    ///
    /// # Errors
    /// The first contradiction found, with its values.
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

    /// The heads with weights drawn from the backend's generator, for an attention whose projections are
    /// your own.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_heads<B: Backend>(&self, device: &B::Device) -> AttentionHeads<B> {
        self.init_heads_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// The heads with weights from `init`.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_heads_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> AttentionHeads<B> {
        let heads = self.checked_heads();
        let width = heads.n_heads * heads.d_v;
        let projection = init.linear(width, self.d_model, self.bias, device);
        AttentionHeads {
            n_kv_heads: self.key_value_heads().n_heads,
            ..AttentionHeads::new(projection, Dropout::new(self.dropout), heads)
        }
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

    /// Number and widths of the heads; widths of zero without heads.
    pub(crate) fn heads(&self) -> Heads {
        let share = self.d_model.checked_div(self.n_heads).unwrap_or(0);
        Heads {
            n_heads: self.n_heads,
            d_k: self.d_k.unwrap_or(share),
            d_v: self.d_v.unwrap_or(share),
        }
    }

    /// Number and widths of the heads of keys and values.
    pub(crate) fn key_value_heads(&self) -> Heads {
        let heads = self.heads();
        Heads {
            n_heads: self.n_kv_heads.unwrap_or(heads.n_heads),
            ..heads
        }
    }

    /// Widths of the queries, of the keys and of the values of all heads.
    pub(crate) fn widths(&self) -> [usize; 3] {
        let (heads, key_value) = (self.heads(), self.key_value_heads());
        [
            heads.n_heads * heads.d_k,
            key_value.n_heads * heads.d_k,
            key_value.n_heads * heads.d_v,
        ]
    }

    /// Width of all heads' weighted sums of values.
    pub(crate) fn width_of_sums(&self) -> usize {
        let heads = self.heads();
        heads.n_heads * heads.d_v
    }

    /// The parameters of a [`MultiHeadAttention`](crate::MultiHeadAttention).
    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let [queries, keys, values] = self.widths();
        let query = linear_parameters(self.d_model, queries, self.bias);
        let key_value = linear_parameters(self.d_model, keys + values, self.bias);
        let mut parameters = within("query", query);
        parameters.extend(within("key_value", key_value));
        parameters.extend(self.head_parameters());
        parameters
    }

    /// The parameters of a [`SelfAttention`](crate::SelfAttention).
    pub(crate) fn self_parameters(&self) -> Vec<Parameter> {
        let width = self.widths().iter().sum();
        let fused = linear_parameters(self.d_model, width, self.bias);
        let mut parameters = within("query_key_value", fused);
        parameters.extend(self.head_parameters());
        parameters
    }

    fn head_parameters(&self) -> Vec<Parameter> {
        let projection = linear_parameters(self.width_of_sums(), self.d_model, self.bias);
        within("heads.projection", projection)
    }
}

/// Checks that each head of keys and values serves as many heads of queries, whose number has a key.
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

/// Multi-head attention after the projections of queries, keys and values: every head, and `W^O`
/// (§3.2.2).
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_ndarray::NdArray;
/// use transformer_core::ops::Operands;
/// use transformer_core::{AttentionWeights, AttentionConfig};
///
/// let device = Default::default();
/// let heads = AttentionConfig::new(32, 4).init_heads::<NdArray>(&device);
///
/// // Queries, keys and values of five positions side by side, from a projection of your own.
/// let packed = Tensor::zeros([2, 5, 3 * 32], &device);
/// let attention = heads.forward(Operands::SelfPacked(&packed), None, AttentionWeights::Discard);
/// assert_eq!(attention.output.dims(), [2, 5, 32]);
/// ```
#[derive(Module, Debug)]
pub struct AttentionHeads<B: Backend> {
    /// `W^O`: `[n_heads · d_v, d_model]`.
    pub projection: Linear<B>,
    /// Dropout on the attention weights.
    pub dropout: Dropout,
    n_heads: usize,
    n_kv_heads: usize,
    d_k: usize,
    d_v: usize,
    /// The precision of all products in attention and its projections, in training.
    #[module(skip)]
    pub(crate) precision: ProductPrecision,
}

impl<B: Backend> AttentionHeads<B> {
    /// Heads of these sizes, with a `W^O` of your own: `[n_heads · d_v, d_model]`.
    ///
    /// # Panics
    /// When a size is zero, or `W^O` has another number of rows.
    pub fn new(projection: Linear<B>, dropout: Dropout, heads: Heads) -> Self {
        let Heads { n_heads, d_k, d_v } = heads;
        assert_sizes(&[("n_heads", n_heads), ("d_k", d_k), ("d_v", d_v)]);
        // The shape alone: the numbers may not be there yet.
        let shape: [usize; 2] = projection.weight.lazy_shape().dims();
        assert_eq!(shape[0], n_heads * d_v, "rows of {shape:?} for {heads:?}");
        Self {
            projection,
            dropout,
            n_heads,
            n_kv_heads: n_heads,
            d_k,
            d_v,
            precision: ProductPrecision::F32,
        }
    }

    /// Number and widths of the heads.
    pub fn sizes(&self) -> Heads {
        Heads {
            n_heads: self.n_heads,
            d_k: self.d_k,
            d_v: self.d_v,
        }
    }

    /// Number and widths of the heads of keys and values; those of the queries, unless the configuration groups these.
    pub fn key_value_sizes(&self) -> Heads {
        Heads {
            n_heads: self.n_kv_heads,
            ..self.sizes()
        }
    }

    /// Every head's weighted sums, side by side, times `W^O`.
    ///
    /// # Shapes
    /// - operands: projected queries, keys and values, see [`Operands`]; keys and values with the heads of
    ///   [`key_value_sizes`](Self::key_value_sizes)
    /// - mask: `[batch or 1, n_heads or 1, query_len or 1, key_len]`
    /// - output: see [`AttentionOutput`]
    ///
    /// # Panics
    /// When the shapes do not agree.
    pub fn forward(
        &self,
        operands: Operands<'_, B>,
        mask: Option<&Mask<B>>,
        weights: AttentionWeights,
    ) -> AttentionOutput<B> {
        match operands {
            _ if self.n_kv_heads == self.n_heads => self.attend(operands, mask, weights),
            Operands::SelfPacked(packed) => {
                let packed = self.with_repeated(packed, self.n_heads * self.d_k);
                self.attend(Operands::SelfPacked(&packed), mask, weights)
            }
            Operands::CrossPacked { query, key_value } => {
                let key_value = &self.with_repeated(key_value, 0);
                self.attend(Operands::CrossPacked { query, key_value }, mask, weights)
            }
            Operands::Cached { query, parts } => {
                let of_part = |part: &[&Tensor<B, 4>; 2]| part.map(|x| self.repeated(x.clone(), 1));
                let repeated: Vec<_> = parts.iter().map(of_part).collect();
                let parts: Vec<_> = repeated.iter().map(|[key, value]| [key, value]).collect();
                let parts = &parts;
                self.attend(Operands::Cached { query, parts }, mask, weights)
            }
        }
    }

    /// Rows whose keys and values, from a column on, are repeated for each head of their group.
    ///
    /// # Shapes
    /// - rows: `[batch, len, column + n_kv_heads · (d_k + d_v)]`
    /// - output: `[batch, len, column + n_heads · (d_k + d_v)]`
    fn with_repeated(&self, rows: &Tensor<B, 3>, column: usize) -> Tensor<B, 3> {
        let [batch, len, _] = rows.dims();
        let mut columns =
            Vec::from_iter((column > 0).then(|| rows.clone().slice_dim(2, 0..column)));
        let mut first = column;
        for width in [self.d_k, self.d_v] {
            let last = first + self.n_kv_heads * width;
            let heads = rows.clone().slice_dim(2, first..last);
            let heads = self.repeated(heads.reshape([batch, len, self.n_kv_heads, width]), 2);
            columns.push(heads.reshape([batch, len, self.n_heads * width]));
            first = last;
        }
        Tensor::cat(columns, 2)
    }

    /// Head `h` of the output is head `h / group` of the input: repeated, so that gradients add up.
    ///
    /// # Shapes
    /// - heads: 4 dimensions, of which one is `n_kv_heads`
    /// - output: the same, with `n_heads` there
    fn repeated(&self, heads: Tensor<B, 4>, dim: usize) -> Tensor<B, 4> {
        let group = self.n_heads / self.n_kv_heads;
        let mut shape = heads.dims();
        let mut groups = [group; 5];
        groups[..=dim].copy_from_slice(&shape[..=dim]);
        groups[dim + 2..].copy_from_slice(&shape[dim + 1..]);
        shape[dim] = self.n_heads;
        let heads: Tensor<B, 5> = heads.unsqueeze_dim(dim + 1);
        heads.expand(groups).reshape(shape)
    }

    /// [`forward`](Self::forward) with as many heads of keys and values as of queries.
    fn attend(
        &self,
        operands: Operands<'_, B>,
        mask: Option<&Mask<B>>,
        weights: AttentionWeights,
    ) -> AttentionOutput<B> {
        let p = self.dropout.probability(operands.query());
        let (sizes, precision) = (self.sizes(), self.precision);
        let heads = ops::attention(operands, sizes, mask, p, weights, precision);
        AttentionOutput {
            output: linear(&self.projection, heads.output, precision),
            weights: heads.weights,
        }
    }
}
