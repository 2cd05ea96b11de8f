//! Removes spaces of tokenized English from decoded text, like Hugging Face's `clean_up_tokenization_spaces`.

/// Replacements, applied one after another.
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

/// Number of characters at the end of a cleaned text that text after it may change: a rule has four, and an earlier
/// rule may have removed two more.
pub(super) const UNSETTLED: usize = 6;

/// Removes spaces before punctuation and English endings.
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

    /// As computed by `PreTrainedTokenizerBase.clean_up_tokenization` of transformers 4.57.
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
