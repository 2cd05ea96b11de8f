//! The libtorch that the process has loaded.

use std::fs;
use std::path::{Path, PathBuf};

use burn_tch::LibTorchDevice;

use super::{BackendError, check_instructions, threads};

/// The version for which burn-tch is made; scripts/setup-tch installs it.
const WANTED: &str = "2.9.0";

/// The version of libtorch, and the threads or the GPU that it uses. Also checks that our kernels can run.
pub(super) fn describe(device: LibTorchDevice) -> Result<String, BackendError> {
    check_instructions()?;
    let device = match device {
        LibTorchDevice::Cpu => threads(tch::get_num_threads().max(1) as usize),
        device => format!("{device:?}"),
    };
    // torch-sys checked the version when it was built, unless it was told not to.
    let is_checked = std::env::var_os("LIBTORCH_BYPASS_VERSION_CHECK").is_none();
    let folder = loaded_from();
    let found = folder.as_deref().and_then(version_in);
    match (folder, found) {
        (Some(folder), Some(found)) => match found.split('+').next() {
            // 2.9.0+cpu and 2.9.0+cu128 are the same version.
            Some(version) if version == WANTED || !is_checked => {
                Ok(format!("libtorch {found}, {device}"))
            }
            _ => Err(BackendError::LibtorchVersion {
                found,
                folder,
                wanted: WANTED,
            }),
        },
        _ => Ok(format!("libtorch, {device}")),
    }
}

/// Whether libtorch multiplies faster in bf16 than in f32 on this processor, also with AMX.
pub(super) fn multiplies_bf16_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has_amx = {
        // The bits of AMX-BF16 and AMX-TILE.
        const PARTS: u32 = 1 << 22 | 1 << 24;
        #[allow(
            unsafe_code,
            unused_unsafe,
            reason = "in newer versions of Rust than ours, the call is safe"
        )]
        // SAFETY: every processor of x86-64 has the instruction, which changes nothing else.
        let features = unsafe { std::arch::x86_64::__cpuid_count(7, 0) };
        features.edx & PARTS == PARTS
    };
    #[cfg(not(target_arch = "x86_64"))]
    let has_amx = false;
    has_amx || transformer_cpu::multiplies_bf16_fast()
}

/// The folder above the `lib` folder from which libtorch was loaded, if the system reports it.
fn loaded_from() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let library = maps
        .lines()
        .filter_map(|line| line.find('/').map(|start| Path::new(&line[start..])))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name == "libtorch_cpu.so")
        })?;
    Some(library.parent()?.parent()?.to_owned())
}

/// The version of libtorch in a folder: from `build-version`, which libtorch's archives and scripts/setup-tch have, or
/// from `version.py`, which PyTorch has.
fn version_in(folder: &Path) -> Option<String> {
    if let Ok(version) = fs::read_to_string(folder.join("build-version")) {
        return Some(version.trim().to_owned());
    }
    let python = fs::read_to_string(folder.join("version.py")).ok()?;
    let line = python
        .lines()
        .find(|line| line.starts_with("__version__"))?;
    line.split(['\'', '"']).nth(1).map(str::to_owned)
}
