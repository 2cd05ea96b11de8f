//! The promises of training: an update is one step for any number of batches, a resumed run equals the
//! run that was not stopped, and no model is overwritten.

#[path = "training/ranks.rs"]
mod ranks;
mod support;

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use transformer_instances as _;

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::train::{Interrupter, TrainStep};
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_core::models::WeightTying;
use transformer_core::nn::ProductPrecision;
use transformer_core::ops::multiplies_in;
use transformer_core::{Transformer, TransformerConfig};
use transformer_train::data::{TokenizedPair, Update};
use transformer_train::learner::TrainingModel;
use transformer_train::objective::{LossOptions, PairBatch};
use transformer_train::optim::{AdamConfig, Schedule, clip_global_norm};
use transformer_train::progress::ProgressDisplay;
use transformer_train::run::{RunRecord, StopReason};
use transformer_train::{TrainError, Trainer, TrainingConfig};

use support::run::{alone, tiny_config};

type Inner = NdArray;
type B = Autodiff<Inner>;

fn model_config() -> TransformerConfig {
    TransformerConfig {
        tying: WeightTying::All,
        ..tiny_config()
    }
}

fn model() -> Transformer<B> {
    model_config().init(3, &Default::default()).unwrap()
}

/// Sources of 1 to 5 tokens; targets twice as long.
fn pairs(count: usize) -> Vec<TokenizedPair> {
    (0..count)
        .map(|index| {
            let source: Vec<u32> = (0..=index % 5)
                .map(|at| 3 + ((index * 7 + at * 3) % 10) as u32)
                .collect();
            TokenizedPair {
                target: source.iter().flat_map(|&token| [token, token]).collect(),
                source,
            }
        })
        .collect()
}

fn run() -> TrainingConfig {
    TrainingConfig {
        seed: 5,
        batch_tokens: 40,
        warmup: 4,
        updates: 12,
        validate_every: 4,
        ..TrainingConfig::default()
    }
}

fn trainer(config: TrainingConfig) -> Trainer<B, Transformer<B>> {
    Trainer::new(model(), config).display(ProgressDisplay::Silent)
}

/// Every parameter's values, in the order of the model.
fn weights<T: Backend, M: Module<T>>(model: &M) -> Vec<Vec<f32>> {
    struct Values(Vec<Vec<f32>>);
    impl<T: Backend> ModuleVisitor<T> for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<T, D>>) {
            self.0.push(param.val().into_data().iter().collect());
        }
    }
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    values.0
}

/// Every parameter's gradient, in the order of the model.
fn gradients<M: AutodiffModule<B>>(model: &M, grads: &GradientsParams) -> Vec<Vec<f32>> {
    struct Values<'a>(&'a GradientsParams, Vec<Vec<f32>>);
    impl<T: AutodiffBackend> ModuleVisitor<T> for Values<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<T, D>>) {
            let grad = self.0.get::<T::InnerBackend, D>(param.id);
            let grad = grad.expect("every parameter has a gradient");
            self.1.push(grad.into_data().iter().collect());
        }
    }
    let mut values = Values(grads, Vec::new());
    Module::<B>::visit(model, &mut values);
    values.1
}

/// The largest difference; NaN if there is one.
fn largest_difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    let lengths = |all: &[Vec<f32>]| all.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lengths(a), lengths(b));
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    let differences = pairs.map(|(a, b)| (a - b).abs());
    differences.max_by(f32::total_cmp).unwrap_or(0.0)
}

fn update(batches: &[&[TokenizedPair]]) -> Update<TokenizedPair> {
    Update::new(batches.iter().map(|batch| batch.to_vec()).collect())
}

#[test]
fn a_precision_that_the_backend_lacks_is_refused() {
    let _alone = alone();
    let config = TrainingConfig {
        precision: ProductPrecision::Bf16,
        ..run()
    };
    let trained = trainer(config).train(pairs(9), pairs(3));
    // With the feature `ndarray`.
    if multiplies_in::<B>(ProductPrecision::Bf16, &Default::default()) {
        return assert!(trained.is_ok());
    }
    assert_eq!(
        trained.unwrap_err().to_string(),
        "`precision` is bf16, but ndarray does not have it; the features `flex`, `ndarray` and `tch` add it to these backends"
    );
}

