//! Help, exit codes, and errors in the words of the flags.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{
    corpus, fails, file, folder, program, run, started, stderr, stdout, succeeds, train, trained,
    with_model,
};

/// Flags of the commands that compute.
const EVERYWHERE: [&str; 3] = ["--backend", "--device", "--seed"];

/// Flags of the commands that translate.
const DECODING: [&str; 16] = [
    "--beam",
    "--length-penalty",
    "--early-stopping",
    "--coverage-penalty",
    "--sample",
    "--temperature",
    "--top-k",
    "--top-p",
    "--min-length",
    "--max-length",
    "--no-repeat-ngram",
    "--repetition-penalty",
    "--renormalize",
    "--shortlist",
    "--batch-tokens",
    "--max-source-length",
];

/// Flags of the commands that run a model, or start from one, that knows several languages.
const LANGUAGES: [&str; 2] = ["--source-lang", "--target-lang"];

/// The commands, each with its flags.
fn commands() -> Vec<(&'static str, Vec<&'static str>)> {
    let train = [
        "--out",
        "--resume",
        "--config",
        "--set",
        "--dry-run",
        "--plain",
        "--data",
        "--parallel",
        "--valid",
        "--hold-out",
        "--vocab-size",
        "--max-pieces",
        "--init",
        "--preset",
        "--batch-tokens",
        "--batches-per-update",
        "--warmup",
        "--peak-rate",
        "--updates",
        "--minutes",
        "--validate-every",
        "--keep-checkpoints",
    ];
    let translate = [
        "--model",
        "--input",
        "--n-best",
        "--prefix",
        "--scores",
        "--alignments",
        "--document",
        "--format",
        "--out",
        "--glossary",
        "--document-lang",
        "--precision",
    ];
    let generate = [
        "--model",
        "--prompt",
        "--input",
        "--n-best",
        "--max-new-tokens",
        "--precision",
    ];
    // The others of these flags are about sources.
    let mut of_prompts = DECODING.to_vec();
    let of_sources = ["--coverage-penalty", "--max-source-length", "--shortlist"];
    of_prompts.retain(|flag| !of_sources.contains(flag));
    let evaluate = [
        "--model",
        "--data",
        "--parallel",
        "--metrics",
        "--sentences",
        "--hypotheses",
        "--precision",
    ];
    let score = [
        "--model",
        "--input",
        "--batch-tokens",
        "--max-source-length",
        "--precision",
    ];
    let attention = [
        "--model", "--source", "--target", "--kind", "--layer", "--head", "--out",
    ];
    let serve = [
        "--model",
        "--listen",
        "--api-keys",
        "--glossary",
        "--cors",
        "--memory",
        "--char-limit",
        "--batch-limit",
        "--alternatives-limit",
        "--time-limit",
        "--queue-tokens",
        "--precision",
    ];
    let serve = [&serve[..], &DECODING, &EVERYWHERE].concat();
    let mut commands = vec![
        ("train", [&train[..], &LANGUAGES, &EVERYWHERE].concat()),
        (
            "translate",
            [&translate[..], &LANGUAGES, &DECODING, &EVERYWHERE].concat(),
        ),
        (
            "generate",
            [&generate[..], &LANGUAGES, &of_prompts, &EVERYWHERE].concat(),
        ),
        (
            "evaluate",
            [&evaluate[..], &LANGUAGES, &DECODING, &EVERYWHERE].concat(),
        ),
        ("score", [&score[..], &LANGUAGES, &EVERYWHERE].concat()),
        (
            "attention",
            [&attention[..], &LANGUAGES, &EVERYWHERE].concat(),
        ),
        (
            "export",
            [
                &["--model", "--out", "--format", "--int8"][..],
                &LANGUAGES,
                &EVERYWHERE,
            ]
            .concat(),
        ),
        // These six compute on no backend.
        (
            "shortlist",
            [
                &[
                    "--model",
                    "--data",
                    "--out",
                    "--frequent",
                    "--best",
                    "--iterations",
                ][..],
                &LANGUAGES,
            ]
            .concat(),
        ),
        (
            "tokenize",
            [&["--model", "--input", "--target", "--ids"][..], &LANGUAGES].concat(),
        ),
        ("average", vec!["--model", "--last", "--out"]),
        ("quantize", vec!["--model", "--out"]),
        ("curves", vec!["--numbers", "--over", "--out"]),
        ("info", vec!["--devices"]),
    ];
    if cfg!(feature = "serve") {
        commands.push(("serve", serve));
    }
    commands
}

