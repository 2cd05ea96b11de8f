//! Properties of every operation, fused or composed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Int, Tensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn_ndarray::NdArray;

use crate::ProductPrecision::F32;
use crate::kernels::Kernels;
use crate::testing::{
    Input, Reference, assert_close, generator, gradients, on_each, outcome, plain, tensor, values,
};
use crate::{
    Activation, AdamStep, AttentionWeights, Heads, Mask, Moments, Operands, WeightLayout,
    activation_dropout, adam, add_dropout, attention, cross_entropy, dropout, layer_norm, linear,
    log_softmax, scaled_dot_product_attention, sum_of_squares,
};

on_each!(without_gradients_the_same_comes_out);
on_each!(wrong_vectors_are_refused);
on_each!(wrong_moments_are_refused);
on_each!(an_inner_size_of_zero_gives_the_bias);
on_each!(nothing_is_dropped_with_probability_zero);
on_each!(a_mask_that_is_learned_gets_a_gradient);
on_each!(composed_attention_changes_no_operand);
on_each!(balanced_checkpointing_gives_the_same_gradients);
on_each!(frozen_parents_get_no_gradient_and_change_none);
on_each!(empty_inputs_give_empty_outputs);

const STEP: AdamStep = AdamStep {
    beta_1: 0.9,
    beta_2: 0.98,
    epsilon: 1e-9,
    learning_rate: 1e-3,
    time: 1,
};

const HEADS: Heads = Heads {
    n_heads: 2,
    d_k: 4,
    d_v: 3,
};

/// The reference implementation: there are no kernels for double precision.
type Composed = NdArray<f64>;

#[test]
fn composition_refuses_wrong_vectors() {
    refuses_wrong_vectors::<Composed>();
    refuses_wrong_vectors::<Reference>();
}

#[test]
fn composition_refuses_wrong_moments() {
    refuses_wrong_moments::<Composed>();
}

#[test]
fn composition_gives_the_bias_for_an_inner_size_of_zero() {
    gives_the_bias_for_an_inner_size_of_zero::<Composed>();
}

#[test]
fn composition_drops_nothing_with_probability_zero() {
    drops_nothing_with_probability_zero::<Composed>();
}

fn without_gradients_the_same_comes_out<I: Kernels>() {
    fn run<B: Backend>(input: impl Fn(usize, usize) -> Tensor<B, 2>) -> Vec<Vec<f64>> {
        let (x, weight) = (input(1, 63), input(2, 42));
        let bias: Tensor<B, 1> = input(3, 1).flatten::<1>(0, 1).slice([0..42]);
        let rows = x.clone().slice([0..42]);
        let layout = WeightLayout::InputByOutput;
        let product = linear(rows, weight, Some(bias.clone()), layout, F32);
        let hidden = activation_dropout(product.clone(), Some(bias.clone()), Activation::Relu, 0.0);
        let normed = layer_norm(product.clone(), bias.clone(), bias, 1e-5);
        let labels = Tensor::<B, 1, Int>::from_data([3, 5, 7], &x.device());
        let losses = cross_entropy(x.slice([0..3]), labels, 0.1);
        vec![
            values(product),
            values(hidden),
            values(normed),
            values(losses.loss),
            values(losses.log_sum_exp),
        ]
    }
    let tracked = |seed, width| tensor::<Autodiff<I>, 2>(seed, [63, width]);
    assert_eq!(
        run::<I>(|seed, width| tracked(seed, width).inner()),
        run::<Autodiff<I>>(tracked)
    );
}

/// The message that a call panics with.
fn panic_message<T>(call: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else {
        return "no panic".to_owned();
    };
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => (*payload.downcast_ref::<&str>().unwrap_or(&"another panic")).to_string(),
    }
}

fn assert_names(message: &str, parts: [&str; 2]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} does not name {part:?}");
    }
}

fn wrong_vectors_are_refused<I: Kernels>() {
    refuses_wrong_vectors::<I>();
    refuses_wrong_vectors::<Autodiff<I>>();
}

