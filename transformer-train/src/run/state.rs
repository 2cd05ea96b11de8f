//! The state of a run, and the settings that must not change when it is resumed.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::config::TrainingConfig;
use crate::data::ExampleSet;
use crate::error::{TrainError, same_config};
use crate::metrics::criterion::Criterion;
use crate::objective::statistics::{Statistics, UpdateItem};
use crate::run::scheduled::Scheduled;
use crate::run::update_loop::StopReason;
use crate::validation::{AverageOutcome, Validation};

/// The content of `run.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct RunState {
    /// Number of updates, including skipped ones.
    pub update: usize,
    /// Number of skipped updates.
    #[serde(default)]
    pub skipped: usize,
    /// Number of updates skipped since the last one that was made.
    #[serde(default)]
    pub skipped_in_a_row: usize,
    pub seconds: f64,
    pub config: TrainingConfig,
    #[serde(rename = "pairs")]
    pub examples: usize,
    #[serde(rename = "pairs_checksum")]
    pub checksum: u32,
    /// The validation examples; earlier versions did not record them.
    #[serde(default, rename = "validation_data")]
    pub valid: Option<ExampleSet>,
    /// The names of the frozen parameters; earlier versions did not record them.
    #[serde(default)]
    pub frozen: Option<Vec<String>>,
    pub validations: Vec<Validation>,
    /// Statistics of the training since the last validation.
    pub since_validation: Statistics,
    #[serde(default)]
    pub scheduled: Scheduled,
    /// The averages made at the ends of the run.
    #[serde(default)]
    pub averages: Vec<AverageOutcome>,
    /// Which model the directory has; earlier versions did not record it.
    #[serde(default)]
    pub choice: Option<Choice>,
    /// Whether the hook has ended the run and the average of its last checkpoints is still to be made.
    #[serde(default)]
    pub average_is_due: bool,
}

/// Which model the directory has, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Choice {
    /// The update after which it was validated.
    pub update: usize,
    /// Whether it is the average made after that update.
    pub is_average: bool,
    /// The metric by which it was the best: `best_by` at that time.
    pub by: String,
}

impl RunState {
    /// The initial state of a run that trains and validates on these examples, with these parameters frozen.
    pub fn new(
        config: &TrainingConfig,
        train: ExampleSet,
        valid: ExampleSet,
        frozen: Vec<String>,
    ) -> Self {
        Self {
            config: config.clone(),
            examples: train.examples,
            checksum: train.checksum,
            valid: Some(valid),
            frozen: Some(frozen),
            scheduled: Scheduled::none(),
            ..Self::default()
        }
    }

    /// Records that the directory now has this state's model, or the average of the last checkpoints.
    pub fn note_choice(&mut self, is_average: bool) {
        self.choice = Some(Choice {
            update: self.update,
            is_average,
            by: self.config.best_by.number.clone(),
        });
    }

    /// Counts the next update; it is skipped unless it is finite.
    pub fn count(&mut self, item: &UpdateItem) {
        self.update += 1;
        match item.is_finite() {
            true => {
                self.skipped_in_a_row = 0;
                self.since_validation.add(&item.statistics);
            }
            false => {
                self.skipped_in_a_row += 1;
                self.skipped += 1;
            }
        }
    }

    /// The update of the last validation.
    pub fn validated_update(&self) -> usize {
        self.validations.last().map_or(0, |last| last.update)
    }

    /// Number of updates, excluding skipped ones.
    pub fn made(&self) -> usize {
        self.update - self.skipped
    }

    /// Records that there is a checkpoint of this state.
    pub fn note_checkpoint(&mut self) {
        let TrainingConfig {
            validate_every,
            checkpoint_every,
            keep_checkpoints,
            ..
        } = self.config;
        let every = [Some(validate_every), checkpoint_every];
        let is_multiple = |updates: usize| self.update.is_multiple_of(updates);
        if self.update > 0 && every.into_iter().flatten().any(is_multiple) {
            self.scheduled.add(self.update, keep_checkpoints);
        }
    }

