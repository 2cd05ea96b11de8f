//! Tensors in a file, read by position in parts: neither the file nor a whole tensor is held in memory beside the
//! model.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;

use burn::tensor::{DType, bf16, f16};

/// Number of elements, or bytes of a storage, read at a time.
const PART: usize = 1 << 18;

/// A contiguous range of bytes in a file.
pub struct Storage {
    file: Rc<File>,
    /// Position of the first byte in the file.
    start: u64,
    /// The number of bytes.
    len: usize,
    /// Their CRC-32, if the file has one, until it has been checked.
    checksum: Cell<Option<u32>>,
}

impl Storage {
    /// The `len` bytes from `start`, if they are inside the file of `size` bytes.
    pub fn new(
        file: &Rc<File>,
        size: u64,
        start: u64,
        len: u64,
        checksum: Option<u32>,
    ) -> Option<Self> {
        let end = start.checked_add(len)?;
        Some(Self {
            file: Rc::clone(file),
            start,
            len: (end <= size).then(|| usize::try_from(len).ok()).flatten()?,
            checksum: Cell::new(checksum),
        })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Reads and checks all bytes.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        self.check()?;
        self.range(0, self.len)
    }

    /// The first bytes.
    pub fn first<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills the slice with the bytes from `at`.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> io::Result<()> {
        let mut file: &File = &self.file;
        file.seek(SeekFrom::Start(self.start + at as u64))?;
        file.read_exact(bytes)
    }

    /// Reads `len` bytes from `at`, into memory that is not zeroed first.
    fn range(&self, at: usize, len: usize) -> io::Result<Vec<u8>> {
        let mut file: &File = &self.file;
        file.seek(SeekFrom::Start(self.start + at as u64))?;
        let mut bytes = Vec::with_capacity(len);
        match file.take(len as u64).read_to_end(&mut bytes)? {
            found if found < len => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(bytes),
        }
    }

    /// Compares the bytes with their checksum, once.
    fn check(&self) -> io::Result<()> {
        let Some(expected) = self.checksum.get() else {
            return Ok(());
        };
        let mut hasher = crc32fast::Hasher::new();
        let mut part = vec![0; PART.min(self.len)];
        let mut at = 0;
        while at < self.len {
            let len = part.len().min(self.len - at);
            self.read(at, &mut part[..len])?;
            hasher.update(&part[..len]);
            at += len;
        }
        if hasher.finalize() != expected {
            return Err(invalid("the checksum does not match the data"));
        }
        self.checksum.set(None);
        Ok(())
    }
}

/// The element type of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ElementType {
    F32,
    F16,
    Bf16,
    /// Quantized weights: [`StoredTensor::int8s`], or multiplied by [scales](StoredTensor::with_scales).
    I8,
    /// Quantized weights, to be multiplied by [scales](StoredTensor::with_scales).
    I16,
    /// A type that is not converted, by name.
    Other(String),
}

impl ElementType {
    pub fn name(&self) -> &str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::Other(name) => name,
        }
    }

    /// Bytes of an element; `None` for types that only safetensors files have.
    pub fn width(&self) -> Option<usize> {
        match self {
            Self::F32 => Some(4),
            Self::F16 | Self::Bf16 | Self::I16 => Some(2),
            Self::I8 => Some(1),
            Self::Other(name) => match name.as_str() {
                "f64" | "i64" => Some(8),
                "i32" => Some(4),
                "u8" | "bool" => Some(1),
                _ => None,
            },
        }
    }

    /// Whether its values are in single or half precision.
    pub fn is_float(&self) -> bool {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => true,
            Self::I8 | Self::I16 | Self::Other(_) => false,
        }
    }
}

impl From<DType> for ElementType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32,
            DType::F16 => Self::F16,
            DType::BF16 => Self::Bf16,
            DType::I8 => Self::I8,
            DType::I16 => Self::I16,
            other => Self::Other(other.name().to_owned()),
        }
    }
}

/// A tensor: a strided view of a storage.
#[derive(Clone)]
pub(crate) struct StoredTensor {
    storage: Rc<Storage>,
    pub element: ElementType,
    /// Number of elements in the storage before the first one.
    offset: usize,
    pub shape: Vec<usize>,
    /// Number of elements from one index to the next, per dimension.
    strides: Vec<usize>,
    /// Of integers: the factor of each row, or of all values.
    scales: Option<Rc<[f32]>>,
}

impl StoredTensor {
    /// A tensor, which must be inside the storage.
    pub fn new(
        storage: Rc<Storage>,
        element: ElementType,
        offset: usize,
        shape: Vec<usize>,
        strides: Vec<usize>,
    ) -> Self {
        Self {
            storage,
            element,
            offset,
            shape,
            strides,
            scales: None,
        }
    }

