//! libtorch's values as slices.

use burn::tensor::ops::FloatTensor;
use burn_tch::LibTorch;
use tch::{Device, Kind, Tensor};

use crate::host::slices::Slices;

impl Slices for LibTorch {
    fn slice(tensor: &FloatTensor<Self>) -> Option<&[f32]> {
        values(&tensor.tensor)
    }
}

/// The values of an `f32` tensor, if it is contiguous and on the CPU. They must not be changed meanwhile.
pub fn values(tensor: &Tensor) -> Option<&[f32]> {
    let can_read = tensor.is_contiguous() && tensor.device() == Device::Cpu;
    (can_read && tensor.kind() == Kind::Float).then(|| {
        let (first, count) = numbers(tensor);
        #[allow(unsafe_code, reason = "libtorch's values as a slice")]
        // SAFETY: the tensor is contiguous, of this type and length, and keeps its memory while it is borrowed. It is
        // an input, the mask or the kept state of attention, the gradient of its output, or Adam's gradient, which
        // nothing changes in place meanwhile.
        unsafe {
            std::slice::from_raw_parts(first, count)
        }
    })
}

/// The values of a tensor on the CPU. Nothing else may use their memory meanwhile: the callers have just computed
/// or copied the tensor, or found that it is not held elsewhere.
pub fn values_mut(tensor: &mut Tensor) -> &mut [f32] {
    assert!(tensor.kind() == Kind::Float && tensor.device() == Device::Cpu);
    *tensor = tensor.contiguous();
    let (first, count) = numbers(tensor);
    #[allow(unsafe_code, reason = "libtorch's values as a slice")]
    // SAFETY: the tensor is contiguous, of this type and length, and keeps its memory while it is borrowed mutably. No
    // other tensor that shares it is used meanwhile.
    unsafe {
        std::slice::from_raw_parts_mut(first, count)
    }
}

/// The address and number of the values of a tensor on the CPU.
fn numbers(tensor: &Tensor) -> (*mut f32, usize) {
    let count = tensor.numel();
    if count == 0 {
        return (std::ptr::NonNull::dangling().as_ptr(), 0);
    }
    let first: *mut f32 = tensor.data_ptr().cast();
    assert!(!first.is_null() && first.is_aligned(), "aligned values");
    (first, count)
}

#[cfg(test)]
mod tests {
    use burn_tch::TchTensor;

    use super::*;

    #[test]
    fn only_contiguous_numbers_of_f32_are_a_slice() {
        let counted = Tensor::arange(6, (Kind::Float, Device::Cpu)).reshape([2, 3]);
        let slice =
            |tensor: Tensor| LibTorch::<f32>::slice(&TchTensor::new(tensor)).map(<[f32]>::to_vec);
        assert_eq!(slice(counted.narrow(0, 1, 1)), Some(vec![3.0, 4.0, 5.0]));
        assert_eq!(slice(counted.narrow(0, 2, 0)), Some(vec![]));
        assert_eq!(slice(counted.transpose(0, 1)), None);
        assert_eq!(slice(counted.narrow(1, 1, 2)), None);
        assert_eq!(slice(counted.to_kind(Kind::BFloat16)), None);
    }
}
