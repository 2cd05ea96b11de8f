//! Training steps and their parts, at several sizes.
//!
//! `cargo bench -p transformer-benches --features flex,tch --bench training`, on every compiled backend; an
//! optional filter follows `--`.

mod common;

use std::time::Duration;

use burn::module::AutodiffModule;
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Bool, Distribution, Int, Tensor, TensorData};
use burn::train::TrainStep;
use burn_autodiff::Autodiff;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use transformer_core::nn::{AttentionWeights, Block, Context, Mask, WeightInit};
use transformer_core::ops::{self, Heads, Operands, ProductPrecision};
use transformer_core::{Transformer, TransformerConfig};
use transformer_program::{BackendChoice, BackendTask, run_on};
use transformer_train::data::{TokenizedPair, Update};
use transformer_train::learner::TrainingModel;
use transformer_train::objective::{LabelSmoothedCrossEntropy, LossOptions};
use transformer_train::optim::AdamConfig;

use crate::common::on_every_backend;

const VOCAB_SIZE: usize = 10_000;

/// A model and a batch for it.
struct Size {
    name: &'static str,
    config: TransformerConfig,
    rows: usize,
    len: usize,
}

fn sizes() -> Vec<Size> {
    let size = |name, config, rows, len| Size {
        name,
        config,
        rows,
        len,
    };
    let base = || TransformerConfig::base(VOCAB_SIZE);
    vec![
        size("tiny", TransformerConfig::notebook_mini(1000), 8, 16),
        size("base", base(), 16, 32),
        size("base, length 512", base(), 1, 512),
        size("base, length 2048", base(), 1, 2048),
    ]
}

/// The base model's attention over the same number of tokens, in sentences of different lengths.
fn attention_sizes() -> Vec<Size> {
    let lens = [("32", 32), ("128", 128), ("512", 512), ("2048", 2048)];
    let size = |(name, len)| Size {
        name,
        config: TransformerConfig::base(VOCAB_SIZE),
        rows: 2048 / len,
        len,
    };
    lens.map(size).into()
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_secs(1));
    targets = benches_of_every_backend
}
criterion_main!(benches);

fn benches_of_every_backend(criterion: &mut Criterion) {
    on_every_backend(|backend| {
        let benches = Benches {
            backend,
            criterion: &mut *criterion,
        };
        run_on(backend, benches)
    });
}

struct Benches<'a> {
    backend: BackendChoice,
    criterion: &'a mut Criterion,
}

impl BackendTask for Benches<'_> {
    type Output = ();

    fn run<B: Backend>(mut self, device: B::Device) {
        for size in attention_sizes() {
            self.attention::<Autodiff<B>>(&size, &device);
        }
        for size in sizes() {
            self.encoder_layer::<Autodiff<B>>(&size, &device);
            self.loss::<Autodiff<B>>(&size, &device);
            self.optimizer_step::<Autodiff<B>>(&size, &device);
            self.training_steps::<Autodiff<B>>(&size, &device);
        }
    }
}

