//! A model argument that is no model ends every command in one line that says what it is.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::{fails, file, folder, program, with_model};

/// The commands that run a model, each with its advice for a file of text.
fn commands(model: &Path, folder: &Path) -> [(Command, Option<&'static str>); 5] {
    let pairs = file(folder, "pairs.tsv", "one\tun\n");
    let mut evaluate = with_model("evaluate", model);
    evaluate.arg("--data").arg(pairs);
    let mut attention = with_model("attention", model);
    attention.args(["--source", "one"]);
    let mut info = program("info");
    info.arg(model);
    [
        (
            with_model("translate", model),
            Some("for a file of sentences use --input"),
        ),
        (
            with_model("score", model),
            Some("for a file of sentence pairs use --input"),
        ),
        (evaluate, Some("for a file of sentence pairs use --data")),
        (attention, None),
        (info, None),
    ]
}

#[test]
fn a_directory_without_a_model_is_named() {
    let folder = folder();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).expect("a directory");
    // As a run leaves it that was killed before its first checkpoint.
    let begun = folder.path().join("begun");
    fs::create_dir_all(begun.join("checkpoints")).expect("a directory");
    for (directory, problem) in [
        (folder.path().join("nowhere"), ": no such directory"),
        (empty, " holds no model: no config.json"),
        (
            begun,
            " holds no model: no config.json; the training run there has not written its first checkpoint yet",
        ),
    ] {
        for (mut command, _) in commands(&directory, folder.path()) {
            let error = fails(&mut command);
            assert_eq!(error, format!("error: {}{problem}", directory.display()));
        }
    }
}

#[test]
fn a_file_of_text_is_told_its_flag() {
    let folder = folder();
    let text = file(folder.path(), "sentences.txt", "one and two\n");
    let name = text.display();
    for (mut command, advice) in commands(&text, folder.path()) {
        let end = match advice {
            Some(advice) => format!("; {advice} {name}"),
            None => ", but a file".into(),
        };
        let error = fails(&mut command);
        assert_eq!(
            error,
            format!("error: {name} is not a model directory{end}")
        );
    }
}

#[test]
fn a_file_of_a_model_is_told_that_its_directory_is_needed() {
    let folder = folder();
    let weights = file(folder.path(), "model.safetensors", "");
    for (mut command, _) in commands(&weights, folder.path()) {
        let error = fails(&mut command);
        let end = "is not a model directory; give the directory that the file is in";
        assert_eq!(error, format!("error: {} {end}", weights.display()));
    }
}

/// `translate --model DIR FILE`: the file becomes a second model.
#[test]
fn a_file_after_the_model_is_told_its_flag() {
    let folder = folder();
    let model = folder.path().join("model");
    fs::create_dir(&model).expect("a directory");
    // Not read: the file is found first.
    file(&model, "config.json", "");
    file(&model, "tokenizer.json", "");
    let text = file(folder.path(), "sentences.txt", "one and two\n");
    for (subcommand, what) in [("translate", "sentences"), ("score", "sentence pairs")] {
        let error = fails(with_model(subcommand, &model).arg(&text));
        let name = text.display();
        assert_eq!(
            error,
            format!(
                "error: {name} is not a model directory; for a file of {what} use --input {name}"
            )
        );
    }
}

#[test]
fn a_model_without_a_tokenizer_is_named() {
    let folder = folder();
    file(folder.path(), "config.json", "");
    let error = fails(&mut with_model("translate", folder.path()));
    let expected = format!("error: {} has no tokenizer.json", folder.path().display());
    assert_eq!(error, expected);
}

/// The kernel reports each time that the file is opened and closed; two equal reports in a row would be one.
#[cfg(target_os = "linux")]
#[test]
fn a_command_opens_the_configuration_once() {
    use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
    use std::mem::MaybeUninit;

    let (folder, ours) = support::trained();
    let marian = support::fixture("pretrained").join("marian-en-fr");
    let sentences = file(folder.path(), "input.txt", "one and two\n");
    let pairs = file(folder.path(), "pairs.tsv", "one\tun\n");
    let training = file(folder.path(), "training.tsv", "one\tun\ntwo\tdeux\n");
    let checkpoint = fs::read_dir(ours.join("checkpoints"))
        .expect("a folder of checkpoints")
        .map(|entry| entry.expect("an entry").path())
        .next()
        .expect("a checkpoint");
    for (number, model) in [&ours, &marian, &checkpoint].into_iter().enumerate() {
        let out = |name: &str| folder.path().join(format!("{name}-{number}"));
        let mut translate = with_model("translate", model);
        translate.args(["--alignments", "--input"]).arg(&sentences);
        let mut score = with_model("score", model);
        score.arg("--input").arg(&pairs);
        let mut evaluate = with_model("evaluate", model);
        evaluate
            .args(["--metrics", "bleu", "--data"])
            .arg(&pairs)
            .arg("--hypotheses")
            .arg(out("hypotheses"));
        let mut attention = with_model("attention", model);
        attention.args(["--source", "one", "--out"]);
        attention.arg(out("attention").with_extension("svg"));
        let mut quantize = with_model("quantize", model);
        quantize.arg("--out").arg(out("int8"));
        let mut tokenize = with_model("tokenize", model);
        tokenize.arg("--input").arg(&sentences);
        let mut info = program("info");
        info.arg(model);
        let mut train = program("train");
        train.args(["--updates", "1", "--hold-out", "1", "--data"]);
        train.arg(&training).arg("--init").arg(model);
        train.arg("--out").arg(out("trained"));
        let mut commands = vec![
            translate, score, evaluate, attention, quantize, tokenize, info, train,
        ];
        if *model == marian {
            let mut export = with_model("export", model);
            export.arg("--out").arg(out("export"));
            commands.push(export);
        }
        for mut command in commands {
            let watch = init(CreateFlags::NONBLOCK).expect("inotify");
            let config = model.join("config.json");
            add_watch(&watch, &config, WatchFlags::OPEN | WatchFlags::CLOSE).expect("a watch");
            support::succeeds(&mut command);
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut events = Reader::new(&watch, &mut buffer);
            let mut count = 0;
            while events.next().is_ok() {
                count += 1;
            }
            assert_eq!(count, 2, "opened and closed once: {command:?}");
        }
    }
}
