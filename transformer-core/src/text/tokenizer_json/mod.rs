//! Tokenizers in Hugging Face's format, `tokenizer.json`, from the crate `tokenizers`.

mod bpe_dropout;
pub mod entries;
pub mod file;
pub mod parts;

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rand::Rng;
use serde_json::{Map, Value, json};
use tokenizers::models::unigram::Unigram;
use tokenizers::{Encoding, ModelWrapper, PostProcessorWrapper, PreTokenizerWrapper, Token};

use crate::formats::files::read_text;
use crate::special_tokens::SpecialTokens;
use crate::text::added_tokens::AddedTokens;
use crate::text::error::TextError;
use crate::text::languages::language;
use crate::text::settings::LanguagePlace;
use crate::text::text_length::TextLength;
use crate::text::tokenizer_json::bpe_dropout::Merges;
use crate::text::tokenizer_json::file::TokenizerFile;

/// A tokenizer of the crate. Text that spells a special token is encoded as text.
#[derive(Debug, Clone)]
pub(crate) struct TokenizerJson {
    inner: tokenizers::Tokenizer,
    /// `None` if the file's template does not contain the text exactly once.
    template: Option<Template>,
    length: Arc<TextLength>,
    /// Read from the model when first needed; or why they cannot be read.
    merges: Arc<OnceLock<Result<Merges, String>>>,
}

/// The tokens that the file puts around a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Template {
    before: Vec<u32>,
    behind: Vec<u32>,
}

impl Template {
    fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
        const TEXT: u32 = u32::MAX;
        let text = Token::new(TEXT, "A".into(), (0, 1));
        let text = Encoding::from_tokens(vec![text], 0);
        let whole = tokenizer.post_process(text, None, true).ok()?;
        let mut parts = whole.get_ids().split(|&token| token == TEXT);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(before), Some(behind), None) => Some(Self {
                before: before.to_vec(),
                behind: behind.to_vec(),
            }),
            _ => None,
        }
    }
}

impl From<tokenizers::Tokenizer> for TokenizerJson {
    fn from(mut inner: tokenizers::Tokenizer) -> Self {
        // Not part of the file format: it must be set each time.
        inner.set_encode_special_tokens(true);
        // Neither is for a single text. Removing truncation cannot fail.
        let _ = inner.with_truncation(None);
        inner.with_padding(None);
        match inner.get_model() {
            ModelWrapper::BPE(bpe) if bpe.dropout.is_some() => {
                let mut bpe = bpe.clone();
                bpe.dropout = None;
                inner.with_model(bpe);
            }
            ModelWrapper::Unigram(unigram) => {
                let special = special_names(&inner);
                let hidden = |name: &str| special.contains(name).then(|| format!("{HIDDEN}{name}"));
                if let Ok(unigram) = renamed(unigram, hidden) {
                    inner.with_model(unigram);
                }
            }
            _ => {}
        }
        Self {
            template: Template::of(&inner),
            length: Arc::new(TextLength::of(&inner)),
            inner,
            merges: Arc::default(),
        }
    }
}

/// Prefix of the names of special tokens in a unigram model, which otherwise finds them in text that spells them. It is
/// a noncharacter (U+FFFF).
const HIDDEN: char = '\u{ffff}';

/// The names of special tokens.
fn special_names(tokenizer: &tokenizers::Tokenizer) -> HashSet<String> {
    let tokens = tokenizer.get_added_tokens_decoder().into_values();
    let special = tokens.filter(|token| token.special);
    special.map(|token| token.content).collect()
}

/// Adds tokens to a tokenizer, like the Hugging Face class that reads its file: existing tokens get a role, not an id.
fn add_tokens(tokenizer: &mut tokenizers::Tokenizer, added: &AddedTokens) -> Result<(), String> {
    let tokens = added.tokens().map(|(_, token)| {
        let is_special = token.special || added.is_special(&token.content);
        token.to_crate(is_special)
    });
    let tokens: Vec<_> = tokens.collect();
    tokenizer.add_tokens(&tokens);
    for (id, name) in added.ids() {
        match tokenizer.token_to_id(name) {
            Some(found) if found != id => {
                return Err(format!(
                    "its token {found} is `{name}`, which has the id {id} among the added tokens of the directory"
                ));
            }
            _ => {}
        }
    }
    // Special tokens missing from the vocabulary occur in no text.
    let known = tokenizer.get_added_vocabulary().get_vocab();
    let special = added
        .special()
        .filter(|name| !known.contains_key(*name) && tokenizer.token_to_id(name).is_some());
    let special = special.map(|name| tokenizers::AddedToken::from(name, true));
    let special: Vec<_> = special.collect();
    tokenizer.add_tokens(&special);
    Ok(())
}

