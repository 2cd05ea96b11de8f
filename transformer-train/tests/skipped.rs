//! An update whose loss or gradients are not finite is skipped, counted and reported; a number of them in a
//! row ends the run.

mod support;

use std::path::Path;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_instances as _;
use transformer_train::data::{Checksum, Example, Lengths};
use transformer_train::objective::{LossOptions, LossSums, Objective};
use transformer_train::optim::Schedule;
use transformer_train::progress::{PlainLines, ProgressDisplay};
use transformer_train::ranks::Ranks;
use transformer_train::{TrainError, Trained, Trainer, TrainingConfig};

use support::run::Page;
use support::threads::all_of;

type Tracked = Autodiff<NdArray>;

/// Examples differ only in whether they spoil their update.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Good,
    /// Its loss is NaN.
    Loss,
    /// Its loss is finite, the gradient is not.
    Gradient,
}

use Kind::{Good, Gradient, Loss};

impl Example for Kind {
    fn lengths(&self) -> Lengths {
        Lengths {
            source: 1,
            target: 1,
        }
    }

    fn add_to(&self, checksum: &mut Checksum) {
        checksum.tokens(&[*self as u32]);
    }
}

const INITIAL: [f32; 2] = [0.0, 0.5];

/// Weights that are drawn towards 1.
#[derive(Module, Debug)]
struct Well<B: Backend> {
    weights: Param<Tensor<B, 1>>,
}

impl<B: Backend> Objective<B> for Well<B> {
    type Example = Kind;
    type Batch = Vec<Kind>;

    fn width(&self) -> Option<usize> {
        Some(1)
    }

    fn batch(&self, examples: &[Kind], _device: &B::Device) -> Vec<Kind> {
        examples.to_vec()
    }

    fn loss(&self, batch: Vec<Kind>, _: &LossOptions) -> LossSums<B> {
        let weights = self.weights.val();
        let device = weights.device();
        let tokens = batch.len() as f32;
        let mut loss = (weights.clone() - 1.0).square().sum() * tokens;
        if batch.contains(&Loss) {
            loss = loss * f32::NAN;
        }
        if batch.contains(&Gradient) {
            // The derivative of a square root at zero is infinite.
            loss = loss + (weights * 0.0).sqrt().sum();
        }
        LossSums::new(loss, Tensor::from_floats([tokens], &device))
    }
}

/// A batch holds one example, and each update with finite gradients makes the same step.
fn run() -> TrainingConfig {
    TrainingConfig {
        batch_tokens: 1,
        schedule: Schedule::Constant,
        peak_rate: Some(0.1),
        warmup: 1,
        updates: 8,
        validate_every: 4,
        ..TrainingConfig::default()
    }
}

fn trainer(config: TrainingConfig) -> Trainer<Tracked, Well<Tracked>> {
    let model = Well {
        weights: Param::from_data(INITIAL, &Default::default()),
    };
    Trainer::new(model, config).display(ProgressDisplay::Silent)
}

fn weights(trained: &Trained<Well<NdArray>>) -> Vec<f32> {
    trained.model.weights.val().into_data().iter().collect()
}

/// Neither weights nor moments: Adam's steps after a skipped update are those of a run without it.
#[test]
fn a_skipped_update_changes_nothing_that_is_learnt() {
    let spoilt = trainer(run())
        .train(vec![Good, Loss, Good, Gradient], vec![Good])
        .unwrap();
    let half = TrainingConfig {
        updates: 4,
        ..run()
    };
    let whole = trainer(half).train(vec![Good; 4], vec![Good]).unwrap();
    assert_eq!((spoilt.updates, spoilt.skipped), (8, 4));
    assert_eq!((whole.updates, whole.skipped), (4, 0));
    assert!(weights(&whole) != INITIAL);
    assert!(weights(&spoilt) == weights(&whole));

    let counts = spoilt.validations.iter();
    let counts: Vec<_> = counts
        .map(|v| (v.update, v.skipped, v.train_tokens))
        .collect();
    assert_eq!(counts, [(4, 2, 2), (8, 4, 2)]);
    assert!(spoilt.validations.iter().all(|v| v.train_loss.is_finite()));
}

