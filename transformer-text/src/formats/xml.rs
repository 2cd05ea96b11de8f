//! XML.

use std::ops::Range;

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};

use super::spaced_text;
use crate::builder::Builder;
use crate::document::{Document, raw};
use crate::writing::Writing;

/// Reads XML, a document or a part of one. From where it is not well-formed, it is kept.
pub(super) fn read(source: &str) -> Document {
    let mut builder = Builder::new(Writing::Xml);
    let tokens = tokens(source);
    let is_beside_text = beside_text(&tokens, source);
    // Whether each open element is a part of a line of text.
    let mut open: Vec<bool> = Vec::new();
    // Elements that are open since one that is kept, itself included, and where that begins.
    let mut kept: Option<(usize, usize)> = None;
    let mut at = 0;
    for (token, is_inline) in tokens.iter().zip(is_beside_text) {
        at = token.range.end;
        let in_document = &source[token.range.clone()];
        if let Some((depth, start)) = &mut kept {
            match token.kind {
                Kind::Start { .. } => *depth += 1,
                Kind::End(_) => *depth -= 1,
                _ => {}
            }
            if *depth == 0 {
                let element = &source[*start..token.range.end];
                match open.pop() {
                    Some(true) => builder.fixed(text_of(element).trim(), raw(element)),
                    _ => builder.skeleton(element),
                }
                kept = None;
            }
            continue;
        }
        match &token.kind {
            Kind::Text => spaced_text(&mut builder, in_document, in_document),
            Kind::Reference(Some(letter)) => builder.text(letter, in_document),
            Kind::Reference(None) | Kind::Data => builder.fixed(in_document, raw(in_document)),
            Kind::Start { is_kept: true, .. } => {
                open.push(is_inline);
                kept = Some((1, token.range.start));
            }
            Kind::Start { name, .. } => {
                open.push(is_inline);
                match is_inline {
                    true => builder.open(name, raw(in_document)),
                    false => builder.skeleton(in_document),
                }
            }
            Kind::End(name) => match open.pop() {
                Some(true) => builder.close(name, raw(in_document)),
                _ => builder.skeleton(in_document),
            },
            Kind::Empty if is_inline => builder.point(raw(in_document)),
            Kind::Empty | Kind::Heading => builder.skeleton(in_document),
            Kind::Comment => builder.point(raw(in_document)),
        }
    }
    let start = kept.map_or(at, |(_, start)| start);
    builder.skeleton(&source[start..]);
    builder.end()
}

/// A part of a document.
struct Token {
    range: Range<usize>,
    kind: Kind,
}

enum Kind {
    Text,
    /// What stands for a character, if it is known.
    Reference(Option<String>),
    Start {
        name: String,
        is_kept: bool,
    },
    End(String),
    Empty,
    /// The declaration, or the type of the document.
    Heading,
    /// A comment, or an instruction.
    Comment,
    Data,
}

/// The parts of a document, up to where it is not well-formed.
fn tokens(source: &str) -> Vec<Token> {
    let mut reader = Reader::from_str(source);
    let config = reader.config_mut();
    // A part of a document may end, or begin, within elements.
    config.allow_unmatched_ends = true;
    config.check_end_names = false;
    config.allow_dangling_amp = true;
    let mut tokens: Vec<Token> = Vec::new();
    let mut start = 0;
    while let Ok(event) = reader.read_event() {
        let kind = match event {
            Event::Eof => break,
            Event::Text(_) => Kind::Text,
            Event::GeneralRef(reference) => Kind::Reference(match reference.resolve_char_ref() {
                Ok(Some(letter)) => Some(letter.to_string()),
                _ => resolve_predefined_entity(&reference).map(str::to_owned),
            }),
            Event::Start(tag) => Kind::Start {
                name: tag.name().as_ref().to_owned(),
                is_kept: is_kept(&tag),
            },
            Event::End(tag) => Kind::End(tag.name().as_ref().to_owned()),
            Event::Empty(_) => Kind::Empty,
            Event::Decl(_) | Event::DocType(_) => Kind::Heading,
            Event::Comment(_) | Event::PI(_) => Kind::Comment,
            Event::CData(_) => Kind::Data,
        };
        let end = usize::try_from(reader.buffer_position()).unwrap_or(source.len());
        tokens.push(Token {
            range: start..end,
            kind,
        });
        start = end;
    }
    tokens
}

/// Whether an element says that it is not to be translated: as HTML and ITS do, or as resources of Android do.
fn is_kept(tag: &BytesStart<'_>) -> bool {
    let mut attributes = tag.attributes();
    attributes.with_checks(false).flatten().any(|attribute| {
        let name = attribute.key.local_name();
        let value = (name.as_ref(), attribute.value.as_ref());
        value == ("translate", "no") || value == ("translatable", "false")
    })
}

/// Per part, whether there is text beside it, in the same element.
fn beside_text(tokens: &[Token], source: &str) -> Vec<bool> {
    // Per open element, whether it has text; the first is the document.
    let mut has_text = vec![false];
    let mut elements = vec![0];
    let mut of_tokens = Vec::with_capacity(tokens.len());
    for token in tokens {
        if let Kind::End(_) = token.kind
            && elements.len() > 1
        {
            elements.pop();
        }
        let element = elements.last().copied().unwrap_or(0);
        of_tokens.push(element);
        match token.kind {
            Kind::Text => has_text[element] |= !source[token.range.clone()].trim().is_empty(),
            Kind::Reference(_) => has_text[element] = true,
            Kind::Start { .. } => {
                elements.push(has_text.len());
                has_text.push(false);
            }
            _ => {}
        }
    }
    of_tokens
        .into_iter()
        .map(|element| has_text[element])
        .collect()
}

/// The text in an element.
fn text_of(element: &str) -> String {
    let tokens = tokens(element).into_iter();
    let texts = tokens.filter(|token| matches!(token.kind, Kind::Text));
    texts.map(|token| &element[token.range]).collect()
}
