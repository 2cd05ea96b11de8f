//! Lines of a file of any size or of standard input, plain or gzip, read in chunks.

mod piped;

use std::borrow::Cow;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, StdoutLock, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use transformer_train::data::{
    MAX_LINE_BYTES, TextLine, TextLines, TextReader, is_standard_stream,
};
use transformer_train::progress::printable;

use super::Result;
use crate::process::note;
use piped::PipedLines;

/// The maximum number of lines, and of bytes, in a chunk.
const CHUNK: (usize, usize) = (1000, MAX_LINE_BYTES);

/// Lines that arrive from a pipe within this time of the first line are processed together with it. A user who types
/// does not notice the delay, and a program that writes line after line fills a chunk.
const TOGETHER: Duration = Duration::from_millis(20);

/// A line that was read.
enum Line {
    Text(String),
    /// The problem with the line.
    Unreadable(String),
}

impl Line {
    /// The next line of a text; `None` at the end.
    ///
    /// # Errors
    /// Why the text cannot be read any further.
    fn read(text: &mut TextLines) -> std::result::Result<Option<Self>, String> {
        let is_gzip = text.is_gzip();
        let line = text.next_line().map_err(|error| match is_gzip {
            true => format!("gzip data is truncated or corrupt: {error}"),
            false => error.to_string(),
        })?;
        Ok(line.map(|line| match line {
            TextLine::Text(text) => Self::Text(text.to_owned()),
            TextLine::TooLong => Self::Unreadable(format!("is longer than {MAX_LINE_BYTES} bytes")),
            TextLine::NotUtf8 { .. } => Self::Unreadable("is not valid UTF-8".into()),
        }))
    }

    /// The bytes of the line that are kept.
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Unreadable(_) => 0,
        }
    }
}

/// The source of lines, which decides how many lines are processed together.
enum Input {
    /// A file: a chunk at a time.
    File(TextLines),
    /// A terminal: each line as soon as it is typed.
    Terminal(TextLines),
    /// A pipe, at whose other end may be a user: the lines that have arrived.
    Pipe(PipedLines),
}

impl Input {
    fn of_file(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let is_file = file.metadata()?.is_file();
        let text = TextLines::new(TextReader::new(BufReader::new(file))?);
        Ok(match is_file {
            true => Self::File(text),
            false => Self::Pipe(PipedLines::new(text)?),
        })
    }

    fn of_standard_input() -> io::Result<Self> {
        let text = TextLines::new(TextReader::new(BufReader::new(io::stdin()))?);
        Ok(if io::stdin().is_terminal() {
            Self::Terminal(text)
        } else if standard_input_is_file() {
            Self::File(text)
        } else {
            Self::Pipe(PipedLines::new(text)?)
        })
    }
}

/// A text for standard output: [printable] if that is a terminal, otherwise unchanged.
pub fn for_output(text: &str) -> Cow<'_, str> {
    match io::stdout().is_terminal() {
        true => printable(text),
        false => text.into(),
    }
}

/// Whether standard input is a file, as with `< FILE`.
#[cfg(unix)]
fn standard_input_is_file() -> bool {
    use std::os::fd::AsFd;

    let input = io::stdin().as_fd().try_clone_to_owned();
    let about = input.and_then(|input| File::from(input).metadata());
    about.is_ok_and(|about| about.is_file())
}

#[cfg(not(unix))]
fn standard_input_is_file() -> bool {
    false
}

/// The lines of an input. Unusable lines are reported on standard error and counted.
pub struct Lines {
    name: String,
    input: Input,
    /// Why the input cannot be read any further, after a read error.
    end: Option<String>,
    /// Lines of the chunks before the current one.
    before: usize,
    /// Lines of the current chunk.
    current: usize,
    failed: usize,
}