#[test]
fn an_update_is_the_same_however_its_pairs_are_batched() {
    let _alone = alone();
    let config = TransformerConfig {
        dropout: 0.0,
        ..model_config()
    };
    let model = config.init::<B>(3, &Default::default()).unwrap();
    let model = TrainingModel::new(model, LossOptions::smoothed(0.1));
    let pairs = pairs(7);
    // One batch, and three of unequal sizes: a mean of the batches' means would differ.
    let whole = TrainStep::step(&model, update(&[&pairs]));
    let parts = TrainStep::step(&model, update(&[&pairs[..1], &pairs[1..3], &pairs[3..]]));
    let whole = gradients(&model, &whole.grads);
    let parts = gradients(&model, &parts.grads);
    assert!(whole.iter().flatten().any(|&g| g.abs() > 1e-3));
    assert!(largest_difference(&whole, &parts) < 1e-6);
}

#[test]
fn labels_are_the_target_shifted_and_padding_counts_for_nothing() {
    let _alone = alone();
    let pair = |source: &[u32], target: &[u32]| TokenizedPair {
        source: source.to_vec(),
        target: target.to_vec(),
    };
    let pairs = [pair(&[5, 6, 7], &[8]), pair(&[9], &[10, 11])];
    let tokens = model_config().special_tokens();
    let batch = PairBatch::<Inner>::new(&pairs, tokens, &Default::default());
    let rows = |tensor: Tensor<Inner, 2, burn::tensor::Int>| -> Vec<i64> {
        tensor.into_data().iter().collect()
    };
    let labels: Vec<i64> = batch.labels.tokens().into_data().iter().collect();
    assert_eq!(update(&[&pairs]).loss_weight, 5);
    assert_eq!(rows(batch.source), [5, 6, 7, 2, 9, 2, 0, 0]);
    assert_eq!(rows(batch.target), [1, 8, 0, 1, 10, 11]);
    assert_eq!(labels, [8, 2, 10, 11, 2]);
}

#[test]
fn clipping_scales_all_gradients_together() {
    let _alone = alone();
    let model = TrainingModel::new(model(), LossOptions::smoothed(0.1));
    let pairs = pairs(4);
    let grads = || TrainStep::step(&model, update(&[&pairs])).grads;
    B::seed(&Default::default(), 1);
    let free = gradients(&model, &grads());
    let norm = |g: &[Vec<f32>]| g.iter().flatten().map(|g| g * g).sum::<f32>().sqrt();

    for max_norm in [norm(&free) / 10.0, norm(&free) * 10.0] {
        B::seed(&Default::default(), 1);
        let clipped = clip_global_norm(&model, grads(), f64::from(max_norm));
        let clipped = gradients(&model, &clipped);
        let scale = (max_norm / norm(&free)).min(1.0);
        let expected: Vec<Vec<f32>> = free
            .iter()
            .map(|g| g.iter().map(|g| g * scale).collect())
            .collect();
        assert!(largest_difference(&clipped, &expected) < 1e-6);
    }
}

/// With gradients of zero, a step is weight decay alone. The embedding is three matrices in one.
#[test]
fn weight_decay_shrinks_each_matrix_once_and_no_bias_or_norm() {
    struct Zeros(GradientsParams, Vec<usize>);
    impl<T: AutodiffBackend> ModuleVisitor<T> for Zeros {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<T, D>>) {
            self.0.register(param.id, param.val().inner().zeros_like());
            self.1.push(D);
        }
    }
    let config = TransformerConfig {
        attention_bias: true,
        ..model_config()
    };
    let model = config.init::<B>(3, &Default::default()).unwrap();
    let mut zeros = Zeros(GradientsParams::new(), Vec::new());
    Module::<B>::visit(&model, &mut zeros);
    let Zeros(grads, dimensions) = zeros;
    let before = weights::<B, _>(&model);
    let decaying = AdamConfig {
        weight_decay: 0.5,
        ..AdamConfig::default()
    };
    let mut optimizer = decaying.init::<Transformer<B>, B>();
    let after = weights::<B, _>(&optimizer.step(0.5, model, grads));

    assert!(dimensions.contains(&1) && dimensions.contains(&2));
    assert_eq!(after.len(), dimensions.len());
    for ((before, after), dimensions) in before.iter().zip(&after).zip(dimensions) {
        let factor = if dimensions >= 2 { 0.75 } else { 1.0 };
        let expected: Vec<f32> = before.iter().map(|weight| weight * factor).collect();
        assert_eq!(after, &expected);
    }
}

