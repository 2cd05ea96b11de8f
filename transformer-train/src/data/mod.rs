//! From files of text to the examples of an update: corpora, tokenizers, batches.

mod ahead;
#[cfg(feature = "text")]
mod bpe;
#[cfg(feature = "text")]
mod cache;
mod corpus;
mod error;
mod example;
mod files;
#[cfg(feature = "text")]
mod filters;
mod hold_out;
mod lines;
mod reader;
mod sampler;
mod source;
mod text_lines;
mod text_reader;
mod text_set;
#[cfg(feature = "text")]
mod tokenize;
#[cfg(feature = "text")]
mod tokenizer;
#[cfg(feature = "text")]
mod unigram;
mod unusable;
mod update;
mod update_loader;
#[cfg(feature = "text")]
mod weighted_pairs;
#[cfg(feature = "text")]
mod word_level;
mod writer;

#[cfg(feature = "text")]
pub use bpe::train_bpe;
#[cfg(feature = "text")]
pub use cache::{CacheOptions, PairCache};
pub use corpus::{Corpus, Pair, TRAINING_FILE, VALIDATION_FILE};
pub use error::CorpusError;
pub use example::{Checksum, Example, ExampleProblem, Lengths, TokenizedPair};
pub use files::{CorpusFile, CorpusFiles, PairPlaces};
#[cfg(feature = "text")]
pub use filters::{Filtered, LeftOut, PairFilters};
pub use lines::{is_standard_stream, read_sentences, trimmed};
pub use sampler::{BatchError, BatchSampler};
pub use source::ExampleSource;
pub use text_lines::{MAX_LINE_BYTES, TextLine, TextLines};
pub use text_reader::TextReader;
#[cfg(feature = "text")]
pub use tokenize::Tokenized;
#[cfg(feature = "text")]
pub use tokenizer::{
    MAX_VOCAB_SIZE, MIN_VOCAB_SIZE, TokenizerConfig, TokenizerError, TokenizerKind, train_tokenizer,
};
pub use unusable::{FailedPairs, UnusablePairs};
pub use update::Update;
pub(crate) use update_loader::{LoadedUpdate, UpdateLoader};
#[cfg(feature = "text")]
pub use weighted_pairs::WeightedPairs;
