//! The directory of a run: it is written by one run at a time, and by none that is refused.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use transformer_instances as _;

use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_core::Transformer;
use transformer_core::formats::WEIGHTS_FILE;
use transformer_train::data::TokenizedPair;
use transformer_train::progress::{ObserverError, ProgressDisplay, RunObserver, TrainingPoint};
use transformer_train::run::{RunLock, holds_model};
use transformer_train::validation::Validation;
use transformer_train::{TrainError, Trainer, TrainingConfig};

use support::run::tiny_config;

type B = Autodiff<NdArray>;

fn run() -> TrainingConfig {
    TrainingConfig {
        batch_tokens: 40,
        warmup: 4,
        updates: 2,
        ..TrainingConfig::default()
    }
}

fn trainer(config: TrainingConfig) -> Trainer<B, Transformer<B>> {
    let model = tiny_config().init(3, &Default::default()).unwrap();
    Trainer::new(model, config).display(ProgressDisplay::Silent)
}

fn pairs() -> Vec<TokenizedPair> {
    let pair = |token| TokenizedPair {
        source: vec![token, token],
        target: vec![token],
    };
    (3..13).map(pair).collect()
}

/// Trains in a directory, with a hook that writes `text` beside the model.
fn train(
    config: TrainingConfig,
    out: &Path,
    resume: bool,
    text: &'static str,
) -> Result<(), TrainError> {
    let trainer = trainer(config).directory(out).resume(resume);
    let trainer = trainer.on_start(move |directory| Ok(fs::write(directory.join("note"), text)?));
    trainer.train(pairs(), pairs()).map(|_| ())
}

#[test]
fn a_program_writes_beside_the_model_when_the_run_is_sure_to_begin() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let note = || fs::read_to_string(out.join("note")).unwrap();
    train(run(), &out, false, "new").unwrap();
    assert_eq!(note(), "new");

    let error = train(run(), &out, false, "occupied").unwrap_err();
    assert!(matches!(error, TrainError::Occupied(_)), "{error}");
    let other = TrainingConfig { warmup: 5, ..run() };
    let error = train(other, &out, true, "another run").unwrap_err();
    assert!(matches!(error, TrainError::OtherRun { .. }), "{error}");
    assert_eq!(note(), "new");

    let longer = TrainingConfig {
        updates: 4,
        ..run()
    };
    train(longer, &out, true, "resumed").unwrap();
    assert_eq!(note(), "resumed");
}

#[test]
fn a_program_that_cannot_write_ends_the_run_before_its_first_update() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let trainer = trainer(run()).directory(&out);
    let trainer = trainer.on_start(|_| Err("the disk is full".into()));
    let error = trainer.train(pairs(), pairs()).unwrap_err();
    assert!(matches!(error, TrainError::Start { .. }));
    assert_eq!(error.to_string(), "the disk is full");
    assert!(!holds_model(&out));
}

#[test]
fn a_lock_that_the_program_has_taken_becomes_the_run_s() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    assert!(!RunLock::is_in(&out));
    let lock = RunLock::acquire(&out).unwrap();
    assert_eq!(lock.directory(), out);
    assert!(RunLock::is_in(&out));
    let refused = trainer(run()).directory(&out).train(pairs(), pairs());
    assert!(matches!(refused, Err(TrainError::InUse(path)) if path == out));

    let trainer = trainer(run()).locked(lock);
    let trainer = trainer.on_start(|directory| match RunLock::acquire(directory) {
        Err(TrainError::InUse(_)) => Ok(()),
        _ => Err("the run has no lock".into()),
    });
    trainer.train(pairs(), pairs()).unwrap();
    RunLock::acquire(&out).unwrap();
}

#[test]
fn only_whole_checkpoints_and_models_are_in_the_way_of_a_new_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    let checkpoints = out.join("checkpoints");
    assert!(!holds_model(out));
    fs::create_dir(&checkpoints).unwrap();
    fs::create_dir(checkpoints.join("update-00000004.tmp")).unwrap();
    assert!(!holds_model(out));
    fs::create_dir(checkpoints.join("update-00000004")).unwrap();
    assert!(holds_model(out));
    fs::remove_dir_all(&checkpoints).unwrap();
    fs::write(out.join("config.json"), "{}").unwrap();
    assert!(holds_model(out));
}

/// Otherwise the run would begin again, and replace the trained model.
#[test]
fn a_model_without_its_checkpoints_is_not_trained_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    trainer(run())
        .directory(&out)
        .train(pairs(), pairs())
        .unwrap();
    let weights = fs::read(out.join(WEIGHTS_FILE)).unwrap();
    fs::remove_dir_all(out.join("checkpoints")).unwrap();
    let resumed = trainer(run()).directory(&out).resume(true);
    let error = resumed.train(pairs(), pairs()).unwrap_err();
    assert!(matches!(&error, TrainError::NoCheckpoints(path) if *path == out));
    assert!(fs::read(out.join(WEIGHTS_FILE)).unwrap() == weights);
}

