//! Tokenizers: text to tokens and back.

use std::path::Path;
use std::sync::Arc;

use rand::Rng;

use crate::formats::files::replace_file_with;
use crate::special_tokens::SpecialTokens;
use crate::text::added_tokens::AddedTokens;
use crate::text::clean_up::clean_up;
use crate::text::error::TextError;
use crate::text::languages;
use crate::text::m2m100::M2m100;
use crate::text::marian::Marian;
use crate::text::t5::T5;
use crate::text::tokenizer_json::TokenizerJson;
use crate::text::vocabulary::{END, PADDING, Vocabulary};

/// A tokenizer of subwords, characters, words or bytes: in Hugging Face's format, one side of Marian's, M2M100's, T5's
/// or ByT5's.
///
/// Text that spells a special token, such as `<eos>`, is encoded as text: only the model adds special tokens, and
/// [`Tokenizers`](crate::Tokenizers) those with which every text begins. Dropout, truncation and padding in a Hugging
/// Face file are ignored: [`encode`](Self::encode) always gives the same tokens, and
/// [`encode_with_dropout`](Self::encode_with_dropout) has its own dropout.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    kind: Kind,
    /// Whether spaces before punctuation are removed from decoded text.
    cleans_spaces: bool,
}

#[derive(Debug, Clone)]
enum Kind {
    Json(Arc<TokenizerJson>),
    Marian(Arc<Marian>),
    M2m100(M2m100),
    T5(Arc<T5>),
}

impl From<tokenizers::Tokenizer> for Tokenizer {
    fn from(tokenizer: tokenizers::Tokenizer) -> Self {
        TokenizerJson::from(tokenizer).into()
    }
}

impl From<TokenizerJson> for Tokenizer {
    fn from(tokenizer: TokenizerJson) -> Self {
        Kind::Json(Arc::new(tokenizer)).into()
    }
}

impl From<Marian> for Tokenizer {
    fn from(tokenizer: Marian) -> Self {
        Kind::Marian(Arc::new(tokenizer)).into()
    }
}

impl From<M2m100> for Tokenizer {
    fn from(tokenizer: M2m100) -> Self {
        Kind::M2m100(tokenizer).into()
    }
}

impl From<T5> for Tokenizer {
    fn from(tokenizer: T5) -> Self {
        Kind::T5(Arc::new(tokenizer)).into()
    }
}

impl From<Kind> for Tokenizer {
    fn from(kind: Kind) -> Self {
        Self {
            kind,
            cleans_spaces: false,
        }
    }
}

