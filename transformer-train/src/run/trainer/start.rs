//! The start of a run: everything before its first update.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
#[cfg(feature = "text")]
use std::{fs, io};

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
#[cfg(feature = "text")]
use transformer_core::{Tokenizers, formats::TOKENIZER_FILES};

use crate::config::TrainingConfig;
use crate::data::{BatchSampler, Example, ExampleSet, ExampleSource, UpdateLoader};
use crate::error::TrainError;
use crate::loaders::{Batches, checked};
use crate::objective::{Objective, Trainable, prepared};
use crate::optim::freeze::frozen_parameters;
use crate::optim::moving_average::MovingAverage;
use crate::progress::{
    BurnDisplay, ProgressDisplay, RunObserver, RunStart, Watching, displayed_names,
};
use crate::ranks::Ranks;
use crate::run::checkpoints::{Checkpoint, Checkpoints, number_parameters};
use crate::run::lock::RunLock;
use crate::run::state::RunState;
use crate::run::trainer::joining::join;
use crate::run::trainer::{StartHook, Trained, Trainer};
use crate::run::update_loop::Ended;
use crate::run::update_loop::{Outcome, Run};
use crate::validation::{OWN_NUMBERS, ValidationHook};

/// The examples of a run. They fit the batches and, as far as they have been read, the model.
pub(crate) struct Data<E: Example> {
    /// The training examples.
    train: Arc<dyn ExampleSource<Example = E>>,
    /// Their batches.
    sampler: BatchSampler,
    /// The validation examples.
    valid: Batches<E>,
    /// Identifies the training examples when a run is resumed.
    pub train_set: ExampleSet,
    /// Identifies the validation examples.
    pub valid_set: ExampleSet,
}

impl<B, M, O, S> Trainer<B, M, O, S>
where
    B: AutodiffBackend,
    M: Trainable<B>,
    O: Optimizer<M, B> + 'static,
    S: LrScheduler + 'static,
{
    /// Runs everything. Compiled once for all sources of examples.
    pub(crate) fn run(
        mut self,
        train: Arc<dyn ExampleSource<Example = <M as Objective<B>>::Example>>,
        valid: Vec<<M as Objective<B>>::Example>,
    ) -> Result<Trained<M::InnerModule>, TrainError> {
        // A deadline too far away to represent is no deadline.
        let deadline = self
            .max_duration
            .and_then(|duration| Instant::now().checked_add(duration));
        self.check()?;
        self.ranks.check(&self.config)?;
        let schedule = (self.schedule)(&self.config, Objective::<B>::width(&self.model))?;
        self.model = prepared::<B, M>(self.model, self.config.precision)?;
        let data = self.data(train, valid)?;
        if !self.ranks.is_first() {
            self = self.follower();
        }
        let checkpoints = self.open_directory()?;

        let frozen = frozen_parameters::<B, M>(&self.model)?;
        let state = RunState::new(&self.config, data.train_set, data.valid_set, frozen);
        let new = Checkpoint {
            // Moved, not cloned: the optimizer changes weights in place if nothing else holds them.
            model: self.model.fork(&self.devices[0]),
            average: None,
            optimizer: self.optimizer,
            state,
        };
        let run = resumed::<B, M, O>(new, checkpoints.as_ref())?;
        let on_start = self.on_start.take().zip(self.directory.as_deref());
        let ended = begin(&self.ranks, &run.state, checkpoints.as_ref(), on_start)?;
        if let Some(Ended { stopped, average }) = ended {
            let outcome = Outcome {
                state: run.state,
                stopped,
                average,
                observer_errors: Vec::new(),
            };
            return Ok(Trained::new(
                run.average.unwrap_or(run.model).valid(),
                outcome,
            ));
        }
        let run = join::<B, M, O>(&self.ranks, &self.config, run, &data, &self.devices[0])?;
        let Checkpoint {
            model,
            average,
            optimizer,
            state,
        } = run;

        if let Some(checkpoints) = &checkpoints {
            // Before the logs are opened.
            checkpoints.check()?;
        }
        let start = RunStart {
            update: state.update,
            seconds: state.seconds,
            validations: &state.validations,
            averages: &state.averages,
            config: &state.config,
            deadline,
        };
        let (numbers, samples) = (self.hook.names.clone(), self.hook.samples);
        let (renderer, interrupter) = (self.renderer, self.interrupter);
        let display = || -> Option<Box<dyn RunObserver>> {
            let intervals = start.update / start.config.validate_every;
            match renderer {
                Some(renderer) => Some(Box::new(BurnDisplay::new(renderer, numbers, samples))),
                None => self
                    .display
                    .observer(&interrupter, intervals, numbers, samples),
            }
        };
        let watch = self
            .watching
            .start(self.directory.as_deref(), display, &start)?;
        // Only validations and checkpoints need it, and they are rank 0's.
        let decay = self.config.ema_decay.filter(|_| self.ranks.is_first());
        let average = decay.map(|decay| {
            // It starts at the initial weights.
            let model = average.unwrap_or_else(|| model.clone());
            MovingAverage::new(decay, number_parameters::<B, M>(model).valid())
        });
        let run = Run {
            updates: UpdateLoader {
                source: data.train,
                sampler: Arc::new(data.sampler),
                batches_per_update: self.config.batches_per_update,
                first_update: state.update,
                rank: self.ranks.rank(),
                ranks: self.ranks.size(),
            },
            schedule: after(schedule, state.update),
            loss: self.config.loss_options(),
            config: self.config,
            devices: self.devices,
            ranks: self.ranks,
            optimizer,
            average,
            valid: data.valid,
            checkpoints,
            deadline,
            interrupter,
            saved: (state.update, Instant::now()),
            summed: Vec::new(),
            state,
            hook: self.hook,
            watch,
        };
        let (model, outcome) = run.train(number_parameters::<B, M>(model))?;
        Ok(Trained::new(model, outcome))
    }

    /// Checks the settings, alone and against the model, before anything is read or written.
    fn check(&self) -> Result<(), TrainError> {
        self.config.validate()?;
        self.watching.validate()?;
        self.check_names()?;
        #[cfg(feature = "text")]
        if let Some(tokenizers) = &self.tokenizers {
            self.model.check_tokenizers(tokenizers)?;
        }
        let checked = self.hook.check(&self.model.valid());
        checked.map_err(|source| TrainError::Metrics { source })
    }

    /// Checks that metric names are unique, because displays identify metrics by name, and that the metric of
    /// `best_by` exists.
    fn check_names(&self) -> Result<(), TrainError> {
        let mut names: HashSet<_> = displayed_names(self.hook.samples).collect();
        names.extend(OWN_NUMBERS.map(str::to_owned));
        for name in &self.hook.names {
            if !names.insert(name.clone()) {
                return Err(TrainError::SameName { name: name.clone() });
            }
        }
        let own = OWN_NUMBERS.map(str::to_owned).into_iter();
        let named: Vec<_> = own.chain(self.hook.names.iter().cloned()).collect();
        let name = &self.config.best_by.number;
        match named.contains(name) {
            true => Ok(()),
            false => Err(TrainError::NoSuchNumber {
                name: name.clone(),
                named,
            }),
        }
    }

    fn data(
        &self,
        train: Arc<dyn ExampleSource<Example = <M as Objective<B>>::Example>>,
        valid: Vec<<M as Objective<B>>::Example>,
    ) -> Result<Data<<M as Objective<B>>::Example>, TrainError> {
        let TrainingConfig {
            batch_tokens, seed, ..
        } = self.config;
        let model = &self.model;
        let sampler = checked::<B, M>(model, &*train, batch_tokens, seed, "training")?;
        let train_set = ExampleSet {
            examples: sampler.len(),
            checksum: train.checksum(),
        };
        let valid_set = ExampleSet {
            examples: valid.len(),
            checksum: valid.checksum(),
        };
        let batches = checked::<B, M>(model, &valid, batch_tokens, seed, "validation")?;
        Ok(Data {
            train,
            sampler,
            valid: Batches::of(valid, &batches),
            train_set,
            valid_set,
        })
    }

    /// The same run in a process that follows rank 0: it computes its batches of each update, and has no
    /// directory, display or validations.
    fn follower(self) -> Self {
        Self {
            directory: None,
            lock: None,
            on_start: None,
            #[cfg(feature = "text")]
            tokenizers: None,
            resume: false,
            max_duration: None,
            display: ProgressDisplay::Silent,
            renderer: None,
            hook: ValidationHook::default(),
            watching: Watching::default(),
            ..self
        }
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
            // Before its first checkpoint, a run may still change its languages.
            if !has_some || checkpoints.newest()?.is_none() {
                if !self.resume {
                    remove_tokenizers(directory)?;
                }
                tokenizers.save(directory)?;
            }
        }
        Ok(Some(checkpoints))
    }
}

