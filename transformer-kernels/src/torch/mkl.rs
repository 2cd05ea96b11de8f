//! Intel's MKL, by which libtorch computes exponentials, square roots, error functions and the like on a CPU.

use std::sync::Once;

use tch::{Device, Kind, Tensor};

static STARTED: Once = Once::new();

/// Has MKL find out which instructions the processor has, on this thread, before the first kernel.
///
/// MKL does so in the process's first call of any of these functions, without a lock: for a moment, the number that it
/// keeps is one that stands for other kernels. If two threads compute parts of a tensor in that call, as libtorch's do
/// from 2048 numbers on, one of them may then use the functions of low precision, whose errors reach 5e-4
/// (PyTorch's issue 188792; MKL 2024.2, which libtorch 2.9 contains).
pub fn start() {
    STARTED.call_once(|| {
        let _ = Tensor::zeros([1], (Kind::Float, Device::Cpu)).exp();
    });
}

#[cfg(test)]
mod tests {
    use burn::tensor::ops::FloatTensor;
    use burn_tch::{LibTorch, TchTensor};

    use super::*;
    use crate::kernels::Kernels;

    #[test]
    fn mkl_has_started_before_the_first_kernel() {
        let tensor: FloatTensor<LibTorch> =
            TchTensor::new(Tensor::zeros([1], (Kind::Float, Device::Cpu)));
        assert!(LibTorch::accepts(&tensor));
        assert!(STARTED.is_completed());
    }
}
