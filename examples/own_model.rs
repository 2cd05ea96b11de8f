//! A model of one's own, made of the library's layers: trained in Burn's training loop, decoded by beam search.
//!
//! Its encoder applies one layer again and again, so that it has the parameters of one layer
//! whatever its depth. It learns to read a sequence backwards.
//!
//! `cargo run --release --example own_model`

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use burn::train::SupervisedTraining;
use burn::train::metric::{LearningRateMetric, LossMetric};
use burn_autodiff::Autodiff;
use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use transformer_core::{
    AttentionMask, AttentionWeights, ConfigError, DecodeOptions, Decoder, DecoderCache,
    DecoderConfig, EmbeddingConfig, EncoderLayer, Generator, GeneratorConfig, LayerConfig, Memory,
    NextToken, NextTokenOutput, PositionalEncoding, PositionalEncodingConfig, Request,
    RequestProblem, Search, SpecialTokens, TokenEmbedding, Vocabulary, ops, padded,
    padding_positions,
};
use transformer_examples::{Backend as Chosen, Failure};
use transformer_train::{
    Batches, LossOptions, LossSums, Objective, PairBatch, TokenizedPair, TrainingConfig, Updates,
    learner,
};

/// Trains a model of one's own to read sequences backwards, and decodes by beam search.
#[derive(Debug, Parser)]
struct Flags {
    /// Updates to train for
    #[arg(long, default_value_t = 800)]
    updates: usize,
    /// Tokens of a batch, on each side
    #[arg(long, default_value_t = 1024)]
    batch_tokens: usize,
    /// Sequences that must be read backwards without an error, of 200
    #[arg(long, default_value_t = 190)]
    at_least: usize,
    /// Seed of everything random
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

const VOCAB_SIZE: usize = 20;
const D_MODEL: usize = 64;

/// `<pad>`, `<bos>` and `<eos>`, with the ids that the library gives them.
fn special() -> SpecialTokens {
    SpecialTokens::default()
}

/// An encoder–decoder whose encoder is one layer, applied `depth` times.
#[derive(Module, Debug)]
struct SharedEncoder<B: Backend> {
    embedding: TokenEmbedding<B>,
    positions: PositionalEncoding<B>,
    layer: EncoderLayer<B>,
    depth: usize,
    decoder: Decoder<B>,
    generator: Generator<B>,
}

impl<B: Backend> SharedEncoder<B> {
    fn new(depth: usize, device: &B::Device) -> Result<Self, ConfigError> {
        let layer = LayerConfig::new(D_MODEL, 4, 2 * D_MODEL)?;
        Ok(Self {
            embedding: EmbeddingConfig::new(VOCAB_SIZE, D_MODEL).init(device),
            positions: PositionalEncodingConfig::new(D_MODEL).init(device),
            layer: layer.init_encoder_layer(device),
            depth,
            decoder: DecoderConfig::new(layer, 2).init(device),
            generator: GeneratorConfig::new(D_MODEL, VOCAB_SIZE).init(device),
        })
    }

    /// `[batch, src_len]` to a memory.
    fn encode(&self, src: Tensor<B, 2, Int>) -> Memory<B> {
        let padding = padding_positions(src.clone(), special().pad);
        let mask = AttentionMask::padding(padding.clone());
        let mut hidden = self.positions.forward(self.embedding.forward(src), 0);
        for _ in 0..self.depth {
            let layer = &self.layer;
            hidden = layer
                .forward(hidden, Some(&mask), AttentionWeights::Discard)
                .hidden;
        }
        Memory { hidden, padding }
    }

    /// Hidden states of the tokens `[batch, new_len]` that follow those in the cache.
    fn decode(&self, tgt: Tensor<B, 2, Int>, cache: &mut DecoderCache<B>) -> Tensor<B, 3> {
        let x = self.embedding.forward(tgt.clone());
        let x = self.positions.forward(x, cache.len());
        let weights = AttentionWeights::Discard;
        self.decoder
            .decode_next(tgt, x, cache, special(), weights)
            .hidden
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
        let mut cache = self.decoder.read_once(&self.encode(batch.source));
        let hidden = self.decode(batch.target, &mut cache);
        let logits = |rows: Tensor<B, 2>| self.generator.forward(rows, None);
        batch.labels.loss(hidden, options.label_smoothing, logits)
    }

    /// For the paper's learning rate.
    fn width(&self) -> Option<usize> {
        Some(D_MODEL)
    }
}

/// For decoding: the next token.
impl<B: Backend> NextToken<B> for SharedEncoder<B> {
    type State = DecoderCache<B>;

    fn device(&self) -> B::Device {
        self.embedding.weight.device()
    }

    fn vocabulary(&self) -> Vocabulary {
        Vocabulary {
            size: VOCAB_SIZE,
            special_tokens: special(),
        }
    }

    fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
        match source {
            [] => Err(RequestProblem::Empty),
            _ => Ok(()),
        }
    }

    fn start(&self, sources: &[&[u32]]) -> DecoderCache<B> {
        let src = padded(sources, special().pad, &self.device());
        self.decoder.start_decoding(&self.encode(src))
    }

    fn next_token(
        &self,
        last: &[u32],
        cache: &mut DecoderCache<B>,
        _: AttentionWeights,
    ) -> NextTokenOutput<B> {
        let column: Vec<[u32; 1]> = last.iter().map(|&token| [token]).collect();
        let tgt = padded(&column, special().pad, &self.device());
        let hidden = self.decode(tgt, cache).squeeze_dim::<2>(1);
        let logits = self.generator.forward(hidden, None);
        NextTokenOutput::new(ops::log_softmax(logits))
    }

    fn select(&self, cache: &mut DecoderCache<B>, sources: &[usize], rows: &[usize]) {
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

    let device = Default::default();
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
    // Burn's logs, from which its summary is made.
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
