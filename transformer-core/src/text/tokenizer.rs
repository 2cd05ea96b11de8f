//! Tokenizers: text to tokens and back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rand::Rng;
use tokenizers::ModelWrapper;

use super::bpe_dropout::Merges;
use crate::error::{DecodeError, DecodeOptionsError, ModelError};
use crate::files::replace_file_with;
use crate::special_tokens::SpecialTokens;
use crate::weights::{
    SOURCE_TOKENIZER_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE, run_of_checkpoint,
};

/// Text that cannot be read, written or translated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// `tokenizer.json` is missing or damaged.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem.
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
    /// The tokenizer and the model have different ids for a special token.
    #[error("{}: `{name}` is token {found}, but the model's `{key}` is {expected}", path.display())]
    SpecialToken {
        /// The tokenizer's file.
        path: PathBuf,
        /// The special token's name.
        name: &'static str,
        /// The tokenizer's id for it.
        found: u32,
        /// The key of the model's configuration.
        key: &'static str,
        /// The model's id for it.
        expected: u32,
    },
    /// The dropout of merges is not a probability.
    #[error("dropout {0} is not between 0 and 1")]
    Dropout(f64),
    /// Only the merges of a BPE can be dropped.
    #[error("dropout is for BPE tokenizers; this one is {model}")]
    DropoutWithoutBpe {
        /// The type of the tokenizer's model.
        model: &'static str,
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
    /// The model does not accept a sentence; the index counts those given, from 0.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// A tokenizer in Hugging Face's format: of pieces of words, of characters, or of words.
///
/// Text that spells a special token, such as `<eos>`, is encoded as text: only the model adds special
/// tokens. A dropout that the file names is not used: [`encode`](Self::encode) always gives the same tokens,
/// and [`encode_with_dropout`](Self::encode_with_dropout) is given a dropout of its own.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Read from the model when they are first needed, or why they cannot be.
    merges: Arc<OnceLock<Result<Merges, String>>>,
}

impl From<tokenizers::Tokenizer> for Tokenizer {
    fn from(mut inner: tokenizers::Tokenizer) -> Self {
        // Not part of the file format: it must be set each time.
        inner.set_encode_special_tokens(true);
        if let ModelWrapper::BPE(bpe) = inner.get_model()
            && bpe.dropout.is_some()
        {
            let mut bpe = bpe.clone();
            bpe.dropout = None;
            inner.with_model(bpe);
        }
        Self {
            inner,
            merges: Arc::default(),
        }
    }
}

