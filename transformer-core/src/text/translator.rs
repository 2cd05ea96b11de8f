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
            check(&tokenizers, &config, directory)?;
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
        check(&tokenizers, model.config(), Path::new(""))?;
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
        let prefix = self.prefix(prefix)?;
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

    /// Translates one sentence into a translation that begins with the prefix, and emits each piece of its
    /// text as soon as it is final: with a beam of one during decoding, otherwise at its end. All pieces
    /// together, the prefix's among them, are the translation, unless `on_text` returns
    /// [`ControlFlow::Break`].
    ///
    /// # Errors
    /// As [`translate`](Self::translate).
    pub fn stream(
        &self,
        sentence: &str,
        prefix: &str,
        mut on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), TextError> {
        let Some(source) = self.source(sentence)? else {
            return Ok(());
        };
        let request = Request::new(source).with_prefix(self.prefix(prefix)?);
        let mut tokens = Vec::new();
        let mut emitted = String::new();
        let mut end = Ok(());
        let mut flow = ControlFlow::Continue(());
        self.search()?.stream(&[request], |_, token| {
            tokens.push(token);
            flow = match self.line(&tokens) {
                // Perhaps an incomplete character: wait for its other bytes.
                Ok(text)
                    if text.ends_with(char::REPLACEMENT_CHARACTER)
                        || self.tokenizers.target().is_byte(token) =>
                {
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
        let target = &translation.hypothesis.tokens[..];
        let pair = match self.source(sentence)? {
            Some(source) => SourceTarget::unfinished(source, target),
            None => SourceTarget::exact([], target),
        };
        let maps = self.model().attention_maps(&pair)?;
        // [layers, 1, n_heads, tgt_len, src_len]
        let maps: Tensor<B, 5> = Tensor::stack(maps.cross, 0);
        let mean = maps.mean_dim(2).mean_dim(0);
        let most: Vec<i64> = mean.argmax(4).into_data().iter().collect();
        // An empty target has one row, after `<bos>`.
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

    /// The tokens of a prefix.
    fn prefix(&self, prefix: &str) -> Result<Vec<u32>, TextError> {
        match prefix {
            "" => Ok(Vec::new()),
            prefix => self.tokenizers.target().encode(prefix),
        }
    }

    /// The text of tokens, in one line.
    fn line(&self, tokens: &[u32]) -> Result<String, TextError> {
        let text = self.tokenizers.target().decode(tokens)?;
        Ok(text.replace(['\n', '\r'], " "))
    }
}

/// Checks that tokenizers fit a model of this configuration.
fn check(
    tokenizers: &Tokenizers,
    config: &TransformerConfig,
    directory: &Path,
) -> Result<(), TextError> {
    let sizes = [config.src_vocab_size, config.tgt_vocab_size];
    tokenizers.check(sizes, config.special_tokens(), directory)
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

#[cfg(test)]
mod tests {
    use super::super::tokenizer::Tokenizer;
    use super::super::tokenizer::tests::words;
    use super::*;
    use crate::decoding::{MaxLength, Sampling};
    use burn_ndarray::NdArray;

    fn translator() -> Translator<NdArray> {
        let config = TransformerConfig {
            d_model: 8,
            n_heads: 2,
            d_ff: 8,
            n_encoder_layers: 1,
            n_decoder_layers: 2,
            ..TransformerConfig::base(9)
        };
        let model: Transformer<NdArray> = config.init(1, &Default::default()).unwrap();
        Translator::new(model, words(&["a", "b", "c", "d", "e"])).unwrap()
    }

    #[test]
    fn a_stream_is_the_translation_with_its_prefix() {
        for options in [DecodeOptions::greedy(), DecodeOptions::beam(3)] {
            let options = DecodeOptions {
                max_length: MaxLength::Tokens(6),
                // Every token is a word.
                banned_tokens: vec![0, 1, 3],
                ..options
            };
            let translator = translator().with_options(options).unwrap();
            for prefix in ["", "c a"] {
                let mut streamed = String::new();
                let emitted = translator.stream("a b", prefix, |text| {
                    streamed += text;
                    ControlFlow::Continue(())
                });
                emitted.unwrap();
                let whole = translator.translate_n_best(&["a b"], prefix).unwrap();
                assert_eq!(streamed, whole[0][0].text);
                assert!(streamed.starts_with(prefix), "{streamed}");
            }
        }
    }

    /// `漢` is `E6 BC A2`; an `E6` without the others makes all bytes beside it undecodable, those before it, too.
    #[test]
    fn a_stream_of_bytes_is_the_translation() {
        let tokens = ["<0xE6>", "<0xBC>", "<0xA2>", " a", "b"];
        let special = ["<pad>", "<bos>", "<eos>", "<unk>"];
        let entries = special.iter().chain(&tokens);
        let vocabulary: Vec<String> = entries.map(|token| format!("[{token:?}, -1.0]")).collect();
        let json = format!(
            r#"{{
                "version": "1.0",
                "added_tokens": [],
                "decoder": {{
                    "type": "Sequence",
                    "decoders": [{{"type": "ByteFallback"}}, {{"type": "Fuse"}}]
                }},
                "model": {{
                    "type": "Unigram",
                    "unk_id": 3,
                    "byte_fallback": true,
                    "vocab": [{}]
                }}
            }}"#,
            vocabulary.join(", ")
        );
        let bytes: tokenizers::Tokenizer = json.parse().unwrap();
        let tokenizers =
            Tokenizers::separate(words(&["a", "b", "c", "d", "e"]), Tokenizer::from(bytes));
        let model = translator().model().clone();
        for seed in 0..10 {
            let options = DecodeOptions {
                max_length: MaxLength::Tokens(12),
                // Every token is text.
                banned_tokens: vec![0, 1, 3],
                ..DecodeOptions::sample(Sampling {
                    seed,
                    ..Sampling::default()
                })
            };
            let translator = Translator::new(model.clone(), tokenizers.clone()).unwrap();
            let translator = translator.with_options(options).unwrap();
            for prefix in ["", "漢", "漢 a"] {
                let mut streamed = String::new();
                let emitted = translator.stream("a b", prefix, |text| {
                    streamed += text;
                    ControlFlow::Continue(())
                });
                emitted.unwrap();
                let whole = translator.translate_n_best(&["a b"], prefix).unwrap();
                assert_eq!(streamed, whole[0][0].text);
                assert!(prefix != "漢 a" || streamed.starts_with(prefix));
            }
        }
    }

    /// One source token for each token of the translation, `<eos>` among those of the source.
    #[test]
    fn each_token_of_a_translation_is_aligned() {
        let translator = translator();
        let found = translator.translate_n_best(&["a b"], "c a d").unwrap();
        let pairs = translator.align("a b", &found[0][0]).unwrap();
        assert_eq!(pairs.len(), found[0][0].hypothesis.tokens.len());
        for (position, (source, target)) in pairs.into_iter().enumerate() {
            assert!(source < 3);
            assert_eq!(target, position);
        }
        assert!(translator.align(" ", &found[0][0]).is_err());
    }
}
