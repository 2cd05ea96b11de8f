//! The decoder (§3.1), with or without attention to a memory.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Tensor};

use crate::cache::{Keep, LayerCache, MemoryKeyValue, TargetCache};
use crate::feed_forward::PositionwiseFeedForward;
use crate::init::WeightInit;
use crate::layer_config::LayerConfig;
use crate::layer_norm::LayerNorm;
use crate::mask::Mask;
use crate::multi_head_attention::MultiHeadAttention;
use crate::ops::AttentionWeights;
use crate::self_attention::SelfAttention;
use crate::sublayer::Sublayer;

/// The encoder's output for a batch of sources, which the decoder attends to.
#[derive(Debug, Clone)]
pub struct Memory<B: Backend> {
    /// `[batch, src_len, d_model]`
    pub hidden: Tensor<B, 3>,
    /// The source's padding, `[batch, src_len]`, `true` = blocked.
    pub padding: Tensor<B, 2, Bool>,
}

/// The masks of a decoder call: one for each kind of attention (§3.2.3).
#[derive(Debug, Clone)]
pub struct DecoderMasks<B: Backend> {
    /// Blocks the future, the target's padding, and the slots of other targets and empty ones:
    /// `[batch or 1, n_heads or 1, tgt_len or 1, key_len]`.
    pub self_attention: Mask<B>,
    /// Blocks the source's padding, `[batch or 1, n_heads or 1, tgt_len or 1, src_len]`; `None` without a
    /// memory, or if no position is blocked.
    pub cross_attention: Option<Mask<B>>,
}

/// The output of a [`DecoderLayer`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DecoderLayerOutput<B: Backend> {
    /// `[batch, tgt_len, d_model]`
    pub hidden: Tensor<B, 3>,
    /// `[batch, n_heads, tgt_len, key_len]`; `None` unless asked for.
    pub self_attention: Option<Tensor<B, 4>>,
    /// `[batch, n_heads, tgt_len, src_len]`; `None` unless asked for, and without a memory.
    pub cross_attention: Option<Tensor<B, 4>>,
}

/// The output of a [`Decoder`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DecoderOutput<B: Backend> {
    /// `[batch, tgt_len, d_model]`
    pub hidden: Tensor<B, 3>,
    /// Each layer's weights of self-attention, `[batch, n_heads, tgt_len, key_len]`; empty unless
    /// asked for.
    pub self_attention: Vec<Tensor<B, 4>>,
    /// Each layer's weights of attention to the memory, `[batch, n_heads, tgt_len, src_len]`; empty
    /// unless asked for, and without a memory.
    pub cross_attention: Vec<Tensor<B, 4>>,
}

/// Masked self-attention, attention to the memory where there is one, then the feed-forward
/// network, each inside its [`Sublayer`] (§3.1).
#[derive(Module, Debug)]
pub struct DecoderLayer<B: Backend> {
    /// Each position attends to those before it.
    pub self_attention: SelfAttention<B>,
    /// The connection around the self-attention.
    pub self_attention_sublayer: Sublayer<B>,
    /// Each position attends to the memory; `None` in a decoder without one.
    pub cross_attention: Option<MultiHeadAttention<B>>,
    /// The connection around the attention to the memory.
    pub cross_attention_sublayer: Option<Sublayer<B>>,
    /// Applied to each position by itself.
    pub feed_forward: PositionwiseFeedForward<B>,
    /// The connection around the feed-forward network.
    pub feed_forward_sublayer: Sublayer<B>,
}

impl LayerConfig {
    /// A decoder layer with weights drawn from the backend's generator.
    ///
    /// # Panics
    /// When the configuration is not [valid](Self::validate).
    pub fn init_decoder_layer<B: Backend>(
        &self,
        cross_attention: CrossAttention,
        device: &B::Device,
    ) -> DecoderLayer<B> {
        let init = &mut WeightInit::from_backend::<B>(device);
        self.init_decoder_layer_from(cross_attention, init, device)
    }

