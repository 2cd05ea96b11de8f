//! Messages of gettext.

use super::lines;
use crate::builder::Builder;
use crate::document::{Document, Piece, Template, has_letters};
use crate::writing::Writing;

/// The most forms of a plural.
const FORMS: usize = 6;

/// A line with a string.
struct Line<'a> {
    /// `msgid`, `msgstr[1]`; none where the string continues the one of the line before.
    key: &'a str,
    /// What precedes the string's content, with its quotation mark.
    before: &'a str,
    /// With escapes.
    content: &'a str,
    after: &'a str,
}

/// Reads messages. Translations that are missing are to be filled in; all others are kept.
pub(super) fn read(text: &str) -> Document {
    let mut builder = Builder::new(Writing::Po);
    let lines: Vec<(&str, &str)> = lines(text).collect();
    let parsed: Vec<Option<Line<'_>>> = lines.iter().map(|(line, _)| Line::parse(line)).collect();
    let (mut one, mut many) = (String::new(), String::new());
    let mut is_many = false;
    // Translations of the message.
    let mut filled = 0;
    for (index, (line, end)) in lines.iter().enumerate() {
        let next = parsed[index + 1..].iter();
        let continued = next.map_while(|line| line.as_ref().filter(|line| line.key.is_empty()));
        let is_empty = continued.map(|line| line.content).all(str::is_empty);
        match &parsed[index] {
            Some(Line {
                key,
                before,
                content: "",
                after,
            }) if key.starts_with("msgstr") && is_empty && filled < FORMS => {
                filled = if *key == "msgstr" { FORMS } else { filled + 1 };
                let is_first = matches!(*key, "msgstr" | "msgstr[0]");
                builder.skeleton(before);
                fill(
                    if is_first || many.is_empty() {
                        &one
                    } else {
                        &many
                    },
                    &mut builder,
                );
                builder.skeleton(after);
            }
            parsed => {
                // A message that cannot be read has no translation.
                if parsed.is_none() && line.trim_start().starts_with("msgid") {
                    (one, many) = (String::new(), String::new());
                }
                if let Some(Line { key, content, .. }) = parsed {
                    match *key {
                        "msgid" => {
                            is_many = false;
                            filled = 0;
                            (one, many) = (unescaped(content), String::new());
                        }
                        "msgid_plural" => {
                            is_many = true;
                            many = unescaped(content);
                        }
                        "" if is_many => many += &unescaped(content),
                        "" => one += &unescaped(content),
                        _ => {}
                    }
                }
                builder.skeleton(line);
            }
        }
        builder.skeleton(end);
    }
    builder.end()
}

/// The lines of a message, which are translated separately. What is between them is written with the first.
fn fill(message: &str, builder: &mut Builder) {
    let mut template = Template::new();
    let mut first = None;
    for (line, end) in lines(message) {
        let content = line.trim();
        let start = line.len() - line.trim_start().len();
        let passage = match has_letters(content) {
            true => Some(builder.passage_of(content, "", Writing::Po)),
            false => None,
        };
        if let (None, Some(Piece::Passage(index))) = (first, &passage) {
            first = Some(*index);
        }
        template.push(Piece::Raw(line[..start].to_owned()));
        template.push(passage.unwrap_or_else(|| Piece::Raw(content.to_owned())));
        template.push(Piece::Raw(line[start + content.len()..].to_owned() + end));
    }
    let Some(first) = first else {
        return;
    };
    let with_first = template.into_iter().map(|piece| match piece {
        Piece::Raw(text) => Piece::With(first, Writing::Po.written(&text)),
        piece => piece,
    });
    builder.skeleton_with(with_first.collect());
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, rest) = line.split_at(line.find('"')? + 1);
        let (content, after) = rest.split_at(rest.rfind('"')?);
        let key = before[..before.len() - 1].trim();
        let is_key = matches!(key, "" | "msgctxt" | "msgid" | "msgid_plural" | "msgstr")
            || key.starts_with("msgstr[") && key.ends_with(']');
        is_key.then_some(Self {
            key,
            before,
            content,
            after,
        })
    }
}

/// A string without its escapes, which are C's.
fn unescaped(content: &str) -> String {
    let mut text = String::with_capacity(content.len());
    let mut rest = content;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let number = |digits: &str, radix: u32, most: usize| {
            let length = digits
                .bytes()
                .take(most)
                .take_while(|&byte| char::from(byte).is_digit(radix))
                .count();
            let code = u32::from_str_radix(&digits[..length], radix).ok()?;
            Some((char::from_u32(code)?, length))
        };
        let (letter, length) = match rest.chars().next() {
            None => ('\\', 0),
            Some('n') => ('\n', 1),
            Some('t') => ('\t', 1),
            Some('r') => ('\r', 1),
            Some('a') => ('\x07', 1),
            Some('b') => ('\x08', 1),
            Some('f') => ('\x0c', 1),
            Some('v') => ('\x0b', 1),
            Some('x') => {
                number(&rest[1..], 16, 2).map_or(('x', 1), |(letter, length)| (letter, length + 1))
            }
            Some('0'..='7') => number(rest, 8, 3).unwrap_or(('0', 1)),
            Some(other) => (other, other.len_utf8()),
        };
        text.push(letter);
        rest = &rest[length..];
    }
    text.push_str(rest);
    text
}
