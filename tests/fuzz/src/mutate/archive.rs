//! Changes of a `.pt` file: of the files in the archive, whose checksums are right again afterwards, of the pickles of
//! an old one, or of any bytes.

use std::io::{Cursor, Read, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::{bytes, pickle};
use crate::random::Random;

/// A file in an archive: its name and its bytes.
pub type File = (String, Vec<u8>);

pub fn mutated(seed: Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    match files_of(&seed) {
        Some(mut files) if !random.one_in(4) => {
            change(&mut files, seeds, random);
            zip_of(&files)
        }
        Some(_) => bytes::mutated(seed, seeds, random),
        None => pickle::mutated(&seed, random),
    }
}

/// The files of an archive in which nothing is compressed.
pub fn files_of(archive: &[u8]) -> Option<Vec<File>> {
    let mut zip = ZipArchive::new(Cursor::new(archive)).ok()?;
    let mut files = Vec::new();
    for index in 0..zip.len() {
        let mut file = zip.by_index(index).ok()?;
        let name = file.name().to_owned();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        files.push((name, bytes));
    }
    Some(files)
}

/// An archive of these files, the later one of two of one name.
fn zip_of(files: &[File]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, bytes) in files {
        // A name that is there already, or too long, is no file.
        if zip.start_file(name.as_str(), options).is_ok() {
            zip.write_all(bytes).expect("memory takes all");
        }
    }
    let finished = zip.finish().expect("memory takes all");
    finished.into_inner()
}

fn change(files: &mut Vec<File>, seeds: &[Vec<u8>], random: &mut Random) {
    if files.is_empty() {
        return;
    }
    let pickles = files
        .iter()
        .position(|(name, _)| name.ends_with("data.pkl"));
    let at = match pickles {
        // Most changes are to the pickle: it is the only program
        // in the file.
        Some(pickles) if !random.one_in(4) => pickles,
        _ => random.below(files.len()),
    };
    let is_pickle = Some(at) == pickles;
    match random.below(8) {
        0 => drop(files.remove(at)),
        1 => {
            let bytes = random.pick(files).1.clone();
            files[at].1 = bytes;
        }
        2 => {
            let name = format!("{}{}", files[at].0, random.below(3));
            files[at].0 = name;
        }
        _ => {
            let old = std::mem::take(&mut files[at].1);
            files[at].1 = match is_pickle {
                true => pickle::mutated(&old, random),
                false => bytes::mutated(old, seeds, random),
            };
        }
    }
}
