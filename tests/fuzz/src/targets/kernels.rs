//! The public functions of the kernels on tensors, by flex's kernels, with and without gradients, against the
//! composition in double precision, which has none. Tensors are contiguous, transposed, or parts of larger ones; sizes
//! may be zero, and rows may hold NaN, infinities and the largest numbers.

use std::path::Path;

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Bool, Element, Int, Tensor, TensorData};
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use transformer_kernels as ops;
use transformer_kernels::{
    Activation, AdamStep, AttentionWeights, Heads, Mask, Moments, Operands, ProductPrecision,
    WeightLayout,
};

use super::choices::{Choices, Rows};
use super::{Run, Target};
use crate::guard::panics;
use crate::mutate::Format;

type Kernel = Autodiff<Flex>;
type Composed = NdArray<f64>;
type Reference = Autodiff<Composed>;

/// The largest difference, beside the largest number of an output: that of sums of a few hundred numbers.
const TOLERANCE: f64 = 2e-4;

/// The largest difference of a sum of products whose factors were rounded to bf16, beside the sum of their magnitudes.
const TOLERANCE_BF16: f64 = 3.0 / 256.0;

/// So many multiplications make a product large, as `LARGE` of the kernels' `transformer-cpu/src/products/matrix.rs`:
/// it is computed in other ways.
const LARGE: usize = 1 << 22;

fn target(check: fn(&mut Choices)) -> Target {
    // Burn's default type is that of the first tensor on a device: commands expect single precision.
    Tensor::<NdArray, 1>::zeros([1], &Default::default());
    let run: Run = Box::new(move |input| {
        check(&mut Choices::new(input));
        true
    });
    Target {
        format: Format::Choices,
        seeds: Vec::new(),
        run,
    }
}

/// How a tensor lies in memory.
#[derive(Debug, Clone, Copy)]
enum Layout {
    Contiguous,
    /// The last two dimensions in the other order.
    Transposed,
    /// A part of a larger tensor, the rest of which is NaN.
    Part,
}

fn layout(choices: &mut Choices) -> Layout {
    choices.pick(&[Layout::Contiguous, Layout::Transposed, Layout::Part])
}

/// A tensor of these numbers, in the backend's type.
fn tensor<B: Backend, const D: usize>(
    values: &[f32],
    shape: [usize; D],
    layout: Layout,
) -> Tensor<B, D> {
    match layout {
        Layout::Transposed if D >= 2 && !shape.contains(&0) => {
            let turned = plain::<B, D>(values, shape).swap_dims(D - 2, D - 1);
            let turned_shape = turned.dims();
            let data: Vec<f32> = turned.into_data().iter::<f32>().collect();
            plain::<B, D>(&data, turned_shape).swap_dims(D - 2, D - 1)
        }
        Layout::Part if !shape.contains(&0) => {
            let width = shape[D - 1];
            let rows = values.chunks(width);
            let wider: Vec<f32> = rows
                .flat_map(|row| row.iter().copied().chain([f32::NAN; 3]))
                .collect();
            let mut wider_shape = shape;
            wider_shape[D - 1] = width + 3;
            plain::<B, D>(&wider, wider_shape).slice_dim(D - 1, 0..width)
        }
        _ => plain(values, shape),
    }
}

fn plain<B: Backend, const D: usize>(values: &[f32], shape: [usize; D]) -> Tensor<B, D> {
    let data = TensorData::new(values.to_vec(), shape);
    let dtype = <B::FloatElem as Element>::dtype();
    Tensor::from_data(data.convert::<B::FloatElem>(), (&Default::default(), dtype))
}

fn blocked<B: Backend, const D: usize>(keys: &[bool], shape: [usize; D]) -> Tensor<B, D, Bool> {
    let device = B::Device::default();
    Tensor::from_data(TensorData::new(keys.to_vec(), shape), &device)
}

fn integers<B: Backend>(values: &[i64]) -> Tensor<B, 1, Int> {
    let device = B::Device::default();
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), &device)
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Assorted numbers, as the gradient of an output.
fn assorted(count: usize) -> Vec<f32> {
    (0..count).map(|at| (at % 7) as f32 * 0.25 - 0.75).collect()
}

