//! The device of wgpu.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use burn_wgpu::graphics::{AutoGraphicsApi, GraphicsApi};
use burn_wgpu::{RuntimeOptions, WgpuDevice, init_setup};
use transformer_core::backend::NamedDevice;

use super::BackendError;

/// Starts a device, once per process, and returns it with the name of its adapter.
pub(super) fn start(device: WgpuDevice) -> Result<(WgpuDevice, String), BackendError> {
    static ADAPTERS: LazyLock<Mutex<HashMap<WgpuDevice, String>>> = LazyLock::new(Mutex::default);

    let mut adapters = ADAPTERS
        .lock()
        .expect("no thread panics while it has the lock");
    if let Some(adapter) = adapters.get(&device) {
        return Ok((device, adapter.clone()));
    }
    // Burn panics without an adapter. A device that was named has been found.
    if device == WgpuDevice::default() && WgpuDevice::all().is_empty() {
        let api = AutoGraphicsApi::backend().to_string();
        return Err(BackendError::NoAdapter { api });
    }
    let setup = init_setup::<AutoGraphicsApi>(&device, RuntimeOptions::default());
    let info = setup.adapter.get_info();
    let adapter = format!("{} by {} {}", info.name, info.backend, info.driver_info);
    let adapter = adapter.trim_end().to_owned();
    adapters.insert(device.clone(), adapter.clone());
    Ok((device, adapter))
}
