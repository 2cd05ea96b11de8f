//! The Adam step.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use transformer_cpu::AdamStep;

use crate::autodiff::{first, plain, same, wrapped};
use crate::kernels::Kernels;
use crate::sizes::check_alike;

/// Exponential moving averages of the gradient and of its square.
#[derive(Debug, Clone)]
pub struct Moments<B: Backend, const D: usize> {
    /// Average of the gradient.
    pub first: Tensor<B, D>,
    /// Average of the squared gradient.
    pub second: Tensor<B, D>,
}

/// One step of Adam for one parameter (§5.3), by the formula of Burn's Adam. A kernel works in place if nothing
/// else holds the tensors. The moments are `None` before the parameter's first step.
///
/// The tensors belong to a backend without gradients: the inner backend of `Autodiff`.
///
/// # Shapes
/// - parameter, grad, both moments and both outputs: the same shape
///
/// # Panics
/// When the shapes or types differ.
pub fn adam<B: Backend, const D: usize>(
    parameter: Tensor<B, D>,
    grad: Tensor<B, D>,
    moments: Option<Moments<B, D>>,
    step: &AdamStep,
) -> (Tensor<B, D>, Moments<B, D>) {
    let moments = moments.unwrap_or_else(|| Moments {
        first: grad.zeros_like(),
        second: grad.zeros_like(),
    });
    check_alike(["gradient", "parameter"], &grad, &parameter);
    check_alike(["first moment", "parameter"], &moments.first, &parameter);
    check_alike(["second moment", "parameter"], &moments.second, &parameter);
    let kernel: Option<Rule<B, D>> = first!(kernel::<B, D>(&parameter));
    let rule = kernel.unwrap_or(composed);
    let given = Given {
        parameter,
        grad,
        moments,
    };
    rule(given, step)
}

/// One implementation of Adam's step.
type Rule<B, const D: usize> = fn(Given<B, D>, &AdamStep) -> (Tensor<B, D>, Moments<B, D>);

/// The tensors that a step changes, and the gradient.
struct Given<B: Backend, const D: usize> {
    parameter: Tensor<B, D>,
    grad: Tensor<B, D>,
    moments: Moments<B, D>,
}

/// The reference implementation, in the order of operations of Burn's Adam.
fn composed<B: Backend, const D: usize>(
    given: Given<B, D>,
    step: &AdamStep,
) -> (Tensor<B, D>, Moments<B, D>) {
    let Given {
        parameter,
        grad,
        moments,
    } = given;
    let decayed = |moment: Tensor<B, D>, next: Tensor<B, D>, beta: f32| {
        moment.mul_scalar(beta) + next.mul_scalar(1.0 - beta)
    };
    let first = decayed(moments.first, grad.clone(), step.beta_1);
    let second = decayed(moments.second, grad.square(), step.beta_2);
    let [correction, root] = step.corrections();
    let divisor = second.clone().sqrt().add_scalar(step.epsilon * root);
    let direction = first.clone().mul_scalar(root / correction).div(divisor);
    let parameter = parameter - direction.mul_scalar(step.learning_rate);
    (parameter, Moments { first, second })
}

/// The kernel for a parameter.
fn kernel<B: Backend, I: Kernels, const D: usize>(parameter: &Tensor<B, D>) -> Option<Rule<B, D>> {
    plain::<B, I, D>(parameter)?;
    Some(fused::<B, I, D>)
}

/// Calls the kernel that [`kernel`] has found. Nothing else in this operation holds the tensors.
fn fused<B: Backend, I: Kernels, const D: usize>(
    given: Given<B, D>,
    step: &AdamStep,
) -> (Tensor<B, D>, Moments<B, D>) {
    let Given {
        parameter,
        grad,
        moments,
    } = given;
    let [parameter, grad, first, second] = [parameter, grad, moments.first, moments.second]
        .map(|tensor| same(tensor.into_primitive().tensor()).expect("all of one backend"));
    let [parameter, first, second] = I::adam(parameter, grad, [first, second], step).map(wrapped);
    (parameter, Moments { first, second })
}

#[cfg(test)]
mod tests {
    use burn::optim::{Adam, AdamConfig, AdamState, SimpleOptimizer};
    use burn_ndarray::NdArray;

    use super::*;
    use crate::testing::{assert_close, on_each, plain as numbers, values};

    on_each!(kernel_is_burns_adam);

    const SHAPE: [usize; 2] = [300, 1000];

    fn rule() -> Adam {
        AdamConfig::new()
            .with_beta_1(0.9)
            .with_beta_2(0.98)
            .with_epsilon(1e-9)
            .build()
    }

    /// Five steps by `adam` and by Burn's Adam: parameter and moments.
    fn five_steps<B: Backend>(
        adam: impl Fn(Given<B, 2>, &AdamStep) -> (Tensor<B, 2>, Moments<B, 2>),
    ) -> [Vec<Vec<f64>>; 2] {
        let mut expected = numbers::<B, 2>(1, SHAPE);
        let mut state: Option<AdamState<B, 2>> = None;
        let mut parameter = expected.clone();
        let mut moments = Moments {
            first: expected.zeros_like(),
            second: expected.zeros_like(),
        };
        for time in 1..=5 {
            let (grad, learning_rate) = (numbers::<B, 2>(time + 1, SHAPE), 1e-3 * time as f64);
            (expected, state) = rule().step(learning_rate, expected, grad.clone(), state);
            let step = AdamStep {
                beta_1: 0.9,
                beta_2: 0.98,
                epsilon: 1e-9,
                learning_rate,
                time,
            };
            let held = moments.second.clone();
            let before = values(held.clone());
            let given = Given {
                parameter,
                grad,
                moments,
            };
            (parameter, moments) = adam(given, &step);
            assert_eq!(
                values(held),
                before,
                "tensors held elsewhere must not change"
            );
        }
        let momentum = state.expect("moments").momentum;
        [
            vec![
                values(parameter),
                values(moments.first),
                values(moments.second),
            ],
            vec![
                values(expected),
                values(momentum.moment_1),
                values(momentum.moment_2),
            ],
        ]
    }

    fn kernel_is_burns_adam<I: Kernels>() {
        let [found, expected] = five_steps::<I>(|given, step| {
            kernel::<I, I, 2>(&given.parameter).expect("a kernel")(given, step)
        });
        assert_close("parameter and moments", &found, &expected);
    }

    #[test]
    fn composition_is_burns_adam_bit_for_bit() {
        let [found, expected] = five_steps::<NdArray<f64>>(composed);
        assert!(found == expected);
        let [found, expected] = five_steps::<NdArray<f32>>(composed);
        assert!(found == expected);
    }

    #[test]
    fn the_first_step_makes_the_moments() {
        let (parameter, grad) = (numbers::<NdArray<f64>, 2>(1, SHAPE), numbers(2, SHAPE));
        let step = AdamStep {
            beta_1: 0.9,
            beta_2: 0.98,
            epsilon: 1e-9,
            learning_rate: 1e-3,
            time: 1,
        };
        let (expected, _) = rule().step(1e-3, parameter.clone(), grad.clone(), None);
        let (found, _) = adam(parameter, grad, None, &step);
        assert!(values(found) == values(expected));
    }
}
