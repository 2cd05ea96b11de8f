//! Scaled dot-product attention of all heads, between its projections.

use burn::tensor::backend::Backend;
use burn::tensor::ops::{BoolTensor, FloatTensor};
use burn::tensor::{Bool, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};

use crate::autodiff::{first, pass_back, plain, record, same, tracked, wrapped};
use crate::kernels::{Attended, Kernels, Packed};

/// How many heads, and how wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Attention heads.
    pub n_heads: usize,
    /// Width of a head's queries and keys.
    pub d_k: usize,
    /// Width of a head's values.
    pub d_v: usize,
}

/// Which keys a query may not look at.
#[derive(Debug)]
pub struct AttentionMask<'a, B: Backend> {
    /// Added to the scores: `[batch or 1, n_heads or 1, query_len or 1, key_len]`.
    pub bias: &'a Tensor<B, 4>,
    /// Queries whose every key is blocked, whose weights become zero:
    /// `[batch or 1, n_heads or 1, query_len or 1, 1]`.
    pub blocked_rows: Option<&'a Tensor<B, 4, Bool>>,
}

impl<B: Backend> Clone for AttentionMask<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for AttentionMask<'_, B> {}

/// Attention of a sequence to itself, with dropout on its weights, where gradients are taken.
///
/// # Shapes
/// - query_key_value: `[batch, len, n_heads · (2 d_k + d_v)]`, the queries of all heads, then their
///   keys, then their values
/// - output: `[batch, len, n_heads · d_v]`
///
/// # Panics
/// When the shapes do not agree.
pub fn self_attention<B: Backend>(
    query_key_value: &Tensor<B, 3>,
    heads: Heads,
    mask: Option<AttentionMask<'_, B>>,
    dropout: f64,
) -> Option<Tensor<B, 3>> {
    first!(self_attention_on::<B>(
        query_key_value,
        heads,
        mask,
        dropout
    ))
}

/// Attention of one sequence to another, with dropout on its weights, where gradients are taken.
///
/// # Shapes
/// - query: `[batch, query_len, n_heads · d_k]`
/// - key_value: `[batch, key_len, n_heads · (d_k + d_v)]`, the keys of all heads, then their values
/// - output: `[batch, query_len, n_heads · d_v]`
///
/// # Panics
/// When the shapes do not agree.
pub fn cross_attention<B: Backend>(
    query: &Tensor<B, 3>,
    key_value: &Tensor<B, 3>,
    heads: Heads,
    mask: Option<AttentionMask<'_, B>>,
    dropout: f64,
) -> Option<Tensor<B, 3>> {
    first!(cross_attention_on::<B>(
        query, key_value, heads, mask, dropout
    ))
}

/// Attention to keys and values split into heads, in one part or several one after another, where no
/// gradients are taken. libtorch has no kernel.
///
/// # Shapes
/// - query: `[batch, query_len, n_heads · d_k or more]`, the queries of all heads in the first columns
/// - parts: keys `[batch, n_heads, len, d_k]` and values `[batch, n_heads, len, d_v]`; the mask's key_len
///   is that of all together
/// - output: `[batch, query_len, n_heads · d_v]`
///
/// # Panics
/// When the shapes do not agree.
pub fn attend<B: Backend>(
    query: &Tensor<B, 3>,
    parts: &[[&Tensor<B, 4>; 2]],
    heads: Heads,
    mask: Option<AttentionMask<'_, B>>,
) -> Option<Tensor<B, 3>> {
    first!(attend_on::<B>(query, parts, heads, mask))
}

