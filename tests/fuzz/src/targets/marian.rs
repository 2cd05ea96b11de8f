//! The files of Marian's directories.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use transformer_core::decoding::Shortlist;
use transformer_core::packed::PackedPrecision;
use transformer_core::{DecodeOptions, PackedModel};

use super::{Target, fixture, is_read, read, search_with, tiny_model, write};
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

/// A shortlist, whose checksum is made right: otherwise hardly any is read.
pub fn shortlist(folder: &Path) -> Target {
    let path = folder.join("lex.bin");
    let lists: [&[u32]; 6] = [&[], &[3], &[], &[4, 7, 9], &[12], &[5, 6]];
    let seeds = [Shortlist::new(2, &lists), Shortlist::new(0, &[[]; 0])];
    let seeds = seeds.map(|seed| {
        seed.save(&path).expect("a shortlist is written");
        read(&path)
    });
    let model = PackedModel::new(tiny_model(), PackedPrecision::Int8);
    Target {
        format: Format::Bytes,
        seeds: seeds.to_vec(),
        run: Box::new(move |input| {
            let mut input = input.to_vec();
            if let Some((head, checked)) = input.split_at_mut_checked(16) {
                head[8..].copy_from_slice(&checksum(checked).to_le_bytes());
            }
            write(&path, &input);
            let Ok(shortlist) = Shortlist::load(&path) else {
                return false;
            };
            for shortlist in [shortlist.clone(), shortlist.with_source_tokens()] {
                let options = DecodeOptions {
                    shortlist: Some(Arc::new(shortlist)),
                    ..DecodeOptions::beam(2)
                };
                search_with(&model, options);
            }
            true
        }),
    }
}

/// Marian's.
fn checksum(bytes: &[u8]) -> u64 {
    let words = bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word));
    words.fold(0_u64, |seed, word| {
        let mixed = word.wrapping_add(0x9e37_79b9).wrapping_add(seed << 6);
        seed ^ mixed.wrapping_add(seed >> 2)
    })
}
