//! Lines of a file of any size, a few at a time.

use std::io::{self, BufRead, Read};

/// What stands in a line.
pub enum Line {
    Sentence(String),
    /// What is wrong with it.
    Unreadable(String),
}

/// Bytes of a line beyond which it is no sentence.
const MOST_BYTES: usize = 1 << 20;
/// Lines, and bytes, that are read at a time.
const CHUNK: (usize, usize) = (1000, MOST_BYTES);

/// Passes over the mark that some editors begin a file with.
pub fn skip_byte_order_mark(input: &mut impl BufRead) -> io::Result<()> {
    if input.fill_buf()?.starts_with("\u{feff}".as_bytes()) {
        input.consume('\u{feff}'.len_utf8());
    }
    Ok(())
}

/// The next lines; none at the end of the input. `one_by_one` does not wait for more than one.
pub fn next_lines(input: &mut impl BufRead, one_by_one: bool) -> io::Result<Vec<Line>> {
    let most = if one_by_one { 1 } else { CHUNK.0 };
    let mut lines = Vec::new();
    let mut bytes = 0;
    while lines.len() < most && bytes < CHUNK.1 {
        match next_line(input)? {
            Some(line) => {
                if let Line::Sentence(sentence) = &line {
                    bytes += sentence.len();
                }
                lines.push(line);
            }
            None => break,
        }
    }
    Ok(lines)
}

fn next_line(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut bytes = Vec::new();
    let most = MOST_BYTES as u64 + 1;
    input.by_ref().take(most).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let ended = bytes.pop_if(|last| *last == b'\n').is_some();
    if !ended && bytes.len() > MOST_BYTES {
        input.skip_until(b'\n')?;
        let problem = format!("is longer than {MOST_BYTES} bytes");
        return Ok(Some(Line::Unreadable(problem)));
    }
    Ok(Some(match String::from_utf8(bytes) {
        Ok(sentence) => Line::Sentence(sentence),
        Err(_) => Line::Unreadable("is not valid UTF-8".into()),
    }))
}
