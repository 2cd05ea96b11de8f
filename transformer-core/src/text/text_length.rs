//! The length that a text has once the normalizer and the pre-tokenizer of a `tokenizer.json` have changed it.

use std::collections::HashMap;

use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

use crate::text::sentence_piece::{CharacterMap, most_normalized};
use crate::text::tokenizer_json::parts::{PRE_TOKENIZER, growth};

/// The parts of a tokenizer that make a text longer.
#[derive(Debug)]
pub(super) struct TextLength {
    normalizers: Vec<Part>,
    /// The factor by which the pre-tokenizer can multiply the length of a text.
    pre_tokenizer: f64,
}

/// A part of a normalizer.
#[derive(Debug)]
struct Part {
    inner: NormalizerWrapper,
    kind: Kind,
    /// The factor by which it can multiply the length of a text.
    growth: f64,
}

/// What a part does to the length of a text.
#[derive(Debug)]
enum Kind {
    /// Each text that has a rule is replaced.
    Rules(CharacterMap),
    /// Each occurrence of this text becomes one of so many bytes.
    Replace(String, usize),
    /// Something is put before each stretch of text, or what is replaced is found by a regular expression.
    Factor,
    /// Each character is changed, whatever stands beside it; or characters become one that is no longer than they are.
    Characters,
}

impl Part {
    fn new(inner: NormalizerWrapper) -> Self {
        let json = serde_json::to_value(&inner).unwrap_or_default();
        Self {
            growth: growth(&[&json]),
            kind: Kind::of(&json),
            inner,
        }
    }

    /// The most bytes that the part makes of a text.
    fn most(&self, text: &str) -> usize {
        match &self.kind {
            Kind::Rules(rules) => rules.most_replaced(text),
            Kind::Replace(from, to) => {
                let longer = to.saturating_sub(from.len());
                text.len() + text.matches(from).count() * longer
            }
            Kind::Factor => (text.len() as f64 * self.growth).ceil() as usize,
            Kind::Characters => {
                let mut lengths = HashMap::new();
                let length = |character: char| {
                    let mut alone = NormalizedString::from(character.to_string());
                    // What cannot be changed keeps its length, and fails when the text is encoded.
                    let _ = self.inner.normalize(&mut alone);
                    alone.get().len()
                };
                let each = text.chars();
                each.map(|one| *lengths.entry(one).or_insert_with(|| length(one)))
                    .sum()
            }
        }
    }
}

impl Kind {
    fn of(part: &Value) -> Self {
        match part["type"].as_str().unwrap_or_default() {
            "Precompiled" => {
                let rules = part["precompiled_charsmap"].as_str().unwrap_or_default();
                let rules = base64::decode(rules).unwrap_or_default();
                match CharacterMap::from_bytes(&rules) {
                    Ok(rules) => Self::Rules(rules),
                    // Refused when a file has it.
                    Err(_) => Self::Factor,
                }
            }
            "Replace" => match part["pattern"]["String"].as_str() {
                Some(from) => {
                    let to = part["content"].as_str().unwrap_or_default();
                    Self::Replace(from.to_owned(), to.len())
                }
                None => Self::Factor,
            },
            "Prepend" => Self::Factor,
            _ => Self::Characters,
        }
    }
}

impl TextLength {
    /// The parts of a tokenizer.
    pub fn of(tokenizer: &tokenizers::Tokenizer) -> Self {
        let mut normalizers = Vec::new();
        if let Some(normalizer) = tokenizer.get_normalizer() {
            add_parts(normalizer, &mut normalizers);
        }
        let pre_tokenizer = serde_json::to_value(tokenizer.get_pre_tokenizer()).unwrap_or_default();
        let pre_tokenizer = PRE_TOKENIZER.parts(&pre_tokenizer);
        Self {
            normalizers,
            pre_tokenizer: pre_tokenizer.map_or(1.0, |parts| growth(&parts)),
        }
    }

