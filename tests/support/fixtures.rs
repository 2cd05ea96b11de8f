//! The fixtures of tests/fixtures, and changed copies of them, for the tests of every package.

#![allow(dead_code, reason = "each test uses some of these")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

/// A fixture of the comparison with PyTorch.
pub fn fixture(system: &str) -> PathBuf {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let fixtures = folders.find_map(|folder| folder.join("tests/fixtures").canonicalize().ok());
    fixtures.expect("a package of the workspace").join(system)
}

/// A directory of Hugging Face's.
pub fn directory(name: &str) -> PathBuf {
    fixture("pretrained").join(name)
}

/// A copy of the files of a directory, which can be changed.
pub fn copied(name: &str) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(directory(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

pub fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Changes a file in JSON.
pub fn change_json(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = read_json(path);
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// The model `mbart`, with sources that end in `</s>` and their language, and a decoder that starts with the target's,
/// as the first mBART has it; Hugging Face computed the results expected of it (`scripts/make-languages-fixtures`).
pub fn mbart_with_language_last() -> TempDir {
    let copy = copied("mbart");
    for entry in fs::read_dir(fixture("mbart-language-last")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    change_json(&copy.path().join("tokenizer.json"), |tokenizer| {
        let template = tokenizer["post_processor"]["single"].as_array_mut();
        // The language, the text, `</s>`.
        template.unwrap().rotate_left(1);
    });
    copy
}