fn refuses_wrong_vectors<B: Backend>() {
    // Too short, too long, one that would be broadcast; 8 divides the 8 values of two rows.
    for len in [3, 5, 1, 8] {
        let named = format!("[{len}]");
        let vector = || plain::<B, 1>(1, [len]);
        let (x, right) = (plain::<B, 2>(2, [2, 4]), plain::<B, 1>(3, [4]));
        let message = panic_message(|| {
            let weight = plain::<B, 2>(4, [6, 4]);
            let x = plain::<B, 2>(5, [2, 6]);
            linear(x, weight, Some(vector()), WeightLayout::InputByOutput, F32)
        });
        assert_names(&message, [&named, "[6, 4]"]);
        for activation in Activation::ALL {
            let message =
                panic_message(|| activation_dropout(x.clone(), Some(vector()), activation, 0.0));
            assert_names(&message, [&named, "[2, 4]"]);
        }
        let message = panic_message(|| layer_norm(x.clone(), vector(), right.clone(), 1e-5));
        assert_names(&message, [&named, "[2, 4]"]);
        let message = panic_message(|| layer_norm(x.clone(), right.clone(), vector(), 1e-5));
        assert_names(&message, [&named, "[2, 4]"]);
    }
    refuses_wrong_numbers::<B>();
    refuses_wrong_shapes::<B>();
}

/// Vectors whose type differs from their tensor's.
fn refuses_wrong_numbers<B: Backend>() {
    let x = plain::<B, 2>(2, [2, 4]);
    let other = match x.dtype() {
        DType::F64 => DType::F32,
        _ => DType::F64,
    };
    let names = [&format!("{other:?}"), &format!("{:?}", x.dtype())];
    let vector = || plain::<B, 1>(1, [4]).cast(other);
    let right = plain::<B, 1>(3, [4]);
    let message = panic_message(|| {
        let weight = plain::<B, 2>(4, [4, 4]);
        linear(
            x.clone(),
            weight,
            Some(vector()),
            WeightLayout::InputByOutput,
            F32,
        )
    });
    assert_names(&message, names.map(String::as_str));
    let message = panic_message(|| {
        let weight = plain::<B, 2>(4, [4, 4]).cast(other);
        linear(x.clone(), weight, None, WeightLayout::InputByOutput, F32)
    });
    assert_names(&message, names.map(String::as_str));
    let message =
        panic_message(|| activation_dropout(x.clone(), Some(vector()), Activation::Relu, 0.0));
    assert_names(&message, names.map(String::as_str));
    let message = panic_message(|| layer_norm(x.clone(), vector(), right.clone(), 1e-5));
    assert_names(&message, names.map(String::as_str));
    let message = panic_message(|| layer_norm(x.clone(), right.clone(), vector(), 1e-5));
    assert_names(&message, names.map(String::as_str));
}

fn refuses_wrong_shapes<B: Backend>() {
    let x = plain::<B, 2>(2, [2, 4]);
    // The same number of elements, so that a reshape alone would not fail.
    let message = panic_message(|| {
        let weight = plain::<B, 2>(4, [8, 3]);
        linear(x.clone(), weight, None, WeightLayout::InputByOutput, F32)
    });
    assert_names(&message, ["[2, 4]", "[8, 3]"]);
    let message = panic_message(|| {
        let weight = plain::<B, 2>(4, [3, 2]);
        linear(x.clone(), weight, None, WeightLayout::OutputByInput, F32)
    });
    assert_names(&message, ["[2, 4]", "[3, 2]"]);
    for p in [0.0, 0.5] {
        let message = panic_message(|| add_dropout(x.clone(), plain::<B, 2>(1, [1, 4]), p));
        assert_names(&message, ["[2, 4]", "[1, 4]"]);
    }
    for count in [1, 3] {
        let labels = Tensor::<B, 1, Int>::zeros([count], &x.device());
        let message = panic_message(|| cross_entropy(x.clone(), labels, 0.1));
        assert_names(&message, ["[2, 4]", &format!("[{count}]")]);
    }
}

fn wrong_moments_are_refused<I: Kernels>() {
    refuses_wrong_moments::<I>();
}

