//! The tokenizers of a model: one for both source and target, or one for each.

mod languages;

use std::path::Path;
use std::sync::Arc;

use rand::Rng;

use crate::formats::converted;
use crate::formats::files::replace_file_with;
use crate::formats::format::Files;
use crate::formats::names::{
    MERGES_FILE, PIECES_FILE, SHARED_PIECES_FILE, SOURCE_PIECES_FILE, SOURCE_TOKENIZER_FILE,
    TARGET_PIECES_FILE, TARGET_TOKENIZER_FILE, TARGET_VOCABULARY_FILE, TOKENIZER_FILE,
    TOKENIZER_SETTINGS_FILE, VOCABULARY_FILE, has_tokenizers,
};
use crate::formats::options::start_token_of;
use crate::formats::own::config::type_of_hugging_face;
use crate::special_tokens::SpecialTokens;
use crate::text::byte_level;
use crate::text::error::TextError;
use crate::text::m2m100::{self, M2m100};
use crate::text::marian::Marian;
use crate::text::settings::{GPT2_CLASS, TokenizerSettings};
use crate::text::t5::T5;
use crate::text::tokenizer::{Tokenizer, check_special};
use crate::text::vocabulary::{END, PADDING, UNKNOWN, Vocabulary};

/// The tokenizers of a model: one for both source and target, or one for each.
///
/// | tokenizers | files in a model directory |
/// |---|---|
/// | one for both | `tokenizer.json` |
/// | one for each | `source_tokenizer.json`, `target_tokenizer.json` |
/// | Marian's | `source.spm`, `target.spm`, `vocab.json`; `target_vocab.json` if the target has its own vocabulary |
/// | M2M100's | `sentencepiece.bpe.model`, `vocab.json` |
/// | GPT-2's | `vocab.json`, `merges.txt`, if there is no `tokenizer.json` |
/// | T5's | `spiece.model`, if there is no `tokenizer.json` |
/// | ByT5's | `tokenizer_config.json`, whose `tokenizer_class` is `ByT5Tokenizer` |
///
/// ```
/// use transformer_core::Tokenizers;
/// use transformer_core::decoding::SpecialTokens;
/// use transformer_core::text::Tokenizer;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let directory = folder.path();
/// // A tokenizer of words; `transformer_train::data::train_bpe` makes one of subwords.
/// let words = r#"{
///     "version": "1.0",
///     "added_tokens": [],
///     "pre_tokenizer": {"type": "WhitespaceSplit"},
///     "model": {
///         "type": "WordLevel",
///         "vocab": {"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3, "a": 4, "cat": 5},
///         "unk_token": "<unk>"
///     }
/// }"#;
/// let file = directory.join("words.json");
/// std::fs::write(&file, words)?;
/// let tokenizers = Tokenizers::shared(Tokenizer::from_file(&file)?);
/// assert_eq!(tokenizers.encode_source("a cat")?, [4, 5]);
/// assert_eq!(tokenizers.target().decode(&[5, 4])?, "cat a");
///
/// // They fit a model with 6 entries for source and target. Saved beside the model's files, they are loaded with it.
/// tokenizers.check([6, 6], SpecialTokens::default(), directory)?;
/// tokenizers.save(directory)?;
/// assert!(Tokenizers::load(directory)?.have_vocabularies_of(&tokenizers));
/// # Ok(())
/// # }
/// ```
///
/// # First tokens
/// The template in the `post_processor` of a `tokenizer.json` may have tokens that every text begins with;
/// [`encode_source`](Self::encode_source) and [`encode_target`](Self::encode_target) add them. M2M100's texts begin
/// with their language.
///
/// A language token in the template, such as `eng_Latn`, is the source's language. So is one after `<eos>`, as in the
/// first mBART; the source's tokens are then complete. The target's language is set by
/// [`with_languages`](Self::with_languages), or by `forced_bos_token_id` in the directory's `generation_config.json`,
/// or is the one with which the tokenizers were [saved](Self::save). If there is none and the model's decoder starts
/// with a language (`decoder_start_token_id`), targets have this language, without its token.
#[derive(Debug, Clone)]
pub struct Tokenizers {
    source: Tokenizer,
    /// `None` if the source's is shared.
    target: Option<Tokenizer>,
    /// In a Marian model, the language token put before sources that do not begin with one.
    source_prefix: Option<u32>,
    /// The language that every target begins with.
    target_language: Option<u32>,
    /// The language that the model's decoder starts with, so that targets need not begin with one.
    start_language: Option<u32>,
    /// The tokens that every source begins with.
    source_first: Vec<u32>,
    /// The tokens that every target begins with; `None` until a language is chosen.
    target_first: Option<Vec<u32>>,
    settings: TokenizerSettings,
}

