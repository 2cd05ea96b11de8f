//! The log of a run as TensorBoard event files.

mod event;
mod record;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use self::event::{Content, event};
use self::record::record;
use crate::error::{ObserverError, TrainError};
use crate::progress::log_file::LogFile;
use crate::progress::observer::{RunObserver, RunStart, TrainingPoint};
use crate::validation::{AverageOutcome, Validation};

/// Name of the directory of event files, in the run's directory.
pub(super) const TENSORBOARD_DIRECTORY: &str = "tensorboard";

/// Logs a run as TensorBoard event files: one each time that the run is started or resumed.
///
/// The scalars are `train/loss`, `train/perplexity`, `train/accuracy`, `train/learning_rate`,
/// `train/tokens_per_second`, `train/gradient_norm` and `train/skipped`, at each [`TrainingPoint`]; `valid/loss`,
/// `valid/perplexity`, `valid/accuracy`, and `valid/` with each name of
/// [`Trainer::validate_with_fn`](crate::Trainer::validate_with_fn), at each [`Validation`]; and the same with
/// `average/` in place of `valid/`, for the average of the last checkpoints. Their step is the update. Values that
/// are not finite are skipped.
///
/// The file of a resumed run marks the resume, and TensorBoard then drops earlier events of later updates, which
/// are repeated.
#[derive(Debug)]
pub struct TensorBoardLog {
    directory: PathBuf,
    /// Set when the run starts.
    file: Option<LogFile>,
}

impl TensorBoardLog {
    /// A log in `directory`, which is created at the run's start.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            file: None,
        }
    }

    fn write(&mut self, step: usize, content: Content<'_>) -> Result<(), ObserverError> {
        if let Some(file) = &mut self.file {
            let event = event(now(), step, content);
            // Whole records at a time, so that a reader never sees an incomplete one.
            file.write(&record(&event))?;
        }
        Ok(())
    }

    fn scalars(&mut self, step: usize, scalars: &[(String, f64)]) -> Result<(), ObserverError> {
        self.write(step, Content::Scalars(scalars))
    }
}

impl RunObserver for TensorBoardLog {
    fn on_start(&mut self, start: &RunStart<'_>) -> Result<(), ObserverError> {
        fs::create_dir_all(&self.directory).map_err(TrainError::io(&self.directory))?;
        let path = next_file(&self.directory).map_err(TrainError::io(&self.directory))?;
        let file = File::create_new(&path).map_err(TrainError::io(&path))?;
        self.file = Some(LogFile::new(path, file, 0));
        self.write(0, Content::Version)?;
        self.write(start.update + 1, Content::Start)?;
        self.on_end()
    }

    fn on_training(&mut self, point: &TrainingPoint) -> Result<(), ObserverError> {
        let scalars = [
            ("loss", point.loss),
            ("perplexity", point.perplexity),
            ("accuracy", point.accuracy),
            ("learning_rate", point.learning_rate),
            ("tokens_per_second", point.tokens_per_second),
            ("gradient_norm", point.gradient_norm),
            ("skipped", point.skipped as f64),
        ];
        self.scalars(
            point.update,
            &scalars.map(|(name, v)| (format!("train/{name}"), v)),
        )
    }

    fn on_validation(&mut self, validation: &Validation) -> Result<(), ObserverError> {
        self.scalars(validation.update, &named("valid", validation))
    }

    fn on_average(&mut self, average: &AverageOutcome) -> Result<(), ObserverError> {
        let validation = &average.validation;
        self.scalars(validation.update, &named("average", validation))
    }

    /// Writes the pending events.
    fn on_end(&mut self) -> Result<(), ObserverError> {
        match &mut self.file {
            Some(file) => Ok(file.write_waiting()?),
            None => Ok(()),
        }
    }
}

/// The metrics of a validation, with names in a group.
fn named(group: &str, validation: &Validation) -> Vec<(String, f64)> {
    let numbers = validation.all_numbers();
    numbers
        .map(|(name, value)| (format!("{group}/{name}"), value))
        .collect()
}

/// Seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// The prefix of a file's name, by which TensorBoard recognizes it; the time follows.
const PREFIX: &str = "events.out.tfevents.";

/// The path of the next event file. TensorBoard reads the files in the order of their names, so the time in the
/// name is later than in each earlier file, whatever the clock says.
fn next_file(directory: &Path) -> io::Result<PathBuf> {
    let mut time = now() as u64;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let before = name.and_then(|rest| rest.split('.').next()?.parse::<u64>().ok());
        time = time.max(before.map_or(0, |before| before.saturating_add(1)));
    }
    Ok(directory.join(format!("{PREFIX}{time:010}.transformer")))
}
