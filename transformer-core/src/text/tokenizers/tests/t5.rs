//! T5's and ByT5's tokenizers.

use super::*;
use crate::formats::names::PIECES_FILE;

const USER_DEFINED: u64 = 4;
const NORMAL: u64 = 1;

/// The pieces `<unk>`, `<s>`, `</s>`, and these with ids from 3.
fn pieces() -> Vec<u8> {
    let pieces = [
        ("▁", -3.0, NORMAL),
        ("▁a", -1.0, NORMAL),
        ("b", -1.0, NORMAL),
        ("<2fr>", 0.0, USER_DEFINED),
    ];
    Model::new(&pieces).bytes()
}

fn load_t5(settings: &str) -> Result<Tokenizers, TextError> {
    let pieces = pieces();
    let files: [(&str, &[u8]); 2] = [
        (PIECES_FILE, &pieces),
        (TOKENIZER_SETTINGS_FILE, settings.as_bytes()),
    ];
    Tokenizers::load(directory(&files))
}

fn load_bytes(settings: &str) -> Result<Tokenizers, TextError> {
    Tokenizers::load(directory(&[(TOKENIZER_SETTINGS_FILE, settings.as_bytes())]))
}

const BYT5: &str = r#"{"tokenizer_class": "ByT5Tokenizer", "extra_ids": 2}"#;

