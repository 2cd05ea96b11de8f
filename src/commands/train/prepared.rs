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

/// Examples to train on, wherever they are.
pub type Examples = Arc<dyn ExampleSource<Example = TokenizedPair>>;

/// The data of a run, and its tokenizers.
pub struct Prepared {
    /// The tokenizers.
    pub tokenizers: Tokenizers,
    /// Pairs to train on.
    pub train: Examples,
    /// How many of them there are, and how many were left out. Those to validate on are not counted as held out.
    pub filtered: Filtered,
    /// Pairs to validate on, as text.
    pub valid_text: Corpus,
    /// The files that these were read from.
    pub valid_files: Vec<PathBuf>,
    /// Those of them that are not too long, as pieces.
    pub valid: Tokenized,
    /// Those of them that cannot be encoded.
    valid_failed: FailedPairs,
    /// Pairs to validate on that were left out when their files were read.
    valid_unusable: UnusablePairs,
    /// The files of the pairs, if the run's directory has them not yet.
    pub files: Option<CorpusFiles>,
    /// The cache that was made of them, under the name that it has until the run is sure to begin.
    pub new_cache: Option<PathBuf>,
    /// A line about the pairs held out, where the run does not say how many.
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

    /// The pairs that are held out and left out, and why: a line for each reason.
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

/// The pairs to validate on that cannot be encoded, with the place of the first.
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

/// Checks that the tokenizer does not fail on all pairs that no other reason leaves out.
fn check_encoded(failed: &FailedPairs, noun: &str, others: usize) -> Result {
    match failed.left_out(noun) {
        Some(line) if others == 0 => Err(format!("nothing is left: {line}").into()),
        _ => Ok(()),
    }
}

fn paths_of(files: &CorpusFiles) -> Vec<PathBuf> {
    let paths = files.corpora().iter().flat_map(|(file, _)| file.paths());
    paths.map(Path::to_owned).collect()
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

/// A line about pairs to train on that were left out.
fn training_line(reason: LeftOut, pairs: usize) -> String {
    match reason {
        LeftOut::HeldOut => format!(
            "{} {} left out: the source sentence is held out for validation",
            counted(pairs, "pair"),
            are(pairs)
        ),
        LeftOut::TooLong { max_pieces } => too_long("training", pairs, max_pieces),
        reason => reason.line(pairs),
    }
}

fn too_long(name: &str, pairs: usize, max_pieces: usize) -> String {
    format!(
        "{} of more than {max_pieces} pieces {} left out",
        counted(pairs, &format!("{name} pair")),
        are(pairs)
    )
}

/// The verb for this many things.
fn are(number: usize) -> &'static str {
    match number {
        1 => "is",
        _ => "are",
    }
}

/// No pair is left by the filters of the run; the flags are those that raise their bound. None adds positions.
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
        if filtered.kept > 0 {
            return Ok(());
        }
        let others = filtered.too_long + filtered.uneven;
        check_encoded(&filtered.failed, "training pair", others)?;
        Err(none_left(self.plan, "training", others).into())
    }
}
