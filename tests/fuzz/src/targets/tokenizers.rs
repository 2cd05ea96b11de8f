//! Tokenizers, which then encode and decode.

use std::path::{Path, PathBuf};

use transformer_core::Tokenizers;
use transformer_core::formats::{
    MERGES_FILE, SOURCE_PIECES_FILE, TARGET_PIECES_FILE, TOKENIZER_FILE, TOKENIZER_SETTINGS_FILE,
    VOCABULARY_FILE,
};
use transformer_core::text::Tokenizer;
use transformer_train::data::{TokenizerConfig, TokenizerKind, train_tokenizer};

use super::{Target, fixture, read, write};
use crate::mutate::Format;

/// Texts to encode: spaces, marks, letters of several scripts, special tokens, nothing.
const TEXTS: [&str; 8] = [
    "",
    "the cat, the dog",
    "  two  spaces\t and a tab ",
    "été e\u{301}té",
    "日本語 한국어 \u{1f600}",
    "<unk></s><pad>>>fra<<",
    "\u{feff}\0\u{200d}\u{ffff}",
    "\u{2581}aaaaaaaaaaaaaaaa",
];

/// Encodes and decodes with a tokenizer that was read.
fn used(tokenizer: &Tokenizer) {
    for text in TEXTS {
        if let Ok(tokens) = tokenizer.encode(text) {
            let size = tokenizer.vocab_size();
            assert!(tokens.iter().all(|&token| (token as usize) < size));
            let _ = tokenizer.decode(&tokens);
        }
    }
    let _ = tokenizer.decode(&[0, 1, 2, 3, 255, u32::MAX, 7]);
    let _ = tokenizer.to_json();
    let _ = tokenizer.languages();
    let _ = tokenizer.check_dropout();
}

/// The same with the tokenizers of a directory; whether there are any.
fn of_directory(folder: &Path) -> bool {
    let Ok(tokenizers) = Tokenizers::load(folder) else {
        return false;
    };
    used(tokenizers.source());
    used(tokenizers.target());
    for text in TEXTS {
        let _ = tokenizers.encode_source(text);
        let _ = tokenizers.encode_target(text);
    }
    true
}

fn directory(folder: &Path, format: Format, path: PathBuf, seeds: Vec<Vec<u8>>) -> Target {
    let folder = folder.to_owned();
    Target {
        format,
        seeds,
        run: Box::new(move |input| {
            write(&path, input);
            of_directory(&folder)
        }),
    }
}

