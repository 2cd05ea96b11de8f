//! The mean of the last checkpoints at the end of a run.

use std::ops::ControlFlow;
use std::path::Path;

use burn::train::Interrupter;
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_train::metrics::Criterion;
use transformer_train::objective::{LossOptions, Objective};
use transformer_train::progress::ProgressDisplay;
use transformer_train::run::{RunRecord, StopReason};
use transformer_train::validation::{AverageOutcome, evaluate};
use transformer_train::{Trained, Trainer, TrainingConfig};

use crate::points::{
    Points, Weights, alone, checkpoint, checkpoints, held_out, model, points, read, run, trainer,
};

type Tracked = Autodiff<NdArray>;

/// A validation after every second of 8 updates.
fn config(best_by: Criterion) -> TrainingConfig {
    TrainingConfig {
        updates: 8,
        validate_every: 2,
        keep_checkpoints: 3,
        average_last: 3,
        best_by,
        ..run()
    }
}

/// By `Averaged`, which is 1 for an average and 0 for every other model.
fn average_wins() -> TrainingConfig {
    config(Criterion::highest("Averaged"))
}

fn with_hook(config: &TrainingConfig, out: &Path) -> Trainer<Tracked, Points<Tracked>> {
    trainer::<Tracked>(config, out).validate_with_fn(["Averaged"], |at| {
        let before = at.earlier.last().map_or(0, |last| last.update);
        let averaged = f64::from(u8::from(before == at.update));
        Ok(ControlFlow::Continue([averaged]))
    })
}

fn train(config: &TrainingConfig, out: &Path) -> Trained<Points<NdArray>> {
    with_hook(config, out).train(points(), held_out()).unwrap()
}

/// The mean of the checkpoints of these updates, in double precision.
fn mean(out: &Path, updates: &[usize]) -> Weights {
    let models: Vec<_> = updates
        .iter()
        .map(|&update| model(&checkpoint(out, update)))
        .collect();
    let mut mean = models[0].clone();
    for (name, numbers) in &mut mean {
        for (at, number) in numbers.iter_mut().enumerate() {
            let all = models.iter().map(|model| f64::from(model[name][at]));
            *number = (all.sum::<f64>() / models.len() as f64) as f32;
        }
    }
    mean
}

fn outcome(trained: &Trained<Points<NdArray>>) -> &AverageOutcome {
    trained.average.as_ref().expect("an average")
}

#[test]
fn an_average_that_is_the_best_model_is_kept() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let trained = train(&average_wins(), &out);
    let average = outcome(&trained);
    assert_eq!(trained.stopped, StopReason::Updates);
    assert_eq!(trained.validations.len(), 4);
    assert_eq!(average.checkpoints, [4, 6, 8]);
    assert!(average.kept);
    // No directory of the average is left.
    assert_eq!(checkpoints(&out), [4, 6, 8]);
    let expected = mean(&out, &[4, 6, 8]);
    assert_eq!(model(&out), expected);

    // It was validated as any model.
    let kept = Points::<NdArray>::init().restore(&out).unwrap();
    let statistics = evaluate(&kept, held_out(), 2, &LossOptions::smoothed(0.1)).unwrap();
    let off = average.validation.valid_loss - statistics.mean_loss();
    assert!(off.abs() < 1e-6, "{off}");
    assert_eq!(average.validation.update, 8);
    assert_eq!(average.validation.numbers["Averaged"], 1.0);
    assert_eq!(average.validation.train_tokens, 0);
    assert!(average.validation.train_loss.is_nan());
    let record = RunRecord::load(&out).unwrap().unwrap();
    assert_eq!(record.validations.len(), 4);
    assert_eq!(record.averages.len(), 1);
    assert_eq!(record.averages[0].checkpoints, [4, 6, 8]);

    // Resumed where it has ended, the run has the same end, and writes nothing.
    let before = read(&out);
    let again = train(&average_wins(), &out);
    assert_eq!(outcome(&again).checkpoints, [4, 6, 8]);
    assert!(outcome(&again).kept);
    assert!(read(&out) == before);
    let record = RunRecord::load(&out).unwrap().unwrap();
    assert_eq!(record.averages.len(), 1);

    // Another average is left to do. It is not better than the first, which stays.
    let two = TrainingConfig {
        average_last: 2,
        ..average_wins()
    };
    let expected = model(&out);
    let second = train(&two, &out);
    assert_eq!(outcome(&second).checkpoints, [6, 8]);
    assert!(!outcome(&second).kept);
    assert_eq!(model(&out), expected);
    let record = RunRecord::load(&out).unwrap().unwrap();
    let kept = record.averages.iter().map(|average| average.kept);
    assert_eq!(kept.collect::<Vec<_>>(), [true, false]);

    // When it goes on, no later model is better by this number, nor is the next average.
    let longer = TrainingConfig {
        updates: 12,
        ..average_wins()
    };
    let trained = train(&longer, &out);
    assert_eq!(outcome(&trained).checkpoints, [8, 10, 12]);
    assert!(!outcome(&trained).kept);
    assert_eq!(model(&out), expected);
    let record = RunRecord::load(&out).unwrap().unwrap();
    assert_eq!(record.averages.len(), 3);
}

