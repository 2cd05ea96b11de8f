//! The run file: precedence, errors by key, the resolved file, and the ready files under configs/.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use clap::ValueEnum;
use safetensors::{Dtype, SafeTensors};
use support::{corpus, count, fails, file, folder, program, succeeds, train_for, trained};
use transformer_core::DecodeOptions;
use transformer_core::decoding::LengthPenalty;
use transformer_core::formats::GENERATION_FILE;
use transformer_program::BackendChoice;
use transformer_program::run_file::{Preset, RunFile, SECTIONS, Values, reference};
use transformer_train::data::PairCache;
use transformer_train::run::RunRecord;

/// A short run of the smallest model on [`corpus`].
fn short(folder: &Path) -> String {
    let corpus = corpus(folder);
    format!(
        "data.train = \"{}\"\n\
         data.hold_out = 10\n\
         tokenizer.vocab_size = 300\n\
         model.preset = \"tiny\"\n\
         validation.every = 2\n\
         [training]\n\
         seed = 1\n\
         batch_tokens = 200\n\
         warmup = 3\n\
         updates = 6\n",
        corpus.display()
    )
}

/// `transformer train --config FILE --out DIR`. libtorch's products are the same to the bit on one thread only.
fn train(config: &Path, out: &Path) -> Command {
    let mut command = program("train");
    command.env("OMP_NUM_THREADS", "1");
    command.arg("--config").arg(config).arg("--out").arg(out);
    command
}

fn resume(out: &Path) -> Command {
    let mut command = program("train");
    command.env("OMP_NUM_THREADS", "1");
    command.arg("--resume").arg("--out").arg(out);
    command
}

fn read(path: &Path) -> RunFile {
    let values = Values::from_file(path).expect("a run file");
    RunFile::read(&values).expect("a run")
}

fn weights(out: &Path, update: usize) -> Vec<u8> {
    let path = format!("checkpoints/update-{update:08}/model.safetensors");
    fs::read(out.join(path)).expect("a checkpoint")
}

/// Also: the file in the directory describes the run in full, and is read as the same run.
#[test]
fn flags_replace_the_file_set_replaces_flags_and_the_directory_has_the_result() {
    let folder = folder();
    let config = file(folder.path(), "run.toml", short(folder.path()));
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    let mut command = train(&config, &first);
    command.args(["--warmup", "4", "--updates", "4", "--seed", "2"]);
    command.args(["--set", "training.updates=2", "--set", "model.d_ff=64"]);
    command.args(["--set", "training.batch_tokens="]);
    let out = succeeds(&mut command);
    assert!(out.contains("done: 2 updates"), "{out}");

    let resolved = first.join("run.toml");
    let run = read(&resolved);
    assert_eq!(run.training.warmup, 4, "a flag");
    assert_eq!(run.training.updates, 2, "a setting, over a flag");
    assert_eq!(run.training.seed, 2, "a flag of every command");
    assert_eq!(run.training.batch_tokens, 2048, "the default again");
    assert_eq!(run.validation.every, 2, "the file");
    assert_eq!(run.model.d_ff, Some(64), "a setting, over a preset");
    assert_eq!(run.model.d_model, Some(128), "the preset of the file");
    assert_eq!(run.checkpoint.keep_last, 2, "a default");
    assert_eq!(run.to_toml(), fs::read_to_string(&resolved).expect("it"));

    succeeds(&mut train(&resolved, &second));
    assert!(weights(&first, 2) == weights(&second, 2));
}

#[test]
fn a_preset_from_the_command_line_replaces_the_model_of_the_file() {
    let folder = folder();
    let text = "model = { preset = \"base\", d_model = 64, dropout = 0.2 }\n";
    let path = file(folder.path(), "run.toml", text);
    let file = Values::from_file(&path).expect("a run file");
    let setting = Values::from_settings(&["model.preset=tiny".into()]).expect("a setting");
    for (values, expected) in [(file.clone(), (64, 0.2)), (setting.over(file), (128, 0.1))] {
        let mut run = RunFile::read(&values).expect("a run");
        let model = run.resolve_model(None, &values).expect("a model");
        assert_eq!((model.d_model, model.dropout), expected);
    }
}

#[test]
fn a_preset_without_a_value_keeps_the_other_keys_of_the_model() {
    let folder = folder();
    let text = "model = { preset = \"base\", d_ff = 64 }\n";
    let path = file(folder.path(), "run.toml", text);
    let file = Values::from_file(&path).expect("a run file");
    let setting = Values::from_settings(&["model.preset=".into()]).expect("a setting");
    let values = setting.over(file);
    let mut run = RunFile::read(&values).expect("a run");
    let model = run.resolve_model(None, &values).expect("a model");
    // In all else, it is the default preset.
    assert_eq!((model.d_model, model.d_ff), (256, 64));
}

#[test]
fn what_is_wrong_with_a_file_is_named_by_line_and_key() {
    let folder = folder();
    let path = folder.path().join("run.toml");
    let name = path.display();
    for (text, problem) in [
        (
            "[model]\npreset = \"tiny\"\nd_modle = 64\n",
            "line 3: unknown key `model.d_modle`; did you mean `model.d_model`?",
        ),
        (
            "warmup = 3\n",
            "line 1: unknown key `warmup`; did you mean `training.warmup`?",
        ),
        (
            "[model]\n\n[trainig]\nseed = 1\n",
            "line 3: unknown section `[trainig]`; did you mean `[training]`?",
        ),
        (
            "training = 3\n",
            "line 1: `training`: is a table, `[training]`; set one of its keys, such as `training.seed`",
        ),
        (
            "[model]\neos_id = 3\n",
            "line 2: `model.eos_id`: cannot be set: it comes from the tokenizer",
        ),
        (
            "[training]\nwarmup = \"many\"\n",
            "line 2: `training.warmup` = \"many\": must be a whole number of at least 1",
        ),
        (
            "[training]\nwarmup = 0\n",
            "line 2: `training.warmup` = 0: must be at least 1",
        ),
        (
            "[training]\nwarmup = 9\nupdates = 5\nschedule = \"cosine\"\n",
            "line 3: `training.updates` = 5: must be more than `training.warmup` if the learning rate decays to zero",
        ),
        (
            "[validation]\nevery = 0\n",
            "line 2: `validation.every` = 0: must be at least 1",
        ),
        (
            "[validation]\nbest_by = \"bleu\"\n",
            "line 2: `validation.best_by` = \"bleu\": is not measured; add it to `validation.metrics`",
        ),
        (
            "[model]\nn_heads = 7\n",
            "line 2: `model.d_model` 256 is not divisible by `model.n_heads` 7; choose another or set `model.d_k` and `model.d_v`",
        ),
        (
            "[tokenizer]\nshared = false\n[model]\ntying = \"all\"\n",
            "line 4: `model.tying` = \"all\": ties source and target embeddings, whose vocabularies are separate; see `tokenizer.shared`",
        ),
        (
            "[tokenizer]\nshared = true\ntarget_kind = \"words\"\n",
            "line 2: `tokenizer.shared` = true: contradicts `tokenizer.target_kind`, or `tokenizer.source_file` and `tokenizer.target_file`",
        ),
        (
            "[training]\nlr = 0.001\n",
            "line 2: unknown key `training.lr`; did you mean `training.peak_rate`?",
        ),
        (
            "[training]\nupdates = -1\n",
            "line 2: `training.updates` = -1: must be a whole number of at least 1",
        ),
        (
            "[training]\nupdates = 9223372036854775808\n",
            "line 2: `training.updates`: is out of range: whole numbers are at most 9223372036854775807",
        ),
        (
            "[model]\npositions = \"learned\"\n",
            "line 2: `model.positions` = \"learned\": must be \"sinusoidal\", \"alibi\", learned with a number of positions, such as { learned = { max_len = 256 } }, { sines-then-cosines = { inclusive = false, first = 0 } }, { relative = { max_distance = 16 } }, { relative-bias = { buckets = 32, max_distance = 128 } }, or { rotary = { base = 10000.0 } }",
        ),
        (
            "[model]\npositions = { learned = { max_len = 0 } }\n",
            "line 2: `model.positions.learned.max_len` is 0; it must be at least 1",
        ),
        (
            "[model]\npositions = { learned = { max_len = 1 } }\n",
            "line 2: `model.positions` = { learned = { max_len = 1 } }: must have at least 2 positions, for a piece and the end-of-sentence token",
        ),
        (
            "[data]\nvalid = []\n",
            "line 2: `data.valid` = []: must name a file of pairs, or be absent",
        ),
        (
            "[tokenizer]\nfile = \"\"\n",
            "line 2: `tokenizer.file` = \"\": must not be empty",
        ),
        (
            "[tokenizer]\nvocab_size = 9223372036854775807\n",
            "line 2: `tokenizer.vocab_size` = 9223372036854775807: must be at most 1048576",
        ),
        (
            "[tokenizer]\nkind = \"bpe\"\nfile = \"a.json\"\n",
            "line 2: `tokenizer.kind` = \"bpe\": `tokenizer.kind` has no effect together with `tokenizer.file`, which sets the tokenizer; remove one of the two",
        ),
        (
            "[init]\nmodel = \"m\"\n[tokenizer]\nshared = true\n",
            "line 4: `tokenizer.shared` = true: `tokenizer.shared` has no effect together with `init.model`, which sets the tokenizer; remove one of the two",
        ),
        (
            "[tokenizer]\nsource_file = \"a.json\"\n",
            "line 2: `tokenizer.source_file` = \"a.json\": needs `tokenizer.target_file`, too",
        ),
    ] {
        fs::write(&path, text).expect("a run file");
        let mut command = program("train");
        command.arg("--config").arg(&path).arg("--dry-run");
        let error = fails(command.arg("--data").arg(corpus(folder.path())));
        assert_eq!(error, format!("error: {name}: {problem}"), "{text}");
    }
    fs::write(&path, "[model\n").expect("a file");
    let error = fails(program("train").arg("--dry-run").arg("--config").arg(&path));
    assert!(
        error.starts_with(&format!("error: {name}: line 1: ")),
        "{error}"
    );
    let mut command = program("train");
    let error = fails(command.args(["--dry-run", "--set", "training.warmup=many"]));
    assert_eq!(
        error,
        "error: --set training.warmup=many: must be a whole number of at least 1"
    );
}

