//! A run, step by step.

use std::sync::Arc;
use std::time::Instant;

use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
#[cfg(feature = "text")]
use transformer_core::Tokenizers;

use super::data::Data;
use super::setup::Setup;
use super::trained::Trained;
use crate::checkpoint::{Checkpoint, Checkpoints};
use crate::data::ExampleSource;
use crate::error::TrainError;
use crate::freeze::frozen_parameters;
use crate::objective::{Objective, Trainable};
use crate::optimizer::PaperAdam;
use crate::run_lock::RunLock;
use crate::run_state::RunState;
use crate::training_model::TrainingModel;
use crate::update_loop::{Ended, Outcome};

/// A run at one of its updates: before the first, or at that of its newest checkpoint.
pub(super) type Running<B, M> = Checkpoint<M, PaperAdam<TrainingModel<B, M>, B>>;

impl<B: AutodiffBackend, M: Trainable<B>> Setup<B, M> {
    /// The whole run. Compiled once for all sources of examples.
    pub(super) fn train(
        mut self,
        model: M,
        train: Arc<dyn ExampleSource<Example = <M as Objective<B>>::Example>>,
        valid: Vec<<M as Objective<B>>::Example>,
    ) -> Result<Trained<M::InnerModule>, TrainError> {
        // A time so far away that it has no name is none.
        let deadline = self
            .max_duration
            .and_then(|duration| Instant::now().checked_add(duration));
        self.check(&model)?;
        self.ranks.check(&self.config)?;
        let model = self.with_precision(model)?;
        let data = self.data(&model, train, valid)?;
        if !self.ranks.is_first() {
            self = self.led();
        }
        let checkpoints = self.open_directory()?;
        let run = resumed(self.new_run(model, &data), checkpoints.as_ref())?;
        if let Some(ended) = self.begin(&run.state, checkpoints.as_ref())? {
            return Ok(as_it_was(run, ended));
        }
        let run = self.join(run, &data)?;
        self.launch(run, data, checkpoints, deadline)
    }

    /// Begins the run in rank 0, and then in the others; in none if it has ended.
    fn begin(
        &mut self,
        state: &RunState,
        checkpoints: Option<&Checkpoints>,
    ) -> Result<Option<Ended>, TrainError> {
        if !self.ranks.is_first() {
            return Ok((!self.ranks.begins()).then_some(Ended::elsewhere()));
        }
        let ended = match checkpoints {
            Some(checkpoints) => Ended::before(state, checkpoints)?,
            None => None,
        };
        if ended.is_none() {
            self.call_on_start()?;
        }
        self.ranks.tell_start(ended.is_none());
        Ok(ended)
    }

    /// The directory for checkpoints, with the tokenizers in it; `None` if nothing is to be saved.
    fn open_directory(&mut self) -> Result<Option<Checkpoints>, TrainError> {
        let Some(directory) = &self.directory else {
            return Ok(None);
        };
        let lock = match self.lock.take() {
            Some(lock) => lock,
            None => RunLock::acquire(directory)?,
        };
        let checkpoints = Checkpoints::open(lock, self.resume)?;
        #[cfg(feature = "text")]
        if let Some(tokenizers) = &self.tokenizers {
            let has_some = self.resume && Tokenizers::are_in(directory);
            if has_some && !tokenizers.have_vocabularies_of(&Tokenizers::load(directory)?) {
                return Err(TrainError::OtherTokenizers(directory.clone()));
            }
            // Before its first checkpoint, a run may still get other languages.
            if !has_some || checkpoints.newest()?.is_none() {
                tokenizers.save(directory)?;
            }
        }
        Ok(Some(checkpoints))
    }

    /// The run before its first update.
    fn new_run(&self, model: M, data: &Data<<M as Objective<B>>::Example>) -> Running<B, M> {
        let frozen = frozen_parameters::<B, M>(&model);
        Checkpoint {
            // Moved, not cloned: the optimizer changes weights in place if they have no other holder.
            model: model.fork(&self.devices[0]),
            average: None,
            optimizer: PaperAdam::new(self.config.clip_norm)
                .with_weight_decay(self.config.weight_decay),
            state: RunState::new(&self.config, data.train_set, data.valid_set, frozen),
        }
    }

    /// Lets the program write beside the model, now that the run is sure to begin or to go on.
    fn call_on_start(&mut self) -> Result<(), TrainError> {
        match (self.on_start.take(), &self.directory) {
            (Some(hook), Some(directory)) => {
                hook(directory.as_path()).map_err(|source| TrainError::Start { source })
            }
            _ => Ok(()),
        }
    }
}

/// The run as of its newest checkpoint; unchanged if there is none.
fn resumed<B: AutodiffBackend, M: Trainable<B>>(
    run: Running<B, M>,
    checkpoints: Option<&Checkpoints>,
) -> Result<Running<B, M>, TrainError> {
    let newest = checkpoints.map(Checkpoints::newest).transpose()?;
    let Some(newest) = newest.flatten() else {
        return Ok(run);
    };
    let restored = newest.restore::<B, _, _>(&run.state, run.model)?;
    Ok(Checkpoint {
        model: restored.model,
        average: restored.average,
        optimizer: run.optimizer.load_record(restored.optimizer),
        state: restored.state,
    })
}

/// A run that had ended.
fn as_it_was<B: AutodiffBackend, M: Trainable<B>>(
    run: Running<B, M>,
    ended: Ended,
) -> Trained<M::InnerModule> {
    let model = run.average.unwrap_or(run.model).valid();
    let outcome = Outcome {
        state: run.state,
        stopped: ended.stopped,
        average: ended.average,
        observer_errors: Vec::new(),
    };
    Trained::new(model, outcome)
}
