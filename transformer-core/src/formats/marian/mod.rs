//! Reads models of Marian, among them Firefox's and Bergamot's students.
//!
//! | file | read by | contents |
//! |---|---|---|
//! | `decoder.yml`, `config.….yml` | `place` | names of the other files, and decoding options |
//! | `….npz`, `….bin` | `model_file` | tensors and, as `special:model.yml`, the architecture |
//! | `….spm`, `….yml`, `….txt` | `vocabulary` | the tokens: a SentencePiece model or a list |
//!
//! Marian's targets begin with a vector of zeros instead of a token: the embedding of a padding token that is appended
//! to the vocabularies ([`with_padding`]).

mod model_file;
mod names;
mod place;
mod settings;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::path::Path;

use crate::formats::converted::Lists;
use crate::formats::error::ModelError;
use crate::formats::files;
use crate::formats::format::{Files, Format, Opened};
use crate::formats::hugging_face::keys::Keys;
use crate::formats::marian::model_file::ModelFile;
use crate::formats::marian::place::Place;
use crate::formats::marian::settings::Description;
use crate::formats::name_map::Map;
use crate::formats::rows::with_padding;

/// Directories of Marian.
pub(crate) struct Marian;

impl Format for Marian {
    fn recognizes(&self, files: &Files) -> bool {
        is_in(files.directory())
    }

    fn open(&self, files: &Files) -> Result<Opened, ModelError> {
        let (place, mut file) = open(files)?;
        let vocabularies = vocabulary::lists(files, &place, &file)?.vocabularies;
        let path = files.path(&place.model);
        let description = Description {
            keys: &file.keys,
            tensors: &file.dict.tensors,
            vocabularies: &vocabularies,
        };
        let mut config = description.config()?;
        let options = place.options(files.directory(), &vocabularies)?;
        // They are for another way of quantizing the inputs of layers.
        file.dict
            .tensors
            .retain(|name, _| !names::is_multiplier(name));
        // A file has fewer layers than tensors.
        let map = Map::transformer(&names::NAMES, &config, file.dict.tensors.len() + 1);
        let map = map.map_err(ModelError::unnamed(&path))?;
        let parameters = with_padding(&map, &file.dict, &path, &vocabularies, &mut config)?;
        Ok(Opened {
            format: "Marian".to_owned(),
            config,
            weights: path,
            parameters,
            options: Some(options),
            unused: Vec::new(),
        })
    }
}

/// Whether a directory is Marian's.
pub(crate) fn is_in(directory: &Path) -> bool {
    Place::is_in(directory)
}

/// The tokens of a directory, and its SentencePiece models.
///
/// # Errors
/// When a file is missing or damaged.
pub(crate) fn lists(files: &Files) -> Result<Lists, ModelError> {
    let (place, file) = open(files)?;
    vocabulary::lists(files, &place, &file)
}

fn open(files: &Files) -> Result<(Place, ModelFile), ModelError> {
    let place = Place::find(files.directory())?;
    let path = files.path(&place.model);
    let file = files::open(&path).map_err(ModelError::io(&path))?;
    let size = file.metadata().map_err(ModelError::io(&path))?.len();
    let file = model_file::read(&path, file, size)?;
    Ok((place, file))
}

/// An error of YAML without the lines of the file around it.
fn first_line(error: &impl ToString) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

/// Reads YAML whose outermost value is a mapping.
fn yaml(path: &Path, bytes: &[u8]) -> Result<Keys, ModelError> {
    let problem = |problem: String| ModelError::Weights {
        path: path.to_owned(),
        problem,
    };
    // Otherwise `n`, which stands for normalization, would be false.
    let options = serde_saphyr::options! { strict_booleans: true };
    let values = serde_saphyr::from_slice_with_options(bytes, options);
    let values =
        values.map_err(|error| problem(format!("not YAML settings: {}", first_line(&error))))?;
    Ok(Keys::new(path.to_owned(), values))
}
