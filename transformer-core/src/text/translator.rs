//! Translation of sentences: tokenizers, model and decoding together.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use burn::tensor::backend::Backend;
use transformer_cpu::PackedPrecision;

use crate::decoding::{
    CrossAttention, DecodeOptions, Ensemble, Hypothesis, NextToken, Request, Search, SourceTarget,
    TargetScore, Vocabulary, cross_attention, score,
};
use crate::decoding::{DecodeError, DecodeOptionsError, RequestProblem};
use crate::formats::directory::ModelDirectory;
use crate::formats::error::ModelError;
use crate::formats::names::CONFIG_FILE;
use crate::formats::own::config::TRANSFORMER;
use crate::models::config::TransformerConfig;
use crate::models::transformer::Transformer;
use crate::packed::PackedModel;
use crate::text::alignment::Alignment;
use crate::text::clean_up::UNSETTLED;
use crate::text::error::TextError;
use crate::text::tokenizers::Tokenizers;

/// A translation of a sentence.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Translation {
    /// The text, in one line.
    pub text: String,
    /// The hypothesis that it was decoded from.
    pub hypothesis: Hypothesis,
}

/// A model or ensemble that translates sentences. The decoding options are set by [`with_options`](Self::with_options),
/// or come from the directory's `generation_config.json` ([`DecodeOptions::of_directory`]), or else are the paper's
/// beam search (§6.1). It is `Send` and `Sync` on every backend, so several threads can share one by reference.
///
/// ```no_run
/// use transformer_core::Translator;
///
/// # fn main() -> Result<(), transformer_core::text::TextError> {
/// let translator = Translator::load("model")?;
/// println!("{}", translator.translate("The cat sat on the mat.")?);
/// # Ok(())
/// # }
/// ```
///
/// With a model in memory, the two best translations, and the best one streamed:
///
/// ```
/// use std::ops::ControlFlow;
///
/// use burn_ndarray::NdArray;
/// use transformer_core::{DecodeOptions, TransformerConfig, Translator};
/// use transformer_core::decoding::MaxLength;
/// use transformer_core::text::Tokenizer;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("words.json");
/// # let words = r#"{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
/// #     "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": {
/// #         "<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3, "a": 4, "cat": 5, "dog": 6}}}"#;
/// # std::fs::write(&file, words)?;
/// let tokenizer = Tokenizer::from_file(&file)?;
/// let config = TransformerConfig {
///     d_model: 16,
///     n_heads: 2,
///     d_ff: 32,
///     ..TransformerConfig::base(tokenizer.vocab_size())
/// };
/// let model = config.init::<NdArray>(42, &Default::default())?;
/// let options = DecodeOptions {
///     n_best: 2,
///     max_length: MaxLength::Tokens(5),
///     ..DecodeOptions::beam(4)
/// };
/// let translator = Translator::new(model, tokenizer)?.with_options(options)?;
///
/// let found = translator.translate_n_best(&["a cat"], "")?.remove(0);
/// assert!(found[0].hypothesis.score >= found[1].hypothesis.score);
///
/// let mut streamed = String::new();
/// translator.stream("a cat", "", |text| {
///     streamed += text;
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(streamed, found[0].text);
/// # Ok(())
/// # }
/// ```
///
/// # Models
/// `M` is the type of the models. A [`PackedModel`], which [`load`](Self::load) returns, decodes fastest on the CPU, in
/// single precision or in 8 bits. A [`Transformer`] decodes on any backend ([`of`](Translator::of)). Any other
/// [`NextToken`] that reads sources works, too, and so does a reference, so that a model can translate while it is
/// being trained.
#[derive(Debug, Clone)]
pub struct Translator<M> {
    models: Ensemble<M>,
    tokenizers: Tokenizers,
    options: DecodeOptions,
}

impl Translator<PackedModel> {
    /// Loads a model directory: ours, with `config.json`, `model.safetensors` and `tokenizer.json`, or an unmodified
    /// Hugging Face directory ([`ModelDirectory::open`]). The model is packed in single precision.
    ///
    /// # Errors
    /// When a file is missing or damaged, or the tokenizer does not fit the model.
    pub fn load(directory: impl AsRef<Path>) -> Result<Self, TextError> {
        Self::packed_of(&[ModelDirectory::open(&directory)?], PackedPrecision::F32)
    }

