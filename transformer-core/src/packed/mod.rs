//! A Transformer for decoding on the host's processor.
//!
//! Decoding token by token computes with few rows, by hundreds of operations a step: on tensors, each of these would
//! allocate memory, start threads and lay out the weights again. A packed model has its weights laid out as the
//! processor reads them, and computes a step by loops over slices:
//!
//! - No row is padding: the rows of a matrix are the tokens of sources, or the last tokens of targets.
//! - Threads get the largest parts of the work that keep all of them busy. With many sources, each thread decodes
//!   batches of its own. With fewer, each thread computes a whole step of some sources of the one batch. With few rows
//!   and a large model, all threads compute one product together; a small model's step is one thread's.
//! - Memory is reused from one operation and one step to the next.
//!
//! The files are those of the model, for inference only: `embedding`, `attention`, `encoder` and `decoder` are the
//! paper's sections, `model` puts them together; `weights` has the sources of weights, `state` the state between two
//! tokens. Every formula here has its counterpart in [`Transformer`], and tests compare the two.
//!
//! A row's results do not depend on the other rows of its batch, on the tasks or on the number of threads, bit for
//! bit.

mod attention;
mod decoder;
mod directory;
mod embedding;
mod encoder;
mod layers;
mod model;
mod state;
mod tasks;
mod weights;
mod workspace;

use std::fmt;
use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData};
use transformer_cpu::{PackedPrecision, Threads};

use self::model::Model;
pub use self::state::PackedState;
use self::weights::ModelWeights;
use self::workspace::Workspace;
use crate::config::TransformerConfig;
use crate::decoding::{NextToken, NextTokenOutput, Vocabulary, check_batch};
use crate::error::RequestProblem;
use crate::ops::AttentionWeights;
use crate::transformer::Transformer;

/// A [`Transformer`] for decoding on the host's processor: its weights are laid out for the processor, in single
/// precision or in 8 bits, and its steps need no tensors but for their results.
///
/// It is made from a model that is not trained any more, and has no parameters. [`Search`](crate::Search),
/// [`score`](crate::score) and [`Ensemble`](crate::Ensemble) decode with it as with the model; in single precision
/// the results are the model's, beyond the rounding of sums. Clones share the weights. It decodes on the host with
/// any backend.
///
/// ```
/// use burn_ndarray::NdArray;
/// use transformer_core::{
///     DecodeOptions, PackedPrecision, PackedTransformer, Request, Search, TransformerConfig,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Default::default();
/// let model = TransformerConfig::notebook_mini(1000).init::<NdArray>(42, &device)?;
/// let packed = PackedTransformer::new(model.clone(), PackedPrecision::F32);
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
pub struct PackedTransformer<B: Backend> {
    model: Arc<Model>,
    precision: PackedPrecision,
    threads: Threads,
    device: B::Device,
}

impl<B: Backend> PackedTransformer<B> {
    /// Packs a model. Each of its weights is freed as soon as it is packed.
    ///
    /// # Panics
    /// When the model has other weights than its configuration says: when a field was replaced.
    pub fn new(model: Transformer<B>, precision: PackedPrecision) -> Self {
        let (config, device) = (model.config().clone(), model.device());
        let Ok(model) = Model::read(&mut ModelWeights::new(model, precision), &config);
        Self {
            model: Arc::new(model),
            precision,
            threads: Threads::All,
            device,
        }
    }

    /// The configuration of the model.
    pub fn config(&self) -> &TransformerConfig {
        &self.model.config
    }

    /// The precision of its matrices. Biases, norms and learned positions are in single precision.
    pub fn precision(&self) -> PackedPrecision {
        self.precision
    }

    /// The threads of a step that multiplies this many rows by this many weights.
    fn threads(&self, rows: usize, weights: usize) -> Threads {
        tasks::threads(rows, weights, self.precision, self.threads)
    }

