//! Our side of benches/peers/run: does one kind of work once for each line of standard input, and
//! prints its duration in JSON.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::stdin;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::train::{ItemLazy, TrainStep};
use burn_autodiff::Autodiff;
use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use transformer_core::{DecodeOptions, MaxLength, Request, Search, Transformer, TransformerConfig};
use transformer_program::{BackendChoice, BackendTask, run_on};
use transformer_train::{
    PaperAdam, RateSchedule, TokenizedPair, TrainingConfig, TrainingModel, Update,
};

#[derive(Debug, Parser)]
struct Cli {
    /// Backend to run on
    #[arg(long, value_enum, default_value_t)]
    backend: BackendChoice,
    /// The work: `write` the model that all systems decode with, `greedy`, `beam`, or a training of work.json
    #[arg(long)]
    work: String,
    /// Folder with work.json and the model to decode with
    #[arg(long)]
    directory: PathBuf,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

/// All sizes, from work.json.
#[derive(Debug, Deserialize)]
struct Sizes {
    vocab_size: usize,
    sources: Vec<Vec<u32>>,
    new_tokens: usize,
    beam: usize,
    training: BTreeMap<String, TrainingSize>,
}

#[derive(Debug, Deserialize)]
struct TrainingSize {
    d_model: usize,
    n_heads: usize,
    d_ff: usize,
    layers: usize,
    rows: usize,
    len: usize,
    /// Updates in one turn.
    updates: usize,
}

/// The measurements of one turn.
#[derive(Debug, Serialize)]
struct Turn {
    seconds: f64,
    tokens: usize,
    peak_mib: f64,
    /// The best target of each source.
    targets: Vec<Vec<u32>>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = run_on(cli.backend, cli).map_err(Box::from);
    match result.and_then(|result| result) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

impl BackendTask for Cli {
    type Output = Result<(), Box<dyn Error>>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let json = fs::read(self.directory.join("work.json"))?;
        let sizes: Sizes = serde_json::from_slice(&json)?;
        match self.work.as_str() {
            "write" => {
                let config = TransformerConfig::base(sizes.vocab_size);
                config.init::<B>(1, &device)?.save(&self.directory)?;
                Ok(())
            }
            "greedy" => self.decode::<B>(&sizes, 1, &device),
            "beam" => self.decode::<B>(&sizes, sizes.beam, &device),
            training => {
                let size = sizes.training.get(training).ok_or("no such work")?;
                Training::<Autodiff<B>>::new(&sizes, size, &device)?.turns()
            }
        }
    }
}

impl Cli {
    fn decode<B: Backend>(
        &self,
        sizes: &Sizes,
        beam: usize,
        device: &B::Device,
    ) -> Result<(), Box<dyn Error>> {
        let model = Transformer::<B>::load(&self.directory, device)?;
        let options = DecodeOptions {
            min_length: sizes.new_tokens,
            max_length: MaxLength::Tokens(sizes.new_tokens),
            ..DecodeOptions::beam(beam)
        };
        let search = Search::new(&model, options)?;
        let requests: Vec<_> = sizes
            .sources
            .iter()
            .map(|s| Request::exact(&s[..]))
            .collect();
        turns(|| {
            let found = search.run(&requests)?;
            let best = found.into_iter().flat_map(|found| found.into_iter().next());
            let targets: Vec<Vec<u32>> = best.map(|best| best.tokens).collect();
            Ok((targets.iter().map(Vec::len).sum(), targets))
        })
    }
}

/// Does the work for each line of standard input, after one run that is not measured.
fn turns(
    mut work: impl FnMut() -> Result<(usize, Vec<Vec<u32>>), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    work()?;
    println!("{{}}");
    for line in stdin().lines() {
        line?;
        let start = Instant::now();
        let (tokens, targets) = work()?;
        let turn = Turn {
            seconds: start.elapsed().as_secs_f64(),
            tokens,
            peak_mib: peak_mib()?,
            targets,
        };
        println!("{}", serde_json::to_string(&turn)?);
    }
    Ok(())
}

/// The most memory that the process has had, in MiB.
fn peak_mib() -> Result<f64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("no VmHWM in /proc/self/status")?.parse::<f64>()? / 1024.0)
}

/// A model in training, with the steps of the training loop.
struct Training<B: AutodiffBackend> {
    /// `None` while the optimizer holds it.
    model: Option<TrainingModel<B, Transformer<B>>>,
    optimizer: PaperAdam<TrainingModel<B, Transformer<B>>, B>,
    schedule: RateSchedule,
    update: Update<TokenizedPair>,
    updates: usize,
}

impl<B: AutodiffBackend> Training<B> {
    /// A model like PyTorch's `nn.Transformer`, and a batch without padding.
    fn new(sizes: &Sizes, size: &TrainingSize, device: &B::Device) -> Result<Self, Box<dyn Error>> {
        let config = TransformerConfig {
            d_model: size.d_model,
            n_heads: size.n_heads,
            d_ff: size.d_ff,
            n_encoder_layers: size.layers,
            n_decoder_layers: size.layers,
            attention_bias: true,
            attention_dropout: 0.1,
            activation_dropout: 0.1,
            final_norm: true,
            ..TransformerConfig::base(sizes.vocab_size)
        };
        let run = TrainingConfig::default();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        // A batch adds one token to each side.
        let mut tokens = || -> Vec<u32> {
            (1..size.len)
                .map(|_| random.random_range(4..sizes.vocab_size as u32))
                .collect()
        };
        let pairs = (0..size.rows).map(|_| TokenizedPair {
            source: tokens(),
            target: tokens(),
        });
        let update = Update::new(vec![pairs.collect()]);
        Ok(Self {
            model: Some(TrainingModel::new(config.init(1, device)?, 0.1)),
            optimizer: PaperAdam::new(None),
            schedule: RateSchedule::new(&run, config.d_model),
            update,
            updates: size.updates,
        })
    }

    fn turns(mut self) -> Result<(), Box<dyn Error>> {
        turns(|| {
            for _ in 0..self.updates {
                let model = self.model.take().ok_or("the optimizer kept the model")?;
                let output = TrainStep::step(&model, self.update.clone());
                let rate = self.schedule.step();
                self.model = Some(self.optimizer.step(rate, model, output.grads));
                // Read back, as a training loop does to display the loss.
                output.item.sync();
            }
            Ok((self.updates * self.update.loss_tokens, Vec::new()))
        })
    }
}
