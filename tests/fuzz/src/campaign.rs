//! Many executions of a target.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use crate::guard::{self, hash, watched};
use crate::random::Random;
use crate::targets::Target;

/// The most failures of a target, one for each place, whose inputs are saved.
const MOST_SAVED: usize = 20;

/// How long a target is fuzzed: until either limit is reached.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    pub executions: u64,
    pub time: Option<Duration>,
}

/// The result of a campaign.
pub struct Outcome {
    pub target: &'static str,
    pub executions: u64,
    /// Inputs that were accepted.
    pub accepted: u64,
    pub time: Duration,
    pub failures: u64,
}

impl fmt::Display for Outcome {
    /// A row of a Markdown table: target, executions, seconds, executions per second, accepted in %, failures.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        let rate = self.executions as f64 / seconds.max(1e-9);
        let share = 100.0 * self.accepted as f64 / self.executions.max(1) as f64;
        write!(
            f,
            "| `{}` | {} | {seconds:.0} | {rate:.0} | {share:.0} | {} |",
            self.target, self.executions, self.failures
        )
    }
}

/// Fuzzes a target: first its seeds as they are, then mutations of them. The same seed makes the same inputs.
pub fn fuzz(name: &'static str, target: &mut Target, length: Length, seed: u64) -> Outcome {
    let mut random = Random::new(seed ^ hash(name.as_bytes()));
    let start = Instant::now();
    let mut outcome = Outcome {
        target: name,
        executions: 0,
        accepted: 0,
        time: Duration::ZERO,
        failures: 0,
    };
    let mut places = BTreeSet::new();
    let mut seeds = target.seeds.clone().into_iter();
    while outcome.executions < length.executions
        && length.time.is_none_or(|time| start.elapsed() < time)
    {
        let input = match seeds.next() {
            Some(seed) => seed,
            None => target.format.mutated(&target.seeds, &mut random),
        };
        outcome.executions += 1;
        match watched(name, &input, &mut target.run) {
            Ok(accepted) => outcome.accepted += u64::from(accepted),
            Err(problem) => {
                outcome.failures += 1;
                // The place of the failure.
                let place = problem.split(": ").next().unwrap_or_default().to_owned();
                if places.len() < MOST_SAVED && places.insert(place) {
                    guard::report(name, &input, &problem);
                }
            }
        }
    }
    outcome.time = start.elapsed();
    outcome
}

/// Reads one input again. Returns whether nothing happened that must not.
pub fn replay(name: &'static str, target: &mut Target, input: &[u8]) -> bool {
    match watched(name, input, &mut target.run) {
        Ok(_) => true,
        Err(problem) => {
            guard::report(name, input, &problem);
            false
        }
    }
}
