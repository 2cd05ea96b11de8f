//! The interface between search and models, and ensembles of models.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use transformer_kernels::AttentionWeights;

use crate::decoding::batches::{to_host, unknown_token};
use crate::decoding::error::{DecodeOptionsError, RequestProblem};
use crate::special_tokens::SpecialTokens;
use transformer_cpu::Threads;

/// A model that predicts the next token: the interface that [`Search`](crate::Search),
/// [`greedy`](crate::decoding::greedy) and [`score`](crate::decoding::score) use. It does not depend on a backend:
/// values are slices on the host.
///
/// A batch has one or more sources, each with one or more targets that grow by a token at a time. The *rows* of a batch
/// are its targets; the targets of a source are adjacent. For a model without sources, such as a
/// [`LanguageModel`](crate::LanguageModel), the sources are empty.
///
/// ```
/// use transformer_core::{DecodeOptions, Request, Search};
/// use transformer_core::decoding::{
///     MaxLength, Next, NextToken, RequestProblem, SpecialTokens, Threads, Vocabulary,
/// };
/// use transformer_core::nn::AttentionWeights;
///
/// /// Prefers the token after the last one: 1, 2, 3, …; `<eos>` is 5.
/// struct Counter;
///
/// impl NextToken for Counter {
///     type State = ();
///
///     fn vocabulary(&self) -> Vocabulary {
///         let special_tokens = SpecialTokens { pad: 0, bos: 1, eos: 5, ..SpecialTokens::default() };
///         Vocabulary { size: 6, special_tokens }
///     }
///     fn check_source(&self, _source: &[u32]) -> Result<(), RequestProblem> {
///         Ok(())
///     }
///     fn start(&self, _sources: &[&[u32]], _threads: Threads) {}
///     fn next(&self, last: &[u32], _state: &mut (), _attention: AttentionWeights) -> Next {
///         let mut log_probs = vec![-10.0_f32; last.len() * 6];
///         for (row, &token) in log_probs.chunks_mut(6).zip(last) {
///             row[(token as usize + 1) % 6] = -0.1;
///         }
///         Next::new(log_probs)
///     }
///     fn select(&self, _state: &mut (), _sources: &[usize], _rows: &[usize]) {}
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = DecodeOptions { max_length: MaxLength::Tokens(9), ..DecodeOptions::beam(2) };
/// let found = Search::new(&Counter, options)?.run(&[Request::prompt([2])])?;
/// assert_eq!(found[0][0].tokens, [2, 3, 4]);
/// # Ok(())
/// # }
/// ```
pub trait NextToken: Sync {
    /// The state of a batch between two tokens, such as a key/value cache.
    type State;

    /// The vocabulary of targets.
    fn vocabulary(&self) -> Vocabulary;

    /// Size of the source vocabulary; `None` if unknown.
    fn source_vocab_size(&self) -> Option<usize> {
        None
    }

    /// The maximum length of a target in tokens, with `<eos>` but without `<bos>`; `None` if there is no limit. The
    /// model reads `<bos>` and all tokens but the last.
    fn max_target_len(&self) -> Option<usize> {
        None
    }

    /// Checks that the model can read a source.
    ///
    /// # Errors
    /// The problem.
    fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem>;

    /// Checks that the model can predict a target.
    ///
    /// # Errors
    /// The problem: the target is too long, or holds a token outside the vocabulary.
    fn check_target(&self, target: &[u32]) -> Result<(), RequestProblem> {
        let length = target.len();
        if let Some(max_len) = self.max_target_len().filter(|&max_len| length > max_len) {
            return Err(RequestProblem::TargetTooLong { length, max_len });
        }
        let vocab_size = self.vocabulary().size;
        match unknown_token(target, vocab_size) {
            None => Ok(()),
            Some(token) => Err(RequestProblem::UnknownTarget { token, vocab_size }),
        }
    }

    /// The most source tokens of a batch, if decoding several batches at once, each on one thread, is faster than one
    /// after the other, each on all threads; otherwise `None`. If so, [`start`](Self::start) is called with
    /// [`Threads::This`] from several threads.
    fn tokens_side_by_side(&self) -> Option<usize> {
        None
    }

    /// Reads the sources of a batch, each with one empty target. The state keeps `threads` for its computations.
    ///
    /// # Panics
    /// Models may panic when no source is given; the search gives at least one.
    fn start(&self, sources: &[&[u32]], threads: Threads) -> Self::State;

