//! Devices by the names that a user would give them.

use std::fmt;

use thiserror::Error;

/// A device that a user can name, such as with a program's flag `--device`.
///
/// | backend | names |
/// |---|---|
/// | `Flex`, `NdArray` | `cpu` |
/// | `LibTorch` | `cpu`, `cuda:0`, `mps` |
/// | `Cuda` | `cuda:0` |
/// | `Wgpu` | `discrete:0`, `integrated:0`, `virtual:0`, `other:0`, `cpu` |
///
/// The number counts devices of the same kind from 0; without it, the name means the first of them. A number alone is
/// the position in [`all`](Self::all), and any other text is looked for in the descriptions, ignoring case. Name and
/// description together, as [`FoundDevice`] displays them, are a name, too.
#[cfg_attr(feature = "flex", doc = "```")]
#[cfg_attr(not(feature = "flex"), doc = "```ignore")]
/// use transformer_core::backend::{FlexDevice, NamedDevice};
///
/// assert_eq!(FlexDevice::named("cpu").unwrap(), FlexDevice);
/// assert_eq!(
///     FlexDevice::named("cuda").unwrap_err().to_string(),
///     "no device `cuda`; this computer has: cpu"
/// );
/// ```
pub trait NamedDevice: Sized {
    /// The devices that this computer has, the preferred one first.
    fn all() -> Vec<FoundDevice<Self>>;

    /// The device that the environment variable `TRANSFORMER_DEVICE` names, or the default one where it is unset or
    /// empty.
    ///
    /// # Errors
    /// As [`named`](Self::named).
    fn of_environment() -> Result<Self, DeviceError>
    where
        Self: Default,
    {
        let name = std::env::var_os("TRANSFORMER_DEVICE").unwrap_or_default();
        match name.is_empty() {
            true => Ok(Self::default()),
            false => Self::named(&name.to_string_lossy()),
        }
    }

    /// The device of that name.
    ///
    /// # Errors
    /// If the computer has no device of that name. The message lists those that it has.
    fn named(name: &str) -> Result<Self, DeviceError> {
        let mut found = Self::all();
        match position(&found, name.trim()) {
            Some(index) => Ok(found.swap_remove(index).device),
            None => Err(DeviceError {
                name: name.to_owned(),
                found: found.iter().map(ToString::to_string).collect(),
            }),
        }
    }
}

/// A device that this computer has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDevice<D> {
    /// Its name, such as `cuda:0`.
    pub name: String,
    /// What it is, such as the name of the card; empty where the name says all.
    pub description: String,
    /// The device.
    pub device: D,
}

impl<D> fmt::Display for FoundDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match self.description.as_str() {
            "" => Ok(()),
            description => write!(f, " ({description})"),
        }
    }
}

/// A device that the computer does not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no device `{name}`; this computer has: {}", match found.as_slice() {
    [] => "none".to_owned(),
    found => found.join(", "),
})]
pub struct DeviceError {
    /// The name that was asked for.
    pub name: String,
    /// The devices that were found, with their descriptions.
    pub found: Vec<String>,
}

/// Which of these devices a name means.
fn position<D>(found: &[FoundDevice<D>], name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    let is_named = |device: &FoundDevice<D>| device.name == name;
    let is_first_of_kind = |device: &FoundDevice<D>| device.name.strip_suffix(":0") == Some(&name);
    let is_displayed = |device: &FoundDevice<D>| device.to_string().to_lowercase() == name;
    let is_described = |device: &FoundDevice<D>| device.description.to_lowercase().contains(&name);
    let at = |test: &dyn Fn(&FoundDevice<D>) -> bool| found.iter().position(test);
    if name.is_empty() {
        return None;
    }
    match name.parse() {
        Ok(index) => (index < found.len()).then_some(index),
        Err(_) => at(&is_named)
            .or_else(|| at(&is_first_of_kind))
            .or_else(|| at(&is_displayed))
            .or_else(|| at(&is_described)),
    }
}

#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
fn cpu<D>(device: D) -> FoundDevice<D> {
    FoundDevice {
        name: "cpu".into(),
        description: String::new(),
        device,
    }
}

#[cfg(feature = "flex")]
impl NamedDevice for super::FlexDevice {
    fn all() -> Vec<FoundDevice<Self>> {
        vec![cpu(Self)]
    }
}

#[cfg(feature = "ndarray")]
impl NamedDevice for super::NdArrayDevice {
    fn all() -> Vec<FoundDevice<Self>> {
        vec![cpu(Self::Cpu)]
    }
}

/// The CPU is the preferred device.
#[cfg(feature = "tch")]
impl NamedDevice for super::LibTorchDevice {
    fn all() -> Vec<FoundDevice<Self>> {
        let mut found = vec![cpu(Self::Cpu)];
        // A libtorch without CUDA has no devices of it.
        let cards = usize::try_from(tch::Cuda::device_count()).unwrap_or(0);
        found.extend((0..cards).map(|card| FoundDevice {
            name: format!("cuda:{card}"),
            description: String::new(),
            device: Self::Cuda(card),
        }));
        if tch::utils::has_mps() {
            found.push(FoundDevice {
                name: "mps".into(),
                description: String::new(),
                device: Self::Mps,
            });
        }
        found
    }
}

