//! Tokenizers, trained on a corpus.

pub mod bpe;
pub mod tokenize;
pub mod tokenizer;
pub mod unigram;
pub mod word_level;
