//! Lines of a file of any size, or of standard input, a few at a time.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;

use transformer_program::note;

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

/// The lines of an input. Those that cannot be used are named on standard error and counted.
pub struct Lines {
    name: String,
    input: Box<dyn BufRead>,
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
        let (name, mut input): (String, Box<dyn BufRead>) = match path {
            Some(path) => {
                let name = path.display().to_string();
                let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
                (name, Box::new(BufReader::new(file)))
            }
            None => ("standard input".into(), Box::new(io::stdin().lock())),
        };
        skip_byte_order_mark(&mut input).map_err(|error| format!("{name}: {error}"))?;
        Ok(Self {
            name,
            input,
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
        let lines = next_lines(&mut self.input, if self.typed { 1 } else { CHUNK.0 })
            .map_err(|error| format!("{}: line {}: {error}", self.name, self.before + 1))?;
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

/// Skips the mark that some editors begin a file with.
fn skip_byte_order_mark(input: &mut impl BufRead) -> io::Result<()> {
    if input.fill_buf()?.starts_with("\u{feff}".as_bytes()) {
        input.consume('\u{feff}'.len_utf8());
    }
    Ok(())
}

/// The next lines, at most so many; none at the end of the input.
fn next_lines(input: &mut impl BufRead, most: usize) -> io::Result<Vec<Line>> {
    let mut lines = Vec::new();
    let mut bytes = 0;
    while lines.len() < most && bytes < CHUNK.1 {
        match next_line(input)? {
            Some(line) => {
                if let Line::Text(text) = &line {
                    bytes += text.len();
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
        Ok(text) => Line::Text(text),
        Err(_) => Line::Unreadable("is not valid UTF-8".into()),
    }))
}