/// `tokenizer.json`, of each kind that we train, and of pretrained models.
pub fn json(folder: &Path) -> Target {
    let kinds = [
        (TokenizerKind::Bpe, 270),
        (TokenizerKind::Unigram, 270),
        (TokenizerKind::Characters, 30),
        (TokenizerKind::Decomposed, 30),
        (TokenizerKind::Words, 20),
    ];
    let trained = kinds.map(|(kind, vocab_size)| {
        let config = TokenizerConfig { kind, vocab_size };
        let texts = ["the cat and the dog", "été", "a cat"];
        let tokenizer = train_tokenizer(texts.into_iter(), &config).expect("a tokenizer");
        tokenizer.to_json().expect("its file").into_bytes()
    });
    let mut seeds = trained.to_vec();
    seeds.extend([LANGUAGES, PIECES, MERGES, WORD_PARTS].map(Vec::from));
    // With the rules of a normalizer.
    let rules = base64::encode(rules());
    let map = format!(r#"{{"type": "Precompiled", "precompiled_charsmap": "{rules}"}}"#);
    let prepend = r#"{"type": "Prepend", "prepend": "▁"}"#;
    seeds.push(PIECES.replace(prepend, &map).into_bytes());
    let path = folder.join(TOKENIZER_FILE);
    directory(folder, Format::Json, path, seeds)
}

/// SentencePiece models, unigram and BPE, with and without bytes and rules.
pub fn pieces(folder: &Path) -> Target {
    let seeds = vec![
        piece_model(1, false, false),
        piece_model(2, false, true),
        piece_model(1, true, true),
        piece_model(2, true, false),
    ];
    write(&folder.join(TARGET_PIECES_FILE), &seeds[0]);
    write(&folder.join(VOCABULARY_FILE), VOCABULARY.as_bytes());
    let path = folder.join(SOURCE_PIECES_FILE);
    directory(folder, Format::Bytes, path, seeds)
}

/// Marian's `vocab.json`.
pub fn vocabulary(folder: &Path) -> Target {
    for name in [SOURCE_PIECES_FILE, TARGET_PIECES_FILE] {
        write(&folder.join(name), &piece_model(1, false, true));
    }
    let path = folder.join(VOCABULARY_FILE);
    directory(folder, Format::Json, path, vec![VOCABULARY.into()])
}

/// GPT-2's `merges.txt`.
pub fn merges(folder: &Path) -> Target {
    let of_gpt2 = fixture("pretrained/gpt2-sharded");
    write(
        &folder.join(VOCABULARY_FILE),
        &read(&of_gpt2.join(VOCABULARY_FILE)),
    );
    let seeds = vec![
        read(&of_gpt2.join(MERGES_FILE)),
        b"#version: 0.2\na b\n".to_vec(),
    ];
    directory(folder, Format::Bytes, folder.join(MERGES_FILE), seeds)
}

/// `tokenizer_config.json`, beside a tokenizer that knows languages.
pub fn settings(folder: &Path) -> Target {
    write(&folder.join(TOKENIZER_FILE), LANGUAGES.as_bytes());
    let class = r#"{"tokenizer_class": "NllbTokenizer", "src_lang": "eng_Latn", "target_prefix": "fra_Latn",
        "source_prefix": null, "legacy_behaviour": false, "add_prefix_space": true}"#;
    let added = r#"{"added_tokens_decoder": {"7": {"content": "a b", "lstrip": true, "single_word": true},
        "8": {"content": "b", "rstrip": true, "normalized": true, "special": false}},
        "additional_special_tokens": ["b"], "extra_special_tokens": {"x": "a"}, "mask_token": {"content": "c"},
        "clean_up_tokenization_spaces": true, "split_special_tokens": null, "tokenizer_file": "tokenizer.json"}"#;
    let path = folder.join(TOKENIZER_SETTINGS_FILE);
    directory(
        folder,
        Format::Json,
        path,
        vec![b"{}".to_vec(), class.into(), added.into()],
    )
}

/// A tokenizer of words with a template that has a language, as NLLB's.
const LANGUAGES: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
        {"id": 2, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": 4, "content": "eng_Latn", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": 5, "content": "fra_Latn", "single_word": false, "lstrip": true, "rstrip": false, "normalized": false, "special": true}
    ],
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "  "}, "content": " "},
        {"type": "Replace", "pattern": {"Regex": "[0-9]+"}, "content": "0"},
        {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": true, "strip_right": true}
    ]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}, {"type": "Digits", "individual_digits": true}
    ]},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "eng_Latn", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            "eng_Latn": {"id": "eng_Latn", "ids": [4], "tokens": ["eng_Latn"]},
            "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}
        }
    },
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "WordLevel", "vocab": {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "eng_Latn": 4, "fra_Latn": 5, "the": 6, "cat": 7, ",": 8}, "unk_token": "<unk>"}
}"#;

/// A unigram model, as mBART's.
const PIECES: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": {"type": "Prepend", "prepend": "▁"},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
    "post_processor": null,
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
        "vocab": [["<unk>", 0.0], ["</s>", 0.0], ["▁", -2.5], ["▁the", -3.0], ["a", -1.5], ["t", -4.0], ["▁a", -2.0], ["aa", -3.5]]}
}"#;

/// A BPE, as BART's.
const MERGES: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": null,
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\s?\\p{L}+|\\s+"}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}
    ]},
    "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0], "trim_offsets": true, "add_prefix_space": true},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": false,
        "byte_fallback": false, "vocab": {"<s>": 0, "</s>": 1, "t": 2, "h": 3, "e": 4, "a": 5, "Ġ": 6, "th": 7, "the": 8, "Ġthe": 9},
        "merges": ["t h", "th e", "Ġ the"]}
}"#;

