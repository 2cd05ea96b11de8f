//! Scaled dot-product attention and its heads (§3.2).

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use transformer_kernels::Heads;

use crate::cache::{KeyValue, MemoryKeyValue, TargetCache, split_heads};
use crate::config::LayerConfig;
use crate::dropout::Dropout;
use crate::init::WeightInit;
use crate::linear::LinearAtEveryPosition;
use crate::mask::AttentionMask;

/// What attention computes.
#[derive(Debug, Clone)]
pub struct AttentionOutput<B: Backend> {
    /// The weighted sums of the values: `[batch, n_heads, query_len, d_v]`.
    pub output: Tensor<B, 4>,
    /// The weights, before dropout: `[batch, n_heads, query_len, key_len]`.
    pub weights: Tensor<B, 4>,
}

/// `Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V` (§3.2.1, equation 1).
///
/// A blocked key has weight exactly zero; a query whose every key is blocked has output zero.
/// Dropout falls on the weights, and only where gradients are taken.
///
/// # Shapes
/// - query: `[batch, n_heads, query_len, d_k]`
/// - key: `[batch, n_heads, key_len, d_k]`
/// - value: `[batch, n_heads, key_len, d_v]`
/// - output: `[batch, n_heads, query_len, d_v]`
///
/// # Panics
/// When the shapes do not agree.
///
/// ```
/// use burn_ndarray::NdArray;
/// use burn::tensor::Tensor;
/// use transformer_core::{Dropout, scaled_dot_product_attention};
///
/// // One query, two keys, d_k = 1: the scores are 2·ln 3 and 0·ln 3 over √1 once the second key is
/// // zero, so the weights are 9/10 and 1/10 and the output 0.9 · 10 + 0.1 · 20 = 11.
/// let device = Default::default();
/// let query = Tensor::<NdArray, 4>::from_data([[[[2.0]]]], &device);
/// let key = Tensor::from_data([[[[3.0_f32.ln()], [0.0]]]], &device);
/// let value = Tensor::from_data([[[[10.0], [20.0]]]], &device);
/// let no_dropout = Dropout::new(0.0);
/// let attention = scaled_dot_product_attention(query, key, value, None, &no_dropout);
/// assert!((attention.output.into_scalar() - 11.0).abs() < 1e-5);
/// ```
pub fn scaled_dot_product_attention<B: Backend>(
    query: Tensor<B, 4>,
    key: Tensor<B, 4>,
    value: Tensor<B, 4>,
    mask: Option<&AttentionMask<B>>,
    dropout: &Dropout,
) -> AttentionOutput<B> {
    let parts = [KeyValue { key, value }];
    let (output, weights) = attend(query, &parts, mask, dropout);
    AttentionOutput { output, weights }
}

/// [`scaled_dot_product_attention`] over keys and values in parts.
fn attend<B: Backend>(
    query: Tensor<B, 4>,
    parts: &[KeyValue<B>],
    mask: Option<&AttentionMask<B>>,
    dropout: &Dropout,
) -> (Tensor<B, 4>, Tensor<B, 4>) {
    let [_, _, _, d_k] = query.dims();
    // Scaling the queries rather than the scores touches query_len × d_k numbers, not
    // query_len × key_len.
    let query = query / (d_k as f64).sqrt();
    let mut scores: Vec<_> = parts
        .iter()
        .map(|part| query.clone().matmul(part.key.clone().swap_dims(2, 3)))
        .collect();
    let scores = match scores.len() {
        1 => scores.remove(0),
        _ => Tensor::cat(scores, 3),
    };
    let weights = match mask {
        Some(mask) => mask.apply_to_weights(softmax(mask.apply_to_scores(scores), 3)),
        None => softmax(scores, 3),
    };
    let dropped = dropout.forward(weights.clone());
    let mut first = 0;
    let sums = parts.iter().map(|part| {
        let places = first..first + part.len();
        first = places.end;
        let dropped = dropped.clone();
        match parts.len() {
            1 => dropped.matmul(part.value.clone()),
            _ => dropped.slice_dim(3, places).matmul(part.value.clone()),
        }
    });
    let output = sums.reduce(|sum, next| sum + next);
    (output.expect("there is a part"), weights)
}

