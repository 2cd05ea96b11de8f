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

/// One directory of each kind of model.
const KINDS: [&str; 9] = [
    "marian-en-fr",
    "m2m100",
    "bart",
    "t5-gated",
    "byt5",
    "ct2-relative",
    "marian-student-int8",
    "marian-words",
    "gpt2",
];

/// The same kinds in other files and precisions.
const OTHER_FILES: [&str; 9] = [
    "marian-multi",
    "nllb-sharded",
    "bart-f16",
    "bart-old-bin",
    "mbart",
    "ct2-marian-multi-int8",
    "ct2-t5-gated-int8",
    "marian-npz",
    "gpt2-sharded",
];

/// Models as Hugging Face and CTranslate2 save them: tokens, logits, greedy decoding, and beams as Hugging Face and
/// CTranslate2 end them. The program has the bounds.
#[test]
fn pretrained_models_are_the_originals_on_every_backend() {
    for &backend in BACKENDS {
        // Reading a directory does not depend on the backend, and computing on llvmpipe takes much longer.
        let other_files = match backend {
            "wgpu" => &[][..],
            _ => &OTHER_FILES,
        };
        let is_read = |name: &str| KINDS.iter().chain(other_files).any(|&other| other == name);
        let count = |names: &[&str]| names.iter().filter(|name| is_read(name)).count();
        let mut command = parity();
        command.args(["--backend", backend, "--pretrained"]);
        let paths = KINDS.iter().chain(other_files);
        let out = succeeds(command.args(paths.map(|name| fixture("pretrained").join(name))));
        for (row, directories) in [
            ("  beam 4  ", KINDS.len() + other_files.len()),
            (
                "  as CTranslate2 ",
                count(&["marian-en-fr", "marian-multi"]),
            ),
            ("logits, .bin", count(&["marian-en-fr"])),
            (
                "log-probabilities",
                count(&[
                    "ct2-marian-multi-int8",
                    "ct2-relative",
                    "ct2-t5-gated-int8",
                    "marian-npz",
                    "marian-student-int8",
                    "marian-words",
                ]),
            ),
        ] {
            assert_eq!(out.matches(row).count(), directories, "{row}: {out}");
        }
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
