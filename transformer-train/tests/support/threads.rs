//! Processes that are threads: they train together, and share nothing but their messages.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use transformer_train::ranks::{Communicator, Ranks};

/// Calls `train` in this many threads at once, each with its rank. The results are by rank; a thread has none
/// that panicked, such as one whose call was ended because another thread had ended.
pub fn together<T: Send>(
    size: usize,
    train: impl Fn(&Ranks) -> T + Sync,
) -> Vec<thread::Result<T>> {
    together_with(size, |_, _| (), train)
}

/// [`together`], where a rank then changes the sums that it has received.
pub fn together_with<T: Send>(
    size: usize,
    change: fn(usize, &mut [f32]),
    train: impl Fn(&Ranks) -> T + Sync,
) -> Vec<thread::Result<T>> {
    let shared = Arc::new(Shared {
        round: Mutex::new(Round {
            sent: vec![None; size],
            received: 0,
            has_ended: false,
        }),
        changed: Condvar::new(),
    });
    thread::scope(|scope| {
        let start = |rank| {
            let (train, shared) = (&train, shared.clone());
            let threads = Threads {
                rank,
                size,
                change,
                shared,
            };
            scope.spawn(move || train(&Ranks::new(threads)))
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    })
}

/// The results of threads none of which failed.
pub fn all_of<T: Send>(size: usize, train: impl Fn(&Ranks) -> T + Sync) -> Vec<T> {
    let results = together(size, train).into_iter();
    results
        .map(|result| result.expect("no rank panics"))
        .collect()
}

struct Threads {
    rank: usize,
    size: usize,
    /// This rank's change of a sum.
    change: fn(usize, &mut [f32]),
    shared: Arc<Shared>,
}

struct Shared {
    round: Mutex<Round>,
    changed: Condvar,
}

/// One call of every thread.
struct Round {
    /// The message of each.
    sent: Vec<Option<Vec<u8>>>,
    /// How many have received it all.
    received: usize,
    /// Whether a thread has ended.
    has_ended: bool,
}

impl Threads {
    fn round(&self) -> MutexGuard<'_, Round> {
        self.shared
            .round
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while that holds.
    ///
    /// # Panics
    /// When another thread has ended meanwhile.
    fn wait<'a>(
        &self,
        round: MutexGuard<'a, Round>,
        holds: impl Fn(&Round) -> bool,
    ) -> MutexGuard<'a, Round> {
        let mut round = round;
        while holds(&round) {
            assert!(!round.has_ended, "another rank has ended");
            let woken = self.shared.changed.wait(round);
            round = woken.unwrap_or_else(PoisonError::into_inner);
        }
        round
    }

    /// Sends this thread's bytes, and returns those of every thread, by rank.
    fn exchange(&self, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        // Others may not have received all of the round before.
        let mut round = self.wait(self.round(), |round| round.sent[self.rank].is_some());
        round.sent[self.rank] = Some(bytes);
        self.shared.changed.notify_all();
        let mut round = self.wait(round, |round| round.sent.contains(&None));
        let all = round.sent.iter().flatten().cloned().collect();
        round.received += 1;
        if round.received == self.size {
            round.received = 0;
            round.sent.fill(None);
            self.shared.changed.notify_all();
        }
        all
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.round().has_ended = true;
        self.shared.changed.notify_all();
    }
}

impl Communicator for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn sum(&self, numbers: &mut [f32]) {
        let own = numbers.iter().flat_map(|number| number.to_le_bytes());
        let all = self.exchange(own.collect());
        numbers.fill(0.0);
        for bytes in all {
            for (sum, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *sum += f32::from_le_bytes(*bytes);
            }
        }
        (self.change)(self.rank, numbers);
    }

    fn sum_counts(&self, numbers: &mut [f64]) {
        let own = numbers.iter().flat_map(|number| number.to_le_bytes());
        let all = self.exchange(own.collect());
        numbers.fill(0.0);
        for bytes in all {
            for (sum, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *sum += f64::from_le_bytes(*bytes);
            }
        }
    }

    fn broadcast(&self, bytes: &mut [u8]) {
        let all = self.exchange(bytes.to_vec());
        bytes.copy_from_slice(&all[0]);
    }
}
