//! Multi-head attention of one sequence to another (§3.2.2, §3.2.3).

use std::ops::Range;

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::nn::attention::{AttentionConfig, AttentionOutput};
use crate::nn::block::Context;
use crate::nn::cache::KeyValue;
use crate::nn::heads::AttentionHeads;
use crate::nn::init::WeightInit;
use crate::nn::linear::linear;
use transformer_kernels::Mask;
use transformer_kernels::{self as ops, AttentionWeights, Heads, Operands, WeightLayout};

impl AttentionConfig {
    /// Multi-head attention with weights drawn from the backend's random number generator.
    ///
    /// # Panics
    /// When the configuration is not [valid](Self::validate).
    pub fn init<B: Backend>(&self, device: &B::Device) -> MultiHeadAttention<B> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// Multi-head attention with weights from `init`.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> MultiHeadAttention<B> {
        self.checked_heads();
        let (d_model, bias) = (self.d_model, self.bias);
        let [queries, key_value @ ..] = self.widths();
        MultiHeadAttention {
            query: init.attention_projections(d_model, &[queries], bias, device),
            key_value: init.attention_projections(d_model, &key_value, bias, device),
            heads: self.init_heads_from(init, device),
        }
    }
}

/// The input of a [`MultiHeadAttention`]: queries, keys, values and a mask.
#[derive(Debug, Clone)]
pub struct AttentionInput<'a, B: Backend> {
    query: Tensor<B, 3>,
    key: Tensor<B, 3>,
    /// `None` if the keys are also the values.
    value: Option<Tensor<B, 3>>,
    mask: Option<&'a Mask<B>>,
    weights: AttentionWeights,
}

impl<'a, B: Backend> AttentionInput<'a, B> {
    /// Attention with separate queries, keys and values.
    ///
    /// # Shapes
    /// - query: `[batch, query_len, d_model]`
    /// - key and value: `[batch, key_len, d_model]`
    pub fn new(query: Tensor<B, 3>, key: Tensor<B, 3>, value: Tensor<B, 3>) -> Self {
        Self {
            value: Some(value),
            ..Self::to_memory(query, key)
        }
    }

    /// Attention of a sequence to a memory, from which both keys and values are computed.
    ///
    /// # Shapes
    /// - query: `[batch, query_len, d_model]`
    /// - memory: `[batch, key_len, d_model]`
    pub fn to_memory(query: Tensor<B, 3>, memory: Tensor<B, 3>) -> Self {
        Self {
            query,
            key: memory,
            value: None,
            mask: None,
            weights: AttentionWeights::Discard,
        }
    }

    /// Sets the mask.
    ///
    /// # Shapes
    /// - mask: `[batch or 1, n_heads or 1, query_len or 1, key_len]`
    pub fn mask(self, mask: &'a Mask<B>) -> Self {
        Self {
            mask: Some(mask),
            ..self
        }
    }

    /// Requests the attention weights.
    pub fn with_weights(self) -> Self {
        Self {
            weights: AttentionWeights::Return,
            ..self
        }
    }
}

/// `MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O`, where
/// `head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)` (§3.2.2).
///
/// In the decoder, queries come from the target, keys and values from the memory (§3.2.3).
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::Tensor;
/// use transformer_core::nn::{AttentionInput, AttentionConfig};
///
/// let device = Default::default();
/// let attention = AttentionConfig::new(32, 4).init::<NdArray>(&device);
///
/// let (query, memory) = (Tensor::zeros([2, 5, 32], &device), Tensor::zeros([2, 7, 32], &device));
/// let input = AttentionInput::to_memory(query, memory).with_weights();
/// let attention = attention.forward(input);
/// assert_eq!(attention.output.dims(), [2, 5, 32]);
/// assert_eq!(attention.weights.unwrap().dims(), [2, 4, 5, 7]);
/// ```
#[derive(Module, Debug)]
pub struct MultiHeadAttention<B: Backend> {
    /// `W^Q`: `[d_model, n_heads · d_k]`.
    pub query: Linear<B>,
    /// `W^K` and `W^V` side by side: `[d_model, n_kv_heads · (d_k + d_v)]`.
    pub key_value: Linear<B>,
    /// The heads and `W^O`.
    pub heads: AttentionHeads<B>,
}

