//! The encoder (§3.1).

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::attention::SelfAttention;
use crate::config::{LayerConfig, TransformerConfig};
use crate::feed_forward::PositionwiseFeedForward;
use crate::init::WeightInit;
use crate::layer_norm::LayerNorm;
use crate::mask::AttentionMask;
use crate::sublayer::Sublayer;

/// Self-attention, then the feed-forward network, each inside its [`Sublayer`].
///
/// It serves on its own, too:
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::Tensor;
/// use transformer_core::{EncoderLayer, LayerConfig, WeightInit};
///
/// # fn main() -> Result<(), transformer_core::ConfigError> {
/// let device = Default::default();
/// let config = LayerConfig::new(32, 4, 64)?;
/// let layer = EncoderLayer::<NdArray>::new(&config, &mut WeightInit::new(0), &device);
///
/// let x = Tensor::zeros([2, 5, 32], &device);
/// let y = layer.forward(x, None, None);
/// assert_eq!(y.dims(), [2, 5, 32]);
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct EncoderLayer<B: Backend> {
    /// Each position looks at all others.
    pub self_attention: SelfAttention<B>,
    /// Around the self-attention.
    pub self_attention_sublayer: Sublayer<B>,
    /// Each position by itself.
    pub feed_forward: PositionwiseFeedForward<B>,
    /// Around the feed-forward network.
    pub feed_forward_sublayer: Sublayer<B>,
}

impl<B: Backend> EncoderLayer<B> {
    /// A new one, drawn from `init`.
    pub fn new(config: &LayerConfig, init: &mut WeightInit, device: &B::Device) -> Self {
        Self {
            self_attention: SelfAttention::new(config, init, device),
            self_attention_sublayer: Sublayer::new(config, device),
            feed_forward: PositionwiseFeedForward::new(config, init, device),
            feed_forward_sublayer: Sublayer::new(config, device),
        }
    }

    /// One layer.
    ///
    /// # Shapes
    /// - x: `[batch, src_len, d_model]`
    /// - output: `[batch, src_len, d_model]`
    /// - what is added to maps: `[batch, n_heads, src_len, src_len]`
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        mask: Option<&AttentionMask<B>>,
        maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Tensor<B, 3> {
        let x = self
            .self_attention_sublayer
            .forward(x, |x| self.self_attention.forward(x, mask, None, maps));
        self.feed_forward_sublayer
            .forward(x, |x| self.feed_forward.forward(x))
    }
}

/// A stack of encoder layers, with a norm on top where the configuration asks for one.
#[derive(Module, Debug)]
pub struct Encoder<B: Backend> {
    /// The layers, from the input up.
    pub layers: Vec<EncoderLayer<B>>,
    /// On top of the stack.
    pub final_norm: Option<LayerNorm<B>>,
}

impl<B: Backend> Encoder<B> {
    /// A new one, drawn from `init`.
    pub fn new(config: &TransformerConfig, init: &mut WeightInit, device: &B::Device) -> Self {
        let layer = config.layer();
        Self {
            layers: (0..config.n_encoder_layers)
                .map(|_| EncoderLayer::new(&layer, init, device))
                .collect(),
            final_norm: config.final_norm.then(|| LayerNorm::new(&layer, device)),
        }
    }

    /// The whole stack.
    ///
    /// # Shapes
    /// - x: `[batch, src_len, d_model]`
    /// - output: `[batch, src_len, d_model]`
    /// - maps, one entry per layer: `[batch, n_heads, src_len, src_len]`
    pub fn forward(
        &self,
        mut x: Tensor<B, 3>,
        mask: Option<&AttentionMask<B>>,
        mut maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Tensor<B, 3> {
        for layer in &self.layers {
            x = layer.forward(x, mask, maps.as_deref_mut());
        }
        match &self.final_norm {
            Some(norm) => norm.forward(x),
            None => x,
        }
    }
}
