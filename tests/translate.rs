//! Translation of files and of standard input, line by line.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use support::{
    corpus, fails, file, program, run, run_on_input, started, stderr, stdout, succeeds, trained,
    with_model,
};

#[test]
fn every_line_in_gives_a_line_out() {
    let (folder, model) = trained();
    let input = "one and two\n\n<eos> <pad> é\u{1f600}\nlast";
    let input = file(folder.path(), "input.txt", input);
    let out = succeeds(with_model("translate", &model).arg("--input").arg(&input));
    assert_eq!(out.lines().count(), 4, "{out}");
    assert_eq!(out.lines().nth(1), Some(""));

    let mut command = with_model("translate", &model);
    command.args(["--scores", "--alignments", "--input"]);
    let out = succeeds(command.arg(&input));
    let fields: Vec<usize> = out.lines().map(|line| line.split('\t').count()).collect();
    assert_eq!(fields, [3; 4], "{out}");
    assert_eq!(out.lines().nth(1), Some("\t\t"));

    let input = b"one and two\ntwo and one\n";
    let output = run_on_input(&mut with_model("translate", &model), input);
    assert_eq!(stdout(&output).lines().count(), 2);
}

/// Eleven lines, whatever else is in them: carriage returns, zeros, separators of Unicode, tabs, spaces, and one that
/// is not UTF-8.
const STRANGE: &[u8] = b"one\r\n\r\nt\0wo\n\0\n\xe2\x80\xa8\none\xe2\x80\xa8two\n\xff\n   \n\t\n\
    one\ttwo\n\xc2\x85\x0b";

#[test]
fn strange_lines_are_answered_by_as_many_lines() {
    let (_folder, model) = trained();
    for (subcommand, flags) in [
        ("translate", &["--scores", "--alignments"][..]),
        ("translate", &[]),
        // Any token may come.
        ("translate", &["--sample", "--temperature", "5"]),
        ("translate", &["--prefix", "un\r\net"]),
        ("translate", &["--n-best", "2", "--scores"]),
        ("score", &[]),
        ("tokenize", &[]),
    ] {
        let output = run_on_input(with_model(subcommand, &model).args(flags), STRANGE);
        let (out, err) = (stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(1), "{subcommand}: {err}");
        assert!(err.contains(": line 7: the sentence is not valid UTF-8"));
        let out = out.strip_suffix('\n').expect("a line feed at the end");
        let mut lines: Vec<&str> = out.split('\n').collect();
        if flags.contains(&"--n-best") {
            // Those of one sentence stand together, and begin with its number.
            lines = lines
                .iter()
                .map(|line| line.split('\t').next().unwrap())
                .collect();
            lines.dedup();
            let numbers: Vec<String> = (1..=11).map(|number| number.to_string()).collect();
            assert_eq!(lines, numbers);
        }
        assert_eq!(lines.len(), 11, "{subcommand} {flags:?}: {out:?}");
    }
}

/// As a program passes on the lines that a user types.
#[test]
fn a_line_from_a_pipe_is_answered_before_the_next_comes() {
    let (_folder, model) = trained();
    for subcommand in ["translate", "score", "tokenize"] {
        let mut child = started(with_model(subcommand, &model).stdin(Stdio::piped()));
        let mut input = child.stdin.take().expect("standard input");
        let output = BufReader::new(child.stdout.take().expect("standard output"));
        let (sender, answers) = mpsc::channel();
        let read = thread::spawn(move || {
            for line in output.lines() {
                sender.send(line.expect("a line")).expect("the test waits");
            }
        });
        for line in ["one and two\tun et deux", "", "two\tdeux"] {
            writeln!(input, "{line}").expect("written");
            let answer = answers.recv_timeout(Duration::from_secs(60));
            answer.unwrap_or_else(|_| panic!("{subcommand}: no answer to `{line}`"));
        }
        drop(input);
        read.join().expect("the end of the output");
        assert_eq!(answers.try_iter().count(), 0, "{subcommand}");
        child.wait().expect("the program ends");
    }
}

