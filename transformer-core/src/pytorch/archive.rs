//! The `.pt` files of `torch.save`: a ZIP archive of a pickle and of the numbers it describes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::rc::Rc;

use burn::module::ParamId;
use burn::tensor::{Shape, TensorData};
use burn_store::TensorSnapshot;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::pickle::{self, Entry, PickledTensor};
use super::state_dict::StateDict;

/// The first bytes of a ZIP archive.
pub(super) const MAGIC: &[u8] = b"PK\x03\x04";

/// Alignment of storages, which PyTorch's own reader expects for memory maps.
const ALIGNMENT: u16 = 64;

/// Reads a `.pt` file.
///
/// # Errors
/// When it is not a state dict.
pub(super) fn read(file: File) -> Result<StateDict, String> {
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    let mut archive = Archive::open(file, size)?;
    if let Some(order) = archive.file("byteorder")?
        && order != b"little"
    {
        return Err("numbers that are not little-endian".to_owned());
    }
    let pickle = archive.file("data.pkl")?.ok_or("no data.pkl in it")?;
    let mut dict = StateDict::default();
    let mut storages = HashMap::new();
    for (name, entry) in pickle::read(&pickle).map_err(|problem| format!("data.pkl: {problem}"))? {
        match entry {
            Entry::Other => dict.others.push(name),
            Entry::Tensor(tensor) => {
                let key = tensor.storage.key.clone();
                let storage = match storages.get(&key) {
                    Some(storage) => Rc::clone(storage),
                    None => {
                        let bytes = archive.file(&format!("data/{key}"))?;
                        let bytes = bytes.ok_or_else(|| format!("no data/{key} in it"))?;
                        let bytes: Rc<[u8]> = bytes.into();
                        storages.insert(key.clone(), Rc::clone(&bytes));
                        bytes
                    }
                };
                let expected = tensor.storage.len.checked_mul(tensor.storage.dtype.size());
                if Some(storage.len()) != expected {
                    return Err(format!(
                        "data/{key} has {} bytes, not the {} elements of {} that it should",
                        storage.len(),
                        tensor.storage.len,
                        tensor.storage.dtype.name()
                    ));
                }
                dict.tensors
                    .insert(name.clone(), snapshot(name, tensor, storage));
            }
        }
    }
    Ok(dict)
}

/// Writes a `.pt` file of tensors in single precision.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write<'a>(
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
struct Archive {
    zip: ZipArchive<BufReader<File>>,
    /// The folder that holds all files.
    folder: String,
    /// Bytes that may still be read: the archive's files cannot be read more often than they occur.
    budget: u64,
}

impl Archive {
    fn open(file: File, size: u64) -> Result<Self, String> {
        let zip = ZipArchive::new(BufReader::new(file)).map_err(|error| error.to_string())?;
        let folder = zip
            .file_names()
            .find_map(|name| name.strip_suffix("/data.pkl"))
            .ok_or("no data.pkl in it")?
            .to_owned();
        Ok(Self {
            zip,
            folder,
            budget: size,
        })
    }

    /// The bytes of a file in the archive, checked against their checksum.
    fn file(&mut self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let problem = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let path = format!("{}/{name}", self.folder);
        let Some(index) = self.zip.index_for_name(&path) else {
            return Ok(None);
        };
        let mut file = self.zip.by_index(index).map_err(|error| problem(&error))?;
        if file.compression() != CompressionMethod::Stored {
            return Err(problem(&"compressed, which torch.save never does"));
        }
        let size = file.size();
        self.budget = self
            .budget
            .checked_sub(size)
            .ok_or_else(|| problem(&"larger than the archive"))?;
        let mut bytes = Vec::with_capacity(size as usize);
        file.read_to_end(&mut bytes)
            .map_err(|error| problem(&error))?;
        Ok(Some(bytes))
    }
}

