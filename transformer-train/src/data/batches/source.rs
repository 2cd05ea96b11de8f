//! Sources of training examples, read by position.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::data::error::CorpusError;
use crate::data::example::{Checksum, Example, Lengths};

/// Examples to train on, read by position.
///
/// A list of examples is one, and so is a [`PairCache`](crate::data::PairCache), which reads them from a file. The
/// batches of an epoch are planned on the lengths alone, so that the examples themselves are read only when
/// their update is due, on a thread of their own.
///
/// ```
/// use std::borrow::Cow;
/// use transformer_train::data::{Checksum, CorpusError, Example, ExampleSource, Lengths};
///
/// /// Sequences of a thousand lengths that are made when they are needed.
/// struct Counting;
///
/// impl ExampleSource for Counting {
///     type Example = Vec<u32>;
///
///     fn lengths(&self) -> Cow<'_, [Lengths]> {
///         // With the token that ends a sequence.
///         (0..1000).map(|index| Lengths { source: 0, target: index + 1 }).collect()
///     }
///
///     fn get(&self, index: usize, _epoch: usize) -> Result<Vec<u32>, CorpusError> {
///         Ok((0..index as u32).collect())
///     }
///
///     fn checksum(&self) -> u32 {
///         0
///     }
/// }
///
/// assert_eq!(Counting.get(3, 0)?, [0, 1, 2]);
/// assert_eq!(Counting.weights(), [(0..1000, 1.0)]);
/// # Ok::<(), CorpusError>(())
/// ```
pub trait ExampleSource: Send + Sync + 'static {
    /// The type of the examples.
    type Example: Example;

    /// The lengths of every example, in the order of their positions.
    fn lengths(&self) -> Cow<'_, [Lengths]>;

    /// The example at a position. It may differ from epoch to epoch (BPE dropout), but the same position and
    /// epoch always give the same example.
    ///
    /// # Errors
    /// When the example cannot be read. The run then ends, after the updates before.
    ///
    /// # Panics
    /// When there are fewer examples.
    fn get(&self, index: usize, epoch: usize) -> Result<Self::Example, CorpusError>;

    /// Recognises the examples and their weights when a run is resumed.
    fn checksum(&self) -> u32;

    /// How often examples stand in an epoch, by ranges of positions; by default, each once.
    ///
    /// With a weight of 2.5, each example of a range stands there twice, and half of them, which each epoch
    /// draws anew, a third time. Examples in no range are not trained on.
    fn weights(&self) -> Vec<(Range<usize>, f64)> {
        vec![(0..self.lengths().len(), 1.0)]
    }

    /// Positions of the examples that are checked against the model before a run starts; by default, of none.
    /// Every example is checked when it is read.
    fn checked_first(&self) -> Vec<usize> {
        Vec::new()
    }
}

/// Examples in memory, each once in an epoch. All are checked before a run starts.
impl<E: Example> ExampleSource for Vec<E> {
    type Example = E;

    fn lengths(&self) -> Cow<'_, [Lengths]> {
        self.iter().map(Example::lengths).collect()
    }

    fn get(&self, index: usize, _epoch: usize) -> Result<E, CorpusError> {
        Ok(self[index].clone())
    }

    fn checksum(&self) -> u32 {
        checksum_of(self)
    }

    fn weights(&self) -> Vec<(Range<usize>, f64)> {
        vec![(0..self.len(), 1.0)]
    }

    fn checked_first(&self) -> Vec<usize> {
        (0..self.len()).collect()
    }
}

/// A source that is shared.
impl<S: ExampleSource + ?Sized> ExampleSource for Arc<S> {
    type Example = S::Example;

    fn lengths(&self) -> Cow<'_, [Lengths]> {
        (**self).lengths()
    }

    fn get(&self, index: usize, epoch: usize) -> Result<S::Example, CorpusError> {
        (**self).get(index, epoch)
    }

    fn checksum(&self) -> u32 {
        (**self).checksum()
    }

    fn weights(&self) -> Vec<(Range<usize>, f64)> {
        (**self).weights()
    }

    fn checked_first(&self) -> Vec<usize> {
        (**self).checked_first()
    }
}

/// The checksum of a list of examples.
pub(crate) fn checksum_of<E: Example>(examples: &[E]) -> u32 {
    let mut checksum = Checksum::default();
    for example in examples {
        example.add_to(&mut checksum);
    }
    checksum.sum()
}

/// The checksum of examples and their weights: that of the examples alone, where every weight is one.
#[cfg(feature = "text")]
pub(crate) fn weighted_checksum(examples: u32, weights: &[(Range<usize>, f64)]) -> u32 {
    if weights.iter().all(|(_, weight)| *weight == 1.0) {
        return examples;
    }
    let mut checksum = Checksum::default();
    checksum.bytes(&examples.to_le_bytes());
    for (range, weight) in weights {
        checksum.bytes(&(range.end as u64).to_le_bytes());
        checksum.bytes(&weight.to_le_bytes());
    }
    checksum.sum()
}
