//! `config.json`: a configuration, preceded by two keys for its format and type.
//!
//! ```json
//! {
//!   "format": 1,
//!   "model": "transformer",
//!   "src_vocab_size": 8000,
//!   …
//! }
//! ```
//!
//! `format` is the format version of the whole model directory: 1 with 32-bit weights, 2 with 8-bit matrices
//! ([`quantize`](crate::formats::quantize)). `model` names the type of model. A file without them is an older one of a
//! [`Transformer`](crate::Transformer), unless it has Hugging Face's key `model_type`.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::de::value::StringDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::formats::error::ModelError;
use crate::formats::files::{read_json, replace_file_with};
use crate::formats::format::{Files, Format};
use crate::formats::hugging_face::HuggingFace;
use crate::formats::names::CONFIG_FILE;
use crate::models::config::TransformerConfig;
use crate::models::tying::WeightTying;
use crate::nn::error::ConfigError;

/// The format of a directory whose weights are in single precision.
pub(crate) const FORMAT: u64 = 1;

/// The format of a directory whose matrices are in 8 bits ([`quantize`](crate::formats::quantize)): the newest
/// supported.
pub(crate) const QUANTIZED_FORMAT: u64 = 2;

/// The value of `model` for a [`Transformer`](crate::Transformer), and for files without this key.
pub(crate) const TRANSFORMER: &str = "transformer";

/// The value of `model` for a [`LanguageModel`](crate::LanguageModel).
pub(crate) const LANGUAGE_MODEL: &str = "language-model";

/// The keys that do not belong to the configuration itself.
const HEADER_KEYS: [&str; 2] = ["format", "model"];

#[derive(Deserialize)]
struct Header {
    format: Option<u64>,
    model: Option<String>,
    /// The type of model in a Hugging Face file.
    model_type: Option<String>,
    /// A key that only Hugging Face's files have.
    architectures: Option<IgnoredAny>,
}

impl Header {
    fn of(text: &str, path: &Path) -> Result<Self, ModelError> {
        serde_json::from_str(text).map_err(|source| ModelError::Json {
            path: path.to_owned(),
            source,
        })
    }

    /// The type of model, if the file is Hugging Face's.
    fn type_of_hugging_face(self) -> Option<String> {
        match (&self.format, &self.model) {
            (None, None) => self.model_type,
            _ => None,
        }
    }

    /// Whether the file is Hugging Face's but lacks the type of model.
    fn lacks_type(&self) -> bool {
        let has_type = self.model.is_some() || self.model_type.is_some();
        !has_type && self.format.is_none() && self.architectures.is_some()
    }
}

#[derive(Serialize)]
struct File<'a, T> {
    format: u64,
    model: &'a str,
    #[serde(flatten)]
    config: &'a T,
}

/// Writes the configuration of a model of type `model` to `config.json` in a directory, which is created if missing.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use transformer_core::formats::{load_config, save_config};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Tagger {
///     n_tags: usize,
/// }
///
/// # fn main() -> Result<(), transformer_core::formats::ModelError> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let directory = folder.path().join("tagger");
/// save_config(&directory, "tagger", &Tagger { n_tags: 17 })?;
/// assert_eq!(load_config::<Tagger>(&directory, "tagger")?, Tagger { n_tags: 17 });
/// assert!(load_config::<Tagger>(&directory, "parser").is_err());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the configuration does not serialize to an object, or has a field `format` or `model`; when the file cannot be
/// written. An existing one is then unchanged.
pub fn save_config(
    directory: impl AsRef<Path>,
    model: &str,
    config: &impl Serialize,
) -> Result<(), ModelError> {
    let directory = directory.as_ref();
    fs::create_dir_all(directory).map_err(ModelError::io(directory))?;
    let path = directory.join(CONFIG_FILE);
    let json = to_json(FORMAT, model, config, &path)?;
    replace_file_with(&path, json).map_err(ModelError::io(path))
}

/// Reads `config.json` from the directory of a model of type `model`.
///
/// # Errors
/// When the file is missing, has a newer format, describes another type of model, or is not such a configuration.
pub fn load_config<T: DeserializeOwned>(
    directory: impl AsRef<Path>,
    model: &str,
) -> Result<T, ModelError> {
    let path = directory.as_ref().join(CONFIG_FILE);
    let text = read_json(&path).map_err(ModelError::io(&path))?;
    let (_, config) = parse(&text, &path, FORMAT, model)?;
    Ok(config)
}