impl Tokenizer {
    /// Reads a file in Hugging Face's format, such as `tokenizer.json`.
    ///
    /// # Errors
    /// When the file is missing or is not a tokenizer.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TextError> {
        Self::from_file_with(path.as_ref(), &AddedTokens::default())
    }

    /// Reads a file in Hugging Face's format, to which other files of its directory add tokens.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file), and when an added token has another id in the file.
    pub(super) fn from_file_with(path: &Path, added: &AddedTokens) -> Result<Self, TextError> {
        Ok(TokenizerJson::from_file(path, added)?.into())
    }

    /// Sets whether spaces before punctuation are removed from decoded text.
    pub(super) fn set_clean_up(&mut self, cleans_spaces: bool) {
        self.cleans_spaces = cleans_spaces;
    }

    /// Whether spaces before punctuation are removed from decoded text.
    pub(super) fn cleans_spaces(&self) -> bool {
        self.cleans_spaces
    }

    /// Writes a file in Hugging Face's format.
    ///
    /// # Errors
    /// When the tokenizer does not have this format, or the file cannot be written; an existing one is then unchanged.
    pub fn to_file(&self, path: impl AsRef<Path>) -> Result<(), TextError> {
        let path = path.as_ref();
        let json = self.to_json()?;
        replace_file_with(path, json).map_err(TextError::file(path))
    }

    /// The content of a file in Hugging Face's format.
    ///
    /// # Errors
    /// When the tokenizer or a part of it cannot be written in this format.
    pub fn to_json(&self) -> Result<String, TextError> {
        match &self.kind {
            Kind::Json(tokenizer) => tokenizer.to_json(),
            _ => {
                let problem = format!(
                    "a tokenizer of type {} cannot be written in Hugging Face's format",
                    self.model_type()
                );
                Err(TextError::Tokenizer(problem))
            }
        }
    }

    /// Bytes that identify the tokenizer: those of its files.
    ///
    /// # Errors
    /// When a part of it cannot be written.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, TextError> {
        match &self.kind {
            Kind::Json(tokenizer) => Ok(tokenizer.to_json()?.into_bytes()),
            Kind::Marian(side) => Ok([side.pieces_file(), &side.vocabulary().to_bytes()].concat()),
            Kind::M2m100(tokenizer) => {
                let vocabulary = tokenizer.vocabulary().to_bytes();
                let mut bytes = [tokenizer.pieces_file(), &vocabulary].concat();
                let languages = tokenizer.languages().iter();
                bytes.extend(languages.flat_map(|(name, _)| name.bytes()));
                let first = tokenizer.first_tokens().iter();
                bytes.extend(first.flat_map(|token| token.to_le_bytes()));
                Ok(bytes)
            }
            Kind::T5(tokenizer) => Ok(tokenizer.to_bytes()),
        }
    }

    /// The tokenizer, if it has Hugging Face's format.
    pub(super) fn json_mut(&mut self) -> Option<&mut TokenizerJson> {
        match &mut self.kind {
            Kind::Json(tokenizer) => Some(Arc::make_mut(tokenizer)),
            _ => None,
        }
    }

    /// The tokenizer, if it is Marian's.
    pub(super) fn marian(&self) -> Option<&Marian> {
        match &self.kind {
            Kind::Marian(side) => Some(side),
            _ => None,
        }
    }

    /// The tokenizer, if it is M2M100's.
    pub(super) fn m2m100(&self) -> Option<&M2m100> {
        match &self.kind {
            Kind::M2m100(tokenizer) => Some(tokenizer),
            _ => None,
        }
    }

    /// The tokenizer, if it is T5's or ByT5's.
    pub(super) fn t5(&self) -> Option<&T5> {
        match &self.kind {
            Kind::T5(tokenizer) => Some(tokenizer),
            _ => None,
        }
    }

    /// Whether all tokens have the same ids in another tokenizer.
    pub(super) fn has_vocabulary_of(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Json(one), Kind::Json(other)) => one.has_vocabulary_of(other),
            (Kind::Marian(one), Kind::Marian(other)) => {
                one.pieces_file() == other.pieces_file()
                    && one.vocabulary().has_ids_of(other.vocabulary())
            }
            (Kind::M2m100(one), Kind::M2m100(other)) => {
                one.pieces_file() == other.pieces_file()
                    && one.vocabulary().has_ids_of(other.vocabulary())
            }
            (Kind::T5(one), Kind::T5(other)) => one.has_vocabulary_of(other),
            _ => false,
        }
    }

    /// Checks that the tokenizer, read from `path`, fits a model with `vocab_size` entries and these special tokens.
    ///
    /// # Errors
    /// When it has more entries than the model, or another id for a special token.
    pub fn check(
        &self,
        path: &Path,
        vocab_size: usize,
        special_tokens: SpecialTokens,
    ) -> Result<(), TextError> {
        let tokens = self.vocab_size();
        if tokens > vocab_size {
            return Err(TextError::Vocabulary {
                path: path.to_owned(),
                tokens,
                vocab_size,
            });
        }
        match &self.kind {
            Kind::Json(tokenizer) => tokenizer.check(path, tokens, special_tokens),
            Kind::Marian(side) => {
                check_special(path, side.vocabulary(), END, ("eos_id", special_tokens.eos))
            }
            Kind::M2m100(tokenizer) => {
                check_end_and_padding(path, tokenizer.vocabulary(), special_tokens)
            }
            Kind::T5(tokenizer) => {
                check_end_and_padding(path, tokenizer.vocabulary(), special_tokens)
            }
        }
    }

    /// Number of entries, including special tokens: one more than the highest id, so that a model with this many
    /// embeddings has one for every token, even if ids are skipped.
    pub fn vocab_size(&self) -> usize {
        match &self.kind {
            Kind::Json(tokenizer) => tokenizer.vocab_size(),
            Kind::Marian(side) => side.vocabulary().len(),
            Kind::M2m100(tokenizer) => tokenizer.vocabulary().len(),
            Kind::T5(tokenizer) => tokenizer.vocabulary().len(),
        }
    }

    /// Encodes a text by itself: without `<bos>` and `<eos>`, and without the tokens that
    /// [`Tokenizers::encode_source`](crate::Tokenizers::encode_source) puts first.
    ///
    /// # Errors
    /// When the tokenizer cannot encode the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        match &self.kind {
            Kind::Json(tokenizer) => tokenizer.encode(text),
            Kind::Marian(side) => side.encode(text).map_err(TextError::Tokenizer),
            Kind::M2m100(tokenizer) => tokenizer.encode(text).map_err(TextError::Tokenizer),
            Kind::T5(tokenizer) => tokenizer.encode(text).map_err(TextError::Tokenizer),
        }
    }

    /// Encodes a text with BPE dropout (Provilkov et al., 2020): words are split at random, so that a model sees them
    /// in many segmentations. It is for training, with a `dropout` of 0.1.
    ///
    /// At each step, each possible merge is dropped with probability `dropout`, and of the others the one learned first
    /// is applied, until none is left. A dropout of 0 gives the tokens of [`encode`](Self::encode), 1 gives bytes or
    /// characters. The tokens always decode to the same text, and depend only on the text, `dropout` and the numbers
    /// drawn from `rng`.
    ///
    /// # Errors
    /// When `dropout` is not between 0 and 1, when it is not 0 and the tokenizer is not a BPE in Hugging Face's format,
    /// and when the tokenizer cannot encode the text.
    pub fn encode_with_dropout(
        &self,
        text: &str,
        dropout: f64,
        rng: &mut impl Rng,
    ) -> Result<Vec<u32>, TextError> {
        if !(0.0..=1.0).contains(&dropout) {
            return Err(TextError::Dropout(dropout));
        }
        if dropout == 0.0 {
            return self.encode(text);
        }
        match &self.kind {
            Kind::Json(tokenizer) => tokenizer.encode_with_dropout(text, dropout, rng),
            _ => {
                let model = self.model_type();
                Err(TextError::DropoutWithoutBpe { model })
            }
        }
    }

    /// Checks that the tokenizer supports [`encode_with_dropout`](Self::encode_with_dropout).
    ///
    /// # Errors
    /// When the tokenizer is not a BPE.
    pub fn check_dropout(&self) -> Result<(), TextError> {
        match &self.kind {
            Kind::Json(tokenizer) => tokenizer.check_dropout(),
            _ => {
                let model = self.model_type();
                Err(TextError::DropoutWithoutBpe { model })
            }
        }
    }

    /// The type of the model, as named by its format: `BPE`, `Unigram`, `WordLevel`, `WordPiece`,
    /// `SentencePiece` or `Bytes`.
    pub fn model_type(&self) -> &'static str {
        match &self.kind {
            Kind::Json(tokenizer) => tokenizer.model_type(),
            Kind::Marian(_) | Kind::M2m100(_) => "SentencePiece",
            Kind::T5(tokenizer) => tokenizer.model_type(),
        }
    }

    /// The tokens that the file puts before a text; none for Marian's and T5's.
    pub(super) fn first_tokens(&self) -> &[u32] {
        match &self.kind {
            Kind::Json(tokenizer) => tokenizer.first_tokens(),
            Kind::Marian(_) | Kind::T5(_) => &[],
            Kind::M2m100(tokenizer) => tokenizer.first_tokens(),
        }
    }

    /// The tokens that end a text, if there are more than the one that the model adds: `<eos>` and a language, as in
    /// the first mBART models.
    pub(super) fn last_tokens(&self) -> &[u32] {
        match &self.kind {
            Kind::Json(tokenizer) => tokenizer.last_tokens(),
            _ => &[],
        }
    }

    /// The language among the first or the last tokens.
    pub(super) fn language(&self) -> Option<u32> {
        let around = self.first_tokens().iter().chain(self.last_tokens());
        around.copied().find(|&token| self.is_language(token))
    }

    /// Replaces the language among the first or last tokens, or else puts it first.
    pub(super) fn set_language(&mut self, language: u32) -> Result<(), TextError> {
        let is_last = !self.last_tokens().is_empty();
        let first = self.first_tokens_with(language);
        match &mut self.kind {
            Kind::Json(tokenizer) if is_last => {
                Arc::make_mut(tokenizer).set_last_language(language)
            }
            Kind::Json(tokenizer) => Arc::make_mut(tokenizer).set_first_tokens(first),
            Kind::Marian(_) | Kind::T5(_) => Ok(()),
            Kind::M2m100(tokenizer) => {
                tokenizer.set_first_tokens(first);
                Ok(())
            }
        }
    }

    /// The first tokens with this language, in place of another language or before the other tokens.
    pub(super) fn first_tokens_with(&self, language: u32) -> Vec<u32> {
        let mut first = self.first_tokens().to_vec();
        let other = first.iter_mut().find(|token| self.is_language(**token));
        match other {
            Some(other) => *other = language,
            None => first.insert(0, language),
        }
        first
    }

    /// The language tokens with their names, in the order of their ids.
    fn language_tokens(&self) -> Vec<(String, u32)> {
        match &self.kind {
            Kind::Json(tokenizer) => tokenizer.languages(),
            Kind::Marian(side) => side.vocabulary().languages(),
            Kind::M2m100(tokenizer) => tokenizer.languages().to_vec(),
            Kind::T5(tokenizer) => tokenizer.vocabulary().languages(),
        }
    }

    /// The names of the language tokens, such as `eng_Latn`, `__en__`, `en_XX` or `>>fra<<`.
    pub fn languages(&self) -> Vec<String> {
        let tokens = self.language_tokens().into_iter();
        tokens.map(|(name, _)| name).collect()
    }

    /// The token of a language.
    ///
    /// # Errors
    /// When there is none; the error lists the available ones.
    pub(super) fn language_token(&self, name: &str) -> Result<u32, TextError> {
        let known = self.language_tokens();
        languages::token_of(name, &known).ok_or_else(|| TextError::Language {
            name: name.to_owned(),
            known: known.into_iter().map(|(name, _)| name).collect(),
        })
    }

    /// MADLAD-400's token of a language, such as `<2fr>`, which may be a piece like others.
    pub(super) fn language_in_source(&self, name: &str) -> Option<u32> {
        match name.starts_with("<2") {
            true => self.id(name),
            false => self.id(&format!("<2{name}>")),
        }
    }

    /// The token that names the language of targets at the beginning of sources.
    ///
    /// # Errors
    /// As [`language_token`](Self::language_token).
    pub(super) fn target_language_in_source(&self, name: &str) -> Result<u32, TextError> {
        match self.language_in_source(name) {
            Some(token) => Ok(token),
            None => self.language_token(name),
        }
    }

    /// The id of a token.
    pub(super) fn id(&self, name: &str) -> Option<u32> {
        match &self.kind {
            Kind::Json(tokenizer) => tokenizer.id(name),
            Kind::Marian(side) => side.vocabulary().id(name),
            Kind::M2m100(tokenizer) => tokenizer.vocabulary().id(name),
            Kind::T5(tokenizer) => tokenizer.vocabulary().id(name),
        }
    }

    /// Whether a token is a language token.
    pub(super) fn is_language(&self, token: u32) -> bool {
        let known = self.language_tokens();
        known.iter().any(|&(_, language)| language == token)
    }

    /// A token for display: its text, or its name in the vocabulary if it is not text by itself.
    pub fn token(&self, token: u32) -> String {
        match self.decode(&[token]) {
            Ok(text) if !text.is_empty() && !text.contains(char::REPLACEMENT_CHARACTER) => text,
            _ => self.name(token),
        }
    }

    /// The name of a token in the vocabulary; empty if it has none.
    pub fn name(&self, token: u32) -> String {
        let name = match &self.kind {
            Kind::Json(tokenizer) => tokenizer.name(token),
            Kind::Marian(side) => side.vocabulary().name(token).map(str::to_owned),
            Kind::M2m100(tokenizer) => tokenizer.vocabulary().name(token).map(str::to_owned),
            Kind::T5(tokenizer) => tokenizer.vocabulary().name(token).map(str::to_owned),
        };
        name.unwrap_or_default()
    }

    /// The byte that a token of ByT5's tokenizer stands for; `None` for other tokens and tokenizers.
    pub fn byte(&self, token: u32) -> Option<u8> {
        self.t5()?.byte(token)
    }

    /// Whether a token is one byte of a character missing from the vocabulary, such as `<0x0A>`. Its decoded text
    /// depends on the bytes that follow.
    pub(super) fn is_byte(&self, token: u32) -> bool {
        // A tokenizer of bytes decodes a part of a character to nothing.
        if self.t5().is_some_and(T5::has_bytes) {
            return false;
        }
        let name = self.name(token);
        name.len() == 6 && name.starts_with("<0x") && name.ends_with('>')
    }

    /// Decodes tokens to text; special tokens are skipped.
    ///
    /// # Errors
    /// When the tokenizer cannot join the tokens.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TextError> {
        let text = match &self.kind {
            Kind::Json(tokenizer) => tokenizer.decode(tokens)?,
            Kind::Marian(side) => side.decode(tokens),
            Kind::M2m100(tokenizer) => tokenizer.decode(tokens),
            Kind::T5(tokenizer) => tokenizer.decode(tokens),
        };
        Ok(match self.cleans_spaces {
            true => clean_up(&text),
            false => text,
        })
    }
}

