//! The decoder (§3.1).

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::attention::{CrossAttention, SelfAttention};
use crate::cache::{LayerCache, TargetCache};
use crate::config::{LayerConfig, TransformerConfig};
use crate::feed_forward::PositionwiseFeedForward;
use crate::init::WeightInit;
use crate::layer_norm::LayerNorm;
use crate::mask::AttentionMask;
use crate::sublayer::Sublayer;

/// Where the decoder puts the attention weights it is asked for, one entry per layer.
#[derive(Debug, Clone)]
pub struct DecoderMaps<B: Backend> {
    /// Self-attention: `[batch, n_heads, tgt_len, key_len]`.
    pub self_attention: Vec<Tensor<B, 4>>,
    /// Cross-attention: `[batch, n_heads, tgt_len, src_len]`.
    pub cross_attention: Vec<Tensor<B, 4>>,
}

impl<B: Backend> Default for DecoderMaps<B> {
    fn default() -> Self {
        Self {
            self_attention: Vec::new(),
            cross_attention: Vec::new(),
        }
    }
}

/// The masks of a decoder call: one for each kind of attention.
#[derive(Debug, Clone)]
pub struct DecoderMasks<B: Backend> {
    /// The future, the target's padding, and what else is in the cache.
    pub self_attention: AttentionMask<B>,
    /// The source's padding.
    pub cross_attention: AttentionMask<B>,
}

/// Masked self-attention, cross-attention to the memory, then the feed-forward network, each
/// inside its [`Sublayer`].
#[derive(Module, Debug)]
pub struct DecoderLayer<B: Backend> {
    /// Each position looks at those before it.
    pub self_attention: SelfAttention<B>,
    /// Around the self-attention.
    pub self_attention_sublayer: Sublayer<B>,
    /// Each position looks at the memory.
    pub cross_attention: CrossAttention<B>,
    /// Around the cross-attention.
    pub cross_attention_sublayer: Sublayer<B>,
    /// Each position by itself.
    pub feed_forward: PositionwiseFeedForward<B>,
    /// Around the feed-forward network.
    pub feed_forward_sublayer: Sublayer<B>,
}

impl<B: Backend> DecoderLayer<B> {
    /// A new one, drawn from `init`.
    pub fn new(config: &LayerConfig, init: &mut WeightInit, device: &B::Device) -> Self {
        Self {
            self_attention: SelfAttention::new(config, init, device),
            self_attention_sublayer: Sublayer::new(config, device),
            cross_attention: CrossAttention::new(config, init, device),
            cross_attention_sublayer: Sublayer::new(config, device),
            feed_forward: PositionwiseFeedForward::new(config, init, device),
            feed_forward_sublayer: Sublayer::new(config, device),
        }
    }

    /// One layer, for the target positions after those in the cache. Where a source has several targets,
    /// their positions stand side by side.
    ///
    /// # Shapes
    /// - x: `[batch, tgt_len, d_model]`
    /// - output: `[batch, tgt_len, d_model]`
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        cache: &mut LayerCache<B>,
        masks: &DecoderMasks<B>,
        maps: Option<&mut DecoderMaps<B>>,
    ) -> Tensor<B, 3> {
        let LayerCache { memory, target } = cache;
        let (self_maps, cross_maps) = match maps {
            Some(maps) => (
                Some(&mut maps.self_attention),
                Some(&mut maps.cross_attention),
            ),
            None => (None, None),
        };
        let x = self.self_attention_sublayer.forward(x, |x| {
            let mask = Some(&masks.self_attention);
            self.self_attention
                .forward(x, mask, target.as_mut(), self_maps)
        });
        let x = self.cross_attention_sublayer.forward(x, |x| {
            let mask = Some(&masks.cross_attention);
            self.cross_attention.forward(x, memory, mask, cross_maps)
        });
        self.feed_forward_sublayer
            .forward(x, |x| self.feed_forward.forward(x))
    }
}

/// A stack of decoder layers, with a norm on top where the configuration asks for one.
#[derive(Module, Debug)]
pub struct Decoder<B: Backend> {
    /// The layers, from the input up.
    pub layers: Vec<DecoderLayer<B>>,
    /// On top of the stack.
    pub final_norm: Option<LayerNorm<B>>,
}

impl<B: Backend> Decoder<B> {
    /// A new one, drawn from `init`.
    pub fn new(config: &TransformerConfig, init: &mut WeightInit, device: &B::Device) -> Self {
        let layer = config.layer();
        Self {
            layers: (0..config.n_decoder_layers)
                .map(|_| DecoderLayer::new(&layer, init, device))
                .collect(),
            final_norm: config.final_norm.then(|| LayerNorm::new(&layer, device)),
        }
    }

    /// An empty cache over a memory: every layer's keys and values of it.
    ///
    /// # Shapes
    /// - memory: `[batch, src_len, d_model]`
    pub fn project_memory(&self, memory: &Tensor<B, 3>) -> Vec<LayerCache<B>> {
        self.layers
            .iter()
            .map(|layer| LayerCache {
                memory: layer.cross_attention.project_memory(memory.clone()),
                target: Some(TargetCache::default()),
            })
            .collect()
    }

    /// The whole stack, for the target positions after those in the cache, as in
    /// [`DecoderLayer::forward`].
    ///
    /// # Shapes
    /// - x: `[batch, tgt_len, d_model]`
    /// - output: `[batch, tgt_len, d_model]`
    ///
    /// # Panics
    /// When the cache is of another number of layers.
    pub fn forward(
        &self,
        mut x: Tensor<B, 3>,
        cache: &mut [LayerCache<B>],
        masks: &DecoderMasks<B>,
        mut maps: Option<&mut DecoderMaps<B>>,
    ) -> Tensor<B, 3> {
        assert_eq!(
            cache.len(),
            self.layers.len(),
            "a cache of {} layers for a decoder of {}",
            cache.len(),
            self.layers.len()
        );
        for (layer, cache) in self.layers.iter().zip(cache) {
            x = layer.forward(x, cache, masks, maps.as_deref_mut());
        }
        match &self.final_norm {
            Some(norm) => norm.forward(x),
            None => x,
        }
    }
}
