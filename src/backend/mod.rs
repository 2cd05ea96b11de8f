//! Backends are compiled in with Cargo features, and chosen by name when a program starts.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "tch")]
mod libtorch;
#[cfg(feature = "wgpu")]
mod vulkan;

use burn::tensor::backend::Backend;
#[cfg(any(feature = "cuda", feature = "tch"))]
use burn::tensor::bf16;
#[cfg(any(feature = "cuda", feature = "tch", feature = "wgpu"))]
use burn::tensor::f16;
use clap::ValueEnum;
use thiserror::Error;
use transformer_core::backend::{DeviceError, FoundDevice, NamedDevice};

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
    /// CPU, or an NVIDIA or Apple GPU, with libtorch.
    #[cfg(feature = "tch")]
    Tch,
    /// NVIDIA GPU, with CUDA.
    #[cfg(feature = "cuda")]
    Cuda,
}

#[cfg(not(any(
    feature = "ndarray",
    feature = "flex",
    feature = "wgpu",
    feature = "tch",
    feature = "cuda"
)))]
compile_error!("choose a backend: --features ndarray, flex, wgpu, tch or cuda");

impl Default for BackendChoice {
    /// The last of ndarray, flex, wgpu, tch and cuda that is compiled in.
    fn default() -> Self {
        *Self::value_variants()
            .last()
            .expect("at least one backend is compiled in")
    }
}

impl BackendChoice {
    /// Whether matrix multiplications in bf16, if the backend has them, are faster than in f32 on this processor.
    /// Always true for wgpu and cuda.
    pub fn multiplies_bf16_fast(self) -> bool {
        #[cfg(feature = "tch")]
        if self == Self::Tch {
            return libtorch::multiplies_bf16_fast();
        }
        // No warning on a GPU, whose speed is not known here. On an NVIDIA H200, cuda was slower in bf16.
        self.is_one_of(&["wgpu", "cuda"]) || transformer_cpu::multiplies_bf16_fast()
    }

    /// Whether a training step in bf16 has a copy of the weights in bf16 in addition to the weights in f32.
    pub fn keeps_bf16_weights(self) -> bool {
        self.is_one_of(&["tch"])
    }

    /// Whether matrix multiplications of f32 round their factors to TF32, with 11 bits of precision.
    pub fn multiplies_in_tf32(self) -> bool {
        self.is_one_of(&["cuda"])
    }

    /// Whether the backend decodes with packed models and multiplies 8-bit integers.
    pub fn packs(self) -> bool {
        self.is_one_of(&["ndarray", "flex"])
    }

    /// The backend with that device, or with the default one.
    pub fn on(self, device: Option<&str>) -> Target<'_> {
        Target {
            backend: self,
            device,
        }
    }

    /// The names and descriptions of its devices.
    pub fn devices(self) -> Vec<String> {
        fn shown<D: NamedDevice>() -> Vec<String> {
            D::all().iter().map(FoundDevice::to_string).collect()
        }
        match self {
            #[cfg(feature = "ndarray")]
            Self::Ndarray => shown::<burn_ndarray::NdArrayDevice>(),
            #[cfg(feature = "flex")]
            Self::Flex => shown::<burn_flex::FlexDevice>(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => shown::<burn_wgpu::WgpuDevice>(),
            #[cfg(feature = "tch")]
            Self::Tch => shown::<burn_tch::LibTorchDevice>(),
            #[cfg(feature = "cuda")]
            Self::Cuda => shown::<burn_cuda::CudaDevice>(),
        }
    }

    /// Whether the backend runs models in that precision.
    fn computes_in(self, precision: Precision) -> bool {
        match precision {
            Precision::F32 => true,
            Precision::F16 => self.is_one_of(&["wgpu", "tch", "cuda"]),
            Precision::Bf16 => self.is_one_of(&["tch", "cuda"]),
            Precision::Int8 => self.packs(),
        }
    }

    /// Whether the backend has one of these names. Not all variants are compiled in.
    fn is_one_of(self, names: &[&str]) -> bool {
        names.contains(&&*self.to_string())
    }
}

impl std::fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&value_name(self))
    }
}

/// A backend, and the devices to run on.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The backend.
    pub backend: BackendChoice,
    /// The name of one of its [devices](NamedDevice), or for a task of [several](BackendTask::SEVERAL_DEVICES) their names,
    /// separated by commas; by default, the environment variable `TRANSFORMER_DEVICE`, or the backend's default device.
    pub device: Option<&'a str>,
}