    /// Appends a token to every row, and returns the log-probabilities of the next tokens. The first token is `<bos>`,
    /// or that of a prompt ([`SpecialTokens::prompt_bos`]).
    ///
    /// # Shapes
    /// - last: one token per row
    /// - output: see [`Next`]
    fn next(&self, last: &[u32], state: &mut Self::State, attention: AttentionWeights) -> Next;

    /// [`next`](Self::next), where only the `count` most likely tokens of each row are needed: a model may return
    /// [`tokens`](Next::tokens), so that it need not copy all log-probabilities to the host, or compute them. The
    /// default returns all.
    fn next_best(
        &self,
        last: &[u32],
        state: &mut Self::State,
        attention: AttentionWeights,
        _count: usize,
    ) -> Next {
        self.next(last, state, attention)
    }

    /// Limits the next tokens of each source to candidates, right after [`start`](Self::start), and returns true:
    /// [`next`](Self::next) then returns only these as [`tokens`](Next::tokens), and their probabilities sum to 1. The
    /// default returns false, and the search picks the candidates from all tokens.
    ///
    /// # Shapes
    /// - candidates: per source, tokens of the target vocabulary in ascending order
    fn limit(&self, _candidates: &[Vec<u32>], _state: &mut Self::State) -> bool {
        false
    }

    /// Reads the targets of all rows at once, right after [`start`](Self::start), and returns the log-probability of
    /// each token. The last token of a target is scored but not read. After targets of equal length, such as a prompt,
    /// [`next`](Self::next) appends the last tokens; after others, the state must not be used again.
    ///
    /// The default reads token by token; reading a target in one pass is faster.
    ///
    /// # Shapes
    /// - targets: one per row, none of them empty
    /// - output: per row, one log-probability per token of its target
    fn read(&self, targets: &[&[u32]], state: &mut Self::State) -> Vec<Vec<f32>> {
        let Vocabulary {
            size,
            special_tokens: SpecialTokens { pad, bos, .. },
        } = self.vocabulary();
        let longest = targets.iter().map(|target| target.len()).max().unwrap_or(0);
        let mut last = vec![bos; targets.len()];
        let mut found = vec![Vec::new(); targets.len()];
        for position in 0..longest {
            let next = self.next(&last, state, AttentionWeights::Discard);
            let rows = next.log_probs.chunks(size);
            for (((row, target), last), found) in rows.zip(targets).zip(&mut last).zip(&mut found) {
                let token = target.get(position);
                found.extend(token.map(|&token| row[token as usize]));
                *last = token.copied().unwrap_or(pad);
            }
        }
        found
    }

    /// Reads the first tokens of all rows at once, right after [`start`](Self::start), and predicts none:
    /// [`next`](Self::next) appends those that follow.
    ///
    /// The default reads token by token; reading a prompt in one pass is faster.
    ///
    /// # Shapes
    /// - prompts: one per row, all of the same length
    fn read_prompts(&self, prompts: &[&[u32]], state: &mut Self::State) {
        for position in 0..prompts.first().map_or(0, |prompt| prompt.len()) {
            let tokens: Vec<u32> = prompts.iter().map(|prompt| prompt[position]).collect();
            self.next(&tokens, state, AttentionWeights::Discard);
        }
    }

    /// Selects the given sources of the batch, in the given order, with the given rows: indices of the current rows,
    /// adjacent per source, the same number for every source. A row may be given more than once; its copies then
    /// continue separately.
    fn select(&self, state: &mut Self::State, sources: &[usize], rows: &[usize]);
}

/// The vocabulary of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vocabulary {
    /// Number of tokens.
    pub size: usize,
    /// The special tokens.
    pub special_tokens: SpecialTokens,
}

/// Panics if a batch has no source.
pub(crate) fn check_batch(sources: &[&[u32]]) {
    assert!(!sources.is_empty(), "no source to decode");
}

/// The prediction of the next token of each row.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Next {
    /// Log-probabilities: `[rows, tgt_vocab_size]`, or `[rows, candidates]` of [`tokens`](Self::tokens).
    pub log_probs: Vec<f32>,
    /// The tokens that the log-probabilities belong to, `[rows, candidates]`, ascending in each row; `None` for the
    /// whole vocabulary. A row with fewer candidates ends in log-probabilities of −∞.
    pub tokens: Option<Vec<u32>>,
    /// The last token's attention to each source token, averaged over layers and heads: `[rows, src_len]`. `None`
    /// unless requested, or if the model has no sources.
    pub attention: Option<Vec<f32>>,
}

