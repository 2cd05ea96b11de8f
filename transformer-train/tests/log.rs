//! The logs of a run: exact numbers, each update once, also after a kill and a resume.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use transformer_instances as _;

use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use serde_json::Value;
use transformer_core::{Transformer, TransformerConfig};
use transformer_train::data::TokenizedPair;
use transformer_train::progress::{
    ObserverError, ProgressDisplay, RunLog, RunObserver, RunStart, TrainingPoint,
};
use transformer_train::validation::Validation;
use transformer_train::{Trained, Trainer, TrainingConfig};

type B = Autodiff<NdArray>;
type Model = Transformer<NdArray>;

const D_MODEL: usize = 8;
const WARMUP: usize = 4;

fn run(updates: usize) -> TrainingConfig {
    TrainingConfig {
        batch_tokens: 20,
        updates,
        warmup: WARMUP,
        validate_every: 4,
        ..TrainingConfig::default()
    }
}

fn trainer(updates: usize) -> Trainer<B, Transformer<B>> {
    trainer_of(run(updates))
}

fn trainer_of(run: TrainingConfig) -> Trainer<B, Transformer<B>> {
    let config = TransformerConfig {
        d_model: D_MODEL,
        n_heads: 2,
        d_ff: 16,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..TransformerConfig::base(13)
    };
    let model = config.init(3, &Default::default()).unwrap();
    let trainer = Trainer::new(model, run).display(ProgressDisplay::Silent);
    trainer.observe_every(3)
}

/// Enough for several batches.
fn pairs() -> Vec<TokenizedPair> {
    (0..12)
        .map(|index| TokenizedPair {
            source: vec![3 + index % 10; 1 + index as usize % 4],
            target: vec![3 + index % 10],
        })
        .collect()
}

/// A run in `out` with its log, from the newest checkpoint there.
fn logged(updates: usize, out: &Path) -> Trained<Model> {
    let trainer = trainer(updates).directory(out).log_json(true).resume(true);
    trainer.train(pairs(), pairs()).unwrap()
}

/// Burn draws dropout from one generator per process: a test that trains must hold this lock.
fn alone() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lines(out: &Path) -> Vec<Value> {
    let text = fs::read_to_string(out.join("log.jsonl")).unwrap();
    let parse = |line| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}

/// The events of a log with their updates: `t` for training, `v` for a validation, `a` for an average.
fn events(out: &Path) -> String {
    let event = |line: &Value| {
        let event = line["event"].as_str().unwrap();
        let numbers = line.get("validation").unwrap_or(line);
        format!("{}{}", &event[..1], numbers["update"])
    };
    lines(out).iter().map(event).collect::<Vec<_>>().join(" ")
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

#[test]
fn json_lines_have_the_numbers_of_the_run() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let trained = trainer(12)
        .directory(&out)
        .log_json(true)
        .validate_with_fn(["Half"], |at| {
            Ok(ControlFlow::Continue([at.update as f64 / 2.0]))
        })
        .train(pairs(), pairs())
        .unwrap();
    assert!(trained.observer_errors.is_empty());
    assert_eq!(events(&out), "t1 t3 t4 v4 t6 t8 v8 t9 t12 v12");

    let lines = lines(&out);
    let mut validations = trained.validations.iter();
    let (mut update, mut seconds) = (0, 0.0);
    let (mut tokens, mut loss) = (0, 0.0);
    for line in &lines {
        let number = |key: &str| line[key].as_f64().unwrap();
        let count = |key: &str| line[key].as_u64().unwrap();
        if line["event"] == "validation" {
            let validation = validations.next().unwrap();
            assert_eq!(count("update"), validation.update as u64);
            assert_eq!(number("seconds"), validation.seconds);
            assert_eq!(number("valid_loss"), validation.valid_loss);
            assert_eq!(number("valid_nll"), validation.valid_nll);
            assert_eq!(number("valid_accuracy"), validation.valid_accuracy);
            let half = line["numbers"]["Half"].as_f64();
            assert_eq!(half, Some(validation.update as f64 / 2.0));
            // The points since the last validation are all of the training since.
            assert_eq!(tokens, validation.train_tokens);
            assert!(is_close(loss / tokens as f64, validation.train_loss));
            (tokens, loss) = (0, 0.0);
            continue;
        }
        assert_eq!(count("update"), update + count("updates"));
        update = count("update");
        tokens += count("tokens");
        loss += number("loss") * count("tokens") as f64;
        // The paper's rate: equation 3.
        let (s, w) = (update as f64, WARMUP as f64);
        let rate = (D_MODEL as f64).powf(-0.5) * s.powf(-0.5).min(s * w.powf(-1.5));
        assert!(is_close(number("learning_rate"), rate), "{line}");
        let speed = number("tokens") / (number("seconds") - seconds);
        assert!(is_close(number("tokens_per_second"), speed), "{line}");
        seconds = number("seconds");
        assert!((1.0..1e4).contains(&number("perplexity")), "{line}");
        assert!((0.0..=100.0).contains(&number("accuracy")), "{line}");
        assert!(number("gradient_norm") > 0.0, "{line}");
        assert_eq!(count("skipped"), 0);
    }
    assert_eq!((update, validations.next()), (12, None));

    let log = RunLog::load(&out).unwrap().unwrap();
    assert_eq!(log.validations, trained.validations);
    assert_eq!(log.points.len(), 7);
    assert_eq!(RunLog::load(folder.path()).unwrap(), None);
}

