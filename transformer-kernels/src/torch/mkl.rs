//! Intel MKL, with which libtorch computes exponentials, square roots, error functions and the like on a CPU.

use std::sync::Once;

use tch::{Device, Kind, Tensor};

static STARTED: Once = Once::new();

/// Makes MKL detect the processor's instructions on this thread, before the first kernel.
///
/// MKL does so in the process's first call of any of these functions, and stores the result in a variable without
/// a lock: first an intermediate number, then the final one. If two threads make that call at the same time, as
/// libtorch's do for more than 2048 values, one of them may mistake the intermediate number for the final one, and
/// so select functions of low precision: its results have relative errors of up to 5e-4 (PyTorch's issue 188792;
/// MKL 2024.2, which libtorch 2.9 contains). All functions read the same variable, so one call is enough.
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

    /// Also for values of a type without kernels, which libtorch computes with MKL, too.
    #[test]
    fn mkl_has_started_when_a_kernel_is_looked_for() {
        let device = Default::default();
        let tensor = BurnTensor::<LibTorch, 1>::zeros([1], (&device, DType::F64));
        assert!(plain::<LibTorch, LibTorch, 1>(&tensor).is_none());
        assert!(STARTED.is_completed());
    }
}
