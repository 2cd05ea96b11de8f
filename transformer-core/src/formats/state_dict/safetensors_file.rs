//! `.safetensors` files: the length of the header, the header in JSON, and the data.

use std::fs::File;
use std::io::Read;
use std::rc::Rc;

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::formats::state_dict::StateDict;
use crate::formats::state_dict::stored::{ElementType, Storage, StoredTensor, contiguous_strides};

/// Maximum size of a header in bytes, as in the crate `safetensors`.
const MOST_HEADER: u64 = 100_000_000;

/// Reads a file of `size` bytes; tensor data stays in the file.
///
/// # Errors
/// When the header is damaged or does not match the file's size.
pub fn read(mut file: File, size: u64) -> Result<StateDict, String> {
    let mut header_len = [0; 8];
    file.read_exact(&mut header_len)
        .map_err(|_| "too short for a header")?;
    let header_len = u64::from_le_bytes(header_len);
    let after_len = size.saturating_sub(8);
    if header_len > MOST_HEADER.min(after_len) {
        return Err(format!(
            "a header of {header_len} bytes in a file of {size}"
        ));
    }
    let mut header = vec![0; header_len as usize];
    file.read_exact(&mut header)
        .map_err(|error| error.to_string())?;
    // Deserializing checks that ranges have no gaps or overlaps and fit their tensors.
    let header: Metadata =
        serde_json::from_slice(&header).map_err(|error| format!("the header: {error}"))?;
    let (described, found) = (header.data_len() as u64, after_len - header_len);
    if described != found {
        return Err(format!(
            "the header describes {described} bytes of data, but {found} follow"
        ));
    }
    let file = Rc::new(file);
    let first = size - found;
    let entries = header.metadata().as_ref();
    let mut dict = StateDict {
        format: entries.and_then(|entries| entries.get("format").cloned()),
        ..StateDict::default()
    };
    for (name, info) in header.tensors() {
        let (start, end) = info.data_offsets;
        let storage = Storage::new(
            &file,
            size,
            first + start as u64,
            (end - start) as u64,
            None,
        );
        let storage = storage.ok_or_else(|| format!("`{name}` ends beyond the end of the file"))?;
        let element = match info.dtype {
            Dtype::F32 => ElementType::F32,
            Dtype::F16 => ElementType::F16,
            Dtype::BF16 => ElementType::Bf16,
            Dtype::I8 => ElementType::I8,
            other => ElementType::Other(other.to_string().to_lowercase()),
        };
        let shape = info.shape.clone();
        let strides = contiguous_strides(&shape);
        let tensor = StoredTensor::new(Rc::new(storage), element, 0, shape, strides);
        dict.tensors.insert(name, tensor);
    }
    Ok(dict)
}
