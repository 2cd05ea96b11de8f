//! The processes of a training run: this one, or those that `mpirun` or `srun` has started.

use std::env;

use transformer_train::Ranks;

use crate::commands::Result;

/// Variables of the environment by which launchers give the number of processes: Open MPI's, and that of MPICH, Intel
/// MPI and Slurm.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// Whether a launcher has started this process. It may have given it a terminal that nobody looks at.
pub fn is_launched() -> bool {
    // Slurm's newer interface has no number.
    let mut variables = SIZES.iter().chain(&["PMIX_RANK"]);
    variables.any(|name| env::var_os(name).is_some())
}

/// Calls `train` in each of the processes that a launcher has started together.
///
/// # Errors
/// That of `train`, in a process by itself. In one of several, it is printed with the rank, and ends all of them.
#[cfg(feature = "mpi")]
pub fn in_each_process(train: impl FnOnce(&Ranks) -> Result) -> Result {
    use crate::commands::Interrupted;
    use transformer_program::be_quiet;
    use transformer_train::Mpi;

    if !is_launched() {
        return train(&Ranks::alone());
    }
    let interrupted = Mpi::run(|ranks| {
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
    let mut sizes = SIZES.iter().filter_map(|name| env::var(name).ok());
    let size = sizes.find_map(|size| size.parse::<usize>().ok());
    match size {
        Some(size) if size > 1 => Err(format!(
            "this is one of {size} processes, but the program was built for one: build it with --features mpi, or start it without mpirun"
        )
        .into()),
        _ => train(&Ranks::alone()),
    }
}
