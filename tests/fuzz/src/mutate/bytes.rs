//! Changes of bytes that ignore their meaning.

use crate::mutate::MOST_BYTES;
use crate::random::Random;

/// The bytes with a few changes.
pub fn mutated(mut bytes: Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    for _ in 0..random.few() {
        change(&mut bytes, seeds, random);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let length = bytes.len();
    let at = random.below(length);
    match random.below(10) {
        0 if length > 0 => bytes[at] ^= 1_u8 << random.below(8),
        1 if length > 0 => bytes[at] = random.byte(),
        2 => number(bytes, at, random),
        3 => {
            let new = random.below(32);
            let new = random.bytes(new);
            drop(bytes.splice(at..at, new));
        }
        4 => {
            let part = random.part(length);
            drop(bytes.drain(part));
        }
        // Repeated many times, so that the memory of each shows.
        5 => {
            let part = bytes[random.part(length)].to_vec();
            let most = (MOST_BYTES - length.min(MOST_BYTES)) / part.len().max(1);
            let times = random.below(most.min(1000) + 1);
            drop(bytes.splice(at..at, part.repeat(times)));
        }
        6 => {
            let other = random.pick(seeds);
            let part = other[random.part(other.len())].to_vec();
            drop(bytes.splice(at..at, part));
        }
        7 => {
            let (from, to) = (random.part(length), random.below(length));
            let part = bytes[from].to_vec();
            let end = length.min(to + part.len());
            bytes[to..end].copy_from_slice(&part[..end - to]);
        }
        8 if random.one_in(4) => bytes.truncate(at),
        9 => {
            let part = random.part(length);
            let byte = *random.pick(&[0, 0x7f, 0x80, 0xff]);
            bytes[part].fill(byte);
        }
        _ => {}
    }
}

/// Writes an extreme number over some bytes, in either order and any width.
fn number(bytes: &mut [u8], at: usize, random: &mut Random) {
    let number = random.number();
    let number = match random.one_in(4) {
        true => number.to_be_bytes(),
        false => number.to_le_bytes(),
    };
    let width = *random.pick(&[1, 2, 4, 8]);
    let end = bytes.len().min(at + width);
    bytes[at..end].copy_from_slice(&number[..end - at]);
}
