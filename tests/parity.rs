//! The reference systems beside PyTorch, on every backend that is compiled in.

mod support;

use std::fs;

use serde_json::Value;
use support::{fails, fixture, program, run, stderr, stdout, succeeds};

const BACKENDS: &[&str] = &[
    #[cfg(feature = "ndarray")]
    "ndarray",
    #[cfg(feature = "flex")]
    "flex",
    #[cfg(feature = "wgpu")]
    "wgpu",
    #[cfg(feature = "tch")]
    "tch",
];

/// Models as Hugging Face saves them: tokens, logits, greedy decoding, and beams as Hugging Face and CTranslate2 end
/// them. The program has the bounds.
#[test]
fn every_pretrained_model_is_hugging_face_s_on_every_backend() {
    let directories = [
        "marian-en-fr",
        "marian-multi",
        "m2m100",
        "nllb-sharded",
        "bart",
        "bart-f16",
        "bart-old-bin",
        "mbart",
    ];
    for backend in BACKENDS {
        let mut command = program("parity");
        command.args(["--backend", backend, "--pretrained"]);
        let paths = directories.map(|name| fixture("pretrained").join(name));
        let out = succeeds(command.args(paths));
        assert_eq!(
            out.matches("  beam 4  ").count(),
            directories.len(),
            "{out}"
        );
        // CTranslate2's translations are known for two of them, and both formats of weights for one.
        assert_eq!(out.matches("  as CTranslate2 ").count(), 2, "{out}");
        assert_eq!(out.matches("logits, .bin").count(), 1, "{out}");
    }
}

/// The reference systems, number for number with PyTorch, from both formats of state dicts: the program
/// has the bounds.
#[test]
fn every_system_is_pytorchs_on_every_backend() {
    let folders = [
        "notebook-mini",
        "encoder-layer",
        "paper-readme",
        "prenorm-notebook",
        "learned-positions",
        "torch-nn",
        "annotated",
    ];
    for backend in BACKENDS {
        for weights in ["safetensors", "pt"] {
            let mut command = program("parity");
            command.args(["--backend", backend, "--weights", weights]);
            let out = succeeds(command.args(folders.map(fixture)));
            assert_eq!(out.matches("worst of").count(), folders.len(), "{out}");
        }
    }
}

/// The fourth token of one translation is as likely as another up to rounding: their logits are 3e-6 apart in f64. Which
/// of them is chosen here does not matter.
#[test]
fn either_of_two_equally_likely_tokens_is_greedy_s() {
    let [expected, equal, unlikely] = [49, 39, 17];
    let reports = [expected, equal].map(|token| {
        let (is_same, out) = with_fourth_token(token);
        assert!(is_same, "{out}");
        out
    });
    let has_tie = |out: &String| {
        out.contains("0 of 15 differ, and 1 after a tie")
            && out.contains(": token 4 is another one")
    };
    assert!(reports.iter().any(has_tie), "{reports:?}");
    let (is_same, out) = with_fourth_token(unlikely);
    assert!(!is_same, "{out}");
    assert!(out.contains("FAILED  1 of 15 differ"), "{out}");
}

/// Whether the program accepts a model's translations if the fourth token of one of those expected is `token`; and its
/// report.
fn with_fourth_token(token: u32) -> (bool, String) {
    let copy = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(fixture("pretrained/nllb-sharded")).expect("the model") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        fs::copy(&path, copy.path().join(name)).expect("a copy");
    }
    let path = copy.path().join("expected.json");
    let text = fs::read_to_string(&path).expect("the results");
    let mut expected: Value = serde_json::from_str(&text).expect("JSON");
    let sentences = expected["sentences"].as_array_mut().expect("a list");
    let text = "I was hoping that you'd know the answer.";
    let mut sentences = sentences.iter_mut();
    let sentence = sentences.find(|sentence| sentence["text"] == text);
    // After the start token, the language, and two more.
    let fourth = &mut sentence.expect("the sentence")["beam1"]["ids"][4];
    assert_eq!(*fourth, 49);
    *fourth = token.into();
    fs::write(&path, expected.to_string()).expect("writing");
    let output = run(program("parity").arg("--pretrained").arg(copy.path()));
    (output.status.success(), stdout(&output))
}

#[test]
fn parity_compares_every_folder_and_fails_if_one_does() {
    let layer = fixture("encoder-layer");
    let out = succeeds(program("parity").arg(&layer));
    assert!(out.contains("attention_weights"), "{out}");

    let mut command = program("parity");
    let err = fails(command.arg(fixture("nowhere")).arg(&layer));
    assert_eq!(err, "error: 1 of 2 folders failed");
    assert!(stdout(&run(&mut command)).contains("attention_weights"));
}

/// A pipe would be waited for, and a device has no end.
#[cfg(target_os = "linux")]
#[test]
fn parity_reads_files_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config.json");
    std::os::unix::fs::symlink("/dev/zero", &config).expect("a link");
    let output = run(program("parity").arg(folder.path()));
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("{}: not a regular file", config.display());
    let (out, err) = (stdout(&output), stderr(&output));
    assert!(
        out.contains(&expected) || err.contains(&expected),
        "{out}\n{err}"
    );
}
