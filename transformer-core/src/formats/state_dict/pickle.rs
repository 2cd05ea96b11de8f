//! The part of Python's pickle format that is needed to read and write a state dict.
//!
//! A pickle is a program for a stack machine. This machine knows the instructions that `torch.save` writes, builds only
//! numbers, strings, containers and descriptions of tensors, and calls no function: the functions that a state dict
//! names are recognized, all others are an error. Values are in one list and refer to each other by index, so that
//! neither nesting nor sharing can exhaust stack or memory. A value is never copied: an instruction of a few bytes can
//! refer to one of many megabytes repeatedly.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, Read, Take};
use std::rc::Rc;

use burn::tensor::{BoolStore, DType};

use crate::formats::state_dict::stored::contiguous_strides;

/// Maximum size of a pickle in bytes: enough for a hundred thousand tensors.
const MOST_BYTES: u64 = 1 << 24;

/// A tensor as the pickle describes it: a strided view of a storage.
#[derive(Debug, Clone, PartialEq)]
pub struct PickledTensor {
    pub storage: Rc<Storage>,
    /// Number of elements in the storage before the first one.
    pub offset: usize,
    pub shape: Vec<usize>,
    /// Number of elements from one index to the next, per dimension.
    pub strides: Vec<usize>,
}

/// The data of tensors, in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Storage {
    pub key: Rc<str>,
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
}

impl Storage {
    /// Its size in bytes; `None` if it overflows.
    pub fn size(&self) -> Option<usize> {
        self.len.checked_mul(self.dtype.size())
    }
}

/// An entry of a state dict.
#[derive(Debug, PartialEq)]
pub enum Entry {
    Tensor(Rc<PickledTensor>),
    /// Not a tensor.
    Other,
}

/// The contents of a state dict's pickle.
#[derive(Debug)]
pub struct Pickle {
    pub entries: Vec<(Rc<str>, Entry)>,
    /// All storages, by key.
    pub storages: BTreeMap<Rc<str>, Rc<Storage>>,
}

/// Reads the pickle of a state dict, and leaves the input at its end.
///
/// # Errors
/// When it is not one.
pub fn read(input: impl BufRead) -> Result<Pickle, String> {
    let machine = Machine::executed(input)?;
    Ok(Pickle {
        entries: machine.state_dict()?,
        storages: machine.storages,
    })
}

/// Reads the pickle of a list of names.
///
/// # Errors
/// When it is not one.
pub fn read_names(input: impl BufRead) -> Result<Vec<Rc<str>>, String> {
    let machine = Machine::executed(input)?;
    let names = match &machine.values[machine.root()?] {
        Value::List(items) => items
            .iter()
            .map(|&item| machine.as_string(item).cloned())
            .collect(),
        _ => None,
    };
    Ok(names.ok_or("not a list of names")?)
}

/// Reads the pickle of a whole number.
///
/// # Errors
/// When it is not one.
pub fn read_number(input: impl BufRead) -> Result<usize, String> {
    let machine = Machine::executed(input)?;
    let number = machine.as_size(machine.root()?);
    Ok(number.ok_or("not a whole number")?)
}

/// Reads the pickle of a dictionary, and returns its boolean for a name.
///
/// # Errors
/// When there is none.
pub fn read_flag(input: impl BufRead, name: &str) -> Result<bool, String> {
    let machine = Machine::executed(input)?;
    let Value::Dict(items) = &machine.values[machine.root()?] else {
        return Err("not a dictionary".to_owned());
    };
    let flag = items.iter().find_map(|&(key, value)| {
        let is_named = machine.as_string(key).is_some_and(|key| **key == *name);
        match machine.values[value] {
            Value::Flag(flag) if is_named => Some(flag),
            _ => None,
        }
    });
    flag.ok_or_else(|| format!("`{name}` is missing"))
}

/// Writes the pickle of a state dict of tensors in single precision, each in its own storage, whose key is its index in
/// the list.
pub fn write<'a>(tensors: impl Iterator<Item = (&'a str, &'a [usize])>) -> Vec<u8> {
    let mut out = Writer(vec![op::PROTO, 2, op::EMPTY_DICT, op::MARK]);
    for (key, (name, shape)) in tensors.enumerate() {
        out.string(name);
        out.global("torch._utils", "_rebuild_tensor_v2");
        out.push(&[op::MARK, op::MARK]);
        out.string("storage");
        out.global("torch", "FloatStorage");
        out.string(&key.to_string());
        out.string("cpu");
        out.int(shape.iter().product());
        out.push(&[op::TUPLE, op::BINPERSID]);
        out.int(0);
        out.tuple(shape);
        out.tuple(&contiguous_strides(shape));
        out.push(&[op::NEWFALSE]);
        out.global("collections", "OrderedDict");
        out.push(&[op::EMPTY_TUPLE, op::REDUCE, op::TUPLE, op::REDUCE]);
    }
    out.push(&[op::SETITEMS, op::STOP]);
    out.0
}

