//! Language tokens: `eng_Latn` (NLLB), `__en__` (M2M100), `en_XX` (mBART), `>>fra<<` (Marian), `<2fr>` (MADLAD-400).

/// The language of a language token, without the marks around it: `en` for `__en__`.
pub(super) fn language(token: &str) -> Option<&str> {
    if let Some(language) = token.strip_prefix(">>") {
        return language.strip_suffix("<<").filter(|name| !name.is_empty());
    }
    if let Some(language) = token.strip_prefix("<2") {
        let language = language.strip_suffix('>')?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        return (!language.is_empty() && language.bytes().all(is_name)).then_some(language);
    }
    if let Some(language) = token.strip_prefix("__") {
        let language = language.strip_suffix("__")?;
        return is_lower(language, 2..=3).then_some(language);
    }
    let (language, rest) = token.split_once('_')?;
    let is_script = rest
        .strip_prefix(|first: char| first.is_ascii_uppercase())
        .is_some_and(|rest| is_lower(rest, 3..=3));
    let is_region = rest.len() == 2 && rest.bytes().all(|byte| byte.is_ascii_uppercase());
    (is_lower(language, 2..=3) && (is_script || is_region)).then_some(token)
}

/// Whether a language token begins sources, and names the language of their targets.
pub(super) fn is_in_source(token: &str) -> bool {
    [">>", "<2"].iter().any(|mark| token.starts_with(mark)) && language(token).is_some()
}

/// The token of this kind that a text begins with.
pub(super) fn first_language(text: &str) -> Option<&str> {
    let ends = [(">>", "<<"), ("<2", ">")];
    ends.into_iter().find_map(|(begin, end)| {
        let rest = text.strip_prefix(begin)?;
        let token = &text[..begin.len() + rest.find(end)? + end.len()];
        is_in_source(token).then_some(token)
    })
}

fn is_lower(text: &str, lengths: std::ops::RangeInclusive<usize>) -> bool {
    lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// Finds the token of a language, given by the token's name, with or without the marks around it, or by the part before
/// `_` if no other token shares it.
pub(super) fn token_of(name: &str, tokens: &[(String, u32)]) -> Option<u32> {
    let is_named = |token: &str| token == name || language(token) == Some(name);
    if let Some((_, id)) = tokens.iter().find(|(token, _)| is_named(token)) {
        return Some(*id);
    }
    let begins = |token: &str| {
        let language = language(token).and_then(|language| language.split_once('_'));
        language.is_some_and(|(language, _)| language == name)
    };
    let mut found = tokens.iter().filter(|(token, _)| begins(token));
    match (found.next(), found.next()) {
        (Some((_, id)), None) => Some(*id),
        _ => None,
    }
}

/// Lists the languages of a tokenizer, for an error.
pub(super) fn listed(known: &[String]) -> String {
    match known {
        [] => "the tokenizer has no language tokens".into(),
        known => format!("the tokenizer has {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_stand_for_languages_are_recognised() {
        for (token, expected) in [
            ("eng_Latn", Some("eng_Latn")),
            ("__en__", Some("en")),
            ("__ast__", Some("ast")),
            ("en_XX", Some("en_XX")),
            (">>fra<<", Some("fra")),
            (">>zho_Hans<<", Some("zho_Hans")),
            ("<2fr>", Some("fr")),
            ("<2zh_Hant>", Some("zh_Hant")),
            ("<2>", None),
            ("<2 fr>", None),
            ("<s>", None),
            ("</s>", None),
            ("▁the", None),
            ("en", None),
            ("eng_latn", None),
            ("eng_LATN", None),
            ("ENG_Latn", None),
            ("a_b", None),
            ("____", None),
            ("__english__", None),
            (">><<", None),
            (">>fra", None),
            ("", None),
            ("é_XX", None),
        ] {
            assert_eq!(language(token), expected, "{token}");
        }
    }

    #[test]
    fn a_language_is_found_by_its_token_or_the_only_one_that_begins_with_it() {
        let tokens = |names: &[&str]| -> Vec<(String, u32)> {
            let names = names.iter().map(|&name| name.to_owned());
            names.zip(0..).collect()
        };
        let nllb = tokens(&["eng_Latn", "zho_Hans", "zho_Hant", "fra_Latn"]);
        for (name, expected) in [
            ("eng_Latn", Some(0)),
            ("eng", Some(0)),
            ("zho_Hant", Some(2)),
            // Ambiguous.
            ("zho", None),
            ("deu", None),
            ("Latn", None),
            ("", None),
        ] {
            assert_eq!(token_of(name, &nllb), expected, "{name}");
        }
        let m2m100 = tokens(&["__en__", "__fr__"]);
        assert_eq!(token_of("fr", &m2m100), Some(1));
        assert_eq!(token_of("__fr__", &m2m100), Some(1));
        let mbart = tokens(&["en_XX", "ro_RO"]);
        assert_eq!(token_of("ro", &mbart), Some(1));
        let marian = tokens(&[">>fra<<", ">>zho_Hans<<"]);
        assert_eq!(token_of("fra", &marian), Some(0));
        assert_eq!(token_of("zho", &marian), Some(1));
        assert_eq!(token_of(">>fra<<", &marian), Some(0));
    }

    #[test]
    fn a_text_may_begin_with_a_language() {
        for text in [">>fra<< Hello", ">>fra<<", "<2fr> Hello", "<2fr>"] {
            let token = text.split(' ').next();
            assert_eq!(first_language(text), token, "{text}");
        }
        for text in [
            "fra<< a",
            ">><< c",
            "<2 a> b",
            "<2fr",
            "eng_Latn a",
            "a <2fr>",
            "",
        ] {
            assert_eq!(first_language(text), None, "{text}");
        }
    }

    #[test]
    fn an_error_lists_the_languages() {
        let known = ["eng_Latn", "fra_Latn"].map(String::from);
        assert_eq!(listed(&known), "the tokenizer has eng_Latn, fra_Latn");
        assert_eq!(listed(&[]), "the tokenizer has no language tokens");
    }
}
