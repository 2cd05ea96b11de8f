//! A decoder-only language model.

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use crate::decoding::RequestProblem;
use crate::decoding::{
    Next, NextToken, Vocabulary, check_batch, column, label_log_probs, log_probs_without,
    next_tokens, padded,
};
use crate::models::config::TransformerConfig;
use crate::nn::block::Context;
use crate::nn::cache::{Cache, LayerState};
use crate::nn::dropout::Dropout;
use crate::nn::embedding::TokenEmbedding;
use crate::nn::error::ConfigError;
use crate::nn::generator::Generator;
use crate::nn::init::WeightInit;
use crate::nn::layer::Layer;
use crate::nn::mask::target_mask;
use crate::nn::norm::Norm;
use crate::nn::positions::PositionalEncoding;
use crate::nn::stack::{Stack, StackOutput};
use transformer_cpu::Threads;
use transformer_kernels::AttentionWeights;

/// A decoder-only Transformer: each position predicts the next token from the tokens so far.
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::{Int, Tensor};
/// use transformer_core::{Request, TransformerConfig};
/// use transformer_core::decoding::{MaxLength, greedy};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Default::default();
/// let config = TransformerConfig {
///     d_model: 64,
///     n_heads: 4,
///     n_decoder_layers: 2,
///     ..TransformerConfig::language_model(100)
/// };
/// let model = config.init_language_model::<NdArray>(42, &device)?;
///
/// let tokens = Tensor::<NdArray, 2, Int>::from_data([[1, 8, 4]], &device);
/// assert_eq!(model.forward(tokens).dims(), [1, 3, 100]);
///
/// // Continue a prompt of two tokens.
/// let hypotheses = greedy(&model, &[Request::prompt([8, 4])], MaxLength::Tokens(10))?;
/// assert_eq!(hypotheses[0].tokens[..2], [8, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct LanguageModel<B: Backend> {
    /// Embedding of tokens.
    pub embedding: TokenEmbedding<B>,
    /// Positional encoding.
    pub positions: PositionalEncoding<B>,
    /// The norm after embeddings and positions; `None` unless configured.
    pub embedding_norm: Option<Norm<B>>,
    /// The decoder stack, without cross-attention.
    pub decoder: Stack<B, Layer<B>>,
    /// Projection to logits.
    pub generator: Generator<B>,
    dropout: Dropout,
    #[module(skip)]
    config: TransformerConfig,
}

impl TransformerConfig {
    /// A language model with initial weights drawn from `seed`, the same on every backend.
    ///
    /// # Errors
    /// When the configuration is invalid, or has an encoder.
    pub fn init_language_model<B: Backend>(
        &self,
        seed: u64,
        device: &B::Device,
    ) -> Result<LanguageModel<B>, ConfigError> {
        self.init_language_model_from(&mut WeightInit::new(seed), device)
    }

    /// A language model with initial weights from `init`.
    ///
    /// # Errors
    /// As [`init_language_model`](Self::init_language_model).
    pub fn init_language_model_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> Result<LanguageModel<B>, ConfigError> {
        self.validate()?;
        if !self.is_language_model() {
            let n_layers = self.n_encoder_layers;
            return Err(ConfigError::Encoder { n_layers });
        }
        let norm = self.norm_config();
        Ok(LanguageModel {
            embedding: self.embedding(self.tgt_vocab_size).init_from(init, device),
            positions: self.positional_encoding().init_from(init, device),
            embedding_norm: self.embedding_norm.then(|| norm.init(device)),
            decoder: self.decoder().init_from(init, device),
            generator: self.generator().init_from(init, device),
            dropout: Dropout::new(self.dropout),
            config: self.clone(),
        })
    }
}

