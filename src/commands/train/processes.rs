//! The processes of a training run: this process alone, or the processes started by `mpirun` or `srun`.

use std::env;

use transformer_train::ranks::Ranks;

use crate::commands::Result;

/// The environment variables in which launchers pass the number of processes: of Open MPI, and of MPICH, Intel MPI and
/// Slurm.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// The environment variables of a process that is connected by PMIx, which does not pass the number of processes, and
/// of Slurm's number of processes.
const PMIX: [&str; 2] = ["PMIX_RANK", "SLURM_STEP_NUM_TASKS"];

/// Whether a launcher has started this process. Its terminal may be one that nobody sees.
pub fn is_launched() -> bool {
    let mut variables = SIZES.iter().chain(&PMIX[..1]);
    variables.any(|name| env::var_os(name).is_some())
}

/// The number of processes that a launcher has started together; `None` if it does not pass the number.
fn launched() -> Option<usize> {
    let number = |name| env::var(name).ok()?.parse().ok();
    let of_pmix = || env::var_os(PMIX[0]).and_then(|_| number(PMIX[1]));
    SIZES.into_iter().find_map(number).or_else(of_pmix)
}

/// Calls `train` in each of the processes that a launcher has started together.
///
/// # Errors
/// The error of `train` in a single process. In one of several processes, the error is printed with the rank, and ends
/// all processes. Also an error if MPI does not connect the processes, because each would train alone.
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
                "this is one of {size} processes, but MPI connects {}: the launcher belongs to a different MPI than the program was built with",
                ranks.size()
            )
            .into());
        }
        if !ranks.is_first() {
            be_quiet();
        }
        match train(ranks) {
            Ok(()) => Ok(None),
            // This is not an error: all processes have saved their work and end.
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
/// The error of `train`. Also an error if this is one of several processes, because each would train alone.
#[cfg(not(feature = "mpi"))]
pub fn in_each_process(train: impl FnOnce(&Ranks) -> Result) -> Result {
    match launched() {
        Some(size) if size > 1 => Err(format!(
            "this is one of {size} processes, but the program was built for one; build it with --features mpi, or start it without mpirun"
        )
        .into()),
        _ => train(&Ranks::alone()),
    }
}
