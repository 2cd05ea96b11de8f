//! The vocabularies of Marian's, M2M100's and T5's tokenizers: the ids of SentencePiece pieces and other tokens.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::formats::files;
use crate::formats::vocabularies::ENGLISH;
use crate::text::added_tokens::{AddedTokens, Splitter};
use crate::text::error::TextError;
use crate::text::languages::{is_in_source, language};
use crate::text::tokenizer_json::entries::Entries;

/// The end-of-sentence token in every vocabulary.
pub(super) const END: &str = "</s>";
pub(super) const UNKNOWN: &str = "<unk>";
/// The padding token in every vocabulary.
pub(super) const PADDING: &str = "<pad>";

/// Tokens and their ids.
#[derive(Debug)]
pub(super) struct Vocabulary {
    /// The first tokens, with contiguous ids from 0: those of the file, if there is one.
    names: Vec<Arc<str>>,
    /// The tokens that are not among the first, or have another id or name there.
    more: BTreeMap<u32, Arc<str>>,
    ids: HashMap<Arc<str>, u32>,
    unknown: u32,
    /// Special tokens, including `<unk>`.
    special: HashSet<u32>,
    /// The added tokens that are not special.
    added: Splitter,
    /// Its file; empty if it has none.
    file: Vec<u8>,
}

impl Vocabulary {
    /// Reads a file such as `vocab.json`.
    ///
    /// # Errors
    /// When the file is missing or not a vocabulary, or a token or id is missing or duplicated.
    pub fn load(path: &Path) -> Result<Self, TextError> {
        let file = files::read(path).map_err(TextError::file(path))?;
        Self::from_file(file).map_err(TextError::file(path))
    }

