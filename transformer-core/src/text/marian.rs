//! Marian's tokenizers: a SentencePiece model, and a vocabulary that gives its pieces their ids.
//!
//! Pieces and ids are those of Hugging Face's `MarianTokenizer`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::formats::files;
use crate::text::error::TextError;
use crate::text::languages::language;
use crate::text::sentence_piece::SentencePiece;
use crate::text::tokenizer_json::entries::Entries;

/// The end of a sentence, in every vocabulary.
pub(super) const END: &str = "</s>";
const UNKNOWN: &str = "<unk>";
/// The token that pads a batch, in every vocabulary.
pub(super) const PADDING: &str = "<pad>";

/// The tokenizer of one side.
#[derive(Debug)]
pub(super) struct Marian {
    pieces: SentencePiece,
    /// Its file.
    pieces_file: Vec<u8>,
    vocabulary: Arc<Vocabulary>,
}

impl Marian {
    /// A tokenizer of the SentencePiece model in a file, and a vocabulary.
    ///
    /// # Errors
    /// When the file is missing or damaged.
    pub fn load(path: &Path, vocabulary: Arc<Vocabulary>) -> Result<Self, TextError> {
        let pieces_file = files::read(path).map_err(TextError::file(path))?;
        let pieces = SentencePiece::from_bytes(&pieces_file).map_err(TextError::file(path))?;
        Ok(Self {
            pieces,
            pieces_file,
            vocabulary,
        })
    }

    /// The file of the SentencePiece model.
    pub fn pieces_file(&self) -> &[u8] {
        &self.pieces_file
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The tokens of a text. A language at its beginning, such as `>>fra<<`, is one token.
    ///
    /// # Errors
    /// When the normalizer's rules make the text too long.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let (language, text) = split_language(text);
        let language = language.map(|language| self.vocabulary.id(language));
        let language = language.map(|id| id.unwrap_or(self.vocabulary.unknown));
        let pieces = self.pieces.encode(text)?.into_iter();
        let pieces = pieces.map(|piece| self.vocabulary.of_text(&piece.text));
        Ok(language.into_iter().chain(pieces).collect())
    }

    /// The language that a text begins with, if the vocabulary lacks it.
    pub fn unknown_language<'a>(&self, text: &'a str) -> Option<&'a str> {
        let (language, _) = split_language(text);
        language.filter(|language| self.vocabulary.id(language).is_none())
    }

    /// The text of tokens; special ones are left out.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let tokens = tokens.iter().copied();
        let tokens = tokens.filter(|&id| !self.vocabulary.is_special(id));
        let names = tokens.filter_map(|id| self.vocabulary.name(id));
        let text = self.pieces.decode(names).replace('\u{2581}', " ");
        text.trim_matches(is_space).to_owned()
    }
}

/// White space as Python has it: Unicode's, and four separators.
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

/// Whether a text begins with a language.
pub(super) fn begins_with_language(text: &str) -> bool {
    split_language(text).0.is_some()
}

/// Tokens and their ids, from 0 without a gap.
#[derive(Debug)]
pub(super) struct Vocabulary {
    names: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, u32>,
    unknown: u32,
    /// The tokens that are no text, the unknown one among them.
    special: Vec<u32>,
    /// Its file.
    file: Vec<u8>,
}

impl Vocabulary {
    /// Reads a file such as `vocab.json`.
    ///
    /// # Errors
    /// When the file is missing or no vocabulary, or a token or an id is missing or there twice.
    pub fn load(path: &Path) -> Result<Self, TextError> {
        let file = files::read(path).map_err(TextError::file(path))?;
        Self::from_file(file).map_err(TextError::file(path))
    }

    fn from_file(file: Vec<u8>) -> Result<Self, String> {
        let entries: Entries = serde_json::from_slice(&file).map_err(|error| error.to_string())?;
        if !entries.has_ids {
            return Err("a list of tokens, without ids".into());
        }
        entries.check()?;
        let mut names = vec![None; entries.list.len()];
        let mut ids = HashMap::with_capacity(names.len());
        let most = names.len().saturating_sub(1);
        for (name, id) in entries.list {
            let name: Arc<str> = name.into();
            match names.get_mut(id as usize) {
                Some(place) => *place = Some(name.clone()),
                None => {
                    let tokens = format!("the ids of its tokens are not 0 to {most}");
                    return Err(format!("`{name}` is token {id}; {tokens}"));
                }
            }
            ids.insert(name, id);
        }
        let needed = |name| ids.get(name).copied().ok_or(format!("no token `{name}`"));
        let unknown = needed(UNKNOWN)?;
        let special = vec![unknown, needed(END)?, needed(PADDING)?];
        Ok(Self {
            // None is left out: there are as many tokens as ids, and no id is there twice.
            names: names.into_iter().flatten().collect(),
            ids,
            unknown,
            special,
            file,
        })
    }

    /// Makes a token, if it is there, one that is no text.
    pub fn mark_special(&mut self, name: &str) {
        if let Some(&id) = self.ids.get(name) {
            self.special.push(id);
        }
    }

    /// Adds a token that is no text after the others. It is not in the file.
    pub fn add_special(&mut self, name: &str) {
        let (name, id): (Arc<str>, u32) = (name.into(), self.names.len() as u32);
        self.names.push(name.clone());
        self.ids.insert(name, id);
        self.special.push(id);
    }

    /// The file.
    pub fn file(&self) -> &[u8] {
        &self.file
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// The name of a token.
    pub fn name(&self, id: u32) -> Option<&str> {
        self.names.get(id as usize).map(|name| &**name)
    }

    /// The token of a name.
    pub fn id(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// Whether a token is no text.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// The token of a piece of text: never a special one, even if the text spells it.
    pub fn of_text(&self, piece: &str) -> u32 {
        let id = self.id(piece).unwrap_or(self.unknown);
        match self.is_special(id) {
            true => self.unknown,
            false => id,
        }
    }

    /// The tokens that stand for languages, with their names, in the order of their ids.
    pub fn languages(&self) -> Vec<(String, u32)> {
        let names = self.names.iter().zip(0..);
        let languages =
            names.filter(|(name, _)| name.starts_with(">>") && language(name).is_some());
        languages.map(|(name, id)| (name.to_string(), id)).collect()
    }
}
