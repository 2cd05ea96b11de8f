//! The run file of `transformer train`: its keys, and how their values are combined.
//!
//! | file | contents |
//! |---|---|
//! | `keys` | every key: its name, type, default, and the text in the guide and in `run.toml` |
//! | `key` | the types of keys and sections, and the macro that defines them |
//! | `types` | the error for a value of the wrong type |
//! | `values` | the values from a file, from flags and from `--set`, each with the place that set it |
//! | `unknown` | errors for unknown keys and sections, with those that were probably meant |
//! | `rules` | the rules for values and for their combinations |
//! | `effects` | keys that have no effect together with another key |
//! | `choices`, `corpora`, `preset` | the types of some values |
//! | `configs` | the library's configurations of a run |
//! | `text` | the text of `run.toml`, and the tables of the guide |

mod choices;
mod configs;
mod corpora;
mod effects;
mod error;
mod key;
mod keys;
mod preset;
mod rules;
mod text;
mod types;
mod unknown;
mod values;

use std::path::{Path, PathBuf};

use toml::Table;

pub use choices::BestBy;
pub use configs::{key_of, path_of};
pub use corpora::{Corpora, CorpusEntry};
pub use error::RunFileError;
pub use key::{Key, Section};
pub use keys::{
    CheckpointKeys, DataKeys, InitKeys, LogKeys, ModelKeys, RunFile, SECTIONS, TokenizerKeys,
    TrainingKeys, ValidationKeys,
};
pub use preset::Preset;
pub use text::reference;
pub use values::{Values, read_of_run};

/// The file in the directory of a run that has every key of the run.
pub const RUN_FILE: &str = "run.toml";

impl RunFile {
    /// The run that the values describe. Keys without a value have their defaults.
    ///
    /// # Errors
    /// The first value that has the wrong type, is out of range, or contradicts another value, with the place that set
    /// it.
    pub fn read(values: &Values) -> Result<Self, RunFileError> {
        let mut run = Self::default();
        let mut given = Table::new();
        for section in &SECTIONS {
            let mut keys = Table::new();
            for key in section.keys {
                let Some(value) = values.value(key.path) else {
                    continue;
                };
                keys.insert(key.name.to_owned(), value.clone());
                given.insert(section.name.to_owned(), keys.clone().into());
                // The values before this one have been read without an error.
                let read = given.clone().try_into();
                run = read.map_err(|error: toml::de::Error| {
                    values.refuse(key.path, value, types::rule(key, error.message()))
                })?;
            }
        }
        run.tokenizer.shared = Some(run.tokenizer.is_shared());
        run.check(values)?;
        Ok(run)
    }

    /// The keys of `[data]` whose values differ from `before`.
    pub fn other_data(&self, before: &Self) -> Vec<&'static str> {
        let [now, before] = [self, before].map(Self::table);
        let keys = DataKeys::SECTION.keys.iter();
        let others = keys.filter(|key| key.of(&now) != key.of(&before));
        others.map(|key| key.path).collect()
    }
}

impl DataKeys {
    /// The files of training pairs and of validation pairs that a run names.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let corpora = [Some(&self.train), self.valid.as_ref()];
        let corpora = corpora.into_iter().flatten();
        corpora.flat_map(|corpora| corpora.paths())
    }
}

impl TokenizerKeys {
    /// The files of tokenizers that a run names.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.file, &self.source_file, &self.target_file];
        files.into_iter().flatten().map(PathBuf::as_path)
    }
}
