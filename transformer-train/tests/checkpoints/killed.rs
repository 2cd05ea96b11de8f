//! A kill between any two writes.
//!
//! One run is watched: its directory is read whenever the trainer calls the model or its hook. Between two such
//! states lie those that a kill would leave, where a file is half written, a checkpoint not renamed, or old
//! ones are not removed. From each of them, the run must be resumed to the same end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use burn::tensor::backend::AutodiffBackend;
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use transformer_train::metrics::Criterion;
use transformer_train::run::StopReason;
use transformer_train::{Trainer, TrainingConfig};

use crate::points::{
    Files, Points, alone, checkpoint, held_out, left, points, read, run, trainer, watched, write,
};

/// Accumulation, a moving average, checkpoints between validations, the best one kept besides, and an average
/// at the end, which is after update 8.
fn config() -> TrainingConfig {
    TrainingConfig {
        updates: 8,
        validate_every: 4,
        checkpoint_every: Some(2),
        keep_checkpoints: 2,
        keep_best: 1,
        ema_decay: Some(0.5),
        average_last: 2,
        best_by: Criterion::highest("Score"),
        ..run()
    }
}

/// A run with this score, which is given the first weight of the model, the update, and whether it is of an
/// average; the hook ends it after `last` updates.
fn scored<B: AutodiffBackend>(
    config: &TrainingConfig,
    out: &Path,
    last: usize,
    score: fn(f64, usize, bool) -> f64,
) -> Trainer<B, Points<B>> {
    trainer::<B>(config, out).validate_with_fn(["Score"], move |at| {
        let weights = at.model.weight.val().into_data();
        let first = weights.iter::<f64>().next().expect("a weight");
        let before = at.earlier.last().map_or(0, |last| last.update);
        let score = [score(first, at.update, before == at.update)];
        Ok(match at.update >= last {
            true => ControlFlow::Break(score),
            false => ControlFlow::Continue(score),
        })
    })
}

/// The states of a directory in the course of a run.
#[derive(Default)]
struct States {
    now: Files,
    all: Vec<Files>,
}

const CHECKPOINT_FILES: [&str; 4] = [
    "model.safetensors",
    "training.safetensors",
    "optimizer.mpk",
    "run.json",
];

/// The directories of files below `checkpoints`.
fn directories(files: &Files) -> BTreeSet<PathBuf> {
    let parents = files.keys().filter_map(|path| path.parent());
    let below = parents.filter(|parent| parent.starts_with("checkpoints"));
    below.map(Path::to_owned).collect()
}

fn is_whole(directory: &Path) -> bool {
    directory.starts_with("checkpoints") && directory.extension().is_none()
}

impl States {
    fn push(&mut self) {
        self.all.push(self.now.clone());
    }

    /// Replaces a file: first there is half of it under another name, unless it is empty.
    fn write(&mut self, path: &Path, content: &[u8]) {
        if content.is_empty() {
            self.now.insert(path.to_owned(), Vec::new());
            return self.push();
        }
        let mut name = path.file_name().unwrap().to_owned();
        name.push(".4242.tmp");
        let side = path.with_file_name(name);
        let half = content[..content.len() / 2].to_vec();
        self.now.insert(side.clone(), half);
        self.push();
        self.now.remove(&side);
        self.now.insert(path.to_owned(), content.to_vec());
        self.push();
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        let files = std::mem::take(&mut self.now).into_iter();
        let renamed = files.map(|(path, content)| match path.strip_prefix(from) {
            Ok(rest) => (to.join(rest), content),
            Err(_) => (path, content),
        });
        self.now = renamed.collect();
        self.push();
    }

    /// Replaces the files that differ in `next`.
    fn write_all(&mut self, next: &Files, are_meant: fn(&Path) -> bool) {
        for (path, content) in next.iter().filter(|(path, _)| are_meant(path)) {
            if self.now.get(path) != Some(content) {
                self.write(path, content);
            }
        }
    }

    /// Goes on to the state that was seen next, in the order in which the trainer writes.
    fn go_on_to(&mut self, next: &Files) {
        // The directory's model.
        self.write_all(next, |path| !path.starts_with("checkpoints"));
        let there = directories(&self.now);
        for new in directories(next).difference(&there) {
            if is_whole(new) {
                self.finish_checkpoint(new, next);
            }
        }
        // The record of the run, in a checkpoint that was there.
        self.write_all(next, |path| path.parent().is_some_and(is_whole));
        for old in directories(&self.now).difference(&directories(next)) {
            self.remove(old);
        }
        // The first file of a checkpoint or of an average.
        self.write_all(next, |_| true);
        assert!(
            self.now == *next,
            "an order of writes that is not the trainer's"
        );
    }

