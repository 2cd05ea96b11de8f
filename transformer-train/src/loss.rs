//! Label-smoothed cross entropy, the mean over real tokens (§5.4).

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor};
use transformer_core::ops;

/// Cross entropy against targets smoothed by ε (§5.4): a label's probability is `1 - ε` and all
/// `vocab_size` entries, the label among them, share ε evenly.
///
/// With `lse` the logarithm of the summed exponentials of a row `x` of logits, and `y` its label,
/// the loss of the row is
///
/// `lse(x) - (1 - ε) x_y - ε mean(x)`,
///
/// so that no target distribution over the vocabulary is built. Rows whose label is `<pad>` are
/// ignored. This is PyTorch's `CrossEntropyLoss(label_smoothing, ignore_index)`.
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::{Int, Tensor};
/// use transformer_train::LabelSmoothedCrossEntropy;
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
    pad_id: u32,
}

/// Sums over the real tokens of a batch, each a tensor of one element.
#[derive(Debug, Clone)]
pub struct TokenSums<B: Backend> {
    /// The smoothed loss, in nats.
    pub loss: Tensor<B, 1>,
    /// The negative log-likelihood of the labels, in nats.
    pub nll: Tensor<B, 1>,
    /// Labels that have the largest logit of their row.
    pub correct: Tensor<B, 1>,
    /// Real tokens.
    pub tokens: Tensor<B, 1>,
}

impl<B: AutodiffBackend> TokenSums<B> {
    /// The sums without their graph of gradients.
    pub fn inner(self) -> TokenSums<B::InnerBackend> {
        TokenSums {
            loss: self.loss.inner(),
            nll: self.nll.inner(),
            correct: self.correct.inner(),
            tokens: self.tokens.inner(),
        }
    }
}

impl LabelSmoothedCrossEntropy {
    /// A loss with the given ε in [0, 1], which ignores labels that are `pad_id`.
    pub fn new(smoothing: f64, pad_id: u32) -> Self {
        Self { smoothing, pad_id }
    }

    /// The mean over the real tokens; NaN if there is none.
    ///
    /// # Shapes
    /// - logits: `[rows, vocab_size]`
    /// - labels: `[rows]`
    /// - output: `[1]`
    pub fn mean<B: Backend>(
        &self,
        logits: Tensor<B, 2>,
        labels: Tensor<B, 1, Int>,
    ) -> Tensor<B, 1> {
        let sums = self.sums(logits, labels);
        sums.loss / sums.tokens
    }

    /// The sums over the real tokens, from which means over several batches are computed.
    ///
    /// # Shapes
    /// - logits: `[rows, vocab_size]`
    /// - labels: `[rows]`
    pub fn sums<B: Backend>(
        &self,
        logits: Tensor<B, 2>,
        labels: Tensor<B, 1, Int>,
    ) -> TokenSums<B> {
        let real = labels
            .clone()
            .not_equal_elem(i64::from(self.pad_id))
            .float();
        let rows = ops::cross_entropy(logits, labels, self.smoothing);
        let correct = rows.at_label.clone().greater_equal(rows.largest).float();
        let nll = rows.log_sum_exp - rows.at_label;
        TokenSums {
            loss: (rows.loss * real.clone()).sum(),
            nll: (nll * real.clone()).sum(),
            correct: (correct * real.clone()).sum(),
            tokens: real.sum(),
        }
    }
}