#[test]
fn help_names_every_command_and_every_flag_of_each() {
    let help = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transformer"));
        succeeds(command.args(arguments))
    };
    let out = help(&["--help"]);
    assert!(out.contains("--backend") && out.contains("--seed"), "{out}");
    assert!(out.contains("Examples:"), "{out}");
    for (subcommand, flags) in commands() {
        assert!(
            out.contains(&format!("  {subcommand} ")),
            "{subcommand}: {out}"
        );
        let out = help(&[subcommand, "--help"]);
        // A flag begins its line, its description stands further right.
        let found: BTreeSet<&str> = out
            .lines()
            .filter_map(|line| line.strip_prefix("      "))
            .filter(|line| line.starts_with("--"))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(found, BTreeSet::from_iter(flags), "{subcommand}: {out}");
        assert!(out.contains("Examples:"), "{subcommand}: {out}");
    }
}

#[test]
fn decoding_options_out_of_range_are_named() {
    let (_folder, model) = trained();
    for (flags, problem) in [
        (&["--beam", "0"][..], "--beam 0: must be at least 1"),
        (
            &["--beam", "2", "--n-best", "3"],
            "--n-best 3 is above --beam 2",
        ),
        (
            &["--length-penalty", "NaN"],
            "--length-penalty NaN: must be non-negative and finite",
        ),
        (
            &["--coverage-penalty", "-1"],
            "--coverage-penalty -1: must be non-negative and finite",
        ),
        (&["--top-k", "3"], "--top-k 3: needs sampling; add --sample"),
        (
            &["--sample", "--top-p", "2"],
            "--top-p 2: must be above 0 and at most 1",
        ),
        (
            &["--sample", "--temperature", "0"],
            "--temperature 0: must be positive and finite",
        ),
        (
            &["--min-length", "10", "--max-length", "5"],
            "--min-length 10 is above the maximum length of 5 tokens",
        ),
        (
            &["--max-source-length", "0"],
            "--max-source-length 0: must be at least 1",
        ),
    ] {
        let error = fails(with_model("translate", &model).args(flags));
        assert_eq!(error, format!("error: {problem}"));
    }
    let flags = ["--max-source-length", "0"];
    let error = fails(with_model("score", &model).args(flags));
    assert_eq!(error, "error: --max-source-length 0: must be at least 1");
}

#[test]
fn flags_that_do_not_fit_together_are_refused_with_exit_code_2() {
    let model = Path::new("model");
    for (subcommand, flags) in [
        ("translate", &["--sample", "--coverage-penalty", "1"][..]),
        ("translate", &["--backend", "abacus"]),
        ("evaluate", &["--data", "valid.tsv", "--sentences", "0"]),
        ("attention", &["--source", "one", "--kind", "self"]),
    ] {
        let output = run(with_model(subcommand, model).args(flags));
        assert_eq!(output.status.code(), Some(2), "{subcommand} {flags:?}");
    }
    let output = run(program("train").args(["--data", "pairs.tsv"]));
    assert_eq!(output.status.code(), Some(2), "no --out");
}

