//! The tokenizers of T5's family: a SentencePiece model whose pieces have their own ids, or ByT5's bytes.
//!
//! Tokens are the same as in Hugging Face's `T5Tokenizer` and `ByT5Tokenizer`.

use std::path::Path;

use crate::formats::files;
use crate::formats::names::PIECES_FILE;
use crate::text::added_tokens::AddedTokens;
use crate::text::error::TextError;
use crate::text::marian::is_space;
use crate::text::sentence_piece::SentencePiece;
use crate::text::vocabulary::{END, PADDING, UNKNOWN, Vocabulary};

/// The tokenizer of source and target.
#[derive(Debug)]
pub(super) struct T5 {
    /// The pieces, or else the bytes, then `<extra_id_…>` and added tokens.
    vocabulary: Vocabulary,
    /// `None` if text is split into bytes.
    pieces: Option<Pieces>,
}

#[derive(Debug)]
struct Pieces {
    model: SentencePiece,
    /// Its file.
    file: Vec<u8>,
}

impl T5 {
    /// Loads a tokenizer with the SentencePiece model in a file, `extra_ids` tokens `<extra_id_…>`, the last one first,
    /// and added tokens.
    ///
    /// # Errors
    /// When the file is missing or damaged.
    pub fn load(path: &Path, extra_ids: usize, added: &AddedTokens) -> Result<Self, TextError> {
        let file = files::read(path).map_err(TextError::file(path))?;
        let model = SentencePiece::from_bytes(&file).map_err(TextError::file(path))?;
        let names = model.names().map(str::to_owned).collect();
        let vocabulary = Vocabulary::of_names(names, model.special());
        let mut vocabulary = vocabulary.map_err(TextError::file(path))?;
        add_extra(&mut vocabulary, (0..extra_ids).rev());
        vocabulary.add(added);
        Ok(Self {
            vocabulary,
            pieces: Some(Pieces { model, file }),
        })
    }

    /// A tokenizer of bytes, with `extra_ids` tokens `<extra_id_…>` and added tokens.
    pub fn of_bytes(extra_ids: usize, added: &AddedTokens) -> Result<Self, String> {
        let special = [PADDING, END, UNKNOWN].map(str::to_owned);
        let names = special.into_iter().chain((0..=u8::MAX).map(name_of_byte));
        let mut vocabulary = Vocabulary::of_names(names.collect(), [0, 1, 2])?;
        add_extra(&mut vocabulary, 0..extra_ids);
        vocabulary.add(added);
        Ok(Self {
            vocabulary,
            pieces: None,
        })
    }

    /// The files, besides settings.
    pub fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        let pieces = self.pieces.iter();
        pieces
            .map(|pieces| (PIECES_FILE, pieces.file.clone()))
            .collect()
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Whether text is split into bytes.
    pub fn has_bytes(&self) -> bool {
        self.pieces.is_none()
    }

    /// The byte that a token stands for, where text is split into bytes.
    pub fn byte(&self, token: u32) -> Option<u8> {
        let name = self.vocabulary.name(token);
        name.filter(|_| self.has_bytes()).and_then(byte_named)
    }

    /// The type of the model.
    pub fn model_type(&self) -> &'static str {
        match self.has_bytes() {
            true => "Bytes",
            false => "SentencePiece",
        }
    }

    /// Bytes that identify how text is encoded.
    pub fn to_bytes(&self) -> Vec<u8> {
        let file = self
            .pieces
            .as_ref()
            .map_or(&b"bytes"[..], |pieces| &pieces.file);
        [file, &self.vocabulary.to_bytes()].concat()
    }

    /// Whether all tokens have the same ids in another tokenizer.
    pub fn has_vocabulary_of(&self, other: &Self) -> bool {
        self.files() == other.files() && self.vocabulary.has_ids_of(&other.vocabulary)
    }

    /// Encodes a text.
    ///
    /// # Errors
    /// When the normalizer's rules make the text too long.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        self.vocabulary.encode(text, |stretch| match &self.pieces {
            None => Ok((None, stretch.bytes().map(name_of_byte).collect())),
            Some(pieces) => {
                let pieces = pieces.model.encode(stretch)?.into_iter();
                Ok((None, pieces.map(|piece| piece.text).collect()))
            }
        })
    }

    /// Decodes tokens to text; special tokens are skipped, and so are bytes that are not part of a character.
    pub fn decode(&self, tokens: &[u32]) -> String {
        self.vocabulary.decode(tokens, |names| match &self.pieces {
            None => {
                let bytes: Vec<u8> = names.into_iter().filter_map(byte_named).collect();
                bytes.utf8_chunks().map(|chunk| chunk.valid()).collect()
            }
            Some(pieces) => {
                let text = pieces.model.decode(names);
                text.trim_matches(is_space).to_owned()
            }
        })
    }
}

/// Adds the tokens `<extra_id_…>` of these numbers that are not in the vocabulary.
fn add_extra(vocabulary: &mut Vocabulary, numbers: impl Iterator<Item = usize>) {
    for name in numbers.map(|number| format!("<extra_id_{number}>")) {
        if vocabulary.id(&name).is_none() {
            vocabulary.add_special(&name);
        }
    }
}

/// The name of a byte's token, as in SentencePiece.
fn name_of_byte(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

fn byte_named(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok()
}
