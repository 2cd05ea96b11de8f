//! Vocabularies of whole units, the most frequent first: characters, and words.

use tokenizers::decoders::fuse::Fuse;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::wordlevel::{WordLevel, WordLevelTrainer};
use tokenizers::normalizers::NFD;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{SplitDelimiterBehavior, Tokenizer as Untrained};
use transformer_core::text::Tokenizer;

use crate::data::tokenizers::tokenizer::{TokenizerError, special_tokens};

/// Any character, including line breaks, in every dialect of regular expressions that reads the file.
const ANY_CHARACTER: &str = r"[\s\S]";

/// Trains [`TokenizerKind::Characters`](super::TokenizerKind::Characters).
pub(crate) fn train_characters<S: AsRef<str> + Send>(
    sentences: impl Iterator<Item = S> + Send,
    vocab_size: usize,
) -> Result<Tokenizer, TokenizerError> {
    trained(characters()?, sentences, vocab_size)
}

/// Trains [`TokenizerKind::Decomposed`](super::TokenizerKind::Decomposed).
pub(crate) fn train_decomposed<S: AsRef<str> + Send>(
    sentences: impl Iterator<Item = S> + Send,
    vocab_size: usize,
) -> Result<Tokenizer, TokenizerError> {
    let mut tokenizer = characters()?;
    tokenizer.with_normalizer(Some(NFD));
    trained(tokenizer, sentences, vocab_size)
}

/// Trains [`TokenizerKind::Words`](super::TokenizerKind::Words).
pub(crate) fn train_words<S: AsRef<str> + Send>(
    sentences: impl Iterator<Item = S> + Send,
    vocab_size: usize,
) -> Result<Tokenizer, TokenizerError> {
    trained(words(), sentences, vocab_size)
}

fn characters() -> Result<Untrained, TokenizerError> {
    let pattern = SplitPattern::Regex(ANY_CHARACTER.into());
    let each = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
        .map_err(TokenizerError::Training)?;
    let mut tokenizer = Untrained::new(WordLevel::default());
    tokenizer
        .with_pre_tokenizer(Some(each))
        .with_decoder(Some(Fuse::new()));
    Ok(tokenizer)
}

/// A word's entry begins with a space, so that no word equals a special token: the word `<eos>` is ` <eos>`.
fn words() -> Untrained {
    let spaced = Metaspace::new(' ', PrependScheme::Always, false);
    let each = Sequence::new(vec![WhitespaceSplit.into(), spaced.clone().into()]);
    let mut tokenizer = Untrained::new(WordLevel::default());
    tokenizer
        .with_pre_tokenizer(Some(each))
        // Removes the first space.
        .with_decoder(Some(spaced));
    tokenizer
}

fn trained<S: AsRef<str> + Send>(
    mut tokenizer: Untrained,
    sentences: impl Iterator<Item = S> + Send,
    vocab_size: usize,
) -> Result<Tokenizer, TokenizerError> {
    let trainer = WordLevelTrainer::builder()
        .show_progress(false)
        .vocab_size(vocab_size)
        .special_tokens(special_tokens())
        .build()
        .map_err(|error| TokenizerError::Training(error.into()))?;
    tokenizer
        .train(&mut TrainerWrapper::from(trainer), sentences)
        .map_err(TokenizerError::Training)?;
    Ok(tokenizer.into())
}
