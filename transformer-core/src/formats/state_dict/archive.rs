//! The `.pt` files of `torch.save`: a ZIP archive of a pickle and of the data that it describes.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::rc::Rc;

use burn::tensor::TensorData;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::formats::state_dict::StateDict;
use crate::formats::state_dict::pickle;
use crate::formats::state_dict::stored::Storage;
use crate::formats::state_dict::zip_directory::{self, Entry};

/// The first bytes of a ZIP archive.
pub const MAGIC: &[u8] = b"PK\x03\x04";

/// Alignment of storages, which PyTorch's reader expects for memory mapping.
const ALIGNMENT: u16 = 64;

/// Maximum size in bytes of a file in the archive that is not a storage.
const MOST_BYTES: usize = 1 << 24;

/// Reads a `.pt` file of `size` bytes; tensor data stays in the file.
///
/// # Errors
/// When the file is not a state dict.
pub fn read(file: File, size: u64) -> Result<StateDict, String> {
    let file = Rc::new(file);
    let archive = Archive::of_state_dict(&file, size)?;
    if let Some(order) = archive.bytes("byteorder")?
        && order != b"little"
    {
        return Err("the data is not little-endian".to_owned());
    }
    let pickle = archive.bytes("data.pkl")?.ok_or("data.pkl is missing")?;
    let pickle = pickle::read(&pickle[..]).map_err(|problem| format!("data.pkl: {problem}"))?;
    let mut storages = HashMap::new();
    for (key, described) in &pickle.storages {
        let name = format!("data/{key}");
        let storage = archive
            .find(&name)?
            .ok_or_else(|| format!("{name} is missing"))?;
        if Some(storage.len()) != described.size() {
            return Err(format!(
                "{name} has {} bytes, which are not {} elements of {}",
                storage.len(),
                described.len,
                described.dtype.name()
            ));
        }
        storages.insert(Rc::clone(key), Rc::new(storage));
    }
    Ok(StateDict::of_pickle(pickle.entries, &storages))
}

/// Writes a `.pt` file of tensors in single precision.
///
/// # Errors
/// When the file cannot be written.
pub fn write<'a>(
    path: &Path,
    tensors: impl Iterator<Item = (&'a str, &'a TensorData)> + Clone,
) -> std::io::Result<()> {
    let mut archive = ZipWriter::new(BufWriter::new(File::create(path)?));
    let mut put = |name: String, bytes: &[u8]| -> std::io::Result<()> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .with_alignment(ALIGNMENT)
            .large_file(bytes.len() > u32::MAX as usize);
        archive.start_file(format!("archive/{name}"), options)?;
        archive.write_all(bytes)
    };
    let described = tensors.clone().map(|(name, data)| (name, &data.shape[..]));
    put("data.pkl".to_owned(), &pickle::write(described))?;
    put("byteorder".to_owned(), b"little")?;
    for (key, (_, data)) in tensors.enumerate() {
        put(format!("data/{key}"), data.as_bytes())?;
    }
    put("version".to_owned(), b"3\n")?;
    archive.finish()?.flush()
}

/// A ZIP archive whose declared sizes are checked against the bytes of the file.
pub struct Archive<'a> {
    file: &'a Rc<File>,
    /// Bytes of the file.
    size: u64,
    entries: BTreeMap<String, Entry>,
    /// What precedes the name of each file: the folder of all files.
    folder: String,
}

impl<'a> Archive<'a> {
    pub fn open(file: &'a Rc<File>, size: u64) -> Result<Self, String> {
        Ok(Self {
            file,
            size,
            entries: zip_directory::read(file, size)?,
            folder: String::new(),
        })
    }

    /// The archive of a state dict, whose files are in a folder.
    fn of_state_dict(file: &'a Rc<File>, size: u64) -> Result<Self, String> {
        let archive = Self::open(file, size)?;
        let mut names = archive.names();
        let folder = names.find_map(|name| name.strip_suffix("data.pkl"));
        let folder = folder.filter(|folder| folder.ends_with('/'));
        let folder = folder.ok_or("data.pkl is missing")?.to_owned();
        drop(names);
        Ok(Self { folder, ..archive })
    }

