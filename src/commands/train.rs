//! `transformer train`

mod data;
mod dry_run;
#[expect(dead_code, reason = "called for the `[init]` of a run's file")]
mod init;
mod signals;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use burn::tensor::backend::Backend;
use burn::train::Interrupter;
use burn_autodiff::Autodiff;
use clap::{Args, ValueEnum};
use transformer_core::TransformerConfig;
use transformer_program::{BackendTask, run_on};
use transformer_train::{
    ProgressDisplay, StopReason, Trained, Trainer, TrainingConfig, holds_model,
};

use self::data::{Data, Prepared};
use self::signals::stop_on_signals;
use super::{Common, Result, train_error, validation_line};

const EXAMPLES: &str = "\
Examples:
  Two text files, line n of one translating line n of the other:
    transformer train --parallel train.en train.fr --out model

  One file of `source<TAB>target` lines; a dry run, then the run, then twice as long:
    transformer train --data examples/data/tatoeba.en-fr.tsv.gz --dry-run
    transformer train --data examples/data/tatoeba.en-fr.tsv.gz --out model
    transformer train --data examples/data/tatoeba.en-fr.tsv.gz --out model --updates 10000 --resume

  A few minutes of the smallest model:
    transformer train --data pairs.tsv --out model --preset tiny --minutes 5";

/// Trains a model on sentence pairs and keeps the best one in a directory.
///
/// Reads the pairs, holds some out for validation, and trains first a tokenizer, then a model on the others.
/// Ctrl-C or SIGTERM ends the run after the current update, with a checkpoint that --resume goes on from; a
/// second one ends it at once.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Train {
    /// Directory for the model, its tokenizer, its pairs and its checkpoints
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// Continue from the newest checkpoint in --out
    #[arg(long, requires = "out")]
    resume: bool,
    /// Read and prepare everything, report pairs, batches, parameters and memory, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Plain lines, even in a terminal
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    recipe: Recipe,
}

/// Flags of the model and of its training.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model and training")]
struct Recipe {
    /// Size of the model
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Preset::Small)]
    preset: Preset,
    /// Tokens of a batch, on each side
    #[arg(long, value_name = "N", default_value_t = 2048)]
    batch_tokens: usize,
    /// Batches whose gradients make one update
    #[arg(long, value_name = "N", default_value_t = 1)]
    batches_per_update: usize,
    /// Updates in which the learning rate rises
    #[arg(long, value_name = "N", default_value_t = 800)]
    warmup: usize,
    /// Learning rate at the end of the warm-up [default: the paper's, 1 / √(d_model · warmup)]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    peak_rate: Option<f64>,
    /// Updates to train for
    #[arg(long, value_name = "N", default_value_t = 5000)]
    updates: usize,
    /// Minutes to train for, at most
    #[arg(long, value_name = "M", allow_negative_numbers = true)]
    minutes: Option<f64>,
    /// Updates from one validation and checkpoint to the next
    #[arg(long, value_name = "N", default_value_t = 500)]
    validate_every: usize,
    /// Checkpoints kept, the newest ones
    #[arg(long, value_name = "N", default_value_t = 2)]
    keep_checkpoints: usize,
}

/// Sizes of model. All share one vocabulary and one embedding matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Preset {
    /// d_model 128, 2 + 2 layers
    Tiny,
    /// d_model 128, 4 + 4 layers, dropout 0.3 everywhere: for some 30 000 pairs
    Multi30k,
    /// d_model 256, 3 + 3 layers
    Small,
    /// The paper's base model: d_model 512, 6 + 6 layers
    Base,
    /// The paper's big model: d_model 1024, 6 + 6 layers
    Big,
}

impl Preset {
    fn config(self, vocab_size: usize) -> TransformerConfig {
        let base = TransformerConfig::base(vocab_size);
        // The final norms, biases and dropout that torch.nn.Transformer has and the paper lacks help small
        // models on little text.
        let small = TransformerConfig {
            final_norm: true,
            attention_bias: true,
            attention_dropout: 0.1,
            activation_dropout: 0.1,
            ..base.clone()
        };
        match self {
            Self::Tiny => TransformerConfig {
                d_model: 128,
                n_heads: 4,
                d_ff: 512,
                n_encoder_layers: 2,
                n_decoder_layers: 2,
                ..small
            },
            Self::Multi30k => TransformerConfig {
                d_model: 128,
                n_heads: 4,
                d_ff: 256,
                n_encoder_layers: 4,
                n_decoder_layers: 4,
                dropout: 0.3,
                attention_dropout: 0.3,
                activation_dropout: 0.3,
                ..small
            },
            Self::Small => TransformerConfig {
                d_model: 256,
                n_heads: 4,
                d_ff: 1024,
                n_encoder_layers: 3,
                n_decoder_layers: 3,
                ..small
            },
            Self::Base => base,
            Self::Big => TransformerConfig::big(vocab_size),
        }
    }
}

