//! The best model, the best checkpoints, and patience.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_train::metrics::Criterion;
use transformer_train::run::{AverageError, RunRecord, StopReason, newest_checkpoints};
use transformer_train::{Trained, Trainer, TrainingConfig};

use crate::points::{
    Points, alone, checkpoint, checkpoints, held_out, model, points, read, run, trainer,
};

type Tracked = Autodiff<NdArray>;

/// A validation after every second of 12 updates, compared by `Score`.
fn config() -> TrainingConfig {
    TrainingConfig {
        validate_every: 2,
        best_by: Criterion::highest("Score"),
        ..run()
    }
}

/// A run, whose validations have these scores.
fn scored(
    config: &TrainingConfig,
    out: &Path,
    scores: [f64; 6],
) -> Trainer<Tracked, Points<Tracked>> {
    trainer::<Tracked>(config, out).validate_with_fn(["Score"], move |at| {
        Ok(ControlFlow::Continue([scores[at.update / 2 - 1]]))
    })
}

fn train(config: &TrainingConfig, out: &Path, scores: [f64; 6]) -> Trained<Points<NdArray>> {
    let trainer = scored(config, out, scores);
    trainer.train(points(), held_out()).unwrap()
}

#[test]
fn the_best_model_and_the_best_checkpoints_are_kept() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let config = TrainingConfig {
        keep_checkpoints: 1,
        keep_best: 2,
        ..config()
    };
    train(&config, &out, [1.0, 9.0, f64::NAN, 3.0, 8.0, 2.0]);
    assert_eq!(checkpoints(&out), [4, 10, 12]);
    assert_eq!(model(&out), model(&checkpoint(&out, 4)));
    assert_ne!(model(&out), model(&checkpoint(&out, 12)));

    let record = RunRecord::load(&out).unwrap().unwrap();
    assert_eq!(record.updates, 12);
    assert_eq!(
        record.checkpoints,
        [4, 10, 12].map(|at| checkpoint(&out, at))
    );
    // Those of the best validations are not the last ones.
    assert_eq!(newest_checkpoints(&out, 1).unwrap(), [checkpoint(&out, 12)]);
    let error = newest_checkpoints(&out, 2).unwrap_err();
    assert!(
        matches!(
            error,
            AverageError::TooFewCheckpoints {
                found: 1,
                asked: 2,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn by_default_the_lowest_loss_is_the_best() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let config = TrainingConfig {
        best_by: Criterion::default(),
        keep_checkpoints: 9,
        ..config()
    };
    let trained = train(&config, &out, [0.0; 6]);
    let losses = trained.validations.iter();
    let best = losses.min_by(|a, b| a.valid_loss.total_cmp(&b.valid_loss));
    let best = best.unwrap().update;
    assert_eq!(model(&out), model(&checkpoint(&out, best)));
}

#[test]
fn a_resumed_run_compares_by_the_same_rule() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let scores = [1.0, 9.0, 4.0, f64::NAN, 9.0, 2.0];
    let half = TrainingConfig {
        updates: 6,
        keep_best: 1,
        ..config()
    };
    train(&half, &out, scores);
    let best = model(&out);
    let whole = TrainingConfig {
        updates: 12,
        ..half
    };
    train(&whole, &out, scores);
    assert_eq!(model(&out), best);
    assert_eq!(checkpoints(&out), [4, 10, 12]);
}

/// A model whose validation is unknown is replaced by the newest one.
#[test]
fn without_any_number_the_newest_model_is_kept() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let config = TrainingConfig {
        keep_best: 3,
        ..config()
    };
    train(&config, &out, [f64::NAN; 6]);
    assert_eq!(checkpoints(&out), [10, 12]);
    assert_eq!(model(&out), model(&checkpoint(&out, 12)));
}

#[test]
fn a_number_that_no_validation_has_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let config = TrainingConfig {
        best_by: Criterion::highest("BLEU"),
        ..config()
    };
    let refused = |trainer: Trainer<Tracked, Points<Tracked>>| {
        let error = trainer.train(points(), held_out()).unwrap_err();
        assert!(!out.exists());
        error.to_string()
    };
    assert_eq!(
        refused(scored(&config, &out, [0.0; 6])),
        "`best_by` is `BLEU`, but the validation metrics are loss, perplexity, accuracy, Score"
    );
    let named = trainer::<Tracked>(&run(), &out);
    let named = named.validate_with_fn(["loss"], |_| Ok(ControlFlow::Continue([0.0])));
    assert_eq!(
        refused(named),
        "two validation metrics are named `loss`; names must be unique"
    );
}

#[test]
fn a_run_ends_when_patience_is_over_and_goes_on_with_more_of_it() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let [out, other] = ["run", "other"].map(|name| folder.path().join(name));
    // The fifth is the third in a row that is not better than the second.
    let scores = [1.0, 5.0, f64::NAN, 5.0, 3.0, 9.0];
    let patient = |patience| TrainingConfig {
        patience,
        ..config()
    };
    let ended = train(&patient(Some(3)), &out, scores);
    assert_eq!((ended.stopped, ended.updates), (StopReason::Patience, 10));
    let before = read(&out);
    let again = train(&patient(Some(3)), &out, scores);
    assert_eq!((again.stopped, again.updates), (StopReason::Patience, 10));
    assert_eq!(again.validations.len(), 5);
    assert!(read(&out) == before);
    let longer = train(&patient(Some(4)), &out, scores);
    assert_eq!((longer.stopped, longer.updates), (StopReason::Updates, 12));

    // Counting goes on when the run is resumed.
    let half = TrainingConfig {
        updates: 6,
        ..patient(Some(3))
    };
    train(&half, &other, scores);
    let resumed = train(&patient(Some(3)), &other, scores);
    assert_eq!(
        (resumed.stopped, resumed.updates),
        (StopReason::Patience, 10)
    );
    let without = train(&patient(None), &other, scores);
    assert_eq!(
        (without.stopped, without.updates),
        (StopReason::Updates, 12)
    );
    let [a, b] = [&out, &other].map(|out| fs::read(checkpoint(out, 12).join("model.safetensors")));
    assert!(a.unwrap() == b.unwrap());
}