#[test]
fn flags_of_a_run_out_of_range_are_named() {
    let folder = folder();
    for (flags, problem) in [
        (&["--updates", "0"][..], "--updates 0: must be at least 1"),
        (&["--warmup", "0"], "--warmup 0: must be at least 1"),
        (
            &["--validate-every", "0"],
            "--validate-every 0: must be at least 1",
        ),
        (
            &["--batches-per-update", "0"],
            "--batches-per-update 0: must be at least 1",
        ),
        (
            &["--keep-checkpoints", "0"],
            "--keep-checkpoints 0: must be at least 1",
        ),
        (
            &["--peak-rate", "-1"],
            "--peak-rate -1: must be positive and finite",
        ),
        (
            &["--hold-out", "0"],
            "--hold-out 0: must be at least 1; to hold out none, use --valid FILE instead",
        ),
        (
            &["--hold-out", "0", "--dry-run"],
            "--hold-out 0: must be at least 1; to hold out none, use --valid FILE instead",
        ),
        (
            &["--hold-out", "10", "--vocab-size", "100"],
            "--vocab-size 100: must be at least 260, for the special tokens and the 256 bytes",
        ),
        (
            &["--hold-out", "49"],
            "--hold-out 49: the data has 49 distinct source sentences, and at least one must remain for training",
        ),
        (&["--max-pieces", "0"], "--max-pieces 0: must be at least 1"),
        (
            &["--batch-tokens", "1"],
            "--batch-tokens 1: must be at least 2, for a piece and the end-of-sentence token",
        ),
    ] {
        let out = folder.path().join("model");
        let mut command = program("train");
        command.arg("--data").arg(corpus(folder.path()));
        let error = fails(command.arg("--out").arg(&out).args(flags));
        assert_eq!(error, format!("error: {problem}"));
        assert!(!out.exists());
    }
    for minutes in ["NaN", "-1", "0"] {
        let out = folder.path().join("model");
        let mut command = train(folder.path(), &out);
        let error = fails(command.args(["--minutes", minutes]));
        let rule = "must be above 0, and at most 1000000000";
        assert_eq!(error, format!("error: --minutes {minutes}: {rule}"));
        assert!(!out.exists());
    }
}

/// A model that need not be trained first.
fn pretrained() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pretrained/marian-en-fr")
}

#[test]
fn a_precision_that_the_backend_lacks_is_refused() {
    let mut command = with_model("translate", &pretrained());
    let error = fails(command.args(["--backend", "ndarray", "--precision", "bf16"]));
    assert_eq!(
        error,
        "error: ndarray does not support bf16; f16 runs on wgpu, tch and cuda, bf16 on tch and cuda, int8 on ndarray and flex"
    );
}

#[test]
fn a_device_is_named_by_a_flag_or_by_the_environment() {
    let devices = stdout(&run(program("info").arg("--devices")));
    assert!(devices.contains("ndarray cpu\n"), "{devices}");
    let folder = folder();
    let hello = file(folder.path(), "hello.txt", "Hello.\n");
    for (device, variable) in [
        ("cuda:1", None),
        ("cpu", Some("cuda:1")),
        ("", None),
        ("7", None),
    ] {
        let mut command = with_model("translate", &pretrained());
        command.args(["--backend", "ndarray", "--device", device]);
        if let Some(variable) = variable {
            command.env("TRANSFORMER_DEVICE", variable);
        }
        // The flag takes precedence.
        if device == "cpu" {
            succeeds(command.arg("--input").arg(&hello));
            continue;
        }
        let expected = format!("error: ndarray: no device `{device}`; this computer has: cpu");
        assert_eq!(fails(&mut command), expected);
    }
    let mut command = with_model("translate", &pretrained());
    command.args(["--backend", "ndarray", "--device", "cpu,cpu"]);
    let expected = "error: ndarray: no device `cpu,cpu`; this computer has: cpu. Only `train` computes on several devices, and not on wgpu";
    assert_eq!(fails(&mut command), expected);
    let mut command = with_model("translate", &pretrained());
    command.args(["--backend", "ndarray"]);
    let error = fails(command.env("TRANSFORMER_DEVICE", "mps"));
    let expected = "error: ndarray: no device `mps`; this computer has: cpu";
    assert_eq!(error, expected);
    #[cfg(unix)]
    {
        let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff");
        let error = fails(command.env("TRANSFORMER_DEVICE", name));
        assert!(error.starts_with("error: ndarray: no device "), "{error}");
    }
}

/// llvmpipe, for which CI has a driver, is a CPU. The devices of wgpu have several names.
#[cfg(feature = "wgpu")]
#[test]
fn a_device_of_wgpu_has_a_kind_a_position_and_a_description() {
    let devices = stdout(&run(program("info").arg("--devices")));
    let folder = folder();
    let hello = file(folder.path(), "hello.txt", "Hello.\n");
    let Some(first) = devices.lines().find(|line| line.starts_with("wgpu ")) else {
        panic!("{devices}");
    };
    let (name, description) = first[8..].split_once(" (").expect(first);
    let part = description.split(' ').next().unwrap_or_default();
    for device in [name, "0", part] {
        let mut command = with_model("translate", &pretrained());
        command.args(["--backend", "wgpu", "--device", device, "--input"]);
        succeeds(command.arg(&hello));
    }
    let mut command = with_model("translate", &pretrained());
    let error = fails(command.args(["--backend", "wgpu", "--device", "integrated:9"]));
    assert!(error.contains(name), "{error}");
}

