//! Models with packed weights, for decoding on the CPU.
//!
//! Decoding token by token computes with few rows, in hundreds of operations per step. On tensors, each operation would
//! allocate memory, start threads and lay out the weights again. A packed model stores its weights in the layout that
//! the processor reads, and computes a step by loops over slices:
//!
//! - No row is padding: the rows of a matrix are the tokens of sources, or the last tokens of targets.
//! - Threads get the largest parts of the work that keep all of them busy. With many sources, each thread decodes its
//!   own batches. With fewer, each thread computes whole steps of some sources of the only batch. With few rows and a
//!   large model, all threads compute each matrix multiplication together. A step of a small model runs on one thread.
//! - Memory is reused between operations and between steps.
//!
//! A row's results are bit-identical whatever the other rows of its batch, the tasks and the number of threads. Every
//! formula has its counterpart in [`Transformer`], and tests compare the two.
//!
//! ```
//! use burn_ndarray::NdArray;
//! use transformer_core::packed::{PackedModel, PackedPrecision};
//! use transformer_core::{DecodeOptions, Request, Search, TransformerConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = TransformerConfig::notebook_mini(1000).init::<NdArray>(42, &Default::default())?;
//! let packed = PackedModel::new(model, PackedPrecision::Int8);
//! let search = Search::new(&packed, DecodeOptions::beam(4))?;
//! println!("{:?}", search.run(&[Request::new([5, 3, 7])])?[0][0].tokens);
//! # Ok(())
//! # }
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `model` | the whole model |
//! | `stack`, `layers` | encoder and decoder stacks; linear layers, norms and the feed-forward network |
//! | `embedding`, `attention`, `recurrence`, `position_bias` | the other parts |
//! | `limit` | the limitation of targets to some tokens per source |
//! | `weights` | the sources of weights |
//! | `state` | the state between two tokens |
//! | `tasks` | the distribution of work over threads |
//! | `workspace` | reused memory |

mod attention;
mod embedding;
mod layers;
mod limit;
pub(crate) mod model;
mod position_bias;
mod recurrence;
mod stack;
mod state;
mod tasks;
pub(crate) mod weights;
mod workspace;

use std::fmt;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::backend::Backend;
pub use transformer_cpu::PackedPrecision;
use transformer_cpu::Threads;
use transformer_kernels::AttentionWeights;

use self::model::Model;
pub use self::state::PackedState;
use self::state::ReadingTask;
use self::weights::ModuleWeights;
use self::workspace::Workspace;
use crate::decoding::RequestProblem;
use crate::decoding::{Next, NextToken, Vocabulary, check_batch};
use crate::models::config::TransformerConfig;
use crate::models::language_model::LanguageModel;
use crate::models::transformer::Transformer;

/// A [`Transformer`] or [`LanguageModel`] packed for decoding on the CPU. Its weights are laid out for the processor,
/// in f32 or in 8 bits, and its steps need no tensors and no backend.
///
/// It is made from a trained model of any backend, and cannot be trained. [`Search`](crate::Search),
/// [`score`](crate::decoding::score) and [`Ensemble`](crate::decoding::Ensemble) accept it like the model itself; in
/// f32, results differ only by the rounding of sums. Clones share the weights.
///
/// ```
/// use burn_ndarray::NdArray;
/// use transformer_core::{DecodeOptions, PackedModel, Request, Search, TransformerConfig};
/// use transformer_core::packed::PackedPrecision;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Default::default();
/// let model = TransformerConfig::notebook_mini(1000).init::<NdArray>(42, &device)?;
/// let packed = PackedModel::new(model.clone(), PackedPrecision::F32);
///
/// let request = [Request::new([5, 3, 7])];
/// let options = DecodeOptions::beam(4);
/// let found = Search::new(&packed, options.clone())?.run(&request)?;
/// let expected = Search::new(&model, options)?.run(&request)?;
/// assert_eq!(found[0][0].tokens, expected[0][0].tokens);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PackedModel {
    model: Arc<Model>,
    precision: PackedPrecision,
}

impl PackedModel {
    /// Packs a model. Each weight is freed as soon as it is packed.
    ///
    /// # Panics
    /// When the weights do not match the configuration, because a field was replaced.
    pub fn new<B: Backend>(model: Transformer<B>, precision: PackedPrecision) -> Self {
        let config = model.config().clone();
        Self::of_module(model, &config, precision)
    }

