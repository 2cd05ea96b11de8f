mod gpt2;
mod t5;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::formats::names::{ADDED_TOKENS_FILE, SPECIAL_TOKENS_FILE};
use crate::text::sentence_piece::tests::Model;
use crate::text::tokenizer::tests::words;

/// The tokens of a minimal Marian model: `</s>`, `<unk>`, pieces, languages, `<pad>`.
fn vocabulary() -> Value {
    json!({
        "</s>": 0, "<unk>": 1, "▁": 2, "▁a": 3, "b": 4, "▁c": 5, ">>fra<<": 6, ">>deu<<": 7, "<pad>": 8
    })
}

/// A vocabulary of the target only.
const OF_TARGET: &str = r#"{"▁c": 0, "b": 1, "<unk>": 2, "</s>": 3, "<pad>": 4}"#;

fn source() -> Vec<u8> {
    Model::of_text(&[("▁", -3.0), ("▁a", -1.0), ("b", -1.0), ("x", -2.0)]).bytes()
}

fn target() -> Vec<u8> {
    Model::of_text(&[("▁", -3.0), ("b", -1.0), ("▁c", -1.0)]).bytes()
}

/// A directory with these files.
fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(directory.path().join(name), bytes).unwrap();
    }
    directory
}

fn marian(more: &[(&str, &[u8])]) -> TempDir {
    let vocabulary = vocabulary().to_string();
    let (source, target) = (source(), target());
    let files: [(&str, &[u8]); 3] = [
        (SOURCE_PIECES_FILE, &source),
        (TARGET_PIECES_FILE, &target),
        (VOCABULARY_FILE, vocabulary.as_bytes()),
    ];
    directory(&[&files[..], more].concat())
}

fn files_of(directory: &TempDir) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(directory.path()).unwrap();
    let mut files: Vec<_> = files
        .map(|file| file.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn saved(tokenizers: &Tokenizers) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    tokenizers.save(&directory).unwrap();
    directory
}

#[test]
fn a_checkpoint_has_the_tokenizers_of_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let checkpoint = run.join("checkpoints/update-00000004");
    let other = run.join("models/model");
    for directory in [&checkpoint, &other] {
        fs::create_dir_all(directory).unwrap();
        assert!(Tokenizers::load(directory).is_err());
    }
    let tokenizers = Tokenizers::shared(words(&["a", "b"]));
    tokenizers.save(&run).unwrap();
    let found = Tokenizers::load(&checkpoint).unwrap();
    assert!(found.have_vocabularies_of(&tokenizers));
    assert!(Tokenizers::load(&other).is_err());
    // Its own come first.
    let own = Tokenizers::shared(words(&["c"]));
    own.save(&checkpoint).unwrap();
    let found = Tokenizers::load(&checkpoint).unwrap();
    assert!(found.have_vocabularies_of(&own));
}

#[test]
fn tokenizers_are_checked_against_the_vocabularies_of_a_model() {
    let special = SpecialTokens::default();
    let message = |tokenizers: &Tokenizers, sizes, special| {
        let checked = tokenizers.check(sizes, special, "model");
        checked.err().map(|error| error.to_string())
    };
    // Five and six tokens.
    let (small, large) = (words(&["a"]), words(&["a", "b"]));
    let separate = Tokenizers::separate(small, large.clone());
    assert_eq!(message(&separate, [5, 6], special), None);
    assert_eq!(
        message(&separate, [6, 5], special).unwrap(),
        "model/target_tokenizer.json: 6 tokens, but the model's vocabulary has 5"
    );
    // A shared one, as in a language model, must fit both.
    let shared = Tokenizers::shared(large);
    assert_eq!(message(&shared, [6, 6], special), None);
    assert_eq!(
        message(&shared, [7, 5], special).unwrap(),
        "model/tokenizer.json: 6 tokens, but the model's vocabulary has 5"
    );
    let other = SpecialTokens { eos: 4, ..special };
    assert_eq!(
        message(&shared, [6, 6], other).unwrap(),
        "model/tokenizer.json: `<eos>` is token 2, but the model's `eos_id` is 4"
    );
    assert!(shared.have_vocabularies_of(&shared.clone()));
    assert!(!shared.have_vocabularies_of(&separate));

    let folder = marian(&[]);
    let of_marian = Tokenizers::load(&folder).unwrap();
    let special = SpecialTokens {
        pad: 8,
        bos: 8,
        eos: 0,
        ..SpecialTokens::default()
    };
    assert_eq!(message(&of_marian, [9, 9], special), None);
    assert_eq!(
        message(&of_marian, [9, 8], special).unwrap(),
        "model/vocab.json: 9 tokens, but the model's vocabulary has 8"
    );
    let other = SpecialTokens { eos: 1, ..special };
    assert_eq!(
        message(&of_marian, [9, 9], other).unwrap(),
        "model/vocab.json: `</s>` is token 0, but the model's `eos_id` is 1"
    );
    let other = SpecialTokens { pad: 9, ..special };
    assert_eq!(
        message(&of_marian, [10, 10], other).unwrap(),
        "model/vocab.json: `<pad>` is token 8, but the model's `pad_id` is 9"
    );
    assert!(!shared.have_vocabularies_of(&of_marian));
}

/// The ids of `MarianTokenizer`, by hand.
#[test]
fn pieces_have_the_ids_of_the_vocabulary() {
    let tokenizers = Tokenizers::load(marian(&[])).unwrap();
    let source = |text| tokenizers.encode_source(text).unwrap();
    assert_eq!(source("ab a"), [3, 4, 3]);
    // `x` is in the model but not in the vocabulary; `c` is in neither.
    assert_eq!(source("x c"), [2, 1, 2, 1]);
    assert!(source("").is_empty());
    // A language at the beginning is one token, known or not.
    assert_eq!(source(">>fra<< ab"), [6, 3, 4]);
    assert_eq!(source(">>xyz<<a"), [1, 3]);
    // Text that spells a special token is text.
    assert_eq!(source("a</s>"), [3, 1]);
    assert_eq!(source("</s>"), [2, 1]);
    // The target has other pieces.
    assert_eq!(tokenizers.encode_target("c b").unwrap(), [5, 2, 4]);
    assert_eq!(tokenizers.target_first(), None);
    tokenizers.check_target_language().unwrap();
}

