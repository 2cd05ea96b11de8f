//! A source of examples is read only where its examples are due, and its errors end the run there.

use std::borrow::Cow;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::{Arc, Mutex};

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_instances as _;
use transformer_train::data::{
    BatchSampler, Checksum, CorpusError, Example, ExampleProblem, ExampleSource, Lengths,
};
use transformer_train::objective::{LossOptions, LossSums, Objective};
use transformer_train::progress::ProgressDisplay;
use transformer_train::{TrainError, Trained, Trainer, TrainingConfig};

type Tracked = Autodiff<NdArray>;

/// An example that its model learns from, unless it is negative.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Number(i32);

impl Example for Number {
    fn lengths(&self) -> Lengths {
        Lengths {
            source: 1,
            target: 1,
        }
    }

    fn add_to(&self, checksum: &mut Checksum) {
        checksum.bytes(&self.0.to_le_bytes());
    }
}

/// A weight that is drawn towards the examples.
#[derive(Module, Debug)]
struct Mean<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

impl<B: Backend> Objective<B> for Mean<B> {
    type Example = Number;
    type Batch = Vec<Number>;

    fn width(&self) -> Option<usize> {
        Some(1)
    }

    fn check(&self, example: &Number) -> Result<(), ExampleProblem> {
        match example.0 {
            0.. => Ok(()),
            negative => Err(ExampleProblem::Other(format!("is {negative}"))),
        }
    }

    fn batch(&self, examples: &[Number], _device: &B::Device) -> Vec<Number> {
        examples.to_vec()
    }

    fn loss(&self, batch: Vec<Number>, _: &LossOptions) -> LossSums<B> {
        let weight = self.weight.val();
        let device = weight.device();
        let tokens = batch.len() as f32;
        let numbers = batch.iter().map(|number| number.0 as f32);
        let losses = numbers.map(|number| (weight.clone() - number).square().sum());
        let loss = losses.reduce(|sum, loss| sum + loss).unwrap();
        LossSums::new(loss, Tensor::from_floats([tokens], &device))
    }
}

/// Numbers that notes which of them are read.
struct Noted {
    numbers: Vec<Number>,
    weights: Vec<(Range<usize>, f64)>,
    /// This one cannot be read.
    unreadable: Option<usize>,
    read: Mutex<Vec<usize>>,
}

impl Noted {
    fn new(weights: Vec<(Range<usize>, f64)>) -> Self {
        Self {
            numbers: (0..11).map(Number).collect(),
            weights,
            unreadable: None,
            read: Mutex::default(),
        }
    }

    fn read(&self) -> Vec<usize> {
        self.read.lock().unwrap().clone()
    }
}

impl ExampleSource for Noted {
    type Example = Number;

    fn lengths(&self) -> Cow<'_, [Lengths]> {
        self.numbers.iter().map(Example::lengths).collect()
    }

    fn get(&self, index: usize, _epoch: usize) -> Result<Number, CorpusError> {
        self.read.lock().unwrap().push(index);
        match self.unreadable {
            Some(unreadable) if unreadable == index => Err(CorpusError::Io {
                path: "numbers.bin".into(),
                source: io::Error::other("bad sector"),
            }),
            _ => Ok(self.numbers[index]),
        }
    }

    fn checksum(&self) -> u32 {
        self.numbers.checksum()
    }

    fn weights(&self) -> Vec<(Range<usize>, f64)> {
        self.weights.clone()
    }
}

/// Each batch holds two numbers, each update two batches.
fn run() -> TrainingConfig {
    TrainingConfig {
        seed: 3,
        batch_tokens: 2,
        batches_per_update: 2,
        warmup: 4,
        updates: 14,
        validate_every: 1,
        ..TrainingConfig::default()
    }
}

fn trainer(config: TrainingConfig) -> Trainer<Tracked, Mean<Tracked>> {
    let model = Mean {
        weight: Param::from_data([0.0], &Default::default()),
    };
    Trainer::new(model, config).display(ProgressDisplay::Silent)
}

fn weight(trained: &Trained<Mean<NdArray>>) -> Vec<f32> {
    trained.model.weight.val().into_data().iter().collect()
}