    /// Loads the model of a directory, or an ensemble from several, which decodes with the first one's options. Weights
    /// are packed as they are read: no model is in memory unpacked. The integers of a directory written by
    /// [`quantize`](crate::formats::quantize) are packed unchanged in 8 bits.
    ///
    /// ```no_run
    /// use transformer_core::{ModelDirectory, Translator};
    /// use transformer_core::packed::PackedPrecision;
    ///
    /// # fn main() -> Result<(), transformer_core::text::TextError> {
    /// let directory = ModelDirectory::open("model")?;
    /// let translator = Translator::packed_of(&[directory], PackedPrecision::Int8)?;
    /// println!("{}", translator.translate("The cat sat on the mat.")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When no directory is given, a file is missing or damaged, or the tokenizers differ.
    pub fn packed_of(
        directories: &[ModelDirectory],
        precision: PackedPrecision,
    ) -> Result<Self, TextError> {
        Self::load_with(directories, TRANSFORMER, |directory| {
            directory.packed(precision)
        })
    }
}

impl<B: Backend> Translator<Transformer<B>> {
    /// Loads the model of a directory on a device, or an ensemble from several, which decodes with the first one's
    /// options.
    ///
    /// # Errors
    /// As [`packed_of`](Translator::packed_of).
    pub fn of(directories: &[ModelDirectory], device: &B::Device) -> Result<Self, TextError> {
        Self::load_with(directories, TRANSFORMER, |directory| {
            directory.transformer(device)
        })
    }

    /// Packs the models. Each weight is freed as soon as it is packed.
    pub fn packed(self, precision: PackedPrecision) -> Translator<PackedModel> {
        let models = self.models.into_models().into_iter();
        let models = models.map(|model| PackedModel::new(model, precision));
        Translator {
            models: Ensemble::new(models.collect()).expect("models of one vocabulary"),
            tokenizers: self.tokenizers,
            options: self.options,
        }
    }
}

impl<M: NextToken> Translator<M> {
    /// A translator with a model in memory, or a reference to one.
    ///
    /// # Errors
    /// When the tokenizers do not fit the model.
    pub fn new(model: M, tokenizers: impl Into<Tokenizers>) -> Result<Self, TextError> {
        let tokenizers = tokenizers.into();
        let Vocabulary {
            size,
            special_tokens,
        } = model.vocabulary();
        let of_sources = model.source_vocab_size().unwrap_or(usize::MAX);
        tokenizers.check([of_sources, size], special_tokens, "")?;
        Ok(Self {
            models: Ensemble::new(vec![model])?,
            tokenizers,
            options: DecodeOptions::default(),
        })
    }

    /// Loads the tokenizers of the directories, and each model, which must be of this kind, with `load`.
    pub(super) fn load_with(
        directories: &[ModelDirectory],
        kind: &str,
        load: impl Fn(&ModelDirectory) -> Result<M, ModelError>,
    ) -> Result<Self, TextError> {
        let of_one = |directory: &ModelDirectory| -> Result<_, TextError> {
            let files = directory.files();
            let path = files.path(CONFIG_FILE);
            directory.config().check_kind(&path, kind)?;
            // A tokenizer takes about as long to load as the weights.
            let (tokenizers, model) = thread::scope(|scope| {
                let tokenizers = scope.spawn(|| Tokenizers::of(files));
                let model = load(directory);
                (tokenizers.join(), model)
            });
            let tokenizers = tokenizers.unwrap_or_else(|panic| resume_unwind(panic))?;
            check(&tokenizers, directory.config(), directory.path())?;
            Ok((tokenizers, model?))
        };
        let (first, others) = directories
            .split_first()
            .ok_or(DecodeOptionsError::NoModel)?;
        let (tokenizers, model) = of_one(first)?;
        let mut models = vec![model];
        for directory in others {
            let (own, model) = of_one(directory)?;
            if !own.have_vocabularies_of(&tokenizers) {
                return Err(TextError::OtherTokenizer {
                    path: directory.path().to_owned(),
                    first: first.path().to_owned(),
                });
            }
            models.push(model);
        }
        let mut translator = Self {
            models: Ensemble::new(models)?,
            tokenizers,
            options: DecodeOptions::default(),
        };
        if let Some((path, options)) = first.options_and_path()? {
            translator.options = options;
            let checked = translator.search();
            checked.map_err(|source| ModelError::Options { path, source })?;
        }
        Ok(translator)
    }

