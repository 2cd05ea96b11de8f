//! Each kind of tokenizer: its vocabulary, the texts that are decoded to themselves, and repeatable training;
//! BPE dropout on text.

use std::collections::BTreeSet;
use std::fs;
use std::sync::LazyLock;

use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use transformer_core::TransformerConfig;
use transformer_core::decoding::SPECIAL_TOKENS;
use transformer_core::text::Tokenizer;
use transformer_train::data::{
    MAX_VOCAB_SIZE, MIN_VOCAB_SIZE, TokenizerConfig, TokenizerKind, train_bpe, train_tokenizer,
};

const TEXT: [&str; 6] = [
    "the cat sat on the mat",
    "the dog sat on the log",
    "the cat and the dog sat",
    "le chat était assis sur le tapis",
    "le chien était assis là",
    "t͡ʃ aː <eos>",
];

/// Every kind, with a vocabulary that is large enough for the text.
const KINDS: [(TokenizerKind, usize); 5] = [
    (TokenizerKind::Bpe, 280),
    (TokenizerKind::Unigram, 300),
    (TokenizerKind::Characters, 100),
    (TokenizerKind::Decomposed, 100),
    (TokenizerKind::Words, 100),
];

static TRAINED: LazyLock<[Tokenizer; 5]> =
    LazyLock::new(|| KINDS.map(|(kind, vocab_size)| train(kind, vocab_size, &TEXT)));

fn train(kind: TokenizerKind, vocab_size: usize, text: &[&str]) -> Tokenizer {
    let config = TokenizerConfig { kind, vocab_size };
    train_tokenizer(text.iter(), &config).unwrap()
}

fn trained(kind: TokenizerKind) -> &'static Tokenizer {
    let place = KINDS.iter().position(|&(other, _)| other == kind);
    &TRAINED[place.unwrap()]
}

fn round_trip(tokenizer: &Tokenizer, text: &str) -> String {
    tokenizer.decode(&tokenizer.encode(text).unwrap()).unwrap()
}

/// The file of a tokenizer, and the tokenizer that is read from it.
fn saved(tokenizer: &Tokenizer) -> (String, Tokenizer) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    tokenizer.to_file(&path).unwrap();
    let file = fs::read_to_string(&path).unwrap();
    (file, Tokenizer::from_file(&path).unwrap())
}

#[test]
fn special_tokens_have_the_first_ids_and_are_not_decoded() {
    for tokenizer in &*TRAINED {
        let names: Vec<String> = (0..4).map(|id| tokenizer.token(id)).collect();
        assert_eq!(names, SPECIAL_TOKENS);
        let mut tokens = vec![1];
        tokens.extend(tokenizer.encode("the cat").unwrap());
        tokens.extend([2, 0, 0]);
        assert_eq!(tokenizer.decode(&tokens).unwrap(), "the cat");
    }
}

#[test]
fn every_token_has_an_id_below_the_size_of_the_vocabulary() {
    let sizes = TRAINED.each_ref().map(Tokenizer::vocab_size);
    let characters: BTreeSet<char> = TEXT.iter().flat_map(|text| text.chars()).collect();
    let words: BTreeSet<&str> = TEXT.iter().flat_map(|text| text.split(' ')).collect();
    assert_eq!(sizes[2], SPECIAL_TOKENS.len() + characters.len());
    assert_eq!(sizes[4], SPECIAL_TOKENS.len() + words.len());
    for ((kind, asked), tokenizer) in KINDS.into_iter().zip(&*TRAINED) {
        assert!(tokenizer.vocab_size() <= asked, "{kind:?}");
        for text in TEXT {
            let highest = tokenizer.encode(text).unwrap().into_iter().max().unwrap();
            assert!((highest as usize) < tokenizer.vocab_size(), "{kind:?}");
        }
    }
}

