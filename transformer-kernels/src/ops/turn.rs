//! Rotary positions (Su et al., 2021).

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};

use crate::autodiff::{first, operand, pass_back, record, wrapped};
use crate::kernels::Kernels;

/// Rotates the pairs of heads by the angles of their positions.
///
/// In each head, feature `i` of the first half and feature `i` of the second form a pair `(a, b)`, which becomes
/// `(a cos - b sin, b cos + a sin)`. Gradients flow to `x`, not to `turns`.
///
/// # Shapes
/// - x and output: `[batch, len, width]`, whose first `n_heads · d_k` features are heads; the others do not change
/// - turns: `[len, d_k]`: per position, the cosines of the `d_k / 2` angles, then their sines
///
/// # Panics
/// When the sizes do not agree, or `d_k` is odd.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_ndarray::NdArray;
/// use transformer_kernels::turn_heads;
///
/// let device = Default::default();
/// let x = Tensor::<NdArray, 3>::from_data([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]], &device);
/// // No turn at the first position, a right angle at the second.
/// let turns = Tensor::<NdArray, 2>::from_data([[1.0, 0.0], [0.0, 1.0]], &device);
/// let turned = turn_heads(x, turns, 1).into_data();
/// assert_eq!(turned.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, -5.0, 4.0, 6.0]);
/// ```
pub fn turn_heads<B: Backend>(
    x: Tensor<B, 3>,
    turns: Tensor<B, 2>,
    n_heads: usize,
) -> Tensor<B, 3> {
    let ([_, len, width], [positions, d_k]) = (x.dims(), turns.dims());
    assert!(
        len == positions && n_heads * d_k <= width && d_k.is_multiple_of(2),
        "turns [{positions}, {d_k}] for {n_heads} heads in {len} rows of {width} features"
    );
    let fused: Option<Tensor<B, 3>> = first!(fused::<B>(&x, &turns, n_heads));
    fused.unwrap_or_else(|| composed(x, turns, n_heads))
}

/// The reference implementation.
pub(crate) fn composed<B: Backend>(
    x: Tensor<B, 3>,
    turns: Tensor<B, 2>,
    n_heads: usize,
) -> Tensor<B, 3> {
    let ([batch, len, width], [_, d_k]) = (x.dims(), turns.dims());
    let (half, turned) = (d_k / 2, n_heads * d_k);
    let part = |first: usize| {
        let part = turns.clone().slice_dim(1, first..first + half);
        part.reshape([1, len, 1, half])
    };
    let (cos, sin) = (part(0), part(half));
    let heads = x.clone().slice_dim(2, 0..turned);
    let heads = heads.reshape([batch, len, n_heads, d_k]);
    let (a, b) = (
        heads.clone().slice_dim(3, 0..half),
        heads.slice_dim(3, half..d_k),
    );
    let pairs = vec![
        a.clone() * cos.clone() - b.clone() * sin.clone(),
        b * cos + a * sin,
    ];
    let heads = Tensor::cat(pairs, 3).reshape([batch, len, turned]);
    match turned == width {
        true => heads,
        false => Tensor::cat(vec![heads, x.slice_dim(2, turned..width)], 2),
    }
}

fn fused<B: Backend, I: Kernels>(
    x: &Tensor<B, 3>,
    turns: &Tensor<B, 2>,
    n_heads: usize,
) -> Option<Tensor<B, 3>> {
    let (x, turns) = (operand::<B, I, 3>(x)?, operand::<B, I, 2>(turns)?.primitive);
    let output = I::turn_heads(&x.primitive, &turns, n_heads);
    Some(record(TurnHeads, [&x], output, (turns, n_heads)))
}

#[derive(Debug)]
struct TurnHeads;

impl<I: Kernels> Backward<I, 1> for TurnHeads {
    type State = (FloatTensor<I>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 1>(ops, grads, |grad, (turns, n_heads), [wanted]| {
            [wanted.then(|| I::turn_heads(&grad, &turned_back::<I>(turns), n_heads))]
        });
    }
}

/// Turns by the opposite angles.
fn turned_back<I: Backend>(turns: FloatTensor<I>) -> FloatTensor<I> {
    let turns: Tensor<I, 2> = wrapped(turns);
    let [_, d_k] = turns.dims();
    let half = d_k / 2;
    let cos = turns.clone().slice_dim(1, 0..half);
    let sin = turns.slice_dim(1, half..d_k);
    Tensor::cat(vec![cos, sin.neg()], 1)
        .into_primitive()
        .tensor()
}

#[cfg(test)]
mod tests {
    use burn_autodiff::Autodiff;

    use super::*;
    use crate::testing::{
        Input, Reference, assert_close, on_each, outcome, plain as constant, tensor,
    };

    on_each!(kernel_is_the_composition);

    fn kernel_is_the_composition<I: Kernels>() {
        type B<I> = Autodiff<I>;
        // Without and with features after the heads; the last has several tasks.
        for (batch, len, n_heads, d_k, width) in [
            (1, 1, 1, 2, 2),
            (2, 3, 2, 4, 8),
            (3, 5, 3, 6, 25),
            (5, 31, 8, 32, 384),
        ] {
            let shape = [batch, len, width];
            let (x, turns) = (tensor::<B<I>, 3>(1, shape), constant(2, [len, d_k]));
            let found = fused::<B<I>, I>(&x, &turns, n_heads).expect("a kernel");
            let found = outcome(found, &[Input::Three(x)]);
            let (x, turns) = (tensor::<Reference, 3>(1, shape), constant(2, [len, d_k]));
            let expected = composed(x.clone(), turns, n_heads);
            let expected = outcome(expected, &[Input::Three(x)]);
            assert_close(&format!("{shape:?}, {n_heads} heads"), &found, &expected);
        }
    }
}
