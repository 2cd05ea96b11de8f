//! Sentences in, sentences out: tokenizer, model and decoding together.

use std::path::{Path, PathBuf};

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::config::TransformerConfig;
use crate::decoding::{DecodeOptions, Hypothesis, Search, TargetScore, attention_maps, score};
use crate::error::{DecodeError, DecodeOptionsError, ModelError};
use crate::files::replace_file_with;
use crate::transformer::Transformer;

/// The tokenizer's file in a model directory, in Hugging Face's format.
pub const TOKENIZER_FILE: &str = "tokenizer.json";

/// Text that cannot be read, written or translated.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// `tokenizer.json` is missing or damaged.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The tokenizer has more entries than the model has embeddings.
    #[error(
        "{}: {tokens} tokens for a model that knows {vocab_size}",
        path.display()
    )]
    Vocabulary {
        /// The tokenizer's file.
        path: PathBuf,
        /// Entries of the tokenizer.
        tokens: usize,
        /// Entries of the model's smaller vocabulary.
        vocab_size: usize,
    },
    /// The tokenizer failed on a sentence.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The tokenizers of an ensemble are not the same.
    #[error("{}: not the tokenizer of {}", path.display(), first.display())]
    OtherTokenizer {
        /// The model directory with another tokenizer.
        path: PathBuf,
        /// The first model's directory.
        first: PathBuf,
    },
    /// The model directory is damaged.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The options are out of range.
    #[error(transparent)]
    Options(#[from] DecodeOptionsError),
    /// The model cannot take a sentence: its index is the place among those given.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// A subword tokenizer: Hugging Face's, with special tokens that only a model can say.
///
/// Text that spells a special token, such as `<eos>`, is encoded as text.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
}

impl From<tokenizers::Tokenizer> for Tokenizer {
    fn from(mut inner: tokenizers::Tokenizer) -> Self {
        // Not part of the file format: it must be said each time.
        inner.set_encode_special_tokens(true);
        Self { inner }
    }
}

impl Tokenizer {
    /// Reads `tokenizer.json` from a model directory.
    ///
    /// # Errors
    /// When the file is missing or is not a tokenizer.
    pub fn load(directory: impl AsRef<Path>) -> Result<Self, TextError> {
        let path = directory.as_ref().join(TOKENIZER_FILE);
        match tokenizers::Tokenizer::from_file(&path) {
            Ok(inner) => Ok(inner.into()),
            Err(error) => Err(TextError::File {
                path,
                problem: error.to_string(),
            }),
        }
    }

    /// Writes `tokenizer.json` into a directory that exists.
    ///
    /// # Errors
    /// When the file cannot be written; an older one then stays as it was.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<(), TextError> {
        let path = directory.as_ref().join(TOKENIZER_FILE);
        let written = self
            .inner
            .to_string(false)
            .map_err(|error| error.to_string())
            .and_then(|json| replace_file_with(&path, json).map_err(|error| error.to_string()));
        written.map_err(|problem| TextError::File { path, problem })
    }

    fn vocabulary(&self) -> std::collections::HashMap<String, u32> {
        self.inner.get_vocab(true)
    }

    /// Entries, special tokens among them.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The tokens of a text, without `<bos>` and `<eos>`.
    ///
    /// # Errors
    /// When the tokenizer has no way to say the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        match self.inner.encode_fast(text, false) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(error) => Err(TextError::Tokenizer(error.to_string())),
        }
    }

    /// What a token stands for, to be read by people: its text, or its name in the vocabulary where it
    /// is no text by itself.
    pub fn token(&self, token: u32) -> String {
        let name = || self.inner.id_to_token(token).unwrap_or_default();
        match self.decode(&[token]) {
            Ok(text) if !text.is_empty() && !text.contains(char::REPLACEMENT_CHARACTER) => text,
            _ => name(),
        }
    }

    /// The text of tokens; special ones are left out.
    ///
    /// # Errors
    /// When the tokenizer cannot join the tokens.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TextError> {
        self.inner
            .decode(tokens, true)
            .map_err(|error| TextError::Tokenizer(error.to_string()))
    }
}

