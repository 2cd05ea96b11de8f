//! The parts of a `tokenizer.json` that change a text, and how much they can lengthen it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::text::sentence_piece::CharacterMap;

/// A section of the file, with one part or a list of parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    pub name: &'static str,
    /// The key of the list in a part of type `Sequence`.
    list: &'static str,
    /// The types that the crate identifies by name.
    types: &'static [&'static str],
    /// A type that the crate identifies by its keys alone, and all of its keys. With others, it would be another type.
    by_keys: Option<(&'static str, &'static [&'static str])>,
}

pub(crate) const NORMALIZER: Section = Section {
    name: "normalizer",
    list: "normalizers",
    types: &[
        "Strip",
        "StripAccents",
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
        "Lowercase",
        "Nmt",
        "Precompiled",
        "Replace",
        "Prepend",
        "ByteLevel",
    ],
    by_keys: Some((
        "BertNormalizer",
        &[
            "clean_text",
            "handle_chinese_chars",
            "strip_accents",
            "lowercase",
        ],
    )),
};

pub(crate) const PRE_TOKENIZER: Section = Section {
    name: "pre-tokenizer",
    list: "pretokenizers",
    types: &[
        "BertPreTokenizer",
        "ByteLevel",
        "Metaspace",
        "Whitespace",
        "Split",
        "Punctuation",
        "WhitespaceSplit",
        "Digits",
        "UnicodeScripts",
        "FixedLength",
    ],
    by_keys: Some(("CharDelimiterSplit", &["delimiter"])),
};

pub(crate) const DECODER: Section = Section {
    name: "decoder",
    list: "decoders",
    types: &[
        "BPEDecoder",
        "ByteLevel",
        "WordPiece",
        "Metaspace",
        "CTC",
        "Replace",
        "Fuse",
        "Strip",
        "ByteFallback",
    ],
    by_keys: None,
};

impl Section {
    /// The parts in order, with lists flattened.
    ///
    /// # Errors
    /// When one has an unknown type. The crate would guess the type from the part's keys, and checks by type would not
    /// apply.
    pub fn parts(self, json: &Value) -> Result<Vec<&Value>, String> {
        let mut parts = Vec::new();
        if !json.is_null() {
            self.add_parts(json, &mut parts)?;
        }
        Ok(parts)
    }

    fn add_parts<'a>(self, json: &'a Value, parts: &mut Vec<&'a Value>) -> Result<(), String> {
        let name = json["type"].as_str().unwrap_or_default();
        if let ("Sequence", Some(list)) = (name, json[self.list].as_array()) {
            return list.iter().try_for_each(|part| self.add_parts(part, parts));
        }
        let is_by_keys = |(known, keys): (&str, &[&str])| {
            let of_part = json.as_object().into_iter().flat_map(Map::keys);
            name == known
                && of_part
                    .filter(|key| *key != "type")
                    .all(|key| keys.contains(&key.as_str()))
        };
        if !self.types.contains(&name) && !self.by_keys.is_some_and(is_by_keys) {
            return Err(format!(
                "its {} has a part of unknown type: {}",
                self.name,
                shortened(json)
            ));
        }
        parts.push(json);
        Ok(())
    }
}

