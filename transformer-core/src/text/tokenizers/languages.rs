//! The languages of source and target.

use std::borrow::Cow;

use crate::text::error::TextError;
use crate::text::languages::{first_language, is_in_source, language};
use crate::text::tokenizers::Tokenizers;

impl Tokenizers {
    /// Chooses the languages of source and target by the names of their tokens (`eng_Latn`, `__en__`, `en_XX`), by the
    /// names without marks (`en`), or by the part before `_` (`eng`) if no other token shares it. `None` keeps a
    /// language unchanged.
    ///
    /// The source's language becomes one of its first tokens, or its last one; the target's is
    /// [`target_first`](Self::target_first). Both are [saved](Self::save). Marian's models and MADLAD-400 only know
    /// target languages: `fra` puts the token `>>fra<<`, and `fr` the token `<2fr>`, before every source that does not
    /// begin with such a token.
    ///
    /// # Errors
    /// When a tokenizer has no token for a language; the error lists the languages that it has. When the model's
    /// decoder starts with another target language.
    pub fn with_languages(
        mut self,
        source: Option<&str>,
        target: Option<&str>,
    ) -> Result<Self, TextError> {
        if let Some(name) = source {
            self.set_source_language(name)?;
        }
        if let Some(name) = target {
            self.set_target_language(name)?;
        }
        self.set_first_tokens();
        Ok(self)
    }

    fn set_target_language(&mut self, name: &str) -> Result<(), TextError> {
        let source = &self.source;
        let is_in_source = source.marian().is_some()
            || source.language_in_source(name).is_some()
            || self.has_languages_in_sources();
        if is_in_source {
            let token = source.target_language_in_source(name)?;
            self.settings.set_source_prefix(&self.source.name(token));
            self.source_prefix = Some(token);
        } else {
            let token = self.target().language_token(name)?;
            let name = self.target().name(token);
            match self.start_language {
                Some(start) if start == token => return Ok(()),
                Some(start) => {
                    let start = self.target().name(start);
                    return Err(TextError::StartLanguage { name, start });
                }
                None => {}
            }
            self.settings.set_target_prefix(&name);
            self.target_language = Some(token);
        }
        Ok(())
    }

    /// Whether a token at the beginning of a source names the language of its target.
    fn has_languages_in_sources(&self) -> bool {
        self.source
            .languages()
            .iter()
            .any(|name| is_in_source(name))
    }

    fn set_source_language(&mut self, name: &str) -> Result<(), TextError> {
        // A model of one language pair has no language tokens.
        if self.has_languages_in_sources() {
            let name = name.to_owned();
            return Err(TextError::SourceLanguage { name });
        }
        let token = self.source.language_token(name)?;
        self.source.set_language(token)?;
        if let Some(name) = language(&self.source.name(token)) {
            match self.source.m2m100() {
                // The language is in no other file.
                Some(_) => self.settings.save_source_language(name),
                None => self.settings.set_source_language(name),
            }
        }
        Ok(())
    }

    /// The language that a Marian source begins with, such as `>>fra<<`, if there is no token for it: it is then
    /// encoded as `<unk>`, as in Hugging Face.
    pub fn unknown_language<'a>(&self, text: &'a str) -> Option<&'a str> {
        self.source.marian()?.unknown_language(text)
    }

    /// The language token that every target must begin with, if one was chosen.
    pub fn target_first(&self) -> Option<u32> {
        self.target_language
    }

    /// Checks that a target language is chosen, if targets begin with one.
    ///
    /// # Errors
    /// When none is chosen; the error lists the available languages.
    pub fn check_target_language(&self) -> Result<(), TextError> {
        self.first_of_target().map(drop)
    }

    /// The text that is encoded: T5's family reads a language as a part of the text.
    pub(super) fn with_language<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.source_prefix {
            Some(language) if self.source.marian().is_none() && !self.has_language(text) => {
                Cow::Owned(format!("{} {text}", self.source.name(language)))
            }
            _ => Cow::Borrowed(text),
        }
    }

    /// Whether a source begins with a language token of the tokenizer's kind: Marian's, which may be unknown to it, or
    /// one of its tokens.
    pub(super) fn has_language(&self, text: &str) -> bool {
        first_language(text).is_some_and(|token| match self.source.marian() {
            Some(_) => token.starts_with(">>"),
            None => self.source.id(token).is_some(),
        })
    }
}