/// The gradients for an output whose own gradient is [`assorted`]. A tracked backend keeps its operations until the
/// next backward pass, so that there is one for each execution.
fn backward<B: AutodiffBackend, const D: usize>(output: &Tensor<B, D>) -> B::Gradients {
    backward_by(output, &assorted(output.shape().num_elements()))
}

/// The same for another gradient.
fn backward_by<B: AutodiffBackend, const D: usize>(
    output: &Tensor<B, D>,
    weights: &[f32],
) -> B::Gradients {
    let weights = plain::<B, D>(weights, output.dims());
    (output.clone() * weights).sum().backward()
}

fn gradient<B: AutodiffBackend, const D: usize>(
    tensor: &Tensor<B, D>,
    gradients: &B::Gradients,
) -> Vec<f64> {
    tensor.grad(gradients).map(values).expect("a gradient")
}

/// Asserts that the rows of an output that are ordinary are close to those of another.
fn assert_rows(found: &[f64], expected: &[f64], is_ordinary: &[bool]) {
    assert_eq!(found.len(), expected.len(), "numbers of an output");
    let width = found.len() / is_ordinary.len().max(1);
    let rows = found
        .chunks(width.max(1))
        .zip(expected.chunks(width.max(1)));
    for (row, ((found, expected), _)) in rows
        .zip(is_ordinary)
        .enumerate()
        .filter(|(_, (_, is_ordinary))| **is_ordinary)
    {
        let largest = expected
            .iter()
            .fold(1.0, |most: f64, number| most.max(number.abs()));
        for (column, (found, expected)) in found.iter().zip(expected).enumerate() {
            let is_close = (found - expected).abs() <= TOLERANCE * largest;
            assert!(
                is_close || found == expected,
                "row {row}, column {column}: {found}, not {expected}"
            );
        }
    }
}

/// The same where factors were rounded to bf16, given the sums of the magnitudes of all terms.
fn assert_rounded(found: &[f64], expected: &[f64], magnitudes: &[f64], is_ordinary: &[bool]) {
    assert_eq!(found.len(), expected.len(), "numbers of an output");
    let width = found.len() / is_ordinary.len().max(1);
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        if is_ordinary[at / width] {
            let most = TOLERANCE_BF16 * magnitudes[at] + f64::from(f32::EPSILON);
            let is_close = (found - expected).abs() <= most;
            assert!(
                is_close,
                "number {at}: {found}, not {expected} up to {most}"
            );
        }
    }
}

/// Asserts that all parts are close.
fn assert_parts(found: &[Vec<f64>], expected: &[Vec<f64>]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_rows(found, expected, &[true]);
    }
}

/// A token that the table does not have is refused.
pub fn embedding(_folder: &Path) -> Target {
    struct Case {
        table: Vec<f32>,
        table_shape: [usize; 2],
        layout: Layout,
        tokens: Vec<i64>,
        shape: [usize; 2],
        scale: f64,
    }
    impl Case {
        fn tensors<B: Backend>(&self) -> (Tensor<B, 2>, Tensor<B, 2, Int>) {
            let tokens = integers::<B>(&self.tokens).reshape(self.shape);
            (tensor(&self.table, self.table_shape, self.layout), tokens)
        }

        fn forward<B: Backend>(&self) -> Vec<f64> {
            let (table, tokens) = self.tensors::<B>();
            values(ops::embedding(table, tokens, self.scale))
        }

        fn gradient<B: AutodiffBackend>(&self) -> Vec<f64> {
            let (table, tokens) = self.tensors::<B>();
            let table = table.require_grad();
            gradient(
                &table,
                &backward(&ops::embedding(table.clone(), tokens, self.scale)),
            )
        }
    }
    target(|choices| {
        let [vocab_size, d_model] = [choices.size(200).max(1), choices.size(600).max(1)];
        let shape = [choices.size(6).max(1), choices.size(20).max(1)];
        let mut case = Case {
            table: choices.numbers(vocab_size * d_model),
            table_shape: [vocab_size, d_model],
            layout: layout(choices),
            tokens: (0..shape[0] * shape[1])
                .map(|_| choices.below(vocab_size) as i64)
                .collect(),
            shape,
            scale: choices.pick(&[1.0, 0.5, -22.6]),
        };
        let expected = [case.forward::<Composed>()];
        assert_parts(&[case.forward::<Flex>()], &expected);
        assert_parts(&[case.forward::<Kernel>()], &expected);
        let expected = [case.gradient::<Reference>()];
        assert_parts(&[case.gradient::<Kernel>()], &expected);
        let at = choices.below(case.tokens.len());
        case.tokens[at] = choices.pick(&[vocab_size as i64, -1, i64::MAX, i64::MIN]);
        assert!(panics(|| drop(case.forward::<Flex>())));
    })
}