fn refuses_wrong_moments<B: Backend>() {
    let right = || plain::<B, 2>(1, [4, 6]);
    let other = match right().dtype() {
        DType::F64 => DType::F32,
        _ => DType::F64,
    };
    let wrong: [(Tensor<B, 2>, String); 4] = [
        (plain(2, [4, 5]), "[4, 5]".to_owned()),
        (plain(2, [1, 6]), "[1, 6]".to_owned()),
        // The same number of elements.
        (plain(2, [6, 4]), "[6, 4]".to_owned()),
        (right().cast(other), format!("{other:?}")),
    ];
    for (wrong, named) in wrong {
        let moments = |first, second| Some(Moments { first, second });
        let attempts = [
            (wrong.clone(), moments(right(), right())),
            (right(), moments(wrong.clone(), right())),
            (right(), moments(right(), wrong.clone())),
            (wrong.clone(), None),
        ];
        for (grad, moments) in attempts {
            let message = panic_message(|| adam(right(), grad, moments, &STEP));
            assert_names(&message, [&named, "[4, 6]"]);
        }
    }
}

fn an_inner_size_of_zero_gives_the_bias<I: Kernels>() {
    gives_the_bias_for_an_inner_size_of_zero::<I>();
    gives_the_bias_for_an_inner_size_of_zero::<Autodiff<I>>();
}

fn gives_the_bias_for_an_inner_size_of_zero<B: Backend>() {
    // Few rows, and many.
    for rows in [2, 100] {
        for layout in [WeightLayout::InputByOutput, WeightLayout::OutputByInput] {
            let device = Default::default();
            let x = || Tensor::<B, 2>::zeros([rows, 0], &device);
            let weight = || Tensor::<B, 2>::zeros(layout.oriented([0, 3]), &device);
            let bias = Tensor::<B, 1>::from_data([1.0, 2.0, 3.0], &device);
            let output = linear(x(), weight(), Some(bias), layout, F32);
            assert_eq!(values(output), [1.0, 2.0, 3.0].repeat(rows));
            let output = linear(x(), weight(), None, layout, F32);
            assert_eq!(values(output), vec![0.0; 3 * rows]);
        }
    }
}

fn nothing_is_dropped_with_probability_zero<I: Kernels>() {
    drops_nothing_with_probability_zero::<I>();
    drops_nothing_with_probability_zero::<Autodiff<I>>();
}

fn drops_nothing_with_probability_zero<B: Backend>() {
    let (x, residual) = (plain::<B, 2>(1, [3, 5]), plain::<B, 2>(2, [3, 5]));
    assert_eq!(values(dropout(x.clone(), 0.0)), values(x.clone()));
    assert_eq!(
        values(add_dropout(residual.clone(), x.clone(), 0.0)),
        values(residual + x)
    );
}

/// Attention with a mask whose bias is learned, as for relative positions.
fn a_mask_that_is_learned_gets_a_gradient<I: Kernels>() {
    fn run<B: AutodiffBackend>() -> Vec<Vec<f64>> {
        let packed = tensor::<B, 3>(1, [2, 5, 2 * (4 + 4 + 3)]);
        let query = tensor::<B, 3>(2, [2, 5, 2 * 4]);
        let bias = tensor::<B, 4>(3, [1, 2, 5, 5]);
        let mask = &Mask::from_bias(bias.clone());
        let discard = AttentionWeights::Discard;
        let operands = Operands::SelfPacked(&packed);
        let itself = attention(operands, HEADS, Some(mask), 0.0, discard, F32).output;
        let key_value = packed.clone().slice_dim(2, 0..2 * (4 + 3));
        let operands = Operands::CrossPacked {
            query: &query,
            key_value: &key_value,
        };
        let other = attention(operands, HEADS, Some(mask), 0.0, discard, F32).output;
        let inputs = [Input::Three(packed), Input::Three(query), Input::Four(bias)];
        outcome(itself + other, &inputs)
    }
    assert_close("bias", &run::<Autodiff<I>>(), &run::<Reference>());
}