impl<B: Backend> LanguageModel<B> {
    /// The configuration that the model was built from.
    pub fn config(&self) -> &TransformerConfig {
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

    /// Reads a batch of sequences, each position attending to itself and to the positions before it.
    ///
    /// # Shapes
    /// - tokens: `[batch, len]`, starting with `<bos>`
    /// - output: `[batch, len, d_model]`
    ///
    /// # Panics
    /// When `len` exceeds the model's learned positions.
    pub fn decode(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let mask = target_mask(tokens.clone(), self.config.special_tokens());
        let at = Context {
            mask: Some(&mask),
            ..Context::default()
        };
        self.decoder.forward(self.embed(tokens, 0), &at).hidden
    }

    /// An empty cache, for decoding `sequences` sequences step by step.
    pub fn start_decoding(&self, sequences: usize) -> Cache<B, LayerState<B>> {
        self.decoder.start(None, sequences)
    }

    /// Reads the tokens that follow those in the cache: one or more per row.
    ///
    /// # Shapes
    /// - tokens: `[rows, new_len]`, one or more rows per sequence; the rows of a sequence are adjacent
    /// - output: see [`StackOutput`], for the new tokens only, with `batch` = rows
    ///
    /// # Panics
    /// When cached and new tokens together exceed the model's learned positions, the number of rows
    /// differs from the cache's, or `new_len` is zero.
    pub fn decode_next(
        &self,
        tokens: Tensor<B, 2, Int>,
        cache: &mut Cache<B, LayerState<B>>,
        weights: AttentionWeights,
    ) -> StackOutput<B> {
        let x = self.embed(tokens.clone(), cache.len());
        let special_tokens = self.config.special_tokens();
        self.decoder.next(tokens, x, cache, special_tokens, weights)
    }

    /// The decoder's input for tokens at the positions from `first` on.
    fn embed(&self, tokens: Tensor<B, 2, Int>, first: usize) -> Tensor<B, 3> {
        let x = self.embedding.forward(tokens);
        let x = self.positions.forward(x, first);
        let x = match &self.embedding_norm {
            Some(norm) => norm.forward(x),
            None => x,
        };
        self.dropout.forward(x)
    }

    /// Logits of the next token, from the decoder's output at all positions or at selected ones.
    ///
    /// # Shapes
    /// - hidden: `[.., d_model]`, such as `[batch, len, d_model]`, or selected rows `[rows, d_model]`
    /// - output: `[.., vocab_size]`
    ///
    /// # Panics
    /// When `hidden` is not `d_model` wide.
    pub fn generate<const D: usize>(&self, hidden: Tensor<B, D>) -> Tensor<B, D> {
        self.generator.forward(hidden, Some(&self.embedding))
    }
}

impl<B: Backend> LanguageModel<B> {
    /// Appends a token to every row, and predicts the next ones: only the `likeliest`, if they are given.
    fn predict(
        &self,
        last: &[u32],
        cache: &mut Cache<B, LayerState<B>>,
        likeliest: Option<usize>,
    ) -> Next {
        let tokens = column(last, &self.device());
        let output = self.decode_next(tokens, cache, AttentionWeights::Discard);
        let logits = self.generate(output.hidden).squeeze_dim::<2>(1);
        next_tokens(logits, &self.config.excluded_tokens, likeliest)
    }
}

impl<B: Backend> NextToken for LanguageModel<B> {
    type State = Cache<B, LayerState<B>>;

    fn vocabulary(&self) -> Vocabulary {
        self.config.vocabulary()
    }

    fn max_target_len(&self) -> Option<usize> {
        self.config.max_len()
    }

    fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
        self.config.check_source(source)
    }

    fn start(&self, sources: &[&[u32]], _: Threads) -> Cache<B, LayerState<B>> {
        check_batch(sources);
        self.start_decoding(sources.len())
    }

    fn next(&self, last: &[u32], cache: &mut Cache<B, LayerState<B>>, _: AttentionWeights) -> Next {
        self.predict(last, cache, None)
    }

    fn next_best(
        &self,
        last: &[u32],
        cache: &mut Cache<B, LayerState<B>>,
        _: AttentionWeights,
        count: usize,
    ) -> Next {
        self.predict(last, cache, Some(count))
    }

    fn read(&self, targets: &[&[u32]], cache: &mut Cache<B, LayerState<B>>) -> Vec<Vec<f32>> {
        label_log_probs(
            targets,
            self.config.special_tokens(),
            &self.device(),
            |tokens| {
                self.decode_next(tokens, cache, AttentionWeights::Discard)
                    .hidden
            },
            |rows| log_probs_without(self.generate(rows), &self.config.excluded_tokens),
        )
    }

    fn read_prompts(&self, prompts: &[&[u32]], cache: &mut Cache<B, LayerState<B>>) {
        let tokens = padded(prompts, self.config.pad_id, &self.device());
        self.decode_next(tokens, cache, AttentionWeights::Discard);
    }

    fn select(&self, cache: &mut Cache<B, LayerState<B>>, sources: &[usize], rows: &[usize]) {
        cache.select(sources, rows);
    }
}