/// Removes the tokenizers of a run that ended before its first checkpoint: some would be loaded in place of this run's.
#[cfg(feature = "text")]
fn remove_tokenizers(directory: &Path) -> Result<(), TrainError> {
    for name in TOKENIZER_FILES {
        let path = directory.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(TrainError::io(&path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The run at its newest checkpoint; unchanged if there is none.
fn resumed<B: AutodiffBackend, M: Trainable<B>, O: Optimizer<M, B> + 'static>(
    run: Checkpoint<M, O>,
    checkpoints: Option<&Checkpoints>,
) -> Result<Checkpoint<M, O>, TrainError> {
    let newest = checkpoints.map(Checkpoints::newest).transpose()?;
    let Some(newest) = newest.flatten() else {
        return Ok(run);
    };
    let restored = newest.restore::<B, M, O>(&run.state, run.model)?;
    Ok(Checkpoint {
        model: restored.model,
        average: restored.average,
        optimizer: run.optimizer.load_record(restored.optimizer),
        state: restored.state,
    })
}

/// Advances a schedule by this number of updates.
fn after<S: LrScheduler>(mut schedule: S, updates: usize) -> S {
    for _ in 0..updates {
        schedule.step();
    }
    schedule
}

/// Starts the run on rank 0, then on the others; on none if it has ended. The program's hook runs now that the run
/// is certain to start or resume.
fn begin(
    ranks: &Ranks,
    state: &RunState,
    checkpoints: Option<&Checkpoints>,
    on_start: Option<(Box<StartHook>, &Path)>,
) -> Result<Option<Ended>, TrainError> {
    if !ranks.is_first() {
        return Ok((!ranks.begins()).then_some(Ended::elsewhere()));
    }
    let ended = match checkpoints {
        Some(checkpoints) => Ended::before(state, checkpoints)?,
        None => None,
    };
    if ended.is_none()
        && let Some((hook, directory)) = on_start
    {
        hook(directory).map_err(|source| TrainError::Start { source })?;
    }
    ranks.send_start(ended.is_none());
    Ok(ended)
}
