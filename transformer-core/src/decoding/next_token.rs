//! The interface between search and models, and ensembles of models.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::batches::{column, unknown_token};
use crate::error::{DecodeOptionsError, RequestProblem};
use crate::ops::AttentionWeights;
use crate::special_tokens::SpecialTokens;

/// A model that predicts the next token: the interface that [`Search`](crate::Search),
/// [`greedy`](crate::greedy) and [`score`](crate::score) use.
///
/// A batch has one or more sources, each with one or more targets that grow by a token at a time. The
/// *rows* of a batch are its targets, those of a source together. For a model without sources, such as
/// a [`LanguageModel`](crate::LanguageModel), the sources are empty.
///
/// ```
/// use burn_ndarray::{NdArray, NdArrayDevice};
/// use burn::tensor::{Tensor, TensorData};
/// use transformer_core::{
///     AttentionWeights, DecodeOptions, MaxLength, NextToken, NextTokenOutput, Request,
///     RequestProblem, Search, SpecialTokens, Vocabulary,
/// };
///
/// /// Prefers the token after the last one: 1, 2, 3, …; `<eos>` is 5.
/// struct Counter;
///
/// impl NextToken<NdArray> for Counter {
///     type State = ();
///
///     fn device(&self) -> NdArrayDevice {
///         NdArrayDevice::Cpu
///     }
///     fn vocabulary(&self) -> Vocabulary {
///         let special_tokens = SpecialTokens { pad: 0, bos: 1, eos: 5 };
///         Vocabulary { size: 6, special_tokens }
///     }
///     fn check_source(&self, _source: &[u32]) -> Result<(), RequestProblem> {
///         Ok(())
///     }
///     fn start(&self, _sources: &[&[u32]]) {}
///     fn next_token(
///         &self,
///         last: &[u32],
///         _state: &mut (),
///         _attention: AttentionWeights,
///     ) -> NextTokenOutput<NdArray> {
///         let mut log_probs = vec![-10.0_f32; last.len() * 6];
///         for (row, &token) in log_probs.chunks_mut(6).zip(last) {
///             row[(token as usize + 1) % 6] = -0.1;
///         }
///         let log_probs = TensorData::new(log_probs, [last.len(), 6]);
///         NextTokenOutput::new(Tensor::from_data(log_probs, &self.device()))
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
pub trait NextToken<B: Backend>: Sync {
    /// The state of a batch between two tokens, such as a key/value cache.
    type State;

    /// The device that the model is on.
    fn device(&self) -> B::Device;

    /// The vocabulary of targets.
    fn vocabulary(&self) -> Vocabulary;

    /// The most tokens that a target may have, `<eos>` included where it ends in it; `None` if there is no limit.
    /// `<bos>` does not count: with it, the model reads all tokens but the last.
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

    /// The model for use beside others of its kind: it computes on the thread that calls it alone, so that several
    /// batches are decoded side by side, each by one thread. `None`, the default, if a model is better off with
    /// one batch at a time.
    fn on_one_thread(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Reads the sources of a batch, each of which then has one empty target. Search forces the tokens of a
    /// prefix one by one.
    ///
    /// # Panics
    /// Models may panic when no source is given; search gives one at least.
    fn start(&self, sources: &[&[u32]]) -> Self::State;

    /// Appends a token to every row, and returns the log-probabilities of the tokens that may follow.
    /// The first token is `<bos>`.
    ///
    /// # Shapes
    /// - last: one token for each row
    /// - output: see [`NextTokenOutput`]
    fn next_token(
        &self,
        last: &[u32],
        state: &mut Self::State,
        attention: AttentionWeights,
    ) -> NextTokenOutput<B>;

    /// Keeps the given sources of the batch, in the given order, with the given rows: indices of the
    /// rows so far, those of a source together, the same number for each. A row may be given more than
    /// once; the copies then continue separately.
    fn select(&self, state: &mut Self::State, sources: &[usize], rows: &[usize]);

    /// The log-probability of each token of given targets.
    ///
    /// The default computes token by token; a model that can read a whole target at once is faster.
    ///
    /// # Shapes
    /// - sources and targets: `batch` of each; no target is empty
    /// - output: `[batch, tgt_len]`, the longest target's length; undefined after the end of a target
    fn target_log_probs(&self, sources: &[&[u32]], targets: &[&[u32]]) -> Tensor<B, 2> {
        let SpecialTokens { pad, bos, .. } = self.vocabulary().special_tokens;
        let device = self.device();
        let mut state = self.start(sources);
        let tgt_len = targets.iter().map(|target| target.len()).max().unwrap_or(0);
        let mut last = vec![bos; targets.len()];
        let columns = (0..tgt_len).map(|position| {
            let output = self.next_token(&last, &mut state, AttentionWeights::Discard);
            for (last, target) in last.iter_mut().zip(targets) {
                *last = target.get(position).copied().unwrap_or(pad);
            }
            output.log_probs.gather(1, column(&last, &device))
        });
        Tensor::cat(columns.collect(), 1)
    }
}

/// The vocabulary of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vocabulary {
    /// Number of entries.
    pub size: usize,
    /// The entries that are not text.
    pub special_tokens: SpecialTokens,
}

/// Panics if a batch has no source.
pub(crate) fn check_batch(sources: &[&[u32]]) {
    assert!(!sources.is_empty(), "no source to decode");
}

/// The next token of each row, as a model predicts it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NextTokenOutput<B: Backend> {
    /// Log-probabilities: `[rows, tgt_vocab_size]`.
    pub log_probs: Tensor<B, 2>,
    /// The last token's attention to each source token, averaged over layers and heads:
    /// `[rows, src_len]`. `None` unless requested, and if the model has no sources.
    pub attention: Option<Tensor<B, 2>>,
}

