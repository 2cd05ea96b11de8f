//! `transformer translate`

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use clap::Args;
use transformer_core::decoding::{NextToken, Strategy};
use transformer_core::text::{TextError, Translation};
use transformer_core::{DecodeOptions, Translator};
use transformer_train::data::trimmed;

use super::decoding::Decoding;
use super::documents::Documents;
use super::inference::{Inference, Models, TranslatorTask};
use super::languages::UnknownLanguages;
use super::lines::{Lines, for_output};
use super::{Common, Result, next_refused, request_problem};
use crate::process::note;

const EXAMPLES: &str = "\
Examples:
  echo \"Where are you going?\" | transformer translate --model model
  transformer translate --model model --input sentences.txt > translations.txt
  transformer translate --model model --input sentences.txt --n-best 3 --scores
  transformer translate --model model --document page.html --out page.fr.html

  Use a pretrained model, in a directory as downloaded from the Hugging Face Hub (docs/guide/pretrained.md):
    echo \"Where are you going?\" | transformer translate --model opus-mt-en-fr
    echo \"Where are you going?\" | transformer translate --model nllb --source-lang eng_Latn --target-lang fra_Latn";

/// Translate text line by line.
///
/// Writes one line per input line, even for an empty line; with --n-best, one line per translation. Lines from a pipe
/// are translated as they arrive.
///
/// A line that cannot be translated gives an empty output line and an error message on standard error. The exit code is
/// then 1.
///
/// With --document, a whole document is translated, and its format is kept (docs/guide/documents.md).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Translate {
    /// Model directory; several form an ensemble, which averages their probabilities
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    model: Vec<PathBuf>,
    /// File of sentences, plain or gzip; `-` is standard input [default: -]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Print the N best translations per sentence, best first. If N is above 1, each line begins with the line number
    /// of its sentence. With --sample, these are N samples. An empty or untranslatable sentence gives one line without
    /// a translation
    #[arg(long, value_name = "N", default_value_t = 1)]
    n_best: usize,
    /// Text that every translation begins with
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Print the score before each translation
    #[arg(long)]
    scores: bool,
    /// Print alignments after each translation, in Pharaoh format (`source-target`, counted from 0): each target token
    /// with the source token most attended to while the target token was predicted
    #[arg(long)]
    alignments: bool,
    #[command(flatten)]
    documents: Documents,
    #[command(flatten)]
    inference: Inference,
    #[command(flatten)]
    decoding: Decoding,
}

impl Translate {
    /// Runs the command.
    pub fn run(self, common: &Common) -> Result {
        self.documents.check(&self.model)?;
        let (models, inference) = (self.model.clone(), self.inference.clone());
        let (decoding, n_best) = (self.decoding.clone(), self.n_best);
        let seed = common.seed.unwrap_or(0);
        let options = |of_model| decoding.over(of_model, n_best, seed);
        inference.run(common.target(), models, options, self)
    }
}

impl TranslatorTask for Translate {
    const TEXT_FLAG: Option<&'static str> = Some("for a file of sentences use --input");

    fn run_with<B: Backend>(self, models: Models<B>) -> Result {
        match models.packs() {
            true => self.answer(models.packed()?),
            false => self.answer(models.plain()?),
        }
    }
}

impl Translate {
    /// Writes the translations of each line.
    fn answer<M: NextToken>(&self, translator: Translator<M>) -> Result {
        if let Some(document) = self.documents.document() {
            let language = self.inference.source_language();
            return self.documents.translate(document, translator, language);
        }
        let translator = &translator;
        let mut lines = Lines::open(self.input.as_deref())?;
        let mut progress = Progress::new();
        let mut unknown = UnknownLanguages::default();
        lines.answer(|lines, texts, output| {
            // A line that could not be read is translated as an empty one.
            let texts = texts.iter().map(|text| text.as_deref().unwrap_or_default());
            let mut sentences: Vec<String> = texts.map(|text| trimmed(text).to_owned()).collect();
            for (index, sentence) in sentences.iter().enumerate() {
                unknown.check(translator.tokenizers(), sentence, || lines.place(index));
            }
            if lines.are_typed() && self.streams(translator.options()) {
                return self.stream(translator, &sentences[0], lines, output);
            }
            let translations = self.translate(translator, &mut sentences, lines)?;
            for (index, translations) in translations.into_iter().enumerate() {
                let line = lines.number(index);
                let sentence = &sentences[index];
                self.write(translator, line, sentence, translations, output)?;
            }
            if !lines.are_typed() {
                progress.show(lines.read());
            }
            Ok(())
        })?;
        progress.end(lines.read());
        Ok(lines.finish("translated")?)
    }

