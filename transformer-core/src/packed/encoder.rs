//! The encoder (§3.1): all tokens of some sources are the rows of one matrix, and none of them is padding of a batch.

use crate::packed::attention::SelfAttention;
use crate::packed::layers::{FeedForward, Norm, Sublayer};
use crate::packed::state::Memory;
use crate::packed::weights::NamedWeights;
use crate::packed::workspace::Buffers;
use crate::models::config::TransformerConfig;
use crate::nn::layer_config::LayerConfig;

/// Self-attention, then the feed-forward network, each inside its [`Sublayer`].
struct EncoderLayer {
    self_attention: SelfAttention,
    self_attention_sublayer: Sublayer,
    feed_forward: FeedForward,
    feed_forward_sublayer: Sublayer,
}

impl EncoderLayer {
    fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        layer: &LayerConfig,
    ) -> Result<Self, W::Error> {
        let at = |part| format!("{path}.{part}");
        Ok(Self {
            self_attention: SelfAttention::read(weights, &at("self_attention"), layer)?,
            self_attention_sublayer: Sublayer::read(
                weights,
                &at("self_attention_sublayer"),
                layer,
            )?,
            feed_forward: FeedForward::read(weights, &at("feed_forward"), layer)?,
            feed_forward_sublayer: Sublayer::read(weights, &at("feed_forward_sublayer"), layer)?,
        })
    }

    fn forward(&self, x: &mut [f32], sources: &[Memory], buffers: &mut Buffers) {
        self.self_attention_sublayer
            .forward(x, buffers, |x, output, buffers| {
                self.self_attention.forward(x, sources, output, buffers);
            });
        self.feed_forward_sublayer
            .forward(x, buffers, |x, output, buffers| {
                self.feed_forward.forward(x, output, buffers);
            });
    }
}

/// A stack of encoder layers, with a final norm if the configuration has one.
pub(super) struct Encoder {
    layers: Vec<EncoderLayer>,
    final_norm: Option<Norm>,
}

impl Encoder {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        config: &TransformerConfig,
    ) -> Result<Self, W::Error> {
        let layer = &config.encoder_layer();
        let layers = (0..config.n_encoder_layers)
            .map(|index| EncoderLayer::read(weights, &format!("encoder.layers.{index}"), layer))
            .collect::<Result<_, _>>()?;
        let final_norm = config.final_norm;
        let final_norm = final_norm.then(|| Norm::read(weights, "encoder.final_norm", layer));
        Ok(Self {
            layers,
            final_norm: final_norm.transpose()?,
        })
    }

    /// Turns the embedded tokens of sources, one source after the other, into their memory.
    ///
    /// # Shapes
    /// - x: `[rows, d_model]`
    pub fn forward(&self, x: &mut [f32], sources: &[Memory], buffers: &mut Buffers) {
        for layer in &self.layers {
            layer.forward(x, sources, buffers);
        }
        if let Some(norm) = &self.final_norm {
            norm.forward(x);
        }
    }
}
