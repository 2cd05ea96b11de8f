//! Training: the files that a run leaves, the data and flags that it refuses, and the report of `--dry-run`.

#[cfg(all(feature = "mpi", feature = "ndarray"))]
#[path = "train/several.rs"]
mod several;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{
    corpus, count, fails, file, folder, program, run, run_on_input, stderr, succeeds, train,
    train_for, trained, with_model,
};

#[test]
fn a_run_leaves_a_model_its_tokenizer_its_pairs_and_checkpoints() {
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
        "train.tsv",
        "train.cache",
        "valid.tsv",
        "run.toml",
        "checkpoints/update-00000004/run.json",
        "log.jsonl",
    ] {
        assert!(model.join(file).exists(), "{file}");
    }
}

/// A process that was killed while it made its cache, and a command that was refused after that.
#[test]
fn caches_of_commands_that_did_not_begin_are_removed() {
    let folder = folder();
    let model = folder.path().join("model");
    fs::create_dir(&model).expect("a folder");
    let killed = file(&model, "train.cache.new.4711.tmp", "half of a cache");
    succeeds(&mut train(folder.path(), &model));
    assert!(!killed.exists());
    let refused = file(&model, "train.cache.new", "another cache");
    succeeds(
        program("train")
            .args(["--resume", "--updates", "5", "--out"])
            .arg(&model),
    );
    assert!(!refused.exists());
}

/// The directory has the name of a file that a killed process left, and cannot be removed as a file.
#[test]
fn what_is_in_the_way_is_named() {
    let folder = folder();
    let model = folder.path().join("model");
    let left = model.join("run.toml.4711.tmp");
    fs::create_dir_all(&left).expect("a folder");
    let error = fails(&mut train(folder.path(), &model));
    let start = format!("error: {}: ", left.display());
    assert!(error.starts_with(&start), "{error}");
}

#[test]
fn a_checkpoint_is_a_model_with_the_tokenizer_of_its_run() {
    let (_folder, model) = trained();
    let checkpoint = model.join("checkpoints/update-00000004");
    let mut evaluate = program("evaluate");
    evaluate.arg("--model").arg(checkpoint).arg("--data");
    let out = succeeds(evaluate.arg(model.join("valid.tsv")));
    assert!(out.starts_with("loss "), "{out}");
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

/// Training shares the products of a batch among threads, decoding the sentences and the products.
#[test]
fn the_number_of_threads_changes_no_bit() {
    let folder = folder();
    let pairs = corpus(folder.path());
    let backends = [
        ("flex", cfg!(feature = "flex")),
        ("ndarray", cfg!(feature = "ndarray")),
    ];
    for (backend, _) in backends.into_iter().filter(|(_, is_there)| *is_there) {
        let found = ["1", "2", "4"].map(|threads| {
            let model = folder.path().join(format!("{backend}-{threads}"));
            let output = |command: &mut Command| {
                command.args(["--backend", backend]);
                succeeds(command.env("RAYON_NUM_THREADS", threads))
            };
            output(&mut train(folder.path(), &model));
            let in_bf16 = folder.path().join(format!("{backend}-{threads}-bf16"));
            let mut command = train(folder.path(), &in_bf16);
            output(command.args(["--set", "training.precision=bf16"]));
            let decoded = ["f32", "int8"].map(|precision| {
                ["score", "translate"].map(|subcommand| {
                    let mut command = with_model(subcommand, &model);
                    command
                        .args(["--precision", precision, "--input"])
                        .arg(&pairs);
                    if subcommand == "translate" {
                        command.args(["--scores", "--min-length", "3"]);
                    }
                    output(&mut command)
                })
            });
            let weights = [model, in_bf16].map(|model| {
                let weights = fs::read(model.join("model.safetensors"));
                weights.expect("the weights")
            });
            (weights, decoded)
        });
        let [in_f32, in_bf16] = &found[0].0;
        assert!(in_f32 != in_bf16);
        // Not `assert_eq`, which would print the weights.
        assert!(found.iter().all(|one| *one == found[0]), "{backend}");
    }
}

/// One batch per device. The same device twice computes what it computes once.
#[test]
fn train_names_several_devices() {
    let folder = folder();
    let weights = |devices: &str| {
        let model = folder.path().join(devices);
        let mut command = train(folder.path(), &model);
        command.args(["--backend", "ndarray", "--device", devices]);
        command.args(["--batches-per-update", "2"]);
        // Each device draws its own.
        for dropout in ["dropout", "attention_dropout", "activation_dropout"] {
            command.args(["--set", &format!("model.{dropout}=0")]);
        }
        succeeds(&mut command);
        fs::read(model.join("model.safetensors")).expect("weights")
    };
    assert!(weights("cpu") == weights("cpu,cpu"));
    let mut command = train(folder.path(), &folder.path().join("model"));
    let error = fails(command.args(["--backend", "ndarray", "--device", "cpu,cpu"]));
    let expected = "error: `training.batches_per_update` = 1: must be at least 2, one batch for each of 2 devices";
    assert_eq!(error, expected);
    if cfg!(feature = "wgpu") {
        let mut command = train(folder.path(), &folder.path().join("model"));
        let error = fails(command.args(["--backend", "wgpu", "--device", "cpu,cpu"]));
        let (begin, end) = (
            "error: wgpu: no device `cpu,cpu`; this computer has: ",
            ". Only `train` computes on several devices, and not on wgpu",
        );
        assert!(error.starts_with(begin) && error.ends_with(end), "{error}");
    }
}

#[test]
fn a_model_is_not_overwritten_without_resume() {
    let (folder, model) = trained();
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
        let mut command = program("train");
        command.arg("--data").arg(&path).arg("--out").arg(&out);
        let error = fails(&mut command);
        assert!(error.contains(expected), "{error}");
        assert!(!out.exists());
    }
    let mut command = program("train");
    let missing = folder.path().join("missing.tsv");
    command.arg("--data").arg(missing).args(["--out", "x"]);
    let error = fails(&mut command);
    assert!(error.contains("missing.tsv: cannot open"), "{error}");
}