impl Target<'_> {
    /// Whether matrix multiplications in training can be in bf16.
    ///
    /// # Errors
    /// When the device or its driver is missing.
    pub fn trains_in_bf16(self) -> Result<bool, BackendError> {
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        use transformer_core::ops::{ProductPrecision::Bf16, multiplies_in};

        Ok(match self.backend {
            #[cfg(feature = "wgpu")]
            BackendChoice::Wgpu => {
                let (device, _) = vulkan::start(self.device()?)?;
                multiplies_in::<burn_wgpu::Wgpu>(Bf16, &device)
            }
            #[cfg(feature = "cuda")]
            BackendChoice::Cuda => {
                let (devices, _) = cuda::start(self.devices(true)?)?;
                let multiplies = |device| multiplies_in::<burn_cuda::Cuda>(Bf16, device);
                devices.iter().all(multiplies)
            }
            #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
            _ => true,
        })
    }

    /// The number of devices for a task on several, or the error that running the task would end with.
    ///
    /// # Errors
    /// As [`run_on`].
    pub fn count_devices(self) -> Result<usize, BackendError> {
        Ok(match self.backend {
            #[cfg(feature = "ndarray")]
            BackendChoice::Ndarray => {
                processor()?;
                self.devices::<burn_ndarray::NdArrayDevice>(true)?.len()
            }
            #[cfg(feature = "flex")]
            BackendChoice::Flex => {
                processor()?;
                self.devices::<burn_flex::FlexDevice>(true)?.len()
            }
            #[cfg(feature = "wgpu")]
            BackendChoice::Wgpu => {
                vulkan::start(self.device()?)?;
                1
            }
            #[cfg(feature = "tch")]
            BackendChoice::Tch => {
                let devices = self.devices(true)?;
                for &device in &devices {
                    libtorch::describe(device)?;
                }
                devices.len()
            }
            #[cfg(feature = "cuda")]
            BackendChoice::Cuda => cuda::start(self.devices(true)?)?.0.len(),
        })
    }

    /// The only device.
    fn device<D: NamedDevice + Default>(self) -> Result<D, BackendError> {
        let backend = self.backend;
        let device = self.device.map_or_else(D::of_environment, D::named);
        // A description may have commas, too, so that the whole text was looked for first.
        let names_several = self.device.is_some_and(|names| names.contains(','));
        device.map_err(|source| match names_several {
            true => BackendError::OneDevice { backend, source },
            false => BackendError::Device { backend, source },
        })
    }

    /// The devices, the main one first; an error if there are several for a task of one.
    #[cfg(any(
        feature = "cuda",
        feature = "flex",
        feature = "ndarray",
        feature = "tch"
    ))]
    fn devices<D: NamedDevice + Default>(self, several: bool) -> Result<Vec<D>, BackendError> {
        match self.device() {
            Err(BackendError::OneDevice { backend, source }) if several => {
                let names = source.name.split(',');
                let devices = names.map(D::named).collect::<Result<_, _>>();
                devices.map_err(|source| BackendError::Device { backend, source })
            }
            device => Ok(vec![device?]),
        }
    }
}

impl From<BackendChoice> for Target<'_> {
    fn from(backend: BackendChoice) -> Self {
        backend.on(None)
    }
}

/// The number format of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Precision {
    /// Single precision, on any backend.
    #[default]
    F32,
    /// Half precision (11-bit significand, at most 65 504), on wgpu, tch and cuda.
    F16,
    /// Brain floating point (8-bit significand, range of f32), on tch and cuda.
    Bf16,
    /// 8-bit integers in matrix multiplications with weights, f32 elsewhere, on ndarray and flex.
    Int8,
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&value_name(self))
    }
}

fn value_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or(String::new(), |value| value.get_name().to_owned())
}