impl<B: Backend> NextTokenOutput<B> {
    /// Log-probabilities `[rows, tgt_vocab_size]`, without attention.
    pub fn new(log_probs: Tensor<B, 2>) -> Self {
        Self {
            log_probs,
            attention: None,
        }
    }

    /// Adds the attention to the sources: `[rows, src_len]`.
    pub fn with_attention(self, attention: Tensor<B, 2>) -> Self {
        Self {
            attention: Some(attention),
            ..self
        }
    }
}

impl<B: Backend, M: NextToken<B>> NextToken<B> for &M {
    type State = M::State;

    fn device(&self) -> B::Device {
        (**self).device()
    }

    fn vocabulary(&self) -> Vocabulary {
        (**self).vocabulary()
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

    // Without `on_one_thread`: the model that it returns is owned, not a reference.

    fn start(&self, sources: &[&[u32]]) -> Self::State {
        (**self).start(sources)
    }

    fn next_token(
        &self,
        last: &[u32],
        state: &mut Self::State,
        attention: AttentionWeights,
    ) -> NextTokenOutput<B> {
        (**self).next_token(last, state, attention)
    }

    fn select(&self, state: &mut Self::State, sources: &[usize], rows: &[usize]) {
        (**self).select(state, sources, rows);
    }

    fn target_log_probs(&self, sources: &[&[u32]], targets: &[&[u32]]) -> Tensor<B, 2> {
        (**self).target_log_probs(sources, targets)
    }
}

/// Models that decode together, by the mean of their probabilities.
#[derive(Debug, Clone)]
pub struct Ensemble<M> {
    models: Vec<M>,
}

impl<M> Ensemble<M> {
    /// An ensemble of the given models, or of references to them.
    ///
    /// # Errors
    /// When no model is given, or the vocabularies differ.
    pub fn new<B: Backend>(models: Vec<M>) -> Result<Self, DecodeOptionsError>
    where
        M: NextToken<B>,
    {
        let Some((first, others)) = models.split_first() else {
            return Err(DecodeOptionsError::NoModel);
        };
        let differs = |other: &M| other.vocabulary() != first.vocabulary();
        if others.iter().any(differs) {
            return Err(DecodeOptionsError::Vocabularies);
        }
        Ok(Self { models })
    }

    /// The models; at least one.
    pub fn models(&self) -> &[M] {
        &self.models
    }

    /// The ensemble with each model changed, which must keep its vocabulary.
    #[cfg(feature = "text")]
    pub(crate) fn map<N>(self, change: impl FnMut(M) -> N) -> Ensemble<N> {
        let models = self.models.into_iter().map(change).collect();
        Ensemble { models }
    }

    fn first(&self) -> &M {
        &self.models[0]
    }
}

impl<B: Backend, M: NextToken<B>> NextToken<B> for Ensemble<M> {
    type State = Vec<M::State>;

    fn device(&self) -> B::Device {
        self.first().device()
    }

    fn vocabulary(&self) -> Vocabulary {
        self.first().vocabulary()
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

    fn on_one_thread(&self) -> Option<Self> {
        let models = self.models.iter().map(M::on_one_thread);
        let models = models.collect::<Option<_>>()?;
        Some(Self { models })
    }

    fn start(&self, sources: &[&[u32]]) -> Self::State {
        let states = self.models.iter().map(|model| model.start(sources));
        states.collect()
    }

    fn next_token(
        &self,
        last: &[u32],
        states: &mut Self::State,
        attention: AttentionWeights,
    ) -> NextTokenOutput<B> {
        let outputs = self.models.iter().zip(states);
        let outputs = outputs.map(|(model, state)| model.next_token(last, state, attention));
        let (log_probs, attention): (Vec<_>, Vec<_>) = outputs
            .map(|output| (output.log_probs, output.attention))
            .unzip();
        let attention: Vec<_> = attention.into_iter().flatten().collect();
        NextTokenOutput {
            log_probs: log_of_mean(log_probs),
            attention: (!attention.is_empty())
                .then(|| Tensor::stack::<3>(attention, 0).mean_dim(0).squeeze_dim(0)),
        }
    }

    fn select(&self, states: &mut Self::State, sources: &[usize], rows: &[usize]) {
        for (model, state) in self.models.iter().zip(states) {
            model.select(state, sources, rows);
        }
    }

    fn target_log_probs(&self, sources: &[&[u32]], targets: &[&[u32]]) -> Tensor<B, 2> {
        let log_probs = self.models.iter();
        let log_probs = log_probs.map(|model| model.target_log_probs(sources, targets));
        log_of_mean(log_probs.collect())
    }
}

/// The logarithm of the mean of the probabilities of at least one model: −∞ where all of them have −∞.
fn log_of_mean<B: Backend>(mut log_probs: Vec<Tensor<B, 2>>) -> Tensor<B, 2> {
    let count = log_probs.len();
    if count == 1 {
        return log_probs.remove(0);
    }
    let most = log_probs.iter().cloned();
    let most = most.reduce(|most, next| most.max_pair(next));
    // Finite, because −∞ less −∞ is not a number.
    let most = most.expect("an ensemble has a model").clamp_min(f32::MIN);
    let probs = log_probs.into_iter();
    let probs = probs.map(|log_probs| (log_probs - most.clone()).exp());
    let sum = probs.reduce(|sum, next| sum + next);
    let mean = sum.expect("an ensemble has a model") / count as f64;
    most + mean.log()
}
