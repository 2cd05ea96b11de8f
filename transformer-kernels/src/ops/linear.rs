//! Linear layers.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::module;
use burn::tensor::ops::FloatTensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use transformer_cpu::{ProductPrecision, WeightLayout, count};

use crate::autodiff::{Operand, first, kept_for, operand, pass_back, record};
use crate::kernels::Kernels;
use crate::precision::{factor, product};
use crate::sizes::{check_vector, described, reshaped};

/// `x W + b` over the last dimension: every projection of the paper (§3.2.2, §3.3, §3.4).
///
/// All other dimensions are flattened into the rows of one matrix. With a batch dimension, Burn would multiply
/// sentence by sentence and, in the backward pass, sum one gradient of `W` per sentence.
///
/// The matrix multiplication has the given precision when gradients are computed. In bf16, the gradients of `x`
/// and of the weight also multiply rounded operands; the gradient of the bias is a sum in f32. A backend that does
/// not support this precision ([`multiplies_in`](crate::multiplies_in)) computes in f32; one without kernels rounds
/// the product, too.
///
/// # Shapes
/// - x: `[.., d_input]`
/// - weight: `[d_input, d_output]` or `[d_output, d_input]`, depending on its layout
/// - bias: `[d_output]`
/// - output: `[.., d_output]`
///
/// # Panics
/// When the shapes or types do not agree.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_ndarray::NdArray;
/// use transformer_kernels::{ProductPrecision, WeightLayout, linear};
///
/// let device = Default::default();
/// let x = Tensor::<NdArray, 2>::from_data([[1.0, 2.0]], &device);
/// let weight = Tensor::from_data([[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]], &device);
/// let bias = Tensor::from_data([0.0, 0.0, 100.0], &device);
/// // 1·3 + 2·6 = 15, 1·4 + 2·7 = 18, 1·5 + 2·8 + 100 = 121
/// let layout = WeightLayout::InputByOutput;
/// let y = linear(x, weight, Some(bias), layout, ProductPrecision::F32);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [15.0, 18.0, 121.0]);
/// ```
pub fn linear<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
    layout: WeightLayout,
    precision: ProductPrecision,
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
    let output = first!(fused::<B>(&x, &weight, bias.as_ref(), layout, precision))
        .unwrap_or_else(|| composed(x, weight, bias, layout, precision));
    reshaped(output, shape)
}

/// The reference implementation.
fn composed<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
    layout: WeightLayout,
    precision: ProductPrecision,
) -> Tensor<B, 2> {
    let weight = match layout {
        WeightLayout::InputByOutput => weight,
        WeightLayout::OutputByInput => weight.transpose(),
    };
    if precision == ProductPrecision::F32 {
        return module::linear(x, weight, bias);
    }
    let output = product(x, weight, precision);
    match bias {
        Some(bias) => output + bias.unsqueeze(),
        None => output,
    }
}

fn fused<B: Backend, I: Kernels>(
    x: &Tensor<B, 2>,
    weight: &Tensor<B, 2>,
    bias: Option<&Tensor<B, 1>>,
    layout: WeightLayout,
    precision: ProductPrecision,
) -> Option<Tensor<B, 2>> {
    let (x, weight) = (operand::<B, I, 2>(x)?, operand::<B, I, 2>(weight)?);
    let bias = match bias {
        Some(bias) => Some(operand::<B, I, 1>(bias)?),
        None => None,
    };
    let precision = match x.is_of_autodiff() {
        true => precision,
        false => ProductPrecision::F32,
    };
    let values = bias.as_ref().map(|bias| &bias.primitive);
    let factors = [&x, &weight].map(|x| factor::<I>(&x.primitive, precision));
    let output = I::linear_forward(&factors[0], &factors[1], values, layout, precision);
    let state = State::new([&x, &weight], factors, layout, precision);
    Some(match &bias {
        Some(bias) => record(LinearWithBias, [&x, &weight, bias], output, state),
        None => record(Linear, [&x, &weight], output, state),
    })
}

#[derive(Debug)]
struct Linear;

#[derive(Debug)]
struct LinearWithBias;