#[test]
fn training_learns_and_keeps_the_best_model() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let config = TrainingConfig {
        updates: 60,
        validate_every: 20,
        warmup: 20,
        ..run()
    };
    let trained = trainer(config)
        .directory(&out)
        .train(pairs(30), pairs(10))
        .unwrap();
    assert_eq!(trained.stopped, StopReason::Updates);
    let losses: Vec<f64> = trained.validations.iter().map(|v| v.valid_loss).collect();
    assert_eq!(losses.len(), 3);
    assert!(losses[2] < losses[0], "{losses:?}");

    let best = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let kept = Transformer::<Inner>::load(&out, &Default::default()).unwrap();
    let statistics =
        transformer_train::validation::evaluate(&kept, pairs(10), 40, &LossOptions::smoothed(0.1))
            .unwrap();
    assert!((statistics.mean_loss() - best).abs() < 1e-6);
}

#[test]
fn a_resumed_run_is_the_run_that_was_not_stopped() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let whole = trainer(run()).train(pairs(30), pairs(10)).unwrap();

    let out = folder.path().join("model");
    let first = TrainingConfig {
        // In the middle of an epoch, and between two validations.
        updates: 6,
        ..run()
    };
    let stopped = trainer(first)
        .directory(&out)
        .train(pairs(30), pairs(10))
        .unwrap();
    assert_eq!(stopped.updates, 6);
    let resumed = trainer(run())
        .directory(&out)
        .resume(true)
        .train(pairs(30), pairs(10))
        .unwrap();
    assert_eq!(resumed.updates, 12);
    assert!(weights(&resumed.model) == weights(&whole.model));
}

/// With a tied embedding: the generator's matrix is the same parameter.
#[test]
fn a_frozen_embedding_stays_frozen_in_a_resumed_run() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let frozen = |updates| {
        let mut model = model();
        model.src_embedding = model.src_embedding.no_grad();
        let config = TrainingConfig { updates, ..run() };
        Trainer::new(model, config).display(ProgressDisplay::Silent)
    };
    let whole = frozen(12).train(pairs(30), pairs(10)).unwrap().model;
    frozen(6)
        .directory(&out)
        .train(pairs(30), pairs(10))
        .unwrap();
    let resumed = frozen(12)
        .directory(&out)
        .resume(true)
        .train(pairs(30), pairs(10))
        .unwrap()
        .model;
    let initial = model().valid();
    for trained in [&whole, &resumed] {
        let embedding = |model: &Transformer<Inner>| weights(&model.src_embedding);
        assert!(embedding(trained) == embedding(&initial));
        assert!(weights(&trained.encoder) != weights(&initial.encoder));
        assert!(weights(&trained.decoder) != weights(&initial.decoder));
    }
    assert!(weights(&resumed) == weights(&whole));
}

#[test]
fn the_same_seed_gives_the_same_model_and_another_one_another() {
    let _alone = alone();
    let train = |seed| {
        let config = TrainingConfig { seed, ..run() };
        weights(&trainer(config).train(pairs(30), pairs(10)).unwrap().model)
    };
    assert!(train(1) == train(1));
    assert!(train(1) != train(2));
}

#[test]
fn an_interrupted_run_saves_and_goes_on() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let interrupter = Interrupter::new();
    interrupter.stop(None);
    let trained = trainer(run())
        .directory(&out)
        .interrupter(interrupter)
        .train(pairs(30), pairs(10))
        .unwrap();
    assert_eq!(
        (trained.stopped, trained.updates),
        (StopReason::Interrupted, 0)
    );
    let resumed = trainer(run())
        .directory(&out)
        .resume(true)
        .train(pairs(30), pairs(10))
        .unwrap();
    assert_eq!(resumed.updates, 12);
}

