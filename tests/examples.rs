//! Every example runs, at a tiny size, as a user would run it; bad input ends in one clear line and
//! a non-zero exit, and nothing is damaged.
//!
//! The examples are started as programs: `cargo test` has built them beside this test.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use tempfile::TempDir;
use transformer::BackendChoice;

fn example(name: &str) -> Command {
    let this = std::env::current_exe().expect("a running test has a path");
    let profile = this.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let path = profile.join("examples").join(name);
    assert!(path.exists(), "{} is not built", path.display());
    Command::new(path)
}

fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    output.expect("the example starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The output of a command that must succeed.
fn succeeds(command: &mut Command) -> String {
    let output = run(command);
    let (out, err) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out
}

/// The error line of a command that must fail: with exit code 1 and no panic.
fn fails(command: &mut Command) -> String {
    let output = run(command);
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{command:?}\n{err}");
    assert!(!err.contains("panicked"), "{command:?}\n{err}");
    let errors: Vec<_> = err
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 1, "{command:?}\n{err}");
    errors[0].to_owned()
}

/// A copy task of a few updates.
fn copy_task() -> Command {
    let mut command = example("copy_task");
    command.args(["--d-model", "8", "--batch-tokens", "64", "--updates", "6"]);
    command
}

/// `translate train` on a small corpus, for a few updates.
fn train(folder: &Path, out: &Path) -> Command {
    train_for(4, folder, out)
}

fn train_for(updates: usize, folder: &Path, out: &Path) -> Command {
    let mut command = example("translate");
    command.args(["train", "--preset", "tiny", "--vocab-size", "300"]);
    command.args(["--hold-out", "10", "--batch-tokens", "200", "--warmup", "4"]);
    command
        .args(["--validate-every", "2", "--updates"])
        .arg(updates.to_string());
    command
        .arg("--data")
        .arg(corpus(folder))
        .arg("--out")
        .arg(out);
    command
}

fn translate(subcommand: &str, model: &Path) -> Command {
    let mut command = example("translate");
    command.arg(subcommand).arg("--model").arg(model);
    command
}