impl Train {
    /// Runs the command.
    pub fn run(self, common: Common) -> Result {
        // Before anything is read: a run that cannot start, or would overwrite a model, ends here.
        let new_run = self.out.as_deref().filter(|_| !self.resume);
        if let Some(out) = new_run.filter(|out| holds_model(out)) {
            return Err(format!(
                "{} already holds a model; add --resume to go on with it, or choose another --out",
                out.display()
            )
            .into());
        }
        self.data.check(new_run)?;
        let run = self.recipe.training_config(common.seed)?;
        run.validate().map_err(train_error)?;
        let max_duration = self.recipe.max_duration()?;

        let resumed = self.out.as_deref().filter(|_| self.resume);
        let prepared = self.data.prepare(run.batch_tokens, resumed, common.seed)?;
        let vocab_size = prepared.tokenizers.source().vocab_size();
        let model = self.recipe.preset.config(vocab_size);
        match self.out {
            Some(out) if !self.dry_run => run_on(
                common.backend,
                Run {
                    prepared,
                    model,
                    run,
                    max_duration,
                    out,
                    resume: self.resume,
                    display: match self.plain {
                        true => ProgressDisplay::Lines,
                        false => ProgressDisplay::Auto,
                    },
                },
            )?,
            _ => {
                let report = dry_run::report(&prepared, &model, &run)?;
                Ok(io::stdout().write_all(report.as_bytes())?)
            }
        }
    }
}

impl Recipe {
    fn training_config(&self, seed: u64) -> std::result::Result<TrainingConfig, String> {
        if let Some(rate) = self
            .peak_rate
            .filter(|rate| !(*rate > 0.0 && rate.is_finite()))
        {
            return Err(format!("--peak-rate {rate}: must be positive and finite"));
        }
        // The width of a model does not depend on its vocabulary.
        let d_model = self.preset.config(1).d_model;
        let paper_peak = (d_model as f64 * self.warmup as f64).sqrt().recip();
        Ok(TrainingConfig {
            seed,
            batch_tokens: self.batch_tokens,
            batches_per_update: self.batches_per_update,
            warmup: self.warmup,
            learning_rate_factor: self.peak_rate.map_or(1.0, |peak| peak / paper_peak),
            updates: self.updates,
            validate_every: self.validate_every,
            keep_checkpoints: self.keep_checkpoints,
            ..TrainingConfig::default()
        })
    }

    fn max_duration(&self) -> std::result::Result<Option<Duration>, String> {
        self.minutes
            .map(|minutes| {
                Duration::try_from_secs_f64(minutes * 60.0)
                    .map_err(|error| format!("--minutes {minutes}: {error}"))
            })
            .transpose()
    }
}

/// A run whose flags and data have been checked.
struct Run {
    prepared: Prepared,
    model: TransformerConfig,
    run: TrainingConfig,
    max_duration: Option<Duration>,
    out: PathBuf,
    resume: bool,
    display: ProgressDisplay,
}

impl BackendTask for Run {
    type Output = Result;

    fn run<B: Backend>(self, device: B::Device) -> Result {
        let model = self.model.init::<Autodiff<B>>(self.run.seed, &device)?;
        self.prepared.save_pairs(&self.out)?;
        for line in self.prepared.left_out() {
            say(line);
        }
        let Prepared {
            tokenizers,
            train,
            valid,
            ..
        } = self.prepared;
        let [train, valid] = [train, valid].map(|part| part.tokenized.pairs);
        say(format_args!(
            "{} training pairs, {} validation pairs, {} pieces, {} parameters",
            train.len(),
            valid.len(),
            tokenizers.source().vocab_size(),
            self.model.num_params()
        ));

        let interrupter = Interrupter::new();
        stop_on_signals(&interrupter);
        let mut trainer = Trainer::new(model, self.run)
            .directory(&self.out)
            .tokenizers(&tokenizers)
            .resume(self.resume)
            .interrupter(interrupter)
            .display(self.display);
        if let Some(duration) = self.max_duration {
            trainer = trainer.max_duration(duration);
        }
        let trained = trainer.train(train, valid).map_err(train_error)?;
        say_how_it_went(&trained, &self.out);
        Ok(())
    }
}

fn say_how_it_went<M>(trained: &Trained<M>, out: &Path) {
    let why = match trained.stopped {
        StopReason::Updates => "done",
        StopReason::Time => "time is over",
        StopReason::Interrupted => "interrupted; --resume goes on",
        _ => "stopped",
    };
    let skipped = match trained.skipped {
        0 => String::new(),
        skipped => format!(", {skipped} of them skipped: loss or gradients were not finite"),
    };
    say(format_args!("{why}: {} updates{skipped}", trained.updates));
    for validation in &trained.validations {
        say(validation_line(validation));
    }
    say(format_args!("model: {}", out.display()));
}

/// Prints a line. A closed pipe must not end the training.
fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