/// Where models are packed: elsewhere a batch of another size is rounded otherwise. `scripts/check-determinism` does it
/// with 1000 real sentences.
#[test]
fn neither_order_nor_batch_changes_a_translation() {
    let (_folder, model) = trained();
    let words = ["one", "two and three", "four", "", "five and six and seven"];
    let lines = (0..40).map(|index| vec![words[index % 5]; 1 + index % 7].join(" and "));
    let lines: Vec<String> = lines.collect();
    let backends = [
        ("flex", cfg!(feature = "flex")),
        ("ndarray", cfg!(feature = "ndarray")),
    ];
    for (backend, _) in backends.into_iter().filter(|(_, is_there)| *is_there) {
        for (precision, search) in [
            ("f32", &["--beam", "1"][..]),
            ("f32", &["--beam", "5", "--n-best", "2"]),
            ("int8", &["--beam", "5", "--n-best", "2"]),
            ("int8", &["--sample", "--seed", "3"]),
        ] {
            // The translations of each line, which without a number are one.
            let translated = |lines: &[&String], batch: &str| {
                let mut command = with_model("translate", &model);
                command.args(["--backend", backend, "--precision", precision]);
                command.args(["--min-length", "2", "--max-length", "9", "--scores"]);
                command.args(["--batch-tokens", batch]).args(search);
                let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
                let output = run_on_input(&mut command, text.as_bytes());
                let mut found = vec![Vec::new(); lines.len()];
                for (index, line) in stdout(&output).lines().enumerate() {
                    match line.split_once('\t') {
                        Some((number, rest)) if search.contains(&"--n-best") => {
                            let number: usize = number.parse().expect("a number");
                            found[number - 1].push(rest.to_owned());
                        }
                        _ => found[index].push(line.to_owned()),
                    }
                }
                found
            };
            let mut ordered: Vec<&String> = lines.iter().collect();
            let expected = translated(&ordered, "2048");
            assert!(expected.iter().all(|of_line| !of_line.is_empty()));
            ordered.reverse();
            for batch in ["1", "30"] {
                let mut found = translated(&ordered, batch);
                found.reverse();
                assert_eq!(
                    found, expected,
                    "{backend}, {precision}, {search:?}, {batch}"
                );
            }
        }
    }
}

/// `one and two`, an empty line and `two`, by gzip.
const COMPRESSED: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\xcfKUH\xccKQ()\xcf\xe7\xe2\x02\x12\x00\xce\x8a\x04\x97\x10\x00\x00\x00";

/// The same lines plain, compressed, and after the mark that some editors begin a file with; from a file,
/// whatever its name, and from standard input.
#[test]
fn compressed_lines_and_a_byte_order_mark_are_read() {
    let (folder, model) = trained();
    let plain = b"one and two\n\ntwo";
    let marked = [&b"\xef\xbb\xbf"[..], plain].concat();
    let expected = stdout(&run_on_input(&mut with_model("translate", &model), plain));
    let lines: Vec<bool> = expected.lines().map(str::is_empty).collect();
    assert_eq!(lines.len(), 3, "{expected}");
    assert!(lines[1], "{expected}");
    for (name, input) in [
        ("input.txt", &plain[..]),
        ("input.gz", COMPRESSED),
        ("compressed", COMPRESSED),
        ("marked", &marked[..]),
    ] {
        let path = file(folder.path(), name, input);
        let out = succeeds(with_model("translate", &model).arg("--input").arg(path));
        assert_eq!(out, expected, "{name}");
        let output = run_on_input(&mut with_model("translate", &model), input);
        assert_eq!(stdout(&output), expected, "{name} on standard input");
    }

    let cut = file(folder.path(), "cut.gz", &COMPRESSED[..COMPRESSED.len() - 4]);
    let error = fails(with_model("translate", &model).arg("--input").arg(&cut));
    let start = format!("error: {}: line 3: gzip data is truncated", cut.display());
    assert!(error.starts_with(&start), "{error}");
    // The lines before it are translated.
    let output = run(with_model("translate", &model).arg("--input").arg(&cut));
    assert_eq!(stdout(&output).lines().count(), 2);
}