impl From<Tokenizer> for Tokenizers {
    fn from(tokenizer: Tokenizer) -> Self {
        Self::shared(tokenizer)
    }
}

impl Tokenizers {
    /// One tokenizer for source and target, with a shared vocabulary.
    pub fn shared(tokenizer: Tokenizer) -> Self {
        Self::new(tokenizer, None)
    }

    /// One tokenizer for the source and one for the target, with separate vocabularies.
    pub fn separate(source: Tokenizer, target: Tokenizer) -> Self {
        Self::new(source, Some(target))
    }

    fn new(source: Tokenizer, target: Option<Tokenizer>) -> Self {
        // The language in the file of a shared tokenizer is the source's.
        let target_language = target.as_ref().and_then(Tokenizer::language);
        let mut tokenizers = Self {
            source,
            target,
            source_prefix: None,
            target_language,
            start_language: None,
            source_first: Vec::new(),
            target_first: None,
            settings: TokenizerSettings::default(),
        };
        tokenizers.set_first_tokens();
        tokenizers
    }

    /// Recomputes the first tokens, after a tokenizer or a language has changed.
    fn set_first_tokens(&mut self) {
        self.source_first = match self.source_prefix {
            Some(language) if self.source.marian().is_some() => vec![language],
            _ => self.source.first_tokens().to_vec(),
        };
        let target = self.target();
        let first = target.first_tokens();
        self.target_first = match self.target_language {
            Some(language) => Some(target.first_tokens_with(language)),
            None if self.start_language.is_some() => {
                let first = first.iter().copied();
                Some(first.filter(|&token| !target.is_language(token)).collect())
            }
            None if target.language().is_some() => None,
            None => Some(first.to_vec()),
        };
    }

    /// The source's tokenizer.
    pub fn source(&self) -> &Tokenizer {
        &self.source
    }

    /// The target's tokenizer, which may be the source's.
    pub fn target(&self) -> &Tokenizer {
        self.target.as_ref().unwrap_or(&self.source)
    }

    /// Whether source and target share one tokenizer.
    pub fn are_shared(&self) -> bool {
        self.target.is_none()
    }

    /// Whether the tokens of source and target are the same: those of one tokenizer, or of two with equal vocabularies,
    /// as in models of Marian with one SentencePiece model for both sides.
    pub fn share_vocabulary(&self) -> bool {
        let (source, target) = (self.source(), self.target());
        let size = source.vocab_size();
        self.are_shared()
            || size == target.vocab_size()
                && (0..size as u32).all(|token| source.name(token) == target.name(token))
    }

    /// Encodes a source: its [first tokens](Self#first-tokens) and the text's, without `<eos>` unless a language
    /// follows it ([`SpecialTokens::end_source`]).
    ///
    /// # Errors
    /// When the tokenizer cannot encode the text.
    pub fn encode_source(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let tokens = self.source.encode(&self.with_language(text))?;
        Ok(self.around_source(text, &tokens))
    }

    /// Encodes a target: its [first tokens](Self#first-tokens) and the text's, without `<eos>`.
    ///
    /// # Errors
    /// When the tokenizer cannot encode the text, or no target language is chosen.
    pub fn encode_target(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let tokens = self.target().encode(text)?;
        Ok([self.first_of_target()?, &tokens[..]].concat())
    }

    /// [`encode_source`](Self::encode_source) with BPE dropout ([`Tokenizer::encode_with_dropout`]).
    ///
    /// # Errors
    /// As [`Tokenizer::encode_with_dropout`].
    pub fn encode_source_with_dropout(
        &self,
        text: &str,
        dropout: f64,
        rng: &mut impl Rng,
    ) -> Result<Vec<u32>, TextError> {
        let text = &self.with_language(text);
        let tokens = self.source.encode_with_dropout(text, dropout, rng)?;
        Ok(self.around_source(text, &tokens))
    }