    /// Writes the files of a checkpoint that are missing, and gives it its name.
    fn finish_checkpoint(&mut self, directory: &Path, next: &Files) {
        let side = directory.with_extension("tmp");
        for name in CHECKPOINT_FILES {
            let path = side.join(name);
            if !self.now.contains_key(&path) {
                self.write(&path, &next[&directory.join(name)]);
            }
        }
        self.rename(&side, directory);
    }

    /// Removes a directory, file by file, and its name first if it has that of a checkpoint.
    fn remove(&mut self, directory: &Path) {
        let side = directory.with_extension("tmp");
        if is_whole(directory) {
            self.rename(directory, &side);
        }
        let files = self.now.keys().filter(|path| path.starts_with(&side));
        for path in files.cloned().collect::<Vec<_>>() {
            self.now.remove(&path);
            self.push();
        }
    }
}

/// Watches a run, and returns all states of its directory that a kill can leave.
fn states<B: AutodiffBackend>(
    trainer: impl FnOnce(&Path) -> Trainer<B, Points<B>>,
    out: &Path,
    stopped: StopReason,
) -> Vec<Files> {
    let states = Rc::new(RefCell::new(States::default()));
    let (watched_states, directory) = (states.clone(), out.to_owned());
    let watch = move |_| watched_states.borrow_mut().go_on_to(&read(&directory));
    let trainer = trainer(out);
    let trained = watched(watch, || trainer.train(points(), held_out())).unwrap();
    assert_eq!((trained.stopped, trained.updates), (stopped, 8));
    assert_eq!(trained.average.unwrap().checkpoints, [6, 8]);
    let mut states = states.borrow_mut();
    states.go_on_to(&read(out));
    std::mem::take(&mut states.all)
}

/// Resumes a run from each state.
fn resume_each<B: AutodiffBackend>(
    trainer: impl Fn(&Path) -> Trainer<B, Points<B>>,
    whole: &Path,
    states: &[Files],
) {
    let folder = tempfile::tempdir().unwrap();
    let expected = left(whole);
    for (index, state) in states.iter().enumerate() {
        let out = folder.path().join(index.to_string());
        write(state, &out);
        // A run makes it before its model; it is not among the files while it is empty.
        std::fs::create_dir_all(out.join("checkpoints")).unwrap();
        let files: Vec<_> = state.keys().collect();
        trainer(&out)
            .train(points(), held_out())
            .unwrap_or_else(|error| panic!("{error}, from {files:?}"));
        assert!(left(&out) == expected, "another end, from {files:?}");
    }
}

/// From any state of a run that makes all its updates. Its score is another one for every other weight, and
/// that of an average is the best.
fn a_killed_run_is_resumed_to_the_same_end<B: AutodiffBackend>() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let score =
        |first: f64, _, averaged| (1000.0 * first).sin() + if averaged { 10.0 } else { 0.0 };
    let trainer = |out: &Path| scored::<B>(&config(), out, usize::MAX, score);
    let states = states(trainer, &whole, StopReason::Updates);
    // Four checkpoints of four files, each under two names, and their own two names.
    assert!(states.len() > 4 * (4 * 2 + 1), "{}", states.len());
    resume_each(trainer, &whole, &states);
}

#[test]
fn a_killed_run_is_resumed_to_the_same_end_on_ndarray() {
    a_killed_run_is_resumed_to_the_same_end::<Autodiff<NdArray>>();
}

#[test]
fn a_killed_run_is_resumed_to_the_same_end_on_flex() {
    a_killed_run_is_resumed_to_the_same_end::<Autodiff<Flex>>();
}

/// The states in which the last checkpoint is whole, and only the average can be missing.
fn ending(states: Vec<Files>) -> Vec<Files> {
    let last = checkpoint(Path::new(""), 8);
    let ending = |state: &Files| directories(state).contains(&last);
    states.into_iter().filter(ending).collect()
}

#[test]
fn a_run_that_is_killed_when_its_patience_is_over_is_resumed_to_the_same_end() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let config = TrainingConfig {
        updates: 100,
        patience: Some(1),
        ..config()
    };
    let trainer = |out: &Path| {
        let score = |_: f64, update: usize, _: bool| -(update as f64);
        scored::<Autodiff<NdArray>>(&config, out, usize::MAX, score)
    };
    let states = ending(states(trainer, &whole, StopReason::Patience));
    assert!(states.len() > 4, "{}", states.len());
    resume_each(trainer, &whole, &states);
}

#[test]
fn a_run_that_is_killed_when_its_hook_has_ended_it_is_resumed_to_the_same_end() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let config = TrainingConfig {
        updates: 100,
        ..config()
    };
    let trainer = |out: &Path| scored::<Autodiff<NdArray>>(&config, out, 8, |first, _, _| first);
    let mut states = ending(states(trainer, &whole, StopReason::Validation));
    // In the last state, the run has ended: it goes on when it is resumed.
    states.pop();
    assert!(states.len() > 4, "{}", states.len());
    resume_each(trainer, &whole, &states);
}
