//! Text that is read and shown, in every command: control characters, `-`, byte-order marks, compressed files.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use support::{
    corpus, fails, file, fixture, program, run, run_on_input, stderr, stdout, succeeds, train,
    trained, with_model,
};

/// Whether XML 1.0 allows a character (its production `Char`), those apart that it discourages.
fn is_of_xml(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | '\u{20}'..='\u{7e}' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
        | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn assert_is_xml(svg: &str) {
    assert_eq!(svg.chars().find(|&character| !is_of_xml(character)), None);
    assert!(svg.contains('\u{fffd}'), "{svg}");
}

/// Lines that a terminal shows as they are.
fn assert_is_harmless(shown: &str) {
    let obeyed = |character: char| character.is_control() && character != '\n';
    assert_eq!(shown.find(obeyed), None, "{shown:?}");
}

#[test]
fn a_picture_of_tokens_with_control_characters_is_xml() {
    let folder = support::folder();
    let model = fixture("pretrained/bart");
    for name in ["a.svg", "a.png"] {
        let out = folder.path().join(name);
        let mut command = with_model("attention", &model);
        let source = "a\u{1}b \u{1b}[31m\u{7f}\u{90}\u{fffe}\u{ffff}";
        command.args(["--source", source, "--target", "\u{8}a"]);
        assert_is_harmless(&succeeds(command.arg("--out").arg(&out)));
        match name {
            "a.svg" => assert_is_xml(&fs::read_to_string(&out).expect("a picture")),
            _ => assert!(fs::read(&out).expect("a picture").starts_with(b"\x89PNG")),
        }
    }
}

#[cfg(unix)]
#[test]
fn a_picture_of_a_run_with_control_characters_is_xml() {
    let (folder, model) = trained();
    let odd = folder.path().join("a\u{1b}[31m\u{1}\nb");
    fs::rename(&model, &odd).expect("renamed");
    // A measure that the program does not know, as of a library's run.
    let log = odd.join("log.jsonl");
    let text = fs::read_to_string(&log).expect("the log");
    let named = text.replace("\"numbers\":{", "\"numbers\":{\"\\u001b]0;\":1.0");
    assert_ne!(named, text);
    fs::write(&log, named).expect("written");
    let out = folder.path().join("a.svg");
    let printed = succeeds(program("curves").arg(&odd).arg("--out").arg(&out));
    assert_is_harmless(&printed);
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert_is_xml(&fs::read_to_string(&out).expect("a picture"));

    fs::write(odd.join("\u{1b}[2J\n"), "").expect("a file");
    assert_is_harmless(&succeeds(program("info").arg(&odd)));
}

#[test]
fn lines_about_text_with_control_characters_are_harmless() {
    let folder = support::folder();
    let none = folder.path().join("\u{1b}[31m\u{90}none");
    let error = fails(program("translate").arg("--model").arg(&none));
    assert_is_harmless(&error);
    assert!(
        error.ends_with("\u{fffd}[31m\u{fffd}none: no such directory"),
        "{error}"
    );

    // Samples of a run, which displays show; the files have the text as it is.
    let pairs = "one \u{1b}[2J and\tun\u{7} et\n";
    let valid = file(folder.path(), "valid.tsv", pairs);
    let out = folder.path().join("model");
    let mut command = train(folder.path(), &out);
    command.args(["--plain", "--set", "validation.samples=1"]);
    command.args(["--set", "data.hold_out=", "--valid"]);
    let printed = succeeds(command.arg(valid));
    assert_is_harmless(&printed);
    assert!(
        printed.contains("  source      one \u{fffd}[2J and\n"),
        "{printed}"
    );
    assert!(
        printed.contains("  reference   un\u{fffd} et\n"),
        "{printed}"
    );
    let saved = fs::read_to_string(out.join("valid.tsv")).expect("pairs");
    assert_eq!(saved, pairs);
}

/// By `script`, which gives a command a terminal.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_gets_no_control_character_of_a_translation() {
    let (_folder, model) = trained();
    let translate = || {
        let mut command = with_model("translate", &model);
        command.args(["--max-length", "3", "--prefix", "\u{7}"]);
        command
    };
    let piped = stdout(&run_on_input(&mut translate(), b"one"));
    assert!(piped.starts_with('\u{7}'), "{piped:?}");

    let line: Vec<_> = [translate().get_program()]
        .into_iter()
        .chain(translate().get_args())
        .map(|word| format!("'{}'", word.display()))
        .collect();
    let mut command = Command::new("script");
    let line = format!("echo one | {} 2>/dev/null", line.join(" "));
    let shown = stdout(&run(command.args(["-qec", &line, "/dev/null"])));
    assert_eq!(
        shown,
        piped.replace('\u{7}', "\u{fffd}").replace('\n', "\r\n")
    );
}

