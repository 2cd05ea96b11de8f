//! `transformer generate`

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use burn::tensor::backend::Backend;
use clap::Args;
use transformer_core::decoding::{DecodeError, MaxLength, NextToken, RequestProblem, Strategy};
use transformer_core::text::TextError;
use transformer_core::{DecodeOptions, ModelDirectory, TextGenerator};

use super::decoding::Decoding;
use super::inference::{Inference, Models, TranslatorTask};
use super::lines::{Lines, for_output};
use super::{Common, Result, next_refused, request_problem};

const EXAMPLES: &str = "\
Examples:
  transformer generate --model gpt2 --prompt \"Once upon a time\"
  transformer generate --model gpt2 --prompt \"Once upon a time\" --sample --top-k 50 --n-best 3 --max-new-tokens 100
  transformer generate --model gpt2 --input prompts.txt > texts.txt";

/// Continue texts with a language model.
///
/// Writes the prompt and what follows it. With --input, each line is a prompt, and each text is written on one line.
///
/// A prompt that cannot be continued gives an empty output line and an error message on standard error. The exit code
/// is then 1.
#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    mut_arg("coverage_penalty", |argument| argument.hide(true)),
    mut_arg("max_source_length", |argument| argument.hide(true)),
    mut_arg("shortlist", |argument| argument.hide(true)),
    mut_arg("min_length", |argument| argument.help("Minimum length of a text in tokens, with its prompt [default: 0]")),
    mut_arg("max_length", |argument| argument.help("Maximum length of a text in tokens, with its prompt")),
    mut_arg("sample", |argument| argument.help(
        "Sample each token from its distribution instead of searching. Samples depend only on --seed and the prompt, so \
         equal prompts have equal samples"
    )),
    mut_arg("repetition_penalty", |argument| argument.help(
        "Repetition penalty, a factor on the log-probability of tokens that the text already contains, with its prompt; 1 \
         is off [default: 1]"
    )),
    mut_arg("batch_tokens", |argument| argument.help("Batch size in tokens of prompts, including padding")),
)]
pub struct Generate {
    /// Model directory; several form an ensemble, which averages their probabilities
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    model: Vec<PathBuf>,
    /// Text to continue; may be empty
    #[arg(long, value_name = "TEXT", conflicts_with = "input")]
    prompt: Option<String>,
    /// File of prompts, plain or gzip; `-` is standard input [default: -]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Print the N best texts per prompt, best first. With --sample, these are N samples
    #[arg(long, value_name = "N", default_value_t = 1)]
    n_best: usize,
    /// Maximum number of tokens after the prompt [default: 50]
    #[arg(long, value_name = "N", conflicts_with = "max_length")]
    max_new_tokens: Option<usize>,
    #[command(flatten)]
    inference: Inference,
    #[command(flatten)]
    decoding: Decoding,
}

impl Generate {
    /// Runs the command.
    pub fn run(self, common: &Common) -> Result {
        let (models, inference) = (self.model.clone(), self.inference.clone());
        let (decoding, n_best) = (self.decoding.clone(), self.n_best);
        let (seed, new_tokens) = (common.seed.unwrap_or(0), self.max_new_tokens);
        let options = |of_model: DecodeOptions| {
            let max_length = new_tokens.map_or(of_model.max_length, MaxLength::SourcePlus);
            let of_model = DecodeOptions {
                max_length,
                ..of_model
            };
            decoding.over(of_model, n_best, seed)
        };
        inference.run(common.target(), models, options, self)
    }
}

impl TranslatorTask for Generate {
    const TEXT_FLAG: Option<&'static str> = Some("for a file of prompts use --input");

    fn check(directory: &ModelDirectory) -> std::result::Result<(), String> {
        match directory.config().is_language_model() {
            true => Ok(()),
            false => Err(format!(
                "{} holds an encoder-decoder, which continues no prompts; see `transformer translate`",
                directory.path().display()
            )),
        }
    }

