//! State dicts as files, in both of their formats.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use burn::tensor::TensorData;
use burn_store::{ModuleStore, SafetensorsStore, TensorSnapshot};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError};

use super::archive;
use crate::error::PytorchError;
use crate::files::replace_file;

/// The content of a file.
#[derive(Default)]
pub(super) struct StateDict {
    /// Its tensors, by name.
    pub tensors: BTreeMap<String, TensorSnapshot>,
    /// Names of entries that are not tensors.
    pub others: Vec<String>,
}

impl StateDict {
    /// Reads a file, in the format that its first bytes indicate.
    pub fn read(path: &Path) -> Result<Self, PytorchError> {
        let mut file = File::open(path).map_err(PytorchError::io(path))?;
        let mut magic = Vec::new();
        (&mut file)
            .take(archive::MAGIC.len() as u64)
            .read_to_end(&mut magic)
            .and_then(|_| file.rewind())
            .map_err(PytorchError::io(path))?;
        let read = match magic.as_slice() {
            archive::MAGIC => archive::read(file),
            // The first bytes of a bare pickle of protocol 2.
            [0x80, 2, ..] => Err(
                "a bare pickle, as torch.save wrote it before PyTorch 1.6; save it again"
                    .to_owned(),
            ),
            _ => read_safetensors(path),
        };
        read.map_err(|problem| PytorchError::Damaged {
            path: path.to_owned(),
            problem,
        })
    }
}

fn read_safetensors(path: &Path) -> Result<StateDict, String> {
    let mut store = SafetensorsStore::from_file(path);
    let tensors = store
        .get_all_snapshots()
        .map_err(|error| error.to_string())?
        .clone();
    Ok(StateDict {
        tensors,
        others: Vec::new(),
    })
}

/// Writes tensors in single precision to a file, in the format of its extension.
pub(super) fn write(
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

fn write_safetensors<'a>(
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
    safetensors::serialize_to_file(views, Some(metadata), path).map_err(io::Error::other)
}
