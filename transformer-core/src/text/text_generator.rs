//! Texts of language models: tokenizer, model and decoding together.

use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::backend::Backend;
use transformer_cpu::PackedPrecision;

use crate::decoding::{
    DecodeOptions, Hypothesis, NextToken, Request, SourceTarget, TargetScore, score,
};
use crate::formats::directory::ModelDirectory;
use crate::formats::own::config::LANGUAGE_MODEL;
use crate::models::language_model::LanguageModel;
use crate::packed::PackedModel;
use crate::text::error::TextError;
use crate::text::tokenizers::Tokenizers;
use crate::text::translator::{Translator, in_sentence};

/// A text that continues a prompt.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GeneratedText {
    /// The prompt and what follows it.
    pub text: String,
    /// The hypothesis that it was decoded from.
    pub hypothesis: Hypothesis,
}

/// A language model, or an ensemble of several, that continues texts: what [`Translator`] is for an encoder–decoder.
///
/// ```no_run
/// use transformer_core::TextGenerator;
///
/// # fn main() -> Result<(), transformer_core::text::TextError> {
/// let generator = TextGenerator::load("gpt2")?;
/// println!("{}", generator.generate(&["Once upon a time"])?[0][0].text);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TextGenerator<M>(Translator<M>);

impl TextGenerator<PackedModel> {
    /// Loads a model directory ([`ModelDirectory::open`]). The model is packed in single precision.
    ///
    /// # Errors
    /// When a file is missing or damaged, the model is not a language model, or the tokenizer does not fit it.
    pub fn load(directory: impl AsRef<Path>) -> Result<Self, TextError> {
        Self::packed_of(&[ModelDirectory::open(&directory)?], PackedPrecision::F32)
    }

    /// Loads the model of a directory, or an ensemble from several, packed ([`Translator::packed_of`]).
    ///
    /// # Errors
    /// As [`load`](Self::load), when no directory is given, and when the tokenizers differ.
    pub fn packed_of(
        directories: &[ModelDirectory],
        precision: PackedPrecision,
    ) -> Result<Self, TextError> {
        let load = |directory: &ModelDirectory| directory.packed(precision);
        Ok(Self(Translator::load_with(
            directories,
            LANGUAGE_MODEL,
            load,
        )?))
    }
}

impl<B: Backend> TextGenerator<LanguageModel<B>> {
    /// Loads the model of a directory on a device, or an ensemble from several.
    ///
    /// # Errors
    /// As [`packed_of`](TextGenerator::packed_of).
    pub fn of(directories: &[ModelDirectory], device: &B::Device) -> Result<Self, TextError> {
        let load = |directory: &ModelDirectory| directory.language_model(device);
        Ok(Self(Translator::load_with(
            directories,
            LANGUAGE_MODEL,
            load,
        )?))
    }
}

impl<M: NextToken> TextGenerator<M> {
    /// A generator with a model in memory, or a reference to one.
    ///
    /// # Errors
    /// When the tokenizers do not fit the model.
    pub fn new(model: M, tokenizers: impl Into<Tokenizers>) -> Result<Self, TextError> {
        Ok(Self(Translator::new(model, tokenizers)?))
    }

    /// Sets the decoding options.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn with_options(self, options: DecodeOptions) -> Result<Self, TextError> {
        Ok(Self(self.0.with_options(options)?))
    }

    /// The decoding options.
    pub fn options(&self) -> &DecodeOptions {
        self.0.options()
    }

    /// The model, or the first of an ensemble.
    pub fn model(&self) -> &M {
        self.0.model()
    }

    /// The tokenizers.
    pub fn tokenizers(&self) -> &Tokenizers {
        self.0.tokenizers()
    }

    /// Continues each prompt, which may be empty: the `n_best` texts set in the options, best first.
    ///
    /// # Errors
    /// When a prompt has too many tokens; the error names the first such prompt by its index.
    pub fn generate(
        &self,
        prompts: &[impl AsRef<str>],
    ) -> Result<Vec<Vec<GeneratedText>>, TextError> {
        let found = self.0.search()?.run(&self.requests(prompts)?)?;
        let texts = found.into_iter().map(|hypotheses| {
            let texts = hypotheses.into_iter().map(|hypothesis| {
                Ok(GeneratedText {
                    text: self.text(&hypothesis.tokens)?,
                    hypothesis,
                })
            });
            texts.collect()
        });
        texts.collect()
    }

    /// Checks that these prompts can be continued, without continuing them.
    ///
    /// # Errors
    /// The errors of [`generate`](Self::generate) that are found before anything is decoded.
    pub fn check(&self, prompts: &[impl AsRef<str>]) -> Result<(), TextError> {
        Ok(self.0.search()?.check(&self.requests(prompts)?)?)
    }

    /// Continues a prompt, and emits each piece of the text, the prompt included, as soon as it is final: during
    /// decoding with a beam of one, otherwise at the end.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn stream(
        &self,
        prompt: &str,
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), TextError> {
        let requests = self.requests(&[prompt])?;
        self.0
            .stream_text(&requests, |tokens| self.text(tokens), on_text)
    }

    /// Scores whole texts: the log-probability of each token of a text after `<bos>`, with `<eos>` at its end.
    ///
    /// # Errors
    /// When a text has too many tokens; the error names the first such text by its index.
    pub fn score(&self, texts: &[impl AsRef<str>]) -> Result<Vec<TargetScore>, TextError> {
        let eos = self.model().vocabulary().special_tokens.eos;
        let ended = |mut tokens: Vec<u32>| {
            tokens.push(eos);
            SourceTarget::exact([], tokens)
        };
        let pairs: Vec<_> = self.encoded(texts)?.into_iter().map(ended).collect();
        let batch_tokens = self.options().batch_tokens;
        Ok(score(self.0.models(), &pairs, batch_tokens)?)
    }

    fn requests(&self, prompts: &[impl AsRef<str>]) -> Result<Vec<Request>, TextError> {
        let prompts = self.encoded(prompts)?.into_iter();
        Ok(prompts.map(Request::prompt).collect())
    }

    fn encoded(&self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<u32>>, TextError> {
        let tokens = texts.iter().enumerate().map(|(index, text)| {
            let tokens = self.tokenizers().target().encode(text.as_ref());
            tokens.map_err(|error| in_sentence(error, index))
        });
        tokens.collect()
    }

    fn text(&self, tokens: &[u32]) -> Result<String, TextError> {
        self.tokenizers().target().decode(tokens)
    }
}