/// A translation of a sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Translation {
    /// In one line.
    pub text: String,
    /// What it was decoded from.
    pub hypothesis: Hypothesis,
}

/// A model, or an ensemble of models, that translates sentences: by the paper's beam search (§6.1),
/// unless [`with_options`](Self::with_options) says otherwise.
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
    models: Vec<Transformer<B>>,
    tokenizer: Tokenizer,
    options: DecodeOptions,
    device: B::Device,
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
    /// When there is none, a file is missing or damaged, or the models have different tokenizers.
    pub fn load_ensemble(
        directories: &[impl AsRef<Path>],
        device: &B::Device,
    ) -> Result<Self, TextError> {
        let first = directories
            .first()
            .ok_or(DecodeOptionsError::NoModel)?
            .as_ref();
        let tokenizer = Tokenizer::load(first)?;
        let mut models = Vec::new();
        for directory in directories.iter().map(AsRef::as_ref) {
            if Tokenizer::load(directory)?.vocabulary() != tokenizer.vocabulary() {
                return Err(TextError::OtherTokenizer {
                    path: directory.to_owned(),
                    first: first.to_owned(),
                });
            }
            let config = TransformerConfig::load(directory)?;
            let vocab_size = config.src_vocab_size.min(config.tgt_vocab_size);
            let tokens = tokenizer.vocab_size();
            if tokens > vocab_size {
                return Err(TextError::Vocabulary {
                    path: directory.join(TOKENIZER_FILE),
                    tokens,
                    vocab_size,
                });
            }
            models.push(Transformer::load(directory, device)?);
        }
        let translator = Self {
            models,
            tokenizer,
            options: DecodeOptions::default(),
            device: device.clone(),
        };
        // That the models fit each other.
        translator.search()?;
        Ok(translator)
    }

    /// Says how to decode.
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
        &self.models[0]
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Translates one sentence; an empty one into an empty one.
    ///
    /// # Errors
    /// When the sentence has too many tokens.
    pub fn translate(&self, sentence: &str) -> Result<String, TextError> {
        let translations = self.translate_batch(&[sentence])?;
        Ok(translations.into_iter().next().unwrap_or_default())
    }

    /// Translates sentences side by side, and answers in their order.
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

    /// Translates sentences into as many translations of each as the options ask for, the best
    /// first, all beginning with the prefix. An empty sentence has none.
    ///
    /// # Errors
    /// As [`translate_batch`](Self::translate_batch).
    pub fn translate_n_best(
        &self,
        sentences: &[impl AsRef<str>],
        prefix: &str,
    ) -> Result<Vec<Vec<Translation>>, TextError> {
        let mut translations = vec![Vec::new(); sentences.len()];
        let mut sources = Vec::new();
        let mut places = Vec::new();
        for (place, sentence) in sentences.iter().enumerate() {
            if let Some(source) = self.source(sentence.as_ref())? {
                sources.push(source);
                places.push(place);
            }
        }
        let prefixes = match prefix {
            "" => Vec::new(),
            prefix => vec![self.tokenizer.encode(prefix)?; sources.len()],
        };
        let search = self.search()?.with_prefixes(&prefixes);
        let found = search.run(&sources).map_err(|error| DecodeError {
            index: places[error.index],
            ..error
        })?;
        for (place, hypotheses) in places.into_iter().zip(found) {
            for hypothesis in hypotheses {
                translations[place].push(Translation {
                    text: self.line(&hypothesis.tokens)?,
                    hypothesis,
                });
            }
        }
        Ok(translations)
    }

    /// Translates one sentence, telling its text piece by piece as it becomes certain: with a beam of
    /// one while it is decoded. All pieces together are the translation.
    ///
    /// # Errors
    /// As [`translate`](Self::translate).
    pub fn stream(&self, sentence: &str, mut on_text: impl FnMut(&str)) -> Result<(), TextError> {
        let Some(source) = self.source(sentence)? else {
            return Ok(());
        };
        let mut tokens = Vec::new();
        let mut told = String::new();
        let mut failed = None;
        self.search()?.stream(&[source], |_, token| {
            tokens.push(token);
            match self.line(&tokens) {
                // The first bytes of a character are not one yet.
                Ok(text) if text.ends_with(char::REPLACEMENT_CHARACTER) => {}
                Ok(text) => {
                    if let Some(new) = text.strip_prefix(&told) {
                        on_text(new);
                        told = text;
                    }
                }
                Err(error) => failed = Some(error),
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let text = self.line(&tokens)?;
        if let Some(rest) = text.strip_prefix(&told)
            && !rest.is_empty()
        {
            on_text(rest);
        }
        Ok(())
    }

    /// How probable translations are: `<eos>` is the last token of each.
    ///
    /// # Errors
    /// When a sentence is empty, or one of a pair has too many tokens.
    pub fn score(
        &self,
        sentences: &[impl AsRef<str>],
        translations: &[impl AsRef<str>],
    ) -> Result<Vec<TargetScore>, TextError> {
        let encode = |text: &str| Ok(self.source(text)?.unwrap_or_default());
        let sources: Result<Vec<Vec<u32>>, TextError> =
            sentences.iter().map(|text| encode(text.as_ref())).collect();
        let targets: Result<Vec<Vec<u32>>, TextError> = translations
            .iter()
            .map(|text| self.with_eos(text.as_ref().trim()))
            .collect();
        let models: Vec<_> = self.models.iter().collect();
        let (sources, targets, tokens) = (sources?, targets?, self.options.batch_tokens);
        Ok(score(&models, &sources, &targets, tokens, &self.device)?)
    }

    /// Which source token each token of a translation attends to most, on average over the layers and
    /// heads of the (first) model: places in the sentence and in the translation, from 0.
    ///
    /// # Errors
    /// When the sentence is empty or too long.
    pub fn align(
        &self,
        sentence: &str,
        translation: &Translation,
    ) -> Result<Vec<(usize, usize)>, TextError> {
        let source = self.source(sentence)?.unwrap_or_default();
        let target = &translation.hypothesis.tokens;
        // No token follows the last one.
        let read = &target[..target.len().saturating_sub(1)];
        let (_, maps) = attention_maps(self.model(), &source, read, &self.device)?;
        // [layers, 1, n_heads, tgt_len + 1, src_len]
        let maps: Tensor<B, 5> = Tensor::stack(maps.cross_attention, 0);
        let mean = maps.mean_dim(2).mean_dim(0);
        let most: Vec<i64> = mean.argmax(4).into_data().iter().collect();
        let places = most.into_iter().take(target.len()).enumerate();
        Ok(places
            .map(|(place, source)| (source as usize, place))
            .collect())
    }

    fn search(&self) -> Result<Search<'_, B>, DecodeOptionsError> {
        let models: Vec<_> = self.models.iter().collect();
        Search::new(&models, self.options.clone(), &self.device)
    }

    /// The tokens of a sentence, unless it is empty.
    fn source(&self, sentence: &str) -> Result<Option<Vec<u32>>, TextError> {
        match sentence.trim() {
            "" => Ok(None),
            sentence => Ok(Some(self.with_eos(sentence)?)),
        }
    }

    fn with_eos(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut tokens = self.tokenizer.encode(text)?;
        tokens.push(self.model().config().eos_id);
        Ok(tokens)
    }

    /// One sentence in, one line out.
    fn line(&self, tokens: &[u32]) -> Result<String, TextError> {
        let text = self.tokenizer.decode(tokens)?;
        Ok(text.replace(['\n', '\r'], " "))
    }
}
