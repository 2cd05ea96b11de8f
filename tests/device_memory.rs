//! Training on wgpu on batches of many shapes does not use more and more device memory.

use burn::lr_scheduler::LrScheduler;
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::{Int, Tensor};
use burn_autodiff::Autodiff;
use burn_wgpu::{Wgpu, WgpuDevice};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use transformer_core::TransformerConfig;
use transformer_program as _;
use transformer_train::TrainingConfig;
use transformer_train::objective::LabelSmoothedCrossEntropy;
use transformer_train::optim::{AdamConfig, RateSchedule};

type B = Autodiff<Wgpu>;

const UPDATES: usize = 300;
const VOCAB_SIZE: usize = 50;
const MOST_ROWS: usize = 8;
const MOST_TOKENS: usize = 24;

/// Bytes on the device: in use by tensors, and reserved for them.
#[derive(Debug, Clone, Copy)]
struct Memory {
    in_use: u64,
    reserved: u64,
}

impl Memory {
    fn now(device: &WgpuDevice) -> Self {
        let tensor = Tensor::<Wgpu, 1>::zeros([1], device);
        let usage = tensor.into_primitive().tensor().client.memory_usage();
        let usage = usage.expect("the device reports its memory");
        Self {
            in_use: usage.bytes_in_use,
            reserved: usage.bytes_reserved,
        }
    }
}

#[test]
fn three_hundred_updates_need_no_more_memory_than_the_first_hundred() {
    let device = WgpuDevice::default();
    let config = TransformerConfig {
        d_model: 32,
        n_heads: 4,
        d_ff: 64,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..TransformerConfig::base(VOCAB_SIZE)
    };
    let mut model = config.init::<B>(1, &device).unwrap();
    let mut optimizer = AdamConfig::default().init();
    let mut schedule = RateSchedule::new(&TrainingConfig::default(), config.d_model);
    let loss = LabelSmoothedCrossEntropy::new(0.1, config.pad_id);

    let mut random = ChaCha8Rng::seed_from_u64(2);
    let mut memory = Vec::with_capacity(UPDATES);
    for _ in 0..UPDATES {
        let rows = random.random_range(1..=MOST_ROWS);
        let [src_len, tgt_len] = [(); 2].map(|()| random.random_range(1..=MOST_TOKENS));
        let mut tokens = |len: usize| -> Tensor<B, 2, Int> {
            let tokens = (0..rows * len).map(|_| random.random_range(3..VOCAB_SIZE as i64));
            let tokens: Vec<i64> = tokens.collect();
            Tensor::<B, 1, Int>::from_data(tokens.as_slice(), &device).reshape([rows, len])
        };
        let (src, tgt, labels) = (tokens(src_len), tokens(tgt_len), tokens(tgt_len));
        let logits = model.forward(src, tgt);
        let loss = loss.mean(logits.flatten(0, 1), labels.flatten(0, 1));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(schedule.step(), model, gradients);
        memory.push(Memory::now(&device));
    }

    let most = |updates: &[Memory]| Memory {
        in_use: updates.iter().map(|memory| memory.in_use).max().unwrap(),
        reserved: updates.iter().map(|memory| memory.reserved).max().unwrap(),
    };
    let (first, rest) = (most(&memory[..100]), most(&memory[100..]));
    println!("first 100 updates: {first:?}; the 200 after: {rest:?}");
    // Between updates, the device holds the model and the optimizer's moments.
    assert!(
        rest.in_use <= first.in_use + first.in_use / 10,
        "{first:?} {rest:?}"
    );
    // A larger batch than any before may come late.
    assert!(rest.reserved <= 2 * first.reserved, "{first:?} {rest:?}");
}