#[derive(Clone)]
struct LinearCase {
    sizes: [usize; 3],
    x: Rows,
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    weight_layout: WeightLayout,
    layouts: [Layout; 2],
    precision: ProductPrecision,
    output_gradient: Vec<f32>,
}

impl LinearCase {
    fn tensors<B: Backend>(&self) -> (Tensor<B, 2>, Tensor<B, 2>, Option<Tensor<B, 1>>) {
        let [rows, d_input, d_output] = self.sizes;
        let sizes = match self.weight_layout {
            WeightLayout::InputByOutput => [d_input, d_output],
            WeightLayout::OutputByInput => [d_output, d_input],
        };
        let bias = self.bias.as_ref();
        (
            tensor(&self.x.values, [rows, d_input], self.layouts[0]),
            tensor(&self.weight, sizes, self.layouts[1]),
            bias.map(|bias| plain(bias, [d_output])),
        )
    }

    fn forward<B: Backend>(&self) -> Vec<f64> {
        let (x, weight, bias) = self.tensors::<B>();
        values(ops::linear(
            x,
            weight,
            bias,
            self.weight_layout,
            self.precision,
        ))
    }

    fn gradients<B: AutodiffBackend>(&self) -> Vec<Vec<f64>> {
        let (x, weight, bias) = self.tensors::<B>();
        let (x, weight) = (x.require_grad(), weight.require_grad());
        let bias = bias.map(Tensor::require_grad);
        let operands = (x.clone(), weight.clone(), bias.clone());
        let (layout, precision) = (self.weight_layout, self.precision);
        let output = ops::linear(operands.0, operands.1, operands.2, layout, precision);
        let gradients = backward_by(&output, &self.output_gradient);
        let mut all = vec![gradient(&x, &gradients), gradient(&weight, &gradients)];
        all.extend(bias.map(|bias| gradient(&bias, &gradients)));
        all
    }

    /// The same product of the magnitudes of its numbers: its results are the sums of the magnitudes of all terms.
    fn magnitudes(&self) -> Self {
        let mut case = self.clone();
        let lists = [
            &mut case.x.values,
            &mut case.weight,
            &mut case.output_gradient,
        ];
        for list in lists.into_iter().chain(&mut case.bias) {
            list.iter_mut().for_each(|number| *number = number.abs());
        }
        case
    }

    fn assert_forward(&self, outputs: [&[f64]; 2]) {
        let (expected, is_ordinary) = (self.forward::<Composed>(), &self.x.is_ordinary);
        match self.precision {
            ProductPrecision::F32 => {
                outputs.map(|found| assert_rows(found, &expected, is_ordinary))
            }
            ProductPrecision::Bf16 => {
                let magnitudes = self.magnitudes().forward::<Composed>();
                outputs.map(|found| assert_rounded(found, &expected, &magnitudes, is_ordinary))
            }
        };
    }

    fn assert_gradients(&self) {
        let [found, expected] = [self.gradients::<Kernel>(), self.gradients::<Reference>()];
        match self.precision {
            ProductPrecision::F32 => assert_parts(&found, &expected),
            ProductPrecision::Bf16 => {
                let magnitudes = self.magnitudes().gradients::<Reference>();
                for ((found, expected), magnitudes) in found.iter().zip(&expected).zip(&magnitudes)
                {
                    assert_rounded(found, expected, magnitudes, &[true]);
                }
            }
        }
    }
}