fn corpus(folder: &Path) -> PathBuf {
    let path = folder.join("corpus.tsv");
    let numbers = ["one", "two", "three", "four", "five", "six", "seven"];
    let nombres = ["un", "deux", "trois", "quatre", "cinq", "six", "sept"];
    let mut text = String::new();
    for a in 0..7 {
        for b in 0..7 {
            text += &format!(
                "{} and {}\t{} et {}\n",
                numbers[a], numbers[b], nombres[a], nombres[b]
            );
        }
    }
    fs::write(&path, text).expect("a corpus can be written");
    path
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn smoke_test_passes_all_checks() {
    let out = succeeds(&mut example("smoke_test"));
    assert!(out.contains("Parameters   : 59463680 ✓"), "{out}");
    assert!(out.ends_with("All checks passed.\n"), "{out}");
}

#[test]
fn smoke_test_help_names_every_flag() {
    let out = succeeds(example("smoke_test").arg("--help"));
    assert!(out.contains("--backend") && out.contains("--seed"), "{out}");
}

#[test]
fn copy_task_counts_and_says_when_it_is_not_enough() {
    let output = run(&mut copy_task());
    let out = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(
        out.contains("exact match: ") && out.contains("/1000"),
        "{out}"
    );
    assert!(stderr(&output).contains("error: fewer than 990"), "{out}");
}

#[test]
fn toy_translation_prints_source_prediction_and_target() {
    for norm in ["pre", "post"] {
        let out = succeeds(example("toy_translation").args(["--norm", norm]));
        assert!(
            out.contains("prediction: aufmerksamkeit hilft modellen fokus"),
            "{out}"
        );
        assert!(out.contains("exact: 6/6"), "{out}");
    }
}

#[test]
fn translate_trains_translates_and_evaluates() {
    let folder = folder();
    let model = folder.path().join("model");
    let out = succeeds(&mut train(folder.path(), &model));
    assert!(
        out.contains("39 training pairs, 10 validation pairs"),
        "{out}"
    );
    for file in [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "valid.tsv",
    ] {
        assert!(model.join(file).exists(), "{file}");
    }

    let input = folder.path().join("input.txt");
    fs::write(&input, "one and two\n\n<eos> <pad> é\u{1f600}\nlast").expect("an input");
    let out = succeeds(translate("translate", &model).arg("--input").arg(&input));
    assert_eq!(out.lines().count(), 4, "{out}");
    assert_eq!(out.lines().nth(1), Some(""));

    let data = model.join("valid.tsv");
    let out = succeeds(translate("evaluate", &model).arg("--data").arg(&data));
    assert!(out.contains("perplexity"), "{out}");
    assert!(
        out.contains("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"),
        "{out}"
    );
}

/// Each field where it should be, and the first of three translations the only one of one.
#[test]
fn translations_come_with_scores_and_alignments() {
    let folder = folder();
    let model = folder.path().join("model");
    succeeds(&mut train(folder.path(), &model));
    let input = folder.path().join("input.txt");
    fs::write(&input, "one and two\n\ntwo\n").expect("an input");
    let translated = |flags: &[&str]| {
        let mut command = translate("translate", &model);
        succeeds(command.arg("--input").arg(&input).args(flags))
    };
    let plain = translated(&[]);
    let full = translated(&["--n-best", "3", "--scores", "--alignments"]);
    let rows: Vec<Vec<&str>> = full.lines().map(|row| row.split('\t').collect()).collect();
    let numbers: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(numbers, ["1", "1", "1", "3", "3", "3"]);
    let plain: Vec<&str> = plain.lines().collect();
    assert_eq!([rows[0][2], rows[3][2]], [plain[0], plain[2]]);
    for row in &rows {
        let score: f64 = row[1].parse().expect("a score");
        assert!(score <= 0.0, "{row:?}");
        for pair in row[3].split_whitespace() {
            let (source, target) = pair.split_once('-').expect("a pair");
            let [source, _]: [usize; 2] =
                [source, target].map(|place| place.parse().expect("a place"));
            assert!(source < 20, "{row:?}");
        }
    }
    let sampled = translated(&["--sample", "--top-p", "0.9", "--seed", "4"]);
    assert_eq!(
        sampled,
        translated(&["--sample", "--top-p", "0.9", "--seed", "4"])
    );
    assert_ne!(
        sampled,
        translated(&["--sample", "--seed", "5", "--temperature", "3"])
    );
    let prefixed = translated(&["--prefix", "un et"]);
    assert!(
        prefixed
            .lines()
            .next()
            .is_some_and(|line| line.starts_with("un et"))
    );
    let ensemble = {
        let mut command = translate("translate", &model);
        succeeds(command.arg(&model).arg("--input").arg(&input))
    };
    assert_eq!(ensemble.lines().collect::<Vec<_>>(), plain);
}

/// The darkest field of a picture, and the lightest: all the attention, and none.
const SHADES: [&str; 2] = ["#08306B", "#EEF2F7"];

/// The decoder's attention to itself: every token named beside its row and above its column, and no
/// row with a shade above the diagonal.
#[test]
fn attention_is_drawn_with_rows_that_attend_and_columns_that_are_attended_to() {
    let folder = folder();
    let model = folder.path().join("model");
    succeeds(&mut train(folder.path(), &model));
    let draw = |out: &Path, flags: &[&str]| {
        let mut command = example("attention_maps");
        let command = command.arg("--model").arg(&model).arg("--out").arg(out);
        let pair = ["--source", "one and two", "--target", "un et"];
        succeeds(command.args(pair).args(flags))
    };
    let svg = folder.path().join("attention.svg");
    draw(&svg, &["--kind", "decoder", "--layer", "2", "--head", "3"]);
    let svg = fs::read_to_string(&svg).expect("a picture");
    let labels: Vec<&str> = svg
        .split("<text ")
        .skip(1)
        .filter_map(|text| text.split_once('>')?.1.split_once("</text>"))
        .map(|(label, _)| label.trim())
        .collect();
    let count = (labels.len() - 1) / 2;
    assert_eq!(labels[0], "layer 2, head 3");
    assert_eq!(labels[1], "&lt;bos&gt;");
    assert_eq!(labels[1..=count], labels[count + 1..]);
    assert_eq!(labels[2..=count].concat(), "␣unet");
    let fields: Vec<&str> = svg
        .split("<rect ")
        // The first is the background.
        .skip(2)
        .filter_map(|rect| rect.split_once("fill=\"")?.1.split_once('"'))
        .map(|(fill, _)| fill)
        .collect();
    assert_eq!(fields.len(), count * count);
    assert_eq!(fields[0], SHADES[0], "<bos> has nothing but itself");
    for row in 0..count {
        for column in 0..count {
            let is_future = fields[row * count + column] == SHADES[1];
            assert_eq!(is_future, column > row, "row {row}, column {column}");
        }
    }

    // Four heads in each of two layers, as many panels wide and high.
    let size = |name: &str, flags: &[&str]| -> [u32; 2] {
        let png = folder.path().join(name);
        draw(&png, flags);
        let bytes = fs::read(&png).expect("a picture");
        assert!(bytes.starts_with(b"\x89PNG"));
        [16, 20].map(|at| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")))
    };
    let all = size("all.png", &[]);
    let row = size("row.png", &["--layer", "1"]);
    let head = size("column.png", &["--head", "1"]);
    assert_eq!([row[0], 2 * row[1]], all);
    assert_eq!([4 * head[0], head[1]], all);

    let error = |flags: &[&str]| {
        let mut command = example("attention_maps");
        let command = command.arg("--model").arg(&model).args(["--source", "one"]);
        fails(command.args(flags))
    };
    assert_eq!(
        error(&["--layer", "3"]),
        "error: --layer 3: the model has 1 to 2"
    );
    assert_eq!(
        error(&["--head", "0"]),
        "error: --head 0: the model has 1 to 4"
    );
    assert_eq!(
        error(&["--out", "a.gif"]),
        "error: a.gif: neither .svg nor .png"
    );
}

#[test]
fn what_cannot_be_translated_is_named_and_the_rest_is_translated() {
    let folder = folder();
    let model = folder.path().join("model");
    succeeds(&mut train(folder.path(), &model));
    let input = folder.path().join("input.txt");
    let long = "a ".repeat(50_000);
    let longer = "a".repeat(3 << 20);
    let mut bytes = format!("one\n{long}\n{longer}\n").into_bytes();
    bytes.extend(b"\xff\xfe\ntwo");
    fs::write(&input, bytes).expect("an input");
    let mut command = translate("translate", &model);
    let output = run(command.arg("--input").arg(&input));
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let out = stdout(&output);
    let empty: Vec<bool> = out.lines().map(str::is_empty).collect();
    assert_eq!(empty[1..4], [true; 3], "{out}");
    assert_eq!(empty.len(), 5, "{out}");
    let name = input.display();
    for problem in [
        format!("{name}: line 2: the sentence has "),
        format!("{name}: line 3: the sentence is longer than 1048576 bytes"),
        format!("{name}: line 4: the sentence is not valid UTF-8"),
        "error: 3 of 5 lines could not be translated".into(),
    ] {
        assert!(err.contains(&problem), "{problem}: {err}");
    }
}

#[cfg(unix)]
#[test]
fn what_is_read_is_not_written_over() {
    let folder = folder();
    let model = folder.path().join("model");
    succeeds(&mut train(folder.path(), &model));
    let valid = model.join("valid.tsv");
    let before = fs::read(&valid).expect("pairs");
    let mut command = translate("evaluate", &model);
    command.arg("--data").arg(&valid).arg("--hypotheses");
    let error = fails(command.arg(&valid));
    assert!(
        error.ends_with("is read, and would be overwritten"),
        "{error}"
    );
    assert!(fs::read(&valid).expect("pairs") == before);

    let data = folder.path().join("train.tsv");
    fs::copy(folder.path().join("corpus.tsv"), &data).expect("a copy");
    let mut command = example("translate");
    command.args(["train", "--vocab-size", "300", "--hold-out", "10", "--data"]);
    let error = fails(command.arg(&data).arg("--out").arg(folder.path()));
    assert!(
        error.ends_with("is read, and would be overwritten"),
        "{error}"
    );

    // At the end of a link, not in its place.
    let file = folder.path().join("file.txt");
    let link = folder.path().join("link.txt");
    fs::write(&file, "").expect("a file");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let mut command = translate("evaluate", &model);
    command.arg("--data").arg(&valid).arg("--hypotheses");
    succeeds(command.arg(&link));
    assert!(!fs::read_to_string(&file).expect("translations").is_empty());
}

#[test]
fn decoding_options_out_of_range_are_named() {
    let folder = folder();
    let model = folder.path().join("model");
    succeeds(&mut train(folder.path(), &model));
    for (flags, problem) in [
        (&["--beam", "0"][..], "`beam` is 0, not at least 1"),
        (
            &["--beam", "2", "--n-best", "3"],
            "`n_best` is 3, not at most the beam",
        ),
        (
            &["--length-penalty", "NaN"],
            "`length_penalty` is NaN, not a number, 0 or more",
        ),
        (
            &["--sample", "--top-p", "2"],
            "`top_p` is 2, not above 0 and at most 1",
        ),
        (
            &["--sample", "--temperature", "0"],
            "`temperature` is 0, not a number above 0",
        ),
    ] {
        let error = fails(translate("translate", &model).args(flags));
        assert_eq!(error, format!("error: {problem}"));
    }
    for (program, flags) in [
        ("translate", &["--top-k", "3"][..]),
        ("translate", &["--sample", "--coverage-penalty", "1"]),
        ("evaluate", &["--data", "valid.tsv", "--sentences", "0"]),
    ] {
        let output = run(translate(program, &model).args(flags));
        assert_eq!(output.status.code(), Some(2), "{program} {flags:?}");
    }
}

#[test]
fn translate_reads_standard_input() {
    let folder = folder();
    let model = folder.path().join("model");
    succeeds(&mut train(folder.path(), &model));
    let mut child = translate("translate", &model)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example starts");
    let mut input = child.stdin.take().expect("standard input");
    input
        .write_all(b"one and two\ntwo and one\n")
        .expect("written");
    drop(input);
    let output = child.wait_with_output().expect("the example ends");
    assert_eq!(stdout(&output).lines().count(), 2);
}

#[test]
fn a_seed_gives_the_same_model_and_validation_never_shares_a_source() {
    let folder = folder();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    // libtorch's products are not the same to the bit each time on several threads.
    succeeds(train(folder.path(), &first).env("OMP_NUM_THREADS", "1"));
    succeeds(train(folder.path(), &second).env("OMP_NUM_THREADS", "1"));
    let differing: Vec<_> = ["model.safetensors", "tokenizer.json", "valid.tsv"]
        .into_iter()
        .filter(|file| {
            let [one, other] = [&first, &second].map(|model| fs::read(model.join(file)));
            one.expect("a file") != other.expect("a file")
        })
        .collect();
    assert!(differing.is_empty(), "{differing:?} differ");
    let sources = |file: &str| -> Vec<String> {
        let text = fs::read_to_string(first.join(file)).expect("a file");
        let source = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
        text.lines().map(source).collect()
    };
    let train = sources("train.tsv");
    assert!(
        sources("valid.tsv")
            .iter()
            .all(|source| !train.contains(source))
    );
}

#[test]
fn a_killed_run_resumes_to_the_model_it_would_have_made() {
    let folder = folder();
    let whole = folder.path().join("whole");
    let command = |out: &Path| train_for(30, folder.path(), out);
    succeeds(&mut command(&whole));

    let killed = folder.path().join("killed");
    for wait in [300, 600, 900, 1200] {
        let mut child = command(&killed)
            .arg("--resume")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the example starts");
        thread::sleep(Duration::from_millis(wait));
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().expect("the example ends");
    }
    succeeds(command(&killed).arg("--resume"));
    let weights = |out: &Path| {
        fs::read(out.join("checkpoints/update-00000030/model.safetensors")).expect("the checkpoint")
    };
    assert!(weights(&whole) == weights(&killed));
}

/// The reference systems, number for number with PyTorch, from both formats of state dicts: the
/// example has the bounds.
#[test]
fn every_system_is_pytorchs_on_every_backend() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let folders = [
        "notebook-mini",
        "encoder-layer",
        "paper-readme",
        "prenorm-notebook",
        "learned-positions",
        "torch-nn",
        "annotated",
    ];
    for backend in BackendChoice::value_variants() {
        for weights in ["safetensors", "pt"] {
            let mut command = example("parity");
            command.args(["--backend", &backend.to_string(), "--weights", weights]);
            let out = succeeds(command.args(folders.map(|folder| fixtures.join(folder))));
            // Shown by `cargo test -- --nocapture`.
            println!("{backend}\n{out}");
            assert_eq!(out.matches("worst of").count(), folders.len(), "{out}");
        }
    }
}

#[test]
fn parity_compares_every_folder_and_fails_if_one_does() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let layer = fixtures.join("encoder-layer");
    let out = succeeds(example("parity").arg(&layer));
    assert!(out.contains("attention_weights"), "{out}");

    let mut command = example("parity");
    let err = fails(command.arg(fixtures.join("nowhere")).arg(&layer));
    assert_eq!(err, "error: 1 of 2 folders failed");
    assert!(stdout(&run(&mut command)).contains("attention_weights"));
}

