//! Dropout, alone and with a residual connection.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Distribution, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use transformer_cpu::Keep;

use crate::autodiff::{first, operand, pass_back, record};
use crate::kernels::Kernels;
use crate::sizes::{check_alike, check_probability};

/// Sets each entry to zero with probability `p` in [0, 1) and divides the others by `1 - p` (§5.4).
///
/// # Shapes
/// - x and output: the same shape
///
/// # Panics
/// When `p` is not in [0, 1).
pub fn dropout<B: Backend, const D: usize>(x: Tensor<B, D>, p: f64) -> Tensor<B, D> {
    check_probability(p);
    if p == 0.0 {
        return x;
    }
    first!(fused_dropout::<B, D>(&x, p)).unwrap_or_else(|| composed(x, p))
}

/// `residual + dropout(x)`: adds a sub-layer's output to its residual connection (§3.1, §5.4).
///
/// # Shapes
/// - residual, x and output: the same shape
///
/// # Panics
/// When the shapes or types differ, or `p` is not in [0, 1).
pub fn add_dropout<B: Backend, const D: usize>(
    residual: Tensor<B, D>,
    x: Tensor<B, D>,
    p: f64,
) -> Tensor<B, D> {
    check_probability(p);
    check_alike(["x", "residual"], &x, &residual);
    if p == 0.0 {
        return residual + x;
    }
    first!(fused_add_dropout::<B, D>(&residual, &x, p)).unwrap_or_else(|| residual + composed(x, p))
}

/// The reference implementation of [`dropout`].
fn composed<B: Backend, const D: usize>(x: Tensor<B, D>, p: f64) -> Tensor<B, D> {
    let keep = 1.0 - p;
    // Dividing the mask, through which no gradient flows, saves a pass in each direction.
    let mask = x.random_like(Distribution::Bernoulli(keep)) / keep;
    x * mask
}

fn fused_dropout<B: Backend, I: Kernels, const D: usize>(
    x: &Tensor<B, D>,
    p: f64,
) -> Option<Tensor<B, D>> {
    let x = operand::<B, I, D>(x)?;
    let (output, dropped) = I::dropout(&x.primitive, None, p);
    Some(record(Dropout, [&x], output, (dropped, p)))
}

fn fused_add_dropout<B: Backend, I: Kernels, const D: usize>(
    residual: &Tensor<B, D>,
    x: &Tensor<B, D>,
    p: f64,
) -> Option<Tensor<B, D>> {
    let (residual, x) = (operand::<B, I, D>(residual)?, operand::<B, I, D>(x)?);
    let (output, dropped) = I::dropout(&x.primitive, Some(&residual.primitive), p);
    Some(record(AddDropout, [&residual, &x], output, (dropped, p)))
}

/// Draws the entries to drop with probability `p`; `None` if it is zero. The seed of the hash comes from the
/// backend's generator, so that seeding the generator fixes the entries.
pub fn draw<I: Backend>(p: f64, device: &I::Device) -> Option<Keep> {
    if p == 0.0 {
        return None;
    }
    // Not of the backend's type: f16 ends at 65 504.
    let of_16_bits = Distribution::Uniform(0.0, 65_536.0);
    let parts = Tensor::<I, 1>::random([3], of_16_bits, (device, DType::F32));
    let seed = parts
        .into_data()
        .iter::<f32>()
        .fold(0, |seed, part| seed << 16 | u64::from(part as u16));
    Some(Keep::new(p, seed))
}

#[derive(Debug)]
struct Dropout;

#[derive(Debug)]
struct AddDropout;

impl<I: Kernels> Backward<I, 1> for Dropout {
    type State = (I::Dropped, f64);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 1>(ops, grads, |grad, (dropped, p), _| {
            [Some(I::dropout_backward(&grad, &dropped, p))]
        });
    }
}

impl<I: Kernels> Backward<I, 2> for AddDropout {
    type State = (I::Dropped, f64);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        pass_back::<I, _, 2>(ops, grads, |grad, (dropped, p), [_, x_wanted]| {
            let x = x_wanted.then(|| I::dropout_backward(&grad, &dropped, p));
            [Some(grad), x]
        });
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::backend::AutodiffBackend;
    use burn_autodiff::Autodiff;

    use super::*;
    use crate::testing::{Reference, generator, on_each, plain as numbers, tensor, values};

    on_each!(kernel_keeps_the_stated_share);

    fn kernel_keeps_the_stated_share<I: Kernels>() {
        keeps_the_stated_share::<Autodiff<I>>(
            |x, p| fused_dropout::<_, I, 2>(&x, p).expect("a kernel"),
            |residual, x, p| fused_add_dropout::<_, I, 2>(&residual, &x, p).expect("a kernel"),
        );
    }

    #[test]
    fn composition_keeps_the_stated_share() {
        keeps_the_stated_share::<Reference>(composed, |residual, x, p| residual + composed(x, p));
    }

    fn keeps_the_stated_share<B: AutodiffBackend>(
        dropout: impl FnOnce(Tensor<B, 2>, f64) -> Tensor<B, 2>,
        add_dropout: impl FnOnce(Tensor<B, 2>, Tensor<B, 2>, f64) -> Tensor<B, 2>,
    ) {
        let _held = generator();
        let shape = [200, 300];
        let x = numbers::<B, 2>(1, shape) * 0.0 + 1.0;
        let x = x.require_grad();
        let residual = tensor::<B, 2>(1, shape);
        let kept = dropout(x.clone(), 0.1);
        let grad = x.grad(&kept.clone().sum().backward()).expect("a gradient");
        let kept = values(kept);
        assert_eq!(values(grad), kept, "entries kept forward are kept backward");
        let dropped = kept.iter().filter(|x| **x == 0.0).count();
        assert!(dropped.abs_diff(6000) < 450, "{dropped} of 60000");
        assert!(
            kept.iter()
                .all(|x| *x == 0.0 || (x - 1.0 / 0.9).abs() < 1e-6)
        );

        let sum = add_dropout(residual.clone(), x.clone(), 0.1);
        let grads = sum.clone().sum().backward();
        let ones = vec![1.0; 60_000];
        assert_eq!(values(residual.grad(&grads).expect("a gradient")), ones);
        let kept = values(x.grad(&grads).expect("a gradient"));
        let entries = values(sum).into_iter().zip(values(residual)).zip(&kept);
        for ((sum, residual), kept) in entries {
            assert!((sum - residual - kept).abs() < 1e-6);
        }
        assert!(kept.iter().filter(|x| **x == 0.0).count().abs_diff(6000) < 450);
    }
}
