//! The stacks of encoder and decoder (§3.1). In the encoder, the tokens of all sources are the rows of one matrix,
//! without padding between sources. In the decoder, each row is a new token of a target, which attends to the tokens of
//! its target so far and to its source.

use std::sync::Arc;

use crate::nn::layer::LayerConfig;
use crate::nn::stack::StackConfig;
use crate::packed::attention::{CrossAttention, SelfAttention};
use crate::packed::layers::{FeedForward, Norm, Sublayer};
use crate::packed::position_bias::PositionBias;
use crate::packed::recurrence::Recurrence;
use crate::packed::state::{Memory, Reading};
use crate::packed::weights::NamedWeights;
use crate::packed::workspace::Buffers;

/// How a layer mixes the positions of its own sequence.
enum Mixer {
    SelfAttention(SelfAttention),
    Recurrence(Recurrence),
}

/// Self-attention or a recurrence, cross-attention if there is a memory, then the feed-forward network, each inside its
/// [`Sublayer`].
struct Layer {
    mixer: Mixer,
    self_attention_sublayer: Sublayer,
    cross_attention: Option<(CrossAttention, Sublayer)>,
    feed_forward: FeedForward,
    feed_forward_sublayer: Sublayer,
}

impl Layer {
    fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        config: &LayerConfig,
        bias: Option<Arc<PositionBias>>,
    ) -> Result<Self, W::Error> {
        let at = |part: &str| format!("{path}.{part}");
        let sublayer = |weights: &mut W, part| {
            let path = at(&format!("{part}_sublayer"));
            Sublayer::read(weights, &path, &config.sublayer)
        };
        let mixer = match config.recurrence() {
            None => {
                let (path, config) = (at("self_attention"), &config.self_attention);
                Mixer::SelfAttention(SelfAttention::read(weights, &path, config, bias)?)
            }
            Some(recurrence) => {
                let path = at("recurrence");
                Mixer::Recurrence(Recurrence::read(weights, &path, &recurrence)?)
            }
        };
        Ok(Self {
            mixer,
            self_attention_sublayer: sublayer(weights, "self_attention")?,
            cross_attention: match &config.cross_attention {
                None => None,
                Some(attention) => Some((
                    CrossAttention::read(weights, &at("cross_attention"), attention)?,
                    sublayer(weights, "cross_attention")?,
                )),
            },
            feed_forward: FeedForward::read(weights, &at("feed_forward"), &config.feed_forward)?,
            feed_forward_sublayer: sublayer(weights, "feed_forward")?,
        })
    }

    /// Applies the layer to whole sequences.
    fn forward(&self, x: &mut [f32], sources: &[Memory], buffers: &mut Buffers) {
        self.self_attention_sublayer
            .forward(x, buffers, |x, output, buffers| match &self.mixer {
                Mixer::SelfAttention(attention) => attention.forward(x, sources, output, buffers),
                Mixer::Recurrence(_) => unreachable!("an encoder with a recurrence"),
            });
        self.apply_feed_forward(x, buffers);
    }

    /// Applies the layer to new tokens. `index` is the index of the layer, under which keys and values are cached.
    fn next(&self, x: &mut [f32], index: usize, reading: &mut Reading<'_>, buffers: &mut Buffers) {
        self.self_attention_sublayer
            .forward(x, buffers, |x, output, buffers| match &self.mixer {
                Mixer::SelfAttention(attention) => {
                    attention.forward_cached(x, index, reading, output, buffers);
                }
                Mixer::Recurrence(recurrence) => {
                    recurrence.forward(x, index, reading, output, buffers);
                }
            });
        if let Some((attention, sublayer)) = &self.cross_attention {
            sublayer.forward(x, buffers, |x, output, buffers| {
                attention.forward(x, index, reading, output, buffers);
            });
        }
        self.apply_feed_forward(x, buffers);
    }

    fn apply_feed_forward(&self, x: &mut [f32], buffers: &mut Buffers) {
        self.feed_forward_sublayer
            .forward(x, buffers, |x, output, buffers| {
                self.feed_forward.forward(x, output, buffers);
            });
    }
}

/// A stack of layers, with a final norm if configured.
pub struct Stack {
    layers: Vec<Layer>,
    final_norm: Option<Norm>,
    n_heads: usize,
}

impl Stack {
    /// Reads the stack at a path, such as `encoder`.
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        config: &StackConfig,
    ) -> Result<Self, W::Error> {
        let bias = config.position_bias.as_ref();
        let bias =
            bias.map(|bias| PositionBias::read(weights, &format!("{path}.position_bias"), bias));
        let bias = bias.transpose()?.map(Arc::new);
        let layers = (0..config.n_layers)
            .map(|index| {
                let path = format!("{path}.layers.{index}");
                Layer::read(weights, &path, &config.layer, bias.clone())
            })
            .collect::<Result<_, _>>()?;
        let norm = &config.layer.sublayer.norm;
        let final_norm = config.final_norm;
        let final_norm =
            final_norm.then(|| Norm::read(weights, &format!("{path}.final_norm"), norm));
        Ok(Self {
            layers,
            final_norm: final_norm.transpose()?,
            n_heads: config.layer.self_attention.n_heads,
        })
    }

    /// Encodes the embedded tokens of sources, source after source, in place.
    ///
    /// # Shapes
    /// - x: `[rows, d_model]`
    pub fn forward(&self, x: &mut [f32], sources: &[Memory], buffers: &mut Buffers) {
        for layer in &self.layers {
            layer.forward(x, sources, buffers);
        }
        self.normalize(x);
    }

    /// Computes every layer's keys and values of the memory, once for all decoded tokens.
    ///
    /// # Shapes
    /// - x: `[rows, d_model]`, the encoder's output, source after source
    pub fn project_memory(&self, x: &[f32], sources: &mut [Memory], buffers: &mut Buffers) {
        let tokens: usize = sources.iter().map(|source| source.len).sum();
        let attentions = self.layers.iter().flat_map(|layer| &layer.cross_attention);
        for (attention, _) in attentions {
            let Buffers {
                projected,
                products,
                ..
            } = buffers;
            let mut rows = attention.project_memory(x, projected, products);
            let width = rows.len() / tokens.max(1);
            for source in sources.iter_mut() {
                let (own, others) = rows.split_at(source.len * width);
                source.key_values.push(own.to_vec());
                rows = others;
            }
        }
    }

    /// Applies the stack to embedded tokens, the rows of `reading`. If requested, its attention becomes the mean over
    /// layers and heads.
    ///
    /// # Shapes
    /// - x: `[rows, d_model]`
    pub fn next(&self, x: &mut [f32], mut reading: Reading<'_>, buffers: &mut Buffers) {
        for (index, layer) in self.layers.iter().enumerate() {
            layer.next(x, index, &mut reading, buffers);
        }
        self.normalize(x);
        reading.finish_attention(self.layers.len() * self.n_heads);
    }

    fn normalize(&self, x: &mut [f32]) {
        if let Some(norm) = &self.final_norm {
            norm.forward(x);
        }
    }
}
