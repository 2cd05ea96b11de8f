//! Burn's own training loop, given the paper's optimizer, schedule and loss by `learner`, trains as `Trainer` does.

mod support;

use std::fs;
use std::path::Path;
use transformer_instances as _;

use burn::data::dataloader::DataLoader;
use burn::module::{Module, ModuleVisitor, Param};
use burn::record::{CompactRecorder, FullPrecisionSettings, NamedMpkFileRecorder};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::train::SupervisedTraining;
use burn::train::checkpoint::KeepLastNCheckpoints;
use burn::train::metric::{LearningRateMetric, LossMetric};
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use transformer_core::{Transformer, TransformerConfig};
use transformer_train::data::{BatchSampler, Example, Lengths, TokenizedPair, Update};
use transformer_train::learner::{Batches, Updates};
use transformer_train::objective::{LossOptions, LossSums, Objective};
use transformer_train::optim::Schedule;
use transformer_train::progress::ProgressDisplay;
use transformer_train::{TrainError, Trainer, TrainingConfig, learner};

use support::run::{alone, pairs, tiny_config};

fn model<B: Backend>() -> Transformer<B> {
    let config = TransformerConfig {
        dropout: 0.0,
        ..tiny_config()
    };
    config.init(3, &Default::default()).unwrap()
}

/// A run of one epoch, of updates of two batches.
fn run() -> TrainingConfig {
    let (batch_tokens, seed) = (5, 5);
    let sampler = BatchSampler::new(&pairs(), batch_tokens, seed).unwrap();
    TrainingConfig {
        seed,
        batch_tokens,
        batches_per_update: 2,
        updates: sampler.epoch(0).len().div_ceil(2),
        validate_every: 4,
        warmup: 3,
        clip_norm: Some(0.5),
        weight_decay: 0.1,
        ..TrainingConfig::default()
    }
}

fn weights<B: Backend>(model: &impl Module<B>) -> Vec<u32> {
    struct Values(Vec<u32>);
    impl<B: Backend> ModuleVisitor<B> for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let data = param.val().into_data();
            self.0.extend(data.iter::<f32>().map(f32::to_bits));
        }
    }
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    values.0
}

fn same_bits<B: AutodiffBackend>() {
    let _alone = alone();
    let first = weights::<B>(&model::<B>());
    let trained = Trainer::new(model::<B>(), run())
        .display(ProgressDisplay::Silent)
        .train(pairs(), pairs())
        .unwrap();

    let folder = tempfile::tempdir().unwrap();
    let train = Updates::new(&model::<B>(), pairs(), &run()).unwrap();
    let valid = Batches::new(&model::<B>(), pairs(), &run()).unwrap();
    let epochs = train.epochs();
    assert_eq!(epochs, 2);
    let by_burn = SupervisedTraining::new(folder.path(), train, valid)
        .metrics((LossMetric::<NdArray>::new(),))
        .metric_train_numeric(LearningRateMetric::new())
        .with_file_checkpointer(CompactRecorder::new())
        .with_application_logger(None)
        .num_epochs(epochs)
        .launch(learner(model::<B>(), &run()).unwrap())
        .model
        .model;

    let expected = weights::<B::InnerBackend>(&trained.model);
    assert!(expected != first, "the run changes weights");
    assert!(weights::<B::InnerBackend>(&by_burn) == expected);

    // Burn's logs have the loss of the validations, by tokens, and its checkpoints are there.
    for (epoch, validation) in (1..).zip(&trained.validations) {
        let log = folder.path().join(format!("valid/epoch-{epoch}/Loss.log"));
        let log = fs::read_to_string(log).unwrap();
        let batches = log.lines().map(|line| {
            let (mean, tokens) = line.split_once(',').unwrap();
            let tokens: f64 = tokens.parse().unwrap();
            (mean.parse::<f64>().unwrap() * tokens, tokens)
        });
        let (loss, tokens) = batches.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
        let difference = loss / tokens - validation.valid_loss;
        assert!(difference.abs() < 1e-5, "epoch {epoch}: {difference}");
        for part in ["model", "optim", "scheduler"] {
            let file = format!("checkpoint/{part}-{epoch}.mpk");
            assert!(folder.path().join(file).exists(), "{part}-{epoch}");
        }
    }
}

/// Burn's checkpoints have the model, the moments and the updates made.
#[test]
fn burn_s_loop_is_resumed_to_the_same_bits() {
    let _alone = alone();
    let train = |folder: &Path, resumed: Option<usize>, epochs| {
        let train = Updates::new(&model::<B>(), pairs(), &run()).unwrap();
        let valid = Batches::new(&model::<B>(), pairs(), &run()).unwrap();
        let recorder = NamedMpkFileRecorder::<FullPrecisionSettings>::new();
        train.begin_after(resumed.unwrap_or(0));
        let mut training = SupervisedTraining::new(folder, train, valid)
            .with_file_checkpointer(recorder)
            .with_checkpointing_strategy(KeepLastNCheckpoints::new(2))
            .with_application_logger(None)
            .num_epochs(epochs);
        if let Some(epoch) = resumed {
            training = training.checkpoint(epoch);
        }
        let trained = training.launch(learner(model::<B>(), &run()).unwrap());
        weights::<NdArray>(&trained.model.model)
    };
    let folder = tempfile::tempdir().unwrap();
    let [whole, halves] = ["whole", "halves"].map(|name| folder.path().join(name));
    let expected = train(&whole, None, 2);
    let half = train(&halves, None, 1);
    assert!(half != expected);
    assert!(train(&halves, Some(1), 2) == expected);
}

