//! `transformer export`

use std::fs;
use std::path::PathBuf;

use burn::tensor::backend::Backend;
use clap::{Args, ValueEnum};
use transformer_core::formats::CTranslate2Export;
use transformer_core::text::Tokenizer;
use transformer_core::{DecodeOptions, LanguageModel, ModelDirectory, Tokenizers, Transformer};

use super::languages::Languages;
use super::{Common, Result, check_empty, clear, directory_to_write, model_directory, print};
use crate::backend::{BackendTask, run_on};

const EXAMPLES: &str = "\
Examples:
  Fine-tune a pretrained model, and export it:
    transformer train --init opus-mt-en-fr --data examples/data/tatoeba.en-fr.tsv.gz --out tuned
    transformer export --model tuned --out tuned-hf
    python3 -c \"from transformers import MarianMTModel; MarianMTModel.from_pretrained('tuned-hf')\"

  Write a model in 8 bits for CTranslate2:
    transformer export --model model --format ctranslate2 --int8 --out model-ct2";

/// Write a model in the format of Hugging Face's `transformers` or of CTranslate2.
///
/// For Hugging Face, the model must be a Marian, M2M100 (NLLB), BART, mBART, T5 or GPT-2 model: pretrained, fine-tuned
/// from one, or trained from scratch with the configuration of one. The output directory contains the configuration,
/// the weights in single precision, the decoding options and the tokenizers. `from_pretrained` loads it, and the loaded
/// model computes the same results.
///
/// For CTranslate2, the model must be an encoder–decoder without rotary positions, ALiBi or a recurrence. The output
/// directory contains the weights, the vocabularies, and the tokenizers. Programs that use CTranslate2 tokenize
/// and detokenize texts themselves; they need not append the end-of-sentence token to a source.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Export {
    /// Model directory
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Output directory, new or empty
    #[arg(long, value_name = "DIR", value_parser = directory_to_write())]
    out: PathBuf,
    /// Format of the output directory
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    format: Format,
    /// Write matrices as 8-bit integers (only with --format ctranslate2)
    #[arg(long)]
    int8: bool,
    #[command(flatten)]
    languages: Languages,
}

/// A format of other software.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Format {
    /// Hugging Face's `transformers`
    #[default]
    HuggingFace,
    /// CTranslate2, version 4
    Ctranslate2,
}

impl Export {
    /// Runs the command.
    pub fn run(self, common: &Common) -> Result {
        model_directory::check(&self.model, None)?;
        check_empty(&self.out)?;
        let directory = model_directory::open(&self.model)?;
        // Checked before weights are read, so that the error names the model's own file. Writing would name the file in
        // the new directory.
        match self.format {
            Format::HuggingFace if self.int8 => {
                return Err("--int8 is only for --format ctranslate2".into());
            }
            Format::HuggingFace => directory.config().check_hugging_face(&self.model)?,
            Format::Ctranslate2 => directory.config().check_ctranslate2(&self.model)?,
        }
        let export = Opened {
            export: self,
            directory,
        };
        run_on(common.target(), export)?
    }
}

/// The command with its opened model directory.
struct Opened {
    export: Export,
    directory: ModelDirectory,
}

impl BackendTask for Opened {
    type Output = Result;

    fn run<B: Backend>(self, device: B::Device) -> Result {
        let Self { export, directory } = self;
        let tokenizers = Tokenizers::of(directory.files())?;
        let tokenizers = export.languages.of_tokenizers(tokenizers)?;
        let config = directory.config();
        let sizes = [config.src_vocab_size, config.tgt_vocab_size];
        let check = || tokenizers.check(sizes, config.special_tokens(), directory.path());
        let out = &export.out;
        let is_new = !out.exists();
        let written = match config.is_language_model() {
            true => {
                let model: LanguageModel<B> = directory.language_model(&device)?;
                check()?;
                export.write(
                    &tokenizers,
                    &directory,
                    || Ok(model.save_hugging_face(out)?),
                )
            }
            false => {
                let model: Transformer<B> = directory.transformer(&device)?;
                check()?;
                export.write(&tokenizers, &directory, || match export.format {
                    Format::HuggingFace => Ok(model.save_hugging_face_as(out, &directory)?),
                    Format::Ctranslate2 => export.write_ctranslate2(&tokenizers, &model),
                })
            }
        };
        if written.is_err() {
            // The first error is the one to report.
            let _ = clear(&export.out, is_new);
        }
        written?;
        print(&format!("model: {}", export.out.display()))
    }
}

impl Export {
    /// Writes all files into the directory. The tokenizers come first, because a directory without them is not a model.
    /// `save` writes the model.
    fn write(
        &self,
        tokenizers: &Tokenizers,
        directory: &ModelDirectory,
        save: impl FnOnce() -> Result,
    ) -> Result {
        let options = directory.options()?;
        fs::create_dir_all(&self.out)
            .map_err(|error| format!("{}: {error}", self.out.display()))?;
        tokenizers.save(&self.out)?;
        save()?;
        if self.format == Format::Ctranslate2 {
            return Ok(());
        }
        if let Some(options) = options {
            let options = DecodeOptions {
                forced_first: tokenizers.target_first().or(options.forced_first),
                ..options
            };
            options.save(&self.out, directory.config())?;
        }
        match Tokenizers::are_in(&self.out) {
            true => Ok(()),
            // The model was written into a new directory of the same name.
            false => Err(format!("{} was removed while it was written", self.out.display()).into()),
        }
    }

    fn write_ctranslate2<B: Backend>(
        &self,
        tokenizers: &Tokenizers,
        model: &Transformer<B>,
    ) -> Result {
        let config = model.config();
        let source = names(tokenizers.source(), config.src_vocab_size);
        let target = names(tokenizers.target(), config.tgt_vocab_size);
        let export = CTranslate2Export {
            source: &source,
            target: &target,
            int8: self.int8,
        };
        Ok(model.save_ctranslate2(&self.out, export)?)
    }
}

/// The names of a vocabulary's tokens, of which the tokenizer may have fewer. Hugging Face's `ByT5Tokenizer` names a byte
/// by the character with its number.
fn names(tokenizer: &Tokenizer, vocab_size: usize) -> Vec<String> {
    let name = |id: u32| match (tokenizer.byte(id), tokenizer.name(id)) {
        (Some(byte), _) => char::from(byte).to_string(),
        (None, name) if name.is_empty() => format!("<unused_{id}>"),
        (None, name) => name,
    };
    (0..vocab_size as u32).map(name).collect()
}
