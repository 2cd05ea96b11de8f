//! Codes and names of languages.

use isolang::Language;

/// The code that stands for another: LibreTranslate's aliases, in any case of letters.
pub fn canonical(code: &str) -> String {
    match &code.to_ascii_lowercase()[..] {
        "pb" | "pt-br" => "pt-BR".to_owned(),
        "zh" | "zh-hans" => "zh-Hans".to_owned(),
        "zt" | "zh-hant" => "zh-Hant".to_owned(),
        // Two or three letters.
        short if short.len() <= 3 => short.to_owned(),
        _ => code.to_owned(),
    }
}

/// The English name of a language; its code if it has none.
pub fn name(code: &str) -> String {
    match code {
        "pt-BR" => return "Portuguese (Brazil)".to_owned(),
        "zh-Hans" => return "Chinese".to_owned(),
        "zh-Hant" => return "Chinese (traditional)".to_owned(),
        _ => {}
    }
    let base = code.split(['-', '_']).next().unwrap_or(code);
    let language = match base.len() {
        2 => Language::from_639_1(base),
        _ => Language::from_639_3(base),
    };
    language.map_or_else(|| code.to_owned(), |language| language.to_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_have_names_and_aliases() {
        assert_eq!(name("de"), "German");
        assert_eq!(name("xx"), "xx");
        assert_eq!(canonical("ZH"), "zh-Hans");
        assert_eq!(canonical("EN"), "en");
    }
}
