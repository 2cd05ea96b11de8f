//! The whole model (§3): encode, decode, and forward = decode ∘ encode.

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};

use crate::cache::{DecoderCache, by_target};
use crate::config::TransformerConfig;
use crate::decoder::{Decoder, DecoderMaps, DecoderMasks};
use crate::dropout::Dropout;
use crate::embedding::TokenEmbedding;
use crate::encoder::Encoder;
use crate::error::ConfigError;
use crate::generator::Generator;
use crate::init::WeightInit;
use crate::mask::{AttentionMask, padding_positions};
use crate::positional_encoding::PositionalEncoding;

/// What the encoder computes: the decoder's view of a batch of sources.
#[derive(Debug, Clone)]
pub struct Memory<B: Backend> {
    /// `[batch, src_len, d_model]`
    pub hidden: Tensor<B, 3>,
    /// The source's padding, `[batch, src_len]`, `true` = blocked.
    pub padding: Tensor<B, 2, Bool>,
}

/// The encoder–decoder Transformer.
///
/// Wherever tokens hold the configuration's `pad_id` nothing attends to them, so that a row of a
/// batch computes what it would compute alone.
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::{Int, Tensor};
/// use transformer_core::TransformerConfig;
///
/// # fn main() -> Result<(), transformer_core::ConfigError> {
/// let device = Default::default();
/// let model = TransformerConfig::notebook_mini(1000).init::<NdArray>(42, &device)?;
///
/// let src = Tensor::<NdArray, 2, Int>::from_data([[5, 3, 7, 2, 0]], &device);
/// let tgt = Tensor::<NdArray, 2, Int>::from_data([[1, 8, 4]], &device);
/// let logits = model.forward(src, tgt);
/// assert_eq!(logits.dims(), [1, 3, 1000]);
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct Transformer<B: Backend> {
    /// Embedding of source tokens; of target tokens too where they are tied.
    pub src_embedding: TokenEmbedding<B>,
    /// Embedding of target tokens; `None` where it is the source's.
    pub tgt_embedding: Option<TokenEmbedding<B>>,
    /// Positions of the source; of the target too unless they are learned.
    pub src_positions: PositionalEncoding<B>,
    /// Learned positions of the target; `None` where positions are sinusoidal.
    pub tgt_positions: Option<PositionalEncoding<B>>,
    /// The encoder stack.
    pub encoder: Encoder<B>,
    /// The decoder stack.
    pub decoder: Decoder<B>,
    /// Projection to logits.
    pub generator: Generator<B>,
    dropout: Dropout,
    #[module(skip)]
    config: TransformerConfig,
}

impl TransformerConfig {
    /// A model with initial weights drawn from `seed`, the same on every backend.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn init<B: Backend>(
        &self,
        seed: u64,
        device: &B::Device,
    ) -> Result<Transformer<B>, ConfigError> {
        self.init_from(&mut WeightInit::new(seed), device)
    }

    /// A model with initial weights from `init`.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn init_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> Result<Transformer<B>, ConfigError> {
        self.validate()?;
        let src_embedding = TokenEmbedding::new(self.src_vocab_size, self, init, device);
        let tgt_embedding = (!self.tying.ties_source_target())
            .then(|| TokenEmbedding::new(self.tgt_vocab_size, self, init, device));
        let src_positions = PositionalEncoding::new(self, init, device);
        let tgt_positions = self
            .max_len()
            .map(|_| PositionalEncoding::new(self, init, device));
        Ok(Transformer {
            src_embedding,
            tgt_embedding,
            src_positions,
            tgt_positions,
            encoder: Encoder::new(self, init, device),
            decoder: Decoder::new(self, init, device),
            generator: Generator::new(self, init, device),
            dropout: Dropout::new(self.dropout),
            config: self.clone(),
        })
    }
}

impl<B: Backend> Transformer<B> {
    /// The configuration that the model was built from.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// Reads a batch of sources.
    ///
    /// # Shapes
    /// - src: `[batch, src_len]`
    /// - output: `[batch, src_len, d_model]` and its padding
    ///
    /// # Panics
    /// When `src_len` passes the model's learned positions. A token outside the vocabulary is the
    /// backend's to refuse.
    pub fn encode(&self, src: Tensor<B, 2, Int>) -> Memory<B> {
        self.encode_with_maps(src, None)
    }

