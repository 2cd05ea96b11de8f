//! Sentences in, sentences out: tokenizers, model and decoding together.

use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::tokenizer::{TextError, Tokenizers};
use crate::config::TransformerConfig;
use crate::decoding::{
    DecodeOptions, Ensemble, Hypothesis, Request, Search, SourceTarget, TargetScore, score,
};
use crate::error::{DecodeError, DecodeOptionsError};
use crate::transformer::Transformer;

/// A translation of a sentence.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Translation {
    /// The translation, in one line.
    pub text: String,
    /// The hypothesis that it was decoded from.
    pub hypothesis: Hypothesis,
}

/// A model, or an ensemble of models, that translates sentences: by default with the paper's beam
/// search (§6.1), else as set by [`with_options`](Self::with_options).
///
/// ```no_run
/// use burn_ndarray::NdArray;
/// use transformer_core::Translator;
///
/// # fn main() -> Result<(), transformer_core::TextError> {
/// let translator = Translator::<NdArray>::load("model", &Default::default())?;
/// println!("{}", translator.translate("The cat sat on the mat.")?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Translator<B: Backend> {
    models: Ensemble<Transformer<B>>,
    tokenizers: Tokenizers,
    options: DecodeOptions,
}

impl<B: Backend> Translator<B> {
    /// Reads a model directory: `config.json`, `model.safetensors` and `tokenizer.json`.
    ///
    /// # Errors
    /// When a file is missing or damaged, or the tokenizer is not the model's.
    pub fn load(directory: impl AsRef<Path>, device: &B::Device) -> Result<Self, TextError> {
        Self::load_ensemble(&[directory], device)
    }

    /// Reads the model directories of an ensemble.
    ///
    /// # Errors
    /// When no directory is given, a file is missing or damaged, or the tokenizers differ.
    pub fn load_ensemble(
        directories: &[impl AsRef<Path>],
        device: &B::Device,
    ) -> Result<Self, TextError> {
        let first = directories
            .first()
            .ok_or(DecodeOptionsError::NoModel)?
            .as_ref();
        let tokenizers = Tokenizers::load(first)?;
        let mut models = Vec::new();
        for directory in directories.iter().map(AsRef::as_ref) {
            if !Tokenizers::load(directory)?.have_vocabularies_of(&tokenizers) {
                return Err(TextError::OtherTokenizer {
                    path: directory.to_owned(),
                    first: first.to_owned(),
                });
            }
            let config = TransformerConfig::load(directory)?;
            tokenizers.check(&config, directory)?;
            models.push(Transformer::load(directory, device)?);
        }
        Ok(Self {
            models: Ensemble::new(models)?,
            tokenizers,
            options: DecodeOptions::default(),
        })
    }

    /// A translator with a model in memory.
    ///
    /// # Errors
    /// When the tokenizers are not the model's.
    pub fn new(
        model: Transformer<B>,
        tokenizers: impl Into<Tokenizers>,
    ) -> Result<Self, TextError> {
        let tokenizers = tokenizers.into();
        tokenizers.check(model.config(), "")?;
        Ok(Self {
            models: Ensemble::new(vec![model])?,
            tokenizers,
            options: DecodeOptions::default(),
        })
    }

