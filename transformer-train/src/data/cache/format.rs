//! The file of a cache.
//!
//! Numbers are little-endian.
//!
//! | section | holds |
//! |---|---|
//! | head | `TRFPAIRS`, the format version (u32) |
//! | records | per pair: the ids of its source pieces and of its target pieces (u32 each); if the text is kept, also the length of the source sentence in bytes (u32), the source sentence and the target sentence |
//! | index | per pair: the number of its source pieces, of its target pieces, and of the bytes of its record (u32 each) |
//! | metadata | JSON |
//! | foot | the number of pairs (u64), the number of bytes of the metadata (u64), the CRC-32 of all bytes before (u32) |

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use flate2::CrcWriter;
use serde::{Deserialize, Serialize};

use crate::data::cache::PairCache;
use crate::data::cache::positional::PositionalFile;
use crate::data::cache::recipe::{Recipe, copied_crc};
use crate::data::corpora::corpus::Pair;
use crate::data::corpora::filters::Filtered;
use crate::data::error::CorpusError;
use crate::data::example::TokenizedPair;
use crate::files;

const MAGIC: [u8; 8] = *b"TRFPAIRS";
const FORMAT: u32 = 1;
const HEAD_BYTES: u64 = 12;
const INDEX_BYTES: u64 = 12;
const FOOT_BYTES: u64 = 20;
/// Number of pairs whose index entries are read at once.
const INDEX_CHUNK: u64 = 4096;

/// Data of all pairs together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Metadata {
    pub recipe: Recipe,
    pub filtered: Filtered,
    pub weights: Vec<(Range<usize>, f64)>,
    /// Checksum of the pairs as a run's training data.
    pub checksum: u32,
}

/// Writes a cache.
pub(super) struct CacheWriter<W: Write> {
    out: CrcWriter<W>,
    keep_text: bool,
    index: Vec<[u32; 3]>,
    record: Vec<u8>,
}

impl<W: Write> CacheWriter<W> {
    pub fn new(out: W, keep_text: bool) -> io::Result<Self> {
        let mut out = CrcWriter::new(out);
        out.write_all(&MAGIC)?;
        out.write_all(&FORMAT.to_le_bytes())?;
        Ok(Self {
            out,
            keep_text,
            index: Vec::new(),
            record: Vec::new(),
        })
    }

    /// Appends a pair.
    pub fn write(&mut self, text: &Pair, pieces: &TokenizedPair) -> io::Result<()> {
        let number = |length: usize| u32::try_from(length).map_err(io::Error::other);
        let record = &mut self.record;
        record.clear();
        for piece in pieces.source.iter().chain(&pieces.target) {
            record.extend_from_slice(&piece.to_le_bytes());
        }
        if self.keep_text {
            record.extend_from_slice(&number(text.source.len())?.to_le_bytes());
            record.extend_from_slice(text.source.as_bytes());
            record.extend_from_slice(text.target.as_bytes());
        }
        self.index.push([
            number(pieces.source.len())?,
            number(pieces.target.len())?,
            number(record.len())?,
        ]);
        self.out.write_all(record)
    }

    /// Appends everything after the pairs.
    pub fn finish(mut self, metadata: &Metadata) -> io::Result<()> {
        for number in self.index.as_flattened() {
            self.out.write_all(&number.to_le_bytes())?;
        }
        let metadata = serde_json::to_vec(metadata)?;
        self.out.write_all(&metadata)?;
        for number in [self.index.len(), metadata.len()] {
            self.out.write_all(&(number as u64).to_le_bytes())?;
        }
        let crc = self.out.crc().sum();
        let mut out = self.out.into_inner();
        out.write_all(&crc.to_le_bytes())?;
        out.flush()
    }
}

