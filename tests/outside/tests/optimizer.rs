//! A training run with a custom optimizer and schedule, stopped and resumed.

use std::path::Path;

use burn::grad_clipping::GradientClipping;
use burn::lr_scheduler::LrScheduler;
use burn::optim::SimpleOptimizer;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::record::Record;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use outside::sample_tokens;
use transformer_core::backend::{Autodiff, NdArray};
use transformer_core::burn;
use transformer_core::{Transformer, TransformerConfig};
use transformer_train::data::TokenizedPair;
use transformer_train::progress::ProgressDisplay;
use transformer_train::{Trained, Trainer, TrainingConfig};

/// Lion (Chen et al., 2023): the sign of a momentum.
#[derive(Clone)]
struct Lion;

#[derive(Record, Clone)]
struct Momentum<B: Backend, const D: usize> {
    mean: Tensor<B, D>,
}

impl<B: Backend> SimpleOptimizer<B> for Lion {
    type State<const D: usize> = Momentum<B, D>;

    fn step<const D: usize>(
        &self,
        rate: f64,
        tensor: Tensor<B, D>,
        gradient: Tensor<B, D>,
        state: Option<Momentum<B, D>>,
    ) -> (Tensor<B, D>, Option<Momentum<B, D>>) {
        let mean = state.map_or_else(|| gradient.zeros_like(), |state| state.mean);
        let update = (mean.clone() * 0.9 + gradient.clone() * 0.1).sign();
        let mean = mean * 0.99 + gradient * 0.01;
        (tensor - update * rate, Some(Momentum { mean }))
    }

    fn to_device<const D: usize>(state: Momentum<B, D>, device: &B::Device) -> Momentum<B, D> {
        let mean = state.mean.to_device(device);
        Momentum { mean }
    }
}

/// A rate that halves every 20 updates.
#[derive(Clone)]
struct Halving {
    updates: usize,
}

impl LrScheduler for Halving {
    type Record<B: Backend> = usize;

    fn step(&mut self) -> f64 {
        self.updates += 1;
        1e-3 * 0.5_f64.powi((self.updates / 20) as i32)
    }

    fn to_record<B: Backend>(&self) -> usize {
        self.updates
    }

    fn load_record<B: Backend>(self, updates: usize) -> Self {
        Self { updates }
    }
}

type Training = Autodiff<NdArray>;

fn train(updates: usize, directory: &Path, resume: bool) -> Trained<Transformer<NdArray>> {
    let config = TransformerConfig {
        d_model: 16,
        n_heads: 2,
        d_ff: 32,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        dropout: 0.1,
        ..TransformerConfig::base(12)
    };
    let pairs: Vec<_> = (0..200_u32)
        .map(|n| {
            let source: Vec<u32> = (0..4).map(|at| 3 + (n * 7 + at * 5) % 9).collect();
            let target = source.clone();
            TokenizedPair { source, target }
        })
        .collect();
    let run = TrainingConfig {
        updates,
        batch_tokens: 128,
        validate_every: 30,
        ..TrainingConfig::default()
    };
    let optimizer: OptimizerAdaptor<Lion, Transformer<Training>, Training> = Lion.into();
    Trainer::new(
        config.init::<Training>(1, &Default::default()).unwrap(),
        run,
    )
    .optimizer(optimizer.with_grad_clipping(GradientClipping::Norm(1.0)))
    .schedule(Halving { updates: 0 })
    .directory(directory)
    .resume(resume)
    .display(ProgressDisplay::Silent)
    .train(pairs.clone(), pairs)
    .unwrap()
}

fn logits(model: &Transformer<NdArray>) -> Vec<f32> {
    let logits = model.forward(sample_tokens(2, 5), sample_tokens(2, 4));
    logits.into_data().into_vec().unwrap()
}

#[test]
fn a_resumed_run_ends_with_the_same_model() {
    let _alone = super::alone();
    let [whole, halves] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let trained = train(60, whole.path(), false);
    let losses = trained
        .validations
        .iter()
        .map(|validation| validation.valid_loss);
    let losses: Vec<f64> = losses.collect();
    assert!(losses.last() < losses.first(), "it learns: {losses:?}");

    train(30, halves.path(), false);
    let resumed = train(60, halves.path(), true);
    assert_eq!(resumed.updates, 60);
    assert_eq!(logits(&resumed.model), logits(&trained.model));
}