/// The positions that each update reads, from the first one on.
fn planned(source: &Noted) -> Vec<Vec<usize>> {
    let sampler = BatchSampler::of_source(source, 2, 3).unwrap();
    let epochs = (0..20).flat_map(|epoch| {
        let batches = sampler.epoch(epoch);
        let updates = batches.chunks(2).map(|batches| batches.concat());
        updates.collect::<Vec<_>>()
    });
    epochs.collect()
}

/// With the same number of batches in each epoch, and with a number that each epoch draws.
fn weights() -> [Vec<(Range<usize>, f64)>; 3] {
    [
        vec![(0..11, 1.0)],
        vec![(0..4, 3.0), (4..11, 1.0)],
        vec![(0..4, 1.0), (4..11, 1.4)],
    ]
}

#[test]
fn a_resumed_run_reads_only_what_comes_after() {
    let folder = tempfile::tempdir().unwrap();
    for (number, weights) in weights().into_iter().enumerate() {
        let out = folder.path().join(number.to_string());
        let train = |updates, out: Option<&Path>| {
            let source = Arc::new(Noted::new(weights.clone()));
            let trainer = trainer(TrainingConfig { updates, ..run() });
            let trainer = match out {
                Some(out) => trainer.directory(out).resume(true),
                None => trainer,
            };
            let trained = trainer.train(source.clone(), vec![Number(5)]).unwrap();
            (source, trained)
        };
        let (source, whole) = train(14, None);
        let plan = planned(&source);
        assert!(source.read().starts_with(&plan[..14].concat()));
        train(9, Some(out.as_path()));
        let (source, resumed) = train(14, Some(out.as_path()));
        assert!(source.read().starts_with(&plan[9..14].concat()));
        // Four updates wait, and one is read or planned.
        assert!(plan[9..19].concat().starts_with(&source.read()));
        assert_eq!(resumed.updates, 14);
        assert!(weight(&resumed) == weight(&whole));
    }
}

#[test]
fn reading_ends_with_the_run() {
    let source = Arc::new(Noted::new(vec![(0..11, 1.0)]));
    trainer(run())
        .train(source.clone(), vec![Number(5)])
        .unwrap();
    assert_eq!(Arc::strong_count(&source), 1);
}

/// The updates made before the run ends with an error.
fn updates_before_the_error(source: Noted) -> (Vec<usize>, TrainError) {
    let updates = Arc::new(Mutex::new(Vec::new()));
    let made = updates.clone();
    let error = trainer(run())
        .validate_with_fn([], move |at| {
            made.lock().unwrap().push(at.update);
            Ok(ControlFlow::Continue([]))
        })
        .train(source, vec![Number(5)])
        .unwrap_err();
    let updates = updates.lock().unwrap().clone();
    (updates, error)
}

#[test]
fn an_example_that_cannot_be_read_ends_the_run_after_the_updates_before() {
    let mut source = Noted::new(vec![(0..11, 1.0)]);
    source.unreadable = planned(&source)[2].last().copied();
    let (updates, error) = updates_before_the_error(source);
    assert_eq!(updates, [1, 2]);
    assert!(matches!(error, TrainError::Corpus(CorpusError::Io { .. })));
    assert_eq!(error.to_string(), "numbers.bin: cannot read: bad sector");
}

#[test]
fn an_example_that_does_not_fit_the_model_is_noticed_when_it_is_read() {
    let mut source = Noted::new(vec![(0..11, 1.0)]);
    let index = planned(&source)[1][0];
    source.numbers[index] = Number(-7);
    let (updates, error) = updates_before_the_error(source);
    assert_eq!(updates, [1]);
    let expected = format!("training examples: example {index} is -7");
    assert_eq!(error.to_string(), expected);
}

#[test]
fn examples_in_memory_are_checked_before_the_run() {
    let numbers = vec![Number(1), Number(-2)];
    let error = trainer(run()).train(numbers, vec![Number(5)]).unwrap_err();
    assert_eq!(error.to_string(), "training examples: example 1 is -2");
}

#[test]
fn weights_that_count_nothing_are_refused() {
    let source = Noted::new(vec![(0..4, 0.0), (4..11, 1.0)]);
    let error = trainer(run()).train(source, vec![Number(5)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "training examples: weight 0 of 4 examples; it must be positive and finite, and give at least one per epoch"
    );
}
