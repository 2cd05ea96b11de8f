//! Training: the steps of the training loop, on given batches.

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use burn::train::{ItemLazy, TrainStep};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use transformer_core::models::MixedPrecision;
use transformer_core::nn::ProductPrecision;
use transformer_core::{Transformer, TransformerConfig};
use transformer_train::TrainingConfig;
use transformer_train::data::{TokenizedPair, Update};
use transformer_train::learner::TrainingModel;
use transformer_train::objective::LossOptions;
use transformer_train::optim::{Adam, AdamConfig, RateSchedule};

use super::Result;
use super::turns::{Outcome, Turns};

/// The size of a model, as for PyTorch's `nn.Transformer`.
#[derive(Debug, Deserialize)]
pub struct ModelSize {
    d_model: usize,
    n_heads: usize,
    d_ff: usize,
    layers: usize,
}

impl ModelSize {
    fn config(&self, vocab_size: usize) -> TransformerConfig {
        TransformerConfig {
            d_model: self.d_model,
            n_heads: self.n_heads,
            d_ff: self.d_ff,
            n_encoder_layers: self.layers,
            n_decoder_layers: self.layers,
            attention_bias: true,
            attention_dropout: 0.1,
            activation_dropout: 0.1,
            final_norm: true,
            ..TransformerConfig::base(vocab_size)
        }
    }
}

/// A batch of random tokens without padding.
#[derive(Debug, Deserialize)]
pub struct RandomBatch {
    #[serde(flatten)]
    model: ModelSize,
    rows: usize,
    len: usize,
    /// Updates per turn.
    updates: usize,
}

/// Batches of sentence pairs, one update each, from train-text.json.
#[derive(Debug, Deserialize)]
pub struct Text {
    vocab_size: usize,
    model: ModelSize,
    /// Source and target of each pair, without `<bos>` and `<eos>`.
    batches: Vec<Vec<(Vec<u32>, Vec<u32>)>>,
}

/// A model in training.
pub struct Training<B: AutodiffBackend> {
    /// `None` while the optimizer holds it.
    model: Option<TrainingModel<B, Transformer<B>>>,
    optimizer: Adam<TrainingModel<B, Transformer<B>>, B>,
    schedule: RateSchedule,
    /// The updates of one turn.
    updates: Vec<Update<TokenizedPair>>,
}

impl<B: AutodiffBackend> Training<B> {
    /// Trains on the same random batch in each update.
    pub fn of_batch(vocab_size: usize, batch: &RandomBatch, device: &B::Device) -> Result<Self> {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        // A batch adds one token to each side.
        let mut tokens = || -> Vec<u32> {
            (1..batch.len)
                .map(|_| random.random_range(4..vocab_size as u32))
                .collect()
        };
        let pairs = (0..batch.rows).map(|_| TokenizedPair {
            source: tokens(),
            target: tokens(),
        });
        let update = Update::new(vec![pairs.collect()]);
        let updates = vec![update; batch.updates];
        let config = batch.model.config(vocab_size);
        Self::new(&config, updates, ProductPrecision::F32, device)
    }

    /// Trains on text.
    pub fn of_text(text: Text, precision: ProductPrecision, device: &B::Device) -> Result<Self> {
        let config = text.model.config(text.vocab_size);
        let updates = text.batches.into_iter().map(|pairs| {
            let pairs = pairs.into_iter();
            let pairs = pairs.map(|(source, target)| TokenizedPair { source, target });
            Update::new(vec![pairs.collect()])
        });
        Self::new(&config, updates.collect(), precision, device)
    }

    fn new(
        config: &TransformerConfig,
        updates: Vec<Update<TokenizedPair>>,
        precision: ProductPrecision,
        device: &B::Device,
    ) -> Result<Self> {
        let mut model: Transformer<B> = config.init(1, device)?;
        model.set_precision(precision);
        Ok(Self {
            model: Some(TrainingModel::new(model, LossOptions::smoothed(0.1))),
            optimizer: AdamConfig::default().init(),
            schedule: RateSchedule::new(&TrainingConfig::default(), config.d_model),
            updates,
        })
    }

    /// Makes all updates in each turn.
    pub fn run(mut self, turns: Turns) -> Result {
        self.turn()?;
        turns.run(|| self.turn())
    }

    fn turn(&mut self) -> Result<Outcome> {
        let mut tokens = 0;
        for update in &self.updates {
            let model = self.model.take().ok_or("the optimizer kept the model")?;
            let output = TrainStep::step(&model, update.clone());
            let rate = self.schedule.step();
            self.model = Some(self.optimizer.step(rate, model, output.grads));
            // Read back, as a training loop does to display the loss.
            output.item.sync();
            tokens += update.loss_weight;
        }
        Ok(Outcome {
            tokens,
            ..Outcome::default()
        })
    }
}
