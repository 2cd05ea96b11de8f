//! Tokenizers in a directory of CTranslate2 or Marian.

use std::sync::Arc;

use crate::formats::converted::{TokenizerFile, tokenizer_files};
use crate::formats::format::Files;
use crate::formats::names::{
    SHARED_PIECES_FILE, SOURCE_PIECES_FILE, SOURCE_TOKENIZER_FILE, TARGET_PIECES_FILE,
    TARGET_TOKENIZER_FILE, TARGET_VOCABULARY_FILE, TOKENIZER_FILE, VOCABULARY_FILE,
};
use crate::text::added_tokens::AddedTokens;
use crate::text::error::TextError;
use crate::text::m2m100::M2m100;
use crate::text::marian::Marian;
use crate::text::tokenizer::Tokenizer;
use crate::text::tokenizer_json::TokenizerJson;
use crate::text::vocabulary::Vocabulary;

/// The tokenizer of the source and, unless it is shared, of the target, in a directory without `tokenizer.json`.
/// `added` has the tokens of other files.
///
/// # Errors
/// When a file is missing or damaged.
pub(super) fn load(
    files: &Files,
    added: &AddedTokens,
) -> Result<(Tokenizer, Option<Tokenizer>), TextError> {
    let found = tokenizer_files(files)?;
    let file = |name: &str| found.iter().find(|file| file.name == name);
    let json = |name: &str| file(name).map(of_words).transpose();
    if let Some(shared) = json(TOKENIZER_FILE)? {
        return Ok((shared, None));
    }
    if let Some(source) = json(SOURCE_TOKENIZER_FILE)? {
        return Ok((source, json(TARGET_TOKENIZER_FILE)?));
    }
    let vocabulary = |name: &str| {
        let file = file(name)?;
        let vocabulary = Vocabulary::from_file(file.bytes.clone());
        Some(vocabulary.map_err(TextError::file(&file.path)))
    };
    let pieces = |name: &str, vocabulary: Arc<Vocabulary>| {
        let file = file(name).expect("tokenizer_files gives both");
        Marian::new(&file.path, file.bytes.clone(), vocabulary)
    };
    let mut of_source = vocabulary(VOCABULARY_FILE).expect("beside the pieces")?;
    if let Some(pieces) = file(SHARED_PIECES_FILE) {
        let shared = M2m100::new(&pieces.path, pieces.bytes.clone(), of_source, &[], added)?;
        return Ok((shared.into(), None));
    }
    of_source.add(added);
    let of_source = Arc::new(of_source);
    let of_target = match vocabulary(TARGET_VOCABULARY_FILE) {
        Some(of_target) => Arc::new(of_target?),
        None => Arc::clone(&of_source),
    };
    let source = pieces(SOURCE_PIECES_FILE, of_source)?;
    let [one, other] = [SOURCE_PIECES_FILE, TARGET_PIECES_FILE].map(file);
    let target = match one.map(|file| &file.bytes) == other.map(|file| &file.bytes) {
        true => source.with_vocabulary(of_target),
        false => pieces(TARGET_PIECES_FILE, of_target)?,
    };
    Ok((source.into(), Some(target.into())))
}

fn of_words(file: &TokenizerFile) -> Result<Tokenizer, TextError> {
    let text = String::from_utf8_lossy(&file.bytes);
    Ok(TokenizerJson::from_text(&file.path, &text, &AddedTokens::default())?.into())
}
