//! The model: a `.npz` archive of NumPy arrays, or Marian's own binary format.
//!
//! ```text
//! u64 version; u64 count
//! of each tensor: u64 bytes of its name; u64 type; u64 rank; u64 bytes of its values
//! of each: the name, with a zero byte at its end;  of each: i32 dimensions
//! u64 offset, and as many bytes;  of each: its values
//! ```
//!
//! Types of `intgemm` are integers, followed by the multiplier that they were quantized with: a value is the integer
//! divided by it. Their matrices are stored as `[d_output, d_input]`.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::rc::Rc;

use crate::formats::error::ModelError;
use crate::formats::hugging_face::keys::Keys;
use crate::formats::marian::{names, yaml};
use crate::formats::reader::Reader;
use crate::formats::state_dict::StateDict;
use crate::formats::state_dict::archive::{self, Archive};
use crate::formats::state_dict::stored::{ElementType, Storage, StoredTensor, contiguous_strides};

/// The tensor that holds the settings.
const SETTINGS: &str = "special:model.yml";

/// The version of the binary format.
const VERSION: u64 = 1;

/// The first bytes of an array.
const NUMPY: &[u8] = b"\x93NUMPY";

/// Limits of what a header may claim.
const MOST_TENSORS: u64 = 1 << 16;
const MOST_NAME: u64 = 1 << 10;
const MOST_DIMENSIONS: u64 = 4;
const MOST_SETTINGS: usize = 1 << 20;

/// The content of a file; values of tensors stay in it.
pub(super) struct ModelFile {
    /// The settings of the architecture.
    pub keys: Keys,
    /// The tensors. All matrices of linear layers are `[d_output, d_input]`.
    pub dict: StateDict,
}

/// A tensor as it is in a file.
struct Item {
    name: String,
    element: ElementType,
    is_intgemm: bool,
    shape: Vec<usize>,
    storage: Storage,
    /// The bytes before the first value.
    header: usize,
}

/// Whether these are the first bytes of a model, a file of this name. PyTorch's files are archives, too.
pub(super) fn begins(name: &str, bytes: &[u8]) -> bool {
    let is_archive = name.ends_with(".npz") && bytes.starts_with(archive::MAGIC);
    is_archive || bytes.starts_with(&VERSION.to_le_bytes())
}

/// Reads a file of `size` bytes.
///
/// # Errors
/// When it is damaged, or has no settings.
pub(super) fn read(path: &Path, file: File, size: u64) -> Result<ModelFile, ModelError> {
    let problem = |problem| ModelError::Weights {
        path: path.to_owned(),
        problem,
    };
    let file = Rc::new(file);
    let items = match is_archive(&file).map_err(ModelError::io(path))? {
        true => arrays(&file, size),
        false => tensors(&file, size),
    };
    let mut dict = StateDict::default();
    let mut settings = None;
    for item in items.map_err(problem)? {
        if item.name == SETTINGS {
            settings = Some(item.text().map_err(problem)?);
            continue;
        }
        let name = item.name.clone();
        let tensor = item.tensor().map_err(problem)?;
        if dict.tensors.insert(name.clone(), tensor).is_some() {
            return Err(problem(format!("`{name}` is there twice")));
        }
    }
    let settings = settings.ok_or_else(|| problem(format!("`{SETTINGS}` is missing")))?;
    Ok(ModelFile {
        keys: yaml(path, &settings)?,
        dict,
    })
}

/// Whether a file is an archive. It is left at its beginning.
fn is_archive(mut file: &File) -> io::Result<bool> {
    let mut first = Vec::new();
    file.take(archive::MAGIC.len() as u64)
        .read_to_end(&mut first)?;
    file.rewind()?;
    Ok(first == archive::MAGIC)
}