impl Lines {
    /// The lines of a file, or of standard input if there is no path or the path is `-`.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let (name, input) = match path {
            Some(path) if !is_standard_stream(path) => {
                (path.display().to_string(), Input::of_file(path))
            }
            _ => ("standard input".into(), Input::of_standard_input()),
        };
        let input = input.map_err(|error| format!("{name}: {error}"))?;
        Ok(Self::new(name, input))
    }

    fn new(name: String, input: Input) -> Self {
        Self {
            name,
            input,
            end: None,
            before: 0,
            current: 0,
            failed: 0,
        }
    }

    /// Whether the lines come from a terminal.
    pub fn are_typed(&self) -> bool {
        matches!(self.input, Input::Terminal(_))
    }

    /// Lines read so far.
    pub fn read(&self) -> usize {
        self.before + self.current
    }

    /// The number, from 1, of a line of the current chunk.
    pub fn number(&self, index: usize) -> usize {
        self.before + index + 1
    }

    /// Processes all lines in order, a chunk at a time. `answer` receives the next lines, with `None` for an unreadable
    /// line, which has been reported, and writes the results to standard output.
    ///
    /// # Errors
    /// When the input cannot be read any further, and the errors of `answer`.
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

    /// Lines that are processed together. The lines before an unreadable place come before its error.
    fn read_chunk(&mut self) -> Result<Vec<Line>> {
        let most = if self.are_typed() { 1 } else { CHUNK.0 };
        let mut lines = Vec::new();
        let mut bytes = 0;
        let mut until = None;
        while self.end.is_none() && lines.len() < most && bytes < CHUNK.1 {
            let line = match &mut self.input {
                Input::File(text) | Input::Terminal(text) => Line::read(text),
                Input::Pipe(piped) => piped.next(until),
            };
            match line {
                Ok(Some(line)) => {
                    bytes += line.bytes();
                    lines.push(line);
                }
                Ok(None) => break,
                Err(problem) => {
                    let number = self.number(lines.len());
                    self.end = Some(format!("{}: line {number}: {problem}", self.name));
                }
            }
            until.get_or_insert_with(|| Instant::now() + TOGETHER);
        }
        match self.end.take_if(|_| lines.is_empty()) {
            Some(end) => Err(end.into()),
            None => Ok(lines),
        }
    }

    /// The name of the input, and the number of a line of the current chunk.
    pub fn place(&self, index: usize) -> String {
        format!("{}: line {}", self.name, self.number(index))
    }

    /// Reports a problem with a line of the current chunk.
    pub fn report(&mut self, index: usize, problem: &dyn Display) {
        self.failed += 1;
        note(format_args!("{}: {problem}", self.place(index)));
    }

    /// Fails if a line was reported. `done` is the participle in the message: `translated`, `scored`.
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

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use super::*;

    fn text(input: impl Read + Send + 'static) -> TextLines {
        TextLines::new(TextReader::new(BufReader::new(input)).expect("its first byte"))
    }

    /// The lines of a text, read like a file.
    fn lines(bytes: impl Into<Vec<u8>>) -> Lines {
        let text = text(Cursor::new(bytes.into()));
        Lines::new("a text".into(), Input::File(text))
    }

    /// The lines of an input, read like a pipe.
    fn piped(input: impl Read + Send + 'static) -> Lines {
        let piped = PipedLines::new(text(input)).expect("a thread");
        Lines::new("a pipe".into(), Input::Pipe(piped))
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

    #[test]
    fn what_a_pipe_has_brought_is_answered_before_it_brings_more() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        writeln!(writer, "one").expect("written");
        let mut lines = piped(reader);
        let mut expect = |text: &str| {
            let found = lines.next_chunk().expect("lines");
            assert_eq!(found, [Some(text.to_owned())]);
        };
        expect("one");
        write!(writer, "two\nthr").expect("written");
        expect("two");
        drop(writer);
        expect("thr");
        assert!(lines.next_chunk().expect("the end").is_empty());
    }

    /// A reader that only returns an error.
    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("gone"))
        }
    }

    #[test]
    fn lines_before_an_error_are_answered_before_it_is_named() {
        let broken = || Cursor::new(b"one\ntwo\nthr").chain(Broken);
        let file = Lines::new("a file".into(), Input::File(text(broken())));
        for mut lines in [file, piped(broken())] {
            let mut found = Vec::new();
            let error = loop {
                match lines.next_chunk() {
                    Ok(chunk) => {
                        assert!(!chunk.is_empty());
                        found.extend(chunk.into_iter().flatten());
                    }
                    Err(error) => break error.to_string(),
                }
            };
            assert_eq!(found, ["one", "two"]);
            assert!(error.ends_with(": line 3: gone"), "{error}");
        }
    }
}
