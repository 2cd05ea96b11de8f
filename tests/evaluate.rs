//! Measuring a model on sentence pairs.

mod support;

use std::fs;

use support::{fails, file, program, run, stderr, stdout, succeeds, trained, with_model};

#[test]
fn a_model_is_measured_by_loss_bleu_and_chrf() {
    let (_folder, model) = trained();
    let data = model.join("valid.tsv");
    let out = succeeds(with_model("evaluate", &model).arg("--data").arg(&data));
    assert!(out.contains("perplexity"), "{out}");
    assert!(
        out.contains("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"),
        "{out}"
    );
    assert!(out.contains("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no"));
}

#[test]
fn two_parallel_files_are_measured_as_one_of_pairs() {
    let (folder, model) = trained();
    let data = model.join("valid.tsv");
    let pairs = fs::read_to_string(&data).expect("the pairs of the run");
    let [sources, targets] = ["valid.en", "valid.fr"].map(|name| folder.path().join(name));
    let columns = pairs
        .lines()
        .map(|pair| pair.split_once('\t').expect("a tab"));
    let (source, target): (Vec<_>, Vec<_>) = columns.unzip();
    for (path, lines) in [(&sources, source), (&targets, target)] {
        fs::write(path, lines.join("\n") + "\n").expect("a file of sentences");
    }
    let expected = succeeds(with_model("evaluate", &model).arg("--data").arg(&data));
    let mut parallel = with_model("evaluate", &model);
    parallel.arg("--parallel").args([&sources, &targets]);
    assert_eq!(succeeds(&mut parallel), expected);
}

/// The line of the output that begins with this.
fn line<'a>(out: &'a str, start: &str) -> &'a str {
    let line = out.lines().find(|line| line.starts_with(start));
    line.unwrap_or_else(|| panic!("no line begins with `{start}`: {out}"))
}

#[test]
fn metrics_are_those_asked_for_or_those_of_the_run() {
    let (_folder, model) = trained();
    let data = model.join("valid.tsv");
    let evaluate = || {
        let mut command = with_model("evaluate", &model);
        command.arg("--data").arg(&data).args(["--beam", "1"]);
        command
    };
    let out = succeeds(evaluate().args(["--metrics", "token_error_rate,wer,exact_match"]));
    assert!(!out.contains("BLEU") && !out.contains("chrF"), "{out}");
    assert!(line(&out, "token error rate = ").contains(" %  "), "{out}");
    // A model of four updates translates none of ten pairs exactly.
    let wer = "WER = 100.00 %  10 of 10 lines are not exactly right";
    assert_eq!(line(&out, "WER"), wer);
    let right = "exact match = 0.00 %  0 of 10 lines are exactly right";
    assert_eq!(line(&out, "exact match"), right);

    // The run's own metrics, where the model's directory has its file.
    fs::write(
        model.join("run.toml"),
        "[validation]\nmetrics = [\"wer\"]\n",
    )
    .expect("a run's file");
    let out = succeeds(&mut evaluate());
    assert_eq!(line(&out, "WER"), wer);
    assert!(!out.contains("BLEU"), "{out}");
    let out = succeeds(evaluate().args(["--metrics", "bleu"]));
    assert!(out.contains("BLEU = ") && !out.contains("WER"), "{out}");

    let output = run(evaluate().args(["--metrics", "wer,ter"]));
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    assert!(error.contains("'ter'") && error.contains("wer"), "{error}");
}

#[test]
fn pairs_that_cannot_be_used_are_left_out_with_a_note() {
    let (folder, model) = trained();
    let data = file(folder.path(), "some.tsv", "one\tun\ntwo\t\n\ttrois\n");
    let mut command = with_model("evaluate", &model);
    command.args(["--beam", "1", "--metrics", "wer", "--data"]);
    let output = run(command.arg(data));
    assert!(output.status.success(), "{}", stderr(&output));
    let note = "2 pairs are skipped: a side is empty";
    assert!(stderr(&output).lines().any(|line| line == note));
    assert!(
        stdout(&output).contains(" of 1 line"),
        "{}",
        stdout(&output)
    );
}