#[cfg(feature = "ndarray")]
#[test]
fn a_source_longer_than_the_positions_is_an_error_that_names_its_line() {
    use burn_ndarray::NdArray;
    use transformer_core::{Positions, TransformerConfig};

    let folder = folder();
    let model = folder.path().join("model");
    succeeds(&mut train(folder.path(), &model));
    let vocab_size = TransformerConfig::load(&model)
        .expect("a model's configuration")
        .src_vocab_size;
    TransformerConfig {
        d_model: 8,
        n_heads: 2,
        d_ff: 8,
        positions: Positions::Learned { max_len: 12 },
        ..TransformerConfig::base(vocab_size)
    }
    .init::<NdArray>(0, &Default::default())
    .expect("a configuration of a model")
    .save(&model)
    .expect("a model can be saved");

    let input = folder.path().join("input.txt");
    let long = "one and two and three and four and five and six and seven";
    fs::write(&input, format!("one\n\n{long}\ntwo\n")).expect("a file");
    let mut command = translate("translate", &model);
    let output = run(command.arg("--input").arg(&input));
    assert_eq!(output.status.code(), Some(1));
    // The others are translated.
    let out = stdout(&output);
    let lines: Vec<_> = out.split('\n').map(str::is_empty).collect();
    assert_eq!((lines.len(), lines[2]), (5, true), "{out}");
    let err = stderr(&output);
    assert!(err.contains("error: 1 of 4 lines could not be translated"));
    let expected = format!("{}: line 3: the sentence has ", input.display());
    assert!(err.contains(&expected), "{err}");
    assert!(
        err.contains("more than the model's 12 learned positions"),
        "{err}"
    );
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_a_checkpoint_to_resume_from() {
    let folder = folder();
    let out = folder.path().join("model");
    let mut command = example("copy_task");
    command.args([
        "--d-model",
        "8",
        "--batch-tokens",
        "64",
        "--updates",
        "100000",
    ]);
    let child = command
        .arg("--out")
        .arg(&out)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example starts");
    thread::sleep(Duration::from_secs(2));
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.expect("kill runs").success());
    let output = child.wait_with_output().expect("the example ends");
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("error: interrupted after "), "{err}");
    let checkpoints = fs::read_dir(out.join("checkpoints")).expect("checkpoints");
    assert!((1..=2).contains(&checkpoints.count()));
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_one_line_and_leaves_no_half_written_file() {
    let folder = folder();
    let out = folder.path().join("model");
    let command = copy_task();
    // Without the signal, writing past the limit is an error, as on a full disk.
    let output = run(Command::new("bash")
        .arg("-c")
        .arg("trap '' XFSZ; ulimit -f 4; exec \"$@\"")
        .arg("bash")
        .arg(command.get_program())
        .args(command.get_args())
        .arg("--out")
        .arg(&out));
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(!err.contains("panicked"), "{err}");
    assert!(
        err.contains("error: ") && err.contains("model.safetensors"),
        "{err}"
    );
    assert!(!out.join("model.safetensors").exists());
    let left = fs::read_dir(out.join("checkpoints")).expect("the folder");
    assert_eq!(left.count(), 0);
}

