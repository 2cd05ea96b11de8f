//! The file that describes a run of `transformer train`: its keys, and how their values come together.
//!
//! | file | has |
//! |---|---|
//! | `keys` | every key: its name, type and default, and the text that the guide and `run.toml` show |
//! | `types` | the types of values, and the error for a value of another type |
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

pub use choices::BestBy;
pub use configs::{key_of, path_of};
pub use corpora::{Corpora, CorpusEntry};
pub use error::RunFileError;
pub use key::{Key, Section};
pub use keys::{
    CheckpointKeys, DataKeys, InitKeys, LogKeys, ModelKeys, SECTIONS, TokenizerKeys, TrainingKeys,
    ValidationKeys,
};
pub use preset::Preset;
pub use text::reference;
pub use values::{Values, read_of_run};

/// The file in the directory of a run that describes it, key by key.
pub const RUN_FILE: &str = "run.toml";

/// A run, key by key.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFile {
    /// `[data]`
    pub data: DataKeys,
    /// `[tokenizer]`
    pub tokenizer: TokenizerKeys,
    /// `[model]`
    pub model: ModelKeys,
    /// `[init]`
    pub init: InitKeys,
    /// `[training]`
    pub training: TrainingKeys,
    /// `[validation]`
    pub validation: ValidationKeys,
    /// `[checkpoint]`
    pub checkpoint: CheckpointKeys,
    /// `[log]`
    pub log: LogKeys,
}

impl RunFile {
    /// The run that the values describe; keys that have none have their defaults.
    ///
    /// # Errors
    /// The first value of the wrong type, out of range, or in contradiction to another, by the place that gave
    /// it.
    pub fn read(values: &Values) -> Result<Self, RunFileError> {
        let run = Self {
            data: DataKeys::read(values)?,
            tokenizer: TokenizerKeys::read(values)?.with_shared(),
            model: ModelKeys::read(values)?,
            init: InitKeys::read(values)?,
            training: TrainingKeys::read(values)?,
            validation: ValidationKeys::read(values)?,
            checkpoint: CheckpointKeys::read(values)?,
            log: LogKeys::read(values)?,
        };
        run.check(values)?;
        Ok(run)
    }

    /// The keys of `[data]` that have another value than in `before`.
    pub fn other_data(&self, before: &Self) -> Vec<&'static str> {
        let values = self.data.values().into_iter().zip(before.data.values());
        let keys = DataKeys::SECTION.keys.iter().zip(values);
        let others = keys.filter(|(_, (now, before))| now != before);
        others.map(|(key, _)| key.path).collect()
    }
}
