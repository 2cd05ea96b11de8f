//! Writes listings and outputs into the pages.
//!
//! A page marks the places: `<!-- code: annotated.rs | pub fn rate -->` stands before the block that gets the item of
//! that file whose line has these words, `<!-- output: NAME -->` before the block that gets what a listing prints.

use std::fs;
use std::path::Path;
use std::process::Command;

use transformer_examples::Failure;

/// Replaces the block after each mark, in every page of a folder.
pub fn write(folder: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let page = fs::read_to_string(&path)?;
            let written = filled(&page).map_err(|error| format!("{}: {error}", path.display()))?;
            if written != page {
                fs::write(&path, written)?;
            }
        }
    }
    Ok(())
}

/// The page with its blocks filled in.
fn filled(page: &str) -> Result<String, String> {
    let mut lines = page.lines();
    let mut written = String::new();
    while let Some(line) = lines.next() {
        written += line;
        written += "\n";
        let mark = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        let Some((kind, what)) = mark.and_then(|mark| mark.split_once(": ")) else {
            continue;
        };
        let (language, text) = match kind {
            "code" => ("rust,ignore", code(what)?),
            "output" => ("text", output(what)?),
            _ => continue,
        };
        let fence = lines.next().is_some_and(|line| line.starts_with("```"));
        if !fence || !lines.by_ref().any(|line| line == "```") {
            return Err(format!("no block after {line}"));
        }
        written += &format!("```{language}\n{}\n```\n", text.trim_end());
    }
    Ok(written)
}

/// What a listing prints.
fn output(name: &str) -> Result<String, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let run = Command::new(this).arg(name).output().map_err(|error| error.to_string())?;
    if !run.status.success() {
        return Err(String::from_utf8_lossy(&run.stderr).into_owned());
    }
    String::from_utf8(run.stdout).map_err(|error| error.to_string())
}

/// The item of `FILE | WORDS`: from the comments above the line that has the words to the line that closes it.
fn code(what: &str) -> Result<String, String> {
    let (file, words) = what.split_once(" | ").ok_or(format!("no ` | ` in {what}"))?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let lines: Vec<&str> = text.lines().collect();
    let mut places = (0..lines.len()).filter(|&at| lines[at].contains(words));
    let (Some(at), None) = (places.next(), places.next()) else {
        return Err(format!("{file}: not exactly one line has {words:?}"));
    };
    let is_above = |line: &&&str| line.trim_start().starts_with(['/', '#']);
    let first = at - lines[..at].iter().rev().take_while(is_above).count();
    let indent = lines[at].len() - lines[at].trim_start().len();
    let closes = |line: &str| {
        let rest = line.get(indent..).unwrap_or("");
        line[..line.len().min(indent)].trim().is_empty()
            && (rest.starts_with(['}', ']']) || rest.is_empty())
    };
    let is_one_line = lines[at].ends_with(';');
    let length = lines[at..].iter().position(|line| is_one_line || closes(line));
    let last = at + length.ok_or(format!("{file}: the item at {words:?} has no end"))?;
    let item = lines[first..=last].iter().map(|line| line.get(indent..).unwrap_or(""));
    // A heading names the paper's section, which the page does as well.
    let item = item.filter(|line| !line.starts_with("// §"));
    Ok(Vec::from_iter(item).join("\n"))
}
