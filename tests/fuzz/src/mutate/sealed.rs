//! Changes of bytes that end with the CRC-32 of all before, which is right again afterwards.

use flate2::Crc;

use super::bytes;
use crate::random::Random;

const CHECKSUM: usize = 4;

pub fn mutated(mut seed: Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    seed.truncate(seed.len().saturating_sub(CHECKSUM));
    // Half of the changes near the end, where such a file says where its parts are.
    let mut changed = match random.one_in(2) {
        true => bytes::mutated(seed, seeds, random),
        false => {
            let end = seed.split_off(seed.len().saturating_sub(64));
            [seed, bytes::mutated(end, seeds, random)].concat()
        }
    };
    let checksum = crc32(&changed);
    changed.extend(checksum.to_le_bytes());
    changed
}

/// The CRC-32 of bytes.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}
