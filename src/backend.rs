//! Backends are compiled in by Cargo features and chosen by name when a program starts.

use burn::tensor::backend::Backend;
use clap::ValueEnum;

/// A backend that is compiled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendChoice {
    /// CPU, by the ndarray crate.
    #[cfg(feature = "ndarray")]
    Ndarray,
    /// CPU, Burn's own.
    #[cfg(feature = "flex")]
    Flex,
    /// GPU, by WebGPU or Vulkan.
    #[cfg(feature = "wgpu")]
    Wgpu,
    /// CPU, by libtorch.
    #[cfg(feature = "tch")]
    Tch,
}

#[cfg(not(any(
    feature = "ndarray",
    feature = "flex",
    feature = "wgpu",
    feature = "tch"
)))]
compile_error!("choose a backend: --features ndarray, flex, wgpu or tch");

impl Default for BackendChoice {
    /// The last of ndarray, flex, wgpu and tch that is compiled in.
    fn default() -> Self {
        *Self::value_variants()
            .last()
            .expect("at least one backend is compiled in")
    }
}

impl std::fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.to_possible_value();
        f.write_str(name.as_ref().map_or("", |name| name.get_name()))
    }
}

/// A program that runs on any backend.
pub trait BackendTask {
    /// What it gives back.
    type Output;

    /// Runs on the backend `B`.
    fn run<B: Backend>(self, device: B::Device) -> Self::Output;
}

/// Runs a program on the backend of that name, on its default device.
pub fn run_on<T: BackendTask>(backend: BackendChoice, task: T) -> T::Output {
    match backend {
        #[cfg(feature = "ndarray")]
        BackendChoice::Ndarray => start::<burn_ndarray::NdArray, T>(task),
        #[cfg(feature = "flex")]
        BackendChoice::Flex => start::<burn_flex::Flex, T>(task),
        #[cfg(feature = "wgpu")]
        BackendChoice::Wgpu => start::<burn_wgpu::Wgpu, T>(task),
        #[cfg(feature = "tch")]
        BackendChoice::Tch => start::<burn_tch::LibTorch, T>(task),
    }
}

fn start<B: Backend, T: BackendTask>(task: T) -> T::Output {
    let device = B::Device::default();
    eprintln!("backend: {} on {device:?}", B::name(&device));
    task.run::<B>(device)
}
