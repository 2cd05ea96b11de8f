//! The files of `torch.save` before PyTorch 1.6: pickles, followed by the data.
//!
//! ```text
//! a magic number, the protocol's version, the system       three pickles
//! the state dict                                           a pickle
//! the storages' keys                                       a pickle
//! per key: its number of elements (8 bytes), its elements
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::rc::Rc;

use crate::formats::state_dict::StateDict;
use crate::formats::state_dict::pickle;
use crate::formats::state_dict::stored::Storage;

/// The first pickle: an integer of ten bytes.
pub const MAGIC: &[u8] = &[
    0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, b'.',
];

/// The only version of the protocol.
const VERSION: usize = 1001;

/// Reads a file of `size` bytes; tensor data stays in the file.
///
/// # Errors
/// When the file is not a state dict.
pub fn read(file: File, size: u64) -> Result<StateDict, String> {
    let file = Rc::new(file);
    let reader: &File = &file;
    let mut input = BufReader::new(reader);
    let failed = |error: std::io::Error| error.to_string();
    input
        .seek(SeekFrom::Start(MAGIC.len() as u64))
        .map_err(failed)?;
    let version = pickle::read_number(&mut input)?;
    if version != VERSION {
        return Err(format!("protocol version {version}, not {VERSION}"));
    }
    if !pickle::read_flag(&mut input, "little_endian")? {
        return Err("the data is not little-endian".to_owned());
    }
    let pickle = pickle::read(&mut input)?;
    let keys = pickle::read_names(&mut input)?;
    let mut storages = HashMap::new();
    for key in keys {
        let described = pickle.storages.get(&key);
        let described = described.ok_or_else(|| format!("no tensor uses storage {key}"))?;
        let mut len = [0; 8];
        input
            .read_exact(&mut len)
            .map_err(|_| format!("storage {key} is missing"))?;
        let len = u64::from_le_bytes(len);
        if len != described.len as u64 {
            return Err(format!(
                "storage {key} has {len} elements, not {}",
                described.len
            ));
        }
        let start = input.stream_position().map_err(failed)?;
        let storage = described.size().and_then(|bytes| {
            let storage = Storage::new(&file, size, start, bytes as u64, None)?;
            Some((storage, bytes))
        });
        let (storage, bytes) =
            storage.ok_or_else(|| format!("storage {key} ends beyond the end of the file"))?;
        input
            .seek(SeekFrom::Start(start + bytes as u64))
            .map_err(failed)?;
        storages.insert(key, Rc::new(storage));
    }
    match pickle
        .storages
        .keys()
        .find(|&key| !storages.contains_key(key))
    {
        Some(key) => Err(format!("storage {key} is missing")),
        None => Ok(StateDict::of_pickle(pickle.entries, &storages)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// `BININT2`, `STOP`.
    const VERSION_PICKLE: &[u8] = &[b'M', 0xe9, 3, b'.'];
    /// `{"little_endian": True}`
    const SYSTEM_PICKLE: &[u8] = b"}X\x0d\0\0\0little_endian\x88s.";

    /// A file with a vector `x` of three elements, whose storage consists of `len` and `numbers`.
    fn file(len: u64, numbers: &[u8]) -> Vec<u8> {
        let shape: &[usize] = &[3];
        let state_dict = pickle::write([("x", shape)].into_iter());
        let keys = b"]X\x01\0\0\x000a.";
        let len = len.to_le_bytes();
        [
            MAGIC,
            VERSION_PICKLE,
            SYSTEM_PICKLE,
            &state_dict,
            keys,
            &len,
            numbers,
        ]
        .concat()
    }

    fn read_bytes(bytes: &[u8]) -> Result<StateDict, String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        read(file, bytes.len() as u64)
    }

    fn problem(bytes: &[u8]) -> String {
        match read_bytes(bytes) {
            Ok(_) => panic!("read"),
            Err(problem) => problem,
        }
    }

    #[test]
    fn storages_are_found_after_the_pickles() {
        let numbers: Vec<u8> = [1_f32, 2.0, 3.0]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        let dict = read_bytes(&file(3, &numbers)).unwrap();
        let tensor = &dict.tensors["x"];
        assert_eq!(tensor.shape, [3]);
        assert_eq!(
            tensor.parts().unwrap().read().unwrap().unwrap(),
            [1.0, 2.0, 3.0]
        );
    }

    #[test]
    fn sizes_that_do_not_agree_are_an_error() {
        let whole = file(3, &[0; 12]);
        for len in MAGIC.len()..whole.len() {
            problem(&whole[..len]);
        }
        assert_eq!(
            problem(&whole[..whole.len() - 1]),
            "storage 0 ends beyond the end of the file"
        );
        assert_eq!(
            problem(&file(1 << 62, &[0; 12])),
            "storage 0 has 4611686018427387904 elements, not 3"
        );
        let mut later = whole.clone();
        later[MAGIC.len() + 1] = 0xea;
        assert_eq!(problem(&later), "protocol version 1002, not 1001");
        let mut big_endian = whole;
        let flag = MAGIC.len() + VERSION_PICKLE.len() + SYSTEM_PICKLE.len() - 3;
        big_endian[flag] = 0x89;
        assert_eq!(problem(&big_endian), "the data is not little-endian");
    }
}