    /// A decoder layer with weights from `init`.
    ///
    /// # Panics
    /// When the configuration is not [valid](Self::validate).
    pub fn init_decoder_layer_from<B: Backend>(
        &self,
        cross_attention: CrossAttention,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> DecoderLayer<B> {
        self.assert_valid();
        let has_memory = cross_attention == CrossAttention::ToMemory;
        DecoderLayer {
            self_attention: self.attention().init_self_from(init, device),
            self_attention_sublayer: self.sublayer().init(device),
            cross_attention: has_memory.then(|| self.attention().init_from(init, device)),
            cross_attention_sublayer: has_memory.then(|| self.sublayer().init(device)),
            feed_forward: self.feed_forward().init_from(init, device),
            feed_forward_sublayer: self.sublayer().init(device),
        }
    }
}

/// Whether a decoder attends to a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrossAttention {
    /// The decoder of an encoder–decoder model attends to a memory.
    ToMemory,
    /// A decoder alone, such as a language model's, does not.
    None,
}

impl<B: Backend> DecoderLayer<B> {
    /// Applies the layer to a whole target.
    ///
    /// # Shapes
    /// - x: `[batch, tgt_len, d_model]`
    /// - memory: `[batch, src_len, d_model]`; `None` if the layer attends to none
    /// - masks: see [`DecoderMasks`], `key_len` being `tgt_len`
    /// - output: see [`DecoderLayerOutput`]
    ///
    /// # Panics
    /// When there is a memory and the layer attends to none, or the reverse; when the shapes do not agree.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        memory: Option<&Tensor<B, 3>>,
        masks: &DecoderMasks<B>,
        weights: AttentionWeights,
    ) -> DecoderLayerOutput<B> {
        self.forward_cached(x, &mut self.cache(memory, Keep::Memory), masks, weights)
    }

    /// An empty cache over a memory.
    ///
    /// # Shapes
    /// - memory: `[batch, src_len, d_model]`; `None` if the layer attends to none
    pub(crate) fn cache(&self, memory: Option<&Tensor<B, 3>>, keep: Keep) -> LayerCache<B> {
        let memory = match (&self.cross_attention, memory) {
            (Some(attention), Some(memory)) => {
                let packed = attention.project_memory(memory.clone());
                Some(match keep {
                    Keep::MemoryAndTargets => attention.split(&packed),
                    Keep::Memory => MemoryKeyValue::Packed(packed),
                })
            }
            (None, None) => None,
            (Some(_), None) => panic!("a decoder layer that attends to a memory, but no memory"),
            (None, Some(_)) => panic!("a memory, but a decoder layer that attends to none"),
        };
        LayerCache {
            memory,
            target: (keep == Keep::MemoryAndTargets).then(TargetCache::default),
        }
    }

    /// Applies the layer to the target positions after those in the cache. If a source has several
    /// targets, their positions are side by side.
    ///
    /// # Shapes
    /// - x: `[batch, tgt_len, d_model]`
    pub(crate) fn forward_cached(
        &self,
        x: Tensor<B, 3>,
        cache: &mut LayerCache<B>,
        masks: &DecoderMasks<B>,
        weights: AttentionWeights,
    ) -> DecoderLayerOutput<B> {
        let (x, self_attention) = self.self_attention_sublayer.forward_with(x, |x| {
            let (attention, mask) = (&self.self_attention, Some(&masks.self_attention));
            let attended = match &mut cache.target {
                Some(cache) => attention.forward_cached(x, mask, cache, weights),
                None => attention.forward(x, mask, weights),
            };
            (attended.output, attended.weights)
        });
        let (x, cross_attention) = match (&self.cross_attention, &self.cross_attention_sublayer) {
            (Some(attention), Some(sublayer)) => sublayer.forward_with(x, |x| {
                let memory = cache.memory.as_ref().expect("the layer's own cache");
                let mask = masks.cross_attention.as_ref();
                let attended = attention.attend(x, memory, mask, weights);
                (attended.output, attended.weights)
            }),
            _ => (x, None),
        };
        let hidden = self
            .feed_forward_sublayer
            .forward(x, |x| self.feed_forward.forward(x));
        DecoderLayerOutput {
            hidden,
            self_attention,
            cross_attention,
        }
    }
}

