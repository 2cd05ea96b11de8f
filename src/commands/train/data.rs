//! From the files of a run to its tokenized pairs.

use std::path::{Path, PathBuf};

use transformer_core::Tokenizers;
use transformer_program::run_file::{Corpora, PairFiles};
use transformer_train::{Corpus, CorpusError, TRAINING_FILE, Tokenized, VALIDATION_FILE};

use super::earlier::Earlier;
use super::plan::Plan;
use super::tokenizers::tokenizers;
use crate::commands::{Result, counted, refuse_overwriting};

/// Source sentences held out of a large corpus, where the run does not say how many; of a smaller one, a tenth.
const MOST_HELD_OUT: usize = 1000;

/// The data of a run, and its tokenizers.
pub struct Prepared {
    /// The tokenizers.
    pub tokenizers: Tokenizers,
    /// Pairs to train on.
    pub train: Part,
    /// Pairs to validate on.
    pub valid: Part,
    /// Pairs that were read, without those of `data.valid`.
    pub read: usize,
    /// Whether they are from the files of the run, and not from its directory.
    pub from_files: bool,
    /// Lines about what was held out and left out before the pairs were tokenized.
    notes: Vec<String>,
}

/// Pairs as text, and those of them that are not too long as pieces.
pub struct Part {
    /// All of them.
    pub text: Corpus,
    /// Those that are not too long.
    pub tokenized: Tokenized,
}

/// The pairs of a run, as text.
struct Pairs {
    train: Corpus,
    valid: Corpus,
    read: usize,
    from_files: bool,
    notes: Vec<String>,
}

impl Prepared {
    /// Reads the pairs, holds some out, trains the tokenizers or loads those that are there, and leaves out the
    /// pairs that are too long. Writes nothing.
    ///
    /// # Errors
    /// When a file cannot be read, or nothing is left to train or to validate on.
    pub fn new(plan: &mut Plan, earlier: Option<&Earlier>) -> Result<Self> {
        let Pairs {
            train,
            valid,
            read,
            from_files,
            notes,
        } = Pairs::read(plan, earlier)?;
        let tokenizers = tokenizers(plan, earlier, &train)?;
        let max_pieces = max_pieces(plan);
        let train = Part::new(train, &tokenizers, max_pieces)?;
        let valid = Part::new(valid, &tokenizers, max_pieces)?;
        for (name, part) in [("training", &train), ("validation", &valid)] {
            let Tokenized {
                pairs, left_out, ..
            } = &part.tokenized;
            if pairs.is_empty() && *left_out > 0 {
                return Err(format!(
                    "all {left_out} {name} pairs have more than {max_pieces} pieces on a side; raise --max-pieces or --batch-tokens"
                )
                .into());
            }
        }
        if plan.run.init.model.is_none() {
            plan.model.src_vocab_size = tokenizers.source().vocab_size();
            plan.model.tgt_vocab_size = tokenizers.target().vocab_size();
        }
        Ok(Self {
            tokenizers,
            train,
            valid,
            read,
            from_files,
            notes,
        })
    }

    /// The pairs that are held out and left out, and why: a line for each reason.
    pub fn left_out(&self) -> Vec<String> {
        let mut lines = self.notes.clone();
        for (name, part) in [("training", &self.train), ("validation", &self.valid)] {
            let Tokenized {
                left_out,
                max_pieces,
                ..
            } = part.tokenized;
            if left_out > 0 {
                let pairs = counted(left_out, &format!("{name} pair"));
                let are = if left_out == 1 { "is" } else { "are" };
                lines.push(format!(
                    "{pairs} of more than {max_pieces} pieces {are} left out"
                ));
            }
        }
        lines
    }

    /// Whether source and target have one vocabulary.
    pub fn has_shared_vocabulary(&self) -> bool {
        std::ptr::eq(self.tokenizers.source(), self.tokenizers.target())
    }

    /// The vocabulary: the pieces of both sides, or those of each.
    pub fn pieces(&self) -> String {
        let [source, target] = [self.tokenizers.source(), self.tokenizers.target()];
        match self.has_shared_vocabulary() {
            true => counted(source.vocab_size(), "piece"),
            false => format!(
                "{} + {}",
                source.vocab_size(),
                counted(target.vocab_size(), "piece")
            ),
        }
    }
}

