//! Backends are compiled in by Cargo features and chosen by name when a program starts.

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
    /// CPU, by the ndarray crate.
    #[cfg(feature = "ndarray")]
    Ndarray,
    /// CPU, Burn's own.
    #[cfg(feature = "flex")]
    Flex,
    /// GPU, by Vulkan, or Metal on a Mac.
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

impl BackendChoice {
    /// Whether products in training can be in bf16 there.
    pub fn trains_in_bf16(self) -> bool {
        !self.is_one_of(&["wgpu"])
    }

    /// Whether products in bf16 are faster there than in f32 on this processor.
    pub fn multiplies_bf16_fast(self) -> bool {
        #[cfg(feature = "tch")]
        if self == Self::Tch {
            return libtorch::multiplies_bf16_fast();
        }
        transformer_cpu::multiplies_bf16_fast()
    }

    /// Whether a training step in bf16 has the weights in bf16, too, beside those in f32.
    pub fn keeps_bf16_weights(self) -> bool {
        self.is_one_of(&["tch"])
    }

    /// Whether models are packed there for decoding, and 8-bit integers multiplied.
    pub fn packs(self) -> bool {
        self.is_one_of(&["ndarray", "flex"])
    }

    /// By names: not all of them are compiled in.
    fn is_one_of(self, names: &[&str]) -> bool {
        names.contains(&&*self.to_string())
    }
}

impl std::fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&value_name(self))
    }
}

/// The type of a backend's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Precision {
    /// 32 bits: any backend.
    #[default]
    F32,
    /// 16 bits, 11 of them precision, up to 65 504: wgpu and tch.
    F16,
    /// 16 bits, 8 of them precision, with the range of f32: tch.
    Bf16,
    /// Weights and what they are multiplied with in 8-bit integers, all else as f32: ndarray and flex.
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

/// An error that keeps a backend from starting.
#[derive(Debug, Error)]
pub enum BackendError {
    /// wgpu found no adapter.
    #[error(
        "wgpu: no {api} adapter ({reason}); install a GPU's driver, or run scripts/setup-wgpu for one that needs no GPU"
    )]
    #[cfg(feature = "wgpu")]
    NoAdapter {
        /// The graphics interface that was asked.
        api: String,
        /// Its error.
        reason: String,
    },
    /// The adapter cannot compute in 16 bits.
    #[error("wgpu: {adapter} does not compute in {precision}; use --precision f32")]
    #[cfg(feature = "wgpu")]
    Adapter {
        /// Its name.
        adapter: String,
        /// The precision asked for.
        precision: Precision,
    },
    /// libtorch is not the one that the program was built for.
    #[error(
        "tch: libtorch {found} in {folder}, but this program needs {wanted}; run scripts/setup-tch, and unset LD_LIBRARY_PATH if it points there",
        folder = folder.display()
    )]
    #[cfg(feature = "tch")]
    LibtorchVersion {
        /// The version found.
        found: String,
        /// Its folder.
        folder: std::path::PathBuf,
        /// The version needed.
        wanted: &'static str,
    },
    /// The environment variable that forces a level of instructions names none.
    #[error("{0}")]
    #[cfg(any(feature = "ndarray", feature = "flex", feature = "tch"))]
    Instructions(String),
    /// The backend lacks the precision.
    #[error(
        "{backend} does not compute in {precision}; f16 runs on wgpu and tch, bf16 on tch, int8 on ndarray and flex"
    )]
    Precision {
        /// The backend.
        backend: BackendChoice,
        /// The precision asked for.
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

/// Runs a task in 32 bits on a backend's default device, and names both on standard error.
///
/// # Errors
/// When the device or its driver is missing, or `TRANSFORMER_SIMD` names no level of instructions.
pub fn run_on<T: BackendTask>(backend: BackendChoice, task: T) -> Result<T::Output, BackendError> {
    run_in_f32(backend, Precision::F32, task)
}

/// Like [`run_on`], in that precision: for inference. Adam's small steps need 32 bits. In 8 bits are only the packed
/// models of the task; the tensors of its backend are in 32.
///
/// # Errors
/// As [`run_on`], and when the device does not compute in that precision.
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

/// Runs a task on tensors in 32 bits, whatever the precision of its packed models.
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

/// The threads of the processor, whose kernels can start.
#[cfg(any(feature = "ndarray", feature = "flex"))]
fn processor() -> Result<String, BackendError> {
    check_instructions()?;
    Ok(threads(rayon::current_num_threads()))
}

/// Checks that our kernels know the level of instructions that the environment may name.
#[cfg(any(feature = "ndarray", feature = "flex", feature = "tch"))]
fn check_instructions() -> Result<(), BackendError> {
    transformer_cpu::check_simd().map_err(BackendError::Instructions)
}

#[cfg(any(feature = "ndarray", feature = "flex", feature = "tch"))]
fn threads(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} thread{plural}")
}
