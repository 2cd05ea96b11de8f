//! Subtitles: SubRip and WebVTT.

use super::{ends_sentence, lines, tag_name};
use crate::builder::{Builder, DEEPEST};
use crate::document::{Document, raw};
use crate::writing::Writing;

/// A sentence of this many bytes is not continued in the next cue: automatic captions have no punctuation at all.
const LONGEST: usize = 400;

/// Reads subtitles. Whatever is not the text of a cue is kept.
pub(super) fn read(text: &str, is_vtt: bool) -> Document {
    let writing = if is_vtt { Writing::Xml } else { Writing::Plain };
    let mut cues = Cues {
        builder: Builder::new(writing),
        between: String::new(),
        last: String::new(),
        length: 0,
        is_vtt,
    };
    let all: Vec<(&str, &str)> = lines(text).collect();
    let mut is_text = false;
    let mut at = 0;
    while at < all.len() {
        let is_number = |line: &str| line.trim().bytes().all(|byte| byte.is_ascii_digit());
        let is_time = |at: usize| all.get(at).is_some_and(|(line, _)| line.contains("-->"));
        let is_blank = |at: usize| all[at].0.trim().is_empty();
        // A cue may follow another without a blank line.
        let is_cue = |at: usize| is_time(at) || is_number(all[at].0) && is_time(at + 1);
        let (line, end) = all[at];
        if is_text && !is_cue(at) && !is_blank(at) {
            let next = (at..all.len()).find(|&next| is_cue(next) || is_blank(next));
            let next = next.unwrap_or(all.len());
            cues.cue(&all[at..next]);
            at = next;
            continue;
        }
        is_text = match () {
            () if is_time(at) => true,
            // In SubRip, a cue may have blank lines.
            () if is_blank(at) => is_text && !is_vtt,
            () => is_text,
        };
        cues.between += line;
        cues.between += end;
        at += 1;
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
    /// The text of a cue, or a part of it. Markup around all of it stays around all of it.
    fn cue(&mut self, lines: &[(&str, &str)]) {
        let texts: Vec<&str> = lines.iter().map(|(line, _)| *line).collect();
        let around = around(&texts.join("\n"));
        for (index, (line, end)) in lines.iter().enumerate() {
            let start = if index == 0 { around.start } else { 0 };
            let is_last = index + 1 == lines.len();
            let after = if is_last { around.end } else { 0 };
            self.line(line, start, line.len() - after);
            self.between += end;
        }
    }

    /// A line of a cue, of which this part is text.
    fn line(&mut self, line: &str, start: usize, end: usize) {
        let text = &line[start..end];
        let trimmed = text
            .trim_start()
            .trim_start_matches(['-', '–', '—', '♪', ' ']);
        let (before, content) = line[..end].split_at(end - trimmed.len());
        let content = content.trim_end();
        let first = content.chars().find(|letter| letter.is_alphanumeric());
        let begins_small = first.is_some_and(char::is_lowercase);
        let trails_off = self.last.ends_with("...") || self.last.ends_with('…');
        let goes_on = (!ends_sentence(&self.last) || trails_off && begins_small)
            && before[start..].trim().is_empty()
            && self.length < LONGEST
            && self.builder.is_in_passage();
        let between = std::mem::take(&mut self.between) + before;
        match goes_on {
            true => self.builder.line_break(&between),
            false => {
                self.length = 0;
                self.builder.skeleton(&between);
            }
        }
        self.length += content.len();
        self.content(content);
        self.last = content.to_owned();
        self.between += &line[before.len() + content.len()..];
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
            let name = tag_name(tag);
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

/// The bytes of markup around all of the text of a cue: before and after it.
fn around(cue: &str) -> std::ops::Range<usize> {
    let mut tags: Vec<std::ops::Range<usize>> = Vec::new();
    let mut at = 0;
    while let Some(tag) = markup(&cue[at..]) {
        tags.push(at + tag.start..at + tag.end);
        at += tag.end;
    }
    // The tag that ends what each one begins.
    let mut ends = vec![None; tags.len()];
    let mut open: Vec<usize> = Vec::new();
    for (index, tag) in tags.iter().enumerate() {
        match &cue[tag.clone()] {
            end if end.starts_with("</") => {
                let begins = |&at: &usize| tag_name(&cue[tags[at].clone()]) == tag_name(end);
                // Deeper, text only looks like tags.
                let first = open.len().saturating_sub(DEEPEST);
                if let Some(at) = open[first..].iter().rposition(begins) {
                    let at = first + at;
                    ends[open[at]] = Some(index);
                    open.truncate(at);
                }
            }
            _ => open.push(index),
        }
    }
    let (mut start, mut end) = (0, cue.len());
    // They are in the first line, and in the last.
    let first_line = cue.find('\n').unwrap_or(cue.len());
    let last_line = cue.rfind('\n').map_or(0, |at| at + 1);
    for (tag, ends) in tags.iter().zip(ends) {
        let is_first = tag.end <= first_line && cue[start..tag.start].trim().is_empty();
        match ends.map(|end| &tags[end]) {
            Some(last)
                if is_first && last.start >= last_line && cue[last.end..end].trim().is_empty() =>
            {
                (start, end) = (tag.end, last.start);
            }
            // For all of the cue.
            None if is_first && !cue[tag.clone()].starts_with("</") => start = tag.end,
            _ => break,
        }
    }
    start..cue.len() - end
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
        let end = is_tag.then(|| rest.find(if open == "<" { '>' } else { '}' }))??;
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