/// Sentences may be borrowed or owned, and come in any order.
#[test]
fn training_again_gives_the_same_file() {
    for ((kind, vocab_size), first) in KINDS.into_iter().zip(&*TRAINED) {
        let config = TokenizerConfig { kind, vocab_size };
        let again = train_tokenizer(TEXT.into_iter().rev().map(String::from), &config);
        assert!(saved(first).0 == saved(&again.unwrap()).0, "{kind:?}");
    }
    let bpe = train_bpe(TEXT.into_iter(), 280).unwrap();
    assert_eq!(saved(&bpe).0, saved(trained(TokenizerKind::Bpe)).0);
}

#[test]
fn typed_special_tokens_are_text() {
    for ((kind, _), tokenizer) in KINDS.into_iter().zip(&*TRAINED) {
        for text in ["<eos>", "<bos><pad>", "the <eos> cat", "<unk>", "<0x41>"] {
            let tokens = tokenizer.encode(text).unwrap();
            assert!(tokens.iter().all(|&token| token > 2), "{kind:?} {text}");
        }
        // All kinds have seen its characters, and the word.
        for text in ["<eos>", "the <eos> cat"] {
            let tokens = tokenizer.encode(text).unwrap();
            assert!(tokens.iter().all(|&token| token > 3), "{kind:?} {text}");
            assert_eq!(tokenizer.decode(&tokens).unwrap(), text, "{kind:?}");
        }
    }
}

#[test]
fn a_word_of_a_unigram_model_is_the_same_piece_anywhere_in_a_sentence() {
    let tokenizer = trained(TokenizerKind::Unigram);
    let the = tokenizer.encode("the").unwrap();
    assert_eq!(the.len(), 1);
    assert_eq!(tokenizer.token(the[0]), "the");
    assert_eq!(tokenizer.encode("the the").unwrap(), [the[0], the[0]]);
    // A piece is letters, digits or other characters.
    assert_eq!(tokenizer.encode("the,").unwrap()[0], the[0]);
}

#[test]
fn unseen_characters_of_a_unigram_model_are_bytes() {
    let tokenizer = trained(TokenizerKind::Unigram);
    let tokens = tokenizer.encode("the 漢").unwrap();
    let names: Vec<String> = tokens.iter().map(|&token| tokenizer.token(token)).collect();
    assert_eq!(names, ["the", " ", "<0xE6>", "<0xBC>", "<0xA2>"]);
    assert_eq!(tokenizer.decode(&tokens).unwrap(), "the 漢");
    // The smallest vocabulary has nothing else.
    let bytes = train(TokenizerKind::Unigram, MIN_VOCAB_SIZE, &TEXT);
    assert_eq!(bytes.vocab_size(), MIN_VOCAB_SIZE);
    assert_eq!(bytes.encode("aé").unwrap().len(), " aé".len());
    assert_eq!(round_trip(&bytes, "aé"), "aé");
}

/// The trainer of the crate `tokenizers` takes it for its own unknown token, and panics.
#[test]
fn a_text_that_names_the_unknown_token_of_other_trainers_is_text() {
    let text = ["a <UNK> b <UNK> <unk>"; 5];
    let tokenizer = train(TokenizerKind::Unigram, 300, &text);
    assert_eq!(round_trip(&tokenizer, text[0]), text[0]);
}

#[test]
fn unseen_characters_and_words_are_unknown_and_decoded_to_nothing() {
    let characters = trained(TokenizerKind::Characters);
    assert_eq!(characters.encode("c漢t").unwrap()[1], 3);
    assert_eq!(round_trip(characters, "c漢t"), "ct");
    let words = trained(TokenizerKind::Words);
    assert_eq!(words.encode("the bird sat").unwrap()[1], 3);
    assert_eq!(round_trip(words, "the bird sat"), "the sat");
}

#[test]
fn words_are_what_white_space_separates() {
    let words = trained(TokenizerKind::Words);
    assert_eq!(words.encode("t͡ʃ aː").unwrap().len(), 2);
    assert_eq!(round_trip(words, "t͡ʃ aː"), "t͡ʃ aː");
    assert_eq!(round_trip(words, " \tthe  cat\u{a0}sat\n"), "the cat sat");
    assert!(words.encode(" \n").unwrap().is_empty());
    // A word is shown without the space that its entry begins with.
    let the = words.encode("the").unwrap();
    assert_eq!(words.token(the[0]), "the");
}