/// A tokenizer of words, in which these are the first three tokens.
fn words(folder: &Path, name: &str, first: [&str; 3]) -> PathBuf {
    let [a, b, c] = first;
    let vocab = format!(r#"{{"{a}": 0, "{b}": 1, "{c}": 2, "<unk>": 3, "one": 4}}"#);
    let json = format!(
        r#"{{
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {{"type": "WhitespaceSplit"}},
            "model": {{"type": "WordLevel", "vocab": {vocab}, "unk_token": "<unk>"}}
        }}"#
    );
    file(folder, name, json)
}

/// The data have an error in their first line, which nobody sees.
#[test]
fn what_can_be_known_is_refused_before_any_pair_is_read_in_a_dry_run_and_in_a_run() {
    let folder = folder();
    let data = file(folder.path(), "bad.tsv", "no tab\n");
    let missing = folder.path().join("missing.tsv").display().to_string();
    let missing_data = vec![
        "--data".to_owned(),
        data.display().to_string(),
        missing.clone(),
    ];
    let set = |settings: &[&str]| -> Vec<String> {
        let settings = settings.iter().map(|&setting| setting.to_owned());
        settings
            .flat_map(|text| ["--set".to_owned(), text])
            .collect()
    };
    let good = words(folder.path(), "words.json", ["<pad>", "<bos>", "<eos>"]);
    let bad = words(folder.path(), "other.json", ["<eos>", "<bos>", "<pad>"]);
    let [good_file, bad_file] =
        [&good, &bad].map(|file| format!("tokenizer.file={}", file.display()));
    let cases = [
        (
            ["--backend", "ndarray", "--device", "nothing"].map(str::to_owned).to_vec(),
            "ndarray: no device `nothing`; this computer has: cpu".to_owned(),
        ),
        (
            set(&["model.n_encoder_layers=0"]),
            "--set model.n_encoder_layers=0: must be at least 1: ".to_owned(),
        ),
        (
            set(&["validation.beam=2000"]),
            "--set validation.beam=2000: must be at most 1000".to_owned(),
        ),
        (
            set(&["init.freeze=[\"encodr.*\"]"]),
            "--set init.freeze=[\"encodr.*\"]: `encodr.*` matches no parameter; similar: `encoder.*`, "
                .into(),
        ),
        (
            set(&["init.freeze=[\"*\"]"]),
            "--set init.freeze=[\"*\"]: all ".into(),
        ),
        (
            set(&["validation.metrics=[\"wer\", \"bleu\", \"word_error_rate\"]"]),
            "--set validation.metrics=[\"wer\", \"bleu\", \"word_error_rate\"]: names `wer` twice".into(),
        ),
        (
            set(&[&good_file, "tokenizer.dropout=0.1"]),
            format!(
                "--set tokenizer.dropout=0.1: {}: dropout is for BPE tokenizers; this one is WordLevel",
                good.display()
            ),
        ),
        (
            set(&[&bad_file]),
            format!(
                "{}: `<pad>` is token 2, but the model's `pad_id` is 0",
                bad.display()
            ),
        ),
        (
            set(&["tokenizer.kind=words", "tokenizer.vocab_size=4"]),
            "--set tokenizer.vocab_size=4: must be at least 5, for the special tokens and one other token".into(),
        ),
        (
            set(&["init.model=nowhere"]),
            "--set init.model=nowhere: nowhere/config.json: ".into(),
        ),
        (
            set(&["model.n_heads=16777216", "model.d_k=16777216", "model.d_v=1"]),
            "the sizes in `[model]` give ".into(),
        ),
        (
            missing_data,
            format!("{missing}: cannot open: "),
        ),
    ];
    for (arguments, problem) in cases {
        for is_dry in [true, false] {
            let out = folder.path().join("model");
            let mut command = program("train");
            match is_dry {
                true => command.arg("--dry-run"),
                false => command.arg("--out").arg(&out),
            };
            if !arguments.contains(&missing) {
                command.arg("--data").arg(&data);
            }
            let error = fails(command.args(&arguments));
            let expected = format!("error: {problem}");
            assert!(error.starts_with(&expected), "{error}, not {expected}");
            assert!(!out.exists());
        }
    }
    let mut command = program("train");
    command.arg("--data").arg(&data).arg("--out").arg(&data);
    let error = fails(&mut command);
    let advice = "is not a directory; choose another --out";
    assert_eq!(error, format!("error: {} {advice}", data.display()));
}

#[test]
fn a_dry_run_refuses_what_a_resume_refuses() {
    let (_folder, model) = trained();
    for (setting, problem) in [
        ("training.warmup=9", "made with `training.warmup` 4, not 9"),
        (
            "model.dropout=0.3",
            "made with `model.dropout` 0.1, not 0.3",
        ),
    ] {
        for flags in [&["--plain", "--dry-run"][..], &["--plain"]] {
            let error = fails(resume(&model).args(["--set", setting]).args(flags));
            assert!(error.contains(problem), "{error}");
        }
    }
    succeeds(resume(&model).arg("--dry-run"));
}

