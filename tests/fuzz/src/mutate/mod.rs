//! Mutation: an input that a reader accepts, changed in a way that keeps it deep in the reader. A change of any byte of
//! an archive ends at its checksum; so archives, pickles, headers and JSON are taken apart, changed inside, and put
//! together with lengths and checksums that are right again.

mod archive;
mod bytes;
mod gzip;
mod json;
mod pickle;
mod safetensors;
mod sealed;
mod text;

pub use archive::files_of;
pub use gzip::compressed;
pub use pickle::old_archive;
pub use sealed::crc32;

use crate::random::Random;

/// The most bytes of an input.
pub const MOST_BYTES: usize = 1 << 16;

/// The format of an input, and how it is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Any bytes, such as SentencePiece's messages.
    Bytes,
    /// A `.pt` file: a ZIP archive, or pickles one after the other.
    Pytorch,
    /// A `.safetensors` file.
    Safetensors,
    Json,
    /// Lines, such as TOML's.
    Text,
    /// Lines, plain or compressed.
    Gzip,
    /// Bytes that end with the CRC-32 of all before.
    Sealed,
    /// Random bytes, from which a target makes choices: the seeds are not used.
    Choices,
}

impl Format {
    /// A new input, made of one of the seeds and perhaps a part of another.
    pub fn mutated(self, seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
        if self == Self::Choices {
            // Two for each choice: a command has some forty flags.
            let count = 16 + random.below(400);
            return random.bytes(count);
        }
        let seed = random.pick(seeds).clone();
        // Plain damage, too.
        let mut changed = match random.one_in(6) {
            true => bytes::mutated(seed, seeds, random),
            false => match self {
                Self::Bytes | Self::Choices => bytes::mutated(seed, seeds, random),
                Self::Pytorch => archive::mutated(seed, seeds, random),
                Self::Safetensors => safetensors::mutated(seed, seeds, random),
                Self::Json => json::mutated(seed, seeds, random),
                Self::Text => text::mutated(seed, seeds, random),
                Self::Gzip => gzip::mutated(seed, seeds, random),
                Self::Sealed => sealed::mutated(seed, seeds, random),
            },
        };
        changed.truncate(MOST_BYTES);
        changed
    }
}
