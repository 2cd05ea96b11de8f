//! The precision of matrix multiplications.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use transformer_cpu::ProductPrecision;

use crate::autodiff::{first, is_over};
use crate::kernels::Kernels;

/// Whether the backend supports matrix multiplication in this precision when gradients are computed; if not, it
/// uses f32.
///
/// ```
/// use burn_autodiff::Autodiff;
/// use burn_ndarray::NdArray;
/// use transformer_kernels::{ProductPrecision, multiplies_in};
///
/// // With the features `ndarray`, `flex` and `tch`, those backends support bf16; wgpu does not.
/// let has_kernels = cfg!(feature = "ndarray");
/// assert_eq!(multiplies_in::<Autodiff<NdArray>>(ProductPrecision::Bf16), has_kernels);
/// assert!(multiplies_in::<Autodiff<NdArray>>(ProductPrecision::F32));
/// ```
pub fn multiplies_in<B: Backend>(precision: ProductPrecision) -> bool {
    let has_bf16: Option<bool> = first!(multiplies_in_bf16::<B>());
    precision == ProductPrecision::F32 || has_bf16.unwrap_or(false)
}

/// Whether `B` supports bf16 matrix multiplication, if it computes gradients over `I`.
fn multiplies_in_bf16<B: Backend, I: Kernels>() -> Option<bool> {
    is_over::<B, I>().then_some(I::BF16_LINEAR)
}

/// A tensor as an operand of matrix multiplication in this precision.
pub fn factor<I: Kernels>(tensor: &FloatTensor<I>, precision: ProductPrecision) -> FloatTensor<I> {
    match precision {
        ProductPrecision::F32 => tensor.clone(),
        ProductPrecision::Bf16 => I::bf16_factor(tensor),
    }
}
