//! Which files of a directory are the model and its vocabularies.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::decoding::{DecodeOptions, LengthPenalty, Shortlist, Strategy};
use crate::formats::error::ModelError;
use crate::formats::files;
use crate::formats::hugging_face::keys::Keys;
use crate::formats::marian::model_file;
use crate::formats::marian::yaml;
use crate::formats::names::{CONFIG_FILE, SOURCE_PIECES_FILE, TARGET_PIECES_FILE};
use crate::formats::vocabularies::{UNKNOWN, Vocabularies};

/// The files of a model, by name.
pub(super) struct Place {
    pub model: String,
    /// The vocabularies of source and target.
    pub vocabularies: [String; 2],
    /// SentencePiece models for vocabularies that are lists.
    pub pieces: Option<[String; 2]>,
    /// The settings that name the files, if there are any.
    pub settings: Option<Keys>,
}

impl Place {
    /// Whether a directory has a model of Marian.
    pub fn is_in(directory: &Path) -> bool {
        !files::is_there(&directory.join(CONFIG_FILE))
            && names_in(directory)
                .is_ok_and(|names| names.iter().any(|name| is_model(directory, name)))
    }

    /// Finds the files: those that settings for decoding (`decoder.yml`) name or, without settings, the only model and
    /// the vocabularies in the directory.
    ///
    /// # Errors
    /// When files are missing, or it is not clear which are meant.
    pub fn find(directory: &Path) -> Result<Self, ModelError> {
        let names = names_in(directory).map_err(ModelError::io(directory))?;
        let problem = |problem: String| ModelError::Weights {
            path: directory.to_owned(),
            problem,
        };
        let has = |name: &str| names.iter().any(|own| own == name);
        let settings = settings(directory, &names)?;
        let named = |key| match &settings {
            Some(settings) if settings.value(key).is_some() => listed(settings, key).map(Some),
            _ => Ok(None),
        };
        let models = match named("models")? {
            Some(models) => models,
            None => {
                let models = names.iter().filter(|name| is_model(directory, name));
                models.cloned().collect()
            }
        };
        let vocabularies = match named("vocabs")? {
            Some(vocabularies) => vocabularies,
            None => unlisted_vocabularies(&names),
        };
        let [model] = models.try_into().map_err(|found: Vec<String>| {
            problem(format!(
                "{} models of Marian ({}); one is read, and a `decoder.yml` says which",
                found.len(),
                found.join(", ")
            ))
        })?;
        let vocabularies = match &vocabularies[..] {
            [shared] => [shared.clone(), shared.clone()],
            [source, target] => [source.clone(), target.clone()],
            found => {
                return Err(problem(format!(
                    "{} vocabularies ({}); a source and a target can be read, and a `decoder.yml` says which",
                    found.len(),
                    found.join(", ")
                )));
            }
        };
        let pieces = [SOURCE_PIECES_FILE, TARGET_PIECES_FILE];
        let pieces = pieces
            .iter()
            .all(|name| has(name))
            .then(|| pieces.map(str::to_owned));
        Ok(Self {
            model,
            vocabularies,
            pieces,
            settings,
        })
    }

    /// The decoding options in the settings. `<unk>` is not predicted, unless they allow it.
    pub fn options(
        &self,
        directory: &Path,
        vocabularies: &Vocabularies,
    ) -> Result<DecodeOptions, ModelError> {
        let mut options = DecodeOptions {
            banned_tokens: vocabularies.target().id(UNKNOWN).into_iter().collect(),
            length_penalty: LengthPenalty::AVERAGE,
            ..DecodeOptions::default()
        };
        let Some(keys) = &self.settings else {
            return Ok(options);
        };
        if keys.flag_or("allow-unk", false)? {
            options.banned_tokens.clear();
        }
        if let Some(size) = keys.size("beam-size")? {
            options.strategy = Strategy::Beam { size };
        }
        options.length_penalty = match keys.number("normalize")?.unwrap_or(0.0) {
            0.0 => LengthPenalty::None,
            alpha => LengthPenalty::Power(alpha),
        };
        options.shortlist = self.shortlist(directory, keys)?.map(Arc::new);
        options.validate().map_err(|source| ModelError::Options {
            path: keys.path().to_owned(),
            source,
        })?;
        let penalty = keys.number("word-penalty")?;
        match penalty.is_none_or(|penalty| penalty == 0.0) {
            true => Ok(options),
            false => Err(keys.refusal("word-penalty", "but only 0 is supported")),
        }
    }

