//! The tokenizer with the pieces of a unigram language model (Kudo, 2018), as in SentencePiece.
//!
//! The estimation of the pieces is our own (`unigram/estimation.rs`). The implementation in the crate `tokenizers`
//! gives a different vocabulary each time (it ranks rare characters in the order of a hash map, and sums in the
//! order of threads), does not support bytes, and panics on a text that contains `<UNK>`.

mod estimation;
mod pieces;

use std::collections::HashMap;

use rayon::iter::{ParallelBridge, ParallelIterator};
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::Prepend;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    AddedToken, ModelWrapper, SplitDelimiterBehavior, Tokenizer as Untrained, Trainer,
};
use transformer_core::decoding::SPECIAL_TOKENS;
use transformer_core::text::Tokenizer;

use crate::data::tokenizers::tokenizer::{MIN_VOCAB_SIZE, TokenizerError, special_tokens};
use estimation::estimated;

/// A word: letters, digits, or other characters, with the space before it; or a single white-space character.
///
/// A word has characters of one kind, so that no word, and hence no piece, looks like `<eos>` or the byte
/// `<0x0A>`.
const WORD: &str = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s";

/// Position of `<unk>` in [`SPECIAL_TOKENS`].
const UNKNOWN: usize = 3;

/// Trains [`TokenizerKind::Unigram`](super::TokenizerKind::Unigram).
pub(crate) fn train_unigram<S: AsRef<str> + Send>(
    sentences: impl Iterator<Item = S> + Send,
    vocab_size: usize,
) -> Result<Tokenizer, TokenizerError> {
    let mut trainer = PieceTrainer {
        n_pieces: vocab_size.saturating_sub(MIN_VOCAB_SIZE),
        words: HashMap::new(),
    };
    let mut tokenizer = untrained()?;
    tokenizer
        .train(&mut trainer, sentences)
        .map_err(TokenizerError::Training)?;
    Ok(tokenizer.into())
}

fn untrained() -> Result<Untrained, TokenizerError> {
    let pattern = SplitPattern::Regex(WORD.into());
    let words = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
        .map_err(TokenizerError::Training)?;
    let mut tokenizer = Untrained::new(Unigram::default());
    tokenizer
        // A word has the same pieces at the start of a sentence and inside one.
        .with_normalizer(Some(Prepend::new(" ".into())))
        .with_pre_tokenizer(Some(words))
        .with_decoder(Some(Sequence::new(vec![
            ByteFallback::new().into(),
            Fuse::new().into(),
            Strip::new(' ', 1, 0).into(),
        ])));
    Ok(tokenizer)
}

/// Counts words and estimates their pieces.
struct PieceTrainer {
    n_pieces: usize,
    words: HashMap<String, u64>,
}

impl Trainer for PieceTrainer {
    type Model = ModelWrapper;

    fn should_show_progress(&self) -> bool {
        false
    }

    /// Special tokens, then bytes, then pieces.
    fn train(&self, model: &mut ModelWrapper) -> tokenizers::Result<Vec<AddedToken>> {
        let special = SPECIAL_TOKENS.into_iter().map(String::from);
        let bytes = (0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>"));
        // Never found in a word, so that any score will do.
        let unscored = special.chain(bytes).map(|name| (name, 0.0));
        let pieces = estimated(&self.words, self.n_pieces).into_iter();
        let scored = pieces.map(|piece| {
            (
                piece.text.into_iter().collect::<String>(),
                piece.log_probability,
            )
        });
        *model = Unigram::from(unscored.chain(scored).collect(), Some(UNKNOWN), true)?.into();
        Ok(special_tokens())
    }

    fn feed<I, S, F>(&mut self, iterator: I, process: F) -> tokenizers::Result<()>
    where
        I: Iterator<Item = S> + Send,
        S: AsRef<str> + Send,
        F: Fn(&str) -> tokenizers::Result<Vec<String>> + Sync,
    {
        let counted = |mut words: HashMap<String, u64>, sentence: S| -> tokenizers::Result<_> {
            for word in process(sentence.as_ref())? {
                *words.entry(word).or_default() += 1;
            }
            Ok(words)
        };
        self.words = iterator
            .par_bridge()
            .try_fold(HashMap::new, counted)
            .try_reduce(HashMap::new, |some, others| Ok(joined(some, others)))?;
        Ok(())
    }
}

/// Adds two counts.
fn joined(some: HashMap<String, u64>, others: HashMap<String, u64>) -> HashMap<String, u64> {
    let (mut more, fewer) = match some.len() < others.len() {
        true => (others, some),
        false => (some, others),
    };
    for (word, count) in fewer {
        *more.entry(word).or_default() += count;
    }
    more
}
