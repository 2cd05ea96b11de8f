//! Text: tokenizers, and the translation of sentences.

mod error;
mod languages;
mod m2m100;
mod marian;
mod sentence_piece;
mod settings;
mod tokenizer;
mod tokenizer_json;
mod tokenizers;
mod translator;

pub use error::TextError;
pub use tokenizer::Tokenizer;
pub use tokenizer_json::entries::MAX_TOKENS;
pub use tokenizers::Tokenizers;
pub use translator::{Translation, Translator};