/// The beginning of a part of a file.
pub(crate) fn shortened(json: &Value) -> String {
    const MOST: usize = 60;
    let text = json.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The largest factor by which parts can lengthen a text.
pub(crate) fn growth(parts: &[&Value]) -> f64 {
    parts.iter().copied().map(growth_of).product()
}

/// The factor of one part, from any section.
fn growth_of(part: &Value) -> f64 {
    let len = |key: &str| part[key].as_str().map_or(0, str::len) as f64;
    match part["type"].as_str().unwrap_or_default() {
        // A byte becomes a character of two bytes at most, and so does the space before each part of a text.
        "ByteLevel" if part["add_prefix_space"] != false => 4.0,
        "ByteLevel" => 2.0,
        // Each space becomes the replacement, and each part of a text begins with one.
        "Metaspace" => 2.0 * len("replacement").max(1.0),
        // Each stretch between added tokens begins with it.
        "Prepend" => 1.0 + len("prepend"),
        "Replace" => {
            // A regular expression matches at least one byte.
            let replaced = part["pattern"]["String"].as_str().map_or(1, str::len);
            (len("content") / replaced.max(1) as f64).max(1.0)
        }
        "Precompiled" => {
            let rules = part["precompiled_charsmap"].as_str().unwrap_or_default();
            let rules = base64::decode(rules).unwrap_or_default();
            let map = CharacterMap::from_bytes(&rules);
            map.map_or(1.0, |map| map.growth()).max(1.0)
        }
        // Unicode Standard Annex #15, "Detecting Normalization Forms": the largest factors in UTF-8.
        "NFC" | "NFD" => 3.0,
        "NFKC" | "NFKD" => 11.0,
        "Lowercase" => 1.5,
        // Spaces around a character of three bytes, then NFD, then lower case.
        "BertNormalizer" => 5.0 / 3.0 * 3.0 * 1.5,
        // A space beside each token, or between its characters.
        "BPEDecoder" | "CTC" | "WordPiece" => 2.0,
        _ => 1.0,
    }
}

/// A measure of the memory for a part's compiled regular expression: the bytes of its pattern times its repetitions.
pub(crate) fn pattern_cost(part: &Value) -> usize {
    part["pattern"]["Regex"].as_str().map_or(0, |pattern| {
        // The fixed cost of a pattern, however short.
        const OF_EACH: usize = 64;
        OF_EACH.saturating_add(pattern.len().saturating_mul(repetitions(pattern)))
    })
}

/// The product of the repetition counts in a regular expression, as in `\d{1,3}`.
fn repetitions(pattern: &str) -> usize {
    let mut product = 1_usize;
    let mut rest = pattern;
    while let Some(at) = rest.find(['\\', '{']) {
        let (found, behind) = rest[at..].split_at(1);
        rest = behind;
        if found == "\\" {
            // An escaped character; a class or a code has a name in braces.
            let mut characters = rest.chars();
            let escaped = characters.next();
            rest = characters.as_str();
            if matches!(escaped, Some('p' | 'P' | 'x' | 'u' | 'U'))
                && let Some((name, behind)) = rest.split_once('}')
                && name.starts_with('{')
            {
                rest = behind;
            }
            continue;
        }
        let numbers = rest.split('}').next().unwrap_or_default().split(',');
        let most = numbers
            .map(|number| number.trim().parse::<usize>().unwrap_or(1))
            .max();
        product = product.saturating_mul(most.unwrap_or(1).max(1));
    }
    product
}

/// JSON without duplicate keys: which of two counts would depend on the reader.
#[derive(Debug, Default)]
pub(crate) struct UniqueKeys(pub Value);

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueKeysVisitor).map(Self)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(UniqueKeys(value)) = access.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, UniqueKeys(value))) = access.next_entry::<String, _>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key `{key}` is duplicated")));
            }
            map.insert(key, value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_are_those_of_lists_too() {
        let lower = json!({"type": "Lowercase"});
        let nfc = json!({"type": "NFC"});
        let sequence = |parts: &[&Value]| json!({"type": "Sequence", "normalizers": parts});
        let inner = sequence(&[&nfc, &lower]);
        let both = sequence(&[&lower, &inner]);
        assert_eq!(NORMALIZER.parts(&both).unwrap(), [&lower, &nfc, &lower]);
        assert_eq!(growth(&NORMALIZER.parts(&both).unwrap()), 1.5 * 3.0 * 1.5);
        assert!(NORMALIZER.parts(&Value::Null).unwrap().is_empty());
    }

    /// Parts that the crate would read as others, or as ones that are checked.
    #[test]
    fn parts_without_a_known_type_are_refused() {
        let untyped = json!({"pattern": {"String": ""}, "content": "x"});
        let as_bert = json!({"type": "BertNormalizer", "prepend": ""});
        for part in [
            untyped.clone(),
            as_bert,
            json!({"type": "Bert"}),
            json!({"type": 3}),
            json!("NFC"),
            json!([{"type": "NFC"}]),
            json!({"type": "Sequence"}),
            json!({"type": "Sequence", "normalizers": [untyped]}),
            json!({"type": "Sequence", "pretokenizers": []}),
        ] {
            let error = NORMALIZER.parts(&part).unwrap_err();
            assert!(
                error.starts_with("its normalizer has a part of unknown type: "),
                "{error}"
            );
        }
        let bert = json!({
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
            "lowercase": true
        });
        assert_eq!(NORMALIZER.parts(&bert).unwrap(), [&bert]);
    }

    #[test]
    fn repeated_classes_cost_as_often_as_they_are_repeated() {
        for (pattern, expected) in [
            (r"\p{L}+|\d", 1),
            (r"\p{N}{1,3}", 3),
            (r"(a{10}){2, 20}", 200),
            (r"\x{3000}{4}\{7}", 4),
            (r"a{99999999999999999999}", 1),
            (r"\", 1),
            (r"{", 1),
            (r"\p", 1),
            ("é{2}", 2),
        ] {
            assert_eq!(repetitions(pattern), expected, "{pattern}");
        }
        let huge = format!("a{{{}}}{{{}}}", usize::MAX, usize::MAX);
        assert_eq!(repetitions(&huge), usize::MAX);
    }

    #[test]
    fn no_key_is_there_twice() {
        let read = |text| serde_json::from_str::<UniqueKeys>(text);
        let text = r#"{"a": [null, true, -1, 2, 0.5, "x"], "b": {"a": {}}}"#;
        let expected: Value = serde_json::from_str(text).unwrap();
        assert_eq!(read(text).unwrap().0, expected);
        let error = read(r#"{"a": [{"b": 1, "b": 2}]}"#).unwrap_err();
        assert!(
            error.to_string().starts_with("the key `b` is duplicated"),
            "{error}"
        );
    }
}
