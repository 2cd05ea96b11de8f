//! Training examples.

use std::fmt;

use flate2::Crc;
use serde::{Deserialize, Serialize};

/// A training example of a model: a pair of sentences, a sequence, a text and its class.
///
/// Batches group examples of similar length, resumed runs recognize their data by its checksum, and the loss is a
/// mean over tokens.
///
/// ```
/// use transformer_train::data::{Checksum, Example, Lengths};
///
/// /// A text, as tokens, and its class.
/// #[derive(Clone)]
/// struct Labelled {
///     text: Vec<u32>,
///     class: u32,
/// }
///
/// impl Example for Labelled {
///     fn lengths(&self) -> Lengths {
///         Lengths { source: self.text.len(), target: 1 }
///     }
///
///     fn add_to(&self, checksum: &mut Checksum) {
///         checksum.tokens(&self.text);
///         checksum.tokens(&[self.class]);
///     }
/// }
/// ```
pub trait Example: Clone + Send + Sync + 'static {
    /// What an example is called in messages.
    const NAME: &'static str = "example";

    /// The lengths of its rows in a batch.
    fn lengths(&self) -> Lengths;

    /// Its weight in the loss of an update, which is a weighted mean; by default, its number of target tokens.
    fn loss_weight(&self) -> usize {
        self.lengths().target
    }

    /// Adds every part of the example that affects training to a checksum, by which a resumed run recognizes its
    /// examples; by default, only its lengths.
    fn add_to(&self, checksum: &mut Checksum) {
        let Lengths { source, target } = self.lengths();
        checksum.tokens(&[source as u32, target as u32]);
    }
}

/// The lengths of an example's rows in a batch, in tokens, including those that the batch adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Length of the model's input; 0 if the model reads only the target.
    pub source: usize,
    /// Length of its labels.
    pub target: usize,
}

impl Lengths {
    /// The longer of the two, which limits the rows of a batch.
    pub fn longest(self) -> usize {
        self.source.max(self.target)
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            0 => write!(f, "{} tokens", self.target),
            source => write!(f, "{source} source and {} target tokens", self.target),
        }
    }
}

/// A checksum (CRC-32) by which a resumed run recognizes its data.
#[derive(Debug, Default)]
pub struct Checksum(Crc);

impl Checksum {
    /// Adds a list of tokens and its length.
    pub fn tokens(&mut self, tokens: &[u32]) {
        self.bytes(&(tokens.len() as u64).to_le_bytes());
        for token in tokens {
            self.bytes(&token.to_le_bytes());
        }
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn sum(&self) -> u32 {
        self.0.sum()
    }
}

/// Why a model cannot learn from an example.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExampleProblem {
    /// It has more tokens than the model has positions.
    #[error("has {length} tokens, more than the model's {max_len} learned positions")]
    TooLong {
        /// Tokens of its longest row, including `<eos>` or `<bos>`.
        length: usize,
        /// Positions of the model.
        max_len: usize,
    },
    /// It contains a token outside the model's vocabulary.
    #[error("holds token {token}, outside the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// Anything else: a phrase that follows the example's name in a message, such as
    /// `has class 7, of 3`.
    #[error("{0}")]
    Other(String),
}

/// A tokenized pair of sentences, without `<bos>` and `<eos>`: batches add them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizedPair {
    /// Token ids of the source sentence. The model ignores padding tokens.
    pub source: Vec<u32>,
    /// Token ids of the target sentence. Padding tokens in it are not learned, but count among the tokens by which an
    /// update's loss is divided.
    pub target: Vec<u32>,
}

impl TokenizedPair {
    /// Length of the encoder's row: the pieces and `<eos>`. A source that already has its `<eos>`, followed by a
    /// language, counts one token too many.
    pub fn src_len(&self) -> usize {
        self.lengths().source
    }

    /// Length of the decoder's row: `<bos>` and the pieces as input, the pieces and `<eos>` as labels.
    pub fn tgt_len(&self) -> usize {
        self.lengths().target
    }

    /// The lengths of a pair with this many pieces.
    pub(super) fn lengths_of(source: usize, target: usize) -> Lengths {
        Lengths {
            source: source + 1,
            target: target + 1,
        }
    }
}

impl Example for TokenizedPair {
    const NAME: &'static str = "pair";

    fn lengths(&self) -> Lengths {
        Self::lengths_of(self.source.len(), self.target.len())
    }

    fn add_to(&self, checksum: &mut Checksum) {
        checksum.tokens(&self.source);
        checksum.tokens(&self.target);
    }
}

/// A sequence of token ids, without `<bos>` and `<eos>`: the training example of a language model.
impl Example for Vec<u32> {
    const NAME: &'static str = "sequence";

    fn lengths(&self) -> Lengths {
        Lengths {
            source: 0,
            target: self.len() + 1,
        }
    }

    fn add_to(&self, checksum: &mut Checksum) {
        checksum.tokens(self);
    }
}

/// Identifies the examples of a run that is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExampleSet {
    #[serde(rename = "pairs")]
    pub examples: usize,
    pub checksum: u32,
}

impl ExampleSet {
    /// A description; `name` is what an example is called.
    pub fn shown(self, name: &str) -> String {
        let Self { examples, checksum } = self;
        format!("{examples} {name}s (checksum {checksum:08x})")
    }
}
