//! Byte-pair encoding (§5.1): one vocabulary of pieces shared by source and target.
//!
//! The alphabet is the 256 bytes, so every string has an encoding and nothing is out of vocabulary. Encoding
//! prepends a space to each sentence and decoding removes it, so that a word has the same pieces at the start of a
//! sentence and inside one, and `decode(encode(x)) == x` for every string.

use tokenizers::decoders::{sequence::Sequence, strip::Strip};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::Prepend;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use transformer_core::text::Tokenizer;

use crate::data::tokenizers::tokenizer::{
    TokenizerConfig, TokenizerError, TokenizerKind, special_tokens,
};

/// A pair that occurs once is not merged: the merge would only memorize its word.
const MIN_MERGE_COUNT: u64 = 2;

/// Trains a byte-level BPE of at most `vocab_size` pieces,
/// [`SPECIAL_TOKENS`](transformer_core::decoding::SPECIAL_TOKENS) included.
///
/// Train it on both sides of the corpus. Merging ends early when no pair of pieces occurs twice. The same
/// sentences and size give the same tokenizer, byte for byte.
///
/// Longer runs than 1000 characters without white space, or of white space alone, are split: the time to process a word
/// grows with the square of its length.
///
/// Encoding does not add `<bos>` or `<eos>`: batches add them. Text that spells a special token is encoded as
/// text.
///
/// # Errors
/// [`TokenizerError::VocabTooSmall`] when `vocab_size` is below [`MIN_VOCAB_SIZE`](crate::data::MIN_VOCAB_SIZE),
/// [`TokenizerError::VocabTooLarge`] when it is above [`MAX_VOCAB_SIZE`](crate::data::MAX_VOCAB_SIZE),
/// [`TokenizerError::Training`] when the `tokenizers` library fails.
pub fn train_bpe<S: AsRef<str> + Send>(
    sentences: impl Iterator<Item = S> + Send,
    vocab_size: usize,
) -> Result<Tokenizer, TokenizerError> {
    trained(sentences, vocab_size).map(Tokenizer::from)
}

fn trained<S: AsRef<str> + Send>(
    sentences: impl Iterator<Item = S> + Send,
    vocab_size: usize,
) -> Result<tokenizers::Tokenizer, TokenizerError> {
    let kind = TokenizerKind::Bpe;
    TokenizerConfig { kind, vocab_size }.validate()?;
    let mut trainer = TrainerWrapper::from(
        BpeTrainer::builder()
            .show_progress(false)
            .vocab_size(vocab_size)
            .min_frequency(MIN_MERGE_COUNT)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .special_tokens(special_tokens())
            .build(),
    );
    let mut tokenizer = untrained();
    tokenizer
        .train(
            &mut trainer,
            sentences.flat_map(|sentence| cut(sentence.as_ref())),
        )
        .map_err(TokenizerError::Training)?;
    tokenizer.set_encode_special_tokens(true);
    Ok(tokenizer)
}

/// Maximum characters of a word.
const MAX_WORD: usize = 1000;

/// Splits a sentence into parts without over-long words. White space and other characters are never in one word of the
/// pre-tokenizer, except for a leading space.
fn cut(sentence: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut is_space, mut len) = (false, 0);
    for character in sentence.chars() {
        let next = character.is_whitespace();
        len = if next == is_space { len + 1 } else { 1 };
        is_space = next;
        if len > MAX_WORD {
            parts.push(String::new());
            len = 1;
        }
        let part = parts.last_mut().expect("a part");
        part.push(character);
    }
    parts
}

