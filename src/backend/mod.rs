//! Backends are compiled in with Cargo features, and chosen by name when a program starts.

#[cfg(feature = "tch")]
mod libtorch;
#[cfg(feature = "wgpu")]
mod vulkan;

use burn::tensor::backend::Backend;
#[cfg(feature = "tch")]
use burn::tensor::bf16;
#[cfg(any(feature = "tch", feature = "wgpu"))]
use burn::tensor::f16;
use clap::ValueEnum;
use thiserror::Error;

use crate::process::note;

/// A backend that is compiled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendChoice {
    /// CPU, with the ndarray crate.
    #[cfg(feature = "ndarray")]
    Ndarray,
    /// CPU, with Burn's own kernels.
    #[cfg(feature = "flex")]
    Flex,
    /// GPU, with Vulkan, or with Metal on macOS.
    #[cfg(feature = "wgpu")]
    Wgpu,
    /// CPU, with libtorch.
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

impl BackendChoice {
    /// Whether matrix multiplications in training can be in bf16.
    pub fn trains_in_bf16(self) -> bool {
        !self.is_one_of(&["wgpu"])
    }

    /// Whether matrix multiplications in bf16 are faster than in f32 on this processor.
    pub fn multiplies_bf16_fast(self) -> bool {
        #[cfg(feature = "tch")]
        if self == Self::Tch {
            return libtorch::multiplies_bf16_fast();
        }
        transformer_cpu::multiplies_bf16_fast()
    }

    /// Whether a training step in bf16 has a copy of the weights in bf16 in addition to the weights in f32.
    pub fn keeps_bf16_weights(self) -> bool {
        self.is_one_of(&["tch"])
    }

    /// Whether the backend decodes with packed models and multiplies 8-bit integers.
    pub fn packs(self) -> bool {
        self.is_one_of(&["ndarray", "flex"])
    }

    /// Whether the backend has one of these names. Not all variants are compiled in.
    fn is_one_of(self, names: &[&str]) -> bool {
        names.contains(&&*self.to_string())
    }
}

impl std::fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&value_name(self))
    }
}

/// The number format of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Precision {
    /// Single precision, on any backend.
    #[default]
    F32,
    /// Half precision (11-bit significand, at most 65 504), on wgpu and tch.
    F16,
    /// Brain floating point (8-bit significand, range of f32), on tch.
    Bf16,
    /// 8-bit integers in matrix multiplications with weights, f32 elsewhere, on ndarray and flex.
    Int8,
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&value_name(self))
    }
}

fn value_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or(String::new(), |value| value.get_name().to_owned())
}

/// An error that prevents a backend from starting.
#[derive(Debug, Error)]
pub enum BackendError {
    /// wgpu found no adapter.
    #[error(
        "wgpu: no {api} adapter ({reason}); install a GPU driver, or run scripts/setup-wgpu for a driver that needs no GPU"
    )]
    #[cfg(feature = "wgpu")]
    NoAdapter {
        /// The graphics API.
        api: String,
        /// The API's error.
        reason: String,
    },
    /// The adapter cannot compute in 16 bits.
    #[error("wgpu: {adapter} does not support {precision}; use --precision f32")]
    #[cfg(feature = "wgpu")]
    Adapter {
        /// The name of the adapter.
        adapter: String,
        /// The requested precision.
        precision: Precision,
    },
    /// The program was built for another version of libtorch.
    #[error(
        "tch: libtorch {found} in {folder}, but this program needs {wanted}; run scripts/setup-tch, and unset LD_LIBRARY_PATH if it points there",
        folder = folder.display()
    )]
    #[cfg(feature = "tch")]
    LibtorchVersion {
        /// The version found.
        found: String,
        /// The folder of libtorch.
        folder: std::path::PathBuf,
        /// The version needed.
        wanted: &'static str,
    },
    /// The environment variable that forces an instruction set has an unknown value.
    #[error("{0}")]
    #[cfg(any(feature = "ndarray", feature = "flex", feature = "tch"))]
    Instructions(String),
    /// The backend lacks the precision.
    #[error(
        "{backend} does not support {precision}; f16 runs on wgpu and tch, bf16 on tch, int8 on ndarray and flex"
    )]
    Precision {
        /// The backend.
        backend: BackendChoice,
        /// The requested precision.
        precision: Precision,
    },
}