#[derive(Debug, Clone)]
struct State<I: Backend> {
    /// Kept for the weight's gradient.
    x: Option<FloatTensor<I>>,
    /// Kept for the gradient of `x`.
    weight: Option<FloatTensor<I>>,
    layout: WeightLayout,
    precision: ProductPrecision,
}

impl<I: Kernels> State<I> {
    /// Keeps each operand if the other one needs a gradient.
    fn new(
        [x, weight]: [&Operand<I>; 2],
        [x_factor, weight_factor]: [FloatTensor<I>; 2],
        layout: WeightLayout,
        precision: ProductPrecision,
    ) -> Self {
        Self {
            x: kept_for(weight, x_factor),
            weight: kept_for(x, weight_factor),
            layout,
            precision,
        }
    }

    /// The gradients of `x` and of the weight; `None` if the other operand was not kept.
    fn gradients(&self, grad: &FloatTensor<I>) -> [Option<FloatTensor<I>>; 2] {
        let (x, weight) = (self.x.as_ref(), self.weight.as_ref());
        let (layout, precision) = (self.layout, self.precision);
        let grad = factor::<I>(grad, precision);
        [
            weight.map(|weight| I::linear_input_gradient(&grad, weight, layout, precision)),
            x.map(|x| I::linear_weight_gradient(&grad, x, layout, precision)),
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
    use burn::tensor::DType;
    use burn::tensor::backend::AutodiffBackend;
    use burn_autodiff::Autodiff;

    use super::*;
    use crate::testing::{
        Input, Reference, assert_close, gradients, numbers, on_each, outcome,
        plain as plain_numbers, tensor, values,
    };

    on_each!(kernel_is_the_composition);
    on_each!(nothing_is_kept_or_computed_for_frozen_parents);
    on_each!(bf16_is_off_by_its_roundings_where_gradients_are_taken);

    const LAYOUTS: [WeightLayout; 2] = [WeightLayout::InputByOutput, WeightLayout::OutputByInput];

    /// `x`, weight and bias.
    type Inputs<B> = (Tensor<B, 2>, Tensor<B, 2>, Option<Tensor<B, 1>>);

    fn nothing_is_kept_or_computed_for_frozen_parents<I: Kernels>() {
        let numbers = |seed| plain_numbers::<Autodiff<I>, 2>(seed, [7, 7]);
        let frozen = |seed| operand::<_, I, 2>(&numbers(seed)).expect("a kernel");
        let learned = |seed| operand(&numbers(seed).require_grad()).expect("a kernel");
        let grad = learned(3).primitive;
        let which = |x: &Operand<I>, weight: &Operand<I>| {
            let factors = [x, weight].map(|factor| factor.primitive.clone());
            let layout = WeightLayout::InputByOutput;
            let state = State::new([x, weight], factors, layout, ProductPrecision::F32);
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
        // x would serve only the weight's gradient, so it is not kept.
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
        // The last size uses several threads.
        for sizes in [[1, 1, 1], [5, 7, 11], [200, 160, 170]] {
            for (layout, with_bias) in LAYOUTS.into_iter().flat_map(|l| [(l, false), (l, true)]) {
                let kernel = |(x, weight, bias): &Inputs<Autodiff<I>>| {
                    let precision = ProductPrecision::F32;
                    let output =
                        fused::<Autodiff<I>, I>(x, weight, bias.as_ref(), layout, precision);
                    output.expect("a kernel")
                };
                let composition = |(x, weight, bias): &Inputs<Reference>| {
                    composed(
                        x.clone(),
                        weight.clone(),
                        bias.clone(),
                        layout,
                        ProductPrecision::F32,
                    )
                };
                assert_close(
                    &format!("{sizes:?}, {layout:?}, bias {with_bias}"),
                    &run(sizes, layout, with_bias, kernel),
                    &run(sizes, layout, with_bias, composition),
                );
            }
        }
    }

    /// Per row and column, the sum and the sum of its terms' magnitudes.
    fn sums(
        [rows, columns, terms]: [usize; 3],
        term: impl Fn(usize, usize, usize) -> f64,
    ) -> Vec<[f64; 2]> {
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let sum = |(row, column)| {
            let terms = (0..terms).map(|index| term(row, column, index));
            terms.fold([0.0, 0.0], |[sum, magnitude], term: f64| {
                [sum + term, magnitude + term.abs()]
            })
        };
        places.map(sum).collect()
    }

    /// Off by at most 3/256 of the magnitude: an operand is rounded by at most 1/256 of itself, a term has two,
    /// and the sum is rounded once more. A backend without bf16 matrix multiplication computes in f32.
    fn assert_rounded<I: Kernels>(case: &str, found: &[f64], expected: &[[f64; 2]]) {
        assert_eq!(found.len(), expected.len(), "{case}");
        let errors = found.iter().zip(expected);
        let errors = errors.map(|(found, [sum, magnitude])| (found - sum).abs() / magnitude);
        let largest = errors.max_by(f64::total_cmp).expect("numbers");
        let expected = match I::BF16_LINEAR {
            true => 1e-4..3.05 / 256.0,
            false => 0.0..3e-6,
        };
        assert!(expected.contains(&largest), "{case}: off by {largest:e}");
    }

    fn bf16_is_off_by_its_roundings_where_gradients_are_taken<I: Kernels>() {
        let [rows, d_input, d_output] = [23, 40, 31];
        for (layout, with_bias) in LAYOUTS.into_iter().flat_map(|l| [(l, false), (l, true)]) {
            let x = tensor::<Autodiff<I>, 2>(1, [rows, d_input]);
            let weight = tensor::<Autodiff<I>, 2>(2, layout.oriented([d_input, d_output]));
            let bias = with_bias.then(|| tensor::<Autodiff<I>, 1>(3, [d_output]));
            let bf16 = ProductPrecision::Bf16;
            let output = linear(x.clone(), weight.clone(), bias.clone(), layout, bf16);
            let grads = gradients(output.clone());
            let [x_grad, weight_grad] =
                [&x, &weight].map(|factor| factor.grad(&grads).expect("a gradient"));
            for tensor in [&output.clone().inner(), &x_grad, &weight_grad] {
                assert_eq!(tensor.dtype(), DType::F32);
            }

            // The same values as from `tensor` and `gradients`.
            let xs = numbers(1, rows * d_input);
            let weights = numbers(2, d_input * d_output);
            let biases = numbers(3, d_output);
            let grads_of_output = numbers(99, rows * d_output);
            let x_at = |row: usize, input: usize| xs[row * d_input + input];
            let grad_at = |row: usize, output: usize| grads_of_output[row * d_output + output];
            let weight_at = |input: usize, output: usize| match layout {
                WeightLayout::InputByOutput => weights[input * d_output + output],
                WeightLayout::OutputByInput => weights[output * d_input + input],
            };
            let product = sums([rows, d_output, d_input], |row, output, input| {
                x_at(row, input) * weight_at(input, output)
            });
            let mut found = values(output);
            if with_bias {
                for (index, number) in found.iter_mut().enumerate() {
                    *number -= biases[index % d_output];
                }
            }
            let case = |part| format!("{part}, {layout:?}, bias {with_bias}");
            assert_rounded::<I>(&case("output"), &found, &product);
            let of_x = sums([rows, d_input, d_output], |row, input, output| {
                grad_at(row, output) * weight_at(input, output)
            });
            assert_rounded::<I>(&case("x"), &values(x_grad), &of_x);
            let [height, width] = layout.oriented([d_input, d_output]);
            let of_weight = sums([height, width, rows], |one, other, row| {
                let [input, output] = layout.oriented([one, other]);
                x_at(row, input) * grad_at(row, output)
            });
            assert_rounded::<I>(&case("weight"), &values(weight_grad), &of_weight);
            if let Some(bias) = bias {
                let of_bias = sums([1, d_output, rows], |_, output, row| grad_at(row, output));
                let of_bias: Vec<f64> = of_bias.iter().map(|[sum, _]| *sum).collect();
                let found = values(bias.grad(&grads).expect("a gradient"));
                assert_close(&case("bias"), &[found], &[of_bias]);
            }

            // Without gradients, in f32.
            let (x, weight) = (x.inner(), weight.inner());
            let plain = linear(
                x.clone(),
                weight.clone(),
                None,
                layout,
                ProductPrecision::F32,
            );
            let at = linear(x, weight, None, layout, bf16);
            assert_eq!(values(at), values(plain));
        }
    }
}
