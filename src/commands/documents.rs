//! The flags of `translate` for whole documents.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use transformer_core::Translator;
use transformer_core::decoding::NextToken;
use transformer_text::{Format, Glossary, TextTranslator, language_code};
use transformer_train::data::is_standard_stream;

use super::lines::for_output;
use super::{Result, check_output, model_directory, refuse_overwriting, write_file};
use crate::process::{note, read_regular};

/// Flags for whole documents.
#[derive(Debug, Clone, Default, Args)]
pub struct Documents {
    /// Translate this document instead of lines, and keep its format: markup, placeholders, URLs, e-mail addresses,
    /// line breaks; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "n_best", "prefix", "scores", "alignments"])]
    document: Option<PathBuf>,
    /// Format of the document: text, html, xml, markdown, srt, vtt, tsv (its first column; tsv:2, its second), po
    /// [default: what the name of the file says, else text]
    #[arg(long, value_name = "NAME", requires = "document")]
    format: Option<Format>,
    /// File to write the translated document to; `-` is standard output [default: -]
    #[arg(long, value_name = "FILE", requires = "document")]
    out: Option<PathBuf>,
    /// File of terms and the translations to use for them in the document. Each line has a term, a tab and its
    /// translation
    #[arg(long, value_name = "FILE", requires = "document")]
    glossary: Option<PathBuf>,
    /// Language of the document, such as de, whose rules are used to split it into sentences [default: --source-lang,
    /// else English]
    #[arg(long, value_name = "CODE", requires = "document")]
    document_lang: Option<String>,
}

impl Documents {
    /// The document to translate, if one is given.
    pub fn document(&self) -> Option<&Path> {
        self.document.as_deref()
    }

    /// Checks the language, and what is read and written, before a model is loaded.
    pub fn check(&self, models: &[PathBuf]) -> Result {
        if let Some(language) = &self.document_lang
            && language_code(language).is_none()
        {
            return Err(
                format!("--document-lang {language}: must be a language code, such as de").into(),
            );
        }
        if let Some(out) = self.file_to_write() {
            let mut read: Vec<PathBuf> = models
                .iter()
                .flat_map(|model| model_directory::files(model))
                .collect();
            read.extend(self.document.iter().chain(&self.glossary).cloned());
            refuse_overwriting(&read, out)?;
            check_output(out)?;
        }
        Ok(())
    }

    /// The file to write; `None` for standard output.
    fn file_to_write(&self) -> Option<&Path> {
        let out = self.out.as_deref();
        out.filter(|out| !is_standard_stream(out))
    }

    /// Translates the document. What deserves attention is noted on standard error.
    pub fn translate<M: NextToken>(
        &self,
        document: &Path,
        translator: Translator<M>,
        language: Option<&str>,
    ) -> Result {
        let format = self.format.unwrap_or_else(|| Format::of_file(document));
        let text = read(document)?;
        let mut translator = TextTranslator::new(translator);
        if let Some(path) = &self.glossary {
            let glossary = Glossary::parse(&read(path)?);
            let glossary = glossary.map_err(|error| format!("{}: {error}", path.display()))?;
            translator = translator.with_glossary(glossary);
        }
        if let Some(language) = self.document_lang.as_deref().or(language) {
            translator = translator.with_language(language);
        }
        let translated = translator.translate(&text, format)?;
        for noted in &translated.report.notes {
            note(noted);
        }
        if translated.report.sentences == 0 && !text.trim().is_empty() {
            note(format_args!(
                "{}: nothing in it is to be translated",
                document.display()
            ));
        }
        match self.file_to_write() {
            Some(out) => {
                let written = write_file(out, &translated.text);
                written.map_err(|error| format!("{}: {error}", out.display()))?;
                let sentences = translated.report.sentences;
                note(format_args!(
                    "{}: {sentences} sentences translated",
                    out.display()
                ));
                Ok(())
            }
            None => {
                let mut output = io::stdout().lock();
                // Lines are kept, also on a terminal.
                for line in translated.text.split_inclusive('\n') {
                    let content = line.trim_end_matches('\n');
                    output.write_all(for_output(content).as_bytes())?;
                    output.write_all(&line.as_bytes()[content.len()..])?;
                }
                Ok(output.flush()?)
            }
        }
    }
}

/// The text of a file, or of standard input.
fn read(path: &Path) -> std::result::Result<String, String> {
    let bytes = match path == Path::new("-") {
        true => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
        }
        false => read_regular(path),
    };
    let named = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let bytes = bytes.map_err(|error| named(&error))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|&&byte| byte == b'\n').count();
        named(&format_args!("line {line} is not UTF-8"))
    })
}
