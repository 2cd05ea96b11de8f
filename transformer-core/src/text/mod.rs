//! Text: tokenizers, and the translation of sentences.

mod tokenizer;
mod translator;

pub use tokenizer::{
    SOURCE_TOKENIZER_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE, TextError, Tokenizer, Tokenizers,
};
pub use translator::{Translation, Translator};
