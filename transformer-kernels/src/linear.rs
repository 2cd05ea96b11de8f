//! Linear maps.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::module;
use burn::tensor::ops::FloatTensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};

use crate::autodiff::{Tracked, first, kept_for, pass_back, plain, record, tracked, wrapped};
use crate::kernels::Kernels;
use crate::sizes::{check_vector, count, described, reshaped};

/// Which dimension of a weight is the input's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightLayout {
    /// `[d_input, d_output]`
    InputByOutput,
    /// `[d_output, d_input]`: stored transposed, as an embedding that serves as a projection to logits.
    OutputByInput,
}

impl WeightLayout {
    /// Reorders `[rows, columns]` of a weight in memory to `[d_input, d_output]`, or the reverse.
    pub(crate) fn oriented<T>(self, [rows, columns]: [T; 2]) -> [T; 2] {
        match self {
            Self::InputByOutput => [rows, columns],
            Self::OutputByInput => [columns, rows],
        }
    }
}

/// `x W + b`, of the last dimension: every projection of the paper (§3.2.2, §3.3, §3.4).
///
/// All other dimensions are flattened into the rows of one matrix: with a batch dimension, Burn would
/// multiply sentence by sentence and, in the backward pass, add up one gradient of `W` per sentence.
///
/// # Shapes
/// - x: `[.., d_input]`
/// - weight: `[d_input, d_output]` or `[d_output, d_input]`, by its layout
/// - bias: `[d_output]`
/// - output: `[.., d_output]`
///
/// # Panics
/// When the shapes or the types of the numbers do not agree.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_ndarray::NdArray;
/// use transformer_kernels::{WeightLayout, linear};
///
/// let device = Default::default();
/// let x = Tensor::<NdArray, 2>::from_data([[1.0, 2.0]], &device);
/// let weight = Tensor::from_data([[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]], &device);
/// let bias = Tensor::from_data([0.0, 0.0, 100.0], &device);
/// // 1·3 + 2·6 = 15, 1·4 + 2·7 = 18, 1·5 + 2·8 + 100 = 121
/// let y = linear(x, weight, Some(bias), WeightLayout::InputByOutput);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [15.0, 18.0, 121.0]);
/// ```
pub fn linear<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
    layout: WeightLayout,
) -> Tensor<B, D> {
    let mut shape = x.dims();
    let [d_input, d_output] = layout.oriented(weight.dims());
    assert!(
        shape[D - 1] == d_input && weight.dtype() == x.dtype(),
        "{} ({layout:?}) for {}",
        described("weight", &weight),
        described("x", &x)
    );
    if let Some(bias) = &bias {
        check_vector(["bias", "weight"], bias, d_output, &weight);
    }
    let rows = count(&shape[..D - 1]);
    shape[D - 1] = d_output;
    let x = reshaped(x, [rows, d_input]);
    let output = first!(fused::<B>(&x, &weight, bias.as_ref(), layout))
        .unwrap_or_else(|| composed(x, weight, bias, layout));
    reshaped(output, shape)
}

/// By Burn's operations.
fn composed<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
    layout: WeightLayout,
) -> Tensor<B, 2> {
    let weight = match layout {
        WeightLayout::InputByOutput => weight,
        WeightLayout::OutputByInput => weight.transpose(),
    };
    module::linear(x, weight, bias)
}

fn fused<B: Backend, I: Kernels>(
    x: &Tensor<B, 2>,
    weight: &Tensor<B, 2>,
    bias: Option<&Tensor<B, 1>>,
    layout: WeightLayout,
) -> Option<Tensor<B, 2>> {
    if let (Some(x), Some(weight)) = (plain::<B, I, 2>(x), plain::<B, I, 2>(weight)) {
        let bias = match bias {
            Some(bias) => Some(plain::<B, I, 1>(bias)?),
            None => None,
        };
        return Some(wrapped(I::linear_forward(
            &x,
            &weight,
            bias.as_ref(),
            layout,
        )));
    }
    let (x, weight) = (tracked::<B, I, 2>(x)?, tracked::<B, I, 2>(weight)?);
    let bias = match bias {
        Some(bias) => Some(tracked::<B, I, 1>(bias)?),
        None => None,
    };
    let values = bias.as_ref().map(|bias| &bias.primitive);
    let output = I::linear_forward(&x.primitive, &weight.primitive, values, layout);
    let state = State::new(&x, &weight, layout);
    Some(wrapped(match &bias {
        Some(bias) => record(LinearWithBias, [&x, &weight, bias], output, state),
        None => record(Linear, [&x, &weight], output, state),
    }))
}

#[derive(Debug)]
struct Linear;

#[derive(Debug)]
struct LinearWithBias;

#[derive(Debug, Clone)]
struct State<I: Backend> {
    /// For the weight's gradient.
    x: Option<FloatTensor<I>>,
    /// For that of `x`.
    weight: Option<FloatTensor<I>>,
    layout: WeightLayout,
}