    /// [`encode_target`](Self::encode_target) with BPE dropout ([`Tokenizer::encode_with_dropout`]).
    ///
    /// # Errors
    /// As [`Tokenizer::encode_with_dropout`], and when no target language is chosen.
    pub fn encode_target_with_dropout(
        &self,
        text: &str,
        dropout: f64,
        rng: &mut impl Rng,
    ) -> Result<Vec<u32>, TextError> {
        let tokens = self.target().encode_with_dropout(text, dropout, rng)?;
        Ok([self.first_of_target()?, &tokens[..]].concat())
    }

    /// Adds to a source's tokens those that it begins and ends with.
    fn around_source(&self, text: &str, tokens: &[u32]) -> Vec<u32> {
        let has_own = self.source.marian().is_some() && self.source_prefix.is_some();
        let first: &[u32] = match has_own && self.has_language(text) {
            true => &[],
            false => &self.source_first,
        };
        [first, tokens, self.source.last_tokens()].concat()
    }

    fn first_of_target(&self) -> Result<&[u32], TextError> {
        let first = self.target_first.as_deref();
        first.ok_or_else(|| TextError::NoTargetLanguage {
            known: self.target().languages(),
        })
    }

    /// Whether a directory has a tokenizer, or a complete pair. A process killed while saving a pair leaves an
    /// incomplete one.
    pub fn are_in(directory: impl AsRef<Path>) -> bool {
        has_tokenizers(directory.as_ref())
    }

    /// Loads the tokenizers of a model directory; a checkpoint's may be in the directory of its run. A model is not
    /// required.
    ///
    /// # Errors
    /// When a file is missing or is not a tokenizer.
    pub fn load(directory: impl AsRef<Path>) -> Result<Self, TextError> {
        Self::of(&Files::of(&directory)?)
    }

