//! The run that an earlier command has started in a directory.

use std::fs;
use std::path::{Path, PathBuf};

use transformer_core::TransformerConfig;
use transformer_train::data::{
    Corpus, CorpusError, CorpusFile, CorpusFiles, PairCache, TRAINING_FILE, VALIDATION_FILE,
    is_standard_stream,
};
use transformer_train::run::{RunRecord, holds_model, same_config};
use transformer_train::{TrainError, TrainingConfig};

use crate::commands::Result;
use crate::process::note;
use crate::run_file::{DataKeys, RUN_FILE, RunFile, RunFileError, Values};

/// The file of the tokenized training pairs in the directory of a run.
pub const CACHE_FILE: &str = "train.cache";

/// A run that can be resumed.
pub struct Earlier {
    directory: PathBuf,
    /// Its `run.toml`; absent in directories of earlier versions.
    pub file: Option<ResolvedFile>,
    /// The record of its newest checkpoint; absent before the first checkpoint.
    pub record: Option<RunRecord>,
}

/// `run.toml`.
pub struct ResolvedFile {
    /// The values in the file.
    pub values: Values,
    /// The run that they describe.
    pub run: RunFile,
}

/// The run in `out` to resume, if `resume` is set and there is a run. `given` are the values of the command line and of
/// the file of `--config`.
///
/// # Errors
/// When a new run would overwrite a model; when there is no run to resume, and no data for a new one.
pub fn to_go_on_with(out: &Path, resume: bool, given: &Values) -> Result<Option<Earlier>> {
    let name = out.display();
    if !resume {
        return match holds_model(out) {
            true => Err(format!(
                "{name} already holds a model; add --resume to continue its run, or choose another --out"
            )
            .into()),
            false => Ok(None),
        };
    }
    let has_data = given.is_given("data.train");
    match Earlier::find(out)? {
        Some(earlier) if earlier.file.is_none() && !has_data => Err(format!(
            "{name} has no {RUN_FILE}, which earlier versions did not write, and the command names no data; add the run's data with --data FILE… or --parallel SOURCE TARGET, and the other flags that the run was started with"
        )
        .into()),
        Some(earlier) => Ok(Some(earlier)),
        None if holds_model(out) => Err(format!(
            "{name} holds a model, but no run to resume; choose another --out"
        )
        .into()),
        None if has_data => {
            note(format_args!("{name} holds no run; starting a new one"));
            Ok(None)
        }
        None => Err(format!(
            "{name} holds no run to resume; check --out, or start a run with --config FILE, --data FILE or --parallel SOURCE TARGET"
        )
        .into()),
    }
}

impl Earlier {
    /// The run that another process has just started or resumed in a directory, and the values of its file.
    ///
    /// # Errors
    /// When a file of the run is missing or cannot be read.
    pub fn begun(directory: &Path) -> Result<(Self, Values)> {
        let files = [RUN_FILE, VALIDATION_FILE].map(|name| directory.join(name));
        let missing = files.iter().find(|file| !file.exists());
        if missing.is_none()
            && let Some(begun) = Self::find(directory)?
            && let Some(file) = &begun.file
        {
            let values = file.values.clone();
            return Ok((begun, values));
        }
        Err(format!(
            "{}: no such file; --out must be a directory that all processes can read",
            missing.unwrap_or(&files[0]).display()
        )
        .into())
    }

