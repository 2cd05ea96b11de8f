//! The processes that train one model together.
//!
//! | file | has |
//! |---|---|
//! | here | communication between the processes; none where a process is alone |
//! | `gradients` | the sum of the gradients of all processes |
//! | `alike` | whether all processes train the same model on the same data |
//! | `mpi` | processes that `mpirun` or `srun` has started |

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

/// The communication between processes that train one model together, each of which has a *rank* from 0 on.
///
/// Every process calls the same methods in the same order, with buffers of the same lengths, and each call returns
/// when all have called it. `Mpi`, with the feature `mpi`, is one; a test may be another one, over threads.
///
/// A process that ends without the others must end their calls, too, by ending them or by a panic: none may wait for
/// ever.
pub trait Communicator {
    /// The rank of this process, below [`size`](Self::size).
    fn rank(&self) -> usize;

    /// The number of processes.
    fn size(&self) -> usize;

    /// Replaces each number by its sum over all processes. The sums must be the same in every process, to the last
    /// bit.
    fn sum(&self, numbers: &mut [f32]);

    /// Replaces each number by its sum over all processes: for few numbers, in double precision.
    fn sum_counts(&self, numbers: &mut [f64]);

    /// Replaces the bytes by those of rank 0.
    fn broadcast(&self, bytes: &mut [u8]);

    /// From now on, a process that waits longer than this in one of these calls ends with an error. By default,
    /// nothing happens.
    fn limit_waits(&self, longest: Duration) {
        let _ = longest;
    }
}

/// The processes that train one model together, as this one sees them: for
/// [`Trainer::ranks`](crate::Trainer::ranks). A process by itself is rank 0 of one, for which nothing is sent.
///
/// ```
/// use transformer_train::ranks::Ranks;
///
/// let ranks = Ranks::alone();
/// assert_eq!((ranks.rank(), ranks.size()), (0, 1));
/// ```
#[derive(Clone, Default)]
pub struct Ranks {
    /// `None` for a process by itself.
    others: Option<Rc<dyn Communicator>>,
    /// Whether rank 0's message that the run begins was received.
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

    /// A process by itself.
    pub fn alone() -> Self {
        Self::default()
    }

    /// The rank of this process: 0 for the one that leads.
    pub fn rank(&self) -> usize {
        self.others.as_ref().map_or(0, |others| others.rank())
    }

    /// The number of processes.
    pub fn size(&self) -> usize {
        self.others.as_ref().map_or(1, |others| others.size())
    }

    /// Whether this is rank 0, the only one that has the run's directory, validates and logs.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Lets a process that waits longer than this for the others end with an error. Before, waits have no limit.
    pub fn limit_waits(&self, longest: Duration) {
        if let Some(others) = &self.others {
            others.limit_waits(longest);
        }
    }

    /// Checks that an update can be dealt out to these processes.
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

    /// Waits until rank 0's run is sure to begin or to go on, and the function of
    /// [`Trainer::on_start`](crate::Trainer::on_start) has written its files into the run's directory. Returns the
    /// ranks of that run; `None` where the run had ended, and there is nothing to do.
    ///
    /// For a program whose other ranks read their examples from that directory: they call it before they make their
    /// [`Trainer`](crate::Trainer), which otherwise waits by itself. In rank 0 it does not wait.
    pub fn wait_for_start(&self) -> Option<Self> {
        let begun = self.begins();
        begun.then(|| Self {
            begun,
            ..self.clone()
        })
    }

    /// Whether the run begins, once rank 0 has said so.
    pub(crate) fn begins(&self) -> bool {
        self.begun || self.is_first() || self.receive_start()
    }

    /// Tells the others, as rank 0, whether the run begins.
    pub(crate) fn send_start(&self, begins: bool) {
        self.of_first([f64::from(u8::from(begins))]);
    }

    fn receive_start(&self) -> bool {
        let [begins] = self.of_first([0.0]);
        begins > 0.0
    }

    /// Whether there is no other process.
    pub(crate) fn is_alone(&self) -> bool {
        self.others.is_none()
    }

    /// Each number's sum over all processes.
    pub(crate) fn sum<const N: usize>(&self, mut numbers: [f64; N]) -> [f64; N] {
        if let Some(others) = &self.others {
            others.sum_counts(&mut numbers);
        }
        numbers
    }

    /// Whether each holds in any process.
    pub(crate) fn any<const N: usize>(&self, holds: [bool; N]) -> [bool; N] {
        self.sum(holds.map(|holds| f64::from(u8::from(holds))))
            .map(|processes| processes > 0.0)
    }

    /// The tokens of all processes together.
    pub(crate) fn sum_statistics(&self, own: &Statistics) -> Statistics {
        self.sum([own.loss, own.nll, own.correct, own.tokens])
            .into()
    }

    /// A number of each process, by rank.
    pub(crate) fn of_each(&self, own: f64) -> Vec<f64> {
        let mut all = vec![0.0; self.size()];
        all[self.rank()] = own;
        if let Some(others) = &self.others {
            others.sum_counts(&mut all);
        }
        all
    }

    /// The numbers of rank 0.
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

    /// Replaces each number by its sum over all processes, all of which call this.
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
