//! The compiled rules of a normalizer: sequences of characters and their replacements.

/// Rules that replace texts, found with a double-array trie.
///
/// The bytes of a file are the length of the array, the array, and the replacements, each terminated by NUL. A unit of
/// the array is a node of the trie: its byte, whether a text ends there, and where its children are. The unit after a
/// text's last node holds the position of its replacement.
#[derive(Debug)]
pub(in crate::text) struct CharacterMap {
    units: Vec<Unit>,
    replacements: Vec<u8>,
}

/// Maximum bytes of a replacement; Unicode's longest compatibility decomposition has 33. Without a limit, a rule for
/// one letter could turn a line into gigabytes.
const MOST_REPLACEMENT: usize = 1000;

#[derive(Debug, Clone, Copy)]
struct Unit(u32);

impl Unit {
    /// Whether a text ends here.
    fn ends(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// The position of a replacement, if the unit holds one.
    fn replacement(self) -> usize {
        (self.0 & 0x7fff_ffff) as usize
    }

    /// The byte that leads to the node; above 255 if the unit holds a position.
    fn label(self) -> u32 {
        self.0 & 0x8000_00ff
    }

    /// The XOR of the node's position and its children's position.
    fn offset(self) -> usize {
        let shift = if self.0 & 0x200 == 0 { 0 } else { 8 };
        ((self.0 >> 10) << shift) as usize
    }
}

impl CharacterMap {
    /// Reads the rules.
    ///
    /// # Errors
    /// When a length is wrong, a replacement is longer than 1000 bytes, or a node points outside the array or the
    /// replacements.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, &'static str> {
        const LENGTH: &str = "the length of its normalizer's rules is wrong";
        let (length, rest) = bytes.split_first_chunk().ok_or(LENGTH)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (units, replacements) = rest.split_at_checked(length).ok_or(LENGTH)?;
        if length == 0 || !length.is_multiple_of(1024) || replacements.last() != Some(&0) {
            return Err(LENGTH);
        }
        let mut texts = replacements.split(|&byte| byte == 0);
        if texts.any(|text| text.len() > MOST_REPLACEMENT) {
            return Err("a rule of its normalizer has too long a replacement");
        }
        let units = units.chunks_exact(4);
        let unit =
            |bytes: &[u8]| Unit(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let map = Self {
            units: units.map(unit).collect(),
            replacements: replacements.to_vec(),
        };
        match map.points_inside() {
            true => Ok(map),
            false => Err("a rule of its normalizer points outside the file"),
        }
    }

    /// Whether every node's children are in the array, and every replacement in the file.
    fn points_inside(&self) -> bool {
        let has_children = |position: usize, unit: Unit| {
            let block = (position ^ unit.offset()) | 0xff;
            block < self.units.len()
        };
        let root = self.units[0];
        let root_is_valid =
            root.label() == 0 && !root.ends() && root.offset() != 0 && has_children(0, root);
        root_is_valid
            && self.units.iter().enumerate().skip(1).all(|(at, &unit)| {
                if unit.label() > 0xff {
                    return unit.replacement() < self.replacements.len();
                }
                has_children(at, unit)
                    && (!unit.ends() || self.units[at ^ unit.offset()].label() > 0xff)
            })
    }

    /// The longest rule that matches at the beginning of `text`: its length and its replacement.
    pub fn longest(&self, text: &[u8]) -> Option<(usize, &[u8])> {
        self.prefixes(text).last()
    }

    /// The rules that match at the beginning of `text`, shortest first: lengths and replacements.
    ///
    /// The units of a hostile map may form a cycle, so that a rule would never end.
    fn prefixes(&self, text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
        const MOST: usize = 1000;
        let mut node = self.units[0].offset();
        let ends = text.iter().take(MOST).map_while(move |&byte| {
            node ^= usize::from(byte);
            let unit = self.units[node];
            if unit.label() != u32::from(byte) {
                return None;
            }
            node ^= unit.offset();
            Some(unit.ends().then(|| self.replacement(self.units[node])))
        });
        let lengths = ends.zip(1..);
        lengths.filter_map(|(replacement, length)| Some((length, replacement?)))
    }

    /// An upper bound for the bytes that the crate `tokenizers` makes of a text: it replaces a character, or one with
    /// its combining marks, by the replacement of the shortest rule that matches at its beginning.
    pub fn most_replaced(&self, text: &str) -> usize {
        let characters = text.char_indices();
        let lengths = characters.map(|(at, character)| {
            let replacement = self.prefixes(&text.as_bytes()[at..]).next();
            let length = replacement.map_or(0, |(_, replacement)| replacement.len());
            length.max(character.len_utf8())
        });
        lengths.sum()
    }