#[test]
fn a_model_is_not_written_over_without_resume() {
    let folder = folder();
    let model = folder.path().join("model");
    succeeds(&mut train(folder.path(), &model));
    let before = fs::read(model.join("tokenizer.json")).expect("the tokenizer");
    let error = fails(&mut train(folder.path(), &model));
    assert!(
        error.contains("already holds a model; add --resume"),
        "{error}"
    );
    assert_eq!(fs::read(model.join("tokenizer.json")).expect("it"), before);
}

#[test]
fn a_bad_corpus_is_named_with_its_line() {
    let folder = folder();
    let path = folder.path().join("bad.tsv");
    let gzip_start = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3];
    let cases: [(&[u8], &str); 4] = [
        (b"", "bad.tsv: no sentence pair"),
        (b"one\tun\ntwo\n", "bad.tsv: line 2: no tab"),
        (b"one\tun\n\xff\xfe\tdeux\n", "bad.tsv: line 2: not UTF-8"),
        (
            &gzip_start,
            "bad.tsv: line 1: gzip data is truncated or corrupt",
        ),
    ];
    for (bytes, expected) in cases {
        fs::write(&path, bytes).expect("a corpus");
        let out = folder.path().join("model");
        let mut command = example("translate");
        command
            .arg("train")
            .arg("--data")
            .arg(&path)
            .arg("--out")
            .arg(&out);
        let error = fails(&mut command);
        assert!(error.contains(expected), "{error}");
        assert!(!out.exists());
    }
    let mut command = example("translate");
    let missing = folder.path().join("missing.tsv");
    command
        .arg("train")
        .arg("--data")
        .arg(missing)
        .args(["--out", "x"]);
    let error = fails(&mut command);
    assert!(error.contains("missing.tsv: cannot open"), "{error}");
}

