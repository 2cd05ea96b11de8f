//! Tokens added to a tokenizer, as Hugging Face's classes read them, and splitting of text at them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::text::marian::is_space;
use crate::text::sentence_piece::Trie;
use crate::text::tokenizer_json::entries::MAX_TOKENS;

/// A token in `added_tokens_decoder` of `tokenizer_config.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddedToken {
    pub content: String,
    /// It is matched only where no characters other than spaces are beside it.
    #[serde(default)]
    pub single_word: bool,
    /// Whitespace on its left belongs to it.
    #[serde(default)]
    pub lstrip: bool,
    /// Whitespace on its right belongs to it.
    #[serde(default)]
    pub rstrip: bool,
    /// It is matched in normalized text, if the tokenizer is a `tokenizer.json`.
    pub normalized: Option<bool>,
    #[serde(default)]
    pub special: bool,
}

impl AddedToken {
    /// The token as a type of the crate `tokenizers`.
    pub fn to_crate(&self, is_special: bool) -> tokenizers::AddedToken {
        tokenizers::AddedToken::from(self.content.as_str(), is_special)
            .single_word(self.single_word)
            .lstrip(self.lstrip)
            .rstrip(self.rstrip)
            .normalized(self.normalized.unwrap_or(!is_special))
    }
}

/// The added tokens of a directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddedTokens {
    by_id: BTreeMap<u32, AddedToken>,
    /// The names of all special tokens.
    special: HashSet<String>,
    /// Text is not split at them.
    are_text: bool,
}

/// Maximum length of an added token in bytes.
const MOST_BYTES: usize = 256;

/// Checks the lengths of added tokens. The crate `tokenizers` matches all of them with one automaton, whose
/// construction takes time quadratic in their lengths.
///
/// # Errors
/// When the longest is too long.
pub(crate) fn check_lengths<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let longest = names.map(str::len).max().unwrap_or(0);
    match longest > MOST_BYTES {
        true => Err(format!(
            "its longest added token has {longest} bytes; at most {MOST_BYTES} are allowed"
        )),
        false => Ok(()),
    }
}

impl AddedTokens {
    /// Added tokens with their ids; those named in `special` are special. With `are_text`, text is not split at them.
    ///
    /// # Errors
    /// When a token is empty, too long or duplicated, or has too high an id.
    pub fn new(
        tokens: impl IntoIterator<Item = (u32, AddedToken)>,
        special: HashSet<String>,
        are_text: bool,
    ) -> Result<Self, String> {
        let mut by_id = BTreeMap::new();
        let mut ids = BTreeMap::new();
        for (id, token) in tokens {
            let name = &token.content;
            if name.is_empty() {
                return Err(format!("the added token {id} is empty"));
            }
            if id as usize >= MAX_TOKENS {
                return Err(format!(
                    "the added token `{name}` has the id {id}, but a vocabulary has at most {MAX_TOKENS} tokens"
                ));
            }
            if let Some(other) = ids.insert(name.clone(), id) {
                return Err(format!(
                    "the added token `{name}` has the ids {other} and {id}"
                ));
            }
            if let Some(AddedToken { content, .. }) = by_id.get(&id) {
                return Err(format!(
                    "the added tokens `{content}` and `{name}` have the id {id}"
                ));
            }
            by_id.insert(id, token);
        }
        check_lengths(ids.keys().map(String::as_str))?;
        Ok(Self {
            by_id,
            special,
            are_text,
        })
    }

    /// The ids and names.
    pub fn ids(&self) -> impl Iterator<Item = (u32, &str)> {
        let tokens = self.by_id.iter();
        tokens.map(|(id, token)| (*id, token.content.as_str()))
    }

    /// The tokens, in the order of their ids.
    pub fn tokens(&self) -> impl Iterator<Item = (u32, &AddedToken)> {
        self.by_id.iter().map(|(id, token)| (*id, token))
    }

    /// The names of all special tokens, added or not.
    pub fn special(&self) -> impl Iterator<Item = &str> {
        self.special.iter().map(String::as_str)
    }

    /// Whether a token is special.
    pub fn is_special(&self, name: &str) -> bool {
        self.special.contains(name)
    }