    /// [`load`](Self::load) for a directory that is already open
    /// ([`ModelDirectory::files`](crate::ModelDirectory::files)).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn of(files: &Files) -> Result<Self, TextError> {
        let directory = files.tokenizers().unwrap_or(files.directory());
        let mut settings = TokenizerSettings::load(directory, files.config())?;
        let has = |name: &str| directory.join(name).exists();
        let mut tokenizers = if converted::is_in(directory) {
            let added = settings.added_to_pieces(&MARIAN_ROLES)?;
            let (source, target) = crate::text::converted::load(files, &added)?;
            let sides = (source.marian(), target.as_ref().and_then(Tokenizer::marian));
            if let (Some(source), Some(target)) = sides
                && !has_same_vocabulary(source, target)
            {
                settings.separate_vocabularies();
            }
            Self::new(source, target)
        } else if has(SOURCE_PIECES_FILE) || has(TARGET_PIECES_FILE) {
            Self::load_marian(directory, &mut settings)?
        } else if has(SOURCE_TOKENIZER_FILE) || has(TARGET_TOKENIZER_FILE) {
            let source = Tokenizer::from_file(directory.join(SOURCE_TOKENIZER_FILE))?;
            let target = Tokenizer::from_file(directory.join(TARGET_TOKENIZER_FILE))?;
            Self::separate(source, target)
        } else {
            let is_m2m100 = has(SHARED_PIECES_FILE) && has(VOCABULARY_FILE);
            // M2M100's class reads its pieces even beside a `tokenizer.json`.
            let has_class = matches!(settings.class(), None | Some("M2M100Tokenizer"));
            let mut shared = if is_m2m100 && (has_class || !has(TOKENIZER_FILE)) {
                load_m2m100(directory, &mut settings)?
            } else if settings.has_bytes() || !has(TOKENIZER_FILE) && has(PIECES_FILE) {
                load_t5(directory, &mut settings)?
            } else if !has(TOKENIZER_FILE) && has(MERGES_FILE) && is_gpt2(files, &settings) {
                settings.check_merges(directory)?;
                let added = settings.tokens().added_tokens(&byte_level::ROLES, false)?;
                byte_level::load(directory, &added)?.into()
            } else {
                let added = settings.tokens().added_tokens(&[], false)?;
                Tokenizer::from_file_with(&directory.join(TOKENIZER_FILE), &added)?
            };
            put_settings(&mut shared, &settings, directory)?;
            Self::shared(shared)
        };
        for side in [Some(&mut tokenizers.source), tokenizers.target.as_mut()] {
            side.into_iter()
                .for_each(|side| side.set_clean_up(settings.cleans_spaces()));
        }
        if let Some(name) = settings.source_prefix() {
            let token = tokenizers.source.target_language_in_source(name);
            let path = directory.join(TOKENIZER_SETTINGS_FILE);
            tokenizers.source_prefix = Some(token.map_err(TextError::file(path))?);
        }
        tokenizers.settings = settings;
        let of_directory = tokenizers.target_language_of(files, directory)?;
        tokenizers.target_language = of_directory.or(tokenizers.target_language);
        if tokenizers.target_language.is_none() {
            let start = start_token_of(files)?;
            let target = tokenizers.target();
            tokenizers.start_language = start.filter(|&token| target.is_language(token));
        }
        tokenizers.set_first_tokens();
        Ok(tokenizers)
    }

    /// The language that every target must begin with, from the decoding options or the settings of a directory.
    fn target_language_of(&self, files: &Files, home: &Path) -> Result<Option<u32>, TextError> {
        let target = self.target();
        let forced = files.options()?.and_then(|options| options.forced_first);
        if let Some(language) = forced.filter(|&token| target.is_language(token)) {
            return Ok(Some(language));
        }
        let Some(name) = self.settings.target_prefix() else {
            return Ok(None);
        };
        let path = home.join(TOKENIZER_SETTINGS_FILE);
        let language = target.language_token(name).map_err(TextError::file(path))?;
        Ok(Some(language))
    }

    fn load_marian(directory: &Path, settings: &mut TokenizerSettings) -> Result<Self, TextError> {
        settings.check_pieces(directory, &MARIAN_ROLES)?;
        let added = settings.added_to_pieces(&MARIAN_ROLES)?;
        let mut of_source = Vocabulary::load(&directory.join(VOCABULARY_FILE))?;
        let of_target = directory.join(TARGET_VOCABULARY_FILE);
        let of_target = match (settings.separates_vocabularies(), of_target.exists()) {
            (true, _) => {
                settings.tokens().check_separate(&added)?;
                Some(Vocabulary::load(&of_target)?)
            }
            (false, false) => None,
            (false, true) => {
                let problem = format!(
                    "Hugging Face's class does not read it: `separate_vocabs` of {TOKENIZER_SETTINGS_FILE} is not true"
                );
                return Err(TextError::file(of_target)(problem));
            }
        };
        of_source.add(&added);
        let of_source = Arc::new(of_source);
        let of_target = of_target.map_or_else(|| of_source.clone(), Arc::new);
        let source = Marian::load(&directory.join(SOURCE_PIECES_FILE), of_source)?;
        let target = Marian::load(&directory.join(TARGET_PIECES_FILE), of_target)?;
        Ok(Self::separate(source.into(), target.into()))
    }

    /// Saves the tokenizers to an existing directory, with the [chosen](Self::with_languages) languages.
    ///
    /// # Errors
    /// When the tokenizers have formats that cannot be combined, or a file cannot be written; an existing one is then
    /// unchanged.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<(), TextError> {
        for (name, bytes) in self.files()? {
            let path = directory.as_ref().join(name);
            replace_file_with(&path, bytes).map_err(TextError::file(path))?;
        }
        Ok(())
    }

    /// Names and contents of the files.
    fn files(&self) -> Result<Vec<(&'static str, Vec<u8>)>, TextError> {
        let sides = [self.source(), self.target()];
        let mut files = match (sides.map(Tokenizer::marian), sides.map(Tokenizer::m2m100)) {
            _ if sides.iter().any(|side| side.t5().is_some()) => match sides[0].t5() {
                Some(shared) if self.are_shared() => shared.files(),
                _ => return Err(not_combined()),
            },
            ([None, None], [None, None]) => {
                let json = |(name, side): (_, &Tokenizer)| Ok((name, side.to_bytes()?));
                let sides = self.sides().into_iter();
                sides.map(json).collect::<Result<_, TextError>>()?
            }
            (_, [Some(shared), Some(_)]) if self.are_shared() => vec![
                (SHARED_PIECES_FILE, shared.pieces_file().to_vec()),
                (VOCABULARY_FILE, shared.vocabulary().file().to_vec()),
            ],
            ([Some(source), Some(target)], _) => {
                let mut files = vec![
                    (SOURCE_PIECES_FILE, source.pieces_file().to_vec()),
                    (TARGET_PIECES_FILE, target.pieces_file().to_vec()),
                    (VOCABULARY_FILE, source.vocabulary().file().to_vec()),
                ];
                if !has_same_vocabulary(source, target) {
                    let file = target.vocabulary().file();
                    files.push((TARGET_VOCABULARY_FILE, file.to_vec()));
                }
                files
            }
            _ => return Err(not_combined()),
        };
        let settings = self.settings.files();
        files.extend(settings.map(|(name, file)| (name, file.to_vec())));
        Ok(files)
    }

    /// The tokenizers, each with the file of its vocabulary.
    fn sides(&self) -> Vec<(&'static str, &Tokenizer)> {
        let name = |side: &Tokenizer, json, vocabulary| match (side.marian(), side.m2m100()) {
            (None, None) => json,
            _ => vocabulary,
        };
        let source = &self.source;
        let Some(target) = &self.target else {
            let file = match source.t5() {
                Some(t5) if t5.has_bytes() => TOKENIZER_SETTINGS_FILE,
                Some(_) => PIECES_FILE,
                None => name(source, TOKENIZER_FILE, VOCABULARY_FILE),
            };
            return vec![(file, source)];
        };
        let of_target = match (source.marian(), target.marian()) {
            (Some(source), Some(target)) if has_same_vocabulary(source, target) => VOCABULARY_FILE,
            _ => TARGET_VOCABULARY_FILE,
        };
        vec![
            (name(source, SOURCE_TOKENIZER_FILE, VOCABULARY_FILE), source),
            (name(target, TARGET_TOKENIZER_FILE, of_target), target),
        ]
    }

    /// Bytes that identify the source's and the target's tokenizer by the tokens that they give: their files, and
    /// languages that are not in these.
    ///
    /// # Errors
    /// When a part of a tokenizer cannot be written.
    pub fn to_bytes(&self) -> Result<[Vec<u8>; 2], TextError> {
        let side = |side: &Tokenizer, language: Option<u32>| -> Result<_, TextError> {
            let mut bytes = side.to_bytes()?;
            bytes.extend(language.into_iter().flat_map(u32::to_le_bytes));
            Ok(bytes)
        };
        Ok([
            side(self.source(), self.source_prefix)?,
            side(self.target(), self.target_language)?,
        ])
    }

    /// Whether the tokens of other tokenizers have the same ids.
    pub fn have_vocabularies_of(&self, others: &Self) -> bool {
        self.source().has_vocabulary_of(others.source())
            && self.target().has_vocabulary_of(others.target())
    }

    /// Checks that the tokenizers fit a model with these vocabulary sizes, source and target, and these special tokens.
    /// For a model with one vocabulary, such as a language model, give its size twice.
    ///
    /// # Errors
    /// When a tokenizer has more entries than the model, another id for a special token, text at the id of a special
    /// token, or a template that does not end in the model's `<eos>`; the error names the tokenizer's file in
    /// `directory`.
    pub fn check(
        &self,
        [source, target]: [usize; 2],
        special_tokens: SpecialTokens,
        directory: impl AsRef<Path>,
    ) -> Result<(), TextError> {
        let directory = directory.as_ref();
        let checked = self.check_sides([source, target], special_tokens, directory);
        checked.map_err(|error| error.in_keys_of(directory))
    }

    fn check_sides(
        &self,
        [source, target]: [usize; 2],
        special_tokens: SpecialTokens,
        directory: &Path,
    ) -> Result<(), TextError> {
        let sizes: &[usize] = match self.target {
            None => &[source.min(target)],
            Some(_) => &[source, target],
        };
        for ((name, tokenizer), &vocab_size) in self.sides().into_iter().zip(sizes) {
            let path = directory.join(name);
            tokenizer.check(&path, vocab_size, special_tokens)?;
        }
        // A smaller vocabulary of another Marian model may have the same `</s>`.
        match self.source.marian() {
            Some(side) => {
                let path = directory.join(VOCABULARY_FILE);
                let expected = ("pad_id", special_tokens.pad);
                check_special(&path, side.vocabulary(), PADDING, expected)
            }
            None => Ok(()),
        }
    }
}