/// Opens a cache and checks its format, its checksum, and that its sections fit together.
pub(super) fn open(path: &Path) -> Result<PairCache, CorpusError> {
    let file = match files::open(path) {
        Ok(file) => file,
        Err(source) => {
            let path = path.to_owned();
            return Err(CorpusError::Open { path, source });
        }
    };
    let Sections {
        pairs,
        index,
        metadata,
    } = Sections::of(path, &file)?;
    let damaged = |problem: &str| CorpusError::CacheDamaged {
        path: path.to_owned(),
        problem: problem.into(),
    };
    let file = PositionalFile::new(file);
    let read = |range: Range<u64>| {
        // A part of the file, so not longer than it.
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = file.read_exact_at(&mut bytes, range.start);
        read.map(|()| bytes).map_err(CorpusError::io(path))
    };
    let metadata: Metadata = serde_json::from_slice(&read(metadata)?)
        .map_err(|error| damaged(&format!("its metadata: {error}")))?;
    let keep_text = metadata.recipe.options.keep_text;

    let mut offsets = Vec::with_capacity(pairs + 1);
    let mut pieces = Vec::with_capacity(pairs);
    let mut offset = HEAD_BYTES;
    offsets.push(offset);
    let chunk = INDEX_CHUNK * INDEX_BYTES;
    for start in index.clone().step_by(chunk as usize) {
        let bytes = read(start..index.end.min(start + chunk))?;
        let (numbers, _) = bytes.as_chunks::<4>();
        let (entries, _) = numbers.as_chunks::<3>();
        for entry in entries {
            let [source, target, record] = entry.map(u32::from_le_bytes);
            let of_pieces = 4 * (u64::from(source) + u64::from(target));
            let fits = match keep_text {
                true => u64::from(record) >= of_pieces + 4,
                false => u64::from(record) == of_pieces,
            };
            if !fits {
                return Err(damaged("a record is not a pair"));
            }
            offset += u64::from(record);
            offsets.push(offset);
            pieces.push([source, target]);
        }
    }
    let mut weights = metadata.weights.iter();
    if offset != index.start || weights.any(|(range, _)| range.end > pieces.len()) {
        return Err(damaged("its sections do not fit together"));
    }
    Ok(PairCache {
        path: path.to_owned(),
        file,
        offsets,
        pieces,
        metadata,
        dropout: None,
    })
}

/// The positions of the sections after the records.
struct Sections {
    pairs: usize,
    index: Range<u64>,
    metadata: Range<u64>,
}

impl Sections {
    /// The sections of a file, which is read completely and verified by its checksum.
    fn of(path: &Path, file: &File) -> Result<Self, CorpusError> {
        let io = |error| CorpusError::io(path)(error);
        let damaged = |problem| CorpusError::CacheDamaged {
            path: path.to_owned(),
            problem,
        };
        let length = file.metadata().map_err(io)?.len();
        check_format(path, file)?;
        let Some(most) = length.checked_sub(HEAD_BYTES + FOOT_BYTES) else {
            return Err(damaged(format!("it ends after {length} bytes")));
        };

        let mut reader = file;
        reader.seek(SeekFrom::Start(0)).map_err(io)?;
        let (_, found) = copied_crc(&mut reader.take(length - 4)).map_err(io)?;
        let expected = u32::from_le_bytes(next(reader).map_err(io)?);
        if found != expected {
            let problem = format!("its checksum is {found:08x}, not {expected:08x}");
            return Err(damaged(problem));
        }
        reader
            .seek(SeekFrom::Start(length - FOOT_BYTES))
            .map_err(io)?;
        let pairs = u64::from_le_bytes(next(reader).map_err(io)?);
        let metadata = u64::from_le_bytes(next(reader).map_err(io)?);
        let index = pairs.checked_mul(INDEX_BYTES);
        let after_records = index.and_then(|index| index.checked_add(metadata));
        if after_records.is_none_or(|bytes| bytes > most) {
            return Err(damaged("its sections are longer than the file".into()));
        }
        let end = length - FOOT_BYTES;
        let metadata = end - metadata..end;
        Ok(Self {
            pairs: pairs as usize,
            index: metadata.start - pairs * INDEX_BYTES..metadata.start,
            metadata,
        })
    }
}

/// Checks that a file begins like a cache in the format of this version.
fn check_format(path: &Path, file: &File) -> Result<(), CorpusError> {
    let mut head = Vec::new();
    let read = file.take(HEAD_BYTES).read_to_end(&mut head);
    read.map_err(CorpusError::io(path))?;
    let path = path.to_owned();
    let Some(format) = head.strip_prefix(&MAGIC) else {
        return Err(CorpusError::NotACache { path });
    };
    let Ok(format) = <[u8; 4]>::try_from(format) else {
        return Err(CorpusError::CacheDamaged {
            path,
            problem: format!("it ends after {} bytes", head.len()),
        });
    };
    match u32::from_le_bytes(format) {
        FORMAT => Ok(()),
        found => Err(CorpusError::CacheFormat {
            path,
            found,
            known: FORMAT,
        }),
    }
}

/// The next bytes of a file.
fn next<const N: usize>(mut file: &File) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}