/// A unigram model with some tokens renamed, by way of JSON, its only interface.
fn renamed(
    unigram: &Unigram,
    rename: impl Fn(&str) -> Option<String>,
) -> Result<Unigram, serde_json::Error> {
    let mut json = serde_json::to_value(unigram)?;
    for token in json["vocab"].as_array_mut().into_iter().flatten() {
        if let Some(name) = token[0].as_str().and_then(&rename) {
            token[0] = name.into();
        }
    }
    // The type of the model, which is known here.
    if let Some(fields) = json.as_object_mut() {
        fields.remove("type");
    }
    serde_json::from_value(json)
}

impl TokenizerJson {
    /// Reads a file, and adds the tokens from other files of its directory.
    ///
    /// # Errors
    /// When the file is missing or is not a tokenizer, or one of the tokens has another id in it.
    pub fn from_file(path: &Path, added: &AddedTokens) -> Result<Self, TextError> {
        let text = read_text(path).map_err(TextError::file(path))?;
        Self::from_text(path, &text, added)
    }

    /// [`from_file`](Self::from_file) for the text of a file.
    pub fn from_text(path: &Path, text: &str, added: &AddedTokens) -> Result<Self, TextError> {
        let file = TokenizerFile::check(text).map_err(TextError::file(path))?;
        let mut inner: tokenizers::Tokenizer = text.parse().map_err(TextError::file(path))?;
        file.check_added_tokens(&inner)
            .map_err(TextError::file(path))?;
        add_tokens(&mut inner, added).map_err(TextError::file(path))?;
        Ok(inner.into())
    }

    /// The content of a file.
    ///
    /// # Errors
    /// When a part of the tokenizer cannot be written.
    pub fn to_json(&self) -> Result<String, TextError> {
        let json = match self.inner.get_model() {
            ModelWrapper::Unigram(unigram) => {
                let shown = |name: &str| name.strip_prefix(HIDDEN).map(str::to_owned);
                let mut whole = self.inner.clone();
                let unigram = renamed(unigram, shown);
                whole.with_model(unigram.map_err(|error| failed(error.into()))?);
                whole.to_string(false)
            }
            _ => self.inner.to_string(false),
        };
        json.map_err(failed)
    }

    /// Whether all tokens have the same ids in another tokenizer.
    pub fn has_vocabulary_of(&self, other: &Self) -> bool {
        self.inner.get_vocab(true) == other.inner.get_vocab(true)
    }

    /// One more than the highest id.
    pub fn vocab_size(&self) -> usize {
        let ids = self.inner.get_vocab(true).into_values();
        ids.max().map_or(0, |highest| highest as usize + 1)
    }

    /// Checks that a text does not become too long before it is split.
    fn check_length(&self, text: &str) -> Result<(), TextError> {
        self.length.check(text).map_err(TextError::Tokenizer)
    }

    /// Encodes a text, without the template's tokens.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        self.check_length(text)?;
        let encoding = self.inner.encode_fast(text, false).map_err(failed)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Encodes a text with BPE dropout.
    pub fn encode_with_dropout(
        &self,
        text: &str,
        dropout: f64,
        rng: &mut impl Rng,
    ) -> Result<Vec<u32>, TextError> {
        self.check_length(text)?;
        self.read_merges()?
            .encode(&self.inner, text, dropout, rng)
            .map_err(failed)
    }

    /// Checks that there are merges to drop.
    pub fn check_dropout(&self) -> Result<(), TextError> {
        self.read_merges()?;
        Ok(())
    }

    /// The merges of a BPE.
    fn read_merges(&self) -> Result<&Merges, TextError> {
        let ModelWrapper::BPE(bpe) = self.inner.get_model() else {
            let model = self.model_type();
            return Err(TextError::DropoutWithoutBpe { model });
        };
        let read = || Merges::new(bpe).map_err(|error| error.to_string());
        match self.merges.get_or_init(read) {
            Ok(merges) => Ok(merges),
            Err(problem) => Err(TextError::Tokenizer(problem.clone())),
        }
    }