/// The special tokens of Marian's class.
const MARIAN_ROLES: [(&str, &str); 3] = [
    ("eos_token", END),
    ("unk_token", UNKNOWN),
    ("pad_token", PADDING),
];

/// The special tokens of M2M100's class.
const M2M100_ROLES: [(&str, &str); 5] = [
    ("eos_token", END),
    ("unk_token", UNKNOWN),
    ("pad_token", PADDING),
    ("bos_token", "<s>"),
    ("sep_token", END),
];

/// M2M100's tokenizer in a directory.
fn load_m2m100(directory: &Path, settings: &mut TokenizerSettings) -> Result<Tokenizer, TextError> {
    settings.check_pieces(directory, &MARIAN_ROLES)?;
    let added = settings.added_to_pieces(&M2M100_ROLES)?;
    let languages = m2m100::languages_of(settings.language_codes());
    let languages = languages.map_err(TextError::file(directory.join(TOKENIZER_SETTINGS_FILE)))?;
    let [pieces, vocabulary] =
        [SHARED_PIECES_FILE, VOCABULARY_FILE].map(|name| directory.join(name));
    Ok(M2m100::load(&pieces, &vocabulary, languages, &added)?.into())
}

/// Whether the class of the tokenizer is GPT-2's, as far as the files say. Other classes read `merges.txt`, too, but
/// put tokens around a text.
fn is_gpt2(files: &Files, settings: &TokenizerSettings) -> bool {
    match (
        settings.class(),
        files.config().and_then(type_of_hugging_face),
    ) {
        (Some(class), _) => class == GPT2_CLASS,
        (None, model_type) => model_type.is_none_or(|model_type| model_type == "gpt2"),
    }
}

