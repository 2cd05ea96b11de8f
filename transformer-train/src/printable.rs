//! Text that can be shown.

use std::borrow::Cow;

/// A text for a line of a terminal or a label of a picture: with U+FFFD in place of each character that it must not
/// have there. A terminal obeys control characters such as ESC, line feeds and tabs among them; XML forbids most of
/// them, and U+FFFE and U+FFFF.
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