fn check_end_and_padding(
    path: &Path,
    vocabulary: &Vocabulary,
    special_tokens: SpecialTokens,
) -> Result<(), TextError> {
    check_special(path, vocabulary, END, ("eos_id", special_tokens.eos))?;
    check_special(path, vocabulary, PADDING, ("pad_id", special_tokens.pad))
}

/// Checks that a token, if it is in the vocabulary of a file, has the id given by a key of the model's configuration.
///
/// # Errors
/// When it has another id.
pub(super) fn check_special(
    path: &Path,
    vocabulary: &Vocabulary,
    name: &'static str,
    (key, expected): (&'static str, u32),
) -> Result<(), TextError> {
    match vocabulary.id(name) {
        Some(found) if found != expected => Err(TextError::SpecialToken {
            path: path.to_owned(),
            name,
            found,
            key,
            expected,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::special_tokens::SPECIAL_TOKENS;

    /// A tokenizer of words, the special tokens first.
    pub fn words(words: &[&str]) -> Tokenizer {
        let words = SPECIAL_TOKENS.iter().chain(words).enumerate();
        let vocabulary: Vec<String> = words.map(|(id, word)| format!("{word:?}: {id}")).collect();
        let json = format!(
            r#"{{
                "version": "1.0",
                "added_tokens": [],
                "pre_tokenizer": {{"type": "WhitespaceSplit"}},
                "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "<unk>"}}
            }}"#,
            vocabulary.join(", ")
        );
        let inner: tokenizers::Tokenizer = json.parse().unwrap();
        inner.into()
    }

    #[test]
    fn a_model_has_an_embedding_for_every_token_even_if_ids_are_left_out() {
        assert_eq!(words(&["a"]).vocab_size(), 5);
        let json = r#"{
            "version": "1.0",
            "added_tokens": [],
            "model": {"type": "WordLevel", "vocab": {"<unk>": 3, "a": 9}, "unk_token": "<unk>"}
        }"#;
        let inner: tokenizers::Tokenizer = json.parse().unwrap();
        assert_eq!(Tokenizer::from(inner).vocab_size(), 10);
    }

    #[test]
    fn the_type_of_the_model_is_named() {
        assert_eq!(words(&["a"]).model_type(), "WordLevel");
    }
}
