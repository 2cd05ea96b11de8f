//! One file per subcommand, and the parts that several subcommands share.

pub mod average;
mod decoding;
mod documents;
pub mod evaluate;
pub mod export;
pub mod generate;
mod inference;
pub mod info;
mod languages;
mod lines;
mod model_directory;
pub mod pictures;
pub mod quantize;
pub mod score;
#[cfg(feature = "serve")]
pub mod serve;
pub mod shortlist;
pub mod tokenize;
pub mod train;
pub mod translate;

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::builder::{PathBufValueParser, TypedValueParser};
use transformer_core::decoding::{DecodeError, DecodeOptionsError, RequestProblem};
use transformer_core::formats::replace_file_with;
use transformer_core::text::TextError;
use transformer_train::data::{CorpusFile, is_standard_stream};
use transformer_train::progress::printable;
use transformer_train::validation::Validation;

use crate::backend::{BackendChoice, Target};

/// The result of a command: an error is shown in one line.
pub type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// A command that was stopped by a signal, after it saved its work and reported that. This is not an error, but it has
/// its own exit code.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted {
    /// 128 plus the number of the signal.
    pub exit_code: u8,
}

/// Flags of every command.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct Common {
    /// Backend to run on, one of those compiled in (Cargo features ndarray, flex, wgpu, tch, cuda)
    #[arg(long, global = true, value_enum, value_name = "NAME", default_value_t)]
    backend: BackendChoice,
    /// Device to run on, as listed by `transformer info --devices` [default: the value of the environment variable
    /// TRANSFORMER_DEVICE if it is set; otherwise the first GPU with wgpu and cuda, the CPU with the other backends and
    /// where wgpu finds no GPU]. `train` accepts several, separated by commas, but not on wgpu
    #[arg(long, global = true, value_name = "NAME")]
    device: Option<String>,
    /// Random seed for initial weights, held-out pairs, batches, dropout and samples [default: 0]
    #[arg(long, global = true, value_name = "N")]
    pub seed: Option<u64>,
}

impl Common {
    /// Where to compute.
    fn target(&self) -> Target<'_> {
        self.backend.on(self.device.as_deref())
    }
}

/// The flag that sets an option of the library.
fn flag(option: &str) -> String {
    match option {
        "max_src_len" => "--max-source-length".into(),
        option => format!("--{}", option.replace('_', "-")),
    }
}

/// The error about decoding options that are out of range, with the names of the flags.
fn options_error(error: DecodeOptionsError) -> String {
    match error {
        DecodeOptionsError::Range { name, value, rule } => {
            format!("{} {value}: must be {rule}", flag(name))
        }
        DecodeOptionsError::MinLength {
            min_length,
            max_len,
        } => format!("--min-length {min_length} is above the model's {max_len} learned positions"),
        error => error.to_string(),
    }
}

/// A problem with a sentence, which the message calls `source`, or with its target, and the flags that set the limit
/// it exceeds.
fn request_problem(source: &str, problem: &RequestProblem) -> String {
    let flags = match problem {
        RequestProblem::TargetTooLong { length, max_len } => {
            return format!(
                "the target has {length} tokens, more than the model's {max_len} learned positions"
            );
        }
        RequestProblem::OverLimit { .. } => "; see --max-source-length",
        RequestProblem::PrefixTooLong { .. } => "; see --prefix and --max-length",
        RequestProblem::PrefixOverPositions { .. } => "; see --prefix",
        _ => "",
    };
    format!("{source} {problem}{flags}")
}

