//! Normalizes text to the spelling of a model's pieces.

use crate::text::sentence_piece::character_map::CharacterMap;
use crate::text::sentence_piece::most_normalized;
use crate::text::sentence_piece::trie::Trie;

/// The character for a space in pieces, U+2581.
pub(super) const SPACE: &str = "\u{2581}";

/// The settings of a normalizer, in the model's file.
#[derive(Debug, Clone)]
pub(super) struct NormalizerSpec<'a> {
    /// The compiled rules; empty for none.
    pub rules: &'a [u8],
    /// A space is added before the text, or after it.
    pub add_dummy_prefix: bool,
    /// Leading and trailing spaces are removed, and several in a row become one.
    pub remove_extra_whitespaces: bool,
    /// Spaces are spelled as `▁`.
    pub escape_whitespaces: bool,
}

impl Default for NormalizerSpec<'_> {
    fn default() -> Self {
        Self {
            rules: &[],
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        }
    }
}

/// A normalizer, which works on bytes: its rules may split characters.
#[derive(Debug)]
pub(super) struct Normalizer {
    rules: Option<CharacterMap>,
    removes_spaces: bool,
    /// How a space is spelled.
    space: &'static str,
    added_space: AddedSpace,
}

/// Where a space is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddedSpace {
    Before,
    Behind,
    Nowhere,
}

impl Normalizer {
    /// A normalizer; with `space_is_suffix`, the space is added after the text.
    ///
    /// # Errors
    /// When the rules are damaged.
    pub fn new(spec: &NormalizerSpec<'_>, space_is_suffix: bool) -> Result<Self, &'static str> {
        let rules = match spec.rules {
            [] => None,
            rules => Some(CharacterMap::from_bytes(rules)?),
        };
        Ok(Self {
            rules,
            removes_spaces: spec.remove_extra_whitespaces,
            space: if spec.escape_whitespaces { SPACE } else { " " },
            added_space: match (spec.add_dummy_prefix, space_is_suffix) {
                (false, _) => AddedSpace::Nowhere,
                (true, false) => AddedSpace::Before,
                (true, true) => AddedSpace::Behind,
            },
        })
    }

    /// Normalizes a text, except for the texts in `kept`. Stops when the result is longer than
    /// [`most_normalized`](super::most_normalized).
    pub fn normalize(&self, text: &[u8], kept: &Trie) -> Vec<u8> {
        let mut rest = text;
        if self.removes_spaces {
            while let Some((b" ", length)) = self.first(rest, kept) {
                rest = &rest[length..];
            }
        }
        if rest.is_empty() {
            return Vec::new();
        }
        let space = self.space.as_bytes();
        let mut normalized = Vec::with_capacity(rest.len() + rest.len() / 2);
        if self.added_space == AddedSpace::Before {
            normalized.extend_from_slice(space);
        }
        let mut after_space = self.removes_spaces;
        let most = most_normalized(text.len());
        while normalized.len() <= most
            && let Some((mut part, length)) = self.first(rest, kept)
        {
            rest = &rest[length..];
            while after_space && let Some((b' ', others)) = part.split_first() {
                part = others;
            }
            for &byte in part {
                match byte {
                    b' ' => normalized.extend_from_slice(space),
                    byte => normalized.push(byte),
                }
            }
            if let Some(&last) = part.last() {
                after_space = self.removes_spaces && last == b' ';
            }
        }
        if normalized.len() > most {
            return normalized;
        }
        while self.removes_spaces && normalized.ends_with(space) {
            normalized.truncate(normalized.len() - space.len());
        }
        if self.added_space == AddedSpace::Behind {
            normalized.extend_from_slice(space);
        }
        normalized
    }

    /// The replacement for the beginning of a text, and that beginning's length; `None` at the end of the text.
    fn first<'a>(&'a self, text: &'a [u8], kept: &Trie) -> Option<(&'a [u8], usize)> {
        if text.is_empty() {
            return None;
        }
        if let Some(length) = kept.longest(text) {
            return Some((&text[..length], length));
        }
        let rule = self.rules.as_ref().and_then(|rules| rules.longest(text));
        if let Some((length, replacement)) = rule {
            return Some((replacement, length));
        }
        let length = character(text);
        match std::str::from_utf8(&text[..length]) {
            Ok(_) => Some((&text[..length], length)),
            Err(_) => Some(("\u{fffd}".as_bytes(), 1)),
        }
    }
}

