//! What holds for every operation, fused or composed.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use burn_autodiff::Autodiff;

use crate::kernels::Kernels;
use crate::testing::{on_each, tensor, values};
use crate::{Activation, WeightLayout, activation_dropout, cross_entropy, layer_norm, linear};

on_each!(without_gradients_the_same_comes_out);

fn without_gradients_the_same_comes_out<I: Kernels>() {
    fn run<B: Backend>(input: impl Fn(usize, usize) -> Tensor<B, 2>) -> Vec<Vec<f64>> {
        let (x, weight) = (input(1, 63), input(2, 42));
        let bias: Tensor<B, 1> = input(3, 1).flatten::<1>(0, 1).slice([0..42]);
        let rows = x.clone().slice([0..42]);
        let layout = WeightLayout::InputByOutput;
        let product = linear(rows, weight, Some(bias.clone()), layout);
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