/// Rows, input and output: around the sizes by which loops are cut, and now and then those of a large product.
fn product_sizes(choices: &mut Choices) -> [usize; 3] {
    if !choices.one_in(16) {
        return [choices.size(97), choices.size(65), choices.size(97)];
    }
    let [rows, d_input] = [65 + choices.below(240), 64 + choices.below(450)];
    let d_output = LARGE.div_ceil(rows * d_input) + choices.below(70);
    choices.pick(&[
        [rows, d_input, d_output],
        [d_output, rows, d_input],
        [d_input, d_output, rows],
    ])
}

pub fn linear(_folder: &Path) -> Target {
    target(|choices| {
        let sizes = product_sizes(choices);
        let [rows, d_input, d_output] = sizes;
        let mut case = LinearCase {
            sizes,
            x: choices.rows(rows, d_input),
            weight: choices.numbers(d_input * d_output),
            bias: choices.flag().then(|| choices.numbers(d_output)),
            weight_layout: choices
                .pick(&[WeightLayout::InputByOutput, WeightLayout::OutputByInput]),
            layouts: [layout(choices), layout(choices)],
            precision: choices.pick(&[ProductPrecision::F32, ProductPrecision::Bf16]),
            output_gradient: assorted(rows * d_output),
        };
        let found = case.forward::<Flex>();
        assert_eq!(found.len(), rows * d_output);
        if !sizes.contains(&0) {
            case.assert_forward([&found, &case.forward::<Kernel>()]);
            if case.x.are_ordinary() {
                case.assert_gradients();
            }
        }
        // A weight that does not fit.
        let d_weight = d_input + 1;
        case.weight = vec![0.0; d_weight * d_output];
        let x = plain::<Flex, 2>(&case.x.values, [rows, d_input]);
        let weight = plain::<Flex, 2>(&case.weight, [d_weight, d_output]);
        assert!(panics(|| drop(ops::linear(
            x,
            weight,
            None,
            WeightLayout::InputByOutput,
            ProductPrecision::F32
        ))));
    })
}

/// The blocked keys.
enum Blocked {
    Nothing,
    Causal(usize),
    Padding(Vec<bool>),
    Both(usize, Vec<bool>),
    Any(Vec<bool>),
}

/// Attention without dropout, in single precision.
const EXACT: (f64, ProductPrecision) = (0.0, ProductPrecision::F32);

struct AttentionCase {
    heads: Heads,
    batch: usize,
    query_len: usize,
    key_len: usize,
    is_self: bool,
    query: Rows,
    /// Of another sequence.
    key_value: Vec<f32>,
    blocked: Blocked,
    layout: Layout,
}

impl AttentionCase {
    fn mask<B: Backend>(&self) -> Option<Mask<B>> {
        let (batch, query_len, key_len) = (self.batch, self.query_len, self.key_len);
        let device = B::Device::default();
        Some(match &self.blocked {
            Blocked::Nothing => return None,
            Blocked::Causal(first) => Mask::causal_from(*first, query_len, key_len, &device),
            Blocked::Padding(keys) => Mask::padding(blocked(keys, [batch, key_len])),
            Blocked::Both(first, keys) => {
                Mask::causal_padding_from(*first, query_len, blocked(keys, [batch, key_len]))
            }
            Blocked::Any(keys) => Mask::from_blocked(blocked(keys, [batch, 1, query_len, key_len])),
        })
    }

    /// The queries, beside the keys and values where these are of the same sequence.
    fn query<B: Backend>(&self) -> Tensor<B, 3> {
        let Heads { n_heads, d_k, d_v } = self.heads;
        let width = match self.is_self {
            true => n_heads * (2 * d_k + d_v),
            false => n_heads * d_k,
        };
        let shape = [self.batch, self.query_len, width];
        tensor(&self.query.values, shape, self.layout)
    }

    /// The keys and values of another sequence.
    fn key_value<B: Backend>(&self) -> Option<Tensor<B, 3>> {
        let Heads { n_heads, d_k, d_v } = self.heads;
        let shape = [self.batch, self.key_len, n_heads * (d_k + d_v)];
        (!self.is_self).then(|| tensor(&self.key_value, shape, self.layout))
    }

