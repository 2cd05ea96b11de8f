//! Tokenizers trained on text: subword pieces by byte-level BPE (§5.1) or a unigram model; characters; words.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokenizers::AddedToken;
use transformer_core::decoding::SPECIAL_TOKENS;
use transformer_core::text::{MAX_TOKENS, Tokenizer};

use crate::data::tokenizers::bpe::train_bpe;
use crate::data::tokenizers::unigram::train_unigram;
use crate::data::tokenizers::word_level::{train_characters, train_decomposed, train_words};

/// Smallest vocabulary of [`TokenizerKind::Bpe`] and [`TokenizerKind::Unigram`]: the special tokens and the 256
/// bytes.
pub const MIN_VOCAB_SIZE: usize = SPECIAL_TOKENS.len() + 256;

/// Largest vocabulary of any kind: the reader refuses larger ones.
pub const MAX_VOCAB_SIZE: usize = MAX_TOKENS;

/// The units into which a tokenizer splits text.
///
/// `decode(encode(text))` is `text`, within the limits stated for each kind. All kinds treat text that spells a
/// special token as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenizerKind {
    /// Subword pieces, by byte-level byte-pair encoding (§5.1). Nothing is out of vocabulary; every text is
    /// decoded to itself.
    #[default]
    Bpe,
    /// Subword pieces, by a unigram language model (Kudo, 2018): each word has its most probable segmentation.
    /// Characters outside the vocabulary are spelled as bytes, so that nothing is out of vocabulary; every text is
    /// decoded to itself.
    Unigram,
    /// Characters: Unicode scalar values, including white space. A character not seen in training is `<unk>`; text
    /// without such characters is decoded to itself.
    Characters,
    /// Characters in Unicode's canonical decomposition (NFD): a letter and each of its accents are separate
    /// tokens, and so are the letters of a Korean syllable. This leaves few characters unknown. Text is decoded to
    /// its decomposition, which reads the same but has other bytes; use this kind for sources.
    Decomposed,
    /// Words, separated by white space: for text that is already tokenized, such as phones. A word not seen in
    /// training is `<unk>`. Text without such words is decoded to itself with normalized white space: one space
    /// between words, none around them.
    Words,
}

/// How a tokenizer is trained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenizerConfig {
    /// The units into which text is split. Default: BPE pieces.
    pub kind: TokenizerKind,
    /// Maximum number of tokens in the vocabulary, including special ones. Default: 8000.
    pub vocab_size: usize,
}

impl Default for TokenizerConfig {
    fn default() -> Self {
        Self {
            kind: TokenizerKind::default(),
            vocab_size: 8000,
        }
    }
}

impl TokenizerConfig {
    /// Checks that the vocabulary is large enough for the tokens that every tokenizer of its kind has, and not
    /// larger than a model's may be.
    ///
    /// # Errors
    /// [`TokenizerError::VocabTooSmall`], [`TokenizerError::VocabWithoutText`] or [`TokenizerError::VocabTooLarge`].
    pub fn validate(&self) -> Result<(), TokenizerError> {
        use TokenizerKind::{Bpe, Characters, Decomposed, Unigram, Words};
        let vocab_size = self.vocab_size;
        if vocab_size > MAX_VOCAB_SIZE {
            return Err(TokenizerError::VocabTooLarge { vocab_size });
        }
        match self.kind {
            Bpe | Unigram if vocab_size < MIN_VOCAB_SIZE => {
                Err(TokenizerError::VocabTooSmall { vocab_size })
            }
            Characters | Decomposed | Words if vocab_size <= SPECIAL_TOKENS.len() => {
                Err(TokenizerError::VocabWithoutText { vocab_size })
            }
            _ => Ok(()),
        }
    }
}

/// Why a tokenizer could not be trained.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The vocabulary is too small for the special tokens and the 256 bytes.
    #[error(
        "vocab_size {vocab_size} is too small: the special tokens and the 256 bytes need {MIN_VOCAB_SIZE}"
    )]
    VocabTooSmall {
        /// The requested size.
        vocab_size: usize,
    },
    /// The vocabulary is too small for the special tokens and one character or word.
    #[error(
        "vocab_size {vocab_size} is too small: the special tokens and one token of text need {}",
        SPECIAL_TOKENS.len() + 1
    )]
    VocabWithoutText {
        /// The requested size.
        vocab_size: usize,
    },
    /// The vocabulary is larger than a model's may be.
    #[error("vocab_size {vocab_size} is too large: a tokenizer has at most {MAX_VOCAB_SIZE}")]
    VocabTooLarge {
        /// The requested size.
        vocab_size: usize,
    },
    /// The `tokenizers` library failed.
    #[error("tokenizer training failed: {0}")]
    Training(tokenizers::Error),
}

/// Trains a tokenizer on sentences, with [`SPECIAL_TOKENS`] as its first tokens.
///
/// The sentences are read once and not kept: memory grows with the number of distinct words. The same sentences in
/// any order, with the same configuration, give the same tokenizer, byte for byte, on any number of threads. (The
/// probabilities of a unigram model may differ in their last bit between operating systems, whose logarithms
/// differ.)
///
/// Encoding does not add `<bos>` or `<eos>`: batches add them.
///
/// ```
/// use transformer_train::data::{TokenizerConfig, TokenizerKind, train_tokenizer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let phones = ["ʃ a", "ʃ j ɛ̃"];
/// let config = TokenizerConfig {
///     kind: TokenizerKind::Words,
///     ..TokenizerConfig::default()
/// };
/// let tokenizer = train_tokenizer(phones.into_iter(), &config)?;
/// // Four special tokens and four phones, the most frequent first.
/// assert_eq!(tokenizer.vocab_size(), 8);
/// assert_eq!(tokenizer.token(4), "ʃ");
/// assert_eq!(tokenizer.decode(&tokenizer.encode("j a")?)?, "j a");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the configuration is not [valid](TokenizerConfig::validate); [`TokenizerError::Training`] when the
/// `tokenizers` library fails.
pub fn train_tokenizer<S: AsRef<str> + Send>(
    sentences: impl Iterator<Item = S> + Send,
    config: &TokenizerConfig,
) -> Result<Tokenizer, TokenizerError> {
    config.validate()?;
    let vocab_size = config.vocab_size;
    match config.kind {
        TokenizerKind::Bpe => train_bpe(sentences, vocab_size),
        TokenizerKind::Unigram => train_unigram(sentences, vocab_size),
        TokenizerKind::Characters => train_characters(sentences, vocab_size),
        TokenizerKind::Decomposed => train_decomposed(sentences, vocab_size),
        TokenizerKind::Words => train_words(sentences, vocab_size),
    }
}

/// [`SPECIAL_TOKENS`] in the form that trainers accept.
pub(crate) fn special_tokens() -> Vec<AddedToken> {
    SPECIAL_TOKENS
        .map(|token| AddedToken::from(token, true))
        .to_vec()
}
