//! Your own model, built from the library's layers: trained in Burn's training loop, decoded by beam search.
//!
//! Its encoder applies one layer repeatedly, so that it has the parameters of one layer whatever its depth. It
//! learns to reverse sequences.
//!
//! `cargo run --release --example own_model`

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use burn::train::SupervisedTraining;
use burn::train::metric::{LearningRateMetric, LossMetric};
use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use transformer_core::backend::Autodiff;
use transformer_core::burn;
use transformer_core::decoding::{
    Next, NextToken, RequestProblem, SpecialTokens, Threads, Vocabulary, padded,
};
use transformer_core::nn::{
    AttentionWeights, Block, Cache, ConfigError, Context, EmbeddingConfig, Generator,
    GeneratorConfig, Layer, LayerConfig, LayerState, Mask, Memory, PositionalEncoding,
    PositionalEncodingConfig, Stack, StackConfig, TokenEmbedding, padding_positions, target_mask,
};
use transformer_core::{DecodeOptions, Request, Search, ops};
use transformer_examples::{Backend as Chosen, Failure};
use transformer_train::data::TokenizedPair;
use transformer_train::learner::{Batches, Updates};
use transformer_train::objective::{LossOptions, LossSums, Objective, PairBatch};
use transformer_train::{TrainingConfig, learner};

/// Trains a custom model to reverse sequences, and decodes by beam search.
#[derive(Debug, Parser)]
struct Flags {
    /// Number of updates
    #[arg(long, default_value_t = 800)]
    updates: usize,
    /// Maximum tokens per batch, on each side
    #[arg(long, default_value_t = 1024)]
    batch_tokens: usize,
    /// Minimum number of sequences, of 200, that must be reversed without an error
    #[arg(long, default_value_t = 190)]
    at_least: usize,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

const VOCAB_SIZE: usize = 20;
const D_MODEL: usize = 64;

/// `<pad>`, `<bos>` and `<eos>`, with the library's ids.
fn special() -> SpecialTokens {
    SpecialTokens::default()
}

/// An encoder–decoder whose encoder is one layer, applied `depth` times.
#[derive(Module, Debug)]
struct SharedEncoder<B: Backend> {
    embedding: TokenEmbedding<B>,
    positions: PositionalEncoding<B>,
    layer: Layer<B>,
    depth: usize,
    decoder: Stack<B, Layer<B>>,
    generator: Generator<B>,
}

impl<B: Backend> SharedEncoder<B> {
    fn new(depth: usize, device: &B::Device) -> Result<Self, ConfigError> {
        let layer = LayerConfig::new(D_MODEL, 4, 2 * D_MODEL)?;
        Ok(Self {
            embedding: EmbeddingConfig::new(VOCAB_SIZE, D_MODEL).init(device),
            positions: PositionalEncodingConfig::new(D_MODEL).init(device),
            layer: layer.init(device),
            depth,
            decoder: StackConfig::new(layer.with_memory(), 2).init(device),
            generator: GeneratorConfig::new(D_MODEL, VOCAB_SIZE).init(device),
        })
    }

    /// Encodes `[batch, src_len]`.
    fn encode(&self, src: Tensor<B, 2, Int>) -> Memory<B> {
        let padding = padding_positions(src.clone(), special().pad);
        let mask = Mask::padding(padding.clone());
        let mut hidden = self.positions.forward(self.embedding.forward(src), 0);
        let at = Context { mask: Some(&mask), ..Context::default() };
        for _ in 0..self.depth {
            hidden = self.layer.forward(hidden, &at, None).hidden;
        }
        Memory { hidden, padding }
    }

    /// Embeds target tokens at the positions starting at `first`.
    fn embed(&self, tgt: Tensor<B, 2, Int>, first: usize) -> Tensor<B, 3> {
        self.positions.forward(self.embedding.forward(tgt), first)
    }

    /// Hidden states of whole targets: `[batch, tgt_len]` to `[batch, tgt_len, D_MODEL]`.
    fn decode(&self, tgt: Tensor<B, 2, Int>, memory: &Memory<B>) -> Tensor<B, 3> {
        let at = Context {
            mask: Some(&target_mask(tgt.clone(), special())),
            memory: Some(&memory.hidden),
            memory_mask: Some(&Mask::padding(memory.padding.clone())),
            ..Context::default()
        };
        self.decoder.forward(self.embed(tgt, 0), &at).hidden
    }
}

/// For training: batches, and their loss.
impl<B: Backend> Objective<B> for SharedEncoder<B> {
    type Example = TokenizedPair;
    type Batch = PairBatch<B>;

