//! `transformer attention`

use std::io::{self, Write};
use std::path::PathBuf;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use clap::{Args, ValueEnum};
use transformer_core::decoding::SourceTarget;
use transformer_core::text::Tokenizer;
use transformer_train::progress::printable;

use super::attention_picture::{Map, Picture};
use super::{check, save};
use crate::commands::inference::{Inference, Models, TranslatorTask};
use crate::commands::languages::Languages;
use crate::commands::{Common, Result, check_lengths};

const EXAMPLES: &str = "\
Examples:
  transformer attention --model model --source \"Where are you?\"
  transformer attention --model model --source \"Where are you?\" --layer 3 --head 4 --out head.png
  transformer attention --model model --source \"Where is he?\" --target \"Où est-il ?\" --kind decoder";

/// Draw the attention weights of a sentence and its translation, as in the paper's appendix.
///
/// Each row is a token that attends, and each column a token that is attended to. The darker a cell, the larger the
/// weight.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Attention {
    /// Model directory
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Source sentence
    #[arg(long, value_name = "TEXT")]
    source: String,
    /// Target sentence [default: the model's translation]
    #[arg(long, value_name = "TEXT")]
    target: Option<String>,
    /// Kind of attention
    #[arg(long, value_enum, default_value_t = Kind::Cross)]
    kind: Kind,
    /// Layer, from 1 [default: all]
    #[arg(long, value_name = "N")]
    layer: Option<usize>,
    /// Head, from 1 [default: all]
    #[arg(long, value_name = "N")]
    head: Option<usize>,
    /// Output file, .svg or .png
    #[arg(long, value_name = "FILE", default_value = "attention.svg")]
    out: PathBuf,
    #[command(flatten)]
    languages: Languages,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Encoder self-attention
    Encoder,
    /// Decoder self-attention
    Decoder,
    /// Cross-attention, from the target to the source
    Cross,
}

/// The maximum number of tokens of a sentence without special tokens. A larger picture could not be read.
const MOST_TOKENS: usize = 256;

impl Attention {
    /// Runs the command.
    pub fn run(self, common: &Common) -> Result {
        // Checked before the model is loaded.
        check(&self.out)?;
        let (models, languages) = (vec![self.model.clone()], self.languages.clone());
        Inference::between(languages).run(common.target(), models, Ok, self)
    }
}

impl TranslatorTask for Attention {
    const TEXT_FLAG: Option<&'static str> = None;

    fn run_with<B: Backend>(self, models: Models<B>) -> Result {
        let translator = models.plain()?;
        let (model, tokenizers) = (translator.model(), translator.tokenizers());
        let target = match &self.target {
            Some(target) => target.clone(),
            None => translator.translate(&self.source)?,
        };
        let shown = [&self.source, &target].map(|text| printable(text).into_owned());
        let source = tokenizers.encode_source(self.source.trim())?;
        let target = tokenizers.encode_target(target.trim())?;
        check_lengths(source.len(), target.len(), MOST_TOKENS)?;
        let maps = model.attention_maps(&SourceTarget::new(source, target))?;

        let names = |tokens: &[u32], tokenizer: &Tokenizer| -> Vec<String> {
            tokens.iter().map(|&token| name(tokenizer, token)).collect()
        };
        let source = names(&maps.source, tokenizers.source());
        let target = names(&maps.target, tokenizers.target());
        let (maps, rows, columns) = match self.kind {
            Kind::Encoder => (maps.encoder, &source, &source),
            Kind::Decoder => (maps.decoder, &target, &target),
            Kind::Cross => (maps.cross, &target, &source),
        };
        let maps = self.chosen(maps)?;
        save(&Picture::new(rows, columns, &maps), &self.out)?;
        Ok(writeln!(
            io::stdout(),
            "{}\n{}: {} maps",
            shown.join("\n"),
            self.out.display(),
            maps.len()
        )?)
    }
}

/// The text of a token, without the space before it.
fn name(tokenizer: &Tokenizer, token: u32) -> String {
    match tokenizer.token(token).trim() {
        // `Ġ` is a space in byte-level vocabularies.
        "" | "Ġ" => "␣".into(),
        name => name.into(),
    }
}

impl Attention {
    /// The maps of the chosen layer and head, or of all.
    fn chosen<B: Backend>(
        &self,
        layers: Vec<Tensor<B, 4>>,
    ) -> std::result::Result<Vec<Map>, String> {
        let Some(first) = layers.first() else {
            return Err(
                "--kind decoder: the model's decoder has a recurrence instead of self-attention"
                    .into(),
            );
        };
        let n_heads = first.dims()[1];
        for (name, chosen, most) in [
            ("--layer", self.layer, layers.len()),
            ("--head", self.head, n_heads),
        ] {
            if let Some(chosen) = chosen.filter(|chosen| !(1..=most).contains(chosen)) {
                return Err(format!("{name} {chosen}: must be between 1 and {most}"));
            }
        }
        let mut maps = Vec::new();
        for (layer, weights) in layers.into_iter().enumerate() {
            for (head, weights) in weights.split(1, 1).into_iter().enumerate() {
                let (layer, head) = (layer + 1, head + 1);
                let is_chosen = self.layer.is_none_or(|chosen| chosen == layer)
                    && self.head.is_none_or(|chosen| chosen == head);
                if is_chosen {
                    let weights = weights.into_data().iter().collect();
                    maps.push(Map {
                        layer,
                        head,
                        weights,
                    });
                }
            }
        }
        Ok(maps)
    }
}
