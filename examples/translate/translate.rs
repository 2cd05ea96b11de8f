//! `translate translate`

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use clap::Args;
use transformer::{BackendTask, Inference};
use transformer_core::{TextError, Translation, Translator};

use crate::decoding::Decoding;
use crate::lines::{Line, next_lines, skip_byte_order_mark};

/// Translates line by line, one line out for each line in. A line that cannot be translated is named
/// on standard error and answered with an empty one; the exit code then is 1.
#[derive(Debug, Args)]
pub struct Translate {
    #[command(flatten)]
    pub inference: Inference,
    #[command(flatten)]
    pub decoding: Decoding,
    /// Directory of a trained model; of several, the mean of their probabilities
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    model: Vec<PathBuf>,
    /// File of sentences; without it, standard input
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Translations of each sentence, the best first, each in a line that begins with the number of
    /// the sentence's line; none for one that cannot be translated
    #[arg(long, value_name = "N", default_value_t = 1)]
    n_best: usize,
    /// Text that every translation begins with
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Before each translation, its score
    #[arg(long)]
    scores: bool,
    /// After each translation, which source token each of its tokens attends to most: `source-target`,
    /// from 0
    #[arg(long)]
    alignments: bool,
}

impl BackendTask for Translate {
    type Output = Result<(), Box<dyn Error>>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let options = self.decoding.options(self.n_best);
        let translator =
            Translator::<B>::load_ensemble(&self.model, &device)?.with_options(options)?;
        let (name, mut input): (String, Box<dyn BufRead>) = match &self.input {
            Some(path) => {
                let name = path.display().to_string();
                let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
                (name, Box::new(BufReader::new(file)))
            }
            None => ("standard input".into(), Box::new(io::stdin().lock())),
        };
        skip_byte_order_mark(&mut input).map_err(|error| format!("{name}: {error}"))?;
        // Who types wants each answer at once.
        let typed = self.input.is_none() && io::stdin().is_terminal();
        let mut output = io::stdout().lock();
        let mut progress = Progress::new();
        let (mut answered, mut failed) = (0, 0);
        loop {
            let lines = next_lines(&mut input, typed)
                .map_err(|error| format!("{name}: line {}: {error}", answered + 1))?;
            if lines.is_empty() {
                break;
            }
            let count = lines.len();
            let mut sentences = Vec::with_capacity(count);
            let mut report = |index: usize, problem: &dyn std::fmt::Display| {
                failed += 1;
                let line = answered + index + 1;
                eprintln!("{name}: line {line}: the sentence {problem}");
            };
            for (index, line) in lines.into_iter().enumerate() {
                sentences.push(match line {
                    Line::Sentence(sentence) => sentence,
                    Line::Unreadable(problem) => {
                        report(index, &problem);
                        String::new()
                    }
                });
            }
            if typed && self.streams() {
                self.stream(&translator, &sentences[0], &mut report, &mut output)?;
            } else {
                let translations = self.translate(&translator, &mut sentences, &mut report)?;
                for (index, (sentence, translations)) in
                    sentences.iter().zip(translations).enumerate()
                {
                    let line = answered + index + 1;
                    self.write(&translator, line, sentence, translations, &mut output)?;
                }
            }
            output.flush()?;
            answered += count;
            if !typed {
                progress.show(answered);
            }
        }
        progress.end(answered);
        match failed {
            0 => Ok(()),
            failed => Err(format!("{failed} of {answered} lines could not be translated").into()),
        }
    }
}

impl Translate {
    /// Translates what can be; a sentence that cannot is reported and made empty.
    fn translate<B: Backend>(
        &self,
        translator: &Translator<B>,
        sentences: &mut [String],
        report: &mut impl FnMut(usize, &dyn std::fmt::Display),
    ) -> Result<Vec<Vec<Translation>>, TextError> {
        loop {
            match translator.translate_n_best(sentences, &self.prefix) {
                Err(TextError::Decode(error)) => {
                    report(error.index, &error.problem);
                    sentences[error.index].clear();
                }
                other => return other,
            }
        }
    }

    /// Writes the translations of a line, whose fields are separated by tabs.
    fn write<B: Backend>(
        &self,
        translator: &Translator<B>,
        line: usize,
        sentence: &str,
        translations: Vec<Translation>,
        output: &mut impl Write,
    ) -> Result<(), Box<dyn Error>> {
        if self.n_best == 1 && translations.is_empty() {
            let fields = 1 + usize::from(self.scores) + usize::from(self.alignments);
            writeln!(output, "{}", "\t".repeat(fields - 1))?;
        }
        for translation in translations {
            let mut fields = Vec::new();
            if self.n_best > 1 {
                fields.push(line.to_string());
            }
            if self.scores {
                fields.push(format!("{:.4}", translation.hypothesis.score));
            }
            let text = &translation.text;
            fields.push(match self.has_fields() {
                true => text.replace('\t', " "),
                false => text.clone(),
            });
            if self.alignments {
                let pairs = translator.align(sentence, &translation)?;
                let pairs = pairs
                    .iter()
                    .map(|(source, target)| format!("{source}-{target}"));
                fields.push(pairs.collect::<Vec<_>>().join(" "));
            }
            writeln!(output, "{}", fields.join("\t"))?;
        }
        Ok(())
    }

    fn has_fields(&self) -> bool {
        self.n_best > 1 || self.scores || self.alignments
    }

    fn streams(&self) -> bool {
        self.decoding.is_greedy() && !self.has_fields() && self.prefix.is_empty()
    }

    /// Writes a translation while it grows.
    fn stream<B: Backend>(
        &self,
        translator: &Translator<B>,
        sentence: &str,
        report: &mut impl FnMut(usize, &dyn std::fmt::Display),
        output: &mut impl Write,
    ) -> Result<(), Box<dyn Error>> {
        let mut written = Ok(());
        let told = translator.stream(sentence, |text| {
            if written.is_ok() {
                written = write!(output, "{text}").and_then(|()| output.flush());
            }
        });
        match told {
            Ok(()) => {}
            Err(TextError::Decode(error)) => report(0, &error.problem),
            Err(error) => return Err(error.into()),
        }
        written?;
        Ok(writeln!(output)?)
    }
}

/// Says on standard error how far a long input has come.
struct Progress {
    start: Instant,
    shown: Option<Instant>,
    every: Duration,
    in_place: bool,
}

impl Progress {
    fn new() -> Self {
        let in_place = io::stderr().is_terminal() && !io::stdout().is_terminal();
        Self {
            start: Instant::now(),
            shown: None,
            every: Duration::from_secs(if in_place { 1 } else { 30 }),
            in_place,
        }
    }

    fn show(&mut self, lines: usize) {
        if self.shown.unwrap_or(self.start).elapsed() >= self.every {
            self.shown = Some(Instant::now());
            let end = if self.in_place { "\r" } else { "\n" };
            eprint!("{}{end}", self.line(lines));
        }
    }

    fn end(&self, lines: usize) {
        if self.shown.is_some() {
            eprintln!("{}", self.line(lines));
        }
    }

    fn line(&self, lines: usize) -> String {
        let seconds = self.start.elapsed().as_secs_f64();
        let rate = lines as f64 / seconds;
        format!("{lines} lines in {seconds:.0} s, {rate:.1} per second")
    }
}
