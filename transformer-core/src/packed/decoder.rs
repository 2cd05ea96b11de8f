//! The decoder (§3.1): each row is a new token of a target, which attends to its target's tokens so far and to its
//! source.

use crate::packed::attention::{CrossAttention, SelfAttention};
use crate::packed::layers::{FeedForward, Norm, Sublayer};
use crate::packed::state::{Memory, Reading};
use crate::packed::weights::NamedWeights;
use crate::packed::workspace::Buffers;
use crate::models::config::TransformerConfig;
use crate::nn::layer_config::LayerConfig;

/// Causal self-attention, attention to the memory, then the feed-forward network, each inside its [`Sublayer`].
struct DecoderLayer {
    self_attention: SelfAttention,
    self_attention_sublayer: Sublayer,
    cross_attention: CrossAttention,
    cross_attention_sublayer: Sublayer,
    feed_forward: FeedForward,
    feed_forward_sublayer: Sublayer,
}

impl DecoderLayer {
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
            cross_attention: CrossAttention::read(weights, &at("cross_attention"), layer)?,
            cross_attention_sublayer: Sublayer::read(
                weights,
                &at("cross_attention_sublayer"),
                layer,
            )?,
            feed_forward: FeedForward::read(weights, &at("feed_forward"), layer)?,
            feed_forward_sublayer: Sublayer::read(weights, &at("feed_forward_sublayer"), layer)?,
        })
    }

    /// `index` is the layer's, by which its keys and values are found.
    fn forward(
        &self,
        x: &mut [f32],
        index: usize,
        reading: &mut Reading<'_>,
        buffers: &mut Buffers,
    ) {
        self.self_attention_sublayer
            .forward(x, buffers, |x, output, buffers| {
                self.self_attention
                    .forward_cached(x, index, reading, output, buffers);
            });
        self.cross_attention_sublayer
            .forward(x, buffers, |x, output, buffers| {
                self.cross_attention
                    .forward(x, index, reading, output, buffers);
            });
        self.feed_forward_sublayer
            .forward(x, buffers, |x, output, buffers| {
                self.feed_forward.forward(x, output, buffers);
            });
    }
}

/// A stack of decoder layers, with a final norm if the configuration has one.
pub(super) struct Decoder {
    layers: Vec<DecoderLayer>,
    final_norm: Option<Norm>,
    n_heads: usize,
}

impl Decoder {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        config: &TransformerConfig,
    ) -> Result<Self, W::Error> {
        let layer = &config.decoder_layer();
        let layers = (0..config.n_decoder_layers)
            .map(|index| DecoderLayer::read(weights, &format!("decoder.layers.{index}"), layer))
            .collect::<Result<_, _>>()?;
        let final_norm = config.final_norm;
        let final_norm = final_norm.then(|| Norm::read(weights, "decoder.final_norm", layer));
        Ok(Self {
            layers,
            final_norm: final_norm.transpose()?,
            n_heads: layer.n_heads,
        })
    }

    /// Computes every layer's keys and values of the memory, once for all tokens that are decoded.
    ///
    /// # Shapes
    /// - x: `[rows, d_model]`, the encoder's output of the sources, one after the other
    pub fn project_memory(&self, x: &[f32], sources: &mut [Memory], buffers: &mut Buffers) {
        let tokens: usize = sources.iter().map(|source| source.len).sum();
        for layer in &self.layers {
            let Buffers {
                projected,
                products,
                ..
            } = buffers;
            let attention = &layer.cross_attention;
            let mut rows = attention.project_memory(x, projected, products);
            let width = rows.len() / tokens.max(1);
            for source in sources.iter_mut() {
                let (own, others) = rows.split_at(source.len * width);
                source.key_values.push(own.to_vec());
                rows = others;
            }
        }
    }

    /// Applies the stack to embedded tokens, the rows of `reading`, whose attention becomes the mean over layers and
    /// heads where it is requested.
    ///
    /// # Shapes
    /// - x: `[rows, d_model]`
    pub fn forward(&self, x: &mut [f32], mut reading: Reading<'_>, buffers: &mut Buffers) {
        for (index, layer) in self.layers.iter().enumerate() {
            layer.forward(x, index, &mut reading, buffers);
        }
        if let Some(norm) = &self.final_norm {
            norm.forward(x);
        }
        reading.finish_attention(self.layers.len() * self.n_heads);
    }
}
