//! The configuration of a training run, checked once.

use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// How a model is trained. The defaults are the paper's (§5), at a batch that fits one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainingConfig {
    /// Seed of the order of batches and of dropout: 0.
    pub seed: u64,
    /// Tokens that a batch may hold, padding included, on its source side and on its target side:
    /// 2048.
    pub batch_tokens: usize,
    /// Batches whose gradients make one update, each weighted by its tokens: 1.
    pub batches_per_update: usize,
    /// Updates in which the learning rate rises: 4000 (§5.3).
    pub warmup: usize,
    /// Factor of the learning rate: 1.
    pub learning_rate_factor: f64,
    /// ε of the label smoothing: 0.1 (§5.4).
    pub label_smoothing: f64,
    /// The Euclidean norm that an update's gradients are scaled down to; absent: no clipping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// Updates after which training ends: 100 000 (§5.2).
    pub updates: usize,
    /// Updates between two validations, each followed by a checkpoint: 500.
    pub validate_every: usize,
    /// Checkpoints kept, the newest ones: 2.
    pub keep_checkpoints: usize,
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            batch_tokens: 2048,
            batches_per_update: 1,
            warmup: 4000,
            learning_rate_factor: 1.0,
            label_smoothing: 0.1,
            clip_norm: None,
            updates: 100_000,
            validate_every: 500,
            keep_checkpoints: 2,
        }
    }
}

impl TrainingConfig {
    /// Checks that the configuration describes a run.
    ///
    /// # Errors
    /// The first value out of range, by its key.
    pub fn validate(&self) -> Result<(), TrainError> {
        let counts = [
            ("batch_tokens", self.batch_tokens),
            ("batches_per_update", self.batches_per_update),
            ("warmup", self.warmup),
            ("updates", self.updates),
            ("validate_every", self.validate_every),
            ("keep_checkpoints", self.keep_checkpoints),
        ];
        for (key, value) in counts {
            if value == 0 {
                return Err(TrainError::Config {
                    key,
                    value: value.to_string(),
                    expected: "at least 1",
                });
            }
        }
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let range = [
            (
                "learning_rate_factor",
                self.learning_rate_factor,
                positive(self.learning_rate_factor),
                "positive and finite",
            ),
            (
                "label_smoothing",
                self.label_smoothing,
                (0.0..1.0).contains(&self.label_smoothing),
                "in [0, 1)",
            ),
            (
                "clip_norm",
                self.clip_norm.unwrap_or(1.0),
                self.clip_norm.is_none_or(positive),
                "positive and finite",
            ),
        ];
        for (key, value, in_range, expected) in range {
            if !in_range {
                return Err(TrainError::Config {
                    key,
                    value: value.to_string(),
                    expected,
                });
            }
        }
        Ok(())
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
                    learning_rate_factor: f64::NAN,
                    ..base.clone()
                },
                "`learning_rate_factor` is NaN; it must be positive and finite",
            ),
            (
                TrainingConfig {
                    clip_norm: Some(0.0),
                    ..base
                },
                "`clip_norm` is 0; it must be positive and finite",
            ),
        ];
        for (config, expected) in cases {
            assert_eq!(config.validate().unwrap_err().to_string(), expected);
        }
    }
}
