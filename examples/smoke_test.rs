//! Seconds to know that the model is what the paper describes.
//!
//! `cargo run --release --example smoke_test`

use std::error::Error;
use std::process::ExitCode;

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};
use clap::Parser;
use transformer::{BackendTask, Common, finish, run_on};
use transformer_core::{Transformer, TransformerConfig};

const VOCAB_SIZE: usize = 10_000;

/// Builds the paper's base model with two vocabularies of 10 000 words and checks its shape, its
/// mask, its heads and its size. Exits 1 when a check fails.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    finish(run_on(cli.common.backend, cli))
}

impl BackendTask for Cli {
    type Output = Result<(), Box<dyn Error>>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        B::seed(&device, self.common.seed);
        let config = TransformerConfig::paper_readme(VOCAB_SIZE, VOCAB_SIZE);
        let model = config.init::<B>(self.common.seed, &device)?;
        let checks = [
            ("Device", format!("{device:?}"), true),
            output_shape(&model, &device),
            causal_mask(&model, &device),
            head_dim(&model),
            parameters(&model),
        ];
        for (name, found, passed) in &checks {
            println!("{name:<13}: {found} {}", if *passed { "✓" } else { "✗" });
        }
        match checks.iter().filter(|(_, _, passed)| !passed).count() {
            0 => {
                println!("All checks passed.");
                Ok(())
            }
            failed => Err(format!("{failed} of {} checks failed", checks.len()).into()),
        }
    }
}

type Check = (&'static str, String, bool);

/// Tokens that are neither special nor the last.
fn tokens<B: Backend>(shape: [usize; 2], device: &B::Device) -> Tensor<B, 2, Int> {
    let range = Distribution::Uniform(3.0, VOCAB_SIZE as f64 - 1.0);
    Tensor::random(shape, range, device)
}

fn output_shape<B: Backend>(model: &Transformer<B>, device: &B::Device) -> Check {
    let logits = model.forward(tokens([2, 15], device), tokens([2, 12], device));
    let shape = logits.dims();
    (
        "Output shape",
        format!("{shape:?}"),
        shape == [2, 12, VOCAB_SIZE],
    )
}

/// Changing a target token changes the logits from its position on, and none before.
fn causal_mask<B: Backend>(model: &Transformer<B>, device: &B::Device) -> Check {
    let (batch, tgt_len, changed) = (2, 12, 5);
    let src = tokens([batch, 15], device);
    let tgt = tokens([batch, tgt_len], device);
    let place = [0..batch, changed..changed + 1];
    let next = tgt.clone().slice(place.clone()) + 1;
    let other = tgt.clone().slice_assign(place, next);
    let difference = model.forward(src.clone(), tgt) - model.forward(src, other);
    let largest = |range| -> f64 {
        let part = difference.clone().slice_dim(1, range).abs().max();
        part.into_data().iter::<f64>().next().unwrap_or(f64::NAN)
    };
    let (before, after) = (largest(0..changed), largest(changed..tgt_len));
    (
        "Causal mask",
        format!("future masked (change before {before:.0e}, after {after:.0e})"),
        before < 1e-5 && after > 1e-3,
    )
}

fn head_dim<B: Backend>(model: &Transformer<B>) -> Check {
    let config = model.config();
    let layer = &model.encoder.layers[0];
    let [_, projected] = layer.self_attention.query_key_value.weight.dims();
    let [values, _] = layer.self_attention.heads.projection.weight.dims();
    let d_v = values / config.n_heads;
    let d_k = (projected - values) / 2 / config.n_heads;
    (
        "Head dim",
        format!("d_k = {d_k}, d_v = {d_v}"),
        d_k == 64 && d_v == 64,
    )
}

fn parameters<B: Backend>(model: &Transformer<B>) -> Check {
    let found = model.num_params();
    ("Parameters", found.to_string(), found == 59_463_680)
}
