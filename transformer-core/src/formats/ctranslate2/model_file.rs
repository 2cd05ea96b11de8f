//! `model.bin`: a header, the variables one after another, and aliases, all little-endian.
//!
//! ```text
//! u32 version; text specification; u32 revision
//! u32 count;  of each variable: text name; u8 rank; u32 dimensions; u8 type; u32 bytes; its values
//! u32 count;  of each alias: text alias; text name
//! ```
//!
//! A text is its length as a u16, with a zero byte at its end. Before version 4, a variable has the width of its
//! elements instead of their type, and their number instead of bytes; before version 3, there are no aliases.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;

use crate::formats::files;
use crate::formats::reader::Reader;
use crate::formats::state_dict::StateDict;
use crate::formats::state_dict::stored::{ElementType, Storage, StoredTensor, contiguous_strides};

/// Versions of the layout that can be read.
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=6;

/// Maximum number of dimensions.
const MOST_DIMENSIONS: u8 = 4;

/// What follows the name of quantized weights in the name of their scales.
const SCALE: &str = "_scale";

/// The content of a file; values of tensors stay in it.
#[derive(Default)]
pub(super) struct ModelFile {
    /// The name of the converter's specification, such as `TransformerSpec`.
    pub specification: String,
    /// The variables with dimensions, also under their aliases.
    pub dict: StateDict,
    /// The others: settings of the architecture.
    pub scalars: BTreeMap<String, Scalar>,
}

/// A variable without dimensions.
#[derive(Clone, Copy)]
pub(super) struct Scalar {
    pub value: f64,
    /// Whether it is a factor instead of a flag or a number of things.
    pub is_float: bool,
}

/// Whether a file is a model, judging by its first bytes: Marian has files of the same name.
pub(super) fn is_model(path: &Path) -> bool {
    let version = files::open(path).map(|file| Reader::of(&Rc::new(file)).u32());
    version.is_ok_and(|version| version.is_ok_and(|version| VERSIONS.contains(&version)))
}

/// Reads a file of `size` bytes.
///
/// # Errors
/// When it is damaged or has another version.
pub(super) fn read(file: File, size: u64) -> Result<ModelFile, String> {
    let file = Rc::new(file);
    let mut reader = Reader::of(&file);
    let version = reader.u32()?;
    if !VERSIONS.contains(&version) {
        let (first, last) = (VERSIONS.start(), VERSIONS.end());
        return Err(format!(
            "version {version} of CTranslate2's format; versions {first} to {last} can be read"
        ));
    }
    let mut content = ModelFile {
        specification: reader.text()?,
        ..ModelFile::default()
    };
    let _revision = reader.u32()?;
    for _ in 0..reader.u32()? {
        let name = reader.text()?;
        let problem = |problem: &str| format!("`{name}`: {problem}");
        let rank = reader.bytes::<1>()?[0];
        if rank > MOST_DIMENSIONS {
            return Err(problem(&format!("{rank} dimensions")));
        }
        let shape = (0..rank).map(|_| Ok(reader.u32()? as usize));
        let shape = shape.collect::<Result<Vec<usize>, String>>()?;
        let [kind] = reader.bytes()?;
        let count = u64::from(reader.u32()?);
        let (element, bytes) = match version {
            4.. => (of_type(kind), count),
            _ => (of_width(kind), count * u64::from(kind)),
        };
        let element = element.ok_or_else(|| problem(&format!("type {kind}")))?;
        let width = element.width().expect("of a known type");
        let elements = shape
            .iter()
            .try_fold(1, |all: u64, &size| all.checked_mul(size as u64));
        if elements.and_then(|all| all.checked_mul(width as u64)) != Some(bytes) {
            let element = element.name();
            return Err(problem(&format!("{shape:?} of {element} in {bytes} bytes")));
        }
        let storage = Storage::new(&file, size, reader.at, bytes, None);
        let storage = storage.ok_or_else(|| problem("ends beyond the end of the file"))?;
        let is_new = match shape.is_empty() {
            true => {
                let scalar = Scalar {
                    value: reader.scalar(&element)?,
                    is_float: element.is_float(),
                };
                if !scalar.value.is_finite() {
                    return Err(problem(&format!("is {}", scalar.value)));
                }
                content.scalars.insert(name.clone(), scalar).is_none()
            }
            false => {
                reader.skip(bytes)?;
                let strides = contiguous_strides(&shape);
                let tensor = StoredTensor::new(Rc::new(storage), element, 0, shape, strides);
                content.dict.tensors.insert(name.clone(), tensor).is_none()
            }
        };
        if !is_new {
            return Err(problem("there twice"));
        }
    }
    let mut aliases = Vec::new();
    if version >= 3 {
        for _ in 0..reader.u32()? {
            aliases.push((reader.text()?, reader.text()?));
        }
    }
    if size != reader.at {
        let rest = size - reader.at;
        return Err(format!("{rest} bytes follow the last variable"));
    }
    content.attach_scales()?;
    for (alias, name) in aliases {
        content.add_alias(alias, &name)?;
    }
    Ok(content)
}

