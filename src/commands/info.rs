//! `transformer info`

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;
use transformer_core::text::TextError;
use transformer_core::{DecodeOptions, ModelDirectory, Tokenizers, TransformerConfig};
use transformer_train::progress::printable;
use transformer_train::run::{KeptModel, RunRecord};
use transformer_train::validation::AverageOutcome;

use super::decoding::flags_of;
use super::model_directory::{has_tokenizers, no_model};
use super::{Result, mib, print, validation_line, validation_numbers};
use crate::backend::BackendChoice;

const EXAMPLES: &str = "\
Examples:
  transformer info model
  transformer info model/checkpoints/update-00005000
  transformer info --devices";

/// Describe a model directory or a training run.
///
/// Prints the model, its tokenizer, the files, and the training run that made them. Of the configuration keys, it lists
/// those that differ from the paper's base model (a language model is compared with the base model's decoder), with the
/// base model's values in parentheses. It shows the decoding options in generation_config.json as the equivalent flags.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Info {
    /// Directory of a model or a training run
    #[arg(value_name = "DIR", required_unless_present = "devices")]
    directory: Option<PathBuf>,
    /// List the devices of each backend that is compiled in, by the names that --device accepts
    #[arg(long, conflicts_with = "directory")]
    devices: bool,
}

impl Info {
    /// Runs the command.
    pub fn run(self) -> Result {
        let Some(directory) = &self.directory else {
            return print(&devices());
        };
        let has_model = ModelDirectory::is_in(directory);
        // An archive has no run.
        let record = match directory.is_file() {
            true => None,
            false => RunRecord::load(directory)?,
        };
        if !has_model && record.is_none() {
            return Err(no_model(directory, None).into());
        }
        let mut text = String::new();
        if has_model {
            let directory = ModelDirectory::open(directory)?;
            model(&mut text, &directory)?;
            tokenizer(&mut text, directory.path(), || {
                Tokenizers::of(directory.files())
            })?;
            decoding(&mut text, directory.options()?)?;
            files(&mut text, directory.path())?;
        } else {
            tokenizer(&mut text, directory, || Tokenizers::load(directory))?;
            decoding(&mut text, DecodeOptions::of_directory(directory)?)?;
            files(&mut text, directory)?;
        }
        if let Some(record) = record {
            run(&mut text, &record)?;
        }
        print(&text)
    }
}

/// A line per device.
fn devices() -> String {
    let mut text = String::new();
    for backend in BackendChoice::value_variants() {
        match backend.devices().as_slice() {
            [] => _ = writeln!(text, "{backend:<8}none"),
            found => found
                .iter()
                .for_each(|device| _ = writeln!(text, "{backend:<8}{device}")),
        }
    }
    text
}

/// A configuration as it is printed.
struct Model {
    name: &'static str,
    sizes: String,
    vocabulary: String,
    parameters: u128,
    /// What the configuration is compared with.
    reference: &'static str,
    differences: Vec<Difference>,
}

/// A key in which a configuration differs from its reference, and both values.
type Difference = (String, String, String);

impl Model {
    fn of(config: &TransformerConfig) -> Result<Self> {
        match config.is_language_model() {
            true => Self::language_model(config),
            false => Self::transformer(config),
        }
    }

    fn transformer(config: &TransformerConfig) -> Result<Self> {
        Ok(Self {
            name: "encoder-decoder Transformer",
            sizes: format!(
                "d_model {}, d_ff {}, {} heads, {} + {} layers",
                config.d_model,
                match (config.d_ff, config.decoder_d_ff()) {
                    (encoder, decoder) if encoder == decoder => encoder.to_string(),
                    (encoder, decoder) => format!("{encoder} + {decoder}"),
                },
                config.n_heads,
                config.n_encoder_layers,
                config.n_decoder_layers
            ),
            vocabulary: match (config.src_vocab_size, config.tgt_vocab_size) {
                (src, tgt) if src == tgt => format!("{src} pieces for source and target"),
                (src, tgt) => format!("{src} pieces for the source, {tgt} for the target"),
            },
            parameters: config.num_params(),
            reference: "the paper's base model",
            differences: differences(config, &TransformerConfig::base(config.src_vocab_size))?,
        })
    }

    fn language_model(config: &TransformerConfig) -> Result<Self> {
        Ok(Self {
            name: "language model",
            sizes: format!(
                "d_model {}, d_ff {}, {} heads, {} layers",
                config.d_model, config.d_ff, config.n_heads, config.n_decoder_layers
            ),
            vocabulary: format!("{} pieces", config.tgt_vocab_size),
            parameters: config.num_params(),
            reference: "the decoder of the paper's base model",
            differences: differences(
                config,
                &TransformerConfig::language_model(config.tgt_vocab_size),
            )?,
        })
    }
}

fn model(text: &mut String, directory: &ModelDirectory) -> Result {
    let Model {
        name,
        sizes,
        vocabulary,
        parameters,
        reference,
        differences,
    } = Model::of(directory.config())?;
    writeln!(text, "{name}")?;
    writeln!(text, "  sizes        {sizes}")?;
    writeln!(text, "  vocabulary   {vocabulary}")?;
    writeln!(
        text,
        "  parameters   {parameters}, {:.1} MiB in 32 bits",
        mib(parameters * 4)
    )?;
    writeln!(text, "  format       {}", directory.format())?;
    if differences.is_empty() {
        writeln!(text, "  otherwise the same as {reference}")?;
    } else {
        writeln!(text, "  differences from {reference}")?;
    }
    for (key, ours, base) in differences {
        writeln!(text, "    {key} = {ours} ({base})")?;
    }
    Ok(())
}

