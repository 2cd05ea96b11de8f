//! `transformer score`

use std::io::Write;
use std::path::PathBuf;

use burn::tensor::backend::Backend;
use clap::Args;
use transformer_core::decoding::{NextToken, TargetScore};
use transformer_core::text::TextError;
use transformer_core::{DecodeOptions, ModelDirectory, TextGenerator, Translator};
use transformer_train::data::trimmed;

use super::inference::{Inference, Models, TranslatorTask};
use super::languages::UnknownLanguages;
use super::lines::Lines;
use super::{Common, Result, check_lengths, options_error, request_problem};

const EXAMPLES: &str = "\
Examples:
  transformer score --model model --input model/valid.tsv
  printf 'Where is he?\\tOù est-il ?\\n' | transformer score --model model";

/// Compute the log-probability of given translations or, with a language model, of texts.
///
/// Each input line is `source<TAB>target`; further columns are ignored. Each output line has three tab-separated
/// fields: the log-probability of the target given the source (natural logarithm, summed over the tokens), the number
/// of target tokens, and the perplexity per token (e to the negative mean log-probability). The end-of-sentence token
/// counts as a token.
///
/// With a language model, each input line is a text, which is scored from its first token to the end-of-text token.
///
/// A line that cannot be scored gives an empty output line and an error message on standard error. The exit code is
/// then 1.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Score {
    /// Model directory; several form an ensemble, which averages their probabilities
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    model: Vec<PathBuf>,
    /// File of sentence pairs, plain or gzip; `-` is standard input [default: -]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Batch size in tokens, including padding
    #[arg(long, value_name = "N", default_value_t = 2048)]
    batch_tokens: usize,
    /// Maximum length of a source or target in tokens; on some backends, memory grows with its square
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_source_length: usize,
    #[command(flatten)]
    inference: Inference,
}

impl Score {
    /// Runs the command.
    pub fn run(self, common: &Common) -> Result {
        let (models, inference) = (self.model.clone(), self.inference.clone());
        let (batch_tokens, max_src_len) = (self.batch_tokens, self.max_source_length);
        let options = |of_model: DecodeOptions| {
            let options = DecodeOptions {
                batch_tokens,
                max_src_len,
                ..of_model
            };
            let checked = options.validate().map_err(options_error);
            checked.map(|()| options)
        };
        inference.run(common.target(), models, options, self)
    }
}

impl TranslatorTask for Score {
    const TEXT_FLAG: Option<&'static str> = Some("for a file of sentence pairs use --input");

    fn check(_: &ModelDirectory) -> std::result::Result<(), String> {
        Ok(())
    }

    fn run_with<B: Backend>(self, models: Models<B>) -> Result {
        if models.is_language_model() {
            return match models.packs() {
                true => self.answer_texts(&models.packed_generator()?),
                false => self.answer_texts(&models.plain_generator()?),
            };
        }
        match models.packs() {
            true => self.answer(&models.packed()?),
            false => self.answer(&models.plain()?),
        }
    }
}

impl Score {
    /// Writes the score of each line.
    fn answer<M: NextToken>(&self, translator: &Translator<M>) -> Result {
        let mut lines = Lines::open(self.input.as_deref())?;
        let mut unknown = UnknownLanguages::default();
        lines.answer(|lines, texts, output| {
            write(
                output,
                self.scores(translator, &texts, lines, &mut unknown)?,
            )
        })?;
        Ok(lines.finish("scored")?)
    }

    /// Writes the score of each line by a language model: the line is a text.
    fn answer_texts<M: NextToken>(&self, generator: &TextGenerator<M>) -> Result {
        let mut lines = Lines::open(self.input.as_deref())?;
        lines.answer(|lines, texts, output| {
            let mut indices = Vec::new();
            let texts: Vec<Option<&str>> = texts
                .iter()
                .map(|text| Some(trimmed(text.as_ref()?)))
                .collect();
            for (index, text) in texts.iter().enumerate() {
                let Some(text) = text else {
                    // It was reported when it was read.
                    continue;
                };
                match self.check_text(generator, text)? {
                    Ok(()) => indices.push(index),
                    Err(problem) => lines.report(index, &problem),
                }
            }
            let scored = indices.iter().filter_map(|&index| texts[index]);
            let found = generator.score(&scored.collect::<Vec<_>>())?;
            let mut scores = vec![None; texts.len()];
            for (index, score) in indices.into_iter().zip(found) {
                scores[index] = Some(score);
            }
            write(output, scores)
        })?;
        Ok(lines.finish("scored")?)
    }

