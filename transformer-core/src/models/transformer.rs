//! The whole model (§3): encode, decode, and forward = decode ∘ encode.

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use crate::models::config::TransformerConfig;
use crate::nn::block::Context;
use crate::nn::cache::{Cache, LayerState};
use crate::nn::dropout::Dropout;
use crate::nn::embedding::TokenEmbedding;
use crate::nn::error::ConfigError;
use crate::nn::generator::Generator;
use crate::nn::init::WeightInit;
use crate::nn::layer::Layer;
use crate::nn::mask::{padding_positions, target_mask};
use crate::nn::norm::Norm;
use crate::nn::positions::PositionalEncoding;
use crate::nn::stack::{Memory, Stack, StackOutput};
use transformer_kernels::AttentionWeights;
use transformer_kernels::Mask;

/// The encoder's output, with attention weights if requested.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Encoded<B: Backend> {
    /// The encoder's output.
    pub memory: Memory<B>,
    /// Each layer's attention weights, `[batch, n_heads, src_len, src_len]`; empty unless requested.
    pub self_attention: Vec<Tensor<B, 4>>,
}

/// The encoder–decoder Transformer (§3).
///
/// No position attends to padding (`pad_id`), so that a sentence has the same output in a batch as alone. The first
/// token of a target is attended to even if `bos_id` is `pad_id`.
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::{Int, Tensor};
/// use transformer_core::TransformerConfig;
///
/// # fn main() -> Result<(), transformer_core::nn::ConfigError> {
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
    /// Embedding of source tokens, and of target tokens if they are tied.
    pub src_embedding: TokenEmbedding<B>,
    /// Embedding of target tokens; `None` if tied to the source's.
    pub tgt_embedding: Option<TokenEmbedding<B>>,
    /// Positions of the source, and of the target unless they are learned.
    pub src_positions: PositionalEncoding<B>,
    /// Learned positions of the target; `None` if positions are fixed.
    pub tgt_positions: Option<PositionalEncoding<B>>,
    /// The norm after the source's embeddings and positions; `None` unless configured.
    pub src_embedding_norm: Option<Norm<B>>,
    /// The norm after the target's embeddings and positions; `None` unless configured.
    pub tgt_embedding_norm: Option<Norm<B>>,
    /// The encoder stack.
    pub encoder: Stack<B, Layer<B>>,
    /// The decoder stack.
    pub decoder: Stack<B, Layer<B>>,
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
    /// When the configuration is invalid, or has no encoder.
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
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> Result<Transformer<B>, ConfigError> {
        self.validate()?;
        if self.is_language_model() {
            let key = "n_encoder_layers";
            return Err(ConfigError::Zero { key });
        }
        let positions = self.positional_encoding();
        let src_embedding = self.embedding(self.src_vocab_size).init_from(init, device);
        let tgt_embedding = (!self.tying.ties_source_target())
            .then(|| self.embedding(self.tgt_vocab_size).init_from(init, device));
        let src_positions = positions.init_from(init, device);
        let tgt_positions = self.max_len().map(|_| positions.init_from(init, device));
        let embedding_norm = || {
            let norm = self.norm_config();
            self.embedding_norm.then(|| norm.init(device))
        };
        Ok(Transformer {
            src_embedding,
            tgt_embedding,
            src_positions,
            tgt_positions,
            src_embedding_norm: embedding_norm(),
            tgt_embedding_norm: embedding_norm(),
            encoder: self.encoder().init_from(init, device),
            decoder: self.decoder().init_from(init, device),
            generator: self.generator().init_from(init, device),
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

    /// The device that the model is on.
    pub fn device(&self) -> B::Device {
        self.src_embedding.weight.device()
    }

    /// Encodes a batch of sources.
    ///
    /// # Shapes
    /// - src: `[batch, src_len]`
    /// - output: `[batch, src_len, d_model]` and its padding
    ///
    /// # Panics
    /// When `src_len` exceeds the model's learned positions. The backend may panic on tokens outside the vocabulary,
    /// which are not checked here.
    pub fn encode(&self, src: Tensor<B, 2, Int>) -> Memory<B> {
        self.encode_with(src, AttentionWeights::Discard).memory
    }

    /// [`encode`](Self::encode), with each layer's attention weights if requested.
    ///
    /// # Shapes
    /// - src: `[batch, src_len]`
    /// - output: see [`Encoded`]
    ///
    /// # Panics
    /// As [`encode`](Self::encode).
    pub fn encode_with(&self, src: Tensor<B, 2, Int>, weights: AttentionWeights) -> Encoded<B> {
        let padding = padding_positions(src.clone(), self.config.pad_id);
        let mask = Mask::padding(padding.clone());
        let x = self
            .src_positions
            .forward(self.src_embedding.forward(src), 0);
        let x = self.enter(x, self.src_embedding_norm.as_ref());
        let at = Context {
            mask: Some(&mask),
            weights,
            ..Context::default()
        };
        let output = self.encoder.forward(x, &at);
        Encoded {
            memory: Memory {
                hidden: output.hidden,
                padding,
            },
            self_attention: output.self_attention,
        }
    }

    /// Reads a batch of targets, each position attending to the memory, to itself and to the positions before it.
    ///
    /// # Shapes
    /// - tgt: `[batch, tgt_len]`, starting with `<bos>`
    /// - output: `[batch, tgt_len, d_model]`
    ///
    /// # Panics
    /// When `tgt_len` exceeds the model's learned positions, or the batch size differs from the
    /// memory's.
    pub fn decode(&self, tgt: Tensor<B, 2, Int>, memory: &Memory<B>) -> Tensor<B, 3> {
        let mask = target_mask(tgt.clone(), self.config.special_tokens());
        let memory_mask = Mask::padding(memory.padding.clone());
        let at = Context {
            mask: Some(&mask),
            memory: Some(&memory.hidden),
            memory_mask: Some(&memory_mask),
            ..Context::default()
        };
        self.decoder.forward(self.embed_target(tgt, 0), &at).hidden
    }

    /// An empty cache, for decoding targets of the memory step by step.
    pub fn start_decoding(&self, memory: &Memory<B>) -> Cache<B, LayerState<B>> {
        let [sources, _] = memory.padding.dims();
        self.decoder.start(Some(memory), sources)
    }

    /// Reads the target tokens that follow those in the cache: one or more per row.
    ///
    /// # Shapes
    /// - tgt: `[rows, new_len]`, one or more rows per source; the rows of a source are adjacent
    /// - output: see [`StackOutput`], for the new tokens only, with `batch` = rows
    ///
    /// # Panics
    /// When cached and new tokens together exceed the model's learned positions, the number of rows
    /// differs from the cache's, or `new_len` is zero.
    pub fn decode_next(
        &self,
        tgt: Tensor<B, 2, Int>,
        cache: &mut Cache<B, LayerState<B>>,
        weights: AttentionWeights,
    ) -> StackOutput<B> {
        let x = self.embed_target(tgt.clone(), cache.len());
        let special_tokens = self.config.special_tokens();
        self.decoder.next(tgt, x, cache, special_tokens, weights)
    }

    /// The decoder's input for target tokens at the positions from `first` on.
    fn embed_target(&self, tgt: Tensor<B, 2, Int>, first: usize) -> Tensor<B, 3> {
        let positions = self.tgt_positions.as_ref().unwrap_or(&self.src_positions);
        let x = positions.forward(self.target_embedding().forward(tgt), first);
        self.enter(x, self.tgt_embedding_norm.as_ref())
    }

    /// Applies the embedding norm, if there is one, and dropout to the sum of embeddings and positions.
    fn enter(&self, x: Tensor<B, 3>, norm: Option<&Norm<B>>) -> Tensor<B, 3> {
        let x = match norm {
            Some(norm) => norm.forward(x),
            None => x,
        };
        self.dropout.forward(x)
    }

    /// Logits of the next token, from the decoder's output at all positions or at selected ones.
    ///
    /// # Shapes
    /// - hidden: `[.., d_model]`, such as `[batch, tgt_len, d_model]`, or selected rows `[rows, d_model]`
    /// - output: `[.., tgt_vocab_size]`
    ///
    /// # Panics
    /// When `hidden` is not `d_model` wide.
    pub fn generate<const D: usize>(&self, hidden: Tensor<B, D>) -> Tensor<B, D> {
        let embedding = self.target_embedding();
        self.generator.forward(hidden, Some(embedding))
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