/// A WordPiece, as BERT's, with parts that the others lack.
const WORD_PARTS: &str = r###"{
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Nmt"}, {"type": "Prepend", "prepend": " "}
    ]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "BertPreTokenizer"}, {"type": "CharDelimiterSplit", "delimiter": "_"}, {"type": "UnicodeScripts"},
        {"type": "FixedLength", "length": 5}, {"type": "Whitespace"}
    ]},
    "post_processor": {"type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0]},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "BPEDecoder", "suffix": "</w>"}, {"type": "ByteFallback"},
        {"type": "WordPiece", "prefix": "##", "cleanup": true},
        {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": true}
    ]},
    "model": {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        "vocab": {"<s>": 0, "</s>": 1, "<unk>": 2, "the": 3, "cat": 4, "##s": 5, ",": 6, "a": 7, "##a": 8}}
}"###;

const VOCABULARY: &str = r#"{"</s>": 0, "<unk>": 1, "a": 2, "▁": 3, "▁the": 4, "th": 5, "▁a": 6, ">>fra<<": 7, "é": 8, "<pad>": 9}"#;

/// A SentencePiece model of the algorithm 1, unigram, or 2, BPE: a message of protocol buffers.
fn piece_model(algorithm: u8, has_bytes: bool, has_rules: bool) -> Vec<u8> {
    let mut model = Vec::new();
    let texts = [
        "t", "h", "e", "a", "▁", "▁t", "th", "he", "▁the", "é", "aa", "aaaa",
    ];
    let mut pieces = vec![
        ("<unk>".to_owned(), 2),
        ("</s>".to_owned(), 3),
        ("<x>".to_owned(), 4),
    ];
    pieces.extend(texts.map(|text| (text.to_owned(), 1)));
    pieces.push(("un".to_owned(), 5));
    if has_bytes {
        pieces.extend((0..=255).map(|byte| (format!("<0x{byte:02X}>"), 6)));
    }
    for (at, (text, kind)) in pieces.iter().enumerate() {
        let mut piece = Vec::new();
        bytes(&mut piece, 1, text.as_bytes());
        piece.push((2 << 3) | 5);
        piece.extend((-(at as f32)).to_le_bytes());
        integer(&mut piece, 3, *kind);
        bytes(&mut model, 1, &piece);
    }
    let mut trainer = Vec::new();
    integer(&mut trainer, 3, u64::from(algorithm));
    integer(&mut trainer, 35, u64::from(has_bytes));
    bytes(&mut model, 2, &trainer);
    let mut normalizer = Vec::new();
    if has_rules {
        bytes(&mut normalizer, 2, &rules());
    }
    integer(&mut normalizer, 3, 1);
    bytes(&mut model, 3, &normalizer);
    model
}

/// Rules of a normalizer: a tab becomes a space, `q` two letters. A double array, as SentencePiece has it.
fn rules() -> Vec<u8> {
    // The root's child by a byte is at 256 ^ byte, and the end of its text at 512 ^ byte.
    let mut units: Vec<u32> = (0..1024)
        .map(|at: u32| (256 << 10) | (!at & 0xff))
        .collect();
    units[0] = 256 << 10;
    let mut replacements = Vec::new();
    for (byte, replacement) in [(b'\t', " "), (b'q', "th")] {
        let [node, end] = [256, 512].map(|base| base ^ usize::from(byte));
        units[node] = (((node ^ end) as u32) << 10) | 0x100 | u32::from(byte);
        units[end] = 0x8000_0000 | replacements.len() as u32;
        replacements.extend(replacement.as_bytes());
        replacements.push(0);
    }
    let mut rules = (4 * units.len() as u32).to_le_bytes().to_vec();
    rules.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    rules.extend(replacements);
    rules
}

/// Appends an integer in seven bits for each byte.
fn varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

fn integer(message: &mut Vec<u8>, field: u64, number: u64) {
    varint(message, field << 3);
    varint(message, number);
}

fn bytes(message: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(message, (field << 3) | 2);
    varint(message, value.len() as u64);
    message.extend(value);
}