/// The special tokens of T5's and ByT5's classes.
const T5_ROLES: [(&str, &str); 3] = MARIAN_ROLES;

/// T5's or ByT5's tokenizer in a directory.
fn load_t5(directory: &Path, settings: &mut TokenizerSettings) -> Result<Tokenizer, TextError> {
    let extra_ids = settings.extra_ids();
    if settings.has_bytes() {
        let added = settings.tokens().added_tokens(&T5_ROLES, false)?;
        let path = directory.join(TOKENIZER_SETTINGS_FILE);
        let bytes = T5::of_bytes(extra_ids, &added).map_err(TextError::file(path))?;
        return Ok(bytes.into());
    }
    settings.check_pieces(directory, &[])?;
    let added = settings.added_to_pieces(&T5_ROLES)?;
    settings.check_legacy(directory, &added)?;
    Ok(T5::load(&directory.join(PIECES_FILE), extra_ids, &added)?.into())
}

fn not_combined() -> TextError {
    let problem = "files of tokenizers of different types cannot be combined";
    TextError::Tokenizer(problem.into())
}

/// Applies the settings of a directory to a tokenizer, as Hugging Face's class does.
fn put_settings(
    tokenizer: &mut Tokenizer,
    settings: &TokenizerSettings,
    directory: &Path,
) -> Result<(), TextError> {
    if let Some(json) = tokenizer.json_mut() {
        if let Some(place) = settings.language_place() {
            json.move_language(place)?;
            json.check_end(settings.tokens().role("eos_token"))
                .map_err(TextError::file(directory.join(TOKENIZER_FILE)))?;
        }
        if let Some(is_added) = settings.add_prefix_space() {
            json.set_prefix_space(is_added);
        }
    }
    let Some(of_file) = tokenizer.language() else {
        return Ok(());
    };
    let path = directory.join(TOKENIZER_SETTINGS_FILE);
    let default = settings.default_source_language();
    let language = match (settings.source_language(), default) {
        (Some(name), _) => Some(
            tokenizer
                .language_token(name)
                .map_err(TextError::file(path))?,
        ),
        // A tokenizer of other languages keeps the one in its file.
        (None, default) => default
            .and_then(|name| tokenizer.language_token(name).ok())
            .filter(|language| *language != of_file),
    };
    language.map_or(Ok(()), |language| tokenizer.set_language(language))
}

fn has_same_vocabulary(source: &Marian, target: &Marian) -> bool {
    source.vocabulary().file() == target.vocabulary().file()
}

#[cfg(test)]
mod tests;
