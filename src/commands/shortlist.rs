//! `transformer shortlist`

use std::path::PathBuf;

use clap::Args;
use transformer_core::Tokenizers;
use transformer_train::ShortlistConfig;
use transformer_train::data::{CorpusFile, CorpusFiles};

use super::languages::{Languages, check_target};
use super::{Result, check_output, file_to_write, model_directory, refuse_overwriting, write_file};
use crate::process::note;

const EXAMPLES: &str = "\
Examples:
  transformer shortlist --model model --data model/train.tsv --out lex.bin
  echo \"Where are you going?\" | transformer translate --model model --shortlist lex.bin";

/// Pairs with more pieces on a side are skipped: the time for a pair is the product of both.
const MOST_PIECES: usize = 256;

/// Make a lexical shortlist from sentence pairs.
///
/// A shortlist has the likely translations of each source token. With it, `translate --shortlist` searches among the
/// translations of a sentence's tokens and the most frequent tokens, instead of the whole vocabulary, and spends less
/// time on the matrix multiplication that computes logits. This is the largest part of the work of a small model with a
/// large vocabulary.
///
/// Translations are learned with IBM Model 1. The file has Marian's binary format. Pairs of more than 256 tokens on a
/// side are skipped.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Shortlist {
    /// Model directory, for its tokenizers
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Sentence pairs (TSV: source, tab, target; plain or gzip), such as the training data; repeatable
    #[arg(long, value_name = "FILE", required = true)]
    data: Vec<PathBuf>,
    /// File to write
    #[arg(long, value_name = "FILE", value_parser = file_to_write())]
    out: PathBuf,
    /// Number of most frequent target tokens, which are candidates for every sentence
    #[arg(long, value_name = "N", default_value_t = ShortlistConfig::default().frequent)]
    frequent: usize,
    /// Number of most likely translations to keep per source token
    #[arg(long, value_name = "N", default_value_t = ShortlistConfig::default().best)]
    best: usize,
    /// Number of iterations of expectation-maximization
    #[arg(long, value_name = "N", default_value_t = ShortlistConfig::default().iterations)]
    iterations: usize,
    #[command(flatten)]
    languages: Languages,
}

impl Shortlist {
    /// Runs the command.
    pub fn run(self) -> Result {
        model_directory::check(&self.model, Some("for a file of sentence pairs use --data"))?;
        let directory = model_directory::open(&self.model)?;
        model_directory::refuse_language_model(&directory)?;
        refuse_overwriting(&self.data, &self.out)?;
        refuse_overwriting(&model_directory::files(&self.model), &self.out)?;
        check_output(&self.out)?;
        let tokenizers = self
            .languages
            .of_tokenizers(Tokenizers::of(directory.files())?)?;
        check_target(&tokenizers)?;
        let files = self.data.iter().map(CorpusFile::tsv);
        let files = files.fold(CorpusFiles::new(), |files, file| files.with(file, 1.0));
        let (corpus, unusable) = files.read()?;
        for line in unusable.left_out("pair") {
            note(line);
        }
        let tokenized = corpus.tokenize(&tokenizers, MOST_PIECES)?;
        if tokenized.pairs.is_empty() {
            return Err(format!("{tokenized}: none is left to learn from").into());
        }
        let config = ShortlistConfig {
            frequent: self.frequent,
            best: self.best,
            iterations: self.iterations,
        };
        let shortlist = config.learn(&tokenized.pairs, directory.config().special_tokens());
        write_file(&self.out, shortlist.to_bytes())
            .map_err(|error| format!("{}: {error}", self.out.display()))?;
        note(format!("{tokenized}; wrote {}", self.out.display()));
        Ok(())
    }
}
