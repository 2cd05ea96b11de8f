//! One validation.

use std::ops::ControlFlow;

use burn::data::dataloader::Progress;
use burn::tensor::backend::AutodiffBackend;
use burn::train::{EventProcessorTraining, InferenceStep, ItemLazy, LearnerEvent, TrainingItem};

use super::{Run, ValidModel};
use crate::error::TrainError;
use crate::metrics::{Numbers, Samples, Statistics};
use crate::objective::Trainable;
use crate::validation::{Measurement, Validation, ValidationContext};

impl<B: AutodiffBackend, M: Trainable<B>> Run<'_, B, M> {
    /// Validates the model, records it, and saves the model if it is the best so far. `Break` if the hook ends
    /// the run.
    pub(super) fn validate(&mut self) -> Result<ControlFlow<()>, TrainError> {
        let (_, round) = self.progress();
        self.processor
            .process_train(LearnerEvent::EndEpoch(round.items_processed));
        let model = self.valid_model();
        let (statistics, measured) = self.measure(&model, &round)?;
        let train = std::mem::take(&mut self.state.since_validation);
        let flow = measured.flow;
        let validation = self.validation(&train, &statistics, measured.numbers);
        let replaces = self.state.replaces_model(&validation);
        self.watch.validated(&validation, &measured.samples);
        self.state.validations.push(validation);
        if replaces && let Some(checkpoints) = &self.strategy.checkpoints {
            checkpoints.save_model(&model.model)?;
            self.state.note_choice(false);
        }
        Ok(flow)
    }

    /// Fails if the loss of a validation is NaN or infinite: such a model is not worth saving.
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
    pub(super) fn validation(
        &self,
        train: &Statistics,
        valid: &Statistics,
        numbers: Vec<f64>,
    ) -> Validation {
        let names = self.hook.names.iter().cloned();
        Validation {
            numbers: names.zip(numbers).collect(),
            ..Validation::new(&self.state, train, valid)
        }
    }

    /// Sums over the validation examples, and the hook's measurement; both are passed to the displays.
    pub(super) fn measure(
        &mut self,
        model: &ValidModel<B, M>,
        round: &Progress,
    ) -> Result<(Statistics, Measurement), TrainError> {
        let measured = self.measure_batches(model, round);
        self.processor
            .process_valid(LearnerEvent::EndEpoch(round.items_processed));
        measured
    }

    /// The same, batch by batch.
    fn measure_batches(
        &mut self,
        model: &ValidModel<B, M>,
        round: &Progress,
    ) -> Result<(Statistics, Measurement), TrainError> {
        let mut all = Statistics::default();
        let mut measured = Ok(Measurement::new(Vec::new()));
        let valid = self.valid.clone();
        let mut batches = valid.iter();
        let mut iteration = 0;
        while let Some(batch) = batches.next() {
            iteration += 1;
            let mut item = InferenceStep::step(model, batch);
            all.add(&item.statistics.clone().sync());
            let progress = batches.progress();
            if progress.items_processed == progress.items_total {
                measured = self.check_loss(&all).and_then(|()| self.ask(model, &all));
                if let Ok(measured) = &measured {
                    item.numbers = Numbers(measured.numbers.as_slice().into());
                    item.samples = Samples(measured.samples.as_slice().into());
                }
            }
            self.processor
                .process_valid(LearnerEvent::ProcessedItem(TrainingItem::new(
                    item,
                    progress,
                    round.clone(),
                    Some(iteration),
                    None,
                )));
        }
        Ok((all, measured?))
    }

    /// Calls the hook.
    fn ask(
        &mut self,
        model: &ValidModel<B, M>,
        statistics: &Statistics,
    ) -> Result<Measurement, TrainError> {
        let update = self.state.update;
        let context = ValidationContext {
            model: &model.model,
            update,
            statistics,
            earlier: &self.state.validations,
        };
        self.hook
            .measure(context)
            .map_err(|source| TrainError::Validation { update, source })
    }
}
