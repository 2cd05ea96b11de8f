//! Checks of tensor sizes.

use burn::tensor::backend::Backend;
use burn::tensor::{Shape, Tensor, TensorPrimitive};

/// Reshapes a tensor. Dimensions of the new shape may be zero, which Burn's own `reshape` interprets as "keep this
/// dimension".
pub fn reshaped<B: Backend, const D: usize, const D2: usize>(
    x: Tensor<B, D>,
    shape: [usize; D2],
) -> Tensor<B, D2> {
    let primitive = x.into_primitive().tensor();
    let primitive = B::float_reshape(primitive, Shape::from(shape));
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// Describes a tensor in a message: `bias [3] of F32`.
pub fn described<B: Backend, const D: usize>(name: &str, tensor: &Tensor<B, D>) -> String {
    format!("{name} {:?} of {:?}", tensor.dims(), tensor.dtype())
}

/// Panics unless a vector, such as a bias, has length `len` and the type of the tensor that it belongs to.
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

/// Panics unless two tensors have the same shape and type.
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
        "dropout probability {p} is not in [0, 1)"
    );
}
