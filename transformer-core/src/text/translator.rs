//! Sentences in, sentences out: tokenizers, model and decoding together.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use transformer_cpu::PackedPrecision;

use super::error::TextError;
use super::model_tokenizers::Tokenizers;
use super::text_search::{TextSearch, Translation, in_sentence, source_tokens};
use crate::config::TransformerConfig;
use crate::decoding::{DecodeOptions, Ensemble, NextToken, SourceTarget, TargetScore, score};
use crate::error::{DecodeOptionsError, ModelError};
use crate::hugging_face::options_of_directory;
use crate::packed::PackedTransformer;
use crate::transformer::Transformer;

/// A model, or an ensemble of models, that translates sentences: by default as its directory's
/// `generation_config.json` says ([`DecodeOptions::of_directory`]), without one with the paper's beam search
/// (§6.1), else as set by [`with_options`](Self::with_options). It is `Send` and `Sync` on every backend, so that one
/// serves several threads, each with a reference to it.
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
///
/// With a model in memory, the two best translations, and the best one as it grows:
///
/// ```
/// use std::ops::ControlFlow;
///
/// use burn_ndarray::NdArray;
/// use transformer_core::{DecodeOptions, MaxLength, Tokenizer, TransformerConfig, Translator};
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
/// # Packed models
/// `M` is the type of the models: [`Transformer`], or `PackedTransformer`, which decodes faster on the processor, in
/// single precision or in 8 bits. `Translator::load_packed` reads such a translator, and `packed` makes one of a
/// translator that is there. Such models have no attention maps, and so no [`align`](Self::align).
#[derive(Debug)]
pub struct Translator<B: Backend, M = Transformer<B>> {
    models: Ensemble<M>,
    tokenizers: Tokenizers,
    options: DecodeOptions,
    backend: PhantomData<B>,
}

impl<B: Backend> Translator<B> {
    /// Reads a model directory: ours, with `config.json`, `model.safetensors` and `tokenizer.json`, or one of
    /// Hugging Face's as it is ([`Transformer::load`]).
    ///
    /// # Errors
    /// When a file is missing or damaged, or the tokenizer is not the model's.
    pub fn load(directory: impl AsRef<Path>, device: &B::Device) -> Result<Self, TextError> {
        Self::load_ensemble(&[directory], device)
    }

    /// Reads the model directories of an ensemble, which decodes with the options of the first.
    ///
    /// # Errors
    /// When no directory is given, a file is missing or damaged, or the tokenizers differ.
    pub fn load_ensemble(
        directories: &[impl AsRef<Path>],
        device: &B::Device,
    ) -> Result<Self, TextError> {
        Self::load_with(directories, |directory| {
            Transformer::load(directory, device)
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
            backend: PhantomData,
        })
    }