/// The mean of equal models is that of each: an ensemble of them is one of them.
#[test]
fn an_ensemble_is_measured_as_one_model() {
    let (_folder, model) = trained();
    let data = model.join("valid.tsv");
    let evaluate = |models: usize| {
        let mut command = program("evaluate");
        command.arg("--model").args(vec![&model; models]);
        command.arg("--data").arg(&data);
        // Few choices between tokens, so that none is so close that the mean's rounding could decide it.
        command.args(["--beam", "1", "--max-length", "5"]);
        succeeds(command.args(["--metrics", "bleu,chrf,token_error_rate"]))
    };
    let (one, five) = (evaluate(1), evaluate(5));
    for start in ["BLEU", "chrF2", "token error rate"] {
        assert_eq!(line(&one, start), line(&five, start));
    }
    let perplexity = |out: &str| {
        let from = out.find("perplexity ").expect("a perplexity") + "perplexity ".len();
        let number = out[from..].split_whitespace().next().expect("a number");
        number.parse::<f64>().expect("a number")
    };
    let (one, other) = (perplexity(&one), perplexity(&five));
    assert!((one / other - 1.0).abs() < 1e-4, "{one} and {other}");
    assert!(line(&five, "nll ").ends_with("  ensemble of 5 models"));
}

/// Attention needs memory by the square of a sentence's tokens, on either side.
#[test]
fn a_pair_that_is_too_long_is_named() {
    let (folder, model) = trained();
    let long = "x ".repeat(2000);
    for (side, text) in [
        ("source", format!("one\tun\n\n{long}\tdeux\n")),
        ("target", format!("one\tun\n\ntwo\t{long}\n")),
    ] {
        let data = file(folder.path(), "long.tsv", text);
        let error = fails(with_model("evaluate", &model).arg("--data").arg(&data));
        let named = format!("error: {}: line 3: the {side} has ", data.display());
        assert!(error.starts_with(&named), "{error}");
        assert!(
            error.ends_with("tokens, more than the limit of 1024; see --max-source-length"),
            "{error}"
        );
    }
}

/// Before the model is read, which may take long, as its loss does.
#[test]
fn translations_that_cannot_be_written_are_an_error_before_anything_is_computed() {
    let (folder, model) = trained();
    let nowhere = folder.path().join("nowhere");
    let missing = nowhere.join("file.txt");
    let weights = model.join("model.safetensors");
    for (path, problem) in [
        (
            folder.path(),
            format!("{}: is a directory", folder.path().display()),
        ),
        (
            weights.as_path(),
            format!(
                "{}: is an input file, and would be overwritten",
                weights.display()
            ),
        ),
        (
            missing.as_path(),
            format!("{}: no such directory", nowhere.display()),
        ),
    ] {
        let mut command = with_model("evaluate", &model);
        command.arg("--data").arg(model.join("valid.tsv"));
        let output = run(command.arg("--hypotheses").arg(path));
        assert_eq!(output.status.code(), Some(1));
        // Not even the backend's name.
        assert_eq!(stderr(&output), format!("error: {problem}\n"));
        assert_eq!(stdout(&output), "");
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_is_read_is_not_overwritten() {
    let (folder, model) = trained();
    let valid = model.join("valid.tsv");
    let before = fs::read(&valid).expect("pairs");
    let mut command = with_model("evaluate", &model);
    command.arg("--data").arg(&valid).arg("--hypotheses");
    let error = fails(command.arg(&valid));
    assert!(
        error.ends_with("is an input file, and would be overwritten"),
        "{error}"
    );
    assert!(fs::read(&valid).expect("pairs") == before);

    // A checkpoint's tokenizer is its run's.
    let mut checkpoints = fs::read_dir(model.join("checkpoints")).expect("checkpoints");
    let checkpoint = checkpoints.next().expect("one").expect("one").path();
    let tokenizer = model.join("tokenizer.json");
    let mut command = with_model("evaluate", &checkpoint);
    command.arg("--data").arg(&valid).arg("--hypotheses");
    let error = fails(command.arg(&tokenizer));
    assert!(
        error.ends_with("is an input file, and would be overwritten"),
        "{error}"
    );

    // The file that a link leads to is replaced, not the link.
    let file = folder.path().join("file.txt");
    let link = folder.path().join("link.txt");
    fs::write(&file, "").expect("a file");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let mut command = with_model("evaluate", &model);
    command.arg("--data").arg(&valid).arg("--hypotheses");
    succeeds(command.arg(&link));
    assert!(!fs::read_to_string(&file).expect("translations").is_empty());
}
