//! Settings of Hugging Face's tokenizer class, `tokenizer_config.json`.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::formats::files;
use crate::formats::names::{
    BYTES_CLASS, MERGES_FILE, PIECES_FILE, SHARED_PIECES_FILE, SOURCE_PIECES_FILE,
    TARGET_PIECES_FILE, TARGET_VOCABULARY_FILE, TOKENIZER_FILE, TOKENIZER_SETTINGS_FILE,
    VOCABULARY_FILE, class_of_tokenizer,
};
use crate::text::added_tokens::AddedTokens;
use crate::text::error::TextError;
use crate::text::token_files::{TokenFiles, refused};
use crate::text::tokenizer_json::entries::MAX_TOKENS;

/// GPT-2's class, of which `merges.txt` is a file.
pub const GPT2_CLASS: &str = "GPT2Tokenizer";

/// The place of the language token in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LanguagePlace {
    /// Before all other tokens.
    First,
    /// After `<eos>`.
    Last,
}

/// The settings of a model's tokenizers, which are saved unchanged except for the languages.
#[derive(Debug, Clone, Default)]
pub struct TokenizerSettings {
    /// Its file, if there is one.
    file: Option<Arc<[u8]>>,
    keys: Keys,
    tokens: TokenFiles,
}

/// The keys that are used. A null value counts as absent.
#[derive(Debug, Clone, Default)]
struct Keys {
    tokenizer_class: Option<String>,
    legacy_behaviour: Option<bool>,
    legacy: Option<bool>,
    extra_ids: Option<usize>,
    add_prefix_space: Option<bool>,
    add_bos_token: Option<bool>,
    clean_up_tokenization_spaces: Option<bool>,
    split_special_tokens: Option<bool>,
    separate_vocabs: Option<bool>,
    /// The arguments that the class passes to SentencePiece; `None` if there are none.
    sp_model_kwargs: Option<Value>,
    language_codes: Option<String>,
    src_lang: Option<String>,
    /// Our own key: the language token put before every source.
    source_prefix: Option<String>,
    /// Our own key: the language token that every target begins with.
    target_prefix: Option<String>,
}

impl Keys {
    fn of(settings: &Map<String, Value>) -> Result<Self, String> {
        let value = |key: &str| settings.get(key).filter(|value| !value.is_null());
        let text = |key: &str| match value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(value) => Err(refused(key, value, "a string")),
        };
        let choice = |key: &str| match value(key) {
            None => Ok(None),
            Some(Value::Bool(choice)) => Ok(Some(*choice)),
            Some(value) => Err(refused(key, value, "true or false")),
        };
        Ok(Self {
            tokenizer_class: text("tokenizer_class")?,
            legacy_behaviour: choice("legacy_behaviour")?,
            legacy: choice("legacy")?,
            extra_ids: extra_ids(value("extra_ids"))?,
            add_prefix_space: choice("add_prefix_space")?,
            add_bos_token: choice("add_bos_token")?,
            clean_up_tokenization_spaces: choice("clean_up_tokenization_spaces")?,
            split_special_tokens: choice("split_special_tokens")?,
            separate_vocabs: choice("separate_vocabs")?,
            sp_model_kwargs: value("sp_model_kwargs")
                .filter(|value| value.as_object().is_none_or(|keys| !keys.is_empty()))
                .cloned(),
            language_codes: text("language_codes")?,
            src_lang: text("src_lang")?,
            source_prefix: text("source_prefix")?,
            target_prefix: text("target_prefix")?,
        })
    }
}

/// The value of `extra_ids`.
fn extra_ids(value: Option<&Value>) -> Result<Option<usize>, String> {
    let Some(value) = value else {
        return Ok(None);
    };
    let number = value
        .as_u64()
        .and_then(|number| usize::try_from(number).ok());
    match number.filter(|&number| number <= MAX_TOKENS) {
        Some(number) => Ok(Some(number)),
        None => Err(refused("extra_ids", value, "a number of tokens")),
    }
}

/// The keys that may have the path of a file, and the file in the directory that is read whatever they have.
const PATHS: [(&str, &[&str]); 8] = [
    ("tokenizer_file", &[TOKENIZER_FILE]),
    ("merges_file", &[MERGES_FILE]),
    // M2M100's, BART's and GPT-2's; NLLB's and mBART's; T5's.
    (
        "vocab_file",
        &[VOCABULARY_FILE, SHARED_PIECES_FILE, PIECES_FILE],
    ),
    ("spm_file", &[SHARED_PIECES_FILE]),
    ("source_spm", &[SOURCE_PIECES_FILE]),
    ("target_spm", &[TARGET_PIECES_FILE]),
    ("vocab", &[VOCABULARY_FILE]),
    ("target_vocab_file", &[TARGET_VOCABULARY_FILE]),
];

