//! The interface between the trainer and a model: its examples, batches and loss.

pub(crate) mod gradients;
mod labels;
mod language;
pub(crate) mod loss;
pub(crate) mod statistics;
mod translation;

pub use loss::{LabelSmoothedCrossEntropy, LossOptions, LossSums};

use std::path::Path;

use burn::module::{AutodiffModule, Module, ModuleDisplay};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor};
#[cfg(feature = "text")]
use transformer_core::Tokenizers;
use transformer_core::formats::{WEIGHTS_FILE, load_weights, save_weights};
use transformer_core::nn::ProductPrecision;
use transformer_core::ops::multiplies_in;
#[cfg(feature = "text")]
use transformer_core::text::TextError;

use crate::data::{Example, ExampleProblem};
use crate::error::TrainError;
use crate::objective::gradients::device;

pub use labels::Labels;
pub use language::SequenceBatch;
pub use translation::PairBatch;

/// A model that [`Trainer`](crate::Trainer) can train: a Burn module with examples, batches and a loss.
///
/// [`Transformer`](transformer_core::Transformer) and [`LanguageModel`](transformer_core::LanguageModel) implement
/// it. So can any other module, here a text classifier:
///
/// ```
/// use burn::module::Module;
/// use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
/// use burn::tensor::{Int, Tensor, TensorData, backend::Backend};
/// use transformer_core::decoding::padded;
/// use transformer_train::data::{Checksum, Example, Lengths};
/// use transformer_train::objective::{LabelSmoothedCrossEntropy, LossOptions, LossSums, Objective};
///
/// #[derive(Clone)]
/// struct Labelled {
///     text: Vec<u32>,
///     class: u32,
/// }
///
/// impl Example for Labelled {
///     fn lengths(&self) -> Lengths {
///         Lengths { source: self.text.len(), target: 1 }
///     }
///
///     fn add_to(&self, checksum: &mut Checksum) {
///         checksum.tokens(&self.text);
///         checksum.tokens(&[self.class]);
///     }
/// }
///
/// /// Sums the embeddings of a text's tokens, and projects the sum to three classes.
/// #[derive(Module, Debug)]
/// struct BagOfWords<B: Backend> {
///     embedding: Embedding<B>,
///     output: Linear<B>,
/// }
///
/// impl<B: Backend> Objective<B> for BagOfWords<B> {
///     type Example = Labelled;
///     /// Texts, `[batch, len]`, and classes, `[batch]`.
///     type Batch = (Tensor<B, 2, Int>, Tensor<B, 1, Int>);
///
///     fn batch(&self, examples: &[Labelled], device: &B::Device) -> Self::Batch {
///         let texts: Vec<_> = examples.iter().map(|example| example.text.clone()).collect();
///         let classes: Vec<_> = examples.iter().map(|example| example.class as i32).collect();
///         (padded(&texts, 0, device), Tensor::from_ints(classes.as_slice(), device))
///     }
///
///     fn loss(&self, (texts, classes): Self::Batch, options: &LossOptions) -> LossSums<B> {
///         let logits = self.output.forward(self.embedding.forward(texts).sum_dim(1).squeeze_dim(1));
///         let loss = LabelSmoothedCrossEntropy::without_padding(options.label_smoothing);
///         loss.sums(logits, classes)
///     }
/// }
/// ```
///
/// This model has no width, so its learning rate needs a given peak
/// ([`TrainingConfig::peak_rate`](crate::TrainingConfig::peak_rate)). A model with a configuration also implements
/// [`save`](Self::save) and [`restore`](Self::restore), so that a run is not resumed with another configuration; a
/// model of text implements `check_tokenizers`.
pub trait Objective<B: Backend>: Module<B> {
    /// The type of the training examples.
    type Example: Example;

    /// Examples as tensors.
    type Batch;

    /// Converts examples to the tensors of a batch, on the model's `device`.
    fn batch(&self, examples: &[Self::Example], device: &B::Device) -> Self::Batch;

    /// The loss summed over a batch, and its weight.
    ///
    /// The weight must equal the sum of the examples' [`Example::loss_weight`].
    fn loss(&self, batch: Self::Batch, options: &LossOptions) -> LossSums<B>;

    /// The width of the model, `d_model`, from which the paper's peak learning rate is computed (§5.3, equation
    /// 3). By default `None`; the run then needs a [`peak_rate`](crate::TrainingConfig::peak_rate).
    fn width(&self) -> Option<usize> {
        None
    }

