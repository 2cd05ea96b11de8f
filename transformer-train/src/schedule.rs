//! The learning-rate schedule (§5.3).

use burn::lr_scheduler::noam::{NoamLrScheduler, NoamLrSchedulerConfig};

use crate::config::TrainingConfig;

/// The rate at update `s`, counted from 1 (§5.3, equation 3):
///
/// `factor · d_model^-0.5 · min(s^-0.5, s · warmup^-1.5)`.
///
/// # Panics
/// When the warm-up or `d_model` is zero, which a validated configuration never has.
pub fn noam_schedule(config: &TrainingConfig, d_model: usize) -> NoamLrScheduler {
    NoamLrSchedulerConfig::new(config.learning_rate_factor)
        .with_warmup_steps(config.warmup)
        .with_model_size(d_model)
        .init()
        .expect("a validated configuration")
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::lr_scheduler::LrScheduler;

    #[test]
    fn rates_are_the_paper_s() {
        let config = TrainingConfig {
            warmup: 4000,
            ..TrainingConfig::default()
        };
        let mut schedule = noam_schedule(&config, 512);
        let rates: Vec<f64> = (0..16_000).map(|_| schedule.step()).collect();
        // 512^-0.5 = 0.0441941738; 4000^-1.5 = 3.9528470752e-6; 4000^-0.5 = 0.0158113883.
        let expected = [
            (1, 1.746_928_107e-7),
            (100, 1.746_928_107e-5),
            (4000, 6.987_712_429e-4),
            (16_000, 3.493_856_214e-4),
        ];
        for (update, rate) in expected {
            let found: f64 = rates[update - 1];
            assert!((found / rate - 1.0).abs() < 1e-6, "{update}: {found}");
        }
    }
}
