//! Changes of a `.safetensors` file: of its header in JSON, whose length is right again afterwards, or of any bytes.

use serde_json::Value;

use super::{bytes, json};
use crate::random::Random;

const LENGTH: usize = size_of::<u64>();

pub fn mutated(seed: Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let Some((header, numbers)) = parts(&seed) else {
        return bytes::mutated(seed, seeds, random);
    };
    if random.one_in(4) {
        // NaN, infinities and other numbers.
        let numbers = bytes::mutated(numbers.to_vec(), seeds, random);
        return joined(header, &numbers);
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(header) else {
        return bytes::mutated(seed, seeds, random);
    };
    json::change_values(&mut value, random);
    joined(value.to_string().as_bytes(), numbers)
}

/// The header and the numbers of a file.
fn parts(file: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = file.split_first_chunk::<LENGTH>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    rest.split_at_checked(length)
}

fn joined(header: &[u8], numbers: &[u8]) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header, numbers].concat()
}