#[cfg(feature = "cuda")]
impl NamedDevice for super::CudaDevice {
    fn all() -> Vec<FoundDevice<Self>> {
        use cudarc::driver::{CudaContext, result, sys};

        #[allow(
            unsafe_code,
            reason = "cudarc marks the whole of CUDA's interface as unsafe"
        )]
        // SAFETY: it only tries to open the driver's library, whose initializers have no preconditions.
        let has_driver = unsafe { sys::is_culib_present() };
        // Without the library, any other call panics.
        if !has_driver || result::init().is_err() {
            return Vec::new();
        }
        let cards =
            CudaContext::device_count().map_or(0, |count| usize::try_from(count).unwrap_or(0));
        let description = |card: usize| {
            let card = result::device::get(i32::try_from(card).ok()?).ok()?;
            result::device::get_name(card).ok()
        };
        (0..cards)
            .map(|index| FoundDevice {
                name: format!("cuda:{index}"),
                description: description(index).unwrap_or_default(),
                device: Self { index },
            })
            .collect()
    }
}

#[cfg(feature = "wgpu")]
impl NamedDevice for super::WgpuDevice {
    fn all() -> Vec<FoundDevice<Self>> {
        use wgpu::DeviceType;

        let adapters = pollster::block_on(wgpu_instance().enumerate_adapters(wgpu_api().into()));
        let mut found: Vec<FoundDevice<Self>> = Vec::new();
        for adapter in adapters {
            let info = adapter.get_info();
            // cubecl counts the adapters of each kind in this order.
            let kind = |prefix: &str| {
                found
                    .iter()
                    .filter(|device| device.name.starts_with(prefix))
                    .count()
            };
            let (name, device) = match info.device_type {
                DeviceType::DiscreteGpu => {
                    let index = kind("discrete");
                    (format!("discrete:{index}"), Self::DiscreteGpu(index))
                }
                DeviceType::IntegratedGpu => {
                    let index = kind("integrated");
                    (format!("integrated:{index}"), Self::IntegratedGpu(index))
                }
                DeviceType::VirtualGpu => {
                    let index = kind("virtual");
                    (format!("virtual:{index}"), Self::VirtualGpu(index))
                }
                // cubecl takes the first one.
                DeviceType::Cpu if kind("cpu") == 0 => ("cpu".to_owned(), Self::Cpu),
                // cubecl falls back to these where there is no device of the kind that it is asked for.
                DeviceType::Other if kind("virtual") == 0 => {
                    let index = kind("other");
                    (format!("other:{index}"), Self::VirtualGpu(index))
                }
                DeviceType::Cpu | DeviceType::Other => continue,
            };
            let description = format!("{} by {} {}", info.name, info.backend, info.driver_info);
            found.push(FoundDevice {
                name,
                description: description.trim_end().to_owned(),
                device,
            });
        }
        // Stable, so that each kind stays in its order.
        found.sort_by_key(|device| match device.device {
            Self::DiscreteGpu(_) => 0,
            Self::IntegratedGpu(_) => 1,
            Self::VirtualGpu(_) => 2,
            _ => 3,
        });
        found
    }
}

/// The graphics API that Burn uses.
#[cfg(feature = "wgpu")]
fn wgpu_api() -> wgpu::Backend {
    use burn_wgpu::graphics::{AutoGraphicsApi, GraphicsApi};

    AutoGraphicsApi::backend()
}

#[cfg(feature = "wgpu")]
fn wgpu_instance() -> wgpu::Instance {
    wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu_api().into(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Vec<FoundDevice<u8>> {
        [
            ("discrete:0", "NVIDIA T4 by vulkan"),
            ("discrete:1", "AMD Radeon by vulkan"),
            ("integrated:0", "Intel Iris by vulkan"),
            ("cpu", "llvmpipe by vulkan"),
        ]
        .into_iter()
        .zip(0..)
        .map(|((name, description), device)| FoundDevice {
            name: name.into(),
            description: description.into(),
            device,
        })
        .collect()
    }

    #[test]
    fn a_device_is_named_by_kind_by_position_or_by_a_part_of_its_description() {
        for (name, expected) in [
            ("discrete", Some(0)),
            ("discrete:1", Some(1)),
            ("Integrated", Some(2)),
            ("cpu", Some(3)),
            ("0", Some(0)),
            ("3", Some(3)),
            ("radeon", Some(1)),
            ("LLVMPIPE", Some(3)),
            ("discrete:1 (AMD Radeon by vulkan)", Some(1)),
            ("4", None),
            ("discrete:2", None),
            ("cuda", None),
            ("", None),
        ] {
            assert_eq!(position(&found(), name), expected, "{name}");
        }
    }

    #[test]
    fn an_error_lists_the_devices() {
        let error = DeviceError {
            name: "cuda".into(),
            found: found().iter().take(2).map(ToString::to_string).collect(),
        };
        let expected = "no device `cuda`; this computer has: discrete:0 (NVIDIA T4 by vulkan), \
                        discrete:1 (AMD Radeon by vulkan)";
        assert_eq!(error.to_string(), expected);
    }
}
