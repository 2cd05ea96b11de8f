//! Damage to the newest checkpoints: each is found before the run goes on, by file and in one line, which names the
//! older checkpoint to go on from.

use std::fs;
use std::path::Path;

use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use flate2::Crc;
use serde_json::{Value, json};
use transformer_train::run::RunRecord;
use transformer_train::{TrainError, TrainingConfig};

use crate::points::{
    alone, checkpoint, checkpoints, held_out, left, points, read, run, trainer, write,
};

/// A checkpoint after every second of 8 updates, the last three of which are kept, with all files.
fn config() -> TrainingConfig {
    TrainingConfig {
        updates: 8,
        validate_every: 2,
        keep_checkpoints: 3,
        ema_decay: Some(0.5),
        ..run()
    }
}

/// A resumed run, which has more to do.
fn resume(out: &Path) -> Result<usize, TrainError> {
    let longer = TrainingConfig {
        updates: 9,
        ..config()
    };
    let trained = trainer::<Autodiff<NdArray>>(&longer, out).train(points(), held_out());
    trained.map(|trained| trained.updates)
}

fn train(out: &Path) {
    let trainer = trainer::<Autodiff<NdArray>>(&config(), out);
    trainer.train(points(), held_out()).unwrap();
}

/// Another value of one bit, in the middle.
fn flip(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).unwrap();
}

fn halve(file: &Path) {
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
}

fn remove(file: &Path) {
    fs::remove_file(file).unwrap();
}

type Damage = fn(&Path);

#[test]
fn the_newest_checkpoint_is_refused_by_its_file_and_the_one_before_ends_the_run_alike() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    train(&whole);
    assert_eq!(checkpoints(&whole), [4, 6, 8]);
    let damages: [(&str, Damage); 9] = [
        ("run.json", halve),
        ("run.json", remove),
        ("model.safetensors", flip),
        ("model.safetensors", remove),
        ("training.safetensors", flip),
        ("training.safetensors", halve),
        ("training.safetensors", remove),
        ("optimizer.mpk", flip),
        ("optimizer.mpk", remove),
    ];
    for (number, (name, damage)) in damages.into_iter().enumerate() {
        let out = folder.path().join(number.to_string());
        write(&read(&whole), &out);
        let [newest, before] = [8, 6].map(|update| checkpoint(&out, update));
        let file = newest.join(name);
        damage(&file);
        let damaged = read(&out);
        let error = resume(&out).unwrap_err();
        assert!(matches!(error, TrainError::DamagedCheckpoint { .. }));
        let error = error.to_string();
        let start = format!("{}: ", file.display());
        let end = format!(
            "; to resume from the older {}, remove {}",
            before.display(),
            newest.display()
        );
        assert!(
            error.starts_with(&start) && error.ends_with(&end),
            "{error}"
        );
        assert!(!error.contains('\n'), "{error}");
        assert!(read(&out) == damaged, "{name} has changed the directory");

        // As the line says.
        fs::remove_dir_all(&newest).unwrap();
        train(&out);
        assert!(left(&out) == left(&whole), "{name}");
    }
}

#[test]
fn all_damaged_checkpoints_are_named_or_that_none_is_whole() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    train(&out);
    let [oldest, middle, newest] = [4, 6, 8].map(|update| checkpoint(&out, update));
    // As an interrupted copy leaves it.
    fs::remove_dir_all(&newest).unwrap();
    fs::create_dir(&newest).unwrap();
    flip(&middle.join("model.safetensors"));
    let end = format!(
        "; to resume from the older {}, remove {} and {}",
        oldest.display(),
        newest.display(),
        middle.display()
    );
    let error = resume(&out).unwrap_err().to_string();
    assert!(error.ends_with(&end), "{error}");
    // The record of the run is read by other commands, too.
    let error = RunRecord::load(&out).unwrap_err().to_string();
    assert!(error.ends_with(&end), "{error}");

    halve(&oldest.join("run.json"));
    let error = resume(&out).unwrap_err().to_string();
    let end = "; no older checkpoint is intact; start a new run in another directory";
    assert!(error.ends_with(end), "{error}");
}

