//! The pairs of a run as pieces.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use transformer_core::Tokenizers;
use transformer_train::{
    CacheOptions, Corpus, CorpusFiles, ExampleSource, Filtered, PairCache, PairFilters, Tokenized,
    TokenizedPair, UnusablePairs,
};

use super::data::{Data, Training};
use super::earlier::CACHE_FILE;
use super::plan::Plan;
use crate::commands::{Result, counted};

/// Examples to train on, wherever they are.
pub type Examples = Arc<dyn ExampleSource<Example = TokenizedPair>>;

/// The data of a run, and its tokenizers.
pub struct Prepared {
    /// The tokenizers.
    pub tokenizers: Tokenizers,
    /// Pairs to train on.
    pub train: Examples,
    /// How many of them there are, and how many were left out.
    pub filtered: Filtered,
    /// Pairs to validate on, as text.
    pub valid_text: Corpus,
    /// The files that these were read from.
    pub valid_files: Vec<PathBuf>,
    /// Those of them that are not too long, as pieces.
    pub valid: Tokenized,
    /// Pairs to validate on that were left out when their files were read.
    valid_unusable: UnusablePairs,
    /// The files of the pairs, if the run's directory has them not yet.
    pub files: Option<CorpusFiles>,
    /// The cache that was made of them, under the name that it has until the run is sure to begin.
    pub new_cache: Option<PathBuf>,
    /// How many pairs to validate on were held out of those to train on.
    held_out: usize,
    note: Option<String>,
}

impl Prepared {
    /// Tokenizes the pairs, and leaves out those that the filters name: into a cache in `directory`, or in memory.
    ///
    /// # Errors
    /// When a file cannot be read or written, or nothing is left to train or to validate on.
    pub fn new(
        plan: &Plan,
        data: Data,
        tokenizers: Tokenizers,
        directory: Option<&Path>,
    ) -> Result<Self> {
        let filters = filters(plan);
        let valid = data.valid.tokenize(&tokenizers, filters.max_pieces)?;
        if valid.pairs.is_empty() {
            return Err(none_left("validation", valid.left_out, filters.max_pieces).into());
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
        Ok(Self {
            tokenizers,
            train: made.examples,
            filtered: made.filtered,
            valid_text: data.valid,
            valid_files: data.valid_files,
            valid,
            valid_unusable: data.valid_unusable,
            files,
            new_cache: made.new_cache,
            held_out: data.held_out,
            note: data.note,
        })
    }

    /// The pairs that are held out and left out, and why: a line for each reason.
    pub fn left_out(&self) -> Vec<String> {
        let filtered = &self.filtered;
        let max_pieces = filtered.filters.max_pieces;
        let ratio = filtered.filters.max_ratio.unwrap_or(f64::INFINITY);
        let too_long = |name: &str, count: usize| {
            let pairs = counted(count, &format!("{name} pair"));
            let are = if count == 1 { "is" } else { "are" };
            format!("{pairs} of more than {max_pieces} pieces {are} left out")
        };
        let reason = |count: usize, reason: &str| {
            let are = if count == 1 { "is" } else { "are" };
            format!("{} {are} left out: {reason}", counted(count, "pair"))
        };
        let held_out = filtered.held_out.saturating_sub(self.held_out);
        let lines = [
            (
                held_out,
                reason(held_out, "the source sentence is held out for validation"),
            ),
            (
                filtered.duplicates,
                reason(filtered.duplicates, "an equal pair stands before"),
            ),
            (filtered.too_long, too_long("training", filtered.too_long)),
            (
                filtered.uneven,
                reason(
                    filtered.uneven,
                    &format!("one side has more than {ratio} times the pieces of the other"),
                ),
            ),
            (
                self.valid.left_out,
                too_long("validation", self.valid.left_out),
            ),
        ];
        let lines = lines.into_iter().filter(|(count, _)| *count > 0);
        let lines = lines.map(|(_, line)| line);
        let unusable = filtered.unusable.left_out("pair").into_iter();
        let unusable = unusable.chain(self.valid_unusable.left_out("validation pair"));
        let notes = self.note.iter().cloned();
        notes.chain(unusable).chain(lines).collect()
    }

    /// Whether source and target have one vocabulary.
    pub fn has_shared_vocabulary(&self) -> bool {
        std::ptr::eq(self.tokenizers.source(), self.tokenizers.target())
    }

    /// The vocabulary: the pieces of both sides, or those of each.
    pub fn pieces(&self) -> String {
        let [source, target] = [self.tokenizers.source(), self.tokenizers.target()];
        let [source, target] = [source.vocab_size(), target.vocab_size()];
        match self.has_shared_vocabulary() {
            true => counted(source, "piece"),
            false => format!("{source} + {}", counted(target, "piece")),
        }
    }
}

/// The filters of the run. The longest pair, with the token that ends it, fills a batch by itself, or the
/// positions of a model that has learned them.
fn filters(plan: &Plan) -> PairFilters {
    let data = &plan.run.data;
    let longest = plan.model.max_len().unwrap_or(usize::MAX);
    let longest = longest.min(plan.training.batch_tokens);
    PairFilters {
        max_pieces: data.max_pieces.min(longest.saturating_sub(1)).max(1),
        max_ratio: data.max_ratio,
        drop_duplicates: data.drop_duplicates,
    }
}

fn none_left(name: &str, pairs: usize, max_pieces: usize) -> String {
    let pairs = counted(pairs, &format!("{name} pair"));
    format!(
        "none of {pairs} has at most {max_pieces} pieces on each side; raise --max-pieces or --batch-tokens"
    )
}

/// How the examples are made.
struct Making<'a> {
    plan: &'a Plan,
    tokenizers: &'a Tokenizers,
    filters: PairFilters,
    directory: Option<&'a Path>,
}

/// The examples, and how they were made.
struct Made {
    examples: Examples,
    filtered: Filtered,
    new_cache: Option<PathBuf>,
}

impl Making<'_> {
    /// From files: in a cache beside the run's own, if there is one, which it replaces when the run is sure to
    /// begin. In memory, without a directory, pieces are drawn once, as those of a dry run.
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
            // The error is the one to report; a leftover file does no harm.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(Made {
            new_cache: Some(path),
            ..self.opened(cache)?
        })
    }

    /// From a cache.
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

    /// Checks that a pair is left.
    fn check(&self, filtered: &Filtered) -> Result {
        match filtered.kept {
            0 => Err(none_left(
                "training",
                filtered.too_long + filtered.uneven,
                self.filters.max_pieces,
            )
            .into()),
            _ => Ok(()),
        }
    }
}
