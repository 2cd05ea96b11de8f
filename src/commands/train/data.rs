//! From text files to the tokenized pairs of a run.

use std::path::{Path, PathBuf};

use clap::Args;
use transformer_core::Tokenizers;
use transformer_program::note;
use transformer_train::{
    Corpus, CorpusError, MIN_VOCAB_SIZE, TRAINING_FILE, Tokenized, TokenizerError, VALIDATION_FILE,
    train_bpe,
};

use crate::commands::{Result, refuse_overwriting};

/// The pairs that come with the project; the path is relative to its root.
const SHIPPED_DATA: &str = "examples/data/tatoeba.en-fr.tsv.gz";

/// Files that a run writes beside its model.
const WRITTEN: [&str; 2] = [TRAINING_FILE, VALIDATION_FILE];

/// Pieces of the vocabulary, where --vocab-size is not given.
const VOCAB_SIZE: usize = 8000;

/// Flags of the data.
#[derive(Debug, Args)]
#[command(next_help_heading = "Data")]
pub struct Data {
    /// Sentence pairs, `source<TAB>target` per line, plain or gzip
    #[arg(long, num_args = 1.., value_name = "FILE")]
    data: Vec<PathBuf>,
    /// Sentence pairs as two files, line by line, plain or gzip
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    parallel: Vec<PathBuf>,
    /// Sentence pairs to validate on, `source<TAB>target` per line; without it, some of the data is held
    /// out
    #[arg(long, value_name = "FILE")]
    valid: Option<PathBuf>,
    /// Distinct source sentences held out of the data for validation; none of them is trained on
    #[arg(long, value_name = "N", default_value_t = 1000)]
    hold_out: usize,
    /// Pieces of the vocabulary that source and target share; a resumed run keeps its own [default: 8000]
    #[arg(long, value_name = "N")]
    vocab_size: Option<usize>,
    /// Pairs with more pieces than this on a side are left out
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_pieces: usize,
}

/// The data of a run, and its tokenizers.
pub struct Prepared {
    /// The tokenizers, trained on the training pairs unless the run is resumed.
    pub tokenizers: Tokenizers,
    /// Pairs to train on.
    pub train: Part,
    /// Pairs to validate on.
    pub valid: Part,
    /// Pairs in the files, without that of `--valid`.
    pub read: usize,
    /// Pairs whose source sentence is held out, beyond those to validate on.
    held_out_twice: usize,
    /// Whether no earlier run has left its pairs and tokenizers.
    is_new: bool,
}

/// Pairs as text, and those of them that are not too long as pieces.
pub struct Part {
    text: Corpus,
    /// Those that are not too long.
    pub tokenized: Tokenized,
}

impl Data {
    /// Checks that there is something to read and to validate on, and that a run in `out` would overwrite
    /// none of it.
    ///
    /// # Errors
    /// Without `--data` and `--parallel`, when nothing is held out, or when a run would overwrite a file
    /// that it reads.
    pub fn check(&self, out: Option<&Path>) -> Result {
        if self.data.is_empty() && self.parallel.is_empty() {
            return Err(format!(
                "nothing to train on: give --data FILE… or --parallel SOURCE TARGET; in this project's root there is {SHIPPED_DATA}"
            )
            .into());
        }
        if self.hold_out == 0 && self.valid.is_none() {
            return Err("--hold-out 0: must be at least 1, or give --valid FILE".into());
        }
        let read = self.data.iter().chain(&self.parallel).chain(&self.valid);
        let read: Vec<PathBuf> = read.cloned().collect();
        for (out, written) in out.iter().flat_map(|out| WRITTEN.map(|file| (out, file))) {
            refuse_overwriting(&read, &out.join(written))?;
        }
        Ok(())
    }

