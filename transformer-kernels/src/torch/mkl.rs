//! Intel's MKL, by which libtorch computes exponentials, square roots, error functions and the like on a CPU.

use std::sync::Once;

use tch::{Device, Kind, Tensor};

static STARTED: Once = Once::new();

/// Has MKL find out which instructions the processor has, on this thread, before the first kernel.
///
/// MKL does so in the process's first call of any of these functions, and keeps the answer in a variable without a
/// lock: first a number, and then the one that this number stands for. If two threads are in that call at a time, as
/// libtorch's are for more than 2048 numbers, one of them may read the first number and take it for the second, which
/// gives it functions of low precision: its results have relative errors of up to 5e-4 (PyTorch's issue 188792;
/// MKL 2024.2, which libtorch 2.9 contains). All functions read the same variable, so that one call is enough.
pub fn start() {
    STARTED.call_once(|| {
        let _ = Tensor::zeros([1], (Kind::Float, Device::Cpu)).exp();
    });
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Tensor as BurnTensor};
    use burn_tch::LibTorch;

    use super::*;
    use crate::autodiff::plain;

    /// Also for numbers of a type without kernels, which libtorch computes with MKL, too.
    #[test]
    fn mkl_has_started_when_a_kernel_is_looked_for() {
        let device = Default::default();
        let tensor = BurnTensor::<LibTorch, 1>::zeros([1], (&device, DType::F64));
        assert!(plain::<LibTorch, LibTorch, 1>(&tensor).is_none());
        assert!(STARTED.is_completed());
    }
}