#[test]
fn a_damaged_model_directory_is_named() {
    let folder = folder();
    let model = folder.path().join("model");
    succeeds(&mut train(folder.path(), &model));
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        let path = model.join(file);
        let whole = fs::read(&path).expect("a file");
        fs::write(&path, &whole[..whole.len() / 2]).expect("written");
        let error = fails(&mut translate("translate", &model));
        assert!(error.contains(file), "{error}");
        fs::remove_file(&path).expect("removed");
        let error = fails(&mut translate("translate", &model));
        assert!(error.contains(file), "{error}");
        fs::write(&path, whole).expect("written");
    }
    let config = model.join("config.json");
    let text = fs::read_to_string(&config).expect("the configuration");
    let wrong = text.replace("\"n_heads\": 4", "\"n_heads\": 7");
    fs::write(&config, wrong).expect("written");
    let error = fails(&mut translate("translate", &model));
    assert!(
        error.contains("`d_model` 128 is not divisible by `n_heads` 7"),
        "{error}"
    );
    let wrong = text.replace("\"d_ff\": 512", "\"d_ff\": 256");
    fs::write(&config, wrong).expect("written");
    let error = fails(&mut translate("translate", &model));
    assert!(error.contains("model.safetensors: "), "{error}");
}

#[test]
fn flags_out_of_range_are_refused() {
    let cases: [(&[&str], &str); 3] = [
        (
            &["--min-length", "9", "--max-length", "8"],
            "--min-length 9",
        ),
        (
            &["--symbols", "2", "--min-length", "1"],
            "too few sequences",
        ),
        (
            &["--learning-rate-factor", "nan"],
            "`learning_rate_factor` is NaN",
        ),
    ];
    for (flags, expected) in cases {
        let error = fails(example("copy_task").args(flags));
        assert!(error.contains(expected), "{error}");
    }
    let output = run(example("copy_task").args(["--backend", "abacus"]));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_precision_that_the_backend_lacks_is_refused() {
    let mut command = translate("translate", Path::new("no-model"));
    let error = fails(command.args(["--backend", "ndarray", "--precision", "bf16"]));
    assert_eq!(
        error,
        "error: ndarray does not compute in bf16; f16 runs on wgpu and tch, bf16 on tch"
    );
}

#[cfg(feature = "wgpu")]
#[test]
fn without_a_vulkan_driver_wgpu_says_what_to_do() {
    let mut command = example("smoke_test");
    let command = command.args(["--backend", "wgpu"]);
    let error = fails(command.env("VK_DRIVER_FILES", "/dev/null"));
    assert!(error.contains("no vulkan adapter"), "{error}");
    assert!(error.contains("scripts/setup-wgpu"), "{error}");
}
