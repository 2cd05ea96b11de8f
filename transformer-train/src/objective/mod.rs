//! The interface between the trainer and a model: its examples, their batches, and their loss.

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

/// A model that [`Trainer`](crate::Trainer) can train: a Burn module, with its examples, batches and
/// loss.
///
/// [`Transformer`](transformer_core::Transformer) is one, and so is
/// [`LanguageModel`](transformer_core::LanguageModel). So is any module that implements this
/// trait, here a classifier of texts:
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
/// /// Adds up the embeddings of a text's tokens, and projects them to three classes.
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
/// Without a width, its learning rate has a given peak ([`TrainingConfig::peak_rate`](crate::TrainingConfig::peak_rate)).
/// A model with a configuration also implements [`save`](Self::save) and [`restore`](Self::restore),
/// so that a run is not resumed with another configuration; one that reads text, `check_tokenizers`.
pub trait Objective<B: Backend>: Module<B> {
    /// The type of its training examples.
    type Example: Example;

    /// Examples as tensors.
    type Batch;

    /// The tensors of a batch, on `device`, which is the model's.
    fn batch(&self, examples: &[Self::Example], device: &B::Device) -> Self::Batch;

    /// The loss summed over a batch, and its weight.
    ///
    /// The weight must be the sum of the examples' [`Example::loss_weight`].
    fn loss(&self, batch: Self::Batch, options: &LossOptions) -> LossSums<B>;

    /// The width of the model, `d_model`, from which the paper's peak of the learning rate is computed (§5.3,
    /// equation 3). By default none; the run then needs a [`peak_rate`](crate::TrainingConfig::peak_rate).
    fn width(&self) -> Option<usize> {
        None
    }

    /// Checks that the model can learn from an example.
    ///
    /// # Errors
    /// The problem with the example, which is then an error of the run: before it starts for examples in a list, and
    /// when they are read for those of another [`ExampleSource`](crate::data::ExampleSource).
    fn check(&self, _example: &Self::Example) -> Result<(), ExampleProblem> {
        Ok(())
    }

    /// Checks that tokenizers fit the model. By default, any do.
    ///
    /// # Errors
    /// A tokenizer with more entries than the model, or with other ids for its special tokens. The run
    /// then does not start.
    #[cfg(feature = "text")]
    fn check_tokenizers(&self, _tokenizers: &Tokenizers) -> Result<(), TextError> {
        Ok(())
    }

    /// The model with the products of its training in that precision
    /// ([`TrainingConfig::precision`](crate::TrainingConfig::precision)); `None` if it has no such products.
    ///
    /// By default, a model's products are in f32. One that is made of the library's layers hands the precision on to
    /// them ([`MixedPrecision`](transformer_core::models::MixedPrecision)).
    fn prepare(self, precision: ProductPrecision) -> Option<Self> {
        (precision == ProductPrecision::F32).then_some(self)
    }

    /// Writes the model into a directory, which is created if missing.
    ///
    /// By default, writes all parameters into `model.safetensors`.
    ///
    /// # Errors
    /// When a file cannot be written.
    fn save(&self, directory: &Path) -> Result<(), TrainError> {
        Ok(save_weights(self, directory.join(WEIGHTS_FILE))?)
    }

    /// Fills the model with the weights that [`save`](Self::save) wrote, for a run that is resumed.
    ///
    /// Frozen parameters must stay frozen, as [`load_weights`] keeps them.
    ///
    /// # Errors
    /// When a file is missing or damaged, or is another model's. [`same_config`](crate::run::same_config)
    /// names the first key that differs between two configurations.
    fn restore(self, directory: &Path) -> Result<Self, TrainError> {
        Ok(load_weights(self, directory.join(WEIGHTS_FILE))?)
    }
}

/// An [`Objective`] with gradients, whose model without gradients is one, too. It is implemented for
/// every such model.
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

/// The model with its products in a run's precision.
///
/// # Errors
/// When the model or its backend has none of that precision.
pub(crate) fn prepared<B: AutodiffBackend, M: Objective<B>>(
    model: M,
    precision: ProductPrecision,
) -> Result<M, TrainError> {
    let device = device(&model);
    let model = model.prepare(precision);
    let model = model.ok_or(TrainError::ModelPrecision { precision })?;
    match multiplies_in::<B>(precision) {
        true => Ok(model),
        false => Err(TrainError::BackendPrecision {
            precision,
            backend: B::name(&device),
        }),
    }
}

/// The label-smoothed loss of next tokens (§5.4), for models whose logits are for every position of a
/// sequence. One that can compute them for some positions is faster by [`Labels::loss`].
///
/// # Shapes
/// - logits: `[batch, tgt_len, vocab_size]`
/// - labels: `[batch, tgt_len]`, each below vocab_size; `pad_id` is ignored
/// - output: see [`LossSums`]
///
/// # Panics
/// When the numbers of positions and of labels differ.
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

/// Checks that tokens are in a vocabulary.
///
/// # Errors
/// The first token that is not.
pub fn check_tokens(tokens: &[u32], vocab_size: usize) -> Result<(), ExampleProblem> {
    match tokens.iter().find(|&&token| token as usize >= vocab_size) {
        Some(&token) => Err(ExampleProblem::UnknownToken { token, vocab_size }),
        None => Ok(()),
    }
}
