//! A character-level language model: it learns from English sentences in Burn's training loop, and samples new
//! ones.
//!
//! `cargo run --release --example language_model`

use std::collections::BTreeSet;

use burn::module::AutodiffModule;
use burn::tensor::backend::Backend as _;
use burn::train::SupervisedTraining;
use burn::train::metric::{LearningRateMetric, LossMetric};
use clap::Parser;
use transformer_core::backend::Autodiff;
use transformer_core::burn;
use transformer_core::decoding::{MaxLength, SPECIAL_TOKENS, Sampling};
use transformer_core::nn::NormPlacement;
use transformer_core::{DecodeOptions, Request, Search, TransformerConfig};
use transformer_examples::{Backend, Failure};
use transformer_train::data::Corpus;
use transformer_train::learner::{Batches, Updates};
use transformer_train::validation::evaluate;
use transformer_train::{TrainingConfig, learner};

/// Trains a character-level language model on English sentences and prints samples.
#[derive(Debug, Parser)]
struct Flags {
    /// File of sentence pairs; the source side is used
    #[arg(long, default_value = "examples/data/tatoeba.en-fr.tsv.gz")]
    data: String,
    /// Number of validation sentences
    #[arg(long, default_value_t = 500)]
    hold_out: usize,
    /// Number of updates
    #[arg(long, default_value_t = 1000)]
    updates: usize,
    /// Width of the model
    #[arg(long, default_value_t = 128)]
    d_model: usize,
    /// Maximum characters per batch
    #[arg(long, default_value_t = 4096)]
    batch_tokens: usize,
    /// Seed of the weights, the batches, the dropout and the samples
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// One token per character that occurs, after the special tokens.
struct Characters(Vec<char>);

impl Characters {
    fn of<'a>(sentences: impl Iterator<Item = &'a str>) -> Self {
        let all: BTreeSet<char> = sentences.flat_map(str::chars).collect();
        Self(all.into_iter().collect())
    }

    fn vocab_size(&self) -> usize {
        SPECIAL_TOKENS.len() + self.0.len()
    }

    /// Skips characters that do not occur in the training text.
    fn encode(&self, text: &str) -> Vec<u32> {
        let indices = text.chars().filter_map(|c| self.0.binary_search(&c).ok());
        indices.map(|index| (SPECIAL_TOKENS.len() + index) as u32).collect()
    }

    fn decode(&self, tokens: &[u32]) -> String {
        let index = |token: &u32| (*token as usize).checked_sub(SPECIAL_TOKENS.len());
        let indices = tokens.iter().filter_map(index);
        indices.map(|index| self.0[index]).collect()
    }
}

fn main() -> Result<(), Failure> {
    let flags = Flags::parse();
    let (train, valid) = Corpus::from_tsv(&flags.data)?.hold_out(flags.hold_out, flags.seed)?;
    let sentences = train.pairs().iter().chain(valid.pairs());
    let characters = Characters::of(sentences.map(|pair| pair.source.as_str()));
    let encode = |corpus: &Corpus| -> Vec<Vec<u32>> {
        let sentences = corpus.pairs().iter();
        sentences.map(|pair| characters.encode(&pair.source)).collect()
    };

    let config = TransformerConfig {
        d_model: flags.d_model,
        n_heads: 4,
        d_ff: 4 * flags.d_model,
        n_decoder_layers: 2,
        norm: NormPlacement::Pre,
        final_norm: true,
        ..TransformerConfig::language_model(characters.vocab_size())
    };
    let device = transformer_examples::device()?;
    // Burn's loop does not seed the dropout.
    Autodiff::<Backend>::seed(&device, flags.seed);
    let model = config.init_language_model::<Autodiff<Backend>>(flags.seed, &device)?;
    let run = TrainingConfig {
        seed: flags.seed,
        batch_tokens: flags.batch_tokens,
        warmup: flags.updates.div_ceil(5),
        updates: flags.updates,
        validate_every: flags.updates.div_ceil(4),
        label_smoothing: 0.0,
        ..TrainingConfig::default()
    };
    let (train, held_out) = (encode(&train), encode(&valid));
    let loss = run.loss_options();
    let before = evaluate(&model.valid(), held_out.clone(), flags.batch_tokens, &loss)?;
    let train = Updates::new(&model, train, &run)?;
    let valid = Batches::new(&model, held_out.clone(), &run)?;
    let epochs = train.epochs();
    // Burn's logs, from which it makes its summary.
    let logs = tempfile::tempdir()?;
    let model = SupervisedTraining::new(logs.path(), train, valid)
        .metrics((LossMetric::<Backend>::new(),))
        .metric_train_numeric(LearningRateMetric::new())
        .num_epochs(epochs)
        .summary()
        .launch(learner(model, &run)?)
        .model
        .model;
    let after = evaluate(&model, held_out, flags.batch_tokens, &loss)?;
    for (when, statistics) in [("before", before), ("after", after)] {
        let perplexity = statistics.perplexity();
        println!("{when} training: perplexity {perplexity:.2} per character");
    }

    // Sentences with the same beginning; each character is sampled from the ten likeliest.
    let options = DecodeOptions {
        n_best: 5,
        max_length: MaxLength::Tokens(80),
        ..DecodeOptions::sample(Sampling { top_k: 10, seed: flags.seed, ..Sampling::default() })
    };
    let request = Request::prompt(characters.encode("I "));
    let samples = Search::new(&model, options)?.run(&[request])?;
    for sample in &samples[0] {
        println!("{}", characters.decode(&sample.tokens));
    }
    Ok(())
}