/// The instructions of `torch.save`: pickle protocol 2.
mod op {
    pub const MARK: u8 = b'(';
    pub const STOP: u8 = b'.';
    pub const NONE: u8 = b'N';
    pub const NEWTRUE: u8 = 0x88;
    pub const NEWFALSE: u8 = 0x89;
    pub const BININT: u8 = b'J';
    pub const BININT1: u8 = b'K';
    pub const BININT2: u8 = b'M';
    pub const LONG1: u8 = 0x8a;
    pub const BINFLOAT: u8 = b'G';
    pub const BINUNICODE: u8 = b'X';
    pub const EMPTY_TUPLE: u8 = b')';
    pub const TUPLE: u8 = b't';
    pub const TUPLE1: u8 = 0x85;
    pub const TUPLE2: u8 = 0x86;
    pub const TUPLE3: u8 = 0x87;
    pub const EMPTY_LIST: u8 = b']';
    pub const APPEND: u8 = b'a';
    pub const APPENDS: u8 = b'e';
    pub const EMPTY_DICT: u8 = b'}';
    pub const SETITEM: u8 = b's';
    pub const SETITEMS: u8 = b'u';
    pub const GLOBAL: u8 = b'c';
    pub const REDUCE: u8 = b'R';
    pub const BUILD: u8 = b'b';
    pub const BINPERSID: u8 = b'Q';
    pub const BINPUT: u8 = b'q';
    pub const LONG_BINPUT: u8 = b'r';
    pub const BINGET: u8 = b'h';
    pub const LONG_BINGET: u8 = b'j';
    pub const PROTO: u8 = 0x80;
}

/// Index of a value in the machine's list.
type Id = usize;

#[derive(Debug)]
enum Value {
    Int(i64),
    Flag(bool),
    String(Rc<str>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    Storage(Rc<Storage>),
    Tensor(Rc<PickledTensor>),
    /// A value that tensors of a state dict do not need.
    Other,
}

/// The classes and functions that a state dict names.
#[derive(Debug, Clone, Copy)]
enum Global {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    StorageOf(DType),
}

impl Global {
    fn named(name: &str) -> Option<Self> {
        let dtype = match name {
            "collections.OrderedDict" => return Some(Self::OrderedDict),
            "torch._utils._rebuild_tensor_v2" => return Some(Self::RebuildTensor),
            "torch._utils._rebuild_parameter" => return Some(Self::RebuildParameter),
            "torch.FloatStorage" => DType::F32,
            "torch.DoubleStorage" => DType::F64,
            "torch.HalfStorage" => DType::F16,
            "torch.BFloat16Storage" => DType::BF16,
            "torch.LongStorage" => DType::I64,
            "torch.IntStorage" => DType::I32,
            "torch.ShortStorage" => DType::I16,
            "torch.CharStorage" => DType::I8,
            "torch.ByteStorage" => DType::U8,
            "torch.BoolStorage" => DType::Bool(BoolStore::Native),
            _ => return None,
        };
        Some(Self::StorageOf(dtype))
    }
}

struct Machine<R> {
    input: Take<R>,
    values: Vec<Value>,
    stack: Vec<Id>,
    /// Heights of the stack at the marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    storages: BTreeMap<Rc<str>, Rc<Storage>>,
}

impl<R: BufRead> Machine<R> {
    /// Executes all instructions of a pickle.
    fn executed(input: R) -> Result<Self, String> {
        let mut machine = Self {
            input: input.take(MOST_BYTES),
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            storages: BTreeMap::new(),
        };
        loop {
            match machine.step() {
                Ok(true) => {}
                Ok(false) => return Ok(machine),
                Err(_) if machine.input.limit() == 0 => {
                    return Err(format!("a pickle of more than {MOST_BYTES} bytes"));
                }
                Err(problem) => return Err(problem),
            }
        }
    }