impl Tokenizer {
    /// Reads a file in Hugging Face's format, such as `tokenizer.json`.
    ///
    /// # Errors
    /// When the file is missing or is not a tokenizer.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TextError> {
        let path = path.as_ref();
        match tokenizers::Tokenizer::from_file(path) {
            Ok(inner) => Ok(inner.into()),
            Err(error) => Err(TextError::File {
                path: path.to_owned(),
                problem: error.to_string(),
            }),
        }
    }

    /// Writes a file in Hugging Face's format.
    ///
    /// # Errors
    /// When the file cannot be written; an older one then stays as it was.
    pub fn to_file(&self, path: impl AsRef<Path>) -> Result<(), TextError> {
        let path = path.as_ref();
        let json = self.to_json()?;
        replace_file_with(path, json).map_err(|error| TextError::File {
            path: path.to_owned(),
            problem: error.to_string(),
        })
    }

    /// The text of a file in Hugging Face's format.
    ///
    /// # Errors
    /// When a part of the tokenizer has no such format.
    pub fn to_json(&self) -> Result<String, TextError> {
        let json = self.inner.to_string(false);
        json.map_err(|error| TextError::Tokenizer(error.to_string()))
    }

    /// Whether all tokens have the same ids in another tokenizer.
    pub(crate) fn has_vocabulary_of(&self, other: &Self) -> bool {
        self.inner.get_vocab(true) == other.inner.get_vocab(true)
    }

    /// Checks that the tokenizer, read from `path`, fits a model of `vocab_size` entries and these special tokens.
    ///
    /// # Errors
    /// When it has more entries than the model, or another id for a special token.
    pub fn check(
        &self,
        path: &Path,
        vocab_size: usize,
        special_tokens: SpecialTokens,
    ) -> Result<(), TextError> {
        let tokens = self.vocab_size();
        if tokens > vocab_size {
            return Err(TextError::Vocabulary {
                path: path.to_owned(),
                tokens,
                vocab_size,
            });
        }
        for (name, key, expected) in special_tokens.named() {
            match self.inner.token_to_id(name) {
                // A tokenizer that we did not train may have other names.
                None => {}
                Some(found) if found == expected => {}
                Some(found) => {
                    return Err(TextError::SpecialToken {
                        path: path.to_owned(),
                        name,
                        found,
                        key,
                        expected,
                    });
                }
            }
        }
        Ok(())
    }

    /// Number of entries, special tokens included: one more than the highest id, so that a model with as
    /// many embeddings has one for every token, even if the tokenizer leaves ids out.
    pub fn vocab_size(&self) -> usize {
        let ids = self.inner.get_vocab(true).into_values();
        ids.max().map_or(0, |highest| highest as usize + 1)
    }

    /// The tokens of a text, without `<bos>` and `<eos>`.
    ///
    /// # Errors
    /// When the tokenizer cannot encode the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        match self.inner.encode_fast(text, false) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(error) => Err(TextError::Tokenizer(error.to_string())),
        }
    }

    /// The tokens of a text, without `<bos>` and `<eos>`, cut otherwise each time: BPE dropout (Provilkov et
    /// al., 2020), which makes a model see words in many pieces. It is for training, with a `dropout` of 0.1.
    ///
    /// At each step of BPE, each merge that is possible is dropped with the probability `dropout`, and of the
    /// others the one that was learned first is made, until none is left. With a dropout of 0 the tokens are
    /// those of [`encode`](Self::encode), with 1 they are bytes or characters. They always decode to the same
    /// text, and depend on nothing but the text, `dropout` and the numbers drawn from `rng`.
    ///
    /// # Errors
    /// When `dropout` is not between 0 and 1, when it is not 0 and the tokenizer is no BPE, and when the
    /// tokenizer cannot encode the text.
    pub fn encode_with_dropout(
        &self,
        text: &str,
        dropout: f64,
        rng: &mut impl Rng,
    ) -> Result<Vec<u32>, TextError> {
        if !(0.0..=1.0).contains(&dropout) {
            return Err(TextError::Dropout(dropout));
        }
        if dropout == 0.0 {
            return self.encode(text);
        }
        self.read_merges()?
            .encode(&self.inner, text, dropout, rng)
            .map_err(|error| TextError::Tokenizer(error.to_string()))
    }

    /// Checks that there are merges to drop, for [`encode_with_dropout`](Self::encode_with_dropout).
    ///
    /// # Errors
    /// When the tokenizer is no BPE.
    pub fn check_dropout(&self) -> Result<(), TextError> {
        self.read_merges()?;
        Ok(())
    }

    /// The merges of a BPE.
    fn read_merges(&self) -> Result<&Merges, TextError> {
        let ModelWrapper::BPE(bpe) = self.inner.get_model() else {
            let model = self.model_type();
            return Err(TextError::DropoutWithoutBpe { model });
        };
        let read = || Merges::new(bpe).map_err(|error| error.to_string());
        match self.merges.get_or_init(read) {
            Ok(merges) => Ok(merges),
            Err(problem) => Err(TextError::Tokenizer(problem.clone())),
        }
    }

    /// The type of the model, as the file names it.
    fn model_type(&self) -> &'static str {
        match self.inner.get_model() {
            ModelWrapper::BPE(_) => "BPE",
            ModelWrapper::WordPiece(_) => "WordPiece",
            ModelWrapper::WordLevel(_) => "WordLevel",
            ModelWrapper::Unigram(_) => "Unigram",
        }
    }

    /// A token, to be read by people: its text, or its name in the vocabulary if it is not text by
    /// itself.
    pub fn token(&self, token: u32) -> String {
        let name = || self.inner.id_to_token(token).unwrap_or_default();
        match self.decode(&[token]) {
            Ok(text) if !text.is_empty() && !text.contains(char::REPLACEMENT_CHARACTER) => text,
            _ => name(),
        }
    }

    /// Whether a token is one byte of a character that the vocabulary does not have, such as `<0x0A>`. The
    /// bytes that follow it decide what it is decoded to.
    pub(super) fn is_byte(&self, token: u32) -> bool {
        let name = self.inner.id_to_token(token).unwrap_or_default();
        name.len() == 6 && name.starts_with("<0x") && name.ends_with('>')
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

/// The tokenizers of a model: one for source and target, or one for each.
///
/// In a model directory the former is `tokenizer.json`, the latter are `source_tokenizer.json` and
/// `target_tokenizer.json`.
///
/// ```
/// use transformer_core::{SpecialTokens, Tokenizer, Tokenizers};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let directory = folder.path();
/// // Words; `transformer_train::train_bpe` makes a tokenizer of subwords.
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
/// assert_eq!(tokenizers.source().encode("a cat")?, [4, 5]);
/// assert_eq!(tokenizers.target().decode(&[5, 4])?, "cat a");
///
/// // They fit a model with 6 entries for source and target. Beside the model's files they are loaded with it.
/// tokenizers.check([6, 6], SpecialTokens::default(), directory)?;
/// tokenizers.save(directory)?;
/// assert!(Tokenizers::load(directory)?.have_vocabularies_of(&tokenizers));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Tokenizers {
    source: Tokenizer,
    /// `None` if it is the source's.
    target: Option<Tokenizer>,
}

