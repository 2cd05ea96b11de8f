//! Parts shared by the examples: the backend that they run on, and the error that they end with.

#[doc(hidden)]
pub mod instances;

use std::error::Error;
use std::fmt;

use transformer_core::backend::{self, DeviceError, NamedDevice};
use transformer_core::burn::tensor::Device;

/// The last of ndarray, flex, wgpu, tch and cuda that is compiled in: `cargo run --release --example copy_task
/// --features wgpu`.
#[cfg(feature = "cuda")]
pub type Backend = backend::Cuda;

/// The last of ndarray, flex, wgpu, tch and cuda that is compiled in.
#[cfg(all(feature = "tch", not(feature = "cuda")))]
pub type Backend = backend::LibTorch;

/// The last of ndarray, flex, wgpu, tch and cuda that is compiled in.
#[cfg(all(feature = "wgpu", not(any(feature = "tch", feature = "cuda"))))]
pub type Backend = backend::Wgpu;

/// The last of ndarray, flex, wgpu, tch and cuda that is compiled in.
#[cfg(all(feature = "flex", not(any(feature = "wgpu", feature = "tch", feature = "cuda"))))]
pub type Backend = backend::Flex;

/// The last of ndarray, flex, wgpu, tch and cuda that is compiled in.
#[cfg(all(
    feature = "ndarray",
    not(any(feature = "flex", feature = "wgpu", feature = "tch", feature = "cuda"))
))]
pub type Backend = backend::NdArray;

#[cfg(not(any(
    feature = "ndarray",
    feature = "flex",
    feature = "wgpu",
    feature = "tch",
    feature = "cuda"
)))]
compile_error!("choose a backend: --features ndarray, flex, wgpu, tch or cuda");

/// The device that the environment variable `TRANSFORMER_DEVICE` names, or the backend's default one.
pub fn device() -> Result<Device<Backend>, DeviceError> {
    NamedDevice::of_environment()
}

/// Any error, shown in one line by a `main` that returns it, with exit code 1.
pub struct Failure(Box<dyn Error>);

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
