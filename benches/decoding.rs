//! Decoding with the paper's base model: 32 tokens per source, 16 sources of 25 tokens.
//!
//! `cargo bench -p transformer-benches --features flex,tch --bench decoding`, on every compiled backend.

mod common;

use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use transformer_core::decoding::MaxLength;
use transformer_core::nn::{AttentionWeights, Cache, LayerState};
use transformer_core::{DecodeOptions, Request, Search, Transformer, TransformerConfig};
use transformer_program::{BackendChoice, BackendTask, run_on};

use crate::common::on_every_backend;

const VOCAB_SIZE: usize = 10_000;
const ROWS: usize = 16;
const SRC_LEN: usize = 25;
const NEW_TOKENS: usize = 32;

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
        let config = TransformerConfig::base(VOCAB_SIZE);
        let model = config.init::<B>(1, &device).expect("the base model");
        self.search(&model);
        self.steps(&model, &device);
    }
}

impl Benches<'_> {
    /// Whole searches, with `<eos>` suppressed until the last token.
    fn search<B: Backend>(&mut self, model: &Transformer<B>) {
        let requests: Vec<Request> = (0..ROWS as u32)
            .map(|row| {
                let tokens = (1..SRC_LEN as u32).map(|at| 4 + (row * 599 + at * 71) % 9000);
                Request::new(tokens.collect::<Vec<_>>())
            })
            .collect();
        let mut group = self.criterion.benchmark_group("search");
        group.throughput(Throughput::Elements((ROWS * NEW_TOKENS) as u64));
        for (name, beam) in [("greedy", 1), ("beam 4", 4)] {
            let options = DecodeOptions {
                min_length: NEW_TOKENS,
                max_length: MaxLength::Tokens(NEW_TOKENS),
                ..DecodeOptions::beam(beam)
            };
            let search = Search::new(model, options).expect("options in range");
            group.bench_function(BenchmarkId::new(name, self.backend), |bencher| {
                bencher.iter(|| search.run(&requests).expect("requests in range"));
            });
        }
    }

    /// Steps at a given position, for the cost of a token there.
    fn steps<B: Backend>(&mut self, model: &Transformer<B>, device: &B::Device) {
        let memory = model.encode(tokens(SRC_LEN, device));
        let mut group = self.criterion.benchmark_group("32 steps");
        for position in [16, 512] {
            let id = BenchmarkId::new(format!("from position {position}"), self.backend);
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|times| {
                    (0..times)
                        .map(|_| {
                            let mut cache = model.start_decoding(&memory);
                            // Sixteen at a time: a single pass would only need more memory.
                            for _ in 0..position / 16 {
                                let tokens = tokens(16, device);
                                model.decode_next(tokens, &mut cache, AttentionWeights::Discard);
                            }
                            timed::<B>(device, || step(model, &mut cache, device))
                        })
                        .sum()
                });
            });
        }
    }
}

fn step<B: Backend>(
    model: &Transformer<B>,
    cache: &mut Cache<B, LayerState<B>>,
    device: &B::Device,
) {
    for _ in 0..NEW_TOKENS {
        let output = model.decode_next(tokens(1, device), cache, AttentionWeights::Discard);
        model.generate(output.hidden);
    }
}

/// `[ROWS, len]`
fn tokens<B: Backend>(len: usize, device: &B::Device) -> Tensor<B, 2, Int> {
    let tokens: Vec<i64> = (0..ROWS * len)
        .map(|at| 4 + at as i64 * 71 % 9000)
        .collect();
    Tensor::<B, 1, Int>::from_data(tokens.as_slice(), device).reshape([ROWS, len])
}

fn timed<B: Backend>(device: &B::Device, work: impl FnOnce()) -> Duration {
    B::sync(device).expect("the device synchronizes");
    let start = Instant::now();
    work();
    B::sync(device).expect("the device synchronizes");
    start.elapsed()
}
