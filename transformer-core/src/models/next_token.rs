//! [`NextToken`] for the encoder–decoder: from sources to the log-probabilities of next tokens.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};

use crate::decoding::{
    Next, NextToken, RequestProblem, Vocabulary, check_batch, column, label_log_probs,
    log_probs_without, next_tokens, padded, to_host, unknown_token,
};
use crate::models::config::TransformerConfig;
use crate::models::transformer::Transformer;
use crate::nn::cache::{Cache, LayerState};
use transformer_cpu::Threads;
use transformer_kernels::AttentionWeights;

impl<B: Backend> NextToken for Transformer<B> {
    type State = Cache<B, LayerState<B>>;

    fn vocabulary(&self) -> Vocabulary {
        self.config().vocabulary()
    }

    fn source_vocab_size(&self) -> Option<usize> {
        Some(self.config().src_vocab_size)
    }

    fn max_target_len(&self) -> Option<usize> {
        self.config().max_len()
    }

    fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
        self.config().check_source(source)
    }

    fn start(&self, sources: &[&[u32]], _: Threads) -> Cache<B, LayerState<B>> {
        check_batch(sources);
        let src = padded(sources, self.config().pad_id, &self.device());
        self.start_decoding(&self.encode(src))
    }

    fn next(
        &self,
        last: &[u32],
        cache: &mut Cache<B, LayerState<B>>,
        attention: AttentionWeights,
    ) -> Next {
        self.predict(last, cache, attention, None)
    }

    fn next_best(
        &self,
        last: &[u32],
        cache: &mut Cache<B, LayerState<B>>,
        attention: AttentionWeights,
        count: usize,
    ) -> Next {
        self.predict(last, cache, attention, Some(count))
    }

    fn read(&self, targets: &[&[u32]], cache: &mut Cache<B, LayerState<B>>) -> Vec<Vec<f32>> {
        label_log_probs(
            targets,
            self.config().special_tokens(),
            &self.device(),
            |tokens| {
                self.decode_next(tokens, cache, AttentionWeights::Discard)
                    .hidden
            },
            |rows| log_probs_without(self.generate(rows), &self.config().excluded_tokens),
        )
    }

    fn select(&self, cache: &mut Cache<B, LayerState<B>>, sources: &[usize], rows: &[usize]) {
        cache.select(sources, rows);
    }
}

impl<B: Backend> Transformer<B> {
    /// Appends a token to every row, and predicts the next ones: only the `likeliest`, if they are given.
    fn predict(
        &self,
        last: &[u32],
        cache: &mut Cache<B, LayerState<B>>,
        attention: AttentionWeights,
        likeliest: Option<usize>,
    ) -> Next {
        let output = self.decode_next(column(last, &self.device()), cache, attention);
        let logits = self.generate(output.hidden).squeeze_dim::<2>(1);
        let next = next_tokens(logits, &self.config().excluded_tokens, likeliest);
        match attention {
            AttentionWeights::Discard => next,
            AttentionWeights::Return => next.with_attention(to_host(mean(output.cross_attention))),
        }
    }
}

impl TransformerConfig {
    /// The vocabulary of targets.
    pub(crate) fn vocabulary(&self) -> Vocabulary {
        Vocabulary {
            size: self.tgt_vocab_size,
            special_tokens: self.special_tokens(),
        }
    }

    pub(crate) fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
        let length = source.len();
        if self.is_language_model() {
            return match length {
                0 => Ok(()),
                length => Err(RequestProblem::Unread { length }),
            };
        }
        if length == 0 {
            return Err(RequestProblem::Empty);
        }
        if let Some(max_len) = self.max_len().filter(|&max_len| length > max_len) {
            return Err(RequestProblem::TooLong { length, max_len });
        }
        let vocab_size = self.src_vocab_size;
        match unknown_token(source, vocab_size) {
            None => Ok(()),
            Some(token) => Err(RequestProblem::UnknownToken { token, vocab_size }),
        }
    }
}

/// The mean over layers and heads of a token's attention weights: `[rows, src_len]`.
fn mean<B: Backend>(layers: Vec<Tensor<B, 4>>) -> Tensor<B, 2> {
    // [layers, rows, n_heads, 1, src_len]
    let all: Tensor<B, 5> = Tensor::stack(layers, 0);
    let [_, rows, _, _, src_len] = all.dims();
    let mean = all.cast(DType::F32).mean_dim(2).mean_dim(0);
    mean.reshape([rows, src_len])
}