    fn attend<B: Backend>(
        &self,
        query: &Tensor<B, 3>,
        key_value: Option<&Tensor<B, 3>>,
        (p, precision): (f64, ProductPrecision),
    ) -> Tensor<B, 3> {
        let operands = match key_value {
            None => Operands::SelfPacked(query),
            Some(key_value) => Operands::CrossPacked { query, key_value },
        };
        let (mask, weights) = (self.mask(), AttentionWeights::Discard);
        ops::attention(operands, self.heads, mask.as_ref(), p, weights, precision).output
    }

    fn forward<B: Backend>(&self) -> Vec<f64> {
        let (query, key_value) = (self.query::<B>(), self.key_value());
        values(self.attend(&query, key_value.as_ref(), EXACT))
    }

    fn gradients<B: AutodiffBackend>(&self, options: (f64, ProductPrecision)) -> Vec<Vec<f64>> {
        let query = self.query::<B>().require_grad();
        let key_value = self.key_value::<B>().map(Tensor::require_grad);
        let gradients = backward(&self.attend(&query, key_value.as_ref(), options));
        let mut all = vec![gradient(&query, &gradients)];
        all.extend(key_value.map(|key_value| gradient(&key_value, &gradients)));
        all
    }
}

fn blocked_keys(choices: &mut Choices, count: usize) -> Vec<bool> {
    let often = 2 + choices.below(5);
    (0..count).map(|_| choices.one_in(often)).collect()
}

fn attention_case(choices: &mut Choices) -> AttentionCase {
    // Now and then of several tiles.
    let is_long = choices.one_in(16);
    let heads = Heads {
        n_heads: 1 + choices.below(if is_long { 2 } else { 3 }),
        d_k: 1 + choices.below(17),
        d_v: 1 + choices.below(17),
    };
    let Heads { n_heads, d_k, d_v } = heads;
    let batch = if is_long { 1 } else { 1 + choices.below(3) };
    let is_self = choices.flag();
    let query_len = 1 + choices.below(if is_long { 230 } else { 20 });
    let key_len = match is_self {
        true => query_len,
        false => 1 + choices.below(if is_long { 560 } else { 40 }),
    };
    let rows = batch * query_len;
    let width = n_heads * d_k;
    // In self-attention, a NaN in a key would reach every query.
    let query = match is_self {
        true => Rows {
            values: choices.numbers(rows * n_heads * (2 * d_k + d_v)),
            is_ordinary: vec![true; rows],
        },
        false => choices.rows(rows, width),
    };
    let key_value = choices.numbers(batch * key_len * n_heads * (d_k + d_v));
    let first = choices.below(key_len + 2);
    let blocked = match choices.below(5) {
        0 => Blocked::Nothing,
        1 => Blocked::Causal(first),
        2 => Blocked::Padding(blocked_keys(choices, batch * key_len)),
        3 => Blocked::Both(first, blocked_keys(choices, batch * key_len)),
        _ => Blocked::Any(blocked_keys(choices, batch * query_len * key_len)),
    };
    AttentionCase {
        heads,
        batch,
        query_len,
        key_len,
        is_self,
        query,
        key_value,
        blocked,
        layout: layout(choices),
    }
}

pub fn attention(_folder: &Path) -> Target {
    target(|choices| {
        let case = attention_case(choices);
        let expected = case.forward::<Composed>();
        let is_ordinary = &case.query.is_ordinary;
        assert_rows(&case.forward::<Flex>(), &expected, is_ordinary);
        if case.query.are_ordinary() {
            assert_rows(&case.forward::<Kernel>(), &expected, is_ordinary);
            let expected = case.gradients::<Reference>(EXACT);
            assert_parts(&case.gradients::<Kernel>(EXACT), &expected);
            // With dropout and in bf16 there is nothing to compare with.
            let p = choices.pick(&[0.0, 0.3, 0.999]);
            for part in case.gradients::<Kernel>((p, ProductPrecision::Bf16)) {
                assert!(part.iter().all(|number| number.is_finite()));
            }
        }
    })
}

