//! The configuration of a training run, checked once.

use serde::{Deserialize, Serialize};
use transformer_core::nn::ProductPrecision;

use crate::error::{ConfigRule, TrainError};
use crate::metrics::criterion::Criterion;
use crate::objective::loss::LossOptions;

/// Training configuration. The defaults follow the paper (§5), with a batch that fits on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainingConfig {
    /// Seed of the order of batches and of dropout. Default: 0.
    pub seed: u64,
    /// Maximum tokens per batch on each side (source and target), padding included. Default: 2048.
    pub batch_tokens: usize,
    /// Batches per update (gradient accumulation), each weighted by its tokens. Default: 1. An update never spans
    /// two epochs, so the last update of an epoch may have fewer batches.
    pub batches_per_update: usize,
    /// Learning-rate schedule. Default: the paper's (§5.3).
    pub schedule: Schedule,
    /// Warm-up updates, during which the learning rate rises. Default: 4000 (§5.3).
    pub warmup: usize,
    /// Learning rate at the end of the warm-up. If absent: `learning_rate_factor / √(d_model · warmup)`, the
    /// paper's with a factor of 1 (§5.3, equation 3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rate: Option<f64>,
    /// Updates of the schedule that precede this run. Default: 0. A run that continues another run's schedule sets
    /// it to [`RunRecord::schedule_updates`](crate::run::RunRecord::schedule_updates) of that run.
    pub schedule_start: usize,
    /// Factor of the learning rate. Default: 1. Must be 1 if `peak_rate` is given.
    pub learning_rate_factor: f64,
    /// Decoupled (AdamW) weight decay: each step scales matrices by `1 - rate · weight_decay`. Biases, norms and
    /// frozen parameters do not decay. Default: 0.
    pub weight_decay: f64,
    /// Label smoothing ε. Default: 0.1 (§5.4).
    pub label_smoothing: f64,
    /// Maximum Euclidean norm of an update's gradients. If absent: no clipping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// Precision of the matrix multiplications in the forward and backward passes. Default: f32. With
    /// [`Bf16`](ProductPrecision::Bf16), both operands are rounded in linear layers and, except on flex and ndarray, in
    /// attention (on libtorch: over short sequences). Weights, gradients, moments, the residual stream, norms, softmax
    /// and loss stay in f32, as do validation and all files. flex, ndarray and libtorch support bf16, wgpu and cuda if
    /// the GPU does ([`ops::multiplies_in`](transformer_core::ops::multiplies_in)); on a CPU it is faster only with bf16
    /// instructions.
    pub precision: ProductPrecision,
    /// Number of consecutive updates skipped for a non-finite loss or gradient that ends the run with an error.
    /// Default: 10. One example can cause one such update. If ten in a row fail, with different examples and
    /// dropout, the weights have diverged, and skipped updates do not change them.
    pub skip_limit: usize,
    /// Number of updates. Default: 100 000 (§5.2).
    pub updates: usize,
    /// Updates between validations. A checkpoint follows each validation. Default: 500.
    pub validate_every: usize,
    /// Metric that compares validations: it decides which model is saved and which checkpoints `keep_best` keeps,
    /// and `patience` counts by it. NaN is never better. Default: the lowest loss.
    pub best_by: Criterion,
    /// Early stopping: the run ends ([`StopReason::Patience`](crate::run::StopReason::Patience)) after this many
    /// consecutive validations that do not improve on the best by `best_by`. Validations where the run stopped before one
    /// was due do not count. If absent: no early stopping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<usize>,
    /// Decay of the exponential moving average of the weights, such as 0.999. If absent: no average. The average
    /// `e` starts at the initial weights. After the `n`-th update that is not skipped, it becomes
    ///
    /// `d e + (1 - d) w`, where `w` are the trained weights and `d = min(ema_decay, (1 + n) / (10 + n))`.
    ///
    /// The averaged weights are validated, saved as the model and checkpointed. Training continues with the
    /// unaveraged weights, which checkpoints also contain. Frozen parameters stay unchanged. The average takes as
    /// much memory as the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema_decay: Option<f64>,
    /// Updates between additional checkpoints. If absent: checkpoints follow validations only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<usize>,
    /// Minutes since the last checkpoint after which another is written. If absent: none by time. Such a
    /// checkpoint serves only to resume the run and is removed after the next one, so that no result depends on
    /// the clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_minutes: Option<f64>,
    /// Number of newest checkpoints to keep. Default: 2. Only checkpoints after validations and after every
    /// `checkpoint_every` updates count. Others, written by time or when a run was stopped, are removed once there
    /// is a newer one.
    pub keep_checkpoints: usize,
    /// Number of checkpoints of the best validations, by `best_by`, to keep in addition. Default: 0. A checkpoint
    /// that is also among the newest counts as both.
    pub keep_best: usize,
    /// Number of newest checkpoints, counted as for `keep_checkpoints`, that are averaged at the end of the run
    /// (§6.1). Default: 0, no average. The average is validated, and saved as the model if it is better than all
    /// validations by `best_by`. Interrupted runs and runs without a directory make none.
    pub average_last: usize,
}

/// Learning-rate schedule. Every schedule rises linearly over the `w` updates of the warm-up
/// ([`TrainingConfig::warmup`]) to its peak `p`; they differ afterwards. Below, `s` is the update, counted from 1,
/// and `n` the last one ([`TrainingConfig::updates`]). Both include the updates that a run
/// [continues](TrainingConfig::schedule_start).
///
/// The paper's schedule has two names: *Noam*, whose peak is computed from the width of the model, and *inverse
/// square root*, whose peak is given. Here they are one schedule with an optional [`TrainingConfig::peak_rate`]; a
/// configuration file may call it `noam` or `inverse_sqrt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Inverse square-root decay, `p √(w / s)`: the paper's (§5.3, equation 3).
    #[default]
    #[serde(alias = "inverse_sqrt")]
    Noam,
    /// Linear decay to zero at the last update, `p (n - s) / (n - w)`.
    Linear,
    /// Half-cosine decay to zero at the last update, `p (1 + cos(π (s - w) / (n - w))) / 2`.
    Cosine,
    /// Constant at the peak.
    Constant,
}

impl Schedule {
    /// Whether the rate is zero at the last update, and so depends on the length of the run.
    pub fn falls_to_zero(self) -> bool {
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
    /// The options of the loss.
    pub fn loss_options(&self) -> LossOptions {
        LossOptions::smoothed(self.label_smoothing)
    }

    /// Checks that every value is in range.
    ///
    /// # Errors
    /// Names the first key whose value is out of range.
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
                "`learning_rate_factor` is 2; it must be 1 if `peak_rate` is given",
            ),
            (
                TrainingConfig {
                    schedule: Schedule::Cosine,
                    updates: 4000,
                    ..base.clone()
                },
                "`updates` is 4000; it must be more than `warmup` if the learning rate decays to zero",
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
