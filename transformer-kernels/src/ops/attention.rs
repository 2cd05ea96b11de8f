//! Scaled dot-product attention of all heads, between its projections (§3.2).

use burn::tensor::Tensor;
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use transformer_cpu::{AttentionParents, Heads, ProductPrecision, score_scale};

use crate::autodiff::{Operand, first, operand, pass_back, record, wrapped};
use crate::kernels::{Kernels, MaskTensors, Packed};
use crate::ops::dropout::dropout;
use crate::ops::heads::join_heads;
use crate::ops::mask::Mask;
use crate::ops::operands::Operands;
use crate::precision::{factor, product};
use crate::sizes::check_probability;

/// Whether attention returns its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionWeights {
    /// The weights are not needed.
    Discard,
    /// The weights are returned. This uses the reference implementation, since no kernel returns them.
    Return,
}

/// The output of attention with all heads (§3.2.2).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttentionOutput<B: Backend> {
    /// The weighted sums of the values, the heads side by side: `[batch, query_len, n_heads · d_v]`.
    pub output: Tensor<B, 3>,
    /// The weights before dropout, if requested: `[batch, n_heads, query_len, key_len]`.
    pub weights: Option<Tensor<B, 4>>,
}

/// `softmax(Q Kᵀ / √d_k) V` for every head, with dropout on the weights: multi-head attention between its
/// projections (§3.2.2).
///
/// Fused, unless weights are returned, the mask's bias is learned, or the backend has no kernel; then composed by
/// [`scaled_dot_product_attention`]. The memory of fused attention grows with the lengths, not with their product:
/// the backward pass recomputes the weights.
///
/// Matrix multiplications have the given precision when gradients are computed. In bf16, `Q Kᵀ`, the
/// multiplication of weights and values, and their gradients have rounded operands; softmax, dropout and mask are
/// in f32. Where attention is computed in blocks of queries or keys, to hold fewer weights in memory, the sums
/// over each block are rounded when complete. Multiplications stay in f32 if weights are returned, if the backend
/// does not support this precision ([`multiplies_in`](crate::multiplies_in)), and in tiles, by which libtorch
/// computes long attention with dropout.
///
/// # Shapes
/// - operands: queries, keys and values of all heads, see [`Operands`]
/// - mask: `[batch or 1, n_heads or 1, query_len or 1, key_len]`, see [`Mask`]
/// - output: `[batch, query_len, n_heads · d_v]`
/// - weights, if requested: `[batch, n_heads, query_len, key_len]`
///
/// # Panics
/// When the shapes do not agree, or `p` is not in [0, 1).
pub fn attention<B: Backend>(
    operands: Operands<'_, B>,
    heads: Heads,
    mask: Option<&Mask<B>>,
    p: f64,
    weights: AttentionWeights,
    precision: ProductPrecision,
) -> AttentionOutput<B> {
    check_probability(p);
    let scores = operands.scores(heads);
    if let Some(mask) = mask {
        mask.check(scores, operands.query().dtype());
    }
    let fused = match weights {
        AttentionWeights::Discard => first!(fused::<B>(operands, heads, mask, p, precision)),
        AttentionWeights::Return => None,
    };
    match fused {
        Some(output) => AttentionOutput {
            output,
            weights: None,
        },
        None => composed(operands, heads, mask, p, weights, precision),
    }
}

/// The reference implementation.
fn composed<B: Backend>(
    operands: Operands<'_, B>,
    heads: Heads,
    mask: Option<&Mask<B>>,
    p: f64,
    wanted: AttentionWeights,
    precision: ProductPrecision,
) -> AttentionOutput<B> {
    let [query, key, value] = operands.split(heads);
    let precision = match wanted {
        AttentionWeights::Discard => precision,
        AttentionWeights::Return => ProductPrecision::F32,
    };
    let (output, weights) = in_precision(query, key, value, mask, p, precision);
    AttentionOutput {
        output: join_heads(output),
        weights: match wanted {
            AttentionWeights::Discard => None,
            AttentionWeights::Return => Some(weights),
        },
    }
}

