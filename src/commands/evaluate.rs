//! `transformer evaluate`

use std::fs;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;
use clap::Args;
use transformer_core::{TextError, Tokenizers, Translator, replace_file_with};
use transformer_train::metrics::{Bleu, Chrf, corpus_bleu, corpus_chrf};
use transformer_train::{Corpus, TokenizedPair, TrainingConfig, evaluate};

use super::decoding::Decoding;
use super::inference::{Inference, TranslatorTask};
use super::{Common, Result, check_lengths, refuse_overwriting, request_problem};

const EXAMPLES: &str = "\
Examples:
  transformer evaluate --model model --data model/valid.tsv
  transformer evaluate --model model --data model/valid.tsv --sentences 500 --beam 1";

/// Measures a model on sentence pairs: loss, perplexity, BLEU and chrF.
///
/// BLEU and chrF are those of sacreBLEU, with its signatures.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Evaluate {
    /// Directory of a trained model
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Sentence pairs, `source<TAB>target` per line, plain or gzip
    #[arg(long, num_args = 1.., required = true, value_name = "FILE")]
    data: Vec<PathBuf>,
    /// Translate only the first N pairs, for BLEU and chrF; the loss is that of all
    #[arg(long, value_name = "N")]
    sentences: Option<NonZeroUsize>,
    /// Write the translations to this file
    #[arg(long, value_name = "FILE")]
    hypotheses: Option<PathBuf>,
    #[command(flatten)]
    inference: Inference,
    #[command(flatten)]
    decoding: Decoding,
}

impl Evaluate {
    /// Runs the command.
    pub fn run(self, common: Common) -> Result {
        let options = self.decoding.options(1, common.seed.unwrap_or(0))?;
        if let Some(path) = &self.hypotheses {
            refuse_overwriting(&self.data, path)?;
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
                return Err(format!("{}: no such directory", folder.display()).into());
            }
        }
        let models = vec![self.model.clone()];
        self.inference.run(common.backend, models, options, self)
    }
}

impl TranslatorTask for Evaluate {
    fn run_with<B: Backend>(self, translator: Translator<B>) -> Result {
        let corpus = Corpus::from_tsv_files(&self.data)?;
        let pairs = self.tokenized(&corpus, translator.tokenizers())?;
        let TrainingConfig {
            batch_tokens,
            label_smoothing,
            ..
        } = TrainingConfig::default();
        let longest = pairs.iter().map(|p| p.src_len().max(p.tgt_len())).max();
        let batch_tokens = batch_tokens.max(longest.unwrap_or(0));

        // Before the loss, so that a sentence that cannot be translated is reported at once.
        let (translations, references) = self.translate(&translator, &corpus)?;
        let model = translator.model();
        let statistics = evaluate(model, pairs, batch_tokens, label_smoothing)?;
        let mut output = io::stdout().lock();
        writeln!(
            output,
            "loss {:.4} (label smoothing {label_smoothing})  nll {:.4}  perplexity {:.3}  token accuracy {:.2} %  tokens {}",
            statistics.mean_loss(),
            statistics.mean_nll(),
            statistics.perplexity(),
            statistics.accuracy(),
            statistics.tokens
        )?;

        if let Some(path) = &self.hypotheses {
            let lines = translations.join("\n") + "\n";
            write(path, &lines).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let bleu = corpus_bleu(&translations, &references)?;
        writeln!(output, "{bleu}  {}", Bleu::signature())?;
        let chrf = corpus_chrf(&translations, &references)?;
        writeln!(output, "{chrf}  {}", Chrf::signature())?;
        Ok(())
    }
}

impl Evaluate {
    /// Every pair as tokens. One that is too long is an error here, before memory runs out.
    fn tokenized(&self, corpus: &Corpus, tokenizers: &Tokenizers) -> Result<Vec<TokenizedPair>> {
        let limit = self.decoding.max_source_length;
        let pairs = corpus.tokenize(tokenizers, usize::MAX)?.pairs;
        for (index, pair) in pairs.iter().enumerate() {
            check_lengths(pair.src_len(), pair.tgt_len(), limit).map_err(|problem| {
                format!("pair {}: {problem}; see --max-source-length", index + 1)
            })?;
        }
        Ok(pairs)
    }

    /// The translations that BLEU and chrF are computed from, and their references.
    fn translate<'a, B: Backend>(
        &self,
        translator: &Translator<B>,
        corpus: &'a Corpus,
    ) -> Result<(Vec<String>, Vec<&'a str>)> {
        let count = self.sentences.map_or(corpus.len(), NonZeroUsize::get);
        let (sources, references): (Vec<&str>, Vec<&str>) = corpus
            .pairs()
            .iter()
            .take(count)
            .map(|pair| (pair.source.as_str(), pair.target.as_str()))
            .unzip();
        match translator.translate_batch(&sources) {
            Ok(translations) => Ok((translations, references)),
            Err(TextError::Decode(error)) => {
                let (pair, problem) = (error.index + 1, request_problem(&error.problem));
                Err(format!("pair {pair}: the source {problem}").into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Replaces a file, or the file that a link leads to; a device or a pipe is written to.
fn write(path: &Path, lines: &str) -> io::Result<()> {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match target.metadata() {
        Ok(there) if !there.is_file() && !there.is_dir() => fs::write(target, lines),
        _ => replace_file_with(&target, lines),
    }
}
