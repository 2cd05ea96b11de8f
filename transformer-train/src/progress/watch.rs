//! The observers of a run in progress. Points of training are computed here, once for all observers.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{ConfigRule, ObserverError, TrainError};
use crate::objective::statistics::{Statistics, UpdateItem};
use crate::progress::json_log::{JsonLog, LOG_FILE};
use crate::progress::observer::{RunObserver, RunStart, SkippedUpdate, TrainingPoint};
use crate::progress::tensorboard::{TENSORBOARD_DIRECTORY, TensorBoardLog};
use crate::validation::{AverageOutcome, SampleOutput, Validation};

/// Maximum time between two points.
const POINT_WITHIN: Duration = Duration::from_secs(30);

/// The observers of a future run.
pub(crate) struct Watching {
    pub observers: Vec<Box<dyn RunObserver>>,
    /// Number of updates between two points.
    pub every: usize,
    /// Whether to write a log as JSON lines into the directory.
    pub json: bool,
    /// Whether to write TensorBoard event files into the directory.
    pub tensorboard: bool,
}

impl Default for Watching {
    fn default() -> Self {
        Self {
            observers: Vec::new(),
            every: 50,
            json: false,
            tensorboard: false,
        }
    }
}

impl Watching {
    /// Checks that the interval between points is valid.
    pub fn validate(&self) -> Result<(), TrainError> {
        match self.every {
            0 => Err(TrainError::Config {
                key: "observe_every",
                value: "0".into(),
                expected: ConfigRule::AtLeastOne,
            }),
            _ => Ok(()),
        }
    }

    /// Starts the observers, including the enabled logs of `directory`, and finally the display, which takes over
    /// the terminal.
    pub fn start(
        self,
        directory: Option<&Path>,
        display: impl FnOnce() -> Option<Box<dyn RunObserver>>,
        start: &RunStart<'_>,
    ) -> Result<Watch, TrainError> {
        let mut observers = self.observers;
        if let Some(directory) = directory {
            if self.json {
                observers.push(Box::new(JsonLog::new(directory.join(LOG_FILE))));
            }
            if self.tensorboard {
                let directory = directory.join(TENSORBOARD_DIRECTORY);
                observers.push(Box::new(TensorBoardLog::new(directory)));
            }
        }
        let begin = |observer: &mut Box<dyn RunObserver>| {
            let started = observer.on_start(start);
            started.map_err(|source| TrainError::Observer { source })
        };
        observers.iter_mut().try_for_each(begin)?;
        if let Some(mut display) = display() {
            begin(&mut display)?;
            observers.push(display);
        }
        Ok(Watch {
            observers,
            errors: Vec::new(),
            every: self.every,
            update: start.update,
            since: Since::default(),
            seconds: start.seconds,
            updated: start.seconds,
            interval: (Since::default(), start.seconds),
            last_point: Instant::now(),
        })
    }
}

/// Observers, and the training since their last point.
pub(crate) struct Watch {
    observers: Vec<Box<dyn RunObserver>>,
    /// The errors of observers that failed and are no longer called.
    errors: Vec<ObserverError>,
    every: usize,
    /// The last update.
    update: usize,
    since: Since,
    /// Seconds spent training until the last point.
    seconds: f64,
    /// Seconds spent training until the last update.
    updated: f64,
    /// The training since the last validation, and the training seconds before it.
    interval: (Since, f64),
    last_point: Instant,
}

/// The training since a point in time.
#[derive(Default)]
struct Since {
    updates: usize,
    /// Updates that were not skipped, their tokens, and the sum of their gradient norms.
    made: usize,
    statistics: Statistics,
    norms: f64,
    /// As of the last update.
    skipped: usize,
    learning_rate: f64,
}

