//! Formats of model directories.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::decoding::DecodeOptions;
use crate::formats::argos::Package;
use crate::formats::converted;
use crate::formats::error::ModelError;
use crate::formats::files::{is_there, read, read_json};
use crate::formats::hugging_face::keys::Keys;
use crate::formats::names::{
    CHECKPOINTS, CONFIG_FILE, GENERATION_FILE, TOKENIZER_FILES, has_tokenizers,
};
use crate::formats::options::options_of;
use crate::formats::parameter::StoredParameter;
use crate::models::config::TransformerConfig;

/// A format of model directory: its files, tensor names and configuration keys. Implement it to read your own format
/// with [`ModelDirectory::open_with`](crate::ModelDirectory::open_with).
pub trait Format {
    /// Whether a directory has this format, judging by its file names and `config.json`.
    fn recognizes(&self, files: &Files) -> bool;

    /// Reads the configuration and lists the parameters, whose values stay in the files.
    ///
    /// # Errors
    /// When a file is missing or damaged, or a [`TransformerConfig`] cannot describe the model.
    fn open(&self, files: &Files) -> Result<Opened, ModelError>;
}

/// A model directory, as read by its [`Format`].
///
/// The parameters must match the configuration in path and shape
/// ([`parameter_shapes`](TransformerConfig::parameter_shapes)); [`ModelDirectory`](crate::ModelDirectory) checks this.
pub struct Opened {
    /// The format, as `transformer info` shows it.
    pub format: String,
    /// The configuration of the model.
    pub config: TransformerConfig,
    /// The file that lists the tensors, which errors about parameters name.
    pub weights: PathBuf,
    /// The parameters.
    pub parameters: Vec<StoredParameter>,
    /// The decoding options, used if there are none in the files ([`Files::options`]).
    pub options: Option<DecodeOptions>,
    /// Tensors in the files that the model does not use.
    pub unused: Vec<String>,
}

/// The operating system's error code for a missing file, on Unix and Windows.
const NOT_FOUND: i32 = 2;

/// The files of a model directory. `config.json` and `generation_config.json` are read once.
pub struct Files {
    directory: PathBuf,
    /// The package of Argos Translate that has the directory.
    _package: Option<Package>,
    /// The directory of the run, if this is a checkpoint.
    run: Option<PathBuf>,
    config: Option<String>,
    generation: OnceLock<Option<Keys>>,
}

impl Files {
    /// Opens a directory, which may lack any of its files. Of a package of Argos Translate, it is the model's; an
    /// archive is unpacked into a temporary directory, which is removed with this value.
    ///
    /// # Errors
    /// When `config.json` exists but cannot be read, or a package cannot be.
    pub fn of(directory: impl AsRef<Path>) -> Result<Self, ModelError> {
        let package = Package::open(directory.as_ref())?;
        let directory = match &package {
            Some(package) => &package.model,
            None => directory.as_ref(),
        };
        let path = directory.join(CONFIG_FILE);
        let config = match read_json(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(ModelError::io(path)(error)),
        };
        Ok(Self {
            directory: directory.to_owned(),
            run: run_of_checkpoint(directory),
            config,
            generation: OnceLock::new(),
            _package: package,
        })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of a file in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Whether the directory has a file of this name.
    pub fn has(&self, name: &str) -> bool {
        is_there(&self.path(name))
    }

    /// The text of `config.json`, if there is one.
    pub fn config(&self) -> Option<&str> {
        self.config.as_deref()
    }

    /// The text of `config.json`.
    ///
    /// # Errors
    /// When it is missing.
    pub(crate) fn config_text(&self) -> Result<&str, ModelError> {
        let missing = || std::io::Error::from_raw_os_error(NOT_FOUND);
        self.config()
            .ok_or_else(|| ModelError::io(self.path(CONFIG_FILE))(missing()))
    }

    /// The keys of `generation_config.json`, which may be in the run's directory of a checkpoint.
    pub(crate) fn generation(&self) -> Result<Option<&Keys>, ModelError> {
        if self.generation.get().is_none() {
            let read = |home: &Path| Keys::read_if_there(&home.join(GENERATION_FILE)).transpose();
            let found = self.homes().find_map(read).transpose()?;
            self.generation.get_or_init(|| found);
        }
        Ok(self.generation.get().and_then(Option::as_ref))
    }

    /// The directory and, for a checkpoint, the directory of its run.
    fn homes(&self) -> impl Iterator<Item = &Path> {
        let homes = [Some(&self.directory), self.run.as_ref()];
        homes.into_iter().flatten().map(PathBuf::as_path)
    }

    /// The decoding options in `generation_config.json` or a Hugging Face model's `config.json`; `None` if neither has
    /// any.
    ///
    /// # Errors
    /// When the file is damaged, an option is out of range, or a key requests an unsupported search.
    pub fn options(&self) -> Result<Option<DecodeOptions>, ModelError> {
        Ok(options_of(self)?.map(|(_, options)| options))
    }

    /// Reads a file of the directory or, for a checkpoint, of its run's; `None` if neither has it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ModelError> {
        for home in self.homes() {
            if let Some(bytes) = read_if_there(&home.join(name))? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// Reads the tokenizer files: their names and bytes.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn read_tokenizers(&self) -> Result<Vec<(&'static str, Vec<u8>)>, ModelError> {
        let home = self.tokenizers().unwrap_or(&self.directory);
        if converted::is_in(home) {
            let converted = converted::tokenizer_files(self)?.into_iter();
            return Ok(converted.map(|file| (file.name, file.bytes)).collect());
        }
        let read = |name| Some((name, read_if_there(&home.join(name)).transpose()?));
        let found = TOKENIZER_FILES.into_iter().filter_map(read);
        found.map(|(name, bytes)| Ok((name, bytes?))).collect()
    }

    /// The directory with the tokenizers: this one or, for a checkpoint (`run/checkpoints/update-…`), its run's; `None`
    /// if neither has any.
    pub fn tokenizers(&self) -> Option<&Path> {
        self.homes().find(|home| has_tokenizers(home))
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Files").field(&self.directory).finish()
    }
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, ModelError> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ModelError::io(path)(error)),
    }
}

/// The directory of the run that a checkpoint (`run/checkpoints/update-…`) belongs to; `None` for other directories.
pub fn run_of_checkpoint(directory: impl AsRef<Path>) -> Option<PathBuf> {
    // Resolved, because a path such as `.` does not say where it is.
    let directory = directory.as_ref().canonicalize().ok()?;
    let below = directory.parent()?;
    let run = below.parent()?;
    (below.file_name()? == CHECKPOINTS).then(|| run.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_below_its_run() {
        let run = tempfile::tempdir().unwrap();
        let checkpoint = run.path().join("checkpoints/update-00000004");
        std::fs::create_dir_all(&checkpoint).unwrap();
        let expected = run.path().canonicalize().unwrap();
        assert_eq!(run_of_checkpoint(&checkpoint), Some(expected));
        for other in [run.path(), &run.path().join("none")] {
            assert_eq!(run_of_checkpoint(other), None);
        }
    }
}