/// The pairs that the run was given are gone by then: it goes on with those in its directory.
#[test]
fn a_run_goes_on_by_its_directory_alone_to_the_weights_of_one_that_never_stopped() {
    let folder = folder();
    let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
    let start = |out: &Path| {
        let mut command = train_for(4, folder.path(), out);
        command.env("OMP_NUM_THREADS", "1");
        command
    };
    succeeds(&mut start(&whole));
    succeeds(start(&parts).args(["--set", "training.updates=2"]));
    fs::remove_file(corpus(folder.path())).expect("the corpus");
    let out = succeeds(resume(&parts).args(["--updates", "4"]));
    assert!(out.contains("done: 4 updates"), "{out}");
    // The pairs held out for validation are not reported as skipped.
    assert!(!out.contains("skipped"), "{out}");
    assert!(weights(&whole, 4) == weights(&parts, 4));

    // As if it had been killed before its last checkpoint: nothing needs to be said again.
    fs::remove_dir_all(parts.join("checkpoints/update-00000004")).expect("a checkpoint");
    succeeds(&mut resume(&parts));
    assert!(weights(&whole, 4) == weights(&parts, 4));

    // Here the flags name other pairs than run.toml does, and their file is gone, too.
    let mut command = start(&parts);
    fs::remove_file(folder.path().join("corpus.tsv")).expect("the corpus");
    command.args(["--set", "data.hold_out=9", "--set", "training.updates=5"]);
    succeeds(command.arg("--resume"));
}

#[test]
fn products_in_bf16_are_refused_before_any_pair_is_read_where_there_are_none() {
    let folder = folder();
    let bad = file(folder.path(), "bad.tsv", "no tab\n");
    for backend in backends(false) {
        let out = folder.path().join("model");
        let path = out.display().to_string();
        for place in [vec!["--dry-run"], vec!["--out", &path]] {
            let mut command = program("train");
            command
                .args(["--backend", &backend.to_string()])
                .args(place);
            command.args(["--set", "training.precision=bf16", "--data"]);
            let rule = "needs --backend flex, ndarray or tch, and the Cargo feature of that name, or a GPU that has bf16";
            assert_eq!(
                fails(command.arg(&bad)),
                format!(
                    "error: --set training.precision=bf16: {rule}; {backend} trains in \"f32\" only here"
                )
            );
            assert!(!out.exists());
        }
    }
}

/// Its weights and moments are in f32, like those of any run.
#[test]
fn a_run_with_products_in_bf16_goes_on_to_the_weights_of_one_that_never_stopped() {
    for backend in backends(true) {
        goes_on_in_bf16(&backend.to_string());
    }
}

/// The backends that train in bf16 here, or those that do not.
fn backends(in_bf16: bool) -> impl Iterator<Item = BackendChoice> {
    let trains = |backend: &BackendChoice| backend.on(None).trains_in_bf16().expect("the device");
    let backends = BackendChoice::value_variants().iter().copied();
    backends.filter(move |backend| trains(backend) == in_bf16)
}

fn goes_on_in_bf16(backend: &str) {
    let folder = folder();
    let text = short(folder.path());
    let in_f32 = file(folder.path(), "f32.toml", &text);
    let in_bf16 = file(folder.path(), "bf16.toml", text + "precision = \"bf16\"\n");
    let [other, whole, parts] = ["other", "whole", "parts"].map(|name| folder.path().join(name));
    let updates = |command: &mut Command, updates: &str| {
        succeeds(command.args(["--backend", backend, "--updates", updates]))
    };
    updates(&mut train(&in_f32, &other), "4");
    updates(&mut train(&in_bf16, &whole), "4");
    updates(&mut train(&in_bf16, &parts), "2");
    let error = fails(resume(&parts).args(["--set", "training.precision=f32"]));
    let problem = "made with `training.precision` \"bf16\", not \"f32\"";
    assert!(error.contains(problem), "{error}");
    updates(&mut resume(&parts), "4");
    assert!(weights(&whole, 4) == weights(&parts, 4));
    assert!(weights(&whole, 4) != weights(&other, 4));

    let bytes = weights(&whole, 4);
    let tensors = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    for (name, tensor) in tensors.tensors() {
        assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
    }
}

/// Two corpora, of which the second repeats a pair of the first, has a new one, and one of uneven sides.
#[test]
fn corpora_are_weighted_and_filtered_and_pieces_are_drawn_anew_also_after_a_resume() {
    let folder = folder();
    let pairs = corpus(folder.path());
    let uneven = "non ".repeat(30);
    let more = format!("one and two\tun et deux\neight and nine\thuit et neuf\nno\t{uneven}\n");
    let more = file(folder.path(), "more.tsv", more);
    let config = format!(
        "model.preset = \"tiny\"\n\
         validation.every = 2\n\
         training.batch_tokens = 200\n\
         training.warmup = 4\n\
         [data]\n\
         train = [{{ file = \"{pairs}\", weight = 2.5 }}, {{ file = \"{more}\" }}]\n\
         valid = \"{pairs}\"\n\
         max_ratio = 4.0\n\
         drop_duplicates = true\n\
         [tokenizer]\n\
         vocab_size = 300\n\
         dropout = 0.2\n",
        pairs = pairs.display(),
        more = more.display(),
    );
    let config = file(folder.path(), "run.toml", config);
    let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
    let out = succeeds(train(&config, &whole).args(["--updates", "4"]));
    for line in [
        "1 pair is skipped: equal to an earlier pair",
        "1 pair is skipped: one side has more than 4 times the pieces of the other",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    succeeds(train(&config, &parts).args(["--updates", "2"]));
    succeeds(resume(&parts).args(["--updates", "4"]));
    assert!(weights(&whole, 4) == weights(&parts, 4));
}

/// It is made from the corpora or, where they are gone, from the pairs beside it, which do not say where a
/// corpus ends.
#[test]
fn a_cache_that_is_lost_is_made_anew_unless_weights_are_lost_with_it() {
    let folder = folder();
    let pairs = corpus(folder.path());
    let more = file(folder.path(), "more.tsv", "eight and nine\thuit et neuf\n");
    let weighted = format!("{{ file = \"{}\", weight = 2.5 }}", pairs.display());
    let [one, two] =
        [("one", ""), ("two", &*format!(", \"{}\"", more.display()))].map(|(name, more)| {
            let out = folder.path().join(name);
            let mut command = train_for(2, folder.path(), &out);
            command
                .arg("--set")
                .arg(format!("data.train=[{weighted}{more}]"));
            succeeds(&mut command);
            out
        });
    let cache = two.join("train.cache");
    let bytes = fs::read(&cache).expect("a cache");
    fs::write(&cache, &bytes[..bytes.len() - 1]).expect("a damaged cache");
    let output = support::run(resume(&two).args(["--updates", "3"]));
    let err = support::stderr(&output);
    assert!(output.status.success(), "{err}");
    let note = format!("{}: damaged cache of pairs: ", cache.display());
    assert!(err.lines().any(|line| line.starts_with(&note)), "{err}");
    PairCache::open(&cache).expect("a new cache");

    for path in [&pairs, &one.join("train.cache"), &cache] {
        fs::remove_file(path).expect("a file");
    }
    succeeds(resume(&one).args(["--updates", "3"]));
    let error = fails(resume(&two).args(["--updates", "4"]));
    let expected = format!(
        "error: {cache} is missing, and cannot be rebuilt: {pairs} is missing, and {text} does not record the \
         weights of the pairs; restore {pairs} or {cache}",
        cache = cache.display(),
        pairs = pairs.display(),
        text = two.join("train.tsv").display(),
    );
    assert_eq!(error, expected);
    corpus(folder.path());
    succeeds(resume(&two).args(["--updates", "4"]));
}

#[test]
fn what_a_run_has_lost_is_named_with_a_way_to_go_on() {
    let (_folder, model) = trained();
    let tokenizer = model.join("tokenizer.json");
    let bytes = fs::read(&tokenizer).expect("a tokenizer");
    fs::remove_file(&tokenizer).expect("a tokenizer");
    let cache = model.join("train.cache");
    let error = fails(resume(&model).args(["--updates", "6"]));
    let expected = format!(
        "error: {}: is missing; restore it, or remove {}, so that the tokenizer is trained again on the run's pairs",
        tokenizer.display(),
        cache.display()
    );
    assert_eq!(error, expected);
    fs::remove_file(&cache).expect("a cache");
    succeeds(resume(&model).args(["--updates", "6"]));
    assert!(fs::read(&tokenizer).expect("a tokenizer") == bytes);

    let newest = model.join("checkpoints/update-00000006");
    let config = newest.join("config.json");
    let whole = fs::read_to_string(&config).expect("a configuration");
    let end = format!(
        "; to resume from the older {}, remove {}",
        model.join("checkpoints/update-00000004").display(),
        newest.display()
    );
    let other = whole.replacen("\"dropout\": 0.1", "\"dropout\": 0.2", 1);
    assert_ne!(other, whole);
    for damaged in [&whole[..whole.len() / 2], &*other] {
        fs::write(&config, damaged).expect("a damaged file");
        let error = fails(resume(&model).args(["--updates", "8"]));
        assert!(
            error.contains("update-00000006") && error.ends_with(&end),
            "{error}"
        );
    }
    fs::remove_dir_all(&newest).expect("a checkpoint");
    succeeds(resume(&model).args(["--updates", "8"]));
}

#[test]
fn a_run_that_has_made_its_updates_says_so() {
    let (_folder, model) = trained();
    let none: &[&str] = &[];
    for flags in [none, &["--updates", "3"]] {
        let out = succeeds(resume(&model).args(flags));
        let line = "already trained for 4 updates; raise --updates to continue";
        assert!(out.lines().any(|found| found == line), "{out}");
    }
}

/// The files of a directory and of those below it, with their content and their time.
fn files(directory: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(self::files(&path));
            continue;
        }
        let about = fs::metadata(&path).expect("a file");
        let content = fs::read(&path).expect("a file");
        files.insert(path, (content, about.modified().expect("its time")));
    }
    files
}

