//! The precision of matrix multiplications.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor};
use transformer_cpu::ProductPrecision;

use crate::autodiff::{first, is_over};
use crate::kernels::Kernels;

/// Whether the backend supports matrix multiplication in this precision on that device when gradients are computed;
/// if not, it uses f32.
///
/// On a backend without kernels, such as wgpu and cuda, the product is rounded, too.
///
/// ```
/// use burn_autodiff::Autodiff;
/// use burn_ndarray::NdArray;
/// use transformer_kernels::{ProductPrecision, multiplies_in};
///
/// // The features `ndarray`, `flex` and `tch` add bf16 to those backends. On wgpu and cuda, it depends on the GPU.
/// let has_kernels = cfg!(feature = "ndarray");
/// let device = Default::default();
/// assert_eq!(multiplies_in::<Autodiff<NdArray>>(ProductPrecision::Bf16, &device), has_kernels);
/// assert!(multiplies_in::<Autodiff<NdArray>>(ProductPrecision::F32, &device));
/// ```
pub fn multiplies_in<B: Backend>(precision: ProductPrecision, device: &B::Device) -> bool {
    let of_kernels: Option<bool> = first!(multiplies_in_bf16::<B>());
    let has_bf16 = || of_kernels.unwrap_or_else(|| B::supports_dtype(device, DType::BF16));
    precision == ProductPrecision::F32 || has_bf16()
}

/// `a b`, composed of Burn's operations. The precision has an effect where gradients are computed.
pub fn product<B: Backend, const D: usize>(
    a: Tensor<B, D>,
    b: Tensor<B, D>,
    precision: ProductPrecision,
) -> Tensor<B, D> {
    let device = a.device();
    let is_bf16 = precision == ProductPrecision::Bf16
        && a.dtype() == DType::F32
        && B::ad_enabled(&device)
        && B::supports_dtype(&device, DType::BF16);
    match is_bf16 {
        true => a
            .cast(DType::BF16)
            .matmul(b.cast(DType::BF16))
            .cast(DType::F32),
        false => a.matmul(b),
    }
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

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::tensor::{Distribution, TensorData, bf16};
    use burn_autodiff::Autodiff;
    use burn_flex::Flex;

    use super::*;

    type B = Autodiff<Flex>;

    fn rounded(data: &TensorData) -> TensorData {
        data.clone().convert::<bf16>().convert::<f32>()
    }

    /// Factors and products are rounded in both passes; a rounding is by 1/256 at most.
    #[test]
    fn a_composed_product_in_bf16_is_that_of_rounded_factors() {
        let device = Default::default();
        let [a, b, grad] = [[3, 8], [8, 5], [3, 5]].map(|shape| {
            let random = Tensor::<Flex, 2>::random(shape, Distribution::Normal(0.0, 1.0), &device);
            random.into_data()
        });
        let parameter =
            |data: &TensorData| Tensor::<B, 2>::from_data(data.clone(), &device).require_grad();
        let constant = |data: &TensorData| Tensor::<B, 2>::from_data(rounded(data), &device);
        let (left, right) = (parameter(&a), parameter(&b));
        let found = product(left.clone(), right.clone(), ProductPrecision::Bf16);
        assert_eq!(found.dtype(), DType::F32);
        let mut grads = (found.clone() * constant(&grad)).sum().backward();
        let expected = [
            (found.inner(), constant(&a).matmul(constant(&b))),
            (
                left.grad_remove(&mut grads).unwrap(),
                constant(&grad).matmul(constant(&b).transpose()),
            ),
            (
                right.grad_remove(&mut grads).unwrap(),
                constant(&a).transpose().matmul(constant(&grad)),
            ),
        ];
        for (found, expected) in expected {
            let error = (found - expected.clone().inner()).abs().max().into_scalar();
            let largest = expected.abs().max().into_scalar();
            assert!(error > 0.0, "the product is rounded");
            assert!(error <= largest / 256.0, "{error} of {largest}");
        }
    }

    #[test]
    fn without_gradients_a_composed_product_is_in_f32() {
        let device = Default::default();
        let a = Tensor::<Flex, 2>::from_data([[1.0 + 1.0 / 1024.0]], &device);
        let found = product(a.clone(), a.clone(), ProductPrecision::Bf16);
        assert_eq!(found.into_data(), a.clone().matmul(a).into_data());
    }
}
