//! `corpus_bleu` and `corpus_chrf` equal Python's sacreBLEU: every case of `fixtures/bleu.json`,
//! as `scripts/make-bleu-fixture`, which names the source of its sentences, wrote them; or those of the file that the
//! environment variable `BLEU_CASES` names.

use std::{env, fs};

use serde_json::Value;
use transformer_train::metrics::{Bleu, Chrf, corpus_bleu, corpus_chrf};

const TOLERANCE: f64 = 1e-6;

fn cases() -> Vec<Value> {
    let cases = match env::var_os("BLEU_CASES") {
        Some(path) => fs::read_to_string(path).expect("a file of cases"),
        None => include_str!("fixtures/bleu.json").to_owned(),
    };
    serde_json::from_str(&cases).expect("a list of cases")
}

fn strings<'a>(case: &'a Value, key: &str) -> Vec<&'a str> {
    let list = case[key].as_array().expect("a list");
    list.iter()
        .map(|text| text.as_str().expect("a string"))
        .collect()
}

fn score(case: &Value) -> (Bleu, Chrf) {
    let (hypotheses, references) = (strings(case, "hypotheses"), strings(case, "references"));
    (
        corpus_bleu(&hypotheses, &references).expect("paired segments"),
        corpus_chrf(&hypotheses, &references).expect("paired segments"),
    )
}

#[track_caller]
fn assert_close(case: &Value, score: &str, actual: f64, expected: &Value) {
    let expected = expected.as_f64().expect("a number");
    assert!(
        (actual - expected).abs() <= TOLERANCE,
        "{} of {}: {actual} instead of {expected}",
        score,
        case["name"]
    );
}

#[test]
fn bleu_equals_sacrebleu() {
    for case in cases() {
        let (bleu, _) = score(&case);
        assert_close(&case, "BLEU", bleu.score, &case["bleu"]);
        assert_close(&case, "BP", bleu.brevity_penalty, &case["bp"]);
        for (n, precision) in bleu.precisions.into_iter().enumerate() {
            assert_close(&case, "a precision", precision, &case["precisions"][n]);
        }
    }
}

#[test]
fn chrf_equals_sacrebleu() {
    for case in cases() {
        assert_close(&case, "chrF2", score(&case).1.score, &case["chrf"]);
    }
}

/// sacreBLEU prints its signature inside the line: `BLEU|nrefs:1|... = 26.90 ...`.
#[test]
fn lines_and_signatures_equal_sacrebleus() {
    for case in cases() {
        let (bleu, chrf) = score(&case);
        let lines = [
            (bleu.to_string(), Bleu::signature(), "bleu_line"),
            (chrf.to_string(), Chrf::signature(), "chrf_line"),
        ];
        for (line, signature, key) in lines {
            let signed = line.replacen(" =", &format!("|{signature} ="), 1);
            assert_eq!(case[key], signed, "{}", case["name"]);
        }
    }
}

/// Byte-order marks, separators of Unicode and zero-width characters inside a sentence; scores of sacreBLEU 2.6.0.
#[test]
fn unusual_characters_inside_sentences_are_those_of_sacrebleu() {
    let hypotheses = [
        "one two \u{feff}three four five six",
        "\u{feff}the cat sat on the mat",
        "a\u{1c}b c\u{85}d e f\u{200b}g h",
    ];
    let references = [
        "one two three four five six",
        "the cat sat on the mat today",
        "a b c d e f g h",
    ];
    let bleu = corpus_bleu(&hypotheses, &references).expect("paired segments");
    let chrf = corpus_chrf(&hypotheses, &references).expect("paired segments");
    for (score, expected) in [
        (bleu.score, 53.48699907523653),
        (chrf.score, 79.60845918679136),
    ] {
        assert!(
            (score - expected).abs() <= TOLERANCE,
            "{score} instead of {expected}"
        );
    }
}