/// `Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V` (§3.2.1, equation 1), with dropout on the weights.
///
/// Returns the output and the weights before dropout. Blocked keys have weight exactly zero; a query with only
/// blocked keys has output zero.
///
/// # Shapes
/// - query: `[batch, n_heads, query_len, d_k]`
/// - key: `[batch, n_heads, key_len, d_k]`
/// - value: `[batch, n_heads, key_len, d_v]`
/// - mask: `[batch or 1, n_heads or 1, query_len or 1, key_len]`, see [`Mask`]
/// - output: `[batch, n_heads, query_len, d_v]`
/// - weights: `[batch, n_heads, query_len, key_len]`
///
/// # Panics
/// When the shapes do not agree, or `p` is not in [0, 1).
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_ndarray::NdArray;
/// use transformer_kernels::scaled_dot_product_attention;
///
/// // One query, two keys, d_k = 1: the scores are 2 ln 3 and 0, so the weights are 9/10 and 1/10 and the
/// // output 0.9 · 10 + 0.1 · 20 = 11.
/// let device = Default::default();
/// let query = Tensor::<NdArray, 4>::from_data([[[[2.0]]]], &device);
/// let key = Tensor::from_data([[[[3.0_f32.ln()], [0.0]]]], &device);
/// let value = Tensor::from_data([[[[10.0], [20.0]]]], &device);
/// let (output, _) = scaled_dot_product_attention(query, key, value, None, 0.0);
/// assert!((output.into_scalar() - 11.0).abs() < 1e-5);
/// ```
pub fn scaled_dot_product_attention<B: Backend>(
    query: Tensor<B, 4>,
    key: Tensor<B, 4>,
    value: Tensor<B, 4>,
    mask: Option<&Mask<B>>,
    p: f64,
) -> (Tensor<B, 4>, Tensor<B, 4>) {
    in_precision(query, key, value, mask, p, ProductPrecision::F32)
}

fn in_precision<B: Backend>(
    query: Tensor<B, 4>,
    key: Tensor<B, 4>,
    value: Tensor<B, 4>,
    mask: Option<&Mask<B>>,
    p: f64,
    precision: ProductPrecision,
) -> (Tensor<B, 4>, Tensor<B, 4>) {
    let ([batch, n_heads, key_len, _], [.., d_v]) = (key.dims(), value.dims());
    // Burn would broadcast dimensions of size 1.
    assert_eq!(
        value.dims(),
        [batch, n_heads, key_len, d_v],
        "values for keys {:?}",
        key.dims()
    );
    let weights = weights_in(query, key, mask, precision);
    let output = product(dropout(weights.clone(), p), value, precision);
    (output, weights)
}

/// The weights of [`scaled_dot_product_attention`] alone, `softmax(Q Kᵀ / √d_k)`, for attention that does more with
/// them than to sum values.
///
/// # Shapes
/// - query: `[batch, n_heads, query_len, d_k]`
/// - key: `[batch, n_heads, key_len, d_k]`
/// - mask: `[batch or 1, n_heads or 1, query_len or 1, key_len]`, see [`Mask`]
/// - output: `[batch, n_heads, query_len, key_len]`
///
/// # Panics
/// When the shapes do not agree.
pub fn attention_weights<B: Backend>(
    query: Tensor<B, 4>,
    key: Tensor<B, 4>,
    mask: Option<&Mask<B>>,
) -> Tensor<B, 4> {
    weights_in(query, key, mask, ProductPrecision::F32)
}