impl Benches<'_> {
    /// Measures `work`, with throughput in tokens of the batch.
    fn measure<B: Backend>(
        &mut self,
        name: &str,
        size: &Size,
        device: &B::Device,
        mut work: impl FnMut(),
    ) {
        let mut group = self.criterion.benchmark_group(name);
        group.throughput(Throughput::Elements((size.rows * size.len) as u64));
        group.bench_function(BenchmarkId::new(size.name, self.backend), |bencher| {
            bencher.iter(|| {
                work();
                B::sync(device).expect("the device synchronizes");
            });
        });
    }

    /// Attention of all heads of a layer, without its projections: forward and backward pass, with the masks of a
    /// decoder, of a source without padding, and of sources of different lengths.
    fn attention<B: AutodiffBackend>(&mut self, size: &Size, device: &B::Device) {
        let (n_heads, d_head) = (size.config.n_heads, size.config.d_k());
        let heads = Heads {
            n_heads,
            d_k: d_head,
            d_v: d_head,
        };
        let shape = [size.rows, size.len, 3 * n_heads * d_head];
        let packed = Tensor::<B, 3>::random(shape, Distribution::Uniform(-1.0, 1.0), device);
        let packed = packed.require_grad();
        let padding = uneven_padding::<B>(size, device);
        let masks = [
            ("causal", Mask::causal(size.len, size.len, device)),
            ("no padding", Mask::padding(padding.zeros_like())),
            ("uneven lengths", Mask::padding(padding)),
        ];
        for (kind, mask) in masks {
            for p in [0.0, 0.1] {
                let name = format!("attention, forward and back, {kind}, dropout {p}");
                self.measure::<B>(&name, size, device, || {
                    let operands = Operands::SelfPacked(&packed);
                    let mask = Some(&mask);
                    let attended = ops::attention(
                        operands,
                        heads,
                        mask,
                        p,
                        AttentionWeights::Discard,
                        ProductPrecision::F32,
                    );
                    attended.output.sum().backward();
                });
            }
        }
    }

    fn encoder_layer<B: AutodiffBackend>(&mut self, size: &Size, device: &B::Device) {
        let config = size.config.encoder().layer;
        let layer = config.init_from::<B>(&mut WeightInit::new(1), device);
        let shape = [size.rows, size.len, config.d_model()];
        let x = Tensor::<B, 3>::random(shape, Distribution::Uniform(-1.0, 1.0), device);
        self.measure::<B>("encoder layer, forward and back", size, device, || {
            let output = layer.forward(x.clone(), &Context::default(), None);
            output.hidden.sum().backward();
        });
        let (layer, x) = (layer.valid(), x.inner());
        self.measure::<B>("encoder layer, forward", size, device, || {
            Block::forward(&layer, x.clone(), &Context::default(), None);
        });
    }

    fn loss<B: AutodiffBackend>(&mut self, size: &Size, device: &B::Device) {
        let shape = [size.rows * size.len, size.config.tgt_vocab_size];
        let logits = Tensor::<B, 2>::random(shape, Distribution::Uniform(-1.0, 1.0), device);
        let logits = logits.require_grad();
        let labels = tokens::<B>(size, device).flatten(0, 1);
        let loss = LabelSmoothedCrossEntropy::new(0.1, 0);
        self.measure::<B>("loss, forward and back", size, device, || {
            loss.mean(logits.clone(), labels.clone()).backward();
        });
    }

    /// The Adam step alone; it does not depend on the batch.
    fn optimizer_step<B: AutodiffBackend>(&mut self, size: &Size, device: &B::Device) {
        if size.len > 32 {
            return;
        }
        let model = training_model::<B>(size, device);
        let step = || TrainStep::step(&model, update(size, |_| size.len)).grads;
        let mut optimizer = AdamConfig::default().init();
        let mut stepped = Some(optimizer.step(1e-4, model.clone(), step()));
        let mut group = self.criterion.benchmark_group("optimizer step");
        group.bench_function(BenchmarkId::new(size.name, self.backend), |bencher| {
            let gradients = || -> GradientsParams { step() };
            bencher.iter_batched(
                gradients,
                |gradients| {
                    let model = stepped.take().expect("put back below");
                    stepped = Some(optimizer.step(1e-4, model, gradients));
                    B::sync(device).expect("the device synchronizes");
                },
                BatchSize::PerIteration,
            );
        });
    }

    /// Steps on a batch without padding, and on a batch of the same shape with sentence lengths from half of the
    /// longest up: a quarter of it is padding, which counts in the throughput.
    fn training_steps<B: AutodiffBackend>(&mut self, size: &Size, device: &B::Device) {
        let even = || update(size, |_| size.len);
        self.training_step::<B>("training step", even, size, device);
        if let Some(last) = size.rows.checked_sub(1).filter(|&last| last > 0) {
            let uneven = || update(size, |row| size.len - size.len / 2 * row / last);
            self.training_step::<B>("training step, uneven lengths", uneven, size, device);
        }
    }

    /// One step, as in the training loop: forward pass, backward pass, Adam.
    fn training_step<B: AutodiffBackend>(
        &mut self,
        name: &str,
        update: impl Fn() -> Update<TokenizedPair>,
        size: &Size,
        device: &B::Device,
    ) {
        let mut trained = Some(training_model::<B>(size, device));
        let mut optimizer = AdamConfig::default().init();
        self.measure::<B>(name, size, device, || {
            let model = trained.take().expect("put back below");
            let output = TrainStep::step(&model, update());
            trained = Some(optimizer.step(1e-4, model, output.grads));
        });
    }
}

fn training_model<B: AutodiffBackend>(
    size: &Size,
    device: &B::Device,
) -> TrainingModel<B, Transformer<B>> {
    let model: Transformer<B> = size.config.init(1, device).expect("a valid configuration");
    TrainingModel::new(model, LossOptions::smoothed(0.1))
}

/// A batch of pairs whose rows have the given lengths, including the token that is added to each side of a pair.
fn update(size: &Size, len: impl Fn(usize) -> usize) -> Update<TokenizedPair> {
    let tokens = token_ids(size, size.rows * (size.len - 1));
    let rows = tokens.chunks(size.len - 1).enumerate();
    let pairs = rows.map(|(index, row)| {
        let row = &row[..len(index) - 1];
        TokenizedPair {
            source: row.to_vec(),
            target: row.to_vec(),
        }
    });
    Update::new(vec![pairs.collect()])
}

fn token_ids(size: &Size, count: usize) -> Vec<u32> {
    let most = size.config.src_vocab_size.min(size.config.tgt_vocab_size) - 4;
    (0..count).map(|at| (4 + at * 71 % most) as u32).collect()
}

/// `[rows, len]`
fn tokens<B: Backend>(size: &Size, device: &B::Device) -> Tensor<B, 2, Int> {
    let tokens = token_ids(size, size.rows * size.len);
    let tokens: Vec<_> = tokens.into_iter().map(i64::from).collect();
    Tensor::<B, 1, Int>::from_data(tokens.as_slice(), device).reshape([size.rows, size.len])
}

/// The padding of sentences with lengths from half of the longest up; a single one has three quarters of the
/// length. `[rows, len]`, `true` = blocked.
fn uneven_padding<B: Backend>(size: &Size, device: &B::Device) -> Tensor<B, 2, Bool> {
    let padding = (0..size.rows).flat_map(|row| {
        let shorter = match size.rows - 1 {
            0 => size.len / 4,
            last => size.len / 2 * row / last,
        };
        (0..size.len).map(move |at| at >= size.len - shorter)
    });
    let padding = padding.collect::<Vec<bool>>();
    Tensor::from_data(TensorData::new(padding, [size.rows, size.len]), device)
}
