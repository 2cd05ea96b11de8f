//! Export of models to Hugging Face's classes.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::Path;

use burn::tensor::TensorData;
use burn::tensor::backend::Backend;
use burn_store::ModuleSnapshot;

use crate::formats::directory::ModelDirectory;
use crate::formats::error::ModelError;
use crate::formats::files::replace_file;
use crate::formats::fill::collected;
use crate::formats::format::Format;
use crate::formats::hugging_face::HuggingFace;
use crate::formats::hugging_face::config::{Family, ModelType};
use crate::formats::hugging_face::keys::Keys;
use crate::formats::hugging_face::{config_export, full_map, names};
use crate::formats::name_map::TiedNames;
use crate::formats::names::{CONFIG_FILE, GENERATION_FILE, WEIGHTS_FILE};
use crate::formats::options;
use crate::formats::state_dict::write_safetensors;
use crate::models::config::TransformerConfig;
use crate::models::language_model::LanguageModel;
use crate::models::transformer::Transformer;
use crate::models::tying::WeightTying;

impl TransformerConfig {
    /// Checks that [`Transformer::save_hugging_face`] or [`LanguageModel::save_hugging_face`] can write a model with
    /// this configuration, the one in the `config.json` of `directory`. Nothing is written.
    ///
    /// # Errors
    /// When no Hugging Face model type supports the configuration; the error names the file and the unsupported key.
    pub fn check_hugging_face(&self, directory: impl AsRef<Path>) -> Result<(), ModelError> {
        config_export::to_keys(directory.as_ref().join(CONFIG_FILE), self, None).map(drop)
    }
}

impl<B: Backend> Transformer<B> {
    /// Saves the model to a directory, which is created if missing, in the format of Hugging Face's `transformers`:
    /// `config.json`, `generation_config.json` with the special tokens, and `model.safetensors` in single precision.
    /// Its `from_pretrained` reads it and computes the same results. The type (`marian`, `m2m_100`, `bart`, `mbart` or
    /// `t5`) follows from the configuration.
    ///
    /// [`DecodeOptions::save`](crate::DecodeOptions::save) adds the decoding options. The tokenizer's files belong in
    /// the same directory.
    ///
    /// # Errors
    /// When no type supports the configuration; the error names the unsupported key. When a file cannot be written;
    /// existing ones are then unchanged.
    pub fn save_hugging_face(&self, directory: impl AsRef<Path>) -> Result<(), ModelError> {
        write(self, self.config(), directory.as_ref(), None)
    }

    /// [`save_hugging_face`](Self::save_hugging_face), but with the `config.json` keys that our configuration lacks
    /// copied from `original`, the directory from which the model was loaded: `max_position_embeddings` of a type that
    /// computes its positions, `encoder_layerdrop` and `decoder_layerdrop`. A directory of ours has none of them.
    ///
    /// # Errors
    /// As [`save_hugging_face`](Self::save_hugging_face).
    pub fn save_hugging_face_as(
        &self,
        directory: impl AsRef<Path>,
        original: &ModelDirectory,
    ) -> Result<(), ModelError> {
        let files = original.files();
        let keys = match HuggingFace.recognizes(files) {
            true => Some(Keys::of_config(files)?),
            false => None,
        };
        write(self, self.config(), directory.as_ref(), keys.as_ref())
    }
}

impl<B: Backend> LanguageModel<B> {
    /// Saves the model as [`Transformer::save_hugging_face`] does. The type is `gpt2`.
    ///
    /// # Errors
    /// As [`Transformer::save_hugging_face`].
    pub fn save_hugging_face(&self, directory: impl AsRef<Path>) -> Result<(), ModelError> {
        write(self, self.config(), directory.as_ref(), None)
    }
}

/// Writes a module with this configuration. Keys that our configuration lacks are copied from `original`.
fn write<B: Backend>(
    module: &impl ModuleSnapshot<B>,
    config: &TransformerConfig,
    directory: &Path,
    original: Option<&Keys>,
) -> Result<(), ModelError> {
    let paths = [CONFIG_FILE, GENERATION_FILE, WEIGHTS_FILE].map(|name| directory.join(name));
    let [config_path, generation_path, weights_path] = &paths;
    let (model_type, config_keys) = config_export::to_keys(config_path.clone(), config, original)?;
    let generation_keys = options::to_keys(generation_path, None, config)?;
    let map =
        full_map(model_type, config, usize::MAX).map_err(ModelError::unnamed(weights_path))?;
    let tying = config.tying;
    let mut tensors = map.export(
        &collected(module),
        match tying {
            // Since version 5, the class ties no matrices unless it ties the logits'.
            WeightTying::SourceTarget if model_type.family() == Family::Bart => TiedNames::Every,
            _ => TiedNames::First,
        },
    );
    let [source, _] = names::EMBEDDINGS;
    if tying == WeightTying::None
        && model_type != ModelType::Marian
        && let Some(source) = tensors.get(source).cloned()
    {
        // The class has this tensor but does not use it.
        tensors.insert(names::SHARED.to_owned(), source);
    }
    if model_type.has_generator_bias() && !config.generator_bias {
        let vocab_size = config.tgt_vocab_size;
        let zeros = TensorData::new(vec![0_f32; vocab_size], [1, vocab_size]);
        tensors.insert(names::LOGITS_BIAS.to_owned(), zeros);
    }
    fs::create_dir_all(directory).map_err(ModelError::io(directory))?;
    // All are on disk before any replaces an existing file.
    let at_work = Cell::new(config_path);
    replace_file(config_path, |side| -> io::Result<()> {
        fs::write(side, config_keys.to_json())?;
        at_work.set(generation_path);
        replace_file(generation_path, |side| -> io::Result<()> {
            fs::write(side, generation_keys.to_json())?;
            at_work.set(weights_path);
            let tensors = tensors.iter().map(|(name, data)| (name.as_str(), data));
            replace_file(weights_path, |side| write_safetensors(side, tensors))
        })
    })
    .map_err(|source| ModelError::io(at_work.get())(source))
}