/// Does something with the directory of its run: after an update, or after the validation of an update.
struct Change {
    out: PathBuf,
    after: After,
    change: fn(&Path),
}

#[derive(Clone, Copy)]
enum After {
    Update(usize),
    ValidationOf(usize),
}

impl RunObserver for Change {
    fn on_training(&mut self, point: &TrainingPoint) -> Result<(), ObserverError> {
        match self.after {
            After::Update(update) if update == point.update => (self.change)(&self.out),
            _ => {}
        }
        Ok(())
    }

    fn on_validation(&mut self, validation: &Validation) -> Result<(), ObserverError> {
        match self.after {
            After::ValidationOf(update) if update == validation.update => (self.change)(&self.out),
            _ => {}
        }
        Ok(())
    }
}

fn renamed(out: &Path) -> PathBuf {
    out.with_file_name("renamed")
}

/// The logs are still open when the directory is lost, and averages are still to be made.
#[test]
fn a_directory_that_is_lost_during_the_run_ends_it_and_is_not_made_again() {
    let remove: fn(&Path) = |out| fs::remove_dir_all(out).unwrap();
    let rename: fn(&Path) = |out| fs::rename(out, renamed(out)).unwrap();
    let replace: fn(&Path) = |out| {
        fs::rename(out, renamed(out)).unwrap();
        fs::create_dir(out).unwrap();
        fs::write(out.join("run.lock"), "").unwrap();
    };
    for (after, saved) in [
        (After::Update(1), None),
        (After::ValidationOf(2), None),
        (After::Update(3), Some(2)),
        (After::ValidationOf(4), Some(3)),
        (After::ValidationOf(6), Some(4)),
    ] {
        for (change, is_renamed) in [(remove, false), (rename, true), (replace, true)] {
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join("model");
            let config = TrainingConfig {
                updates: 6,
                validate_every: 2,
                checkpoint_every: Some(3),
                keep_checkpoints: 3,
                average_last: 2,
                ema_decay: Some(0.9),
                ..run()
            };
            let change = Change {
                out: out.clone(),
                after,
                change,
            };
            let trainer = trainer(config).directory(&out).observe_every(1);
            let trainer = trainer.log_json(true).tensorboard(true).observer(change);
            let error = trainer.train(pairs(), pairs()).map(|_| ()).unwrap_err();
            let text = error.to_string();
            let TrainError::DirectoryLost {
                path,
                saved: found,
                renamed_to,
            } = error
            else {
                panic!("{text}");
            };
            assert_eq!((path, found), (out.join("run.lock"), saved));
            let newest = saved.map_or("no checkpoint was written".into(), |update| {
                format!("no checkpoint after update {update} was written")
            });
            assert!(text.contains(&newest), "{text}");
            if cfg!(target_os = "linux") && is_renamed {
                let renamed = renamed(&out).canonicalize().unwrap();
                assert_eq!(renamed_to, Some(renamed));
            } else {
                assert_eq!(renamed_to, None);
            }
            let left: Vec<_> = match fs::read_dir(&out) {
                Ok(entries) => entries.map(|entry| entry.unwrap().file_name()).collect(),
                Err(_) => Vec::new(),
            };
            assert!(left.iter().all(|name| name == "run.lock"), "{left:?}");
        }
    }
}

/// Between the lock, which a program takes before it reads its data, and the first update.
#[test]
fn a_directory_that_is_lost_before_the_run_begins_is_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let lock = RunLock::acquire(&out).unwrap();
    fs::remove_dir_all(&out).unwrap();
    let error = trainer(run()).locked(lock).train(pairs(), pairs());
    let error = error.map(|_| ()).unwrap_err();
    assert!(
        matches!(error, TrainError::DirectoryLost { saved: None, .. }),
        "{error}"
    );
    assert!(!out.exists());
}

/// Opening a pipe waits until someone writes into it.
#[cfg(unix)]
#[test]
fn a_pipe_in_place_of_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    train(run(), &out, false, "").unwrap();
    for file in ["run.json", "optimizer.mpk", "run.lock"] {
        let path = match file {
            "run.lock" => out.join(file),
            _ => out.join("checkpoints/update-00000002").join(file),
        };
        let whole = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let longer = TrainingConfig {
            updates: 3,
            ..run()
        };
        let error = train(longer, &out, true, "").unwrap_err().to_string();
        let expected = format!("{}: not a regular file", path.display());
        assert!(error.starts_with(&expected), "{error}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, whole).unwrap();
    }
}
