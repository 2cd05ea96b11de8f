//! Processes started by `mpirun` or `srun`, over MPI.

use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::datatype::{Buffer, BufferMut};
use mpi::request::{Request, Scope};
use mpi::topology::SimpleCommunicator;
// Not imported by name: `Communicator` is ours.
use mpi::traits::{Communicator as _, CommunicatorCollectives as _, Root as _};

use crate::printable::printable;
use crate::ranks::{Communicator, Ranks};

/// The processes started by `mpirun` or `srun`; needs the feature `mpi`.
#[non_exhaustive]
pub struct Mpi;

/// Maximum values or bytes per message: MPI counts in 31 bits, and a sum needs the memory of one more message.
const MESSAGE: usize = 1 << 22;

/// How long a waiting process polls without pause. After that it sleeps between polls, so that processes that
/// still compute get the processor.
const BUSY: Duration = Duration::from_millis(2);
const SLEEP: Duration = Duration::from_millis(1);

impl Mpi {
    /// Initializes MPI, calls `train` with the ranks, and finalizes MPI. Call it once, on the main thread.
    ///
    /// An error or a panic of `train` in one process ends all of them, with exit code 1 and the line
    /// `error: rank R of N (MACHINE): CAUSE` on standard error; so does a wait beyond [`Ranks::limit_waits`]. A
    /// single process returns the error instead.
    ///
    /// ```no_run
    /// use transformer_train::TrainError;
    /// use transformer_train::ranks::Mpi;
    ///
    /// # fn main() -> Result<(), TrainError> {
    /// Mpi::run(|ranks| {
    ///     // Trainer::new(model, config).ranks(ranks).train(train, valid)?;
    ///     Ok::<(), TrainError>(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of `train`, in a single process.
    ///
    /// # Panics
    /// When MPI has been initialized before.
    pub fn run<T, E: Display>(train: impl FnOnce(&Ranks) -> Result<T, E>) -> Result<T, E> {
        let (universe, _) = mpi::initialize_with_threading(Threading::Funneled)
            .expect("MPI is initialized once, by this function");
        let world = || World::new(universe.world());
        let ranks = Ranks::new(world());
        match catch_unwind(AssertUnwindSafe(|| train(&ranks))) {
            // The universe is dropped, and MPI finalized, only if all processes do so: finalizing waits for all.
            Ok(Ok(trained)) => Ok(trained),
            Ok(Err(error)) if ranks.is_alone() => Err(error),
            Ok(Err(error)) => world().fail(error),
            Err(panic) if ranks.is_alone() => resume_unwind(panic),
            Err(_) => world().fail("panicked"),
        }
    }
}

/// All processes.
struct World {
    all: SimpleCommunicator,
    machine: String,
    longest_wait: Cell<Option<Duration>>,
}

impl World {
    fn new(all: SimpleCommunicator) -> Self {
        Self {
            all,
            machine: mpi::environment::processor_name().unwrap_or_default(),
            longest_wait: Cell::new(None),
        }
    }

    /// Ends all processes because of an error in this one.
    fn fail(&self, cause: impl Display) -> ! {
        let (rank, size, machine) = (self.rank(), self.size(), &self.machine);
        let cause = cause.to_string().replace(['\n', '\r'], " ");
        // One write: the launcher writes lines to the same stream.
        let cause = printable(&cause);
        let line = format!("error: rank {rank} of {size} ({machine}): {cause}\n");
        let _ = io::stderr().write_all(line.as_bytes());
        self.all.abort(1)
    }

    /// Waits for a pending call to finish. With `busy`, it never sleeps between polls: messages in several parts
    /// make progress only while it polls.
    fn wait<'a, D: ?Sized, S: Scope<'a>>(&self, call: Request<'a, D, S>, busy: bool) {
        let start = Instant::now();
        let mut call = call;
        while let Err(pending) = call.test() {
            call = pending;
            let waited = start.elapsed();
            if let Some(longest) = self.longest_wait.get()
                && waited > longest
            {
                self.fail(format_args!(
                    "no answer from the other processes in {} s: one of them hangs, or its machine cannot be reached",
                    longest.as_secs_f64().round()
                ));
            }
            match busy || waited < BUSY {
                true => thread::yield_now(),
                false => thread::sleep(SLEEP),
            }
        }
    }

    /// Sums values over all processes.
    fn add_up<T: Buffer + ?Sized>(
        &self,
        own: &T,
        sums: &mut (impl BufferMut + ?Sized),
        busy: bool,
    ) {
        mpi::request::scope(|scope| {
            let sum = SystemOperation::sum();
            let call = self.all.immediate_all_reduce_into(scope, own, sums, sum);
            self.wait(call, busy);
        });
    }
}

impl Communicator for World {
    fn rank(&self) -> usize {
        // Ranks are never negative.
        self.all.rank().unsigned_abs() as usize
    }

    fn size(&self) -> usize {
        self.all.size().unsigned_abs() as usize
    }

    fn sum(&self, numbers: &mut [f32]) {
        let mut own = vec![0.0_f32; numbers.len().min(MESSAGE)];
        for part in numbers.chunks_mut(MESSAGE) {
            let own = &mut own[..part.len()];
            own.copy_from_slice(part);
            self.add_up(&*own, part, true);
        }
    }

    fn sum_counts(&self, numbers: &mut [f64]) {
        let own = numbers.to_vec();
        self.add_up(own.as_slice(), numbers, false);
    }

    fn broadcast(&self, bytes: &mut [u8]) {
        let first = self.all.process_at_rank(0);
        for part in bytes.chunks_mut(MESSAGE) {
            mpi::request::scope(|scope| {
                let call = first.immediate_broadcast_into(scope, part);
                self.wait(call, false);
            });
        }
    }

    fn limit_waits(&self, longest: Duration) {
        self.longest_wait.set(Some(longest));
    }
}
