//! Label-smoothed cross entropy, averaged over non-padding tokens (§5.4).

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor};
use transformer_core::ops;

/// Cross entropy against targets smoothed by ε (§5.4): the label has probability `1 - ε`, and ε is distributed
/// evenly over all `vocab_size` entries, including the label.
///
/// With `lse` the log-sum-exp of a row `x` of logits, and `y` its label, the loss of the row is
///
/// `lse(x) - (1 - ε) x_y - ε mean(x)`,
///
/// so that no target distribution over the vocabulary is built. Rows whose label is `<pad>` are ignored, except
/// [without padding](Self::without_padding). Equals PyTorch's `CrossEntropyLoss(label_smoothing, ignore_index)`.
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::{Int, Tensor};
/// use transformer_train::objective::LabelSmoothedCrossEntropy;
///
/// // Two entries, logits ln 3 and 0: probabilities 3/4 and 1/4. The label is entry 1, ε = 0.2, so
/// // the smoothed target is 0.1, 0.9 and the loss -0.1 ln(3/4) - 0.9 ln(1/4). The second row is
/// // padding.
/// let device = Default::default();
/// let logits = Tensor::<NdArray, 2>::from_data([[3.0_f32.ln(), 0.0], [5.0, -5.0]], &device);
/// let labels = Tensor::<NdArray, 1, Int>::from_data([1, 0], &device);
///
/// let loss = LabelSmoothedCrossEntropy::new(0.2, 0).mean(logits, labels);
/// let expected = -0.1 * 0.75_f32.ln() - 0.9 * 0.25_f32.ln();
/// assert!((loss.into_scalar() - expected).abs() < 1e-6);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LabelSmoothedCrossEntropy {
    smoothing: f64,
    /// The ignored label.
    pad_id: Option<u32>,
}

/// Options of the loss: the argument of [`Objective::loss`](crate::objective::Objective::loss).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct LossOptions {
    /// Label smoothing ε (§5.4), for losses with labels; 0: none.
    pub label_smoothing: f64,
}

impl LossOptions {
    /// Label smoothing with this ε.
    pub fn smoothed(label_smoothing: f64) -> Self {
        Self { label_smoothing }
    }
}

/// The summed loss of a batch, and the weight by which a mean divides it: `[1]` each.
///
/// The weight is the number of non-padding tokens, or of examples if each has one loss.
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::Tensor;
/// use transformer_train::objective::LossSums;
///
/// // Squared errors of two labels.
/// let device = Default::default();
/// let loss = Tensor::<NdArray, 1>::from_data([0.25 + 0.04], &device);
/// let sums = LossSums::new(loss, Tensor::from_data([2.0], &device));
/// assert_eq!(sums.nll.into_scalar(), sums.loss.into_scalar());
/// assert_eq!(sums.correct.into_scalar(), 0.0);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LossSums<B: Backend> {
    /// The loss that is minimized, in nats; for labels, the smoothed loss.
    pub loss: Tensor<B, 1>,
    /// The negative log-likelihood of the labels, in nats.
    pub nll: Tensor<B, 1>,
    /// Number of labels that have the largest logit of their row.
    pub correct: Tensor<B, 1>,
    /// Number of non-padding tokens, or of examples.
    pub weight: Tensor<B, 1>,
}

impl<B: Backend> LossSums<B> {
    /// The sums of a loss that has neither a likelihood nor predicted labels: its negative log-likelihood is the
    /// loss itself, and no label counts as correct.
    ///
    /// # Shapes
    /// - loss and weight: `[1]`
    pub fn new(loss: Tensor<B, 1>, weight: Tensor<B, 1>) -> Self {
        Self {
            nll: loss.clone(),
            correct: weight.zeros_like(),
            loss,
            weight,
        }
    }

    /// Sets the negative log-likelihood of the labels, in nats: `[1]`. Perplexity is computed from it.
    pub fn with_nll(self, nll: Tensor<B, 1>) -> Self {
        Self { nll, ..self }
    }

    /// Sets the number of labels that the model predicts: `[1]`. Accuracy is computed from it.
    pub fn with_correct(self, correct: Tensor<B, 1>) -> Self {
        Self { correct, ..self }
    }
}

impl<B: AutodiffBackend> LossSums<B> {
    /// The sums, detached from the autodiff graph.
    pub fn inner(self) -> LossSums<B::InnerBackend> {
        LossSums {
            loss: self.loss.inner(),
            nll: self.nll.inner(),
            correct: self.correct.inner(),
            weight: self.weight.inner(),
        }
    }
}

impl LabelSmoothedCrossEntropy {
    /// A loss with ε in [0, 1] that ignores labels equal to `pad_id`.
    pub fn new(smoothing: f64, pad_id: u32) -> Self {
        Self {
            smoothing,
            pad_id: Some(pad_id),
        }
    }

    /// A loss with ε in [0, 1] in which every label counts: for a classifier, whose classes include no padding.
    pub fn without_padding(smoothing: f64) -> Self {
        Self {
            smoothing,
            pad_id: None,
        }
    }

    /// The mean over non-padding tokens (§5.4); NaN if there are none.
    ///
    /// # Shapes
    /// - logits: `[rows, vocab_size]`
    /// - labels: `[rows]`, each below `vocab_size`
    /// - output: `[1]`
    ///
    /// # Panics
    /// When `logits` and `labels` have different numbers of rows.
    pub fn mean<B: Backend>(
        &self,
        logits: Tensor<B, 2>,
        labels: Tensor<B, 1, Int>,
    ) -> Tensor<B, 1> {
        let sums = self.sums(logits, labels);
        sums.loss / sums.weight
    }

    /// The sums over non-padding tokens (§5.4), from which means over several batches are computed.
    ///
    /// # Shapes
    /// - logits: `[rows, vocab_size]`
    /// - labels: `[rows]`, each below `vocab_size`
    /// - output: see [`LossSums`]
    ///
    /// # Panics
    /// When `logits` and `labels` have different numbers of rows.
    pub fn sums<B: Backend>(&self, logits: Tensor<B, 2>, labels: Tensor<B, 1, Int>) -> LossSums<B> {
        let real = match self.pad_id {
            Some(pad_id) => labels.clone().not_equal_elem(i64::from(pad_id)).float(),
            None => labels.ones_like().float(),
        };
        let rows = ops::cross_entropy(logits, labels, self.smoothing);
        let correct = rows.at_label.clone().greater_equal(rows.largest).float();
        let nll = rows.log_sum_exp - rows.at_label;
        LossSums {
            loss: (rows.loss * real.clone()).sum(),
            nll: (nll * real.clone()).sum(),
            correct: (correct * real.clone()).sum(),
            weight: real.sum(),
        }
    }
}
