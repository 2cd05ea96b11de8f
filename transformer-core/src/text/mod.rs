//! Text: tokenizers, and the translation of sentences.

mod bpe_dropout;
mod text_search;
mod tokenizer;
mod translator;

pub use text_search::{TextSearch, Translation};
pub use tokenizer::{TextError, Tokenizer, Tokenizers};
pub use translator::Translator;