fn composed_attention_changes_no_operand<I: Kernels>() {
    let packed = plain::<I, 3>(1, [2, 5, 2 * (4 + 4 + 3)]);
    let before = values(packed.clone());
    // No kernel returns weights.
    let operands = Operands::SelfPacked(&packed);
    attention(operands, HEADS, None, 0.0, AttentionWeights::Return, F32);
    assert_eq!(values(packed), before);

    let [query, key, value] = [1, 2, 3].map(|seed| plain::<I, 4>(seed, [2, 5, 3, 4]));
    let before = values(query.clone());
    let heads = |x: &Tensor<I, 4>| x.clone().swap_dims(1, 2);
    scaled_dot_product_attention(heads(&query), heads(&key), heads(&value), None, 0.0);
    assert_eq!(values(query), before);
}

/// All operations in sequence, with dropout from a fixed seed.
fn chain<B: AutodiffBackend>() -> Vec<Vec<f64>> {
    B::seed(&Default::default(), 7);
    let x = tensor::<B, 3>(1, [2, 5, 8]);
    let weight = tensor::<B, 2>(2, [8, 2 * (4 + 4 + 3)]);
    let bias = tensor::<B, 1>(3, [2 * (4 + 4 + 3)]);
    let outer = tensor::<B, 2>(4, [8, 2 * 3]);
    let (gamma, beta) = (tensor::<B, 1>(5, [8]), tensor::<B, 1>(6, [8]));
    let ff_bias = tensor::<B, 1>(7, [8]);
    // Burn's own operations between ours, which Burn may recompute in the backward pass.
    let input = dropout(x.clone().tanh() * 2.0, 0.1);
    let layout = WeightLayout::InputByOutput;
    let packed = linear(
        input.clone().exp(),
        weight.clone(),
        Some(bias.clone()),
        layout,
        F32,
    );
    let operands = Operands::SelfPacked(&packed);
    let attended = attention(operands, HEADS, None, 0.1, AttentionWeights::Discard, F32).output;
    let projected = linear(
        attended,
        outer.clone(),
        None,
        WeightLayout::OutputByInput,
        F32,
    );
    let normed = layer_norm(
        add_dropout(input, projected.cos(), 0.1),
        gamma.clone(),
        beta.clone(),
        1e-5,
    );
    let query = &normed.clone().sin();
    let key_value = &linear(
        normed.clone(),
        weight.clone().slice_dim(1, 0..2 * (4 + 3)),
        None,
        layout,
        F32,
    );
    let operands = Operands::CrossPacked { query, key_value };
    let crossed = attention(operands, HEADS, None, 0.1, AttentionWeights::Discard, F32).output;
    let crossed = linear(
        crossed,
        outer.clone(),
        None,
        WeightLayout::OutputByInput,
        F32,
    );
    let hidden = normed + crossed.tanh();
    let hidden = activation_dropout(hidden, Some(ff_bias.clone()), Activation::Relu, 0.1);
    let logits: Tensor<B, 2> = log_softmax(hidden).reshape([10, 8]);
    let labels = Tensor::<B, 1, Int>::from_data([0, 1, 2, 3, 4, 5, 6, 7, 0, 1], &x.device());
    let loss = cross_entropy(logits * 3.0, labels, 0.1).loss;
    outcome(
        loss,
        &[
            Input::Three(x),
            Input::Two(weight),
            Input::One(bias),
            Input::Two(outer),
            Input::One(gamma),
            Input::One(beta),
            Input::One(ff_bias),
        ],
    )
}

fn balanced_checkpointing_gives_the_same_gradients<I: Kernels>() {
    let _held = generator();
    assert_eq!(
        chain::<Autodiff<I, BalancedCheckpointing>>(),
        chain::<Autodiff<I>>()
    );
}

