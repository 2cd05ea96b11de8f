//! `transformer tokenize`

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use transformer_core::Tokenizers;
use transformer_core::text::TextError;
use transformer_train::data::trimmed;

use super::languages::{Languages, check_target};
use super::lines::{Lines, for_output};
use super::{Result, model_directory};

const EXAMPLES: &str = "\
Examples:
  echo \"Where are you going?\" | transformer tokenize --model model
  transformer tokenize --model model --target --ids --input train.fr";

/// Show how a model's tokenizers split text.
///
/// Writes one line per input line: its tokens, separated by spaces. They include special tokens at the beginning, such
/// as a language token, but not the end-of-sentence token, which the model adds. The exception is models that put the
/// source-language token after the end-of-sentence token, such as the first mBART (`mbart-large-cc25`): their sources
/// end with both tokens. White space at the ends of a line is removed, as `translate` does.
///
/// A line that cannot be read gives an empty output line and an error message on standard error. The exit code is then
/// 1.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Tokenize {
    /// Model directory
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Text file, plain or gzip; `-` is standard input [default: -]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Tokenize as target text instead of source text
    #[arg(long)]
    target: bool,
    /// Print token ids instead of token names
    #[arg(long)]
    ids: bool,
    #[command(flatten)]
    languages: Languages,
}

impl Tokenize {
    /// Runs the command.
    pub fn run(self) -> Result {
        model_directory::check(&self.model, Some("for a file of text use --input"))?;
        let tokenizers = Tokenizers::load(&self.model)?;
        let tokenizers = self.languages.of_tokenizers(tokenizers)?;
        if self.target {
            check_target(&tokenizers)?;
        }
        let mut lines = Lines::open(self.input.as_deref())?;
        lines.answer(|lines, texts, output| {
            for (index, text) in texts.into_iter().enumerate() {
                let Some(text) = text else {
                    writeln!(output)?;
                    continue;
                };
                let tokens = match self.tokens(&tokenizers, trimmed(&text)) {
                    Err(TextError::Tokenizer(problem)) => {
                        lines.report(index, &format!("the line cannot be tokenized: {problem}"));
                        Vec::new()
                    }
                    tokens => tokens?,
                };
                writeln!(output, "{}", for_output(&tokens.join(" ")))?;
            }
            Ok(())
        })?;
        Ok(lines.finish("tokenized")?)
    }

    /// The tokens of a line as they are printed.
    fn tokens(
        &self,
        tokenizers: &Tokenizers,
        text: &str,
    ) -> std::result::Result<Vec<String>, TextError> {
        let (tokens, tokenizer) = match self.target {
            true => (tokenizers.encode_target(text)?, tokenizers.target()),
            false => (tokenizers.encode_source(text)?, tokenizers.source()),
        };
        let shown = |token: u32| match self.ids {
            true => token.to_string(),
            false => tokenizer.name(token),
        };
        Ok(tokens.into_iter().map(shown).collect())
    }
}