#[test]
fn ids_are_those_of_the_pieces() {
    let tokenizers = load_t5(r#"{"extra_ids": 3}"#).unwrap();
    let encode = |text: &str| tokenizers.encode_source(text).unwrap();
    assert_eq!(encode("ab a"), [4, 5, 4]);
    assert_eq!(encode("<2fr> a☃"), [3, 6, 4, 0]);
    assert_eq!(encode(""), [0; 0]);
    // Special tokens are text, and here unknown.
    assert_eq!(encode("</s>"), [3, 0]);
    assert_eq!(encode("a <extra_id_0>"), [4, 3, 0]);
    let target = tokenizers.target();
    assert_eq!(target.decode(&[4, 5, 2, 0, 3, 4, 9]).unwrap(), "ab  a");
    // The last one comes first.
    let names = [7, 8, 9, 10].map(|token| target.name(token));
    assert_eq!(names, ["<extra_id_2>", "<extra_id_1>", "<extra_id_0>", ""]);
    assert_eq!(target.vocab_size(), 10);
    assert_eq!(load_t5("{}").unwrap().target().vocab_size(), 107);
}

#[test]
fn text_is_split_at_added_tokens() {
    let added = r#"{"extra_ids": 0, "added_tokens_decoder": {
        "6": {"content": "<2fr>", "special": false}, "7": {"content": "new", "special": false}}}"#;
    let tokenizers = load_t5(added).unwrap();
    let encode = |text: &str| tokenizers.encode_source(text).unwrap();
    assert_eq!(encode("<2fr> anewb"), [6, 4, 7, 3, 5]);
    assert_eq!(tokenizers.target().decode(&[6, 4, 5]).unwrap(), "<2fr> ab");
    // The class would put no space before the `b`.
    let settings = added.replacen('{', r#"{"legacy": false, "#, 1);
    let message = load_t5(&settings).unwrap_err().to_string();
    let expected = "tokenizer_config.json: `legacy` is false, which is not supported with the added token `<2fr>`";
    assert!(message.ends_with(expected), "{message}");
    load_t5(r#"{"legacy": false}"#).unwrap();
}

/// `--target-lang fr` is what a user writes before each text.
#[test]
fn a_target_language_is_text_before_the_source() {
    let tokenizers = load_t5(r#"{"extra_ids": 3}"#).unwrap();
    let expected = ["<2fr> ab a", "<2fr> <2cm> ab"];
    let expected = expected.map(|text| tokenizers.encode_source(text).unwrap());
    let french = tokenizers.clone().with_languages(None, Some("fr")).unwrap();
    let encoded = |tokenizers: &Tokenizers, text| tokenizers.encode_source(text).unwrap();
    assert_eq!(encoded(&french, "ab a"), expected[0]);
    assert_eq!(encoded(&french, "<2fr> ab a"), expected[0]);
    // Not a language of the vocabulary.
    assert_eq!(encoded(&french, "<2cm> ab"), expected[1]);
    assert_eq!(french.encode_target("ab a").unwrap(), [4, 5, 4]);
    assert_ne!(french.to_bytes().unwrap(), tokenizers.to_bytes().unwrap());

    let saved = tempfile::tempdir().unwrap();
    french.save(&saved).unwrap();
    let loaded = Tokenizers::load(&saved).unwrap();
    assert_eq!(encoded(&loaded, "ab a"), expected[0]);
    let message = |source, target| {
        let error = tokenizers.clone().with_languages(source, target);
        error.map(drop).unwrap_err().to_string()
    };
    let expected = "no token for the language `xx`; the tokenizer has <2fr>";
    assert_eq!(message(None, Some("xx")), expected);
    assert!(message(Some("fr"), None).contains("source language"));
}

#[test]
fn bytes_follow_three_special_tokens() {
    let tokenizers = load_bytes(BYT5).unwrap();
    let encode = |text: &str| tokenizers.encode_source(text).unwrap();
    assert_eq!(encode("aé\n"), [100, 198, 172, 13]);
    assert_eq!(encode("</s>"), [63, 50, 118, 65]);
    let target = tokenizers.target();
    let every: String = ('\0'..='\u{2ff}').collect();
    assert_eq!(target.decode(&encode(&every)).unwrap(), every);
    // Bytes that are not part of a character are left out, as are special tokens and tokens without a name.
    let tokens = [71, 198, 3, 255, 258, 72, 1, 259, 300];
    assert_eq!(target.decode(&tokens).unwrap(), "D\0E");
    assert_eq!(target.name(198), "<0xC3>");
    assert_eq!(target.name(259), "<extra_id_0>");
    assert_eq!((target.token(100), target.vocab_size()), ("a".into(), 261));
    assert!(!target.is_byte(198));
    let default = load_bytes(r#"{"tokenizer_class": "ByT5Tokenizer"}"#).unwrap();
    assert_eq!(default.source().vocab_size(), 384);
    assert_eq!(default.source().model_type(), "Bytes");
}

#[test]
fn files_are_saved_as_they_were() {
    let pieces = pieces();
    let t5 = directory(&[
        (PIECES_FILE, &pieces),
        (TOKENIZER_SETTINGS_FILE, br#"{"extra_ids":  3}"#),
    ]);
    let byt5 = directory(&[(TOKENIZER_SETTINGS_FILE, BYT5.as_bytes())]);
    for directory in [t5, byt5] {
        assert!(Tokenizers::are_in(&directory));
        let tokenizers = Tokenizers::load(&directory).unwrap();
        let copy = saved(&tokenizers);
        assert_eq!(files_of(&copy), files_of(&directory));
        let again = Tokenizers::load(&copy).unwrap();
        assert!(again.have_vocabularies_of(&tokenizers));
        assert_eq!(again.to_bytes().unwrap(), tokenizers.to_bytes().unwrap());
    }
    let [t5, byt5] = [load_t5("{}").unwrap(), load_bytes(BYT5).unwrap()];
    assert!(!t5.have_vocabularies_of(&byt5));
    let pair = Tokenizers::separate(t5.source().clone(), byt5.source().clone());
    let message = pair.save(tempfile::tempdir().unwrap()).unwrap_err();
    let expected = "files of tokenizers of different types cannot be combined";
    assert!(message.to_string().ends_with(expected), "{message}");
}

/// Old directories name the class in the model's configuration.
#[test]
fn the_class_may_be_in_the_configuration_of_the_model() {
    let config =
        br#"{"model_type": "t5", "tokenizer_class": "ByT5Tokenizer", "decoder_start_token_id": 0}"#;
    let directory = directory(&[("config.json", config)]);
    let tokenizers = Tokenizers::load(&directory).unwrap();
    let again = Tokenizers::load(saved(&tokenizers)).unwrap();
    assert!(again.have_vocabularies_of(&tokenizers));
}

#[test]
fn other_settings_are_refused_by_file_and_key() {
    for (settings, expected) in [
        (
            r#"{"extra_ids": -1}"#,
            "`extra_ids` is -1, not a number of tokens",
        ),
        (
            r#"{"extra_ids": 1e15}"#,
            "`extra_ids` is 1000000000000000.0, not",
        ),
        (r#"{"legacy": 1}"#, "`legacy` is 1, not true or false"),
        (
            r#"{"sp_model_kwargs": {"alpha": 0.1}}"#,
            "`sp_model_kwargs` is",
        ),
    ] {
        let message = load_t5(settings).unwrap_err().to_string();
        let expected = format!("tokenizer_config.json: {expected}");
        assert!(message.contains(&expected), "{message}");
    }
    let damaged = directory(&[(PIECES_FILE, b"no model")]);
    let message = Tokenizers::load(damaged).unwrap_err().to_string();
    assert!(
        message.contains("spiece.model: not a SentencePiece model"),
        "{message}"
    );
}

#[test]
fn the_vocabulary_and_the_special_tokens_are_those_of_the_model() {
    let tokenizers = load_bytes(BYT5).unwrap();
    let special = |pad, eos| SpecialTokens {
        pad,
        bos: pad,
        eos,
        ..SpecialTokens::default()
    };
    let check = |size, special| tokenizers.check([size; 2], special, "model");
    check(261, special(0, 1)).unwrap();
    let message = check(260, special(0, 1)).unwrap_err().to_string();
    assert!(
        message.starts_with("model/tokenizer_config.json: 261 tokens"),
        "{message}"
    );
    let message = check(261, special(0, 2)).unwrap_err().to_string();
    assert!(
        message.contains("`</s>` is token 1, but the model's `eos_id` is 2"),
        "{message}"
    );
    let tokenizers = load_t5("{}").unwrap();
    let message = tokenizers
        .check([99; 2], special(0, 2), "model")
        .unwrap_err();
    assert!(
        message
            .to_string()
            .starts_with("model/spiece.model: 107 tokens")
    );
}
