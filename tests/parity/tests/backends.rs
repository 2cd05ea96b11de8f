//! The reference systems beside PyTorch, on every backend that is compiled in.

#[path = "../../support/fixtures.rs"]
mod fixtures;
#[path = "../../support/process.rs"]
mod process;

use std::process::Command;

use fixtures::fixture;
use process::{fails, run, stderr, stdout, succeeds};

fn parity() -> Command {
    Command::new(env!("CARGO_BIN_EXE_parity"))
}

const BACKENDS: &[&str] = &[
    #[cfg(feature = "ndarray")]
    "ndarray",
    #[cfg(feature = "flex")]
    "flex",
    #[cfg(feature = "wgpu")]
    "wgpu",
    #[cfg(feature = "tch")]
    "tch",
    #[cfg(feature = "cuda")]
    "cuda",
];

/// Models as Hugging Face and CTranslate2 save them: tokens, logits, greedy decoding, and beams as Hugging Face and
/// CTranslate2 end them. The program has the bounds.
#[test]
fn every_pretrained_model_is_the_original_s_on_every_backend() {
    let directories = [
        "marian-en-fr",
        "marian-multi",
        "m2m100",
        "nllb-sharded",
        "bart",
        "bart-f16",
        "bart-old-bin",
        "mbart",
        "t5-gated",
        "byt5",
        "ct2-marian-multi-int8",
        "ct2-t5-gated-int8",
        "ct2-relative",
        "marian-npz",
        "marian-student-int8",
        "marian-words",
        "gpt2",
        "gpt2-sharded",
    ];
    for backend in BACKENDS {
        let mut command = parity();
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
        // Of those that are CTranslate2's and Marian's.
        assert_eq!(out.matches("log-probabilities").count(), 6, "{out}");
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
            let mut command = parity();
            command.args(["--backend", backend, "--weights", weights]);
            let out = succeeds(command.args(folders.map(fixture)));
            assert_eq!(out.matches("worst of").count(), folders.len(), "{out}");
        }
    }
}

#[test]
fn parity_compares_every_folder_and_fails_if_one_does() {
    let layer = fixture("encoder-layer");
    let out = succeeds(parity().arg(&layer));
    assert!(out.contains("attention_weights"), "{out}");

    let mut command = parity();
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
    let output = run(parity().arg(folder.path()));
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("{}: not a regular file", config.display());
    let (out, err) = (stdout(&output), stderr(&output));
    assert!(
        out.contains(&expected) || err.contains(&expected),
        "{out}\n{err}"
    );
}
