//! Learning-rate schedules (§5.3): the rate as a function of the update.

use std::f64::consts::PI;

use burn::lr_scheduler::LrScheduler;
use burn::tensor::backend::Backend;

use crate::config::{Schedule, TrainingConfig};
use crate::error::TrainError;

/// The learning rate of each update, computed from the configuration and the model's width.
///
/// ```
/// use transformer_train::TrainingConfig;
/// use transformer_train::optim::{RateSchedule, Schedule};
///
/// let config = TrainingConfig {
///     schedule: Schedule::Linear,
///     peak_rate: Some(0.8),
///     warmup: 4,
///     updates: 12,
///     ..TrainingConfig::default()
/// };
/// let schedule = RateSchedule::new(&config, 512);
/// // 0.8 · 2/4, 0.8 · 4/4, 0.8 · (12 - 8)/(12 - 4), 0
/// let expected = [(2, 0.4), (4, 0.8), (8, 0.4), (12, 0.0)];
/// for (update, rate) in expected {
///     assert!((schedule.rate(update) - rate).abs() < 1e-12);
/// }
/// ```
#[derive(Debug, Clone)]
pub struct RateSchedule {
    schedule: Schedule,
    peak: f64,
    /// `peak · √warmup`; in the paper, `1 / √d_model`.
    scale: f64,
    warmup: f64,
    /// Updates of the schedule before this run.
    start: usize,
    /// The last update, including those before this run.
    last: f64,
    /// Number of the run's updates whose rates [`LrScheduler::step`] has returned.
    made: usize,
}

impl RateSchedule {
    /// The schedule of a run, before its first update.
    ///
    /// # Panics
    /// When the warm-up or `d_model` is zero, which a validated configuration and a model never have.
    pub fn new(config: &TrainingConfig, d_model: usize) -> Self {
        assert!(config.warmup > 0, "a warm-up has at least one update");
        assert!(d_model > 0, "a model has a width");
        let warmup = config.warmup as f64;
        let (peak, scale) = match config.peak_rate {
            Some(peak) => (peak, peak * warmup.sqrt()),
            None => {
                let scale = config.learning_rate_factor * (d_model as f64).powf(-0.5);
                (scale / warmup.sqrt(), scale)
            }
        };
        Self {
            schedule: config.schedule,
            peak,
            scale,
            warmup,
            start: config.schedule_start,
            last: config.schedule_start.saturating_add(config.updates) as f64,
            made: 0,
        }
    }

    /// The schedule for a model of this width, before the first update.
    ///
    /// # Errors
    /// When the peak is the paper's and the model has no width.
    pub(crate) fn of(config: &TrainingConfig, width: Option<usize>) -> Result<Self, TrainError> {
        match (width, config.peak_rate) {
            (Some(width), _) => Ok(Self::new(config, width)),
            // The width is not used.
            (None, Some(_)) => Ok(Self::new(config, 1)),
            (None, None) => Err(TrainError::NoPeak),
        }
    }

    /// The rate of an update of the run, counted from 1. A rate that has decayed to zero stays zero.
    pub fn rate(&self, update: usize) -> f64 {
        let s = self.start.saturating_add(update) as f64;
        match self.schedule {
            // Warm-up and decay by the paper's formula, in Burn's order of operations: runs of earlier versions
            // are resumed bit for bit.
            Schedule::Noam => self.scale * s.powf(-0.5).min(s * self.warmup.powf(-1.5)),
            _ if s <= self.warmup => self.peak * s / self.warmup,
            Schedule::Linear => self.peak * (1.0 - self.decayed(s)),
            Schedule::Cosine => self.peak * (1.0 + (PI * self.decayed(s)).cos()) / 2.0,
            Schedule::Constant => self.peak,
        }
    }

    /// The fraction of the updates after the warm-up that ends with `s`: 1 at the last update.
    fn decayed(&self, s: f64) -> f64 {
        ((s - self.warmup) / (self.last - self.warmup)).min(1.0)
    }
}

impl LrScheduler for RateSchedule {
    /// The updates made.
    type Record<B: Backend> = usize;

    fn step(&mut self) -> f64 {
        self.made += 1;
        self.rate(self.made)
    }

    fn to_record<B: Backend>(&self) -> usize {
        self.made
    }