    /// The first token that is not special, if there is one.
    pub fn first_text(&self) -> Option<(u32, &str)> {
        self.ids().find(|(_, name)| !self.is_special(name))
    }

    /// Splits text at these tokens.
    pub fn splitter(&self) -> Splitter {
        let is_text = |token: &AddedToken| !self.is_special(&token.content);
        let texts = self.tokens().filter(|(_, token)| is_text(token));
        let texts: BTreeMap<_, _> = texts
            .map(|(id, token)| (token.content.clone(), (id, token.clone())))
            .collect();
        // Special tokens are matched, too, so that text that spells one is not split at another within it.
        let special = self.special().zip(0..).filter(|(name, _)| !name.is_empty());
        let names = texts.keys().map(String::as_str).zip(0..);
        Splitter {
            trie: Arc::new(Trie::new(names.chain(special))),
            texts,
            are_text: self.are_text,
        }
    }
}

/// Splits text at the added tokens that are not special, as Hugging Face's slow classes do before SentencePiece.
#[derive(Debug, Clone)]
pub(crate) struct Splitter {
    /// All tokens, including the special ones.
    trie: Arc<Trie>,
    /// The tokens that are not special, with their ids.
    texts: BTreeMap<String, (u32, AddedToken)>,
    /// Text is not split.
    are_text: bool,
}

impl Default for Splitter {
    fn default() -> Self {
        AddedTokens::default().splitter()
    }
}

impl Splitter {
    /// Whether a text is one of the tokens.
    pub fn contains(&self, text: &str) -> bool {
        self.texts.contains_key(text)
    }

    /// Whether a part of a [split](Self::split) text is one of the tokens.
    pub fn is_token(&self, part: &str) -> bool {
        !self.are_text && self.contains(part)
    }

    /// Bytes that identify how text is split; empty if it is not.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self.texts.is_empty() || self.are_text {
            true => Vec::new(),
            false => format!("{:?}", self.texts).into_bytes(),
        }
    }

    /// The tokens in a text, the longest at each position, and the text between them.
    pub fn split(&self, text: &str) -> Vec<String> {
        if self.texts.is_empty() || self.are_text {
            return vec![text.to_owned()];
        }
        let mut parts = self.cut(text);
        for at in 0..parts.len() {
            if let Some((_, token)) = self.texts.get(&parts[at]) {
                strip(&mut parts, at, token);
            }
        }
        parts.retain(|part| !part.is_empty());
        parts
    }

    fn cut(&self, text: &str) -> Vec<String> {
        let mut parts = Vec::new();
        let (mut start, mut at) = (0, 0);
        while let Some(next) = text[at..].chars().next() {
            let Some(length) = self.trie.longest(&text.as_bytes()[at..]) else {
                at += next.len_utf8();
                continue;
            };
            let token = &text[at..at + length];
            if self.contains(token) {
                parts.extend((start < at).then(|| text[start..at].to_owned()));
                parts.push(token.to_owned());
                start = at + length;
            }
            at += length;
        }
        parts.extend((start < at).then(|| text[start..].to_owned()));
        parts
    }
}

/// Moves whitespace and text between a token and the adjacent parts, according to the token's flags.
fn strip(parts: &mut [String], at: usize, token: &AddedToken) {
    let has_left = at > 0 && !parts[at - 1].is_empty();
    let has_right = parts.get(at + 1).is_some_and(|right| !right.is_empty());
    // Before whitespace is removed.
    let joins_left = token.single_word && has_left && !parts[at - 1].ends_with(' ');
    let joins_right = token.single_word && has_right && !parts[at + 1].starts_with(' ');
    if token.rstrip && has_right {
        parts[at + 1] = parts[at + 1].trim_start_matches(is_space).to_owned();
    }
    if token.lstrip && has_left {
        let length = parts[at - 1].trim_end_matches(is_space).len();
        parts[at - 1].truncate(length);
    }
    if joins_left {
        let token = std::mem::take(&mut parts[at]);
        parts[at - 1] += &token;
    } else if joins_right {
        let token = std::mem::take(&mut parts[at]);
        parts[at + 1].insert_str(0, &token);
    }
}
