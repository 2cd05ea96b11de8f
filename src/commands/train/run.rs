//! The training on any backend.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;
use burn::train::Interrupter;
use burn_autodiff::Autodiff;
use transformer_core::decoding::LengthPenalty;
use transformer_core::formats::{
    GENERATION_FILE, remove_unfinished_files, rename_and_sync, replace_file_with,
};
use transformer_core::{DecodeOptions, ModelDirectory, Transformer, TransformerConfig};
use transformer_train::data::{Corpus, CorpusFiles, TRAINING_FILE, VALIDATION_FILE};
use transformer_train::optim::freeze;
use transformer_train::progress::{ProgressDisplay, printable};
use transformer_train::ranks::Ranks;
use transformer_train::run::{RunLock, StopReason};
use transformer_train::validation::HookError;
use transformer_train::{Trained, Trainer, TrainingConfig};

use super::earlier::CACHE_FILE;
use super::errors::run_error;
use super::init::initial_model;
use super::plan::Plan;
use super::prepared::Prepared;
use super::signals::{exit_code, stop_on_signals};
use super::validation::by_translating;
use crate::backend::BackendTask;
use crate::commands::{Interrupted, Result, counted, validation_line};
use crate::process::note;
use crate::run_file::RUN_FILE;

/// A run with checked keys and data.
pub struct Run {
    /// The model to train and the settings.
    pub plan: Plan,
    /// The data.
    pub prepared: Prepared,
    /// The processes that train together.
    pub ranks: Ranks,
    /// The run's directory.
    pub out: PathBuf,
    /// The directory's lock, in rank 0.
    pub lock: Option<RunLock>,
    /// Whether to resume from the newest checkpoint.
    pub resume: bool,
    /// The number of updates made by earlier commands.
    pub made_before: usize,
    /// The display of the progress.
    pub display: ProgressDisplay,
}

impl BackendTask for Run {
    type Output = Result;

    const SEVERAL_DEVICES: bool = true;

    fn run<B: Backend>(self, device: B::Device) -> Result {
        self.run_on_several::<B>(vec![device])
    }

    fn run_on_several<B: Backend>(self, devices: Vec<B::Device>) -> Result {
        self.plan.check_devices(devices.len(), &self.ranks)?;
        let model = self.first_model::<B>(&devices[0])?;
        let options = self.decoding_options()?;
        if self.ranks.is_first() {
            self.say_what_it_is();
        }
        let Self {
            plan,
            prepared,
            ranks,
            out,
            lock,
            resume,
            made_before,
            display,
        } = self;
        let searched = options.clone().unwrap_or_default();
        let by_translating = by_translating(&plan, &prepared, searched.length_penalty);
        let (valid_files, new_cache) = (prepared.valid_files, prepared.new_cache);
        let files = Files {
            run: plan.run.to_toml(),
            train: prepared.files,
            valid: prepared.valid_text,
            cache: new_cache.clone(),
            is_resumed: plan.is_resumed,
            options: options
                .filter(|_| plan.writes_decoding())
                .map(|options| (options, plan.model.clone())),
        };
        let interrupter = Interrupter::new();
        stop_on_signals(&interrupter);
        transformer_alloc::return_pages_each_minute();
        ranks.limit_waits(plan.run.longest_wait());
        let mut trainer = Trainer::new(model, plan.training.clone())
            .ranks(&ranks)
            .devices(devices)
            .tokenizers(&prepared.tokenizers)
            .resume(resume)
            .interrupter(interrupter)
            .display(display)
            .log_json(plan.run.log.json)
            .tensorboard(plan.run.log.tensorboard)
            .on_start(move |directory| files.write(directory));
        if let Some(lock) = lock {
            trainer = trainer.locked(lock);
        }
        if let Some(metrics) = by_translating {
            trainer = trainer.validate_with(metrics);
        }
        if let Some(duration) = plan.run.max_duration() {
            trainer = trainer.max_duration(duration);
        }
        let trained = trainer
            .train(prepared.train, prepared.valid.pairs)
            .map_err(|error| {
                run_error(error, &plan.values, &plan.other_data, &valid_files, &out)
            })?;
        if let Some(cache) = new_cache {
            // The run was already complete and needs no cache. In any other run, the cache has been renamed by now.
            let _ = fs::remove_file(cache);
        }
        if ranks.is_first() {
            say_how_it_went(&trained, made_before, &plan.training, &out);
        }
        match (trained.stopped, exit_code()) {
            (StopReason::Interrupted, Some(exit_code)) => Err(Interrupted { exit_code }.into()),
            _ => Ok(()),
        }
    }
}

