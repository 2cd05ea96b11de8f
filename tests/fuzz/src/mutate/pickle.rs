//! Changes of pickles, instruction by instruction.

use crate::mutate::MOST_BYTES;
use crate::random::Random;

/// Instructions of protocol 2, and some of others.
const INSTRUCTIONS: &[u8] =
    b"(.0NJKMGXBU)t]ae}sucRbQqrhj\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x93\x94\x95";

/// Globals that a state dict names, and some that it must not.
const GLOBALS: [&str; 9] = [
    "torch._utils\n_rebuild_tensor_v2\n",
    "torch._utils\n_rebuild_parameter\n",
    "collections\nOrderedDict\n",
    "torch\nFloatStorage\n",
    "torch\nHalfStorage\n",
    "torch\nLongStorage\n",
    "torch\nBoolStorage\n",
    "posix\nsystem\n",
    "\n\n",
];

/// The pickle with a few of its instructions changed.
pub fn mutated(pickle: &[u8], random: &mut Random) -> Vec<u8> {
    let mut instructions = instructions(pickle);
    for _ in 0..random.few() {
        change(&mut instructions, random);
    }
    instructions.concat()
}

fn change(instructions: &mut Vec<Vec<u8>>, random: &mut Random) {
    if instructions.is_empty() {
        instructions.push(vec![*random.pick(INSTRUCTIONS)]);
        return;
    }
    let at = random.below(instructions.len());
    match random.below(8) {
        0 => drop(instructions.remove(at)),
        1 => {
            let other = random.below(instructions.len());
            instructions.swap(at, other);
        }
        2 => {
            let part = random.part(instructions.len());
            let part = instructions[part].to_vec();
            let length: usize = part.iter().map(Vec::len).sum();
            let times = random.below(MOST_BYTES / length.max(1) + 1);
            let times = times.min(5000);
            let repeated = std::iter::repeat_n(part, times).flatten();
            drop(instructions.splice(at..at, repeated));
        }
        3 => instructions.insert(at, vec![*random.pick(INSTRUCTIONS)]),
        4 => {
            let global = [&b"c"[..], random.pick(&GLOBALS).as_bytes()].concat();
            instructions[at] = global;
        }
        // Its argument.
        5 | 6 => {
            let instruction = &mut instructions[at];
            let width = instruction.len().saturating_sub(1).min(8);
            let number = random.number().to_le_bytes();
            instruction[1..1 + width].copy_from_slice(&number[..width]);
        }
        // A number of eight bytes.
        _ => {
            let number = random.number().to_le_bytes();
            instructions[at] = [&[0x8a_u8, 8][..], &number].concat();
        }
    }
}

/// The instructions of a pickle, each with its arguments; the rest as one where one is not known.
fn instructions(pickle: &[u8]) -> Vec<Vec<u8>> {
    let mut instructions = Vec::new();
    let mut rest = pickle;
    while !rest.is_empty() {
        let length = length(rest).filter(|&length| length <= rest.len());
        let (instruction, others) = rest.split_at(length.unwrap_or(rest.len()));
        instructions.push(instruction.to_vec());
        rest = others;
    }
    instructions
}

/// The bytes of the first instruction and its arguments.
fn length(pickle: &[u8]) -> Option<usize> {
    let (&instruction, arguments) = pickle.split_first()?;
    Some(match instruction {
        b'K' | b'q' | b'h' | 0x80 => 2,
        b'M' => 3,
        b'J' | b'r' | b'j' => 5,
        b'G' => 9,
        0x8a => 2 + usize::from(*arguments.first()?),
        b'X' => {
            let length = arguments.first_chunk::<4>()?;
            5 + u32::from_le_bytes(*length) as usize
        }
        b'c' => {
            let mut ends = arguments
                .iter()
                .enumerate()
                .filter(|&(_, &byte)| byte == b'\n');
            2 + ends.nth(1)?.0
        }
        _ => 1,
    })
}

/// A file as PyTorch wrote it before version 1.6, of a state dict's pickle and the bytes of each of its storages of
/// 32-bit numbers, whose keys are their places.
pub fn old_archive(state_dict: &[u8], storages: &[Vec<u8>]) -> Vec<u8> {
    const MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    const VERSION: &[u8] = b"M\xe9\x03.";
    const SYSTEM: &[u8] = b"}X\x0d\0\0\0little_endian\x88s.";
    let mut file = [MAGIC, VERSION, SYSTEM, state_dict, b"]("].concat();
    for key in 0..storages.len() {
        let key = key.to_string();
        file.push(b'X');
        file.extend((key.len() as u32).to_le_bytes());
        file.extend(key.as_bytes());
    }
    file.extend(b"e.");
    for storage in storages {
        file.extend((storage.len() as u64 / 4).to_le_bytes());
        file.extend(storage);
    }
    file
}