    /// The newest `count` of the last checkpoints among `there`, which includes this state's, in order.
    pub fn last_checkpoints(&self, there: &[usize], count: usize) -> Vec<usize> {
        self.scheduled.last(self.update, there, count)
    }

    /// Which of the checkpoints `there`, which include this state's, are kept: the last ones, and those of the
    /// best validations.
    pub fn kept_checkpoints(&self, there: &[usize]) -> Vec<usize> {
        let validations = self.validations.iter();
        let validated = validations.filter(|validation| there.contains(&validation.update));
        let best = self.config.best_by.ranked(validated).into_iter();
        let best = best.take(self.config.keep_best);
        let mut kept = self.last_checkpoints(there, self.config.keep_checkpoints);
        kept.extend(best.map(|validation| validation.update));
        kept
    }

    /// Whether a validation is better than all earlier ones and than the averages of checkpoints.
    pub fn is_best(&self, validation: &Validation) -> bool {
        let by = &self.config.best_by;
        let best = self.best().map_or(f64::NAN, |best| by.value(best));
        by.is_better(by.value(validation), best)
    }

    /// Whether a validation's model replaces the directory's model: it is the best, or no model so far has a value
    /// to compare.
    pub fn replaces_model(&self, validation: &Validation) -> bool {
        self.is_best(validation) || self.best().is_none()
    }

    /// The validation of the best model so far.
    fn best(&self) -> Option<&Validation> {
        let averages = self.averages.iter().map(|average| &average.validation);
        self.config
            .best_by
            .best(self.validations.iter().chain(averages))
    }

    /// Whether the last validation, at this state, is at least the `patience`-th in a row without an improvement.
    /// A run resumed in this state has ended, unless `patience` is raised.
    pub fn is_out_of_patience(&self) -> bool {
        self.update == self.validated_update()
            && self
                .config
                .patience
                .is_some_and(|patience| self.not_better() >= patience)
    }

    /// Why the run has ended, if nothing is left to do except possibly the average of its last checkpoints: all
    /// updates are made or early stopping applies, and the model is validated.
    pub fn ended(&self) -> Option<StopReason> {
        if self.update != self.validated_update() || self.average_is_due {
            None
        } else if self.update >= self.config.updates {
            Some(StopReason::Updates)
        } else {
            self.is_out_of_patience().then_some(StopReason::Patience)
        }
    }

    /// The average of these checkpoints, if it was made at the current update.
    pub fn made_average(&self, checkpoints: &[usize]) -> Option<&AverageOutcome> {
        let mut averages = self.averages.iter();
        averages.find(|average| average.is_of(self.update, checkpoints))
    }

    /// Number of validations since the best one. Those that were made early do not count, good or bad: an uninterrupted
    /// run would not have them.
    fn not_better(&self) -> usize {
        let by = &self.config.best_by;
        let mut best = f64::NAN;
        let mut since = 0;
        for validation in self.validations.iter().filter(|other| !other.early) {
            let value = by.value(validation);
            since += 1;
            if by.is_better(value, best) {
                best = value;
                since = 0;
            }
        }
        since
    }

