//! The pairs of a run as pieces.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use transformer_core::Tokenizers;
use transformer_train::data::{
    CacheOptions, Corpus, CorpusFiles, ExampleSource, FailedPairs, Filtered, LeftOut, PairCache,
    PairFilters, Tokenized, TokenizedPair, UnusablePairs,
};

use super::data::{Data, Training};
use super::earlier::CACHE_FILE;
use super::plan::Plan;
use crate::commands::{Result, counted};

/// Training examples, in memory or in a cache.
pub type Examples = Arc<dyn ExampleSource<Example = TokenizedPair>>;

/// The data of a run, and its tokenizers.
pub struct Prepared {
    /// The tokenizers.
    pub tokenizers: Tokenizers,
    /// Training pairs.
    pub train: Examples,
    /// The numbers of training pairs and of skipped pairs. The validation pairs are not counted as held out.
    pub filtered: Filtered,
    /// Validation pairs as text.
    pub valid_text: Corpus,
    /// The files of the validation pairs.
    pub valid_files: Vec<PathBuf>,
    /// Validation pairs as pieces, without those that are too long.
    pub valid: Tokenized,
    /// Validation pairs that cannot be encoded.
    valid_failed: FailedPairs,
    /// Validation pairs that were skipped when their files were read.
    valid_unusable: UnusablePairs,
    /// The files of the pairs, if they have not been copied into the run's directory yet.
    pub files: Option<CorpusFiles>,
    /// The new cache of these files, under its temporary name, which it keeps until the run starts.
    pub new_cache: Option<PathBuf>,
    /// A line about the pairs held out, if the run does not set their number.
    note: Option<String>,
}

impl Prepared {
    /// Tokenizes the pairs and skips those that the filters reject. The pairs go into a cache in `directory`, or into
    /// memory.
    ///
    /// # Errors
    /// When a file cannot be read or written, or no pair remains for training or for validation.
    pub fn new(
        plan: &Plan,
        data: Data,
        tokenizers: Tokenizers,
        directory: Option<&Path>,
    ) -> Result<Self> {
        let filters = filters(plan);
        let valid = data.valid.tokenize(&tokenizers, filters.max_pieces)?;
        let valid_failed = failed(&valid, &data);
        if valid.pairs.is_empty() {
            check_encoded(&valid_failed, "validation pair", valid.left_out)?;
            return Err(none_left(plan, "validation", valid.left_out).into());
        }
        let making = Making {
            plan,
            tokenizers: &tokenizers,
            filters,
            directory,
        };
        let (made, files) = match data.train {
            Training::Cached(cache) => (making.opened(*cache)?, None),
            Training::Saved(text) => (making.made(&text)?, None),
            Training::Given(files) => (making.made(&files)?, Some(files)),
        };
        let mut filtered = made.filtered;
        filtered.held_out = filtered.held_out.saturating_sub(data.held_out);
        Ok(Self {
            tokenizers,
            train: made.examples,
            filtered,
            valid_text: data.valid,
            valid_files: paths_of(&data.valid_files),
            valid,
            valid_failed,
            valid_unusable: data.valid_unusable,
            files,
            new_cache: made.new_cache,
            note: data.note,
        })
    }

    /// The pairs that are held out or skipped: one line per reason.
    pub fn left_out(&self) -> Vec<String> {
        let mut lines = Vec::from_iter(self.note.clone());
        lines.extend(self.filtered.unusable.left_out("pair"));
        lines.extend(self.valid_unusable.left_out("validation pair"));
        lines.extend(self.filtered.failed.left_out("training pair"));
        lines.extend(self.valid_failed.left_out("validation pair"));
        let reasons = self.filtered.reasons().into_iter();
        lines.extend(reasons.map(|(reason, pairs)| training_line(reason, pairs)));
        if self.valid.left_out > 0 {
            let Tokenized {
                left_out,
                max_pieces,
                ..
            } = self.valid;
            lines.push(too_long("validation", left_out, max_pieces));
        }
        lines
    }

    /// Whether source and target share one vocabulary.
    pub fn has_shared_vocabulary(&self) -> bool {
        std::ptr::eq(self.tokenizers.source(), self.tokenizers.target())
    }

    /// The size of the shared vocabulary, or of both vocabularies.
    pub fn pieces(&self) -> String {
        let [source, target] = [self.tokenizers.source(), self.tokenizers.target()];
        let [source, target] = [source.vocab_size(), target.vocab_size()];
        match self.has_shared_vocabulary() {
            true => counted(source, "piece"),
            false => format!("{source} + {}", counted(target, "piece")),
        }
    }
}

/// The validation pairs that cannot be encoded, with the place of the first one.
fn failed(valid: &Tokenized, data: &Data) -> FailedPairs {
    let mut failed = FailedPairs::default();
    for (position, problem) in &valid.failed {
        failed.add(|| {
            let pair = &data.valid.pairs()[*position];
            match data.valid_files.place_of(pair) {
                Some((file, line)) => format!("{}: line {line}: {problem}", file.display()),
                None => format!("pair {}: {problem}", position + 1),
            }
        });
    }
    failed
}