impl<B: Backend> MultiHeadAttention<B> {
    /// Each query attends to the keys that the mask does not block.
    ///
    /// # Shapes
    /// See [`AttentionInput`] and [`AttentionOutput`].
    ///
    /// # Panics
    /// When the shapes do not agree.
    pub fn forward(&self, input: AttentionInput<'_, B>) -> AttentionOutput<B> {
        let key_value = match input.value {
            None => self.project_memory(input.key),
            Some(value) => self.project_keys_and_values(input.key, value),
        };
        let query = &linear(&self.query, input.query, self.heads.precision);
        let operands = Operands::CrossPacked {
            query,
            key_value: &key_value,
        };
        self.heads.forward(operands, input.mask, input.weights)
    }

    /// Keys and values of a memory, split into heads: computed once for any number of decoded tokens.
    ///
    /// # Shapes
    /// - memory: `[sources, key_len, d_model]`
    pub fn key_value(&self, memory: Tensor<B, 3>) -> KeyValue<B> {
        let sizes = self.heads.key_value_sizes();
        KeyValue::of_rows(&self.project_memory(memory), 0, sizes)
    }

    /// Keys and values of a memory, side by side.
    ///
    /// # Shapes
    /// - memory: `[batch, key_len, d_model]`
    /// - output: `[batch, key_len, n_kv_heads · (d_k + d_v)]`
    fn project_memory(&self, memory: Tensor<B, 3>) -> Tensor<B, 3> {
        linear(&self.key_value, memory, self.heads.precision)
    }

    /// [`project_memory`](Self::project_memory) for separate keys and values.
    fn project_keys_and_values(&self, key: Tensor<B, 3>, value: Tensor<B, 3>) -> Tensor<B, 3> {
        let weight = self.key_value.weight.val();
        let bias = self.key_value.bias.as_ref().map(|bias| bias.val());
        let [_, width] = weight.dims();
        let Heads { n_heads, d_k, .. } = self.heads.key_value_sizes();
        let keys = n_heads * d_k;
        let project = |x, columns: Range<usize>| {
            let weight = weight.clone().slice_dim(1, columns.clone());
            let bias = bias.clone().map(|bias| bias.slice_dim(0, columns));
            let layout = WeightLayout::InputByOutput;
            ops::linear(x, weight, bias, layout, self.heads.precision)
        };
        Tensor::cat(vec![project(key, 0..keys), project(value, keys..width)], 2)
    }

    /// Attends to the memory of a [`Context`], which has one source per row.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    ///
    /// # Panics
    /// When there is no memory, or the shapes do not agree.
    pub(crate) fn forward_at(&self, x: Tensor<B, 3>, at: &Context<'_, B>) -> AttentionOutput<B> {
        let memory = at.memory.expect("cross-attention needs a memory");
        let ([batch, ..], [sources, ..]) = (x.dims(), memory.dims());
        assert_eq!(batch, sources, "batch sizes of targets and memory");
        self.forward(AttentionInput {
            mask: at.memory_mask,
            weights: at.weights,
            ..AttentionInput::to_memory(x, memory.clone())
        })
    }

    /// Attends to a memory with precomputed keys and values ([`key_value`](Self::key_value)), as decoding does token by
    /// token. A source may have several rows, one per hypothesis.
    ///
    /// # Shapes
    /// - x: `[rows, len, d_model]`, the same number of rows per source, those of a source side by side
    /// - output: see [`AttentionOutput`], with `batch` = rows
    ///
    /// # Panics
    /// When the shapes do not agree.
    pub fn forward_to(
        &self,
        memory: &KeyValue<B>,
        x: Tensor<B, 3>,
        at: &Context<'_, B>,
    ) -> AttentionOutput<B> {
        let [rows, len, d_model] = x.dims();
        let [sources, ..] = memory.key.dims();
        let x = x.reshape([sources, rows / sources * len, d_model]);
        let query = linear(&self.query, x, self.heads.precision);
        let attended = self
            .heads
            .forward_to(&query, memory, at.memory_mask, None, at.weights);
        AttentionOutput {
            output: attended.output.reshape([rows, len, d_model]),
            weights: attended.weights.map(|weights| by_row(weights, rows)),
        }
    }
}

/// Converts weights per source, with its rows side by side, to weights per row.
///
/// # Shapes
/// - weights: `[sources, n_heads, rows per source · len, key_len]`
/// - output: `[rows, n_heads, len, key_len]`
fn by_row<B: Backend>(weights: Tensor<B, 4>, rows: usize) -> Tensor<B, 4> {
    let [sources, n_heads, positions, key_len] = weights.dims();
    let of_each = rows / sources;
    let len = positions / of_each;
    let weights: Tensor<B, 5> = weights.reshape([sources, n_heads, of_each, len, key_len]);
    weights
        .swap_dims(1, 2)
        .reshape([rows, n_heads, len, key_len])
}
