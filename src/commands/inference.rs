//! Running trained models on any backend.

use std::error::Error;
use std::path::PathBuf;

use burn::tensor::backend::Backend;
use transformer_core::decoding::NextToken;
use transformer_core::packed::PackedPrecision;
use transformer_core::text::TextError;
use transformer_core::{
    DecodeOptions, LanguageModel, ModelDirectory, PackedModel, TextGenerator, Transformer,
    Translator,
};

use super::decoding::options_for;
use super::languages::Languages;
use super::{Result, model_directory, options_error};
use crate::backend::{BackendChoice, BackendTask, Precision, Target, run_at};

/// Flags of commands that run a model without training it.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Inference {
    /// Number format to compute with; fewer bits need less memory and are less exact [default: int8 on ndarray and flex
    /// if every model is quantized, else f32]
    #[arg(long, value_enum, value_name = "TYPE")]
    precision: Option<Precision>,
    #[command(flatten)]
    languages: Languages,
}

impl Inference {
    /// Single precision, with these languages.
    pub fn between(languages: Languages) -> Self {
        Self {
            precision: Some(Precision::F32),
            languages,
        }
    }

    /// The source language, if one is chosen.
    pub fn source_language(&self) -> Option<&str> {
        self.languages.source()
    }

    /// Runs a task with a model directory, or with several as an ensemble. `options` receives the decoding options that
    /// the (first) model was saved with, or the paper's.
    pub fn run<T: TranslatorTask>(
        self,
        target: Target<'_>,
        models: Vec<PathBuf>,
        options: impl FnOnce(DecodeOptions) -> std::result::Result<DecodeOptions, String>,
        task: T,
    ) -> Result {
        // All are checked before any is read.
        for model in &models {
            model_directory::check(model, T::TEXT_FLAG)?;
        }
        let directories = models
            .iter()
            .map(|model| model_directory::open(model))
            .collect::<Result<Vec<_>>>()?;
        for directory in &directories {
            T::check(directory)?;
        }
        let of_model = directories.first().map(ModelDirectory::options);
        let mut options = options(of_model.transpose()?.flatten().unwrap_or_default())?;
        if let Some(directory) = directories.first() {
            options = options_for(directory, options)?;
        }
        // int8 if the backend supports it and every model is quantized, else f32.
        let is_int8 = target.backend.packs() && directories.iter().all(ModelDirectory::is_int8);
        let precision = self.precision.unwrap_or(match is_int8 {
            true => Precision::Int8,
            false => Precision::F32,
        });
        let source = Source {
            directories,
            options,
            languages: self.languages,
            packing: packing(target.backend, precision),
        };
        run_at(target, precision, OnBackend { source, task })?
    }
}

/// The precision of packed models for decoding; `None` on backends without packed models.
fn packing(backend: BackendChoice, precision: Precision) -> Option<PackedPrecision> {
    backend.packs().then_some(match precision {
        Precision::Int8 => PackedPrecision::Int8,
        Precision::F32 | Precision::F16 | Precision::Bf16 => PackedPrecision::F32,
    })
}

/// A task that runs trained models, on any backend.
pub trait TranslatorTask {
    /// The advice for a user who passes a text file as a model, if a flag reads text files; see
    /// [`model_directory::check`].
    const TEXT_FLAG: Option<&'static str>;

    /// Checks that the command can run a model; by default, that it translates.
    fn check(directory: &ModelDirectory) -> std::result::Result<(), String> {
        model_directory::refuse_language_model(directory)
    }

    /// Loads the models, and runs with them.
    fn run_with<B: Backend>(self, models: Models<B>) -> Result;
}

/// The directories of the models, and their decoding settings.
struct Source {
    directories: Vec<ModelDirectory>,
    options: DecodeOptions,
    languages: Languages,
    packing: Option<PackedPrecision>,
}

struct OnBackend<T> {
    source: Source,
    task: T,
}

impl<T: TranslatorTask> BackendTask for OnBackend<T> {
    type Output = Result;

    fn run<B: Backend>(self, device: B::Device) -> Result {
        let source = self.source;
        self.task.run_with(Models::<B> { source, device })
    }
}

/// The models of a command on a backend. They load the translators that the command needs, ready to decode.
pub struct Models<B: Backend> {
    source: Source,
    device: B::Device,
}

impl<B: Backend> Models<B> {
    /// The translator of models in the backend's tensors: for losses, and for decoding on backends
    /// without packed models.
    pub fn plain(&self) -> Result<PlainTranslator<B>> {
        self.ready(Translator::of(&self.source.directories, &self.device)?)
    }

    /// Whether packed models decode, which requires a backend that computes on the host.
    pub fn packs(&self) -> bool {
        self.source.packing.is_some()
    }

    /// The translator of packed models.
    pub fn packed(&self) -> Result<Translator<PackedModel>> {
        let precision = self.source.packing.unwrap_or_default();
        self.ready(Translator::packed_of(&self.source.directories, precision)?)
    }

    /// Whether the first of the models is a language model.
    pub fn is_language_model(&self) -> bool {
        let first = self.source.directories.first();
        first.is_some_and(|directory| directory.config().is_language_model())
    }

    /// The generator of language models in the backend's tensors.
    pub fn plain_generator(&self) -> Result<TextGenerator<LanguageModel<B>>> {
        self.ready_generator(TextGenerator::of(&self.source.directories, &self.device)?)
    }

    /// The generator of packed language models.
    pub fn packed_generator(&self) -> Result<TextGenerator<PackedModel>> {
        let precision = self.source.packing.unwrap_or_default();
        self.ready_generator(TextGenerator::packed_of(
            &self.source.directories,
            precision,
        )?)
    }

    fn ready_generator<M: NextToken>(
        &self,
        generator: TextGenerator<M>,
    ) -> Result<TextGenerator<M>> {
        let languages = &self.source.languages;
        languages.of_tokenizers(generator.tokenizers().clone())?;
        let options = self.source.options.clone();
        generator.with_options(options).map_err(of_flags)
    }

    /// A translator with the command's options and languages.
    fn ready<M: NextToken>(&self, translator: Translator<M>) -> Result<Translator<M>> {
        let translator = translator.with_options(self.source.options.clone());
        let translator = translator.map_err(of_flags)?;
        self.source.languages.of(translator)
    }
}

/// An error, with the names of flags if it is about decoding options.
fn of_flags(error: TextError) -> Box<dyn Error> {
    match error {
        TextError::Options(error) => options_error(error).into(),
        error => error.into(),
    }
}

/// A translator of models in a backend's tensors.
pub type PlainTranslator<B> = Translator<Transformer<B>>;
