//! What wgpu copies from the device to the host: a few values per step of decoding, and per update of training.
//!
//! wgpu logs each copy from buffer to buffer, which Burn makes only to read a tensor.

use std::sync::Mutex;

use burn_autodiff::Autodiff;
use burn_wgpu::{Wgpu, WgpuDevice};
use log::{LevelFilter, Log, Metadata, Record};
use transformer_core::TransformerConfig;
use transformer_core::decoding::{DecodeOptions, MaxLength, Request, Search};
use transformer_program as _;
use transformer_train::data::TokenizedPair;
use transformer_train::progress::ProgressDisplay;
use transformer_train::{Trainer, TrainingConfig};

const VOCAB_SIZE: usize = 3000;

/// The sizes of the copies so far, in bytes.
struct Copies(Mutex<Vec<u64>>);

static COPIES: Copies = Copies(Mutex::new(Vec::new()));

impl Log for Copies {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("wgpu_core::")
    }

    fn log(&self, record: &Record<'_>) {
        // `CommandEncoder::copy_buffer_to_buffer Id(…) -> Id(…) Some(64)bytes`
        let message = record.args().to_string();
        if message.starts_with("CommandEncoder::copy_buffer_to_buffer ") {
            let digits = message.rsplit(' ').next().expect("a size");
            let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
            self.0.lock().unwrap().push(digits.parse().unwrap());
        }
    }

    fn flush(&self) {}
}

/// The sizes of the copies that this makes, in bytes.
fn copies(work: impl FnOnce()) -> Vec<u64> {
    COPIES.0.lock().unwrap().clear();
    work();
    std::mem::take(&mut *COPIES.0.lock().unwrap())
}

fn config() -> TransformerConfig {
    TransformerConfig {
        d_model: 32,
        n_heads: 4,
        d_ff: 64,
        n_encoder_layers: 1,
        n_decoder_layers: 2,
        ..TransformerConfig::base(VOCAB_SIZE)
    }
}

/// One test, because copies of others would be counted, too.
#[test]
fn little_is_copied_to_the_host() {
    log::set_logger(&COPIES).unwrap();
    log::set_max_level(LevelFilter::Trace);
    decoding_copies_the_most_likely_tokens_once_per_step();
    training_copies_a_few_values_once_per_update();
}

fn decoding_copies_the_most_likely_tokens_once_per_step() {
    const STEPS: usize = 9;
    const SOURCES: u64 = 3;
    let device = WgpuDevice::default();
    let model = config().init::<Wgpu>(1, &device).unwrap();
    let requests = [&[5, 3, 7][..], &[9, 4], &[11, 12, 13, 14]].map(Request::exact);
    for beam in [1, 4] {
        let options = DecodeOptions {
            min_length: STEPS,
            max_length: MaxLength::Tokens(STEPS),
            ..DecodeOptions::beam(beam)
        };
        let search = Search::new(&model, options).unwrap();
        let found = copies(|| {
            let targets = search.run(&requests).unwrap();
            assert!(targets.iter().all(|of_one| of_one[0].tokens.len() == STEPS));
        });
        println!("beam {beam}: copies of {found:?} bytes");
        // The tokens and their log-probabilities, in one transfer.
        assert_eq!(found.len(), 2 * STEPS, "beam {beam}: {found:?}");
        // Four bytes for each of the tokens that may survive, of each hypothesis of each source.
        let most = SOURCES * beam as u64 * (2 * beam as u64 + 1) * 4;
        assert!(
            found.iter().all(|&bytes| bytes <= most),
            "beam {beam}: {found:?}"
        );
    }
}

fn training_copies_a_few_values_once_per_update() {
    let device = WgpuDevice::default();
    let pair = |source: &[u32], target: &[u32]| TokenizedPair {
        source: source.to_vec(),
        target: target.to_vec(),
    };
    let pairs = vec![pair(&[5, 3, 7, 2], &[8, 6]), pair(&[9, 2], &[4, 11, 12])];
    let copies_of = |updates: usize| {
        let training = TrainingConfig {
            updates,
            ..TrainingConfig::default()
        };
        let model = config().init::<Autodiff<Wgpu>>(1, &device).unwrap();
        let trainer = Trainer::new(model, training).display(ProgressDisplay::Silent);
        copies(|| drop(trainer.train(pairs.clone(), pairs.clone()).unwrap()))
    };
    let (fewer, more) = (copies_of(5), copies_of(12));
    println!("12 updates: copies of {more:?} bytes");
    // Those that are not of updates are of the validation.
    assert_eq!(more.len() - fewer.len(), 7, "{fewer:?} {more:?}");
    let largest = |copies: &[u64]| copies.iter().copied().max();
    assert_eq!(largest(&more), largest(&fewer));
    assert!(largest(&more) <= Some(64), "{more:?}");
}
