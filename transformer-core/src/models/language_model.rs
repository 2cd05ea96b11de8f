//! A language model: the decoder alone.

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use crate::nn::decoder::{Decoder, DecoderOutput};
use crate::nn::decoder_cache::DecoderCache;
use crate::decoding::{
    NextToken, NextTokenOutput, Vocabulary, check_batch, column, label_log_probs, log_probs,
};
use crate::nn::dropout::Dropout;
use crate::nn::embedding::TokenEmbedding;
use crate::error::{ConfigError, RequestProblem};
use crate::nn::generator::Generator;
use crate::nn::init::WeightInit;
use crate::models::language_model_config::LanguageModelConfig;
use transformer_kernels::AttentionWeights;
use crate::nn::positions::PositionalEncoding;

/// The Transformer's decoder without a memory: each position predicts the next token from those
/// before it.
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::{Int, Tensor};
/// use transformer_core::{LanguageModelConfig, MaxLength, Request, greedy};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Default::default();
/// let config = LanguageModelConfig {
///     d_model: 64,
///     n_heads: 4,
///     n_layers: 2,
///     ..LanguageModelConfig::base(100)
/// };
/// let model = config.init::<NdArray>(42, &device)?;
///
/// let tokens = Tensor::<NdArray, 2, Int>::from_data([[1, 8, 4]], &device);
/// assert_eq!(model.forward(tokens).dims(), [1, 3, 100]);
///
/// // Go on from two tokens.
/// let hypotheses = greedy(&model, &[Request::prompt([8, 4])], MaxLength::Tokens(10))?;
/// assert_eq!(hypotheses[0].tokens[..2], [8, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct LanguageModel<B: Backend> {
    /// Embedding of tokens.
    pub embedding: TokenEmbedding<B>,
    /// Positions of tokens.
    pub positions: PositionalEncoding<B>,
    /// The decoder stack.
    pub decoder: Decoder<B>,
    /// Projection to logits.
    pub generator: Generator<B>,
    dropout: Dropout,
    #[module(skip)]
    config: LanguageModelConfig,
}

impl LanguageModelConfig {
    /// A model with initial weights drawn from `seed`, the same on every backend.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn init<B: Backend>(
        &self,
        seed: u64,
        device: &B::Device,
    ) -> Result<LanguageModel<B>, ConfigError> {
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
    ) -> Result<LanguageModel<B>, ConfigError> {
        self.validate()?;
        let parts = self.as_decoder();
        Ok(LanguageModel {
            embedding: parts.embedding(self.vocab_size).init_from(init, device),
            positions: parts.positional_encoding().init_from(init, device),
            decoder: self.decoder().init_from(init, device),
            generator: parts.generator().init_from(init, device),
            dropout: Dropout::new(self.dropout),
            config: self.clone(),
        })
    }
}

impl<B: Backend> LanguageModel<B> {
    /// The configuration that the model was built from.
    pub fn config(&self) -> &LanguageModelConfig {
        &self.config
    }

    /// The device that the model is on.
    pub fn device(&self) -> B::Device {
        self.embedding.weight.device()
    }

    /// Logits of the token after each position: generate ∘ decode.
    ///
    /// # Shapes
    /// - tokens: `[batch, len]`, starting with `<bos>`
    /// - output: `[batch, len, vocab_size]`
    ///
    /// # Panics
    /// As [`decode`](Self::decode).
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.generate(self.decode(tokens))
    }

    /// Reads a batch of sequences, each position attending to those before it.
    ///
    /// # Shapes
    /// - tokens: `[batch, len]`, starting with `<bos>`
    /// - output: `[batch, len, d_model]`
    ///
    /// # Panics
    /// When `len` exceeds the model's learned positions.
    pub fn decode(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let [batch, _] = tokens.dims();
        let cache = &mut self.decoder.read_once_alone(batch);
        self.decode_next(tokens, cache, AttentionWeights::Discard)
            .hidden
    }

    /// An empty cache, for decoding this many sequences step by step.
    pub fn start_decoding(&self, sequences: usize) -> DecoderCache<B> {
        self.decoder.start_decoding_alone(sequences)
    }

    /// Reads the tokens after those in the cache: one, several, or all.
    ///
    /// # Shapes
    /// - tokens: `[rows, new_len]`, one or more rows for each sequence, those of a sequence together
    /// - output: see [`DecoderOutput`], for the new tokens only, with `batch` = rows
    ///
    /// # Panics
    /// When cached and new tokens together exceed the model's learned positions, the number of rows
    /// differs from the cache's, or `new_len` is zero.
    pub fn decode_next(
        &self,
        tokens: Tensor<B, 2, Int>,
        cache: &mut DecoderCache<B>,
        weights: AttentionWeights,
    ) -> DecoderOutput<B> {
        let x = self.embedding.forward(tokens.clone());
        let x = self.dropout.forward(self.positions.forward(x, cache.len()));
        let special_tokens = self.config.special_tokens();
        self.decoder
            .decode_next(tokens, x, cache, special_tokens, weights)
    }

    /// Logits of the next token, from the decoder's output at all positions or at chosen ones.
    ///
    /// # Shapes
    /// - hidden: `[.., d_model]`, such as `[batch, len, d_model]`, or chosen rows `[rows, d_model]`
    /// - output: `[.., vocab_size]`
    ///
    /// # Panics
    /// When `hidden` is not `d_model` wide.
    pub fn generate<const D: usize>(&self, hidden: Tensor<B, D>) -> Tensor<B, D> {
        self.generator.forward(hidden, Some(&self.embedding))
    }
}

impl<B: Backend> NextToken<B> for LanguageModel<B> {
    type State = DecoderCache<B>;

    fn device(&self) -> B::Device {
        self.device()
    }

    fn vocabulary(&self) -> Vocabulary {
        Vocabulary {
            size: self.config.vocab_size,
            special_tokens: self.config.special_tokens(),
        }
    }

    fn max_target_len(&self) -> Option<usize> {
        self.config.max_len()
    }

    fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
        match source.len() {
            0 => Ok(()),
            length => Err(RequestProblem::Unread { length }),
        }
    }

    fn start(&self, sources: &[&[u32]]) -> DecoderCache<B> {
        check_batch(sources);
        self.start_decoding(sources.len())
    }

    fn next_token(
        &self,
        last: &[u32],
        cache: &mut DecoderCache<B>,
        _: AttentionWeights,
    ) -> NextTokenOutput<B> {
        let tokens = column(last, &self.device());
        let output = self.decode_next(tokens, cache, AttentionWeights::Discard);
        let logits = self.generate(output.hidden).squeeze_dim::<2>(1);
        NextTokenOutput::new(log_probs(logits))
    }

    fn select(&self, cache: &mut DecoderCache<B>, sources: &[usize], rows: &[usize]) {
        cache.select(sources, rows);
    }

    fn target_log_probs(&self, _: &[&[u32]], targets: &[&[u32]]) -> Tensor<B, 2> {
        label_log_probs(
            self,
            targets,
            |tokens| self.decode(tokens),
            |rows| log_probs(self.generate(rows)),
        )
    }
}
