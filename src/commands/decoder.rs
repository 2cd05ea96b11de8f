//! The translator that decodes: of packed models, where the backend has them.

use std::ops::ControlFlow;

use burn::tensor::backend::Backend;
use transformer_core::PackedTransformer;
use transformer_core::{
    DecodeError, DecodeOptions, NextToken, RequestProblem, SpecialTokens, TargetScore, TextError,
    Tokenizers, Translation, Translator,
};

/// A translator, whatever its models are.
pub enum Decoder<B: Backend> {
    /// Of models in the backend's tensors.
    Plain(Translator<B>),
    /// Of packed models.
    Packed(Translator<B, PackedTransformer<B>>),
}

/// Asks the translator of a decoder.
macro_rules! ask {
    ($decoder:expr, $translator:ident => $answer:expr) => {
        match $decoder {
            Decoder::Plain($translator) => $answer,
            Decoder::Packed($translator) => $answer,
        }
    };
}

impl<B: Backend> Decoder<B> {
    /// The translator, if its models have attention maps.
    pub fn plain(&self) -> Option<&Translator<B>> {
        match self {
            Self::Plain(translator) => Some(translator),
            Self::Packed(_) => None,
        }
    }

    /// [`Translator::tokenizers`]
    pub fn tokenizers(&self) -> &Tokenizers {
        ask!(self, translator => translator.tokenizers())
    }

    /// The special tokens of its models.
    pub fn special_tokens(&self) -> SpecialTokens {
        ask!(self, translator => translator.model().vocabulary().special_tokens)
    }

    /// Whether the models can score these tokens of a source and a target, both with the end of the sentence.
    pub fn check_pair(&self, source: &[u32], target: &[u32]) -> Result<(), RequestProblem> {
        ask!(self, translator => {
            let model = translator.model();
            model.check_source(source)?;
            model.check_target(target)
        })
    }

    /// [`Translator::options`]
    pub fn options(&self) -> &DecodeOptions {
        ask!(self, translator => translator.options())
    }

    /// [`Translator::translate_batch`]
    pub fn translate_batch(&self, sentences: &[&str]) -> Result<Vec<String>, TextError> {
        ask!(self, translator => translator.translate_batch(sentences))
    }

    /// [`Translator::translate_n_best`]
    pub fn translate_n_best(
        &self,
        sentences: &[String],
        prefix: &str,
    ) -> Result<Vec<Vec<Translation>>, TextError> {
        ask!(self, translator => translator.translate_n_best(sentences, prefix))
    }

    /// The next sentence, of those from `first` on, that [`Translator::check`] refuses.
    pub fn next_refused(
        &self,
        sentences: &[String],
        prefix: &str,
        first: usize,
    ) -> Result<Option<DecodeError>, TextError> {
        for (index, sentence) in sentences.iter().enumerate().skip(first) {
            match ask!(self, translator => translator.check(&[sentence], prefix)) {
                Ok(()) => {}
                Err(TextError::Decode(mut error)) => {
                    error.index = index;
                    return Ok(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// [`Translator::stream`]
    pub fn stream(
        &self,
        sentence: &str,
        prefix: &str,
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), TextError> {
        ask!(self, translator => translator.stream(sentence, prefix, on_text))
    }

    /// [`Translator::score`]
    pub fn score(
        &self,
        sentences: &[&str],
        translations: &[&str],
    ) -> Result<Vec<TargetScore>, TextError> {
        ask!(self, translator => translator.score(sentences, translations))
    }
}
