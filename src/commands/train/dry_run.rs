//! `transformer train --dry-run`: a report on a run, without training.

use std::collections::HashSet;
use std::fmt::Write as _;

use transformer_core::nn::ProductPrecision;
use transformer_train::TrainingConfig;
use transformer_train::data::{BatchSampler, ExampleSource, Lengths};

use super::plan::Plan;
use super::prepared::{Examples, Prepared};
use crate::backend::BackendChoice;
use crate::commands::{Result, mib, plural};

/// The data and the length of a run, and the memory for its model.
///
/// # Errors
/// When the pairs cannot be divided into batches.
pub fn report(plan: &Plan, prepared: &Prepared, backend: BackendChoice) -> Result<String> {
    let mut text = String::new();
    data(&mut text, prepared)?;
    batches(&mut text, &prepared.train, &plan.training)?;
    memory(&mut text, plan, backend)?;
    Ok(text)
}

fn data(text: &mut String, prepared: &Prepared) -> Result {
    writeln!(text, "data")?;
    count(text, prepared.filtered.read, "pair", " read")?;
    for line in prepared.left_out() {
        writeln!(text, "             {line}")?;
    }
    count(text, prepared.filtered.kept, "pair", " to train on")?;
    count(text, prepared.valid.pairs.len(), "pair", " to validate on")?;
    let [source, target] = [prepared.tokenizers.source(), prepared.tokenizers.target()];
    let [source, target] = [source.vocab_size(), target.vocab_size()];
    if prepared.has_shared_vocabulary() {
        return count(text, source, "piece", " shared by source and target");
    }
    count(text, source, "piece", " of the source")?;
    count(text, target, "piece", " of the target")
}

/// A line that begins with a count.
fn count(text: &mut String, number: usize, noun: &str, rest: &str) -> Result {
    let noun = plural(number, noun);
    Ok(writeln!(text, "  {number:>10} {noun}{rest}")?)
}

fn batches(text: &mut String, pairs: &Examples, run: &TrainingConfig) -> Result {
    let sampler = BatchSampler::of_source(pairs, run.batch_tokens, run.seed)?;
    let batches = sampler.epoch(0);
    let updates = batches.len().div_ceil(run.batches_per_update);
    writeln!(text, "batches")?;
    writeln!(
        text,
        "  {:>10} per epoch, of at most {} tokens per side",
        batches.len(),
        run.batch_tokens
    )?;
    writeln!(
        text,
        "  {:>8.1} % of their tokens are padding",
        100.0 * padding(&pairs.lengths(), &batches)
    )?;
    writeln!(text, "  {updates:>10} updates per epoch")?;
    Ok(writeln!(
        text,
        "  {:>10.1} epochs in {} updates",
        run.updates as f64 / updates as f64,
        run.updates
    )?)
}

/// The fraction of padding among the tokens of all batches, on both sides.
fn padding(lengths: &[Lengths], batches: &[Vec<usize>]) -> f64 {
    let (mut real, mut padded) = (0, 0);
    for batch in batches {
        let rows = || batch.iter().map(|&index| lengths[index]);
        let source = rows().map(|row| row.source).max().unwrap_or(0);
        let target = rows().map(|row| row.target).max().unwrap_or(0);
        padded += batch.len() * (source + target);
        real += rows().map(|row| row.source + row.target).sum::<usize>();
    }
    1.0 - real as f64 / padded as f64
}

/// The number of parameters that are frozen.
fn count_frozen(plan: &Plan) -> u128 {
    if plan.frozen.is_empty() {
        return 0;
    }
    let frozen: HashSet<&String> = plan.frozen.iter().collect();
    let shapes = plan.model.parameter_shapes().into_iter();
    let shapes = shapes.filter(|(name, _)| frozen.contains(name));
    shapes
        .map(|(_, shape)| shape.iter().product::<usize>() as u128)
        .sum()
}

fn memory(text: &mut String, plan: &Plan, backend: BackendChoice) -> Result {
    let parameters = plan.model.num_params();
    let frozen = count_frozen(plan);
    let trained = parameters - frozen;
    // In bytes; Adam keeps two moments per parameter.
    let mut parts = vec![
        ("weights", 4 * parameters),
        ("gradients", 4 * trained),
        ("Adam's moments", 8 * trained),
    ];
    if plan.training.ema_decay.is_some() {
        parts.push(("averaged weights", 4 * parameters));
    }
    let is_bf16 = plan.training.precision == ProductPrecision::Bf16;
    if is_bf16 && backend.keeps_bf16_weights() {
        parts.push(("weights in bf16", 2 * parameters));
    }
    writeln!(text, "model")?;
    writeln!(text, "  {parameters:>10} parameters")?;
    if frozen > 0 {
        writeln!(text, "  {frozen:>10} of them frozen")?;
    }
    writeln!(text, "memory, without the activations of a batch")?;
    for &(name, bytes) in &parts {
        writeln!(text, "  {:>10.1} MiB of {name}", mib(bytes))?;
    }
    let together = parts.iter().map(|(_, bytes)| bytes).sum();
    Ok(writeln!(text, "  {:>10.1} MiB in total", mib(together))?)
}
