//! The pages of docs/learn have what their listings print, and today's code and pictures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of a folder, but not its folders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.is_file()).collect()
}

#[test]
fn pages_are_up_to_date() {
    let this = std::env::current_exe().expect("a running test has a path");
    let profile = this.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/learn");
    let copy = tempfile::tempdir().expect("a folder");
    for path in files(&pages) {
        let name = path.file_name().expect("a name");
        fs::copy(&path, copy.path().join(name)).expect("a copy");
    }
    let mut learn = Command::new(profile.join("examples/learn"));
    let done = learn.arg("--write").arg(copy.path()).output().expect("`cargo test` builds it");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    let mut pictures = 0;
    for path in files(copy.path()) {
        let name = path.file_name().expect("a name");
        let [new, old] =
            [&path, &pages.join(name)].map(|path| fs::read_to_string(path).unwrap_or_default());
        pictures += usize::from(path.extension().is_some_and(|extension| extension == "svg"));
        let differs = new.lines().zip(old.lines()).position(|(new, old)| new != old);
        assert!(
            new == old,
            "{}, line {:?}: run `cargo run --release -p transformer-examples --example learn -- --write docs/learn`",
            name.display(),
            differs.map(|line| line + 1),
        );
    }
    assert!(pictures >= 10, "{pictures} pictures");
}