    /// The names of the files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The location and checksum of a file in the archive.
    pub fn find(&self, name: &str) -> Result<Option<Storage>, String> {
        let problem = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let path = format!("{}{name}", self.folder);
        let Some(entry) = self.entries.get(&path) else {
            return Ok(None);
        };
        if !entry.is_stored {
            return Err(problem(&"compressed; only stored files can be read"));
        }
        let start = zip_directory::start(self.file, entry).map_err(|error| problem(&error))?;
        let checksum = Some(entry.checksum);
        let storage = Storage::new(self.file, self.size, start, entry.len, checksum);
        let storage = storage.ok_or_else(|| problem(&"larger than the archive"))?;
        Ok(Some(storage))
    }

    /// The bytes of a file in the archive.
    fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(storage) = self.find(name)? else {
            return Ok(None);
        };
        if storage.len() > MOST_BYTES {
            return Err(format!("{name}: more than {MOST_BYTES} bytes"));
        }
        let bytes = storage
            .bytes()
            .map_err(|error| format!("{name}: {error}"))?;
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    /// An archive of these files.
    fn archive(files: &[(&str, &[u8])]) -> File {
        let mut zip = ZipWriter::new(tempfile::tempfile().unwrap());
        for (name, bytes) in files {
            let stored = CompressionMethod::Stored;
            let options = SimpleFileOptions::default().compression_method(stored);
            zip.start_file(format!("m/{name}"), options).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap()
    }

    fn read_whole(file: File) -> Result<StateDict, String> {
        let size = file.metadata().unwrap().len();
        read(file, size)
    }

    fn problem(files: &[(&str, &[u8])]) -> String {
        match read_whole(archive(files)) {
            Ok(_) => panic!("read"),
            Err(problem) => problem,
        }
    }

    fn pickle_of(shape: &[usize]) -> Vec<u8> {
        pickle::write([("x", shape)].into_iter())
    }

    #[test]
    fn every_storage_is_there_in_full() {
        let pickle = pickle_of(&[3]);
        let whole = [("data.pkl", &pickle[..]), ("data/0", &[0; 12])];
        let dict = read_whole(archive(&whole)).unwrap();
        assert_eq!(dict.tensors["x"].shape, [3]);
        assert!(dict.tensors["x"].is_zero().unwrap());

        assert_eq!(problem(&[("data.pkl", &pickle)]), "data/0 is missing");
        assert_eq!(
            problem(&[("data.pkl", &pickle), ("data/0", &[0; 11])]),
            "data/0 has 11 bytes, which are not 3 elements of f32"
        );
        assert_eq!(problem(&[("data/0", &[0; 12])]), "data.pkl is missing");
        assert_eq!(
            problem(&[("data.pkl", &pickle), ("byteorder", b"big")]),
            "the data is not little-endian"
        );
    }

    #[test]
    fn absurd_sizes_are_an_error() {
        let pickle = pickle_of(&[usize::MAX / 8]);
        assert_eq!(
            problem(&[("data.pkl", &pickle), ("data/0", &[0; 12])]),
            "data/0 has 12 bytes, which are not 2305843009213693951 elements of f32"
        );
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let pickle = pickle_of(&[3]);
        let whole = archive(&[("data.pkl", &pickle[..]), ("data/0", &[7; 12])]);
        let mut bytes = Vec::new();
        (&whole).rewind().unwrap();
        (&whole).read_to_end(&mut bytes).unwrap();
        let numbers = bytes
            .windows(12)
            .position(|bytes| bytes == [7; 12])
            .unwrap();
        bytes[numbers] = 8;
        let mut damaged = tempfile::tempfile().unwrap();
        damaged.write_all(&bytes).unwrap();
        let dict = read_whole(damaged).unwrap();
        // The data is checked when it is read.
        let error = dict.tensors["x"].parts().err().unwrap();
        assert_eq!(error.to_string(), "the checksum does not match the data");
    }
}
