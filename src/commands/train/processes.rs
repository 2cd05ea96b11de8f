//! The processes of a training run: this one, or those that `mpirun` or `srun` has started.

use std::env;

use transformer_train::ranks::Ranks;

use crate::commands::Result;

/// Variables of the environment by which launchers give the number of processes: Open MPI's, and that of MPICH, Intel
/// MPI and Slurm.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// Variables of a process that a launcher connects by PMIx, which gives no number of processes; and Slurm's number.
const PMIX: [&str; 2] = ["PMIX_RANK", "SLURM_STEP_NUM_TASKS"];

/// Whether a launcher has started this process. It may have given it a terminal that nobody looks at.
pub fn is_launched() -> bool {
    let mut variables = SIZES.iter().chain(&PMIX[..1]);
    variables.any(|name| env::var_os(name).is_some())
}

/// The number of processes that a launcher has started together; `None` where it does not say it.
fn launched() -> Option<usize> {
    let number = |name| env::var(name).ok()?.parse().ok();
    let of_pmix = || env::var_os(PMIX[0]).and_then(|_| number(PMIX[1]));
    SIZES.into_iter().find_map(number).or_else(of_pmix)
}

/// Calls `train` in each of the processes that a launcher has started together.
///
/// # Errors
/// That of `train`, in a process by itself; in one of several, it is printed with the rank, and ends all of them. When
/// MPI does not connect the processes, each of which would train by itself.
#[cfg(feature = "mpi")]
pub fn in_each_process(train: impl FnOnce(&Ranks) -> Result) -> Result {
    use crate::commands::Interrupted;
    use crate::process::be_quiet;
    use transformer_train::ranks::Mpi;

    if !is_launched() {
        return train(&Ranks::alone());
    }
    let interrupted = Mpi::run(|ranks| {
        if let Some(size) = launched().filter(|&size| size != ranks.size()) {
            return Err(format!(
                "this is one of {size} processes, of which MPI connects {}: the launcher is of another MPI than the program was built with",
                ranks.size()
            )
            .into());
        }
        if !ranks.is_first() {
            be_quiet();
        }
        match train(ranks) {
            Ok(()) => Ok(None),
            // No error: all processes have saved their work and end.
            Err(error) => error.downcast::<Interrupted>().map(Some),
        }
    })?;
    match interrupted {
        Some(interrupted) => Err(interrupted),
        None => Ok(()),
    }
}

/// Calls `train` in this process.
///
/// # Errors
/// That of `train`; when this is one of several processes, each of which would train by itself.
#[cfg(not(feature = "mpi"))]
pub fn in_each_process(train: impl FnOnce(&Ranks) -> Result) -> Result {
    match launched() {
        Some(size) if size > 1 => Err(format!(
            "this is one of {size} processes, but the program was built for one: build it with --features mpi, or start it without mpirun"
        )
        .into()),
        _ => train(&Ranks::alone()),
    }
}