/// The most pieces of a side. The longest pair, with the token that ends it, fills a batch by itself, or the
/// positions of a model that has learned them.
fn max_pieces(plan: &Plan) -> usize {
    let longest = plan.model.max_len().unwrap_or(usize::MAX);
    let longest = longest.min(plan.training.batch_tokens);
    plan.run.data.max_pieces.min(longest.saturating_sub(1))
}

impl Part {
    fn new(text: Corpus, tokenizers: &Tokenizers, max_pieces: usize) -> Result<Self> {
        let tokenized = text.tokenize(tokenizers, max_pieces)?;
        Ok(Self { text, tokenized })
    }
}

impl Pairs {
    fn read(plan: &Plan, earlier: Option<&Earlier>) -> Result<Self> {
        if let Some(earlier) = earlier
            && let Some((train, valid)) = earlier.pairs(&plan.run)?
        {
            return Ok(Self {
                read: train.len(),
                train,
                valid,
                from_files: false,
                notes: Vec::new(),
            });
        }
        let data = read(&plan.run.data.train)?;
        let read_pairs = data.len();
        let Some(valid) = &plan.run.data.valid else {
            return Self::hold_out(plan, earlier, data);
        };
        Ok(Self {
            train: data,
            valid: read(valid)?,
            read: read_pairs,
            from_files: true,
            notes: Vec::new(),
        })
    }

    /// Holds source sentences out of the data: as many as the run says, or a tenth.
    fn hold_out(plan: &Plan, earlier: Option<&Earlier>, data: Corpus) -> Result<Self> {
        let read = data.len();
        let distinct = data.distinct_sources();
        // Earlier versions held out as many of any corpus.
        let by_default = match earlier.is_some_and(|run| run.file.is_none()) {
            true => MOST_HELD_OUT,
            false => (distinct / 10).clamp(1, MOST_HELD_OUT),
        };
        let asked = plan.run.data.hold_out;
        let held_out = asked.unwrap_or(by_default);
        let (train, valid) = data.hold_out(held_out, plan.training.seed).map_err(
            |error| -> Box<dyn std::error::Error> {
                match error {
                    CorpusError::TooFewSources { asked, distinct } => {
                        let sources = counted(distinct, "distinct source sentence");
                        let rule = format!(
                            "the data has {sources}, and one at least must be left to train on"
                        );
                        plan.refuse("data.hold_out", asked, rule).into()
                    }
                    error => error.into(),
                }
            },
        )?;
        let mut notes = Vec::new();
        if asked.is_none() {
            notes.push(format!(
                "{held_out} of {} held out for validation: a tenth, and at most {MOST_HELD_OUT} (--hold-out N holds out N)",
                counted(distinct, "distinct source sentence")
            ));
        }
        match read - train.len() - valid.len() {
            0 => {}
            1 => notes
                .push("1 pair is left out: its source sentence is held out for validation".into()),
            left_out => notes.push(format!(
                "{left_out} pairs are left out: their source sentence is held out for validation"
            )),
        }
        Ok(Self {
            train,
            valid,
            read,
            from_files: true,
            notes,
        })
    }
}

/// The pairs of corpora, one after the other.
fn read(corpora: &Corpora) -> Result<Corpus> {
    let mut pairs = Corpus::default();
    for entry in &corpora.0 {
        pairs.extend(match &entry.files {
            PairFiles::Tsv(file) => Corpus::from_tsv(file)?,
            PairFiles::Parallel { source, target } => Corpus::from_parallel(source, target)?,
        });
    }
    Ok(pairs)
}

/// Checks that a new run in `out` would overwrite none of the files that it reads.
///
/// # Errors
/// The first file that is both read and written.
pub fn check_files(plan: &Plan, out: &Path) -> Result {
    let corpora = [Some(&plan.run.data.train), plan.run.data.valid.as_ref()];
    let corpora = corpora.into_iter().flatten();
    let read: Vec<PathBuf> = corpora
        .flat_map(|corpora| corpora.paths().cloned())
        .collect();
    for written in [TRAINING_FILE, VALIDATION_FILE] {
        refuse_overwriting(&read, &out.join(written))?;
    }
    Ok(())
}