/// A run of four updates in `out`, with its checkpoint.
fn short_run(out: &Path) {
    let config = TrainingConfig {
        updates: 4,
        ..run()
    };
    trainer(config)
        .directory(out)
        .train(pairs(30), pairs(10))
        .unwrap();
}

fn resume(
    out: &Path,
    config: TrainingConfig,
    train: Vec<TokenizedPair>,
) -> Result<usize, TrainError> {
    trainer(config)
        .directory(out)
        .resume(true)
        .train(train, pairs(10))
        .map(|trained| trained.updates)
}

#[test]
fn a_model_is_not_overwritten() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    short_run(&out);
    let before = fs::read(out.join("model.safetensors")).unwrap();
    let error = trainer(run())
        .directory(&out)
        .train(pairs(30), pairs(10))
        .unwrap_err();
    let expected = "already holds a model; resume it, or choose another directory";
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(fs::read(out.join("model.safetensors")).unwrap(), before);
}

#[test]
fn a_directory_is_refused_to_a_second_run_until_the_first_has_ended() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let config = TrainingConfig {
        updates: 4,
        ..run()
    };
    let directory = out.clone();
    let trained = trainer(config)
        .directory(&out)
        .validate_with_fn(["Refused runs"], move |_| {
            let refused = [false, true].into_iter().filter(|&resume| {
                let second = trainer(run()).directory(&directory).resume(resume);
                let error = second.train(pairs(30), pairs(10)).unwrap_err();
                matches!(error, TrainError::InUse(path) if path == directory)
            });
            Ok(ControlFlow::Continue([refused.count() as f64]))
        })
        .train(pairs(30), pairs(10))
        .unwrap();
    assert_eq!(trained.validations[0].numbers["Refused runs"], 2.0);
    assert_eq!(resume(&out, run(), pairs(30)).unwrap(), 12);
}

#[test]
fn resuming_with_other_settings_or_data_says_which() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    short_run(&out);
    let other = TrainingConfig { warmup: 9, ..run() };
    let error = resume(&out, other, pairs(30)).unwrap_err().to_string();
    assert!(error.contains("made with `warmup` 4, not 9"), "{error}");
    let error = resume(&out, run(), pairs(29)).unwrap_err().to_string();
    assert!(
        error.contains("30 pairs") && error.contains("29 pairs"),
        "{error}"
    );

    // The best model is that of the same pairs, also where one of them is another.
    let edited = || {
        let mut pairs = pairs(10);
        pairs[7].target[0] = 4;
        pairs
    };
    assert_ne!(edited(), pairs(10));
    for (valid, number) in [(pairs(9), 9), (edited(), 10)] {
        let resumed = trainer(run()).directory(&out).resume(true);
        let error = resumed.train(pairs(30), valid).unwrap_err();
        assert!(matches!(error, TrainError::OtherValidation { .. }));
        let error = error.to_string();
        assert!(error.contains(": validated on 10 pairs ("), "{error}");
        let other = format!(", not on {number} pairs (");
        assert!(error.contains(&other), "{error}");
    }
    assert_eq!(resume(&out, run(), pairs(30)).unwrap(), 12);
}

/// The rate of a cosine depends on the last update.
#[test]
fn a_run_in_mid_schedule_is_resumed_to_its_end_and_to_no_other() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let cosine = TrainingConfig {
        schedule: Schedule::Cosine,
        peak_rate: Some(0.01),
        ..run()
    };
    let whole = trainer(cosine.clone()).train(pairs(30), pairs(10)).unwrap();
    let stopped = trainer(cosine.clone())
        .directory(&out)
        .validate_with_fn([], |at| {
            Ok(match at.update {
                8 => ControlFlow::Break([]),
                _ => ControlFlow::Continue([]),
            })
        })
        .train(pairs(30), pairs(10))
        .unwrap();
    assert_eq!(stopped.updates, 8);

    let longer = TrainingConfig {
        updates: 16,
        ..cosine.clone()
    };
    let error = resume(&out, longer, pairs(30)).unwrap_err().to_string();
    assert!(error.contains("made with `updates` 12, not 16"), "{error}");
    let resumed = trainer(cosine)
        .directory(&out)
        .resume(true)
        .train(pairs(30), pairs(10))
        .unwrap();
    assert_eq!(resumed.updates, 12);
    assert!(weights(&resumed.model) == weights(&whole.model));
    assert!(weights(&resumed.model) != weights(&stopped.model));
}

