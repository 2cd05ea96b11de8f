//! `.safetensors` files: the length of a header, the header in JSON, and the numbers.

use std::fs::File;
use std::io::Read;
use std::rc::Rc;

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::formats::state_dict::StateDict;
use crate::formats::state_dict::stored::{ElementType, Storage, StoredTensor, contiguous_strides};

/// The longest header, in bytes: that of the library.
const MOST_HEADER: u64 = 100_000_000;

/// Reads such a file of that many bytes; its numbers are left in it.
///
/// # Errors
/// When the header is damaged, or describes other sizes than the file's.
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
    // Its ranges have no gap and do not overlap, and each is as long as its tensor.
    let header: Metadata =
        serde_json::from_slice(&header).map_err(|error| format!("its header: {error}"))?;
    let (described, found) = (header.data_len() as u64, after_len - header_len);
    if described != found {
        return Err(format!(
            "its header describes {described} bytes of numbers, but {found} follow it"
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
        let storage = storage.ok_or_else(|| format!("`{name}` ends after the file"))?;
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
