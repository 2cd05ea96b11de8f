//! The inputs that determine a cache, by which it is recognized.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::{Crc, CrcWriter};
use serde::{Deserialize, Serialize};
use transformer_core::Tokenizers;

use crate::data::cache::CacheOptions;
use crate::data::corpora::files::CorpusFiles;
use crate::data::error::CorpusError;

/// The inputs that determine a cache. Equal recipes give the same pairs; weights are not part of a recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Recipe {
    /// The files of each corpus.
    files: Vec<Vec<Stamp>>,
    /// The source sentences that are held out.
    held_out: Stamp,
    /// The tokenizers of source and target.
    tokenizers: [Stamp; 2],
    pub options: CacheOptions,
}

impl Recipe {
    /// Reads the files completely.
    pub fn new(
        files: &CorpusFiles,
        tokenizers: &Tokenizers,
        options: &CacheOptions,
    ) -> Result<Self, CorpusError> {
        let corpora = files.corpora().iter();
        let stamps = corpora.map(|(corpus, _)| -> Result<Vec<_>, CorpusError> {
            corpus.check_regular()?;
            let paths = corpus.paths().into_iter();
            paths.map(Stamp::of_file).collect()
        });
        Ok(Self {
            files: stamps.collect::<Result<_, _>>()?,
            held_out: Stamp::of_bytes(files.held_out().join("\n").as_bytes()),
            tokenizers: stamps_of(tokenizers)?,
            options: options.clone(),
        })
    }

    /// Whether the cache was built with these tokenizers.
    pub fn has_tokenizers(&self, tokenizers: &Tokenizers) -> Result<bool, CorpusError> {
        Ok(self.tokenizers == stamps_of(tokenizers)?)
    }
}

fn stamps_of(tokenizers: &Tokenizers) -> Result<[Stamp; 2], CorpusError> {
    let sides = tokenizers.to_bytes();
    let sides = sides.map_err(|error| CorpusError::Other(Box::new(error)))?;
    Ok(sides.map(|bytes| Stamp::of_bytes(&bytes)))
}

/// Identifies the content of a file or a text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Stamp {
    bytes: u64,
    crc32: u32,
}

impl Stamp {
    fn of_bytes(bytes: &[u8]) -> Self {
        let mut crc = Crc::new();
        crc.update(bytes);
        Self {
            bytes: bytes.len() as u64,
            crc32: crc.sum(),
        }
    }

    fn of_file(path: &Path) -> Result<Self, CorpusError> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(source) => {
                let path = path.to_owned();
                return Err(CorpusError::Open { path, source });
            }
        };
        let (bytes, crc32) = copied_crc(&mut file).map_err(CorpusError::io(path))?;
        Ok(Self { bytes, crc32 })
    }
}

/// The number of remaining bytes, and their CRC-32.
pub(super) fn copied_crc(reader: &mut impl Read) -> io::Result<(u64, u32)> {
    let mut crc = CrcWriter::new(io::sink());
    let bytes = io::copy(reader, &mut crc)?;
    Ok((bytes, crc.crc().sum()))
}