/// Checks that the tokenizer does not fail on all pairs that are not skipped for another reason.
fn check_encoded(failed: &FailedPairs, noun: &str, others: usize) -> Result {
    match failed.left_out(noun) {
        Some(line) if others == 0 => Err(format!("no pair remains: {line}").into()),
        _ => Ok(()),
    }
}

fn paths_of(files: &CorpusFiles) -> Vec<PathBuf> {
    let paths = files.corpora().iter().flat_map(|(file, _)| file.paths());
    paths.map(Path::to_owned).collect()
}

/// The filters of the run. The longest pair, with the tokens at its start and end, fills a whole batch, or all learned
/// positions of the model.
fn filters(plan: &Plan) -> PairFilters {
    let data = &plan.run.data;
    let longest = plan.model.max_len().unwrap_or(usize::MAX);
    let longest = longest.min(plan.training.batch_tokens);
    let added = 1 + usize::from(plan.model.source_bos.is_some());
    PairFilters {
        max_pieces: data.max_pieces.min(longest.saturating_sub(added)).max(1),
        max_ratio: data.max_ratio,
        drop_duplicates: data.drop_duplicates,
    }
}

/// A line about skipped training pairs.
fn training_line(reason: LeftOut, pairs: usize) -> String {
    match reason {
        LeftOut::HeldOut => format!(
            "{} skipped: the source sentence is held out for validation",
            counted(pairs, "pair")
        ),
        LeftOut::TooLong { max_pieces } => too_long("training", pairs, max_pieces),
        reason => reason.line(pairs),
    }
}

fn too_long(name: &str, pairs: usize, max_pieces: usize) -> String {
    format!(
        "{} skipped: more than {max_pieces} pieces on a side",
        counted(pairs, &format!("{name} pair"))
    )
}

/// The error if the filters of the run leave no pair, with the flags that raise their limits. No flag raises the number
/// of learned positions.
fn none_left(plan: &Plan, name: &str, pairs: usize) -> String {
    let pairs = counted(pairs, &format!("{name} pair"));
    let max_pieces = filters(plan).max_pieces;
    let none = format!("none of {pairs} has at most {max_pieces} pieces on each side");
    match plan.model.max_len() {
        Some(max_len) if max_len.saturating_sub(1).max(1) <= max_pieces => {
            format!("{none}: the model has {max_len} learned positions")
        }
        _ => format!("{none}; raise --max-pieces or --batch-tokens"),
    }
}

/// The settings with which examples are made.
struct Making<'a> {
    plan: &'a Plan,
    tokenizers: &'a Tokenizers,
    filters: PairFilters,
    directory: Option<&'a Path>,
}

/// The examples, and the counts of skipped pairs.
struct Made {
    examples: Examples,
    filtered: Filtered,
    new_cache: Option<PathBuf>,
}

impl Making<'_> {
    /// Examples from files, in a new cache that replaces the run's cache, if any, when the run starts. Without a
    /// directory, as in a dry run, the examples are in memory and BPE dropout is not applied.
    fn made(&self, files: &CorpusFiles) -> Result<Made> {
        let Some(directory) = self.directory else {
            let pairs = files.tokenize(self.tokenizers, &self.filters)?;
            let filtered = pairs.filtered.clone();
            self.check(&filtered)?;
            return Ok(Made {
                examples: Arc::new(pairs),
                filtered,
                new_cache: None,
            });
        };
        let path = directory.join(format!("{CACHE_FILE}.new"));
        let options = CacheOptions {
            filters: self.filters.clone(),
            keep_text: self.plan.run.tokenizer.dropout > 0.0,
        };
        let cache = PairCache::open_or_build(&path, files, self.tokenizers, &options)?;
        if let Err(error) = self.check(cache.filtered()) {
            // The error above is reported; a leftover file does no harm.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(Made {
            new_cache: Some(path),
            ..self.opened(cache)?
        })
    }

    /// Examples from a cache.
    fn opened(&self, cache: PairCache) -> Result<Made> {
        let filtered = cache.filtered().clone();
        let (dropout, seed) = (self.plan.run.tokenizer.dropout, self.plan.training.seed);
        let cache = match dropout > 0.0 {
            true => cache.with_dropout(self.tokenizers, dropout, seed)?,
            false => cache,
        };
        Ok(Made {
            examples: Arc::new(cache),
            filtered,
            new_cache: None,
        })
    }

    /// Checks that a pair remains.
    fn check(&self, filtered: &Filtered) -> Result {
        if filtered.kept > 0 {
            return Ok(());
        }
        let others = filtered.too_long + filtered.uneven;
        check_encoded(&filtered.failed, "training pair", others)?;
        Err(none_left(self.plan, "training", others).into())
    }
}