#[test]
fn burn_s_loop_and_the_trainer_train_to_the_same_bits() {
    same_bits::<Autodiff<NdArray>>();
    same_bits::<Autodiff<Flex>>();
}

type B = Autodiff<NdArray>;

fn read(loader: &dyn DataLoader<B, Update<TokenizedPair>>) -> Vec<Update<TokenizedPair>> {
    let mut items = loader.iter();
    let mut read = Vec::new();
    while let Some(update) = items.next() {
        read.push(update);
        assert_eq!(items.progress().items_processed, read.len());
    }
    assert_eq!(items.progress().items_total, read.len());
    read
}

/// Burn gives each device the part of an epoch that `slice` makes.
#[test]
fn the_parts_of_a_loader_are_the_whole_epoch_by_epoch() {
    let loader = || Updates::new(&model::<B>(), pairs(), &run()).unwrap();
    let whole = loader();
    let whole: &dyn DataLoader<B, _> = &*whole;
    let parts = loader();
    let parts: &dyn DataLoader<B, Update<TokenizedPair>> = &*parts;
    assert_eq!(whole.num_items(), 4);
    let parts = [parts.slice(0, 1), parts.slice(1, 4)];
    let last = run().updates - 4;
    assert!((1..4).contains(&last), "{last}");
    for updates in [4, last, 0] {
        let expected = read(whole);
        assert_eq!(expected.len(), updates);
        let found: Vec<_> = parts.iter().flat_map(|part| read(&**part)).collect();
        assert_eq!(found, expected);
    }

    let batches = Batches::new(&model::<B>(), pairs(), &run()).unwrap();
    let batches: &dyn DataLoader<B, Vec<TokenizedPair>> = &*batches;
    let all: Vec<_> = batches.iter().collect();
    assert_eq!(all.len(), batches.num_items());
    let parts = [batches.slice(0, 2), batches.slice(2, all.len())];
    let found: Vec<_> = parts.iter().flat_map(|part| part.iter()).collect();
    assert_eq!(found, all);
}

/// A number to learn: an objective with only the required items.
#[derive(Module, Debug)]
struct Mean<B: Backend> {
    value: Param<Tensor<B, 1>>,
}

#[derive(Clone)]
struct Number(f32);

impl Example for Number {
    fn lengths(&self) -> Lengths {
        Lengths {
            source: 0,
            target: 1,
        }
    }
}

impl<B: Backend> Objective<B> for Mean<B> {
    type Example = Number;
    type Batch = Tensor<B, 1>;

    fn batch(&self, examples: &[Number], device: &B::Device) -> Tensor<B, 1> {
        let numbers: Vec<_> = examples.iter().map(|number| number.0).collect();
        Tensor::from_floats(numbers.as_slice(), device)
    }

    /// Squared errors, whose weight is the number of examples.
    fn loss(&self, numbers: Tensor<B, 1>, _: &LossOptions) -> LossSums<B> {
        let weight = numbers.ones_like().sum();
        LossSums::new((self.value.val() - numbers).square().sum(), weight)
    }
}

fn mean() -> Mean<B> {
    let value = Tensor::<B, 1>::from_floats([0.0], &Default::default());
    Mean {
        value: Param::from_tensor(value),
    }
}

#[test]
fn a_model_without_a_width_needs_a_peak_rate() {
    let _alone = alone();
    let numbers = || [1.0, 2.0, 3.0].map(Number).to_vec();
    let without = TrainingConfig {
        updates: 200,
        warmup: 1,
        schedule: Schedule::Linear,
        ..TrainingConfig::default()
    };
    let with = TrainingConfig {
        peak_rate: Some(0.1),
        ..without.clone()
    };
    let expected = "`peak_rate` must be given: the paper's peak needs a model with a width";
    let refused = Trainer::new(mean(), without.clone()).train(numbers(), numbers());
    assert_eq!(refused.unwrap_err().to_string(), expected);
    let refused = learner(mean(), &without)
        .err()
        .map(|error| error.to_string());
    assert_eq!(refused.as_deref(), Some(expected));

    assert!(learner(mean(), &with).is_ok());
    let trained = Trainer::new(mean(), with)
        .display(ProgressDisplay::Silent)
        .train(numbers(), numbers())
        .unwrap();
    let value = trained.model.value.val().into_scalar();
    assert!((value - 2.0).abs() < 0.1, "{value}");
    // The variance of 1, 2 and 3 is 2/3: the loss is a mean over examples.
    let loss = trained.validations.last().unwrap().valid_loss;
    assert!((loss - 2.0 / 3.0).abs() < 0.01, "{loss}");
}

#[test]
fn examples_and_settings_that_do_not_fit_are_errors_before_the_first_update() {
    let zero = TrainingConfig { warmup: 0, ..run() };
    let is_refused = |error: Option<TrainError>| {
        let error = error.expect("an error").to_string();
        assert!(error.contains("`warmup` is 0"), "{error}");
    };
    is_refused(learner(model::<B>(), &zero).err());
    is_refused(Updates::new(&model::<B>(), pairs(), &zero).err());
    is_refused(Batches::new(&model::<B>(), pairs(), &zero).err());
    let unknown = TokenizedPair {
        source: vec![99],
        target: vec![3],
    };
    let error = Updates::new(&model::<B>(), vec![unknown], &run()).err();
    let error = error.expect("an error").to_string();
    assert!(error.contains("99"), "{error}");
}
