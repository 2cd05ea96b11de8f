//! Subtitles: SubRip and WebVTT.

use super::{ends_sentence, lines};
use crate::builder::Builder;
use crate::document::{Document, raw};
use crate::writing::Writing;

/// A sentence of this many bytes is not continued in the next cue: automatic captions have no punctuation at all.
const LONGEST: usize = 400;

/// Reads subtitles. Whatever is not the text of a cue is kept.
pub(super) fn read(text: &str, is_vtt: bool) -> Document {
    let writing = if is_vtt {
        Writing::Html
    } else {
        Writing::Plain
    };
    let mut cues = Cues {
        builder: Builder::new(writing),
        between: String::new(),
        last: String::new(),
        length: 0,
        is_vtt,
    };
    let mut is_text = false;
    let mut all = lines(text).peekable();
    while let Some((line, end)) = all.next() {
        let is_before_time = all.peek().is_some_and(|(next, _)| next.contains("-->"));
        let is_number = line.trim().bytes().all(|byte| byte.is_ascii_digit());
        if line.contains("-->") {
            is_text = true;
            cues.between += line;
        } else if line.trim().is_empty() || is_number && is_before_time {
            // In SubRip, a cue may have blank lines.
            is_text &= !is_vtt;
            cues.between += line;
        } else if is_text {
            cues.line(line);
        } else {
            cues.between += line;
        }
        cues.between += end;
    }
    let Cues {
        mut builder,
        between,
        ..
    } = cues;
    builder.skeleton(&between);
    builder.end()
}

struct Cues {
    builder: Builder,
    /// What is between the text read last and the next one.
    between: String,
    /// The text read last.
    last: String,
    /// Bytes of the sentence so far, or more.
    length: usize,
    is_vtt: bool,
}

impl Cues {
    /// A line of a cue.
    fn line(&mut self, line: &str) {
        let indent = line.len() - line.trim_start().len();
        let (indent, content) = line.split_at(indent);
        let content = content.trim_end();
        let dash = content.len() - content.trim_start_matches(['-', '–', '—', '♪', ' ']).len();
        let (dash, content) = content.split_at(dash);
        let first = content.chars().find(|letter| letter.is_alphanumeric());
        let begins_small = first.is_some_and(char::is_lowercase);
        let trails_off = self.last.ends_with("...") || self.last.ends_with('…');
        let goes_on = (!ends_sentence(&self.last) || trails_off && begins_small)
            && dash.trim().is_empty()
            && self.length < LONGEST
            && self.builder.is_in_passage();
        let between = std::mem::take(&mut self.between);
        match goes_on {
            true => self.builder.line_break(&format!("{between}{indent}{dash}")),
            false => {
                self.length = 0;
                self.builder.skeleton(&format!("{between}{indent}{dash}"));
            }
        }
        self.length += content.len();
        self.content(content);
        self.last = content.to_owned();
        self.between += &line[indent.len() + dash.len() + content.len()..];
    }

    /// Text with tags, and in SubRip with `{\an8}` and alike.
    fn content(&mut self, mut rest: &str) {
        while !rest.is_empty() {
            let markup = markup(rest);
            let text = &rest[..markup.as_ref().map_or(rest.len(), |markup| markup.start)];
            match self.is_vtt {
                true => self.builder.text(&unescaped(text), text),
                false => self.builder.text(text, text),
            }
            let Some(markup) = markup else {
                return;
            };
            let tag = &rest[markup.clone()];
            let name = tag.trim_start_matches(['<', '/']);
            let name = name
                .split(|letter: char| !letter.is_alphanumeric())
                .next()
                .unwrap_or_default();
            match () {
                () if tag.starts_with("</") => self.builder.close(name, raw(tag)),
                // Without a name: a time.
                () if tag.starts_with('{') || !name.starts_with(char::is_alphabetic) => {
                    self.builder.point(raw(tag));
                }
                () => self.builder.open(name, raw(tag)),
            }
            rest = &rest[markup.end..];
        }
    }
}

/// The first markup of a line.
fn markup(line: &str) -> Option<std::ops::Range<usize>> {
    line.match_indices(['<', '{']).find_map(|(start, open)| {
        let rest = &line[start..];
        let is_tag = match open {
            "<" => rest[1..]
                .starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '/'),
            _ => rest.starts_with("{\\"),
        };
        let end = rest
            .find(if open == "<" { '>' } else { '}' })
            .filter(|_| is_tag)?;
        Some(start..start + end + 1)
    })
}

/// Text of WebVTT without escapes.
fn unescaped(text: &str) -> String {
    let text = text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&nbsp;", "\u{a0}");
    text.replace("&lrm;", "\u{200e}")
        .replace("&rlm;", "\u{200f}")
        .replace("&amp;", "&")
}
