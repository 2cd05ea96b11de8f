//! One validation.

use std::ops::ControlFlow;

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;

use crate::error::TrainError;
use crate::objective::Trainable;
use crate::objective::statistics::{Statistics, finite_or_nan};
use crate::run::update_loop::Run;
use crate::validation::evaluate::measured;
use crate::validation::{Measurement, Validation, ValidationContext};

impl<B, M, O, S> Run<B, M, O, S>
where
    B: AutodiffBackend,
    M: Trainable<B>,
    O: Optimizer<M, B> + 'static,
    S: LrScheduler,
{
    /// Validates the model, records the result, and saves the model if it is the best so far. `Break` if the hook
    /// ends the run.
    pub(crate) fn validate(&mut self, model: &M) -> Result<ControlFlow<()>, TrainError> {
        let model = self.valid_model(model);
        let (statistics, measured) = self.measure(&model)?;
        let train = std::mem::take(&mut self.state.since_validation);
        let flow = measured.flow;
        let validation = self.validation(&train, &statistics, measured.numbers);
        let replaces = self.state.replaces_model(&validation);
        self.watch.validated(&validation, &measured.samples);
        self.state.validations.push(validation);
        if replaces && let Some(checkpoints) = &self.checkpoints {
            checkpoints.save_model(&model)?;
            self.state.note_choice(false);
        }
        Ok(flow)
    }

    /// Fails if the validation loss is NaN or infinite: such a model is not worth saving.
    fn check_loss(&self, statistics: &Statistics) -> Result<(), TrainError> {
        let loss = statistics.mean_loss();
        match loss.is_finite() {
            true => Ok(()),
            false => Err(TrainError::ValidationLoss {
                update: self.state.update,
                loss,
            }),
        }
    }

    /// The record of a validation.
    pub(crate) fn validation(
        &self,
        train: &Statistics,
        valid: &Statistics,
        numbers: Vec<f64>,
    ) -> Validation {
        let names = self.hook.names.iter().cloned();
        let numbers = numbers.into_iter().map(finite_or_nan);
        Validation {
            update: self.state.update,
            skipped: self.state.skipped,
            early: !self.state.update.is_multiple_of(self.config.validate_every),
            seconds: self.state.seconds,
            train_tokens: train.tokens as u64,
            train_loss: train.mean_loss(),
            valid_loss: valid.mean_loss(),
            valid_nll: finite_or_nan(valid.mean_nll()),
            valid_accuracy: finite_or_nan(valid.accuracy()),
            numbers: names.zip(numbers).collect(),
        }
    }

    /// The sums over the validation examples, and the hook's measurement.
    pub(crate) fn measure(
        &mut self,
        model: &M::InnerModule,
    ) -> Result<(Statistics, Measurement), TrainError> {
        let statistics = measured::<B::InnerBackend, _>(model, &self.valid, &self.loss);
        self.check_loss(&statistics)?;
        let update = self.state.update;
        let context = ValidationContext {
            model,
            update,
            statistics: &statistics,
            earlier: &self.state.validations,
        };
        let measurement = self.hook.measure(context);
        let measurement =
            measurement.map_err(|source| TrainError::Validation { update, source })?;
        Ok((statistics, measurement))
    }
}
