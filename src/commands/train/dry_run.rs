//! `transformer train --dry-run`: a report on a run, without the run.

use std::fmt::Write as _;

use transformer_core::TransformerConfig;
use transformer_train::{BatchSampler, TokenizedPair, TrainingConfig};

use super::data::Prepared;
use crate::commands::Result;

/// The data and the length of a run, and the memory that its model needs.
///
/// # Errors
/// When the pairs cannot be put into batches.
pub fn report(
    prepared: &Prepared,
    model: &TransformerConfig,
    run: &TrainingConfig,
) -> Result<String> {
    let mut text = String::new();
    data(&mut text, prepared)?;
    batches(&mut text, &prepared.train.tokenized.pairs, run)?;
    memory(&mut text, model)?;
    Ok(text)
}

fn data(text: &mut String, prepared: &Prepared) -> Result {
    let pieces = prepared.tokenizers.source().vocab_size();
    writeln!(text, "data")?;
    writeln!(text, "  {:>10} pairs read", prepared.read)?;
    for line in prepared.left_out() {
        writeln!(text, "             {line}")?;
    }
    let [train, valid] = [&prepared.train, &prepared.valid].map(|part| &part.tokenized.pairs);
    writeln!(text, "  {:>10} pairs to train on", train.len())?;
    writeln!(text, "  {:>10} pairs to validate on", valid.len())?;
    Ok(writeln!(
        text,
        "  {pieces:>10} pieces, which source and target share"
    )?)
}

fn batches(text: &mut String, pairs: &[TokenizedPair], run: &TrainingConfig) -> Result {
    let sampler = BatchSampler::new(pairs, run.batch_tokens, run.seed)?;
    let batches = sampler.epoch(0);
    let updates = batches.len().div_ceil(run.batches_per_update);
    writeln!(text, "batches")?;
    writeln!(
        text,
        "  {:>10} per epoch, of at most {} tokens a side",
        batches.len(),
        run.batch_tokens
    )?;
    writeln!(
        text,
        "  {:>8.1} % of their tokens are padding",
        100.0 * padding(pairs, &batches)
    )?;
    writeln!(text, "  {updates:>10} updates per epoch")?;
    Ok(writeln!(
        text,
        "  {:>10.1} epochs in {} updates",
        run.updates as f64 / updates as f64,
        run.updates
    )?)
}

/// The share of the tokens of all batches, both sides together, that is padding.
fn padding(pairs: &[TokenizedPair], batches: &[Vec<usize>]) -> f64 {
    let longest = |batch: &[usize], len: fn(&TokenizedPair) -> usize| {
        batch.iter().map(|&index| len(&pairs[index])).max()
    };
    let padded: usize = batches
        .iter()
        .map(|batch| {
            let src_len = longest(batch, TokenizedPair::src_len).unwrap_or(0);
            let tgt_len = longest(batch, TokenizedPair::tgt_len).unwrap_or(0);
            batch.len() * (src_len + tgt_len)
        })
        .sum();
    let real: usize = pairs
        .iter()
        .map(|pair| pair.src_len() + pair.tgt_len())
        .sum();
    1.0 - real as f64 / padded as f64
}

fn memory(text: &mut String, model: &TransformerConfig) -> Result {
    let parameters = model.num_params();
    // Single precision; Adam keeps two moments of each weight.
    let mib = |copies: u128| (copies * parameters * 4) as f64 / f64::from(1 << 20);
    writeln!(text, "model")?;
    writeln!(text, "  {parameters:>10} parameters")?;
    writeln!(text, "memory, beside that of a batch's activations")?;
    for (name, copies) in [("weights", 1), ("gradients", 1), ("Adam's moments", 2)] {
        writeln!(text, "  {:>10.1} MiB of {name}", mib(copies))?;
    }
    Ok(writeln!(text, "  {:>10.1} MiB together", mib(4))?)
}