    /// Packs a language model, as [`new`](Self::new) does an encoder–decoder.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn of_language_model<B: Backend>(
        model: LanguageModel<B>,
        precision: PackedPrecision,
    ) -> Self {
        let config = model.config().clone();
        Self::of_module(model, &config, precision)
    }

    fn of_module<B: Backend, M: Module<B>>(
        model: M,
        config: &TransformerConfig,
        precision: PackedPrecision,
    ) -> Self {
        let Ok(model) = Model::read(&mut ModuleWeights::new(model, precision), config);
        Self::of(model, precision)
    }

    pub(crate) fn of(model: Model, precision: PackedPrecision) -> Self {
        Self {
            model: Arc::new(model),
            precision,
        }
    }

    /// The configuration of the model.
    pub fn config(&self) -> &TransformerConfig {
        &self.model.config
    }

    /// The precision of its matrices. Biases, norms, learned positions and position biases are in f32.
    pub fn precision(&self) -> PackedPrecision {
        self.precision
    }

    /// Reads one row of tokens per source, right after the start: divides the rows into tasks for `read`.
    fn read_at_once<T: Send>(
        &self,
        rows: &[&[u32]],
        state: &mut PackedState,
        read: impl Fn(ReadingTask<'_, '_>, Threads) -> T + Send + Sync,
    ) -> Vec<T> {
        assert_eq!(
            (rows.len(), state.len),
            (state.sources.len(), 0),
            "one target per source, before any other token"
        );
        let lengths: Vec<usize> = rows.iter().map(|row| row.len()).collect();
        let tokens: usize = lengths.iter().sum();
        let threads = self.threads(tokens, self.model.target_weights, state.threads);
        let tasks = tasks::deal(&lengths, threads);
        state.len = lengths.iter().copied().max().unwrap_or(0);
        tasks::run(state.readings(tasks, rows), threads, read)
    }

    /// Appends a token to every row, and predicts the next ones: only the `likeliest`, if they are given.
    fn predict(
        &self,
        last: &[u32],
        state: &mut PackedState,
        attention: AttentionWeights,
        likeliest: Option<usize>,
    ) -> Next {
        let rows = last.len();
        let limited = limit::width(&state.sources);
        let mut tokens = match (limited, likeliest) {
            (Some(width), _) => Some(limit::tokens(&state.sources, rows, width)),
            (None, Some(count)) => Some(vec![0; rows * count]),
            (None, None) => None,
        };
        let width = limited.or(likeliest);
        let width = width.unwrap_or(self.config().tgt_vocab_size);
        let mut log_probs = vec![0.0; rows * width];
        let mut weights = match attention {
            AttentionWeights::Discard => Vec::new(),
            AttentionWeights::Return => vec![0.0; rows * state.src_len],
        };
        let threads = self.threads(rows, self.model.target_weights, state.threads);
        let likeliest = match limited {
            Some(_) => &mut [],
            None => tokens.as_deref_mut().unwrap_or_default(),
        };
        let steps = state.steps(last, threads, &mut log_probs, likeliest, &mut weights);
        tasks::run(steps, threads, |step, threads| {
            self.model.step(step, threads);
        });
        state.len += 1;
        let next = match tokens {
            Some(tokens) => Next::among(tokens, log_probs),
            None => Next::new(log_probs),
        };
        match attention {
            AttentionWeights::Return if state.src_len > 0 => next.with_attention(weights),
            _ => next,
        }
    }

    /// The threads for a step that multiplies `rows` rows by `weights` weights.
    fn threads(&self, rows: usize, weights: usize, threads: Threads) -> Threads {
        tasks::threads(rows, weights, self.precision, threads)
    }
}

/// Fewer weights per step than this are a small model's.
const SMALL: usize = 1 << 23;

/// Up to this many, the likeliest tokens are found in less time than a softmax takes.
const MOST: usize = 64;

/// Omits the weights.
impl fmt::Debug for PackedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedModel")
            .field("config", self.config())
            .field("precision", &self.precision)
            .finish_non_exhaustive()
    }
}

impl NextToken for PackedModel {
    type State = PackedState;

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

    /// A small model's weights stay in a processor's caches, and so should the keys and values of a batch. A large
    /// model's weights are read from memory, for more rows.
    fn tokens_side_by_side(&self) -> Option<usize> {
        Some(match self.model.target_weights < SMALL {
            true => 256,
            false => 1024,
        })
    }

    fn start(&self, sources: &[&[u32]], threads: Threads) -> PackedState {
        check_batch(sources);
        let lengths: Vec<usize> = sources.iter().map(|source| source.len()).collect();
        let of_step = self.threads(lengths.iter().sum(), self.model.source_weights, threads);
        let tasks = tasks::deal(&lengths, of_step);
        let encoded = tasks::run(tasks, of_step, |task, threads| {
            let mut workspace = Workspace::default();
            let sources = self.model.encode(&sources[task], &mut workspace, threads);
            (sources, workspace)
        });
        let (sources, workspaces): (Vec<_>, Vec<_>) = encoded.into_iter().unzip();
        PackedState::new(sources.into_iter().flatten().collect(), workspaces, threads)
    }

    fn next(&self, last: &[u32], state: &mut PackedState, attention: AttentionWeights) -> Next {
        self.predict(last, state, attention, None)
    }

    fn next_best(
        &self,
        last: &[u32],
        state: &mut PackedState,
        attention: AttentionWeights,
        count: usize,
    ) -> Next {
        let count = (1..=MOST).contains(&count).then_some(count);
        self.predict(last, state, attention, count)
    }

    fn limit(&self, candidates: &[Vec<u32>], state: &mut PackedState) -> bool {
        self.model.limit(&mut state.sources, candidates);
        true
    }

    fn read(&self, targets: &[&[u32]], state: &mut PackedState) -> Vec<Vec<f32>> {
        let found = self.read_at_once(targets, state, |reading, threads| {
            let (sources, tips, targets, workspace) = reading;
            self.model
                .read_targets(sources, tips, targets, workspace, threads)
        });
        let mut of_tokens = found.concat().into_iter();
        let of_target = |target: &&[u32]| of_tokens.by_ref().take(target.len()).collect();
        targets.iter().map(of_target).collect()
    }

    fn read_prompts(&self, prompts: &[&[u32]], state: &mut PackedState) {
        self.read_at_once(prompts, state, |reading, threads| {
            let (sources, tips, prompts, workspace) = reading;
            self.model
                .read_tokens(sources, tips, prompts, workspace, threads);
        });
    }

    fn select(&self, state: &mut PackedState, sources: &[usize], rows: &[usize]) {
        state.select(sources, rows);
    }
}
