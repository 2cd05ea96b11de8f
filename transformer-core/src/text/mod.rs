//! Text: tokenizers, and the translation of sentences.

mod added_tokens;
mod bpe_dropout;
mod clean_up;
mod entries;
mod error;
mod languages;
mod m2m100;
mod marian;
mod model_tokenizers;
mod sentence_piece;
mod text_length;
mod text_search;
mod token_files;
mod tokenizer;
mod tokenizer_file;
mod tokenizer_json;
mod tokenizer_parts;
mod tokenizer_settings;
mod translator;
mod vocabulary;

pub use entries::MAX_TOKENS;
pub use error::TextError;
pub use model_tokenizers::Tokenizers;
pub use text_search::{TextSearch, Translation};
pub use tokenizer::Tokenizer;
pub use translator::Translator;