/// A tensor whose numbers are gathered from its storage on demand.
fn snapshot(name: String, tensor: PickledTensor, storage: Rc<[u8]>) -> TensorSnapshot {
    let dtype = tensor.storage.dtype;
    let shape = Shape::from(tensor.shape.clone());
    let own_shape = shape.clone();
    TensorSnapshot::from_closure(
        Rc::new(move || {
            let bytes = gathered(&tensor, &storage);
            Ok(TensorData::from_bytes_vec(bytes, own_shape.clone(), dtype))
        }),
        dtype,
        shape,
        vec![name],
        Vec::new(),
        ParamId::new(),
    )
}

/// The elements of a tensor in the order of its indices.
fn gathered(tensor: &PickledTensor, storage: &[u8]) -> Vec<u8> {
    let width = tensor.storage.dtype.size();
    let elements = tensor.shape.iter().product::<usize>();
    if tensor.strides == pickle::contiguous_strides(&tensor.shape) {
        let start = tensor.offset * width;
        return storage[start..start + elements * width].to_vec();
    }
    let mut bytes = Vec::with_capacity(elements * width);
    let mut index = vec![0; tensor.shape.len()];
    for _ in 0..elements {
        let at: usize = index.iter().zip(&tensor.strides).map(|(i, s)| i * s).sum();
        let start = (tensor.offset + at) * width;
        bytes.extend_from_slice(&storage[start..start + width]);
        for (index, &size) in index.iter_mut().zip(&tensor.shape).rev() {
            *index += 1;
            if *index < size {
                break;
            }
            *index = 0;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with the given files in it.
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

    fn problem(files: &[(&str, &[u8])]) -> String {
        match read(archive(files)) {
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
        let dict = read(archive(&whole)).unwrap();
        assert_eq!(dict.tensors["x"].to_data().unwrap().as_bytes(), [0; 12]);

        assert_eq!(problem(&[("data.pkl", &pickle)]), "no data/0 in it");
        assert_eq!(
            problem(&[("data.pkl", &pickle), ("data/0", &[0; 11])]),
            "data/0 has 11 bytes, not the 3 elements of f32 that it should"
        );
        assert_eq!(problem(&[("data/0", &[0; 12])]), "no data.pkl in it");
        assert_eq!(
            problem(&[("data.pkl", &pickle), ("byteorder", b"big")]),
            "numbers that are not little-endian"
        );
    }

    #[test]
    fn absurd_sizes_are_an_error() {
        let pickle = pickle_of(&[usize::MAX / 8]);
        assert_eq!(
            problem(&[("data.pkl", &pickle), ("data/0", &[0; 12])]),
            "data/0 has 12 bytes, not the 2305843009213693951 elements of f32 that it should"
        );
    }

    #[test]
    fn a_file_is_not_read_more_often_than_it_is_there() {
        let file = archive(&[("data.pkl", &[0; 1000])]);
        let size = file.metadata().unwrap().len();
        let mut archive = Archive::open(file, size).unwrap();
        assert!(archive.file("data.pkl").unwrap().is_some());
        assert_eq!(
            archive.file("data.pkl").unwrap_err(),
            "data.pkl: larger than the archive"
        );
    }

    #[test]
    fn strided_tensors_are_gathered() {
        let storage: Vec<u8> = (0..24).collect();
        let tensor = |offset, shape: &[usize], strides: &[usize]| PickledTensor {
            storage: pickle::Storage {
                key: "0".to_owned(),
                dtype: burn::tensor::DType::I16,
                len: 12,
            },
            offset,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
        };
        // Rows of elements 1, 3 and of 2, 4.
        let transposed = tensor(1, &[2, 2], &[1, 2]);
        assert_eq!(gathered(&transposed, &storage), [2, 3, 6, 7, 4, 5, 8, 9]);
        let whole = tensor(10, &[2], &[1]);
        assert_eq!(gathered(&whole, &storage), [20, 21, 22, 23]);
        assert_eq!(gathered(&tensor(3, &[], &[]), &storage), [6, 7]);
        assert_eq!(gathered(&tensor(0, &[2, 0], &[5, 1]), &storage), [0_u8; 0]);
    }
}