/// The type of model in the text of Hugging Face's `config.json`; `None` for one of ours.
pub(crate) fn type_of_hugging_face(text: &str) -> Option<String> {
    serde_json::from_str::<Header>(text)
        .ok()?
        .type_of_hugging_face()
}

/// Reads the format and the configuration from our `config.json`, for this kind of model or, by default, the kind that
/// the file names.
///
/// # Errors
/// When the file is missing or damaged, has a newer format, or describes another kind of model, or the configuration is
/// invalid.
pub(crate) fn read_config(
    files: &Files,
    kind: Option<&str>,
) -> Result<(Option<u64>, TransformerConfig), ModelError> {
    let (path, text) = (files.path(CONFIG_FILE), files.config_text()?);
    let is_language_model = || -> Result<bool, ModelError> {
        Ok(Header::of(text, &path)?.model.as_deref() == Some(LANGUAGE_MODEL))
    };
    let kind = match kind {
        Some(kind) => kind,
        None if is_language_model()? => LANGUAGE_MODEL,
        None => TRANSFORMER,
    };
    let (format, config) = match kind {
        LANGUAGE_MODEL => {
            let (format, LanguageModelFile(config)) = parse(text, &path, QUANTIZED_FORMAT, kind)?;
            (format, config)
        }
        _ => parse(text, &path, QUANTIZED_FORMAT, kind)?,
    };
    let key = "n_encoder_layers";
    let checked = config
        .validate()
        .and_then(|()| match config.n_encoder_layers {
            0 if kind == TRANSFORMER => Err(ConfigError::Zero { key }),
            n_layers if n_layers > 0 && kind == LANGUAGE_MODEL => {
                Err(ConfigError::Encoder { n_layers })
            }
            _ => Ok(()),
        });
    match checked {
        Ok(()) => Ok((format, config)),
        Err(source) => Err(ModelError::Config { path, source }),
    }
}

/// Parses the format, and the configuration of a model of type `model`, from a `config.json` of a format up to
/// `newest`.
fn parse<T: DeserializeOwned>(
    text: &str,
    path: &Path,
    newest: u64,
    model: &str,
) -> Result<(Option<u64>, T), ModelError> {
    let path = path.to_owned();
    // First the header alone: a newer format may have keys that this version does not know.
    let header = Header::of(text, &path)?;
    let lacks_type = header.lacks_type();
    let found = header.model.or(header.model_type);
    let found = found.unwrap_or_else(|| TRANSFORMER.to_owned());
    if found != model {
        return Err(ModelError::OtherModel {
            path,
            found,
            expected: model.to_owned(),
        });
    }
    let format = header.format.unwrap_or(FORMAT);
    if !(FORMAT..=newest).contains(&format) {
        return Err(ModelError::Format {
            path,
            found: format,
            supported: newest,
        });
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    match T::deserialize(WithoutHeader(&mut deserializer)) {
        Ok(config) => Ok((header.format, config)),
        Err(source) if lacks_type && source.is_data() => Err(ModelError::Unsupported {
            path,
            key: "model_type".to_owned(),
            value: "absent".to_owned(),
            problem: "though the other keys are Hugging Face's".to_owned(),
        }),
        Err(source) => Err(ModelError::Json { path, source }),
    }
}

/// The text of `config.json`; `path` is for errors.
pub(crate) fn to_json(
    format: u64,
    model: &str,
    config: &impl Serialize,
    path: &Path,
) -> Result<String, ModelError> {
    let error = |source| ModelError::Json {
        path: path.to_owned(),
        source,
    };
    let fields = serde_json::to_value(config).map_err(error)?;
    if let Some(key) = HEADER_KEYS.iter().find(|&&key| fields.get(key).is_some()) {
        let problem = format!("the configuration has a field `{key}`, a name that is reserved");
        return Err(error(serde::ser::Error::custom(problem)));
    }
    let file = File {
        format,
        model,
        config,
    };
    let json = serde_json::to_string_pretty(&file).map_err(error)?;
    Ok(json + "\n")
}

impl TransformerConfig {
    /// Reads the configuration of an encoder–decoder's directory from its `config.json`. In a Hugging Face directory,
    /// part of it depends on the weights, whose names and shapes are then also checked.
    ///
    /// # Errors
    /// When the file is missing, has a newer format, describes another type of model, or is not a valid configuration;
    /// when a Hugging Face key has an unsupported value, or the weights do not match the configuration.
    pub fn load(directory: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::load_kind(directory.as_ref(), TRANSFORMER)
    }

    /// Reads the configuration of a language model's directory.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_language_model(directory: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::load_kind(directory.as_ref(), LANGUAGE_MODEL)
    }

    fn load_kind(directory: &Path, kind: &str) -> Result<Self, ModelError> {
        let files = Files::of(directory)?;
        if !HuggingFace.recognizes(&files) {
            return Ok(read_config(&files, Some(kind))?.1);
        }
        let config = HuggingFace.open(&files)?.config;
        config.check_kind(&files.path(CONFIG_FILE), kind)?;
        Ok(config)
    }

    /// Writes `config.json` to a model directory, which is created if missing.
    ///
    /// # Errors
    /// When the file cannot be written; an existing one is then unchanged.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<(), ModelError> {
        save_config(directory, self.kind(), self)
    }

    /// The value of `model` in its file.
    pub(crate) fn kind(&self) -> &'static str {
        match self.is_language_model() {
            true => LANGUAGE_MODEL,
            false => TRANSFORMER,
        }
    }

    /// Checks that the configuration, read from `path`, is of this kind of model.
    pub(crate) fn check_kind(&self, path: &Path, expected: &str) -> Result<(), ModelError> {
        match self.kind() {
            kind if kind == expected => Ok(()),
            kind => Err(ModelError::OtherModel {
                path: path.to_owned(),
                found: kind.to_owned(),
                expected: expected.to_owned(),
            }),
        }
    }
}

