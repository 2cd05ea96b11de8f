//! Text that is safe to display.

use std::borrow::Cow;

/// Replaces each character that is unsafe in a line of a terminal or a label of a picture by U+FFFD. Terminals
/// interpret control characters such as ESC, line feed and tab; XML forbids most of them, and U+FFFE and U+FFFF.
///
/// ```
/// use transformer_train::progress::printable;
///
/// assert_eq!(printable("où\u{1b}[2J"), "où\u{fffd}[2J");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    match text.contains(is_unprintable) {
        true => text.replace(is_unprintable, "\u{fffd}").into(),
        false => text.into(),
    }
}

fn is_unprintable(character: char) -> bool {
    character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}')
}
