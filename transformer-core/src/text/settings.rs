//! Settings of Hugging Face's class of a tokenizer, `tokenizer_config.json`.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::formats::files;
use crate::formats::names::TOKENIZER_SETTINGS_FILE;
use crate::text::error::TextError;

/// Where a text has its language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LanguagePlace {
    /// Before all other tokens.
    First,
    /// Behind `<eos>`.
    Last,
}

/// The settings of a model's tokenizers, which are kept as they are, but for the languages.
#[derive(Debug, Clone, Default)]
pub struct TokenizerSettings {
    /// Its file, if there is one.
    file: Option<Arc<[u8]>>,
    keys: Keys,
}

/// The keys that are used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Keys {
    tokenizer_class: Option<String>,
    legacy_behaviour: Option<bool>,
    add_prefix_space: Option<bool>,
    language_codes: Option<String>,
    src_lang: Option<String>,
    /// Ours: the token of a language, which is put before every source.
    source_prefix: Option<String>,
    /// Ours: the token of a language, with which every target begins.
    target_prefix: Option<String>,
}

impl TokenizerSettings {
    /// Reads the settings in a model directory, if it has some.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub fn load(directory: &Path) -> Result<Self, TextError> {
        let path = directory.join(TOKENIZER_SETTINGS_FILE);
        let file = match files::read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(TextError::file(path)(error)),
        };
        let keys = serde_json::from_slice(&file).map_err(TextError::file(path))?;
        Ok(Self {
            file: Some(file.into()),
            keys,
        })
    }

    /// The file, if there is one.
    pub fn file(&self) -> Option<&[u8]> {
        self.file.as_deref()
    }

    /// Where the class puts the language of a text; `None` for a class that leaves it where its file has it.
    pub fn language_place(&self) -> Option<LanguagePlace> {
        match self.keys.tokenizer_class.as_deref()? {
            "NllbTokenizer" | "NllbTokenizerFast" => match self.keys.legacy_behaviour {
                Some(true) => Some(LanguagePlace::Last),
                _ => Some(LanguagePlace::First),
            },
            "MBartTokenizer" | "MBartTokenizerFast" => Some(LanguagePlace::Last),
            "MBart50Tokenizer" | "MBart50TokenizerFast" => Some(LanguagePlace::First),
            _ => None,
        }
    }

    /// The name of the list of M2M100's languages.
    pub fn language_codes(&self) -> &str {
        self.keys.language_codes.as_deref().unwrap_or("m2m100")
    }

    /// Whether a text is encoded as if a space were before it, where the tokenizer's pieces are bytes.
    pub fn add_prefix_space(&self) -> Option<bool> {
        self.keys.add_prefix_space
    }

    /// The language of the source, whatever the template has.
    pub fn source_language(&self) -> Option<&str> {
        self.keys.src_lang.as_deref()
    }

    /// The token of a language that is put before every source.
    pub fn source_prefix(&self) -> Option<&str> {
        self.keys.source_prefix.as_deref()
    }

    /// The token of a language with which every target begins.
    pub fn target_prefix(&self) -> Option<&str> {
        self.keys.target_prefix.as_deref()
    }

    /// Sets the token that is put before every source. A file is begun where there is none.
    pub fn set_source_prefix(&mut self, token: &str) {
        self.begin();
        self.set("source_prefix", token);
        self.keys.source_prefix = Some(token.to_owned());
    }

    /// Sets the token with which every target begins. A file is begun where there is none.
    pub fn set_target_prefix(&mut self, token: &str) {
        self.begin();
        self.set("target_prefix", token);
        self.keys.target_prefix = Some(token.to_owned());
    }

    /// Sets the language of the source, by which Hugging Face's class makes its template, if there is a file.
    pub fn set_source_language(&mut self, language: &str) {
        self.set("src_lang", language);
        self.keys.src_lang = Some(language.to_owned());
    }

    /// Sets the language of the source. A file is begun where there is none.
    pub fn save_source_language(&mut self, language: &str) {
        self.begin();
        self.set_source_language(language);
    }

    fn begin(&mut self) {
        self.file.get_or_insert_with(|| Arc::from(&b"{}"[..]));
    }

    fn set(&mut self, key: &str, value: &str) {
        let Some(file) = &self.file else {
            return;
        };
        // It was read as an object, and is one.
        let mut keys: Map<String, Value> = serde_json::from_slice(file).unwrap_or_default();
        keys.insert(key.into(), value.into());
        let text = format!("{:#}\n", Value::Object(keys));
        self.file = Some(Arc::from(text.into_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(file: &str) -> Result<TokenizerSettings, TextError> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(TOKENIZER_SETTINGS_FILE), file).unwrap();
        TokenizerSettings::load(directory.path())
    }

    fn text(settings: &TokenizerSettings) -> Option<Value> {
        let file = settings.file()?;
        Some(serde_json::from_slice(file).unwrap())
    }

    #[test]
    fn settings_are_kept_but_for_the_languages() {
        let file = r#"{"model_max_length":512,   "src_lang": null}"#;
        let mut settings = settings(file).unwrap();
        assert_eq!(settings.file(), Some(file.as_bytes()));
        settings.set_source_language("deu_Latn");
        let expected = serde_json::json!({"model_max_length": 512, "src_lang": "deu_Latn"});
        assert_eq!(text(&settings).unwrap(), expected);
    }

    #[test]
    fn only_a_prefix_begins_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = TokenizerSettings::load(directory.path()).unwrap();
        settings.set_source_language("deu_Latn");
        assert_eq!(text(&settings), None);
        settings.set_source_prefix(">>fra<<");
        let expected = serde_json::json!({"source_prefix": ">>fra<<"});
        assert_eq!(text(&settings).unwrap(), expected);
        assert_eq!(settings.source_prefix(), Some(">>fra<<"));
        settings.set_target_prefix("fra_Latn");
        let expected = serde_json::json!({"source_prefix": ">>fra<<", "target_prefix": "fra_Latn"});
        assert_eq!(text(&settings).unwrap(), expected);
    }

    #[test]
    fn the_class_says_where_the_language_is() {
        use LanguagePlace::{First, Last};
        for (file, expected) in [
            (r#"{"tokenizer_class": "NllbTokenizer"}"#, Some(First)),
            (
                r#"{"tokenizer_class": "NllbTokenizerFast", "legacy_behaviour": false}"#,
                Some(First),
            ),
            (
                r#"{"tokenizer_class": "NllbTokenizer", "legacy_behaviour": true}"#,
                Some(Last),
            ),
            (r#"{"tokenizer_class": "MBartTokenizer"}"#, Some(Last)),
            (
                r#"{"tokenizer_class": "MBart50TokenizerFast"}"#,
                Some(First),
            ),
            (r#"{"tokenizer_class": "BartTokenizer"}"#, None),
            ("{}", None),
        ] {
            assert_eq!(settings(file).unwrap().language_place(), expected, "{file}");
        }
    }

    #[test]
    fn damage_is_named_by_file() {
        for file in ["", "[", r#"{"tokenizer_class": 5}"#, "null"] {
            let error = settings(file).unwrap_err().to_string();
            assert!(error.contains("tokenizer_config.json: "), "{error}");
        }
    }
}