#[test]
fn the_record_of_a_run_is_read_from_its_directory_and_from_a_checkpoint() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    assert_eq!(RunRecord::load(&out).unwrap(), None);
    let trained = trainer(run())
        .directory(&out)
        .train(pairs(30), pairs(10))
        .unwrap();
    // Left half-written by a killed run.
    fs::create_dir(out.join("checkpoints/update-00000016.tmp")).unwrap();

    let record = RunRecord::load(&out).unwrap().unwrap();
    assert_eq!((record.updates, record.examples), (12, 30));
    assert_eq!(record.config, run());
    assert_eq!(record.validations, trained.validations);
    let checkpoints = ["update-00000008", "update-00000012"];
    let checkpoints = checkpoints.map(|name| out.join("checkpoints").join(name));
    assert_eq!(record.checkpoints, checkpoints);

    let record = RunRecord::load(&checkpoints[0]).unwrap().unwrap();
    assert_eq!((record.updates, record.checkpoints.len()), (8, 0));

    let path = checkpoints[1].join("run.json");
    fs::write(&path, "{}").unwrap();
    let error = RunRecord::load(&out).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{}: ", path.display())),
        "{error}"
    );
}

#[test]
fn half_written_files_of_a_killed_run_are_removed() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    short_run(&out);
    let unfinished = out.join("checkpoints/update-00000008.tmp");
    fs::create_dir(&unfinished).unwrap();
    fs::write(unfinished.join("model.safetensors"), b"half").unwrap();
    assert_eq!(resume(&out, run(), pairs(30)).unwrap(), 12);
    assert!(!unfinished.exists());
}

#[test]
fn damage_to_any_file_of_a_checkpoint_is_an_error_that_names_it() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "config.json",
        "model.safetensors",
        "optimizer.mpk",
        "run.json",
    ] {
        let out = folder.path().join(name);
        short_run(&out);
        let path = out.join("checkpoints/update-00000004").join(name);
        let whole = fs::read(&path).unwrap();
        for damaged in [&whole[..whole.len() / 2], &whole[..1], b""] {
            fs::write(&path, damaged).unwrap();
            let error = resume(&out, run(), pairs(30)).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        fs::remove_file(&path).unwrap();
        let error = resume(&out, run(), pairs(30)).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        fs::write(&path, whole).unwrap();
        assert_eq!(resume(&out, run(), pairs(30)).unwrap(), 12);
    }
}

/// One step makes such weights that no later loss is a number: not the next ones, which are skipped, and not
/// the validation's.
#[test]
fn a_loss_that_is_not_a_number_ends_the_run() {
    let _alone = alone();
    let config = TrainingConfig {
        learning_rate_factor: 1e30,
        ..run()
    };
    let error = trainer(config.clone())
        .train(pairs(30), pairs(10))
        .unwrap_err();
    let expected = "the validation loss after update 4 is NaN; a lower";
    assert!(error.to_string().contains(expected), "{error}");
    let impatient = TrainingConfig {
        skip_limit: 2,
        ..config
    };
    let error = trainer(impatient).train(pairs(30), pairs(10)).unwrap_err();
    let expected = "consecutive updates skipped: 2; the last, update 3, has loss NaN";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn pairs_that_do_not_fit_are_refused() {
    let _alone = alone();
    let long = |target: Vec<u32>| TokenizedPair {
        source: vec![3],
        target,
    };
    let refused = |pair: TokenizedPair| {
        let error = trainer(run()).train(vec![pair], pairs(10));
        error.unwrap_err().to_string()
    };
    assert_eq!(
        refused(long(vec![3; 40])),
        "training pairs: pair 0 has 2 source and 41 target tokens, more than the batch limit of 40"
    );
    assert_eq!(
        refused(long(vec![13])),
        "training pairs: pair 0 holds token 13, outside the vocabulary of 13"
    );
}

#[test]
fn oldest_checkpoints_are_removed() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    trainer(run())
        .directory(&out)
        .train(pairs(30), pairs(10))
        .unwrap();
    let mut names: Vec<_> = fs::read_dir(out.join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["update-00000008", "update-00000012"]);
}