/// Checks that keys with paths have the file names that are read in every directory.
fn check_paths(settings: &Map<String, Value>) -> Result<(), String> {
    for (key, names) in PATHS {
        let value = settings.get(key).unwrap_or(&Value::Null);
        let is_known = value.as_str().is_some_and(|path| {
            let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
            names.contains(&name)
        });
        if !value.is_null() && !is_known {
            return Err(refused(key, value, &format!("a {}", names.join(" or "))));
        }
    }
    let versions = &settings.get("fast_tokenizer_files").unwrap_or(&Value::Null);
    let list = versions.as_array().map_or(&[][..], Vec::as_slice);
    if list.iter().any(|name| name != TOKENIZER_FILE)
        || !(versions.is_null() || versions.is_array())
    {
        let expected = format!("a list with only {TOKENIZER_FILE}");
        return Err(refused("fast_tokenizer_files", versions, &expected));
    }
    Ok(())
}

impl TokenizerSettings {
    /// Reads the settings of a directory, if it has any, and the files that belong to them. `config` is the text of the
    /// model's `config.json`.
    ///
    /// # Errors
    /// When a file cannot be read or is damaged, or a key has a value that is not supported.
    pub fn load(directory: &Path, config: Option<&str>) -> Result<Self, TextError> {
        let path = directory.join(TOKENIZER_SETTINGS_FILE);
        let file = match files::read(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(TextError::file(path)(error)),
        };
        let mut settings = Map::new();
        if file.is_some() {
            let json = files::read_json(&path).map_err(TextError::file(&path))?;
            settings = serde_json::from_str(&json).map_err(TextError::file(&path))?;
        }
        check_paths(&settings).map_err(TextError::file(&path))?;
        let mut keys = Keys::of(&settings).map_err(TextError::file(&path))?;
        if keys.tokenizer_class.is_none() {
            // Errors in that file are reported when the model is read.
            keys.tokenizer_class = config.and_then(class_of_tokenizer);
        }
        let mut loaded = Self {
            keys,
            tokens: TokenFiles::load(directory, &settings)?,
            file: file.map(Arc::from),
        };
        // It says that there are no other files.
        if loaded.has_bytes() && !settings.contains_key("tokenizer_class") {
            loaded.begin();
            loaded.set("tokenizer_class", BYTES_CLASS);
        }
        // These classes add no space unless the key is present, whatever the tokenizer's file says.
        let adds_none = matches!(loaded.class(), Some("BartTokenizer" | GPT2_CLASS));
        if adds_none && !settings.contains_key("add_prefix_space") {
            loaded.keys.add_prefix_space = Some(false);
        }
        Ok(loaded)
    }