/// A line without its times, which no two runs share.
fn timeless(mut line: Value) -> Value {
    let object = line.as_object_mut().unwrap();
    object.remove("seconds");
    object.remove("tokens_per_second");
    line
}

#[test]
fn after_a_kill_and_a_resume_the_log_is_that_of_the_run_that_was_not_stopped() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let [whole, out] = ["whole", "killed"].map(|name| folder.path().join(name));
    logged(12, &whole);
    logged(8, &out);
    // As if the process had been killed before its last checkpoint, and within a line.
    fs::remove_dir_all(out.join("checkpoints/update-00000008")).unwrap();
    let log = out.join("log.jsonl");
    let mut text = fs::read_to_string(&log).unwrap();
    text += r#"{"event": "training", "upd"#;
    fs::write(&log, &text).unwrap();
    // Half a line does not keep the log from being read.
    let read = RunLog::load(&out).unwrap().unwrap();
    assert_eq!((read.points.len(), read.validations.len()), (5, 2));

    logged(12, &out);
    let [whole, killed] = [&whole, &out].map(|out| lines(out).into_iter().map(timeless));
    assert!(whole.eq(killed), "{}", events(&out));
}

/// The run ends between two points and two validations.
#[test]
fn a_run_that_goes_on_later_has_each_update_once() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    logged(5, &out);
    assert_eq!(events(&out), "t1 t3 t4 v4 t5 v5");
    let trained = logged(8, &out);
    assert_eq!(events(&out), "t1 t3 t4 v4 t5 v5 t6 t8 v8");
    let log = RunLog::load(&out).unwrap().unwrap();
    assert_eq!(log.validations, trained.validations);
    let updates: usize = log.points.iter().map(|point| point.updates).sum();
    assert_eq!(updates, 8);
}

#[test]
fn a_log_that_is_switched_on_later_begins_with_the_earlier_validations() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    trainer(8).directory(&out).train(pairs(), pairs()).unwrap();
    assert!(RunLog::load(&out).unwrap().is_none());
    let trained = logged(12, &out);
    assert_eq!(events(&out), "v4 v8 t9 t12 v12");
    let log = RunLog::load(&out).unwrap().unwrap();
    assert_eq!(log.validations, trained.validations);
}

/// The checkpoint that a failed validation leaves stands between its update and the validation.
#[test]
fn a_validation_that_is_made_again_is_logged_once() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let error = trainer(12)
        .directory(&out)
        .log_json(true)
        .validate_with_fn([], |at| match at.update {
            8 => Err("no reference".into()),
            _ => Ok(ControlFlow::Continue([])),
        })
        .train(pairs(), pairs());
    assert!(error.is_err());
    assert_eq!(events(&out), "t1 t3 t4 v4 t6 t8");
    let [checkpoint, kept] = [out.join("checkpoints/update-00000008"), out.join("kept")];
    copy(&checkpoint, &kept);
    for _ in 0..2 {
        logged(12, &out);
        assert_eq!(events(&out), "t1 t3 t4 v4 t6 t8 v8 t9 t12 v12");
        // As if the process had been killed after the validation, before a checkpoint.
        fs::remove_dir_all(out.join("checkpoints")).unwrap();
        copy(&kept, &checkpoint);
    }
}

