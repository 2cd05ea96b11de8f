//! The tokenizers of a directory of CTranslate2 or Marian, as files of the kinds that this library reads.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::formats::error::ModelError;
use crate::formats::files::{self, is_there};
use crate::formats::format::Files;
use crate::formats::names::{
    SHARED_PIECES_FILE, SOURCE_PIECES_FILE, SOURCE_TOKENIZER_FILE, TARGET_PIECES_FILE,
    TARGET_TOKENIZER_FILE, TARGET_VOCABULARY_FILE, TOKENIZER_FILE, TOKENIZER_SETTINGS_FILE,
    VOCABULARY_FILE, has_bytes,
};
use crate::formats::vocabularies::{END, ENGLISH, PADDING, Side, UNKNOWN, Vocabularies};
use crate::formats::{ctranslate2, marian};

/// The tokens of a directory of another library, and its SentencePiece models.
pub(crate) struct Lists {
    pub vocabularies: Vocabularies,
    /// The names of the SentencePiece models of source and target; `None` if the tokens are words.
    pub pieces: Option<[String; 2]>,
}

/// Whether the tokenizers of a directory are converted.
pub(crate) fn is_in(directory: &Path) -> bool {
    !is_there(&directory.join(TOKENIZER_FILE))
        && (ctranslate2::is_in(directory) || marian::is_in(directory))
        && !has_bytes(directory)
}

/// A file, by the name that it has in directories of this library.
pub(crate) struct TokenizerFile {
    pub name: &'static str,
    /// Where its content is from, for errors of the tokenizers.
    #[cfg_attr(not(feature = "text"), expect(dead_code))]
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

/// The files of a directory without `tokenizer.json`. With SentencePiece models they are Marian's, or M2M100's if there
/// are language tokens, with the vocabulary as a list of ids; otherwise tokenizers that split texts at spaces into the
/// tokens of the vocabulary.
///
/// # Errors
/// When a file is missing or damaged.
pub(crate) fn tokenizer_files(source: &Files) -> Result<Vec<TokenizerFile>, ModelError> {
    let Lists {
        vocabularies,
        pieces,
    } = match ctranslate2::is_in(source.directory()) {
        true => ctranslate2::lists(source)?,
        false => marian::lists(source)?,
    };
    let sides = [Some(&vocabularies.source), vocabularies.target.as_ref()];
    let lists = |names: [&'static str; 2], write: fn(&Side) -> Vec<u8>| {
        let named = names
            .into_iter()
            .zip(sides)
            .filter_map(|(name, side)| Some((name, side?)));
        let file = |(name, side): (_, &Side)| TokenizerFile {
            name,
            path: source.path(&side.file),
            bytes: write(side),
        };
        named.map(file).collect::<Vec<_>>()
    };
    let Some(pieces) = pieces else {
        return Ok(match vocabularies.target {
            None => lists([TOKENIZER_FILE; 2], words),
            Some(_) => lists([SOURCE_TOKENIZER_FILE, TARGET_TOKENIZER_FILE], words),
        });
    };
    let mut found = lists([VOCABULARY_FILE, TARGET_VOCABULARY_FILE], ids);
    let names: &[&'static str] = match has_languages(&vocabularies) && pieces[0] == pieces[1] {
        true => &[SHARED_PIECES_FILE],
        false => &[SOURCE_PIECES_FILE, TARGET_PIECES_FILE],
    };
    for (&name, own) in names.iter().zip(pieces) {
        let path = source.path(&own);
        let bytes = files::read(&path).map_err(ModelError::io(&path))?;
        found.push(TokenizerFile { name, path, bytes });
    }
    found.push(TokenizerFile {
        name: TOKENIZER_SETTINGS_FILE,
        path: source.path(TOKENIZER_SETTINGS_FILE),
        bytes: with_separation(source, vocabularies.target.is_some())?,
    });
    Ok(found)
}

/// Whether the tokens are of M2M100's, NLLB's or mBART's kind, whose texts begin with a token of their language.
fn has_languages(vocabularies: &Vocabularies) -> bool {
    let source = &vocabularies.source;
    vocabularies.target.is_none() && ENGLISH.iter().any(|name| source.id(name).is_some())
}

/// The settings of Marian's class, which say whether the target has its own vocabulary.
fn with_separation(files: &Files, separate: bool) -> Result<Vec<u8>, ModelError> {
    let bytes = files.read(TOKENIZER_SETTINGS_FILE)?;
    let path = files.path(TOKENIZER_SETTINGS_FILE);
    let mut settings: Map<String, Value> = match &bytes {
        Some(bytes) => {
            serde_json::from_slice(bytes).map_err(|source| ModelError::Json { path, source })?
        }
        None => Map::new(),
    };
    if separate {
        settings.insert("separate_vocabs".to_owned(), true.into());
    }
    Ok(format!("{:#}\n", Value::Object(settings)).into_bytes())
}

/// Tokens with their ids, in the order of the ids.
struct Ids<'a>(&'a [String]);

impl Serialize for Ids<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().zip(0_u32..))
    }
}

fn ids(side: &Side) -> Vec<u8> {
    serde_json::to_vec(&Ids(&side.tokens)).expect("texts and numbers")
}

/// A tokenizer of words in Hugging Face's format.
fn words(side: &Side) -> Vec<u8> {
    let special = [PADDING, UNKNOWN, END, "<s>"].into_iter();
    let special = special.filter_map(|content| {
        let id = side.id(content)?;
        Some(json!({
            "id": id, "content": content, "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        }))
    });
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": special.collect::<Vec<_>>(),
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": Ids(&side.tokens), "unk_token": UNKNOWN},
    });
    tokenizer.to_string().into_bytes()
}
