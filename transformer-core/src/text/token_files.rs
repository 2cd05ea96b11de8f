//! The files that list a tokenizer's special and added tokens: `tokenizer_config.json` and, if it has no
//! `added_tokens_decoder`, `special_tokens_map.json` and `added_tokens.json`.

use std::collections::{BTreeMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::formats::files;
use crate::formats::names::{
    ADDED_TOKENS_FILE, SPECIAL_TOKENS_FILE, TOKENIZER_FILE, TOKENIZER_SETTINGS_FILE,
};
use crate::text::added_tokens::{AddedToken, AddedTokens};
use crate::text::error::TextError;
use crate::text::tokenizer_json::parts::shortened;

/// The keys of special tokens that every class has.
const ROLES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];
const ADDITIONAL: &str = "additional_special_tokens";
const EXTRA: &str = "extra_special_tokens";
const DECODER: &str = "added_tokens_decoder";

/// The special and added tokens named in the files of a directory.
#[derive(Debug, Clone, Default)]
pub(super) struct TokenFiles {
    directory: PathBuf,
    /// The files besides `tokenizer_config.json`, which are kept as they are.
    files: Vec<(&'static str, Arc<[u8]>)>,
    /// The tokens of the named roles; `None` for null.
    roles: BTreeMap<String, Option<String>>,
    /// The other special tokens.
    others: Vec<String>,
    added: Vec<(u32, AddedToken)>,
    /// Whether `tokenizer_config.json` has the added tokens, so that no other file is read for them.
    has_decoder: bool,
}

impl TokenFiles {
    /// Reads the files of a directory whose `tokenizer_config.json` has these keys.
    ///
    /// # Errors
    /// When a file cannot be read or is damaged, or a value is not a token.
    pub fn load(directory: &Path, settings: &Map<String, Value>) -> Result<Self, TextError> {
        let mut found = Self {
            directory: directory.to_owned(),
            has_decoder: settings.contains_key(DECODER),
            ..Self::default()
        };
        let problem = TextError::file(directory.join(TOKENIZER_SETTINGS_FILE));
        found.read_roles(settings).map_err(problem)?;
        for name in [SPECIAL_TOKENS_FILE, ADDED_TOKENS_FILE] {
            let path = directory.join(name);
            let file = match files::read(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(TextError::file(path)(error)),
            };
            if !found.has_decoder {
                let read = found.read_legacy(name, &file);
                read.map_err(TextError::file(path))?;
            }
            found.files.push((name, file.into()));
        }
        Ok(found)
    }

    /// Names and contents of the files besides `tokenizer_config.json`.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.files.iter().map(|(name, file)| (*name, &file[..]))
    }

    /// The token that the files name for a role.
    pub fn role(&self, key: &str) -> Option<&str> {
        self.roles.get(key)?.as_deref()
    }

    /// Checks that the files name no other token for a role than the one that its class always has.
    ///
    /// # Errors
    /// When they name another, or null.
    pub fn check_role(&self, key: &str, expected: &str) -> Result<(), TextError> {
        let found = match self.roles.get(key) {
            None => return Ok(()),
            Some(Some(name)) if name == expected => return Ok(()),
            Some(Some(name)) => format!("`{name}`"),
            Some(None) => "null".to_owned(),
        };
        let path = self.directory.join(self.file_of_roles());
        Err(TextError::file(path)(format!(
            "`{key}` is {found}; only `{expected}` is supported"
        )))
    }

