//! SentencePiece: text to pieces and back, as in the library of that name ([Kudo and Richardson,
//! 2018](https://arxiv.org/abs/1808.06226)).
//!
//! Pieces are exactly those of the library's version 0.2.3: the same rules, and the same sums in single precision, in
//! the same order.

mod bpe;
mod character_map;
#[cfg(test)]
mod check;
mod model_file;
mod normalizer;
mod pieces;
#[cfg(test)]
pub(super) mod tests;
mod trie;
mod unigram;

use self::model_file::{AlgorithmName, Kind, ModelFile, Piece};
use self::normalizer::{Normalizer, SPACE};
use self::pieces::{Part, Pieces};
use self::unigram::Unigram;

pub(super) use self::character_map::CharacterMap;
#[cfg(test)]
pub(super) use self::character_map::tests::map_of_bytes;
pub(super) use self::trie::Trie;

/// A SentencePiece model, unigram or BPE.
#[derive(Debug)]
pub(super) struct SentencePiece {
    pieces: Pieces,
    algorithm: Algorithm,
    normalizer: Normalizer,
    /// The normalizer of decoded text.
    denormalizer: Option<Normalizer>,
    /// The text that the unknown piece is decoded to.
    unknown_surface: String,
    first_space: FirstSpace,
}

#[derive(Debug)]
enum Algorithm {
    Unigram(Unigram),
    Bpe,
}

/// Treatment of leading spaces in decoded text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstSpace {
    /// They are kept.
    Stays,
    /// The first one, which was added, is removed.
    LeftOut,
    /// All that are separate pieces are removed, and the first one of the piece after them.
    AllLeftOut,
}

/// Maximum bytes of the normalized form of a text of this many bytes. Real rules lengthen a text a little; a rule for
/// one letter could turn a line into gigabytes.
pub(super) fn most_normalized(bytes: usize) -> usize {
    (2 << 20) + bytes.saturating_mul(16)
}

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextPiece {
    /// The piece, with `▁` for a space; for unknown text, the text itself.
    pub text: String,
    /// Its id; `None` for unknown text in a model that has no piece for it.
    pub id: Option<u32>,
}

impl SentencePiece {
    /// Reads a model from the bytes of its file.
    ///
    /// # Errors
    /// The problem in one line, without the file's name.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let read = Self::read(bytes);
        read.map_err(|problem| format!("not a SentencePiece model: {problem}"))
    }

    fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut file = ModelFile::from_bytes(bytes)?;
        let pieces = Pieces::new(&mut file)?;
        let denormalizer = match file.denormalizer.rules {
            [] => None,
            _ => Some(Normalizer::new(&file.denormalizer, false)?),
        };
        let spec = &file.normalizer;
        Ok(Self {
            algorithm: match file.algorithm {
                AlgorithmName::Unigram => Algorithm::Unigram(Unigram::new(&pieces)),
                AlgorithmName::Bpe => Algorithm::Bpe,
            },
            pieces,
            normalizer: Normalizer::new(spec, file.space_is_suffix)?,
            denormalizer,
            first_space: match (spec.remove_extra_whitespaces, spec.add_dummy_prefix) {
                (true, _) => FirstSpace::AllLeftOut,
                (false, true) => FirstSpace::LeftOut,
                (false, false) => FirstSpace::Stays,
            },
            unknown_surface: file.unknown_surface,
        })
    }

    /// The names of the pieces, in the order of their ids.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.all().iter().map(|piece| piece.text.as_str())
    }

    /// The ids of the pieces that are not text: unknown text and control tokens.
    pub fn special(&self) -> impl Iterator<Item = u32> {
        let is_special = |piece: &Piece| matches!(piece.kind, Kind::Unknown | Kind::Control);
        let pieces = self.pieces.all().iter().zip(0..);
        pieces.filter_map(move |(piece, id)| is_special(piece).then_some(id))
    }

    /// Encodes a text. Adjacent unknown characters are one piece, or bytes if the model has these.
    ///
    /// # Errors
    /// When the normalizer's rules make the text too long.
    pub fn encode(&self, text: &str) -> Result<Vec<TextPiece>, String> {
        let kept = self.pieces.user_defined();
        let normalized = self.normalizer.normalize(text.as_bytes(), kept);
        if normalized.len() > most_normalized(text.len()) {
            return Err(format!(
                "the normalizer's rules expand a text of {} bytes to more than {}",
                text.len(),
                most_normalized(text.len())
            ));
        }
        let parts = match &self.algorithm {
            Algorithm::Unigram(unigram) => unigram.parts(&normalized, &self.pieces),
            Algorithm::Bpe => bpe::parts(&normalized, &self.pieces),
        };
        let mut found: Vec<TextPiece> = Vec::with_capacity(parts.len());
        let mut rest = &normalized[..];
        let mut is_after_unknown = false;
        for Part { length, piece } in parts {
            let (bytes, others) = rest.split_at(length);
            rest = others;
            let text = String::from_utf8_lossy(bytes);
            match (piece, self.pieces.bytes(), found.last_mut()) {
                (None, Some(ids), _) => {
                    let ids = bytes.iter().map(|&byte| ids[usize::from(byte)]);
                    found.extend(ids.map(|id| TextPiece {
                        text: self.pieces.get(id).text.clone(),
                        id: Some(id),
                    }));
                }
                (None, None, Some(last)) if is_after_unknown => last.text.push_str(&text),
                _ => found.push(TextPiece {
                    text: text.into_owned(),
                    id: piece.or(self.pieces.unknown()),
                }),
            }
            is_after_unknown = piece.is_none();
        }
        Ok(found)
    }

    /// Decodes pieces to text. Control pieces are skipped; text that is not a piece of the model is unchanged.
    pub fn decode<'a>(&self, pieces: impl IntoIterator<Item = &'a str>) -> String {
        let mut text = String::new();
        let mut bytes = Vec::new();
        let mut is_start = true;
        for piece in pieces {
            let entry = self.pieces.named(piece).map(|id| self.pieces.get(id).kind);
            if let Some(Kind::Byte(byte)) = entry {
                bytes.push(byte);
                continue;
            }
            push_bytes(&mut text, &mut bytes);
            is_start &= text.is_empty();
            match entry {
                Some(Kind::Control) => {}
                Some(Kind::Unknown) => text += &self.unknown_surface,
                None => text += piece,
                Some(_) => {
                    let without = piece.strip_prefix(SPACE);
                    let without =
                        without.filter(|_| is_start && self.first_space != FirstSpace::Stays);
                    text += &without.unwrap_or(piece).replace(SPACE, " ");
                    if without.is_some() && self.first_space == FirstSpace::LeftOut {
                        is_start = false;
                    }
                }
            }
        }
        push_bytes(&mut text, &mut bytes);
        match &self.denormalizer {
            None => text,
            Some(denormalizer) => {
                let text = denormalizer.normalize(text.as_bytes(), &Trie::new([]));
                String::from_utf8_lossy(&text).into_owned()
            }
        }
    }
}

/// Moves bytes to a text; each byte that is not part of a character becomes U+FFFD.
fn push_bytes(text: &mut String, bytes: &mut Vec<u8>) {
    let mut rest = &bytes[..];
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                break;
            }
            Err(error) => {
                let (valid, others) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                text.push(char::REPLACEMENT_CHARACTER);
                rest = &others[1..];
            }
        }
    }
    bytes.clear();
}
