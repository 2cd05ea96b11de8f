//! Lines of a file of any size, or of standard input, plain or gzip, a few at a time.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, StdoutLock, Write};
use std::path::Path;

use transformer_program::note;
use transformer_train::{MAX_LINE_BYTES, TextLine, TextLines, TextReader};

use super::Result;

/// A line that was read.
enum Line {
    Text(String),
    /// The problem with it.
    Unreadable(String),
}

/// Lines, and bytes, that are read at a time.
const CHUNK: (usize, usize) = (1000, MAX_LINE_BYTES);

/// The lines of an input. Those that cannot be used are named on standard error and counted.
pub struct Lines {
    name: String,
    input: TextLines,
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
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let name = match path {
            Some(path) => path.display().to_string(),
            None => "standard input".into(),
        };
        let input = match path {
            Some(path) => File::open(path).and_then(|file| TextReader::new(BufReader::new(file))),
            None => TextReader::new(BufReader::new(io::stdin())),
        };
        Ok(Self {
            input: TextLines::new(input.map_err(|error| format!("{name}: {error}"))?),
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

    /// Answers all lines in their order, a chunk at a time: `answer` is given the next lines, with `None` for an unreadable
    /// one, which has been reported, and writes the answers to standard output.
    ///
    /// # Errors
    /// When the input cannot be read any further, and those of `answer`.
    pub fn answer(
        &mut self,
        mut answer: impl FnMut(&mut Self, Vec<Option<String>>, &mut StdoutLock<'static>) -> Result,
    ) -> Result {
        let mut output = io::stdout().lock();
        loop {
            let texts = self.next_chunk()?;
            if texts.is_empty() {
                return Ok(());
            }
            answer(self, texts, &mut output)?;
            output.flush()?;
        }
    }

    /// The next lines; none at the end of the input.
    fn next_chunk(&mut self) -> Result<Vec<Option<String>>> {
        self.before += self.current;
        self.current = 0;
        let lines = self.read_chunk()?;
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

    fn read_chunk(&mut self) -> Result<Vec<Line>> {
        let most = if self.typed { 1 } else { CHUNK.0 };
        let mut lines = Vec::new();
        let mut bytes = 0;
        while lines.len() < most && bytes < CHUNK.1 {
            let (number, is_gzip) = (self.number(lines.len()), self.input.is_gzip());
            let line = self.input.next_line();
            let line = line.map_err(|error| unreadable(&self.name, number, is_gzip, &error))?;
            lines.push(match line {
                None => break,
                Some(TextLine::Text(text)) => {
                    bytes += text.len();
                    Line::Text(text.to_owned())
                }
                Some(TextLine::TooLong) => {
                    Line::Unreadable(format!("is longer than {MAX_LINE_BYTES} bytes"))
                }
                Some(TextLine::NotUtf8 { .. }) => Line::Unreadable("is not valid UTF-8".into()),
            });
        }
        Ok(lines)
    }

    /// The name of the input, and the number of a line of the last chunk.
    pub fn place(&self, index: usize) -> String {
        format!("{}: line {}", self.name, self.number(index))
    }

    /// Reports a problem with a line of the last chunk.
    pub fn report(&mut self, index: usize, problem: &dyn Display) {
        self.failed += 1;
        note(format_args!("{}: {problem}", self.place(index)));
    }

    /// Fails where a line was reported. `done` names the work on a line: `translated`, `scored`.
    pub fn finish(&self, done: &str) -> std::result::Result<(), String> {
        match self.failed {
            0 => Ok(()),
            failed => Err(format!(
                "{failed} of {} lines could not be {done}",
                self.read()
            )),
        }
    }
}

/// The error of an input that cannot be read any further than to this line.
fn unreadable(name: &str, line: usize, is_gzip: bool, error: &io::Error) -> String {
    match is_gzip {
        true => format!("{name}: line {line}: gzip data is truncated or corrupt: {error}"),
        false => format!("{name}: line {line}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// The lines of a text, read as those of a file.
    fn lines(text: impl Into<Vec<u8>>) -> Lines {
        let text = TextReader::new(Cursor::new(text.into())).expect("in memory");
        Lines {
            name: "a text".into(),
            input: TextLines::new(text),
            typed: false,
            before: 0,
            current: 0,
            failed: 0,
        }
    }

    #[test]
    fn a_line_that_is_no_text_is_counted_and_keeps_its_place() {
        let long = "a".repeat(MAX_LINE_BYTES + 1);
        let text = [&b"one\n\xff\n"[..], long.as_bytes(), b"\ntwo"].concat();
        let mut lines = lines(text);
        let [one, two] = ["one", "two"].map(|text| Some(text.to_owned()));
        assert_eq!(lines.next_chunk().expect("lines"), [one, None, None, two]);
        assert!(lines.next_chunk().expect("the end").is_empty());
        let error = lines.finish("read").expect_err("two problems");
        assert_eq!(error, "2 of 4 lines could not be read");
    }

    #[test]
    fn lines_are_numbered_from_chunk_to_chunk() {
        let mut lines = lines("one\n".repeat(CHUNK.0 + 2));
        assert_eq!(lines.next_chunk().expect("lines").len(), CHUNK.0);
        assert_eq!((lines.number(0), lines.read()), (1, CHUNK.0));
        assert_eq!(lines.next_chunk().expect("lines").len(), 2);
        assert_eq!((lines.number(1), lines.read()), (CHUNK.0 + 2, CHUNK.0 + 2));
    }
}