fn untrained() -> tokenizers::Tokenizer {
    // `ByteLevel::add_prefix_space` does not add a space to a sentence that begins with one, so that decoding
    // could not know whether to remove it. The normalizer always adds one.
    let bytes = ByteLevel::new(false, false, true);
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
    tokenizer
        .with_normalizer(Some(Prepend::new(" ".into())))
        .with_pre_tokenizer(Some(bytes))
        .with_decoder(Some(Sequence::new(vec![
            bytes.into(),
            Strip::new(' ', 1, 0).into(),
        ])));
    tokenizer
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use tokenizers::Tokenizer;

    use transformer_core::decoding::SPECIAL_TOKENS;

    use super::{MAX_WORD, cut, trained};
    use crate::data::MIN_VOCAB_SIZE;

    const TEXT: [&str; 5] = [
        "the cat sat on the mat",
        "the dog sat on the log",
        "the cat and the dog sat",
        "le chat était assis sur le tapis",
        "le chien était assis là",
    ];

    static TOKENIZER: LazyLock<Tokenizer> =
        LazyLock::new(|| trained(TEXT.into_iter(), 280).unwrap());

    #[test]
    fn long_words_are_cut_and_sentences_of_others_are_whole() {
        let [letters, spaces] = ["é", " "].map(|character| character.repeat(MAX_WORD));
        // Numbers to the pre-tokenizer, though one is alphabetic.
        let numbers = "Ⅷ1".repeat(MAX_WORD / 2);
        let whole = format!("{letters}{spaces}{numbers} {letters}");
        assert_eq!(cut(&whole), [&*whole]);
        assert_eq!(cut(&format!("{whole}!")), [&*whole, "!"]);
        assert_eq!(cut(""), [""]);
        let long = format!("a {letters}bc{spaces} d");
        assert_eq!(
            cut(&long),
            [
                format!("a {letters}"),
                format!("bc{spaces}"),
                " d".to_owned()
            ]
        );
    }

    fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
        tokenizer.encode(text, true).unwrap().get_ids().to_vec()
    }

    fn round_trip(tokenizer: &Tokenizer, text: &str) -> String {
        tokenizer.decode(&encode(tokenizer, text), true).unwrap()
    }

    fn reloaded(tokenizer: &Tokenizer) -> Tokenizer {
        Tokenizer::from_str(&tokenizer.to_string(false).unwrap()).unwrap()
    }

    #[test]
    fn special_tokens_have_the_first_ids() {
        for (id, token) in SPECIAL_TOKENS.iter().enumerate() {
            assert_eq!(TOKENIZER.token_to_id(token), Some(id as u32));
        }
    }

    #[test]
    fn special_tokens_are_skipped_when_decoding() {
        let mut ids = vec![1];
        ids.extend(encode(&TOKENIZER, "the cat"));
        ids.extend([2, 0, 0]);
        assert_eq!(TOKENIZER.decode(&ids, true).unwrap(), "the cat");
    }

    #[test]
    fn vocabulary_is_as_large_as_asked_unless_merges_run_out() {
        assert_eq!(TOKENIZER.get_vocab_size(true), 280);
        let smallest = trained(TEXT.into_iter(), MIN_VOCAB_SIZE).unwrap();
        assert_eq!(smallest.get_vocab_size(true), MIN_VOCAB_SIZE);
        let exhausted = trained(TEXT.into_iter(), 8000).unwrap();
        assert_eq!(exhausted.get_vocab_size(true), 287);
    }

    #[test]
    fn vocabulary_that_cannot_hold_the_bytes_is_refused() {
        let error = trained(TEXT.into_iter(), 259).unwrap_err().to_string();
        assert!(error.contains("259") && error.contains("260"), "{error}");
    }

    #[test]
    fn word_is_the_same_piece_anywhere_in_a_sentence() {
        let the = TOKENIZER.token_to_id("Ġthe").unwrap();
        assert_eq!(encode(&TOKENIZER, "the"), [the]);
        assert_eq!(encode(&TOKENIZER, "the the"), [the, the]);
    }

    #[test]
    fn training_twice_gives_the_same_file() {
        let again = trained(TEXT.into_iter(), 280).unwrap();
        assert_eq!(
            TOKENIZER.to_string(true).unwrap(),
            again.to_string(true).unwrap()
        );
    }

    #[test]
    fn typed_special_token_is_text() {
        for text in ["<eos>", "<pad>", " <unk> ", "the cat<eos>", "<bos><bos>"] {
            assert!(encode(&TOKENIZER, text).iter().all(|&id| id > 3), "{text}");
            assert_eq!(round_trip(&TOKENIZER, text), text);
        }
    }

    #[test]
    fn loaded_tokenizer_reads_typed_special_tokens_as_text_when_set_to() {
        let mut loaded = reloaded(&TOKENIZER);
        assert_eq!(encode(&loaded, "<eos>"), [2]);
        loaded.set_encode_special_tokens(true);
        assert_eq!(encode(&loaded, "<eos>"), encode(&TOKENIZER, "<eos>"));
    }

    #[test]
    fn spaces_survive_the_round_trip() {
        for text in ["", " ", "  ", "\n", " a", "a ", "a  b", "\ta\r\n b\u{a0}"] {
            assert_eq!(round_trip(&TOKENIZER, text), text, "{text:?}");
        }
    }

    #[test]
    fn spaces_beyond_the_limits_of_the_regex_survive_the_round_trip() {
        let text = format!("a{}b", " ".repeat(1_200_000));
        assert!(round_trip(&TOKENIZER, &text) == text);
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![
            prop::collection::vec(any::<char>(), 0..40).prop_map(String::from_iter),
            "[ \t\r\n\u{a0}<>a-eé'0-9.]{0,40}",
            "( |<eos>|<pad>|<bos>|<unk>|the|s){0,10}",
        ]
    }

    proptest! {
        #[test]
        fn any_string_survives_the_round_trip(text in any_text()) {
            prop_assert_eq!(round_trip(&TOKENIZER, &text), text);
        }

        #[test]
        fn any_string_survives_saving_and_loading(text in any_text()) {
            let mut loaded = reloaded(&TOKENIZER);
            loaded.set_encode_special_tokens(true);
            prop_assert_eq!(encode(&loaded, &text), encode(&TOKENIZER, &text));
        }
    }
}