/// The configuration of a language model. Three keys may have their older names.
#[derive(Deserialize)]
#[serde(try_from = "Map<String, Value>")]
struct LanguageModelFile(TransformerConfig);

impl TryFrom<Map<String, Value>> for LanguageModelFile {
    type Error = serde_json::Error;

    fn try_from(mut keys: Map<String, Value>) -> Result<Self, serde_json::Error> {
        if let Some(vocab_size) = keys.remove("vocab_size") {
            keys.insert("src_vocab_size".to_owned(), vocab_size.clone());
            keys.insert("tgt_vocab_size".to_owned(), vocab_size);
        }
        if let Some(n_layers) = keys.remove("n_layers") {
            keys.insert("n_decoder_layers".to_owned(), n_layers);
        }
        let tied = keys
            .remove("tied")
            .map(serde_json::from_value::<bool>)
            .transpose()?;
        keys.entry("n_encoder_layers").or_insert(Value::from(0));
        let mut config: TransformerConfig = serde_json::from_value(Value::Object(keys))?;
        match tied {
            Some(true) => config.tying = WeightTying::TargetGenerator,
            Some(false) => config.tying = WeightTying::None,
            None => {}
        }
        Ok(Self(config))
    }
}

/// Passes on all keys of a map except the header's.
///
/// The configuration's own type then refuses unknown keys, and the parser reports their line.
/// (`serde(flatten)` would accept unknown keys.)
struct WithoutHeader<T>(T);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for WithoutHeader<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(WithoutHeader(visitor))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for WithoutHeader<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(WithoutHeader(map))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutHeader<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.0.next_key::<String>()? {
            if !HEADER_KEYS.contains(&key.as_str()) {
                let key: StringDeserializer<A::Error> =
                    serde::de::IntoDeserializer::into_deserializer(key);
                return seed.deserialize(key).map(Some);
            }
            self.0.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_no_key_of_the_header() {
        let folder = tempfile::tempdir().unwrap();
        for key in HEADER_KEYS {
            let config = serde_json::json!({ key: 1, "n_tags": 2 });
            let error = save_config(folder.path(), "tagger", &config).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
        assert!(!folder.path().join(CONFIG_FILE).exists());
    }
}
