//! The pairs of a run as text: read from their files, with some held out, or saved by an earlier command.

use std::path::{Path, PathBuf};

use transformer_core::formats::{GENERATION_FILE, TOKENIZER_FILES};
use transformer_train::data::{
    Corpus, CorpusError, CorpusFile, CorpusFiles, PairCache, TRAINING_FILE, UnusablePairs,
    VALIDATION_FILE,
};
use transformer_train::run::RunLock;

use super::earlier::{Earlier, SavedPairs, SavedTraining, check_is_there};
use super::plan::Plan;
use crate::commands::{Result, check_directory, counted, refuse_overwriting};
use crate::run_file::RUN_FILE;

/// The maximum number of source sentences held out by default. From a smaller corpus, a tenth is held out.
const MOST_HELD_OUT: usize = 1000;

/// The pairs of a run.
pub struct Data {
    /// The pairs to train on.
    pub train: Training,
    /// The pairs to validate on.
    pub valid: Corpus,
    /// The unusable pairs in the validation files.
    pub valid_unusable: UnusablePairs,
    /// The validation files.
    pub valid_files: CorpusFiles,
    /// The number of validation pairs that were held out of the training pairs.
    pub held_out: usize,
    /// A line about the pairs held out, if the run does not set their number.
    pub note: Option<String>,
}

/// The pairs to train on.
pub enum Training {
    /// In the files that the run names. They are copied into the run's directory.
    Given(CorpusFiles),
    /// In the run's directory, as text.
    Saved(CorpusFiles),
    /// In the run's directory, as pieces.
    Cached(Box<PairCache>),
}

impl Data {
    /// The pairs in the directory of the resumed run, whose keys the plan then gets, or in the files of a new run.
    /// Files are read to the end, unless validation pairs are given, and no training pair is kept in memory.
    ///
    /// # Errors
    /// When a file cannot be read, or no training pair would remain.
    pub fn read(plan: &mut Plan, earlier: Option<&Earlier>) -> Result<Self> {
        if let Some(earlier) = earlier
            && let Some(SavedPairs {
                keys,
                train,
                valid,
                valid_file,
            }) = earlier.pairs(&plan.run)?
        {
            if let Some(keys) = keys {
                plan.run.data = keys;
                plan.other_data.clear();
            }
            return Ok(Self {
                held_out: match plan.run.data.valid {
                    None => valid.len(),
                    Some(_) => 0,
                },
                train: match train {
                    SavedTraining::Cache(cache) => Training::Cached(cache),
                    SavedTraining::Text(text) => Training::Saved(text),
                },
                valid,
                valid_unusable: UnusablePairs::default(),
                valid_files: CorpusFiles::new().with(CorpusFile::tsv(valid_file), 1.0),
                note: None,
            });
        }
        for path in plan.run.data.paths() {
            check_is_there(path)?;
        }
        let files = plan.run.data.train.files();
        match &plan.run.data.valid {
            None => Self::held_out(plan, earlier, files),
            Some(corpora) => {
                let (valid, valid_unusable) = corpora.files().read()?;
                Ok(Self {
                    train: Training::Given(files),
                    valid,
                    valid_unusable,
                    valid_files: corpora.files(),
                    held_out: 0,
                    note: None,
                })
            }
        }
    }

    /// Holds out source sentences: the number that the run sets, or a tenth.
    fn held_out(plan: &Plan, earlier: Option<&Earlier>, files: CorpusFiles) -> Result<Self> {
        let (held_out, note) = match plan.run.data.hold_out {
            Some(asked) => (asked, None),
            // Earlier versions held out this number from any corpus.
            None if earlier.is_some_and(|run| run.file.is_none()) => (MOST_HELD_OUT, None),
            None => {
                let distinct = files.distinct_sources()?;
                let held_out = (distinct / 10).clamp(1, MOST_HELD_OUT);
                let note = format!(
                    "{held_out} of {} held out for validation: a tenth, at most {MOST_HELD_OUT} (--hold-out sets the number)",
                    counted(distinct, "distinct source sentence")
                );
                (held_out, Some(note))
            }
        };
        let (train, valid) = match files.hold_out(held_out, plan.training.seed) {
            Ok(parts) => parts,
            Err(CorpusError::TooFewSources { distinct: 1, .. }) => {
                return Err(
                    "the data has 1 distinct source sentence, and at least one must remain for training; add validation pairs with --valid FILE"
                        .into(),
                );
            }
            Err(CorpusError::TooFewSources { asked, distinct }) => {
                let sources = counted(distinct, "distinct source sentence");
                let rule =
                    format!("the data has {sources}, and at least one must remain for training");
                return Err(plan.refuse("data.hold_out", asked, rule).into());
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            train: Training::Given(train),
            held_out: valid.len(),
            valid,
            valid_unusable: UnusablePairs::default(),
            valid_files: plan.run.data.train.files(),
            note,
        })
    }
}

/// Checks that a run without a checkpoint can use `out` as its directory, and would overwrite neither an input file (the
/// files of the pairs, of `[tokenizer]` and of `--config`) nor, if it is new, a file of its names in a directory that no
/// run has used.
///
/// # Errors
/// When `out` is a file, or cannot be created or written to; the first file that would be overwritten.
pub fn check_files(plan: &Plan, config: Option<&Path>, out: &Path, is_new: bool) -> Result {
    check_directory(out)?;
    let run = &plan.run;
    let read = run.data.paths().chain(run.tokenizer.paths()).chain(config);
    let read: Vec<PathBuf> = read.map(Path::to_owned).collect();
    let own = [RUN_FILE, TRAINING_FILE, VALIDATION_FILE];
    for written in own.into_iter().chain(TOKENIZER_FILES) {
        refuse_overwriting(&read, &out.join(written))?;
    }
    if !is_new || RunLock::is_in(out) {
        return Ok(());
    }
    let own = own.into_iter().chain([GENERATION_FILE]);
    for written in own.chain(TOKENIZER_FILES) {
        if out.join(written).symlink_metadata().is_ok() {
            return Err(format!(
                "{} already has {written}, which no run has written; choose another --out",
                out.display()
            )
            .into());
        }
    }
    Ok(())
}
