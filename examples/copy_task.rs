//! The copy task: a Transformer learns from scratch to copy sequences.
//!
//! `cargo run --release --example copy_task`
//!
//! A model, sequences of token ids for training, and greedy decoding at the end: everything that your own task
//! needs, without text. The training loop, its metrics and its display are Burn's; `learner` supplies the paper's
//! loss, optimizer and schedule.

use std::collections::HashSet;

use burn::train::SupervisedTraining;
use burn::train::metric::{LearningRateMetric, LossMetric};
use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use transformer_core::backend::Autodiff;
use transformer_core::burn;
use transformer_core::decoding::{MaxLength, SPECIAL_TOKENS, greedy};
use transformer_core::{Request, Transformer, TransformerConfig};
use transformer_examples::{Backend, Failure};
use transformer_train::data::TokenizedPair;
use transformer_train::learner::{Batches, Updates};
use transformer_train::{TrainingConfig, learner};

// Sequences for training, validation and the final decoding; all are distinct.
const TRAIN: usize = 20_000;
const VALID: usize = 200;
const TEST: usize = 1000;

/// Minimum number of exact copies among the decoded sequences.
const PASS: usize = 990;

/// The first token after the special ones; the last of these, `<unk>`, is not needed.
const FIRST_SYMBOL: u32 = SPECIAL_TOKENS.len() as u32 - 1;

/// Trains a Transformer to copy sequences of random symbols, then decodes 1000 unseen ones of all trained lengths.
/// Exits with 1 if fewer than 990 are copied exactly.
#[derive(Parser)]
struct Flags {
    /// Seed of all random numbers: weights, sequences, batches
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of symbols
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    symbols: u32,
    /// Length of the shortest sequence
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=512))]
    min_length: u16,
    /// Length of the longest sequence
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=512))]
    max_length: u16,
    /// Number of updates
    #[arg(long, default_value_t = 650)]
    updates: usize,
    /// Maximum tokens per batch
    #[arg(long, default_value_t = 1024)]
    batch_tokens: usize,
    /// Width of the model
    #[arg(long, default_value_t = 64)]
    d_model: usize,
}

fn main() -> Result<(), Failure> {
    let flags = Flags::parse();
    let mut sequences = flags.sequences()?;
    let test = sequences.split_off(TRAIN + VALID);
    let valid = sequences.split_off(TRAIN);
    let train = sequences;

    // A small model of the paper's kind: all other fields are those of the base model.
    let config = TransformerConfig {
        d_model: flags.d_model,
        n_heads: 4,
        d_ff: 4 * flags.d_model,
        n_encoder_layers: 2,
        n_decoder_layers: 2,
        dropout: 0.0,
        ..TransformerConfig::base((FIRST_SYMBOL + flags.symbols) as usize)
    };
    let device = transformer_examples::device()?;
    let model = config.init::<Autodiff<Backend>>(flags.seed, &device)?;
    println!(
        "{} parameters; {TRAIN} training sequences of {} to {} symbols",
        config.num_params(),
        flags.min_length,
        flags.max_length
    );

    let recipe = TrainingConfig {
        seed: flags.seed,
        batch_tokens: flags.batch_tokens,
        warmup: 200,
        learning_rate_factor: 0.25,
        updates: flags.updates,
        validate_every: 100,
        ..TrainingConfig::default()
    };
    let train = Updates::new(&model, train, &recipe)?;
    let valid = Batches::new(&model, valid, &recipe)?;
    let epochs = train.epochs();
    // Burn's logs, from which it makes its summary.
    let logs = tempfile::tempdir()?;
    let model = SupervisedTraining::new(logs.path(), train, valid)
        .metrics((LossMetric::<Backend>::new(),))
        .metric_train_numeric(LearningRateMetric::new())
        .num_epochs(epochs)
        .summary()
        .launch(learner(model, &recipe)?)
        .model
        .model;

    let exact = count_exact(&model, &test)?;
    println!("exact match: {exact}/{TEST}");
    if exact < PASS {
        return Err(format!("fewer than {PASS} exact copies").into());
    }
    Ok(())
}

impl Flags {
    /// Distinct sequences with alternating lengths; each is its own target.
    fn sequences(&self) -> Result<Vec<TokenizedPair>, String> {
        let (min, max) = (self.min_length, self.max_length);
        if min > max {
            return Err(format!("--min-length {min} is above --max-length {max}"));
        }
        let count = TRAIN + VALID + TEST;
        let lengths: Vec<u16> = (min..=max).collect();
        // Twice as many as needed, so that drawing terminates.
        let shortest = f64::from(self.symbols).powi(i32::from(min));
        if shortest < 2.0 * count.div_ceil(lengths.len()) as f64 {
            return Err(format!(
                "--symbols {} gives too few sequences of length {min}; choose a longer --min-length",
                self.symbols
            ));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut seen = HashSet::new();
        let mut sequences = Vec::with_capacity(count);
        while sequences.len() < count {
            let length = lengths[sequences.len() % lengths.len()];
            let symbols = (0..length).map(|_| FIRST_SYMBOL + rng.random_range(0..self.symbols));
            let sequence: Vec<u32> = symbols.collect();
            if seen.insert(sequence.clone()) {
                sequences.push(TokenizedPair { source: sequence.clone(), target: sequence });
            }
        }
        Ok(sequences)
    }
}

/// Counts the sequences that are decoded to themselves.
fn count_exact(model: &Transformer<Backend>, test: &[TokenizedPair]) -> Result<usize, Failure> {
    let mut exact = 0;
    for pairs in test.chunks(100) {
        let requests = pairs.iter().map(|pair| Request::new(&pair.source[..]));
        let requests: Vec<_> = requests.collect();
        let copies = greedy(model, &requests, MaxLength::default())?;
        let pairs = copies.iter().zip(pairs);
        exact += pairs.filter(|(copy, pair)| copy.finished && copy.tokens == pair.target).count();
    }
    Ok(exact)
}
