//! Plain text.

use std::sync::LazyLock;

use regex::Regex;

use super::{ends_sentence, lines};
use crate::builder::Builder;
use crate::document::Document;
use crate::writing::Writing;

/// What precedes the text of a line: indentation, quotation marks of mail, and the marker of a list.
static MARKER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[\s>|]*(?:(?:[-*+•‣◦–—·]|\(?[0-9]{1,3}[.)]|\(?[a-z]\)|#{1,6})[\s]+)?")
        .expect("a regular expression")
});

/// A line of fewer characters is a line by itself.
const SHORTEST: usize = 30;

/// Reads a text.
pub(super) fn read(text: &str) -> Document {
    let mut builder = Builder::new(Writing::Plain);
    let lines: Vec<(&str, &str)> = lines(text).collect();
    let mut at = 0;
    while at < lines.len() {
        let end = at
            + lines[at..]
                .iter()
                .take_while(|(line, _)| !line.trim().is_empty())
                .count();
        paragraph(&lines[at..end], &mut builder);
        if let Some((line, end)) = lines.get(end) {
            builder.skeleton(line);
            builder.skeleton(end);
        }
        at = end + 1;
    }
    builder.end()
}

/// Lines between two blank lines.
fn paragraph(lines: &[(&str, &str)], builder: &mut Builder) {
    let is_wrapped = is_wrapped(lines);
    for (index, (line, end)) in lines.iter().enumerate() {
        let marker = MARKER.find(line).map_or("", |marker| marker.as_str());
        let content = line[marker.len()..].trim_end();
        let before = index.checked_sub(1).map(|before| lines[before]);
        let continues = before.is_some_and(|(before, _)| {
            let first = content.split_whitespace().next().unwrap_or_default();
            let goes_on = first.starts_with(char::is_lowercase)
                && !ends_sentence(before)
                && before.trim_end().chars().count() >= SHORTEST;
            let is_list = !marker.trim().is_empty();
            // A setting with a name.
            let is_setting = first.contains('=') || first.ends_with(':');
            !is_list && !is_setting && (goes_on || is_wrapped)
        });
        match before {
            Some((before, end)) => {
                let spaces = &before[before.trim_end().len()..];
                match continues {
                    true => builder.line_break(&format!("{spaces}{end}{marker}")),
                    false => builder.skeleton(&format!("{spaces}{end}{marker}")),
                }
            }
            None => builder.skeleton(marker),
        }
        builder.text(content, content);
        if index + 1 == lines.len() {
            builder.skeleton(&line[marker.len() + content.len()..]);
            builder.skeleton(end);
        }
    }
}

/// Whether lines are wrapped at a width: all but the last are nearly as long as the longest, or would be with the next
/// line's first word.
fn is_wrapped(lines: &[(&str, &str)]) -> bool {
    const NARROWEST: usize = 50;
    let length = |line: &str| line.trim_end().chars().count();
    let longest = lines
        .iter()
        .map(|(line, _)| length(line))
        .max()
        .unwrap_or(0);
    lines.len() > 1
        && longest >= NARROWEST
        && lines.windows(2).all(|pair| {
            let next = pair[1].0.split_whitespace().next().unwrap_or_default();
            length(pair[0].0) + 1 + length(next) > longest
        })
}