#[test]
fn an_unknown_level_of_instructions_is_refused() {
    let backends = [
        cfg!(feature = "ndarray").then_some("ndarray"),
        cfg!(feature = "flex").then_some("flex"),
        cfg!(feature = "tch").then_some("tch"),
    ];
    for backend in backends.into_iter().flatten() {
        let mut command = with_model("translate", &pretrained());
        command
            .args(["--backend", backend])
            .env("TRANSFORMER_SIMD", "sse9");
        let error = fails(&mut command);
        let start = "error: the environment variable TRANSFORMER_SIMD is `sse9`";
        assert!(error.starts_with(start), "{backend}: {error}");
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn without_a_vulkan_driver_wgpu_names_the_script_that_installs_one() {
    let mut command = with_model("translate", &pretrained());
    let command = command.args(["--backend", "wgpu"]);
    let error = fails(command.env("VK_DRIVER_FILES", "/dev/null"));
    assert!(error.contains("no vulkan adapter"), "{error}");
    assert!(error.contains("scripts/setup-wgpu"), "{error}");
}

/// `transformer … | head`: a reader that has read enough is no error.
#[cfg(unix)]
#[test]
fn a_closed_pipe_is_no_error() {
    let (folder, model) = trained();
    let pairs = fs::read_to_string(corpus(folder.path())).expect("the corpus");
    let input = file(folder.path(), "input.tsv", pairs);
    let mut evaluate = with_model("evaluate", &model);
    let hypotheses = folder.path().join("hypotheses.txt");
    evaluate.args(["--sentences", "5", "--data"]).arg(&input);
    evaluate.arg("--hypotheses").arg(&hypotheses);
    let mut attention = with_model("attention", &model);
    let picture = folder.path().join("attention.svg");
    attention
        .args(["--source", "one"])
        .arg("--out")
        .arg(&picture);
    let mut info = program("info");
    info.arg(&model);
    let out = folder.path().join("other");
    let mut plain = train(folder.path(), &out);
    plain.arg("--plain");
    let mut dry_run = train(folder.path(), &folder.path().join("none"));
    dry_run.arg("--dry-run");
    let mut commands = vec![evaluate, attention, info, plain, dry_run];
    for subcommand in ["score", "tokenize", "translate"] {
        let mut command = with_model(subcommand, &model);
        command.arg("--input").arg(&input);
        commands.push(command);
    }
    for mut command in commands {
        let mut child = started(command.stdin(Stdio::null()));
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("the program ends");
        let err = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{command:?}\n{err}");
        assert!(!err.contains("panicked"), "{command:?}\n{err}");
    }
    // The run went on to its end, and files are written.
    assert!(out.join("model.safetensors").exists());
    let hypotheses = fs::read_to_string(hypotheses).expect("translations");
    assert_eq!(hypotheses.lines().count(), 5);
    assert!(picture.exists());
}

/// An output that cannot be written is named, as a file would be.
#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_is_named() {
    let (_folder, model) = trained();
    let valid = model.join("valid.tsv");
    let mut evaluate = with_model("evaluate", &model);
    evaluate.arg("--data").arg(&valid);
    let mut info = program("info");
    info.arg(&model);
    let of_lines = ["score", "tokenize", "translate"].map(|subcommand| {
        let mut command = with_model(subcommand, &model);
        command.arg("--input").arg(&valid);
        command
    });
    for mut command in [evaluate, info].into_iter().chain(of_lines) {
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        let error = fails(command.stdout(full.expect("the device")));
        let expected = "error: standard output: No space left on device";
        assert!(error.starts_with(expected), "{error}");
    }
}

/// Before it reads a model or pairs: they are missing or damaged here.
#[test]
fn every_command_names_an_out_that_it_cannot_write() {
    let (folder, model) = trained();
    let taken = file(folder.path(), "taken", "a file");
    let damaged = file(folder.path(), "bad.tsv", "no tab\n");
    let checkpoint = model.join("checkpoints/update-00000004");
    let below = taken.join("below/it");
    let missing = folder.path().join("missing/directory/new");
    let (name, parent) = (taken.display(), folder.path().join("missing/directory"));
    let new = |subcommand: &str| {
        let mut command = program(subcommand);
        match subcommand {
            "train" => command.arg("--data").arg(&damaged),
            "average" => command.arg("--model").args([&model, &checkpoint]),
            _ => command.arg("--model").arg(&model),
        };
        command
    };
    for subcommand in ["train", "average", "quantize", "export"] {
        for out in [&taken, &below] {
            let error = fails(new(subcommand).arg("--out").arg(out));
            let expected = format!("error: {name} is not a directory; choose another --out");
            assert_eq!(error, expected, "{subcommand}");
        }
        // No file can be made there.
        if cfg!(target_os = "linux") {
            let error = fails(new(subcommand).arg("--out").arg("/proc/new"));
            assert!(error.starts_with("error: /proc: "), "{subcommand}: {error}");
        }
    }
    for subcommand in ["quantize", "export"] {
        let error = fails(new(subcommand).arg("--out").arg(&model));
        let expected = format!(
            "error: {} is not empty; choose another --out",
            model.display()
        );
        assert_eq!(error, expected, "{subcommand}");
    }
    for (subcommand, ending) in [("attention", "svg"), ("curves", "png")] {
        let picture = |directory: &Path| {
            let mut command = program(subcommand);
            match subcommand {
                "curves" => command.arg(&taken),
                _ => command.args(["--source", "one", "--model"]).arg(&taken),
            };
            let out = directory.join(format!("picture.{ending}"));
            (fails(command.arg("--out").arg(&out)), out)
        };
        let directory = folder.path().join(format!("picture.{ending}"));
        fs::create_dir(&directory).expect("a directory");
        let (error, out) = picture(folder.path());
        assert_eq!(error, format!("error: {}: is a directory", out.display()));
        for none in [&parent, &taken] {
            let (error, _) = picture(none);
            assert_eq!(
                error,
                format!("error: {}: no such directory", none.display())
            );
        }
        if cfg!(target_os = "linux") {
            let (error, out) = picture(Path::new("/proc"));
            assert!(
                error.starts_with(&format!("error: {}: ", out.display())),
                "{error}"
            );
        }
    }
    // Missing parents are made.
    succeeds(new("average").arg("--out").arg(&missing));
    assert_eq!(fs::read_to_string(&taken).expect("the file"), "a file");
}

/// Results do not depend on the number of threads. Idle ones look for work in the queues of all others.
#[cfg(any(feature = "flex", feature = "ndarray"))]
#[test]
fn any_number_of_threads_starts_the_program_or_is_refused_in_one_line() {
    let threads = |value: &str| {
        let mut command = program("tokenize");
        command.arg("--help").env("RAYON_NUM_THREADS", value);
        run(&mut command)
    };
    for value in ["", "0", "1", "64"] {
        let output = threads(value);
        assert!(output.status.success(), "{value}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{value}");
    }
    for value in ["100000", "99999999999999999999"] {
        let begun = Instant::now();
        let output = threads(value);
        let err = stderr(&output);
        assert!(output.status.success(), "{value}: {err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(err.contains(" threads on "), "{err}");
        // It took minutes; 64 threads take a hundredth of a second.
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
    for value in ["two", "-1", "1.5", " 2"] {
        let output = threads(value);
        assert_eq!(output.status.code(), Some(1), "{value}");
        let expected =
            format!("error: RAYON_NUM_THREADS={value}: must be a whole number of threads\n");
        assert_eq!(stderr(&output), expected);
    }
}

#[cfg(all(target_os = "linux", any(feature = "flex", feature = "ndarray")))]
#[test]
fn threads_that_cannot_be_started_are_one_line() {
    // No stack of 2⁴⁷ bytes fits into the address space of a process.
    let output = run(program("tokenize")
        .arg("--help")
        .env("RAYON_NUM_THREADS", "64")
        .env("RUST_MIN_STACK", "140737488355328"));
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.starts_with("error: 64 threads cannot be started: "),
        "{err}"
    );
    assert!(err.ends_with("; lower RAYON_NUM_THREADS\n"), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
}