/// Writes keys or values into those of a cache, from a place on, where no gradients are taken: in place,
/// where nobody else holds it. libtorch has no kernel: its own operation does as well.
///
/// # Shapes
/// - room: `[batch, n_heads, places, d_head]`
/// - rows: `[batch, new_len, column + n_heads · d_head or more]`, all heads from a column on
///
/// # Errors
/// The cache as it was, where there is no kernel.
///
/// # Panics
/// When the shapes do not agree, or there is no such place.
pub fn write_heads<B: Backend>(
    room: Tensor<B, 4>,
    place: usize,
    rows: &Tensor<B, 3>,
    column: usize,
) -> Result<Tensor<B, 4>, Tensor<B, 4>> {
    let ([batch, n_heads, places, d_head], [others, new_len, width]) = (room.dims(), rows.dims());
    assert_eq!(batch, others, "sentences of the cache and of the rows");
    assert!(
        place + new_len <= places,
        "{new_len} from {place} of {places}"
    );
    assert!(
        column + n_heads * d_head <= width,
        "{n_heads} heads of {d_head} from column {column} of {width}"
    );
    let mut room = Some(room);
    let answer: Option<Tensor<B, 4>> = first!(write_heads_on::<B>(&mut room, place, rows, column));
    answer.ok_or_else(|| room.expect("nothing took it"))
}

fn write_heads_on<B: Backend, I: Kernels>(
    room: &mut Option<Tensor<B, 4>>,
    place: usize,
    rows: &Tensor<B, 3>,
    column: usize,
) -> Option<Tensor<B, 4>> {
    let rows = plain::<B, I, 3>(rows)?;
    plain::<B, I, 4>(room.as_ref()?)?;
    let primitive = same(room.take()?.into_primitive().tensor()).expect("of the same backend");
    match I::write_heads(primitive, place, &rows, column) {
        Ok(written) => Some(wrapped(written)),
        Err(primitive) => {
            *room = Some(wrapped(primitive));
            None
        }
    }
}

fn attend_on<B: Backend, I: Kernels>(
    query: &Tensor<B, 3>,
    parts: &[[&Tensor<B, 4>; 2]],
    heads: Heads,
    mask: Option<AttentionMask<'_, B>>,
) -> Option<Tensor<B, 3>> {
    let queries = plain::<B, I, 3>(query)?;
    let [batch, query_len, width] = query.dims();
    let Heads { n_heads, d_k, d_v } = heads;
    assert!(width >= n_heads * d_k, "width of the queries of {heads:?}");
    let mut key_len = 0;
    let mut plain_parts = Vec::with_capacity(parts.len());
    for [key, value] in parts {
        let [_, _, len, _] = key.dims();
        assert_eq!(key.dims(), [batch, n_heads, len, d_k], "keys of {heads:?}");
        assert_eq!(
            value.dims(),
            [batch, n_heads, len, d_v],
            "values of {heads:?}"
        );
        key_len += len;
        plain_parts.push([plain::<B, I, 4>(key)?, plain::<B, I, 4>(value)?]);
    }
    check(mask, [batch, n_heads, query_len, key_len]);
    let bias = match mask {
        Some(mask) => Some(plain::<B, I, 4>(mask.bias)?),
        None => None,
    };
    let rows = blocked_rows::<B, I>(mask)?;
    I::attend(&queries, &plain_parts, heads, bias.as_ref(), rows.as_ref()).map(wrapped)
}

fn self_attention_on<B: Backend, I: Kernels>(
    query_key_value: &Tensor<B, 3>,
    heads: Heads,
    mask: Option<AttentionMask<'_, B>>,
    dropout: f64,
) -> Option<Tensor<B, 3>> {
    let parent = tracked::<B, I, 3>(query_key_value)?;
    let [batch, len, width] = query_key_value.dims();
    let Heads { n_heads, d_k, d_v } = heads;
    assert_eq!(width, n_heads * (2 * d_k + d_v), "width of {heads:?}");
    check(mask, [batch, n_heads, len, len]);
    let packed = Packed {
        query: parent.primitive.clone(),
        key_value: None,
        heads,
    };
    let (output, state) = attend_and_keep::<B, I>(packed, mask, dropout)?;
    Some(wrapped(record(SelfAttention, [&parent], output, state)))
}

