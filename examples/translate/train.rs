//! `translate train`

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use burn::tensor::backend::Backend;
use burn::train::Interrupter;
use burn_autodiff::Autodiff;
use clap::{Args, ValueEnum};
use transformer::{BackendTask, stop_on_ctrl_c};
use transformer_core::{TOKENIZER_FILE, Tokenizer, TransformerConfig};
use transformer_train::{
    Corpus, ProgressDisplay, StopReason, TokenizedPair, Trainer, TrainingConfig, holds_model,
    train_bpe,
};

use crate::{read_corpora, refuse_overwriting};

/// Sentence pairs that come with the project.
const SHIPPED_DATA: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/examples/data/tatoeba.en-fr.tsv.gz"
);

/// Trains a model on sentence pairs and keeps the best one in a directory.
#[derive(Debug, Args)]
pub struct Train {
    /// Sentence pairs, `source<TAB>target` per line, plain or gzip; without it and --parallel, the
    /// English-French pairs that come with the project
    #[arg(long, num_args = 1.., value_name = "FILE")]
    data: Vec<PathBuf>,
    /// Sentence pairs as two files, line by line, plain or gzip
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"])]
    parallel: Vec<PathBuf>,
    /// Sentence pairs to validate on; without it, some of the data is held out
    #[arg(long, value_name = "FILE")]
    valid: Option<PathBuf>,
    /// Distinct source sentences held out of the data for validation
    #[arg(long, value_name = "N", default_value_t = 1000)]
    hold_out: usize,
    /// Directory for the model, its tokenizer, its validation pairs and its checkpoints
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Size of the model
    #[arg(long, value_enum, default_value_t = Preset::Small)]
    preset: Preset,
    /// Pieces of the vocabulary that source and target share
    #[arg(long, value_name = "N", default_value_t = 8000)]
    vocab_size: usize,
    /// Tokens of a batch, on each side
    #[arg(long, value_name = "N", default_value_t = 2048)]
    batch_tokens: usize,
    /// Batches whose gradients make one update
    #[arg(long, value_name = "N", default_value_t = 1)]
    batches_per_update: usize,
    /// Updates in which the learning rate rises
    #[arg(long, value_name = "N", default_value_t = 800)]
    warmup: usize,
    /// Learning rate at the end of the warm-up; without it the paper's, (d_model · warmup)^-0.5
    #[arg(long, value_name = "RATE")]
    peak_rate: Option<f64>,
    /// Updates to train for
    #[arg(long, value_name = "N", default_value_t = 5000)]
    updates: usize,
    /// Minutes to train for, at most
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// Updates from one validation and checkpoint to the next
    #[arg(long, value_name = "N", default_value_t = 500)]
    validate_every: usize,
    /// Checkpoints kept, the newest ones
    #[arg(long, value_name = "N", default_value_t = 2)]
    keep_checkpoints: usize,
    /// Pairs with more pieces than this on a side are left out
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_pieces: usize,
    /// Continue from the newest checkpoint in --out
    #[arg(long)]
    resume: bool,
    /// Plain lines, even in a terminal
    #[arg(long)]
    plain: bool,
    #[arg(skip)]
    seed: u64,
}

/// Sizes of model. All share one vocabulary and one embedding matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Preset {
    /// d_model 128, 2 + 2 layers
    Tiny,
    /// d_model 128, 4 + 4 layers, dropout 0.3 everywhere: for some 30 000 pairs
    Multi30k,
    /// d_model 256, 3 + 3 layers
    Small,
    /// The paper's base model: d_model 512, 6 + 6 layers
    Base,
    /// The paper's big model: d_model 1024, 6 + 6 layers
    Big,
}

impl Preset {
    fn config(self, vocab_size: usize) -> TransformerConfig {
        let base = TransformerConfig::base(vocab_size);
        // What torch.nn.Transformer has and the paper does not helps small models on little text.
        let small = TransformerConfig {
            final_norm: true,
            attention_bias: true,
            attention_dropout: 0.1,
            activation_dropout: 0.1,
            ..base.clone()
        };
        match self {
            Self::Tiny => TransformerConfig {
                d_model: 128,
                n_heads: 4,
                d_ff: 512,
                n_encoder_layers: 2,
                n_decoder_layers: 2,
                ..small
            },
            Self::Multi30k => TransformerConfig {
                d_model: 128,
                n_heads: 4,
                d_ff: 256,
                n_encoder_layers: 4,
                n_decoder_layers: 4,
                dropout: 0.3,
                attention_dropout: 0.3,
                activation_dropout: 0.3,
                ..small
            },
            Self::Small => TransformerConfig {
                d_model: 256,
                n_heads: 4,
                d_ff: 1024,
                n_encoder_layers: 3,
                n_decoder_layers: 3,
                ..small
            },
            Self::Base => base,
            Self::Big => TransformerConfig::big(vocab_size),
        }
    }
}

impl BackendTask for Train {
    type Output = Result<(), Box<dyn Error>>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        // Before anything else: nothing is read for a run that cannot start, or written over a model.
        if !self.resume && holds_model(&self.out) {
            let out = self.out.display();
            return Err(format!(
                "{out} already holds a model; add --resume to go on with it, or choose another --out"
            )
            .into());
        }
        if !self.resume {
            let read = [&self.data, &self.parallel].into_iter().flatten();
            let read: Vec<_> = read.chain(&self.valid).cloned().collect();
            for written in ["train.tsv", "valid.tsv"] {
                refuse_overwriting(&read, &self.out.join(written))?;
            }
        }
        let run = self.training_config();
        run.validate()?;
        let max_duration = self.max_duration()?;