    fn run_with<B: Backend>(self, models: Models<B>) -> Result {
        match models.packs() {
            true => self.answer(&models.packed_generator()?),
            false => self.answer(&models.plain_generator()?),
        }
    }
}

impl Generate {
    /// Writes the texts that begin with the prompts.
    fn answer<M: NextToken>(&self, generator: &TextGenerator<M>) -> Result {
        let Some(prompt) = &self.prompt else {
            return self.answer_lines(generator);
        };
        let mut output = io::stdout().lock();
        let written = match self.streams(generator.options()) {
            true => stream(generator, prompt, &mut output),
            false => generator.generate(&[prompt]).map(|texts| {
                texts
                    .concat()
                    .iter()
                    .try_for_each(|text| writeln!(output, "{}", for_output(&text.text)))
            }),
        };
        match written {
            Err(TextError::Decode(error)) => Err(prompt_problem(&error.problem).into()),
            written => Ok(written??),
        }
    }

    /// Whether the text can be written as it grows: each token is final as soon as it is decoded.
    fn streams(&self, options: &DecodeOptions) -> bool {
        let is_certain = match options.strategy {
            Strategy::Beam { size } => size == 1,
            Strategy::Sample(_) => true,
        };
        is_certain && self.n_best == 1
    }

    fn answer_lines<M: NextToken>(&self, generator: &TextGenerator<M>) -> Result {
        let mut lines = Lines::open(self.input.as_deref())?;
        lines.answer(|lines, prompts, output| {
            // A prompt that could not be read is continued as an empty one, whose texts are not written.
            let mut refused: Vec<bool> = prompts.iter().map(Option::is_none).collect();
            let prompts = prompts.into_iter().map(Option::unwrap_or_default);
            let mut prompts: Vec<String> =
                prompts.map(|prompt| of_line(&prompt).to_owned()).collect();
            let texts = loop {
                let mut next = match generator.generate(&prompts) {
                    Err(TextError::Decode(error)) if !refused[error.index] => Some(error),
                    texts => break texts?,
                };
                // As in `translate`, further refused prompts are found by checking each once.
                while let Some(DecodeError { index, problem, .. }) = next {
                    lines.report(index, &prompt_problem(&problem));
                    prompts[index].clear();
                    refused[index] = true;
                    next = next_refused(&prompts, index + 1, |prompt| generator.check(&[prompt]))?;
                }
            };
            for (texts, is_refused) in texts.into_iter().zip(refused) {
                if is_refused {
                    writeln!(output)?;
                    continue;
                }
                for text in texts {
                    let line = text.text.replace(['\n', '\r'], " ");
                    writeln!(output, "{}", for_output(&line))?;
                }
            }
            Ok(())
        })?;
        Ok(lines.finish("continued")?)
    }
}

/// The prompt of a line: white space at its ends is a part of it, but neither the end of a line nor a byte-order mark is.
fn of_line(line: &str) -> &str {
    line.trim_matches(['\u{feff}', '\r'])
}

/// A problem with a prompt, which a decoder without sources begins with.
fn prompt_problem(problem: &RequestProblem) -> String {
    match problem {
        RequestProblem::PrefixTooLong { length, limit } => format!(
            "the prompt has {length} tokens, more than the maximum length of {limit}; see --max-length"
        ),
        RequestProblem::PrefixOverPositions { length, max_len } => format!(
            "the prompt has {length} tokens, more than the model's {max_len} learned positions"
        ),
        problem => request_problem("the prompt", problem),
    }
}

/// Writes a text while it grows.
fn stream<M: NextToken>(
    generator: &TextGenerator<M>,
    prompt: &str,
    output: &mut impl Write,
) -> std::result::Result<io::Result<()>, TextError> {
    let mut written = Ok(());
    generator.stream(prompt, |text| {
        written = write!(output, "{}", for_output(text)).and_then(|()| output.flush());
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    Ok(written.and_then(|()| writeln!(output)))
}
