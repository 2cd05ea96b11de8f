//! The copy task: a Transformer learns from scratch to say what it was told.
//!
//! `cargo run --release --example copy_task`

use std::collections::HashSet;
use std::error::Error;
use std::process::ExitCode;

use burn::tensor::backend::Backend;
use burn::train::Interrupter;
use burn_autodiff::Autodiff;
use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use transformer::{BackendTask, Common, finish, run_on, stop_on_ctrl_c};
use transformer_core::{MaxLength, Transformer, TransformerConfig, greedy};
use transformer_train::{StopReason, TokenizedPair, Trainer, TrainingConfig};

/// Sequences decoded at the end, none of them seen in training.
const TEST_SEQUENCES: usize = 1000;

/// Exact copies, of those, that the model must make.
const PASS: usize = 990;

/// Trains a Transformer to copy sequences of random symbols, then decodes 1000 unseen ones of every
/// trained length. Exits 1 when fewer than 990 are copied exactly.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    common: Common,
    /// Symbols that sequences are made of
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    symbols: u32,
    /// Length of the shortest sequence
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=512))]
    min_length: u16,
    /// Length of the longest sequence
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=512))]
    max_length: u16,
    /// Updates to train for
    #[arg(long, default_value_t = 650)]
    updates: usize,
    /// Updates in which the learning rate rises
    #[arg(long, default_value_t = 200)]
    warmup: usize,
    /// Multiplies the learning rate
    #[arg(long, default_value_t = 0.25)]
    learning_rate_factor: f64,
    /// Tokens of a batch
    #[arg(long, default_value_t = 1024)]
    batch_tokens: usize,
    /// Width of the model
    #[arg(long, default_value_t = 64)]
    d_model: usize,
    /// Keep the model and checkpoints in this directory
    #[arg(long)]
    out: Option<std::path::PathBuf>,
    /// Continue from the newest checkpoint in --out
    #[arg(long, requires = "out")]
    resume: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    finish(run_on(cli.common.backend, cli))
}

impl BackendTask for Cli {
    type Output = Result<(), Box<dyn Error>>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let (train, valid, test) = self.sequences()?;
        let config = self.model();
        let model = config.init::<Autodiff<B>>(self.common.seed, &device)?;
        println!(
            "{} parameters; {} training sequences of {} to {} symbols",
            config.num_params(),
            train.len(),
            self.min_length,
            self.max_length
        );

        let interrupter = Interrupter::new();
        stop_on_ctrl_c(&interrupter);
        let run = TrainingConfig {
            seed: self.common.seed,
            batch_tokens: self.batch_tokens,
            warmup: self.warmup,
            learning_rate_factor: self.learning_rate_factor,
            updates: self.updates,
            validate_every: 100,
            ..TrainingConfig::default()
        };
        let mut trainer = Trainer::new(run, vec![device.clone()])
            .resume(self.resume)
            .interrupter(interrupter);
        if let Some(out) = &self.out {
            trainer = trainer.directory(out);
        }
        let trained = trainer.train(model, train, valid)?;
        if trained.stopped == StopReason::Interrupted {
            return Err(format!("interrupted after {} updates", trained.updates).into());
        }

        let exact = count_exact(&trained.model, &test, &device)?;
        println!("exact match: {exact}/{}", test.len());
        if exact < PASS {
            return Err(format!("fewer than {PASS} exact copies").into());
        }
        Ok(())
    }
}

impl Cli {
    fn model(&self) -> TransformerConfig {
        TransformerConfig {
            d_model: self.d_model,
            n_heads: 4,
            d_ff: 4 * self.d_model,
            dropout: 0.0,
            n_encoder_layers: 2,
            n_decoder_layers: 2,
            ..TransformerConfig::base(FIRST_SYMBOL as usize + self.symbols as usize)
        }
    }

    /// Distinct sequences for training, validation and the test, lengths taking turns.
    #[allow(clippy::type_complexity, reason = "three of the same kind, used once")]
    fn sequences(
        &self,
    ) -> Result<(Vec<TokenizedPair>, Vec<TokenizedPair>, Vec<TokenizedPair>), String> {
        if self.min_length > self.max_length {
            return Err(format!(
                "--min-length {} is more than --max-length {}",
                self.min_length, self.max_length
            ));
        }
        const TRAIN: usize = 20_000;
        const VALID: usize = 200;
        let lengths: Vec<usize> = (self.min_length..=self.max_length)
            .map(usize::from)
            .collect();
        let wanted = (TRAIN + VALID + TEST_SEQUENCES).div_ceil(lengths.len());
        let shortest = f64::from(self.symbols).powi(i32::from(self.min_length));
        if shortest < 2.0 * wanted as f64 {
            return Err(format!(
                "{} symbols make too few sequences of length {}; choose a longer --min-length",
                self.symbols, self.min_length
            ));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.common.seed);
        let mut seen = HashSet::new();
        let mut draw = |count: usize| -> Vec<TokenizedPair> {
            (0..count)
                .map(|index| {
                    let length = lengths[index % lengths.len()];
                    loop {
                        let sequence: Vec<u32> = (0..length)
                            .map(|_| FIRST_SYMBOL + rng.random_range(0..self.symbols))
                            .collect();
                        if seen.insert(sequence.clone()) {
                            return TokenizedPair {
                                source: sequence.clone(),
                                target: sequence,
                            };
                        }
                    }
                })
                .collect()
        };
        Ok((draw(TRAIN), draw(VALID), draw(TEST_SEQUENCES)))
    }
}

/// The first token after `<pad>`, `<bos>` and `<eos>`.
const FIRST_SYMBOL: u32 = 3;

fn count_exact<B: Backend>(
    model: &Transformer<B>,
    test: &[TokenizedPair],
    device: &B::Device,
) -> Result<usize, transformer_core::DecodeError> {
    let mut exact = 0;
    for pairs in test.chunks(100) {
        let eos = model.config().eos_id;
        let sources: Vec<_> = pairs
            .iter()
            .map(|pair| [pair.source.as_slice(), &[eos]].concat())
            .collect();
        let hypotheses = greedy(model, &sources, MaxLength::default(), device)?;
        exact += hypotheses
            .iter()
            .zip(pairs)
            .filter(|(hypothesis, pair)| hypothesis.finished && hypothesis.tokens == pair.target)
            .count();
    }
    Ok(exact)
}
