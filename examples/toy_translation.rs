//! Memorizes six English sentences and their German translations, word by word.
//!
//! `cargo run --release --example toy_translation`

use clap::{Parser, ValueEnum};
use transformer_core::backend::Autodiff;
use transformer_core::decoding::{MaxLength, SPECIAL_TOKENS, greedy};
use transformer_core::nn::NormPlacement;
use transformer_core::{Request, TransformerConfig};
use transformer_examples::{Backend, Failure};
use transformer_train::data::TokenizedPair;
use transformer_train::progress::ProgressDisplay;
use transformer_train::{Trainer, TrainingConfig};

const PAIRS: [(&str, &str); 6] = [
    ("i like deep learning", "ich mag tiefes lernen"),
    ("this is a tiny dataset", "dies ist ein winziger datensatz"),
    ("attention helps models focus", "aufmerksamkeit hilft modellen fokus"),
    ("transformers replace recurrence", "transformer ersetzen rekurrenz"),
    ("we build modules stepwise", "wir bauen module schrittweise"),
    ("layers communicate with attention", "schichten kommunizieren mit aufmerksamkeit"),
];

/// Learns six sentence pairs and translates them. Exits with 1 unless all six are exact.
#[derive(Parser)]
struct Flags {
    /// Seed of all random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of updates, each on all six pairs
    #[arg(long, default_value_t = 200)]
    updates: usize,
    /// Placement of layer normalization: before each sub-layer, as in the notebook of the sentence pairs, or after
    /// it, as in the paper
    #[arg(long, value_enum, default_value_t = Norm::Pre)]
    norm: Norm,
}

#[derive(Clone, Copy, ValueEnum)]
enum Norm {
    Pre,
    Post,
}

fn main() -> Result<(), Failure> {
    let flags = Flags::parse();
    // Each language has its own vocabulary.
    let english = Words::of(PAIRS.map(|(source, _)| source));
    let german = Words::of(PAIRS.map(|(_, target)| target));
    let pairs = PAIRS.map(|(source, target)| TokenizedPair {
        source: english.encode(source),
        target: german.encode(target),
    });

    let notebook = TransformerConfig {
        d_model: 32,
        ..TransformerConfig::prenorm_notebook(english.len(), german.len())
    };
    let config = match flags.norm {
        Norm::Pre => notebook,
        Norm::Post => {
            TransformerConfig { norm: NormPlacement::Post, final_norm: false, ..notebook }
        }
    };
    let device = transformer_examples::device()?;
    let model = config.init::<Autodiff<Backend>>(flags.seed, &device)?;
    let recipe = TrainingConfig {
        seed: flags.seed,
        warmup: 50,
        learning_rate_factor: 0.1,
        updates: flags.updates,
        validate_every: 50,
        ..TrainingConfig::default()
    };
    let trained = Trainer::new(model, recipe)
        .display(ProgressDisplay::Lines)
        .train(pairs.to_vec(), pairs.to_vec())?;

    let requests = pairs.map(|pair| Request::new(pair.source));
    let hypotheses = greedy(&trained.model, &requests, MaxLength::default())?;
    let mut exact = 0;
    for ((source, target), hypothesis) in PAIRS.iter().zip(hypotheses) {
        let prediction = german.decode(&hypothesis.tokens);
        exact += usize::from(hypothesis.finished && prediction == *target);
        println!("source:     {source}\nprediction: {prediction}\ntarget:     {target}\n");
    }
    println!("exact: {exact}/{}", PAIRS.len());
    if exact < PAIRS.len() {
        return Err("not every prediction is exact".into());
    }
    Ok(())
}

/// A vocabulary of whole words: special tokens, then words in the order of their first occurrence.
struct Words(Vec<&'static str>);

impl Words {
    fn of(sentences: impl IntoIterator<Item = &'static str>) -> Self {
        // No word is unknown.
        let [pad, bos, eos, _] = SPECIAL_TOKENS;
        let mut words = vec![pad, bos, eos];
        for word in sentences.into_iter().flat_map(str::split_whitespace) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        Self(words)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// Tokenizes a sentence whose words are all known.
    fn encode(&self, sentence: &str) -> Vec<u32> {
        sentence
            .split_whitespace()
            .filter_map(|word| self.0.iter().position(|known| *known == word))
            .map(|token| token as u32)
            .collect()
    }

    fn decode(&self, tokens: &[u32]) -> String {
        let words: Vec<_> = tokens.iter().map(|&token| self.0[token as usize]).collect();
        words.join(" ")
    }
}
