//! Multi-head attention of one sequence to another (§3.2.2, §3.2.3).

use std::ops::Range;

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::attention::{AttentionHeads, AttentionOutput, MultiHeadAttentionConfig};
use crate::cache::{KeyValue, MemoryKeyValue};
use crate::init::WeightInit;
use crate::linear::linear;
use crate::mask::Mask;
use crate::ops::{self, AttentionWeights, Heads, Operands, WeightLayout};

impl MultiHeadAttentionConfig {
    /// Multi-head attention with weights drawn from the backend's generator.
    ///
    /// # Panics
    /// When a size is zero, when `d_k` or `d_v` is absent and `n_heads` does not divide `d_model`, or when
    /// the dropout is not in [0, 1).
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
        let Heads { n_heads, d_k, d_v } = self.heads();
        let (d_model, bias) = (self.d_model, self.bias);
        let key_value = [n_heads * d_k, n_heads * d_v];
        MultiHeadAttention {
            query: init.attention_projections(d_model, &key_value[..1], bias, device),
            key_value: init.attention_projections(d_model, &key_value, bias, device),
            heads: self.init_heads_from(init, device),
        }
    }
}

/// Queries, keys and values, and which keys a query may attend to.
#[derive(Debug, Clone)]
pub struct AttentionInput<'a, B: Backend> {
    query: Tensor<B, 3>,
    key: Tensor<B, 3>,
    /// `None` if the values are the keys.
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

    /// Attention of a sequence to a memory, of which both keys and values are computed.
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

    /// Blocks keys by a mask.
    ///
    /// # Shapes
    /// - mask: `[batch or 1, n_heads or 1, query_len or 1, key_len]`
    pub fn mask(self, mask: &'a Mask<B>) -> Self {
        Self {
            mask: Some(mask),
            ..self
        }
    }

    /// Asks for the attention weights.
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
/// In the decoder its queries come from the target, keys and values from the memory (§3.2.3).
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::Tensor;
/// use transformer_core::{AttentionInput, MultiHeadAttentionConfig};
///
/// let device = Default::default();
/// let attention = MultiHeadAttentionConfig::new(32, 4).init::<NdArray>(&device);
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
    /// `W^K` and `W^V` side by side: `[d_model, n_heads · (d_k + d_v)]`.
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
        let key_value = MemoryKeyValue::Packed(key_value);
        self.attend(input.query, &key_value, input.mask, input.weights)
    }

    /// Keys and values of a memory, side by side: computed once for any number of decoded tokens.
    ///
    /// # Shapes
    /// - memory: `[batch, key_len, d_model]`
    /// - output: `[batch, key_len, n_heads · (d_k + d_v)]`
    pub(crate) fn project_memory(&self, memory: Tensor<B, 3>) -> Tensor<B, 3> {
        linear(&self.key_value, memory, self.heads.precision)
    }

    /// Splits projected keys and values into contiguous heads, for decoding, which reads them for every
    /// token.
    pub(crate) fn split(&self, key_value: &Tensor<B, 3>) -> MemoryKeyValue<B> {
        let key_value = KeyValue::of_rows(key_value, 0, self.heads.sizes());
        MemoryKeyValue::Split(key_value.contiguous())
    }

    /// [`project_memory`](Self::project_memory) of separate keys and values.
    fn project_keys_and_values(&self, key: Tensor<B, 3>, value: Tensor<B, 3>) -> Tensor<B, 3> {
        let weight = self.key_value.weight.val();
        let bias = self.key_value.bias.as_ref().map(|bias| bias.val());
        let [_, width] = weight.dims();
        let Heads { n_heads, d_k, .. } = self.heads.sizes();
        let keys = n_heads * d_k;
        let project = |x, columns: Range<usize>| {
            let weight = weight.clone().slice_dim(1, columns.clone());
            let bias = bias.clone().map(|bias| bias.slice_dim(0, columns));
            let layout = WeightLayout::InputByOutput;
            ops::linear(x, weight, bias, layout, self.heads.precision)
        };
        Tensor::cat(vec![project(key, 0..keys), project(value, keys..width)], 2)
    }

    /// [`forward`](Self::forward) with projected keys and values.
    ///
    /// # Shapes
    /// - x: `[batch, query_len, d_model]`
    /// - output: `[batch, query_len, d_model]`
    pub(crate) fn attend(
        &self,
        x: Tensor<B, 3>,
        key_value: &MemoryKeyValue<B>,
        mask: Option<&Mask<B>>,
        weights: AttentionWeights,
    ) -> AttentionOutput<B> {
        let query = &linear(&self.query, x, self.heads.precision);
        match key_value {
            MemoryKeyValue::Packed(key_value) => {
                let operands = Operands::CrossPacked { query, key_value };
                self.heads.forward(operands, mask, weights)
            }
            MemoryKeyValue::Split(key_value) => {
                let parts = &[[&key_value.key, &key_value.value]];
                let operands = Operands::Cached { query, parts };
                self.heads.forward(operands, mask, weights)
            }
        }
    }
}
