//! The files of training runs: descriptions, checkpoints, logs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn_autodiff::Autodiff;
use burn_flex::Flex;
use serde_json::{Value, json};
use transformer_program::run_file::{RunFile, Values};
use transformer_train::data::TokenizedPair;
use transformer_train::progress::{LOG_FILE, ProgressDisplay, RunLog};
use transformer_train::run::RunRecord;
use transformer_train::{Trainer, TrainingConfig};

use super::{Target, device, read, tiny, write};
use crate::guard::hash;
use crate::mutate::{Format, crc32};

/// Descriptions of runs, in TOML.
pub fn run_file(folder: &Path) -> Target {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let files = fs::read_dir(&configs).expect("configs");
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let path = folder.join("run.toml");
    Target {
        format: Format::Text,
        seeds: paths.iter().map(|path| read(path)).collect(),
        run: Box::new(move |input| {
            write(&path, input);
            let _ = Values::from_file_of_run(&path);
            let Ok(values) = Values::from_file(&path) else {
                return false;
            };
            let Ok(mut run) = RunFile::read(&values) else {
                return false;
            };
            let config = run.training_config();
            let _ = config.validate();
            run.resolve_model(None, &values)
                .is_ok_and(|model| model.validate().is_ok())
        }),
    }
}

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The files of a folder and of those in it.
fn files_of(folder: &Path) -> Files {
    let mut files = Files::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let bytes = read(&path);
                    files.insert(path, bytes);
                }
            }
        }
    }
    files
}

/// A run of two updates with a checkpoint, which is gone on with by one update.
struct TinyRun {
    folder: PathBuf,
    /// Its files, as the run left them.
    files: Files,
}

impl TinyRun {
    fn new(folder: &Path) -> Self {
        let folder = folder.join("run");
        assert!(go_on(&folder, 2));
        Self {
            files: files_of(&folder),
            folder,
        }
    }

    fn checkpoint(&self, name: &str) -> PathBuf {
        self.folder.join("checkpoints/update-00000002").join(name)
    }

    /// The record of the run.
    fn record(&self) -> Value {
        serde_json::from_slice(&self.files[&self.checkpoint("run.json")]).expect("a record")
    }

    /// Goes on with the run; then restores its files.
    fn go_on(&self) -> bool {
        let has_gone_on = go_on(&self.folder, 3);
        if files_of(&self.folder) != self.files {
            let _ = fs::remove_dir_all(&self.folder);
            for (path, bytes) in &self.files {
                let folder = path.parent().expect("a folder");
                fs::create_dir_all(folder).expect("a folder can be made");
                write(path, bytes);
            }
        }
        has_gone_on
    }
}

/// Trains up to this update, from the newest checkpoint.
fn go_on(folder: &Path, updates: usize) -> bool {
    let config = TrainingConfig {
        updates,
        validate_every: 1,
        keep_checkpoints: 1,
        batch_tokens: 20,
        warmup: 2,
        ema_decay: Some(0.5),
        ..TrainingConfig::default()
    };
    let pair = |token| TokenizedPair {
        source: vec![token, 4],
        target: vec![token],
    };
    let pairs: Vec<TokenizedPair> = (3..9).map(pair).collect();
    let model = tiny().init::<Autodiff<Flex>>(0, &device());
    let model = model.expect("a configuration that can be");
    let trainer = Trainer::new(model, config)
        .display(ProgressDisplay::Silent)
        .directory(folder)
        .log_json(true)
        .resume(true);
    trainer.train(pairs.clone(), pairs).is_ok()
}

/// The record of a run in its checkpoint.
pub fn record(folder: &Path) -> Target {
    let run = TinyRun::new(folder);
    let path = run.checkpoint("run.json");
    Target {
        format: Format::Json,
        seeds: vec![run.files[&path].clone()],
        run: Box::new(move |input| {
            write(&path, input);
            if let Ok(Some(record)) = RunRecord::load(&run.folder) {
                let _ = (record.kept_model().is_some(), record.kept_by().len());
            }
            run.go_on()
        }),
    }
}

/// A file of a checkpoint whose checksum is right.
fn with_checksum(folder: &Path, name: &'static str, format: Format) -> Target {
    let run = TinyRun::new(folder);
    let (path, record_path) = (run.checkpoint(name), run.checkpoint("run.json"));
    Target {
        format,
        seeds: vec![run.files[&path].clone()],
        run: Box::new(move |input| {
            write(&path, input);
            let mut record = run.record();
            match name {
                "optimizer.mpk" => record["optimizer_checksum"] = json!(crc32(input)),
                name => record["file_checksums"][name] = json!(crc32(input)),
            }
            write(&record_path, record.to_string().as_bytes());
            run.go_on()
        }),
    }
}

/// The optimizer's moments.
pub fn optimizer(folder: &Path) -> Target {
    with_checksum(folder, "optimizer.mpk", Format::Bytes)
}

/// The weights from which training goes on, beside their average.
pub fn training_weights(folder: &Path) -> Target {
    with_checksum(folder, "training.safetensors", Format::Safetensors)
}

/// The log of a run, which is cut where the run goes on.
pub fn log(folder: &Path) -> Target {
    let run = TinyRun::new(folder);
    let path = run.folder.join(LOG_FILE);
    Target {
        format: Format::Text,
        seeds: vec![run.files[&path].clone()],
        run: Box::new(move |input| {
            write(&path, input);
            let is_read = RunLog::load(&run.folder).is_ok();
            // An update takes much longer than to read the log.
            if hash(input).is_multiple_of(64) {
                run.go_on();
            }
            is_read
        }),
    }
}