    /// Checks that a text does not become too long before it is cut: by the largest factors, or else by the bytes that each
    /// part makes of it.
    ///
    /// # Errors
    /// When it does, in words.
    pub fn check(&self, text: &str) -> Result<(), String> {
        let most = most_normalized(text.len());
        let is_short = |length: usize, from: usize| {
            let rest = self.normalizers[from..].iter().map(|part| part.growth);
            length as f64 * rest.product::<f64>() * self.pre_tokenizer <= most as f64
        };
        if is_short(text.len(), 0) {
            return Ok(());
        }
        let too_long = |make: &str| {
            let bytes = text.len();
            format!("the normalizer's rules {make} a text of {bytes} bytes one of more than {most}")
        };
        let mut normalized = NormalizedString::from(text);
        // What is put before each stretch of a text is not put before the stretches of the whole text.
        let mut factor = 1.0;
        for (part, behind) in self.normalizers.iter().zip(1..) {
            let length = part.most(normalized.get()) as f64 * factor;
            if length > most as f64 {
                let is_exact = factor == 1.0 && !matches!(part.kind, Kind::Factor);
                return Err(too_long(if is_exact { "make" } else { "could make" }));
            }
            if is_short(length as usize, behind) {
                return Ok(());
            }
            match part.kind {
                Kind::Factor => factor *= part.growth,
                _ => part
                    .inner
                    .normalize(&mut normalized)
                    .map_err(|error| error.to_string())?,
            }
        }
        let length = normalized.get().len() as f64 * factor;
        match length * self.pre_tokenizer > most_normalized(length as usize) as f64 {
            true => Err(format!(
                "the pre-tokenizer could make a text of {length} bytes one of more than {}",
                most_normalized(length as usize)
            )),
            false => Ok(()),
        }
    }
}

fn add_parts(normalizer: &NormalizerWrapper, parts: &mut Vec<Part>) {
    match normalizer {
        NormalizerWrapper::Sequence(list) => {
            let list: &[NormalizerWrapper] = list.as_ref();
            list.iter().for_each(|part| add_parts(part, parts));
        }
        part => parts.push(Part::new(part.clone())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::text::sentence_piece::map_of_bytes;

    fn tokenizer(normalizer: Value) -> tokenizers::Tokenizer {
        let tokenizer = json!({
            "version": "1.0",
            "added_tokens": [],
            "normalizer": normalizer,
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
            "model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}
        });
        tokenizer.to_string().parse().unwrap()
    }

    /// The parts whose length is counted by characters or rules make as many bytes as is said, or fewer.
    #[test]
    fn no_part_makes_a_longer_text() {
        let rules = base64::encode(map_of_bytes(&[(b'x', "1234567"), (b'y', "")]));
        let text = "Ǆ ﷺ ﬁ ẛ̣ e\u{301} é 각 İ xyx  Ⅷ ㌀ a.b";
        for (normalizer, is_exact) in [
            (json!({"type": "NFKC"}), false),
            (json!({"type": "NFKD"}), true),
            (json!({"type": "NFC"}), false),
            (json!({"type": "NFD"}), true),
            (json!({"type": "Lowercase"}), true),
            (
                json!({"type": "Precompiled", "precompiled_charsmap": rules}),
                false,
            ),
            (
                json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
                true,
            ),
            (
                json!({"type": "Replace", "pattern": {"Regex": "[xy]+"}, "content": "123"}),
                false,
            ),
        ] {
            let tokenizer = tokenizer(normalizer.clone());
            let length = TextLength::of(&tokenizer);
            let [part] = &length.normalizers[..] else {
                panic!("{normalizer}");
            };
            let mut normalized = NormalizedString::from(text);
            part.inner.normalize(&mut normalized).unwrap();
            let (most, found) = (part.most(text), normalized.get().len());
            assert!(
                most == found || !is_exact && most > found,
                "{normalizer}: {most}, {found}"
            );
        }
    }

    #[test]
    fn the_length_that_a_text_has_in_the_end_decides() {
        let nfkc = json!({"type": "NFKC"});
        let rules = base64::encode(map_of_bytes(&[(b'x', &"1".repeat(600))]));
        let precompiled = json!({"type": "Precompiled", "precompiled_charsmap": rules});
        let both = json!({"type": "Sequence", "normalizers": [
            precompiled, {"type": "Replace", "pattern": {"String": "1"}, "content": "22"}
        ]});
        for (normalizer, text, expected) in [
            (&nfkc, "responsibility ".repeat(50_000), None),
            // Eighteen characters of 33 bytes.
            (&nfkc, "ﷺ".repeat(300_000), None),
            (&precompiled, "responsibility ".repeat(50_000), None),
            (&precompiled, "x".repeat(3000), None),
            (
                &precompiled,
                "x".repeat(4000),
                Some("a text of 4000 bytes one of more than 2161152"),
            ),
            (&both, "x".repeat(1500), None),
            (
                &both,
                "x".repeat(3000),
                Some("a text of 3000 bytes one of more than 2145152"),
            ),
        ] {
            let checked = TextLength::of(&tokenizer(normalizer.clone())).check(&text);
            let expected = expected.map(|end| format!("the normalizer's rules make {end}"));
            assert_eq!(checked.err(), expected, "{normalizer}");
        }
    }
}
