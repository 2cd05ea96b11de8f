//! Running a trained model on any backend.

use std::path::PathBuf;

use burn::tensor::backend::Backend;
use transformer_core::{DecodeOptions, Translator};
use transformer_program::{BackendChoice, BackendTask, Precision, run_at};

use super::{Result, model_directory};

/// Flags of commands that run a model without training it.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Inference {
    /// Numbers to compute with: 16 bits need half the memory, and are less exact
    #[arg(long, value_enum, value_name = "TYPE", default_value_t)]
    precision: Precision,
}

impl Inference {
    /// Loads a model directory, or several as an ensemble, and runs a task with it.
    pub fn run(
        self,
        backend: BackendChoice,
        models: Vec<PathBuf>,
        options: DecodeOptions,
        task: impl TranslatorTask,
    ) -> Result {
        let task = Loading {
            models,
            options,
            task,
        };
        run_at(backend, self.precision, task)?
    }
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
    task: T,
}

impl<T: TranslatorTask> BackendTask for Loading<T> {
    type Output = Result;

    fn run<B: Backend>(self, device: B::Device) -> Result {
        for model in &self.models {
            model_directory::check(model, T::TEXT_FLAG)?;
        }
        let translator = Translator::<B>::load_ensemble(&self.models, &device)?;
        self.task.run_with(translator.with_options(self.options)?)
    }
}