    /// The largest factor by which a rule lengthens its text; 1 if none does.
    pub fn growth(&self) -> f64 {
        let mut most = 1.0_f64;
        let mut is_seen = vec![false; self.units.len()];
        // The positions of the children of all nodes at one depth, except those seen before.
        let mut level = vec![self.units[0].offset()];
        for bytes in 1.. {
            let mut next = Vec::new();
            for children in level {
                for byte in 0..=0xff {
                    let unit = self.units[children ^ byte];
                    if unit.label() != byte as u32 || is_seen[children ^ byte] {
                        continue;
                    }
                    is_seen[children ^ byte] = true;
                    let children = children ^ byte ^ unit.offset();
                    if unit.ends() {
                        let text = self.replacement(self.units[children]);
                        most = most.max(text.len() as f64 / f64::from(bytes));
                    }
                    next.push(children);
                }
            }
            if next.is_empty() {
                break;
            }
            level = next;
        }
        most
    }

    /// The replacement at the position in a unit.
    fn replacement(&self, unit: Unit) -> &[u8] {
        let text = &self.replacements[unit.replacement()..];
        let end = text.iter().position(|&byte| byte == 0);
        &text[..end.unwrap_or(text.len())]
    }

    /// Whether the replacements are UTF-8, and each begins at a character boundary.
    pub fn is_text(&self) -> bool {
        let Ok(text) = std::str::from_utf8(&self.replacements) else {
            return false;
        };
        let positions = self.units.iter().filter(|unit| unit.label() > 0xff);
        positions
            .map(|unit| unit.replacement())
            .all(|position| text.is_char_boundary(position))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The bytes of a map with rules for one byte each.
    pub fn map_of_bytes(rules: &[(u8, &str)]) -> Vec<u8> {
        // The root's child by a byte is at 256 ^ byte, and the end of its text at 512 ^ byte.
        let mut units = vec![0_u32; 1024];
        units[0] = 256 << 10;
        // Unused units have a byte that does not lead to them.
        for (at, unit) in units.iter_mut().enumerate().skip(1) {
            *unit = (256 << 10) | (!at & 0xff) as u32;
        }
        let mut replacements = Vec::new();
        for &(byte, replacement) in rules {
            let node = 256 ^ usize::from(byte);
            let end = 512 ^ usize::from(byte);
            units[node] = (((node ^ end) as u32) << 10) | 0x100 | u32::from(byte);
            units[end] = 0x8000_0000 | replacements.len() as u32;
            replacements.extend_from_slice(replacement.as_bytes());
            replacements.push(0);
        }
        let mut bytes = (4 * units.len() as u32).to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(replacements);
        bytes
    }

    #[test]
    fn rules_are_found_at_the_beginning() {
        let map = CharacterMap::from_bytes(&map_of_bytes(&[(b'a', "xy"), (b'b', "")])).unwrap();
        assert_eq!(map.longest(b"ab"), Some((1, &b"xy"[..])));
        assert_eq!(map.longest(b"ba"), Some((1, &b""[..])));
        for other in [&b"cab"[..], b"", b"\0", "é".as_bytes()] {
            assert_eq!(map.longest(other), None);
        }
        assert!(map.is_text());
        assert_eq!(map.growth(), 2.0);
    }

    #[test]
    fn lengths_that_are_wrong_are_refused() {
        let bytes = map_of_bytes(&[(b'a', "x")]);
        for cut in 0..bytes.len() {
            CharacterMap::from_bytes(&bytes[..cut]).unwrap_err();
        }
        for length in [0, 4, 4092, 8192, u32::MAX] {
            let mut bytes = bytes.clone();
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            let error = CharacterMap::from_bytes(&bytes).unwrap_err();
            assert_eq!(error, "the length of its normalizer's rules is wrong");
        }
    }

    #[test]
    fn replacements_that_fill_the_memory_are_refused() {
        let long = "x".repeat(MOST_REPLACEMENT);
        let map = CharacterMap::from_bytes(&map_of_bytes(&[(b'a', &long)])).unwrap();
        assert_eq!(map.longest(b"a"), Some((1, long.as_bytes())));
        let longer = long + "x";
        let error = CharacterMap::from_bytes(&map_of_bytes(&[(b'a', &longer)])).unwrap_err();
        assert_eq!(error, "a rule of its normalizer has too long a replacement");
    }

    #[test]
    fn a_damaged_map_is_refused_or_read_without_a_panic() {
        let bytes = map_of_bytes(&[(b'a', "x"), (b'b', "é")]);
        let mut refused = 0;
        for at in 4..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                match CharacterMap::from_bytes(&bytes) {
                    Ok(map) => {
                        for text in ["ab", "ba", "cé\u{1}"] {
                            map.longest(text.as_bytes());
                        }
                        map.is_text();
                    }
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 1000, "{refused}");
    }

    #[test]
    fn replacements_that_are_no_text_are_noticed() {
        let mut bytes = map_of_bytes(&[(b'a', "é")]);
        assert!(CharacterMap::from_bytes(&bytes).unwrap().is_text());
        // Into the middle of the character.
        let end = 4 + 4 * (512 ^ usize::from(b'a'));
        bytes[end] = 1;
        assert!(!CharacterMap::from_bytes(&bytes).unwrap().is_text());
    }
}