impl Since {
    fn add(&mut self, item: &UpdateItem, learning_rate: f64, skipped: usize) {
        self.updates += 1;
        self.skipped = skipped;
        self.learning_rate = learning_rate;
        if item.is_finite() {
            self.made += 1;
            self.statistics.add(&item.statistics);
            self.norms += item.gradient_norm;
        }
    }

    /// The point that ends with `update`; its training began and ended at these training seconds.
    fn point(&self, update: usize, began: f64, seconds: f64) -> TrainingPoint {
        let statistics = &self.statistics;
        TrainingPoint {
            update,
            updates: self.updates,
            skipped: self.skipped,
            seconds,
            tokens: statistics.tokens as u64,
            loss: statistics.mean_loss(),
            perplexity: statistics.perplexity(),
            accuracy: statistics.accuracy(),
            learning_rate: self.learning_rate,
            tokens_per_second: statistics.tokens / (seconds - began),
            gradient_norm: self.norms / self.made as f64,
        }
    }
}

impl Watch {
    /// Counts the next update. `skipped` is the number of updates that the run has skipped so far.
    pub fn count(&mut self, item: &UpdateItem, learning_rate: f64, skipped: usize) {
        self.update += 1;
        self.since.add(item, learning_rate, skipped);
        if !item.is_finite() {
            let skipped = SkippedUpdate {
                update: self.update,
                loss: item.statistics.mean_loss(),
                gradient_norm: item.gradient_norm,
            };
            self.emit(|observer| observer.on_skip(&skipped));
        }
    }

    /// Reports the update counted last, and a point if one is due. `seconds` is the training time of the run.
    pub fn after_update(&mut self, item: &UpdateItem, seconds: f64) {
        let Since {
            learning_rate,
            skipped,
            ..
        } = self.since;
        let mut own = Since::default();
        own.add(item, learning_rate, skipped);
        let own = own.point(self.update, self.updated, seconds);
        let (interval, began) = &mut self.interval;
        interval.add(item, learning_rate, skipped);
        let interval = interval.point(self.update, *began, seconds);
        self.updated = seconds;
        self.emit(|observer| observer.on_update(&own, &interval));
        if self.update == 1
            || self.update.is_multiple_of(self.every)
            || self.last_point.elapsed() >= POINT_WITHIN
        {
            self.point(seconds);
        }
    }

    /// Reports the training since the last point, if any. Called before each checkpoint, so that a run resumed
    /// from it begins with a new point.
    pub fn point(&mut self, seconds: f64) {
        if self.since.updates == 0 {
            return;
        }
        let point = std::mem::take(&mut self.since).point(self.update, self.seconds, seconds);
        self.seconds = seconds;
        self.last_point = Instant::now();
        self.emit(|observer| observer.on_training(&point));
    }

    /// Reports a validation and its sample outputs.
    pub fn validated(&mut self, validation: &Validation, samples: &[SampleOutput]) {
        self.emit(|observer| observer.on_validation(validation));
        if !samples.is_empty() {
            self.emit(|observer| observer.on_samples(samples));
        }
        self.interval = (Since::default(), self.updated);
        // The duration of a validation does not count as time without a point.
        self.last_point = Instant::now();
    }

    /// Reports the average of the last checkpoints.
    pub fn averaged(&mut self, average: &AverageOutcome) {
        self.emit(|observer| observer.on_average(average));
    }

    /// Ends the observers, and returns the errors of those that failed.
    pub fn end(mut self) -> Vec<ObserverError> {
        self.emit(|observer| observer.on_end());
        self.errors
    }

