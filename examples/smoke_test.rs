//! Checks the model of document 002, which has the sizes of the paper's base model, in seconds: its output shape, mask,
//! heads and number of parameters.
//!
//! `cargo run --release --example smoke_test`

use burn::module::Module;
use burn::tensor::{Distribution, Int, Tensor};
use clap::Parser;
use transformer_core::burn;
use transformer_core::{Transformer, TransformerConfig};
use transformer_examples::{Backend, Failure};

const VOCAB_SIZE: usize = 10_000;

/// Builds the model of document 002 (the preset `paper_readme`) with two vocabularies of 10 000 words, and checks its
/// output shape, its mask, its heads and its number of parameters. Exits with 1 if a check fails.
///
/// The model has the sizes of the paper's base model, and no tied weights.
#[derive(Parser)]
struct Flags {
    /// Seed of the weights and the tokens
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> Result<(), Failure> {
    let Flags { seed } = Flags::parse();
    let device = transformer_examples::device()?;
    <Backend as burn::tensor::backend::Backend>::seed(&device, seed);
    let config = TransformerConfig::paper_readme(VOCAB_SIZE, VOCAB_SIZE);
    let model: Transformer<Backend> = config.init(seed, &device)?;

    let checks = [
        ("Device", format!("{device:?}"), true),
        output_shape(&model),
        causal_mask(&model),
        head_dim(&model),
        parameters(&model),
    ];
    for (name, found, passed) in &checks {
        println!("{name:<13}: {found} {}", if *passed { "✓" } else { "✗" });
    }
    match checks.iter().filter(|(_, _, passed)| !passed).count() {
        0 => println!("All checks passed."),
        failed => return Err(format!("{failed} of {} checks failed", checks.len()).into()),
    }
    Ok(())
}

/// A check's name, the value found, and whether it is correct.
type Check = (&'static str, String, bool);

/// Tokens that are neither special nor the last of the vocabulary.
fn tokens(shape: [usize; 2]) -> Tensor<Backend, 2, Int> {
    let range = Distribution::Uniform(3.0, VOCAB_SIZE as f64 - 1.0);
    Tensor::random(shape, range, &Default::default())
}

/// One logit per sentence, target position and word.
fn output_shape(model: &Transformer<Backend>) -> Check {
    let shape = model.forward(tokens([2, 15]), tokens([2, 12])).dims();
    let found = format!("{shape:?}");
    ("Output shape", found, shape == [2, 12, VOCAB_SIZE])
}

/// Changing a target token changes the logits from its position on, and none before.
fn causal_mask(model: &Transformer<Backend>) -> Check {
    let (batch, tgt_len, changed) = (2, 12, 5);
    let src = tokens([batch, 15]);
    let tgt = tokens([batch, tgt_len]);
    let position = [0..batch, changed..changed + 1];
    let next = tgt.clone().slice(position.clone()) + 1;
    let other = tgt.clone().slice_assign(position, next);
    let difference = model.forward(src.clone(), tgt) - model.forward(src, other);
    let largest = |range| -> f64 {
        let part = difference.clone().slice_dim(1, range).abs().into_data();
        // NaN is the largest, so that the check fails.
        part.iter().max_by(f64::total_cmp).unwrap_or(f64::NAN)
    };
    let (before, after) = (largest(0..changed), largest(changed..tgt_len));
    (
        "Causal mask",
        format!("future masked (change before {before:.0e}, after {after:.0e})"),
        before < 1e-5 && after > 1e-3,
    )
}

/// The queries, keys and values of a layer come from one matrix, whose width gives d_k.
fn head_dim(model: &Transformer<Backend>) -> Check {
    let n_heads = model.config().n_heads;
    let attention = model.encoder.layers[0].self_attention.as_ref();
    let attention = attention.expect("an encoder's layers have self-attention");
    let [_, projected] = attention.query_key_value.weight.dims();
    let [values, _] = attention.heads.projection.weight.dims();
    let d_v = values / n_heads;
    let d_k = (projected - values) / 2 / n_heads;
    let found = format!("d_k = {d_k}, d_v = {d_v}");
    ("Head dim", found, d_k == 64 && d_v == 64)
}

fn parameters(model: &Transformer<Backend>) -> Check {
    let found = model.num_params();
    ("Parameters", found.to_string(), found == 59_463_680)
}