#[test]
fn a_run_that_has_made_its_updates_writes_nothing() {
    let (folder, model) = trained();
    let before = files(&model);
    succeeds(resume(&model).args(["--updates", "3"]));
    assert!(files(&model) == before);
    // A cache of the same pairs in another file is made before they are recognized.
    let copy = folder.path().join("copy.tsv");
    fs::copy(corpus(folder.path()), &copy).expect("a copy");
    let copy = format!("data.train={}", copy.display());
    succeeds(resume(&model).args(["--set", &copy]));
    assert!(files(&model) == before);
}

/// A comment at its end shows that it is whole; whatever else is in it may be edited.
#[test]
fn the_file_of_a_run_is_refused_where_it_was_cut_off_and_read_where_it_was_edited() {
    let (_folder, model) = trained();
    let path = model.join("run.toml");
    let text = fs::read_to_string(&path).expect("the file");
    let after = |line: &str| text.find(line).expect("the line") + line.len();
    // In the middle of a number; between two keys; in the comment at the end.
    for cut in [
        after("\nbatch_tokens = 2"),
        after("\nupdates = 4\n"),
        text.len() - 3,
    ] {
        fs::write(&path, &text[..cut]).expect("written");
        let error = fails(&mut resume(&model));
        let start = format!("error: {}: is cut off, ", path.display());
        assert!(error.starts_with(&start), "{error}");
        let left = fs::read_to_string(&path).expect("the file");
        assert_eq!(left, text[..cut]);
    }
    let raised = text.replace("\nupdates = 4\n", "\nupdates = 6\n");
    let edited = raised.replace("\njson = true\n", "\n") + "# Raised by hand.\n";
    assert_eq!(edited.lines().count(), text.lines().count());
    fs::write(&path, edited).expect("written");
    let out = succeeds(&mut resume(&model));
    assert!(out.contains("done: 6 updates"), "{out}");
}

#[test]
fn other_pairs_to_validate_on_are_refused_by_their_files() {
    let folder = folder();
    let out = folder.path().join("model");
    let first = file(folder.path(), "first.tsv", "one\tun\ntwo\tdeux\n");
    let second = file(folder.path(), "second.tsv", "one\tun\ntwo\ttrois\n");
    let train = |updates: usize, valid: &Path| {
        let mut command = train_for(updates, folder.path(), &out);
        command
            .args(["--set", "data.hold_out=", "--valid"])
            .arg(valid);
        command
    };
    succeeds(&mut train(2, &first));
    let edited = out.join("valid.tsv");
    let before = fs::read(&edited).expect("the pairs");
    let refused = |command: &mut Command, file: &Path| {
        let error = fails(command);
        let start = format!("error: {}: 2 pairs (checksum ", file.display());
        assert!(error.starts_with(&start), "{error}");
        let end = format!(
            "; use the same validation pairs, or start a new run from its model with --set init.model={} and another --out",
            out.display()
        );
        assert!(error.ends_with(&end), "{error}");
    };
    refused(train(4, &second).arg("--resume"), &second);
    assert!(fs::read(&edited).expect("the pairs") == before);
    // The run's own.
    fs::copy(&second, &edited).expect("a copy");
    refused(resume(&out).args(["--updates", "4"]), &edited);

    fs::write(&edited, before).expect("written");
    let printed = succeeds(train(4, &first).arg("--resume"));
    assert!(printed.contains("done: 4 updates"), "{printed}");
}

/// Else the next `--resume` would be refused, too.
#[test]
fn a_refused_resume_leaves_the_file_of_the_run_as_it_was() {
    let (folder, model) = trained();
    let files = || ["run.toml", "train.tsv"].map(|name| fs::read(model.join(name)).expect("it"));
    let before = files();
    let error = fails(resume(&model).args(["--set", "training.warmup=9"]));
    assert!(
        error.contains("made with `training.warmup` 4, not 9"),
        "{error}"
    );
    let other = file(folder.path(), "other.tsv", "one\tun\ntwo\tdeux\nsix\tsix\n");
    let error = fails(
        resume(&model)
            .args(["--hold-out", "1"])
            .arg("--data")
            .arg(other),
    );
    assert!(error.contains("trained on "), "{error}");
    // Without pairs held out, it would have more to train on.
    let valid = file(folder.path(), "valid.tsv", "one\tun\n");
    let error = fails(
        resume(&model)
            .args(["--set", "data.hold_out=", "--valid"])
            .arg(valid),
    );
    let expected = "trained on 39 pairs ";
    assert!(error.contains(expected), "{error}");
    assert!(
        error.ends_with("; `data.valid`, `data.hold_out` differ from the run"),
        "{error}"
    );
    let missing = folder.path().join("missing.tsv");
    let error = fails(resume(&model).arg("--data").arg(&missing));
    let expected = format!("error: {}: cannot open: ", missing.display());
    assert!(error.starts_with(&expected), "{error}");
    assert!(files() == before);
    succeeds(&mut resume(&model));
}

#[test]
fn a_directory_without_a_run_is_not_resumed_by_mistake() {
    let (folder, model) = trained();
    let mistyped = folder.path().join("modle");
    let error = fails(&mut resume(&mistyped));
    let advice = "holds no run to resume; check --out, or start a run with --config FILE, --data FILE or --parallel SOURCE TARGET";
    assert_eq!(error, format!("error: {} {advice}", mistyped.display()));
    assert!(!mistyped.exists());

    // With data, one line of a job script starts the run and goes on with it.
    let out = folder.path().join("new");
    let output = support::run(train_for(2, folder.path(), &out).arg("--resume"));
    assert!(output.status.success());
    let note = format!("{} holds no run; starting a new one", out.display());
    let err = support::stderr(&output);
    assert!(err.lines().any(|line| line == note), "{err}");

    // No file: not waited for, because a pipe or a device may have no end.
    fs::remove_file(model.join("run.toml")).expect("run.toml");
    #[cfg(unix)]
    {
        let path = model.join("run.toml");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        let error = fails(&mut resume(&model));
        let expected = format!("error: {}: not a regular file", path.display());
        assert_eq!(error, expected);
        fs::remove_file(path).expect("the link");
    }

    // A directory of an earlier version, and a model that no run has left.
    let error = fails(&mut resume(&model));
    assert!(error.contains("has no run.toml"), "{error}");
    assert!(error.contains("the command names no data; add"), "{error}");
    succeeds(train_for(6, folder.path(), &model).arg("--resume"));
    assert!(model.join("run.toml").exists());
    fs::remove_file(model.join("run.toml")).expect("run.toml");
    fs::remove_dir_all(model.join("checkpoints")).expect("checkpoints");
    let error = fails(train_for(4, folder.path(), &model).arg("--resume"));
    assert!(
        error.contains("holds a model, but no run to resume"),
        "{error}"
    );
}

