//! `corpus_error_rates` equals Python's jiwer: every case of `fixtures/error_rate.json`, as
//! `scripts/make-error-rate-fixture`, which names the source of its sentences, wrote them.

use serde::Deserialize;
use transformer_train::metrics::corpus_error_rates;

#[derive(Deserialize)]
struct Case {
    name: String,
    hypotheses: Vec<String>,
    references: Vec<String>,
    edits: usize,
    reference_words: usize,
    wrong: usize,
    /// A fraction, not in percent.
    wer: f64,
}

#[test]
fn error_rates_equal_jiwers() {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("fixtures/error_rate.json")).expect("a list of cases");
    let lines: usize = cases.iter().map(|case| case.hypotheses.len()).sum();
    assert!(lines >= 200, "{lines} lines");
    for case in cases {
        let rates = corpus_error_rates(&case.hypotheses, &case.references).expect("paired lines");
        let counts = [
            rates.token_edits,
            rates.reference_tokens,
            rates.wrong_sequences,
        ];
        assert_eq!(
            counts,
            [case.edits, case.reference_words, case.wrong],
            "{}",
            case.name
        );
        let (rate, expected) = (rates.token_error_rate(), 100.0 * case.wer);
        assert!(
            (rate - expected).abs() <= 1e-9,
            "{}: {rate}, not {expected}",
            case.name
        );
        let of_all = rates.sequence_error_rate() + rates.exact_match();
        assert!((of_all - 100.0).abs() <= 1e-9, "{}: {of_all}", case.name);
    }
}
