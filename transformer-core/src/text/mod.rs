//! Text: tokenizers and the translation of sentences.

mod added_tokens;
mod alignment;
mod byte_level;
mod clean_up;
mod converted;
mod error;
mod languages;
mod m2m100;
mod marian;
mod sentence_piece;
mod settings;
mod t5;
mod text_generator;
mod text_length;
mod token_files;
mod tokenizer;
mod tokenizer_json;
mod tokenizers;
mod translator;
mod vocabulary;

pub use alignment::Alignment;
pub use error::TextError;
pub use text_generator::{GeneratedText, TextGenerator};
pub use tokenizer::Tokenizer;
pub use tokenizer_json::entries::MAX_TOKENS;
pub use tokenizers::Tokenizers;
pub use translator::{Translation, Translator};
