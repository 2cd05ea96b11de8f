//! The files of Marian's directories.

use std::path::{Path, PathBuf};

use super::{Target, fixture, is_read, read, write};
use crate::mutate::Format;

/// A copy of the smallest model, whose settings name `model`.
fn directory(folder: &Path, model: &str) -> PathBuf {
    let original = fixture("pretrained/marian-words");
    for name in [
        "model.bin",
        "model.npz",
        "source.vocab.yml",
        "target.vocab.yml",
    ] {
        write(&folder.join(name), &read(&original.join(name)));
    }
    let decoder = String::from_utf8(read(&original.join("decoder.yml"))).expect("settings");
    write(
        &folder.join("decoder.yml"),
        decoder.replace("model.bin", model).as_bytes(),
    );
    folder.to_owned()
}

/// A directory whose file of this name is the input.
fn target(folder: &Path, model: &str, name: &'static str, format: Format) -> Target {
    let directory = directory(folder, model);
    let path = directory.join(name);
    Target {
        format,
        seeds: vec![read(&path)],
        run: Box::new(move |input| {
            write(&path, input);
            is_read(&directory, "a b </s>")
        }),
    }
}

/// The binary format.
pub fn binary(folder: &Path) -> Target {
    target(folder, "model.bin", "model.bin", Format::Bytes)
}

/// The archive of NumPy arrays.
pub fn archive(folder: &Path) -> Target {
    target(folder, "model.npz", "model.npz", Format::Bytes)
}

/// A list of tokens.
pub fn vocabulary(folder: &Path) -> Target {
    target(folder, "model.bin", "source.vocab.yml", Format::Text)
}

/// `decoder.yml`.
pub fn decoder(folder: &Path) -> Target {
    target(folder, "model.bin", "decoder.yml", Format::Text)
}