    /// Sets the decoding options. [`with_changed_options`](Self::with_changed_options) keeps the directory's own ones.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn with_options(mut self, options: DecodeOptions) -> Result<Self, TextError> {
        self.options = options;
        self.search()?;
        Ok(self)
    }

    /// Changes decoding options, and keeps the others: those of the directory, or the paper's.
    ///
    /// ```no_run
    /// # use transformer_core::Translator;
    /// use transformer_core::decoding::Strategy;
    ///
    /// # fn main() -> Result<(), transformer_core::text::TextError> {
    /// let translator = Translator::load("model")?.with_changed_options(|options| {
    ///     options.strategy = Strategy::Beam { size: 8 };
    ///     options.n_best = 3;
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn with_changed_options(
        self,
        change: impl FnOnce(&mut DecodeOptions),
    ) -> Result<Self, TextError> {
        let mut options = self.options.clone();
        change(&mut options);
        self.with_options(options)
    }

    /// The translator with its models behind references that are counted: its clones share them, and may have other
    /// languages and options.
    pub fn shared(self) -> Translator<Arc<M>>
    where
        M: Send,
    {
        let models = self.models.into_models().into_iter().map(Arc::new);
        Translator {
            models: Ensemble::new(models.collect()).expect("models of one vocabulary"),
            tokenizers: self.tokenizers,
            options: self.options,
        }
    }

    /// A translator with other options, and with references to the same models.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn borrowed_with(&self, options: DecodeOptions) -> Result<Translator<&M>, TextError> {
        let translator = Translator {
            models: Ensemble::new(self.models.models().iter().collect())?,
            tokenizers: self.tokenizers.clone(),
            options,
        };
        translator.search()?;
        Ok(translator)
    }

    /// Chooses the languages of source and target ([`Tokenizers::with_languages`]).
    ///
    /// # Errors
    /// When a tokenizer has no token for a language; the error lists the languages that it has.
    pub fn with_languages(
        mut self,
        source: Option<&str>,
        target: Option<&str>,
    ) -> Result<Self, TextError> {
        self.tokenizers = self.tokenizers.with_languages(source, target)?;
        self.search()?;
        Ok(self)
    }

    /// The model, or the first of an ensemble.
    pub fn model(&self) -> &M {
        &self.models.models()[0]
    }

    /// The models.
    pub(super) fn models(&self) -> &Ensemble<M> {
        &self.models
    }

    /// The tokenizers.
    pub fn tokenizers(&self) -> &Tokenizers {
        &self.tokenizers
    }

    /// The decoding options.
    pub fn options(&self) -> &DecodeOptions {
        &self.options
    }

    /// Checks that sentences can be translated with this prefix, without translating them.
    ///
    /// # Errors
    /// When a sentence or the prefix has too many tokens; the error names the first such sentence by its index.
    pub fn check(&self, sentences: &[impl AsRef<str>], prefix: &str) -> Result<(), TextError> {
        let Requests { indices, requests } = self.requests(sentences, prefix)?;
        let checked = self.search()?.check(&requests);
        Ok(checked.map_err(|error| of_sentence(error, &indices))?)
    }

    /// Translates one sentence. An empty sentence gives an empty translation.
    ///
    /// # Errors
    /// When the sentence has too many tokens.
    pub fn translate(&self, sentence: &str) -> Result<String, TextError> {
        let translations = self.translate_batch(&[sentence])?;
        Ok(translations.into_iter().next().unwrap_or_default())
    }

    /// Translates sentences in batches and returns the best translation of each, in order. An empty sentence gives an
    /// empty translation.
    ///
    /// # Errors
    /// When a sentence has too many tokens; none is then translated.
    pub fn translate_batch(&self, sentences: &[impl AsRef<str>]) -> Result<Vec<String>, TextError> {
        let translations = self.translate_n_best(sentences, "")?.into_iter();
        let best = |of_one: Vec<Translation>| of_one.into_iter().next().map(|best| best.text);
        Ok(translations
            .map(|of_one| best(of_one).unwrap_or_default())
            .collect())
    }

    /// Translates each sentence into the `n_best` translations set in the options, best first, all beginning with the
    /// prefix. An empty sentence has none.
    ///
    /// # Errors
    /// As [`translate_batch`](Self::translate_batch).
    pub fn translate_n_best(
        &self,
        sentences: &[impl AsRef<str>],
        prefix: &str,
    ) -> Result<Vec<Vec<Translation>>, TextError> {
        let mut translations = vec![Vec::new(); sentences.len()];
        let Requests { indices, requests } = self.requests(sentences, prefix)?;
        let found = self.search()?.run(&requests);
        let found = found.map_err(|error| of_sentence(error, &indices))?;
        for (index, hypotheses) in indices.into_iter().zip(found) {
            for hypothesis in hypotheses {
                translations[index].push(self.translation(hypothesis)?);
            }
        }
        Ok(translations)
    }

    /// Translates one sentence into a translation that begins with the prefix, and emits each piece of its text as soon
    /// as it is final: during decoding with a beam of one, otherwise at the end. The pieces, including the prefix, add
    /// up to the translation, unless `on_text` returns [`ControlFlow::Break`].
    ///
    /// # Errors
    /// As [`translate`](Self::translate).
    pub fn stream(
        &self,
        sentence: &str,
        prefix: &str,
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), TextError> {
        let Requests { requests, .. } = self.requests(&[sentence], prefix)?;
        self.stream_text(&requests, |tokens| self.line(tokens), on_text)
    }

    /// Decodes at most one request, and emits the pieces of its text.
    pub(super) fn stream_text(
        &self,
        requests: &[Request],
        text_of: impl Fn(&[u32]) -> Result<String, TextError>,
        mut on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), TextError> {
        let mut tokens = Vec::new();
        let mut emitted = String::new();
        let mut end = Ok(());
        let mut flow = ControlFlow::Continue(());
        self.search()?.stream(requests, |_, token| {
            tokens.push(token);
            flow = match text_of(&tokens) {
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
            let _ = emit_rest(&mut emitted, text_of(&tokens)?, &mut on_text);
        }
        Ok(())
    }

    /// Scores given translations, each with a final `<eos>`.
    ///
    /// # Errors
    /// When a sentence is empty, or a sentence or translation has too many tokens.
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
        let pairs = sentences.iter().zip(translations).enumerate();
        let pairs: Result<Vec<SourceTarget>, TextError> = pairs
            .map(|(index, (sentence, translation))| {
                let pair = self.pair(sentence.as_ref(), translation.as_ref());
                pair.map_err(|error| in_sentence(error, index))
            })
            .collect();
        Ok(score(&self.models, &pairs?, self.options.batch_tokens)?)
    }

    /// The translation that a hypothesis says, such as one of a [`Search`] of your own.
    ///
    /// # Errors
    /// When the tokenizer does not have one of its tokens.
    pub fn translation(&self, hypothesis: Hypothesis) -> Result<Translation, TextError> {
        Ok(Translation {
            text: self.line(&hypothesis.tokens)?,
            hypothesis,
        })
    }

    /// Aligns a translation: per token of it, the source token attended to most while it was predicted, averaged over
    /// the layers and heads. Returns pairs of positions, from 0: of a token of the sentence, as
    /// [`Tokenizers::encode_source`] gives them, and of a token of the translation. The position after the last token
    /// of the sentence is `<eos>`. [`alignments`](Self::alignments) gives the tokens' places in the texts.
    ///
    /// # Errors
    /// When the sentence is empty or too long, or the model returns no attention.
    pub fn align(
        &self,
        sentence: &str,
        translation: &Translation,
    ) -> Result<Vec<(usize, usize)>, TextError> {
        let found = self.attention(&[(sentence, translation)])?.remove(0);
        let positions = 0..translation.hypothesis.tokens.len();
        Ok(positions
            .map(|position| {
                let row = found.row(position).iter().enumerate();
                let most = row.max_by(|(at, one), (other_at, other)| {
                    // Of equal ones, the first.
                    one.total_cmp(other).then(other_at.cmp(at))
                });
                (most.map_or(0, |(source, _)| source), position)
            })
            .collect())
    }

    /// The alignments of sentences and their translations, computed in batches: which part of a text each token is, and
    /// the attention between them.
    ///
    /// # Errors
    /// When a sentence is empty or too long, or the model returns no attention.
    pub fn alignments(&self, pairs: &[(&str, &Translation)]) -> Result<Vec<Alignment>, TextError> {
        let attention = self.attention(pairs)?.into_iter();
        let alignments = pairs.iter().zip(attention);
        let alignments = alignments.map(|(&(sentence, translation), attention)| {
            let mut source = source_tokens(&self.tokenizers, sentence)?.unwrap_or_default();
            // `<eos>`, or whatever else the model reads.
            source.resize(
                attention.src_len,
                self.models.vocabulary().special_tokens.eos,
            );
            let tokens = &translation.hypothesis.tokens[..];
            let target = (self.tokenizers.target(), tokens, &translation.text[..]);
            Alignment::new(
                [(self.tokenizers.source(), &source, sentence), target],
                attention,
            )
        });
        alignments.collect()
    }

    /// The attention of translations to their sentences.
    fn attention(&self, pairs: &[(&str, &Translation)]) -> Result<Vec<CrossAttention>, TextError> {
        let tokens = pairs.iter().map(|&(sentence, translation)| {
            let target = &translation.hypothesis.tokens[..];
            Ok(match source_tokens(&self.tokenizers, sentence)? {
                Some(source) => SourceTarget::unfinished(source, target),
                None => SourceTarget::exact([], target),
            })
        });
        let tokens = tokens.collect::<Result<Vec<_>, TextError>>()?;
        let found = cross_attention(&self.models, &tokens, self.options.batch_tokens)?;
        let lacks = |(found, (_, translation)): (&CrossAttention, &(&str, &Translation))| {
            found.weights.is_empty() && !translation.hypothesis.tokens.is_empty()
        };
        match found.iter().zip(pairs).any(lacks) {
            true => Err(TextError::NoAttention),
            false => Ok(found),
        }
    }

    /// The tokens of a sentence and its translation.
    fn pair(&self, sentence: &str, translation: &str) -> Result<SourceTarget, TextError> {
        let target = self.tokenizers.encode_target(translation.trim())?;
        Ok(match source_tokens(&self.tokenizers, sentence)? {
            Some(source) => SourceTarget::new(source, target),
            // Without `<eos>`, so that scoring reports it.
            None => SourceTarget::exact([], target),
        })
    }

    /// The search. A chosen target language ([`Tokenizers::target_first`]) is the first token of targets, whatever the
    /// options say.
    pub(super) fn search(&self) -> Result<Search<'_, Ensemble<M>>, DecodeOptionsError> {
        let forced_first = self.tokenizers.target_first();
        let options = DecodeOptions {
            forced_first: forced_first.or(self.options.forced_first),
            ..self.options.clone()
        };
        Search::new(&self.models, options)
    }

    /// The requests for the non-empty sentences.
    fn requests(&self, sentences: &[impl AsRef<str>], prefix: &str) -> Result<Requests, TextError> {
        let prefix = match prefix {
            "" => Vec::new(),
            prefix => self.tokenizers.encode_target(prefix)?,
        };
        let mut found = Requests::default();
        for (index, sentence) in sentences.iter().enumerate() {
            let source = source_tokens(&self.tokenizers, sentence.as_ref());
            let source = source.map_err(|error| in_sentence(error, index))?;
            if let Some(source) = source {
                let request = Request::new(source).with_prefix(prefix.clone());
                found.requests.push(request);
                found.indices.push(index);
            }
        }
        Ok(found)
    }

    /// The beginning of a text that later tokens cannot change.
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