/// A task that runs on any backend.
pub trait BackendTask {
    /// Its result.
    type Output;

    /// Runs on the backend `B`.
    fn run<B: Backend>(self, device: B::Device) -> Self::Output;
}

/// Runs a task in single precision on a backend's default device, and names both on standard error.
///
/// # Errors
/// When the device or its driver is missing, or `TRANSFORMER_SIMD` names an unknown instruction set.
pub fn run_on<T: BackendTask>(backend: BackendChoice, task: T) -> Result<T::Output, BackendError> {
    run_in_f32(backend, Precision::F32, task)
}

/// Like [`run_on`], but in that precision. For inference only, because Adam's small steps need single precision. With
/// int8, only the packed models of the task are in 8 bits; the tensors of the backend are in single precision.
///
/// # Errors
/// The errors of [`run_on`], and an error when the device does not support that precision.
pub fn run_at<T: BackendTask>(
    backend: BackendChoice,
    precision: Precision,
    task: T,
) -> Result<T::Output, BackendError> {
    Ok(match (backend, precision) {
        (_, Precision::F32) => run_on(backend, task)?,
        (_, Precision::Int8) if backend.packs() => run_in_f32(backend, precision, task)?,
        #[cfg(feature = "wgpu")]
        (BackendChoice::Wgpu, Precision::F16) => {
            type Half = burn_wgpu::Wgpu<f16, i32, u32>;
            let (device, adapter) = vulkan::start()?;
            if !Half::supports_dtype(&device, burn::tensor::DType::F16) {
                return Err(BackendError::Adapter { adapter, precision });
            }
            announce(backend, &adapter, precision);
            task.run::<Half>(device)
        }
        #[cfg(feature = "tch")]
        (BackendChoice::Tch, Precision::F16) => {
            announce(backend, &libtorch::describe()?, precision);
            task.run::<burn_tch::LibTorch<f16>>(Default::default())
        }
        #[cfg(feature = "tch")]
        (BackendChoice::Tch, Precision::Bf16) => {
            announce(backend, &libtorch::describe()?, precision);
            task.run::<burn_tch::LibTorch<bf16>>(Default::default())
        }
        _ => return Err(BackendError::Precision { backend, precision }),
    })
}

/// Runs a task on tensors in single precision, for any precision of its packed models.
fn run_in_f32<T: BackendTask>(
    backend: BackendChoice,
    precision: Precision,
    task: T,
) -> Result<T::Output, BackendError> {
    Ok(match backend {
        #[cfg(feature = "ndarray")]
        BackendChoice::Ndarray => {
            announce(backend, &processor()?, precision);
            task.run::<burn_ndarray::NdArray>(Default::default())
        }
        #[cfg(feature = "flex")]
        BackendChoice::Flex => {
            announce(backend, &processor()?, precision);
            task.run::<burn_flex::Flex>(Default::default())
        }
        #[cfg(feature = "wgpu")]
        BackendChoice::Wgpu => {
            let (device, adapter) = vulkan::start()?;
            announce(backend, &adapter, precision);
            task.run::<burn_wgpu::Wgpu>(device)
        }
        #[cfg(feature = "tch")]
        BackendChoice::Tch => {
            announce(backend, &libtorch::describe()?, precision);
            task.run::<burn_tch::LibTorch>(Default::default())
        }
    })
}

fn announce(backend: BackendChoice, device: &str, precision: Precision) {
    match precision {
        Precision::F32 => note(format_args!("backend: {backend}, {device}")),
        _ => note(format_args!("backend: {backend}, {device}, {precision}")),
    }
}

/// The number of threads. Also checks that the kernels for the processor can run.
#[cfg(any(feature = "ndarray", feature = "flex"))]
fn processor() -> Result<String, BackendError> {
    check_instructions()?;
    Ok(threads(rayon::current_num_threads()))
}

/// Checks that our kernels know the instruction set that an environment variable may name.
#[cfg(any(feature = "ndarray", feature = "flex", feature = "tch"))]
fn check_instructions() -> Result<(), BackendError> {
    transformer_cpu::check_simd().map_err(BackendError::Instructions)
}

#[cfg(any(feature = "ndarray", feature = "flex", feature = "tch"))]
fn threads(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} thread{plural}")
}
