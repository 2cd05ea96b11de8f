//! The flags that set keys of the run file. The keys have the defaults: here each flag is an `Option`, so that a flag
//! that is not given overrides no value of the file.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::commands::corpora;
use crate::run_file::{Corpora, Preset, RunFileError, Values};

/// Flags for keys.
#[derive(Debug, Args)]
pub struct Flags {
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    start: Start,
    #[command(flatten)]
    recipe: Recipe,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Data")]
struct Data {
    /// Sentence pairs, `source<TAB>target` per line, plain or gzip; can be combined with --parallel
    #[arg(long, num_args = 1.., value_name = "FILE")]
    data: Vec<PathBuf>,
    /// Sentence pairs as two parallel text files, plain or gzip
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    parallel: Vec<PathBuf>,
    /// Sentence pairs for validation, `source<TAB>target` per line [default: some of the data is held out]
    #[arg(long, value_name = "FILE")]
    valid: Option<PathBuf>,
    /// Number of distinct source sentences to hold out for validation. Validation uses the first pair of each; other
    /// pairs with these sources are skipped [default: a tenth of the distinct source sentences, at most 1000]
    #[arg(long, value_name = "N")]
    hold_out: Option<usize>,
    /// Vocabulary size in pieces (subword tokens); a resumed run keeps its vocabulary [default: 8000]
    #[arg(long, value_name = "N")]
    vocab_size: Option<usize>,
    /// Skip pairs with more than N pieces (subword tokens) on a side [default: 128]
    #[arg(long, value_name = "N")]
    max_pieces: Option<usize>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Fine-tuning")]
struct Start {
    /// Model directory to start from, in any format that can be trained (docs/guide/formats.md); the run uses its
    /// tokenizers and configuration
    #[arg(long, value_name = "DIR")]
    init: Option<PathBuf>,
    /// Source language, if the model to start from is multilingual: the name of the language's token, such as eng_Latn
    #[arg(long, value_name = "NAME")]
    source_lang: Option<String>,
    /// Target language, if the model to start from is multilingual
    #[arg(long, value_name = "NAME")]
    target_lang: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Model and training")]
struct Recipe {
    /// Model size [default: small]
    #[arg(long, value_enum, value_name = "NAME")]
    preset: Option<Preset>,
    /// Batch size in tokens per side, including padding [default: 2048]
    #[arg(long, value_name = "N")]
    batch_tokens: Option<usize>,
    /// Gradient accumulation: number of batches per update [default: 1]
    #[arg(long, value_name = "N")]
    batches_per_update: Option<usize>,
    /// Number of warm-up updates, in which the learning rate rises [default: 800]
    #[arg(long, value_name = "N")]
    warmup: Option<usize>,
    /// Learning rate at the end of the warm-up [default: the paper's, 1 / √(d_model · warmup)]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    peak_rate: Option<f64>,
    /// Number of updates, counted from the beginning of the run [default: 5000]
    #[arg(long, value_name = "N")]
    updates: Option<usize>,
    /// Maximum training time in minutes, excluding data preparation; with --resume, the count starts again at
    /// zero
    #[arg(long, value_name = "M", allow_negative_numbers = true)]
    minutes: Option<f64>,
    /// Number of updates between validations, each of which is followed by a checkpoint [default: 500]
    #[arg(long, value_name = "N")]
    validate_every: Option<usize>,
    /// Number of newest checkpoints to keep [default: 2]
    #[arg(long, value_name = "N")]
    keep_checkpoints: Option<usize>,
}

impl Flags {
    /// The values of the given flags. `seed` is the value of `--seed`.
    ///
    /// # Errors
    /// When a run file cannot hold a value: a path that is not UTF-8, a number above 2⁶³ - 1.
    pub fn values(&self, seed: Option<u64>) -> Result<Values, RunFileError> {
        let Self {
            data,
            start,
            recipe,
        } = self;
        let mut given = Given(Values::default());
        given.add("data.train", data.corpora())?;
        given.add("data.valid", data.valid.as_ref())?;
        given.add("data.hold_out", data.hold_out)?;
        given.add("data.max_pieces", data.max_pieces)?;
        given.add("tokenizer.vocab_size", data.vocab_size)?;
        given.add("init.model", start.init.as_ref())?;
        given.add("init.source_lang", start.source_lang.as_ref())?;
        given.add("init.target_lang", start.target_lang.as_ref())?;
        given.add("model.preset", recipe.preset)?;
        given.add("training.seed", seed)?;
        given.add("training.batch_tokens", recipe.batch_tokens)?;
        given.add("training.batches_per_update", recipe.batches_per_update)?;
        given.add("training.warmup", recipe.warmup)?;
        given.add("training.peak_rate", recipe.peak_rate)?;
        given.add("training.updates", recipe.updates)?;
        given.add("training.minutes", recipe.minutes)?;
        given.add("validation.every", recipe.validate_every)?;
        given.add("checkpoint.keep_last", recipe.keep_checkpoints)?;
        Ok(given.0)
    }
}

impl Data {
    /// The corpora of both flags, `--data` first.
    fn corpora(&self) -> Option<Corpora> {
        let corpora = corpora(&self.data, &self.parallel);
        let corpora = Corpora(corpora.map(Into::into).collect());
        (!corpora.is_empty()).then_some(corpora)
    }
}

struct Given(Values);

impl Given {
    fn add(&mut self, key: &str, value: Option<impl Serialize>) -> Result<(), RunFileError> {
        match value {
            Some(value) => self.0.set_by_flag(key, value),
            None => Ok(()),
        }
    }
}