impl From<Tokenizer> for Tokenizers {
    fn from(tokenizer: Tokenizer) -> Self {
        Self::shared(tokenizer)
    }
}

impl Tokenizers {
    /// One tokenizer for source and target, with a shared vocabulary.
    pub fn shared(tokenizer: Tokenizer) -> Self {
        Self {
            source: tokenizer,
            target: None,
        }
    }

    /// A tokenizer for each, with vocabularies of their own.
    pub fn separate(source: Tokenizer, target: Tokenizer) -> Self {
        Self {
            source,
            target: Some(target),
        }
    }

    /// The source's tokenizer.
    pub fn source(&self) -> &Tokenizer {
        &self.source
    }

    /// The target's tokenizer, which may be the source's.
    pub fn target(&self) -> &Tokenizer {
        self.target.as_ref().unwrap_or(&self.source)
    }

    /// Whether a model directory has tokenizers: one, or both of a pair. A process that was killed while it
    /// saved a pair has left one of the two, which is not enough.
    pub fn are_in(directory: impl AsRef<Path>) -> bool {
        let has = |name| directory.as_ref().join(name).exists();
        has(TOKENIZER_FILE) || (has(SOURCE_TOKENIZER_FILE) && has(TARGET_TOKENIZER_FILE))
    }

    /// The directory that has the tokenizers of a model directory: itself or, for a checkpoint
    /// (`run/checkpoints/update-…`), that of its run. `None` if neither has any.
    pub fn directory_of(model: impl AsRef<Path>) -> Option<PathBuf> {
        let model = model.as_ref();
        if Self::are_in(model) {
            return Some(model.to_owned());
        }
        run_of_checkpoint(model).filter(|run| Self::are_in(run))
    }

    /// Reads the tokenizers of a model directory; those of a checkpoint are in the directory of its run.
    ///
    /// # Errors
    /// When a file is missing or is not a tokenizer.
    pub fn load(directory: impl AsRef<Path>) -> Result<Self, TextError> {
        let directory = directory.as_ref();
        let directory = Self::directory_of(directory).unwrap_or_else(|| directory.to_owned());
        let [source, target] =
            [SOURCE_TOKENIZER_FILE, TARGET_TOKENIZER_FILE].map(|name| directory.join(name));
        if source.exists() || target.exists() {
            let source = Tokenizer::from_file(source)?;
            return Ok(Self::separate(source, Tokenizer::from_file(target)?));
        }
        let shared = Tokenizer::from_file(directory.join(TOKENIZER_FILE))?;
        Ok(Self::shared(shared))
    }

