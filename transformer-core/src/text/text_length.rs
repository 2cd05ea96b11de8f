//! The length of a text after the normalizer and pre-tokenizer of a `tokenizer.json` have changed it.

use std::collections::HashMap;

use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

use crate::text::sentence_piece::{CharacterMap, most_normalized};
use crate::text::tokenizer_json::parts::{PRE_TOKENIZER, growth};

/// The parts of a tokenizer that can lengthen a text.
#[derive(Debug)]
pub(super) struct TextLength {
    normalizers: Vec<Part>,
    /// The largest factor by which the pre-tokenizer can lengthen a text.
    pre_tokenizer: f64,
}

/// A part of a normalizer.
#[derive(Debug)]
struct Part {
    inner: NormalizerWrapper,
    kind: Kind,
    /// The largest factor by which it can lengthen a text.
    growth: f64,
}

/// How a part changes the length of a text.
#[derive(Debug)]
enum Kind {
    /// Replaces each text that has a rule.
    Rules(CharacterMap),
    /// Replaces each occurrence of this text by this many bytes.
    Replace(String, usize),
    /// Puts something before each stretch of text, or replaces matches of a regular expression.
    Factor,
    /// Changes each character independently of its neighbors, or joins characters into one that is no longer.
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

    /// An upper bound for the bytes of a text after this part.
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
                    // Characters that cannot be changed keep their length; encoding the text then fails.
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
                    // Refused when the file is read.
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

    /// Checks that a text does not become too long before it is split: by the largest factors, or else by the bytes
    /// after each part.
    ///
    /// # Errors
    /// When it does.
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
            format!("the normalizer's rules {make} a text of {bytes} bytes to more than {most}")
        };
        let mut normalized = NormalizedString::from(text);
        // The factors of parts that are not applied here: their effect depends on the stretches of a text.
        let mut factor = 1.0;
        for (part, behind) in self.normalizers.iter().zip(1..) {
            let length = part.most(normalized.get()) as f64 * factor;
            if length > most as f64 {
                let is_exact = factor == 1.0 && !matches!(part.kind, Kind::Factor);
                return Err(too_long(if is_exact { "expand" } else { "could expand" }));
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
                "the pre-tokenizer could expand a text of {length} bytes to more than {}",
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

    /// Parts whose length is computed by characters or rules make at most this many bytes.
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
                Some("a text of 4000 bytes to more than 2161152"),
            ),
            (&both, "x".repeat(1500), None),
            (
                &both,
                "x".repeat(3000),
                Some("a text of 3000 bytes to more than 2145152"),
            ),
        ] {
            let checked = TextLength::of(&tokenizer(normalizer.clone())).check(&text);
            let expected = expected.map(|end| format!("the normalizer's rules expand {end}"));
            assert_eq!(checked.err(), expected, "{normalizer}");
        }
    }
}