    /// Executes an instruction; false after the last one.
    fn step(&mut self) -> Result<bool, String> {
        let instruction = self.byte()?;
        if let Some(value) = self.value(instruction)? {
            self.push(value);
            return Ok(true);
        }
        match instruction {
            op::STOP => return Ok(false),
            op::PROTO => match self.byte()? {
                2 => {}
                other => return Err(format!("pickle protocol {other}, not 2")),
            },
            op::MARK => self.marks.push(self.stack.len()),
            op::APPEND => {
                let items = self.pop_last(1)?;
                self.append(&items)?;
            }
            op::APPENDS => {
                let items = self.pop_to_mark()?;
                self.append(&items)?;
            }
            op::SETITEM => {
                let items = self.pop_last(2)?;
                self.set_items(&items)?;
            }
            op::SETITEMS => {
                let items = self.pop_to_mark()?;
                self.set_items(&items)?;
            }
            op::REDUCE => {
                let arguments = self.pop()?;
                let function = self.pop()?;
                self.reduce(function, arguments)?;
            }
            // The attributes of an object, such as an OrderedDict's `_metadata`.
            op::BUILD => drop(self.pop()?),
            op::BINPUT => {
                let at = self.byte()?;
                self.remember(at.into())?;
            }
            op::LONG_BINPUT => {
                let at = u32::from_le_bytes(self.bytes()?);
                self.remember(at)?;
            }
            op::BINGET => {
                let at = self.byte()?;
                self.recall(at.into())?;
            }
            op::LONG_BINGET => {
                let at = u32::from_le_bytes(self.bytes()?);
                self.recall(at)?;
            }
            other => return Err(format!("unsupported pickle instruction {other:#04x}")),
        }
        Ok(true)
    }

    /// The value that an instruction pushes; `None` if it does something else.
    fn value(&mut self, instruction: u8) -> Result<Option<Value>, String> {
        Ok(Some(match instruction {
            op::NONE => Value::Other,
            op::NEWTRUE => Value::Flag(true),
            op::NEWFALSE => Value::Flag(false),
            op::BINFLOAT => {
                self.bytes::<8>()?;
                Value::Other
            }
            op::BININT => Value::Int(i32::from_le_bytes(self.bytes()?).into()),
            op::BININT1 => Value::Int(self.byte()?.into()),
            op::BININT2 => Value::Int(u16::from_le_bytes(self.bytes()?).into()),
            op::LONG1 => Value::Int(self.long()?),
            op::BINUNICODE => {
                let len = u32::from_le_bytes(self.bytes()?) as usize;
                let text = String::from_utf8(self.take(len)?);
                Value::String(text.map_err(|_| "a string that is not UTF-8")?.into())
            }
            op::EMPTY_TUPLE => Value::Tuple(Vec::new()),
            op::TUPLE => Value::Tuple(self.pop_to_mark()?),
            op::TUPLE1 => Value::Tuple(self.pop_last(1)?),
            op::TUPLE2 => Value::Tuple(self.pop_last(2)?),
            op::TUPLE3 => Value::Tuple(self.pop_last(3)?),
            op::EMPTY_LIST => Value::List(Vec::new()),
            op::EMPTY_DICT => Value::Dict(Vec::new()),
            op::GLOBAL => {
                let name = format!("{}.{}", self.line()?, self.line()?);
                Value::Global(Global::named(&name).ok_or_else(|| {
                    format!(
                        "it names `{name}`, which no state dict needs; no code was executed. \
                         Save the state dict alone: torch.save(model.state_dict(), path)"
                    )
                })?)
            }
            op::BINPERSID => {
                let id = self.pop()?;
                let storage = self.storage(id).ok_or("invalid description of a storage")?;
                Value::Storage(match self.storages.entry(Rc::clone(&storage.key)) {
                    Slot::Occupied(other) if **other.get() == storage => Rc::clone(other.get()),
                    Slot::Occupied(_) => return Err("a storage has two sizes or types".to_owned()),
                    Slot::Vacant(slot) => Rc::clone(slot.insert(Rc::new(storage))),
                })
            }
            _ => return Ok(None),
        }))
    }

    /// The value left at the end.
    fn root(&self) -> Result<Id, String> {
        match self.stack[..] {
            [root] => Ok(root),
            _ => Err("the pickle does not leave a single value".to_owned()),
        }
    }

    /// The entries of the dictionary left at the end.
    fn state_dict(&self) -> Result<Vec<(Rc<str>, Entry)>, String> {
        let Value::Dict(items) = &self.values[self.root()?] else {
            return Err("not a dictionary of tensors".to_owned());
        };
        // If a key is set several times, the last value counts, as in Python.
        let places = items.iter().zip(0_usize..);
        let last: HashMap<Id, usize> = places.clone().map(|(&(key, _), at)| (key, at)).collect();
        places
            .filter(|&(&(key, _), at)| last[&key] == at)
            .map(|(&(key, value), _)| {
                let Value::String(name) = &self.values[key] else {
                    return Err("a dictionary key is not a name".to_owned());
                };
                let entry = match &self.values[value] {
                    Value::Tensor(tensor) => Entry::Tensor(Rc::clone(tensor)),
                    _ => Entry::Other,
                };
                Ok((Rc::clone(name), entry))
            })
            .collect()
    }

