//! The device of wgpu.

use std::sync::OnceLock;

use burn_wgpu::graphics::{AutoGraphicsApi, GraphicsApi};
use burn_wgpu::{RuntimeOptions, WgpuDevice, init_setup};

use super::BackendError;

/// Starts wgpu's default device, once per process, and returns the name of its adapter.
pub(super) fn start() -> Result<(WgpuDevice, String), BackendError> {
    static ADAPTER: OnceLock<String> = OnceLock::new();
    let device = WgpuDevice::default();
    if ADAPTER.get().is_none() {
        find_adapter()?;
    }
    let adapter = ADAPTER.get_or_init(|| {
        let setup = init_setup::<AutoGraphicsApi>(&device, RuntimeOptions::default());
        let info = setup.adapter.get_info();
        format!("{} by {} {}", info.name, info.backend, info.driver_info)
            .trim_end()
            .to_owned()
    });
    Ok((device, adapter.clone()))
}

/// Checks that there is an adapter, because Burn panics without one.
fn find_adapter() -> Result<(), BackendError> {
    let backend = AutoGraphicsApi::backend();
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: backend.into(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let options = wgpu::RequestAdapterOptions::default();
    match pollster::block_on(instance.request_adapter(&options)) {
        Ok(_) => Ok(()),
        Err(error) => Err(BackendError::NoAdapter {
            api: backend.to_string(),
            reason: error.to_string(),
        }),
    }
}
