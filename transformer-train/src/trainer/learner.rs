//! Burn's Learner, whose strategy is the training loop.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use burn::lr_scheduler::LrScheduler;
use burn::module::AutodiffModule;
use burn::tensor::backend::AutodiffBackend;
use burn::train::logger::MetricLogger;
use burn::train::metric::store::{EpochSummary, MetricsUpdate, Split};
use burn::train::metric::{LearningRateMetric, MetricDefinition, NumericEntry};
use burn::train::{Learner, SupervisedTraining, TrainingStrategy};

use super::data::Data;
use super::setup::Setup;
use super::steps::Running;
use super::trained::Trained;
use crate::checkpoint::{Checkpoint, Checkpoints, number_parameters};
use crate::data::{Examples, NoLoader, UpdateLoader, ValidLoader};
use crate::error::TrainError;
use crate::metrics::{
    GradientNorm, SampleText, SkippedUpdates, Throughput, TokenMean, ValidationNumber,
};
use crate::moving_average::MovingAverage;
use crate::objective::{Objective, Trainable};
use crate::progress::{RunStart, Watch, WithoutNaN};
use crate::run_state::RunState;
use crate::schedule::RateSchedule;
use crate::training_model::TrainingModel;
use crate::update_loop::{Components, Start, UpdateStrategy};

impl<B: AutodiffBackend, M: Trainable<B>> Setup<B, M> {
    /// Makes the updates that are left, until the run ends.
    pub(super) fn launch(
        mut self,
        run: Running<B, M>,
        data: Data<<M as Objective<B>>::Example>,
        checkpoints: Option<Checkpoints>,
        deadline: Option<Instant>,
    ) -> Result<Trained<M::InnerModule>, TrainError> {
        if let Some(checkpoints) = &checkpoints {
            // Before the logs are opened.
            checkpoints.check()?;
        }
        let watch = self.watch(&run.state, deadline)?;
        let training = self.training(data.valid, &run.state);
        let Checkpoint {
            model,
            average,
            optimizer,
            state,
        } = run;
        let schedule = RateSchedule::new(&self.config, model.d_model());
        let schedule = schedule.load_record::<B>(state.update);
        let label_smoothing = self.config.label_smoothing;
        let numbered = |model: M| {
            number_parameters::<B, _>(TrainingModel::<B, M>::new(model, label_smoothing))
        };
        // Validations and checkpoints need it, which are rank 0's.
        let decay = self.config.ema_decay.filter(|_| self.ranks.is_first());
        let average = decay.map(|decay| {
            // The first weights are its beginning.
            let model = average.unwrap_or_else(|| model.clone());
            MovingAverage::new(decay, numbered(model).valid())
        });
        let learner = Learner::new(numbered(model), optimizer.clone(), schedule.clone());
        let outcome = Arc::new(Mutex::new(None));
        let strategy = UpdateStrategy {
            updates: UpdateLoader {
                source: data.train,
                sampler: Arc::new(data.sampler),
                batches_per_update: self.config.batches_per_update,
                first_update: state.update,
                rank: self.ranks.rank(),
                ranks: self.ranks.size(),
            },
            config: self.config,
            devices: self.devices,
            ranks: self.ranks,
            optimizer,
            schedule,
            checkpoints,
            deadline,
            start: Mutex::new(Some(Start {
                state,
                hook: self.hook,
                average,
                watch,
            })),
            outcome: outcome.clone(),
        };
        let result = training
            .with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy)))
            .launch(learner);

        // Dropping the renderer restores the terminal.
        drop(result.renderer);
        let outcome = outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .expect("the strategy leaves an outcome")?;
        Ok(Trained::new(result.model.model, outcome))
    }

    /// The observers, started; plain lines are one, unless something else is displayed.
    fn watch(&mut self, state: &RunState, deadline: Option<Instant>) -> Result<Watch, TrainError> {
        let lines = match self.renderer {
            Some(_) => None,
            None => self.display.lines(),
        };
        let watching = std::mem::take(&mut self.watching);
        let start = RunStart::new(state, deadline);
        watching.start(self.directory.as_deref(), lines, &start)
    }

    /// Burn's part of the run: its metrics, those of the hook, and their display.
    fn training(
        &mut self,
        valid: Examples<<M as Objective<B>>::Example>,
        state: &RunState,
    ) -> SupervisedTraining<Components<B, M>> {
        let rounds = state.update / self.config.validate_every;
        let renderer = match self.renderer.take() {
            Some(renderer) => renderer,
            None => self.display.renderer(&self.interrupter, rounds),
        };
        // Burn's file logger would write into this directory.
        let directory = PathBuf::new();
        let valid = ValidLoader(valid);
        let mut training = SupervisedTraining::new(directory, Arc::new(NoLoader), Arc::new(valid))
            .with_application_logger(None)
            .with_metric_logger(NoLog)
            .metrics((
                TokenMean::loss(),
                TokenMean::perplexity(),
                TokenMean::accuracy(),
            ))
            .metric_train_numeric(Throughput::new())
            .metric_train_numeric(LearningRateMetric::new())
            .metric_train_numeric(GradientNorm::new())
            .metric_train(SkippedUpdates::new());
        for (index, name) in self.hook.names.iter().enumerate() {
            training = training.metric_valid_numeric(ValidationNumber::new(name, index));
        }
        for index in 0..self.hook.samples {
            training = training.metric_valid(SampleText::new(index));
        }
        training
            .renderer(WithoutNaN(renderer))
            .with_interrupter(self.interrupter.clone())
    }
}

/// Keeps no metrics: the run's own record is in its checkpoints and its log. Burn's loggers keep a text of each metric for
/// each update, which only Burn's early stopping and its summary read; a run uses neither.
struct NoLog;

impl MetricLogger for NoLog {
    fn log(&mut self, _update: MetricsUpdate, _epoch: usize, _split: &Split) {}

    fn read_numeric(
        &mut self,
        _name: &str,
        _epoch: usize,
        _split: &Split,
    ) -> Result<Vec<NumericEntry>, String> {
        Ok(Vec::new())
    }

    fn log_metric_definition(&mut self, _definition: MetricDefinition) {}

    fn log_epoch_summary(&mut self, _summary: EpochSummary) {}
}