pub fn layer_norm(_folder: &Path) -> Target {
    struct Case {
        rows: usize,
        width: usize,
        x: Rows,
        gamma: Vec<f32>,
        beta: Vec<f32>,
        layout: Layout,
    }
    impl Case {
        fn tensors<B: Backend>(&self) -> (Tensor<B, 2>, Tensor<B, 1>, Tensor<B, 1>) {
            (
                tensor(&self.x.values, [self.rows, self.width], self.layout),
                plain(&self.gamma, [self.width]),
                plain(&self.beta, [self.width]),
            )
        }

        fn forward<B: Backend>(&self) -> Vec<f64> {
            let (x, gamma, beta) = self.tensors::<B>();
            values(ops::layer_norm(x, gamma, beta, 1e-5))
        }

        fn gradients<B: AutodiffBackend>(&self) -> Vec<Vec<f64>> {
            let (x, gamma, beta) = self.tensors::<B>();
            let x = x.require_grad();
            let (gamma, beta) = (gamma.require_grad(), beta.require_grad());
            let output = ops::layer_norm(x.clone(), gamma.clone(), beta.clone(), 1e-5);
            let gradients = backward(&output);
            vec![
                gradient(&x, &gradients),
                gradient(&gamma, &gradients),
                gradient(&beta, &gradients),
            ]
        }
    }
    target(|choices| {
        let (rows, width) = (choices.size(40), choices.size(130));
        let case = Case {
            rows,
            width,
            x: choices.rows(rows, width),
            gamma: choices.numbers(width),
            beta: choices.numbers(width),
            layout: layout(choices),
        };
        let found = case.forward::<Flex>();
        assert_eq!(found.len(), rows * width);
        if rows * width == 0 {
            return;
        }
        assert_rows(&found, &case.forward::<Composed>(), &case.x.is_ordinary);
        // Numbers that are nearly equal have gradients of any size.
        if case.x.are_ordinary() && width > 3 {
            assert_parts(&case.gradients::<Kernel>(), &case.gradients::<Reference>());
        }
    })
}

pub fn activation(_folder: &Path) -> Target {
    struct Case {
        shape: [usize; 2],
        x: Rows,
        bias: Option<Vec<f32>>,
        activation: Activation,
        layout: Layout,
    }
    impl Case {
        fn tensors<B: Backend>(&self) -> (Tensor<B, 2>, Option<Tensor<B, 1>>) {
            let bias = self.bias.as_ref();
            (
                tensor(&self.x.values, self.shape, self.layout),
                bias.map(|bias| plain(bias, [self.shape[1]])),
            )
        }

        fn forward<B: Backend>(&self) -> Vec<f64> {
            let (x, bias) = self.tensors::<B>();
            values(ops::activation_dropout(x, bias, self.activation, 0.0))
        }

        /// The output, and the gradients of x and the bias.
        fn tracked<B: AutodiffBackend>(&self) -> (Vec<f64>, Vec<Vec<f64>>) {
            let (x, bias) = self.tensors::<B>();
            let (x, bias) = (x.require_grad(), bias.map(Tensor::require_grad));
            let output = ops::activation_dropout(x.clone(), bias.clone(), self.activation, 0.0);
            let gradients = backward(&output);
            let of_bias = bias.map(|bias| gradient(&bias, &gradients));
            let all = [gradient(&x, &gradients)].into_iter().chain(of_bias);
            (values(output), all.collect())
        }
    }
    target(|choices| {
        let shape = [choices.size(40), choices.size(130)];
        let [rows, width] = shape;
        let case = Case {
            shape,
            x: choices.rows(rows, width),
            bias: choices.flag().then(|| choices.numbers(width)),
            activation: choices.pick(&Activation::ALL),
            layout: layout(choices),
        };
        let found = case.forward::<Flex>();
        assert_eq!(found.len(), rows * width);
        if rows * width > 0 {
            let expected = case.forward::<Composed>();
            assert_rows(&found, &expected, &case.x.is_ordinary);
            let (found, gradients) = case.tracked::<Kernel>();
            assert_rows(&found, &expected, &case.x.is_ordinary);
            if case.x.are_ordinary() {
                let (_, expected) = case.tracked::<Reference>();
                assert_parts(&gradients, &expected);
            }
        }
    })
}

