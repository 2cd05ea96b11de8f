//! From files of text to the examples of an update: corpora, tokenizers, batches.

#[cfg(feature = "text")]
mod bpe;
mod corpus;
mod error;
mod example;
mod lines;
mod loader;
mod sampler;
mod text_reader;
#[cfg(feature = "text")]
mod tokenizer;
#[cfg(feature = "text")]
mod unigram;
#[cfg(feature = "text")]
mod word_level;

#[cfg(feature = "text")]
pub use bpe::train_bpe;
#[cfg(feature = "text")]
pub use corpus::Tokenized;
pub use corpus::{Corpus, Pair, TRAINING_FILE, VALIDATION_FILE};
pub use error::CorpusError;
pub use example::{Checksum, Example, ExampleProblem, Lengths, TokenizedPair};
pub use lines::read_sentences;
pub use loader::Update;
pub(crate) use loader::{Examples, UpdateLoader, ValidLoader};
pub use sampler::{BatchError, BatchSampler};
pub use text_reader::TextReader;
#[cfg(feature = "text")]
pub use tokenizer::{
    MIN_VOCAB_SIZE, TokenizerConfig, TokenizerError, TokenizerKind, train_tokenizer,
};
