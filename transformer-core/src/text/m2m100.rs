//! M2M100's tokenizer: a SentencePiece model, a vocabulary with the ids of its pieces, and language tokens after these.
//!
//! Pieces and ids are the same as in Hugging Face's `M2M100Tokenizer`.

use std::path::Path;
use std::sync::Arc;

use crate::formats::files;
use crate::formats::vocabularies::ENGLISH;
use crate::text::added_tokens::AddedTokens;
use crate::text::error::TextError;
use crate::text::marian::is_space;
use crate::text::sentence_piece::SentencePiece;
use crate::text::vocabulary::Vocabulary;

/// The languages of M2M100, in the order of their ids.
const M2M100: &[&str] = &[
    "af", "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca", "ceb", "cs", "cy",
    "da", "de", "el", "en", "es", "et", "fa", "ff", "fi", "fr", "fy", "ga", "gd", "gl", "gu", "ha",
    "he", "hi", "hr", "ht", "hu", "hy", "id", "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk",
    "km", "kn", "ko", "lb", "lg", "ln", "lo", "lt", "lv", "mg", "mk", "ml", "mn", "mr", "ms", "my",
    "ne", "nl", "no", "ns", "oc", "or", "pa", "pl", "ps", "pt", "ro", "ru", "sd", "si", "sk", "sl",
    "so", "sq", "sr", "ss", "su", "sv", "sw", "ta", "th", "tl", "tn", "tr", "uk", "ur", "uz", "vi",
    "wo", "xh", "yi", "yo", "zh", "zu",
];

/// The languages of the WMT 2021 models.
const WMT21: &[&str] = &["en", "ha", "is", "ja", "cs", "ru", "zh", "de"];

/// The languages of the list with this name in `tokenizer_config.json` (`language_codes`).
///
/// # Errors
/// When there is no such list.
pub(super) fn languages_of(list: &str) -> Result<&'static [&'static str], String> {
    match list {
        "m2m100" => Ok(M2M100),
        "wmt21" => Ok(WMT21),
        _ => Err(format!(
            "`language_codes` is {list:?}, not one of \"m2m100\", \"wmt21\""
        )),
    }
}

/// The tokenizer of source and target.
#[derive(Debug, Clone)]
pub(super) struct M2m100 {
    pieces: Arc<SentencePiece>,
    /// Its file.
    pieces_file: Arc<[u8]>,
    /// Pieces, then languages, and added tokens.
    vocabulary: Arc<Vocabulary>,
    /// The languages, with the names of their tokens, in the order of their ids.
    languages: Vec<(String, u32)>,
    /// The language that a text begins with.
    first: Vec<u32>,
}

impl M2m100 {
    /// Loads a tokenizer with the SentencePiece model and the vocabulary in these files, and these languages and added
    /// tokens. A vocabulary with language tokens, such as NLLB's in a directory of CTranslate2, needs no others.
    ///
    /// # Errors
    /// When a file is missing or damaged.
    pub fn load(
        pieces_path: &Path,
        vocabulary_path: &Path,
        languages: &[&str],
        added: &AddedTokens,
    ) -> Result<Self, TextError> {
        let vocabulary = Vocabulary::load(vocabulary_path)?;
        let pieces = files::read(pieces_path).map_err(TextError::file(pieces_path))?;
        Self::new(pieces_path, pieces, vocabulary, languages, added)
    }

    /// [`load`](Self::load) for a vocabulary and the content of a SentencePiece model.
    ///
    /// # Errors
    /// When the model is damaged.
    pub fn new(
        pieces_path: &Path,
        pieces_file: Vec<u8>,
        mut vocabulary: Vocabulary,
        languages: &[&str],
        added: &AddedTokens,
    ) -> Result<Self, TextError> {
        let pieces =
            SentencePiece::from_bytes(&pieces_file).map_err(TextError::file(pieces_path))?;
        let mut known = vocabulary.take_languages();
        if known.is_empty() {
            let languages = languages.iter().map(|language| format!("__{language}__"));
            known.extend(languages.map(|name| {
                let id = vocabulary.add_special(&name);
                (name, id)
            }));
        }
        vocabulary.add(added);
        let is_english = |(name, _): &&(String, u32)| ENGLISH.contains(&name.as_str());
        Ok(Self {
            pieces: Arc::new(pieces),
            pieces_file: pieces_file.into(),
            vocabulary: Arc::new(vocabulary),
            // The default language of sources.
            first: known
                .iter()
                .find(is_english)
                .map(|(_, id)| *id)
                .into_iter()
                .collect(),
            languages: known,
        })
    }

    /// The file of the SentencePiece model.
    pub fn pieces_file(&self) -> &[u8] {
        &self.pieces_file
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The languages, with the names of their tokens, in the order of their ids.
    pub fn languages(&self) -> &[(String, u32)] {
        &self.languages
    }

    /// The tokens that a text begins with.
    pub fn first_tokens(&self) -> &[u32] {
        &self.first
    }

    /// Sets the tokens that a text begins with.
    pub fn set_first_tokens(&mut self, first: Vec<u32>) {
        self.first = first;
    }

    /// Encodes a text, without the tokens that it begins and ends with.
    ///
    /// # Errors
    /// When the normalizer's rules make the text too long.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        self.vocabulary.encode(text, |stretch| {
            let pieces = self.pieces.encode(stretch)?.into_iter();
            Ok((None, pieces.map(|piece| piece.text).collect()))
        })
    }

    /// Decodes tokens to text; special tokens are skipped.
    pub fn decode(&self, tokens: &[u32]) -> String {
        self.vocabulary.decode(tokens, |pieces| {
            let text = self.pieces.decode(pieces);
            text.trim_matches(is_space).to_owned()
        })
    }
}