impl Next {
    /// Log-probabilities `[rows, tgt_vocab_size]`, without attention.
    pub fn new(log_probs: Vec<f32>) -> Self {
        Self {
            log_probs,
            tokens: None,
            attention: None,
        }
    }

    /// Log-probabilities `[rows, candidates]` of these tokens, ascending in each row, without attention.
    pub fn among(tokens: Vec<u32>, log_probs: Vec<f32>) -> Self {
        Self {
            tokens: Some(tokens),
            ..Self::new(log_probs)
        }
    }

    /// Adds the attention to the sources: `[rows, src_len]`.
    pub fn with_attention(self, attention: Vec<f32>) -> Self {
        Self {
            attention: Some(attention),
            ..self
        }
    }
}

/// Log-probabilities `[rows, tgt_vocab_size]` on any device.
impl<B: Backend> From<Tensor<B, 2>> for Next {
    fn from(log_probs: Tensor<B, 2>) -> Self {
        Self::new(to_host(log_probs))
    }
}

/// A pointer to a model is a model.
macro_rules! delegate {
    ($pointer:ty$(, $bound:path)?) => {
        impl<M: NextToken$( + $bound)?> NextToken for $pointer {
            type State = M::State;

            fn vocabulary(&self) -> Vocabulary {
                (**self).vocabulary()
            }

            fn source_vocab_size(&self) -> Option<usize> {
                (**self).source_vocab_size()
            }

            fn max_target_len(&self) -> Option<usize> {
                (**self).max_target_len()
            }

            fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
                (**self).check_source(source)
            }

            fn check_target(&self, target: &[u32]) -> Result<(), RequestProblem> {
                (**self).check_target(target)
            }

            fn tokens_side_by_side(&self) -> Option<usize> {
                (**self).tokens_side_by_side()
            }

            fn start(&self, sources: &[&[u32]], threads: Threads) -> Self::State {
                (**self).start(sources, threads)
            }

            fn next(&self, last: &[u32], state: &mut Self::State, attention: AttentionWeights) -> Next {
                (**self).next(last, state, attention)
            }

            fn next_best(
                &self,
                last: &[u32],
                state: &mut Self::State,
                attention: AttentionWeights,
                count: usize,
            ) -> Next {
                (**self).next_best(last, state, attention, count)
            }

            fn limit(&self, candidates: &[Vec<u32>], state: &mut Self::State) -> bool {
                (**self).limit(candidates, state)
            }

            fn read(&self, targets: &[&[u32]], state: &mut Self::State) -> Vec<Vec<f32>> {
                (**self).read(targets, state)
            }

            fn read_prompts(&self, prompts: &[&[u32]], state: &mut Self::State) {
                (**self).read_prompts(prompts, state);
            }

            fn select(&self, state: &mut Self::State, sources: &[usize], rows: &[usize]) {
                (**self).select(state, sources, rows);
            }
        }
    };
}

delegate!(&M);
delegate!(std::sync::Arc<M>, Send);

/// Models that decode together, by the mean of their probabilities.
#[derive(Debug, Clone)]
pub struct Ensemble<M> {
    models: Vec<M>,
}

impl<M: NextToken> Ensemble<M> {
    /// An ensemble of the given models, or of references to them.
    ///
    /// # Errors
    /// When no model is given, or the vocabularies differ.
    pub fn new(models: Vec<M>) -> Result<Self, DecodeOptionsError> {
        let Some((first, others)) = models.split_first() else {
            return Err(DecodeOptionsError::NoModel);
        };
        let vocabulary = first.vocabulary();
        for (index, other) in (1..).zip(others) {
            let other = other.vocabulary();
            let what = match () {
                () if other.size != vocabulary.size => "vocabulary sizes",
                () if other != vocabulary => "special tokens",
                () => continue,
            };
            return Err(DecodeOptionsError::Vocabularies { index, what });
        }
        Ok(Self { models })
    }

    /// The models; at least one.
    pub fn models(&self) -> &[M] {
        &self.models
    }

    /// The models; at least one.
    pub fn into_models(self) -> Vec<M> {
        self.models
    }
}