    /// Names and contents of the files to be saved.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let settings = self.file.as_deref();
        let settings = settings.map(|file| (TOKENIZER_SETTINGS_FILE, file));
        settings.into_iter().chain(self.tokens.files())
    }

    /// The special and the added tokens.
    pub fn tokens(&self) -> &TokenFiles {
        &self.tokens
    }

    /// The added tokens of a class that reads a SentencePiece model, with these special tokens unless the settings name
    /// others.
    ///
    /// # Errors
    /// When a file is damaged, or a value is not a token.
    pub fn added_to_pieces(&mut self, roles: &[(&str, &str)]) -> Result<AddedTokens, TextError> {
        self.tokens.add_those_beside_pieces()?;
        let are_text = self.keys.split_special_tokens == Some(true);
        self.tokens.added_tokens(roles, are_text)
    }

    /// Checks the settings of a class that reads a SentencePiece model, with these special tokens.
    ///
    /// # Errors
    /// When the special tokens have other names, or the class passes arguments to SentencePiece.
    pub fn check_pieces(&self, directory: &Path, roles: &[(&str, &str)]) -> Result<(), TextError> {
        for (key, name) in roles {
            self.tokens.check_role(key, name)?;
        }
        match &self.keys.sp_model_kwargs {
            None => Ok(()),
            Some(value) => {
                let path = directory.join(TOKENIZER_SETTINGS_FILE);
                let problem = refused("sp_model_kwargs", value, "empty");
                Err(TextError::file(path)(problem))
            }
        }
    }

    /// Checks the settings of GPT-2's class for `merges.txt`.
    ///
    /// # Errors
    /// When the class puts `<bos>` before a text.
    pub fn check_merges(&self, directory: &Path) -> Result<(), TextError> {
        match self.keys.add_bos_token {
            Some(true) => {
                let path = directory.join(TOKENIZER_SETTINGS_FILE);
                let problem = refused("add_bos_token", &true.into(), "false");
                Err(TextError::file(path)(problem))
            }
            _ => Ok(()),
        }
    }

    /// The class of the tokenizer, without the suffix `Fast`.
    pub fn class(&self) -> Option<&str> {
        let class = self.keys.tokenizer_class.as_deref()?;
        Some(class.strip_suffix("Fast").unwrap_or(class))
    }

    /// Where the class puts the language of a text; `None` if the class leaves it where the tokenizer's file has it.
    pub fn language_place(&self) -> Option<LanguagePlace> {
        match self.class()? {
            "NllbTokenizer" => match self.keys.legacy_behaviour {
                Some(true) => Some(LanguagePlace::Last),
                _ => Some(LanguagePlace::First),
            },
            "MBartTokenizer" => Some(LanguagePlace::Last),
            "MBart50Tokenizer" => Some(LanguagePlace::First),
            _ => None,
        }
    }

    /// The class's default language of the source.
    pub fn default_source_language(&self) -> Option<&'static str> {
        match self.class()? {
            "NllbTokenizer" => Some("eng_Latn"),
            "MBartTokenizer" | "MBart50Tokenizer" => Some("en_XX"),
            _ => None,
        }
    }

    /// Whether spaces before punctuation are removed from decoded text.
    pub fn cleans_spaces(&self) -> bool {
        self.keys.clean_up_tokenization_spaces == Some(true)
    }

    /// Whether the target has its own vocabulary, in Marian's class.
    pub fn separates_vocabularies(&self) -> bool {
        self.keys.separate_vocabs == Some(true)
    }

    /// The number of tokens `<extra_id_…>` in T5's class, or ByT5's.
    pub fn extra_ids(&self) -> usize {
        let default = match self.has_bytes() {
            true => 125,
            false => 100,
        };
        self.keys.extra_ids.unwrap_or(default)
    }

    /// Whether the class is ByT5's.
    pub fn has_bytes(&self) -> bool {
        self.class() == Some(BYTES_CLASS)
    }

    /// Checks that T5's class encodes text after an added token as if it began there.
    ///
    /// # Errors
    /// When it does not, and there are such tokens.
    pub fn check_legacy(&self, directory: &Path, added: &AddedTokens) -> Result<(), TextError> {
        match (self.keys.legacy, added.first_text()) {
            (Some(false), Some((_, name))) => {
                let path = directory.join(TOKENIZER_SETTINGS_FILE);
                let problem = format!(
                    "`legacy` is false, which is not supported with the added token `{name}`"
                );
                Err(TextError::file(path)(problem))
            }
            _ => Ok(()),
        }
    }

    /// The name of the list of M2M100's languages.
    pub fn language_codes(&self) -> &str {
        self.keys.language_codes.as_deref().unwrap_or("m2m100")
    }

    /// Whether a byte-level tokenizer encodes a text as if it began with a space.
    pub fn add_prefix_space(&self) -> Option<bool> {
        self.keys.add_prefix_space
    }

    /// The language of the source, which overrides the template's.
    pub fn source_language(&self) -> Option<&str> {
        self.keys.src_lang.as_deref()
    }

    /// The language token put before every source.
    pub fn source_prefix(&self) -> Option<&str> {
        self.keys.source_prefix.as_deref()
    }

    /// The language token that every target begins with.
    pub fn target_prefix(&self) -> Option<&str> {
        self.keys.target_prefix.as_deref()
    }

    /// Makes the target's vocabulary another than the source's. Creates the settings if there are none.
    pub fn separate_vocabularies(&mut self) {
        self.begin();
        self.set("separate_vocabs", true);
        self.keys.separate_vocabs = Some(true);
    }

    /// Sets the token put before every source. Creates the settings if there are none.
    pub fn set_source_prefix(&mut self, token: &str) {
        self.begin();
        self.set("source_prefix", token);
        self.keys.source_prefix = Some(token.to_owned());
    }

    /// Sets the token that every target begins with. Creates the settings if there are none.
    pub fn set_target_prefix(&mut self, token: &str) {
        self.begin();
        self.set("target_prefix", token);
        self.keys.target_prefix = Some(token.to_owned());
    }

    /// Sets the language of the source, from which Hugging Face's class makes its template. The settings are changed
    /// only if they exist.
    pub fn set_source_language(&mut self, language: &str) {
        self.set("src_lang", language);
        self.keys.src_lang = Some(language.to_owned());
    }

    /// Sets the language of the source. Creates the settings if there are none.
    pub fn save_source_language(&mut self, language: &str) {
        self.begin();
        self.set_source_language(language);
    }

    fn begin(&mut self) {
        self.file.get_or_insert_with(|| Arc::from(&b"{}"[..]));
    }

    fn set(&mut self, key: &str, value: impl Into<Value>) {
        let Some(file) = &self.file else {
            return;
        };
        // It was parsed as an object before.
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
        TokenizerSettings::load(directory.path(), None)
    }

    fn text(settings: &TokenizerSettings) -> Option<Value> {
        let (_, file) = settings.files().next()?;
        Some(serde_json::from_slice(file).unwrap())
    }

    #[test]
    fn settings_are_kept_but_for_the_languages() {
        let file = r#"{"model_max_length":512,   "src_lang": null}"#;
        let mut settings = settings(file).unwrap();
        let files = Vec::from_iter(settings.files());
        assert_eq!(files, [(TOKENIZER_SETTINGS_FILE, file.as_bytes())]);
        settings.set_source_language("deu_Latn");
        let expected = serde_json::json!({"model_max_length": 512, "src_lang": "deu_Latn"});
        assert_eq!(text(&settings).unwrap(), expected);
    }

    #[test]
    fn only_a_prefix_begins_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = TokenizerSettings::load(directory.path(), None).unwrap();
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
