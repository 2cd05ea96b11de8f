//! Lines of a file of any size, or of standard input, plain or gzip, a few at a time.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;

use transformer_program::note;
use transformer_train::TextReader;

/// A line that was read.
enum Line {
    Text(String),
    /// The problem with it.
    Unreadable(String),
}

/// Most bytes of a line.
const MOST_BYTES: usize = 1 << 20;
/// Lines, and bytes, that are read at a time.
const CHUNK: (usize, usize) = (1000, MOST_BYTES);
/// Some editors begin a file with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The lines of an input. Those that cannot be used are named on standard error and counted.
pub struct Lines {
    name: String,
    input: TextReader,
    /// Whether somebody types the lines, and wants each answer at once.
    typed: bool,
    /// Lines of the chunks before the last.
    before: usize,
    /// Lines of the last chunk.
    current: usize,
    failed: usize,
}

impl Lines {
    /// The lines of a file, or those of standard input.
    pub fn open(path: Option<&Path>) -> Result<Self, String> {
        let name = match path {
            Some(path) => path.display().to_string(),
            None => "standard input".into(),
        };
        let input = match path {
            Some(path) => File::open(path).and_then(|file| TextReader::new(BufReader::new(file))),
            None => TextReader::new(BufReader::new(io::stdin())),
        };
        Ok(Self {
            input: input.map_err(|error| format!("{name}: {error}"))?,
            name,
            typed: path.is_none() && io::stdin().is_terminal(),
            before: 0,
            current: 0,
            failed: 0,
        })
    }

    /// Whether somebody types the lines.
    pub fn are_typed(&self) -> bool {
        self.typed
    }

    /// Lines read so far.
    pub fn read(&self) -> usize {
        self.before + self.current
    }

    /// The number, from 1, of a line of the last chunk.
    pub fn number(&self, index: usize) -> usize {
        self.before + index + 1
    }

    /// The next lines, with `None` for one that is unreadable, which is reported. At the end of the input
    /// there are none.
    pub fn next_chunk(&mut self) -> Result<Vec<Option<String>>, String> {
        self.before += self.current;
        self.current = 0;
        let lines = self.next_lines()?;
        self.current = lines.len();
        let mut texts = Vec::with_capacity(lines.len());
        for (index, line) in lines.into_iter().enumerate() {
            texts.push(match line {
                Line::Text(text) => Some(text),
                Line::Unreadable(problem) => {
                    self.report(index, &format!("the sentence {problem}"));
                    None
                }
            });
        }
        Ok(texts)
    }

    fn next_lines(&mut self) -> Result<Vec<Line>, String> {
        let most = if self.typed { 1 } else { CHUNK.0 };
        let mut lines = Vec::new();
        let mut bytes = 0;
        while lines.len() < most && bytes < CHUNK.1 {
            let number = self.before + lines.len() + 1;
            let line = next_line(&mut self.input, number)
                .map_err(|error| self.unreadable(number, &error))?;
            let Some(line) = line else {
                break;
            };
            if let Line::Text(text) = &line {
                bytes += text.len();
            }
            lines.push(line);
        }
        Ok(lines)
    }

    /// An error that ends the input.
    fn unreadable(&self, line: usize, error: &io::Error) -> String {
        let name = &self.name;
        match self.input.is_gzip() {
            true => format!("{name}: line {line}: gzip data is truncated or corrupt: {error}"),
            false => format!("{name}: line {line}: {error}"),
        }
    }

    /// Reports a problem with a line of the last chunk.
    pub fn report(&mut self, index: usize, problem: &dyn Display) {
        self.failed += 1;
        note(format_args!(
            "{}: line {}: {problem}",
            self.name,
            self.number(index)
        ));
    }

    /// Fails where a line was reported. `done` names the work on a line: `translated`, `scored`.
    pub fn finish(&self, done: &str) -> Result<(), String> {
        match self.failed {
            0 => Ok(()),
            failed => Err(format!(
                "{failed} of {} lines could not be {done}",
                self.read()
            )),
        }
    }
}

/// The next line of an input, of this number from 1; `None` at the end.
fn next_line(input: &mut impl BufRead, number: usize) -> io::Result<Option<Line>> {
    let mut bytes = Vec::new();
    let most = MOST_BYTES as u64 + 1;
    input.by_ref().take(most).read_until(b'\n', &mut bytes)?;
    let is_too_long = bytes.len() > MOST_BYTES && !bytes.ends_with(b"\n");
    if number == 1 && bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    if is_too_long {
        input.skip_until(b'\n')?;
        let problem = format!("is longer than {MOST_BYTES} bytes");
        return Ok(Some(Line::Unreadable(problem)));
    }
    if bytes.ends_with(b"\n") {
        bytes.pop();
    }
    Ok(Some(match String::from_utf8(bytes) {
        Ok(text) => Line::Text(text),
        Err(_) => Line::Unreadable("is not valid UTF-8".into()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of an input; an unreadable one as its problem, in brackets.
    fn lines(input: impl AsRef<[u8]>) -> Vec<String> {
        let mut input = input.as_ref();
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut input, lines.len() + 1).expect("in memory") {
            lines.push(match line {
                Line::Text(text) => text,
                Line::Unreadable(problem) => format!("({problem})"),
            });
        }
        lines
    }

    #[test]
    fn there_is_a_line_for_each_line_feed_and_one_for_the_rest() {
        assert!(lines("").is_empty());
        assert_eq!(lines("\n"), [""]);
        assert_eq!(
            lines("one\n\n two\r\nthree"),
            ["one", "", " two\r", "three"]
        );
        // The separators of Unicode end no line.
        assert_eq!(
            lines("one\u{2028}two\u{85}\u{b}\n"),
            ["one\u{2028}two\u{85}\u{b}"]
        );
    }

    #[test]
    fn a_mark_at_the_beginning_is_no_text() {
        assert_eq!(lines("\u{feff}one\n\u{feff}two"), ["one", "\u{feff}two"]);
        assert_eq!(lines("\u{feff}\none"), ["", "one"]);
        assert!(lines("\u{feff}").is_empty());
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_to_its_end() {
        let longest = "a".repeat(MOST_BYTES);
        let problem = format!("(is longer than {MOST_BYTES} bytes)");
        let text = format!("{longest}\n{longest}a\ntwo");
        assert_eq!(lines(text), [longest, problem, "two".to_owned()]);
        assert_eq!(lines(b"\xff\ntwo"), ["(is not valid UTF-8)", "two"]);
    }
}
