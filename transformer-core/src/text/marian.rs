//! Marian's tokenizers: a SentencePiece model, and a vocabulary with the ids of its pieces.
//!
//! Pieces and ids are the same as in Hugging Face's `MarianTokenizer`.

use std::path::Path;
use std::sync::Arc;

use crate::formats::files;
use crate::text::error::TextError;
use crate::text::sentence_piece::SentencePiece;
use crate::text::vocabulary::Vocabulary;

/// The tokenizer of one side.
#[derive(Debug)]
pub(super) struct Marian {
    pieces: Arc<SentencePiece>,
    /// Its file.
    pieces_file: Arc<[u8]>,
    vocabulary: Arc<Vocabulary>,
}

impl Marian {
    /// Loads a tokenizer with the SentencePiece model in a file and a vocabulary.
    ///
    /// # Errors
    /// When the file is missing or damaged.
    pub fn load(path: &Path, vocabulary: Arc<Vocabulary>) -> Result<Self, TextError> {
        let pieces_file = files::read(path).map_err(TextError::file(path))?;
        Self::new(path, pieces_file, vocabulary)
    }

    /// [`load`](Self::load) for the content of the file.
    pub fn new(
        path: &Path,
        pieces_file: Vec<u8>,
        vocabulary: Arc<Vocabulary>,
    ) -> Result<Self, TextError> {
        let pieces = SentencePiece::from_bytes(&pieces_file).map_err(TextError::file(path))?;
        Ok(Self {
            pieces: Arc::new(pieces),
            pieces_file: pieces_file.into(),
            vocabulary,
        })
    }

    /// The tokenizer of another side, with the same SentencePiece model.
    pub fn with_vocabulary(&self, vocabulary: Arc<Vocabulary>) -> Self {
        Self {
            pieces: Arc::clone(&self.pieces),
            pieces_file: Arc::clone(&self.pieces_file),
            vocabulary,
        }
    }

    /// The file of the SentencePiece model.
    pub fn pieces_file(&self) -> &[u8] {
        &self.pieces_file
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Encodes a text. A language at its beginning, such as `>>fra<<`, is one token.
    ///
    /// # Errors
    /// When the normalizer's rules make the text too long.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        self.vocabulary.encode(text, |stretch| {
            let (language, text) = split_language(stretch);
            let language = language.map(|language| self.vocabulary.id_or_unknown(language));
            let pieces = self.pieces.encode(text)?.into_iter();
            Ok((language, pieces.map(|piece| piece.text).collect()))
        })
    }

    /// The language that a text begins with, if the vocabulary lacks it.
    pub fn unknown_language<'a>(&self, text: &'a str) -> Option<&'a str> {
        let (language, _) = split_language(text);
        language.filter(|language| self.vocabulary.id(language).is_none())
    }

    /// Decodes tokens to text; special tokens are skipped.
    pub fn decode(&self, tokens: &[u32]) -> String {
        self.vocabulary.decode(tokens, |pieces| {
            let text = self.pieces.decode(pieces).replace('\u{2581}', " ");
            text.trim_matches(is_space).to_owned()
        })
    }
}

/// Whitespace as in Python: Unicode's and four separators.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// The language that a text begins with, such as `>>fra<<`, and the rest.
fn split_language(text: &str) -> (Option<&str>, &str) {
    match text.find("<<") {
        Some(end) if text.starts_with(">>") => {
            let (language, rest) = text.split_at(end + 2);
            (Some(language), rest)
        }
        _ => (None, text),
    }
}
