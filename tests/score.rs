//! The probability of given pairs.

mod support;

use support::{file, run, run_on_input, stderr, stdout, succeeds, trained, with_model};

/// The three fields of a line agree with each other, and a pair alone has the score that it has in a file.
#[test]
fn every_pair_has_a_score_its_tokens_and_a_perplexity() {
    let (_folder, model) = trained();
    let pairs = model.join("train.tsv");
    let out = succeeds(with_model("score", &model).arg("--input").arg(&pairs));
    let pairs = std::fs::read_to_string(&pairs).expect("pairs");
    assert_eq!(out.lines().count(), pairs.lines().count());
    for line in out.lines() {
        let fields: Vec<f64> = line
            .split('\t')
            .map(|field| field.parse().expect("a number"))
            .collect();
        let [score, tokens, perplexity] = fields[..] else {
            panic!("{line}");
        };
        assert!(score < 0.0 && tokens >= 2.0, "{line}");
        let expected = (-score / tokens).exp();
        assert!((perplexity / expected - 1.0).abs() < 1e-3, "{line}");
    }

    // Columns after the second are ignored; a model beside itself is the model.
    let line = pairs.lines().next().expect("a pair");
    let mut command = with_model("score", &model);
    let output = run_on_input(
        command.arg(&model),
        format!("{line}\tmore\n{line}").as_bytes(),
    );
    let again = stdout(&output);
    let again: Vec<&str> = again.lines().collect();
    assert_eq!(again.len(), 2);
    for found in again {
        let number = |line: &str| -> f64 {
            let score = line.split('\t').next().expect("a field");
            score.parse().expect("a number")
        };
        let expected = number(out.lines().next().expect("a line"));
        assert!((number(found) - expected).abs() < 1e-2, "{found}");
    }
}

#[test]
fn a_line_that_cannot_be_scored_is_named_and_the_rest_is_scored() {
    let (folder, model) = trained();
    let long = "x ".repeat(2000);
    let mut bytes = format!("one\tun\nno tab\n\tun\none\t{long}\n").into_bytes();
    bytes.extend(b"\xff\tun\ntwo\tdeux\n");
    let input = file(folder.path(), "input.tsv", bytes);
    let output = run(with_model("score", &model).arg("--input").arg(&input));
    let (out, err) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(1), "{err}");
    let empty: Vec<bool> = out.lines().map(str::is_empty).collect();
    assert_eq!(empty, [false, true, true, true, true, false], "{out}");
    let name = input.display();
    for problem in [
        format!("{name}: line 2: no tab between source and target"),
        format!("{name}: line 3: the source is empty"),
        format!("{name}: line 4: the target has "),
        "tokens, more than the limit of 1024; see --max-source-length\n".into(),
        format!("{name}: line 5: the sentence is not valid UTF-8"),
        "error: 4 of 6 lines could not be scored".into(),
    ] {
        assert!(err.contains(&problem), "{problem}: {err}");
    }
}