    /// The translator with its models packed, each weight of which is freed as soon as it is packed.
    pub fn packed(self, precision: PackedPrecision) -> Translator<B, PackedTransformer<B>> {
        let pack = |model| PackedTransformer::new(model, precision);
        Translator {
            models: self.models.map(pack),
            tokenizers: self.tokenizers,
            options: self.options,
            backend: PhantomData,
        }
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
        let pair = match source_tokens(&self.tokenizers, sentence)? {
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
}

impl<B: Backend> Translator<B, PackedTransformer<B>> {
    /// Reads the model directories of an ensemble, as [`load_ensemble`](Translator::load_ensemble) does, and packs
    /// model by model: none is ever whole in another form. [`quantize`](crate::quantize) writes directories that are
    /// packed in 8 bits as they are.
    ///
    /// ```no_run
    /// use burn_flex::Flex;
    /// use transformer_core::{PackedPrecision, PackedTransformer, Translator};
    ///
    /// # fn main() -> Result<(), transformer_core::TextError> {
    /// let device = Default::default();
    /// let precision = PackedPrecision::Int8;
    /// let translator =
    ///     Translator::<Flex, PackedTransformer<Flex>>::load_packed(&["model"], precision, &device)?;
    /// println!("{}", translator.translate("The cat sat on the mat.")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`load_ensemble`](Translator::load_ensemble).
    pub fn load_packed(
        directories: &[impl AsRef<Path>],
        precision: PackedPrecision,
        device: &B::Device,
    ) -> Result<Self, TextError> {
        Self::load_with(directories, |directory| {
            PackedTransformer::load(directory, precision, device)
        })
    }
}

impl<B: Backend, M: NextToken<B>> Translator<B, M> {
    /// Reads the directories of an ensemble, and the model of each by `load`.
    fn load_with(
        directories: &[impl AsRef<Path>],
        load: impl Fn(&Path) -> Result<M, ModelError>,
    ) -> Result<Self, TextError> {
        let first = directories
            .first()
            .ok_or(DecodeOptionsError::NoModel)?
            .as_ref();
        let tokenizers = Tokenizers::load(first)?;
        let mut models = Vec::new();
        for (index, directory) in directories.iter().map(AsRef::as_ref).enumerate() {
            if index > 0 && !Tokenizers::load(directory)?.have_vocabularies_of(&tokenizers) {
                return Err(TextError::OtherTokenizer {
                    path: directory.to_owned(),
                    first: first.to_owned(),
                });
            }
            let config = TransformerConfig::load(directory)?;
            check(&tokenizers, &config, directory)?;
            models.push(load(directory)?);
        }
        let mut translator = Self {
            models: Ensemble::new(models)?,
            tokenizers,
            options: DecodeOptions::default(),
            backend: PhantomData,
        };
        // A checkpoint's tokenizers are in the directory of its run.
        let home = Tokenizers::directory_of(first).unwrap_or_else(|| first.to_owned());
        if let Some((path, options)) = options_of_directory(&home)? {
            translator.options = options;
            let checked = translator.text_search();
            checked.map_err(|source| ModelError::Options { path, source })?;
        }
        Ok(translator)
    }

    /// Sets the options of decoding.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn with_options(mut self, options: DecodeOptions) -> Result<Self, TextError> {
        self.options = options;
        self.text_search()?;
        Ok(self)
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
        self.text_search()?;
        Ok(self)
    }

    /// The model, or the first of an ensemble.
    pub fn model(&self) -> &M {
        &self.models.models()[0]
    }

    /// The tokenizers.
    pub fn tokenizers(&self) -> &Tokenizers {
        &self.tokenizers
    }

    /// The options of decoding.
    pub fn options(&self) -> &DecodeOptions {
        &self.options
    }

    /// Checks that sentences can be translated into translations that begin with the prefix, and translates none.
    ///
    /// # Errors
    /// When a sentence or the prefix has too many tokens; the error names the first such sentence by its index.
    pub fn check(&self, sentences: &[impl AsRef<str>], prefix: &str) -> Result<(), TextError> {
        self.text_search()?.check(sentences, prefix)
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
        self.text_search()?.translate(sentences)
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
        self.text_search()?.translate_n_best(sentences, prefix)
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
        on_text: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), TextError> {
        self.text_search()?.stream(sentence, prefix, on_text)
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
        let pairs = sentences.iter().zip(translations).enumerate();
        let pairs: Result<Vec<SourceTarget>, TextError> = pairs
            .map(|(index, (sentence, translation))| {
                let pair = self.pair(sentence.as_ref(), translation.as_ref());
                pair.map_err(|error| in_sentence(error, index))
            })
            .collect();
        Ok(score(&self.models, &pairs?, self.options.batch_tokens)?)
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

    fn text_search(&self) -> Result<TextSearch<'_, Ensemble<M>>, DecodeOptionsError> {
        TextSearch::new(&self.models, &self.tokenizers, self.options.clone())
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

#[cfg(test)]
mod tests {
    use super::super::tokenizer::Tokenizer;
    use super::super::tokenizer::tests::words;
    use super::*;
    use crate::decoding::{LengthPenalty, MaxLength, Sampling};
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

    /// The text that a stream passes on, which is that of the translation.
    fn streamed(translator: &Translator<NdArray>, prefix: &str) -> String {
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
        let load = || Translator::<NdArray>::load(directory, &Default::default());
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
                let text = streamed(&translator, prefix);
                assert!(prefix != "漢 a" || text.starts_with(prefix));
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