/// The type of elements with this number.
fn of_type(kind: u8) -> Option<ElementType> {
    Some(match kind {
        0 => ElementType::F32,
        1 => ElementType::I8,
        2 => ElementType::I16,
        3 => ElementType::Other("i32".to_owned()),
        4 => ElementType::F16,
        5 => ElementType::Bf16,
        _ => return None,
    })
}

/// The type of elements of this width, before version 4.
fn of_width(width: u8) -> Option<ElementType> {
    Some(match width {
        1 => ElementType::I8,
        2 => ElementType::I16,
        4 => ElementType::F32,
        _ => return None,
    })
}

impl ModelFile {
    /// Moves the scales of quantized weights to them. A value is the integer divided by its scale.
    fn attach_scales(&mut self) -> Result<(), String> {
        let tensors = &mut self.dict.tensors;
        let is_integer = |element| matches!(element, ElementType::I8 | ElementType::I16);
        let quantized = tensors
            .iter()
            .filter(|(_, tensor)| is_integer(tensor.element.clone()));
        let quantized: Vec<String> = quantized.map(|(name, _)| name.clone()).collect();
        for name in quantized {
            let of_scales = format!("{name}{SCALE}");
            let rows = tensors[&name].shape[0];
            let divisors = match (tensors.remove(&of_scales), self.scalars.remove(&of_scales)) {
                (Some(scales), _) => {
                    let read = scales.floats();
                    read.map_err(|error| format!("`{of_scales}` cannot be read: {error}"))?
                }
                (None, Some(scale)) => vec![scale.value as f32],
                (None, None) => return Err(format!("`{of_scales}` is missing")),
            };
            if divisors.len() != rows && divisors.len() != 1 {
                let found = divisors.len();
                return Err(format!("`{of_scales}` has {found} values, not {rows}"));
            }
            let scales: Vec<f32> = divisors.iter().map(|divisor| divisor.recip()).collect();
            if let Some(at) = scales
                .iter()
                .position(|scale| !scale.is_normal() || *scale < 0.0)
            {
                let found = divisors[at];
                return Err(format!("`{of_scales}` holds {found}, which is not a scale"));
            }
            let tensor = tensors[&name].clone().with_scales(scales);
            tensors.insert(name, tensor);
        }
        Ok(())
    }

    fn add_alias(&mut self, alias: String, name: &str) -> Result<(), String> {
        let is_new = match (self.dict.tensors.get(name), self.scalars.get(name)) {
            (Some(tensor), _) => {
                let tensor = tensor.clone();
                self.dict.tensors.insert(alias.clone(), tensor).is_none()
            }
            (None, Some(&scalar)) => self.scalars.insert(alias.clone(), scalar).is_none(),
            // Scales are with their weights already.
            (None, None) if name.ends_with(SCALE) => true,
            (None, None) => {
                return Err(format!(
                    "`{alias}` is an alias of `{name}`, which is missing"
                ));
            }
        };
        match is_new {
            true => Ok(()),
            false => Err(format!("`{alias}`: there twice")),
        }
    }
}

impl Reader<'_> {
    fn text(&mut self) -> Result<String, String> {
        let len = u16::from_le_bytes(self.bytes()?);
        let mut bytes = vec![0; usize::from(len)];
        self.fill(&mut bytes)?;
        if bytes.pop() != Some(0) {
            return Err("a name without its end".to_owned());
        }
        String::from_utf8(bytes).map_err(|_| "a name that is not UTF-8".to_owned())
    }

    fn scalar(&mut self, element: &ElementType) -> Result<f64, String> {
        Ok(match element {
            ElementType::I8 => i8::from_le_bytes(self.bytes()?).into(),
            ElementType::I16 => i16::from_le_bytes(self.bytes()?).into(),
            ElementType::F32 => f32::from_le_bytes(self.bytes()?).into(),
            ElementType::F16 => burn::tensor::f16::from_le_bytes(self.bytes()?).into(),
            ElementType::Bf16 => burn::tensor::bf16::from_le_bytes(self.bytes()?).into(),
            ElementType::Other(_) => i32::from_le_bytes(self.bytes()?).into(),
        })
    }
}