    /// [`encode`](Self::encode), with each layer's attention weights.
    ///
    /// # Shapes
    /// - maps, one entry per layer: `[batch, n_heads, src_len, src_len]`
    ///
    /// # Panics
    /// As [`encode`](Self::encode).
    pub fn encode_with_maps(
        &self,
        src: Tensor<B, 2, Int>,
        maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Memory<B> {
        let padding = padding_positions(src.clone(), self.config.pad_id);
        let mask = AttentionMask::padding(padding.clone());
        let x = self
            .src_positions
            .forward(self.src_embedding.forward(src), 0);
        let hidden = self
            .encoder
            .forward(self.dropout.forward(x), Some(&mask), maps);
        Memory { hidden, padding }
    }

    /// Reads a batch of targets, each position seeing the memory and the positions before it.
    ///
    /// # Shapes
    /// - tgt: `[batch, tgt_len]`, starting with `<bos>`
    /// - output: `[batch, tgt_len, d_model]`
    ///
    /// # Panics
    /// When `tgt_len` passes the model's learned positions, or the batch is not the memory's.
    pub fn decode(&self, tgt: Tensor<B, 2, Int>, memory: &Memory<B>) -> Tensor<B, 3> {
        let mut cache = self.empty_cache(memory);
        for layer in &mut cache.layers {
            // Nothing comes after.
            layer.target = None;
        }
        self.decode_next(tgt, &mut cache, None)
    }

    /// An empty cache, for decoding step by step.
    pub fn start_decoding(&self, memory: &Memory<B>) -> DecoderCache<B> {
        let mut cache = self.empty_cache(memory);
        for (layer, cache) in self.decoder.layers.iter().zip(&mut cache.layers) {
            layer.cross_attention.lay_out(&mut cache.memory);
        }
        cache
    }

    fn empty_cache(&self, memory: &Memory<B>) -> DecoderCache<B> {
        let layers = self.decoder.project_memory(&memory.hidden);
        DecoderCache::new(layers, memory.padding.clone())
    }

    /// Reads the target tokens after those in the cache: one, several, or all.
    ///
    /// # Shapes
    /// - tgt: `[batch, new_len]`, one row for each source or several, those of a source together
    /// - output: `[batch, new_len, d_model]`, for the new tokens alone
    ///
    /// # Panics
    /// When cached and new tokens together pass the model's learned positions, the batch is not the
    /// cache's, or there is no token.
    pub fn decode_next(
        &self,
        tgt: Tensor<B, 2, Int>,
        cache: &mut DecoderCache<B>,
        maps: Option<&mut DecoderMaps<B>>,
    ) -> Tensor<B, 3> {
        let [rows, new_len] = tgt.dims();
        let first = cache.len();
        let masks = DecoderMasks {
            self_attention: cache.append(tgt.clone(), self.config.pad_id),
            cross_attention: cache.memory_mask(),
        };
        let positions = self.tgt_positions.as_ref().unwrap_or(&self.src_positions);
        let x = positions.forward(self.target_embedding().forward(tgt), first);
        // The tokens of a source's targets stand side by side, as queries to the same keys.
        let [_, _, d_model] = x.dims();
        let x = x.reshape([cache.sources() as i32, -1, d_model as i32]);
        let mut all_maps = maps.is_some().then(DecoderMaps::default);
        let hidden = self.decoder.forward(
            self.dropout.forward(x),
            &mut cache.layers,
            &masks,
            all_maps.as_mut(),
        );
        if let (Some(maps), Some(all)) = (maps, all_maps) {
            let own = all.self_attention.into_iter();
            maps.self_attention
                .extend(own.map(|map| cache.own_places(map)));
            let cross = all.cross_attention.into_iter();
            maps.cross_attention
                .extend(cross.map(|map| by_target(map, rows)));
        }
        hidden.reshape([rows, new_len, d_model])
    }

    /// Logits of the next token, from what the decoder computed.
    ///
    /// # Shapes
    /// - hidden: `[batch, tgt_len, d_model]`
    /// - output: `[batch, tgt_len, tgt_vocab_size]`
    pub fn generate(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        self.generator.forward(hidden, self.target_embedding())
    }

    /// Logits for every target position: generate ∘ decode ∘ encode.
    ///
    /// # Shapes
    /// - src: `[batch, src_len]`
    /// - tgt: `[batch, tgt_len]`, starting with `<bos>`
    /// - output: `[batch, tgt_len, tgt_vocab_size]`
    ///
    /// # Panics
    /// As [`encode`](Self::encode) and [`decode`](Self::decode).
    pub fn forward(&self, src: Tensor<B, 2, Int>, tgt: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.generate(self.decode(tgt, &self.encode(src)))
    }

    /// The embedding of target tokens, wherever it is stored.
    pub fn target_embedding(&self) -> &TokenEmbedding<B> {
        self.tgt_embedding.as_ref().unwrap_or(&self.src_embedding)
    }
}
