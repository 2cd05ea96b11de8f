//! The log of a run as JSON lines: written by an observer, and read back.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{ObserverError, TrainError};
use crate::files;
use crate::progress::log_file::LogFile;
use crate::progress::observer::{RunObserver, RunStart, TrainingPoint};
use crate::validation::{AverageOutcome, Validation};

/// File name of a run's log, in its directory.
pub const LOG_FILE: &str = "log.jsonl";

/// Logs a run as JSON lines: one object per point of training (its `event` is `training`), per validation
/// (`validation`), and for the average of the last checkpoints (`average`). The other keys are the fields of
/// [`TrainingPoint`], [`Validation`] and [`AverageOutcome`]. NaN and infinity, which JSON cannot represent, are
/// `null`.
///
/// Each line is written to the file at once; while the disk is full, it waits for the next one. A resumed run
/// truncates the log after its checkpoint, including a line that a killed process left incomplete, and continues
/// there, so that each update is in one line. Validations and averages of the run that the log lacks, because it
/// was enabled later, are added first.
#[derive(Debug)]
pub struct JsonLog {
    path: PathBuf,
    /// Set when the run starts.
    file: Option<LogFile>,
}

impl JsonLog {
    /// A log in the file at `path`, which is created at the run's start.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            file: None,
        }
    }

    /// Opens the file, in which the log continues after `kept` bytes.
    fn open(&self, kept: u64) -> io::Result<File> {
        let mut options = File::options();
        let options = options.create(true).truncate(false).write(true);
        let mut file = options.open(&self.path)?;
        file.set_len(kept)?;
        file.seek(SeekFrom::Start(kept))?;
        Ok(file)
    }

    fn write(&mut self, line: &Line<'_>) -> Result<(), ObserverError> {
        if let Some(file) = &mut self.file {
            let mut bytes = serde_json::to_vec(line)?;
            bytes.push(b'\n');
            // Whole lines at a time, so that a reader never sees an incomplete one.
            file.write(&bytes)?;
        }
        Ok(())
    }
}

impl RunObserver for JsonLog {
    fn on_start(&mut self, start: &RunStart<'_>) -> Result<(), ObserverError> {
        let kept = Kept::of(&self.path, start)?;
        let file = self.open(kept.bytes).map_err(TrainError::io(&self.path))?;
        self.file = Some(LogFile::new(self.path.clone(), file, kept.bytes));
        let mut missing = kept.missing(start);
        // An average follows the validation of its update.
        missing.sort_by_key(|(update, _)| *update);
        missing.iter().try_for_each(|(_, line)| self.write(line))?;
        self.on_end()
    }

    fn on_training(&mut self, point: &TrainingPoint) -> Result<(), ObserverError> {
        self.write(&Line::Training(Cow::Borrowed(point)))
    }

    fn on_validation(&mut self, validation: &Validation) -> Result<(), ObserverError> {
        self.write(&Line::Validation(Cow::Borrowed(validation)))
    }

    fn on_average(&mut self, average: &AverageOutcome) -> Result<(), ObserverError> {
        self.write(&Line::Average(Cow::Borrowed(average)))
    }

    /// Writes the pending lines.
    fn on_end(&mut self) -> Result<(), ObserverError> {
        match &mut self.file {
            Some(file) => Ok(file.write_waiting()?),
            None => Ok(()),
        }
    }
}

/// The log of a run, read from its directory.
///
/// If the process was killed, the log may be ahead of the newest checkpoint.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct RunLog {
    /// The points of training, in order.
    pub points: Vec<TrainingPoint>,
    /// The validations, in order.
    pub validations: Vec<Validation>,
    /// The averages of checkpoints made at the ends of the run, in order.
    pub averages: Vec<AverageOutcome>,
}

impl RunLog {
    /// Reads `log.jsonl` in the directory of a run; `None` if there is no such file. An incomplete last line is
    /// ignored.
    ///
    /// # Errors
    /// When the file cannot be read, or contains an invalid line.
    pub fn load(directory: impl AsRef<Path>) -> Result<Option<Self>, TrainError> {
        let path = directory.as_ref().join(LOG_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let mut log = Self::default();
        for (line, _) in read(&path)? {
            match line {
                Line::Training(point) => log.points.push(point.into_owned()),
                Line::Validation(validation) => log.validations.push(validation.into_owned()),
                Line::Average(average) => log.averages.push(average.into_owned()),
            }
        }
        Ok(Some(log))
    }
}

/// A line of a log.
#[derive(Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Training(Cow<'a, TrainingPoint>),
    Validation(Cow<'a, Validation>),
    Average(Cow<'a, AverageOutcome>),
}

/// The complete lines of a log, each with the position of its end; none if there is no file.
fn read(path: &Path) -> Result<Vec<(Line<'static>, u64)>, TrainError> {
    let bytes = match files::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(TrainError::io(path)(error)),
    };
    let mut lines = Vec::new();
    let mut end = 0;
    let whole = bytes.split_inclusive(|&byte| byte == b'\n');
    let whole = whole.filter(|line| line.ends_with(b"\n"));
    for (index, line) in whole.enumerate() {
        end += line.len() as u64;
        let parsed = serde_json::from_slice(line).map_err(|error| {
            let problem = error.to_string();
            // serde's own position is within the line.
            let problem = problem.split(" at line ").next().unwrap_or_default();
            TrainError::Damaged {
                path: path.to_owned(),
                problem: format!("line {}: {problem}", index + 1),
            }
        })?;
        lines.push((parsed, end));
    }
    Ok(lines)
}

/// The part of a log that a resumed run keeps.
#[derive(Default)]
struct Kept {
    bytes: u64,
    /// The update of its last validation.
    validated: usize,
    /// The updates of its averages.
    averaged: Vec<AverageOutcome>,
}

impl Kept {
    /// The lines before the first one that the run will write again.
    fn of(path: &Path, start: &RunStart<'_>) -> Result<Self, TrainError> {
        let validated = start.validations.last().map_or(0, |last| last.update);
        let mut kept = Self::default();
        for (line, end) in read(path)? {
            match line {
                Line::Training(point) if point.update <= start.update => {}
                // A checkpoint can come between an update and its validation.
                Line::Validation(validation) if validation.update <= validated => {
                    kept.validated = validation.update;
                }
                Line::Average(average) if is_among(&average, start.averages) => {
                    kept.averaged.push(average.into_owned());
                }
                _ => break,
            }
            kept.bytes = end;
        }
        Ok(kept)
    }

    /// The lines of the run that are missing from it, each with its update.
    fn missing<'a>(&self, start: &RunStart<'a>) -> Vec<(usize, Line<'a>)> {
        let validations = start.validations.iter().map(|validation| {
            let line = Line::Validation(Cow::Borrowed(validation));
            (validation.update, line)
        });
        let averages = start.averages.iter();
        let averages = averages.filter(|average| !is_among(average, &self.averaged));
        let averages = averages.map(|average| {
            let line = Line::Average(Cow::Borrowed(average));
            (average.validation.update, line)
        });
        let validations = validations.filter(|(update, _)| *update > self.validated);
        validations.chain(averages).collect()
    }
}

/// Whether an average is one of these.
fn is_among(average: &AverageOutcome, averages: &[AverageOutcome]) -> bool {
    let (update, checkpoints) = (average.validation.update, &average.checkpoints);
    averages.iter().any(|one| one.is_of(update, checkpoints))
}
