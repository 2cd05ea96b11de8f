//! The configuration of a training run, checked once.

use serde::{Deserialize, Serialize};
use transformer_core::nn::ProductPrecision;

use crate::error::{ConfigRule, TrainError};
use crate::metrics::criterion::Criterion;
use crate::objective::loss::LossOptions;

/// How a model is trained. The defaults are the paper's (§5), at a batch that fits one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainingConfig {
    /// Seed of the order of batches and of dropout: 0.
    pub seed: u64,
    /// Tokens that a batch may hold, padding included, on its source side and on its target side:
    /// 2048.
    pub batch_tokens: usize,
    /// Batches whose gradients make one update, each weighted by its tokens: 1. They are of one epoch:
    /// its last update has the batches that are left, which may be fewer.
    pub batches_per_update: usize,
    /// The course of the learning rate: the paper's (§5.3).
    pub schedule: Schedule,
    /// Updates in which the learning rate rises: 4000 (§5.3).
    pub warmup: usize,
    /// The learning rate at the end of the warm-up; absent: `learning_rate_factor / √(d_model · warmup)`,
    /// which is the paper's with a factor of 1 (§5.3, equation 3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rate: Option<f64>,
    /// Updates whose learning rates come before those of this run: 0. A run that starts from the model of another
    /// one and goes on with its rates has the updates of that one here
    /// ([`RunRecord::schedule_updates`](crate::run::RunRecord::schedule_updates)).
    pub schedule_start: usize,
    /// Factor of the learning rate: 1. Where `peak_rate` is given, it must stay 1.
    pub learning_rate_factor: f64,
    /// Decay of the matrices, AdamW's: each step shrinks them to `1 - rate · weight_decay` of their values,
    /// and leaves biases, norms and frozen parameters alone: 0.
    pub weight_decay: f64,
    /// ε of the label smoothing: 0.1 (§5.4).
    pub label_smoothing: f64,
    /// The Euclidean norm that an update's gradients are scaled down to; absent: no clipping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// The precision of the products of forward and backward pass: f32. In [`Bf16`](ProductPrecision::Bf16), both
    /// factors of each product are rounded, those of linear maps and, on libtorch, of attention to short sequences;
    /// weights, gradients, moments, the residual stream, norms, softmax and loss stay in f32, and so do validations
    /// and all files. flex, ndarray and libtorch have such products
    /// ([`ops::multiplies_in`](transformer_core::ops::multiplies_in)), and they are faster only on processors with
    /// instructions for them.
    pub precision: ProductPrecision,
    /// Updates in a row that are skipped, because their loss or gradients are not finite, before the run ends
    /// with an error: 10. One example can spoil an update; when ten updates with other examples and other
    /// dropout are spoilt, the weights are the cause, and skipped updates do not change them.
    pub skip_limit: usize,
    /// Updates after which training ends: 100 000 (§5.2).
    pub updates: usize,
    /// Updates between two validations, each followed by a checkpoint: 500.
    pub validate_every: usize,
    /// The number by which validations are compared: the model of the best one is kept, `keep_best` counts by
    /// it, and `patience`. NaN is never better. Default: the lowest loss.
    pub best_by: Criterion,
    /// Validations in a row that are not better than the best one before, by `best_by`, after which the run
    /// ends ([`StopReason::Patience`](crate::run::StopReason::Patience)); absent: it does not end by them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<usize>,
    /// Decay of the exponential moving average of the weights, such as 0.999; absent: no average. After the
    /// `n`-th update that is not skipped, the average `e`, which begins as the first weights, becomes
    ///
    /// `d e + (1 - d) w`, where `w` are the trained weights and `d = min(ema_decay, (1 + n) / (10 + n))`.
    ///
    /// The averaged weights are validated, kept as the model, and checkpointed; training itself goes on from
    /// the others, which a checkpoint has, too. Frozen parameters stay as they are. It needs the memory of the
    /// weights once more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema_decay: Option<f64>,
    /// Updates between two checkpoints; absent: there is one after each validation only, which there is in
    /// any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<usize>,
    /// Minutes after the last checkpoint when there is another one; absent: none by time. It serves to resume
    /// the run, and stays only until the next one, so that nothing else depends on the clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_minutes: Option<f64>,
    /// Checkpoints kept, the newest ones: 2. Counted are those after validations and after every
    /// `checkpoint_every` updates. Others, made by time or where a run was stopped, are removed when there is a
    /// newer one.
    pub keep_checkpoints: usize,
    /// Checkpoints kept besides, those of the best validations by `best_by`: 0. One that is among the newest,
    /// too, is counted as both.
    pub keep_best: usize,
    /// Checkpoints whose mean is made at the end of the run (§6.1), the newest ones, as `keep_checkpoints`
    /// counts them; 0: none. It is validated, and kept as the model if it is better than all validations by
    /// `best_by`. An interrupted run makes none, nor does one without a directory.
    pub average_last: usize,
}