    /// [`load`](Self::load) for the content of a file.
    pub fn from_file(file: Vec<u8>) -> Result<Self, String> {
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
                    let tokens = format!("ids must be contiguous, here from 0 to {most}");
                    return Err(format!("`{name}` is token {id}; {tokens}"));
                }
            }
            ids.insert(name, id);
        }
        let needed = |name| ids.get(name).copied().ok_or(format!("no token `{name}`"));
        let unknown = needed(UNKNOWN)?;
        let special = [unknown, needed(END)?, needed(PADDING)?].into();
        Ok(Self {
            // None is missing: there are as many tokens as ids, and no id is duplicated.
            names: names.into_iter().flatten().collect(),
            more: BTreeMap::new(),
            ids,
            unknown,
            special,
            added: Splitter::default(),
            file,
        })
    }

    /// A vocabulary without a file: tokens in the order of their ids, and the ids of the special ones.
    ///
    /// # Errors
    /// When `<unk>` is missing.
    pub fn of_names(
        names: Vec<String>,
        special: impl IntoIterator<Item = u32>,
    ) -> Result<Self, String> {
        let names: Vec<Arc<str>> = names.into_iter().map(Arc::from).collect();
        let ids: HashMap<Arc<str>, u32> = names.iter().cloned().zip(0..).collect();
        let unknown = ids.get(UNKNOWN).copied();
        let unknown = unknown.ok_or_else(|| format!("no token `{UNKNOWN}`"))?;
        Ok(Self {
            names,
            more: BTreeMap::new(),
            ids,
            unknown,
            special: special.into_iter().chain([unknown]).collect(),
            added: Splitter::default(),
            file: Vec::new(),
        })
    }

    /// Adds a special token after the others, and returns its id. It is not in the file.
    pub fn add_special(&mut self, name: &str) -> u32 {
        let id = self.len() as u32;
        self.insert(name, id);
        self.special.insert(id);
        id
    }

    /// The language tokens of the file, if it has one for English, which become special tokens.
    pub fn take_languages(&mut self) -> Vec<(String, u32)> {
        if !ENGLISH.iter().any(|name| self.ids.contains_key(*name)) {
            return Vec::new();
        }
        let names = self.names.iter().zip(0..);
        let languages = names.filter(|(name, _)| language(name).is_some());
        let languages: Vec<_> = languages.map(|(name, id)| (name.to_string(), id)).collect();
        self.special.extend(languages.iter().map(|(_, id)| id));
        languages
    }

    /// Adds the added tokens of a directory. Their ids and names override the file's, as in Hugging Face.
    pub fn add(&mut self, tokens: &AddedTokens) {
        for (id, name) in tokens.ids() {
            self.insert(name, id);
        }
        for name in tokens.special() {
            let id = self.ids.get(name);
            self.special.extend(id);
        }
        self.added = tokens.splitter();
    }

    fn insert(&mut self, name: &str, id: u32) {
        let name: Arc<str> = name.into();
        self.ids.insert(name.clone(), id);
        if self.names.get(id as usize) != Some(&name) {
            self.more.insert(id, name);
        }
    }

    /// The file.
    pub fn file(&self) -> &[u8] {
        &self.file
    }

    /// Bytes that identify how text is encoded.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.file[..], &self.added.to_bytes()].concat()
    }

    /// Whether all tokens have the same ids in another vocabulary.
    pub fn has_ids_of(&self, other: &Self) -> bool {
        self.file == other.file && self.more == other.more
    }

    /// One more than the highest id.
    pub fn len(&self) -> usize {
        let highest = self.more.last_key_value().map(|(id, _)| *id as usize + 1);
        self.names.len().max(highest.unwrap_or(0))
    }

    /// The name of a token.
    pub fn name(&self, id: u32) -> Option<&str> {
        let name = self.more.get(&id).or(self.names.get(id as usize));
        name.map(|name| &**name)
    }

    /// The id of a token.
    pub fn id(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// The id of a token, or of `<unk>`.
    pub fn id_or_unknown(&self, name: &str) -> u32 {
        self.id(name).unwrap_or(self.unknown)
    }

    /// Whether a token is special.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// The id of a piece of text: never a special token's, even if the text spells it.
    fn of_text(&self, piece: &str) -> u32 {
        let id = self.id_or_unknown(piece);
        match self.is_special(id) {
            true => self.unknown,
            false => id,
        }
    }

    /// Encodes a text: added tokens, and the stretches between them, which `cut` turns into an optional first id and
    /// pieces.
    ///
    /// # Errors
    /// When `cut` fails.
    pub fn encode(
        &self,
        text: &str,
        cut: impl Fn(&str) -> Result<(Option<u32>, Vec<String>), String>,
    ) -> Result<Vec<u32>, String> {
        let mut tokens = Vec::new();
        for stretch in self.added.split(text) {
            match self.added.is_token(&stretch) {
                true => tokens.extend(self.id(&stretch)),
                false => {
                    let (first, pieces) = cut(&stretch)?;
                    tokens.extend(first);
                    tokens.extend(pieces.iter().map(|piece| self.of_text(piece)));
                }
            }
        }
        Ok(tokens)
    }

    /// Decodes tokens to text: `join` decodes the stretches between added tokens, and spaces separate both. Special
    /// tokens are skipped.
    pub fn decode(&self, tokens: &[u32], join: impl Fn(Vec<&str>) -> String) -> String {
        let tokens = tokens.iter().copied();
        let tokens = tokens.filter(|&id| !self.is_special(id));
        let mut texts = Vec::new();
        let mut stretch = Vec::new();
        for name in tokens.filter_map(|id| self.name(id)) {
            if !self.added.contains(name) {
                stretch.push(name);
                continue;
            }
            let before = join(std::mem::take(&mut stretch));
            texts.extend((!before.is_empty()).then_some(before));
            texts.push(name.to_owned());
        }
        // Hugging Face keeps the last stretch even if its text is empty.
        if !stretch.is_empty() {
            texts.push(join(stretch));
        }
        texts.join(" ")
    }

    /// The language tokens with their names, in the order of their ids.
    pub fn languages(&self) -> Vec<(String, u32)> {
        let ids = 0..self.len() as u32;
        let names = ids.filter_map(|id| Some((self.name(id)?, id)));
        let languages = names.filter(|(name, _)| is_in_source(name));
        languages.map(|(name, id)| (name.to_owned(), id)).collect()
    }
}