/// The tensors of a binary file.
fn tensors(file: &Rc<File>, size: u64) -> Result<Vec<Item>, String> {
    let mut reader = Reader::of(file);
    let (version, count) = (reader.u64()?, reader.u64()?);
    if version != VERSION || count > MOST_TENSORS {
        return Err(format!(
            "version {version} with {count} tensors; version {VERSION} can be read"
        ));
    }
    let headers =
        (0..count).map(|_| Ok([reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?]));
    let headers = headers.collect::<Result<Vec<_>, String>>()?;
    let mut names = Vec::new();
    for [len, ..] in &headers {
        if !(1..=MOST_NAME).contains(len) {
            return Err(format!("a name of {len} bytes"));
        }
        let mut name = vec![0; *len as usize];
        reader.fill(&mut name)?;
        name.pop();
        names.push(String::from_utf8(name).map_err(|_| "a name that is not UTF-8")?);
    }
    let mut shapes = Vec::new();
    for ([_, _, rank, _], name) in headers.iter().zip(&names) {
        if *rank > MOST_DIMENSIONS {
            return Err(format!("`{name}`: {rank} dimensions"));
        }
        let shape = (0..*rank).map(|_| {
            let size = i32::from_le_bytes(reader.bytes()?);
            usize::try_from(size).map_err(|_| format!("`{name}`: a dimension of {size}"))
        });
        shapes.push(shape.collect::<Result<Vec<usize>, String>>()?);
    }
    let offset = reader.u64()?;
    let mut at = reader.at.saturating_add(offset);
    let mut items = Vec::new();
    for (([_, kind, _, bytes], name), shape) in headers.into_iter().zip(names).zip(shapes) {
        let (element, is_intgemm) =
            of_type(kind).ok_or_else(|| format!("`{name}`: type {kind:#x} cannot be read"))?;
        let storage = Storage::new(file, size, at, bytes, None);
        let storage = storage.ok_or_else(|| format!("`{name}` ends beyond the end of the file"))?;
        at += bytes;
        items.push(Item {
            name,
            element,
            is_intgemm,
            shape,
            storage,
            header: 0,
        });
    }
    Ok(items)
}

/// The type of elements with this number, and whether it is one of `intgemm`: numbers of Firefox and of Marian 1.12.
fn of_type(kind: u64) -> Option<(ElementType, bool)> {
    Some(match kind {
        0x0404 => (ElementType::F32, false),
        0x0402 => (ElementType::F16, false),
        0x0101 => (ElementType::I8, false),
        0x4101 | 0x1_0001 => (ElementType::I8, true),
        0x4102 | 0x1_0002 => (ElementType::I16, true),
        _ => return None,
    })
}

/// The arrays of an archive.
fn arrays(file: &Rc<File>, size: u64) -> Result<Vec<Item>, String> {
    let archive = Archive::open(file, size)?;
    let names: Vec<&str> = archive.names().collect();
    let items = names.into_iter().map(|name| {
        let problem = |problem: &str| format!("`{name}`: {problem}");
        let storage = archive.find(name)?.ok_or_else(|| problem("missing"))?;
        let (element, shape, header) = array_header(&storage).map_err(|found| problem(&found))?;
        Ok(Item {
            name: name.strip_suffix(".npy").unwrap_or(name).to_owned(),
            element,
            is_intgemm: false,
            shape,
            storage,
            header,
        })
    });
    items.collect()
}