    fn batch(&self, pairs: &[TokenizedPair], device: &B::Device) -> PairBatch<B> {
        PairBatch::new(pairs, special(), device)
    }

    fn loss(&self, batch: PairBatch<B>, options: &LossOptions) -> LossSums<B> {
        let hidden = self.decode(batch.target, &self.encode(batch.source));
        let logits = |rows: Tensor<B, 2>| self.generator.forward(rows, None);
        batch.labels.loss(hidden, options.label_smoothing, logits)
    }

    /// For the paper's learning rate.
    fn width(&self) -> Option<usize> {
        Some(D_MODEL)
    }
}

/// For decoding: the next token.
impl<B: Backend> NextToken for SharedEncoder<B> {
    type State = Cache<B, LayerState<B>>;

    fn vocabulary(&self) -> Vocabulary {
        Vocabulary { size: VOCAB_SIZE, special_tokens: special() }
    }

    fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
        match source {
            [] => Err(RequestProblem::Empty),
            _ => Ok(()),
        }
    }

    fn start(&self, sources: &[&[u32]], _: Threads) -> Cache<B, LayerState<B>> {
        let src = padded(sources, special().pad, &self.embedding.weight.device());
        self.decoder.start(Some(&self.encode(src)), sources.len())
    }

    fn next(
        &self,
        last: &[u32],
        cache: &mut Cache<B, LayerState<B>>,
        weights: AttentionWeights,
    ) -> Next {
        let column: Vec<[u32; 1]> = last.iter().map(|&token| [token]).collect();
        let tgt = padded(&column, special().pad, &self.embedding.weight.device());
        let x = self.embed(tgt.clone(), cache.len());
        let output = self.decoder.next(tgt, x, cache, special(), weights);
        let logits = self.generator.forward(output.hidden.squeeze_dim::<2>(1), None);
        Next::from(ops::log_softmax(logits))
    }

    fn select(&self, cache: &mut Cache<B, LayerState<B>>, sources: &[usize], rows: &[usize]) {
        cache.select(sources, rows);
    }
}

fn backwards(rng: &mut ChaCha8Rng, count: usize) -> Vec<TokenizedPair> {
    let pairs = (0..count).map(|_| {
        let len = rng.random_range(3..9);
        let source: Vec<u32> = (0..len).map(|_| rng.random_range(4..20)).collect();
        let target = source.iter().rev().copied().collect();
        TokenizedPair { source, target }
    });
    pairs.collect()
}

fn main() -> Result<(), Failure> {
    let flags = Flags::parse();
    let rng = &mut ChaCha8Rng::seed_from_u64(flags.seed);
    let (train, test) = (backwards(rng, 20_000), backwards(rng, 200));

    let device = transformer_examples::device()?;
    Autodiff::<Chosen>::seed(&device, flags.seed);
    let model = SharedEncoder::<Autodiff<Chosen>>::new(3, &device)?;
    println!("{} parameters", model.num_params());
    let run = TrainingConfig {
        seed: flags.seed,
        batch_tokens: flags.batch_tokens,
        warmup: flags.updates.div_ceil(4),
        learning_rate_factor: 0.25,
        updates: flags.updates,
        validate_every: flags.updates.div_ceil(4),
        ..TrainingConfig::default()
    };
    let train = Updates::new(&model, train, &run)?;
    let valid = Batches::new(&model, test.clone(), &run)?;
    let epochs = train.epochs();
    // Burn's logs, from which it makes its summary.
    let logs = tempfile::tempdir()?;
    let model = SupervisedTraining::new(logs.path(), train, valid)
        .metrics((LossMetric::<Chosen>::new(),))
        .metric_train_numeric(LearningRateMetric::new())
        .num_epochs(epochs)
        .summary()
        .launch(learner(model, &run)?)
        .model
        .model;

    let requests = test.iter().map(|pair| Request::new(&pair.source[..]));
    let requests: Vec<_> = requests.collect();
    let found = Search::new(&model, DecodeOptions::beam(4))?.run(&requests)?;
    let pairs = found.iter().zip(&test);
    let right = pairs.filter(|(found, pair)| found[0].tokens == pair.target);
    let right = right.count();
    println!("{:?} backwards is {:?}", test[0].source, found[0][0].tokens);
    println!("read backwards without an error: {right} of {}", test.len());
    if right < flags.at_least {
        return Err(format!("fewer than {} without an error", flags.at_least).into());
    }
    Ok(())
}