/// The next text, starting at `first`, that `check` refuses.
fn next_refused(
    texts: &[String],
    first: usize,
    check: impl Fn(&String) -> std::result::Result<(), TextError>,
) -> std::result::Result<Option<DecodeError>, TextError> {
    for (index, text) in texts.iter().enumerate().skip(first) {
        match check(text) {
            Ok(()) => {}
            Err(TextError::Decode(mut error)) => {
                error.index = index;
                return Ok(Some(error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// A count with its noun, such as `1 pair` and `2 pairs`.
fn counted(number: usize, noun: &str) -> String {
    format!("{number} {}", plural(number, noun))
}

/// The noun for this many things.
fn plural(number: usize, noun: &str) -> String {
    match number {
        1 => noun.to_owned(),
        _ => format!("{noun}s"),
    }
}

/// A number of bytes in MiB.
fn mib(bytes: u128) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Checks that [`write_file`] can write a file, so that a command fails before it computes anything.
fn check_output(file: &Path) -> std::result::Result<(), String> {
    let target = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let directory = target.parent().filter(|path| !path.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    match target.metadata() {
        Ok(there) if there.is_dir() => Err(format!("{}: is a directory", file.display())),
        // A device or a pipe is written to directly.
        Ok(there) if !there.is_file() => Ok(()),
        _ if !directory.is_dir() => Err(format!("{}: no such directory", directory.display())),
        // In the same directory, because a new file replaces the old one.
        _ => tempfile::tempfile_in(directory)
            .map(drop)
            .map_err(|error| format!("{}: {error}", file.display())),
    }
}

/// Prints a text line by line, each line made [printable] in case it quotes control characters.
fn print(text: &str) -> Result {
    let lines: String = text.lines().map(|line| printable(line) + "\n").collect();
    Ok(io::stdout().write_all(lines.as_bytes())?)
}

/// Reads the value of a flag: a directory to write, which standard output cannot be.
fn directory_to_write() -> impl TypedValueParser<Value = PathBuf> {
    not_standard_output("must be a directory, not standard output; ./- is a directory named `-`")
}

/// Reads the value of a flag: a file to write, which standard output cannot be.
fn file_to_write() -> impl TypedValueParser<Value = PathBuf> {
    not_standard_output("must be a file, not standard output; ./- is a file named `-`")
}

fn not_standard_output(rule: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |path| match is_standard_stream(&path) {
        true => Err(rule),
        false => Ok(path),
    })
}

/// Checks that a command can write into a directory, which exists or can be created, so that the command fails before
/// it computes anything.
fn check_directory(directory: &Path) -> std::result::Result<(), String> {
    let is_there = |path: &&Path| path.symlink_metadata().is_ok();
    // The last ancestor of a relative path is empty.
    let there = directory.ancestors().find(is_there);
    let there = there.unwrap_or(Path::new("."));
    if !there.is_dir() {
        return Err(format!(
            "{} is not a directory; choose another --out",
            there.display()
        ));
    }
    tempfile::tempfile_in(there)
        .map(drop)
        .map_err(|error| format!("{}: {error}", there.display()))
}

/// Checks that a command can write a new model into a directory, which must be empty or not exist yet.
fn check_empty(directory: &Path) -> std::result::Result<(), String> {
    check_directory(directory)?;
    match fs::read_dir(directory) {
        Ok(mut files) => match files.next() {
            None => Ok(()),
            Some(_) => Err(format!(
                "{} is not empty; choose another --out",
                directory.display()
            )),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("{}: {error}", directory.display())),
    }
}

/// Removes the files written into a directory that was empty or did not exist, so that the next try can use it.
fn clear(directory: &Path, is_new: bool) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        fs::remove_file(entry?.path())?;
    }
    match is_new {
        true => fs::remove_dir(directory),
        false => Ok(()),
    }
}

/// Replaces a file, or the target of a link. A device or a pipe is written to directly, and so is the file that a
/// standard stream is redirected to: what it already has, and what follows, is kept.
fn write_file(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if is_open_as(&target, &io::stdout()) {
        let mut stdout = io::stdout();
        stdout.write_all(content.as_ref())?;
        return stdout.flush();
    }
    if is_open_as(&target, &io::stderr()) {
        return io::stderr().write_all(content.as_ref());
    }
    match target.metadata() {
        Ok(there) if !there.is_file() && !there.is_dir() => fs::write(target, content),
        _ => replace_file_with(&target, content),
    }
}

/// Whether a standard stream writes to this file.
#[cfg(unix)]
fn is_open_as(file: &Path, stream: &impl std::os::fd::AsFd) -> bool {
    use std::os::unix::fs::MetadataExt;

    let identity = |about: fs::Metadata| about.is_file().then(|| (about.dev(), about.ino()));
    let stream = stream.as_fd().try_clone_to_owned();
    let stream = stream.and_then(|stream| fs::File::from(stream).metadata());
    let [file, stream] = [file.metadata(), stream].map(|about| about.ok().and_then(identity));
    file.is_some() && file == stream
}

#[cfg(not(unix))]
fn is_open_as(_: &Path, _: &impl Write) -> bool {
    false
}

/// The corpora of the flags `--data` and `--parallel`, in this order.
fn corpora(data: &[PathBuf], parallel: &[PathBuf]) -> impl Iterator<Item = CorpusFile> {
    // In groups of two, because the flag can be repeated.
    let pairs = parallel.chunks_exact(2);
    let pairs = pairs.map(|files| CorpusFile::parallel(&files[0], &files[1]));
    data.iter().map(CorpusFile::tsv).chain(pairs)
}

/// Refuses to overwrite an input file.
fn refuse_overwriting(read: &[PathBuf], written: &Path) -> std::result::Result<(), String> {
    let Ok(written) = written.canonicalize() else {
        // It does not exist yet.
        return Ok(());
    };
    let is_written = |path: &&PathBuf| path.canonicalize().is_ok_and(|path| path == written);
    match read.iter().find(is_written) {
        Some(path) => Err(format!(
            "{}: is an input file, and would be overwritten",
            path.display()
        )),
        None => Ok(()),
    }
}

/// Checks that neither side of a pair has more than `limit` tokens.
fn check_lengths(source: usize, target: usize, limit: usize) -> std::result::Result<(), String> {
    for (side, tokens) in [("source", source), ("target", target)] {
        if tokens > limit {
            return Err(format!(
                "the {side} has {tokens} tokens, more than the limit of {limit}"
            ));
        }
    }
    Ok(())
}

/// The line that shows a validation.
fn validation_line(validation: &Validation) -> String {
    // The average at the end of a run has no training loss.
    let training = match validation.train_loss.is_nan() {
        true => String::new(),
        false => format!("training loss {:.3}  ", validation.train_loss),
    };
    let (update, seconds) = (validation.update, validation.seconds);
    let numbers = validation_numbers(validation);
    format!("update {update:>6}  {seconds:>7.0} s  {training}{numbers}")
}

/// The values measured at a validation.
fn validation_numbers(validation: &Validation) -> String {
    let mut line = format!(
        "validation loss {:.3}  perplexity {:.2}",
        validation.valid_loss,
        validation.valid_nll.exp()
    );
    for (name, value) in &validation.numbers {
        line += &format!("  {name} {value:.2}");
    }
    line
}