    /// Checks that the model can learn from an example.
    ///
    /// # Errors
    /// The problem with the example. It ends the run: before the first update for examples in a list, and for other
    /// [`ExampleSource`](crate::data::ExampleSource)s when the example is read.
    fn check(&self, _example: &Self::Example) -> Result<(), ExampleProblem> {
        Ok(())
    }

    /// Checks that tokenizers fit the model. By default, all do.
    ///
    /// # Errors
    /// When a tokenizer has more entries than the model, or other ids for its special tokens. The run then does
    /// not start.
    #[cfg(feature = "text")]
    fn check_tokenizers(&self, _tokenizers: &Tokenizers) -> Result<(), TextError> {
        Ok(())
    }

    /// Sets the precision of the matrix multiplications in training
    /// ([`TrainingConfig::precision`](crate::TrainingConfig::precision)); `None` if the model does not support it.
    ///
    /// By default, a model supports only f32. A model made of the library's layers passes the precision on to them
    /// ([`MixedPrecision`](transformer_core::models::MixedPrecision)).
    fn prepare(self, precision: ProductPrecision) -> Option<Self> {
        (precision == ProductPrecision::F32).then_some(self)
    }

    /// Writes the model to a directory, which is created if missing.
    ///
    /// By default, writes all parameters to `model.safetensors`.
    ///
    /// # Errors
    /// When a file cannot be written.
    fn save(&self, directory: &Path) -> Result<(), TrainError> {
        Ok(save_weights(self, directory.join(WEIGHTS_FILE))?)
    }

    /// Loads the weights that [`save`](Self::save) wrote, when a run is resumed.
    ///
    /// Frozen parameters must stay frozen, as with [`load_weights`].
    ///
    /// # Errors
    /// When a file is missing, damaged, or of another model. [`same_config`](crate::run::same_config) names the
    /// first key that differs between two configurations.
    fn restore(self, directory: &Path) -> Result<Self, TrainError> {
        Ok(load_weights(self, directory.join(WEIGHTS_FILE))?)
    }
}

/// An [`Objective`] with gradients, whose model without gradients is an objective, too. Implemented for every such
/// model.
pub trait Trainable<B: AutodiffBackend>:
    Objective<B>
    + AutodiffModule<
        B,
        InnerModule: Objective<B::InnerBackend, Example = <Self as Objective<B>>::Example>
                         + ModuleDisplay
                         + 'static,
    > + ModuleDisplay
    + 'static
{
}

impl<B, M> Trainable<B> for M
where
    B: AutodiffBackend,
    M: Objective<B> + AutodiffModule<B> + ModuleDisplay + 'static,
    M::InnerModule: Objective<B::InnerBackend, Example = <M as Objective<B>>::Example>
        + ModuleDisplay
        + 'static,
{
}

/// The model with a run's precision of matrix multiplications.
///
/// # Errors
/// When the model or its backend does not support it.
pub(crate) fn prepared<B: AutodiffBackend, M: Objective<B>>(
    model: M,
    precision: ProductPrecision,
) -> Result<M, TrainError> {
    let device = device(&model);
    let model = model.prepare(precision);
    let model = model.ok_or(TrainError::ModelPrecision { precision })?;
    match multiplies_in::<B>(precision, &device) {
        true => Ok(model),
        false => Err(TrainError::BackendPrecision {
            precision,
            backend: B::name(&device),
        }),
    }
}

/// The label-smoothed next-token loss (§5.4), for models that compute logits at every position of a sequence. For
/// a model that can compute them at selected positions, [`Labels::loss`] is faster.
///
/// # Shapes
/// - logits: `[batch, tgt_len, vocab_size]`
/// - labels: `[batch, tgt_len]`, each below `vocab_size`; `pad_id` is ignored
/// - output: see [`LossSums`]
///
/// # Panics
/// When `logits` and `labels` have different numbers of positions.
pub fn sequence_loss<B: Backend>(
    logits: Tensor<B, 3>,
    labels: Tensor<B, 2, Int>,
    pad_id: u32,
    label_smoothing: f64,
) -> LossSums<B> {
    let [batch, tgt_len, vocab_size] = logits.dims();
    LabelSmoothedCrossEntropy::new(label_smoothing, pad_id).sums(
        logits.reshape([batch * tgt_len, vocab_size]),
        labels.reshape([batch * tgt_len]),
    )
}

/// Checks that all tokens are in a vocabulary.
///
/// # Errors
/// Names the first token that is not.
pub fn check_tokens(tokens: &[u32], vocab_size: usize) -> Result<(), ExampleProblem> {
    match tokens.iter().find(|&&token| token as usize >= vocab_size) {
        Some(&token) => Err(ExampleProblem::UnknownToken { token, vocab_size }),
        None => Ok(()),
    }
}