/// In both formats, of the pairs to train on and of those to validate on.
#[test]
fn pairs_that_cannot_be_used_are_left_out_and_counted() {
    let folder = folder();
    let text = fs::read_to_string(corpus(folder.path())).expect("the corpus");
    let long = "x ".repeat(600_000);
    let text = format!("{text}\tdix\n{long}\tdix\n");
    let side = |column: usize| -> String {
        let sides = text.lines().map(|line| line.split('\t').nth(column));
        sides
            .map(|side| format!("{}\n", side.expect("a side")))
            .collect()
    };
    let write = |name: &str, text: &str| file(folder.path(), name, text);
    let [source, target] = [write("all.en", &side(0)), write("all.fr", &side(1))];
    let all = write("all.tsv", &text);
    let valid = write("valid.tsv", "ten\tdix\nten\t\n");
    for (flag, files) in [("--data", vec![all]), ("--parallel", vec![source, target])] {
        let mut command = program("train");
        command.args(["--preset", "tiny", "--vocab-size", "300", "--dry-run"]);
        command.arg("--valid").arg(&valid).arg(flag).args(files);
        let out = succeeds(&mut command);
        for line in [
            "51 pairs read",
            "1 pair is skipped: a side is empty",
            "1 pair is skipped: longer than 1048576 bytes",
            "1 validation pair is skipped: a side is empty",
            "49 pairs to train on",
            "1 pair to validate on",
        ] {
            assert!(
                out.lines().any(|found| found.trim() == line),
                "{line}: {out}"
            );
        }
    }
}

#[cfg(unix)]
#[test]
fn data_from_a_pipe_are_refused() {
    let folder = folder();
    let out = folder.path().join("model");
    let mut command = program("train");
    command.args(["--data", "/dev/stdin", "--out"]).arg(&out);
    let output = run_on_input(&mut command, b"");
    assert_eq!(output.status.code(), Some(1));
    let expected = "error: /dev/stdin: not a regular file; \
                    pairs to train on are read more than once: write them to a file first";
    assert_eq!(stderr(&output).trim(), expected);
    assert!(!out.exists());
}