/// The type and shape of a NumPy array, and the place of its first value.
fn array_header(whole: &Storage) -> Result<(ElementType, Vec<usize>, usize), String> {
    const DAMAGED: &str = "not a NumPy array";
    let first: [u8; 12] = whole.first().map_err(|_| DAMAGED)?;
    if !first.starts_with(NUMPY) {
        return Err(DAMAGED.to_owned());
    }
    let (start, len) = match first[6] {
        1 => (10, usize::from(u16::from_le_bytes([first[8], first[9]]))),
        2 | 3 => {
            let len = u32::from_le_bytes([first[8], first[9], first[10], first[11]]);
            (12, len as usize)
        }
        other => return Err(format!("version {other} of NumPy's format")),
    };
    if len > MOST_SETTINGS {
        return Err(DAMAGED.to_owned());
    }
    let mut header = vec![0; start + len];
    whole.read(0, &mut header).map_err(|_| DAMAGED)?;
    let header = std::str::from_utf8(&header[start..]).map_err(|_| DAMAGED)?;
    let value = |key: &str| {
        let (_, rest) = header.split_once(&format!("'{key}':"))?;
        Some(rest.trim_start())
    };
    let kind = value("descr").and_then(|rest| rest.strip_prefix('\'')?.split_once('\''));
    let element = match kind.map(|(kind, _)| kind) {
        Some("<f4") => ElementType::F32,
        Some("<f2") => ElementType::F16,
        // Texts.
        Some("|i1" | "<i1" | "|u1" | "|b1") => ElementType::I8,
        other => return Err(format!("values of type {}", other.unwrap_or("unknown"))),
    };
    if value("fortran_order").is_none_or(|rest| !rest.starts_with("False")) {
        return Err("its values are stored by columns".to_owned());
    }
    let shape = value("shape").and_then(|rest| rest.strip_prefix('(')?.split_once(')'));
    let shape = shape.ok_or(DAMAGED)?.0.split(',');
    let sizes = shape.map(str::trim).filter(|size| !size.is_empty());
    let shape = sizes.map(|size| size.parse().map_err(|_| DAMAGED.to_owned()));
    let shape: Vec<usize> = shape.collect::<Result<_, String>>()?;
    let first = start + len;
    // NumPy pads its headers to a multiple of 16 bytes.
    match first % element.width().expect("of a known type") {
        0 => Ok((element, shape, first)),
        _ => Err(DAMAGED.to_owned()),
    }
}

impl Item {
    /// The bytes of a text.
    fn text(self) -> Result<Vec<u8>, String> {
        if self.storage.len() > MOST_SETTINGS {
            return Err(format!("`{}` has {} bytes", self.name, self.storage.len()));
        }
        let bytes = self.storage.bytes();
        let bytes = bytes.map_err(|error| format!("`{}`: {error}", self.name))?;
        let mut bytes = bytes.get(self.header..).unwrap_or_default().to_vec();
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok(bytes)
    }

    /// The tensor, with matrices of linear layers as `[d_output, d_input]`.
    fn tensor(self) -> Result<StoredTensor, String> {
        let Self {
            name,
            element,
            is_intgemm,
            shape,
            storage,
            header,
        } = self;
        let width = element.width().expect("of a known type");
        let elements = shape
            .iter()
            .try_fold(1, |all: usize, &size| all.checked_mul(size));
        let values = elements.and_then(|all| all.checked_mul(width));
        let multiplier = if is_intgemm { size_of::<f32>() } else { 0 };
        let has_room = values
            .and_then(|values| values.checked_add(header)?.checked_add(multiplier))
            .is_some_and(|needed| needed <= storage.len());
        let (Some(values), true, Some(1..)) = (values, has_room, elements) else {
            return Err(format!(
                "`{name}`: {shape:?} of {} in {} bytes",
                element.name(),
                storage.len()
            ));
        };
        let strides = contiguous_strides(&shape);
        let (shape, strides) = match shape[..] {
            [d_input, d_output] if d_input > 1 && !names::is_table(&name) => {
                let strides = match is_intgemm {
                    true => vec![d_input, 1],
                    false => vec![1, d_output],
                };
                (vec![d_output, d_input], strides)
            }
            _ => (shape, strides),
        };
        let scales = match is_intgemm {
            true => {
                let mut bytes = [0; 4];
                let read = storage.read(values, &mut bytes);
                read.map_err(|error| format!("`{name}`: {error}"))?;
                let multiplier = f32::from_le_bytes(bytes);
                if !(multiplier.is_normal() && multiplier > 0.0) {
                    return Err(format!(
                        "`{name}`: a multiplier of {multiplier}; it must be finite and positive"
                    ));
                }
                let rows = shape.first().copied().unwrap_or(1);
                Some(vec![1.0 / multiplier; rows])
            }
            false => None,
        };
        let tensor = StoredTensor::new(Rc::new(storage), element, header / width, shape, strides);
        Ok(match scales {
            Some(scales) => tensor.with_scales(scales),
            None => tensor,
        })
    }
}
