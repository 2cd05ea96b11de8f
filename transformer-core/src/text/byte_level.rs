//! GPT-2's byte-level BPE (Radford et al., 2019) in its older files, `vocab.json` and `merges.txt`.

use std::path::Path;

use serde_json::json;

use crate::formats::files::{read_json, read_text};
use crate::formats::names::{MERGES_FILE, VOCABULARY_FILE};
use crate::text::added_tokens::AddedTokens;
use crate::text::error::TextError;
use crate::text::tokenizer_json::TokenizerJson;
use crate::text::tokenizer_json::entries::Entries;

/// The only special token, unless the settings name others.
pub(super) const ROLES: [(&str, &str); 3] = [
    ("bos_token", "<|endoftext|>"),
    ("eos_token", "<|endoftext|>"),
    ("unk_token", "<|endoftext|>"),
];

/// Reads both files of a directory as the `tokenizer.json` that Hugging Face makes of them.
///
/// # Errors
/// When a file is missing or damaged, or they do not fit.
pub(super) fn load(directory: &Path, added: &AddedTokens) -> Result<TokenizerJson, TextError> {
    let [vocabulary_path, path] = [VOCABULARY_FILE, MERGES_FILE].map(|name| directory.join(name));
    let vocabulary = read_json(&vocabulary_path).map_err(TextError::file(&vocabulary_path))?;
    check(&vocabulary).map_err(TextError::file(&vocabulary_path))?;
    let merges = read_text(&path).map_err(TextError::file(&path))?;
    let merges = merges_of(&merges).map_err(TextError::file(&path))?;
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false});
    // The text of the vocabulary stays as it is, so that the checks of a `tokenizer.json` apply to it.
    let text = format!(
        r#"{{"version": "1.0", "pre_tokenizer": {bytes}, "post_processor": {bytes}, "decoder": {bytes},
        "added_tokens": [], "model": {{"type": "BPE", "merges": {}, "vocab": {vocabulary}}}}}"#,
        json!(merges)
    );
    TokenizerJson::from_text(&path, &text, added)
}

/// Checks that a vocabulary has an id for each token.
fn check(vocabulary: &str) -> Result<(), String> {
    let entries: Entries = serde_json::from_str(vocabulary).map_err(|error| error.to_string())?;
    match entries.has_ids {
        true => entries.check(),
        false => Err("a list of tokens, without ids".into()),
    }
}

/// The pairs of tokens that are merged, one pair a line, after a line with the version.
fn merges_of(text: &str) -> Result<Vec<[&str; 2]>, String> {
    let lines = (1..).zip(text.lines());
    let merges = lines.filter(|(_, line)| !line.starts_with("#version") && !line.is_empty());
    merges
        .map(|(number, line)| {
            let mut parts = line.split(' ');
            match (parts.next(), parts.next(), parts.next()) {
                (Some(one), Some(other), None) if !one.is_empty() && !other.is_empty() => {
                    Ok([one, other])
                }
                _ => Err(format!("line {number} is not two tokens")),
            }
        })
        .collect()
}