#[test]
fn checkpoints_of_earlier_versions_are_resumed_without_checksums() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    train(&out);
    let path = checkpoint(&out, 8).join("run.json");
    let json = fs::read(&path).unwrap();
    let mut record: Value = serde_json::from_slice(&json).unwrap();
    let fields = record.as_object_mut().unwrap();
    for later in ["file_checksums", "validation_data"] {
        assert!(fields.remove(later).is_some(), "{later}");
    }
    fs::write(&path, record.to_string()).unwrap();
    assert_eq!(resume(&out).unwrap(), 9);
    let json = fs::read_to_string(checkpoint(&out, 9).join("run.json")).unwrap();
    assert!(json.contains("file_checksums") && json.contains("validation_data"));
}

/// The bytes with `to` in place of `from`, which has the same length and must be there.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = bytes.windows(from.len()).position(|part| part == from);
    bytes[at.unwrap()..][..to.len()].copy_from_slice(to);
    bytes
}

/// The error of a run whose newest checkpoint was made to do harm: its checksums are right.
fn refused(out: &Path, change: impl FnOnce(&mut Value, &mut Vec<u8>)) -> String {
    let newest = checkpoint(out, 8);
    let [record_path, optimizer_path] = ["run.json", "optimizer.mpk"].map(|name| newest.join(name));
    let before = [&record_path, &optimizer_path].map(|path| fs::read(path).unwrap());
    let mut record: Value = serde_json::from_slice(&before[0]).unwrap();
    let mut optimizer = before[1].clone();
    change(&mut record, &mut optimizer);
    let mut crc = Crc::new();
    crc.update(&optimizer);
    record["optimizer_checksum"] = json!(crc.sum());
    fs::write(&record_path, record.to_string()).unwrap();
    fs::write(&optimizer_path, optimizer).unwrap();
    let error = resume(out).unwrap_err().to_string();
    fs::write(&record_path, &before[0]).unwrap();
    fs::write(&optimizer_path, &before[1]).unwrap();
    assert!(!error.contains('\n'), "{error}");
    error.replace(&format!("{}/", newest.display()), "")
}

/// Burn's reader, or the next update, would panic on each of these.
#[test]
fn moments_that_are_not_those_of_the_parameters_are_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    train(&out);
    let replace =
        |from: &[u8], to: &[u8]| refused(&out, |_, file| *file = replaced(file, from, to));
    // The matrix is the first parameter, whose id is 1 in base 32.
    let shape = |rows, columns| [&b"\xa5shape\x92"[..], &[rows, columns]].concat();
    assert_eq!(
        replace(&shape(2, 2), &shape(1, 4)),
        "optimizer.mpk: a moment of shape [1, 4] and rank 2 for a parameter of shape [2, 2]"
    );
    assert_eq!(
        replace(b"Rank2", b"Rank1"),
        "optimizer.mpk: a moment of shape [2, 2] and rank 1 for a parameter of shape [2, 2]"
    );
    let error = replace(b"\xa3F32", b"\xa3F64");
    assert!(error.ends_with(" bytes of type f64"), "{error}");
    assert_eq!(
        replace(b"0400000000000", b"?????????????"),
        "optimizer.mpk: moments of an unknown parameter `?????????????`"
    );
    let optimizer = fs::read(checkpoint(&out, 8).join("optimizer.mpk")).unwrap();
    let time = &b"\xa4time"[..];
    let at = optimizer.windows(time.len()).position(|part| part == time);
    let steps = optimizer[at.unwrap() + time.len()];
    let [from, to] = [steps, 127].map(|steps| [time, &[steps]].concat());
    assert_eq!(
        replace(&from, &to),
        "optimizer.mpk: 127 parameter steps after 8 updates"
    );
    assert_eq!(resume(&out).unwrap(), 9);
}

#[test]
fn counts_that_do_not_agree_are_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    train(&out);
    let with = |key: &str, count: u64| refused(&out, |record, _| record[key] = json!(count));
    assert_eq!(
        with("update", 1 << 60),
        "run.json: update 1152921504606846976 in a checkpoint of update 8"
    );
    assert_eq!(
        with("skipped", 9),
        "run.json: 0 consecutive updates skipped, 9 skipped, 8 in total"
    );
    let error = refused(&out, |record, _| {
        record["validations"][3]["update"] = json!(12)
    });
    assert_eq!(error, "run.json: a validation after update 12");
    assert_eq!(resume(&out).unwrap(), 9);
}