/// An operation on matrices, and their shapes.
type Operation<B> = (&'static [[usize; 2]], fn(&[Tensor<B, 2>]) -> Tensor<B, 2>);

/// The operations with several inputs; vectors are matrices of one row.
fn operations<B: AutodiffBackend>() -> [Operation<B>; 6] {
    fn vector<B: Backend>(row: &Tensor<B, 2>) -> Tensor<B, 1> {
        row.clone().reshape([7])
    }
    [
        (&[[7, 7], [7, 7], [1, 7]], |x| {
            let bias = Some(vector(&x[2]));
            linear(
                x[0].clone(),
                x[1].clone(),
                bias,
                WeightLayout::InputByOutput,
                F32,
            )
        }),
        (&[[7, 7], [7, 7]], |x| {
            linear(
                x[0].clone(),
                x[1].clone(),
                None,
                WeightLayout::OutputByInput,
                F32,
            )
        }),
        (&[[9, 7], [1, 7]], |x| {
            activation_dropout(x[0].clone(), Some(vector(&x[1])), Activation::Relu, 0.0)
        }),
        (&[[9, 7], [1, 7], [1, 7]], |x| {
            layer_norm(x[0].clone(), vector(&x[1]), vector(&x[2]), 1e-5)
        }),
        (&[[9, 7], [9, 7]], |x| {
            B::seed(&x[0].device(), 3);
            add_dropout(x[0].clone(), x[1].clone(), 0.3)
        }),
        (&[[9, 8], [5, 14]], |x| {
            B::seed(&x[0].device(), 3);
            let query = &x[0].clone().reshape([1, 9, 8]);
            let key_value = &x[1].clone().reshape([1, 5, 14]);
            let operands = Operands::CrossPacked { query, key_value };
            let attended = attention(operands, HEADS, None, 0.3, AttentionWeights::Discard, F32);
            attended.output.reshape([9, 6])
        }),
    ]
}

/// Each operation with each of its inputs frozen in turn: the frozen one has no gradient, and the gradients of the
/// others do not change.
fn frozen_parents_get_no_gradient_and_change_none<I: Kernels>() {
    let _held = generator();
    for (which, (shapes, operation)) in operations::<Autodiff<I>>().into_iter().enumerate() {
        let run = |frozen: Option<usize>| -> Vec<Option<Vec<f64>>> {
            let inputs = shapes.iter().enumerate().map(|(input, shape)| {
                let x = tensor::<Autodiff<I>, 2>(input, *shape).detach();
                x.set_require_grad(frozen != Some(input))
            });
            let inputs: Vec<_> = inputs.collect();
            let grads = gradients(operation(&inputs));
            inputs.iter().map(|x| x.grad(&grads).map(values)).collect()
        };
        let all = run(None);
        assert!(all.iter().all(Option::is_some), "operation {which}");
        for frozen in 0..shapes.len() {
            let mut expected = all.clone();
            expected[frozen] = None;
            assert_eq!(
                run(Some(frozen)),
                expected,
                "operation {which}, frozen: {frozen}"
            );
        }
    }
}

fn empty_inputs_give_empty_outputs<I: Kernels>() {
    // Dropout draws a seed even for an empty tensor.
    let _held = generator();
    let device = Default::default();
    let matrix = |rows, columns| Tensor::<Autodiff<I>, 2>::zeros([rows, columns], &device);
    let vector = |len| Tensor::<Autodiff<I>, 1>::zeros([len], &device);
    let no_rows = || matrix(0, 4).require_grad();
    let product = linear(
        no_rows(),
        matrix(4, 3),
        Some(vector(3)),
        WeightLayout::InputByOutput,
        F32,
    );
    assert_eq!(product.dims(), [0, 3]);
    product.sum().backward();
    let hidden = activation_dropout(no_rows(), Some(vector(4)), Activation::Relu, 0.0);
    assert_eq!(hidden.dims(), [0, 4]);
    let normed = layer_norm(no_rows(), vector(4), vector(4), 1e-5);
    assert_eq!(normed.dims(), [0, 4]);
    assert_eq!(dropout(no_rows(), 0.1).dims(), [0, 4]);
    let none = Tensor::<I, 2>::zeros([0, 4], &device);
    assert_eq!(log_softmax(none.clone()).dims(), [0, 4]);
    assert_eq!(values(sum_of_squares(none)), [0.0]);
}
