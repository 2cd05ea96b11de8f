//! `transformer tokenize`

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use transformer_core::Tokenizers;
use transformer_core::text::TextError;

use super::languages::{Languages, check_target};
use super::lines::{Lines, for_output};
use super::{Result, model_directory};

const EXAMPLES: &str = "\
Examples:
  echo \"Where are you going?\" | transformer tokenize --model model
  transformer tokenize --model model --target --ids --input train.fr";

/// Shows how a model's tokenizers cut text: one line out for each line in, with its tokens between spaces.
///
/// The tokens are those that the model reads: with the ones that a source or a target begins with, such as its
/// language's, and without the one that ends it, which the model adds. A line is cut as it stands, the white space at
/// its ends too, which `translate` leaves out.
///
/// A line that cannot be read is named on standard error and answered with an empty one; the exit code then is 1.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Tokenize {
    /// Directory of a model
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// File of text, plain or gzip; without it, or as `-`, standard input
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// As targets, not as sources
    #[arg(long)]
    target: bool,
    /// Ids in place of names
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
                let tokens = match self.tokens(&tokenizers, &text.unwrap_or_default()) {
                    Err(TextError::Tokenizer(problem)) => {
                        lines.report(
                            index,
                            &format!("the line cannot be cut into tokens: {problem}"),
                        );
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

    /// The tokens of a line, as they are shown.
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
