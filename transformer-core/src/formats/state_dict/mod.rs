//! State-dict files, in all their formats.

pub(crate) mod archive;
mod old_archive;
mod pickle;
mod safetensors_file;
pub mod stored;
mod zip_directory;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::rc::Rc;

use burn::tensor::TensorData;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError};

use crate::formats::error::{ModelError, PytorchError};
use crate::formats::files::{self, replace_file};
use crate::formats::state_dict::pickle::Entry;
use crate::formats::state_dict::stored::{ElementType, Storage, StoredTensor};

/// The content of a file; tensor data stays in the file.
#[derive(Default)]
pub struct StateDict {
    /// Its tensors, by name.
    pub tensors: BTreeMap<String, StoredTensor>,
    /// Names of entries that are not tensors.
    pub others: Vec<String>,
    /// The library that wrote a safetensors file, according to its header: `pt`, `burn`.
    pub format: Option<String>,
}

/// Why a file cannot be read.
pub(crate) enum ReadError {
    Io(io::Error),
    /// It is damaged or not a state dict.
    Damaged(String),
}

impl ReadError {
    pub fn into_pytorch(self, path: &Path) -> PytorchError {
        let path = path.to_owned();
        match self {
            Self::Io(source) => PytorchError::Io { path, source },
            Self::Damaged(problem) => PytorchError::Damaged { path, problem },
        }
    }

    pub fn into_model(self, path: &Path) -> ModelError {
        let path = path.to_owned();
        match self {
            Self::Io(source) => ModelError::Io { path, source },
            Self::Damaged(problem) => ModelError::Weights { path, problem },
        }
    }
}

impl StateDict {
    /// Reads a file, in the format that its first bytes indicate.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let mut file = files::open(path).map_err(ReadError::Io)?;
        let size = file.metadata().map_err(ReadError::Io)?.len();
        let mut first = Vec::new();
        (&mut file)
            .take(old_archive::MAGIC.len() as u64)
            .read_to_end(&mut first)
            .and_then(|_| file.rewind())
            .map_err(ReadError::Io)?;
        let read = if first.starts_with(archive::MAGIC) {
            archive::read(file, size)
        } else if first == old_archive::MAGIC {
            old_archive::read(file, size)
        } else if first.starts_with(&[0x80, 2]) {
            Err("a bare pickle, which torch.save does not write".to_owned())
        } else {
            safetensors_file::read(file, size)
        };
        read.map_err(ReadError::Damaged)
    }

    /// Reads a `.safetensors` file. Others are refused: [`read`](Self::read) would accept PyTorch's, whose matrices
    /// have a different layout.
    pub fn read_safetensors(path: &Path) -> Result<Self, ReadError> {
        let file = files::open(path).map_err(ReadError::Io)?;
        let size = file.metadata().map_err(ReadError::Io)?.len();
        safetensors_file::read(file, size).map_err(ReadError::Damaged)
    }

    /// The entries of a pickle, with the storages of the file, none of which may be missing.
    pub fn of_pickle(
        entries: Vec<(Rc<str>, Entry)>,
        storages: &HashMap<Rc<str>, Rc<Storage>>,
    ) -> Self {
        let mut dict = Self::default();
        for (name, entry) in entries {
            match entry {
                Entry::Other => dict.others.push(name.to_string()),
                Entry::Tensor(tensor) => {
                    let storage = Rc::clone(&storages[&tensor.storage.key]);
                    let element = ElementType::from(tensor.storage.dtype);
                    let (shape, strides) = (tensor.shape.clone(), tensor.strides.clone());
                    let tensor = StoredTensor::new(storage, element, tensor.offset, shape, strides);
                    dict.tensors.insert(name.to_string(), tensor);
                }
            }
        }
        dict
    }
}

/// Writes tensors in single precision to a file, in the format given by its extension.
pub(crate) fn write(
    path: &Path,
    tensors: &BTreeMap<String, TensorData>,
) -> Result<(), PytorchError> {
    let tensors = tensors.iter().map(|(name, data)| (name.as_str(), data));
    let extension = path.extension().and_then(|extension| extension.to_str());
    let written = match extension {
        Some("pt" | "pth") => replace_file(path, |side| archive::write(side, tensors)),
        Some("safetensors") => replace_file(path, |side| write_safetensors(side, tensors)),
        _ => {
            return Err(PytorchError::Extension {
                path: path.to_owned(),
            });
        }
    };
    written.map_err(PytorchError::io(path))
}

/// Writes tensors in single precision to a `.safetensors` file.
pub(crate) fn write_safetensors<'a>(
    path: &Path,
    tensors: impl Iterator<Item = (&'a str, &'a TensorData)>,
) -> io::Result<()> {
    let views = tensors
        .map(|(name, data)| {
            let view = TensorView::new(Dtype::F32, data.shape.to_vec(), data.as_bytes())?;
            Ok((name, view))
        })
        .collect::<Result<Vec<_>, SafeTensorError>>()
        .map_err(io::Error::other)?;
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(views, Some(metadata), path).map_err(files::system_error)
}
