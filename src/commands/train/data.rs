//! The pairs of a run as text: read from their files, some held out, or those that an earlier command has left.

use std::path::{Path, PathBuf};

use transformer_train::data::{
    Corpus, CorpusError, CorpusFile, CorpusFiles, PairCache, TRAINING_FILE, UnusablePairs,
    VALIDATION_FILE,
};

use super::earlier::{Earlier, SavedPairs, SavedTraining, check_is_there};
use super::plan::Plan;
use crate::commands::{Result, check_directory, counted, refuse_overwriting};
use crate::run_file::RUN_FILE;

/// Source sentences held out of a large corpus, where the run does not say how many; of a smaller one, a tenth.
const MOST_HELD_OUT: usize = 1000;

/// The pairs of a run.
pub struct Data {
    /// The pairs to train on.
    pub train: Training,
    /// The pairs to validate on.
    pub valid: Corpus,
    /// The unusable pairs in the files of pairs to validate on.
    pub valid_unusable: UnusablePairs,
    /// The files that these were read from.
    pub valid_files: CorpusFiles,
    /// How many of these were held out of the others.
    pub held_out: usize,
    /// A line about the pairs held out, where the run does not say how many.
    pub note: Option<String>,
}

/// The pairs to train on.
pub enum Training {
    /// In the files that the run names, from which they go into the run's directory.
    Given(CorpusFiles),
    /// In a file of the run's directory, as text.
    Saved(CorpusFiles),
    /// In the run's directory, as pieces.
    Cached(Box<PairCache>),
}

impl Data {
    /// The pairs in the directory of the run that goes on, whose keys the plan then gets, or those in the files of the
    /// run. Files are read to their end, unless pairs to validate on are given, and no pair is kept.
    ///
    /// # Errors
    /// When a file cannot be read, or nothing would be left to train on.
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

    /// Holds source sentences out of the files: as many as the run says, or a tenth.
    fn held_out(plan: &Plan, earlier: Option<&Earlier>, files: CorpusFiles) -> Result<Self> {
        let (held_out, note) = match plan.run.data.hold_out {
            Some(asked) => (asked, None),
            // Earlier versions held out as many of any corpus.
            None if earlier.is_some_and(|run| run.file.is_none()) => (MOST_HELD_OUT, None),
            None => {
                let distinct = files.distinct_sources()?;
                let held_out = (distinct / 10).clamp(1, MOST_HELD_OUT);
                let note = format!(
                    "{held_out} of {} held out for validation: a tenth, and at most {MOST_HELD_OUT} (--hold-out N holds out N)",
                    counted(distinct, "distinct source sentence")
                );
                (held_out, Some(note))
            }
        };
        let (train, valid) = match files.hold_out(held_out, plan.training.seed) {
            Ok(parts) => parts,
            Err(CorpusError::TooFewSources { distinct: 1, .. }) => {
                return Err(
                    "the data has 1 distinct source sentence, and one at least must be left to train on; name the pairs to validate on by --valid FILE"
                        .into(),
                );
            }
            Err(CorpusError::TooFewSources { asked, distinct }) => {
                let sources = counted(distinct, "distinct source sentence");
                let rule =
                    format!("the data has {sources}, and one at least must be left to train on");
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

/// Checks that a new run can have `out` as its directory, and would overwrite none of the files that it reads: those
/// of the pairs, and that of `--config`.
///
/// # Errors
/// When `out` is a file, or cannot be made or written to; the first file that is both read and written.
pub fn check_files(plan: &Plan, config: Option<&Path>, out: &Path) -> Result {
    check_directory(out)?;
    let read = plan.run.data.paths().chain(config);
    let read: Vec<PathBuf> = read.map(Path::to_owned).collect();
    for written in [RUN_FILE, TRAINING_FILE, VALIDATION_FILE] {
        refuse_overwriting(&read, &out.join(written))?;
    }
    Ok(())
}
