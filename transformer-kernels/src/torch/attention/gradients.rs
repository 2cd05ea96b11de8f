//! Gradients of attention's packed tensors.

use burn_tch::{LibTorch, TchTensor};
use tch::{Kind, Tensor};

use super::inputs::{Inputs, Part, split};
use crate::heads::{Heads, score_scale};
use crate::kernels::{AttentionParents, Packed};

/// Gradients that are written part by part. Rows of keys are written by the first part that reaches them, and
/// added to by those after.
pub struct Gradients {
    /// Of the packed tensors, whose parts the others are, in f32.
    rows: [Option<Tensor>; 2],
    query: Option<Tensor>,
    /// `[batch, n_heads, key_len, d_head]` each.
    key_value: Option<[Tensor; 2]>,
    /// Keys that have been written.
    keys: usize,
}

impl Gradients {
    pub fn of(packed: &Packed<LibTorch>, wanted: AttentionParents) -> Self {
        let Heads { n_heads, d_k, d_v } = packed.heads;
        let empty = |beside: &TchTensor| {
            let beside = &beside.tensor;
            Tensor::empty(beside.size(), (Kind::Float, beside.device()))
        };
        let key_value = |rows: &Tensor, first| {
            [
                split(rows, first, n_heads, d_k),
                split(rows, first + n_heads * d_k, n_heads, d_v),
            ]
        };
        match &packed.key_value {
            Some(other) => {
                let query = wanted.query.then(|| empty(&packed.query));
                let keys = wanted.key_value.then(|| empty(other));
                Self {
                    query: query.as_ref().map(|rows| split(rows, 0, n_heads, d_k)),
                    key_value: keys.as_ref().map(|rows| key_value(rows, 0)),
                    rows: [query, keys],
                    keys: 0,
                }
            }
            None => {
                let rows = empty(&packed.query);
                Self {
                    query: Some(split(&rows, 0, n_heads, d_k)),
                    key_value: Some(key_value(&rows, n_heads * d_k)),
                    rows: [Some(rows), None],
                    keys: 0,
                }
            }
        }
    }

    /// Writes the gradients of all queries, keys and values.
    pub fn write(&mut self, [query, key, value]: &[Tensor; 3]) {
        if let Some(rows) = &mut self.query {
            rows.copy_(query);
        }
        if let Some([keys, values]) = &mut self.key_value {
            keys.copy_(key);
            values.copy_(value);
            self.keys = key.size()[2] as usize;
        }
    }

    /// Adds those of a part, from the gradient of its output, as a factor; its weights, those that dropout kept,
    /// and the gradient of these, in f32. Parts come in the order of their queries.
    pub fn add(
        &mut self,
        inputs: &Inputs<'_>,
        part: &Part,
        grad: &Tensor,
        [weights, kept, kept_grad]: [&Tensor; 3],
    ) {
        let mut score_grad =
            Tensor::internal_softmax_backward_data(kept_grad, weights, -1, Kind::Float);
        let _ = score_grad.g_mul_scalar_(score_scale(inputs.heads.d_k));
        let score_grad = inputs.factor(&score_grad);
        if let Some(query) = &self.query {
            let product = score_grad.matmul(&part.keys_of(&inputs.key));
            part.queries_of(query).copy_(&product);
        }
        if let Some([keys, values]) = &self.key_value {
            let query = part.queries_of(&inputs.query);
            let key_grad = score_grad.transpose(-2, -1).matmul(&query);
            let value_grad = inputs.factor(kept).transpose(-2, -1).matmul(grad);
            for (rows, product) in [(keys, key_grad), (values, value_grad)] {
                add_rows(rows, &product, self.keys);
            }
            self.keys = self.keys.max(part.keys);
        }
    }

    /// The gradients of the packed tensors.
    pub fn finish(self) -> [Option<TchTensor>; 2] {
        // Keys that no query may attend to.
        for rows in self.key_value.iter().flatten() {
            let rest = rows.size()[2] - self.keys as i64;
            let _ = rows.narrow(2, self.keys as i64, rest).zero_();
        }
        self.rows.map(|rows| rows.map(TchTensor::new))
    }
}

/// Adds a product to the first rows, of which so many have been written.
fn add_rows(rows: &Tensor, product: &Tensor, written: usize) {
    let (written, count) = (written as i64, product.size()[2]);
    let both = written.min(count);
    let mut sums = rows.narrow(2, 0, both);
    sums += product.narrow(2, 0, both);
    let rest = count - both;
    rows.narrow(2, both, rest)
        .copy_(&product.narrow(2, both, rest));
}
