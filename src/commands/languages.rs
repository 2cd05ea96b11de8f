//! The language flags of multilingual models.

use std::collections::BTreeSet;

use clap::Args;
use transformer_core::decoding::NextToken;
use transformer_core::text::TextError;
use transformer_core::{Tokenizers, Translator};

use super::Result;
use crate::process::note;

/// The maximum number of languages that are warned about, and that a warning lists.
const MOST_LISTED: usize = 10;

/// The maximum number of characters of a language in a warning.
const MOST_SHOWN: usize = 40;

/// The languages of a multilingual model.
#[derive(Debug, Clone, Default, Args)]
pub struct Languages {
    /// Source language of a multilingual model: the name of the language's token, such as eng_Latn, en or en_XX
    #[arg(long, value_name = "NAME")]
    source_lang: Option<String>,
    /// Target language of a multilingual model: the name of the language's token, such as fra_Latn, fr or fr_XX; of a
    /// token such as >>fra<< or <2fr>, the name inside
    #[arg(long, value_name = "NAME")]
    target_lang: Option<String>,
}

impl Languages {
    /// A translator between these languages.
    ///
    /// # Errors
    /// When the model has no token for a language, or needs one that is not given.
    pub fn of<M: NextToken>(&self, translator: Translator<M>) -> Result<Translator<M>> {
        let [source, target] = self.names();
        let translator = translator.with_languages(source, target);
        let translator = translator.map_err(|error| self.problem(error))?;
        check_target(translator.tokenizers())?;
        Ok(translator)
    }

    /// Tokenizers for these languages. The target language need not be chosen.
    ///
    /// # Errors
    /// When there is no token for a language.
    pub fn of_tokenizers(&self, tokenizers: Tokenizers) -> Result<Tokenizers> {
        let [source, target] = self.names();
        let tokenizers = tokenizers.with_languages(source, target);
        Ok(tokenizers.map_err(|error| self.problem(error))?)
    }

    /// The error of choosing the languages, the source first. If the model has no languages, it names the flag.
    fn problem(&self, error: TextError) -> String {
        match error {
            TextError::Language { name, known } if known.is_empty() => {
                let flag = match self.source_lang {
                    Some(_) => "--source-lang",
                    None => "--target-lang",
                };
                format!("{flag} {name}: {}", one_pair(flag))
            }
            error => error.to_string(),
        }
    }

    /// The source language, if one is chosen.
    pub fn source(&self) -> Option<&str> {
        self.source_lang.as_deref()
    }

    fn names(&self) -> [Option<&str>; 2] {
        [self.source_lang.as_deref(), self.target_lang.as_deref()]
    }
}

/// Why a model without languages refuses a flag that chooses one.
pub fn one_pair(flag: &str) -> String {
    format!("the model has no language tokens, and translates one pair of languages; remove {flag}")
}

/// Warnings about sentences that begin with a language, such as `>>fra<<`, for which the model has no token.
#[derive(Debug, Default)]
pub struct UnknownLanguages {
    named: BTreeSet<String>,
}

impl UnknownLanguages {
    /// Warns about the sentence at `place`, unless its language was named before.
    pub fn check(
        &mut self,
        tokenizers: &Tokenizers,
        sentence: &str,
        place: impl FnOnce() -> String,
    ) {
        let Some(language) = tokenizers.unknown_language(sentence.trim()) else {
            return;
        };
        let shown: String = language.chars().take(MOST_SHOWN).collect();
        let place = match self.named.len() < MOST_LISTED && self.named.insert(shown.clone()) {
            true => place(),
            false => return,
        };
        let known = listed(&tokenizers.source().languages());
        note(format_args!(
            "{place}: the model has no token `{shown}` and reads <unk> instead; it has {known}"
        ));
    }
}

/// The languages of a model, for a warning.
fn listed(known: &[String]) -> String {
    match known.len().checked_sub(MOST_LISTED) {
        _ if known.is_empty() => "no language tokens".to_owned(),
        None | Some(0) => known.join(", "),
        Some(more) => {
            let first = known[..MOST_LISTED].join(", ");
            format!("{first} and {more} more; `transformer info` lists them")
        }
    }
}

/// Checks that the target language is chosen, if targets begin with a language token.
///
/// # Errors
/// When it is not chosen. The error names the flag.
pub fn check_target(tokenizers: &Tokenizers) -> Result {
    let checked = tokenizers.check_target_language();
    Ok(checked.map_err(|error| format!("{error}; give --target-lang"))?)
}