/// As each validation; also where the run is killed before it has recorded the average, or goes on.
#[test]
fn the_average_of_the_last_checkpoints_is_logged_once() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let train = |updates| {
        let config = TrainingConfig {
            average_last: 2,
            ..run(updates)
        };
        let trainer = trainer_of(config).directory(&out).resume(true);
        let trainer = trainer.log_json(true).tensorboard(true);
        let trained = trainer.train(pairs(), pairs()).unwrap();
        trained.average.unwrap()
    };
    let average = train(8);
    assert_eq!(events(&out), "t1 t3 t4 v4 t6 t8 v8 a8");
    let line = lines(&out).pop().unwrap();
    assert_eq!(line["checkpoints"], serde_json::json!([4, 8]));
    assert_eq!(line["kept"], average.kept);
    let loss = average.validation.valid_loss;
    assert_eq!(line["validation"]["valid_loss"].as_f64(), Some(loss));
    let scalars = shown(&event_files(&out)).pop().unwrap();
    assert_eq!(scalars.step, 8);
    let expected = ("average/loss".to_owned(), loss as f32);
    assert_eq!(scalars.scalars[0], expected);

    fs::remove_dir_all(out.join("checkpoints/update-00000008")).unwrap();
    train(8);
    assert_eq!(events(&out), "t1 t3 t4 v4 t6 t8 v8 a8");
    train(12);
    let all = "t1 t3 t4 v4 t6 t8 v8 a8 t9 t12 v12 a12";
    assert_eq!(events(&out), all);
    let log = RunLog::load(&out).unwrap().unwrap();
    let averaged = log.averages.iter().map(|average| &average.checkpoints);
    assert!(averaged.eq([&vec![4, 8], &vec![8, 12]]));

    // Switched on later, the log begins with them, too.
    fs::remove_file(out.join("log.jsonl")).unwrap();
    train(13);
    assert_eq!(events(&out), "v4 v8 a8 v12 a12 t13 v13 a13");
}

/// Copies the files of a directory.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_log_that_cannot_be_read_or_opened_is_named_before_the_first_update() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    logged(4, &out);
    let log = out.join("log.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    fs::write(
        &log,
        text.replacen("\"event\":\"training\"", "\"event\":\"tea\"", 2),
    )
    .unwrap();
    let name = log.display();
    let error = RunLog::load(&out).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{name}: line 1: unknown variant")),
        "{error}"
    );
    let resume = || {
        let trainer = trainer(8).directory(&out).log_json(true).resume(true);
        let error = trainer.train(pairs(), pairs()).unwrap_err();
        error.to_string()
    };
    let again = resume();
    assert_eq!(again, format!("the run cannot be logged: {error}"));

    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    let error = resume();
    let expected = format!("the run cannot be logged: {name}: ");
    assert!(error.starts_with(&expected), "{error}");
    #[cfg(unix)]
    {
        // It has no end.
        fs::remove_dir(&log).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &log).unwrap();
        let expected = format!("{name}: not a regular file");
        assert_eq!(RunLog::load(&out).unwrap_err().to_string(), expected);
        assert_eq!(resume(), format!("the run cannot be logged: {expected}"));
    }
    let last = "checkpoints/update-00000008";
    assert!(!out.join(last).exists());
}

/// Lines written into an open file without a name are lost.
#[test]
fn a_log_that_is_removed_is_given_up_and_named() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let [json, events] = ["log.jsonl", "tensorboard"].map(|name| out.join(name));
    let removed = [json.clone(), events.clone()];
    let trained = trainer(8)
        .directory(&out)
        .log_json(true)
        .tensorboard(true)
        .validate_with_fn([], move |at| {
            if at.update == 4 {
                fs::remove_file(&removed[0])?;
                fs::remove_dir_all(&removed[1])?;
            }
            Ok(ControlFlow::Continue([]))
        })
        .train(pairs(), pairs())
        .unwrap();
    assert_eq!(trained.updates, 8);
    let errors = trained.observer_errors.iter();
    let errors: Vec<_> = errors.map(ToString::to_string).collect();
    let [first, second] = errors.as_slice() else {
        panic!("{errors:?}");
    };
    let expected = format!("{}: ", json.display());
    assert!(first.starts_with(&expected), "{first}");
    let expected = events.display().to_string();
    assert!(second.starts_with(&expected), "{second}");
    assert!(!json.exists() && !events.exists());
}

