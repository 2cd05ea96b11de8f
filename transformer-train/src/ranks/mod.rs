//! Distributed training: processes that train one model together.
//!
//! | file | contents |
//! |---|---|
//! | here | communication between the processes; none for a single process |
//! | `gradients` | the sum of gradients over all processes |
//! | `alike` | checks that all processes train the same model on the same data |
//! | `mpi` | processes started by `mpirun` or `srun` |

mod alike;
mod gradients;
#[cfg(feature = "mpi")]
mod mpi;

use std::rc::Rc;
use std::time::Duration;

use crate::config::TrainingConfig;
use crate::error::{ConfigRule, TrainError};
use crate::objective::statistics::Statistics;

pub(crate) use self::alike::{Fingerprint, checksum, differing};
pub(crate) use self::gradients::sum_gradients;
#[cfg(feature = "mpi")]
pub use self::mpi::Mpi;

/// Communication between processes that train one model together. Each has a *rank*, counted from 0.
///
/// All processes call the same methods in the same order, with buffers of the same lengths, and each call returns
/// when all have made it. `Mpi`, with the feature `mpi`, implements it; a test may implement it over threads.
///
/// If a process ends early, the pending calls of the others must end, too, by ending those processes or by a
/// panic: none may wait forever.
pub trait Communicator {
    /// The rank of this process, below [`size`](Self::size).
    fn rank(&self) -> usize;

    /// The number of processes.
    fn size(&self) -> usize;

    /// Replaces each value by its sum over all processes (all-reduce). The sums must be bit-identical in every
    /// process.
    fn sum(&self, numbers: &mut [f32]);

    /// Replaces each value by its sum over all processes: for a few values, in double precision.
    fn sum_counts(&self, numbers: &mut [f64]);

    /// Replaces the bytes by rank 0's.
    fn broadcast(&self, bytes: &mut [u8]);

    /// From now on, a process that waits longer than this in one of these calls ends with an error. By default,
    /// does nothing.
    fn limit_waits(&self, longest: Duration) {
        let _ = longest;
    }
}

/// The processes that train one model together, from the view of this one: for
/// [`Trainer::ranks`](crate::Trainer::ranks). A single process has rank 0 and size 1, and communicates with none.
///
/// ```
/// use transformer_train::ranks::Ranks;
///
/// let ranks = Ranks::alone();
/// assert_eq!((ranks.rank(), ranks.size()), (0, 1));
/// ```
#[derive(Clone, Default)]
pub struct Ranks {
    /// `None` for a single process.
    others: Option<Rc<dyn Communicator>>,
    /// Whether rank 0's message that the run starts was received.
    begun: bool,
}

impl Ranks {
    /// The processes of a communicator.
    pub fn new(communicator: impl Communicator + 'static) -> Self {
        let others: Option<Rc<dyn Communicator>> = match communicator.size() {
            1 => None,
            _ => Some(Rc::new(communicator)),
        };
        Self {
            others,
            begun: false,
        }
    }

    /// A single process.
    pub fn alone() -> Self {
        Self::default()
    }

    /// The rank of this process; rank 0 leads.
    pub fn rank(&self) -> usize {
        self.others.as_ref().map_or(0, |others| others.rank())
    }

    /// The number of processes.
    pub fn size(&self) -> usize {
        self.others.as_ref().map_or(1, |others| others.size())
    }

    /// Whether this is rank 0, which alone has the run's directory, validates and logs.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// From now on, a process that waits longer than this for the others ends with an error. Initially, there is
    /// no limit.
    pub fn limit_waits(&self, longest: Duration) {
        if let Some(others) = &self.others {
            others.limit_waits(longest);
        }
    }

    /// Checks that an update can be distributed over these processes.
    ///
    /// # Errors
    /// [`TrainError::Config`] when an update has fewer batches than there are processes.
    pub fn check(&self, config: &TrainingConfig) -> Result<(), TrainError> {
        let batches = config.batches_per_update;
        match batches >= self.size() {
            true => Ok(()),
            false => Err(TrainError::Config {
                key: "batches_per_update",
                value: batches.to_string(),
                expected: ConfigRule::AtLeastProcesses(self.size()),
            }),
        }
    }

    /// Waits until rank 0's run is certain to start or resume, and the hook of
    /// [`Trainer::on_start`](crate::Trainer::on_start) has written its files to the run's directory. Returns the
    /// ranks of that run; `None` if the run has already ended and nothing is left to do.
    ///
    /// For programs whose other ranks read their examples from that directory: they call it before they create
    /// their [`Trainer`](crate::Trainer), which otherwise waits itself. Rank 0 does not wait.
    pub fn wait_for_start(&self) -> Option<Self> {
        let begun = self.begins();
        begun.then(|| Self {
            begun,
            ..self.clone()
        })
    }

    /// Whether the run starts, as rank 0 announces.
    pub(crate) fn begins(&self) -> bool {
        self.begun || self.is_first() || self.receive_start()
    }

    /// Announces, as rank 0, whether the run starts.
    pub(crate) fn send_start(&self, begins: bool) {
        self.of_first([f64::from(u8::from(begins))]);
    }

    fn receive_start(&self) -> bool {
        let [begins] = self.of_first([0.0]);
        begins > 0.0
    }

    /// Whether this is the only process.
    pub(crate) fn is_alone(&self) -> bool {
        self.others.is_none()
    }

    /// The sum of each value over all processes.
    pub(crate) fn sum<const N: usize>(&self, mut numbers: [f64; N]) -> [f64; N] {
        if let Some(others) = &self.others {
            others.sum_counts(&mut numbers);
        }
        numbers
    }

    /// Whether each condition holds in any process.
    pub(crate) fn any<const N: usize>(&self, holds: [bool; N]) -> [bool; N] {
        self.sum(holds.map(|holds| f64::from(u8::from(holds))))
            .map(|processes| processes > 0.0)
    }

    /// The statistics summed over all processes.
    pub(crate) fn sum_statistics(&self, own: &Statistics) -> Statistics {
        self.sum([own.loss, own.nll, own.correct, own.tokens])
            .into()
    }

    /// One value per process, by rank.
    pub(crate) fn of_each(&self, own: f64) -> Vec<f64> {
        let mut all = vec![0.0; self.size()];
        all[self.rank()] = own;
        if let Some(others) = &self.others {
            others.sum_counts(&mut all);
        }
        all
    }

    /// The values of rank 0.
    pub(crate) fn of_first<const N: usize>(&self, numbers: [f64; N]) -> [f64; N] {
        let Some(others) = &self.others else {
            return numbers;
        };
        let mut bytes = numbers.map(f64::to_le_bytes);
        others.broadcast(bytes.as_flattened_mut());
        bytes.map(f64::from_le_bytes)
    }

    /// The bytes of rank 0, of any length.
    pub(crate) fn bytes_of_first(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if let Some(others) = &self.others {
            let mut length = (bytes.len() as u64).to_le_bytes();
            others.broadcast(&mut length);
            bytes.resize(u64::from_le_bytes(length) as usize, 0);
            others.broadcast(&mut bytes);
        }
        bytes
    }

    /// Replaces each value by its sum over all processes; all of them must call this.
    pub fn sum_in_place(&self, numbers: &mut [f32]) {
        if let Some(others) = &self.others {
            others.sum(numbers);
        }
    }

    /// Returns when every process has called it.
    pub(crate) fn wait_for_all(&self) {
        self.sum([0.0]);
    }
}
