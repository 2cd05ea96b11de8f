//! Sizes of tensors, and whether they agree.

use burn::tensor::backend::Backend;
use burn::tensor::{Shape, Tensor, TensorPrimitive};

/// How many numbers a tensor of this shape has.
///
/// # Panics
/// When the tensor is larger than memory can hold.
pub fn count(shape: &[usize]) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    let product = shape
        .iter()
        .try_fold(1_usize, |all, &size| all.checked_mul(size));
    product.unwrap_or_else(|| panic!("{shape:?} are more numbers than memory can hold"))
}

/// Panics unless the numbers fill whole rows; rows of width zero have no numbers.
pub fn check_rows(numbers: usize, width: usize) {
    assert!(
        numbers.is_multiple_of(width),
        "{numbers} numbers are not whole rows of {width}"
    );
}

/// Reshapes a tensor; sizes of the new shape may be zero, which Burn's own `reshape` reads as "keep the
/// size of this dimension".
pub fn reshaped<B: Backend, const D: usize, const D2: usize>(
    x: Tensor<B, D>,
    shape: [usize; D2],
) -> Tensor<B, D2> {
    let primitive = x.into_primitive().tensor();
    let primitive = B::float_reshape(primitive, Shape::from(shape));
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// A tensor in words, for messages: `bias [3] of F32`.
pub fn described<B: Backend, const D: usize>(name: &str, tensor: &Tensor<B, D>) -> String {
    format!("{name} {:?} of {:?}", tensor.dims(), tensor.dtype())
}

/// Panics unless a vector, such as a bias, has the length `len` and the type of the tensor that it goes with.
pub fn check_vector<B: Backend, const D: usize>(
    [name, other_name]: [&str; 2],
    vector: &Tensor<B, 1>,
    len: usize,
    other: &Tensor<B, D>,
) {
    assert!(
        vector.dims() == [len] && vector.dtype() == other.dtype(),
        "{} for {}",
        described(name, vector),
        described(other_name, other)
    );
}

/// Panics unless two tensors have the same shape and type of numbers.
pub fn check_alike<B: Backend, const D: usize>(
    [name, other_name]: [&str; 2],
    tensor: &Tensor<B, D>,
    other: &Tensor<B, D>,
) {
    assert!(
        tensor.dims() == other.dims() && tensor.dtype() == other.dtype(),
        "{} for {}",
        described(name, tensor),
        described(other_name, other)
    );
}

/// Panics unless `p` is in [0, 1).
pub fn check_probability(p: f64) {
    assert!(
        (0.0..1.0).contains(&p),
        "dropout with probability {p}, which is not in [0, 1)"
    );
}