fn cross_attention_on<B: Backend, I: Kernels>(
    query: &Tensor<B, 3>,
    key_value: &Tensor<B, 3>,
    heads: Heads,
    mask: Option<AttentionMask<'_, B>>,
    dropout: f64,
) -> Option<Tensor<B, 3>> {
    let [[batch, query_len, width], [others, key_len, both]] = [query.dims(), key_value.dims()];
    let Heads { n_heads, d_k, d_v } = heads;
    let (query, key_value) = (tracked::<B, I, 3>(query)?, tracked::<B, I, 3>(key_value)?);
    assert_eq!(width, n_heads * d_k, "width of the queries of {heads:?}");
    assert_eq!(
        both,
        n_heads * (d_k + d_v),
        "width of the keys and values of {heads:?}"
    );
    assert_eq!(batch, others, "sentences of queries and of keys");
    check(mask, [batch, n_heads, query_len, key_len]);
    let packed = Packed {
        query: query.primitive.clone(),
        key_value: Some(key_value.primitive.clone()),
        heads,
    };
    let (output, state) = attend_and_keep::<B, I>(packed, mask, dropout)?;
    let parents = [&query, &key_value];
    Some(wrapped(record(CrossAttention, parents, output, state)))
}

/// Whether a mask fits scores of this shape.
fn check<B: Backend>(mask: Option<AttentionMask<'_, B>>, scores: [usize; 4]) {
    let fits = |mask: [usize; 4]| {
        let dims = mask.iter().zip(scores);
        mask[3] == scores[3]
            && dims
                .into_iter()
                .all(|(&mask, all)| mask == 1 || mask == all)
    };
    if let Some(AttentionMask { bias, blocked_rows }) = mask {
        assert!(
            fits(bias.dims()),
            "a mask {:?} for scores {scores:?}",
            bias.dims()
        );
        if let Some(rows) = blocked_rows {
            let [batch, heads, queries, _] = bias.dims();
            assert_eq!(rows.dims(), [batch, heads, queries, 1], "blocked rows");
        }
    }
}

fn blocked_rows<B: Backend, I: Kernels>(
    mask: Option<AttentionMask<'_, B>>,
) -> Option<Option<BoolTensor<I>>> {
    Some(match mask.and_then(|mask| mask.blocked_rows) {
        Some(rows) => Some(same(rows.clone().into_primitive())?),
        None => None,
    })
}

fn attend_and_keep<B: Backend, I: Kernels>(
    packed: Packed<I>,
    mask: Option<AttentionMask<'_, B>>,
    dropout: f64,
) -> Option<(FloatTensor<I>, State<I>)> {
    let bias = match mask {
        Some(mask) => Some(tracked::<B, I, 4>(mask.bias)?.primitive),
        None => None,
    };
    let rows = blocked_rows::<B, I>(mask)?;
    let (output, attended) = I::attention_forward(&packed, bias.as_ref(), rows.as_ref(), dropout);
    let state = State {
        packed,
        attended,
        dropout,
    };
    Some((output, state))
}

#[derive(Debug)]
struct SelfAttention;

#[derive(Debug)]
struct CrossAttention;

#[derive(Debug, Clone)]
struct State<I: Kernels> {
    packed: Packed<I>,
    attended: Attended<I>,
    dropout: f64,
}

impl<I: Kernels> State<I> {
    fn backward(self, grad: &FloatTensor<I>) -> (FloatTensor<I>, Option<FloatTensor<I>>) {
        I::attention_backward(grad, &self.packed, &self.attended, self.dropout)
    }
}

impl<I: Kernels> Backward<I, 1> for SelfAttention {
    type State = State<I>;

    fn backward(self, ops: Ops<State<I>, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 1>(ops, grads, |grad, state| [state.backward(&grad).0]);
    }
}

impl<I: Kernels> Backward<I, 2> for CrossAttention {
    type State = State<I>;

    fn backward(self, ops: Ops<State<I>, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 2>(ops, grads, |grad, state| {
            let (query, key_value) = state.backward(&grad);
            [query, key_value.expect("keys and values of their own")]
        });
    }
}
