//! `translate translate`

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;

use burn::tensor::backend::Backend;
use clap::Args;
use transformer::{BackendTask, Inference};
use transformer_core::{DecodeError, TextError, Translator};

/// Translates line by line, one line out for each line in.
#[derive(Debug, Args)]
pub struct Translate {
    #[command(flatten)]
    pub inference: Inference,
    /// Directory of a trained model
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// File of sentences; without it, standard input
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Sentences translated at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = at_least_one)]
    batch_size: usize,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

impl BackendTask for Translate {
    type Output = Result<(), Box<dyn Error>>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let translator = Translator::<B>::load(&self.model, &device)?;
        let (name, input): (String, Box<dyn BufRead>) = match &self.input {
            Some(path) => {
                let name = path.display().to_string();
                let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
                (name, Box::new(BufReader::new(file)))
            }
            None => ("standard input".into(), Box::new(io::stdin().lock())),
        };
        // Who types wants each answer at once.
        let typed = self.input.is_none() && io::stdin().is_terminal();
        let batch_size = if typed { 1 } else { self.batch_size };

        let mut output = io::stdout().lock();
        let mut sentences = Vec::new();
        let mut answered = 0;
        let mut answer = |sentences: &mut Vec<String>| -> Result<(), Box<dyn Error>> {
            if let Some(error) = write_translations(&translator, sentences, &mut output)? {
                let line = answered + error.index + 1;
                return Err(format!("{name}: line {line}: the sentence {}", error.problem).into());
            }
            answered += sentences.len();
            sentences.clear();
            Ok(())
        };
        for (index, line) in input.lines().enumerate() {
            match line {
                Ok(line) => sentences.push(line),
                Err(error) => {
                    answer(&mut sentences)?;
                    return Err(format!("{name}: line {}: {error}", index + 1).into());
                }
            }
            if sentences.len() == batch_size {
                answer(&mut sentences)?;
            }
        }
        answer(&mut sentences)
    }
}

/// Writes a line for each sentence, up to one that cannot be translated and is given back.
fn write_translations<B: Backend>(
    translator: &Translator<B>,
    sentences: &[String],
    output: &mut impl Write,
) -> Result<Option<DecodeError>, Box<dyn Error>> {
    let (translations, error) = match translator.translate_batch(sentences) {
        Ok(translations) => (translations, None),
        Err(TextError::Decode(error)) => (
            translator.translate_batch(&sentences[..error.index])?,
            Some(error),
        ),
        Err(error) => return Err(error.into()),
    };
    for translation in translations {
        writeln!(output, "{translation}")?;
    }
    output.flush()?;
    Ok(error)
}
