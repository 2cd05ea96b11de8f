//! Sources of training examples, read by position.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::data::error::CorpusError;
use crate::data::example::{Checksum, Example, Lengths};

/// Training examples, read by position.
///
/// A list of examples is a source, and so is a [`PairCache`](crate::data::PairCache), which reads them from a
/// file. Batches are planned from the lengths alone, so that a background thread reads each example only when its
/// update is due.
///
/// ```
/// use std::borrow::Cow;
/// use transformer_train::data::{Checksum, CorpusError, Example, ExampleSource, Lengths};
///
/// /// Sequences of 0 to 999 tokens, generated on demand.
/// struct Counting;
///
/// impl ExampleSource for Counting {
///     type Example = Vec<u32>;
///
///     fn lengths(&self) -> Cow<'_, [Lengths]> {
///         // Including the token that ends a sequence.
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

    /// The lengths of all examples, in the order of their positions.
    fn lengths(&self) -> Cow<'_, [Lengths]>;

    /// The example at a position. It may differ between epochs (BPE dropout), but the same position and epoch
    /// always give the same example.
    ///
    /// # Errors
    /// When the example cannot be read. The run then ends after the preceding update.
    ///
    /// # Panics
    /// When `index` is out of range.
    fn get(&self, index: usize, epoch: usize) -> Result<Self::Example, CorpusError>;

    /// Checksum of the examples and their weights, by which a resumed run recognizes them.
    fn checksum(&self) -> u32;

    /// How often examples occur in an epoch, by ranges of positions. By default, each occurs once.
    ///
    /// With a weight of 2.5, each example of a range occurs twice, and half of them, drawn anew for each epoch, a
    /// third time. Examples outside all ranges are not trained on.
    fn weights(&self) -> Vec<(Range<usize>, f64)> {
        vec![(0..self.lengths().len(), 1.0)]
    }

    /// Positions of the examples that are checked against the model before a run starts; by default, none. Every
    /// example is checked when it is read.
    fn checked_first(&self) -> Vec<usize> {
        Vec::new()
    }
}

/// Examples in memory, each once per epoch. All are checked before a run starts.
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

/// A shared source.
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

/// The checksum of examples and their weights; if every weight is 1, of the examples alone.
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
