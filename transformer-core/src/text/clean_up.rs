//! Spaces of tokenized English that decoded text is freed from, as by Hugging Face's `clean_up_tokenization_spaces`.

/// What is replaced, in this order, each in the text that the one before leaves.
const RULES: [(&str, &str); 10] = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

/// The last characters of a cleaned text that text behind it may change: a rule has four, and one before it may have
/// removed two more.
pub(super) const UNSETTLED: usize = 6;

/// The text without spaces before punctuation and before English endings.
pub(super) fn clean_up(text: &str) -> String {
    let text = text.to_owned();
    RULES
        .iter()
        .fold(text, |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As `PreTrainedTokenizerBase.clean_up_tokenization` of transformers 4.57 gives them.
    #[test]
    fn texts_are_those_of_hugging_face() {
        for (text, expected) in [
            ("Reste !", "Reste!"),
            ("a . b ? c ! d , e", "a. b? c! d, e"),
            (
                "do n't , I 'm , he 's , we 've , you 're",
                "don't, I'm, he's, we've, you're",
            ),
            ("d ' un", "d'un"),
            ("a  . b", "a . b"),
            ("a  ' s", "a's"),
            ("« oui » ; non : si", "« oui » ; non : si"),
            ("", ""),
        ] {
            assert_eq!(clean_up(text), expected, "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn text_behind_a_text_changes_its_last_characters_only(
            start in "[ .,'nmtsver]{0,14}",
            end in "[ .,'nmtsver]{0,8}",
        ) {
            let settled = clean_up(&start);
            let count = settled.chars().count().saturating_sub(UNSETTLED);
            let settled: String = settled.chars().take(count).collect();
            let whole = clean_up(&(start + &end));
            prop_assert!(whole.starts_with(&settled), "{settled:?} {whole:?}");
        }
    }
}
