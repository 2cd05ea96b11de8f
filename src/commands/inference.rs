//! Running a trained model on any backend.

use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;
use transformer_core::{DecodeOptions, Tokenizers, Translator};
use transformer_program::{BackendChoice, BackendTask, Precision, run_at};

use super::languages::Languages;
use super::{Result, model_directory};

/// Flags of commands that run a model without training it.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Inference {
    /// Numbers to compute with: 16 bits need half the memory, and are less exact
    #[arg(long, value_enum, value_name = "TYPE", default_value_t)]
    precision: Precision,
    #[command(flatten)]
    languages: Languages,
}

impl Inference {
    /// Single precision, and these languages.
    pub fn between(languages: Languages) -> Self {
        Self {
            precision: Precision::default(),
            languages,
        }
    }

    /// Loads a model directory, or several as an ensemble, and runs a task with it. `options` is given the options
    /// of decoding that the (first) model was saved with, or the paper's.
    pub fn run<T: TranslatorTask>(
        self,
        backend: BackendChoice,
        models: Vec<PathBuf>,
        options: impl FnOnce(DecodeOptions) -> std::result::Result<DecodeOptions, String>,
        task: T,
    ) -> Result {
        for model in &models {
            model_directory::check(model, T::TEXT_FLAG)?;
        }
        let of_model = match models.first() {
            Some(first) => options_of(first)?,
            None => DecodeOptions::default(),
        };
        let task = Loading {
            models,
            options: options(of_model)?,
            languages: self.languages,
            task,
        };
        run_at(backend, self.precision, task)?
    }
}

/// The options of decoding in a model directory; those of a checkpoint are in the directory of its run.
fn options_of(model: &Path) -> Result<DecodeOptions> {
    let directory = Tokenizers::directory_of(model).unwrap_or_else(|| model.to_owned());
    Ok(DecodeOptions::of_directory(directory)?.unwrap_or_default())
}

/// A task that needs a translator, on any backend.
pub trait TranslatorTask {
    /// The flag for a file of text, if there is one: advice for somebody who gives it as a model, see
    /// [`model_directory::check`].
    const TEXT_FLAG: Option<&'static str>;

    /// Runs with a translator that is ready to decode.
    fn run_with<B: Backend>(self, translator: Translator<B>) -> Result;
}

struct Loading<T> {
    models: Vec<PathBuf>,
    options: DecodeOptions,
    languages: Languages,
    task: T,
}

impl<T: TranslatorTask> BackendTask for Loading<T> {
    type Output = Result;

    fn run<B: Backend>(self, device: B::Device) -> Result {
        let translator = Translator::<B>::load_ensemble(&self.models, &device)?;
        let translator = translator.with_options(self.options)?;
        self.task.run_with(self.languages.of(translator)?)
    }
}