impl<I: Kernels> State<I> {
    fn new(x: &Tracked<I>, weight: &Tracked<I>, layout: WeightLayout) -> Self {
        Self {
            x: kept_for(weight, x),
            weight: kept_for(x, weight),
            layout,
        }
    }

    /// The gradients of `x` and of the weight; `None` where the other factor was not kept.
    fn gradients(&self, grad: &FloatTensor<I>) -> [Option<FloatTensor<I>>; 2] {
        let (x, weight) = (self.x.as_ref(), self.weight.as_ref());
        [
            weight.map(|weight| I::linear_input_gradient(grad, weight, self.layout)),
            x.map(|x| I::linear_weight_gradient(grad, x, self.layout)),
        ]
    }
}

impl<I: Kernels> Backward<I, 2> for Linear {
    type State = State<I>;

    fn backward(self, ops: Ops<State<I>, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 2>(ops, grads, |grad, state, _| state.gradients(&grad));
    }
}

impl<I: Kernels> Backward<I, 3> for LinearWithBias {
    type State = State<I>;

    fn backward(self, ops: Ops<State<I>, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 3>(ops, grads, |grad, state, [_, _, bias_wanted]| {
            let [x, weight] = state.gradients(&grad);
            [x, weight, bias_wanted.then(|| I::sum_rows(&grad))]
        });
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::backend::AutodiffBackend;
    use burn_autodiff::Autodiff;

    use super::*;
    use crate::testing::{
        Input, Reference, assert_close, on_each, outcome, plain as plain_numbers, tensor,
    };

    on_each!(kernel_is_the_composition);
    on_each!(nothing_is_kept_or_computed_for_frozen_parents);

    const LAYOUTS: [WeightLayout; 2] = [WeightLayout::InputByOutput, WeightLayout::OutputByInput];

    /// `x`, weight and bias.
    type Inputs<B> = (Tensor<B, 2>, Tensor<B, 2>, Option<Tensor<B, 1>>);

    fn nothing_is_kept_or_computed_for_frozen_parents<I: Kernels>() {
        let frozen = |seed| -> Tracked<I> {
            let x = plain_numbers::<Autodiff<I>, 2>(seed, [7, 7]);
            tracked::<_, I, 2>(&x).expect("a kernel")
        };
        let learned = |seed| frozen(seed).require_grad();
        let grad = learned(3).primitive;
        let which = |x: &Tracked<I>, weight: &Tracked<I>| {
            let state = State::new(x, weight, WeightLayout::InputByOutput);
            let kept = [state.x.is_some(), state.weight.is_some()];
            (
                kept,
                state.gradients(&grad).map(|gradient| gradient.is_some()),
            )
        };
        assert_eq!(
            which(&learned(1), &learned(2)),
            ([true, true], [true, true])
        );
        // Its factor is x, which only the weight's gradient needs.
        assert_eq!(
            which(&learned(1), &frozen(2)),
            ([false, true], [true, false])
        );
        assert_eq!(
            which(&frozen(1), &learned(2)),
            ([true, false], [false, true])
        );
        assert_eq!(
            which(&frozen(1), &frozen(2)),
            ([false, false], [false, false])
        );
    }

    fn kernel_is_the_composition<I: Kernels>() {
        fn run<B: AutodiffBackend>(
            [rows, d_input, d_output]: [usize; 3],
            layout: WeightLayout,
            with_bias: bool,
            linear: impl FnOnce(&Inputs<B>) -> Tensor<B, 2>,
        ) -> Vec<Vec<f64>> {
            let x = tensor::<B, 2>(1, [rows, d_input]);
            let weight = tensor::<B, 2>(2, layout.oriented([d_input, d_output]));
            let inputs = (x, weight, with_bias.then(|| tensor(3, [d_output])));
            let output = linear(&inputs);
            let (x, weight, bias) = inputs;
            let inputs = [Input::Two(x), Input::Two(weight)].into_iter();
            outcome(
                output,
                &inputs.chain(bias.map(Input::One)).collect::<Vec<_>>(),
            )
        }
        // The last on several threads.
        for sizes in [[1, 1, 1], [5, 7, 11], [200, 160, 170]] {
            for (layout, with_bias) in LAYOUTS.into_iter().flat_map(|l| [(l, false), (l, true)]) {
                let kernel = |(x, weight, bias): &Inputs<Autodiff<I>>| {
                    fused::<Autodiff<I>, I>(x, weight, bias.as_ref(), layout).expect("a kernel")
                };
                let composition = |(x, weight, bias): &Inputs<Reference>| {
                    composed(x.clone(), weight.clone(), bias.clone(), layout)
                };
                assert_close(
                    &format!("{sizes:?}, {layout:?}, bias {with_bias}"),
                    &run(sizes, layout, with_bias, kernel),
                    &run(sizes, layout, with_bias, composition),
                );
            }
        }
    }
}