    /// Writes the tokenizers into a directory that exists.
    ///
    /// # Errors
    /// When a file cannot be written; an older one then stays as it was.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<(), TextError> {
        for (name, tokenizer) in self.files() {
            tokenizer.to_file(directory.as_ref().join(name))?;
        }
        Ok(())
    }

    fn files(&self) -> Vec<(&'static str, &Tokenizer)> {
        match &self.target {
            None => vec![(TOKENIZER_FILE, &self.source)],
            Some(target) => vec![
                (SOURCE_TOKENIZER_FILE, &self.source),
                (TARGET_TOKENIZER_FILE, target),
            ],
        }
    }

    /// Whether the tokens of other tokenizers have the same ids.
    pub fn have_vocabularies_of(&self, others: &Self) -> bool {
        self.source().has_vocabulary_of(others.source())
            && self.target().has_vocabulary_of(others.target())
    }

    /// Checks that the tokenizers fit a model with vocabularies of these sizes, the source's and the target's,
    /// and these special tokens. A model with one vocabulary, such as a language model, has its size twice.
    ///
    /// # Errors
    /// When a tokenizer has more entries than the model, or another id for a special token;
    /// the error names the tokenizer's file in `directory`.
    pub fn check(
        &self,
        [source, target]: [usize; 2],
        special_tokens: SpecialTokens,
        directory: impl AsRef<Path>,
    ) -> Result<(), TextError> {
        let sizes: &[usize] = match self.target {
            None => &[source.min(target)],
            Some(_) => &[source, target],
        };
        for ((name, tokenizer), &vocab_size) in self.files().into_iter().zip(sizes) {
            let path = directory.as_ref().join(name);
            tokenizer.check(&path, vocab_size, special_tokens)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::special_tokens::SPECIAL_TOKENS;

    /// A tokenizer of words, the special tokens first.
    pub fn words(words: &[&str]) -> Tokenizer {
        let words = SPECIAL_TOKENS.iter().chain(words).enumerate();
        let vocabulary: Vec<String> = words.map(|(id, word)| format!("{word:?}: {id}")).collect();
        let json = format!(
            r#"{{
                "version": "1.0",
                "added_tokens": [],
                "pre_tokenizer": {{"type": "WhitespaceSplit"}},
                "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "<unk>"}}
            }}"#,
            vocabulary.join(", ")
        );
        let inner: tokenizers::Tokenizer = json.parse().unwrap();
        inner.into()
    }

    #[test]
    fn a_model_has_an_embedding_for_every_token_even_if_ids_are_left_out() {
        assert_eq!(words(&["a"]).vocab_size(), 5);
        let json = r#"{
            "version": "1.0",
            "added_tokens": [],
            "model": {"type": "WordLevel", "vocab": {"<unk>": 3, "a": 9}, "unk_token": "<unk>"}
        }"#;
        let inner: tokenizers::Tokenizer = json.parse().unwrap();
        assert_eq!(Tokenizer::from(inner).vocab_size(), 10);
    }

    #[test]
    fn a_checkpoint_has_the_tokenizers_of_its_run() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let checkpoint = run.join("checkpoints/update-00000004");
        let other = run.join("models/model");
        for directory in [&checkpoint, &other] {
            std::fs::create_dir_all(directory).unwrap();
            assert!(Tokenizers::load(directory).is_err());
        }
        let tokenizers = Tokenizers::shared(words(&["a", "b"]));
        tokenizers.save(&run).unwrap();
        let found = Tokenizers::load(&checkpoint).unwrap();
        assert!(found.have_vocabularies_of(&tokenizers));
        assert!(Tokenizers::load(&other).is_err());
        // Its own come first.
        let own = Tokenizers::shared(words(&["c"]));
        own.save(&checkpoint).unwrap();
        let found = Tokenizers::load(&checkpoint).unwrap();
        assert!(found.have_vocabularies_of(&own));
    }

    #[test]
    fn tokenizers_are_checked_against_the_vocabularies_of_a_model() {
        let special = SpecialTokens::default();
        let message = |tokenizers: &Tokenizers, sizes, special| {
            let checked = tokenizers.check(sizes, special, "model");
            checked.err().map(|error| error.to_string())
        };
        // Five tokens, and six.
        let (small, large) = (words(&["a"]), words(&["a", "b"]));
        let separate = Tokenizers::separate(small, large.clone());
        assert_eq!(message(&separate, [5, 6], special), None);
        assert_eq!(
            message(&separate, [6, 5], special).unwrap(),
            "model/target_tokenizer.json: 6 tokens for a model that knows 5"
        );
        // One for both, as a language model has it, must fit both.
        let shared = Tokenizers::shared(large);
        assert_eq!(message(&shared, [6, 6], special), None);
        assert_eq!(
            message(&shared, [7, 5], special).unwrap(),
            "model/tokenizer.json: 6 tokens for a model that knows 5"
        );
        let other = SpecialTokens { eos: 4, ..special };
        assert_eq!(
            message(&shared, [6, 6], other).unwrap(),
            "model/tokenizer.json: `<eos>` is token 2, but the model's `eos_id` is 4"
        );
        assert!(shared.have_vocabularies_of(&shared.clone()));
        assert!(!shared.have_vocabularies_of(&separate));
    }
}
