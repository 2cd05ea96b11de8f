//! Sentences decoded by any model: from text to requests, through search, and back to text.

use std::ops::ControlFlow;

use burn::tensor::backend::Backend;

use super::clean_up::UNSETTLED;
use super::error::TextError;
use super::model_tokenizers::Tokenizers;
use crate::decoding::{DecodeOptions, Hypothesis, NextToken, Request, Search};
use crate::error::{DecodeError, DecodeOptionsError, RequestProblem};

/// A translation of a sentence.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Translation {
    /// The translation, in one line.
    pub text: String,
    /// The hypothesis that it was decoded from.
    pub hypothesis: Hypothesis,
}

/// [`Search`] with sentences in place of tokens, for any model that is a [`NextToken`] and reads sources.
///
/// It borrows the model, so that one that is being trained can translate. A
/// [`Translator`](crate::Translator) has its models and tokenizers.
///
/// ```
/// use burn_ndarray::NdArray;
/// use transformer_core::{DecodeOptions, TextSearch, Tokenizer, TransformerConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("tokenizer.json");
/// # std::fs::write(&path, r#"{"version": "1.0", "added_tokens": [],
/// #     "pre_tokenizer": {"type": "WhitespaceSplit"},
/// #     "model": {"type": "WordLevel", "unk_token": "<unk>",
/// #         "vocab": {"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3, "a": 4, "b": 5}}}"#)?;
/// let tokenizers = Tokenizer::from_file(path)?.into();
/// let model = TransformerConfig::notebook_mini(6).init::<NdArray>(0, &Default::default())?;
/// let search = TextSearch::new(&model, &tokenizers, DecodeOptions::beam(2))?;
/// let translations = search.translate(&["a b", "b"])?;
/// assert_eq!(translations.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TextSearch<'a, M> {
    search: Search<'a, M>,
    tokenizers: &'a Tokenizers,
}

