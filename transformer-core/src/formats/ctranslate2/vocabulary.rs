//! The lists of tokens beside `model.bin`.

use std::path::Path;

use crate::formats::error::ModelError;
use crate::formats::files::is_there;
use crate::formats::format::Files;
use crate::formats::vocabularies::{END, Side, UNKNOWN, Vocabularies};

/// The name of the list of a decoder without encoder.
const OF_LANGUAGE_MODEL: &str = "vocabulary";

/// Whether a directory has such lists.
pub(super) fn are_in(directory: &Path) -> bool {
    let [source, _] = names_of_lists(directory);
    source.is_some()
}

/// Reads the lists of a directory. `unknown` and `end` are the names that its configuration has for these tokens.
///
/// # Errors
/// When a list is missing or damaged.
pub(super) fn read(files: &Files, unknown: &str, end: &str) -> Result<Vocabularies, ModelError> {
    let [source, target] = names_of_lists(files.directory());
    let Some(source) = source else {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(ModelError::io(files.path("shared_vocabulary.json"))(
            missing,
        ));
    };
    let read = |name: String| {
        let mut side = read_list(files, &name)?;
        // CTranslate2 adds it, too.
        if side.id(unknown).is_none() {
            side.tokens.push(unknown.to_owned());
        }
        // GPT-2 has one token for both.
        if unknown != end {
            side.rename(unknown, UNKNOWN);
        }
        side.rename(end, END);
        Ok(side)
    };
    if source.starts_with(OF_LANGUAGE_MODEL) {
        return Ok(Vocabularies::of_language_model(read(source)?));
    }
    Ok(Vocabularies::new(
        read(source)?,
        target.map(read).transpose()?,
    ))
}

/// Checks that each list has a token per row of its embedding. CTranslate2 reads others, too: with other tokens than
/// the model was trained with.
pub(super) fn check(
    files: &Files,
    vocabularies: &Vocabularies,
    sizes: [usize; 2],
) -> Result<(), ModelError> {
    for (side, size) in [&vocabularies.source, vocabularies.target()]
        .into_iter()
        .zip(sizes)
    {
        let found = side.tokens.len() - side.appended;
        // An unknown token that the list lacks has a row in some models only.
        let has_unknown_at_end = side.tokens[..found]
            .last()
            .is_some_and(|last| last == UNKNOWN);
        if found != size && !(has_unknown_at_end && found == size + 1) {
            return Err(ModelError::Weights {
                path: files.path(&side.file),
                problem: format!("{found} tokens for a model of {size}"),
            });
        }
    }
    Ok(())
}

/// The files with the lists of source and target, of which the first may be for both.
fn names_of_lists(directory: &Path) -> [Option<String>; 2] {
    let found = |name: &str| {
        let names = ["json", "txt"].map(|extension| format!("{name}.{extension}"));
        names
            .into_iter()
            .find(|name| is_there(&directory.join(name)))
    };
    match found("shared_vocabulary").or_else(|| found(OF_LANGUAGE_MODEL)) {
        Some(shared) => [Some(shared), None],
        None => ["source_vocabulary", "target_vocabulary"].map(found),
    }
}

fn read_list(files: &Files, name: &str) -> Result<Side, ModelError> {
    let path = files.path(name);
    let bytes = files.read(name)?.unwrap_or_default();
    let tokens = match name.ends_with(".json") {
        true => {
            serde_json::from_slice(&bytes).map_err(|source| ModelError::Json { path, source })?
        }
        false => {
            let text = String::from_utf8(bytes)
                .map_err(|_| ModelError::io(path)(std::io::Error::other("not UTF-8")))?;
            text.lines().map(str::to_owned).collect()
        }
    };
    Ok(Side {
        file: name.to_owned(),
        tokens,
        appended: 0,
    })
}
