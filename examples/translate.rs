//! From two text files to a translation: read, hold out, train a tokenizer and a model, translate.
//!
//! `cargo run --release --features text --example translate -- train.en train.fr model "Where are you going?"`
//!
//! The program `transformer` does this and more, with a flag for each choice that is fixed in this code.

use std::path::PathBuf;

use clap::Parser;
use transformer_core::backend::Autodiff;
use transformer_core::{Tokenizers, TransformerConfig, Translator};
use transformer_examples::{Backend, Failure};
use transformer_train::data::{Corpus, train_bpe};
use transformer_train::{Trainer, TrainingConfig};

/// Learns to translate from two text files; line n of one translates line n of the other.
#[derive(Parser)]
struct Flags {
    /// File of source sentences
    source: PathBuf,
    /// File of their translations
    target: PathBuf,
    /// Directory for the model; it must not hold a model
    model: PathBuf,
    /// A sentence to translate at the end
    sentence: String,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of updates
    #[arg(long, default_value_t = 2000)]
    updates: usize,
    /// Size of the vocabulary
    #[arg(long, default_value_t = 8000)]
    vocab_size: usize,
}

fn main() -> Result<(), Failure> {
    let flags = Flags::parse();
    // One source sentence in a hundred is held out for validation.
    let corpus = Corpus::from_parallel(&flags.source, &flags.target)?;
    let held_out = (corpus.len() / 100).max(1);
    let (train, valid) = corpus.hold_out(held_out, flags.seed)?;

    // One subword vocabulary for both languages, trained on the training text.
    let tokenizer = train_bpe(train.sentences(), flags.vocab_size)?;
    let vocab_size = tokenizer.vocab_size();
    let tokenizers = Tokenizers::shared(tokenizer);
    let train = train.tokenize(&tokenizers, 127)?;
    let valid = valid.tokenize(&tokenizers, 127)?;
    println!("training: {train}; validation: {valid}");

    let config = TransformerConfig {
        d_model: 256,
        n_heads: 4,
        d_ff: 1024,
        n_encoder_layers: 3,
        n_decoder_layers: 3,
        ..TransformerConfig::base(vocab_size)
    };
    let recipe = TrainingConfig {
        seed: flags.seed,
        warmup: 800,
        updates: flags.updates,
        ..TrainingConfig::default()
    };
    let device = transformer_examples::device()?;
    let model = config.init::<Autodiff<Backend>>(flags.seed, &device)?;
    Trainer::new(model, recipe)
        .directory(&flags.model)
        .tokenizers(&tokenizers)
        .train(train.pairs, valid.pairs)?;

    let translator = Translator::load(&flags.model)?;
    println!("{}", translator.translate(&flags.sentence)?);
    Ok(())
}
