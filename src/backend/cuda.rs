//! The device of CUDA.

use burn_cuda::CudaDevice;
use transformer_core::backend::NamedDevice;

use super::BackendError;

/// Checks that devices can compute, because Burn panics where one cannot, and returns them with the names of the cards.
pub(super) fn start(devices: Vec<CudaDevice>) -> Result<(Vec<CudaDevice>, String), BackendError> {
    let found = CudaDevice::all();
    let card = |device: &CudaDevice| {
        let card = found.iter().find(|found| found.device == *device);
        card.map(ToString::to_string)
    };
    let Some(cards) = devices.iter().map(card).collect::<Option<Vec<_>>>() else {
        return Err(BackendError::NoCuda("no NVIDIA GPU with a driver"));
    };
    #[allow(
        unsafe_code,
        reason = "cudarc marks the whole of CUDA's interface as unsafe"
    )]
    // SAFETY: it only tries to open the compiler's library, whose initializers have no preconditions.
    let has_compiler = unsafe { cudarc::nvrtc::sys::is_culib_present() };
    if !has_compiler {
        return Err(BackendError::NoCuda(
            "no libnvrtc, CUDA's compiler of kernels; install the CUDA toolkit, or set LD_LIBRARY_PATH",
        ));
    }
    if cubecl_cuda::install::cuda_path().is_none() {
        return Err(BackendError::NoCuda(
            "no CUDA toolkit; set CUDA_PATH to its directory, which has `include`",
        ));
    }
    Ok((devices, format!("{}, TF32", cards.join(" and "))))
}
