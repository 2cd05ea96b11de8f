//! Flags of the languages of a model that knows several.

use burn::tensor::backend::Backend;
use clap::Args;
use transformer_core::{TextError, Translator};

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
    /// When the model has no token for a language.
    pub fn of<B: Backend>(&self, translator: Translator<B>) -> Result<Translator<B>, TextError> {
        translator.with_languages(self.source_lang.as_deref(), self.target_lang.as_deref())
    }
}
