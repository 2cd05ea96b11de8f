//! Dropout, on its own and into a residual connection.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};

use crate::autodiff::{first, pass_back, record, tracked, wrapped};
use crate::kernels::Kernels;

/// Sets each entry to zero with probability `p` above zero and divides the others by `1 - p`.
pub fn dropout<B: Backend, const D: usize>(x: &Tensor<B, D>, p: f64) -> Option<Tensor<B, D>> {
    first!(dropout_on::<B, D>(x, p))
}

/// `residual + dropout(x)`, both of one shape; `None` where `p` is zero, too.
pub fn dropout_and_add<B: Backend, const D: usize>(
    residual: &Tensor<B, D>,
    x: &Tensor<B, D>,
    p: f64,
) -> Option<Tensor<B, D>> {
    if p == 0.0 {
        return None;
    }
    first!(dropout_and_add_on::<B, D>(residual, x, p))
}

fn dropout_on<B: Backend, I: Kernels, const D: usize>(
    x: &Tensor<B, D>,
    p: f64,
) -> Option<Tensor<B, D>> {
    let x = tracked::<B, I, D>(x)?;
    let (output, dropped) = I::dropout(&x.primitive, None, p);
    Some(wrapped(record(Dropout, [&x], output, (dropped, p))))
}

fn dropout_and_add_on<B: Backend, I: Kernels, const D: usize>(
    residual: &Tensor<B, D>,
    x: &Tensor<B, D>,
    p: f64,
) -> Option<Tensor<B, D>> {
    let (residual, x) = (tracked::<B, I, D>(residual)?, tracked::<B, I, D>(x)?);
    let (output, dropped) = I::dropout(&x.primitive, Some(&residual.primitive), p);
    let parents = [&residual, &x];
    Some(wrapped(record(
        DropoutAndAdd,
        parents,
        output,
        (dropped, p),
    )))
}

#[derive(Debug)]
struct Dropout;

#[derive(Debug)]
struct DropoutAndAdd;

impl<I: Kernels> Backward<I, 1> for Dropout {
    type State = (I::Dropped, f64);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 1>(ops, grads, |grad, (dropped, p)| {
            [I::dropout_backward(&grad, &dropped, p)]
        });
    }
}

impl<I: Kernels> Backward<I, 2> for DropoutAndAdd {
    type State = (I::Dropped, f64);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 2>(ops, grads, |grad, (dropped, p)| {
            let x = I::dropout_backward(&grad, &dropped, p);
            [grad, x]
        });
    }
}