impl Run {
    /// The model before the first update, with random weights or the weights of the model to start from. In a resumed
    /// run, and on ranks other than 0, the trainer replaces all weights, including frozen ones.
    fn first_model<B: Backend>(&self, device: &B::Device) -> Result<Transformer<Autodiff<B>>> {
        let plan = &self.plan;
        let patterns = &plan.run.init.freeze;
        let (model, frozen) = match &plan.init {
            Some(init) if self.made_before == 0 && self.ranks.is_first() => {
                initial_model::<B>(init, &plan.model, patterns, device)?
            }
            _ => freeze(
                plan.model.init::<Autodiff<B>>(plan.training.seed, device)?,
                patterns,
            )?,
        };
        if !frozen.is_empty() && self.ranks.is_first() {
            say(format_args!("{} frozen", counted(frozen.len(), "tensor")));
        }
        Ok(model)
    }

    /// The decoding options of the trained model. A new run has those of the model to start from, in the run's target
    /// language, or else a beam with the mean log-probability as score; a resumed run has those in its directory, where
    /// runs of earlier versions have none. A length penalty that this command sets or takes back replaces theirs.
    fn decoding_options(&self) -> Result<Option<DecodeOptions>> {
        let plan = &self.plan;
        let given = plan.run.validation.length_penalty.map(LengthPenalty::Power);
        if plan.is_resumed {
            let of_run = DecodeOptions::of_directory(&self.out)?;
            if !plan.writes_decoding() {
                return Ok(of_run);
            }
            let mut options = of_run.unwrap_or_default();
            options.length_penalty = match given {
                Some(given) => given,
                None => self.first_options()?.length_penalty,
            };
            return Ok(Some(options));
        }
        let mut options = self.first_options()?;
        options.length_penalty = given.unwrap_or(options.length_penalty);
        let language = self.prepared.tokenizers.target_first();
        options.forced_first = language.or(options.forced_first);
        Ok(Some(options))
    }

    /// The decoding options of the model to start from, or else a beam with the mean log-probability as score.
    fn first_options(&self) -> Result<DecodeOptions> {
        let of_init = match (&self.plan.init, &self.plan.run.init.model) {
            (Some(init), _) => init.options()?,
            (None, Some(path)) if path.exists() => ModelDirectory::open(path)?.options()?,
            _ => None,
        };
        Ok(of_init.unwrap_or_else(|| DecodeOptions {
            length_penalty: LengthPenalty::AVERAGE,
            ..DecodeOptions::default()
        }))
    }

    fn say_what_it_is(&self) {
        for line in self.prepared.left_out() {
            say(line);
        }
        say(format_args!(
            "{}, {}, {}, {} parameters",
            counted(self.prepared.filtered.kept, "training pair"),
            counted(self.prepared.valid.pairs.len(), "validation pair"),
            self.prepared.pieces(),
            self.plan.model.num_params()
        ));
        if self.made_before > 0 {
            let updates = counted(self.made_before, "update");
            say(format_args!("resuming after {updates}"));
        }
    }
}