    /// Translates the sentences; one that cannot be translated is reported and made empty.
    fn translate<M: NextToken>(
        &self,
        translator: &Translator<M>,
        sentences: &mut [String],
        lines: &mut Lines,
    ) -> std::result::Result<Vec<Vec<Translation>>, TextError> {
        loop {
            let mut refused = match translator.translate_n_best(sentences, &self.prefix) {
                Err(TextError::Decode(error)) => error,
                translated => return translated,
            };
            // Further refused sentences are found by checking each sentence once. Translating all sentences again after
            // each refusal would take quadratic time.
            loop {
                let index = refused.index;
                let problem = request_problem("the sentence", &refused.problem);
                lines.report(index, &problem);
                sentences[index].clear();
                let check = |sentence: &String| translator.check(&[sentence], &self.prefix);
                match next_refused(sentences, index + 1, check)? {
                    Some(next) => refused = next,
                    None => break,
                }
            }
        }
    }

    /// Writes the translations of a line in tab-separated fields.
    fn write<M: NextToken>(
        &self,
        translator: &Translator<M>,
        line: usize,
        sentence: &str,
        translations: Vec<Translation>,
        output: &mut impl Write,
    ) -> Result {
        if translations.is_empty() {
            let number = match self.n_best {
                1 => String::new(),
                _ => format!("{line}\t"),
            };
            let fields = usize::from(self.scores) + usize::from(self.alignments);
            writeln!(output, "{number}{}", "\t".repeat(fields))?;
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
            let text = match self.has_fields() {
                true => &text.replace('\t', " "),
                false => text,
            };
            fields.push(for_output(text).into_owned());
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

    /// Whether translations can be streamed: each token is final as soon as it is decoded, and no field precedes the
    /// text.
    fn streams(&self, options: &DecodeOptions) -> bool {
        let is_certain = match options.strategy {
            Strategy::Beam { size } => size == 1,
            Strategy::Sample(_) => true,
        };
        is_certain && !self.has_fields()
    }

    /// Writes a translation while it grows.
    fn stream<M: NextToken>(
        &self,
        translator: &Translator<M>,
        sentence: &str,
        lines: &mut Lines,
        output: &mut impl Write,
    ) -> Result {
        let mut written = Ok(());
        let streamed = translator.stream(sentence, &self.prefix, |text| {
            written = write!(output, "{}", for_output(text)).and_then(|()| output.flush());
            match written {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        match streamed {
            Ok(()) => {}
            Err(TextError::Decode(error)) => {
                let problem = request_problem("the sentence", &error.problem);
                lines.report(0, &problem);
            }
            Err(error) => return Err(error.into()),
        }
        written?;
        Ok(writeln!(output)?)
    }
}

/// Reports the progress of a long input on standard error.
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
            // A closed pipe is not an error.
            let end = if self.in_place { "\r" } else { "\n" };
            let _ = write!(io::stderr(), "{}{end}", self.line(lines));
        }
    }

    fn end(&self, lines: usize) {
        if self.shown.is_some() {
            note(self.line(lines));
        }
    }

    fn line(&self, lines: usize) -> String {
        let seconds = self.start.elapsed().as_secs_f64();
        let rate = lines as f64 / seconds;
        format!("{lines} lines in {seconds:.0} s, {rate:.1} per second")
    }
}