    /// Calls every observer, and removes those that fail.
    fn emit(&mut self, call: impl Fn(&mut dyn RunObserver) -> Result<(), ObserverError>) {
        let errors = &mut self.errors;
        self.observers
            .retain_mut(|observer| match call(&mut **observer) {
                Ok(()) => true,
                Err(error) => {
                    errors.push(error);
                    false
                }
            });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::config::TrainingConfig;

    type Seen = Rc<RefCell<Vec<TrainingPoint>>>;

    /// Stores points, and fails at the point after update `fails_at`.
    struct Keep {
        seen: Seen,
        fails_at: usize,
    }

    impl RunObserver for Keep {
        fn on_training(&mut self, point: &TrainingPoint) -> Result<(), ObserverError> {
            self.seen.borrow_mut().push(point.clone());
            match point.update == self.fails_at {
                true => Err("full".into()),
                false => Ok(()),
            }
        }
    }

    fn keep(fails_at: usize) -> (Box<dyn RunObserver>, Seen) {
        let seen = Seen::default();
        let keep = Keep {
            seen: seen.clone(),
            fails_at,
        };
        (Box::new(keep), seen)
    }

    fn item(sums: [f64; 4], gradient_norm: f64) -> UpdateItem {
        UpdateItem {
            statistics: sums.into(),
            gradient_norm,
        }
    }

    /// A run after update 4, with 10 seconds of training.
    fn watch(every: usize, observers: Vec<Box<dyn RunObserver>>) -> Watch {
        let watching = Watching {
            observers,
            every,
            ..Watching::default()
        };
        let start = RunStart {
            update: 4,
            seconds: 10.0,
            validations: &[],
            averages: &[],
            config: &TrainingConfig::default(),
            deadline: None,
        };
        watching.start(None, || None, &start).unwrap()
    }

    /// Means are over all tokens of the updates that were made, however many each update has.
    #[test]
    fn a_point_has_the_means_of_its_updates() {
        let (observer, seen) = keep(0);
        let mut watch = watch(3, vec![observer]);
        let updates = [
            (item([2.0, 1.0, 0.0, 1.0], 4.0), 0),
            (item([9.0, 6.0, 1.0, 3.0], 2.0), 0),
            (item([f64::NAN, 0.0, 0.0, 9.0], 7.0), 1),
            (item([2.0, 1.0, 5.0, 7.0], 3.0), 1),
        ];
        for (index, (update, skipped)) in updates.iter().enumerate() {
            watch.count(update, 0.25 * index as f64, *skipped);
            watch.after_update(update, 11.0 + index as f64);
        }
        watch.point(16.0);
        watch.point(17.0);
        let seen = seen.borrow();
        let covered: Vec<_> = seen.iter().map(|p| (p.update, p.updates)).collect();
        assert_eq!(covered, [(6, 2), (8, 2)]);

        let [first, second] = [&seen[0], &seen[1]];
        assert_eq!((first.skipped, first.tokens), (0, 4));
        // (2 + 9) / 4, exp((1 + 6) / 4), 100 (0 + 1) / 4
        assert_eq!(first.loss, 2.75);
        assert_eq!(first.perplexity, 1.75_f64.exp());
        assert_eq!(first.accuracy, 25.0);
        assert_eq!((first.gradient_norm, first.learning_rate), (3.0, 0.25));
        // From second 10 to second 12.
        assert_eq!((first.seconds, first.tokens_per_second), (12.0, 2.0));

        assert_eq!((second.skipped, second.tokens), (1, 7));
        assert_eq!(second.loss, 2.0 / 7.0);
        assert_eq!((second.gradient_norm, second.learning_rate), (3.0, 0.75));
        assert_eq!((second.seconds, second.tokens_per_second), (16.0, 1.75));
    }

    #[test]
    fn an_observer_that_fails_is_left_out_and_the_others_go_on() {
        let (fails, first) = keep(5);
        let (goes_on, second) = keep(0);
        let mut watch = watch(1, vec![fails, goes_on]);
        for seconds in [11.0, 12.0, 13.0] {
            let update = item([1.0; 4], 1.0);
            watch.count(&update, 0.5, 0);
            watch.after_update(&update, seconds);
        }
        assert_eq!((first.borrow().len(), second.borrow().len()), (1, 3));
        let errors = watch.end();
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, ["full"]);
    }
}
