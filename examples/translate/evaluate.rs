//! `translate evaluate`

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;
use clap::Args;
use transformer::{BackendTask, Inference};
use transformer_core::{TextError, Translator, replace_file_with};
use transformer_train::metrics::{Bleu, Chrf, corpus_bleu, corpus_chrf};
use transformer_train::{TokenizedPair, TrainingConfig, evaluate};

use crate::decoding::Decoding;
use crate::{read_corpora, refuse_overwriting};

/// Measures a model on sentence pairs: loss, perplexity, BLEU and chrF.
#[derive(Debug, Args)]
pub struct Evaluate {
    #[command(flatten)]
    pub inference: Inference,
    #[command(flatten)]
    pub decoding: Decoding,
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
}

impl BackendTask for Evaluate {
    type Output = Result<(), Box<dyn Error>>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        if let Some(path) = &self.hypotheses {
            refuse_overwriting(&self.data, path)?;
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
                return Err(format!("{}: no such directory", folder.display()).into());
            }
        }
        let options = self.decoding.options(1);
        let translator = Translator::<B>::load(&self.model, &device)?.with_options(options)?;
        let corpus = read_corpora(&self.data)?;

        let tokenizer = translator.tokenizer();
        let mut pairs = Vec::with_capacity(corpus.len());
        for pair in corpus.pairs() {
            pairs.push(TokenizedPair {
                source: tokenizer.encode(&pair.source)?,
                target: tokenizer.encode(&pair.target)?,
            });
        }
        let TrainingConfig {
            batch_tokens,
            label_smoothing,
            ..
        } = TrainingConfig::default();
        let longest = pairs.iter().map(|p| p.src_len().max(p.tgt_len())).max();
        let batch_tokens = batch_tokens.max(longest.unwrap_or(0));
        let count = self.sentences.map_or(corpus.len(), NonZeroUsize::get);
        let count = count.min(corpus.len());
        let (sources, references): (Vec<_>, Vec<_>) = corpus.pairs()[..count]
            .iter()
            .map(|pair| (pair.source.as_str(), pair.target.as_str()))
            .unzip();
        // Before the loss: what cannot be translated is known at once.
        let translations = match translator.translate_batch(&sources) {
            Err(TextError::Decode(error)) => {
                let (pair, problem) = (error.index + 1, error.problem);
                return Err(format!("pair {pair}: the source {problem}").into());
            }
            translations => translations?,
        };

        let model = translator.model();
        let statistics = evaluate(model, pairs, batch_tokens, label_smoothing, &device)?;
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

/// Puts a file in the place of an older one, at the end of links; a device or a pipe is written to.
fn write(path: &Path, lines: &str) -> io::Result<()> {
    let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match place.metadata() {
        Ok(there) if !there.is_file() && !there.is_dir() => fs::write(place, lines),
        _ => replace_file_with(&place, lines),
    }
}
