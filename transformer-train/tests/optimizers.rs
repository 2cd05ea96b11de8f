//! `Trainer` trains by any optimizer and any schedule of Burn's, and resumes both.

mod support;

use std::fs;
use std::path::Path;
use transformer_instances as _;

use burn::lr_scheduler::LrScheduler;
use burn::lr_scheduler::exponential::{ExponentialLrScheduler, ExponentialLrSchedulerConfig};
use burn::optim::momentum::MomentumConfig;
use burn::optim::{Optimizer, SgdConfig};
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_core::Transformer;
use transformer_train::optim::{Adam, AdamConfig, RateSchedule};
use transformer_train::progress::ProgressDisplay;
use transformer_train::{TrainError, Trained, Trainer, TrainingConfig};

use support::run::{alone, pairs, tiny_config};

type B = Autodiff<NdArray>;
type Model = Transformer<B>;

fn run(updates: usize) -> TrainingConfig {
    TrainingConfig {
        batch_tokens: 20,
        updates,
        warmup: 4,
        validate_every: 3,
        ..TrainingConfig::default()
    }
}

fn trainer(updates: usize) -> Trainer<B, Model> {
    let model = tiny_config().init(3, &Default::default()).unwrap();
    Trainer::new(model, run(updates)).display(ProgressDisplay::Silent)
}

fn sgd() -> impl Optimizer<Model, B> + 'static {
    SgdConfig::new()
        .with_momentum(Some(MomentumConfig::new()))
        .init::<B, Model>()
}

/// 0.1, 0.09, 0.081, …
fn falling() -> ExponentialLrScheduler {
    ExponentialLrSchedulerConfig::new(0.1, 0.9).init().unwrap()
}

fn train<O, S>(
    trainer: Trainer<B, Model, O, S>,
    out: &Path,
) -> Result<Trained<Transformer<NdArray>>, TrainError>
where
    O: Optimizer<Model, B> + 'static,
    S: LrScheduler + 'static,
{
    trainer
        .directory(out)
        .resume(true)
        .log_json(true)
        .observe_every(1)
        .train(pairs(), pairs())
}

fn file(out: &Path, name: &str) -> Vec<u8> {
    fs::read(out.join("checkpoints/update-00000006").join(name)).unwrap()
}

fn rates(out: &Path) -> Vec<f64> {
    let log = fs::read_to_string(out.join("log.jsonl")).unwrap();
    let points = log
        .lines()
        .filter(|line| line.contains("\"event\":\"training\""));
    let rates = points.map(|line| {
        let point: serde_json::Value = serde_json::from_str(line).unwrap();
        point["learning_rate"].as_f64().unwrap()
    });
    rates.collect()
}

#[test]
fn a_run_by_burn_s_sgd_and_schedule_is_resumed_to_the_same_weights_and_rates() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let [whole, halves] = ["whole", "halves"].map(|name| folder.path().join(name));
    let by_sgd = |updates| trainer(updates).optimizer(sgd()).schedule(falling());
    train(by_sgd(6), &whole).unwrap();
    train(by_sgd(3), &halves).unwrap();
    let trained = train(by_sgd(6), &halves).unwrap();
    assert_eq!(trained.updates, 6);
    assert!(file(&whole, "model.safetensors") == file(&halves, "model.safetensors"));
    let found = rates(&halves);
    let expected: Vec<_> = (0..6).map(|update| 0.1 * 0.9_f64.powi(update)).collect();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
    }
    assert_eq!(found, rates(&whole));
}

/// The defaults, given one by one.
#[test]
fn the_default_optimizer_and_schedule_are_the_paper_s() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let [default, given] = ["default", "given"].map(|name| folder.path().join(name));
    train(trainer(6), &default).unwrap();
    let adam: Adam<Model, B> = AdamConfig {
        beta_1: 0.9,
        beta_2: 0.98,
        epsilon: 1e-9,
        weight_decay: 0.0,
    }
    .init();
    let schedule = RateSchedule::new(&run(6), tiny_config().d_model);
    let by_hand = trainer(6).optimizer(adam).schedule(schedule);
    train(by_hand, &given).unwrap();
    assert!(file(&default, "model.safetensors") == file(&given, "model.safetensors"));
}

#[test]
fn moments_of_another_optimizer_are_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    train(trainer(3).optimizer(sgd()), &out).unwrap();
    let error = train(trainer(6), &out).unwrap_err().to_string();
    assert!(error.contains("optimizer.mpk"), "{error}");
}
