//! The examples of one update.

use crate::data::example::Example;

/// The batches whose gradients make one update.
///
/// They hold examples, not tensors: the model creates the tensors on the device that computes its part of the
/// update.
#[derive(Debug, Clone, PartialEq)]
pub struct Update<E> {
    /// One or more batches of examples.
    pub batches: Vec<Vec<E>>,
    /// Weight of all examples in the loss of the whole update, of which these batches may be a part.
    pub loss_weight: usize,
}

impl<E: Example> Update<E> {
    /// An update of the given batches.
    pub fn new(batches: Vec<Vec<E>>) -> Self {
        let weights = batches.iter().flatten().map(Example::loss_weight);
        Self {
            loss_weight: weights.sum(),
            batches,
        }
    }

    /// Distributes the batches over `n` devices. With fewer batches than devices, some get none.
    pub(crate) fn deal(self, n: usize) -> Vec<Self> {
        let mut parts: Vec<Self> = (0..n)
            .map(|_| Self {
                batches: Vec::new(),
                loss_weight: self.loss_weight,
            })
            .collect();
        for (index, batch) in self.batches.into_iter().enumerate() {
            parts[index % n].batches.push(batch);
        }
        parts.retain(|part| !part.batches.is_empty());
        parts
    }
}
