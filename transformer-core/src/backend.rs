//! Burn's backends, each with the feature of its name, in the version and with the settings that the layers are tested
//! with. `Autodiff<B>` computes gradients on the backend `B`.
//!
//! | feature | backend | runs on |
//! |---|---|---|
//! | `flex` | `Flex` | CPU; the fastest there |
//! | `ndarray` | `NdArray` | CPU; the reference of the tests |
//! | `wgpu` | `Wgpu` | GPU by Vulkan or Metal |
//! | `tch` | `LibTorch` | CPU, NVIDIA or Apple GPU, by libtorch 2.9.0 |
//! | `cuda` | `Cuda` | NVIDIA GPU |
//!
//! A program names its backend once:
//!
#![cfg_attr(feature = "flex", doc = "```")]
#![cfg_attr(not(feature = "flex"), doc = "```ignore")]
//! use transformer_core::backend::{Autodiff, Flex};
//!
//! type Training = Autodiff<Flex>;
//! ```
//!
//! [`NamedDevice`] finds a device by a name that a user gave.
//!
//! Any other backend of Burn 0.21 works, too: all types are generic over [`Backend`](burn::tensor::backend::Backend).

mod devices;

pub use burn_autodiff::Autodiff;
#[cfg(feature = "cuda")]
pub use burn_cuda::{Cuda, CudaDevice};
#[cfg(feature = "flex")]
pub use burn_flex::{Flex, FlexDevice};
#[cfg(feature = "ndarray")]
pub use burn_ndarray::{NdArray, NdArrayDevice};
#[cfg(feature = "tch")]
pub use burn_tch::{LibTorch, LibTorchDevice};
#[cfg(feature = "wgpu")]
pub use burn_wgpu::{Wgpu, WgpuDevice};

pub use devices::{DeviceError, FoundDevice, NamedDevice};