/// The fields are in their order, and the best of three translations is the one that is given alone.
#[test]
fn translations_come_with_scores_and_alignments() {
    let (folder, model) = trained();
    let input = folder.path().join("input.txt");
    fs::write(&input, "one and two\n\ntwo\n").expect("an input");
    let translated = |flags: &[&str]| {
        let mut command = with_model("translate", &model);
        succeeds(command.arg("--input").arg(&input).args(flags))
    };
    let plain = translated(&[]);
    let full = translated(&["--n-best", "3", "--scores", "--alignments"]);
    let rows: Vec<Vec<&str>> = full.lines().map(|row| row.split('\t').collect()).collect();
    let numbers: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(numbers, ["1", "1", "1", "2", "3", "3", "3"]);
    let plain: Vec<&str> = plain.lines().collect();
    assert_eq!([rows[0][2], rows[4][2]], [plain[0], plain[2]]);
    assert_eq!(rows[3], ["2", "", "", ""]);
    for row in rows.iter().filter(|row| row[0] != "2") {
        let score: f64 = row[1].parse().expect("a score");
        assert!(score <= 0.0, "{row:?}");
        for pair in row[3].split_whitespace() {
            let (source, target) = pair.split_once('-').expect("a pair");
            let [source, _]: [usize; 2] =
                [source, target].map(|index| index.parse().expect("an index"));
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
        let mut command = with_model("translate", &model);
        succeeds(command.arg(&model).arg("--input").arg(&input))
    };
    assert_eq!(ensemble.lines().collect::<Vec<_>>(), plain);
}

#[test]
fn a_line_that_cannot_be_translated_is_named_and_the_rest_is_translated() {
    let (folder, model) = trained();
    let input = folder.path().join("input.txt");
    let long = "a ".repeat(50_000);
    let longer = "a".repeat(3 << 20);
    let mut bytes = format!("one\n{long}\n{longer}\n").into_bytes();
    bytes.extend(b"\xff\xfe\ntwo\n");
    bytes.extend(format!("{long}\nthree\n{long}").into_bytes());
    fs::write(&input, bytes).expect("an input");
    let mut command = with_model("translate", &model);
    let output = run(command.arg("--input").arg(&input));
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let out = stdout(&output);
    let empty: Vec<bool> = out.lines().map(str::is_empty).collect();
    assert_eq!(empty[1..4], [true; 3], "{out}");
    assert_eq!((empty[5], empty[7]), (true, true), "{out}");
    assert_eq!(empty.len(), 8, "{out}");
    let name = input.display();
    for problem in [
        format!("{name}: line 2: the sentence has "),
        "tokens, more than the limit of 1024; see --max-source-length\n".into(),
        format!("{name}: line 3: the sentence is longer than 1048576 bytes"),
        format!("{name}: line 4: the sentence is not valid UTF-8"),
        format!("{name}: line 6: the sentence has "),
        format!("{name}: line 8: the sentence has "),
        "error: 5 of 8 lines could not be translated".into(),
    ] {
        assert!(err.contains(&problem), "{problem}: {err}");
    }
}

#[test]
fn a_prefix_that_is_longer_than_a_translation_may_be_is_an_error_that_names_both_flags() {
    let (folder, model) = trained();
    let input = file(folder.path(), "input.txt", "one and two\n");
    let mut command = with_model("translate", &model);
    command.args(["--prefix", "un et deux", "--max-length", "1"]);
    let output = run(command.arg("--input").arg(&input));
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let start = format!("{}: line 1: the sentence has a prefix of ", input.display());
    let end = "tokens, more than the maximum target length of 1; see --prefix and --max-length";
    let named = |line: &str| line.starts_with(&start) && line.ends_with(end);
    assert!(err.lines().any(named), "{err}");
}

/// A model, without training, that has twelve learned positions.
#[cfg(feature = "ndarray")]
fn with_twelve_positions() -> (tempfile::TempDir, std::path::PathBuf) {
    use burn_ndarray::NdArray;
    use transformer_core::TransformerConfig;
    use transformer_core::nn::Positions;

    let (folder, model) = trained();
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
    (folder, model)
}

/// No flag makes room among the positions, so that none is advised but the one whose text is too long.
#[cfg(feature = "ndarray")]
#[test]
fn what_is_longer_than_the_positions_is_named_without_flags_that_do_not_help() {
    let (folder, model) = with_twelve_positions();
    for command in ["translate", "evaluate"] {
        let mut command = with_model(command, &model);
        if command.get_args().any(|argument| argument == "evaluate") {
            command.arg("--data").arg(model.join("train.tsv"));
        }
        assert_eq!(
            fails(command.args(["--min-length", "13"])),
            "error: --min-length 13 is above the model's 12 learned positions"
        );
    }
    // Above the limit of --max-source-length, too.
    let long = "one ".repeat(2000);
    let problem = |command: &mut std::process::Command, input: &str| {
        let err = stderr(&run_on_input(command, input.as_bytes()));
        let line = err.lines().find(|line| line.contains("line 1: "));
        line.unwrap_or_else(|| panic!("{err}")).to_owned()
    };
    let positions = "tokens, more than the model's 12 learned positions";
    for (found, start, end) in [
        (
            problem(
                with_model("translate", &model).args(["--prefix", &long]),
                "one\n",
            ),
            "the sentence has a prefix of ",
            "; see --prefix",
        ),
        (
            problem(&mut with_model("translate", &model), &format!("{long}\n")),
            "the sentence has ",
            "",
        ),
        (
            problem(&mut with_model("score", &model), &format!("one\t{long}\n")),
            "the target has ",
            "",
        ),
        (
            problem(&mut with_model("score", &model), &format!("{long}\tun\n")),
            "the source has ",
            "",
        ),
    ] {
        assert!(found.contains(&format!("line 1: {start}")), "{found}");
        assert!(found.ends_with(&format!("{positions}{end}")), "{found}");
    }
    for (side, pair) in [
        ("source", format!("{long}\tun\n")),
        ("target", format!("one\t{long}\n")),
    ] {
        let pairs = folder.path().join("pairs.tsv");
        fs::write(&pairs, pair).expect("a file");
        let error = fails(with_model("evaluate", &model).arg("--data").arg(&pairs));
        let start = format!("error: {}: line 1: the {side} has ", pairs.display());
        assert!(
            error.starts_with(&start) && error.ends_with(positions),
            "{error}"
        );
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn a_source_longer_than_the_positions_is_an_error_that_names_its_line() {
    let (folder, model) = with_twelve_positions();
    let input = folder.path().join("input.txt");
    let long = "one and two and three and four and five and six and seven";
    fs::write(&input, format!("one\n\n{long}\ntwo\n")).expect("a file");
    let mut command = with_model("translate", &model);
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

/// ndarray multiplies its integers, other backends the numbers that the integers stand for.
#[cfg(feature = "ndarray")]
#[test]
fn a_quantized_model_translates_as_the_model_does_in_8_bits() {
    use std::path::Path;

    let (folder, model) = trained();
    let quantized = folder.path().join("int8");
    let tokenizer = model.join("tokenizer.json");
    let text = fs::read(&tokenizer).expect("a tokenizer");
    fs::write(&tokenizer, "").expect("a file");
    let error = fails(with_model("quantize", &model).arg("--out").arg(&quantized));
    let start = format!("error: {}: ", tokenizer.display());
    assert!(error.starts_with(&start), "{error}");
    assert!(!quantized.exists());
    fs::write(&tokenizer, text).expect("a file");
    let mut quantize = with_model("quantize", &model);
    let out = succeeds(quantize.arg("--out").arg(&quantized));
    assert_eq!(out, format!("model: {}\n", quantized.display()));
    let size = |model: &Path| fs::metadata(model.join("model.safetensors")).unwrap().len();
    assert!(3 * size(&quantized) < size(&model));

    let input = file(folder.path(), "input.txt", "one and two\n\ntwo\n");
    let translate = |model: &Path, flags: &[&str]| {
        let mut command = with_model("translate", model);
        command.args(["--backend", "ndarray", "--scores", "--input"]);
        command.arg(&input).args(flags);
        let output = run(&mut command);
        assert!(output.status.success(), "{}", stderr(&output));
        (stdout(&output), stderr(&output))
    };
    let (expected, err) = translate(&model, &["--precision", "int8"]);
    assert_eq!(expected.lines().count(), 3, "{expected}");
    assert!(err.contains(", int8\n"), "{err}");
    let (found, err) = translate(&quantized, &[]);
    assert_eq!(found, expected);
    assert!(err.contains(", int8\n"), "{err}");
    let (aligned, _) = translate(&quantized, &["--alignments"]);
    for (aligned, expected) in aligned.lines().zip(expected.lines()) {
        assert!(aligned.starts_with(&format!("{expected}\t")), "{aligned}");
    }
    let (expanded, err) = translate(&quantized, &["--precision", "f32"]);
    assert_eq!(expanded.lines().count(), 3, "{expanded}");
    assert!(!err.contains("int8"), "{err}");
    // On the default backend, whichever it is.
    let out = succeeds(
        with_model("translate", &quantized)
            .arg("--input")
            .arg(&input),
    );
    assert_eq!(out.lines().count(), 3, "{out}");

    // The other commands read it, too.
    let pairs = model.join("valid.tsv");
    let out = succeeds(with_model("evaluate", &quantized).arg("--data").arg(&pairs));
    assert!(out.contains("perplexity") && out.contains("BLEU"), "{out}");
    let out = succeeds(with_model("score", &quantized).arg("--input").arg(&pairs));
    assert_eq!(out.lines().count(), 10, "{out}");
    let out = succeeds(program("info").arg(&quantized));
    let format = "  format       2, with 8-bit integer matrices";
    assert!(out.lines().any(|line| line == format), "{out}");
    let tuned = folder.path().join("tuned");
    let mut train = program("train");
    train.args(["--updates", "2", "--hold-out", "5", "--batch-tokens", "200"]);
    train.args(["--data"]).arg(corpus(folder.path()));
    succeeds(train.arg("--init").arg(&quantized).arg("--out").arg(&tuned));
    let out = succeeds(program("info").arg(&tuned));
    assert!(out.lines().any(|line| line == "  format       1"), "{out}");

    // A model is quantized neither twice nor over another model.
    let before = fs::read(quantized.join("model.safetensors")).unwrap();
    let error = fails(&mut quantize);
    let expected = format!(
        "error: {} is not empty; choose another --out",
        quantized.display()
    );
    assert_eq!(error, expected);
    assert!(fs::read(quantized.join("model.safetensors")).unwrap() == before);
    let again = folder.path().join("again");
    let error = fails(with_model("quantize", &quantized).arg("--out").arg(&again));
    let expected = format!(
        "error: {}: the model is already in 8 bits",
        quantized.display()
    );
    assert_eq!(error, expected);
    assert!(!again.exists());
}

#[test]
fn a_damaged_model_directory_is_named() {
    let (_folder, model) = trained();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        let path = model.join(file);
        let whole = fs::read(&path).expect("a file");
        fs::write(&path, &whole[..whole.len() / 2]).expect("written");
        let error = fails(&mut with_model("translate", &model));
        assert!(error.contains(file), "{error}");
        fs::remove_file(&path).expect("removed");
        let error = fails(&mut with_model("translate", &model));
        assert!(error.contains(file), "{error}");
        fs::write(&path, whole).expect("written");
    }
    let config = model.join("config.json");
    let text = fs::read_to_string(&config).expect("the configuration");
    let wrong = text.replace("\"n_heads\": 4", "\"n_heads\": 7");
    fs::write(&config, wrong).expect("written");
    let error = fails(&mut with_model("translate", &model));
    assert!(
        error.contains("`d_model` 128 is not divisible by `n_heads` 7"),
        "{error}"
    );
    let wrong = text.replace("\"d_ff\": 512", "\"d_ff\": 256");
    fs::write(&config, wrong).expect("written");
    let error = fails(&mut with_model("translate", &model));
    assert!(error.contains("model.safetensors: "), "{error}");
}

/// A document keeps its format; what is refused leaves no file.
#[test]
fn a_document_is_translated_and_its_markup_kept() {
    let (folder, model) = trained();
    let page =
        "<p title=\"one two\">one <b>and two</b> https://example.org/a</p>\n<pre>kept</pre>\n";
    let input = file(folder.path(), "page.html", page);
    let out = folder.path().join("out.html");
    let mut command = with_model("translate", &model);
    command.arg("--document").arg(&input).arg("--out").arg(&out);
    assert_eq!(succeeds(&mut command), "");
    let written = fs::read_to_string(&out).unwrap();
    for kept in [
        "<p title=\"",
        "<b>",
        "</b>",
        "https://example.org/a",
        "\n<pre>kept</pre>\n",
    ] {
        assert!(written.contains(kept), "{written}");
    }
    // The same on standard output; from standard input, by the name of the format.
    let mut piped = with_model("translate", &model);
    piped.args(["--document", "-", "--format", "html"]);
    let piped = run_on_input(&mut piped, page.as_bytes());
    assert_eq!(stdout(&piped), written);

    let translate = |arguments: &[&str]| {
        let mut command = with_model("translate", &model);
        command.args(arguments);
        fails(&mut command)
    };
    let input = input.to_str().unwrap();
    let error = translate(&["--document", input, "--out", input]);
    let expected = format!("error: {input}: is an input file, and would be overwritten");
    assert_eq!(error, expected);
    assert_eq!(fs::read_to_string(input).unwrap(), page);
    let terms = file(folder.path(), "terms.tsv", "one\tun\n");
    let terms = terms.to_str().unwrap();
    let error = translate(&["--document", input, "--glossary", terms, "--out", terms]);
    let expected = format!("error: {terms}: is an input file, and would be overwritten");
    assert_eq!(error, expected);
    let vocabulary = model.join("tokenizer.json").display().to_string();
    let error = translate(&["--document", input, "--out", &vocabulary]);
    let expected = format!("error: {vocabulary}: is an input file, and would be overwritten");
    assert_eq!(error, expected);
    let nowhere = folder.path().join("nowhere");
    let error = translate(&[
        "--document",
        input,
        "--out",
        nowhere.join("out").to_str().unwrap(),
    ]);
    assert_eq!(
        error,
        format!("error: {}: no such directory", nowhere.display())
    );
    let error = translate(&["--document", input, "--document-lang", "xyzzy"]);
    assert_eq!(
        error,
        "error: --document-lang xyzzy: must be a language code, such as de"
    );
    let broken = file(folder.path(), "broken.txt", b"one\ntwo \xff\n");
    let broken = broken.to_str().unwrap();
    let error = translate(&["--document", broken]);
    assert_eq!(error, format!("error: {broken}: line 2 is not UTF-8"));
    let error = translate(&["--document", input, "--glossary", broken]);
    assert_eq!(error, format!("error: {broken}: line 2 is not UTF-8"));
    let missing = folder.path().join("missing").display().to_string();
    let error = translate(&["--document", &missing]);
    assert!(error.starts_with(&format!("error: {missing}: ")), "{error}");
    // Flags that do not fit.
    for arguments in [
        vec!["--document", input, "--format", "docx"],
        vec!["--format", "html"],
        vec!["--document", input, "--scores"],
    ] {
        let mut command = with_model("translate", &model);
        assert_eq!(run(command.args(arguments)).status.code(), Some(2));
    }
}