        let (train, valid) = self.corpora()?;
        let tokenizer = self.tokenizer(&train, &valid)?;
        let config = self.preset.config(tokenizer.vocab_size());
        let train = self.tokenize(&train, &tokenizer, "training")?;
        let valid = self.tokenize(&valid, &tokenizer, "validation")?;
        let model = config.init::<Autodiff<B>>(self.seed, &device)?;
        println!(
            "{} training pairs, {} validation pairs, {} pieces, {} parameters",
            train.len(),
            valid.len(),
            tokenizer.vocab_size(),
            config.num_params()
        );

        let interrupter = Interrupter::new();
        stop_on_ctrl_c(&interrupter);
        let mut trainer = Trainer::new(run, vec![device])
            .directory(&self.out)
            .resume(self.resume)
            .interrupter(interrupter);
        if let Some(duration) = max_duration {
            trainer = trainer.max_duration(duration);
        }
        if self.plain {
            trainer = trainer.display(ProgressDisplay::Lines);
        }
        let trained = trainer.train(model, train, valid)?;

        let why = match trained.stopped {
            StopReason::Updates => "done",
            StopReason::Time => "time is over",
            StopReason::Interrupted => "interrupted; --resume goes on",
        };
        println!("{why}: {} updates", trained.updates);
        for v in &trained.validations {
            println!(
                "update {:>6}  {:>7.0} s  training loss {:.3}  validation loss {:.3}  perplexity {:.2}",
                v.update,
                v.seconds,
                v.train_loss,
                v.valid_loss,
                v.valid_nll.exp()
            );
        }
        println!("model: {}", self.out.display());
        Ok(())
    }
}

impl Train {
    /// The same, with the program's seed.
    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    fn training_config(&self) -> TrainingConfig {
        let d_model = self.preset.config(self.vocab_size).d_model;
        // The paper's rate is 1 / √(d_model · warmup) at its peak.
        let paper_peak = (d_model as f64 * self.warmup as f64).sqrt().recip();
        TrainingConfig {
            seed: self.seed,
            batch_tokens: self.batch_tokens,
            batches_per_update: self.batches_per_update,
            warmup: self.warmup,
            learning_rate_factor: self.peak_rate.map_or(1.0, |peak| peak / paper_peak),
            updates: self.updates,
            validate_every: self.validate_every,
            keep_checkpoints: self.keep_checkpoints,
            ..TrainingConfig::default()
        }
    }

    fn max_duration(&self) -> Result<Option<Duration>, String> {
        self.minutes
            .map(|minutes| {
                Duration::try_from_secs_f64(minutes * 60.0)
                    .map_err(|error| format!("--minutes {minutes}: {error}"))
            })
            .transpose()
    }

    /// Training and validation pairs, which share no source sentence.
    fn corpora(&self) -> Result<(Corpus, Corpus), Box<dyn Error>> {
        let mut data = read_corpora(&self.data)?;
        if let [source, target] = self.parallel.as_slice() {
            data.extend(Corpus::from_parallel(source, target)?);
        }
        if data.is_empty() {
            data = Corpus::from_tsv(SHIPPED_DATA)?;
        }
        Ok(match &self.valid {
            Some(valid) => (data, Corpus::from_tsv(valid)?),
            None => data.hold_out(self.hold_out, self.seed)?,
        })
    }

    /// The tokenizer of a run that is resumed, or a new one; written beside its validation pairs.
    fn tokenizer(&self, train: &Corpus, valid: &Corpus) -> Result<Tokenizer, Box<dyn Error>> {
        if self.resume && self.out.join(TOKENIZER_FILE).exists() {
            return Ok(Tokenizer::load(&self.out)?);
        }
        let tokenizer = Tokenizer::from(train_bpe(train.sentences(), self.vocab_size)?);
        create_directory(&self.out)?;
        tokenizer.save(&self.out)?;
        train.write_tsv(self.out.join("train.tsv"))?;
        valid.write_tsv(self.out.join("valid.tsv"))?;
        Ok(tokenizer)
    }

    /// Pairs as pieces, those that are too long left out.
    fn tokenize(
        &self,
        corpus: &Corpus,
        tokenizer: &Tokenizer,
        part: &str,
    ) -> Result<Vec<TokenizedPair>, Box<dyn Error>> {
        let limit = self.max_pieces.min(self.batch_tokens.saturating_sub(1));
        let mut pairs = Vec::with_capacity(corpus.len());
        for pair in corpus.pairs() {
            let source = tokenizer.encode(&pair.source)?;
            let target = tokenizer.encode(&pair.target)?;
            if source.len().max(target.len()) <= limit {
                pairs.push(TokenizedPair { source, target });
            }
        }
        let left_out = corpus.len() - pairs.len();
        if left_out > 0 {
            println!("{left_out} {part} pairs of more than {limit} pieces are left out");
        }
        Ok(pairs)
    }
}

fn create_directory(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}