    /// The tensor of these integers times `scales`: one per row, or one for all values.
    pub fn with_scales(self, scales: Vec<f32>) -> Self {
        Self {
            scales: Some(scales.into()),
            ..self
        }
    }

    /// Of 8-bit integers, the factor of each row.
    pub fn row_scales(&self) -> Option<&[f32]> {
        let scales = self.scales.as_deref()?;
        let is_row = self.element == ElementType::I8 && self.shape.first() == Some(&scales.len());
        is_row.then_some(scales)
    }

    /// Whether its values can be read in single precision.
    pub fn is_float(&self) -> bool {
        let is_integer = matches!(self.element, ElementType::I8 | ElementType::I16);
        self.element.is_float() || (is_integer && self.scales.is_some())
    }

    /// The values in row-major order, in single precision, some rows at a time.
    ///
    /// # Errors
    /// When their type is not supported, or they are damaged or cannot be read.
    pub fn parts(&self) -> io::Result<Parts<'_>> {
        let width = match self.element.width() {
            Some(width) if self.is_float() => width,
            _ => return Err(invalid(format!("unsupported type {}", self.element.name()))),
        };
        self.storage.check()?;
        let len: usize = self.shape.iter().product();
        let gathered = match self.is_contiguous() {
            true => None,
            false => Some(self.gathered(len, width)?),
        };
        // A matrix is read in whole rows.
        let row: usize = match len {
            0 => 1,
            _ => self.shape.iter().skip(1).product(),
        };
        Ok(Parts {
            tensor: self,
            width,
            len,
            row,
            step: (PART / row).max(1) * row,
            done: 0,
            gathered,
            bytes: Vec::new(),
            numbers: Vec::new(),
        })
    }

    /// The 8-bit integers in row-major order.
    ///
    /// # Errors
    /// When they are of another type, or are damaged or cannot be read.
    pub fn int8s(&self) -> io::Result<Vec<i8>> {
        if self.element != ElementType::I8 {
            return Err(invalid(format!("unsupported type {}", self.element.name())));
        }
        Ok(self.bytes()?.into_iter().map(u8::cast_signed).collect())
    }

    /// The values in row-major order, as stored in the file, little-endian.
    ///
    /// # Errors
    /// When they are damaged or cannot be read.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let Some(width) = self.element.width() else {
            // In a safetensors file, each tensor has its own storage.
            return self.storage.bytes();
        };
        self.storage.check()?;
        let len: usize = self.shape.iter().product();
        match self.is_contiguous() {
            true => self.storage.range(self.offset * width, len * width),
            false => self.gathered(len, width),
        }
    }

    fn is_contiguous(&self) -> bool {
        self.shape.contains(&0) || self.strides == contiguous_strides(&self.shape)
    }

    /// Whether two tensors of the same shape are the same values of a file.
    pub fn is_view_of(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.storage, &other.storage)
            && (self.offset, &self.strides) == (other.offset, &other.strides)
    }

    /// Whether two tensors of the same shape are equal, bit by bit.
    pub fn equals(&self, other: &Self) -> io::Result<bool> {
        if self.is_view_of(other) {
            return Ok(true);
        }
        let (mut own, mut others) = (self.parts()?, other.parts()?);
        loop {
            match (own.read()?, others.read()?) {
                (Some(own), Some(others)) if have_same_bits(own, others) => {}
                (None, None) => return Ok(true),
                _ => return Ok(false),
            }
        }
    }

    /// All values, in single precision.
    pub fn floats(&self) -> io::Result<Vec<f32>> {
        let mut numbers = Vec::with_capacity(self.shape.iter().product());
        let mut parts = self.parts()?;
        while let Some(part) = parts.read()? {
            numbers.extend_from_slice(part);
        }
        Ok(numbers)
    }

    /// Whether every value is zero.
    pub fn is_zero(&self) -> io::Result<bool> {
        let mut parts = self.parts()?;
        while let Some(part) = parts.read()? {
            if part.iter().any(|&number| number != 0.0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The bytes of a non-contiguous view, in row-major order.
    fn gathered(&self, len: usize, width: usize) -> io::Result<Vec<u8>> {
        let indices = self.shape.iter().zip(&self.strides);
        let last: usize = indices.map(|(&size, &stride)| (size - 1) * stride).sum();
        let covered = self
            .storage
            .range(self.offset * width, (last + 1) * width)?;
        let mut bytes = Vec::with_capacity(len * width);
        let mut index = vec![0; self.shape.len()];
        for _ in 0..len {
            let at: usize = index.iter().zip(&self.strides).map(|(i, s)| i * s).sum();
            bytes.extend_from_slice(&covered[at * width..(at + 1) * width]);
            for (index, &size) in index.iter_mut().zip(&self.shape).rev() {
                *index += 1;
                if *index < size {
                    break;
                }
                *index = 0;
            }
        }
        Ok(bytes)
    }
}

/// Reads the values of a tensor in parts.
pub(crate) struct Parts<'a> {
    tensor: &'a StoredTensor,
    /// Bytes of an element in the file.
    width: usize,
    /// Number of all elements.
    len: usize,
    /// Number of elements in a row.
    row: usize,
    /// Number of elements in a part: whole rows.
    step: usize,
    /// Number of elements read so far.
    done: usize,
    /// The bytes of a non-contiguous view.
    gathered: Option<Vec<u8>>,
    bytes: Vec<u8>,
    numbers: Vec<f32>,
}

impl Parts<'_> {
    /// The next part; `None` after the last.
    pub fn read(&mut self) -> io::Result<Option<&[f32]>> {
        let count = self.step.min(self.len - self.done);
        if count == 0 {
            return Ok(None);
        }
        let (at, size) = (self.done * self.width, count * self.width);
        let first_row = self.done / self.row;
        self.done += count;
        self.bytes.resize(size, 0);
        match &self.gathered {
            Some(gathered) => self.bytes.copy_from_slice(&gathered[at..at + size]),
            None => {
                let first = self.tensor.offset * self.width;
                self.tensor.storage.read(first + at, &mut self.bytes)?;
            }
        }
        let (pairs, _) = self.bytes.as_chunks::<2>();
        let (quadruples, _) = self.bytes.as_chunks::<4>();
        self.numbers.clear();
        match self.tensor.element {
            ElementType::F16 => {
                let numbers = pairs
                    .iter()
                    .map(|&bytes| f16::from_le_bytes(bytes).to_f32());
                self.numbers.extend(numbers);
            }
            ElementType::Bf16 => {
                let numbers = pairs
                    .iter()
                    .map(|&bytes| bf16::from_le_bytes(bytes).to_f32());
                self.numbers.extend(numbers);
            }
            ElementType::I16 => {
                let numbers = pairs
                    .iter()
                    .map(|&bytes| f32::from(i16::from_le_bytes(bytes)));
                self.numbers.extend(numbers);
            }
            ElementType::I8 => {
                let numbers = self.bytes.iter().map(|byte| f32::from(byte.cast_signed()));
                self.numbers.extend(numbers);
            }
            _ => {
                let numbers = quadruples.iter().map(|&bytes| f32::from_le_bytes(bytes));
                self.numbers.extend(numbers);
            }
        }
        match self.tensor.scales.as_deref() {
            None => {}
            Some(&[scale]) => self.numbers.iter_mut().for_each(|number| *number *= scale),
            Some(scales) => {
                let rows = self.numbers.chunks_mut(self.row);
                for (row, scale) in rows.zip(&scales[first_row..]) {
                    row.iter_mut().for_each(|number| *number *= scale);
                }
            }
        }
        Ok(Some(&self.numbers))
    }
}

