//! From files of text to the examples of an update: corpora, tokenizers, batches.

pub(crate) mod batches;
#[cfg(feature = "text")]
pub(crate) mod cache;
pub(crate) mod corpora;
pub(crate) mod error;
pub(crate) mod example;
#[cfg(feature = "text")]
pub(crate) mod tokenizers;

pub use batches::sampler::{BatchError, BatchSampler};
pub use batches::source::ExampleSource;
pub use batches::update::Update;
pub(crate) use batches::updates::{LoadedUpdate, UpdateLoader};
#[cfg(feature = "text")]
pub use cache::{CacheOptions, PairCache};
pub use corpora::corpus::{Corpus, Pair, TRAINING_FILE, VALIDATION_FILE};
pub use corpora::files::{CorpusFile, CorpusFiles, PairPlaces};
#[cfg(feature = "text")]
pub use corpora::filters::{Filtered, LeftOut, PairFilters};
pub use corpora::lines::{is_standard_stream, read_sentences, trimmed};
pub use corpora::text_lines::{MAX_LINE_BYTES, TextLine, TextLines};
pub use corpora::text_reader::TextReader;
#[cfg(feature = "text")]
pub use corpora::unusable::FailedPairs;
pub use corpora::unusable::UnusablePairs;
#[cfg(feature = "text")]
pub use corpora::weighted_pairs::WeightedPairs;
pub use error::CorpusError;
pub(crate) use example::ExampleSet;
pub use example::{Checksum, Example, ExampleProblem, Lengths, TokenizedPair};
#[cfg(feature = "text")]
pub use tokenizers::bpe::train_bpe;
#[cfg(feature = "text")]
pub use tokenizers::tokenize::Tokenized;
#[cfg(feature = "text")]
pub use tokenizers::tokenizer::{
    MAX_VOCAB_SIZE, MIN_VOCAB_SIZE, TokenizerConfig, TokenizerError, TokenizerKind, train_tokenizer,
};