/// From two files, line by line; without `--out`, because nothing is written.
#[test]
fn a_dry_run_reports_the_run_and_writes_nothing() {
    let folder = folder();
    let text = fs::read_to_string(corpus(folder.path())).expect("the corpus");
    let mut sides = [String::new(), String::new()];
    // Each source twice: one that is held out leaves with its twin. And one that is too long.
    for line in text.lines().chain(text.lines()) {
        let (source, target) = line.split_once('\t').expect("a pair");
        sides[0] += &format!("{source}\n");
        sides[1] += &format!("{target}\n");
    }
    sides[0] += "long";
    sides[1] += &"x ".repeat(200);
    let [source, target] =
        [("en", &sides[0]), ("fr", &sides[1])].map(|(name, text)| file(folder.path(), name, text));
    let before = listed(folder.path());
    let mut command = program("train");
    command.args(["--preset", "tiny", "--vocab-size", "300", "--dry-run"]);
    command.args(["--batch-tokens", "200", "--updates", "10", "--seed", "1"]);
    command.args(["--hold-out", "10", "--max-pieces", "100"]);
    command.args(["--set", "training.ema_decay=0.9"]);
    let out = succeeds(command.arg("--parallel").arg(source).arg(target));
    let count = |end| count(&out, end);
    // One of them, and the line says so.
    let too_long = count(" training pair skipped: more than 100 pieces on a side")
        + count(" validation pair skipped: more than 100 pieces on a side");
    let held_out = count(" pairs skipped: the source sentence is held out for validation");
    let (train, valid) = (count(" pairs to train on"), count(" pairs to validate on"));
    assert_eq!(count(" pairs read"), 99, "{out}");
    assert_eq!(too_long, 1, "{out}");
    // The long pair has no twin; whether it is held out is the seed's choice.
    assert!([(10, 10), (9, 9)].contains(&(held_out, valid)), "{out}");
    assert_eq!(train + valid + held_out + too_long, 99, "{out}");

    // The `tiny` preset has 926 208 numbers beside its embeddings of width 128.
    let pieces = count(" pieces shared by source and target");
    let parameters = count(" parameters");
    assert_eq!(parameters, 926_208 + 128 * pieces, "{out}");
    // A number of 32 bits for each parameter, its gradient, its two moments, and its average.
    for (name, copies) in [
        ("weights", 1),
        ("gradients", 1),
        ("Adam's moments", 2),
        ("averaged weights", 1),
    ] {
        let mib = (4 * copies * parameters) as f64 / f64::from(1 << 20);
        let line = format!("{mib:.1} MiB of {name}");
        assert!(out.contains(&line), "{line}: {out}");
    }
    assert!(
        out.contains("per epoch, of at most 200 tokens per side"),
        "{out}"
    );
    assert!(out.contains("% of their tokens are padding"), "{out}");
    assert_eq!(listed(folder.path()), before);
}

/// One pair is one pair, and two vocabularies are two.
#[test]
fn a_dry_run_counts_and_holds_out_a_tenth() {
    let (folder, model) = trained();
    let dry = |flags: &[&str]| {
        let mut command = program("train");
        command.args(["--preset", "tiny", "--vocab-size", "300", "--dry-run"]);
        // A directory that holds a model is not in the way of a run that writes nothing.
        command.arg("--out").arg(&model);
        succeeds(command.arg("--data").arg(corpus(folder.path())).args(flags))
    };
    let before = listed(&model);
    let out = dry(&[]);
    for line in [
        "4 of 49 distinct source sentences held out for validation: a tenth, at most 1000 (--hold-out sets the number)",
        "45 pairs to train on",
        "4 pairs to validate on",
    ] {
        assert!(
            out.lines().any(|found| found.trim() == line),
            "{line}: {out}"
        );
    }
    let out = dry(&["--hold-out", "1", "--set", "tokenizer.shared=false"]);
    for end in [
        " 1 pair to validate on",
        " pieces of the source",
        " pieces of the target",
    ] {
        assert!(out.lines().any(|line| line.ends_with(end)), "{end}: {out}");
    }
    assert_eq!(listed(&model), before);
}