#[test]
fn tokens_are_joined_by_the_rules_of_the_target() {
    let tokenizers = Tokenizers::load(marian(&[])).unwrap();
    let target = |tokens: &[u32]| tokenizers.target().decode(tokens).unwrap();
    assert_eq!(target(&[5, 4, 2, 4, 0]), "cb b");
    assert_eq!(target(&[8, 2, 5, 1, 4, 0]), "cb");
    // `▁a` is not a piece of the target's model.
    assert_eq!(target(&[3, 3, 5]), "a a c");
    assert_eq!(target(&[5, 6]), "c>>fra<<");
    assert_eq!(target(&[]), "");
    assert_eq!(tokenizers.target().token(5), "c");
    assert_eq!(tokenizers.target().token(0), "</s>");
    assert_eq!(tokenizers.source().token(6), ">>fra<<");
}

#[test]
fn files_are_saved_as_they_were() {
    let settings = br#"{"source_lang": "en",   "separate_vocabs": true}"#;
    for more in [
        &[][..],
        &[(TOKENIZER_SETTINGS_FILE, &br#"{"source_lang":   "en"}"#[..])],
        &[(ADDED_TOKENS_FILE, &br#"{"<x>":   9}"#[..])],
        &[
            (TOKENIZER_SETTINGS_FILE, &settings[..]),
            (TARGET_VOCABULARY_FILE, OF_TARGET.as_bytes()),
        ],
    ] {
        let directory = marian(more);
        assert!(Tokenizers::are_in(&directory));
        let tokenizers = Tokenizers::load(&directory).unwrap();
        assert_eq!(files_of(&saved(&tokenizers)), files_of(&directory));
    }
}

#[test]
fn a_target_may_have_a_vocabulary_of_its_own() {
    let of_target = (TARGET_VOCABULARY_FILE, OF_TARGET.as_bytes());
    let separate = |more: &str| {
        let settings = format!(r#"{{"separate_vocabs": true{more}}}"#);
        Tokenizers::load(marian(&[
            of_target,
            (TOKENIZER_SETTINGS_FILE, settings.as_bytes()),
        ]))
    };
    let tokenizers = separate("").unwrap();
    assert_eq!(tokenizers.encode_source("ab").unwrap(), [3, 4]);
    assert_eq!(tokenizers.encode_target("cb").unwrap(), [0, 1]);
    assert_eq!(tokenizers.target().decode(&[0, 1, 3]).unwrap(), "cb");
    let special = SpecialTokens {
        pad: 8,
        bos: 8,
        eos: 0,
        ..SpecialTokens::default()
    };
    let error = tokenizers.check([9, 4], special, "model").unwrap_err();
    assert_eq!(
        error.to_string(),
        "model/target_vocab.json: 5 tokens, but the model's vocabulary has 4"
    );
    // Without the key, Hugging Face's class does not read the file.
    let error = Tokenizers::load(marian(&[of_target]))
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with(
            "target_vocab.json: Hugging Face's class does not read it: `separate_vocabs` of tokenizer_config.json is \
             not true"
        ),
        "{error}"
    );
    let error = separate(r#", "added_tokens_decoder": {"9": {"content": "<x>"}}"#);
    let error = error.unwrap_err().to_string();
    assert!(
        error.ends_with(
            "tokenizer_config.json: the added token `<x>` has the id 9 for source and target, whose vocabularies differ \
             (`separate_vocabs`); that is not supported"
        ),
        "{error}"
    );
}

/// Settings that differ from those of every model of a class.
#[test]
fn settings_that_are_not_supported_are_refused_by_file_key_and_value() {
    let error = |file: &str, content: &str| {
        let directory = marian(&[(file, content.as_bytes())]);
        let error = Tokenizers::load(&directory).unwrap_err().to_string();
        let folder = format!("{}/", directory.path().display());
        error.strip_prefix(&folder).unwrap().to_owned()
    };
    for (file, content, expected) in [
        (
            TOKENIZER_SETTINGS_FILE,
            r#"{"eos_token": "<end>"}"#,
            "`eos_token` is `<end>`; only `</s>` is supported",
        ),
        (
            TOKENIZER_SETTINGS_FILE,
            r#"{"unk_token": null}"#,
            "`unk_token` is null; only `<unk>` is supported",
        ),
        (
            SPECIAL_TOKENS_FILE,
            r#"{"pad_token": {"content": "<x>"}}"#,
            "`pad_token` is `<x>`; only `<pad>` is supported",
        ),
        (
            TOKENIZER_SETTINGS_FILE,
            r#"{"bos_token": 5}"#,
            "`bos_token` is 5, not a token",
        ),
        (
            TOKENIZER_SETTINGS_FILE,
            r#"{"sp_model_kwargs": {"enable_sampling": true}}"#,
            r#"`sp_model_kwargs` is {"enable_sampling":true}, not empty"#,
        ),
        (
            TOKENIZER_SETTINGS_FILE,
            r#"{"clean_up_tokenization_spaces": "yes"}"#,
            r#"`clean_up_tokenization_spaces` is "yes", not true or false"#,
        ),
        (
            TOKENIZER_SETTINGS_FILE,
            r#"{"extra_special_tokens": 5}"#,
            "`extra_special_tokens` is 5, not a list of tokens",
        ),
        (
            TOKENIZER_SETTINGS_FILE,
            r#"{"source_spm": "/models/other.spm"}"#,
            r#"`source_spm` is "/models/other.spm", not a source.spm"#,
        ),
        (
            TOKENIZER_SETTINGS_FILE,
            r#"{"fast_tokenizer_files": ["tokenizer.4.0.json"]}"#,
            r#"`fast_tokenizer_files` is ["tokenizer.4.0.json"], not a list with only tokenizer.json"#,
        ),
        (
            TOKENIZER_SETTINGS_FILE,
            r#"{"added_tokens_decoder": {"a": {"content": "x"}}}"#,
            r#"`added_tokens_decoder` is {"content":"x"}, not a token keyed by its id"#,
        ),
        (
            ADDED_TOKENS_FILE,
            r#"{"<x>": -1}"#,
            "`<x>` is -1, not a token id",
        ),
        (
            ADDED_TOKENS_FILE,
            r#"{"<x>": 9, "<y>": 9}"#,
            "the added tokens `<x>` and `<y>` have the id 9",
        ),
        (
            ADDED_TOKENS_FILE,
            r#"{"<x>": 4000000000}"#,
            "the added token `<x>` has the id 4000000000, but a vocabulary has at most 1048576 tokens",
        ),
        (
            ADDED_TOKENS_FILE,
            r#"{"": 9}"#,
            "the added token 9 is empty",
        ),
    ] {
        assert_eq!(error(file, content), format!("{file}: {expected}"));
    }
    // A path from another machine to a file of the same name.
    let path = br#"{"source_spm": "/models/source.spm", "vocab": null}"#;
    Tokenizers::load(marian(&[(TOKENIZER_SETTINGS_FILE, path)])).unwrap();

    let nllb = br#"{"tokenizer_class": "NllbTokenizer", "eos_token": "<pad>"}"#;
    let file = with_template(&["eng_Latn"], &["</s>"]);
    let error = load_json(&file, &[(TOKENIZER_SETTINGS_FILE, nllb)]).unwrap_err();
    let expected = "tokenizer.json: its template ends in `</s>`, but `eos_token` is `<pad>`";
    assert!(error.to_string().ends_with(expected), "{error}");
    let other = json!({"a": 8}).to_string();
    let error = load_json(&file, &[(ADDED_TOKENS_FILE, other.as_bytes())]).unwrap_err();
    let expected = "tokenizer.json: its token 7 is `a`, which has the id 8 among the added tokens of the directory";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[test]
fn damaged_files_of_marian_are_named() {
    let error = |file: &str, content: &[u8]| {
        let directory = marian(&[(file, content)]);
        let error = Tokenizers::load(&directory).unwrap_err().to_string();
        let folder = format!("{}/", directory.path().display());
        error.strip_prefix(&folder).unwrap().to_owned()
    };
    let of_vocabulary = |change: &dyn Fn(&mut Value)| {
        let mut vocabulary = vocabulary();
        change(&mut vocabulary);
        error(VOCABULARY_FILE, vocabulary.to_string().as_bytes())
    };
    assert_eq!(
        of_vocabulary(&|vocabulary| vocabulary["b"] = json!(12)),
        "vocab.json: `b` is token 12; ids must be contiguous, here from 0 to 8"
    );
    let found = of_vocabulary(&|vocabulary| vocabulary["b"] = json!(5));
    assert!(found.ends_with(" are both token 5"), "{found}");
    assert_eq!(
        of_vocabulary(&|vocabulary| {
            vocabulary.as_object_mut().unwrap().remove("<pad>");
        }),
        "vocab.json: no token `<pad>`"
    );
    let found = of_vocabulary(&|vocabulary| vocabulary["b"] = json!(-1));
    assert!(found.starts_with("vocab.json: invalid value"), "{found}");
    let twice = br#"{"a": 0, "a": 1}"#;
    assert_eq!(
        error(VOCABULARY_FILE, twice),
        "vocab.json: the token `a` is duplicated"
    );
    assert_eq!(
        error(VOCABULARY_FILE, br#"[["a", 0.0]]"#),
        "vocab.json: a list of tokens, without ids"
    );
    let nested = "[".repeat(100_000);
    let found = error(VOCABULARY_FILE, format!("{{\"a\": {nested}").as_bytes());
    assert!(found.starts_with("vocab.json: "), "{found}");
    assert_eq!(
        error(SOURCE_PIECES_FILE, b"{}"),
        "source.spm: not a SentencePiece model: it has a field of an unknown type"
    );
    let found = error(TARGET_PIECES_FILE, b"");
    assert_eq!(
        found,
        "target.spm: not a SentencePiece model: it has no pieces"
    );
    let found = error(TOKENIZER_SETTINGS_FILE, br#"{"source_prefix": ">>xyz<<"}"#);
    assert_eq!(
        found,
        "tokenizer_config.json: no token for the language `>>xyz<<`; the tokenizer has >>fra<<, >>deu<<"
    );
    for missing in [SOURCE_PIECES_FILE, TARGET_PIECES_FILE, VOCABULARY_FILE] {
        let directory = marian(&[]);
        fs::remove_file(directory.path().join(missing)).unwrap();
        assert!(!Tokenizers::are_in(&directory));
        let error = Tokenizers::load(&directory).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{missing}: No such file")),
            "{error}"
        );
    }
}

#[test]
fn a_language_of_marians_is_put_before_sources_and_saved() {
    let directory = marian(&[]);
    let plain = Tokenizers::load(&directory).unwrap();
    let french = plain.clone().with_languages(None, Some("fra")).unwrap();
    for tokenizers in [&french, &Tokenizers::load(saved(&french)).unwrap()] {
        assert_eq!(tokenizers.encode_source("ab").unwrap(), [6, 3, 4]);
        // A text may have its own language.
        assert_eq!(tokenizers.encode_source(">>deu<< ab").unwrap(), [7, 3, 4]);
        assert_eq!(tokenizers.encode_source("<2cm> ab").unwrap()[0], 6);
        assert_eq!(tokenizers.encode_target("c").unwrap(), [5]);
        assert_eq!(tokenizers.target_first(), None);
        // A cache made with other tokens is noticed.
        assert_ne!(tokenizers.to_bytes().unwrap(), plain.to_bytes().unwrap());
        assert!(tokenizers.have_vocabularies_of(&plain));
    }
    let error = |source, target| {
        let error = plain.clone().with_languages(source, target);
        error.unwrap_err().to_string()
    };
    assert_eq!(
        error(None, Some("eng")),
        "no token for the language `eng`; the tokenizer has >>fra<<, >>deu<<"
    );
    assert_eq!(
        error(Some("eng"), None),
        "no token for the source language `eng`: this model has tokens for target languages only"
    );
}

/// A tokenizer of words with languages, and a template with these tokens around a text.
fn with_template(before: &[&str], behind: &[&str]) -> Value {
    let names = [
        "<s>", "<pad>", "</s>", "<unk>", "eng_Latn", "fra_Latn", "deu_Latn", "a", "b",
    ];
    let id = |name: &str| names.iter().position(|other| *other == name).unwrap();
    let added = names[..7].iter().map(|&name| {
        json!({
            "id": id(name), "content": name, "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false
        })
    });
    let part = |name: &&str| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let parts = before.iter().map(part).chain([text]);
    let parts = parts.chain(behind.iter().map(part));
    let special = before.iter().chain(behind);
    let special = special.map(|&name| {
        let token = json!({"id": name, "ids": [id(name)], "tokens": [name]});
        (name.to_owned(), token)
    });
    let vocabulary = names.iter().map(|&name| (name.to_owned(), json!(id(name))));
    json!({
        "version": "1.0",
        "added_tokens": added.collect::<Vec<_>>(),
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": parts.collect::<Vec<_>>(),
            "pair": [],
            "special_tokens": special.collect::<serde_json::Map<_, _>>()
        },
        "model": {
            "type": "WordLevel",
            "vocab": vocabulary.collect::<serde_json::Map<_, _>>(),
            "unk_token": "<unk>"
        }
    })
}

fn load_json(tokenizer: &Value, more: &[(&str, &[u8])]) -> Result<Tokenizers, TextError> {
    let tokenizer = tokenizer.to_string();
    let file = [(TOKENIZER_FILE, tokenizer.as_bytes())];
    Tokenizers::load(directory(&[&file[..], more].concat()))
}

const SPECIAL: SpecialTokens = SpecialTokens {
    pad: 1,
    bos: 0,
    eos: 2,
    source_bos: None,
    source_eos: true,
    prompt_bos: true,
};

/// Like GPT-2's, whose only special token is the last: the first ones are `!`, `"` and `#`.
#[test]
fn text_is_no_special_token() {
    let mut file = json!({
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": {"!": 0, "\"": 1, "#": 2, "<|endoftext|>": 3}, "merges": []}
    });
    let of_model = |file: &Value, id| {
        let special = SpecialTokens {
            pad: id,
            bos: id,
            eos: id,
            ..SpecialTokens::default()
        };
        let checked = load_json(file, &[])
            .unwrap()
            .check([4, 4], special, "model");
        checked.map_err(|error| error.to_string())
    };
    let refused = |id, text| {
        Err(format!(
            "model/tokenizer.json: token {id} is `{text}`, which is not a special token (`added_tokens` with \
             `special`), but the model's `pad_id` is {id}"
        ))
    };
    assert_eq!(of_model(&file, 0), refused(0, "!"));
    let mut added = json!({
        "id": 3, "content": "<|endoftext|>", "special": true,
        "single_word": false, "lstrip": false, "rstrip": false, "normalized": false
    });
    file["added_tokens"] = json!([added.clone()]);
    assert_eq!(of_model(&file, 3), Ok(()));
    assert_eq!(of_model(&file, 1), refused(1, "\""));
    added["special"] = false.into();
    file["added_tokens"] = json!([added]);
    assert_eq!(of_model(&file, 3), refused(3, "<|endoftext|>"));
}

#[test]
fn tokens_before_a_text_are_first_in_source_and_target() {
    // Like BART's, which has no language.
    let tokenizers = load_json(&with_template(&["<s>"], &["</s>"]), &[]).unwrap();
    tokenizers.check([9, 9], SPECIAL, "model").unwrap();
    assert_eq!(tokenizers.encode_source("a b").unwrap(), [0, 7, 8]);
    assert_eq!(tokenizers.encode_target("b").unwrap(), [0, 8]);
    assert_eq!(tokenizers.target_first(), None);
    assert_eq!(tokenizers.source().encode("a b").unwrap(), [7, 8]);
    let again = Tokenizers::load(saved(&tokenizers)).unwrap();
    assert_eq!(again.encode_source("a b").unwrap(), [0, 7, 8]);

    let plain = load_json(&with_template(&[], &[]), &[]).unwrap();
    plain.check([9, 9], SPECIAL, "model").unwrap();
    assert_eq!(plain.encode_source("a b").unwrap(), [7, 8]);
    assert!(plain.encode_target("").unwrap().is_empty());
}

#[test]
fn languages_are_chosen_and_saved() {
    let file = with_template(&["eng_Latn"], &["</s>"]);
    let tokenizers = load_json(&file, &[]).unwrap();
    tokenizers.check([9, 9], SPECIAL, "model").unwrap();
    assert_eq!(tokenizers.encode_source("a").unwrap(), [4, 7]);
    // A template only has the language of sources.
    let expected = "no target language is chosen; the tokenizer has eng_Latn, fra_Latn, deu_Latn";
    let error = tokenizers.encode_target("a").unwrap_err();
    assert_eq!(error.to_string(), expected);
    let error = tokenizers.check_target_language().unwrap_err();
    assert_eq!(error.to_string(), expected);

    let chosen = tokenizers
        .clone()
        .with_languages(Some("deu"), Some("fra_Latn"));
    let chosen = chosen.unwrap();
    chosen.check([9, 9], SPECIAL, "model").unwrap();
    assert_eq!(chosen.encode_source("a").unwrap(), [6, 7]);
    assert_eq!(chosen.encode_target("a").unwrap(), [5, 7]);
    assert_eq!(chosen.target_first(), Some(5));
    assert_ne!(chosen.to_bytes().unwrap(), tokenizers.to_bytes().unwrap());

    let again = Tokenizers::load(saved(&chosen)).unwrap();
    again.check([9, 9], SPECIAL, "model").unwrap();
    assert_eq!(again.encode_source("a").unwrap(), [6, 7]);
    assert_eq!(again.encode_target("a").unwrap(), [5, 7]);
    let other = again.with_languages(None, Some("eng")).unwrap();
    let other = Tokenizers::load(saved(&other)).unwrap();
    assert_eq!(other.encode_source("a").unwrap(), [6, 7]);
    assert_eq!(other.encode_target("a").unwrap(), [4, 7]);

    let error = tokenizers.with_languages(Some("xyz"), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no token for the language `xyz`; the tokenizer has eng_Latn, fra_Latn, deu_Latn"
    );
    let settings = br#"{"target_prefix": "xyz"}"#;
    let error = load_json(&file, &[(TOKENIZER_SETTINGS_FILE, settings)]).unwrap_err();
    assert!(
        error.to_string().ends_with(
            "tokenizer_config.json: no token for the language `xyz`; the tokenizer has eng_Latn, fra_Latn, deu_Latn"
        ),
        "{error}"
    );
    let words = Tokenizers::shared(words(&["a"]));
    let error = words.with_languages(None, Some("fra")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no token for the language `fra`; the tokenizer has no language tokens"
    );
}

#[test]
fn a_language_that_the_decoder_starts_with_is_not_put_first_again() {
    for (file, settings) in [
        (
            "generation_config.json",
            json!({"decoder_start_token_id": 5}),
        ),
        (
            "config.json",
            json!({"model_type": "mbart", "decoder_start_token_id": 5}),
        ),
        ("config.json", json!({"format": 1, "bos_id": 5})),
    ] {
        let settings = settings.to_string();
        let more = [(file, settings.as_bytes())];
        let tokenizers = load_json(&with_template(&["eng_Latn"], &["</s>"]), &more).unwrap();
        tokenizers.check_target_language().unwrap();
        let chosen = tokenizers.clone().with_languages(None, Some("fra"));
        for tokenizers in [&tokenizers, &chosen.unwrap()] {
            assert_eq!(tokenizers.encode_source("a").unwrap(), [4, 7]);
            assert_eq!(tokenizers.encode_target("a").unwrap(), [7]);
            assert_eq!(tokenizers.target_first(), None);
        }
        let error = tokenizers.with_languages(None, Some("deu")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the model's decoder starts with `fra_Latn` (`decoder_start_token_id`), so targets cannot be in `deu_Latn`"
        );
    }
}

/// As Hugging Face's classes override the settings in a tokenizer's file.
#[test]
fn the_settings_of_a_directory_decide() {
    let load = |before: &[&str], settings: &str| {
        let more = [(TOKENIZER_SETTINGS_FILE, settings.as_bytes())];
        load_json(&with_template(before, &["</s>"]), &more)
    };
    let source = |before: &[&str], settings| {
        let tokenizers = load(before, settings).unwrap();
        tokenizers.encode_source("a").unwrap()
    };
    let german = r#"{"src_lang": "deu_Latn"}"#;
    assert_eq!(source(&["eng_Latn"], german), [6, 7]);
    assert_eq!(source(&["eng_Latn"], r#"{"src_lang": null}"#), [4, 7]);
    // A template without a language.
    assert_eq!(source(&["<s>"], german), [0, 7]);
    let error = load(&["eng_Latn"], r#"{"src_lang": "xyz"}"#).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("tokenizer_config.json: no token for the language `xyz`"),
        "{error}"
    );

    let bytes = |own: bool, settings: &str| {
        let vocabulary = json!({"a": 0, "Ġ": 1, "Ġa": 2, "<unk>": 3});
        let tokenizer = json!({
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {
                "type": "ByteLevel", "add_prefix_space": own, "trim_offsets": true, "use_regex": true
            },
            "model": {"type": "BPE", "vocab": vocabulary, "merges": ["Ġ a"]}
        });
        let more = [(TOKENIZER_SETTINGS_FILE, settings.as_bytes())];
        let tokenizers = load_json(&tokenizer, &more).unwrap();
        tokenizers.encode_source("a").unwrap()
    };
    assert_eq!(bytes(false, "{}"), [0]);
    assert_eq!(bytes(true, "{}"), [2]);
    assert_eq!(bytes(false, r#"{"add_prefix_space": true}"#), [2]);
    assert_eq!(bytes(true, r#"{"add_prefix_space": false}"#), [0]);
}

#[test]
fn the_forced_first_token_of_a_directory_is_the_language_of_its_targets() {
    let forced = |token: u32| {
        let defaults = json!({"forced_bos_token_id": token, "decoder_start_token_id": 2});
        let defaults = defaults.to_string();
        let more = [("generation_config.json", defaults.as_bytes())];
        load_json(&with_template(&["eng_Latn"], &["</s>"]), &more).unwrap()
    };
    let french = forced(5);
    // It overrides what was chosen before the tokenizers were saved.
    let german = french.clone().with_languages(None, Some("deu")).unwrap();
    let german = saved(&german);
    let options = json!({"forced_bos_token_id": 5}).to_string();
    fs::write(german.path().join("generation_config.json"), options).unwrap();
    assert_eq!(Tokenizers::load(&german).unwrap().target_first(), Some(5));
    fs::remove_file(german.path().join("generation_config.json")).unwrap();
    assert_eq!(Tokenizers::load(&german).unwrap().target_first(), Some(6));

    assert_eq!(french.target_first(), Some(5));
    assert_eq!(french.encode_target("a").unwrap(), [5, 7]);
    assert_eq!(french.encode_source("a").unwrap(), [4, 7]);
    // `<s>` is not a language.
    forced(0).encode_target("a").unwrap_err();
}

#[test]
fn a_template_ends_in_the_end_of_the_model() {
    let error = |before: &[&str], behind: &[&str]| {
        let tokenizers = load_json(&with_template(before, behind), &[]).unwrap();
        let error = tokenizers.check([9, 9], SPECIAL, "model").unwrap_err();
        error.to_string()
    };
    assert_eq!(
        error(&[], &["<pad>"]),
        "model/tokenizer.json: its template ends in <pad>, not in the model's `eos_id` 2"
    );
    assert_eq!(
        error(&[], &["<pad>", "eng_Latn"]),
        "model/tokenizer.json: its template ends in <pad> eng_Latn, not in the model's `eos_id` 2"
    );
    assert_eq!(
        error(&[], &["</s>", "<s>"]),
        "model/tokenizer.json: its template ends in </s> <s>, not in the model's `eos_id` 2"
    );
    let mut twice = with_template(&[], &["</s>"]);
    let parts = twice["post_processor"]["single"].as_array_mut().unwrap();
    parts.push(parts[0].clone());
    let tokenizers = load_json(&twice, &[]).unwrap();
    let error = tokenizers.check([9, 9], SPECIAL, "model").unwrap_err();
    assert_eq!(
        error.to_string(),
        "model/tokenizer.json: its template does not contain the text exactly once"
    );
}

#[test]
fn nllbs_language_is_first_as_in_its_class() {
    let file = with_template(&[], &["</s>", "eng_Latn"]);
    let class = br#"{"tokenizer_class": "NllbTokenizer"}"#;
    let tokenizers = load_json(&file, &[(TOKENIZER_SETTINGS_FILE, class)]).unwrap();
    tokenizers.check([9, 9], SPECIAL, "model").unwrap();
    assert_eq!(tokenizers.encode_source("a").unwrap(), [4, 7]);
    let german = tokenizers.with_languages(Some("deu"), None).unwrap();
    let directory = saved(&german);
    let settings = fs::read(directory.path().join(TOKENIZER_SETTINGS_FILE)).unwrap();
    let settings: Value = serde_json::from_slice(&settings).unwrap();
    assert_eq!(settings["src_lang"], "deu_Latn");
    let again = Tokenizers::load(&directory).unwrap();
    assert_eq!(again.encode_source("a").unwrap(), [6, 7]);
}

/// As in the first mBART and in NLLB's legacy behavior.
#[test]
fn a_language_may_end_sources() {
    let last = with_template(&[], &["</s>", "eng_Latn"]);
    let first = with_template(&["eng_Latn"], &["</s>"]);
    for (file, settings) in [
        (&last, json!({})),
        (&last, json!({"tokenizer_class": "MBartTokenizer"})),
        (&first, json!({"tokenizer_class": "MBartTokenizerFast"})),
        (
            &first,
            json!({"tokenizer_class": "NllbTokenizer", "legacy_behaviour": true}),
        ),
    ] {
        let settings = settings.to_string();
        let more = [(TOKENIZER_SETTINGS_FILE, settings.as_bytes())];
        let tokenizers = load_json(file, &more).unwrap();
        tokenizers.check([9, 9], SPECIAL, "model").unwrap();
        let english = tokenizers.encode_source("a").unwrap();
        assert_eq!(english, [7, 2, 4]);
        // Complete as it is.
        assert_eq!(SPECIAL.end_source(&english), english);
        tokenizers.encode_target("a").unwrap_err();

        let chosen = tokenizers.with_languages(Some("deu"), Some("fra")).unwrap();
        let again = Tokenizers::load(saved(&chosen)).unwrap();
        for tokenizers in [chosen, again] {
            assert_eq!(tokenizers.encode_source("a").unwrap(), [7, 2, 6]);
            // The decoder does not start with a language: it is forced, as in Hugging Face's pipeline.
            assert_eq!(tokenizers.encode_target("a").unwrap(), [5, 7]);
        }
    }
    // The decoder starts with the target's language.
    let start = json!({"decoder_start_token_id": 5}).to_string();
    let more = [("generation_config.json", start.as_bytes())];
    let tokenizers = load_json(&last, &more).unwrap();
    assert_eq!(tokenizers.encode_source("a").unwrap(), [7, 2, 4]);
    assert_eq!(tokenizers.encode_target("a").unwrap(), [7]);
    assert_eq!(tokenizers.target_first(), None);
}

/// A unigram model with special tokens among its pieces, like NLLB's, finds them in text even if they are not marked as
/// special.
#[test]
fn text_that_spells_a_special_token_of_a_unigram_model_is_text() {
    let mut file = with_template(&["eng_Latn"], &["</s>"]);
    let names = [
        "<s>", "<pad>", "</s>", "<unk>", "eng_Latn", "fra_Latn", "deu_Latn",
    ];
    let special = names.iter().map(|name| json!([name, 0.0]));
    let pieces = ["▁", "a", "<", "/", "s", ">"].map(|piece| json!([piece, -2.5]));
    let vocabulary: Vec<Value> = special.chain(pieces).collect();
    file["model"] = json!({"type": "Unigram", "unk_id": 3, "vocab": vocabulary});
    file["pre_tokenizer"] = json!({
        "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true
    });
    let tokenizers = load_json(&file, &[]).unwrap();
    let expected = [4, 7, 9, 10, 11, 12, 7, 8];
    assert_eq!(tokenizers.encode_source("</s> a").unwrap(), expected);
    assert_eq!(
        tokenizers.encode_source("eng_Latn").unwrap(),
        [4, 7, 3, 8, 3]
    );
    assert_eq!(tokenizers.source().name(2), "</s>");
    assert_eq!(tokenizers.source().vocab_size(), 13);
    // The file keeps their names.
    let directory = saved(&tokenizers);
    let saved = fs::read(directory.path().join(TOKENIZER_FILE)).unwrap();
    let saved: Value = serde_json::from_slice(&saved).unwrap();
    assert_eq!(saved["model"]["vocab"], file["model"]["vocab"]);
    let again = Tokenizers::load(&directory).unwrap();
    assert_eq!(again.encode_source("</s> a").unwrap(), expected);
}

#[test]
fn tokenizers_of_two_formats_are_not_saved_as_one() {
    let of_marian = Tokenizers::load(marian(&[])).unwrap();
    let mixed = Tokenizers::separate(of_marian.source().clone(), words(&["a"]));
    let directory = tempfile::tempdir().unwrap();
    let error = mixed.save(&directory).unwrap_err().to_string();
    let expected = "tokenizer: files of tokenizers of different types cannot be combined";
    assert_eq!(error, expected);
    assert_eq!(files_of(&directory), []);
    assert!(of_marian.source().to_json().is_err());
}

/// The files of M2M100's tokenizer, and texts tokenized with them by Hugging Face's class
/// (`scripts/make-languages-fixtures`).
fn m2m100(settings: &[u8]) -> (TempDir, Value) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures");
    let folder = Path::new(folder).join("m2m100-tokenizer");
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let (pieces, vocabulary) = (read(SHARED_PIECES_FILE), read(VOCABULARY_FILE));
    let files: [(&str, &[u8]); 3] = [
        (SHARED_PIECES_FILE, &pieces),
        (VOCABULARY_FILE, &vocabulary),
        (TOKENIZER_SETTINGS_FILE, settings),
    ];
    let expected = serde_json::from_slice(&read("expected.json")).unwrap();
    (directory(&files), expected)
}

/// Compares tokens with Hugging Face's for the languages of this list.
fn assert_m2m100(name: &str, languages: usize, tokenizers: Tokenizers, expected: &Value) {
    let tokenizers = tokenizers.with_languages(None, Some("de")).unwrap();
    let special = SpecialTokens {
        pad: 1,
        bos: 2,
        eos: 2,
        ..SpecialTokens::default()
    };
    let size = tokenizers.source().vocab_size();
    tokenizers.check([size; 2], special, "model").unwrap();
    assert_eq!(tokenizers.source().languages().len(), languages);
    let expected = &expected[name];
    for (language, id) in expected["languages"].as_object().unwrap() {
        let token = tokenizers.source().language_token(language).unwrap();
        assert_eq!(json!(token), *id, "{language}");
    }
    for text in expected["texts"].as_array().unwrap() {
        for (side, found) in [
            (
                "source",
                tokenizers.encode_source(text["source"].as_str().unwrap()),
            ),
            (
                "target",
                tokenizers.encode_target(text["target"].as_str().unwrap()),
            ),
        ] {
            let found = [&found.unwrap()[..], &[special.eos]].concat();
            let expected = ids(&text[format!("{side}_ids")]);
            // Hugging Face encodes a text that spells a special token as that token.
            if !text[side].as_str().unwrap().contains("<unk>") {
                assert_eq!(found, expected, "{name}: {}", text[side]);
            }
        }
        let decoded = tokenizers.target().decode(&ids(&text["target_ids"]));
        assert_eq!(json!(decoded.unwrap()), text["decoded"], "{name}");
    }
}

/// Each list of languages of M2M100's class, with its length.
const LANGUAGES: [(&str, usize); 2] = [("m2m100", 100), ("wmt21", 8)];

#[test]
#[cfg_attr(packaged, ignore = "reads files of the repository")]
fn m2m100s_tokens_are_those_of_hugging_face() {
    for (name, languages) in LANGUAGES {
        let settings = json!({"language_codes": name}).to_string();
        let (directory, expected) = m2m100(settings.as_bytes());
        assert!(Tokenizers::are_in(&directory));
        let tokenizers = Tokenizers::load(&directory).unwrap();
        assert_m2m100(name, languages, tokenizers, &expected);
    }
}

/// CTranslate2's list has the language tokens, which Hugging Face's file of M2M100's vocabulary lacks.
#[test]
#[cfg_attr(packaged, ignore = "reads files of the repository")]
fn a_list_of_ctranslate2_with_languages_gives_the_same_tokens() {
    for (name, languages) in LANGUAGES {
        let (directory, expected) = m2m100(b"{}");
        let path = |name| directory.path().join(name);
        let vocabulary = fs::read(path(VOCABULARY_FILE)).unwrap();
        let vocabulary: Value = serde_json::from_slice(&vocabulary).unwrap();
        let tokens = vocabulary.as_object().unwrap().iter();
        let tokens = tokens.map(|(token, id)| (id.as_u64().unwrap(), token.clone()));
        let of_languages = expected[name]["languages"].as_object().unwrap().iter();
        let of_languages =
            of_languages.map(|(name, id)| (id.as_u64().unwrap(), format!("__{name}__")));
        let list: BTreeMap<u64, String> = tokens.chain(of_languages).collect();
        let list: Vec<String> = list.into_values().collect();
        fs::write(path("shared_vocabulary.json"), json!(list).to_string()).unwrap();
        fs::write(path("model.bin"), "").unwrap();
        fs::remove_file(path(VOCABULARY_FILE)).unwrap();
        let tokenizers = Tokenizers::load(&directory).unwrap();

        let saved = tempfile::tempdir().unwrap();
        tokenizers.save(&saved).unwrap();
        for tokenizers in [tokenizers, Tokenizers::load(&saved).unwrap()] {
            assert_m2m100(name, languages, tokenizers, &expected);
        }
    }
}

#[test]
#[cfg_attr(packaged, ignore = "reads files of the repository")]
fn m2m100s_files_and_languages_are_saved() {
    let settings = br#"{"src_lang": "de",   "model_max_length": 1024}"#;
    let (directory, _) = m2m100(settings);
    let german = Tokenizers::load(&directory).unwrap();
    assert_eq!(files_of(&saved(&german)), files_of(&directory));
    let language = |tokenizers: &Tokenizers, of_source: bool| {
        let tokens = match of_source {
            true => tokenizers.encode_source("It is.").unwrap(),
            false => tokenizers.encode_target("It is.").unwrap(),
        };
        tokenizers.source().name(tokens[0])
    };
    assert_eq!(language(&german, true), "__de__");
    let error = german.encode_target("It is.").unwrap_err().to_string();
    let expected = "no target language is chosen; the tokenizer has __af__, __am__,";
    assert!(error.starts_with(expected), "{error}");

    // Also without a settings file.
    fs::remove_file(directory.path().join(TOKENIZER_SETTINGS_FILE)).unwrap();
    let english = Tokenizers::load(&directory).unwrap();
    assert_eq!(language(&english, true), "__en__");
    assert!(english.have_vocabularies_of(&german));
    let chosen = english.clone().with_languages(Some("__fr__"), Some("zh"));
    let chosen = chosen.unwrap();
    assert_ne!(chosen.to_bytes().unwrap(), english.to_bytes().unwrap());
    let again = Tokenizers::load(saved(&chosen)).unwrap();
    assert_eq!(language(&again, true), "__fr__");
    assert_eq!(language(&again, false), "__zh__");
}

#[test]
#[cfg_attr(packaged, ignore = "reads files of the repository")]
fn damaged_files_of_m2m100_are_named() {
    let error = |file: &str, content: &[u8]| {
        let (directory, _) = m2m100(b"{}");
        fs::write(directory.path().join(file), content).unwrap();
        let error = Tokenizers::load(&directory).unwrap_err().to_string();
        let folder = format!("{}/", directory.path().display());
        error.strip_prefix(&folder).unwrap().to_owned()
    };
    assert_eq!(
        error(TOKENIZER_SETTINGS_FILE, br#"{"language_codes": "all"}"#),
        "tokenizer_config.json: `language_codes` is \"all\", not one of \"m2m100\", \"wmt21\""
    );
    let found = error(TOKENIZER_SETTINGS_FILE, br#"{"src_lang": "xyz"}"#);
    assert!(
        found.starts_with("tokenizer_config.json: no token for the language `xyz`; "),
        "{found}"
    );
    assert_eq!(
        error(VOCABULARY_FILE, br#"{"</s>": 0, "<pad>": 1}"#),
        "vocab.json: no token `<unk>`"
    );
    assert_eq!(
        error(SHARED_PIECES_FILE, b"{}"),
        "sentencepiece.bpe.model: not a SentencePiece model: it has a field of an unknown type"
    );
    let (directory, _) = m2m100(b"{}");
    let tokenizers = Tokenizers::load(&directory).unwrap();
    let special = SpecialTokens {
        pad: 3,
        bos: 2,
        eos: 2,
        ..SpecialTokens::default()
    };
    let problem = tokenizers.check([500, 500], special, "model").unwrap_err();
    assert_eq!(
        problem.to_string(),
        "model/vocab.json: `<pad>` is token 1, but the model's `pad_id` is 3"
    );
    let problem = tokenizers.check([400, 400], SPECIAL, "model").unwrap_err();
    assert_eq!(
        problem.to_string(),
        "model/vocab.json: 496 tokens, but the model's vocabulary has 400"
    );
}

/// The directory of a model that Hugging Face's classes saved, with the results that they computed.
fn fixture(name: &str) -> (PathBuf, Value) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/pretrained");
    let directory = Path::new(folder).join(name);
    let expected = fs::read(directory.join("expected.json")).unwrap();
    (directory, serde_json::from_slice(&expected).unwrap())
}

fn ids(of: &Value) -> Vec<u32> {
    serde_json::from_value(of.clone()).unwrap()
}

#[test]
#[cfg_attr(packaged, ignore = "reads files of the repository")]
fn tokens_are_those_of_hugging_face() {
    for (name, eos) in [
        ("marian-en-fr", 0),
        ("marian-multi", 0),
        ("m2m100", 2),
        ("bart", 2),
    ] {
        let (directory, expected) = fixture(name);
        let tokenizers = Tokenizers::load(directory).unwrap();
        let sentences = expected.as_array().or(expected["sentences"].as_array());
        for sentence in sentences.unwrap() {
            let text = sentence["text"].as_str().unwrap();
            let tokens = tokenizers.encode_source(text).unwrap();
            let tokens = [&tokens[..], &[eos]].concat();
            // Hugging Face encodes a text that spells special tokens as these.
            match text.contains("</s>") {
                true => assert_ne!(tokens, ids(&sentence["ids"]), "{name}: {text:?}"),
                false => assert_eq!(tokens, ids(&sentence["ids"]), "{name}: {text:?}"),
            }
            for beam in ["beam1", "beam4"] {
                if let Some(text) = sentence[beam]["text"].as_str() {
                    let found = tokenizers.target().decode(&ids(&sentence[beam]["ids"]));
                    assert_eq!(found.unwrap(), text, "{name}");
                }
            }
        }
    }
}

/// The tokenizers of a case of `tests/fixtures/tokenizer-files` (`scripts/make-tokenizer-fixtures`), or their error.
fn load_case(case: &Value) -> Result<Tokenizers, TextError> {
    let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures"));
    let base = fixtures.join(case["base"].as_str().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let names = [
        SOURCE_PIECES_FILE,
        TARGET_PIECES_FILE,
        VOCABULARY_FILE,
        SHARED_PIECES_FILE,
        TOKENIZER_FILE,
    ];
    for name in names {
        if base.join(name).exists() {
            fs::copy(base.join(name), directory.path().join(name)).unwrap();
        }
    }
    for (name, content) in case["files"].as_object().unwrap() {
        fs::write(directory.path().join(name), content.to_string()).unwrap();
    }
    if let Some(changes) = case["tokenizer"].as_object() {
        let path = directory.path().join(TOKENIZER_FILE);
        let mut tokenizer: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for (key, value) in changes {
            tokenizer[key] = value.clone();
        }
        fs::write(path, tokenizer.to_string()).unwrap();
    }
    for (before, after) in case["rename"].as_object().into_iter().flatten() {
        let path = directory.path().join(TOKENIZER_FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace(before, after.as_str().unwrap())).unwrap();
    }
    let loaded = Tokenizers::load(&directory)?;
    // Saved tokenizers are read back unchanged.
    let again = Tokenizers::load(saved(&loaded))?;
    assert!(again.to_bytes()? == loaded.to_bytes()?, "{case}");
    Ok(again)
}

/// For each key of `tokenizer_config.json`: absent, null, and in conflict with another file.
#[test]
#[cfg_attr(packaged, ignore = "reads files of the repository")]
fn the_files_of_a_tokenizer_decide_as_in_hugging_faces_classes() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures");
    let path = Path::new(fixtures).join("tokenizer-files/expected.json");
    let cases: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let mut first: Option<&Value> = None;
    let mut problems = Vec::new();
    for case in cases.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let loaded = load_case(case);
        if case["refused"] == true {
            problems.extend(loaded.is_ok().then(|| format!("{name}: not refused")));
            continue;
        }
        let tokenizers = match loaded {
            Ok(tokenizers) => tokenizers,
            Err(error) => {
                problems.push(format!("{name}: {error}"));
                continue;
            }
        };
        let base = first
            .filter(|first| first["class"] == case["class"])
            .unwrap_or(case);
        first = Some(base);
        let special = SpecialTokens {
            eos: case["eos"].as_u64().unwrap() as u32,
            ..SpecialTokens::default()
        };
        let own = case["texts"].as_array().unwrap();
        let others = base["texts"].as_array().unwrap().iter();
        let others = others.filter(|text| own.iter().all(|own| own["text"] != text["text"]));
        let no_text: Vec<String> = serde_json::from_value(case["special"].clone()).unwrap();
        for text in own.iter().chain(others) {
            let sentence = text["text"].as_str().unwrap();
            if no_text.iter().any(|name| sentence.contains(name)) {
                // Hugging Face encodes a text that spells a special token as that token.
                continue;
            }
            let source = special.end_source(&tokenizers.encode_source(sentence).unwrap());
            if source != ids(&text["ids"]) {
                problems.push(format!(
                    "{name}: {sentence:?}: {source:?}, not {}",
                    text["ids"]
                ));
            }
            if let Some(expected) = text.get("target_ids") {
                let mut target = tokenizers.encode_target(sentence).unwrap();
                target.push(special.eos);
                if target != ids(expected) {
                    problems.push(format!("{name}: {sentence:?}: {target:?}, not {expected}"));
                }
            }
        }
        for decoded in case["decoded"].as_array().unwrap() {
            let text = tokenizers.target().decode(&ids(&decoded["ids"])).unwrap();
            if decoded["text"] != text {
                problems.push(format!(
                    "{name}: {}: {text:?}, not {}",
                    decoded["ids"], decoded["text"]
                ));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
