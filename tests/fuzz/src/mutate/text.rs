//! Changes of lines of text.

use super::bytes;
use crate::random::Random;

/// Texts at which readers go wrong: byte-order marks, NUL, other white space, marks that combine, TOML's and JSON's
/// signs, special tokens.
const STRANGE: [&str; 28] = [
    "",
    " ",
    "\t",
    "\t\t",
    "\n",
    "\r\n",
    "\0",
    "\u{feff}",
    "\u{85}",
    "\u{2028}",
    "\u{200d}",
    "e\u{301}\u{301}\u{301}",
    "\u{ffff}",
    "\u{10ffff}",
    "日本語",
    "\"",
    "'''",
    "\\",
    "[",
    "]",
    "[[a]]",
    "{",
    "=",
    "#",
    "<unk>",
    "<eos>",
    ">>fra<<",
    "\u{2581}",
];

/// Numbers as a file spells them.
const NUMBERS: [&str; 17] = [
    "0",
    "-0",
    "-1",
    "1",
    "255",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "1e400",
    "-1e400",
    "1e-400",
    "nan",
    "inf",
    "-inf",
    "0x7fffffffffffffff",
    "1_000_000_000_000",
];

/// The text with a few lines or words changed.
pub fn mutated(seed: Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let Ok(mut text) = String::from_utf8(seed.clone()) else {
        return bytes::mutated(seed, seeds, random);
    };
    for _ in 0..random.few() {
        text = changed_lines(&text, seeds, random);
    }
    match random.one_in(8) {
        true => bytes::mutated(text.into_bytes(), seeds, random),
        false => text.into_bytes(),
    }
}

fn changed_lines(text: &str, seeds: &[Vec<u8>], random: &mut Random) -> String {
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    // Never empty.
    let at = random.below(lines.len());
    match random.below(7) {
        0 => drop(lines.remove(at)),
        1 => {
            let line = lines[at].clone();
            lines.insert(random.below(lines.len()), line);
        }
        2 => {
            let other = random.below(lines.len());
            lines.swap(at, other);
        }
        3 => {
            let other = String::from_utf8_lossy(random.pick::<Vec<u8>>(seeds)).into_owned();
            let others: Vec<&str> = other.split('\n').collect();
            lines.insert(at, (*random.pick(&others)).to_owned());
        }
        4 => {
            let times = 1 + random.below(300);
            let line = lines[at].clone();
            drop(lines.splice(at..at, std::iter::repeat_n(line, times)));
        }
        5 => lines[at] = with_other_number(&lines[at], random),
        _ => lines[at] = changed(std::mem::take(&mut lines[at]), random),
    }
    lines.join("\n")
}

/// A line with another number in place of the first one.
fn with_other_number(line: &str, random: &mut Random) -> String {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
    let Some(start) = line.find(is_part) else {
        return changed(line.to_owned(), random);
    };
    let rest = &line[start..];
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    let number = match random.one_in(3) {
        true => random.number().to_string(),
        false => (*random.pick(&NUMBERS)).to_owned(),
    };
    [&line[..start], &number, &rest[end..]].concat()
}

/// A text with a part replaced, doubled or left out.
pub fn changed(text: String, random: &mut Random) -> String {
    let characters: Vec<char> = text.chars().collect();
    let part = random.part(characters.len());
    let (start, end) = (part.start, part.end);
    let middle: String = match random.below(6) {
        0 => String::new(),
        1 => (*random.pick(&STRANGE)).to_owned(),
        2 => (*random.pick(&NUMBERS)).to_owned(),
        3 => {
            let times = random.below(2000);
            characters[part]
                .iter()
                .collect::<String>()
                .repeat(times.min(20_000 / (end - start + 1)))
        }
        4 => {
            let times = random.below(5000);
            (*random.pick(&["a", "\u{301}", "(", "é"])).repeat(times)
        }
        _ => characters[part].iter().rev().collect(),
    };
    let before: String = characters[..start].iter().collect();
    let after: String = characters[end..].iter().collect();
    before + &middle + &after
}