fn weights_in<B: Backend>(
    query: Tensor<B, 4>,
    key: Tensor<B, 4>,
    mask: Option<&Mask<B>>,
    precision: ProductPrecision,
) -> Tensor<B, 4> {
    let ([batch, n_heads, query_len, d_k], [_, _, key_len, _]) = (query.dims(), key.dims());
    // Burn would broadcast dimensions of size 1.
    assert_eq!(
        key.dims(),
        [batch, n_heads, key_len, d_k],
        "keys for queries {:?}",
        query.dims()
    );
    if let Some(mask) = mask {
        mask.check([batch, n_heads, query_len, key_len], query.dtype());
    }
    let dtype = query.dtype();
    // Scaling the queries rather than the scores takes query_len × d_k multiplications instead of query_len ×
    // key_len. A clone is scaled, because burn-tch modifies the result of `swap_dims` in place although it shares
    // memory with the original tensor (docs/burn.md).
    let scaled = query.clone() * score_scale(d_k);
    let scores = product(scaled, key.swap_dims(2, 3), precision);
    match mask {
        Some(mask) => {
            let mask = mask.expanded(dtype);
            let weights = softmax(scores + mask.bias, 3);
            match mask.blocked_rows {
                Some(rows) => weights.mask_fill(rows, 0),
                None => weights,
            }
        }
        None => softmax(scores, 3),
    }
}

fn fused<B: Backend, I: Kernels>(
    operands: Operands<'_, B>,
    heads: Heads,
    mask: Option<&Mask<B>>,
    p: f64,
    precision: ProductPrecision,
) -> Option<Tensor<B, 3>> {
    let query = operand::<B, I, 3>(operands.query())?;
    let key_value = match operands.key_value() {
        Some(key_value) => Some(operand::<B, I, 3>(key_value)?),
        None => None,
    };
    let mask = match mask {
        Some(mask) => Some(mask.tensors::<I>(operands.query().dtype())?),
        None => None,
    };
    let takes_gradients = query.is_of_autodiff();
    let precision = match takes_gradients && I::BF16_ATTENTION {
        true => precision,
        false => ProductPrecision::F32,
    };
    let factor = |operand: &Operand<I>| factor::<I>(&operand.primitive, precision);
    let packed = Packed {
        query: factor(&query),
        key_value: key_value.as_ref().map(factor),
        heads,
    };
    if !takes_gradients && p == 0.0 {
        return I::attention_without_gradients(&packed, mask.as_ref()).map(wrapped);
    }
    let (output, attended) = I::attention_forward(&packed, mask.as_ref(), p);
    let state = State {
        packed,
        mask,
        attended,
        p,
    };
    Some(match &key_value {
        None => record(SelfAttention, [&query], output, state),
        Some(key_value) => record(CrossAttention, [&query, key_value], output, state),
    })
}

#[derive(Debug)]
struct SelfAttention;

#[derive(Debug)]
struct CrossAttention;

#[derive(Debug, Clone)]
struct State<I: Kernels> {
    packed: Packed<I>,
    mask: Option<MaskTensors<I>>,
    attended: I::Attended,
    p: f64,
}

impl<I: Kernels> State<I> {
    fn backward(
        self,
        grad: &FloatTensor<I>,
        wanted: AttentionParents,
    ) -> [Option<FloatTensor<I>>; 2] {
        let mask = self.mask.as_ref();
        I::attention_backward(grad, &self.packed, mask, &self.attended, self.p, wanted)
    }
}

impl<I: Kernels> Backward<I, 1> for SelfAttention {
    type State = State<I>;

    fn backward(self, ops: Ops<State<I>, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 1>(ops, grads, |grad, state, _| {
            let all = AttentionParents {
                query: true,
                key_value: true,
            };
            let [packed, _] = state.backward(&grad, all);
            [packed]
        });
    }
}

impl<I: Kernels> Backward<I, 2> for CrossAttention {
    type State = State<I>;

    fn backward(self, ops: Ops<State<I>, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 2>(ops, grads, |grad, state, [query, key_value]| {
            state.backward(&grad, AttentionParents { query, key_value })
        });
    }
}

#[cfg(test)]
mod tests;
