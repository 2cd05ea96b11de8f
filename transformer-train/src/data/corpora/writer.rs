//! Sentence pairs, written one by one.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use transformer_core::formats::replace_file;

use crate::data::corpora::corpus::Pair;
use crate::data::corpora::lines::sentence;
use crate::data::corpora::text_lines::MAX_LINE_BYTES;
use crate::data::error::CorpusError;

/// Writes `source<TAB>target`, one pair per line: the whole file, or nothing if a pair is an error or would not be
/// read back unchanged.
pub(crate) fn write_tsv<P: Borrow<Pair>>(
    path: &Path,
    pairs: impl Iterator<Item = Result<P, CorpusError>>,
) -> Result<(), CorpusError> {
    let written = replace_file(path, |new| {
        let mut out = BufWriter::new(File::create(new)?);
        for (index, pair) in pairs.enumerate() {
            let pair = pair?;
            let Pair { source, target }: &Pair = pair.borrow();
            for (side, text) in [("source", source), ("target", target)] {
                if !reads_back(text) {
                    let path = path.to_owned();
                    let pair = index + 1;
                    return Err(CorpusError::Unwritable { path, pair, side }.into());
                }
            }
            if source.len() + target.len() >= MAX_LINE_BYTES {
                return Err(CorpusError::LineTooLong {
                    path: path.to_owned(),
                    line: index + 1,
                    limit: MAX_LINE_BYTES,
                }
                .into());
            }
            writeln!(out, "{source}\t{target}")?;
        }
        Ok::<_, WriteError>(out.flush()?)
    });
    written.map_err(|error| error.at(path))
}

/// Whether a sentence is read back from its line unchanged.
fn reads_back(text: &str) -> bool {
    !text.is_empty() && !text.contains('\n') && text == sentence(text)
}

/// Why a file of pairs was not written.
pub(crate) enum WriteError {
    /// A pair is an error.
    Corpus(CorpusError),
    /// The file cannot be written.
    Io(io::Error),
}

impl WriteError {
    /// The error of writing the file at `path`.
    pub fn at(self, path: &Path) -> CorpusError {
        match self {
            Self::Corpus(error) => error,
            Self::Io(source) => CorpusError::Write {
                path: path.to_owned(),
                source,
            },
        }
    }
}

impl From<CorpusError> for WriteError {
    fn from(error: CorpusError) -> Self {
        Self::Corpus(error)
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
