//! A run that starts from a saved model: from its loss, with parts frozen.

mod support;

use std::path::Path;
use transformer_instances as _;

use burn::module::{AutodiffModule, Module};
use burn::tensor::TensorData;
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use safetensors::SafeTensors;
use transformer_core::formats::WEIGHTS_FILE;
use transformer_core::{LanguageModel, Transformer};
use transformer_train::data::TokenizedPair;
use transformer_train::objective::LossOptions;
use transformer_train::optim::{FreezeError, freeze, frozen_names};
use transformer_train::progress::ProgressDisplay;
use transformer_train::run::RunRecord;
use transformer_train::validation::evaluate;
use transformer_train::{Trained, Trainer, TrainingConfig};

use support::run::tiny_config as config;

type B = Autodiff<NdArray>;

/// Pairs of a first task; of a second one, shifted.
fn pairs(shift: u32) -> Vec<TokenizedPair> {
    (0..12)
        .map(|index| TokenizedPair {
            source: vec![3 + index % 10; 1 + index as usize % 4],
            target: vec![3 + (index + shift) % 10],
        })
        .collect()
}

fn run() -> TrainingConfig {
    TrainingConfig {
        batch_tokens: 20,
        updates: 8,
        warmup: 4,
        validate_every: 4,
        weight_decay: 0.1,
        ..TrainingConfig::default()
    }
}

/// Trains a model on the first task, into a directory.
fn trained(out: &Path) -> Trained<Transformer<NdArray>> {
    let model = config().init::<B>(3, &Default::default()).unwrap();
    Trainer::new(model, run())
        .display(ProgressDisplay::Silent)
        .directory(out)
        .train(pairs(0), pairs(0))
        .unwrap()
}

/// The parameters in a model directory: their names and bytes.
fn saved(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let bytes = std::fs::read(directory.join(WEIGHTS_FILE)).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<_> = tensors
        .tensors()
        .into_iter()
        .map(|(name, tensor)| (name, tensor.data().to_vec()))
        .collect();
    tensors.sort();
    tensors
}

#[test]
fn training_starts_from_the_loss_of_the_saved_model() {
    let folder = tempfile::tempdir().unwrap();
    let first = trained(&folder.path().join("first"));
    let losses = first.validations.iter().map(|v| v.valid_loss);
    let kept = losses.fold(f64::INFINITY, f64::min);

    let load = || Transformer::<B>::load(folder.path().join("first"), &Default::default()).unwrap();
    let statistics = evaluate(&load().valid(), pairs(0), 20, &LossOptions::smoothed(0.1)).unwrap();
    assert!((statistics.mean_loss() - kept).abs() < 1e-6);

    // With a rate that is zero in f32, and so changes no weight, the first validation of a run from it has that loss.
    // (A rate of 1e-30 moves a bias that is still zero, because its unit was never active.)
    let still = TrainingConfig {
        peak_rate: Some(1e-60),
        weight_decay: 0.0,
        updates: 2,
        ..run()
    };
    let second = Trainer::new(load(), still)
        .display(ProgressDisplay::Silent)
        .directory(folder.path().join("second"))
        .train(pairs(0), pairs(0))
        .unwrap();
    assert!((second.validations[0].valid_loss - kept).abs() < 1e-6);
    assert_eq!(
        saved(&folder.path().join("first")),
        saved(&folder.path().join("second"))
    );
}

#[test]
fn frozen_parameters_keep_every_bit_and_all_others_learn() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    trained(&first);
    let before = saved(&first);

    let model = Transformer::<B>::load(&first, &Default::default()).unwrap();
    let (model, frozen) = freeze(model, &["encoder.*", "*embedding*"]).unwrap();
    let tuned = Trainer::new(model, run())
        .display(ProgressDisplay::Silent)
        .directory(&second)
        .train(pairs(3), pairs(3))
        .unwrap();
    assert_eq!(tuned.updates, 8);

    let names: Vec<_> = before.iter().map(|(name, _)| name.clone()).collect();
    let expected = names
        .iter()
        .filter(|name| name.starts_with("encoder.") || *name == "src_embedding.weight");
    let mut sorted = frozen.clone();
    sorted.sort();
    assert_eq!(
        sorted.iter().collect::<Vec<_>>(),
        expected.collect::<Vec<_>>()
    );
    assert!(frozen.len() < names.len());
    for ((name, before), (same, after)) in before.into_iter().zip(saved(&second)) {
        assert_eq!(name, same);
        assert_eq!(before == after, frozen.contains(&name), "{name}");
    }
}

#[test]
fn patterns_that_freeze_nothing_or_everything_are_refused() {
    let model = || config().init::<B>(0, &Default::default()).unwrap();
    let error = freeze(model(), &["encoder.*", "encodr.*"]).unwrap_err();
    let expected = "`encodr.*` matches no parameter; similar: `encoder.*`, ";
    assert!(error.to_string().starts_with(expected), "{error}");

    let parameters = freeze(model(), &["decoder.*"]).unwrap().1.len()
        + freeze(model(), &["encoder.*"]).unwrap().1.len()
        + freeze(model(), &["src_embedding.*"]).unwrap().1.len();
    let error = freeze(model(), &["*coder.*", "*"]).unwrap_err();
    assert_eq!(error, FreezeError::NothingLeft { parameters });

    let none: [&str; 0] = [];
    let (untouched, frozen) = freeze(model(), &none).unwrap();
    assert!(frozen.is_empty());
    assert_eq!(untouched.num_params(), model().num_params());
    assert!(untouched.src_embedding.weight.is_require_grad());
}