impl<'a, M> TextSearch<'a, M> {
    /// A search with a model and its tokenizers. The language of the targets, if one was chosen
    /// ([`Tokenizers::target_first`]), is their first token, whatever the options say.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn new<B: Backend>(
        model: &'a M,
        tokenizers: &'a Tokenizers,
        options: DecodeOptions,
    ) -> Result<Self, DecodeOptionsError>
    where
        M: NextToken<B>,
    {
        let forced_first = tokenizers.target_first().or(options.forced_first);
        let options = DecodeOptions {
            forced_first,
            ..options
        };
        Ok(Self {
            search: Search::new(model, options)?,
            tokenizers,
        })
    }

    /// Checks that the model can translate sentences into translations that begin with the prefix, and translates none.
    ///
    /// # Errors
    /// When a sentence or the prefix has too many tokens; the error names the first such sentence by its index.
    pub fn check<B: Backend>(
        &self,
        sentences: &[impl AsRef<str>],
        prefix: &str,
    ) -> Result<(), TextError>
    where
        M: NextToken<B>,
    {
        let Requests { indices, requests } = self.requests(sentences, prefix)?;
        self.search
            .check(&requests)
            .map_err(|error| of_sentence(error, &indices))?;
        Ok(())
    }

    /// Translates sentences in batches, and returns the best translation of each, in their order; of an empty
    /// sentence, an empty one.
    ///
    /// # Errors
    /// When a sentence has too many tokens: then none is translated.
    pub fn translate<B: Backend>(
        &self,
        sentences: &[impl AsRef<str>],
    ) -> Result<Vec<String>, TextError>
    where
        M: NextToken<B>,
    {
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
    /// As [`translate`](Self::translate).
    pub fn translate_n_best<B: Backend>(
        &self,
        sentences: &[impl AsRef<str>],
        prefix: &str,
    ) -> Result<Vec<Vec<Translation>>, TextError>
    where
        M: NextToken<B>,
    {
        let mut translations = vec![Vec::new(); sentences.len()];
        let Requests { indices, requests } = self.requests(sentences, prefix)?;
        let found = self
            .search
            .run(&requests)
            .map_err(|error| of_sentence(error, &indices))?;
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
    pub fn stream<B: Backend>(
        &self,
        sentence: &str,
        prefix: &str,
        mut on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), TextError>
    where
        M: NextToken<B>,
    {
        let Requests { requests, .. } = self.requests(&[sentence], prefix)?;
        let mut tokens = Vec::new();
        let mut emitted = String::new();
        let mut end = Ok(());
        let mut flow = ControlFlow::Continue(());
        self.search.stream(&requests, |_, token| {
            tokens.push(token);
            flow = match self.line(&tokens) {
                // Perhaps an incomplete character: wait for its other bytes.
                Ok(text)
                    if text.ends_with(char::REPLACEMENT_CHARACTER)
                        || self.tokenizers.target().is_byte(token) =>
                {
                    ControlFlow::Continue(())
                }
                Ok(text) => emit_rest(&mut emitted, self.settled(text), &mut on_text),
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

    /// The requests of the sentences that are not empty.
    fn requests(&self, sentences: &[impl AsRef<str>], prefix: &str) -> Result<Requests, TextError> {
        let prefix = match prefix {
            "" => Vec::new(),
            prefix => self.tokenizers.encode_target(prefix)?,
        };
        let mut found = Requests::default();
        for (index, sentence) in sentences.iter().enumerate() {
            let source = source_tokens(self.tokenizers, sentence.as_ref());
            let source = source.map_err(|error| in_sentence(error, index))?;
            if let Some(source) = source {
                let request = Request::new(source).with_prefix(prefix.clone());
                found.requests.push(request);
                found.indices.push(index);
            }
        }
        Ok(found)
    }

    /// The beginning of a text that later tokens do not change.
    fn settled(&self, mut text: String) -> String {
        if self.tokenizers.target().cleans_spaces() {
            let unsettled = text.char_indices().rev().nth(UNSETTLED - 1);
            text.truncate(unsettled.map_or(0, |(at, _)| at));
        }
        text
    }

    /// The text of tokens, in one line.
    fn line(&self, tokens: &[u32]) -> Result<String, TextError> {
        let text = self.tokenizers.target().decode(tokens)?;
        Ok(text.replace(['\n', '\r'], " "))
    }
}

/// The tokens of a sentence, without `<eos>`, unless it is empty.
pub(super) fn source_tokens(
    tokenizers: &Tokenizers,
    sentence: &str,
) -> Result<Option<Vec<u32>>, TextError> {
    match sentence.trim() {
        "" => Ok(None),
        sentence => Ok(Some(tokenizers.encode_source(sentence)?)),
    }
}

/// A tokenizer's error about a sentence, with the sentence's index.
pub(super) fn in_sentence(error: TextError, index: usize) -> TextError {
    match error {
        TextError::Tokenizer(problem) => DecodeError {
            index,
            problem: RequestProblem::Text { problem },
        }
        .into(),
        error => error,
    }
}

/// Requests, and the index of the sentence of each.
#[derive(Default)]
struct Requests {
    requests: Vec<Request>,
    indices: Vec<usize>,
}

/// The error with a request as one with its sentence.
fn of_sentence(error: DecodeError, indices: &[usize]) -> DecodeError {
    DecodeError {
        index: indices[error.index],
        ..error
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

#[cfg(test)]
mod tests {
    use super::super::tokenizer::tests::words;
    use super::*;
    use crate::config::TransformerConfig;
    use burn_ndarray::NdArray;

    #[test]
    fn sentences_are_checked_without_being_translated() {
        let config = TransformerConfig {
            d_model: 8,
            n_heads: 2,
            d_ff: 8,
            n_encoder_layers: 1,
            n_decoder_layers: 1,
            ..TransformerConfig::base(6)
        };
        let model = config.init::<NdArray>(1, &Default::default()).unwrap();
        let tokenizers = Tokenizers::shared(words(&["a", "b"]));
        let options = DecodeOptions {
            max_src_len: 3,
            ..DecodeOptions::greedy()
        };
        let search = TextSearch::new(&model, &tokenizers, options).unwrap();
        search.check(&["a", " ", "a b"], "").unwrap();
        // Three tokens and `<eos>`; the empty sentence before it counts.
        let error = search.check(&["a", " ", "a b a"], "").unwrap_err();
        let expected = "source 2 has 4 tokens, more than the limit of 3";
        assert_eq!(error.to_string(), expected);
        let error = search.translate(&["a", " ", "a b a"]).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(search.translate(&[" "]).unwrap(), [""]);
    }
}
