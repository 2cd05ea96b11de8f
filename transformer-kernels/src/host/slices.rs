//! Tensors as slices, and back.

use std::borrow::Cow;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{BoolTensor, FloatTensor};
use burn::tensor::{Shape, TensorData, TensorMetadata, try_read_sync};

/// A backend whose tensors can be read as slices.
pub trait Slices: Backend {
    /// The values of an `f32` tensor, if it is contiguous.
    fn slice(tensor: &FloatTensor<Self>) -> Option<&[f32]>;
}

#[cfg(feature = "flex")]
impl Slices for burn_flex::Flex {
    fn slice(tensor: &FloatTensor<Self>) -> Option<&[f32]> {
        tensor.as_slice()
    }
}

#[cfg(feature = "ndarray")]
impl Slices for burn_ndarray::NdArray {
    fn slice(tensor: &FloatTensor<Self>) -> Option<&[f32]> {
        match tensor {
            burn_ndarray::NdArrayTensor::F32(storage) => storage.view().to_slice(),
            _ => None,
        }
    }
}

/// The values in order, copied if the tensor is not contiguous.
pub fn read<I: Slices>(tensor: &FloatTensor<I>) -> Cow<'_, [f32]> {
    match I::slice(tensor) {
        Some(values) => Cow::Borrowed(values),
        None => Cow::Owned(into_vec::<I>(tensor.clone())),
    }
}

pub fn into_vec<I: Slices>(tensor: FloatTensor<I>) -> Vec<f32> {
    let data = try_read_sync(I::float_into_data(tensor)).expect("the tensor is in memory");
    data.expect("nothing can fail").into_vec().expect("f32")
}

/// A tensor on the same device as another.
pub fn tensor<I: Slices>(
    values: Vec<f32>,
    shape: impl Into<Shape>,
    beside: &FloatTensor<I>,
) -> FloatTensor<I> {
    let data = TensorData::new(values, shape);
    I::float_from_data(data, &I::float_device(beside))
}

pub fn booleans<I: Slices>(tensor: &BoolTensor<I>) -> Vec<bool> {
    let data = try_read_sync(I::bool_into_data(tensor.clone())).expect("the tensor is in memory");
    data.expect("nothing can fail").iter::<bool>().collect()
}

pub fn dims<I: Slices, const D: usize>(tensor: &FloatTensor<I>) -> [usize; D] {
    tensor.shape().dims()
}
