//! Checkpoints by updates and by time, with or without a validation.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::rc::Rc;

use burn::tensor::backend::AutodiffBackend;
use burn::train::Interrupter;
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use tempfile::TempDir;
use transformer_train::TrainingConfig;
use transformer_train::run::StopReason;
use transformer_train::validation::Validation;

use crate::points::{
    Call, alone, checkpoint, checkpoints, held_out, left, points, read, run, trainer, watched,
    write,
};

fn config() -> TrainingConfig {
    TrainingConfig {
        checkpoint_every: Some(3),
        keep_checkpoints: 9,
        ema_decay: Some(0.9),
        ..run()
    }
}

fn updates(validations: &[Validation]) -> Vec<usize> {
    validations
        .iter()
        .map(|validation| validation.update)
        .collect()
}

#[test]
fn each_checkpoint_is_resumed_to_the_end_of_the_run_on_ndarray() {
    each_checkpoint_is_resumed_to_the_end_of_the_run::<Autodiff<NdArray>>();
}

#[test]
fn each_checkpoint_is_resumed_to_the_end_of_the_run_on_flex() {
    each_checkpoint_is_resumed_to_the_end_of_the_run::<Autodiff<Flex>>();
}

fn each_checkpoint_is_resumed_to_the_end_of_the_run<B: AutodiffBackend>() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let trained = trainer::<B>(&config(), &whole)
        .train(points(), held_out())
        .unwrap();
    assert_eq!(updates(&trained.validations), [4, 8, 12]);
    assert!((1..12).contains(&trained.skipped), "{}", trained.skipped);
    let made = [3, 4, 6, 8, 9, 12];
    assert_eq!(checkpoints(&whole), made);

    for (index, update) in made.into_iter().enumerate() {
        let out = folder.path().join(format!("from {update}"));
        write(&read(&whole), &out);
        for &later in &made[index + 1..] {
            fs::remove_dir_all(checkpoint(&out, later)).unwrap();
        }
        let resumed = trainer::<B>(&config(), &out)
            .train(points(), held_out())
            .unwrap();
        assert_eq!(updates(&resumed.validations), [4, 8, 12], "from {update}");
        assert!(left(&out) == left(&whole), "from {update}");
    }
}

/// A run with these settings, which is interrupted while its `batch`-th batch is trained on; and one that is
/// not.
fn interrupted(config: &TrainingConfig, batch: usize) -> (TempDir, usize) {
    let folder = tempfile::tempdir().unwrap();
    let [whole, stopped] = ["whole", "stopped"].map(|name| folder.path().join(name));
    trainer::<Autodiff<NdArray>>(config, &whole)
        .train(points(), held_out())
        .unwrap();
    let interrupter = Interrupter::new();
    let first = trainer::<Autodiff<NdArray>>(config, &stopped).interrupter(interrupter.clone());
    let mut batches = 0;
    let watch = move |call: Call| {
        batches += usize::from(call == Call::TrainingBatch);
        if batches == batch {
            interrupter.stop(None);
        }
    };
    let trained = watched(watch, || first.train(points(), held_out())).unwrap();
    assert_eq!(trained.stopped, StopReason::Interrupted);
    assert!(checkpoint(&stopped, trained.updates).exists());
    (folder, trained.updates)
}

/// The fourth update is the first of the second epoch: it has the batches 6 and 7, the fifth 8 and 9.
#[test]
fn a_run_that_is_interrupted_anywhere_ends_as_one_that_is_not() {
    let _alone = alone();
    let config = TrainingConfig {
        keep_checkpoints: 2,
        keep_best: 1,
        average_last: 2,
        ..config()
    };
    for (batch, expected) in [(6, 4), (8, 5)] {
        let (folder, update) = interrupted(&config, batch);
        assert_eq!(update, expected);
        let [whole, stopped] = ["whole", "stopped"].map(|name| folder.path().join(name));
        let resumed = trainer::<Autodiff<NdArray>>(&config, &stopped)
            .train(points(), held_out())
            .unwrap();
        // Where it was due, the validation is made once.
        assert_eq!(updates(&resumed.validations), [4, 8, 12]);
        assert!(left(&stopped) == left(&whole), "after {update}");
    }
}

#[test]
fn checkpoints_by_time_change_nothing_but_how_much_a_kill_costs() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let [whole, timed] = ["whole", "timed"].map(|name| folder.path().join(name));
    let config = TrainingConfig {
        keep_checkpoints: 2,
        keep_best: 1,
        average_last: 2,
        ..config()
    };
    trainer::<Autodiff<NdArray>>(&config, &whole)
        .train(points(), held_out())
        .unwrap();

    // There is one after each update.
    let config = TrainingConfig {
        checkpoint_minutes: Some(1e-9),
        ..config
    };
    let seen = Rc::new(RefCell::new(BTreeSet::new()));
    let (noted, out) = (seen.clone(), timed.clone());
    let watch = move |call: Call| {
        if call == Call::TrainingBatch {
            let there = checkpoints(&out);
            assert!(there.len() <= 3, "two, and a best one: {there:?}");
            noted.borrow_mut().extend(there);
        }
    };
    let trainer = trainer::<Autodiff<NdArray>>(&config, &timed);
    watched(watch, || trainer.train(points(), held_out())).unwrap();
    assert!(seen.borrow().iter().copied().eq(1..12), "{seen:?}");
    assert!(left(&timed) == left(&whole));
}
