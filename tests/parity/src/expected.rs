//! `expected.json`: texts, their tokens, and their translations by Hugging Face and by CTranslate2.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use transformer_core::TransformerConfig;
use transformer_core::decoding::Hypothesis;
use transformer_program::read_regular;

use super::Result;

/// The file's name.
pub(super) const EXPECTED_FILE: &str = "expected.json";

/// Names of special tokens. Hugging Face turns such a text into these tokens; here it stays text.
const SPECIAL_TOKENS: [&str; 6] = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>"];

/// `max_length` of the translations by Marian, which counts the start token.
const MARIAN_MAX_LENGTH: usize = 100;

/// The tokens of a vocabulary, by their names.
pub(super) type Vocabulary = HashMap<String, u32>;

/// The results expected of a directory.
pub(super) struct Expected {
    directory: PathBuf,
    pub sentences: Vec<Sentence>,
    /// The first token of every target.
    pub forced_first: Option<u32>,
    /// The most tokens of a target, with the one that ends it.
    pub limit: usize,
    /// The text before each source.
    pub prefix: String,
    /// Whether targets have the start token.
    has_start: bool,
}

/// A text.
#[derive(Deserialize)]
pub(super) struct Sentence {
    pub text: String,
    /// Its tokens, special ones included.
    pub ids: Vec<u32>,
    /// Its translation by greedy decoding.
    pub beam1: Translation,
    /// The same, by a beam of four.
    pub beam4: Translation,
    /// The same, by CTranslate2.
    pub ct2: Option<CTranslate2>,
}

/// A translation by Hugging Face.
#[derive(Deserialize)]
pub(super) struct Translation {
    pub ids: Vec<u32>,
    pub text: Option<String>,
    /// Of a language model's beam: the mean log-probability after the prompt.
    #[serde(default)]
    pub score: Option<f64>,
}

/// A translation by CTranslate2.
#[derive(Deserialize)]
pub(super) struct CTranslate2 {
    tokens: Vec<String>,
}

/// A target, without the start token and the one that ends it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub tokens: Vec<u32>,
    /// Whether it ended before the limit of its length.
    pub finished: bool,
}

/// The file of models other than Marian's, whose file is the list of sentences alone.
#[derive(Deserialize)]
struct WithOptions {
    sentences: Vec<Sentence>,
    forced_bos_token_id: Option<u32>,
    max_new_tokens: usize,
    #[serde(default)]
    prefix: String,
}

impl Expected {
    /// Reads the file of a directory.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(EXPECTED_FILE);
        let value: Value = read_json(&path)?;
        let named = |error| format!("{}: {error}", path.display());
        let directory = directory.to_owned();
        if value.is_array() {
            return Ok(Self {
                directory,
                sentences: serde_json::from_value(value).map_err(named)?,
                forced_first: None,
                limit: MARIAN_MAX_LENGTH - 1,
                prefix: String::new(),
                has_start: false,
            });
        }
        let read: WithOptions = serde_json::from_value(value).map_err(named)?;
        Ok(Self {
            directory,
            sentences: read.sentences,
            forced_first: read.forced_bos_token_id,
            limit: read.max_new_tokens,
            prefix: read.prefix,
            has_start: true,
        })
    }

    /// The texts that spell no special token.
    pub fn texts(&self) -> impl Iterator<Item = &Sentence> {
        let sentences = self.sentences.iter();
        sentences.filter(|sentence| !spells_special(&sentence.text))
    }

    /// The target of a translation.
    pub fn target(&self, translation: &Translation, config: &TransformerConfig) -> Result<Target> {
        let mut tokens = &translation.ids[..];
        if self.has_start {
            let bos = config.bos_id;
            tokens = tokens.strip_prefix(&[bos]).ok_or_else(|| {
                self.named(format!(
                    "{tokens:?} does not begin with the start token, {bos}"
                ))
            })?;
        }
        let ended = tokens.strip_suffix(&[config.eos_id]);
        Ok(Target {
            tokens: ended.unwrap_or(tokens).to_vec(),
            finished: ended.is_some(),
        })
    }

    /// The target vocabulary of a Marian directory, in whose tokens CTranslate2's translations are; empty without
    /// such translations.
    pub fn vocabulary(&self) -> Result<Vocabulary> {
        if self.sentences.iter().all(|sentence| sentence.ct2.is_none()) {
            return Ok(Vocabulary::new());
        }
        let of_target = self.directory.join("target_vocab.json");
        match of_target.exists() {
            true => read_json(&of_target),
            false => read_json(&self.directory.join("vocab.json")),
        }
    }

    /// CTranslate2's target. It is cut where it has as many tokens as it may have.
    pub fn of_ctranslate2(
        &self,
        sentence: &Sentence,
        vocabulary: &Vocabulary,
    ) -> Result<Option<Target>> {
        let Some(CTranslate2 { tokens: names }) = &sentence.ct2 else {
            return Ok(None);
        };
        let tokens = names.iter().map(|name| {
            let token = vocabulary.get(name).copied();
            token.ok_or_else(|| self.named(format!("{name:?} is no token of the vocabulary")))
        });
        Ok(Some(Target {
            tokens: tokens.collect::<std::result::Result<_, _>>()?,
            finished: names.len() < self.limit,
        }))
    }

    /// An error about the file.
    pub fn named(&self, error: impl Display) -> String {
        format!("{}: {error}", self.directory.join(EXPECTED_FILE).display())
    }
}

/// Whether a text spells a special token.
pub(super) fn spells_special(text: &str) -> bool {
    SPECIAL_TOKENS.iter().any(|name| text.contains(name))
}

impl Target {
    /// With the token that ends it, if it has ended.
    pub fn ended(&self, eos: u32) -> Vec<u32> {
        let mut tokens = self.tokens.clone();
        tokens.extend(self.finished.then_some(eos));
        tokens
    }
}

/// The best of the targets that a search found for a text.
pub(super) fn translated(found: Vec<Hypothesis>) -> Result<Target> {
    let best = found.into_iter().next().ok_or("no translation was found")?;
    Ok(Target {
        tokens: best.tokens,
        finished: best.finished,
    })
}

pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = read_regular(path).map_err(|error| named(&error))?;
    Ok(serde_json::from_slice(&bytes).map_err(|error| named(&error))?)
}
