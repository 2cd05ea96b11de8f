//! Measuring a model on sentence pairs.

mod support;

use std::fs;

use support::{fails, file, succeeds, trained, with_model};

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

/// Attention needs memory by the square of a sentence's tokens, on either side.
#[test]
fn a_pair_that_is_too_long_is_named() {
    let (folder, model) = trained();
    let long = "x ".repeat(2000);
    for (side, text) in [
        ("source", format!("one\tun\n{long}\tdeux\n")),
        ("target", format!("one\tun\ntwo\t{long}\n")),
    ] {
        let data = file(folder.path(), "long.tsv", text);
        let error = fails(with_model("evaluate", &model).arg("--data").arg(&data));
        let named = format!("error: pair 2: the {side} has ");
        assert!(error.starts_with(&named), "{error}");
        assert!(
            error.ends_with("tokens, more than the limit of 1024; see --max-source-length"),
            "{error}"
        );
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
        error.ends_with("is read, and would be overwritten"),
        "{error}"
    );
    assert!(fs::read(&valid).expect("pairs") == before);

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