/// The files under configs/, by name.
fn configs() -> BTreeMap<String, PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let entries = fs::read_dir(folder).expect("configs/");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let name = |path: &Path| path.file_stem().expect("a name").display().to_string();
    paths.map(|path| (name(&path), path)).collect()
}

#[test]
fn every_ready_file_says_a_run() {
    let names: Vec<_> = configs().into_keys().collect();
    let expected = [
        "g2p",
        "inflection",
        "iwslt",
        "multi30k",
        "student",
        "tatoeba",
        "wmt14-base",
        "wmt14-big",
    ];
    assert_eq!(names, expected);
    for (name, path) in configs() {
        let values = Values::from_file(&path).unwrap_or_else(|error| panic!("{error}"));
        let mut run = RunFile::read(&values).unwrap_or_else(|error| panic!("{error}"));
        let model = run.resolve_model(None, &values).expect("a model");
        model
            .validate()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let training = run.training_config();
        training
            .validate()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        // Written in full, it is the same run.
        let folder = folder();
        let written = file(folder.path(), "run.toml", run.to_toml());
        assert_eq!(read(&written), run, "{name}");
    }
}

#[test]
fn the_ready_files_have_the_numbers_of_their_recipes() {
    let run = |name: &str| {
        let values = Values::from_file(&configs()[name]).expect("a run file");
        let mut run = RunFile::read(&values).expect("a run");
        let model = run.resolve_model(None, &values).expect("a model");
        (run, model)
    };
    let (multi30k, model) = run("multi30k");
    assert_eq!(model, Preset::Multi30k.config(4));
    assert_eq!(multi30k.training.peak_rate, Some(0.005));
    assert_eq!(multi30k.training.warmup, 2000);
    assert_eq!(multi30k.training.batch_tokens, 4096);
    assert_eq!(multi30k.tokenizer.vocab_size, 4000);
    // §5: 25 000 tokens a batch, 4000 updates of warm-up, 100 000 and 300 000 updates; §6.1: the last 5 and 20.
    // Ten minutes are 1500 updates of 0.4 seconds, and 600 of one second (§5.2).
    for (name, preset, updates, interval, averaged) in [
        ("wmt14-base", Preset::Base, 100_000, 1500, 5),
        ("wmt14-big", Preset::Big, 300_000, 600, 20),
    ] {
        let (wmt, model) = run(name);
        assert_eq!(model, preset.config(4));
        let training = &wmt.training;
        assert_eq!(training.batch_tokens * training.batches_per_update, 25_000);
        assert_eq!((training.warmup, training.updates), (4000, updates));
        assert_eq!((training.peak_rate, training.label_smoothing), (None, 0.1));
        assert_eq!(wmt.checkpoint.average_last, averaged);
        assert_eq!(wmt.checkpoint.keep_last, averaged);
        let every_updates = wmt.checkpoint.every_updates;
        assert_eq!(every_updates.unwrap_or(wmt.validation.every), interval);
        assert_eq!(wmt.tokenizer.vocab_size, 37_000);
    }
}

/// Only the settings that make a recipe's run long are replaced.
#[test]
fn ready_files_train_on_any_pairs() {
    let folder = folder();
    let pairs = corpus(folder.path());
    let set = format!("data.train={}", pairs.display());
    let valid = format!("data.valid={}", pairs.display());
    let tiny = [
        "model.preset=tiny",
        "tokenizer.vocab_size=300",
        "training.batch_tokens=200",
        "training.updates=2",
        "training.warmup=1",
        "validation.every=2",
        "validation.sentences=5",
    ];
    for (name, numbers) in [
        ("multi30k", ["BLEU", "chrF"]),
        ("g2p", ["Token error rate %", "WER %"]),
        ("inflection", ["Exact match %", "Token error rate %"]),
    ] {
        let out = folder.path().join(name);
        let mut command = train(&configs()[name], &out);
        command.args(["--set", &set, "--set", &valid]);
        for setting in tiny {
            command.args(["--set", setting]);
        }
        let printed = succeeds(&mut command);
        assert!(printed.contains("done: 2 updates"), "{name}: {printed}");
        assert_eq!(read(&out.join("run.toml")).model.d_model, Some(128));
        let record = RunRecord::load(&out).expect("a record").expect("a run");
        let measured: Vec<_> = record.validations[0].numbers.keys().collect();
        assert_eq!(measured, numbers, "{name}");
    }
}

/// Also when that model is gone.
#[test]
fn a_run_starts_from_a_model_with_its_tokenizer_and_goes_on_by_itself() {
    let (folder, model) = trained();
    let out = folder.path().join("tuned");
    let start = || {
        let mut command = program("train");
        command.args(["--hold-out", "10", "--batch-tokens", "200"]);
        command.args(["--updates", "2", "--validate-every", "2", "--warmup", "4"]);
        command.args(["--set", "init.continue_schedule=true"]);
        command.args(["--set", "init.freeze=[\"encoder.*\"]", "--set"]);
        command.arg(format!("init.model={}", model.display()));
        command.arg("--data").arg(corpus(folder.path()));
        command.arg("--out").arg(&out);
        command
    };
    let mut dry_run = program("train");
    dry_run.args(["--dry-run", "--set", "init.freeze=[\"encoder.*\"]", "--set"]);
    dry_run.arg(format!("init.model={}", model.display()));
    let report = succeeds(dry_run.arg("--data").arg(corpus(folder.path())));
    let (parameters, frozen) = (
        count(&report, " parameters"),
        count(&report, " of them frozen"),
    );
    assert!(frozen > 0 && frozen < parameters / 2, "{report}");
    // What is frozen has weights, but no gradients and no moments.
    let parts = [
        ("weights", 4 * parameters),
        ("gradients", 4 * (parameters - frozen)),
        ("Adam's moments", 8 * (parameters - frozen)),
    ];
    for (name, bytes) in parts {
        let line = format!("{:.1} MiB of {name}", bytes as f64 / f64::from(1 << 20));
        assert!(report.contains(&line), "{line}: {report}");
    }
    let error = fails(start().args(["--preset", "small"]));
    assert!(
        error.contains("has no effect: the model is read from"),
        "{error}"
    );
    let error = fails(start().args(["--set", "model.d_ff=64"]));
    assert!(
        error.contains("from which only dropout may differ"),
        "{error}"
    );
    for (arguments, subject) in [
        (["--vocab-size", "300"], "--vocab-size 300"),
        (
            ["--set", "tokenizer.vocab_size=300"],
            "--set tokenizer.vocab_size=300",
        ),
    ] {
        let error = fails(start().args(arguments));
        let contradiction = "`tokenizer.vocab_size` has no effect together with `init.model`, which sets the tokenizer; remove one of the two";
        assert_eq!(error, format!("error: {subject}: {contradiction}"));
    }
    let printed = succeeds(start().args(["--set", "model.dropout=0.2"]));
    assert!(printed.contains(" tensors frozen"), "{printed}");
    // It records no key without effect, and can be given as it is.
    let written = out.join("run.toml");
    let text = fs::read_to_string(&written).expect("run.toml");
    let line = "# vocab_size has no effect together with init.model";
    assert!(text.lines().any(|found| found == line), "{text}");
    succeeds(
        program("train")
            .arg("--dry-run")
            .arg("--config")
            .arg(written),
    );

    let run = read(&out.join("run.toml"));
    assert_eq!((run.model.preset, run.model.d_ff), (None, Some(512)));
    assert_eq!(run.model.dropout, Some(0.2));
    let [one, other] = [&model, &out].map(|at| fs::read(at.join("tokenizer.json")).expect("it"));
    assert!(one == other);
    let record = RunRecord::load(&out).expect("a record").expect("a run");
    assert_eq!(record.config.schedule_start, 4);
    let before = encoder(&model);
    assert!(!before.is_empty() && before == encoder(&out));

    fs::remove_dir_all(&model).expect("the model");
    for (patterns, problem) in [
        ("[\"*coder.*\"]", "trained, not frozen"),
        ("", "frozen, not trained"),
    ] {
        let setting = format!("init.freeze={patterns}");
        let error = fails(resume(&out).args(["--updates", "4", "--set", &setting]));
        let expected = ": made with another `init.freeze`: `";
        assert!(
            error.contains(expected) && error.ends_with(problem),
            "{error}"
        );
    }
    let printed = succeeds(resume(&out).args(["--updates", "4"]));
    assert!(printed.contains("done: 4 updates"), "{printed}");
    assert!(before == encoder(&out));
}

