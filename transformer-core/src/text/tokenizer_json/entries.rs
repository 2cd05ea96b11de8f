//! The entries of a vocabulary in a JSON file.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Maximum number of tokens in a tokenizer's vocabulary; the largest known have a quarter of it.
// To write a file, the crate `tokenizers` goes through all ids up to the highest, and keeps a list of unused ones.
pub const MAX_TOKENS: usize = 1 << 20;

/// Tokens and their ids, in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub list: Vec<(String, u32)>,
    /// The file has tokens with ids, not a list of tokens in the order of their ids.
    pub has_ids: bool,
}

impl Entries {
    /// Checks that no token or id is duplicated, and that no id is too high.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self) -> Result<(), String> {
        let mut names = HashSet::with_capacity(self.list.len());
        let mut ids = HashSet::with_capacity(self.list.len());
        for (name, id) in &self.list {
            if *id as usize >= MAX_TOKENS {
                return Err(format!(
                    "`{name}` is token {id}, but a vocabulary has at most {MAX_TOKENS} tokens"
                ));
            }
            if !names.insert(name) {
                return Err(format!("the token `{name}` is duplicated"));
            }
            if !ids.insert(id) {
                let mut same = self.list.iter().filter(|(_, other)| other == id);
                let first = same.next().map_or("", |(first, _)| first.as_str());
                return Err(format!("`{first}` and `{name}` are both token {id}"));
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a vocabulary")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entries, M::Error> {
        let mut list = Vec::new();
        while let Some(entry) = map.next_entry()? {
            list.push(entry);
        }
        Ok(Entries {
            list,
            has_ids: true,
        })
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut entries: S) -> Result<Entries, S::Error> {
        let mut list = Vec::new();
        // Beside each token is its score.
        while let Some((name, IgnoredAny)) = entries.next_element()? {
            list.push((name, list.len() as u32));
        }
        Ok(Entries {
            list,
            has_ids: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(json: &str) -> Result<Entries, String> {
        let entries: Entries = serde_json::from_str(json).map_err(|error| error.to_string())?;
        entries.check().map(|()| entries)
    }

    #[test]
    fn tokens_and_ids_are_there_once() {
        let entries = checked(r#"{"a": 3, "b": 0}"#).unwrap();
        assert_eq!(entries.list, [("a".to_owned(), 3), ("b".to_owned(), 0)]);
        let entries = checked(r#"[["a", -1.5], ["b", 0]]"#).unwrap();
        assert_eq!(entries.list, [("a".to_owned(), 0), ("b".to_owned(), 1)]);
        for (json, problem) in [
            (r#"{"a": 1, "a": 2}"#, "the token `a` is duplicated"),
            (r#"{"a": 1, "b": 1}"#, "`a` and `b` are both token 1"),
            (r#"[["a", 0], ["a", 1]]"#, "the token `a` is duplicated"),
            (
                r#"{"a": 0, "b": 2147483647}"#,
                "`b` is token 2147483647, but a vocabulary has at most 1048576 tokens",
            ),
        ] {
            assert_eq!(checked(json).unwrap_err(), problem);
        }
    }

    #[test]
    fn what_is_no_vocabulary_is_refused() {
        for json in [
            "5",
            "null",
            r#"{"a": -1}"#,
            r#"{"a": {}}"#,
            r#"[1]"#,
            r#"{"a": 1"#,
        ] {
            checked(json).unwrap_err();
        }
    }
}
