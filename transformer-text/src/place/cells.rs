//! The cells of a translation.

use std::ops::Range;

use super::Cell;
use crate::scripts::has_no_spaces;

/// Whether a place in a text is not a part of a longer word.
pub(super) fn is_whole(text: &str, place: &Range<usize>) -> bool {
    let edge = |one: Option<char>, other: Option<char>| {
        let is_word = |letter: Option<char>| {
            letter.is_some_and(|letter| letter.is_alphanumeric() && !has_no_spaces(letter))
        };
        !(is_word(one) && is_word(other))
    };
    let inside = &text[place.clone()];
    edge(
        text[..place.start].chars().next_back(),
        inside.chars().next(),
    ) && edge(inside.chars().next_back(), text[place.end..].chars().next())
}

/// The cells of a translation. What is found literally is divided from the rest.
pub(super) fn cells(text: &str, literal: &[Option<Range<usize>>]) -> Vec<Cell> {
    let mut edges: Vec<usize> = literal
        .iter()
        .flatten()
        .flat_map(|range| [range.start, range.end])
        .collect();
    edges.sort_unstable();
    let mut cells: Vec<Cell> = Vec::new();
    let mut before: Option<char> = None;
    for (at, letter) in text.char_indices() {
        let end = at + letter.len_utf8();
        let joins = before.is_some_and(|before| joins(before, letter));
        if letter.is_whitespace() {
            before = None;
            continue;
        }
        match cells.last_mut() {
            Some(cell) if joins && edges.binary_search(&at).is_err() => {
                cell.range.end = end;
                cell.is_word |= letter.is_alphanumeric();
            }
            _ => cells.push(Cell {
                range: at..end,
                source: None,
                is_word: letter.is_alphanumeric(),
                fixed: None,
                is_covered: false,
            }),
        }
        before = Some(letter);
    }
    cells
}

/// Whether two adjacent characters are of one word.
fn joins(one: char, other: char) -> bool {
    let is_word = |letter: char| {
        !has_no_spaces(letter) && (letter.is_alphanumeric() || "'’-_".contains(letter))
    };
    is_word(one) && is_word(other) || is_mark(other)
}

/// Whether a character belongs to the one before it: an accent, a vowel sign, a joiner or a variation of an emoji.
fn is_mark(letter: char) -> bool {
    matches!(letter,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5bd}' | '\u{610}'..='\u{61a}'
        | '\u{64b}'..='\u{65f}' | '\u{900}'..='\u{903}' | '\u{93a}'..='\u{94f}' | '\u{e31}' | '\u{e34}'..='\u{e3a}'
        | '\u{e47}'..='\u{e4e}' | '\u{200d}' | '\u{20d0}'..='\u{20ff}' | '\u{3099}' | '\u{309a}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}')
}