/// The bytes of the encoder's tensors.
fn encoder(model: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = fs::read(model.join("model.safetensors")).expect("the weights");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let tensors = file.tensors().into_iter();
    let of_encoder = tensors.filter(|(name, _)| name.starts_with("encoder."));
    of_encoder
        .map(|(name, tensor)| (name, tensor.data().to_vec()))
        .collect()
}

#[test]
fn the_guide_has_every_key_and_no_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/config.md");
    let guide = fs::read_to_string(path).expect("the guide");
    let expected = reference();
    for line in expected.lines() {
        assert!(guide.lines().any(|found| found == line), "it lacks\n{line}");
    }
    assert!(guide.contains(&expected), "it has more, or another order");
}

/// `[default: 800]` in the help is the default of the key.
#[test]
fn the_help_has_the_defaults_of_the_keys() {
    let help = succeeds(program("train").arg("--help"));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let keys = SECTIONS.iter().flat_map(|section| section.keys);
    let mut checked = 0;
    for key in keys {
        let (Some(flag), Some(default)) = (key.flag, key.default()) else {
            continue;
        };
        let Some((_, about)) = help.split_once(&format!(" {flag} <")) else {
            panic!("no {flag} in {help}");
        };
        let Some((_, said)) = about.split_once("[default: ") else {
            panic!("no default for {flag}");
        };
        if default.is_integer() {
            let said = said.split_once(']').map(|(said, _)| said);
            assert_eq!(said, Some(&*default.to_string()), "{flag}");
            checked += 1;
        }
    }
    assert!(checked >= 8, "{checked}");
}

/// Keys that a resumed run may have with another value than before. FOLDER has `copy.tsv`, the pairs of the run,
/// `valid.tsv`, others, and `model`, another model.
const CHANGES: [(&str, &str); 22] = [
    ("data.train", "FOLDER/copy.tsv"),
    ("data.max_pieces", "127"),
    ("data.drop_duplicates", "true"),
    ("training.updates", "8"),
    ("training.minutes", "9.0"),
    ("training.skip_limit", "3"),
    ("training.max_wait_minutes", "9.0"),
    ("validation.every", "1"),
    ("validation.metrics", "[\"exact_match\"]"),
    ("validation.beam", "2"),
    ("validation.length_penalty", "0.5"),
    ("validation.sentences", "3"),
    ("validation.samples", "1"),
    ("validation.best_by", "accuracy"),
    ("validation.patience", "9"),
    ("checkpoint.every_updates", "1"),
    ("checkpoint.every_minutes", "9.0"),
    ("checkpoint.keep_last", "3"),
    ("checkpoint.keep_best", "1"),
    ("checkpoint.average_last", "2"),
    ("log.json", "false"),
    ("log.tensorboard", "true"),
];

/// Keys of which it keeps its own value, and says so.
const IGNORED: [(&str, &str); 3] = [
    ("tokenizer.kind", "words"),
    ("tokenizer.vocab_size", "400"),
    ("tokenizer.dropout", "0.1"),
];

/// Keys with another value that is refused, and part of the error. NOT is the opposite of the value before.
const REFUSED: [(&str, &str, &str); 57] = [
    (
        "data.train",
        "{ file = \"FOLDER/copy.tsv\", weight = 2 }",
        "`data.train` differs from the run",
    ),
    (
        "data.train",
        "FOLDER/missing.tsv",
        "missing.tsv: cannot open",
    ),
    (
        "data.valid",
        "FOLDER/valid.tsv",
        "`data.hold_out` has no effect together with `data.valid`",
    ),
    ("data.hold_out", "9", "`data.hold_out` differs from the run"),
    (
        "data.max_pieces",
        "7",
        "`data.max_pieces` differs from the run",
    ),
    (
        "data.max_ratio",
        "1.0",
        "`data.max_ratio` differs from the run",
    ),
    (
        "tokenizer.target_kind",
        "words",
        "`tokenizer.shared` = true: contradicts",
    ),
    (
        "tokenizer.shared",
        "false",
        "whose vocabularies are separate",
    ),
    (
        "tokenizer.file",
        "FOLDER/model/tokenizer.json",
        "has no effect together with `tokenizer.file`",
    ),
    (
        "tokenizer.source_file",
        "FOLDER/model/tokenizer.json",
        "has no effect together with `tokenizer.source_file`",
    ),
    (
        "tokenizer.target_file",
        "FOLDER/model/tokenizer.json",
        "needs `tokenizer.source_file`",
    ),
    (
        "model.preset",
        "small",
        "made with `model.d_ff` 512, not 1024",
    ),
    ("model.d_model", "64", "made with"),
    ("model.n_heads", "8", "made with"),
    (
        "model.decoder_n_heads",
        "2",
        "made without `model.decoder_n_heads`",
    ),
    ("model.n_kv_heads", "1", "made without `model.n_kv_heads`"),
    ("model.d_k", "16", "made without `model.d_k`"),
    ("model.d_v", "16", "made without `model.d_v`"),
    ("model.d_ff", "64", "made with"),
    (
        "model.decoder_d_ff",
        "64",
        "made without `model.decoder_d_ff`",
    ),
    ("model.n_encoder_layers", "1", "made with"),
    ("model.n_decoder_layers", "1", "made with"),
    ("model.norm", "pre", "norm"),
    ("model.final_norm", "NOT", "made with"),
    ("model.layer_norm", "unbiased-deviation", "made with"),
    ("model.layer_norm_eps", "1e-3", "made with"),
    (
        "model.positions",
        "{ learned = { max_len = 256 } }",
        "made with",
    ),
    ("model.attention_bias", "NOT", "made with"),
    (
        "model.feed_forward_bias",
        "false",
        "made without `model.feed_forward_bias`",
    ),
    ("model.generator_bias", "NOT", "made with"),
    ("model.embedding_scale", "NOT", "made with"),
    (
        "model.embedding_norm",
        "true",
        "made without `model.embedding_norm`",
    ),
    ("model.tying", "none", "made with"),
    ("model.activation", "gelu", "made with"),
    ("model.gated", "true", "made without `model.gated`"),
    (
        "model.decoder_mixer",
        "recurrence",
        "made without `model.decoder_mixer`",
    ),
    (
        "model.attention_scale",
        "false",
        "made without `model.attention_scale`",
    ),
    (
        "model.generator_scale",
        "true",
        "made without `model.generator_scale`",
    ),
    ("model.dropout", "0.3", "made with"),
    ("model.attention_dropout", "0.3", "made with"),
    ("model.activation_dropout", "0.3", "made with"),
    ("init.model", "FOLDER/model", "did not start from a model"),
    ("init.source_lang", "en", "needs `init.model`"),
    ("init.target_lang", "en", "needs `init.model`"),
    (
        "init.freeze",
        "[\"encoder.*\"]",
        "made with another `init.freeze`",
    ),
    ("init.continue_schedule", "true", "needs `init.model`"),
    ("training.seed", "2", "made with"),
    ("training.batch_tokens", "100", "made with"),
    ("training.batches_per_update", "2", "made with"),
    ("training.schedule", "constant", "made with"),
    ("training.warmup", "9", "made with"),
    ("training.peak_rate", "0.001", "made without"),
    ("training.weight_decay", "0.1", "made with"),
    ("training.label_smoothing", "0.2", "made with"),
    ("training.clip_norm", "1.0", "made without"),
    ("training.precision", "bf16", "made with"),
    ("training.ema_decay", "0.9", "made without"),
];

