//! The stacks of encoder and decoder (§3.1). In the encoder, all tokens of some sources are the rows of one matrix, and
//! none of them is padding of a batch. In the decoder, each row is a new token of a target, which attends to its target's
//! tokens so far and to its source.

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

/// By what a token reads its own sequence.
enum Mixer {
    SelfAttention(SelfAttention),
    Recurrence(Recurrence),
}

/// Self-attention or a recurrence, attention to the memory where there is one, then the feed-forward network, each inside
/// its [`Sublayer`].
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

    /// Whole sequences, each of whose tokens attends to all of them.
    fn forward(&self, x: &mut [f32], sources: &[Memory], buffers: &mut Buffers) {
        self.self_attention_sublayer
            .forward(x, buffers, |x, output, buffers| match &self.mixer {
                Mixer::SelfAttention(attention) => attention.forward(x, sources, output, buffers),
                Mixer::Recurrence(_) => unreachable!("an encoder with a recurrence"),
            });
        self.apply_feed_forward(x, buffers);
    }

    /// New tokens. `index` is the layer's, by which its keys and values are found.
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

/// Layers on top of each other, with a final norm if the configuration has one.
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

    /// Turns the embedded tokens of sources, one source after the other, into their memory.
    ///
    /// # Shapes
    /// - x: `[rows, d_model]`
    pub fn forward(&self, x: &mut [f32], sources: &[Memory], buffers: &mut Buffers) {
        for layer in &self.layers {
            layer.forward(x, sources, buffers);
        }
        self.normalize(x);
    }

    /// Computes every layer's keys and values of the memory, once for all tokens that are decoded.
    ///
    /// # Shapes
    /// - x: `[rows, d_model]`, the encoder's output of the sources, one after the other
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

    /// Applies the stack to embedded tokens, the rows of `reading`, whose attention becomes the mean over layers and
    /// heads where it is requested.
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