#[test]
fn a_run_ends_after_as_many_skipped_updates_in_a_row_as_its_limit() {
    let spoilt = |limit, kind| {
        let config = TrainingConfig {
            skip_limit: limit,
            updates: 20,
            ..run()
        };
        trainer(config).train(vec![kind], vec![Good]).unwrap_err()
    };
    assert_eq!(
        spoilt(3, Loss).to_string(),
        "consecutive updates skipped: 3; the last, update 3, has loss NaN and gradient norm NaN; \
         a lower learning rate or a longer warm-up may help"
    );
    let TrainError::Diverged {
        skipped: 10,
        update: 10,
        loss,
        gradient_norm,
    } = spoilt(10, Gradient)
    else {
        panic!("another error");
    };
    // (0 - 1)² + (0.5 - 1)²
    assert_eq!(loss, 1.25);
    assert!(!gradient_norm.is_finite());
}

#[test]
fn a_resumed_run_goes_on_counting() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let train = |updates, resume| {
        let config = TrainingConfig {
            skip_limit: 3,
            updates,
            ..run()
        };
        trainer(config)
            .directory(&out)
            .resume(resume)
            .train(vec![Loss], vec![Good])
    };
    let stopped = train(2, false).unwrap();
    assert_eq!((stopped.updates, stopped.skipped), (2, 2));
    assert!(weights(&stopped) == INITIAL);
    // No update since the beginning has a loss; the record of this is read again.
    assert!(stopped.validations[0].train_loss.is_nan());
    let error = train(8, true).unwrap_err();
    assert!(
        matches!(
            error,
            TrainError::Diverged {
                skipped: 3,
                update: 3,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_resumed_run_skips_as_the_run_that_was_not_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let train = |updates, out: Option<&Path>| {
        let config = TrainingConfig { updates, ..run() };
        let trainer = match out {
            Some(out) => trainer(config).directory(out).resume(true),
            None => trainer(config),
        };
        let examples = vec![Good, Loss, Good, Good, Gradient];
        trainer.train(examples, vec![Good]).unwrap()
    };
    let whole = train(12, None);
    train(7, Some(out.as_path()));
    let resumed = train(12, Some(out.as_path()));
    assert!(weights(&resumed) == weights(&whole));
    assert_eq!(resumed.skipped, whole.skipped);
    assert!((4..=6).contains(&whole.skipped), "{}", whole.skipped);
}

/// Each rank has one of the two examples of an update.
#[test]
fn all_ranks_skip_an_update_that_one_of_them_spoils() {
    let config = TrainingConfig {
        batches_per_update: 2,
        ..run()
    };
    let train = |ranks: &Ranks| {
        let examples = vec![Good, Loss, Good, Good, Good, Gradient];
        let trained = trainer(config.clone())
            .ranks(ranks)
            .train(examples, vec![Good])
            .unwrap();
        (trained.skipped, weights(&trained))
    };
    let alone = train(&Ranks::alone());
    assert!((2..=6).contains(&alone.0), "{}", alone.0);
    assert_eq!(all_of(2, train), [alone.clone(), alone]);
}

#[test]
fn a_validation_whose_loss_is_not_a_number_ends_the_run() {
    let error = trainer(run()).train(vec![Good], vec![Loss]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the validation loss after update 4 is NaN; \
         a lower learning rate or a longer warm-up may help"
    );
}

/// The plain lines of a run with these examples.
fn lines(examples: Vec<Kind>) -> Vec<String> {
    let page = Page::default();
    let trained = trainer(run())
        .observer(PlainLines::new(page.clone()))
        .train(examples, vec![Good])
        .unwrap();
    assert_eq!(trained.updates, 8);
    page.text().lines().map(str::to_owned).collect()
}

#[test]
fn plain_lines_report_each_skipped_update_and_the_norm_of_the_others() {
    let good = lines(vec![Good]);
    // √(2² + 1²)
    assert!(good[0].starts_with("update 1 of 8  "), "{good:?}");
    assert!(good[0].ends_with("  gradient norm 2.2361"), "{good:?}");
    assert!(!good.iter().any(|line| line.contains("skipped")));

    let spoilt = lines(vec![Loss]);
    for update in 1..=8 {
        let expected = format!("update {update} skipped: loss NaN, gradient norm NaN");
        assert!(spoilt.contains(&expected), "{spoilt:?}");
    }
}