/// The values in the `run.toml` of a run.
fn written(out: &Path) -> toml::Table {
    let text = fs::read_to_string(out.join("run.toml")).expect("run.toml");
    text.parse().expect("TOML")
}

/// The value of a key there, if it has one.
fn value<'a>(written: &'a toml::Table, key: &str) -> Option<&'a toml::Value> {
    let (section, name) = key.split_once('.').expect("a section");
    written[section].get(name)
}

/// Each key has its effect, is refused, or is said to be ignored; `run.toml` describes the run in any case.
#[test]
fn every_key_of_a_resumed_run_has_its_effect_or_is_refused_or_is_said_to_be_ignored() {
    let (own, model) = trained();
    let folder = own.path().display().to_string();
    fs::copy(corpus(own.path()), own.path().join("copy.tsv")).expect("a copy");
    file(own.path(), "valid.tsv", "one\tun\n");
    let out = own.path().join("run");
    succeeds(&mut train_for(2, own.path(), &out));
    let before = fs::read(out.join("run.toml")).expect("run.toml");
    let old = written(&out);
    let setting = |key: &str, text: &str| {
        let text = match text {
            "NOT" => (!value(&old, key)
                .and_then(toml::Value::as_bool)
                .expect("a bool"))
            .to_string(),
            text => text.replace("FOLDER", &folder),
        };
        format!("{key}={text}")
    };

    for (key, text, expected) in REFUSED {
        let error = fails(resume(&out).args(["--updates", "3", "--set", &setting(key, text)]));
        assert!(error.contains(expected), "{key}: {error}");
        let (_, name) = key.split_once('.').expect("a section");
        let names_it = expected != "made with" || error.contains(name);
        assert!(names_it, "{key}: {error}");
        let now = fs::read(out.join("run.toml")).expect("run.toml");
        assert!(now == before, "{key}");
    }

    for (updates, (key, text)) in ["3", "4", "5"].into_iter().zip(IGNORED) {
        let output =
            support::run(resume(&out).args(["--updates", updates, "--set", &setting(key, text)]));
        let err = support::stderr(&output);
        assert!(output.status.success(), "{key}: {err}");
        assert!(
            err.contains("a resumed run keeps its tokenizer"),
            "{key}: {err}"
        );
        assert_eq!(value(&written(&out), key), value(&old, key), "{key}");
    }

    let mut command = resume(&out);
    for (key, text) in CHANGES {
        command.args(["--set", &setting(key, text)]);
    }
    let printed = succeeds(&mut command);
    assert!(printed.contains("done: 8 updates"), "{printed}");
    let now = written(&out);
    for (key, text) in CHANGES {
        let found = value(&now, key)
            .map(ToString::to_string)
            .unwrap_or_default();
        let expected = text.replace("FOLDER", &folder);
        assert_eq!(found.trim_matches('"'), expected, "{key}");
        assert_ne!(value(&now, key), value(&old, key), "{key}");
    }
    let record = RunRecord::load(&out).expect("a record").expect("a run");
    let validated: Vec<_> = record.validations.iter().map(|one| one.update).collect();
    assert_eq!(validated, [2, 3, 4, 5, 6, 7, 8]);
    assert!(record.validations[6].numbers.contains_key("Exact match %"));
    assert_eq!(record.averages.len(), 1);
    assert!((3..=4).contains(&record.checkpoints.len()));
    assert!(out.join("tensorboard").exists());

    let mut keys: Vec<_> = REFUSED.iter().map(|(key, ..)| *key).collect();
    keys.extend(CHANGES.iter().chain(&IGNORED).map(|(key, _)| *key));
    for key in SECTIONS.iter().flat_map(|section| section.keys) {
        assert!(keys.contains(&key.path), "{} is in no table", key.path);
    }
    assert!(model.exists());
}

/// Of its own run, of the model that it began from, or the mean; a run without the file, of an earlier version, gets
/// none.
#[test]
fn a_trained_model_searches_with_the_length_penalty_of_its_run() {
    let (folder, model) = trained();
    let options = |directory: &Path| DecodeOptions::of_directory(directory).expect("options");
    let penalty = |directory: &Path| {
        let options = options(directory).expect("a file");
        let length_penalty = options.length_penalty;
        let others = DecodeOptions {
            length_penalty,
            ..DecodeOptions::default()
        };
        assert_eq!(options, others);
        length_penalty
    };
    assert_eq!(penalty(&model), LengthPenalty::AVERAGE);
    let checkpoints = fs::read_dir(model.join("checkpoints")).expect("checkpoints");
    for checkpoint in checkpoints {
        let checkpoint = checkpoint.expect("a checkpoint").path();
        assert_eq!(penalty(&checkpoint), LengthPenalty::AVERAGE);
    }

    let data = corpus(folder.path());
    let tune = |name: &str, flags: &[&str]| {
        let out = folder.path().join(name);
        let mut command = program("train");
        command.args(["--hold-out", "10", "--updates", "1"]);
        command.arg("--init").arg(&model).arg("--data").arg(&data);
        succeeds(command.args(flags).arg("--out").arg(&out));
        out
    };
    let set = ["--set", "validation.length_penalty=0.5"];
    let tuned = tune("tuned", &set);
    assert_eq!(penalty(&tuned), LengthPenalty::Power(0.5));
    succeeds(resume(&tuned).args(["--updates", "2"]));
    assert_eq!(penalty(&tuned), LengthPenalty::Power(0.5));
    succeeds(resume(&tuned).args(["--updates", "3", "--set", "validation.length_penalty=2"]));
    assert_eq!(penalty(&tuned), LengthPenalty::Power(2.0));

    // Taken back, it is the model's that the run began from.
    succeeds(resume(&tuned).args(["--updates", "4", "--set", "validation.length_penalty="]));
    assert_eq!(penalty(&tuned), LengthPenalty::AVERAGE);

    // A file that was changed by hand is kept, with the keys that the program does not know.
    let changed = r#"{"num_beams": 4, "early_stopping": true, "length_penalty": 0.9, "note": 1}"#;
    fs::write(tuned.join(GENERATION_FILE), changed).expect("written");
    succeeds(resume(&tuned).args(["--updates", "5"]));
    let now = fs::read_to_string(tuned.join(GENERATION_FILE)).expect("a file");
    assert_eq!(now, changed);
    fs::copy(tuned.join(GENERATION_FILE), model.join(GENERATION_FILE)).expect("copied");
    assert_eq!(penalty(&tune("again", &[])), LengthPenalty::Power(0.9));

    fs::remove_file(model.join(GENERATION_FILE)).expect("removed");
    let updates = RunRecord::load(&model).expect("a record").expect("a run");
    let more = (updates.updates + 1).to_string();
    succeeds(resume(&model).args(["--updates", &more]));
    assert_eq!(options(&model), None);
    let error = fails(resume(&model).args(["--set", "validation.length_penalty=inf"]));
    let expected = "error: --set validation.length_penalty=inf: must be finite";
    assert_eq!(error, expected);
}