/// An error that prevents a backend from starting.
#[derive(Debug, Error)]
pub enum BackendError {
    /// The computer has no device of that name.
    #[error("{backend}: {source}")]
    Device {
        /// The backend.
        backend: BackendChoice,
        /// The devices that it has.
        source: DeviceError,
    },
    /// The task or the backend computes on one device only. Burn's wgpu cannot copy tensors to another device.
    #[error("{backend}: {source}. Only `train` computes on several devices, and not on wgpu")]
    OneDevice {
        /// The backend.
        backend: BackendChoice,
        /// The names, and the devices that it has.
        source: DeviceError,
    },
    /// wgpu found no adapter.
    #[error(
        "wgpu: no {api} adapter; install a GPU driver, or run scripts/setup-wgpu for a driver that needs no GPU"
    )]
    #[cfg(feature = "wgpu")]
    NoAdapter {
        /// The graphics API.
        api: String,
    },
    /// No NVIDIA GPU, or no CUDA to compile kernels with.
    #[error("cuda: {0}")]
    #[cfg(feature = "cuda")]
    NoCuda(&'static str),
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
        "{backend} does not support {precision}; f16 runs on wgpu, tch and cuda, bf16 on tch and cuda, int8 on ndarray and flex"
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

    /// Whether the task computes on several devices, by [`run_on_several`](Self::run_on_several).
    const SEVERAL_DEVICES: bool = false;

    /// Runs on the backend `B`.
    fn run<B: Backend>(self, device: B::Device) -> Self::Output;

    /// Runs on several devices of the backend `B`, the main one first. By default, on the main one.
    fn run_on_several<B: Backend>(self, devices: Vec<B::Device>) -> Self::Output
    where
        Self: Sized,
    {
        self.run::<B>(devices.into_iter().next().unwrap_or_default())
    }
}

/// Runs a task in single precision on a backend, and names its device on standard error.
///
/// # Errors
/// When the device or its driver is missing, several devices are named for a task of one, or `TRANSFORMER_SIMD` names an
/// unknown instruction set.
pub fn run_on<'a, T: BackendTask>(
    target: impl Into<Target<'a>>,
    task: T,
) -> Result<T::Output, BackendError> {
    run_at(target, Precision::F32, task)
}

/// Like [`run_on`], but in that precision. For inference only, because Adam's small steps need single precision. With
/// int8, only the packed models of the task are in 8 bits; the tensors of the backend are in single precision.
///
/// # Errors
/// The errors of [`run_on`], and an error when the device does not support that precision.
pub fn run_at<'a, T: BackendTask>(
    target: impl Into<Target<'a>>,
    precision: Precision,
    task: T,
) -> Result<T::Output, BackendError> {
    let target = target.into();
    let backend = target.backend;
    if !backend.computes_in(precision) {
        return Err(BackendError::Precision { backend, precision });
    }
    let announce = |device: &str| announce(backend, device, precision);
    Ok(match backend {
        #[cfg(feature = "ndarray")]
        BackendChoice::Ndarray => {
            let devices = target.devices(T::SEVERAL_DEVICES)?;
            announce(&processor()?);
            task.run_on_several::<burn_ndarray::NdArray>(devices)
        }
        #[cfg(feature = "flex")]
        BackendChoice::Flex => {
            let devices = target.devices(T::SEVERAL_DEVICES)?;
            announce(&processor()?);
            task.run_on_several::<burn_flex::Flex>(devices)
        }
        #[cfg(feature = "wgpu")]
        BackendChoice::Wgpu => {
            type Half = burn_wgpu::Wgpu<f16, i32, u32>;

            let (device, adapter) = vulkan::start(target.device()?)?;
            let is_half = precision == Precision::F16;
            if is_half && !Half::supports_dtype(&device, burn::tensor::DType::F16) {
                return Err(BackendError::Adapter { adapter, precision });
            }
            announce(&adapter);
            match is_half {
                true => task.run::<Half>(device),
                false => task.run::<burn_wgpu::Wgpu>(device),
            }
        }
        #[cfg(feature = "tch")]
        BackendChoice::Tch => {
            let devices = target.devices(T::SEVERAL_DEVICES)?;
            let described = devices.iter().map(|&device| libtorch::describe(device));
            announce(&described.collect::<Result<Vec<_>, _>>()?.join(" and "));
            match precision {
                Precision::F16 => task.run_on_several::<burn_tch::LibTorch<f16>>(devices),
                Precision::Bf16 => task.run_on_several::<burn_tch::LibTorch<bf16>>(devices),
                Precision::F32 | Precision::Int8 => {
                    task.run_on_several::<burn_tch::LibTorch>(devices)
                }
            }
        }
        #[cfg(feature = "cuda")]
        BackendChoice::Cuda => {
            let (devices, cards) = cuda::start(target.devices(T::SEVERAL_DEVICES)?)?;
            announce(&cards);
            match precision {
                Precision::F16 => task.run_on_several::<burn_cuda::Cuda<f16>>(devices),
                Precision::Bf16 => task.run_on_several::<burn_cuda::Cuda<bf16>>(devices),
                Precision::F32 | Precision::Int8 => task.run_on_several::<burn_cuda::Cuda>(devices),
            }
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