    fn reduce(&mut self, function: Id, arguments: Id) -> Result<(), String> {
        let Value::Global(function) = self.values[function] else {
            return Err("a call of a value that is not a function".to_owned());
        };
        match function {
            Global::OrderedDict => self.push(Value::Dict(Vec::new())),
            Global::RebuildTensor => {
                let tensor = self
                    .tensor(arguments)
                    .ok_or("invalid description of a tensor")?;
                self.push(Value::Tensor(Rc::new(tensor)));
            }
            Global::RebuildParameter => {
                let arguments = self.as_tuple(arguments);
                let data = *arguments
                    .and_then(<[Id]>::first)
                    .ok_or("invalid description of a parameter")?;
                self.stack.push(data);
            }
            Global::StorageOf(_) => return Err("a call of a storage".to_owned()),
        }
        Ok(())
    }

    /// `('storage', class, key, device, elements)`; before PyTorch 1.6 followed by `None`, or by the description of a
    /// part of another storage, which is not supported.
    fn storage(&self, id: Id) -> Option<Storage> {
        let &[_, class, key, _, len, ref part @ ..] = self.as_tuple(id)? else {
            return None;
        };
        let is_whole = |&id: &Id| matches!(self.values[id], Value::Other);
        if part.len() > 1 || !part.iter().all(is_whole) {
            return None;
        }
        let (Value::Global(Global::StorageOf(dtype)), Value::String(key)) =
            (&self.values[class], &self.values[key])
        else {
            return None;
        };
        if key.len() > LONGEST_KEY {
            return None;
        }
        Some(Storage {
            key: Rc::clone(key),
            dtype: *dtype,
            len: self.as_size(len)?,
        })
    }

    /// `(storage, offset, shape, strides, requires_grad, hooks, metadata)`, which must be inside the storage; the
    /// metadata may be absent.
    fn tensor(&self, id: Id) -> Option<PickledTensor> {
        let &[storage, offset, shape, strides, ref rest @ ..] = self.as_tuple(id)? else {
            return None;
        };
        if rest.len() > MOST_FURTHER_ARGUMENTS {
            return None;
        }
        // Hooks, and whether values are to be negated or conjugated.
        let is_filled =
            |&id: &Id| matches!(&self.values[id], Value::Dict(items) if !items.is_empty());
        if rest.iter().any(is_filled) {
            return None;
        }
        let Value::Storage(storage) = &self.values[storage] else {
            return None;
        };
        let tensor = PickledTensor {
            storage: Rc::clone(storage),
            offset: self.as_size(offset)?,
            shape: self.as_sizes(shape)?,
            strides: self.as_sizes(strides)?,
        };
        tensor.is_inside_its_storage().then_some(tensor)
    }

    fn as_tuple(&self, id: Id) -> Option<&[Id]> {
        match &self.values[id] {
            Value::Tuple(items) => Some(items),
            _ => None,
        }
    }