    fn find(directory: &Path) -> Result<Option<Self>> {
        let record = RunRecord::load(directory)?;
        let path = directory.join(RUN_FILE);
        let file = match path.exists() {
            true => {
                let values = Values::from_file_of_run(&path)?;
                let run = RunFile::read(&values)?;
                Some(ResolvedFile { values, run })
            }
            false => None,
        };
        let is_run = file.is_some() || record.is_some();
        Ok(is_run.then(|| Self {
            directory: directory.to_owned(),
            file,
            record,
        }))
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The number of updates that it has made.
    pub fn updates(&self) -> usize {
        self.record.as_ref().map_or(0, |record| record.updates)
    }

    /// Checks that `init.model` is the model from which the run started. The run keeps its tokenizers. This is checked
    /// before the values are read as a run, because the keys for another model could contradict `run.toml`.
    ///
    /// # Errors
    /// When `init.model` is a different model, or is missing.
    pub fn check_init(&self, values: &Values) -> std::result::Result<(), RunFileError> {
        const KEY: &str = "init.model";
        let Some(file) = &self.file else {
            return Ok(());
        };
        let run = self.directory.display();
        let (now, before) = (values.text(KEY), file.values.text(KEY));
        let rule = match (now, before) {
            (Some(now), Some(before)) if !is_one_directory(now, before) => {
                format!(
                    "the run in {run} started from {before}; start a new run with another --out"
                )
            }
            (Some(_), None) => format!(
                "the run in {run} did not start from a model; start a new run with another --out"
            ),
            (None, Some(before)) => {
                format!("the run in {run} started from {before}; name that model with --init")
            }
            _ => return Ok(()),
        };
        Err(values.refuse(KEY, now.unwrap_or("absent"), rule))
    }

    /// Checks that the learning rate schedule of the run stays the same: either continued from a model, or new.
    ///
    /// # Errors
    /// When `init.continue_schedule` differs from the value with which the updates were made.
    pub fn check_schedule(
        &self,
        now: &RunFile,
        values: &Values,
    ) -> std::result::Result<(), RunFileError> {
        const KEY: &str = "init.continue_schedule";
        let before = self.file.as_ref().filter(|_| self.updates() > 0);
        let before = before.map(|file| file.run.init.continue_schedule);
        let now = now.init.continue_schedule;
        match before.filter(|&before| before != now) {
            None => Ok(()),
            Some(before) => {
                let run = self.directory.display();
                Err(values.refuse(KEY, now, format!("is {before} in the run in {run}")))
            }
        }
    }

    /// The training configuration with the peak rate as the run records it. Earlier versions recorded a factor of the
    /// paper's rate.
    pub fn with_its_peak(&self, training: TrainingConfig, d_model: usize) -> TrainingConfig {
        let before = self.record.as_ref().map(|record| &record.config);
        match (training.peak_rate, before) {
            (Some(peak), Some(before)) if before.learning_rate_factor != 1.0 => {
                let paper_peak = (d_model as f64 * training.warmup as f64).sqrt().recip();
                TrainingConfig {
                    peak_rate: None,
                    learning_rate_factor: peak / paper_peak,
                    ..training
                }
            }
            _ => training,
        }
    }

    /// Checks that a model has the configuration of the run's model, and the same frozen parameters.
    ///
    /// # Errors
    /// The first key of the configuration that differs, or the first parameter that is frozen in only one of the two;
    /// damage to the newest checkpoint.
    pub fn check_model(
        &self,
        model: &TransformerConfig,
        frozen: &[String],
    ) -> std::result::Result<(), TrainError> {
        let Some(record) = &self.record else {
            return Ok(());
        };
        if let Some(newest) = record.checkpoints.last() {
            let before = TransformerConfig::load(newest).map_err(TrainError::from);
            let checked = before.and_then(|before| same_config(newest, &before, model));
            checked.map_err(|error| record.with_older_checkpoint(error))?;
        }
        record.check_frozen(frozen)
    }

    /// The pairs of the run from its directory, if the command names the same pairs, or if their files are missing.
    /// Otherwise `None`: the files must be read, and the trainer refuses other pairs. A missing or damaged cache is
    /// rebuilt from the files, or from the saved text if the files are missing.
    ///
    /// # Errors
    /// When the saved pairs cannot be read, or the saved text does not record the weights of the corpora; when a file
    /// that the run did not have is missing.
    pub fn pairs(&self, run: &RunFile) -> Result<Option<SavedPairs>> {
        let [cache, text, valid] =
            [CACHE_FILE, TRAINING_FILE, VALIDATION_FILE].map(|name| self.directory.join(name));
        if !valid.exists() || !(cache.exists() || text.exists()) {
            return Ok(None);
        }
        let missing: Vec<&Path> = run.data.paths().filter(|file| !file.exists()).collect();
        if let Some(before) = &self.file {
            let own: Vec<&Path> = before.run.data.paths().collect();
            // The name is most likely mistyped, because no pairs of the run were read from this file.
            if let Some(other) = missing.iter().find(|file| !own.contains(file)) {
                check_is_there(other)?;
            }
        }
        // Before the first checkpoint, the pairs of a run may still change.
        let gone = missing.first().copied();
        let gone = gone.filter(|_| self.record.is_some());
        let has_its_data = self.file.as_ref().is_some_and(|file| match &self.record {
            Some(_) => (&file.run.data, file.run.training.seed) == (&run.data, run.training.seed),
            // The tokenizers and the size of a batch may still change, too, and with them the tokens of the pairs.
            None => file.run == *run,
        });
        let cache = match has_its_data || gone.is_some() {
            true => whole_cache(&cache)?,
            false => None,
        };
        let train = match (cache, gone) {
            (Some(cache), _) => SavedTraining::Cache(Box::new(cache)),
            (None, None) => return Ok(None),
            (None, Some(gone)) => SavedTraining::Text(self.text(run, &text, gone)?),
        };
        if let Some(gone) = gone
            && (!has_its_data || matches!(train, SavedTraining::Text(_)))
        {
            let others = self
                .file
                .as_ref()
                .map_or(Vec::new(), |file| run.other_data(&file.run));
            let ignored: Vec<_> = others.iter().map(|key| format!("`{key}`")).collect();
            let ignored = match ignored.is_empty() {
                true => String::new(),
                false => format!(", ignoring {}", ignored.join(", ")),
            };
            note(format_args!(
                "{} is missing: continuing with the pairs in {}{ignored}",
                gone.display(),
                self.directory.display()
            ));
        }
        Ok(Some(SavedPairs {
            keys: self.file.as_ref().map(|file| file.run.data.clone()),
            train,
            valid: match valid.is_file() {
                true => Corpus::from_tsv(&valid)?,
                false => return Err(format!("{}: not a regular file", valid.display()).into()),
            },
            valid_file: valid,
        }))
    }

    /// The training pairs as text, with their weight in the run. `gone` is one of the files that they were read from.
    ///
    /// # Errors
    /// When there were several corpora with weights, because the text does not record where a corpus ends.
    fn text(&self, run: &RunFile, text: &Path, gone: &Path) -> Result<CorpusFiles> {
        let run = self.file.as_ref().map_or(run, |file| &file.run);
        let corpora = &run.data.train.0;
        let weight = match corpora.as_slice() {
            [one] => one.weight,
            several if several.iter().all(|corpus| corpus.weight == 1.0) => 1.0,
            _ => {
                let cache = self.directory.join(CACHE_FILE);
                let problem = match cache.exists() {
                    true => "cannot be read",
                    false => "is missing",
                };
                return Err(format!(
                    "{cache} {problem}, and cannot be rebuilt: {gone} is missing, and {text} does not record the weights of the pairs; restore {gone} or {cache}",
                    cache = cache.display(),
                    gone = gone.display(),
                    text = text.display(),
                )
                .into());
            }
        };
        Ok(CorpusFiles::new().with(CorpusFile::tsv(text), weight))
    }
}

/// Checks that a file exists, before the files named before it are read.
pub fn check_is_there(path: &Path) -> std::result::Result<(), CorpusError> {
    if is_standard_stream(path) {
        return Ok(());
    }
    let path = path.to_owned();
    match fs::metadata(&path) {
        Ok(file) if file.is_dir() => Err(CorpusError::Directory { path }),
        Ok(_) => Ok(()),
        Err(source) => Err(CorpusError::Open { path, source }),
    }
}

/// Whether two paths lead to the same directory.
fn is_one_directory(one: &str, other: &str) -> bool {
    let whole = |path: &str| Path::new(path).canonicalize().ok();
    one == other || whole(one).is_some_and(|one| whole(other) == Some(one))
}

/// The cache at that path, unless it is missing, damaged, or written by another version. In the latter two cases, a
/// note is printed.
fn whole_cache(path: &Path) -> Result<Option<PairCache>> {
    if !path.exists() {
        return Ok(None);
    }
    match PairCache::open(path) {
        Ok(cache) => Ok(Some(cache)),
        Err(CorpusError::CacheDamaged { path, problem }) => {
            let path = path.display();
            note(format_args!("{path}: damaged cache of pairs: {problem}"));
            Ok(None)
        }
        Err(error @ CorpusError::CacheFormat { .. }) => {
            note(error);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The pairs in the directory of a run.
pub struct SavedPairs {
    /// The keys of `[data]` with which they were read; `None` in runs of earlier versions.
    pub keys: Option<DataKeys>,
    /// The training pairs.
    pub train: SavedTraining,
    /// The validation pairs.
    pub valid: Corpus,
    /// The file of the validation pairs.
    pub valid_file: PathBuf,
}

/// The training pairs in the directory of a run.
pub enum SavedTraining {
    /// As pieces.
    Cache(Box<PairCache>),
    /// As text, if the run has no cache, because an earlier version made none or the cache is lost.
    Text(CorpusFiles),
}
