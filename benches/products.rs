//! Matrix multiplications. Decoding: by a weight packed in single precision or in 8 bits, and by `linear`, which
//! packs nothing. Training: the three multiplications of a linear layer, in f32 and in bf16.
//!
//! `cargo bench -p transformer-benches --bench products`; on one thread: `RAYON_NUM_THREADS=1`. To use older
//! instructions than the processor's best: `TRANSFORMER_SIMD=avx2` or `portable`. gemm ignores this; it computes
//! `linear` for matrices below 2²² multiply–adds, and always without AVX-512.

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use transformer_cpu::{
    LinearShape, PackedMatrix, PackedPrecision, ProductBuffer, ProductPrecision, Threads,
    WeightLayout, linear, linear_input_gradient, linear_weight_gradient,
};

/// `[d_input, d_output]`: queries, keys and values of a small model; a feed-forward network and the logits of a
/// base model.
const SIZES: [[usize; 2]; 3] = [[128, 384], [512, 2048], [512, 32_000]];
const ROWS: [usize; 5] = [1, 4, 12, 64, 256];
const LAYOUT: WeightLayout = WeightLayout::InputByOutput;

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = products, training_products
}
criterion_main!(benches);

/// Multiplications of each size and number of rows; throughput is in multiply–adds.
fn products(criterion: &mut Criterion) {
    for sizes in SIZES {
        let [d_input, d_output] = sizes;
        let weight = numbers(1, d_input * d_output);
        let bias = numbers(2, d_output);
        let packed = [PackedPrecision::F32, PackedPrecision::Int8]
            .map(|precision| PackedMatrix::new(&weight, sizes, LAYOUT, precision));
        let mut group = criterion.benchmark_group(format!("products by {d_input} x {d_output}"));
        for rows in ROWS {
            group.throughput(Throughput::Elements((rows * d_input * d_output) as u64));
            let x = numbers(3, rows * d_input);
            for packed in &packed {
                packed_product(&mut group, packed, &x, &bias);
            }
            let shape = LinearShape {
                rows,
                d_input,
                d_output,
                layout: LAYOUT,
                precision: ProductPrecision::F32,
            };
            group.bench_function(BenchmarkId::new("linear", rows), |bencher| {
                bencher.iter(|| linear(&x, &weight, Some(&bias), shape));
            });
        }
    }
}

/// Rows, `d_input` and `d_output`: linear layers on a batch, for a small model and a base model.
const TRAINING: [[usize; 3]; 6] = [
    [4096, 128, 384],
    [4096, 128, 256],
    [4096, 256, 128],
    [2048, 512, 512],
    [2048, 512, 2048],
    [2048, 2048, 512],
];

/// Multiplications of each size; throughput is in multiply–adds.
fn training_products(criterion: &mut Criterion) {
    for [rows, d_input, d_output] in TRAINING {
        let weight = numbers(1, d_input * d_output);
        let x = numbers(2, rows * d_input);
        let grad = numbers(3, rows * d_output);
        let mut group =
            criterion.benchmark_group(format!("training, {rows} rows, {d_input} x {d_output}"));
        group.throughput(Throughput::Elements((rows * d_input * d_output) as u64));
        for precision in [ProductPrecision::F32, ProductPrecision::Bf16] {
            let shape = LinearShape {
                rows,
                d_input,
                d_output,
                layout: LAYOUT,
                precision,
            };
            group.bench_function(BenchmarkId::new("output", precision), |bencher| {
                bencher.iter(|| linear(&x, &weight, None, shape));
            });
            group.bench_function(BenchmarkId::new("gradient of x", precision), |bencher| {
                bencher.iter(|| linear_input_gradient(&grad, &weight, shape));
            });
            group.bench_function(BenchmarkId::new("gradient of W", precision), |bencher| {
                bencher.iter(|| linear_weight_gradient(&grad, &x, shape));
            });
        }
    }
}

fn packed_product(
    group: &mut BenchmarkGroup<'_, WallTime>,
    packed: &PackedMatrix,
    x: &[f32],
    bias: &[f32],
) {
    let rows = x.len() / packed.d_input();
    let mut out = vec![0.0; rows * packed.d_output()];
    let mut buffer = ProductBuffer::default();
    for threads in [Threads::This, Threads::All] {
        let name = format!("{:?}, threads: {threads:?}", packed.precision());
        group.bench_function(BenchmarkId::new(name, rows), |bencher| {
            bencher.iter(|| packed.product(x, Some(bias), &mut out, &mut buffer, threads));
        });
    }
}

/// Distinct values between -1 and 1.
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let number = |at: usize| ((at * 7919 + seed * 104_729) % 65_537) as f32 / 32_768.5 - 1.0;
    (0..count).map(number).collect()
}