    fn file_of_roles(&self) -> &'static str {
        let has_map = self
            .files
            .iter()
            .any(|(name, _)| *name == SPECIAL_TOKENS_FILE);
        match has_map && !self.has_decoder {
            true => SPECIAL_TOKENS_FILE,
            false => TOKENIZER_SETTINGS_FILE,
        }
    }

    /// The file that added tokens are read from, for errors.
    pub fn file_of_added(&self) -> PathBuf {
        self.directory.join(match self.has_decoder {
            true => TOKENIZER_SETTINGS_FILE,
            false => ADDED_TOKENS_FILE,
        })
    }

    /// The added tokens, with the special tokens that the files name and, for roles that they do not name, these
    /// defaults. With `are_text`, text is not split at them.
    ///
    /// # Errors
    /// When a token is empty, too long or duplicated, or has too high an id.
    pub fn added_tokens(
        &self,
        roles: &[(&str, &str)],
        are_text: bool,
    ) -> Result<AddedTokens, TextError> {
        let defaults = roles
            .iter()
            .filter(|(key, _)| !self.roles.contains_key(*key));
        let defaults = defaults.map(|(_, name)| (*name).to_owned());
        let special = self.special_names().map(str::to_owned).chain(defaults);
        let special: HashSet<String> = special.collect();
        let added = AddedTokens::new(self.added.iter().cloned(), special, are_text);
        added.map_err(TextError::file(self.file_of_added()))
    }

    /// Adds the added tokens of a `tokenizer.json`: a class that reads its pieces from another file takes them from
    /// there if `tokenizer_config.json` has none.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub fn add_those_beside_pieces(&mut self) -> Result<(), TextError> {
        let path = self.directory.join(TOKENIZER_FILE);
        if self.has_decoder || !path.exists() {
            return Ok(());
        }
        let file = files::read(&path).map_err(TextError::file(&path))?;
        let of_file: OfTokenizer = serde_json::from_slice(&file).map_err(TextError::file(&path))?;
        for OfTokenizerToken { id, token } in of_file.added_tokens {
            let is_other = |old: &AddedToken| old.content != token.content;
            self.added
                .retain(|(other, old)| *other != id && is_other(old));
            self.added.push((id, token));
        }
        self.files.push((TOKENIZER_FILE, file.into()));
        Ok(())
    }

    /// Checks that only special tokens were added. The files give each added token one id, which separate vocabularies
    /// may not share.
    ///
    /// # Errors
    /// When another token was added.
    pub fn check_separate(&self, added: &AddedTokens) -> Result<(), TextError> {
        match added.first_text() {
            None => Ok(()),
            Some((id, name)) => Err(TextError::file(self.file_of_added())(format!(
                "the added token `{name}` has the id {id} for source and target, whose vocabularies differ \
                 (`separate_vocabs`); that is not supported"
            ))),
        }
    }

    fn special_names(&self) -> impl Iterator<Item = &str> {
        let roles = self.roles.values().flatten();
        roles.chain(&self.others).map(String::as_str)
    }

    /// Reads the special and added tokens of `tokenizer_config.json`.
    fn read_roles(&mut self, settings: &Map<String, Value>) -> Result<(), String> {
        for key in ROLES {
            if let Some(value) = settings.get(key) {
                self.set_role(key, value)?;
            }
        }
        self.add_others(ADDITIONAL, settings.get(ADDITIONAL))?;
        match settings.get(EXTRA) {
            Some(Value::Object(extra)) => {
                for value in extra.values() {
                    self.others.push(named(EXTRA, value)?);
                }
            }
            // As written by version 5 of transformers.
            list => self.add_others(EXTRA, list)?,
        }
        let Some(decoder) = settings.get(DECODER) else {
            return Ok(());
        };
        let refuse = |value: &Value, expected| refused(DECODER, value, expected);
        let decoder = decoder.as_object();
        let decoder = decoder.ok_or_else(|| refuse(&settings[DECODER], "an object"))?;
        for (id, value) in decoder {
            let id = id.parse();
            let id = id.map_err(|_| refuse(value, "a token keyed by its id"))?;
            let token = AddedToken::deserialize(value);
            let token = token.map_err(|_| refuse(value, "a token with its flags"))?;
            self.added.push((id, token));
        }
        Ok(())
    }

    /// Reads a file that counts if `tokenizer_config.json` has no added tokens.
    fn read_legacy(&mut self, name: &'static str, file: &[u8]) -> Result<(), String> {
        let json = serde_json::from_slice(file);
        let json: Map<String, Value> = json.map_err(|error| error.to_string())?;
        for (key, value) in json {
            if name == ADDED_TOKENS_FILE {
                let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
                let id = id.ok_or_else(|| refused(&key, &value, "a token id"))?;
                let is_special = self.special_names().any(|name| name == key);
                let token = AddedToken {
                    content: key,
                    normalized: Some(!is_special),
                    special: is_special,
                    ..AddedToken::default()
                };
                self.added.push((id, token));
            } else if key == ADDITIONAL {
                self.add_others(ADDITIONAL, Some(&value))?;
            } else if ROLES.contains(&key.as_str()) {
                self.set_role(&key, &value)?;
            }
        }
        Ok(())
    }

    fn set_role(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let name = match value {
            Value::Null => None,
            value => Some(named(key, value)?),
        };
        self.roles.insert(key.to_owned(), name);
        Ok(())
    }

    fn add_others(&mut self, key: &str, list: Option<&Value>) -> Result<(), String> {
        let list = match list {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Array(list)) => list,
            Some(value) => return Err(refused(key, value, "a list of tokens")),
        };
        for value in list {
            self.others.push(named(key, value)?);
        }
        Ok(())
    }
}

/// The added tokens of a `tokenizer.json`.
#[derive(Deserialize)]
struct OfTokenizer {
    #[serde(default)]
    added_tokens: Vec<OfTokenizerToken>,
}

#[derive(Deserialize)]
struct OfTokenizerToken {
    id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

/// The name of a token, which is a string or an object with the name.
fn named(key: &str, value: &Value) -> Result<String, String> {
    let name = value.as_str().or_else(|| value["content"].as_str());
    match name {
        Some(name) => Ok(name.to_owned()),
        None => Err(refused(key, value, "a token")),
    }
}

/// Describes an invalid value of a key.
pub(super) fn refused(key: &str, value: &Value, expected: &str) -> String {
    format!("`{key}` is {}, not {expected}", shortened(value))
}