    /// Decodes tokens to text; special tokens are skipped.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TextError> {
        let is_special = |name: &str| self.inner.get_added_vocabulary().is_special_token(name);
        let mut texts = tokens.iter().filter_map(|&token| self.name(token));
        if texts.all(|name| is_special(&name)) {
            // A decoder of the crate would access the last token of an empty list.
            return Ok(String::new());
        }
        self.inner.decode(tokens, true).map_err(failed)
    }

    /// The type of the model, as named in the file.
    pub fn model_type(&self) -> &'static str {
        match self.inner.get_model() {
            ModelWrapper::BPE(_) => "BPE",
            ModelWrapper::WordPiece(_) => "WordPiece",
            ModelWrapper::WordLevel(_) => "WordLevel",
            ModelWrapper::Unigram(_) => "Unigram",
        }
    }

    /// The name of a token.
    pub fn name(&self, token: u32) -> Option<String> {
        self.inner.id_to_token(token)
    }

    /// The language tokens with their names, in the order of their ids.
    pub fn languages(&self) -> Vec<(String, u32)> {
        let added = self.inner.get_added_tokens_decoder().into_iter();
        let languages = added.filter(|(_, token)| language(&token.content).is_some());
        let mut languages: Vec<_> = languages.map(|(id, token)| (token.content, id)).collect();
        languages.sort_unstable_by_key(|&(_, id)| id);
        languages
    }

    /// The id of a token.
    pub fn id(&self, name: &str) -> Option<u32> {
        self.inner.token_to_id(name)
    }

    /// The tokens that the template has before a text.
    pub fn first_tokens(&self) -> &[u32] {
        let template = self.template.as_ref();
        template.map_or(&[][..], |template| &template.before[..])
    }

    /// The tokens that the template has after a text, if these are an end token and a language.
    pub fn last_tokens(&self) -> &[u32] {
        match &self.template {
            Some(Template { behind, .. }) if behind.len() == 2 && self.is_language(behind[1]) => {
                behind
            }
            _ => &[],
        }
    }

    fn is_language(&self, token: u32) -> bool {
        let name = self.name(token);
        name.is_some_and(|name| language(&name).is_some())
    }

    /// Puts these tokens before a text, in the template.
    pub fn set_first_tokens(&mut self, before: Vec<u32>) -> Result<(), TextError> {
        let behind = self.template.clone().unwrap_or_default().behind;
        self.set_template(Template { before, behind })
    }

    /// Replaces the language among the [last tokens](Self::last_tokens) of the template.
    pub fn set_last_language(&mut self, language: u32) -> Result<(), TextError> {
        let mut template = self.template.clone().unwrap_or_default();
        if let Some(last) = template.behind.last_mut() {
            *last = language;
        }
        self.set_template(template)
    }

    fn set_template(&mut self, template: Template) -> Result<(), TextError> {
        let processor = self.post_processor(&template).map_err(failed)?;
        self.inner.with_post_processor(Some(processor));
        self.template = Some(template);
        Ok(())
    }

    /// Sets whether a byte-level tokenizer encodes a text as if it began with a space.
    pub fn set_prefix_space(&mut self, is_added: bool) {
        if let Some(PreTokenizerWrapper::ByteLevel(bytes)) = self.inner.get_pre_tokenizer() {
            let bytes = bytes.add_prefix_space(is_added);
            self.inner.with_pre_tokenizer(Some(bytes));
            self.length = Arc::new(TextLength::of(&self.inner));
        }
    }

    /// Moves the language of a template with no other token than the end. Hugging Face's classes have it in one place,
    /// whatever the file says: NLLB's came after `<eos>` until version 4.28, and does in files of that time.
    pub fn move_language(&mut self, place: LanguagePlace) -> Result<(), TextError> {
        let Some(Template { before, behind }) = &self.template else {
            return Ok(());
        };
        let (found, end, language) = match (&before[..], &behind[..]) {
            (&[], &[end, last]) => (LanguagePlace::Last, end, last),
            (&[first], &[end]) => (LanguagePlace::First, end, first),
            _ => return Ok(()),
        };
        if found == place || !self.is_language(language) {
            return Ok(());
        }
        self.set_template(match place {
            LanguagePlace::First => Template {
                before: vec![language],
                behind: vec![end],
            },
            LanguagePlace::Last => Template {
                before: Vec::new(),
                behind: vec![end, language],
            },
        })
    }

    /// Checks that the template ends a text with this token, if one is named, for classes that make the template.
    ///
    /// # Errors
    /// When it does not.
    pub fn check_end(&self, name: Option<&str>) -> Result<(), String> {
        let behind = self.template.iter().flat_map(|template| &template.behind);
        let end = behind.copied().next().and_then(|end| self.name(end));
        match (name, end) {
            (Some(name), Some(end)) if name != end => Err(format!(
                "its template ends in `{end}`, but `eos_token` is `{name}`"
            )),
            _ => Ok(()),
        }
    }

    /// The post-processor that puts the tokens of a template around a text.
    fn post_processor(&self, template: &Template) -> tokenizers::Result<PostProcessorWrapper> {
        let mut special = Map::new();
        let mut parts = |tokens: &[u32]| -> tokenizers::Result<Vec<Value>> {
            let parts = tokens.iter().map(|&token| {
                let name = self.name(token);
                let name = name.ok_or_else(|| format!("token {token} has no name"))?;
                let part = json!({"SpecialToken": {"id": name, "type_id": 0}});
                let token = json!({"id": name, "ids": [token], "tokens": [name]});
                special.insert(name, token);
                Ok(part)
            });
            parts.collect()
        };
        let (before, behind) = (parts(&template.before)?, parts(&template.behind)?);
        let text = |id| json!({"Sequence": {"id": id, "type_id": 0}});
        let around = |texts: &[Value]| [&before[..], texts, &behind[..]].concat();
        Ok(serde_json::from_value(json!({
            "type": "TemplateProcessing",
            "single": around(&[text("A")]),
            "pair": around(&[text("A"), text("B")]),
            "special_tokens": special,
        }))?)
    }

    /// Whether a token of the vocabulary is not special, neither by its description nor by the template.
    fn is_text(&self, token: u32) -> bool {
        let added = self.inner.get_added_tokens_decoder();
        let is_special = added.get(&token).is_some_and(|token| token.special);
        let template = self.template.iter();
        let mut of_template =
            template.flat_map(|Template { before, behind }| before.iter().chain(behind));
        self.name(token).is_some() && !is_special && !of_template.any(|&other| other == token)
    }

    /// Checks that the special tokens match a model's, and that a text ends in its `<eos>`, optionally followed by a
    /// language. `vocab_size` is the tokenizer's.
    pub fn check(
        &self,
        path: &Path,
        vocab_size: usize,
        special_tokens: SpecialTokens,
    ) -> Result<(), TextError> {
        for (name, key, expected) in special_tokens.named() {
            match self.inner.token_to_id(name) {
                // A tokenizer that we did not train may have other names.
                None if self.is_text(expected) => {
                    let found = self.name(expected).unwrap_or_default();
                    return Err(TextError::file(path)(format!(
                        "token {expected} is `{found}`, which is not a special token (`added_tokens` with \
                         `special`), but the model's `{key}` is {expected}"
                    )));
                }
                None => {}
                Some(found) if found == expected => {}
                Some(found) => {
                    return Err(TextError::SpecialToken {
                        path: path.to_owned(),
                        name,
                        found,
                        key,
                        expected,
                    });
                }
            }
        }
        let problem = match &self.template {
            None => "its template does not contain the text exactly once".to_owned(),
            Some(Template { before, behind }) => {
                let unknown = before.iter().find(|&&token| token as usize >= vocab_size);
                match (unknown, &behind[..]) {
                    (Some(token), _) => {
                        format!("its template has token {token}, which is not in its vocabulary")
                    }
                    (None, []) => return Ok(()),
                    (None, &[end]) if end == special_tokens.eos => return Ok(()),
                    (None, &[end, last]) if end == special_tokens.eos && self.is_language(last) => {
                        return Ok(());
                    }
                    (None, behind) => {
                        let names = behind.iter().filter_map(|&token| self.name(token));
                        format!(
                            "its template ends in {}, not in the model's `eos_id` {}",
                            names.collect::<Vec<_>>().join(" "),
                            special_tokens.eos
                        )
                    }
                }
            }
        };
        Err(TextError::file(path)(problem))
    }
}

/// An error of the crate.
fn failed(error: tokenizers::Error) -> TextError {
    TextError::Tokenizer(error.to_string())
}