/// The course of the learning rate. Every schedule rises linearly over the updates of the warm-up `w`
/// ([`TrainingConfig::warmup`]) to its peak `p`, and they differ after it. Below, `s` is the update,
/// counted from 1, and `n` the last one ([`TrainingConfig::updates`]). Both count the updates that a run
/// [continues](TrainingConfig::schedule_start), too.
///
/// The paper's curve has two names. *Noam* has its peak from the width of the model, *inverse square
/// root* from its user, and both fall alike. Here it is one schedule, whose peak may be given
/// ([`TrainingConfig::peak_rate`]) or not; a configuration file may call it `noam` or `inverse_sqrt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Falls with the inverse square root of the update, `p √(w / s)`: the paper's (§5.3, equation 3).
    #[default]
    #[serde(alias = "inverse_sqrt")]
    Noam,
    /// Falls linearly to zero at the last update, `p (n - s) / (n - w)`.
    Linear,
    /// Falls by half a cosine to zero at the last update, `p (1 + cos(π (s - w) / (n - w))) / 2`.
    Cosine,
    /// Stays at the peak.
    Constant,
}

impl Schedule {
    /// Whether the rate is zero at the last update, so that it depends on the length of the run.
    pub(crate) fn falls_to_zero(self) -> bool {
        matches!(self, Self::Linear | Self::Cosine)
    }
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            batch_tokens: 2048,
            batches_per_update: 1,
            schedule: Schedule::Noam,
            warmup: 4000,
            peak_rate: None,
            schedule_start: 0,
            learning_rate_factor: 1.0,
            weight_decay: 0.0,
            label_smoothing: 0.1,
            clip_norm: None,
            precision: ProductPrecision::F32,
            skip_limit: 10,
            updates: 100_000,
            validate_every: 500,
            best_by: Criterion::default(),
            patience: None,
            ema_decay: None,
            checkpoint_every: None,
            checkpoint_minutes: None,
            keep_checkpoints: 2,
            keep_best: 0,
            average_last: 0,
        }
    }
}

impl TrainingConfig {
    /// How the loss is computed.
    pub fn loss_options(&self) -> LossOptions {
        LossOptions::smoothed(self.label_smoothing)
    }

