//! A hand-written training loop: a batch, its loss, the backward pass and an optimizer step.
//!
//! `cargo run --release --example bare_loop`

use burn::optim::{GradientsParams, Optimizer};
use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use transformer_core::TransformerConfig;
use transformer_core::backend::Autodiff;
use transformer_core::burn;
use transformer_examples::{Backend, Failure};
use transformer_train::TrainingConfig;
use transformer_train::data::{BatchSampler, TokenizedPair};
use transformer_train::objective::{LossOptions, Objective};
use transformer_train::optim::{AdamConfig, RateSchedule};

/// Trains a model to copy sequences, without a trainer.
#[derive(Debug, Parser)]
struct Flags {
    /// Number of passes over all sequences
    #[arg(long, default_value_t = 3)]
    epochs: usize,
    /// Width of the model
    #[arg(long, default_value_t = 64)]
    d_model: usize,
    /// Maximum tokens per batch, on each side
    #[arg(long, default_value_t = 1024)]
    batch_tokens: usize,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> Result<(), Failure> {
    let flags = Flags::parse();
    let mut random = ChaCha8Rng::seed_from_u64(flags.seed);
    let pairs = (0..5000).map(|_| {
        let source: Vec<u32> = (0..8).map(|_| random.random_range(3..23)).collect();
        let target = source.clone();
        TokenizedPair { source, target }
    });
    let pairs: Vec<_> = pairs.collect();

    let config = TransformerConfig {
        d_model: flags.d_model,
        n_heads: 4,
        d_ff: 4 * flags.d_model,
        n_encoder_layers: 2,
        n_decoder_layers: 2,
        dropout: 0.0,
        ..TransformerConfig::base(23)
    };
    let device = transformer_examples::device()?;
    let mut model = config.init::<Autodiff<Backend>>(flags.seed, &device)?;
    let mut adam = AdamConfig::default().init();
    let course =
        TrainingConfig { warmup: 100, learning_rate_factor: 0.25, ..TrainingConfig::default() };
    let schedule = RateSchedule::new(&course, config.d_model);
    let sampler = BatchSampler::new(&pairs, flags.batch_tokens, flags.seed)?;

    let mut update = 0;
    for epoch in 0..flags.epochs {
        for positions in sampler.epoch(epoch) {
            let examples: Vec<_> = positions.into_iter().map(|at| pairs[at].clone()).collect();
            let sums = model.loss(model.batch(&examples, &device), &LossOptions::smoothed(0.1));
            let loss = sums.loss / sums.weight;
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            update += 1;
            model = adam.step(schedule.rate(update), model, gradients);
            if update % 20 == 1 {
                println!("update {update}: loss {:.3}", loss.into_scalar());
            }
        }
    }
    Ok(())
}