/// The part of multi-head attention (§3.2.2) after the projections of queries, keys and values:
/// `MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O`.
///
/// [`SelfAttention`] and [`CrossAttention`] differ in where keys and values come from; this is
/// what they share.
#[derive(Module, Debug)]
pub struct MultiHeadAttention<B: Backend> {
    /// `W^O`: `[n_heads · d_v, d_model]`.
    pub projection: Linear<B>,
    dropout: Dropout,
    n_heads: usize,
    d_k: usize,
    d_v: usize,
}

impl<B: Backend> MultiHeadAttention<B> {
    fn new(config: &LayerConfig, init: &mut WeightInit, device: &B::Device) -> Self {
        Self {
            projection: init.linear(
                config.n_heads * config.d_v,
                config.d_model,
                config.attention_bias,
                device,
            ),
            dropout: Dropout::new(config.attention_dropout),
            n_heads: config.n_heads,
            d_k: config.d_k,
            d_v: config.d_v,
        }
    }

    fn sizes(&self) -> Heads {
        Heads {
            n_heads: self.n_heads,
            d_k: self.d_k,
            d_v: self.d_v,
        }
    }

    /// What the kernels need to know of the heads, the mask and dropout.
    fn kernel_arguments<'a>(
        &self,
        mask: Option<&'a AttentionMask<B>>,
        device: &B::Device,
    ) -> (
        Heads,
        Option<transformer_kernels::AttentionMask<'a, B>>,
        f64,
    ) {
        (
            self.sizes(),
            mask.map(AttentionMask::parts),
            self.dropout.p::<B>(device),
        )
    }

    /// Attends with every head and joins them.
    ///
    /// # Shapes
    /// - query: `[batch, query_len, n_heads · d_k or more]`, the queries of all heads in the first columns
    /// - parts: together key_len positions
    /// - output: `[batch, query_len, d_model]`
    fn forward(
        &self,
        query: Tensor<B, 3>,
        parts: &[KeyValue<B>],
        mask: Option<&AttentionMask<B>>,
        maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Tensor<B, 3> {
        let fused = match maps {
            None => {
                let (sizes, mask, _) = self.kernel_arguments(mask, &query.device());
                let parts: Vec<_> = parts.iter().map(|part| [&part.key, &part.value]).collect();
                transformer_kernels::attend(&query, &parts, sizes, mask)
            }
            Some(_) => None,
        };
        let joined = fused.unwrap_or_else(|| {
            let [batch, query_len, _] = query.dims();
            let query = split_heads(&query, 0, self.n_heads, self.d_k);
            let (output, weights) = attend(query, parts, mask, &self.dropout);
            if let Some(maps) = maps {
                maps.push(weights);
            }
            output
                .swap_dims(1, 2)
                .reshape([batch, query_len, self.n_heads * self.d_v])
        });
        self.projection.at_every_position(joined)
    }
}

/// Multi-head attention whose queries, keys and values come from one sequence (§3.2.3): in the
/// encoder, and masked in the decoder.
#[derive(Module, Debug)]
pub struct SelfAttention<B: Backend> {
    /// `W^Q`, `W^K` and `W^V` side by side, each head after head:
    /// `[d_model, n_heads · (2 d_k + d_v)]`.
    pub query_key_value: Linear<B>,
    /// The heads and `W^O`.
    pub heads: MultiHeadAttention<B>,
}

impl<B: Backend> SelfAttention<B> {
    /// A new one, drawn from `init`.
    pub fn new(config: &LayerConfig, init: &mut WeightInit, device: &B::Device) -> Self {
        let (keys, values) = (config.n_heads * config.d_k, config.n_heads * config.d_v);
        Self {
            query_key_value: init.attention_projections(
                config.d_model,
                &[keys, keys, values],
                config.attention_bias,
                device,
            ),
            heads: MultiHeadAttention::new(config, init, device),
        }
    }

