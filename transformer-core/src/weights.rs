//! Models as directories: `config.json` and `model.safetensors`.
//!
//! Each parameter is stored in single precision under its path in [`Transformer`], matrices as
//! `[d_input, d_output]`; tied ones are stored once.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::Path;

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn_store::{ModuleStore, SafetensorsStore};

use crate::config::TransformerConfig;
use crate::error::ModelError;
use crate::files::{replace_file, replace_file_with};
use crate::init::WeightInit;
use crate::transformer::Transformer;

/// The configuration's file in a model directory.
pub const CONFIG_FILE: &str = "config.json";
/// The weights' file in a model directory.
pub const WEIGHTS_FILE: &str = "model.safetensors";

impl TransformerConfig {
    /// Reads `config.json` from a model directory.
    ///
    /// # Errors
    /// When the file is missing, is not a configuration, or contradicts itself.
    pub fn load(directory: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = directory.as_ref().join(CONFIG_FILE);
        let text = fs::read_to_string(&path).map_err(ModelError::io(&path))?;
        let config: Self = serde_json::from_str(&text).map_err(|source| ModelError::Json {
            path: path.clone(),
            source,
        })?;
        match config.validate() {
            Ok(()) => Ok(config),
            Err(source) => Err(ModelError::Config { path, source }),
        }
    }

    /// Writes `config.json` into a model directory that exists.
    ///
    /// # Errors
    /// When the file cannot be written; an older one then stays as it was.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<(), ModelError> {
        let path = directory.as_ref().join(CONFIG_FILE);
        let json = self.to_json(&path)?;
        replace_file_with(&path, json).map_err(ModelError::io(path))
    }

    fn to_json(&self, path: &Path) -> Result<String, ModelError> {
        match serde_json::to_string_pretty(self) {
            Ok(json) => Ok(json + "\n"),
            Err(source) => Err(ModelError::Json {
                path: path.to_owned(),
                source,
            }),
        }
    }
}

impl<B: Backend> Transformer<B> {
    /// Writes the model into a directory, which is made where there is none.
    ///
    /// # Errors
    /// When a file cannot be written; an older one then stays as it was.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<(), ModelError> {
        let directory = directory.as_ref();
        fs::create_dir_all(directory).map_err(ModelError::io(directory))?;
        let config_path = directory.join(CONFIG_FILE);
        let weights_path = directory.join(WEIGHTS_FILE);
        let json = self.config().to_json(&config_path)?;
        // Both are on the disk before either takes its place.
        let at_work = Cell::new(&config_path);
        replace_file(&config_path, |side| -> io::Result<()> {
            fs::write(side, json)?;
            at_work.set(&weights_path);
            replace_file(&weights_path, |side| {
                // One entry: several would be written in an order that changes from run to run.
                let mut store = SafetensorsStore::from_file(side)
                    .overwrite(true)
                    .clear_metadata()
                    .metadata("format", "burn");
                store.collect_from(self).map_err(io::Error::other)
            })?;
            at_work.set(&config_path);
            Ok(())
        })
        .map_err(|source| ModelError::io(at_work.get())(source))
    }

    /// Reads a model from a directory.
    ///
    /// # Errors
    /// When a file is missing or damaged, or the weights are not the configuration's: then one
    /// error names every tensor that is missing, unknown, mis-shaped or mistyped.
    pub fn load(directory: impl AsRef<Path>, device: &B::Device) -> Result<Self, ModelError> {
        let directory = directory.as_ref();
        let config = TransformerConfig::load(directory)?;
        let path = directory.join(WEIGHTS_FILE);
        let size = fs::metadata(&path).map_err(ModelError::io(&path))?.len();
        load_weights(&config, &path, size, device)
            .map_err(|problem| ModelError::Weights { path, problem })
    }
}

/// Bytes by which a file may be too short and its missing tensors still be named one by one.
const SLACK: u128 = 1 << 28;

/// Builds the model and fills it from the file at `path`, of `size` bytes.
fn load_weights<B: Backend>(
    config: &TransformerConfig,
    path: &Path,
    size: u64,
    device: &B::Device,
) -> Result<Transformer<B>, String> {
    // Checked before anything is allocated: a damaged configuration can ask for any size.
    let needed = config.num_params() * size_of::<f32>() as u128;
    if u128::from(size) + SLACK < needed {
        return Err(format!(
            "{size} bytes, but the configuration has {needed} bytes of weights"
        ));
    }
    let mut model = config
        .init_from(&mut WeightInit::zeros(), device)
        .map_err(|error| error.to_string())?;
    let mut store = SafetensorsStore::from_file(path)
        .validate(false)
        .allow_partial(true);

    let mut problems: Vec<String> = store
        .get_all_snapshots()
        .map_err(|error| error.to_string())?
        .iter()
        .filter(|(_, tensor)| tensor.dtype != DType::F32)
        .map(|(name, tensor)| format!("`{name}` is {}, not F32", tensor.dtype.name()))
        .collect();
    if !problems.is_empty() {
        // A tensor of another type must never reach a backend, which trusts the type.
        return Err(problems.join("; "));
    }
    let applied = store
        .apply_to(&mut model)
        .map_err(|error| error.to_string())?;
    let missing = applied.missing.iter();
    problems.extend(missing.map(|(name, _)| format!("`{name}` is missing")));
    let unused = applied.unused.iter();
    problems.extend(unused.map(|name| format!("`{name}` is unknown")));
    problems.extend(applied.errors.iter().map(ToString::to_string));
    if problems.is_empty() {
        Ok(model)
    } else {
        problems.sort();
        Err(format!(
            "not the weights of its configuration: {}",
            problems.join("; ")
        ))
    }
}