#[test]
fn an_observer_of_a_user_s_own_is_given_the_same_numbers_and_may_fail() {
    struct Fails;

    impl RunObserver for Fails {
        fn on_start(&mut self, start: &RunStart<'_>) -> Result<(), ObserverError> {
            assert_eq!((start.update, start.validations.len()), (0, 0));
            Ok(())
        }

        fn on_training(&mut self, point: &TrainingPoint) -> Result<(), ObserverError> {
            Err(format!("no more after {}", point.update).into())
        }

        fn on_validation(&mut self, _: &Validation) -> Result<(), ObserverError> {
            unreachable!("it has failed")
        }
    }

    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let trained = trainer(8)
        .observer(Fails)
        .directory(&out)
        .log_json(true)
        .train(pairs(), pairs())
        .unwrap();
    assert_eq!(trained.updates, 8);
    let errors: Vec<_> = trained
        .observer_errors
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(errors, ["no more after 1"]);
    assert_eq!(events(&out), "t1 t3 t4 v4 t6 t8 v8");
}

#[test]
fn a_run_that_is_observed_never_is_refused() {
    let trainer = trainer(8).observe_every(0);
    let error = trainer.train(pairs(), pairs()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`observe_every` is 0; it must be at least 1"
    );
}

/// The event files of a run, in the order of their names, in which TensorBoard reads them.
fn event_files(out: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(out.join("tensorboard")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// TensorBoard's reading of event files, written from the formats' definitions alone.
mod tensorboard {
    /// CRC-32C bit by bit, masked as TFRecord's are.
    fn checksum(data: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for byte in data {
            for bit in 0..8 {
                let differs = (crc ^ u32::from(byte >> bit)) & 1 == 1;
                crc = (crc >> 1) ^ if differs { 0x82f6_3b78 } else { 0 };
            }
        }
        let crc = !crc;
        crc.rotate_right(15).wrapping_add(0xa282_ead8)
    }

    fn number<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
        let (number, rest) = bytes.split_first_chunk::<N>().unwrap();
        *bytes = rest;
        *number
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let [byte] = number::<1>(bytes);
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }

    enum Field<'a> {
        Integer(u64),
        Bytes(&'a [u8]),
    }

    /// The fields of a message, with their numbers.
    fn message(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let length = match key & 7 {
                0 => {
                    let value = varint(&mut bytes);
                    fields.push((key >> 3, Field::Integer(value)));
                    continue;
                }
                1 => 8,
                2 => varint(&mut bytes) as usize,
                5 => 4,
                wire => panic!("wire type {wire}"),
            };
            let (content, rest) = bytes.split_at(length);
            fields.push((key >> 3, Field::Bytes(content)));
            bytes = rest;
        }
        fields
    }

    #[derive(Debug, Default, PartialEq)]
    pub struct Event {
        pub wall_time: f64,
        pub step: u64,
        pub version: Option<String>,
        pub session: Option<u64>,
        pub scalars: Vec<(String, f32)>,
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    fn event(data: &[u8]) -> Event {
        let mut event = Event::default();
        for field in message(data) {
            match field {
                (1, Field::Bytes(time)) => {
                    event.wall_time = f64::from_le_bytes(time.try_into().unwrap());
                }
                (2, Field::Integer(step)) => event.step = step,
                (3, Field::Bytes(version)) => event.version = Some(text(version)),
                (5, Field::Bytes(summary)) => event.scalars = scalars(summary),
                (7, Field::Bytes(log)) => match message(log)[..] {
                    [(1, Field::Integer(status))] => event.session = Some(status),
                    _ => panic!("a session log without status"),
                },
                (number, _) => panic!("field {number}"),
            }
        }
        event
    }

    fn scalars(summary: &[u8]) -> Vec<(String, f32)> {
        let mut scalars = Vec::new();
        for value in message(summary) {
            let (1, Field::Bytes(value)) = value else {
                panic!("another field than values");
            };
            match message(value)[..] {
                [(1, Field::Bytes(tag)), (2, Field::Bytes(number))] => {
                    let number = f32::from_le_bytes(number.try_into().unwrap());
                    scalars.push((text(tag), number));
                }
                _ => panic!("another value than a scalar"),
            }
        }
        scalars
    }

    /// The events of a file, every checksum of which must be right.
    pub fn events(mut bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let length = number::<8>(&mut bytes);
            assert_eq!(u32::from_le_bytes(number(&mut bytes)), checksum(&length));
            let (data, rest) = bytes.split_at(u64::from_le_bytes(length) as usize);
            bytes = rest;
            assert_eq!(u32::from_le_bytes(number(&mut bytes)), checksum(data));
            events.push(event(data));
        }
        events
    }
}