impl<M: NextToken> NextToken for Ensemble<M> {
    type State = Vec<M::State>;

    fn vocabulary(&self) -> Vocabulary {
        self.models[0].vocabulary()
    }

    fn source_vocab_size(&self) -> Option<usize> {
        self.models.iter().filter_map(M::source_vocab_size).min()
    }

    fn max_target_len(&self) -> Option<usize> {
        self.models.iter().filter_map(M::max_target_len).min()
    }

    fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
        self.models
            .iter()
            .try_for_each(|model| model.check_source(source))
    }

    fn check_target(&self, target: &[u32]) -> Result<(), RequestProblem> {
        self.models
            .iter()
            .try_for_each(|model| model.check_target(target))
    }

    fn tokens_side_by_side(&self) -> Option<usize> {
        let most = self.models.iter().map(M::tokens_side_by_side);
        most.reduce(|a, b| Some(a?.max(b?))).flatten()
    }

    fn start(&self, sources: &[&[u32]], threads: Threads) -> Self::State {
        let states = self.models.iter();
        states.map(|model| model.start(sources, threads)).collect()
    }

    fn next(&self, last: &[u32], states: &mut Self::State, attention: AttentionWeights) -> Next {
        let outputs = self.models.iter().zip(states);
        let outputs = outputs.map(|(model, state)| model.next(last, state, attention));
        let mut tokens = None;
        let (log_probs, attention): (Vec<_>, Vec<_>) = outputs
            .map(|output| {
                // The same of all models.
                tokens = output.tokens;
                (output.log_probs, output.attention)
            })
            .unzip();
        let attention: Vec<_> = attention.into_iter().flatten().collect();
        let count = attention.len() as f32;
        let sum = attention.into_iter().reduce(|mut sum, next| {
            sum.iter_mut()
                .zip(next)
                .for_each(|(sum, next)| *sum += next);
            sum
        });
        Next {
            log_probs: log_of_mean(log_probs),
            tokens,
            attention: sum.map(|sum| sum.into_iter().map(|sum| sum / count).collect()),
        }
    }

    fn next_best(
        &self,
        last: &[u32],
        states: &mut Self::State,
        attention: AttentionWeights,
        count: usize,
    ) -> Next {
        match (&self.models[..], &mut states[..]) {
            ([model], [state]) => model.next_best(last, state, attention, count),
            // The most likely tokens of each model are not those of their mean.
            _ => self.next(last, states, attention),
        }
    }

    fn limit(&self, candidates: &[Vec<u32>], states: &mut Self::State) -> bool {
        match (&self.models[..], &mut states[..]) {
            ([model], [state]) => model.limit(candidates, state),
            // Of several, the mean of all probabilities is limited.
            _ => false,
        }
    }

    fn read(&self, targets: &[&[u32]], states: &mut Self::State) -> Vec<Vec<f32>> {
        let found = self.models.iter().zip(states);
        let found = found.map(|(model, state)| model.read(targets, state).concat());
        let mut of_tokens = log_of_mean(found.collect()).into_iter();
        let of_target = |target: &&[u32]| of_tokens.by_ref().take(target.len()).collect();
        targets.iter().map(of_target).collect()
    }

    fn read_prompts(&self, prompts: &[&[u32]], states: &mut Self::State) {
        for (model, state) in self.models.iter().zip(states) {
            model.read_prompts(prompts, state);
        }
    }

    fn select(&self, states: &mut Self::State, sources: &[usize], rows: &[usize]) {
        for (model, state) in self.models.iter().zip(states) {
            model.select(state, sources, rows);
        }
    }
}

/// The logarithm of the mean probability of one or more models: −∞ where all of them have −∞.
fn log_of_mean(mut log_probs: Vec<Vec<f32>>) -> Vec<f32> {
    if log_probs.len() == 1 {
        return log_probs.remove(0);
    }
    let count = log_probs.len() as f32;
    let mean = |at: usize| {
        let of_models = log_probs.iter().map(|of_model| of_model[at]);
        // NaN stays NaN. The maximum is finite, because −∞ minus −∞ is NaN.
        let most = of_models
            .clone()
            .fold(f32::MIN, |most, next| match next <= most {
                true => most,
                false => next,
            });
        let sum: f32 = of_models.map(|log_prob| (log_prob - most).exp()).sum();
        most + (sum / count).ln()
    };
    (0..log_probs[0].len()).map(mean).collect()
}
