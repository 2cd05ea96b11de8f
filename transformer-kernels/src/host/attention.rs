//! Attention on tensors.

use std::borrow::Cow;

use burn::tensor::TensorMetadata;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use transformer_cpu::{
    self as cpu, Attended, AttentionParents, HeadRows, Heads, Keep, Mask, join_heads,
};

use super::slices::{Slices, booleans, dims, read, tensor};
use crate::kernels::{MaskTensors, Packed};

/// A mask as slices, each with its shape.
#[derive(Default)]
pub struct ReadMask<'a> {
    causal: Option<usize>,
    padding: Option<(Vec<bool>, [usize; 2])>,
    bias: Option<(Cow<'a, [f32]>, [usize; 4])>,
    blocked_rows: Option<Vec<bool>>,
}

impl<'a> ReadMask<'a> {
    pub fn of<I: Slices>(mask: Option<&'a MaskTensors<I>>) -> Self {
        let Some(mask) = mask else {
            return Self::default();
        };
        let padding = mask.padding.as_ref();
        let bias = mask.bias.as_ref();
        Self {
            causal: mask.causal,
            padding: padding.map(|padding| (booleans::<I>(padding), padding.shape().dims())),
            bias: bias.map(|bias| (read::<I>(bias), dims::<I, 4>(bias))),
            blocked_rows: mask.blocked_rows.as_ref().map(booleans::<I>),
        }
    }

    pub fn as_mask(&self) -> Mask<'_> {
        let mut mask = Mask::default();
        if let Some(first) = self.causal {
            mask = mask.causal(first);
        }
        if let Some((padding, shape)) = &self.padding {
            mask = mask.padding(padding, *shape);
        }
        if let Some((bias, shape)) = &self.bias {
            mask = mask.bias(bias, self.blocked_rows.as_deref(), *shape);
        }
        mask
    }
}

/// What attention keeps for its backward pass.
#[derive(Debug, Clone)]
pub struct KeptAttention<I: Backend> {
    output: FloatTensor<I>,
    /// `[batch, n_heads, query_len]`
    largest_scores: FloatTensor<I>,
    /// `[batch, n_heads, query_len]`
    reciprocal_sums: FloatTensor<I>,
    dropped: Option<Keep>,
}

/// Packed tensors as slices.
pub struct ReadPacked<'a> {
    query: (Cow<'a, [f32]>, [usize; 3]),
    /// `None` if keys and values follow the queries in the same tensor.
    key_value: Option<(Cow<'a, [f32]>, [usize; 3])>,
    heads: Heads,
}

impl<'a> ReadPacked<'a> {
    pub fn of<I: Slices>(packed: &'a Packed<I>) -> Self {
        let rows = |tensor: &'a FloatTensor<I>| (read::<I>(tensor), dims::<I, 3>(tensor));
        Self {
            query: rows(&packed.query),
            key_value: packed.key_value.as_ref().map(rows),
            heads: packed.heads,
        }
    }

    /// Queries, keys and values.
    pub fn heads(&self) -> [HeadRows<'_>; 3] {
        let Heads { n_heads, d_k, d_v } = self.heads;
        let (query, query_shape) = &self.query;
        let ((keys, shape), first) = match &self.key_value {
            Some(key_value) => (key_value, 0),
            None => (&self.query, n_heads * d_k),
        };
        [
            HeadRows::in_rows(query, *query_shape, 0, [n_heads, d_k]),
            HeadRows::in_rows(keys, *shape, first, [n_heads, d_k]),
            HeadRows::in_rows(keys, *shape, first + n_heads * d_k, [n_heads, d_v]),
        ]
    }
}

/// The output, and the state for the backward pass.
pub fn forward<I: Slices>(
    packed: &Packed<I>,
    mask: Option<&MaskTensors<I>>,
    keep: Option<Keep>,
) -> (FloatTensor<I>, KeptAttention<I>) {
    let beside = &packed.query;
    let mask = ReadMask::of::<I>(mask);
    let read = ReadPacked::of::<I>(packed);
    let attended = cpu::attention_forward(read.heads(), mask.as_mask(), keep);
    let Heads { n_heads, d_v, .. } = packed.heads;
    let [batch, query_len, _] = dims::<I, 3>(beside);
    let output = tensor::<I>(attended.output, [batch, query_len, n_heads * d_v], beside);
    let of_queries = |values| tensor::<I>(values, [batch, n_heads, query_len], beside);
    let kept = KeptAttention {
        output: output.clone(),
        largest_scores: of_queries(attended.largest_scores),
        reciprocal_sums: of_queries(attended.reciprocal_sums),
        dropped: keep,
    };
    (output, kept)
}

/// Gradients of the packed tensors. If keys and values follow the queries, the first holds their gradients, too.
pub fn backward<I: Slices>(
    grad: &FloatTensor<I>,
    packed: &Packed<I>,
    mask: Option<&MaskTensors<I>>,
    attended: &KeptAttention<I>,
    wanted: AttentionParents,
) -> [Option<FloatTensor<I>>; 2] {
    let mask = ReadMask::of::<I>(mask);
    let [output, largest_scores, reciprocal_sums] = [
        &attended.output,
        &attended.largest_scores,
        &attended.reciprocal_sums,
    ]
    .map(read::<I>);
    let kept = Attended {
        output: &*output,
        largest_scores: &*largest_scores,
        reciprocal_sums: &*reciprocal_sums,
    };
    let gradients = cpu::attention_backward(
        &read::<I>(grad),
        ReadPacked::of::<I>(packed).heads(),
        kept,
        mask.as_mask(),
        attended.dropped,
        wanted,
    );
    let Heads { n_heads, d_k, d_v } = packed.heads;
    let joined = |parts: &[&[f32]], widths: &[usize], beside: &FloatTensor<I>| {
        let [batch, len, width] = dims::<I, 3>(beside);
        let rows = join_heads(parts, widths, [batch, n_heads, len]);
        tensor::<I>(rows, [batch, len, width], beside)
    };
    match (&packed.key_value, gradients.query, gradients.key_value) {
        (None, Some(query), Some([key, value])) => {
            let parts: [&[f32]; 3] = [&query, &key, &value];
            [Some(joined(&parts, &[d_k, d_k, d_v], &packed.query)), None]
        }
        (None, ..) => [None, None],
        (Some(beside), query, key_value) => [
            query.map(|query| joined(&[&query], &[d_k], &packed.query)),
            key_value.map(|[key, value]| joined(&[&key, &value], &[d_k, d_v], beside)),
        ],
    }
}