    /// Checks that the configuration describes a run.
    ///
    /// # Errors
    /// The first value out of range, by its key.
    pub fn validate(&self) -> Result<(), TrainError> {
        use ConfigRule::{
            Above, AtLeastOne, AtMost, BelowOne, BetweenZeroAndOne, OneWhereGiven,
            PositiveAndFinite,
        };
        let count = |key, value: usize| (key, value.to_string(), value > 0, AtLeastOne);
        let positive = |key, value: Option<f64>| {
            let value = value.unwrap_or(1.0);
            let in_range = value > 0.0 && value.is_finite();
            (key, value.to_string(), in_range, PositiveAndFinite)
        };
        let share = |key, value: f64| {
            let in_range = (0.0..1.0).contains(&value);
            (key, value.to_string(), in_range, BelowOne)
        };
        let factor = self.learning_rate_factor;
        let updates = self.schedule_start.saturating_add(self.updates);
        let decay = self.ema_decay.unwrap_or(0.5);
        let checks = [
            count("batch_tokens", self.batch_tokens),
            count("batches_per_update", self.batches_per_update),
            count("warmup", self.warmup),
            count("skip_limit", self.skip_limit),
            count("updates", self.updates),
            count("validate_every", self.validate_every),
            count("keep_checkpoints", self.keep_checkpoints),
            count("patience", self.patience.unwrap_or(1)),
            count("checkpoint_every", self.checkpoint_every.unwrap_or(1)),
            positive("learning_rate_factor", Some(factor)),
            positive("peak_rate", self.peak_rate),
            positive("clip_norm", self.clip_norm),
            positive("checkpoint_minutes", self.checkpoint_minutes),
            (
                "learning_rate_factor",
                factor.to_string(),
                self.peak_rate.is_none() || factor == 1.0,
                OneWhereGiven("peak_rate"),
            ),
            (
                "updates",
                self.updates.to_string(),
                !self.schedule.falls_to_zero() || updates > self.warmup,
                Above("warmup"),
            ),
            share("weight_decay", self.weight_decay),
            share("label_smoothing", self.label_smoothing),
            (
                "ema_decay",
                decay.to_string(),
                0.0 < decay && decay < 1.0,
                BetweenZeroAndOne,
            ),
            (
                "average_last",
                self.average_last.to_string(),
                self.average_last <= self.keep_checkpoints,
                AtMost("keep_checkpoints"),
            ),
        ];
        let mut checks = checks.into_iter();
        match checks.find(|(_, _, in_range, _)| !in_range) {
            Some((key, value, _, expected)) => Err(TrainError::Config {
                key,
                value,
                expected,
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_out_of_range_is_named() {
        let base = TrainingConfig::default();
        assert!(base.validate().is_ok());
        let cases = [
            (
                TrainingConfig {
                    warmup: 0,
                    ..base.clone()
                },
                "`warmup` is 0; it must be at least 1",
            ),
            (
                TrainingConfig {
                    label_smoothing: 1.0,
                    ..base.clone()
                },
                "`label_smoothing` is 1; it must be in [0, 1)",
            ),
            (
                TrainingConfig {
                    weight_decay: -0.1,
                    ..base.clone()
                },
                "`weight_decay` is -0.1; it must be in [0, 1)",
            ),
            (
                TrainingConfig {
                    learning_rate_factor: f64::NAN,
                    ..base.clone()
                },
                "`learning_rate_factor` is NaN; it must be positive and finite",
            ),
            (
                TrainingConfig {
                    clip_norm: Some(0.0),
                    ..base.clone()
                },
                "`clip_norm` is 0; it must be positive and finite",
            ),
            (
                TrainingConfig {
                    peak_rate: Some(f64::INFINITY),
                    ..base.clone()
                },
                "`peak_rate` is inf; it must be positive and finite",
            ),
            (
                TrainingConfig {
                    peak_rate: Some(0.001),
                    learning_rate_factor: 2.0,
                    ..base.clone()
                },
                "`learning_rate_factor` is 2; it must be 1 where `peak_rate` is given",
            ),
            (
                TrainingConfig {
                    schedule: Schedule::Cosine,
                    updates: 4000,
                    ..base.clone()
                },
                "`updates` is 4000; it must be more than `warmup` where the learning rate falls to zero",
            ),
            (
                TrainingConfig {
                    patience: Some(0),
                    ..base.clone()
                },
                "`patience` is 0; it must be at least 1",
            ),
            (
                TrainingConfig {
                    checkpoint_every: Some(0),
                    ..base.clone()
                },
                "`checkpoint_every` is 0; it must be at least 1",
            ),
            (
                TrainingConfig {
                    checkpoint_minutes: Some(-1.0),
                    ..base.clone()
                },
                "`checkpoint_minutes` is -1; it must be positive and finite",
            ),
            (
                TrainingConfig {
                    ema_decay: Some(1.0),
                    ..base.clone()
                },
                "`ema_decay` is 1; it must be in (0, 1)",
            ),
            (
                TrainingConfig {
                    ema_decay: Some(f64::NAN),
                    ..base.clone()
                },
                "`ema_decay` is NaN; it must be in (0, 1)",
            ),
            (
                TrainingConfig {
                    average_last: 3,
                    ..base
                },
                "`average_last` is 3; it must be at most `keep_checkpoints`",
            ),
        ];
        for (config, expected) in cases {
            assert_eq!(config.validate().unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn settings_of_a_run_of_0_1_0_are_read() {
        let json = r#"{"seed": 5, "batch_tokens": 40, "batches_per_update": 2, "warmup": 4,
            "learning_rate_factor": 0.5, "label_smoothing": 0.1, "clip_norm": 1.0, "updates": 4,
            "validate_every": 2, "keep_checkpoints": 1}"#;
        let config: TrainingConfig = serde_json::from_str(json).unwrap();
        assert_eq!(config.learning_rate_factor, 0.5);
        assert_eq!((config.schedule, config.peak_rate), (Schedule::Noam, None));
        assert_eq!((config.weight_decay, config.skip_limit), (0.0, 10));
        let expected = TrainingConfig {
            seed: 5,
            batch_tokens: 40,
            batches_per_update: 2,
            warmup: 4,
            learning_rate_factor: 0.5,
            clip_norm: Some(1.0),
            updates: 4,
            validate_every: 2,
            keep_checkpoints: 1,
            ..TrainingConfig::default()
        };
        assert_eq!(config, expected);
    }
}
