//! GPT-2's byte-level BPE, in `vocab.json` and `merges.txt`.

use super::*;
use crate::formats::names::{CONFIG_FILE, MERGES_FILE};

const VOCABULARY: &str =
    r#"{"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4, "Ċ": 5, "<|endoftext|>": 6}"#;
const MERGES: &str = "#version: 0.2\na b\nĠ ab\n";

fn load(vocabulary: &str, merges: &str, more: &[(&str, &[u8])]) -> Result<Tokenizers, TextError> {
    let files: [(&str, &[u8]); 2] = [
        (VOCABULARY_FILE, vocabulary.as_bytes()),
        (MERGES_FILE, merges.as_bytes()),
    ];
    Tokenizers::load(directory(&[&files[..], more].concat()))
}

#[test]
fn merges_are_applied_to_bytes_in_their_order() {
    let tokenizers = load(VOCABULARY, MERGES, &[]).unwrap();
    let encode = |text: &str| tokenizers.target().encode(text).unwrap();
    assert_eq!(encode("ab aba\n ab"), [3, 4, 0, 5, 4]);
    assert_eq!(encode(""), [0; 0]);
    assert_eq!(encode("  ab"), [2, 4]);
    let target = tokenizers.target();
    assert_eq!(target.decode(&[3, 4, 6, 5]).unwrap(), "ab ab\n");
    assert_eq!(target.vocab_size(), 7);
    // What is saved is one file, which gives the same tokens.
    let copy = tempfile::tempdir().unwrap();
    tokenizers.save(copy.path()).unwrap();
    let again = Tokenizers::load(copy.path()).unwrap();
    assert!(copy.path().join(TOKENIZER_FILE).exists());
    assert_eq!(again.target().encode("ab aba").unwrap(), encode("ab aba"));
    assert_eq!(again.target().decode(&[3, 6]).unwrap(), "ab");
}

#[test]
fn a_space_comes_first_where_the_settings_say_so() {
    let settings =
        |json: &'static str| -> [(&str, &[u8]); 1] { [(TOKENIZER_SETTINGS_FILE, json.as_bytes())] };
    let more = settings(r#"{"add_prefix_space": true}"#);
    let tokenizers = load(VOCABULARY, MERGES, &more).unwrap();
    assert_eq!(tokenizers.target().encode("ab").unwrap(), [4]);
    let more = settings(r#"{"add_bos_token": true}"#);
    let error = load(VOCABULARY, MERGES, &more).unwrap_err().to_string();
    assert!(
        error.ends_with("`add_bos_token` is true, not false"),
        "{error}"
    );
}

/// Their classes put tokens around a text.
#[test]
fn merges_of_other_classes_are_not_read() {
    let config = br#"{"model_type": "bart"}"#;
    for more in [
        (
            TOKENIZER_SETTINGS_FILE,
            &br#"{"tokenizer_class": "BartTokenizer"}"#[..],
        ),
        (CONFIG_FILE, &config[..]),
    ] {
        let error = load(VOCABULARY, MERGES, &[more]).unwrap_err().to_string();
        assert!(error.contains(TOKENIZER_FILE), "{error}");
    }
    load(
        VOCABULARY,
        MERGES,
        &[(CONFIG_FILE, br#"{"model_type": "gpt2"}"#)],
    )
    .unwrap();
}

#[test]
fn damaged_files_are_named() {
    for (merges, reason) in [
        ("a b\na\n", "line 2 is not two tokens"),
        ("a  b\n", "line 1 is not two tokens"),
        ("a b c\n", "line 1 is not two tokens"),
        (" b\n", "line 1 is not two tokens"),
        ("a x\n", ""),
        ("b a\n", ""),
    ] {
        let error = load(VOCABULARY, merges, &[]).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{MERGES_FILE}: {reason}")),
            "{error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
    for vocabulary in [
        "",
        "[",
        "null",
        r#"["a", "b"]"#,
        r#"{"a": 0, "a": 1}"#,
        r#"{"a": 0, "b": 0}"#,
        r#"{"a": -1}"#,
        r#"{"a": 4294967295}"#,
        r#"{"a": 0}}, "x": {"b": 1}"#,
    ] {
        let error = load(vocabulary, MERGES, &[]).unwrap_err().to_string();
        assert!(error.contains(&format!("{VOCABULARY_FILE}: ")), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