    /// Reads the files, holds pairs out, trains the tokenizer or loads that of the run in `resumed`, and
    /// leaves out the pairs that are too long for `batch_tokens`. Writes nothing.
    ///
    /// # Errors
    /// When a file cannot be read, or nothing is left to train or to validate on.
    pub fn prepare(
        &self,
        batch_tokens: usize,
        resumed: Option<&Path>,
        seed: u64,
    ) -> Result<Prepared> {
        let mut data = Corpus::from_tsv_files(&self.data)?;
        if let [source, target] = self.parallel.as_slice() {
            data.extend(Corpus::from_parallel(source, target)?);
        }
        let read = data.len();
        let (train, valid) = match &self.valid {
            Some(valid) => (data, Corpus::from_tsv(valid)?),
            None => self.hold_out(data, seed)?,
        };
        let held_out = if self.valid.is_some() { 0 } else { valid.len() };
        let held_out_twice = read - train.len() - held_out;

        let saved = resumed.filter(|out| Tokenizers::are_in(out));
        let tokenizers = match saved {
            Some(out) => self.saved_tokenizers(out)?,
            None => self.trained_tokenizer(&train)?,
        };
        // The longest pair, with the token that ends it, fills a batch by itself.
        let max_pieces = self.max_pieces.min(batch_tokens.saturating_sub(1));
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
        Ok(Prepared {
            tokenizers,
            train,
            valid,
            read,
            held_out_twice,
            is_new: saved.is_none(),
        })
    }

    fn hold_out(&self, data: Corpus, seed: u64) -> Result<(Corpus, Corpus)> {
        data.hold_out(self.hold_out, seed).map_err(|error| {
            match error {
                CorpusError::TooFewSources { asked, distinct } => format!(
                    "--hold-out {asked}: the data has {distinct} distinct source sentences, and one at least must be left to train on"
                ),
                error => error.to_string(),
            }
            .into()
        })
    }

    /// The tokenizers of the run that is resumed.
    fn saved_tokenizers(&self, out: &Path) -> Result<Tokenizers> {
        let tokenizers = Tokenizers::load(out)?;
        let pieces = tokenizers.source().vocab_size();
        if let Some(asked) = self.vocab_size.filter(|&asked| asked != pieces) {
            note(format_args!(
                "--vocab-size {asked}: the run keeps its tokenizer, of {pieces} pieces"
            ));
        }
        Ok(tokenizers)
    }

    fn trained_tokenizer(&self, train: &Corpus) -> Result<Tokenizers> {
        match train_bpe(train.sentences(), self.vocab_size.unwrap_or(VOCAB_SIZE)) {
            Ok(tokenizer) => Ok(tokenizer.into()),
            Err(TokenizerError::VocabTooSmall { vocab_size }) => Err(format!(
                "--vocab-size {vocab_size}: must be at least {MIN_VOCAB_SIZE}, for the special tokens and the 256 bytes"
            )
            .into()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Part {
    fn new(text: Corpus, tokenizers: &Tokenizers, max_pieces: usize) -> Result<Self> {
        let tokenized = text.tokenize(tokenizers, max_pieces)?;
        Ok(Self { text, tokenized })
    }
}

impl Prepared {
    /// The pairs that are left out, and why: a line for each reason.
    pub fn left_out(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.held_out_twice > 0 {
            lines.push(format!(
                "{} pairs are left out: their source sentence is held out for validation",
                self.held_out_twice
            ));
        }
        for (name, part) in [("training", &self.train), ("validation", &self.valid)] {
            let Tokenized {
                left_out,
                max_pieces,
                ..
            } = part.tokenized;
            if left_out > 0 {
                lines.push(format!(
                    "{left_out} {name} pairs of more than {max_pieces} pieces are left out"
                ));
            }
        }
        lines
    }

    /// Writes a new run's pairs into its directory. Its tokenizers come later, from the trainer: a
    /// directory that has them has the pairs.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save_pairs(&self, out: &Path) -> Result {
        if !self.is_new {
            return Ok(());
        }
        Ok(Corpus::write_split(
            &self.train.text,
            &self.valid.text,
            out,
        )?)
    }
}
