//! The precision of products.

use std::any::TypeId;
use std::fmt;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use serde::{Deserialize, Serialize};

use crate::autodiff::{Tracked, first};
use crate::kernels::Kernels;

/// The precision of products where gradients are taken, forward and backward: of linear maps, and on libtorch also
/// of attention (`Q Kᵀ`, and weights times values), except where attention is computed in tiles.
///
/// Everything else is in f32 in either case: parameters and gradients, inputs and outputs of operations, biases,
/// softmax and norms. Where no gradients are taken, products are in f32, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProductPrecision {
    /// f32.
    #[default]
    F32,
    /// Both factors are rounded to bf16: the range of f32 with 8 bits of precision, so that each is off by 1/256
    /// of itself at most. Sums are in f32; libtorch rounds them to bf16 once, when they are complete.
    Bf16,
}

impl ProductPrecision {
    /// Whether the backend has products in this precision where gradients are taken; else they are in f32.
    ///
    /// ```
    /// use burn_autodiff::Autodiff;
    /// use burn_ndarray::NdArray;
    /// use transformer_kernels::ProductPrecision;
    ///
    /// // With the features `ndarray`, `flex` and `tch`, those backends have them; wgpu does not.
    /// let has_kernels = cfg!(feature = "ndarray");
    /// assert_eq!(ProductPrecision::Bf16.is_computed_by::<Autodiff<NdArray>>(), has_kernels);
    /// assert!(ProductPrecision::F32.is_computed_by::<Autodiff<NdArray>>());
    /// ```
    pub fn is_computed_by<B: Backend>(self) -> bool {
        let has_bf16: Option<bool> = match self {
            Self::F32 => Some(true),
            Self::Bf16 => first!(multiplies_in_bf16::<B>()),
        };
        has_bf16.unwrap_or(false)
    }

    /// A tensor as a factor of products in this precision.
    pub(crate) fn factor<I: Kernels>(self, tensor: &FloatTensor<I>) -> FloatTensor<I> {
        match self {
            Self::F32 => tensor.clone(),
            Self::Bf16 => I::bf16_factor(tensor),
        }
    }
}

impl fmt::Display for ProductPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

/// Whether `B` has products in bf16, if it takes gradients over `I`.
fn multiplies_in_bf16<B: Backend, I: Kernels>() -> Option<bool> {
    let is_over = TypeId::of::<FloatTensor<B>>() == TypeId::of::<Tracked<I>>();
    is_over.then_some(I::BF16_LINEAR)
}