    /// Each position attends to all positions that the mask lets through.
    ///
    /// With a cache, `x` is written into it after what is there. The mask's keys are all that it has room
    /// for, and it blocks what is empty:
    /// [`Transformer::decode_next`](crate::Transformer::decode_next) makes it.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - output: `[batch, len, d_model]`
    /// - each entry of maps, one per call: `[batch, n_heads, len, key_len]`
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        mask: Option<&AttentionMask<B>>,
        cache: Option<&mut TargetCache<B>>,
        maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Tensor<B, 3> {
        let projected = self.query_key_value.at_every_position(x);
        if maps.is_none() && cache.is_none() {
            let (sizes, mask, p) = self.heads.kernel_arguments(mask, &projected.device());
            let fused = transformer_kernels::self_attention(&projected, sizes, mask, p);
            if let Some(joined) = fused {
                return self.heads.projection.at_every_position(joined);
            }
        }
        let sizes = self.heads.sizes();
        let keys = sizes.n_heads * sizes.d_k;
        let parts = match cache {
            None => vec![KeyValue::of_rows(&projected, keys, sizes)],
            Some(cache) => {
                cache.append(&projected, keys, sizes);
                cache.parts()
            }
        };
        self.heads.forward(projected, &parts, mask, maps)
    }
}

/// Multi-head attention from the decoder to the memory (§3.2.3).
#[derive(Module, Debug)]
pub struct CrossAttention<B: Backend> {
    /// `W^Q`: `[d_model, n_heads · d_k]`.
    pub query: Linear<B>,
    /// `W^K` and `W^V` side by side: `[d_model, n_heads · (d_k + d_v)]`.
    pub key_value: Linear<B>,
    /// The heads and `W^O`.
    pub heads: MultiHeadAttention<B>,
}

impl<B: Backend> CrossAttention<B> {
    /// A new one, drawn from `init`.
    pub fn new(config: &LayerConfig, init: &mut WeightInit, device: &B::Device) -> Self {
        let (keys, values) = (config.n_heads * config.d_k, config.n_heads * config.d_v);
        let bias = config.attention_bias;
        Self {
            query: init.attention_projections(config.d_model, &[keys], bias, device),
            key_value: init.attention_projections(config.d_model, &[keys, values], bias, device),
            heads: MultiHeadAttention::new(config, init, device),
        }
    }

    /// The memory's keys and values, computed once however many tokens are decoded.
    ///
    /// # Shapes
    /// - memory: `[batch, src_len, d_model]`
    pub fn project_memory(&self, memory: Tensor<B, 3>) -> MemoryKeyValue<B> {
        MemoryKeyValue::Packed(self.key_value.at_every_position(memory))
    }

    /// Splits keys and values into heads, for decoding.
    pub(crate) fn lay_out(&self, memory: &mut MemoryKeyValue<B>) {
        if let MemoryKeyValue::Packed(packed) = memory {
            let key_value = KeyValue::of_rows(packed, 0, self.heads.sizes());
            *memory = MemoryKeyValue::Split(key_value.contiguous());
        }
    }

    /// Each target position attends to the memory.
    ///
    /// # Shapes
    /// - x: `[batch, tgt_len, d_model]`
    /// - memory: src_len positions, from [`project_memory`](Self::project_memory)
    /// - output: `[batch, tgt_len, d_model]`
    /// - each entry of maps, one per call: `[batch, n_heads, tgt_len, src_len]`
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        memory: &MemoryKeyValue<B>,
        mask: Option<&AttentionMask<B>>,
        maps: Option<&mut Vec<Tensor<B, 4>>>,
    ) -> Tensor<B, 3> {
        let query = self.query.at_every_position(x);
        let key_value = match memory {
            MemoryKeyValue::Split(key_value) => key_value.clone(),
            MemoryKeyValue::Packed(packed) => {
                if maps.is_none() {
                    let (sizes, mask, p) = self.heads.kernel_arguments(mask, &query.device());
                    let fused =
                        transformer_kernels::cross_attention(&query, packed, sizes, mask, p);
                    if let Some(joined) = fused {
                        return self.heads.projection.at_every_position(joined);
                    }
                }
                KeyValue::of_rows(packed, 0, self.heads.sizes())
            }
        };
        self.heads.forward(query, &[key_value], mask, maps)
    }
}