#[test]
fn patterns_are_checked_by_a_configuration_alone_as_by_its_model() {
    let frozen = |patterns: &[&str]| {
        let model = config().init::<B>(0, &Default::default()).unwrap();
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let of_model = freeze(model, patterns).map(|(_, frozen)| sorted(frozen));
        let names = config().parameter_shapes().into_iter();
        let names = names.map(|(name, _)| name).collect();
        let of_config = frozen_names(names, patterns).map(sorted);
        assert_eq!(of_config, of_model);
        of_config
    };
    assert!(frozen(&["encoder.*", "*.bias"]).is_ok_and(|names| names.len() > 10));
    assert!(frozen(&["encodr.*"]).is_err());
    assert!(frozen(&["*"]).is_err());
}

/// Moments of a parameter that was frozen would begin in the middle of the run.
#[test]
fn a_run_goes_on_with_the_parameters_frozen_that_it_began_with() {
    let folder = tempfile::tempdir().unwrap();
    let train = |patterns: &[&str], updates| {
        let model = config().init::<B>(3, &Default::default()).unwrap();
        let (model, _) = freeze(model, patterns).unwrap();
        let config = TrainingConfig { updates, ..run() };
        Trainer::new(model, config)
            .display(ProgressDisplay::Silent)
            .directory(folder.path())
            .resume(true)
            .train(pairs(0), pairs(0))
    };
    train(&["encoder.*"], 4).unwrap();
    let record = RunRecord::load(folder.path()).unwrap().unwrap();
    let frozen = record.frozen.unwrap();
    assert!(!frozen.is_empty() && frozen.iter().all(|name| name.starts_with("encoder.")));
    for (patterns, expected) in [
        (
            &["encoder.*", "decoder.*.bias"][..],
            "bias` trained, not frozen; ",
        ),
        (&[], "` frozen, not trained; "),
    ] {
        let error = train(patterns, 8).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(train(&["encoder.*"], 8).unwrap().updates, 8);
}

/// The rates of a run that goes on are those after the updates of the run before.
#[test]
fn the_schedule_of_a_run_can_be_continued() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    trained(&first);
    let record = RunRecord::load(&first).unwrap().unwrap();
    assert_eq!(record.schedule_updates(), 8);

    let kept = TrainingConfig {
        schedule_start: record.schedule_updates(),
        ..run()
    };
    let tune = |config: &TrainingConfig| {
        let model = Transformer::<B>::load(&first, &Default::default()).unwrap();
        Trainer::new(model, config.clone())
            .display(ProgressDisplay::Silent)
            .directory(&second)
            .resume(true)
            .train(pairs(3), pairs(3))
    };
    tune(&kept).unwrap();
    let record = RunRecord::load(&second).unwrap().unwrap();
    assert_eq!(record.schedule_updates(), 16);
    // A resumed run would have other rates without it.
    let error = tune(&run()).unwrap_err().to_string();
    assert!(
        error.contains("made with `schedule_start` 8, not 0"),
        "{error}"
    );
}

/// A model that `load` returns can be trained: every parameter gets a gradient.
#[test]
fn a_loaded_model_has_gradients() {
    let folder = tempfile::tempdir().unwrap();
    let device = Default::default();
    config()
        .init::<NdArray>(3, &device)
        .unwrap()
        .save(folder.path())
        .unwrap();
    let model = Transformer::<B>::load(folder.path(), &device).unwrap();
    let weight = &model.src_embedding.weight;
    assert!(weight.is_require_grad());
    let source = burn::tensor::Tensor::from_data(TensorData::from([[3_i64, 4]]), &device);
    let gradients = model.forward(source.clone(), source).sum().backward();
    assert!(weight.grad(&gradients).is_some());
}

/// A language model of Hugging Face's: the run saves the best of its weights in our format, and each validation has a
/// lower loss.
#[test]
fn gpt2_is_trained_further() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pretrained/gpt2");
    let model = LanguageModel::<B>::load(fixture, &Default::default()).unwrap();
    let sequences = || vec![vec![54, 276, 257], vec![40, 41, 42, 43, 44], vec![70, 71]];
    let before = evaluate(&model.valid(), sequences(), 100, &LossOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    Trainer::new(model.clone(), run())
        .display(ProgressDisplay::Silent)
        .directory(folder.path())
        .train(sequences(), sequences())
        .unwrap();
    let tuned = LanguageModel::<B>::load(folder.path(), &Default::default()).unwrap();
    assert_eq!(tuned.config(), model.config());
    let after = evaluate(&tuned.valid(), sequences(), 100, &LossOptions::default()).unwrap();
    assert!(after.perplexity() < before.perplexity());
}

#[test]
fn a_model_that_is_frozen_in_two_steps_is_not_trained() {
    let model = config().init::<B>(3, &Default::default()).unwrap();
    let (model, _) = freeze(model, &["encoder.*"]).unwrap();
    let model = model.no_grad();
    let trainer = Trainer::new(model, run()).display(ProgressDisplay::Silent);
    let error = trainer.train(pairs(0), pairs(0)).unwrap_err();
    assert!(error.to_string().ends_with("at least one must be trained"));
}
