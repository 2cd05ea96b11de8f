//! Changes of a text that may be compressed: within the text, or of the compressed bytes.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::{bytes, text};
use crate::random::Random;

/// The most bytes of a text that is compressed: a few bytes of gzip can stand for a thousand times as many, and lines
/// are kept in memory by those who ask for a corpus.
const MOST_TEXT: usize = 1 << 17;

pub fn mutated(seed: Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if random.one_in(4) {
        return bytes::mutated(seed, seeds, random);
    }
    let mut plain = Vec::new();
    let is_compressed = seed.starts_with(&[0x1f, 0x8b]);
    if !is_compressed {
        plain = seed;
    } else if MultiGzDecoder::new(&seed[..])
        .read_to_end(&mut plain)
        .is_err()
    {
        return bytes::mutated(seed, seeds, random);
    }
    let mut changed = text::mutated(plain, seeds, random);
    changed.truncate(MOST_TEXT);
    match is_compressed {
        true => compressed(&changed),
        false => changed,
    }
}

/// The text by gzip.
pub fn compressed(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}
