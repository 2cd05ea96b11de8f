//! Models, as the server uses them.

use transformer_core::decoding::NextToken;
use transformer_core::text::TextError;
use transformer_text::{Format, Prepared, Sentence, SentenceTranslation, TextTranslator};

/// What the server needs of a model. [`TextTranslator`] implements it for every model that decodes.
pub trait Model: Send + Sync {
    /// Takes a text apart into sentences.
    fn prepare(&self, text: &str, format: Format) -> Prepared;

    /// The number of tokens of a sentence.
    fn tokens(&self, sentence: &Sentence) -> usize;

    /// Translates sentences, each into up to `n_best` translations.
    ///
    /// # Errors
    /// When the model cannot compute.
    fn translate(
        &self,
        sentences: &[&Sentence],
        n_best: usize,
    ) -> Result<Vec<SentenceTranslation>, TextError>;
}

impl<M: NextToken + Send> Model for TextTranslator<M> {
    fn prepare(&self, text: &str, format: Format) -> Prepared {
        TextTranslator::prepare(self, text, format)
    }

    fn tokens(&self, sentence: &Sentence) -> usize {
        let tokens = self
            .translator()
            .tokenizers()
            .encode_source(sentence.text());
        tokens.map_or(1, |tokens| tokens.len() + 1)
    }

    fn translate(
        &self,
        sentences: &[&Sentence],
        n_best: usize,
    ) -> Result<Vec<SentenceTranslation>, TextError> {
        self.translate_sentences(sentences, n_best)
    }
}