    /// Checks that a text can be scored; or the problem with it.
    fn check_text<M: NextToken>(
        &self,
        generator: &TextGenerator<M>,
        text: &str,
    ) -> Result<std::result::Result<(), String>> {
        let mut tokens = match generator.tokenizers().target().encode(text) {
            Ok(tokens) => tokens,
            Err(TextError::Tokenizer(problem)) => {
                return Ok(Err(format!("the text cannot be tokenized: {problem}")));
            }
            Err(error) => return Err(error.into()),
        };
        tokens.push(generator.model().vocabulary().special_tokens.eos);
        if let Err(problem) = generator.model().check_target(&tokens) {
            return Ok(Err(request_problem("the text", &problem)));
        }
        let checked = check_lengths(0, tokens.len(), self.max_source_length);
        Ok(checked.map_err(|problem| format!("{problem}; see --max-source-length")))
    }
}

/// Writes a line per score, empty where there is none.
fn write(output: &mut impl Write, scores: Vec<Option<TargetScore>>) -> Result {
    for score in scores {
        match score {
            Some(score) => writeln!(
                output,
                "{:.4}\t{}\t{:.3}",
                score.log_prob(),
                score.log_probs.len(),
                score.perplexity()
            )?,
            None => writeln!(output)?,
        }
    }
    Ok(())
}

/// A line that can be scored.
struct Pair<'a> {
    /// Its index among the lines.
    index: usize,
    source: &'a str,
    target: &'a str,
}

impl Score {
    /// The score of each line; `None` where the line was reported.
    fn scores<M: NextToken>(
        &self,
        translator: &Translator<M>,
        lines: &[Option<String>],
        reports: &mut Lines,
        unknown: &mut UnknownLanguages,
    ) -> Result<Vec<Option<TargetScore>>> {
        let mut scores = vec![None; lines.len()];
        let mut pairs = Vec::with_capacity(lines.len());
        for (index, line) in lines.iter().enumerate() {
            let Some(line) = line else {
                // It was reported when it was read.
                continue;
            };
            match self.pair(translator, index, line)? {
                Ok(pair) => {
                    unknown.check(translator.tokenizers(), pair.source, || {
                        reports.place(index)
                    });
                    pairs.push(pair);
                }
                Err(problem) => reports.report(index, &problem),
            }
        }
        let sources: Vec<&str> = pairs.iter().map(|pair| pair.source).collect();
        let targets: Vec<&str> = pairs.iter().map(|pair| pair.target).collect();
        let found = translator.score(&sources, &targets)?;
        for (pair, score) in pairs.iter().zip(found) {
            scores[pair.index] = Some(score);
        }
        Ok(scores)
    }

    /// The pair in a line, or the problem with the line.
    fn pair<'a, M: NextToken>(
        &self,
        translator: &Translator<M>,
        index: usize,
        line: &'a str,
    ) -> Result<std::result::Result<Pair<'a>, String>> {
        let mut columns = line.split('\t').map(trimmed);
        let (Some(source), Some(target)) = (columns.next(), columns.next()) else {
            return Ok(Err("no tab between source and target".into()));
        };
        if source.is_empty() {
            return Ok(Err("the source is empty".into()));
        }
        let tokenizers = translator.tokenizers();
        let (source_tokens, mut target_tokens) = match (
            tokenizers.encode_source(source),
            tokenizers.encode_target(target),
        ) {
            (Ok(source), Ok(target)) => (source, target),
            (Err(TextError::Tokenizer(problem)), _) | (_, Err(TextError::Tokenizer(problem))) => {
                return Ok(Err(format!("the pair cannot be tokenized: {problem}")));
            }
            (Err(error), _) | (_, Err(error)) => return Err(error.into()),
        };
        let special_tokens = translator.model().vocabulary().special_tokens;
        let source_tokens = special_tokens.end_source(&source_tokens);
        target_tokens.push(special_tokens.eos);
        // The model's positions come first: no flag can raise that limit.
        let model = translator.model();
        let checked = model.check_source(&source_tokens);
        if let Err(problem) = checked.and_then(|()| model.check_target(&target_tokens)) {
            return Ok(Err(request_problem("the source", &problem)));
        }
        let (source_len, target_len) = (source_tokens.len(), target_tokens.len());
        Ok(
            match check_lengths(source_len, target_len, self.max_source_length) {
                Ok(()) => Ok(Pair {
                    index,
                    source,
                    target,
                }),
                Err(problem) => Err(format!("{problem}; see --max-source-length")),
            },
        )
    }
}