/// Each number is dropped, or divided by the probability that it is not, and so is its gradient.
pub fn dropout(_folder: &Path) -> Target {
    target(|choices| {
        let shape = [choices.size(40), choices.size(130)];
        let x = choices.rows(shape[0], shape[1]);
        let residual = choices.numbers(shape[0] * shape[1]);
        let layout = layout(choices);
        let p = choices.pick(&[0.0, 0.1, 0.5, 0.999]);
        let on = |values: &[f32]| tensor::<Kernel, 2>(values, shape, layout).require_grad();
        let (input, added_to) = (on(&x.values), on(&residual));
        let dropped = ops::dropout(input.clone(), p);
        let added = ops::add_dropout(added_to.clone(), on(&x.values), p);
        let counts = [dropped.shape().num_elements(), added.shape().num_elements()];
        assert_eq!(counts, [x.values.len(); 2]);
        if x.values.is_empty() {
            return;
        }
        let dropped_gradient = gradient(&input, &backward(&dropped));
        let residual_gradient = gradient(&added_to, &backward(&added));
        let (dropped, added) = (values(dropped), values(added));
        let weights = assorted(x.values.len());
        assert!(
            residual_gradient
                .iter()
                .zip(&weights)
                .all(|(x, &y)| *x == f64::from(y))
        );
        let is_one_of = |found: f64, zero: f64, number: f64| {
            let kept = zero + number / (1.0 - p);
            let is_close = |expected: f64| {
                (found - expected).abs() <= 1e-3 * expected.abs().max(1.0) || found == expected
            };
            // Infinity and NaN may be dropped, or not.
            !number.is_finite() || number.abs() > 1e20 || is_close(zero) || is_close(kept)
        };
        for (at, &number) in x.values.iter().enumerate() {
            let number = f64::from(number);
            assert!(
                is_one_of(dropped[at], 0.0, number),
                "{} of {number}",
                dropped[at]
            );
            if number.abs() > 1e-20 && number.abs() < 1e20 {
                let factor = dropped[at] / number;
                let (found, expected) = (dropped_gradient[at], factor * f64::from(weights[at]));
                assert!(
                    (found - expected).abs() <= 1e-3 * expected.abs(),
                    "{found} as the gradient of {number}, not {expected}"
                );
            }
            let zero = f64::from(residual[at]);
            assert!(
                is_one_of(added[at], zero, number),
                "{} of {number}",
                added[at]
            );
        }
        let x = plain::<Flex, 1>(&[1.0], [1]);
        let wrong = choices.pick(&[1.0, -0.1, f64::NAN, f64::INFINITY]);
        assert!(panics(|| drop(ops::dropout(x, wrong))));
    })
}

pub fn cross_entropy(_folder: &Path) -> Target {
    struct Case {
        rows: usize,
        width: usize,
        x: Rows,
        labels: Vec<i64>,
        smoothing: f64,
        layout: Layout,
    }
    impl Case {
        fn forward<B: Backend>(&self) -> Vec<f64> {
            let x = tensor::<B, 2>(&self.x.values, [self.rows, self.width], self.layout);
            let losses = ops::cross_entropy(x, integers(&self.labels), self.smoothing);
            let parts = [
                losses.loss,
                losses.log_sum_exp,
                losses.at_label,
                losses.largest,
            ];
            let parts = parts.map(values);
            (0..self.rows)
                .flat_map(|row| parts.each_ref().map(|part| part[row]))
                .collect()
        }

        fn gradient<B: AutodiffBackend>(&self) -> Vec<f64> {
            let x = tensor::<B, 2>(&self.x.values, [self.rows, self.width], self.layout);
            let x = x.require_grad();
            let losses = ops::cross_entropy(x.clone(), integers(&self.labels), self.smoothing);
            gradient(&x, &backward(&losses.loss))
        }
    }
    target(|choices| {
        let (rows, width) = (choices.size(40).max(1), choices.size(130).max(1));
        let case = Case {
            rows,
            width,
            x: choices.rows(rows, width),
            labels: (0..rows).map(|_| choices.below(width) as i64).collect(),
            smoothing: choices.pick(&[0.0, 0.1, 0.9]),
            layout: layout(choices),
        };
        let expected = case.forward::<Composed>();
        assert_rows(&case.forward::<Flex>(), &expected, &case.x.is_ordinary);
        assert_rows(&case.forward::<Kernel>(), &expected, &case.x.is_ordinary);
        if case.x.are_ordinary() {
            let found = [case.gradient::<Kernel>()];
            assert_parts(&found, &[case.gradient::<Reference>()]);
        }
    })
}

