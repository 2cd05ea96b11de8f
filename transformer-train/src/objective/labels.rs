//! The labels of a batch of sequences, and the loss at their positions.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use transformer_core::decoding::padded;
use transformer_core::ops;

use crate::objective::loss::{LabelSmoothedCrossEntropy, LossSums};

/// The labels of a batch of sequences, and their positions, the only ones whose logits the loss needs.
///
/// The positions are computed on the host from the lengths of the sequences, so that no batch waits for its
/// device.
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::Tensor;
/// use transformer_train::objective::Labels;
///
/// // Two sequences, with three labels and one; 0 is `<pad>`.
/// let device = Default::default();
/// let labels = Labels::<NdArray>::new(&[vec![3, 1, 2], vec![2]], 0, &device);
///
/// // A decoder's output, with d_model = 4, and a projection to four logits.
/// let hidden = Tensor::<NdArray, 3>::ones([2, 3, 4], &device);
/// let sums = labels.loss(hidden, 0.1, |rows| {
///     assert_eq!(rows.dims(), [4, 4]);
///     rows * 2.0
/// });
/// assert_eq!(sums.weight.into_scalar(), 4.0);
/// // Four equal logits are probabilities of 1/4.
/// assert!((sums.loss.into_scalar() - 4.0 * 4.0_f32.ln()).abs() < 1e-5);
/// ```
#[derive(Debug, Clone)]
pub struct Labels<B: Backend> {
    /// `[labels]`
    tokens: Tensor<B, 1, Int>,
    /// Position of each label among all positions of the batch, `[labels]`; `None` if every position has a label.
    positions: Option<Tensor<B, 1, Int>>,
    /// `[batch, tgt_len]`
    shape: [usize; 2],
    /// The label that is ignored, if there is one.
    pad_id: Option<u32>,
}

impl<B: Backend> Labels<B> {
    /// The labels of the given rows; labels equal to `pad_id`, anywhere in a row, are ignored. With `None`, every label
    /// of a row counts.
    ///
    /// # Shapes
    /// - rows: `batch` rows, the longest with `tgt_len` labels
    pub fn new(
        rows: &[impl AsRef<[u32]>],
        pad_id: impl Into<Option<u32>>,
        device: &B::Device,
    ) -> Self {
        let pad_id = pad_id.into();
        let tgt_len = rows.iter().map(|row| row.as_ref().len()).max();
        let tgt_len = tgt_len.unwrap_or(0);
        let (mut tokens, mut positions) = (Vec::new(), Vec::new());
        for (row, labels) in rows.iter().enumerate() {
            for (at, &label) in labels.as_ref().iter().enumerate() {
                if Some(label) != pad_id {
                    tokens.push(label);
                    positions.push((row * tgt_len + at) as u32);
                }
            }
        }
        let as_tensor = |numbers: Vec<u32>| padded::<B>(&[numbers], 0, device).flatten(0, 1);
        // Without any label, all positions are kept: some backends do not accept a tensor without rows.
        let all = tokens.is_empty() || tokens.len() == rows.len() * tgt_len;
        let (tokens, positions) = match all {
            true => {
                let filled = padded::<B>(rows, pad_id.unwrap_or(0), device);
                (filled.flatten(0, 1), None)
            }
            false => (as_tensor(tokens), Some(as_tensor(positions))),
        };
        Self {
            tokens,
            positions,
            shape: [rows.len(), tgt_len],
            pad_id,
        }
    }

    /// The labels, row by row: `[labels]`.
    ///
    /// In a batch without any label, they are all its `<pad>`s.
    pub fn tokens(&self) -> Tensor<B, 1, Int> {
        self.tokens.clone()
    }

    /// The rows of `x` that have a label, in the order of [`tokens`](Self::tokens).
    ///
    /// # Shapes
    /// - x: `[batch, tgt_len, width]`
    /// - output: `[labels, width]`
    ///
    /// # Panics
    /// When `x` does not have the labels' batch and length.
    pub fn gather(&self, x: Tensor<B, 3>) -> Tensor<B, 2> {
        let [batch, tgt_len, width] = x.dims();
        assert_eq!(
            [batch, tgt_len],
            self.shape,
            "positions [batch, tgt_len], and those of labels"
        );
        match &self.positions {
            Some(positions) => ops::gather_rows(x, positions.clone()),
            None => x.reshape([batch * tgt_len, width]),
        }
    }

    /// The label-smoothed next-token loss (§5.4). The model computes logits only for the rows that have a label.
    ///
    /// # Shapes
    /// - hidden: `[batch, tgt_len, d_model]`, the decoder's output
    /// - logits: maps `[labels, d_model]`, rows of `hidden`, to `[labels, vocab_size]`
    /// - output: see [`LossSums`]
    ///
    /// # Panics
    /// When `hidden` does not have the labels' batch and length, or `logits` returns another number of rows.
    pub fn loss(
        self,
        hidden: Tensor<B, 3>,
        label_smoothing: f64,
        logits: impl FnOnce(Tensor<B, 2>) -> Tensor<B, 2>,
    ) -> LossSums<B> {
        let logits = logits(self.gather(hidden));
        let loss = match self.pad_id {
            Some(pad_id) => LabelSmoothedCrossEntropy::new(label_smoothing, pad_id),
            None => LabelSmoothedCrossEntropy::without_padding(label_smoothing),
        };
        loss.sums(logits, self.tokens)
    }
}
