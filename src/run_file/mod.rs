//! The file that describes a run of `transformer train`: its keys, and how their values come together.
//!
//! | file | has |
//! |---|---|
//! | `keys` | every key: its name, type and default, and the text that the guide and `run.toml` show |
//! | `types` | the error for a value of another type than the key's |
//! | `values` | the values given by a file, by flags, by `--set`, each with the place that gave it |
//! | `unknown` | keys and sections that there are not, and those that were probably meant |
//! | `rules` | the rules for values, and combinations that contradict each other |
//! | `effects` | keys that have no effect beside another one |
//! | `configs` | the library's configurations of a run |
//! | `text` | `run.toml`, and the guide's tables |

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

use std::path::Path;

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

/// The file in the directory of a run that describes it, key by key.
pub const RUN_FILE: &str = "run.toml";

impl RunFile {
    /// The run that the values describe; keys that have none have their defaults.
    ///
    /// # Errors
    /// The first value of the wrong type, out of range, or in contradiction to another, by the place that gave
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
                // The values before this one have been read.
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

    /// The keys of `[data]` that have another value than in `before`.
    pub fn other_data(&self, before: &Self) -> Vec<&'static str> {
        let [now, before] = [self, before].map(Self::table);
        let keys = DataKeys::SECTION.keys.iter();
        let others = keys.filter(|key| key.of(&now) != key.of(&before));
        others.map(|key| key.path).collect()
    }
}

impl DataKeys {
    /// The files that a run names: of the pairs to train on, and of those to validate on.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let corpora = [Some(&self.train), self.valid.as_ref()];
        let corpora = corpora.into_iter().flatten();
        corpora.flat_map(|corpora| corpora.paths())
    }
}
