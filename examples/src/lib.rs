//! Parts shared by the examples: the backend that they run on, and the error that they end with.

#[doc(hidden)]
pub mod instances;

use std::error::Error;
use std::fmt;

use transformer_core::backend;

/// The last of ndarray, flex, wgpu and tch that is compiled in: `cargo run --release --example copy_task
/// --features wgpu`.
#[cfg(feature = "tch")]
pub type Backend = backend::LibTorch;

/// The last of ndarray, flex, wgpu and tch that is compiled in.
#[cfg(all(feature = "wgpu", not(feature = "tch")))]
pub type Backend = backend::Wgpu;

/// The last of ndarray, flex, wgpu and tch that is compiled in.
#[cfg(all(feature = "flex", not(any(feature = "wgpu", feature = "tch"))))]
pub type Backend = backend::Flex;

/// The last of ndarray, flex, wgpu and tch that is compiled in.
#[cfg(all(feature = "ndarray", not(any(feature = "flex", feature = "wgpu", feature = "tch"))))]
pub type Backend = backend::NdArray;

#[cfg(not(any(feature = "ndarray", feature = "flex", feature = "wgpu", feature = "tch")))]
compile_error!("choose a backend: --features ndarray, flex, wgpu or tch");

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