/// The configuration of a [`Decoder`].
#[derive(Config, Debug)]
pub struct DecoderConfig {
    /// The configuration of each layer.
    pub layer: LayerConfig,
    /// Number of layers.
    pub n_layers: usize,
    /// Whether the stack ends in a layer normalisation; a pre-norm stack needs it.
    #[config(default = false)]
    pub final_norm: bool,
    /// Whether its layers attend to a memory.
    #[config(default = "CrossAttention::ToMemory")]
    pub cross_attention: CrossAttention,
}

impl DecoderConfig {
    /// A stack with weights drawn from the backend's generator.
    ///
    /// # Panics
    /// When the layers' configuration is not [valid](LayerConfig::validate).
    pub fn init<B: Backend>(&self, device: &B::Device) -> Decoder<B> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// A stack with weights from `init`.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(&self, init: &mut WeightInit, device: &B::Device) -> Decoder<B> {
        let Self {
            layer,
            n_layers,
            final_norm,
            cross_attention,
        } = self;
        Decoder {
            layers: (0..*n_layers)
                .map(|_| layer.init_decoder_layer_from(*cross_attention, init, device))
                .collect(),
            final_norm: final_norm.then(|| layer.layer_norm().init(device)),
        }
    }
}

/// A stack of decoder layers (§3.1), with a final norm if the configuration has one.
#[derive(Module, Debug)]
pub struct Decoder<B: Backend> {
    /// The layers, from the input up.
    pub layers: Vec<DecoderLayer<B>>,
    /// The norm after the last layer.
    pub final_norm: Option<LayerNorm<B>>,
}

impl<B: Backend> Decoder<B> {
    /// Applies the stack to a whole target.
    ///
    /// # Shapes
    /// - x: `[batch, tgt_len, d_model]`
    /// - memory: `[batch, src_len, d_model]`; `None` if the layers attend to none
    /// - masks: see [`DecoderMasks`], `key_len` being `tgt_len`
    /// - output: see [`DecoderOutput`]
    ///
    /// # Panics
    /// When there is a memory and the layers attend to none, or the reverse; when the shapes do not agree.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        memory: Option<&Tensor<B, 3>>,
        masks: &DecoderMasks<B>,
        weights: AttentionWeights,
    ) -> DecoderOutput<B> {
        let mut caches = self.caches(memory, Keep::Memory);
        self.forward_cached(x, &mut caches, masks, weights)
    }

    pub(crate) fn caches(&self, memory: Option<&Tensor<B, 3>>, keep: Keep) -> Vec<LayerCache<B>> {
        let caches = self.layers.iter().map(|layer| layer.cache(memory, keep));
        caches.collect()
    }

    /// Applies the stack to the target positions after those in the caches.
    pub(crate) fn forward_cached(
        &self,
        x: Tensor<B, 3>,
        caches: &mut [LayerCache<B>],
        masks: &DecoderMasks<B>,
        weights: AttentionWeights,
    ) -> DecoderOutput<B> {
        let count = self.layers.len();
        assert_eq!(
            caches.len(),
            count,
            "caches for a decoder of {count} layers"
        );
        let mut output = DecoderOutput {
            hidden: x,
            self_attention: Vec::new(),
            cross_attention: Vec::new(),
        };
        for (layer, cache) in self.layers.iter().zip(caches) {
            let next = layer.forward_cached(output.hidden, cache, masks, weights);
            output.hidden = next.hidden;
            output.self_attention.extend(next.self_attention);
            output.cross_attention.extend(next.cross_attention);
        }
        if let Some(norm) = &self.final_norm {
            output.hidden = norm.forward(output.hidden);
        }
        output
    }
}
