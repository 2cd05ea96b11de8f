//! Flags of the languages of a model that knows several.

use burn::tensor::backend::Backend;
use clap::Args;
use transformer_core::{NextToken, Tokenizers, Translator};

use super::Result;

/// The languages of a model that knows several.
#[derive(Debug, Clone, Default, Args)]
pub struct Languages {
    /// Language of the sentences, for a model that knows several: the name of its token, such as eng_Latn, en or
    /// en_XX
    #[arg(long, value_name = "NAME")]
    source_lang: Option<String>,
    /// Language of the translations, for a model that knows several, such as fra_Latn, fr, fr_XX, or fra of >>fra<<
    #[arg(long, value_name = "NAME")]
    target_lang: Option<String>,
}

impl Languages {
    /// A translator between these languages.
    ///
    /// # Errors
    /// When the model has no token for a language, or needs one that is not given.
    pub fn of<B: Backend, M: NextToken<B>>(
        &self,
        translator: Translator<B, M>,
    ) -> Result<Translator<B, M>> {
        let [source, target] = self.names();
        let translator = translator.with_languages(source, target)?;
        check_target(translator.tokenizers())?;
        Ok(translator)
    }

    /// Tokenizers for these languages; the target's need not be chosen.
    ///
    /// # Errors
    /// When there is no token for a language.
    pub fn of_tokenizers(&self, tokenizers: Tokenizers) -> Result<Tokenizers> {
        let [source, target] = self.names();
        Ok(tokenizers.with_languages(source, target)?)
    }

    fn names(&self) -> [Option<&str>; 2] {
        [self.source_lang.as_deref(), self.target_lang.as_deref()]
    }
}

/// Checks that the target's language is chosen, if targets begin with one.
///
/// # Errors
/// When it is not; the error names the flag.
pub fn check_target(tokenizers: &Tokenizers) -> Result {
    let checked = tokenizers.check_target_language();
    Ok(checked.map_err(|error| format!("{error}; give --target-lang"))?)
}