#[test]
fn decomposed_characters_are_letters_and_their_marks() {
    let tokenizer = trained(TokenizerKind::Decomposed);
    let [composed, decomposed] = ["é", "e\u{301}"].map(|text| tokenizer.encode(text).unwrap());
    assert_eq!(composed, decomposed);
    assert_eq!(composed.len(), 2);
    assert_eq!(tokenizer.decode(&composed).unwrap(), "e\u{301}");
    // The three letters of 한 and the two of 가 make the unseen 간.
    let korean = train(TokenizerKind::Decomposed, 100, &["한", "가"]);
    let tokens = korean.encode("간").unwrap();
    assert_eq!(tokens.len(), 3);
    assert!(!tokens.contains(&3));
}

#[test]
fn the_most_frequent_characters_and_words_are_kept() {
    let words = train(TokenizerKind::Words, 6, &["b b a c a b", "d c"]);
    assert_eq!(words.vocab_size(), 6);
    let kept = [4, 5].map(|token| words.token(token));
    // `a` and `c` are as frequent: the first in the order of the text's characters stays.
    assert_eq!(kept, ["b", "a"]);
    let characters = train(TokenizerKind::Characters, 5, &["xyx"]);
    assert_eq!(characters.encode("xyx").unwrap(), [4, 3, 4]);
}

/// The library's trainer of BPE would allocate it, and panic.
#[test]
fn a_vocabulary_that_no_tokenizer_has_is_refused() {
    for (kind, _) in KINDS {
        for vocab_size in [MAX_VOCAB_SIZE + 1, usize::MAX] {
            let config = TokenizerConfig { kind, vocab_size };
            let error = train_tokenizer(TEXT.into_iter(), &config).unwrap_err();
            let expected =
                format!("vocab_size {vocab_size} is too large: a tokenizer has at most 1048576");
            assert_eq!(error.to_string(), expected);
        }
    }
    assert!(train_bpe(TEXT.into_iter(), usize::MAX).is_err());
    TransformerConfig::base(MAX_VOCAB_SIZE).validate().unwrap();
}

#[test]
fn a_vocabulary_that_is_too_small_is_refused() {
    let error = |kind, vocab_size| {
        let config = TokenizerConfig { kind, vocab_size };
        let trained = train_tokenizer(TEXT.into_iter(), &config);
        trained.unwrap_err().to_string()
    };
    for kind in [TokenizerKind::Bpe, TokenizerKind::Unigram] {
        assert_eq!(
            error(kind, 259),
            "vocab_size 259 is too small: the special tokens and the 256 bytes need 260"
        );
    }
    for kind in [
        TokenizerKind::Characters,
        TokenizerKind::Decomposed,
        TokenizerKind::Words,
    ] {
        assert_eq!(
            error(kind, 4),
            "vocab_size 4 is too small: the special tokens and one token of text need 5"
        );
    }
}

#[test]
fn kinds_are_named_in_lower_case() {
    let read: TokenizerConfig = serde_json::from_str(r#"{"kind": "unigram"}"#).unwrap();
    let expected = TokenizerConfig {
        kind: TokenizerKind::Unigram,
        ..TokenizerConfig::default()
    };
    assert_eq!(read, expected);
    let names = KINDS.map(|(kind, _)| serde_json::to_value(kind).unwrap());
    let expected = ["bpe", "unigram", "characters", "decomposed", "words"];
    assert_eq!(names, expected.map(serde_json::Value::from));
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::collection::vec(any::<char>(), 0..40).prop_map(String::from_iter),
        "[ \t\r\n\u{a0}<>a-eé'0-9.▁Ġ漢]{0,40}",
        "( |<eos>|<pad>|<bos>|<unk>|<0x41>|the|s){0,10}",
    ]
}

/// Text of the characters of the training text.
fn seen_text() -> impl Strategy<Value = String> {
    let characters: Vec<char> = TEXT.iter().flat_map(|text| text.chars()).collect();
    prop::collection::vec(prop::sample::select(characters), 0..40).prop_map(String::from_iter)
}