/// The tokens of a sentence, without `<eos>`; `None` if it is empty.
fn source_tokens(tokenizers: &Tokenizers, sentence: &str) -> Result<Option<Vec<u32>>, TextError> {
    match sentence.trim() {
        "" => Ok(None),
        sentence => Ok(Some(tokenizers.encode_source(sentence)?)),
    }
}

/// Adds the index of the sentence to a tokenizer's error.
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

/// Requests, and the index of each one's sentence.
#[derive(Default)]
struct Requests {
    requests: Vec<Request>,
    indices: Vec<usize>,
}

/// Turns the index of a request in an error into the index of its sentence.
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

/// Checks that tokenizers fit a model of this configuration.
fn check(
    tokenizers: &Tokenizers,
    config: &TransformerConfig,
    directory: &Path,
) -> Result<(), TextError> {
    let sizes = [config.src_vocab_size, config.tgt_vocab_size];
    tokenizers.check(sizes, config.special_tokens(), directory)
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::Tokenizer;
    use super::super::tokenizer::tests::words;
    use super::*;
    use crate::decoding::{LengthPenalty, MaxLength, Sampling};
    use burn_ndarray::NdArray;

    fn translator() -> Translator<Transformer<NdArray>> {
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

    /// The streamed text, which must equal the translation.
    fn streamed(translator: &Translator<Transformer<NdArray>>, prefix: &str) -> String {
        let mut streamed = String::new();
        let passed_on = translator.stream("a b", prefix, |text| {
            streamed += text;
            ControlFlow::Continue(())
        });
        passed_on.unwrap();
        let whole = translator.translate_n_best(&["a b"], prefix).unwrap();
        assert_eq!(streamed, whole[0][0].text);
        streamed
    }

    #[test]
    fn a_directory_is_decoded_as_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path();
        let saved = translator();
        saved.model().save(directory).unwrap();
        saved.tokenizers().save(directory).unwrap();
        let load = || Translator::load(directory);
        assert_eq!(load().unwrap().options, DecodeOptions::default());
        let options = DecodeOptions {
            length_penalty: LengthPenalty::AVERAGE,
            banned_tokens: vec![8],
            ..DecodeOptions::beam(2)
        };
        options.save(directory, saved.model().config()).unwrap();
        assert_eq!(load().unwrap().options, options);

        let outside = DecodeOptions {
            banned_tokens: vec![9],
            ..options
        };
        outside.save(directory, saved.model().config()).unwrap();
        let message = load().unwrap_err().to_string();
        let expected = "generation_config.json: `bad_words_ids` or `suppress_tokens` has token 9, outside the vocabulary of 9";
        assert!(message.ends_with(expected), "{message}");
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
                let text = streamed(&translator, prefix);
                assert!(text.starts_with(prefix), "{text}");
            }
        }
    }

    /// `漢` is `E6 BC A2`; an `E6` without the others makes all adjacent bytes undecodable, including those before it.
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
                let text = streamed(&translator, prefix);
                assert!(prefix != "漢 a" || text.starts_with(prefix));
            }
        }
    }

    /// One source token per token of the translation; the source includes `<eos>`.
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

    #[test]
    fn sentences_are_checked_without_being_translated() {
        let options = DecodeOptions {
            max_src_len: 3,
            ..DecodeOptions::greedy()
        };
        let translator = translator().with_options(options).unwrap();
        translator.check(&["a", " ", "a b"], "").unwrap();
        // Three tokens and `<eos>`; the empty sentence before it counts.
        let error = translator.check(&["a", " ", "a b a"], "").unwrap_err();
        let expected = "source 2 has 4 tokens, more than the limit of 3";
        assert_eq!(error.to_string(), expected);
        let error = translator.translate_batch(&["a", " ", "a b a"]);
        assert_eq!(error.unwrap_err().to_string(), expected);
        assert_eq!(translator.translate(" ").unwrap(), "");
    }

    /// A reference to a model translates like the model.
    #[test]
    fn a_model_can_be_borrowed() {
        let owned = translator();
        let borrowed = Translator::new(owned.model(), owned.tokenizers().clone()).unwrap();
        assert_eq!(
            borrowed.translate("a b").unwrap(),
            owned.translate("a b").unwrap()
        );
    }
}
