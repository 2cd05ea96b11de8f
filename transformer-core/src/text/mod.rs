//! Text: tokenizers, and the translation of sentences.

mod bpe_dropout;
mod tokenizer;
mod translator;

pub use tokenizer::{TextError, Tokenizer, Tokenizers};
pub use translator::{Translation, Translator};
