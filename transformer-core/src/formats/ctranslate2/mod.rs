//! Reads model directories of CTranslate2.
//!
//! | file | read by | contents |
//! |---|---|---|
//! | `model.bin` | `model_file` | variables: weights, and settings of the architecture |
//! | `config.json` | `settings` | names of the special tokens |
//! | `shared_vocabulary.json`, … | `vocabulary` | the tokens in the order of their ids |
//!
//! CTranslate2 needs no padding token, and its Marian models begin targets with a vector of zeros instead of a token.
//! A vocabulary without a padding token is extended by one, with embeddings of zeros ([`with_padding`]).

mod export;
mod model_file;
mod names;
mod settings;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::path::Path;

use serde_json::Value;

use crate::formats::argos;
use crate::formats::converted::Lists;
use crate::formats::error::ModelError;
use crate::formats::files::{self, is_there};
use crate::formats::format::{Files, Format, Opened};
use crate::formats::name_map::Map;
use crate::formats::names::{
    CTRANSLATE2_FILE, PIECES_FILE, SHARED_PIECES_FILE, SOURCE_PIECES_FILE, TARGET_PIECES_FILE,
    TOKENIZER_FILE, WEIGHTS_FILE,
};
use crate::formats::rows::with_padding;
use crate::models::config::TransformerConfig;
use crate::nn::positions::Positions;
pub use export::CTranslate2Export;
use settings::Description;

/// Names of a SentencePiece model for both sides.
const SHARED_PIECES: [&str; 5] = [
    "sentencepiece.model",
    "spm.model",
    SHARED_PIECES_FILE,
    PIECES_FILE,
    argos::PIECES,
];

/// Directories of CTranslate2.
pub(crate) struct CTranslate2;

impl Format for CTranslate2 {
    fn recognizes(&self, files: &Files) -> bool {
        // Without its model, opening the directory names the missing file.
        let has_lists = vocabulary::are_in(files.directory()) && !files.has(WEIGHTS_FILE);
        is_in(files.directory()) || has_lists
    }

    fn open(&self, files: &Files) -> Result<Opened, ModelError> {
        let keys = settings::keys(files)?;
        let vocabularies = settings::vocabularies(files, &keys)?;
        let path = files.path(CTRANSLATE2_FILE);
        let file = files::open(&path).map_err(ModelError::io(&path))?;
        let size = file.metadata().map_err(ModelError::io(&path))?.len();
        let mut file = model_file::read(file, size).map_err(|problem| ModelError::Weights {
            path: path.clone(),
            problem,
        })?;
        let tensors = &mut file.dict.tensors;
        if let Some(embedding) = tensors.remove(names::OF_SOURCE_ALONE) {
            tensors.insert(names::OF_SOURCE.to_owned(), embedding);
        }
        let description = Description {
            keys: &keys,
            vocabularies: &vocabularies,
            path: &path,
            file: &file,
        };
        let mut config = description.config()?;
        let sizes = [config.src_vocab_size, config.tgt_vocab_size];
        vocabulary::check(files, &vocabularies, sizes)?;
        if config.is_language_model()
            && let Some(begins) = begins_with(files, keys.text("bos_token")?.unwrap_or("<s>"))?
        {
            config.prompt_bos = begins;
        }
        let tables = description.shared_biases()?;
        let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
        let map = map(&config, tensors_of(&file)).map_err(ModelError::unnamed(&path))?;
        let map = map.ignoring(&tables);
        let parameters = with_padding(&map, &file.dict, &path, &vocabularies, &mut config)?;
        Ok(Opened {
            format: "CTranslate2".to_owned(),
            config,
            weights: path,
            parameters,
            options: argos::options(files.directory())?,
            unused: Vec::new(),
        })
    }
}

/// Whether `tokenizer.json` puts this token before texts; `None` without the file.
fn begins_with(files: &Files, token: &str) -> Result<Option<bool>, ModelError> {
    let Some(bytes) = files.read(TOKENIZER_FILE)? else {
        return Ok(None);
    };
    let path = files.path(TOKENIZER_FILE);
    let tokenizer: Value =
        serde_json::from_slice(&bytes).map_err(|source| ModelError::Json { path, source })?;
    let processor = tokenizer["post_processor"].to_string();
    Ok(Some(processor.contains(&Value::from(token).to_string())))
}

/// Whether a directory is CTranslate2's.
pub(crate) fn is_in(directory: &Path) -> bool {
    let path = directory.join(CTRANSLATE2_FILE);
    is_there(&path) && (vocabulary::are_in(directory) || model_file::is_model(&path))
}

/// The tokens of a directory, and its SentencePiece models.
///
/// # Errors
/// When a list is missing or damaged.
pub(crate) fn lists(files: &Files) -> Result<Lists, ModelError> {
    let of_both = SHARED_PIECES.into_iter().find(|name| files.has(name));
    let pieces = match files.has(SOURCE_PIECES_FILE) || files.has(TARGET_PIECES_FILE) {
        true => Some([SOURCE_PIECES_FILE, TARGET_PIECES_FILE].map(str::to_owned)),
        false => of_both.map(|shared| [shared, shared].map(str::to_owned)),
    };
    Ok(Lists {
        vocabularies: settings::vocabularies(files, &settings::keys(files)?)?,
        pieces,
    })
}

/// A number of layers that no file reaches: it has at most as many as tensors.
fn tensors_of(file: &model_file::ModelFile) -> usize {
    file.dict.tensors.len() + 1
}

fn map(config: &TransformerConfig, max_layers: usize) -> Result<Map, Vec<String>> {
    let mut map = Map::transformer(&names::NAMES, config, max_layers)?;
    if !config.gated {
        map = map.with_part(names::GATED_INNER, names::INNER_ALONE);
    }
    Ok(match config.positions {
        Positions::Learned { .. } => map,
        _ => map.ignoring(&names::POSITIONS),
    })
}
