//! `transformer evaluate`

mod metrics;

use std::error::Error;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;
use clap::Args;
use transformer_core::decoding::TargetScore;
use transformer_core::text::TextError;
use transformer_train::TrainingConfig;
use transformer_train::data::{Corpus, CorpusFiles, PairPlaces, TokenizedPair, is_standard_stream};
use transformer_train::metrics::TextMetric;
use transformer_train::objective::{LossOptions, Objective};
use transformer_train::validation::evaluate;

use super::decoding::Decoding;
use super::inference::{Inference, Models, PlainTranslator, TranslatorTask};
use super::languages::UnknownLanguages;
use super::{
    Common, Result, check_lengths, check_output, corpora, model_directory, refuse_overwriting,
    request_problem, write_file,
};
use crate::process::note;

const EXAMPLES: &str = "\
Examples:
  transformer evaluate --model model --data model/valid.tsv
  transformer evaluate --model model --data model/valid.tsv --sentences 500 --beam 1
  transformer evaluate --model opus-mt-en-fr --parallel newstest.en newstest.fr

  Error rates of grapheme-to-phoneme conversion with an ensemble:
    transformer evaluate --model first second third --data dev.tsv --metrics wer,token_error_rate";

/// Measure a model on sentence pairs: loss, perplexity, and metrics of its translations.
///
/// Metrics compare the translations with the targets (docs/guide/metrics.md). For an ensemble, perplexity is computed
/// from the mean of the models' probabilities; loss and token accuracy are not printed.
///
/// A pair that is too long is an error, reported with its file and line before anything is computed.
///
/// With --precision int8, translations are computed in 8 bits; loss and perplexity in 32 bits, from the directory's
/// weights (dequantized if the model is quantized). With f16 or bf16, all are computed with the weights in that type.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Evaluate {
    /// Model directory; several form an ensemble, which averages their probabilities
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    model: Vec<PathBuf>,
    /// Sentence pairs, `source<TAB>target` per line, plain or gzip; `-` is standard input
    #[arg(long, num_args = 1.., required_unless_present = "parallel", value_name = "FILE")]
    data: Vec<PathBuf>,
    /// Sentence pairs as two parallel text files, plain or gzip
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    parallel: Vec<PathBuf>,
    /// Metrics of the translations, separated by commas [default: the metrics of the (first) model's training run, else
    /// bleu,chrf]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = metrics::parser())]
    metrics: Vec<TextMetric>,
    /// Translate only the first N pairs for --metrics; the loss covers all pairs
    #[arg(long, value_name = "N")]
    sentences: Option<NonZeroUsize>,
    /// Write the translations to this file; `-` is standard output, and the results then go to standard error
    #[arg(long, value_name = "FILE")]
    hypotheses: Option<PathBuf>,
    #[command(flatten)]
    inference: Inference,
    #[command(flatten)]
    decoding: Decoding,
}

impl Evaluate {
    /// Runs the command.
    pub fn run(mut self, common: &Common) -> Result {
        if self.metrics.is_empty()
            && let Some(first) = self.model.first()
        {
            model_directory::check(first, Self::TEXT_FLAG)?;
            self.metrics = metrics::of_model(first)?;
        }
        if let Some(path) = self.file_of_hypotheses() {
            refuse_overwriting(&self.data, path)?;
            refuse_overwriting(&self.parallel, path)?;
            for model in &self.model {
                refuse_overwriting(&model_directory::files(model), path)?;
            }
            check_output(path)?;
        }
        let (models, inference) = (self.model.clone(), self.inference.clone());
        let (decoding, seed) = (self.decoding.clone(), common.seed.unwrap_or(0));
        let options = |of_model| decoding.over(of_model, 1, seed);
        inference.run(common.target(), models, options, self)
    }
}

impl TranslatorTask for Evaluate {
    const TEXT_FLAG: Option<&'static str> = Some("for a file of sentence pairs use --data");