    fn as_string(&self, id: Id) -> Option<&Rc<str>> {
        match &self.values[id] {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    fn as_size(&self, id: Id) -> Option<usize> {
        match &self.values[id] {
            Value::Int(int) => usize::try_from(*int).ok(),
            _ => None,
        }
    }

    fn as_sizes(&self, id: Id) -> Option<Vec<usize>> {
        let items = self.as_tuple(id)?;
        if items.len() > MOST_DIMENSIONS {
            return None;
        }
        items.iter().map(|&item| self.as_size(item)).collect()
    }

    fn append(&mut self, items: &[Id]) -> Result<(), String> {
        let list = *self.stack.last().ok_or(EMPTY_STACK)?;
        let Value::List(list) = &mut self.values[list] else {
            return Err("items for a value that is not a list".to_owned());
        };
        list.extend_from_slice(items);
        Ok(())
    }

    fn set_items(&mut self, items: &[Id]) -> Result<(), String> {
        let dict = *self.stack.last().ok_or(EMPTY_STACK)?;
        let Value::Dict(dict) = &mut self.values[dict] else {
            return Err("items for a value that is not a dictionary".to_owned());
        };
        let pairs = items.chunks_exact(2);
        if !pairs.remainder().is_empty() {
            return Err("a key without a value".to_owned());
        }
        dict.extend(pairs.map(|pair| (pair[0], pair[1])));
        Ok(())
    }

    fn pop_last(&mut self, len: usize) -> Result<Vec<Id>, String> {
        let start = self.stack.len().checked_sub(len);
        let start = start.filter(|&start| start >= self.floor());
        Ok(self.stack.split_off(start.ok_or(EMPTY_STACK)?))
    }

    fn push(&mut self, value: Value) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    fn pop(&mut self) -> Result<Id, String> {
        Ok(self.pop_last(1)?[0])
    }

    /// The height of the stack at the last mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, String> {
        let mark = self.marks.pop().ok_or("a mark is missing")?;
        Ok(self.stack.split_off(mark))
    }

    fn remember(&mut self, at: u32) -> Result<(), String> {
        let top = *self.stack.last().ok_or(EMPTY_STACK)?;
        self.memo.insert(at, top);
        Ok(())
    }

    fn recall(&mut self, at: u32) -> Result<(), String> {
        let id = *self.memo.get(&at).ok_or("a reference to a missing value")?;
        self.stack.push(id);
        Ok(())
    }

    fn take(&mut self, len: usize) -> Result<Vec<u8>, String> {
        let mut taken = Vec::new();
        // Grows only as far as there are bytes, whatever `len` is.
        let read = (&mut self.input).take(len as u64).read_to_end(&mut taken);
        match read {
            Ok(read) if read == len => Ok(taken),
            Ok(_) => Err(ENDS_EARLY.to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        match self.input.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(ENDS_EARLY.to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn byte(&mut self) -> Result<u8, String> {
        let [byte] = self.bytes()?;
        Ok(byte)
    }

    /// An integer of up to eight bytes.
    fn long(&mut self) -> Result<i64, String> {
        let len = self.byte()?;
        let digits = self.take(len.into())?;
        let negative = digits.last().is_some_and(|&byte| byte >= 0x80);
        let mut bytes = [if negative { 0xff } else { 0 }; 8];
        let target = bytes
            .get_mut(..digits.len())
            .ok_or("a number of more than 64 bits")?;
        target.copy_from_slice(&digits);
        Ok(i64::from_le_bytes(bytes))
    }

    /// Text up to the end of the line.
    fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        let read = self.input.read_until(b'\n', &mut line);
        read.map_err(|error| error.to_string())?;
        if line.pop() != Some(b'\n') {
            return Err(ENDS_EARLY.to_owned());
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }
}

const ENDS_EARLY: &str = "unexpected end of the pickle";
const EMPTY_STACK: &str = "a value is missing";

/// Maximum number of dimensions of a tensor: more than any model has. A tensor takes a few bytes of a pickle, whatever
/// its shape.
const MOST_DIMENSIONS: usize = 8;

/// Maximum number of arguments of a tensor after its strides.
const MOST_FURTHER_ARGUMENTS: usize = 3;

/// Maximum length of a storage's key in bytes: PyTorch's are numbers.
const LONGEST_KEY: usize = 256;

impl PickledTensor {
    /// Whether every element is in the storage, and the tensor has no more elements than the storage.
    fn is_inside_its_storage(&self) -> bool {
        if self.shape.len() != self.strides.len() {
            return false;
        }
        let elements = self
            .shape
            .iter()
            .try_fold(1_usize, |all, &size| all.checked_mul(size));
        let last = self
            .shape
            .iter()
            .zip(&self.strides)
            .try_fold(self.offset, |at, (&size, &stride)| {
                at.checked_add(size.saturating_sub(1).checked_mul(stride)?)
            });
        match (elements, last) {
            (Some(0), _) => self.offset <= self.storage.len,
            (Some(elements), Some(last)) => elements <= self.storage.len && last < self.storage.len,
            _ => false,
        }
    }
}

/// Writes instructions.
struct Writer(Vec<u8>);

impl Writer {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn string(&mut self, text: &str) {
        self.push(&[op::BINUNICODE]);
        self.push(&(text.len() as u32).to_le_bytes());
        self.push(text.as_bytes());
    }

    fn global(&mut self, module: &str, name: &str) {
        self.push(&[op::GLOBAL]);
        self.push(format!("{module}\n{name}\n").as_bytes());
    }

    fn int(&mut self, int: usize) {
        match i32::try_from(int) {
            Ok(int) => {
                self.push(&[op::BININT]);
                self.push(&int.to_le_bytes());
            }
            Err(_) => {
                self.push(&[op::LONG1, 8]);
                self.push(&(int as i64).to_le_bytes());
            }
        }
    }

    fn tuple(&mut self, sizes: &[usize]) {
        self.push(&[op::MARK]);
        for &size in sizes {
            self.int(size);
        }
        self.push(&[op::TUPLE]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pickle that leaves a dictionary with one name, whose value is pushed by `value`.
    fn dict_of(value: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut out = Writer(vec![op::PROTO, 2, op::EMPTY_DICT]);
        out.string("x");
        value(&mut out);
        out.push(&[op::SETITEM, op::STOP]);
        out.0
    }

    /// Pushes a tensor of a storage of `len` elements.
    fn tensor(out: &mut Writer, len: usize, offset: usize, shape: &[usize], strides: &[usize]) {
        out.global("torch._utils", "_rebuild_tensor_v2");
        out.push(&[op::MARK, op::MARK]);
        out.string("storage");
        out.global("torch", "HalfStorage");
        out.string("7");
        out.string("cpu");
        out.int(len);
        out.push(&[op::TUPLE, op::BINPERSID]);
        out.int(offset);
        out.tuple(shape);
        out.tuple(strides);
        out.push(&[op::NEWFALSE, op::NONE, op::TUPLE, op::REDUCE]);
    }

    fn entries(pickle: &[u8]) -> Result<Vec<(String, Entry)>, String> {
        let entries = read(pickle)?.entries.into_iter();
        Ok(entries
            .map(|(name, entry)| (name.to_string(), entry))
            .collect())
    }

    fn problem(pickle: &[u8]) -> String {
        entries(pickle).unwrap_err()
    }

    #[test]
    fn a_written_pickle_is_read() {
        let tensors: [(&str, &[usize]); 3] = [("a.weight", &[2, 3]), ("b", &[1 << 33]), ("c", &[])];
        let entries = entries(&write(tensors.iter().copied())).unwrap();
        for (at, ((name, entry), expected)) in entries.iter().zip(tensors).enumerate() {
            assert_eq!(name, expected.0);
            let Entry::Tensor(tensor) = entry else {
                panic!("{name} is not a tensor");
            };
            assert_eq!(tensor.shape, expected.1);
            assert_eq!(tensor.strides, contiguous_strides(expected.1));
            assert_eq!(*tensor.storage.key, *at.to_string());
            assert_eq!(tensor.storage.len, expected.1.iter().product::<usize>());
            assert_eq!(tensor.storage.dtype, DType::F32);
        }
    }

    #[test]
    fn tensors_are_views_inside_their_storage() {
        let read = |len, offset, shape: &[usize], strides: &[usize]| {
            entries(&dict_of(|out| tensor(out, len, offset, shape, strides)))
        };
        let found = read(20, 5, &[3, 2], &[1, 12]).unwrap();
        let expected = PickledTensor {
            storage: Rc::new(Storage {
                key: "7".into(),
                dtype: DType::F16,
                len: 20,
            }),
            offset: 5,
            shape: vec![3, 2],
            strides: vec![1, 12],
        };
        assert_eq!(found, [("x".to_owned(), Entry::Tensor(Rc::new(expected)))]);

        for (len, offset, shape, strides) in [
            (19, 5, vec![3, 2], vec![1, 12]),
            (20, 6, vec![3, 2], vec![1, 12]),
            (20, 0, vec![3, 2], vec![1]),
            // More elements than the storage has, with a stride of zero.
            (20, 0, vec![21], vec![0]),
            (20, 0, vec![1 << 62, 8], vec![0, 0]),
            (20, 0, vec![2, 2], vec![1 << 62, 1 << 62]),
            (0, 0, vec![1], vec![1]),
            // No elements, but an offset outside the storage.
            (1, 1 << 30, vec![0, 1], vec![1, 1]),
            (1, 0, vec![1; 9], vec![1; 9]),
        ] {
            let problem = read(len, offset, &shape, &strides).unwrap_err();
            assert_eq!(problem, "invalid description of a tensor", "{shape:?}");
        }
        assert!(read(0, 0, &[0, 3], &[3, 1]).is_ok());
    }

    /// As `torch._neg_view` and `Tensor.conj` make them.
    #[test]
    fn negated_views_are_refused() {
        let pickle = dict_of(|out| {
            tensor(out, 2, 0, &[2], &[1]);
            // Replaces the last two instructions by metadata.
            out.0.truncate(out.0.len() - 2);
            out.push(&[op::EMPTY_DICT]);
            out.string("neg");
            out.push(&[op::NEWTRUE, op::SETITEM, op::TUPLE, op::REDUCE]);
        });
        assert_eq!(problem(&pickle), "invalid description of a tensor");
    }

    #[test]
    fn parameters_are_their_tensors() {
        let pickle = dict_of(|out| {
            out.global("torch._utils", "_rebuild_parameter");
            out.push(&[op::MARK]);
            tensor(out, 2, 0, &[2], &[1]);
            out.push(&[op::NEWTRUE, op::NONE, op::TUPLE, op::REDUCE]);
        });
        assert!(matches!(
            entries(&pickle).unwrap()[..],
            [(_, Entry::Tensor(_))]
        ));
    }

    #[test]
    fn other_values_are_recorded() {
        let checkpoint = dict_of(|out| {
            out.push(&[op::EMPTY_LIST, op::MARK, op::NONE, op::BINFLOAT]);
            out.push(&1.0_f64.to_be_bytes());
            out.push(&[op::APPENDS, op::NEWTRUE, op::APPEND]);
        });
        assert_eq!(
            entries(&checkpoint).unwrap(),
            [("x".to_owned(), Entry::Other)]
        );
    }

    #[test]
    fn no_function_is_called() {
        let pickle = dict_of(|out| {
            out.global("os", "system");
            out.string("touch pwned");
            out.push(&[op::TUPLE1, op::REDUCE]);
        });
        assert_eq!(
            problem(&pickle),
            "it names `os.system`, which no state dict needs; no code was executed. Save the \
             state dict alone: torch.save(model.state_dict(), path)"
        );
        // Nor is a known one called with other arguments than a state dict's.
        for name in ["_rebuild_tensor_v2", "_rebuild_parameter"] {
            let pickle = dict_of(|out| {
                out.global("torch._utils", name);
                out.push(&[op::EMPTY_TUPLE, op::REDUCE]);
            });
            assert!(problem(&pickle).starts_with("invalid description of a "));
        }
        // Instructions that could build objects of any class.
        for instruction in [b'i', b'o', 0x81, 0x92, 0x93, b'P', b'0', b'2'] {
            assert_eq!(
                problem(&[op::PROTO, 2, instruction]),
                format!("unsupported pickle instruction {instruction:#04x}")
            );
        }
    }

    #[test]
    fn depth_and_sharing_exhaust_nothing() {
        let deep = dict_of(|out| {
            out.push(&[op::NONE]);
            out.push(&vec![op::TUPLE1; 1_000_000]);
        });
        assert_eq!(entries(&deep).unwrap(), [("x".to_owned(), Entry::Other)]);

        // Each tuple holds the one before it twice: 2^100000 leaves.
        let wide = dict_of(|out| {
            out.push(&[op::NONE]);
            for _ in 0..100_000 {
                out.push(&[op::BINPUT, 0, op::BINGET, 0, op::TUPLE2]);
            }
        });
        assert_eq!(entries(&wide).unwrap(), [("x".to_owned(), Entry::Other)]);

        // A dictionary that holds itself.
        let mut ring = Writer(vec![op::EMPTY_DICT, op::BINPUT, 0]);
        ring.string("x");
        ring.push(&[op::BINGET, 0, op::SETITEM, op::STOP]);
        assert_eq!(entries(&ring.0).unwrap(), [("x".to_owned(), Entry::Other)]);
    }

    /// Each would take terabytes or hours if an instruction copied the value that it names.
    #[test]
    fn a_long_value_can_be_named_often() {
        let long = "x".repeat(1 << 23);
        // A tensor is set under this name a million times.
        let mut names = Writer(vec![op::EMPTY_DICT]);
        names.string(&long);
        names.push(&[op::BINPUT, 0]);
        tensor(&mut names, 2, 0, &[2], &[1]);
        names.push(&[op::BINPUT, 1, op::SETITEM]);
        for _ in 0..1_000_000 {
            names.push(&[op::BINGET, 0, op::BINGET, 1, op::SETITEM]);
        }
        names.push(&[op::STOP]);
        assert_eq!(entries(&names.0).unwrap().len(), 1);

        let mut list = Writer(vec![op::EMPTY_LIST]);
        list.string(&long);
        list.push(&[op::BINPUT, 0, op::APPEND]);
        for _ in 0..1_000_000 {
            list.push(&[op::BINGET, 0, op::APPEND]);
        }
        list.push(&[op::STOP]);
        assert_eq!(read_names(&list.0[..]).unwrap().len(), 1_000_001);

        // The arguments of a tensor, and its shape, with a million entries.
        let arguments = dict_of(|out| {
            out.global("torch._utils", "_rebuild_tensor_v2");
            out.push(&[op::MARK]);
            out.push(&vec![op::NONE; 1_000_000]);
            out.push(&[op::TUPLE, op::REDUCE]);
        });
        assert_eq!(problem(&arguments), "invalid description of a tensor");
        let shape = vec![1; 1_000_000];
        let shape = dict_of(|out| tensor(out, 1, 0, &shape, &shape));
        assert_eq!(problem(&shape), "invalid description of a tensor");
        let key = dict_of(|out| {
            out.push(&[op::MARK]);
            out.string("storage");
            out.global("torch", "HalfStorage");
            out.string(&"7".repeat(257));
            out.string("cpu");
            out.int(1);
            out.push(&[op::TUPLE, op::BINPERSID]);
        });
        assert_eq!(problem(&key), "invalid description of a storage");
    }

    #[test]
    fn a_damaged_pickle_is_an_error() {
        let whole = dict_of(|out| tensor(out, 6, 0, &[2, 3], &[3, 1]));
        assert!(entries(&whole).is_ok());
        for len in 0..whole.len() {
            entries(&whole[..len]).unwrap_err();
        }
        for (pickle, expected) in [
            (&[op::STOP][..], "the pickle does not leave a single value"),
            (&[op::NONE, op::STOP], "not a dictionary of tensors"),
            (&[op::PROTO, 4], "pickle protocol 4, not 2"),
            (&[op::MARK, op::TUPLE1], "a value is missing"),
            (&[op::NONE, op::MARK, op::TUPLE1], "a value is missing"),
            (&[op::NONE, op::MARK, op::BUILD], "a value is missing"),
            (&[op::TUPLE], "a mark is missing"),
            (&[op::BINGET, 0], "a reference to a missing value"),
            (
                &[op::BINUNICODE, 255, 255, 255, 255],
                "unexpected end of the pickle",
            ),
            (
                &[op::BINUNICODE, 1, 0, 0, 0, 255],
                "a string that is not UTF-8",
            ),
            (
                &[op::NONE, op::NONE, op::REDUCE],
                "a call of a value that is not a function",
            ),
            (
                &[op::LONG1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                "a number of more than 64 bits",
            ),
        ] {
            assert_eq!(problem(pickle), expected);
        }
    }

    #[test]
    fn the_other_pickles_of_old_files_are_read() {
        let mut names = Writer(vec![op::EMPTY_LIST, op::MARK]);
        names.string("a");
        names.string("b");
        names.push(&[op::APPENDS, op::STOP, op::STOP]);
        let mut rest = &names.0[..];
        let names = read_names(&mut rest).unwrap();
        assert_eq!(
            names.iter().map(|name| &**name).collect::<Vec<_>>(),
            ["a", "b"]
        );
        // The input is left where the pickle ends.
        assert_eq!(rest, [op::STOP]);
        assert_eq!(
            read_names(&[op::EMPTY_DICT, op::STOP][..]).unwrap_err(),
            "not a list of names"
        );
        let number = [op::BININT2, 0xe9, 3, op::STOP];
        assert_eq!(read_number(&number[..]).unwrap(), 1001);
        assert!(read_number(&[op::NONE, op::STOP][..]).is_err());

        let flags = dict_of(|out| out.push(&[op::NEWTRUE]));
        assert!(read_flag(&flags[..], "x").unwrap());
        let problem = read_flag(&flags[..], "y").unwrap_err();
        assert_eq!(problem, "`y` is missing");
    }

    #[test]
    fn a_storage_has_one_size() {
        let pickle = dict_of(|out| {
            tensor(out, 2, 0, &[2], &[1]);
            out.push(&[op::SETITEM]);
            out.string("y");
            tensor(out, 3, 0, &[2], &[1]);
        });
        assert_eq!(problem(&pickle), "a storage has two sizes or types");
    }

    #[test]
    fn absurdly_long_pickles_are_an_error() {
        let pickle = vec![op::NONE; MOST_BYTES as usize + 1];
        assert_eq!(problem(&pickle), "a pickle of more than 16777216 bytes");
    }

    #[test]
    fn random_instructions_are_an_error() {
        use rand::{RngExt, SeedableRng};
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(0);
        let whole = dict_of(|out| tensor(out, 6, 0, &[2, 3], &[3, 1]));
        for _ in 0..20_000 {
            let mut pickle = whole.clone();
            for _ in 0..rng.random_range(1..8) {
                let at = rng.random_range(0..pickle.len());
                pickle[at] = rng.random();
            }
            // Any result but a panic.
            let _ = entries(&pickle);
        }
    }
}
