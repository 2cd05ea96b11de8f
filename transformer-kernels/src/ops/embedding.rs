//! Token embeddings.

use burn::tensor::backend::Backend;
use burn::tensor::module;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Int, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};

use crate::autodiff::{first, operand, pass_back, record, same};
use crate::kernels::Kernels;

/// The embeddings of tokens, times `scale` (§3.4).
///
/// # Shapes
/// - table: `[vocab_size, d_model]`
/// - tokens: `[batch, len]`, each below `vocab_size`
/// - output: `[batch, len, d_model]`
///
/// # Panics
/// Tokens are not checked here: if one is not below `vocab_size`, the backend may panic.
pub fn embedding<B: Backend>(
    table: Tensor<B, 2>,
    tokens: Tensor<B, 2, Int>,
    scale: f64,
) -> Tensor<B, 3> {
    first!(fused::<B>(&table, &tokens, scale)).unwrap_or_else(|| composed(table, tokens, scale))
}

/// The reference implementation.
fn composed<B: Backend>(
    table: Tensor<B, 2>,
    tokens: Tensor<B, 2, Int>,
    scale: f64,
) -> Tensor<B, 3> {
    let rows = module::embedding(table, tokens);
    match scale {
        1.0 => rows,
        _ => rows * scale,
    }
}

fn fused<B: Backend, I: Kernels>(
    table: &Tensor<B, 2>,
    tokens: &Tensor<B, 2, Int>,
    scale: f64,
) -> Option<Tensor<B, 3>> {
    let tokens: IntTensor<I> = same(tokens.clone().into_primitive())?;
    let table = operand::<B, I, 2>(table)?;
    let output = I::embed(&table.primitive, &tokens, scale);
    let state = State {
        table: table.primitive.clone(),
        tokens,
        scale,
    };
    Some(record(Embedding, [&table], output, state))
}

#[derive(Debug)]
struct Embedding;

#[derive(Debug, Clone)]
struct State<I: Kernels> {
    /// Kept for its shape.
    table: FloatTensor<I>,
    tokens: IntTensor<I>,
    scale: f64,
}

impl<I: Kernels> Backward<I, 1> for Embedding {
    type State = State<I>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 1>(ops, grads, |grad, state, _| {
            let State {
                table,
                tokens,
                scale,
            } = state;
            [Some(I::embed_backward(&grad, &table, &tokens, scale))]
        });
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::backend::AutodiffBackend;
    use burn_autodiff::Autodiff;

    use super::*;
    use crate::testing::{Input, Reference, assert_close, on_each, outcome, tensor, values};

    on_each!(kernel_is_the_composition);

    /// Tables of less than one task and of several, with tokens that occur once, repeatedly and not at all.
    fn kernel_is_the_composition<I: Kernels>() {
        fn tokens<B: AutodiffBackend>(shape: [usize; 2], vocab_size: usize) -> Tensor<B, 2, Int> {
            let tokens = (0..shape[0] * shape[1]).map(|at| (at * at * 31 % vocab_size) as i64);
            let tokens: Vec<i64> = tokens.collect();
            Tensor::<B, 1, Int>::from_data(tokens.as_slice(), &Default::default()).reshape(shape)
        }
        fn run<B: AutodiffBackend>(
            embedding: impl Fn(Tensor<B, 2>, Tensor<B, 2, Int>) -> Tensor<B, 3>,
            [vocab_size, d_model]: [usize; 2],
            shape: [usize; 2],
        ) -> Vec<Vec<f64>> {
            let table = tensor::<B, 2>(1, [vocab_size, d_model]);
            let output = embedding(table.clone(), tokens(shape, vocab_size));
            outcome(output, &[Input::Two(table)])
        }
        for (table, shape, scale) in [
            ([1, 1], [1, 1], 1.0),
            ([5, 3], [2, 4], -1.5),
            ([1000, 33], [7, 11], 1.0),
            ([300, 512], [3, 40], 22.6),
        ] {
            let found = run::<Autodiff<I>>(
                |table, tokens| fused::<_, I>(&table, &tokens, scale).expect("a kernel"),
                table,
                shape,
            );
            let expected =
                run::<Reference>(|table, tokens| composed(table, tokens, scale), table, shape);
            let case = format!("{table:?}, {shape:?}");
            assert_close(&case, &found, &expected);
            // Without gradients.
            let inner = tensor::<Autodiff<I>, 2>(1, table).inner();
            let tokens = tokens::<Autodiff<I>>(shape, table[0]).inner();
            let inner = fused::<I, I>(&inner, &tokens, scale).expect("a kernel");
            assert_close(&case, &[values(inner)], &expected[..1]);
        }
    }
}
