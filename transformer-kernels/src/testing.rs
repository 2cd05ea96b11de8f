//! Parts shared by the tests of all operations.
//!
//! Kernels are compared with reference implementations in double precision, on each backend that has kernels:
//! `cargo test -p transformer-kernels --features flex,ndarray,tch`.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Element, Tensor, TensorData};
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;

use crate::autodiff::prepare;

/// A backend in double precision, which has no kernels.
pub type Reference = Autodiff<NdArray<f64>>;

/// Distinct values between -1 and 1 that single precision represents exactly.
pub fn numbers(seed: usize, count: usize) -> Vec<f64> {
    (0..count)
        .map(|i| ((i * 7919 + seed * 104_729) % 65_537) as f32 / 32_768.5 - 1.0)
        .map(f64::from)
        .collect()
}

/// A tensor of such values, with gradients.
pub fn tensor<B: AutodiffBackend, const D: usize>(seed: usize, shape: [usize; D]) -> Tensor<B, D> {
    plain(seed, shape).require_grad()
}

/// A tensor of such values, of the backend's element type.
///
/// The type is explicit: Burn's default type is the one first used on a device, by any backend, and so depends on
/// the test that runs first.
pub fn plain<B: Backend, const D: usize>(seed: usize, shape: [usize; D]) -> Tensor<B, D> {
    SINGLE_PRECISION.call_once(|| {
        Tensor::<NdArray, 1>::zeros([1], &Default::default());
    });
    let data = TensorData::new(numbers(seed, shape.iter().product()), shape);
    let dtype = <B::FloatElem as Element>::dtype();
    let tensor = Tensor::from_data(data.convert::<B::FloatElem>(), (&Default::default(), dtype));
    // Some tests begin with Burn operations.
    prepare::<B>();
    tensor
}

/// Guards setting single precision as ndarray's default type.
static SINGLE_PRECISION: Once = Once::new();

pub fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// An input of an operation, whose gradient is compared.
pub enum Input<B: Backend> {
    One(Tensor<B, 1>),
    Two(Tensor<B, 2>),
    Three(Tensor<B, 3>),
    Four(Tensor<B, 4>),
}

impl<B: AutodiffBackend> Input<B> {
    /// Its gradient; `None` if there is none.
    pub fn gradient(&self, grads: &B::Gradients) -> Option<Vec<f64>> {
        match self {
            Self::One(x) => x.grad(grads).map(values),
            Self::Two(x) => x.grad(grads).map(values),
            Self::Three(x) => x.grad(grads).map(values),
            Self::Four(x) => x.grad(grads).map(values),
        }
    }
}

/// The gradients of the inputs, given assorted values as the output's gradient.
pub fn gradients<B: AutodiffBackend, const D: usize>(output: Tensor<B, D>) -> B::Gradients {
    let weights = tensor::<B, D>(99, output.dims()).detach();
    (output * weights).sum().backward()
}

/// The output, and the gradient of each input.
pub fn outcome<B: AutodiffBackend, const D: usize>(
    output: Tensor<B, D>,
    inputs: &[Input<B>],
) -> Vec<Vec<f64>> {
    let mut all = vec![values(output.clone())];
    let grads = gradients(output);
    all.extend(
        inputs
            .iter()
            .map(|input| input.gradient(&grads).expect("a gradient")),
    );
    all
}

/// Equal within the error of single-precision sums of a few hundred values.
pub fn assert_close(case: &str, found: &[Vec<f64>], expected: &[Vec<f64>]) {
    assert_eq!(found.len(), expected.len());
    for (part, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{case}, part {part}");
        let largest = expected.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
        for (index, (f, e)) in found.iter().zip(expected).enumerate() {
            let error = (f - e).abs() / largest;
            // NaN fails, too.
            assert!(
                error < 3e-6,
                "{case}, part {part}, index {index}: {f} for {e}"
            );
        }
    }
}

/// A lock on the backends' generators, which the whole process shares: held by tests that seed them or draw from
/// them.
pub fn generator() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test on every backend with kernels, or `on slices` on those that use our own kernels.
macro_rules! on_each {
    ($test:ident on slices) => {
        mod $test {
            #[cfg(feature = "flex")]
            #[test]
            fn flex() {
                super::$test::<burn_flex::Flex>();
            }
            #[cfg(feature = "ndarray")]
            #[test]
            fn ndarray() {
                super::$test::<burn_ndarray::NdArray>();
            }
        }
    };
    ($test:ident) => {
        mod $test {
            #[cfg(feature = "flex")]
            #[test]
            fn flex() {
                super::$test::<burn_flex::Flex>();
            }
            #[cfg(feature = "ndarray")]
            #[test]
            fn ndarray() {
                super::$test::<burn_ndarray::NdArray>();
            }
            #[cfg(feature = "tch")]
            #[test]
            fn libtorch() {
                super::$test::<burn_tch::LibTorch>();
            }
        }
    };
}
pub(crate) use on_each;
