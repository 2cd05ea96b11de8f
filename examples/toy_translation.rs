//! Six English sentences and their German translations, learned by heart.
//!
//! `cargo run --release --example toy_translation`

use std::error::Error;
use std::process::ExitCode;

use burn::tensor::backend::Backend;
use burn::train::Interrupter;
use burn_autodiff::Autodiff;
use clap::{Parser, ValueEnum};
use transformer::{BackendTask, Common, finish, run_on, stop_on_ctrl_c};
use transformer_core::{MaxLength, NormPlacement, TransformerConfig, greedy};
use transformer_train::{ProgressDisplay, StopReason, TokenizedPair, Trainer, TrainingConfig};

const PAIRS: [(&str, &str); 6] = [
    ("i like deep learning", "ich mag tiefes lernen"),
    ("this is a tiny dataset", "dies ist ein winziger datensatz"),
    (
        "attention helps models focus",
        "aufmerksamkeit hilft modellen fokus",
    ),
    (
        "transformers replace recurrence",
        "transformer ersetzen rekurrenz",
    ),
    ("we build modules stepwise", "wir bauen module schrittweise"),
    (
        "layers communicate with attention",
        "schichten kommunizieren mit aufmerksamkeit",
    ),
];

/// Learns six sentence pairs and translates them. Exits 1 unless all six are exact.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    common: Common,
    /// Where layer normalisation stands: before each sub-layer, as in the notebook that the pairs
    /// are from, or after it, as in the paper
    #[arg(long, value_enum, default_value_t = Norm::Pre)]
    norm: Norm,
    /// Updates to train for, each on all six pairs
    #[arg(long, default_value_t = 200)]
    updates: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Norm {
    Pre,
    Post,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    finish(run_on(cli.common.backend, cli))
}

impl BackendTask for Cli {
    type Output = Result<(), Box<dyn Error>>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let sources = Words::of(PAIRS.map(|(source, _)| source));
        let targets = Words::of(PAIRS.map(|(_, target)| target));
        let pairs: Vec<_> = PAIRS
            .iter()
            .map(|(source, target)| TokenizedPair {
                source: sources.encode(source),
                target: targets.encode(target),
            })
            .collect();

        let config = self.model(sources.len(), targets.len());
        let model = config.init::<Autodiff<B>>(self.common.seed, &device)?;
        let interrupter = Interrupter::new();
        stop_on_ctrl_c(&interrupter);
        let run = TrainingConfig {
            seed: self.common.seed,
            warmup: 50,
            learning_rate_factor: 0.1,
            updates: self.updates,
            validate_every: 50,
            ..TrainingConfig::default()
        };
        let trained = Trainer::new(run, vec![device.clone()])
            .interrupter(interrupter)
            .display(ProgressDisplay::Lines)
            .train(model, pairs.clone(), pairs.clone())?;
        if trained.stopped == StopReason::Interrupted {
            return Err(format!("interrupted after {} updates", trained.updates).into());
        }

        let inputs: Vec<_> = pairs
            .iter()
            .map(|pair| [pair.source.as_slice(), &[config.eos_id]].concat())
            .collect();
        let hypotheses = greedy(&trained.model, &inputs, MaxLength::default(), &device)?;
        let mut exact = 0;
        for ((source, target), hypothesis) in PAIRS.iter().zip(hypotheses) {
            let prediction = targets.decode(&hypothesis.tokens);
            exact += usize::from(hypothesis.finished && prediction == *target);
            println!("source:     {source}\nprediction: {prediction}\ntarget:     {target}\n");
        }
        println!("exact: {exact}/{}", PAIRS.len());
        if exact < PAIRS.len() {
            return Err("not every prediction is exact".into());
        }
        Ok(())
    }
}

impl Cli {
    fn model(&self, src_vocab_size: usize, tgt_vocab_size: usize) -> TransformerConfig {
        let notebook = TransformerConfig {
            d_model: 32,
            ..TransformerConfig::prenorm_notebook(src_vocab_size, tgt_vocab_size)
        };
        match self.norm {
            Norm::Pre => notebook,
            Norm::Post => TransformerConfig {
                norm: NormPlacement::Post,
                final_norm: false,
                ..notebook
            },
        }
    }
}

/// A vocabulary of whole words: special tokens, then words in the order of their first use.
struct Words(Vec<&'static str>);

impl Words {
    fn of(sentences: impl IntoIterator<Item = &'static str>) -> Self {
        let mut words = vec!["<pad>", "<bos>", "<eos>"];
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

    /// The tokens of a sentence all of whose words are known.
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