    /// The shortlist that the settings name, if it is in the directory.
    fn shortlist(
        &self,
        directory: &Path,
        settings: &Keys,
    ) -> Result<Option<Shortlist>, ModelError> {
        // The name comes first in a list with numbers and flags.
        let name = match settings.value("shortlist") {
            Some(Value::Array(list)) => list.first().and_then(name_of),
            _ => None,
        };
        let path = name.map(|name| directory.join(name));
        let Some(path) = path.filter(|path| files::is_there(path)) else {
            return Ok(None);
        };
        let shortlist = Shortlist::load(path)?;
        let [source, target] = &self.vocabularies;
        Ok(Some(match source == target {
            true => shortlist.with_source_tokens(),
            false => shortlist,
        }))
    }
}

/// The names of the files in a directory, in order.
fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?;
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    let names: io::Result<Vec<Option<String>>> = names.collect();
    let mut names: Vec<String> = names?.into_iter().flatten().collect();
    names.sort();
    Ok(names)
}

/// Whether a file is a model, judging by its name and first bytes.
fn is_model(directory: &Path, name: &str) -> bool {
    let is_named = name.ends_with(".npz") || name.ends_with(".bin");
    // Files of a training run, and shortlists.
    let is_other = name.contains(".optimizer.") || name.starts_with("lex.");
    let begins = || {
        let mut first = [0; 8];
        let mut file = files::open(&directory.join(name)).ok()?;
        file.read_exact(&mut first).ok()?;
        Some(model_file::begins(name, &first))
    };
    is_named && !is_other && begins().unwrap_or(false)
}

/// The settings for decoding: `decoder.yml`, or else the file with `models:` and `vocabs:` that has the shortest name.
fn settings(directory: &Path, names: &[String]) -> Result<Option<Keys>, ModelError> {
    let mut candidates: Vec<&String> = names.iter().filter(|name| name.ends_with(".yml")).collect();
    candidates.sort_by_key(|name| (*name != "decoder.yml", name.len()));
    for name in candidates {
        let path = directory.join(name);
        let bytes = files::read(&path).map_err(ModelError::io(&path))?;
        // A vocabulary is a mapping, too, and is not worth reading to the end.
        let is_settings = ["models:", "vocabs:"].iter().all(|key| {
            let begins = |line: &[u8]| line.starts_with(key.as_bytes());
            bytes.split(|&byte| byte == b'\n').any(begins)
        });
        if is_settings || name == "decoder.yml" {
            return yaml(&path, &bytes).map(Some);
        }
    }
    Ok(None)
}

/// The files of a list in the settings. Folders are ignored: a model's files lie side by side.
fn listed(settings: &Keys, key: &str) -> Result<Vec<String>, ModelError> {
    let list = settings.value(key).and_then(Value::as_array);
    let names: Option<Vec<String>> = list.and_then(|list| list.iter().map(name_of).collect());
    let names = names.ok_or_else(|| settings.refusal(key, "not a list of files"))?;
    // A vocabulary for both sides is named twice.
    Ok(match &names[..] {
        [one, other] if one == other => vec![one.clone()],
        _ => names,
    })
}

/// The name of the file at a path, without its folders.
fn name_of(value: &Value) -> Option<String> {
    let path = Path::new(value.as_str()?);
    Some(path.file_name()?.to_str()?.to_owned())
}

/// The vocabularies of a directory without settings: the SentencePiece models or, if there are none, the lists.
fn unlisted_vocabularies(names: &[String]) -> Vec<String> {
    let ending = |ends: &[&str]| -> Vec<String> {
        let found = names
            .iter()
            .filter(|name| ends.iter().any(|end| name.ends_with(end)));
        let mut found: Vec<String> = found.cloned().collect();
        // `source.spm` and `srcvocab.….spm` come before their targets.
        found.sort_by_key(|name| name.starts_with("target") || name.starts_with("trg"));
        found
    };
    let lists = ending(&["vocab.yml", "vocab.yaml", "vocab.txt"]);
    match lists.is_empty() {
        true => ending(&[".spm"]),
        false => lists,
    }
}
