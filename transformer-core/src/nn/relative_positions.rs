//! Positions as vectors per distance between query and key, in each layer's self-attention.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};
use transformer_kernels::{Heads, Mask, attention_weights};

use crate::nn::dropout::Dropout;
use crate::nn::init::WeightInit;
use crate::nn::parameters::Parameter;

/// The row of a table for a key at this distance, its position minus the query's: distances beyond `max_distance` on
/// either side share a row.
pub(crate) fn row_of(distance: i64, max_distance: usize) -> usize {
    let most = max_distance as i64;
    (distance.clamp(-most, most) + most) as usize
}

/// The parameters of [`RelativePositions`].
pub(crate) fn parameters(max_distance: usize, heads: Heads) -> Vec<Parameter> {
    let rows = 2 * max_distance + 1;
    vec![
        ("keys".to_owned(), vec![rows, heads.d_k]),
        ("values".to_owned(), vec![rows, heads.d_v]),
    ]
}

/// Learned vectors that self-attention adds to each key and value, by the distance between query and key, with
/// distances clipped to `max_distance`: Shaw et al., 2018,
/// ["Self-Attention with Relative Position Representations"](https://arxiv.org/abs/1803.02155). For query i and key j
/// at the clipped distance d = j − i:
///
/// ```text
/// score(i, j) = q_i · (k_j + keys[d]) / √d_k
/// output(i)   = Σ_j weight(i, j) (v_j + values[d])
/// ```
///
/// All heads share the vectors; each layer has its own.
#[derive(Module, Debug)]
pub struct RelativePositions<B: Backend> {
    /// `[2 · max_distance + 1, d_k]`, from the farthest key before the query to the farthest after it.
    pub keys: Param<Tensor<B, 2>>,
    /// `[2 · max_distance + 1, d_v]`
    pub values: Param<Tensor<B, 2>>,
}

impl<B: Backend> RelativePositions<B> {
    /// Vectors from `init`.
    pub(crate) fn init(
        max_distance: usize,
        heads: Heads,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> Self {
        let rows = 2 * max_distance + 1;
        let mut table = |width| init.normal([rows, width], (width as f64).powf(-0.5), device);
        Self {
            keys: table(heads.d_k),
            values: table(heads.d_v),
        }
    }

    /// Attention, with the weights of every head before dropout.
    ///
    /// # Shapes
    /// - query: `[batch, n_heads, query_len, d_k]`, at the last of the positions of the keys
    /// - key: `[batch, n_heads, key_len, d_k]`
    /// - value: `[batch, n_heads, key_len, d_v]`
    /// - output: `[batch, n_heads, query_len, d_v]` and `[batch, n_heads, query_len, key_len]`
    pub(crate) fn attention(
        &self,
        query: Tensor<B, 4>,
        key: Tensor<B, 4>,
        value: Tensor<B, 4>,
        mask: Option<&Mask<B>>,
        dropout: &Dropout,
    ) -> (Tensor<B, 4>, Tensor<B, 4>) {
        let ([_, _, query_len, _], [batch, n_heads, key_len, _]) = (query.dims(), key.dims());
        let rows = self.rows(query_len, key_len, &query.device());
        let rows = rows.expand([batch, n_heads, query_len, key_len]);
        let bias = self.scores(&query, rows.clone());
        let mask = match mask {
            Some(mask) => mask.clone().with_bias(bias),
            None => Mask::from_bias(bias),
        };
        let weights = attention_weights(query, key, Some(&mask));
        let kept = dropout.forward(weights.clone());
        let output = kept.clone().matmul(value) + self.weighted_values(kept, rows);
        (output, weights)
    }

    /// `q_i · keys[d] / √d_k` for the rows of the tables: `[batch, n_heads, query_len, key_len]`.
    fn scores(&self, query: &Tensor<B, 4>, rows: Tensor<B, 4, Int>) -> Tensor<B, 4> {
        let [.., d_k] = query.dims();
        let scaled = query.clone() * (d_k as f64).powf(-0.5);
        let by_row = scaled.matmul(self.keys.val().transpose().unsqueeze());
        by_row.gather(3, rows)
    }

    /// `Σ_j weight(i, j) values[d]`: `[batch, n_heads, query_len, d_v]`.
    fn weighted_values(&self, weights: Tensor<B, 4>, rows: Tensor<B, 4, Int>) -> Tensor<B, 4> {
        let ([batch, n_heads, query_len, _], [count, _]) = (weights.dims(), self.values.dims());
        let zeros = Tensor::zeros([batch, n_heads, query_len, count], &weights.device());
        let by_row = zeros.scatter(3, rows, weights, IndexingUpdateOp::Add);
        by_row.matmul(self.values.val().unsqueeze())
    }

    /// The row of the tables for each pair of query and key: `[1, 1, query_len, key_len]`.
    fn rows(&self, query_len: usize, key_len: usize, device: &B::Device) -> Tensor<B, 4, Int> {
        let max_distance = self.keys.dims()[0] / 2;
        let queries = key_len - query_len..key_len;
        let pairs = queries.flat_map(|query| (0..key_len).map(move |key| [query, key]));
        let rows = pairs.map(|pair| {
            let [query, key] = pair.map(|position| position as i64);
            row_of(key - query, max_distance) as i32
        });
        let rows = TensorData::new(rows.collect::<Vec<_>>(), [1, 1, query_len, key_len]);
        Tensor::from_data(rows, device)
    }
}