/// The events that TensorBoard shows: a start drops everything from its step on.
fn shown(files: &[PathBuf]) -> Vec<tensorboard::Event> {
    let mut shown: Vec<tensorboard::Event> = Vec::new();
    for file in files {
        let mut events = tensorboard::events(&fs::read(file).unwrap());
        let scalars = events.split_off(2);
        let [version, start] = &events[..] else {
            panic!("a file begins with two events");
        };
        assert_eq!(version.version.as_deref(), Some("brain.Event:2"));
        assert_eq!(start.session, Some(1), "a start");
        shown.retain(|event| event.step < start.step);
        shown.extend(scalars);
    }
    shown
}

#[test]
fn tensorboard_s_files_have_the_numbers_of_the_log() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let train = |updates| {
        let trainer = trainer(updates).directory(&out).resume(true);
        let trainer = trainer.log_json(true).tensorboard(true);
        let trainer = trainer.validate_with_fn(["BLEU", "None"], |at| {
            Ok(ControlFlow::Continue([at.update as f64 / 3.0, f64::NAN]))
        });
        trainer.train(pairs(), pairs()).unwrap()
    };
    train(8);
    // As if the process had been killed before its last checkpoint. The second file is begun in the second
    // in which the first one was, or in one soon after.
    fs::remove_dir_all(out.join("checkpoints/update-00000008")).unwrap();
    train(12);
    let files = event_files(&out);
    assert_eq!(files.len(), 2);
    for file in &files {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("events.out.tfevents."), "{name}");
    }

    let log = RunLog::load(&out).unwrap().unwrap();
    let mut points = log.points.iter();
    let mut validations = log.validations.iter();
    let mut time = 0.0;
    for event in shown(&files) {
        assert!(event.wall_time >= time);
        time = event.wall_time;
        let expected: Vec<(&str, f64)> = if event.scalars[0].0 == "train/loss" {
            let point = points.next().unwrap();
            assert_eq!(event.step, point.update as u64);
            vec![
                ("train/loss", point.loss),
                ("train/perplexity", point.perplexity),
                ("train/accuracy", point.accuracy),
                ("train/learning_rate", point.learning_rate),
                ("train/tokens_per_second", point.tokens_per_second),
                ("train/gradient_norm", point.gradient_norm),
                ("train/skipped", 0.0),
            ]
        } else {
            let validation = validations.next().unwrap();
            assert_eq!(event.step, validation.update as u64);
            vec![
                ("valid/loss", validation.valid_loss),
                ("valid/perplexity", validation.valid_nll.exp()),
                ("valid/accuracy", validation.valid_accuracy),
                // TensorBoard has no use for the other one, which is NaN.
                ("valid/BLEU", validation.update as f64 / 3.0),
            ]
        };
        let found: Vec<_> = event
            .scalars
            .iter()
            .map(|(tag, n)| (&tag[..], *n))
            .collect();
        let expected: Vec<_> = expected.iter().map(|&(tag, n)| (tag, n as f32)).collect();
        assert_eq!(found, expected);
    }
    assert_eq!((points.next(), validations.next()), (None, None));
    assert_eq!(
        log.points.iter().map(|point| point.updates).sum::<usize>(),
        12
    );
}
