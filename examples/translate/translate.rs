//! `translate translate`

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;

use burn::tensor::backend::Backend;
use clap::Args;
use transformer_core::Translator;

/// Translates line by line, one line out for each line in.
#[derive(Debug, Args)]
pub struct Translate {
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

impl Translate {
    pub fn run<B: Backend>(self, device: &B::Device) -> Result<(), Box<dyn Error>> {
        let translator = Translator::<B>::load(&self.model, device)?;
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
        for (index, line) in input.lines().enumerate() {
            let line = line.map_err(|error| format!("{name}: line {}: {error}", index + 1))?;
            sentences.push(line);
            if sentences.len() == batch_size {
                answer(&translator, &mut sentences, &mut output)?;
            }
        }
        answer(&translator, &mut sentences, &mut output)
    }
}

fn answer<B: Backend>(
    translator: &Translator<B>,
    sentences: &mut Vec<String>,
    output: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    for translation in translator.translate_batch(sentences)? {
        writeln!(output, "{translation}")?;
    }
    output.flush()?;
    sentences.clear();
    Ok(())
}
