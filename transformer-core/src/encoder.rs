//! The encoder (§3.1).

use burn::config::Config;
use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::feed_forward::PositionwiseFeedForward;
use crate::init::WeightInit;
use crate::layer_config::LayerConfig;
use crate::layer_norm::LayerNorm;
use crate::mask::Mask;
use crate::ops::AttentionWeights;
use crate::self_attention::SelfAttention;
use crate::sublayer::Sublayer;

/// The output of an [`EncoderLayer`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EncoderLayerOutput<B: Backend> {
    /// `[batch, src_len, d_model]`
    pub hidden: Tensor<B, 3>,
    /// `[batch, n_heads, src_len, src_len]`; `None` unless asked for.
    pub self_attention: Option<Tensor<B, 4>>,
}

/// The output of an [`Encoder`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EncoderOutput<B: Backend> {
    /// `[batch, src_len, d_model]`
    pub hidden: Tensor<B, 3>,
    /// Each layer's attention weights, `[batch, n_heads, src_len, src_len]`; empty unless asked for.
    pub self_attention: Vec<Tensor<B, 4>>,
}

/// Self-attention, then the feed-forward network, each inside its [`Sublayer`] (§3.1).
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::Tensor;
/// use transformer_core::{AttentionWeights, LayerConfig};
///
/// # fn main() -> Result<(), transformer_core::ConfigError> {
/// let device = Default::default();
/// let layer = LayerConfig::new(32, 4, 64)?.init_encoder_layer::<NdArray>(&device);
///
/// let x = Tensor::zeros([2, 5, 32], &device);
/// let y = layer.forward(x, None, AttentionWeights::Discard);
/// assert_eq!(y.hidden.dims(), [2, 5, 32]);
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct EncoderLayer<B: Backend> {
    /// Each position attends to all others.
    pub self_attention: SelfAttention<B>,
    /// The connection around the self-attention.
    pub self_attention_sublayer: Sublayer<B>,
    /// Applied to each position by itself.
    pub feed_forward: PositionwiseFeedForward<B>,
    /// The connection around the feed-forward network.
    pub feed_forward_sublayer: Sublayer<B>,
}

impl LayerConfig {
    /// An encoder layer with weights drawn from the backend's generator.
    ///
    /// # Panics
    /// When the configuration is not [valid](Self::validate).
    pub fn init_encoder_layer<B: Backend>(&self, device: &B::Device) -> EncoderLayer<B> {
        self.init_encoder_layer_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// An encoder layer with weights from `init`.
    ///
    /// # Panics
    /// When the configuration is not [valid](Self::validate).
    pub fn init_encoder_layer_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> EncoderLayer<B> {
        self.assert_valid();
        EncoderLayer {
            self_attention: self.attention().init_self_from(init, device),
            self_attention_sublayer: self.sublayer().init(device),
            feed_forward: self.feed_forward().init_from(init, device),
            feed_forward_sublayer: self.sublayer().init(device),
        }
    }
}

impl<B: Backend> EncoderLayer<B> {
    /// Applies the layer.
    ///
    /// # Shapes
    /// - x: `[batch, src_len, d_model]`
    /// - mask: `[batch or 1, n_heads or 1, src_len or 1, src_len]`
    /// - output: see [`EncoderLayerOutput`]
    ///
    /// # Panics
    /// When the shapes do not agree.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        mask: Option<&Mask<B>>,
        weights: AttentionWeights,
    ) -> EncoderLayerOutput<B> {
        let (x, self_attention) = self.self_attention_sublayer.forward_with(x, |x| {
            let attention = self.self_attention.forward(x, mask, weights);
            (attention.output, attention.weights)
        });
        let hidden = self
            .feed_forward_sublayer
            .forward(x, |x| self.feed_forward.forward(x));
        EncoderLayerOutput {
            hidden,
            self_attention,
        }
    }
}

/// The configuration of an [`Encoder`].
#[derive(Config, Debug)]
pub struct EncoderConfig {
    /// The configuration of each layer.
    pub layer: LayerConfig,
    /// Number of layers.
    pub n_layers: usize,
    /// Whether the stack ends in a layer normalisation; a pre-norm stack needs it.
    #[config(default = false)]
    pub final_norm: bool,
}

impl EncoderConfig {
    /// A stack with weights drawn from the backend's generator.
    ///
    /// # Panics
    /// When the layers' configuration is not [valid](LayerConfig::validate).
    pub fn init<B: Backend>(&self, device: &B::Device) -> Encoder<B> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// A stack with weights from `init`.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(&self, init: &mut WeightInit, device: &B::Device) -> Encoder<B> {
        let Self {
            layer,
            n_layers,
            final_norm,
        } = self;
        Encoder {
            layers: (0..*n_layers)
                .map(|_| layer.init_encoder_layer_from(init, device))
                .collect(),
            final_norm: final_norm.then(|| layer.layer_norm().init(device)),
        }
    }
}

/// A stack of encoder layers (§3.1), with a final norm if the configuration has one.
///
/// It can be used without a decoder: as the encoder of a classifier, for example.
#[derive(Module, Debug)]
pub struct Encoder<B: Backend> {
    /// The layers, from the input up.
    pub layers: Vec<EncoderLayer<B>>,
    /// The norm after the last layer.
    pub final_norm: Option<LayerNorm<B>>,
}

impl<B: Backend> Encoder<B> {
    /// Applies the stack.
    ///
    /// # Shapes
    /// - x: `[batch, src_len, d_model]`
    /// - mask: `[batch or 1, n_heads or 1, src_len or 1, src_len]`
    /// - output: see [`EncoderOutput`]
    ///
    /// # Panics
    /// When the shapes do not agree.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        mask: Option<&Mask<B>>,
        weights: AttentionWeights,
    ) -> EncoderOutput<B> {
        let mut hidden = x;
        let mut self_attention = Vec::new();
        for layer in &self.layers {
            let output = layer.forward(hidden, mask, weights);
            hidden = output.hidden;
            self_attention.extend(output.self_attention);
        }
        if let Some(norm) = &self.final_norm {
            hidden = norm.forward(hidden);
        }
        EncoderOutput {
            hidden,
            self_attention,
        }
    }
}