/// Words of the training text, with single spaces between them.
fn seen_words() -> impl Strategy<Value = String> {
    let words: Vec<&str> = TEXT.iter().flat_map(|text| text.split(' ')).collect();
    prop::collection::vec(prop::sample::select(words), 0..20).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn every_text_is_decoded_to_itself_by_pieces(text in any_text()) {
        for kind in [TokenizerKind::Bpe, TokenizerKind::Unigram] {
            prop_assert_eq!(&round_trip(trained(kind), &text), &text);
        }
    }

    #[test]
    fn text_of_seen_characters_is_decoded_to_itself(text in seen_text()) {
        prop_assert_eq!(&round_trip(trained(TokenizerKind::Characters), &text), &text);
    }

    /// Decomposed text is not decomposed further.
    #[test]
    fn decomposed_text_is_decoded_to_itself(text in seen_text()) {
        let tokenizer = trained(TokenizerKind::Decomposed);
        let decomposed = round_trip(tokenizer, &text);
        prop_assert_eq!(&round_trip(tokenizer, &decomposed), &decomposed);
    }

    #[test]
    fn seen_words_are_decoded_to_themselves(text in seen_words()) {
        prop_assert_eq!(&round_trip(trained(TokenizerKind::Words), &text), &text);
    }

    #[test]
    fn a_tokenizer_that_is_read_from_its_file_is_the_same(text in any_text()) {
        static READ: LazyLock<[Tokenizer; 5]> =
            LazyLock::new(|| TRAINED.each_ref().map(|tokenizer| saved(tokenizer).1));
        for (read, trained) in READ.iter().zip(&*TRAINED) {
            let tokens = trained.encode(&text).unwrap();
            prop_assert_eq!(&read.encode(&text).unwrap(), &tokens);
            prop_assert_eq!(read.decode(&tokens).unwrap(), trained.decode(&tokens).unwrap());
        }
    }

    #[test]
    fn every_text_survives_the_dropout_of_merges(
        text in any_text(),
        dropout in 0.0..=1.0,
        seed: u64,
    ) {
        let tokenizer = trained(TokenizerKind::Bpe);
        let drawn = |dropout| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            tokenizer.encode_with_dropout(&text, dropout, &mut rng).unwrap()
        };
        let tokens = drawn(dropout);
        prop_assert_eq!(&tokenizer.decode(&tokens).unwrap(), &text);
        prop_assert_eq!(&drawn(dropout), &tokens);
        prop_assert_eq!(drawn(0.0), tokenizer.encode(&text).unwrap());
        // A byte each, and one for the space before the text.
        let bytes = match text.len() {
            0 => 0,
            length => length + 1,
        };
        prop_assert_eq!(drawn(1.0).len(), bytes);
        prop_assert!(tokens.len() <= bytes);
    }
}

/// Another draw cuts the text otherwise, and a tokenizer from a file draws the same.
#[test]
fn draws_differ_and_are_the_same_after_loading() {
    let tokenizer = trained(TokenizerKind::Bpe);
    let read = saved(tokenizer).1;
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut rng_of_read = rng.clone();
    let mut ways = BTreeSet::new();
    for _ in 0..50 {
        let drawn = tokenizer
            .encode_with_dropout(TEXT[0], 0.3, &mut rng)
            .unwrap();
        let by_read = read
            .encode_with_dropout(TEXT[0], 0.3, &mut rng_of_read)
            .unwrap();
        assert_eq!(drawn, by_read);
        ways.insert(drawn);
    }
    assert!(ways.len() > 10, "{}", ways.len());
}

#[test]
fn only_the_merges_of_bpe_are_dropped() {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    for ((kind, _), tokenizer) in KINDS.into_iter().zip(&*TRAINED).skip(1) {
        let error = tokenizer.encode_with_dropout("the cat", 0.1, &mut rng);
        let error = error.unwrap_err().to_string();
        let model = match kind {
            TokenizerKind::Unigram => "Unigram",
            _ => "WordLevel",
        };
        assert_eq!(
            error,
            format!("dropout is for BPE tokenizers; this one is {model}")
        );
    }
}
