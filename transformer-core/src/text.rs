//! Sentences in, sentences out: tokenizer, model and decoding together.

use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;

use crate::config::TransformerConfig;
use crate::decoding::{GreedyOptions, greedy};
use crate::error::{DecodeError, ModelError};
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
    /// The model directory is damaged.
    #[error(transparent)]
    Model(#[from] ModelError),
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

/// A model that translates sentences.
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
    model: Transformer<B>,
    tokenizer: Tokenizer,
    device: B::Device,
}

impl<B: Backend> Translator<B> {
    /// Reads a model directory: `config.json`, `model.safetensors` and `tokenizer.json`.
    ///
    /// # Errors
    /// When a file is missing or damaged, or the tokenizer is not the model's.
    pub fn load(directory: impl AsRef<Path>, device: &B::Device) -> Result<Self, TextError> {
        let directory = directory.as_ref();
        let tokenizer = Tokenizer::load(directory)?;
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
        Ok(Self {
            model: Transformer::load(directory, device)?,
            tokenizer,
            device: device.clone(),
        })
    }

    /// The model.
    pub fn model(&self) -> &Transformer<B> {
        &self.model
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Translates one sentence; an empty one into an empty one.
    ///
    /// # Errors
    /// When the sentence has more tokens than the model has positions.
    pub fn translate(&self, sentence: &str) -> Result<String, TextError> {
        let translations = self.translate_batch(&[sentence])?;
        Ok(translations.into_iter().next().unwrap_or_default())
    }

    /// Translates sentences side by side, and answers in their order.
    ///
    /// # Errors
    /// When a sentence has more tokens than the model has positions.
    pub fn translate_batch(&self, sentences: &[impl AsRef<str>]) -> Result<Vec<String>, TextError> {
        let eos = self.model.config().eos_id;
        let mut translations = vec![String::new(); sentences.len()];
        let mut sources = Vec::new();
        let mut places = Vec::new();
        for (place, sentence) in sentences.iter().enumerate() {
            let sentence = sentence.as_ref().trim();
            if !sentence.is_empty() {
                let mut source = self.tokenizer.encode(sentence)?;
                source.push(eos);
                sources.push(source);
                places.push(place);
            }
        }
        let options = GreedyOptions::default();
        let hypotheses =
            greedy(&self.model, &sources, &options, &self.device).map_err(|error| DecodeError {
                index: places[error.index],
                ..error
            })?;
        for (place, hypothesis) in places.into_iter().zip(hypotheses) {
            // One sentence in, one line out.
            let text = self.tokenizer.decode(&hypothesis.tokens)?;
            translations[place] = text.replace(['\n', '\r'], " ");
        }
        Ok(translations)
    }
}
