//! The directories passed as models.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use transformer_core::formats::{
    CONFIG_FILE, SHARED_PIECES_FILE, SOURCE_PIECES_FILE, TARGET_PIECES_FILE, TOKENIZER_FILE,
    VOCABULARY_FILE, run_of_checkpoint,
};
use transformer_core::{ModelDirectory, Tokenizers};
use transformer_train::data::{TRAINING_FILE, VALIDATION_FILE};
use transformer_train::progress::LOG_FILE;
use transformer_train::run::{RunRecord, holds_run};

use super::Result;
use crate::process::note;
use crate::run_file::RUN_FILE;

/// File extensions in a model directory.
const OF_A_MODEL: [&str; 7] = ["bin", "json", "model", "npz", "safetensors", "spm", "yml"];

/// Checks that a path is a model directory with a tokenizer, before anything in it is read. `text_flag` is the advice
/// for a user who passes a text file, without the file's name, such as `for a file of sentences use --input`.
pub fn check(path: &Path, text_flag: Option<&str>) -> std::result::Result<(), String> {
    if !ModelDirectory::is_in(path) {
        return Err(no_model(path, text_flag));
    }
    match has_tokenizers(path) {
        true => Ok(()),
        false => Err(format!("{} has no {}", path.display(), missing(path))),
    }
}

/// Whether a model has tokenizers, in its directory or, for a checkpoint, in the directory of its run.
pub fn has_tokenizers(path: &Path) -> bool {
    homes(path).any(Tokenizers::are_in)
}

/// Opens a model directory, and warns about unused tensors.
pub fn open(path: &Path) -> Result<ModelDirectory> {
    let directory = ModelDirectory::open(path)?;
    warn_of_unused(&directory);
    Ok(directory)
}

/// Refuses a language model, for a command that needs sources.
pub fn refuse_language_model(directory: &ModelDirectory) -> std::result::Result<(), String> {
    match directory.config().is_language_model() {
        false => Ok(()),
        true => Err(format!(
            "{} holds a language model, which reads no source sentences; see `transformer generate` and `transformer score`",
            directory.path().display()
        )),
    }
}

/// A directory and, for a checkpoint, the directory of its run, which has its tokenizers.
fn homes(path: &Path) -> impl Iterator<Item = PathBuf> {
    [Some(path.to_owned()), run_of_checkpoint(path)]
        .into_iter()
        .flatten()
}

/// The files of a model and its run.
pub fn files(path: &Path) -> Vec<PathBuf> {
    homes(path).flat_map(|home| files_in(&home)).collect()
}

fn files_in(path: &Path) -> Vec<PathBuf> {
    let of_run = [RUN_FILE, TRAINING_FILE, VALIDATION_FILE, LOG_FILE];
    let is_of_model = |file: &PathBuf| {
        let has_ending = file
            .extension()
            .is_some_and(|ending| OF_A_MODEL.iter().any(|own| ending == *own));
        has_ending || of_run.iter().any(|name| file.ends_with(name))
    };
    if path.is_file() {
        return vec![path.to_owned()];
    }
    // If the directory cannot be listed, reading it reports that.
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(is_of_model)
        .collect()
}

/// The maximum number of tensor names in a warning.
const MOST_NAMED: usize = 8;

/// Warns about unused tensors.
pub fn warn_of_unused(directory: &ModelDirectory) {
    let unused = directory.unused_tensors();
    if unused.is_empty() {
        return;
    }
    let named = &unused[..unused.len().min(MOST_NAMED)];
    let more = match unused.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    note(format_args!(
        "warning: {}: unused tensors: `{}`{more}",
        directory.path().display(),
        named.join("`, `")
    ));
}

/// The tokenizer files that a directory lacks. They are Marian's if it has one of Marian's files.
fn missing(directory: &Path) -> String {
    let has = |name: &&str| directory.join(name).exists();
    let of_marian = [SOURCE_PIECES_FILE, TARGET_PIECES_FILE];
    if !of_marian.iter().any(has) {
        return match has(&SHARED_PIECES_FILE) {
            true => format!(
                "{TOKENIZER_FILE}, and no {VOCABULARY_FILE} of M2M100 next to {SHARED_PIECES_FILE}"
            ),
            false => TOKENIZER_FILE.to_owned(),
        };
    }
    let all = of_marian.into_iter().chain([VOCABULARY_FILE]);
    let missing: Vec<&str> = all.filter(|name| !has(name)).collect();
    missing.join(", ")
}

/// Why a path holds no model, in one line.
pub fn no_model(path: &Path, text_flag: Option<&str>) -> String {
    let shown = path.display();
    if path.is_dir() {
        if let Err(error) = fs::metadata(path.join(CONFIG_FILE))
            && error.kind() != io::ErrorKind::NotFound
        {
            return format!("{shown}: {error}");
        }
        let has_begun = holds_run(path) && matches!(RunRecord::load(path), Ok(None));
        let run = match has_begun {
            true => "; the training run there has not written its first checkpoint yet",
            false => "",
        };
        return format!("{shown} holds no model: no {CONFIG_FILE}{run}");
    }
    if !path.exists() {
        return format!("{shown}: no such directory");
    }
    let ending = path.extension().and_then(|ending| ending.to_str());
    if ending.is_some_and(|ending| OF_A_MODEL.contains(&ending)) {
        return format!("{shown} is not a model directory; give the directory that the file is in");
    }
    match text_flag {
        Some(text_flag) => format!("{shown} is not a model directory; {text_flag} {shown}"),
        None => format!("{shown} is not a model directory, but a file"),
    }
}