/// The files that the program writes into the run's directory. The library writes all others:
///
/// | file | written by | when |
/// |---|---|---|
/// | `run.lock` | the library | before any other file |
/// | the tokenizers | the library | before the first update |
/// | `train.cache.new` | `prepared`, under the lock | before the run starts |
/// | `train.tsv`, `valid.tsv`, `train.cache`, `generation_config.json`, `run.toml` | this struct | when all checks have passed and the run starts or resumes |
/// | `config.json`, `model.safetensors`, `checkpoints/`, the logs | the library | during the run |
struct Files {
    /// The text of `run.toml`.
    run: String,
    /// The training pairs, unless they are saved already.
    train: Option<CorpusFiles>,
    /// The validation pairs.
    valid: Corpus,
    /// The new cache of the training pairs, unless the cache has its final name already.
    cache: Option<PathBuf>,
    /// Whether the run has a checkpoint, so that the pairs are equal to the saved ones.
    is_resumed: bool,
    /// The decoding options of the trained model, if they are new, and the model's configuration.
    options: Option<(DecodeOptions, TransformerConfig)>,
}

impl Files {
    /// Writes each file completely or not at all. Whenever `run.toml` exists, the saved pairs are the pairs of that
    /// run.
    fn write(&self, directory: &Path) -> std::result::Result<(), HookError> {
        let new_cache = format!("{CACHE_FILE}.new");
        for name in [
            RUN_FILE,
            TRAINING_FILE,
            VALIDATION_FILE,
            GENERATION_FILE,
            &new_cache,
        ] {
            remove_unfinished_files(&directory.join(name))?;
        }
        let path = directory.join(RUN_FILE);
        let named = |error: io::Error| format!("{}: {error}", path.display());
        if let Some(train) = &self.train {
            if !self.is_resumed
                && let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(named(error).into());
            }
            train.write_tsv(directory.join(TRAINING_FILE))?;
            self.valid.write_tsv(directory.join(VALIDATION_FILE))?;
        }
        if let Some(cache) = &self.cache {
            let path = directory.join(CACHE_FILE);
            rename_and_sync(cache, &path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        } else {
            // The cache of a command that was refused. A leftover file does no harm.
            let _ = fs::remove_file(directory.join(&new_cache));
        }
        if let Some((options, config)) = &self.options {
            options.save(directory, config)?;
        }
        Ok(replace_file_with(&path, &self.run).map_err(named)?)
    }
}

fn say_how_it_went<M>(
    trained: &Trained<M>,
    made_before: usize,
    training: &TrainingConfig,
    out: &Path,
) {
    let skipped = match trained.skipped {
        0 => String::new(),
        skipped => format!(" ({skipped} skipped: loss or gradients were not finite)"),
    };
    let updates = counted(trained.updates, "update") + &skipped;
    say(match trained.stopped {
        StopReason::Updates if trained.updates == made_before => {
            let more = match training.schedule.falls_to_zero() {
                true => {
                    "the learning rate has fallen to zero; to train further, begin a new run with --init"
                }
                false => "raise --updates to continue",
            };
            format!("already trained for {updates}; {more}")
        }
        StopReason::Updates => format!("done: {updates}"),
        StopReason::Time => format!(
            "stopped after {updates}: the time limit is reached; --resume --minutes M trains longer"
        ),
        StopReason::Interrupted => format!("interrupted after {updates}; --resume continues"),
        StopReason::Patience => {
            let validations = counted(training.patience.unwrap_or_default(), "validation");
            format!("stopped early after {updates}: no improvement in {validations}")
        }
        _ => format!("stopped after {updates}"),
    });
    for validation in &trained.validations {
        say(validation_line(validation));
    }
    if let Some(average) = &trained.average {
        let kept = match average.kept {
            true => "is better, and is kept as the model",
            false => "is not better, and is not kept",
        };
        let checkpoints = counted(average.checkpoints.len(), "checkpoint");
        say(format_args!(
            "the average of the last {checkpoints} {kept}:"
        ));
        say(validation_line(&average.validation));
    }
    for error in &trained.observer_errors {
        note(format_args!("warning: the log is incomplete: {error}"));
    }
    say(format_args!("model: {}", out.display()));
}

/// Prints a line. A closed pipe must not end the training.
fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{}", printable(&line.to_string()));
}
