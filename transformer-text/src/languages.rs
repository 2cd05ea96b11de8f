//! Codes of languages.

use isolang::Language;

/// Languages of ISO 639-3 that models name where a text is labelled by the language that includes them: NLLB's Standard
/// Arabic `arb` is Arabic, `ar`.
const INCLUDED: [(&str, &str); 19] = [
    ("als", "sq"),
    ("arb", "ar"),
    ("ayr", "ay"),
    ("azj", "az"),
    ("cmn", "zh"),
    ("ekk", "et"),
    ("gaz", "om"),
    ("khk", "mn"),
    ("kmr", "ku"),
    ("lvs", "lv"),
    ("npi", "ne"),
    ("ory", "or"),
    ("pes", "fa"),
    ("plt", "mg"),
    ("quy", "qu"),
    ("swh", "sw"),
    ("uzn", "uz"),
    ("ydd", "yi"),
    ("zsm", "ms"),
];

/// The code of the language that a code, or the language token of a model, names: `en` for `eng`, `eng_Latn`, `en_XX`,
/// `__en__`, `>>eng<<` and `<2en>`; `zh-Hans` and `zh-Hant` for Chinese, by the script or the region. `None` if ISO 639 has no such language.
pub fn language_code(name: &str) -> Option<String> {
    let bare = name.strip_prefix("<2").unwrap_or(name);
    let bare = bare.trim_matches(['_', '<', '>']);
    let (base, script) = bare.split_once(['_', '-']).unwrap_or((bare, ""));
    let base = base.to_ascii_lowercase();
    let language = match base.len() {
        2 => Language::from_639_1(&base),
        _ => Language::from_639_3(&base),
    }?;
    let included = INCLUDED.iter().find(|(code, _)| *code == base);
    let included = included.map(|(_, code)| *code);
    Some(match included.or(language.to_639_1()) {
        Some("zh") => {
            let script = script.split(['_', '-']).next().unwrap_or(script);
            let is_traditional = ["Hant", "TW", "HK", "MO"]
                .iter()
                .any(|name| name.eq_ignore_ascii_case(script));
            match is_traditional {
                true => "zh-Hant".to_owned(),
                false => "zh-Hans".to_owned(),
            }
        }
        code => code.unwrap_or(&base).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_codes_of_their_languages() {
        for (name, code) in [
            ("en", "en"),
            ("EN-gb", "en"),
            ("eng_Latn", "en"),
            ("en_XX", "en"),
            ("__en__", "en"),
            (">>eng<<", "en"),
            ("<2en>", "en"),
            ("zho_Hans", "zh-Hans"),
            ("zho_Hant", "zh-Hant"),
            ("zh_CN", "zh-Hans"),
            ("zh-Hans-HK", "zh-Hans"),
            ("zh-Hant-TW", "zh-Hant"),
            ("zh_HK", "zh-Hant"),
            ("zh-tw", "zh-Hant"),
            (">>cmn_Hant<<", "zh-Hant"),
            ("arb_Arab", "ar"),
            ("ast_Latn", "ast"),
            ("ace_Arab", "ace"),
        ] {
            assert_eq!(language_code(name).as_deref(), Some(code), "{name}");
        }
        for name in ["", "x", "xx", "english"] {
            assert_eq!(language_code(name), None, "{name}");
        }
    }
}