#[test]
fn pairs_of_one_source_cannot_be_held_out() {
    let folder = folder();
    let one = file(folder.path(), "one.tsv", "one\tun\n");
    let two = file(folder.path(), "two.tsv", "one\tun\none\tune\n");
    let none: &[&str] = &[];
    for (data, flags) in [
        (&one, none),
        (&two, none),
        (&two, &["--hold-out", "1"]),
        (&two, &["--hold-out", "5"]),
    ] {
        let mut command = program("train");
        let error = fails(command.args(["--dry-run", "--data"]).arg(data).args(flags));
        assert_eq!(
            error,
            "error: the data has 1 distinct source sentence, and at least one must remain for training; add validation pairs with --valid FILE"
        );
    }
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

#[test]
fn a_file_that_is_read_is_not_overwritten() {
    let folder = folder();
    let data = file(folder.path(), "train.tsv", "");
    fs::copy(corpus(folder.path()), &data).expect("a copy");
    let mut command = program("train");
    command.args(["--vocab-size", "300", "--hold-out", "10", "--data"]);
    let error = fails(command.arg(&data).arg("--out").arg(folder.path()));
    assert!(
        error.ends_with("is an input file, and would be overwritten"),
        "{error}"
    );

    let pairs = file(folder.path(), "pairs.tsv", "");
    fs::rename(&data, &pairs).expect("another name");
    let text = "# Mine\n[tokenizer]\nvocab_size = 300\n";
    let config = file(folder.path(), "run.toml", text);
    let mut command = program("train");
    command
        .arg("--data")
        .arg(&pairs)
        .arg("--config")
        .arg(&config);
    let error = fails(command.arg("--out").arg(folder.path()));
    assert!(
        error.ends_with("run.toml: is an input file, and would be overwritten"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&config).expect("a file"), text);
}

/// A run replaces files of its directory. They may be the user's if no run has used it.
#[test]
fn files_of_the_user_are_not_overwritten() {
    let folder = folder();
    let out = folder.path().join("mine");
    fs::create_dir(&out).expect("a directory");
    for name in [
        "run.toml",
        "train.tsv",
        "valid.tsv",
        "generation_config.json",
        "tokenizer.json",
        "source.spm",
    ] {
        let mine = file(&out, name, "mine");
        let error = fails(&mut train(folder.path(), &out));
        let expected = format!(
            "error: {} already has {name}, which no run has written; choose another --out",
            out.display()
        );
        assert_eq!(error, expected);
        assert_eq!(fs::read_to_string(&mine).expect("the file"), "mine");
        fs::remove_file(mine).expect("removed");
    }
}

#[cfg(unix)]
#[test]
fn a_description_without_an_end_is_refused() {
    let folder = folder();
    let mut command = program("train");
    command
        .args(["--config", "/dev/zero", "--data"])
        .arg(corpus(folder.path()));
    let error = fails(command.arg("--out").arg(folder.path().join("model")));
    assert_eq!(error, "error: /dev/zero: more than 1048576 bytes");
}

/// Burn would look for its settings in the directory that a command runs in, and in those above.
#[cfg(unix)]
#[test]
fn a_damaged_file_of_burn_s_settings_is_not_read() {
    let folder = folder();
    for name in ["burn.toml", "cubecl.toml"] {
        file(folder.path(), name, "[[x\n");
    }
    let below = folder.path().join("below");
    fs::create_dir(&below).expect("a folder");
    let mut command = train_for(1, folder.path(), &folder.path().join("model"));
    succeeds(command.current_dir(&below));
    if cfg!(feature = "tch") {
        eprintln!("skipped: a directory that was removed, where libtorch's MKL cannot start");
        return;
    }
    let command = train_for(1, folder.path(), &folder.path().join("another"));
    // The shell removes the directory that it is in.
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "rmdir \"$PWD\" && exec \"$0\" \"$@\""]);
    shell.arg(command.get_program()).args(command.get_args());
    succeeds(shell.current_dir(&below));
}

#[test]
fn a_run_without_data_names_the_flags_to_give() {
    let folder = folder();
    let out = folder.path().join("model");
    let error = fails(program("train").arg("--out").arg(&out));
    assert_eq!(
        error,
        "error: no training data; add --data FILE… or --parallel SOURCE TARGET, \
         such as this project's examples/data/tatoeba.en-fr.tsv.gz"
    );
    assert!(!out.exists());
}

#[test]
fn a_resumed_run_with_another_recipe_is_refused_by_its_flag() {
    let (folder, model) = trained();
    for (flag, value, expected) in [
        (
            "--batches-per-update",
            "2",
            "made with --batches-per-update 1, not 2",
        ),
        (
            "--peak-rate",
            "0.01",
            "made without --peak-rate, not with 0.01",
        ),
    ] {
        let mut command = train(folder.path(), &model);
        let error = fails(command.args(["--resume", flag, value]));
        assert!(error.contains(expected), "{error}");
    }
    let error = fails(&mut resumed("small", "300", folder.path(), &model));
    let expected = "made with another --preset: `d_";
    assert!(error.contains(expected), "{error}");
}

/// The run of [`trained`], resumed with a preset and a size of vocabulary.
fn resumed(preset: &str, vocab_size: &str, folder: &Path, out: &Path) -> Command {
    let mut command = program("train");
    command.args(["--preset", preset, "--vocab-size", vocab_size]);
    command.args(["--hold-out", "10", "--batch-tokens", "200", "--warmup", "4"]);
    command.args(["--updates", "4", "--resume", "--data"]);
    command.arg(corpus(folder)).arg("--out").arg(out);
    command
}

/// The vocabulary of a run is that of its tokenizer.
#[test]
fn a_resumed_run_keeps_its_tokenizer_and_says_so() {
    let (folder, model) = trained();
    let before = fs::read(model.join("tokenizer.json")).expect("the tokenizer");
    let output = run(&mut resumed("tiny", "5000", folder.path(), &model));
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{err}");
    let said = "ignoring --vocab-size 5000: a resumed run keeps its tokenizer, which has ";
    assert!(err.lines().any(|line| line.starts_with(said)), "{err}");
    let after = fs::read(model.join("tokenizer.json")).expect("the tokenizer");
    assert!(before == after);
}

/// No flag adds positions to the model, so that none is advised.
#[test]
fn pairs_that_are_all_longer_than_the_positions_are_named_with_these() {
    let folder = folder();
    let mut command = train(folder.path(), &folder.path().join("out"));
    let error = fails(command.args(["--set", "model.positions.learned.max_len=2"]));
    let expected = "pairs has at most 1 pieces on each side: the model has 2 learned positions";
    assert!(error.ends_with(expected), "{error}");
}