    /// Sets the options of decoding.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn with_options(mut self, options: DecodeOptions) -> Result<Self, TextError> {
        self.options = options;
        self.search()?;
        Ok(self)
    }

    /// The model, or the first of an ensemble.
    pub fn model(&self) -> &Transformer<B> {
        &self.models.models()[0]
    }

    /// The tokenizers.
    pub fn tokenizers(&self) -> &Tokenizers {
        &self.tokenizers
    }

    /// Translates one sentence; an empty one into an empty one.
    ///
    /// # Errors
    /// When the sentence has too many tokens.
    pub fn translate(&self, sentence: &str) -> Result<String, TextError> {
        let translations = self.translate_batch(&[sentence])?;
        Ok(translations.into_iter().next().unwrap_or_default())
    }

    /// Translates sentences in batches, and returns the translations in the order of the sentences.
    ///
    /// # Errors
    /// When a sentence has too many tokens: then none is translated.
    pub fn translate_batch(&self, sentences: &[impl AsRef<str>]) -> Result<Vec<String>, TextError> {
        let translations = self.translate_n_best(sentences, "")?.into_iter();
        let best = |of_one: Vec<Translation>| of_one.into_iter().next().map(|best| best.text);
        Ok(translations
            .map(|of_one| best(of_one).unwrap_or_default())
            .collect())
    }

    /// Translates each sentence into `n_best` translations, as set in the options, the best first, all
    /// beginning with the prefix. An empty sentence has none.
    ///
    /// # Errors
    /// As [`translate_batch`](Self::translate_batch).
    pub fn translate_n_best(
        &self,
        sentences: &[impl AsRef<str>],
        prefix: &str,
    ) -> Result<Vec<Vec<Translation>>, TextError> {
        let mut translations = vec![Vec::new(); sentences.len()];
        let prefix = match prefix {
            "" => Vec::new(),
            prefix => self.tokenizers.target().encode(prefix)?,
        };
        let mut requests = Vec::new();
        let mut indices = Vec::new();
        for (index, sentence) in sentences.iter().enumerate() {
            if let Some(source) = self.source(sentence.as_ref())? {
                requests.push(Request::new(source).with_prefix(prefix.clone()));
                indices.push(index);
            }
        }
        let found = self.search()?.run(&requests).map_err(|error| DecodeError {
            index: indices[error.index],
            ..error
        })?;
        for (index, hypotheses) in indices.into_iter().zip(found) {
            for hypothesis in hypotheses {
                translations[index].push(Translation {
                    text: self.line(&hypothesis.tokens)?,
                    hypothesis,
                });
            }
        }
        Ok(translations)
    }

    /// Translates one sentence, and emits each piece of its text as soon as it is final: with a beam of
    /// one during decoding, otherwise at its end. All pieces together are the translation, unless
    /// `on_text` returns [`ControlFlow::Break`].
    ///
    /// # Errors
    /// As [`translate`](Self::translate).
    pub fn stream(
        &self,
        sentence: &str,
        mut on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), TextError> {
        let Some(source) = self.source(sentence)? else {
            return Ok(());
        };
        let mut tokens = Vec::new();
        let mut emitted = String::new();
        let mut end = Ok(());
        let mut flow = ControlFlow::Continue(());
        self.search()?.stream(&[Request::new(source)], |_, token| {
            tokens.push(token);
            flow = match self.line(&tokens) {
                // An incomplete character: wait for its other bytes.
                Ok(text) if text.ends_with(char::REPLACEMENT_CHARACTER) => {
                    ControlFlow::Continue(())
                }
                Ok(text) => emit_rest(&mut emitted, text, &mut on_text),
                Err(error) => {
                    end = Err(error);
                    ControlFlow::Break(())
                }
            };
            flow
        })?;
        end?;
        if flow.is_continue() {
            // The last piece: there is nothing left to stop.
            let _ = emit_rest(&mut emitted, self.line(&tokens)?, &mut on_text);
        }
        Ok(())
    }

    /// The probability of each translation, whose last token is `<eos>`.
    ///
    /// # Errors
    /// When a sentence is empty, or one of a pair has too many tokens.
    ///
    /// # Panics
    /// When the numbers of sentences and translations differ.
    pub fn score(
        &self,
        sentences: &[impl AsRef<str>],
        translations: &[impl AsRef<str>],
    ) -> Result<Vec<TargetScore>, TextError> {
        assert_eq!(
            sentences.len(),
            translations.len(),
            "sentences and translations must pair up"
        );
        let pairs = sentences.iter().zip(translations);
        let pairs: Result<Vec<SourceTarget>, TextError> = pairs
            .map(|(sentence, translation)| {
                // An empty sentence stays without `<eos>`, so that scoring reports it.
                let target = translation.as_ref().trim();
                let target = self.tokenizers.target().encode(target)?;
                Ok(match self.source(sentence.as_ref())? {
                    Some(source) => SourceTarget::new(source, target),
                    None => SourceTarget::exact([], target),
                })
            })
            .collect();
        Ok(score(&self.models, &pairs?, self.options.batch_tokens)?)
    }

    /// Alignment: the source token that each token of a translation attends to most, on average over
    /// the layers and heads of the (first) model. Positions in the sentence and in the translation,
    /// from 0.
    ///
    /// # Errors
    /// When the sentence is empty or too long.
    pub fn align(
        &self,
        sentence: &str,
        translation: &Translation,
    ) -> Result<Vec<(usize, usize)>, TextError> {
        let eos = self.model().config().eos_id;
        let mut source = self.source(sentence)?.unwrap_or_default();
        if !source.is_empty() {
            source.push(eos);
        }
        let target = &translation.hypothesis.tokens;
        // The last token is predicted, but not read.
        let read = &target[..target.len().saturating_sub(1)];
        let maps = self.model().attention_maps(&source, read)?;
        // [layers, 1, n_heads, tgt_len + 1, src_len]
        let maps: Tensor<B, 5> = Tensor::stack(maps.cross, 0);
        let mean = maps.mean_dim(2).mean_dim(0);
        let most: Vec<i64> = mean.argmax(4).into_data().iter().collect();
        let positions = most.into_iter().take(target.len()).enumerate();
        Ok(positions
            .map(|(position, source)| (source as usize, position))
            .collect())
    }

    fn search(&self) -> Result<Search<'_, Ensemble<Transformer<B>>>, DecodeOptionsError> {
        Search::new(&self.models, self.options.clone())
    }

    /// The tokens of a sentence, without `<eos>`, unless it is empty.
    fn source(&self, sentence: &str) -> Result<Option<Vec<u32>>, TextError> {
        match sentence.trim() {
            "" => Ok(None),
            sentence => Ok(Some(self.tokenizers.source().encode(sentence)?)),
        }
    }

    /// The text of tokens, in one line.
    fn line(&self, tokens: &[u32]) -> Result<String, TextError> {
        let text = self.tokenizers.target().decode(tokens)?;
        Ok(text.replace(['\n', '\r'], " "))
    }
}

/// Emits the part of `text` that has not been emitted yet.
fn emit_rest(
    emitted: &mut String,
    text: String,
    on_text: &mut impl FnMut(&str) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let flow = match text.strip_prefix(emitted.as_str()) {
        Some(rest) if !rest.is_empty() => on_text(rest),
        // Later tokens may change the decoded text: then no new piece is final yet.
        _ => return ControlFlow::Continue(()),
    };
    *emitted = text;
    flow
}