/// The output of a command that must succeed on this input.
fn answer(command: &mut Command, input: &str) -> Output {
    let output = run_on_input(command, input.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

#[test]
fn a_dash_is_the_standard_stream() {
    let (folder, model) = trained();
    let pairs = "one\tun\ntwo\tdeux\n";
    for (command, flag) in [
        ("translate", "--input"),
        ("score", "--input"),
        ("tokenize", "--input"),
    ] {
        let plain = answer(&mut with_model(command, &model), pairs);
        let dash = answer(with_model(command, &model).args([flag, "-"]), pairs);
        assert_eq!(stdout(&dash), stdout(&plain), "{command}");
    }

    let data = file(folder.path(), "pairs.tsv", pairs);
    let evaluate = || {
        let mut command = with_model("evaluate", &model);
        command.args(["--beam", "1", "--metrics", "wer,bleu"]);
        command
    };
    let translations = folder.path().join("translations");
    let mut command = evaluate();
    let command = command.arg("--data").arg(&data).arg("--hypotheses");
    let measures = succeeds(command.arg(&translations));
    let output = answer(evaluate().args(["--data", "-", "--hypotheses", "-"]), pairs);
    let translations = fs::read_to_string(translations).expect("translations");
    assert_eq!(stdout(&output), translations);
    assert!(stderr(&output).ends_with(&measures), "{}", stderr(&output));
    let output = run_on_input(evaluate().args(["--data", "-"]), b"one\tun\nno tab\n");
    let error = stderr(&output);
    let expected = "error: standard input: line 2: no tab between source and target\n";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn a_run_is_described_or_validated_by_standard_input_and_not_trained_on_it() {
    let folder = support::folder();
    let data = corpus(folder.path());
    let dry = |flags: &[&str], input: &str| {
        let mut command = program("train");
        command
            .args(["--dry-run", "--vocab-size", "300"])
            .args(flags);
        run_on_input(&mut command, input.as_bytes())
    };
    let path = data.to_str().expect("a path");
    let file = format!("[data]\ntrain = {path:?}\nhold_out = 3\n");
    let output = dry(&["--config", "-"], &file);
    let end = " 3 pairs to validate on";
    assert!(
        stdout(&output).lines().any(|line| line.ends_with(end)),
        "{}",
        stderr(&output)
    );
    let output = dry(&["--config", "-"], "[data]\ntrain = 1\n");
    let error = stderr(&output);
    assert!(
        error.starts_with("error: standard input: line 2: "),
        "{error}"
    );
    let output = dry(&["--data", path, "--valid", "-"], "one\tun\nsix\tsix\n");
    let end = " 2 pairs to validate on";
    assert!(
        stdout(&output).lines().any(|line| line.ends_with(end)),
        "{}",
        stderr(&output)
    );

    let expected = "error: standard input: not a regular file; \
                    pairs to train on are read more than once: write them to a file first\n";
    for flags in [&["--data", "-"][..], &["--parallel", path, "-"]] {
        let output = dry(flags, "one\tun\n");
        assert_eq!(
            (output.status.code(), stderr(&output).as_str()),
            (Some(1), expected)
        );
    }
}

/// A directory of that name would be a surprise.
#[test]
fn a_directory_is_not_written_to_a_dash() {
    let (folder, model) = trained();
    let commands = [
        with_model("average", &model).arg(&model),
        &mut with_model("quantize", &model),
        &mut with_model("export", &model),
        &mut train(folder.path(), Path::new("other")),
    ]
    .map(|command| {
        let mut again = Command::new(command.get_program());
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let kept = arguments.iter().position(|argument| argument == "--out");
        again.args(&arguments[..kept.unwrap_or(arguments.len())]);
        again
    });
    for mut command in commands {
        let output = run(command.args(["--out", "-"]).current_dir(folder.path()));
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let expected = "error: invalid value '-' for '--out <DIR>': \
                        must be a directory, not standard output; ./- is a directory named `-`\n";
        assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
        assert!(!folder.path().join("-").exists());
    }
}

/// What a file has, and what follows in it, is kept where a stream is redirected to it.
#[cfg(target_os = "linux")]
#[test]
fn a_stream_that_is_an_output_is_written_to() {
    let (folder, model) = trained();
    let document = file(folder.path(), "document.txt", "one\n");
    let all = file(folder.path(), "all.txt", "before\n");
    let appended = || {
        fs::OpenOptions::new()
            .append(true)
            .open(&all)
            .expect("a file")
    };
    let mut translate = with_model("translate", &model);
    translate
        .args(["--max-length", "3", "--document"])
        .arg(&document);
    let translated = succeeds(&mut translate);
    for out in [Path::new("/dev/stdout"), &all, Path::new("-")] {
        let output = run(translate.arg("--out").arg(out).stdout(appended()));
        assert!(output.status.success(), "{}", stderr(&output));
        let mut again = with_model("translate", &model);
        again
            .args(["--max-length", "3", "--document"])
            .arg(&document);
        translate = again;
    }
    let expected = format!("before\n{translated}{translated}{translated}");
    assert_eq!(fs::read_to_string(&all).expect("the file"), expected);
    assert!(!folder.path().join("-").exists());
}

/// Marks around sentences, as in files that were concatenated, are no part of them in any command.
#[test]
fn byte_order_marks_are_treated_alike() {
    let (folder, model) = trained();
    let plain = "one and two\tun et deux\nsix\tsix\nfour\tquatre\n";
    let marked = "\u{feff}one and two\tun et deux\n\u{feff}six\t\u{feff}six\n\u{feff} four\u{feff}\t quatre \u{feff}\n";
    for command in ["translate", "score"] {
        let flags: &[&str] = match command {
            "translate" => &["--max-length", "5"],
            _ => &[],
        };
        let of = |text: &str| stdout(&answer(with_model(command, &model).args(flags), text));
        let sources = |text: &str| -> String {
            let lines = text
                .lines()
                .map(|line| line.split('\t').next().expect("a source"));
            lines.map(|line| format!("{line}\n")).collect()
        };
        match command {
            "translate" => assert_eq!(of(&sources(marked)), of(&sources(plain))),
            _ => assert_eq!(of(marked), of(plain)),
        }
    }
    let evaluated = |name: &str, text: &str| {
        let data = file(folder.path(), name, text);
        let mut command = with_model("evaluate", &model);
        command.args(["--beam", "1", "--metrics", "wer,bleu", "--data"]);
        succeeds(command.arg(data))
    };
    assert_eq!(
        evaluated("marked.tsv", marked),
        evaluated("plain.tsv", plain)
    );
    let out = folder.path().join("other");
    let mut command = train(folder.path(), &out);
    command.args(["--set", "data.hold_out=", "--valid"]);
    succeeds(command.arg(folder.path().join("marked.tsv")));
    let saved = fs::read_to_string(out.join("valid.tsv")).expect("pairs");
    assert_eq!(saved, plain);
}

/// By their first bytes: the names say nothing.
#[test]
fn compressed_files_are_refused_with_the_program_that_decompresses_them() {
    let (folder, model) = trained();
    let zstd = file(
        folder.path(),
        "pairs.tsv",
        b"\x28\xb5\x2f\xfd\x04\x58\x41\x00\x00one\tun\n",
    );
    let problem = "is compressed by zstd; decompress it first: zstd -d";
    let expected = format!("error: {}: {problem}", zstd.display());
    for (command, flag) in [
        ("translate", "--input"),
        ("score", "--input"),
        ("tokenize", "--input"),
        ("evaluate", "--data"),
    ] {
        let error = fails(with_model(command, &model).arg(flag).arg(&zstd));
        assert_eq!(error, expected, "{command}");
    }
    for flag in ["--data", "--valid"] {
        let mut command = program("train");
        command
            .args(["--dry-run", "--data"])
            .arg(corpus(folder.path()));
        let error = fails(command.arg(flag).arg(&zstd));
        assert_eq!(error, expected, "{flag}");
    }
    let bytes = fs::read(&zstd).expect("bytes");
    let output = run_on_input(&mut with_model("translate", &model), &bytes);
    let error = stderr(&output);
    assert!(
        error.ends_with(&format!("error: standard input: {problem}\n")),
        "{error}"
    );
}

#[test]
fn a_language_of_a_model_of_one_pair_is_refused_by_its_flag() {
    let (folder, ours) = trained();
    let marian = fixture("pretrained/marian-en-fr");
    for model in [&ours, &marian] {
        for flag in ["--source-lang", "--target-lang"] {
            let error = fails(with_model("translate", model).args([flag, "en"]));
            let expected = format!(
                "error: {flag} en: the model has no language tokens, and translates one pair of languages; remove {flag}"
            );
            assert_eq!(error, expected, "{}", model.display());
            let mut command = program("train");
            command.args(["--dry-run", flag, "en", "--init"]).arg(model);
            command.arg("--data").arg(folder.path().join("corpus.tsv"));
            assert_eq!(fails(&mut command), expected, "{}", model.display());
        }
    }
}