    /// Checks that the counts agree with each other and with the update in the checkpoint's name.
    ///
    /// # Errors
    /// Describes the disagreement.
    pub fn check_counts(&self, update: usize) -> Result<(), String> {
        if self.update != update {
            return Err(format!(
                "update {} in a checkpoint of update {update}",
                self.update
            ));
        }
        let counts = [self.skipped_in_a_row, self.skipped, self.update];
        if !counts.is_sorted() {
            let [in_a_row, skipped, updates] = counts;
            return Err(format!(
                "{in_a_row} consecutive updates skipped, {skipped} skipped, {updates} in total"
            ));
        }
        match self.validations.last() {
            Some(last) if last.update > self.update => {
                Err(format!("a validation after update {}", last.update))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a run with the settings and data of `now` continues this one. `name` is what an example is
    /// called.
    pub fn continues_as(&self, now: &Self, path: &Path, name: &str) -> Result<(), TrainError> {
        same_settings(path, &self.config, &now.config)?;
        if let (Some(before), Some(now)) = (&self.frozen, &now.frozen) {
            same_frozen(path, before, now)?;
        }
        let [before, trained] = [self, now].map(Self::train);
        if before != trained {
            return Err(TrainError::OtherData {
                path: path.to_owned(),
                before: before.shown(name),
                now: trained.shown(name),
            });
        }
        match (self.valid, now.valid) {
            (Some(before), Some(now)) if before != now => Err(TrainError::OtherValidation {
                path: path.to_owned(),
                before: before.shown(name),
                now: now.shown(name),
            }),
            _ => Ok(()),
        }
    }

    /// The training examples.
    fn train(&self) -> ExampleSet {
        ExampleSet {
            examples: self.examples,
            checksum: self.checksum,
        }
    }
}

/// Checks that a run with the settings `now` continues a run with the settings `before`, from the checkpoint at
/// `path`.
pub(crate) fn same_settings(
    path: &Path,
    before: &TrainingConfig,
    now: &TrainingConfig,
) -> Result<(), TrainError> {
    // These settings may change: the length of training, unless the learning rate depends on it, and settings that
    // do not affect the weights.
    let comparable = |config: &TrainingConfig| TrainingConfig {
        updates: match config.schedule.falls_to_zero() {
            true => config.updates,
            false => 0,
        },
        validate_every: 0,
        skip_limit: 0,
        best_by: Criterion::default(),
        patience: None,
        checkpoint_every: None,
        checkpoint_minutes: None,
        keep_checkpoints: 0,
        keep_best: 0,
        average_last: 0,
        ..config.clone()
    };
    same_config(path, &comparable(before), &comparable(now))
}

/// Checks that the frozen parameters equal those of the checkpoint at `path`, in any order.
pub(crate) fn same_frozen(
    path: &Path,
    before: &[String],
    now: &[String],
) -> Result<(), TrainError> {
    let other = |parameter: &String, is_frozen| TrainError::OtherFrozen {
        path: path.to_owned(),
        parameter: parameter.clone(),
        is_frozen,
    };
    let added = now.iter().find(|name| !before.contains(name));
    let removed = before.iter().find(|name| !now.contains(name));
    match (added, removed) {
        (Some(added), _) => Err(other(added, true)),
        (None, Some(removed)) => Err(other(removed, false)),
        (None, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::tests::validation;

    /// A run without averages, whose validations after updates 10, 20, … have these values.
    fn run(config: TrainingConfig, numbers: &[f64]) -> RunState {
        let numbered = (1..).zip(numbers);
        let validations: Vec<_> = numbered
            .map(|(index, &number)| validation(10 * index, number))
            .collect();
        RunState {
            update: 10 * numbers.len(),
            config,
            examples: 1,
            validations,
            scheduled: Scheduled::none(),
            ..RunState::default()
        }
    }

    fn config() -> TrainingConfig {
        TrainingConfig {
            validate_every: 10,
            best_by: Criterion::highest("BLEU"),
            keep_checkpoints: 2,
            ..TrainingConfig::default()
        }
    }

    /// The checkpoints that remain if each is written, and old ones are removed, during the run.
    fn left(config: &TrainingConfig, made: &[usize], numbers: &[f64]) -> Vec<usize> {
        let mut state = run(config.clone(), &[]);
        let mut there = Vec::new();
        for &update in made {
            state.update = update;
            let index = update / 10;
            if update.is_multiple_of(10) && index <= numbers.len() {
                let number = numbers[index - 1];
                state.validations.push(validation(update, number));
            }
            state.note_checkpoint();
            there.push(update);
            let kept = state.kept_checkpoints(&there);
            assert!(kept.contains(&update), "the newest is kept");
            there.retain(|update| kept.contains(update));
        }
        there
    }

    #[test]
    fn the_newest_and_the_best_checkpoints_are_kept_each_once() {
        let numbers = [5.0, 9.0, 1.0, f64::NAN, 3.0, 8.0];
        let made = [10, 20, 30, 40, 50, 60];
        let with_best = |keep_best| {
            let config = TrainingConfig {
                keep_best,
                ..config()
            };
            left(&config, &made, &numbers)
        };
        assert_eq!(with_best(0), [50, 60]);
        assert_eq!(with_best(1), [20, 50, 60]);
        // 60 is the second best.
        assert_eq!(with_best(2), [20, 50, 60]);
        assert_eq!(with_best(3), [10, 20, 50, 60]);
        // A checkpoint with NaN is never one of the best.
        assert_eq!(with_best(9), [10, 20, 30, 50, 60]);
    }

    #[test]
    fn checkpoints_by_time_and_of_interruptions_stay_until_the_next_one() {
        let config = TrainingConfig {
            checkpoint_every: Some(5),
            ..config()
        };
        assert_eq!(left(&config, &[5, 10, 12], &[]), [10, 12]);
        assert_eq!(left(&config, &[5, 10, 12, 13], &[]), [10, 13]);
        // The remaining checkpoints are the same as in a run without those.
        let undisturbed = left(&config, &[5, 10, 15], &[]);
        assert_eq!(left(&config, &[5, 10, 12, 13, 15], &[]), undisturbed);
        assert_eq!(undisturbed, [10, 15]);
    }

    #[test]
    fn the_best_is_better_than_all_validations_and_averages_and_nan_never_is() {
        let mut state = run(config(), &[f64::NAN, f64::NAN]);
        // Nothing is known about the directory's model.
        assert!(state.replaces_model(&validation(30, f64::NAN)));
        assert!(!state.is_best(&validation(30, f64::NAN)));
        assert!(state.is_best(&validation(30, 4.0)));

        state.validations.push(validation(30, 4.0));
        for (number, expected) in [(4.0, false), (f64::NAN, false), (4.5, true)] {
            assert_eq!(state.is_best(&validation(40, number)), expected);
            assert_eq!(state.replaces_model(&validation(40, number)), expected);
        }
        state.averages.push(AverageOutcome {
            checkpoints: vec![20, 30],
            validation: validation(30, 6.0),
            kept: true,
        });
        assert!(!state.is_best(&validation(40, 5.0)));
        assert!(state.is_best(&validation(40, 7.0)));
        // A run resumed with another criterion compares by that one.
        state.config.best_by = Criterion::lowest("BLEU");
        assert!(state.is_best(&validation(40, 3.0)));
        assert!(!state.is_best(&validation(40, 5.0)));
    }

    #[test]
    fn patience_is_over_after_as_many_validations_that_are_not_better() {
        let over = |patience, numbers: &[f64]| {
            let config = TrainingConfig {
                patience,
                ..config()
            };
            run(config, numbers).is_out_of_patience()
        };
        let numbers = [3.0, 5.0, 5.0, f64::NAN, 4.0];
        assert!(over(Some(3), &numbers));
        assert!(!over(Some(4), &numbers));
        assert!(!over(None, &numbers));
        assert!(!over(Some(3), &numbers[..4]));
        assert!(!over(Some(1), &[3.0, 5.0]));
        assert!(!over(Some(1), &[]));
        assert!(over(Some(2), &[f64::NAN, f64::NAN]));

        let config = TrainingConfig {
            patience: Some(1),
            ..config()
        };
        let mut between = run(config.clone(), &[3.0, 2.0]);
        between.update += 1;
        assert!(!between.is_out_of_patience());
        // Where the time was over, for example.
        let mut stopped = run(config.clone(), &[3.0, 2.0]);
        stopped.validations[1].early = true;
        assert!(!stopped.is_out_of_patience());
        // Better than the ones before and after it: without it, the last one is the best.
        let mut stopped = run(config, &[3.0, 5.0, 4.0]);
        stopped.validations[1].early = true;
        assert!(!stopped.is_out_of_patience());
    }

    #[test]
    fn settings_without_an_effect_on_the_weights_may_change() {
        let path = Path::new("run");
        let before = run(config(), &[]);
        let other = |config| run(config, &[]);
        let now = other(TrainingConfig {
            updates: 7,
            validate_every: 3,
            skip_limit: 4,
            best_by: Criterion::lowest("perplexity"),
            patience: Some(3),
            checkpoint_every: Some(9),
            checkpoint_minutes: Some(0.5),
            keep_checkpoints: 5,
            keep_best: 4,
            average_last: 5,
            ..config()
        });
        before.continues_as(&now, path, "pair").unwrap();
        let now = other(TrainingConfig {
            ema_decay: Some(0.99),
            ..config()
        });
        let error = before.continues_as(&now, path, "pair").unwrap_err();
        assert_eq!(
            error.to_string(),
            "run: made with `ema_decay` absent, not 0.99"
        );
    }

    #[test]
    fn frozen_parameters_must_not_change_where_they_are_known() {
        let path = Path::new("run");
        let with = |names: &[&str]| RunState {
            frozen: Some(names.iter().map(ToString::to_string).collect()),
            ..run(config(), &[])
        };
        let before = with(&["a", "b"]);
        before
            .continues_as(&with(&["b", "a"]), path, "pair")
            .unwrap();
        // The state of a run of an earlier version.
        let unknown = run(config(), &[]);
        unknown.continues_as(&before, path, "pair").unwrap();
        for (names, expected) in [
            (
                &["a", "b", "c"][..],
                "run: made with `c` trained, not frozen; ",
            ),
            (&["b"], "run: made with `a` frozen, not trained; "),
        ] {
            let error = before.continues_as(&with(names), path, "pair").unwrap_err();
            let found = error.to_string();
            assert!(found.starts_with(expected), "{found}");
        }
    }

    #[test]
    fn validation_data_must_not_change_where_they_are_known() {
        let path = Path::new("run");
        let with = |valid| RunState {
            valid,
            ..run(config(), &[])
        };
        let set = |examples, checksum| Some(ExampleSet { examples, checksum });
        let [known, unknown] = [set(9, 0xabc), None].map(with);
        known
            .continues_as(&with(set(9, 0xabc)), path, "pair")
            .unwrap();
        // The state of a run of an earlier version.
        unknown.continues_as(&known, path, "pair").unwrap();
        for (other, shown) in [
            (set(8, 0xabc), "8 pairs (checksum 00000abc)"),
            (set(9, 0xabd), "9 pairs (checksum 00000abd)"),
        ] {
            let error = known.continues_as(&with(other), path, "pair").unwrap_err();
            let found = error.to_string();
            let expected =
                format!("run: validated on 9 pairs (checksum 00000abc), not on {shown}; ");
            assert!(found.starts_with(&expected), "{found}");
        }
    }

    #[test]
    fn a_run_has_ended_where_nothing_is_left_to_do() {
        let limited = |updates, patience| TrainingConfig {
            updates,
            patience,
            ..config()
        };
        let ended = |updates, patience| run(limited(updates, patience), &[3.0, 2.0]).ended();
        assert_eq!(ended(20, None), Some(StopReason::Updates));
        assert_eq!(ended(15, None), Some(StopReason::Updates));
        assert_eq!(ended(30, None), None);
        assert_eq!(ended(30, Some(1)), Some(StopReason::Patience));
        assert_eq!(ended(30, Some(2)), None);

        let mut state = run(limited(20, None), &[3.0, 2.0]);
        state.average_is_due = true;
        assert_eq!(state.ended(), None);
        state.average_is_due = false;
        // The validation of the last update is missing.
        state.validations.pop();
        assert_eq!(state.ended(), None);
    }
}