/// The length of a text's first character, by its first byte; at most the length of the text.
pub(super) fn character(text: &[u8]) -> usize {
    let length = match text.first() {
        None => 0,
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        Some(_) => 1,
    };
    length.min(text.len())
}

#[cfg(test)]
mod tests {
    use super::super::character_map::tests::map_of_bytes;
    use super::*;

    fn normalized(spec: &NormalizerSpec<'_>, text: &str) -> String {
        let normalizer = Normalizer::new(spec, false).unwrap();
        let normalized = normalizer.normalize(text.as_bytes(), &Trie::new([]));
        String::from_utf8(normalized).unwrap()
    }

    #[test]
    fn spaces_are_spelled_and_extra_ones_removed() {
        let spec = NormalizerSpec::default();
        assert_eq!(normalized(&spec, "  two   words "), "▁two▁words");
        assert_eq!(normalized(&spec, "é 漢"), "▁é▁漢");
        // An existing `▁` is removed at the end only.
        assert_eq!(normalized(&spec, "▁▁a ▁b▁ ▁"), "▁▁▁a▁▁b");
        for empty in ["", " ", "   "] {
            assert_eq!(normalized(&spec, empty), "");
        }
    }

    #[test]
    fn each_rule_about_spaces_is_a_choice() {
        let keeping = NormalizerSpec {
            remove_extra_whitespaces: false,
            ..NormalizerSpec::default()
        };
        assert_eq!(normalized(&keeping, " a  b "), "▁▁a▁▁b▁");
        assert_eq!(normalized(&keeping, "  "), "▁▁▁");
        let bare = NormalizerSpec {
            add_dummy_prefix: false,
            ..keeping.clone()
        };
        assert_eq!(normalized(&bare, " a  b "), "▁a▁▁b▁");
        let plain = NormalizerSpec {
            escape_whitespaces: false,
            ..NormalizerSpec::default()
        };
        assert_eq!(normalized(&plain, "  a  b "), " a b");
        let behind = Normalizer::new(&NormalizerSpec::default(), true).unwrap();
        assert_eq!(
            behind.normalize(b" a  b ", &Trie::new([])),
            "a▁b▁".as_bytes()
        );
    }

    #[test]
    fn rules_replace_text_that_is_not_kept() {
        // A tab is a space, `q` is removed, `x` becomes two words.
        let rules = map_of_bytes(&[(b'\t', " "), (b'q', ""), (b'x', " 1 2 ")]);
        let spec = NormalizerSpec {
            rules: &rules,
            ..NormalizerSpec::default()
        };
        assert_eq!(normalized(&spec, "\t\ta\t qb"), "▁a▁b");
        assert_eq!(normalized(&spec, "axxb"), "▁a▁1▁2▁1▁2▁b");
        // A removed character does not keep the spaces after it.
        assert_eq!(normalized(&spec, "q  a"), "▁a");
        assert_eq!(normalized(&spec, "q"), "");
        let normalizer = Normalizer::new(&spec, false).unwrap();
        let kept = Trie::new([("qq", 0), ("x y", 1)]);
        let normalized = normalizer.normalize("qqqx yx".as_bytes(), &kept);
        assert_eq!(normalized, "▁qqx▁y▁1▁2".as_bytes());
    }

    #[test]
    fn bytes_that_are_no_character_are_replaced_one_by_one() {
        let normalizer = Normalizer::new(&NormalizerSpec::default(), false).unwrap();
        let normalized = normalizer.normalize(b"a\xff\xe2\x96b\xe2", &Trie::new([]));
        let text = String::from_utf8(normalized).unwrap();
        assert_eq!(text, "▁a\u{fffd}\u{fffd}\u{fffd}b\u{fffd}");
    }
}
