//! Packages of Argos Translate: a model of CTranslate2 and its SentencePiece model, in a zip archive (`.argosmodel`) or
//! unpacked.
//!
//! | file | contents |
//! |---|---|
//! | `model/` | a directory of CTranslate2 |
//! | `sentencepiece.model` | the pieces of source and target |
//! | `metadata.json` | languages; a prefix of targets |
//!
//! Others, such as a model that splits texts into sentences, are not read.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use tempfile::TempDir;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::decoding::{DecodeOptions, LengthPenalty};
use crate::formats::ctranslate2;
use crate::formats::error::ModelError;
use crate::formats::files::is_there;
use crate::formats::hugging_face::keys::Keys;

/// The ending of an archive's name.
const ENDING: &str = "argosmodel";
/// The folder of the model.
const MODEL: &str = "model";
const METADATA: &str = "metadata.json";
/// The file with the pieces, as seen from the model's folder.
pub(super) const PIECES: &str = "../sentencepiece.model";

/// A package.
pub(super) struct Package {
    /// The directory of its model.
    pub model: PathBuf,
    /// The directory with its files, if it was an archive: removed with this value.
    _unpacked: Option<TempDir>,
}

/// Whether a path is a package, judging by file names.
pub(crate) fn is_in(path: &Path) -> bool {
    is_archive(path) || is_package(path)
}

fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == ENDING) && path.is_file()
}

fn is_package(directory: &Path) -> bool {
    is_there(&directory.join(METADATA)) && ctranslate2::is_in(&directory.join(MODEL))
}

impl Package {
    /// Opens a package, and unpacks an archive; `None` if the path is something else.
    ///
    /// # Errors
    /// When an archive is damaged, cannot be unpacked, or has no model.
    pub fn open(path: &Path) -> Result<Option<Self>, ModelError> {
        if is_package(path) {
            return Ok(Some(Self {
                model: path.join(MODEL),
                _unpacked: None,
            }));
        }
        if !is_archive(path) {
            return Ok(None);
        }
        // Errors name its files, so the name says which package they are from.
        let name = path.file_name().map(|name| name.to_string_lossy());
        let unpacked = tempfile::Builder::new()
            .prefix(&format!("{}-", name.unwrap_or_default()))
            .tempdir();
        let unpacked = unpacked.map_err(ModelError::io(std::env::temp_dir()))?;
        let problem = |problem: String| ModelError::Weights {
            path: path.to_owned(),
            problem,
        };
        unpack(path, unpacked.path()).map_err(|error| match error {
            ZipError::Io(error) => ModelError::io(path)(error),
            error => problem(format!("not a package of Argos Translate: {error}")),
        })?;
        if !is_package(unpacked.path()) {
            let missing = "not a package of Argos Translate: it has no model of CTranslate2";
            return Err(problem(missing.to_owned()));
        }
        Ok(Some(Self {
            model: unpacked.path().join(MODEL),
            _unpacked: Some(unpacked),
        }))
    }
}

/// The most that an archive is unpacked to, as a multiple of its size: more than any model's files need.
const MOST_EXPANSION: u64 = 30;

/// Unpacks the files that are read. They are in a folder of any name.
fn unpack(archive: &Path, into: &Path) -> Result<(), ZipError> {
    let mut archive = File::open(archive)?;
    // The end of the archive's directory is looked for in the whole file.
    let mut begins = [0; 2];
    if archive.read_exact(&mut begins).is_err() || begins != *b"PK" {
        return Err(ZipError::InvalidArchive("not a zip archive".into()));
    }
    let mut left = archive.metadata()?.len().saturating_mul(MOST_EXPANSION);
    let mut archive = ZipArchive::new(archive)?;
    fs::create_dir(into.join(MODEL))?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index)?;
        let Some(path) = entry.enclosed_name().filter(|_| entry.is_file()) else {
            continue;
        };
        let names: Vec<Component<'_>> = path.components().collect();
        let name = match names[..] {
            [_, folder, name] if folder.as_os_str() == MODEL => Path::new(MODEL).join(name),
            [_, name] => PathBuf::from(name.as_os_str()),
            _ => continue,
        };
        let mut file = File::create(into.join(name))?;
        left -= io::copy(&mut entry.by_ref().take(left), &mut file)?;
        if left == 0 {
            let problem = "it would be more than 30 times as large when unpacked";
            return Err(ZipError::InvalidArchive(problem.into()));
        }
    }
    Ok(())
}

/// The decoding options of the package that a model's directory is in: Argos Translate's. `None` if it is in none.
///
/// # Errors
/// When the package has pieces of another kind, or a prefix of targets.
pub(super) fn options(model: &Path) -> Result<Option<DecodeOptions>, ModelError> {
    let is_model = |package: &&Path| model.ends_with(MODEL) && is_package(package);
    let Some(package) = model.parent().filter(is_model) else {
        return Ok(None);
    };
    let pieces = model.join(PIECES);
    if !is_there(&pieces) {
        let problem = match is_there(&package.join("bpe.model")) {
            true => "the package has `bpe.model` instead, which is not supported",
            false => "the package has no such file",
        };
        return Err(ModelError::Weights {
            path: package.join("sentencepiece.model"),
            problem: problem.to_owned(),
        });
    }
    let keys = Keys::read_if_there(&package.join(METADATA))?;
    if let Some(keys) = keys
        && keys
            .text("target_prefix")?
            .is_some_and(|prefix| !prefix.is_empty())
    {
        return Err(keys.refusal("target_prefix", "which is not supported"));
    }
    Ok(Some(DecodeOptions {
        length_penalty: LengthPenalty::Power(0.2),
        ..DecodeOptions::beam(4)
    }))
}