/// The keys in which a configuration differs from its reference, `base`. The vocabulary sizes are skipped, because they
/// depend on the data.
fn differences<T: Serialize>(config: &T, base: &T) -> Result<Vec<Difference>> {
    let (ours, base) = (serde_json::to_value(config)?, serde_json::to_value(base)?);
    let keys = |value: &Value| -> Vec<String> {
        value
            .as_object()
            .map_or(Vec::new(), |map| map.keys().cloned().collect())
    };
    let mut all = keys(&ours);
    all.extend(keys(&base));
    all.sort();
    all.dedup();
    let show = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "not given".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    Ok(all
        .into_iter()
        .filter(|key| !key.ends_with("vocab_size") && ours.get(key) != base.get(key))
        .map(|key| {
            let (ours, base) = (show(ours.get(&key)), show(base.get(&key)));
            (key, ours, base)
        })
        .collect())
}

fn tokenizer(
    text: &mut String,
    directory: &Path,
    load: impl FnOnce() -> std::result::Result<Tokenizers, TextError>,
) -> Result {
    if !has_tokenizers(directory) {
        return Ok(writeln!(text, "no tokenizer")?);
    }
    // An error if a file is damaged.
    let tokenizers = load()?;
    let (source, target) = (tokenizers.source(), tokenizers.target());
    let sides = match tokenizers.are_shared() {
        true => vec![(source, "source and target")],
        false => vec![(source, "the source"), (target, "the target")],
    };
    writeln!(text, "tokenizer")?;
    for (tokenizer, side) in sides {
        let (kind, pieces) = (tokenizer.model_type(), tokenizer.vocab_size());
        writeln!(text, "  {kind}, {pieces} pieces, for {side}")?;
        let languages = tokenizer.languages();
        if !languages.is_empty() {
            writeln!(text, "    languages: {}", languages.join(", "))?;
        }
    }
    Ok(())
}

fn decoding(text: &mut String, options: Option<DecodeOptions>) -> Result {
    if let Some(options) = options {
        writeln!(text, "decoding, unless flags override it")?;
        for flag in flags_of(&options) {
            writeln!(text, "  {flag}")?;
        }
        if options.shortlist.is_some() {
            writeln!(
                text,
                "  a shortlist of target tokens, unless --shortlist none"
            )?;
        }
    }
    Ok(())
}

fn files(text: &mut String, directory: &Path) -> Result {
    let named = |error: io::Error| format!("{}: {error}", directory.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(named)? {
        let entry = entry.map_err(named)?;
        // Links are followed; broken links are skipped.
        if let Ok(about) = fs::metadata(entry.path())
            && about.is_file()
        {
            let name = entry.file_name().display().to_string();
            files.push((printable(&name).into_owned(), about.len()));
        }
    }
    files.sort();
    writeln!(text, "files")?;
    for (name, bytes) in files {
        writeln!(text, "  {bytes:>12} bytes  {name}")?;
    }
    Ok(())
}

fn run(text: &mut String, record: &RunRecord) -> Result {
    writeln!(text, "training run")?;
    writeln!(
        text,
        "  {} updates of {}, {:.0} s, on {} examples",
        record.updates, record.config.updates, record.seconds, record.examples
    )?;
    for checkpoint in &record.checkpoints {
        // A run in progress may have removed it since.
        let Ok(bytes) = directory_size(checkpoint) else {
            continue;
        };
        let name = checkpoint.file_name().unwrap_or_default().display();
        writeln!(text, "  checkpoint {name}, {:.1} MiB", mib(bytes.into()))?;
    }
    for validation in &record.validations {
        writeln!(text, "  {}", validation_line(validation))?;
    }
    for average in &record.averages {
        writeln!(text, "  {}", average_line(average))?;
    }
    // The model of a checkpoint is its own.
    if !record.checkpoints.is_empty()
        && let Some(kept) = record.kept_model()
    {
        let by = record.kept_by();
        writeln!(text, "  kept model: {} (by {by})", name_of(kept))?;
    }
    Ok(())
}

/// The line that shows the average of a run's last checkpoints.
fn average_line(average: &AverageOutcome) -> String {
    let kept = match average.kept {
        true => "",
        false => " (not kept)",
    };
    let name = name_of(KeptModel::Average(average));
    let numbers = validation_numbers(&average.validation);
    format!("{name}{kept}  {numbers}")
}

fn name_of(model: KeptModel<'_>) -> String {
    match model {
        KeptModel::Validation(validation) => format!("update {}", validation.update),
        KeptModel::Average(average) => {
            let updates: Vec<_> = average.checkpoints.iter().map(usize::to_string).collect();
            format!("average of updates {}", updates.join(", "))
        }
    }
}

fn directory_size(directory: &Path) -> Result<u64> {
    let named = |error: io::Error| format!("{}: {error}", directory.display());
    let mut bytes = 0;
    for entry in fs::read_dir(directory).map_err(named)? {
        bytes += entry
            .and_then(|entry| entry.metadata())
            .map_err(named)?
            .len();
    }
    Ok(bytes)
}