    fn load_record<B: Backend>(self, made: usize) -> Self {
        Self { made, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::lr_scheduler::noam::NoamLrSchedulerConfig;
    use burn_ndarray::NdArray;

    const ALL: [Schedule; 4] = [
        Schedule::Noam,
        Schedule::Linear,
        Schedule::Cosine,
        Schedule::Constant,
    ];

    fn config(schedule: Schedule) -> TrainingConfig {
        TrainingConfig {
            schedule,
            peak_rate: Some(0.8),
            warmup: 4,
            updates: 12,
            ..TrainingConfig::default()
        }
    }

    #[test]
    fn rates_are_the_paper_s() {
        let config = TrainingConfig {
            warmup: 4000,
            ..TrainingConfig::default()
        };
        let schedule = RateSchedule::new(&config, 512);
        // 512^-0.5 = 0.0441941738; 4000^-1.5 = 3.9528470752e-6; 4000^-0.5 = 0.0158113883.
        let expected = [
            (1, 1.746_928_107e-7),
            (100, 1.746_928_107e-5),
            (4000, 6.987_712_429e-4),
            (16_000, 3.493_856_214e-4),
        ];
        for (update, rate) in expected {
            let found = schedule.rate(update);
            assert!((found / rate - 1.0).abs() < 1e-6, "{update}: {found}");
        }
    }

    /// Earlier versions used Burn's schedule.
    #[test]
    fn the_paper_s_rates_are_burn_s_bit_for_bit() {
        for (factor, warmup, d_model) in [(1.0, 4, 8), (0.3, 4000, 512), (2.0, 7, 100)] {
            let config = TrainingConfig {
                learning_rate_factor: factor,
                warmup,
                ..TrainingConfig::default()
            };
            let mut burn = NoamLrSchedulerConfig::new(factor)
                .with_warmup_steps(warmup)
                .with_model_size(d_model)
                .init()
                .unwrap();
            let mut ours = RateSchedule::new(&config, d_model);
            for update in 1..=10_000 {
                assert_eq!(
                    LrScheduler::step(&mut ours).to_bits(),
                    LrScheduler::step(&mut burn).to_bits(),
                    "update {update}"
                );
            }
        }
    }

    /// At the first update, during the warm-up, at its end, later, and at the last update.
    #[test]
    fn each_schedule_rises_to_the_peak_and_goes_its_way() {
        let updates = [1, 2, 4, 6, 8, 12];
        let expected = [
            // 0.8 √(4/6), 0.8 √(4/8), 0.8 √(4/12)
            (
                Schedule::Noam,
                [0.653_197_264_7, 0.565_685_424_9, 0.461_880_215_4],
            ),
            // 0.8 · 6/8, 0.8 · 4/8
            (Schedule::Linear, [0.6, 0.4, 0.0]),
            // 0.4 (1 + cos(π/4)), 0.4 (1 + cos(π/2)), 0.4 (1 + cos π)
            (Schedule::Cosine, [0.682_842_712_5, 0.4, 0.0]),
            (Schedule::Constant, [0.8, 0.8, 0.8]),
        ];
        for (name, after) in expected {
            let schedule = RateSchedule::new(&config(name), 512);
            let rates = [0.2, 0.4, 0.8].into_iter().chain(after);
            for (update, rate) in updates.into_iter().zip(rates) {
                let found = schedule.rate(update);
                assert!((found - rate).abs() < 1e-9, "{name:?}, {update}: {found}");
            }
        }
    }

    #[test]
    fn without_a_peak_rate_every_peak_is_the_paper_s() {
        for schedule in ALL {
            let config = TrainingConfig {
                peak_rate: None,
                learning_rate_factor: 3.0,
                ..config(schedule)
            };
            // 3 / √(25 · 4)
            let found = RateSchedule::new(&config, 25).rate(4);
            assert!((found - 0.3).abs() < 1e-12, "{schedule:?}: {found}");
        }
    }

    #[test]
    fn a_schedule_goes_on_from_any_update() {
        for name in ALL {
            let mut whole = RateSchedule::new(&config(name), 512);
            for update in 0..14 {
                let record = whole.to_record::<NdArray>();
                assert_eq!(record, update);
                let resumed = RateSchedule::new(&config(name), 512);
                let mut resumed = resumed.load_record::<NdArray>(record);
                assert_eq!(resumed.step().to_bits(), whole.step().to_bits());
            }
        }
    }

    /// The rates of a run that continues another equal those of one longer run.
    #[test]
    fn a_run_that_continues_a_schedule_has_its_rates() {
        for name in ALL {
            let whole = RateSchedule::new(&config(name), 512);
            for start in [1, 4, 7] {
                let continued = TrainingConfig {
                    schedule_start: start,
                    updates: 12 - start,
                    ..config(name)
                };
                assert!(continued.validate().is_ok());
                let mut continued = RateSchedule::new(&continued, 512);
                for update in start + 1..=12 {
                    assert_eq!(continued.step().to_bits(), whole.rate(update).to_bits());
                }
            }
        }
    }

    #[test]
    fn a_rate_of_zero_stays_zero() {
        for name in [Schedule::Linear, Schedule::Cosine] {
            let schedule = RateSchedule::new(&config(name), 512);
            assert_eq!([schedule.rate(12), schedule.rate(100)], [0.0, 0.0]);
        }
    }

    #[test]
    fn names_are_those_of_a_file() {
        let names = ["noam", "linear", "cosine", "constant"];
        for (schedule, name) in ALL.into_iter().zip(names) {
            let json = serde_json::to_string(&schedule).unwrap();
            assert_eq!(json, format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<Schedule>(&json).unwrap(), schedule);
        }
        let other: Schedule = serde_json::from_str("\"inverse_sqrt\"").unwrap();
        assert_eq!(other, Schedule::Noam);
    }
}