/// The strides of a contiguous tensor, in elements.
pub fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1_usize; shape.len()];
    for dimension in (1..shape.len()).rev() {
        strides[dimension - 1] = strides[dimension].saturating_mul(shape[dimension]);
    }
    strides
}

fn have_same_bits(left: &[f32], right: &[f32]) -> bool {
    let mut pairs = left.iter().zip(right);
    left.len() == right.len() && pairs.all(|(left, right)| left.to_bits() == right.to_bits())
}

fn invalid(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn storage(bytes: &[u8], checksum: Option<u32>) -> Rc<Storage> {
        let mut file = tempfile::tempfile().unwrap();
        // Not at the beginning of the file.
        file.write_all(&[9; 5]).unwrap();
        file.write_all(bytes).unwrap();
        let len = bytes.len() as u64;
        Rc::new(Storage::new(&Rc::new(file), 5 + len, 5, len, checksum).unwrap())
    }

    fn numbers(tensor: &StoredTensor) -> Vec<f32> {
        let mut parts = tensor.parts().unwrap();
        let mut numbers = Vec::new();
        while let Some(part) = parts.read().unwrap() {
            numbers.extend_from_slice(part);
        }
        numbers
    }

    #[test]
    fn a_storage_is_inside_its_file() {
        let file = Rc::new(tempfile::tempfile().unwrap());
        let fits = |start, len| Storage::new(&file, 10, start, len, None).is_some();
        assert!(fits(0, 10) && fits(10, 0) && fits(4, 6));
        assert!(!fits(4, 7) && !fits(11, 0) && !fits(1, u64::MAX) && !fits(u64::MAX, 1));
    }

    #[test]
    fn views_are_read_in_the_order_of_their_indices() {
        let bytes: Vec<u8> = (0..12_u8)
            .flat_map(|i| f32::from(i).to_le_bytes())
            .collect();
        let storage = storage(&bytes, None);
        let view = |offset, shape: &[usize], strides: &[usize]| {
            let (shape, strides) = (shape.to_vec(), strides.to_vec());
            StoredTensor::new(
                Rc::clone(&storage),
                ElementType::F32,
                offset,
                shape,
                strides,
            )
        };
        // Rows of elements 1, 3 and of 2, 4.
        assert_eq!(numbers(&view(1, &[2, 2], &[1, 2])), [1.0, 3.0, 2.0, 4.0]);
        assert_eq!(numbers(&view(10, &[2], &[1])), [10.0, 11.0]);
        assert_eq!(numbers(&view(3, &[], &[])), [3.0]);
        assert_eq!(numbers(&view(0, &[2, 0], &[5, 1])), [0.0; 0]);
        assert_eq!(numbers(&view(11, &[3], &[0])), [11.0; 3]);

        assert!(view(1, &[2], &[1]).equals(&view(1, &[2], &[1])).unwrap());
        assert!(view(4, &[2], &[0]).equals(&view(4, &[2], &[0])).unwrap());
        assert!(!view(1, &[2], &[1]).equals(&view(2, &[2], &[1])).unwrap());
        assert!(view(0, &[1], &[1]).is_zero().unwrap());
        assert!(!view(0, &[2], &[1]).is_zero().unwrap());
    }

    #[test]
    fn integers_are_read_with_their_sign_and_as_nothing_else() {
        let storage = storage(&[0, 127, 255, 129, 128], None);
        let view = |element, offset, shape: &[usize], strides: &[usize]| {
            let (shape, strides) = (shape.to_vec(), strides.to_vec());
            StoredTensor::new(Rc::clone(&storage), element, offset, shape, strides)
        };
        let whole = view(ElementType::I8, 0, &[5], &[1]);
        assert_eq!(whole.int8s().unwrap(), [0, 127, -1, -127, -128]);
        let transposed = view(ElementType::I8, 1, &[2, 2], &[1, 2]);
        assert_eq!(transposed.int8s().unwrap(), [127, -127, -1, -128]);
        assert!(whole.parts().is_err());
        let floats = view(ElementType::F32, 0, &[1], &[1]);
        let error = floats.int8s().unwrap_err().to_string();
        assert_eq!(error, "unsupported type f32");
    }

    /// 1, −2, 65504 (the largest f16), the smallest value above 0, and infinity, by the formats' definitions.
    #[test]
    fn halves_are_exact_in_single_precision() {
        let f16 = [0x3c00_u16, 0xc000, 0x7bff, 0x0001, 0x7c00];
        let bf16 = [0x3f80_u16, 0xc000, 0x477f, 0x0001, 0x7f80];
        let least = [2_f32.powi(-24), f32::from_bits(1 << 16)];
        let largest = [65504.0, 65280.0];
        let types = [ElementType::F16, ElementType::Bf16];
        for (at, (bits, element)) in [f16, bf16].into_iter().zip(types).enumerate() {
            let bytes: Vec<u8> = bits.into_iter().flat_map(u16::to_le_bytes).collect();
            let tensor = StoredTensor::new(storage(&bytes, None), element, 0, vec![5], vec![1]);
            let expected = [1.0, -2.0, largest[at], least[at], f32::INFINITY];
            assert_eq!(numbers(&tensor), expected);
        }
    }

    #[test]
    fn tensors_of_more_than_a_part_are_read_by_whole_rows() {
        let (rows, columns) = (PART / 100 + 7, 150);
        let bits = 0..(rows * columns) as u32;
        let bytes: Vec<u8> = bits.clone().flat_map(u32::to_le_bytes).collect();
        let checksum = crc32fast::hash(&bytes);
        let storage = storage(&bytes, Some(checksum));
        let shape = vec![rows, columns];
        let strides = contiguous_strides(&shape);
        let tensor = StoredTensor::new(storage, ElementType::F32, 0, shape, strides);
        let mut parts = tensor.parts().unwrap();
        while let Some(part) = parts.read().unwrap() {
            assert!(part.len().is_multiple_of(columns) && part.len() <= PART);
        }
        assert!(
            numbers(&tensor)
                .iter()
                .map(|number| number.to_bits())
                .eq(bits)
        );
    }

    #[test]
    fn other_numbers_than_the_checksum_s_are_an_error() {
        let tensor = |checksum| {
            let storage = storage(&[0, 0, 128, 63], Some(checksum));
            StoredTensor::new(storage, ElementType::F32, 0, vec![1], vec![1])
        };
        assert_eq!(numbers(&tensor(crc32fast::hash(&[0, 0, 128, 63]))), [1.0]);
        let damaged = tensor(0);
        // The check fails each time.
        for _ in 0..2 {
            let error = damaged.parts().err().unwrap();
            assert_eq!(error.to_string(), "the checksum does not match the data");
        }
    }
}