    fn tensor(&self, values: Vec<f32>, shape: [usize; 2]) -> Tensor<B, 2> {
        Tensor::from_data(TensorData::new(values, shape), (&self.device, DType::F32))
    }
}

/// Without its weights.
impl<B: Backend> fmt::Debug for PackedTransformer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedTransformer")
            .field("config", self.config())
            .field("precision", &self.precision)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> NextToken<B> for PackedTransformer<B> {
    type State = PackedState;

    fn device(&self) -> B::Device {
        self.device.clone()
    }

    fn vocabulary(&self) -> Vocabulary {
        self.config().vocabulary()
    }

    fn max_target_len(&self) -> Option<usize> {
        self.config().max_len()
    }

    fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
        self.config().check_source(source)
    }

    fn on_one_thread(&self) -> Option<Self> {
        Some(Self {
            threads: Threads::This,
            ..self.clone()
        })
    }

    fn start(&self, sources: &[&[u32]]) -> PackedState {
        check_batch(sources);
        let lengths: Vec<usize> = sources.iter().map(|source| source.len()).collect();
        let threads = self.threads(lengths.iter().sum(), self.model.source_weights);
        let tasks = tasks::deal(&lengths, threads);
        let encoded = tasks::run(tasks, threads, |task, threads| {
            let mut workspace = Workspace::default();
            let memories = self.model.encode(&sources[task], &mut workspace, threads);
            (memories, workspace)
        });
        let (memories, workspaces): (Vec<_>, Vec<_>) = encoded.into_iter().unzip();
        PackedState::new(memories.into_iter().flatten().collect(), workspaces)
    }

    fn next_token(
        &self,
        last: &[u32],
        state: &mut PackedState,
        attention: AttentionWeights,
    ) -> NextTokenOutput<B> {
        let (rows, vocab_size) = (last.len(), self.config().tgt_vocab_size);
        let mut log_probs = vec![0.0; rows * vocab_size];
        let mut weights = match attention {
            AttentionWeights::Discard => Vec::new(),
            AttentionWeights::Return => vec![0.0; rows * state.src_len],
        };
        let threads = self.threads(rows, self.model.target_weights);
        let steps = state.steps(last, threads, &mut log_probs, &mut weights);
        tasks::run(steps, threads, |step, threads| {
            self.model.step(step, threads);
        });
        state.len += 1;
        let output = NextTokenOutput::new(self.tensor(log_probs, [rows, vocab_size]));
        match attention {
            AttentionWeights::Discard => output,
            AttentionWeights::Return => {
                output.with_attention(self.tensor(weights, [rows, state.src_len]))
            }
        }
    }

    fn select(&self, state: &mut PackedState, sources: &[usize], rows: &[usize]) {
        state.select(sources, rows);
    }

    fn target_log_probs(&self, sources: &[&[u32]], targets: &[&[u32]]) -> Tensor<B, 2> {
        let lengths = sources.iter().zip(targets);
        let lengths = lengths.map(|(source, target)| source.len().max(target.len()));
        let lengths: Vec<usize> = lengths.collect();
        let weights = self.model.source_weights + self.model.target_weights;
        let threads = self.threads(lengths.iter().sum(), weights);
        let tasks = tasks::deal(&lengths, threads);
        let scored = tasks::run(tasks, threads, |task, threads| {
            let workspace = &mut Workspace::default();
            let (sources, targets) = (&sources[task.clone()], &targets[task]);
            self.model.score(sources, targets, workspace, threads)
        });
        let scored = scored.concat();
        let tgt_len = targets.iter().map(|target| target.len()).max().unwrap_or(0);
        let mut padded = vec![0.0; targets.len() * tgt_len];
        let mut first = 0;
        for (row, target) in padded.chunks_mut(tgt_len.max(1)).zip(targets) {
            row[..target.len()].copy_from_slice(&scored[first..first + target.len()]);
            first += target.len();
        }
        self.tensor(padded, [targets.len(), tgt_len])
    }
}