/// Otherwise a worse model could be the best, by easier sentences or a larger beam.
#[test]
fn a_run_that_keeps_the_best_translations_translates_alike() {
    let folder = folder();
    let config = file(folder.path(), "run.toml", short(folder.path()));
    let out = folder.path().join("model");
    let by = [
        "--set",
        "validation.metrics=[\"chrf\"]",
        "--set",
        "validation.best_by=chrf",
    ];
    let mut command = train(&config, &out);
    succeeds(command.args(by).args(["--set", "validation.sentences=3"]));
    let error = fails(resume(&out).args(["--set", "validation.sentences=2"]));
    let expected = "error: --set validation.sentences=2: is 3 in the run, which keeps the model with the best \
                    \"chrf\" of its translations; keep it, or set `validation.best_by` to \"loss\"";
    assert_eq!(error, expected);
    fails(resume(&out).args(["--set", "validation.beam=2"]));
    // Nothing was chosen by another metric yet.
    let other = ["--set", "validation.metrics=[\"bleu\", \"chrf\"]"];
    let by_bleu = [
        "--set",
        "validation.best_by=bleu",
        "--set",
        "validation.beam=2",
    ];
    let mut command = resume(&out);
    succeeds(command.args(other).args(by_bleu).arg("--dry-run"));
    // Greedy decoding has no length penalty.
    succeeds(resume(&out).args(["--set", "validation.length_penalty=0.5"]));
    let loss = [
        "--set",
        "validation.best_by=loss",
        "--set",
        "validation.sentences=2",
    ];
    succeeds(resume(&out).args(loss));
}

/// By `--init` or by its absence, whether the model is there or not, and before the first checkpoint, too.
#[test]
fn a_resumed_run_keeps_the_model_that_it_began_from() {
    let (folder, first) = trained();
    let [out, other] = ["run", "other"].map(|name| folder.path().join(name));
    succeeds(&mut train_for(2, folder.path(), &other));
    let data = corpus(folder.path());
    let tuned = |init: &Path| {
        let mut command = program("train");
        command.args(["--hold-out", "10", "--batch-tokens", "200", "--warmup", "4"]);
        command.arg("--init").arg(init).arg("--data").arg(&data);
        command.arg("--out").arg(&out);
        command
    };
    succeeds(tuned(&first).args(["--updates", "2"]));
    let file_of_run = out.join("run.toml");
    let before = fs::read(&file_of_run).expect("run.toml");
    let nowhere = folder.path().join("nowhere");
    let config = file(
        folder.path(),
        "plain.toml",
        format!("data.train = \"{}\"\n", data.display()),
    );
    let (run, began) = (out.display(), first.display());
    let refused = || {
        let rule =
            format!("the run in {run} started from {began}; start a new run with another --out");
        for init in [&other, &nowhere] {
            let error = fails(resume(&out).args(["--updates", "4", "--init"]).arg(init));
            assert_eq!(error, format!("error: --init {}: {rule}", init.display()));
        }
        let error = fails(
            resume(&out)
                .args(["--updates", "4", "--config"])
                .arg(&config),
        );
        let rule = format!("the run in {run} started from {began}; name that model with --init");
        assert_eq!(error, format!("error: `init.model` = absent: {rule}"));
        assert!(fs::read(&file_of_run).expect("run.toml") == before);
    };
    refused();
    let error =
        fails(resume(&out).args(["--updates", "4", "--set", "init.continue_schedule=true"]));
    let expected =
        format!("error: --set init.continue_schedule=true: is false in the run in {run}");
    assert_eq!(error, expected);

    // By another name; and as it was started, though the model is gone.
    let same = first.join("../model");
    succeeds(resume(&out).args(["--updates", "3", "--init"]).arg(same));
    fs::rename(&first, &nowhere).expect("renamed");
    fs::write(&file_of_run, &before).expect("written");
    succeeds(tuned(&first).args(["--updates", "4", "--resume"]));
    fs::rename(&nowhere, &first).expect("renamed");

    // As if it had been killed before its first checkpoint.
    fs::remove_dir_all(out.join("checkpoints")).expect("checkpoints");
    for name in ["config.json", "model.safetensors"] {
        fs::remove_file(out.join(name)).expect("a file");
    }
    fs::write(&file_of_run, &before).expect("written");
    refused();
    succeeds(&mut resume(&out));
}

/// Which pairs are skipped depends on the size of a batch, too.
#[test]
fn a_run_without_a_checkpoint_reads_its_pairs_again_with_other_settings() {
    let folder = folder();
    let [out, fresh] = ["run", "fresh"].map(|name| folder.path().join(name));
    let train = |out: &Path, batch_tokens: &str| {
        let mut command = train_for(2, folder.path(), out);
        let setting = format!("training.batch_tokens={batch_tokens}");
        succeeds(command.args(["--resume", "--set", &setting]));
    };
    train(&out, "200");
    fs::remove_dir_all(out.join("checkpoints")).expect("checkpoints");
    for name in ["config.json", "model.safetensors"] {
        fs::remove_file(out.join(name)).expect("a file");
    }
    train(&out, "8");
    train(&fresh, "8");
    let [found, expected] = [&out, &fresh].map(|out| fs::read(out.join("train.cache")));
    assert!(found.expect("a cache") == expected.expect("a cache"));
}

/// Whatever ends the command while it copies the pairs: here a directory in the place of the copy.
#[test]
fn a_run_keeps_its_run_toml_while_its_pairs_are_copied() {
    let folder = folder();
    let out = folder.path().join("run");
    let mut command = train_for(2, folder.path(), &out);
    succeeds(command.args(["--set", "training.label_smoothing=0.05"]));
    let [data, moved] = ["corpus.tsv", "moved.tsv"].map(|name| folder.path().join(name));
    fs::rename(data, &moved).expect("renamed");
    fs::remove_file(out.join("train.tsv")).expect("the copy");
    fs::create_dir(out.join("train.tsv")).expect("a directory");
    let before = fs::read(out.join("run.toml")).expect("run.toml");
    let error = fails(resume(&out).args(["--updates", "3", "--data"]).arg(&moved));
    assert!(error.contains("train.tsv"), "{error}");
    assert!(fs::read(out.join("run.toml")).expect("run.toml") == before);
}

/// Nothing can be read again with other settings.
#[test]
fn a_run_whose_data_are_gone_keeps_its_keys_of_data_and_says_so() {
    let folder = folder();
    let out = folder.path().join("run");
    succeeds(&mut train_for(2, folder.path(), &out));
    let data = folder.path().join("corpus.tsv");
    fs::remove_file(&data).expect("the corpus");
    let mut command = resume(&out);
    command.args(["--updates", "3", "--hold-out", "9", "--max-pieces", "64"]);
    let output = support::run(&mut command);
    let err = support::stderr(&output);
    assert!(output.status.success(), "{err}");
    let note = format!(
        "{} is missing: continuing with the pairs in {}, ignoring `data.hold_out`, `data.max_pieces`",
        data.display(),
        out.display()
    );
    assert!(err.lines().any(|line| line == note), "{err}");
    let run = read(&out.join("run.toml"));
    assert_eq!((run.data.hold_out, run.data.max_pieces), (Some(10), 128));
}

/// A run of an earlier version may have both in its `run.toml`.
#[test]
fn pairs_are_not_held_out_beside_pairs_to_validate_on() {
    let folder = folder();
    let out = folder.path().join("run");
    let valid = file(folder.path(), "valid.tsv", "one\tun\n");
    let mut command = train_for(2, folder.path(), &out);
    let error = fails(command.arg("--valid").arg(&valid));
    let expected = "error: --hold-out 10: `data.hold_out` has no effect together with `data.valid`, which sets the validation pairs; remove one of the two";
    assert_eq!(error, expected);
    assert!(!out.exists());
    succeeds(command.args(["--set", "data.hold_out="]));

    let path = out.join("run.toml");
    let text = fs::read_to_string(&path).expect("run.toml");
    let now = "# hold_out has no effect together with data.valid";
    assert!(text.contains(now), "{text}");
    fs::write(&path, text.replace(now, "hold_out = 10")).expect("written");
    succeeds(resume(&out).args(["--updates", "3"]));
    assert!(fs::read_to_string(&path).expect("run.toml").contains(now));
}