pub fn log_softmax(_folder: &Path) -> Target {
    target(|choices| {
        let shape = [choices.size(40), choices.size(130)];
        let x = choices.rows(shape[0], shape[1]);
        let layout = layout(choices);
        let found = values(ops::log_softmax(tensor::<Flex, 2>(
            &x.values, shape, layout,
        )));
        assert_eq!(found.len(), x.values.len());
        if !found.is_empty() {
            let composed = tensor::<Composed, 2>(&x.values, shape, layout);
            assert_rows(&found, &values(ops::log_softmax(composed)), &x.is_ordinary);
        }
    })
}

pub fn adam(_folder: &Path) -> Target {
    struct Case {
        shape: [usize; 2],
        parameter: Vec<f32>,
        grad: Rows,
        moments: Option<[Vec<f32>; 2]>,
        step: AdamStep,
        layout: Layout,
    }
    impl Case {
        fn forward<B: Backend>(&self) -> [Vec<f64>; 3] {
            let on = |values: &[f32]| tensor::<B, 2>(values, self.shape, self.layout);
            let moments = self.moments.as_ref().map(|[first, second]| Moments {
                first: on(first),
                second: on(second),
            });
            let (parameter, grad) = (on(&self.parameter), on(&self.grad.values));
            let (parameter, Moments { first, second }) =
                ops::adam(parameter, grad, moments, &self.step);
            [values(parameter), values(first), values(second)]
        }
    }
    target(|choices| {
        let shape = [choices.size(40), choices.size(130)];
        let count = shape[0] * shape[1];
        let case = Case {
            shape,
            parameter: choices.numbers(count),
            grad: choices.rows(shape[0], shape[1]),
            moments: choices.flag().then(|| {
                let first = choices.numbers(count);
                let second = choices.numbers(count);
                [first, second.into_iter().map(f32::abs).collect()]
            }),
            step: AdamStep {
                beta_1: 0.9,
                beta_2: 0.98,
                // Roots of small numbers are not divided by less.
                epsilon: 1e-3,
                learning_rate: choices.pick(&[0.0, 1e-4, 1e-2]),
                time: choices.pick(&[1, 2, 1000, 1 << 20]),
            },
            layout: layout(choices),
        };
        let found = case.forward::<Flex>();
        assert_eq!(found[0].len(), count);
        if count > 0 {
            let expected = case.forward::<Composed>();
            for (found, expected) in found.iter().zip(&expected) {
                assert_rows(found, expected, &case.grad.is_ordinary);
            }
        }
    })
}

/// The sum of squares, rows that are gathered, and heads that are split and joined.
pub fn sums(_folder: &Path) -> Target {
    target(|choices| {
        let shape = [choices.size(40), choices.size(130)];
        let [rows, width] = shape;
        let numbers = choices.numbers(rows * width);
        let layout = layout(choices);
        let x = tensor::<Flex, 2>(&numbers, shape, layout);
        let found = values(ops::sum_of_squares(x.clone()));
        let sum: f64 = numbers.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        assert_rows(&found, &[sum], &[true]);
        if rows * width == 0 {
            return;
        }
        let count = choices.below(9);
        let indices: Vec<i64> = (0..count).map(|_| choices.below(rows) as i64).collect();
        if count > 0 {
            let gathered = values(ops::gather_rows(x.clone(), integers(&indices)));
            let row = |index: &i64| {
                let at = *index as usize * width;
                numbers[at..at + width].iter().copied().map(f64::from)
            };
            let expected: Vec<f64> = indices.iter().flat_map(row).collect();
            assert_eq!(gathered, expected);
        }
        let n_heads = 1 + choices.below(width);
        let d_head = width / n_heads;
        let heads = x.reshape([1, rows, width]);
        let column = choices.below(width - n_heads * d_head + 1);
        let split = ops::split_heads(&heads, column, n_heads, d_head);
        let columns = column..column + n_heads * d_head;
        let expected = values(heads.slice_dim(2, columns));
        assert_eq!(values(ops::join_heads(split)), expected);
    })
}