#[test]
fn an_average_that_is_not_better_is_reported_and_not_kept() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let config = TrainingConfig {
        keep_best: 1,
        ..config(Criterion::lowest("Averaged"))
    };
    let trained = train(&config, &out);
    // The checkpoint of the best validation, the first of equals, is not one of the last.
    assert_eq!(checkpoints(&out), [2, 4, 6, 8]);
    assert_eq!(outcome(&trained).checkpoints, [4, 6, 8]);
    assert!(!outcome(&trained).kept);
    assert_eq!(model(&out), model(&checkpoint(&out, 2)));
}

#[test]
fn a_shorter_run_averages_what_it_has() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let [two, one] = ["two", "one"].map(|name| folder.path().join(name));
    let config = |updates| TrainingConfig {
        updates,
        ..average_wins()
    };
    // The last one is not after a multiple of updates.
    let trained = train(&config(3), &two);
    assert_eq!(outcome(&trained).checkpoints, [2, 3]);
    assert_eq!(model(&two), mean(&two, &[2, 3]));

    assert_eq!(train(&config(2), &one).average, None);
    assert_eq!(model(&one), model(&checkpoint(&one, 2)));
}

#[test]
fn neither_an_interrupted_run_nor_one_without_a_directory_makes_an_average() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let half = TrainingConfig {
        updates: 4,
        average_last: 0,
        ..average_wins()
    };
    assert_eq!(train(&half, &out).average, None);
    let interrupter = Interrupter::new();
    interrupter.stop(None);
    let interrupted = with_hook(&average_wins(), &out).interrupter(interrupter);
    let trained = interrupted.train(points(), held_out()).unwrap();
    assert_eq!(trained.stopped, StopReason::Interrupted);
    assert_eq!(trained.average, None);

    let loss = config(Criterion::default());
    let nowhere = Trainer::new(Points::<Tracked>::init(), loss).display(ProgressDisplay::Silent);
    let trained = nowhere.train(points(), held_out()).unwrap();
    assert_eq!((trained.updates, trained.average), (8, None));
}

/// The hook ends the run, and is not asked for another reason to.
#[test]
fn a_run_that_its_hook_ends_makes_an_average_and_goes_on_when_resumed() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let config = config(Criterion::default());
    let hooked = trainer::<Tracked>(&config, &out).validate_with_fn([], |at| {
        Ok(match at.update {
            4 => ControlFlow::Break([]),
            _ => ControlFlow::Continue([]),
        })
    });
    let trained = hooked.train(points(), held_out()).unwrap();
    assert_eq!(trained.stopped, StopReason::Validation);
    assert_eq!(outcome(&trained).checkpoints, [2, 4]);
    let resumed = trainer::<Tracked>(&config, &out)
        .train(points(), held_out())
        .unwrap();
    assert_eq!((resumed.stopped, resumed.updates), (StopReason::Updates, 8));
    assert_eq!(outcome(&resumed).checkpoints, [4, 6, 8]);
}