    fn run_with<B: Backend>(self, models: Models<B>) -> Result {
        let files = corpora(&self.data, &self.parallel);
        let files = files.fold(CorpusFiles::new(), |files, file| files.with(file, 1.0));
        let (corpus, places, unusable) = files.read_with_places()?;
        for line in unusable.left_out("pair") {
            note(line);
        }
        let translator = models.plain()?;
        let pairs = self.tokenized(&corpus, &places, &translator)?;
        let (sources, references) = self.measured(&corpus);
        let mut unknown = UnknownLanguages::default();
        for (index, source) in sources.iter().enumerate() {
            unknown.check(translator.tokenizers(), source, || place(&places, index));
        }
        let of_pair = |error| of_pair(error, &places);
        // Before the loss, so that a sentence that cannot be translated is reported at once.
        translator.check(&sources, "").map_err(of_pair)?;
        let loss = match self.model.len() {
            1 => loss(&translator, pairs, translator.options().batch_tokens)?,
            count => ensemble_perplexity(&translator, &corpus, count, &places)?,
        };
        let translations = match models.packs() {
            true => {
                // Frees its memory before the packed models are loaded.
                drop(translator);
                models.packed()?.translate_batch(&sources)
            }
            false => translator.translate_batch(&sources),
        };
        let translations = translations.map_err(of_pair)?;
        // Before anything is printed, because a reader that has read enough ends the command.
        let lines = || translations.join("\n") + "\n";
        if let Some(path) = self.file_of_hypotheses() {
            write_file(path, lines()).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let mut output: Box<dyn Write> = match &self.hypotheses {
            Some(path) if is_standard_stream(path) => {
                io::stdout().write_all(lines().as_bytes())?;
                Box::new(io::stderr())
            }
            _ => Box::new(io::stdout()),
        };
        writeln!(output, "{loss}")?;
        for metric in &self.metrics {
            let score = metric.measure(&translations, &references)?;
            writeln!(output, "{score}")?;
        }
        Ok(())
    }
}

/// The line with a model's loss on all pairs.
fn loss<B: Backend>(
    translator: &PlainTranslator<B>,
    pairs: Vec<TokenizedPair>,
    batch_tokens: usize,
) -> Result<String> {
    let label_smoothing = TrainingConfig::default().label_smoothing;
    let longest = pairs.iter().map(|p| p.src_len().max(p.tgt_len())).max();
    let batch_tokens = batch_tokens.max(longest.unwrap_or(0));
    let statistics = evaluate(
        translator.model(),
        pairs,
        batch_tokens,
        &LossOptions::smoothed(label_smoothing),
    )?;
    Ok(format!(
        "loss {:.4} (label smoothing {label_smoothing})  nll {:.4}  perplexity {:.3}  token accuracy {:.2} %  tokens {}",
        statistics.mean_loss(),
        statistics.mean_nll(),
        statistics.perplexity(),
        statistics.accuracy(),
        statistics.tokens
    ))
}

/// The line with an ensemble's perplexity on all pairs, computed from the mean of the models' probabilities. The
/// smoothed loss and the accuracy describe the training of one model, so that an ensemble has neither.
fn ensemble_perplexity<B: Backend>(
    translator: &PlainTranslator<B>,
    corpus: &Corpus,
    models: usize,
    places: &PairPlaces,
) -> Result<String> {
    let pairs = corpus.pairs().iter();
    let (sources, targets): (Vec<&str>, Vec<&str>) = pairs
        .map(|pair| (pair.source.as_str(), pair.target.as_str()))
        .unzip();
    let scores = translator.score(&sources, &targets);
    let scores = scores.map_err(|error| of_pair(error, places))?;
    let tokens: usize = scores.iter().map(|score| score.log_probs.len()).sum();
    let log_prob: f64 = scores.iter().map(TargetScore::log_prob).sum();
    let nll = -log_prob / tokens as f64;
    Ok(format!(
        "nll {nll:.4}  perplexity {:.3}  tokens {tokens}  ensemble of {models} models",
        nll.exp()
    ))
}

impl Evaluate {
    /// The file that the translations are written to, if any.
    fn file_of_hypotheses(&self) -> Option<&Path> {
        let path = self.hypotheses.as_deref();
        path.filter(|path| !is_standard_stream(path))
    }

    /// Every pair as tokens. A pair that is too long is an error here, before memory runs out.
    fn tokenized<B: Backend>(
        &self,
        corpus: &Corpus,
        places: &PairPlaces,
        translator: &PlainTranslator<B>,
    ) -> Result<Vec<TokenizedPair>> {
        let limit = self.decoding.max_source_length;
        let special_tokens = translator.model().config().special_tokens();
        let tokenized = corpus.tokenize(translator.tokenizers(), usize::MAX)?;
        if let Some((index, problem)) = tokenized.failed.first() {
            return Err(format!("{}: {problem}", place(places, *index)).into());
        }
        let pairs = tokenized.pairs;
        for (index, pair) in pairs.iter().enumerate() {
            let source = special_tokens.end_source(&pair.source).len();
            let target = pair.tgt_len();
            // The model's learned positions, if any, come first: no flag can raise that limit.
            translator.model().check(pair).map_err(|problem| {
                let side = match source >= target {
                    true => "source",
                    false => "target",
                };
                format!("{}: the {side} {problem}", place(places, index))
            })?;
            check_lengths(source, target, limit).map_err(|problem| {
                let place = place(places, index);
                format!("{place}: {problem}; see --max-source-length")
            })?;
        }
        Ok(pairs)
    }

    /// The sentences that are translated for the metrics, and their references.
    fn measured<'a>(&self, corpus: &'a Corpus) -> (Vec<&'a str>, Vec<&'a str>) {
        let count = self.sentences.map_or(corpus.len(), NonZeroUsize::get);
        let pairs = corpus.pairs().iter().take(count);
        pairs
            .map(|pair| (pair.source.as_str(), pair.target.as_str()))
            .unzip()
    }
}

/// The file and the line of a pair.
fn place(places: &PairPlaces, pair: usize) -> String {
    let (file, line) = places.of(pair);
    format!("{}: line {line}", file.display())
}

/// The error about a pair that cannot be translated or scored, with its file and line.
fn of_pair(error: TextError, places: &PairPlaces) -> Box<dyn Error> {
    match error {
        TextError::Decode(error) => {
            let place = place(places, error.index);
            format!("{place}: {}", request_problem("the source", &error.problem)).into()
        }
        error => error.into(),
    }
}
