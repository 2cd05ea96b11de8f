//! The file of a SentencePiece model: a Protocol Buffers message.

use crate::formats::protobuf::{Fields, Value};
use crate::text::sentence_piece::normalizer::NormalizerSpec;

/// The content of a file.
#[derive(Debug)]
pub(super) struct ModelFile<'a> {
    /// The pieces, in the order of their ids.
    pub pieces: Vec<Piece>,
    pub algorithm: AlgorithmName,
    /// The space that is added to a text comes after it.
    pub space_is_suffix: bool,
    /// Unknown characters are spelled in bytes.
    pub byte_fallback: bool,
    /// The text that the unknown piece is decoded to.
    pub unknown_surface: String,
    pub normalizer: NormalizerSpec<'a>,
    /// The normalizer of decoded text, if it has rules.
    pub denormalizer: NormalizerSpec<'a>,
}

/// How a text is split into pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AlgorithmName {
    Unigram,
    Bpe,
}

/// An entry of the vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub text: String,
    /// A log-probability, or the rank of a merge: larger comes first.
    pub score: f32,
    pub kind: Kind,
}

/// The use of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text.
    Normal,
    /// Unknown text.
    Unknown,
    /// A control token, such as `<s>`.
    Control,
    /// Text that is always a piece, and is not normalized.
    UserDefined,
    /// Text that is only an intermediate result of merges.
    Unused,
    /// A byte of an unknown character.
    Byte(u8),
}

impl Kind {
    /// Whether the piece represents itself in a text.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Normal | Self::UserDefined | Self::Unused)
    }
}

impl<'a> ModelFile<'a> {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is not such a message, a piece is not valid text or not a byte, or the algorithm is neither unigram nor
    /// BPE.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, String> {
        let mut file = Self {
            pieces: Vec::new(),
            algorithm: AlgorithmName::Unigram,
            space_is_suffix: false,
            byte_fallback: false,
            unknown_surface: " \u{2047} ".into(),
            normalizer: NormalizerSpec::default(),
            denormalizer: NormalizerSpec::default(),
        };
        for field in Fields::of(bytes) {
            match field? {
                (1, Value::Bytes(message)) => {
                    let piece = piece(message);
                    let id = file.pieces.len();
                    let piece = piece.map_err(|problem| format!("its piece {id} {problem}"))?;
                    file.pieces.push(piece);
                }
                (2, Value::Bytes(message)) => file.read_trainer(message)?,
                (3, Value::Bytes(message)) => read_normalizer(&mut file.normalizer, message)?,
                (5, Value::Bytes(message)) => read_normalizer(&mut file.denormalizer, message)?,
                _ => {}
            }
        }
        Ok(file)
    }

    fn read_trainer(&mut self, message: &[u8]) -> Result<(), String> {
        for field in Fields::of(message) {
            match field? {
                (3, Value::Integer(1)) => self.algorithm = AlgorithmName::Unigram,
                (3, Value::Integer(2)) => self.algorithm = AlgorithmName::Bpe,
                (3, Value::Integer(3)) => return Err(unsupported("word")),
                (3, Value::Integer(4)) => return Err(unsupported("character")),
                (24, Value::Integer(is)) => self.space_is_suffix = is != 0,
                (35, Value::Integer(has)) => self.byte_fallback = has != 0,
                (44, Value::Bytes(text)) => {
                    self.unknown_surface = String::from_utf8_lossy(text).into_owned();
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn unsupported(model: &str) -> String {
    format!("it is a {model} model, not unigram or BPE")
}

fn read_normalizer<'a>(
    spec: &mut NormalizerSpec<'a>,
    message: &'a [u8],
) -> Result<(), &'static str> {
    for field in Fields::of(message) {
        match field? {
            (2, Value::Bytes(rules)) => spec.rules = rules,
            (3, Value::Integer(adds)) => spec.add_dummy_prefix = adds != 0,
            (4, Value::Integer(removes)) => spec.remove_extra_whitespaces = removes != 0,
            (5, Value::Integer(escapes)) => spec.escape_whitespaces = escapes != 0,
            _ => {}
        }
    }
    Ok(())
}

fn piece(message: &[u8]) -> Result<Piece, String> {
    let mut text: &[u8] = &[];
    let mut score = 0.0;
    let mut kind = 1;
    for field in Fields::of(message) {
        match field.map_err(|problem| format!("is damaged: {problem}"))? {
            (1, Value::Bytes(bytes)) => text = bytes,
            (2, Value::Float(number)) => score = number,
            // Later types are unknown: such a piece is text.
            (3, Value::Integer(number @ 1..=6)) => kind = number,
            _ => {}
        }
    }
    let text = std::str::from_utf8(text).map_err(|_| "is not UTF-8")?;
    if !score.is_finite() {
        return Err(format!("has the score {score}"));
    }
    let kind = match kind {
        2 => Kind::Unknown,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte(byte(text).ok_or_else(|| format!("is an invalid byte {text:?}"))?),
        _ => Kind::Normal,
    };
    Ok(Piece {
        text: text.to_owned(),
        score,
        kind,
    })
}

/// The byte that a piece such as `<0x0A>` names.
fn byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let byte = u8::from_str_radix(digits, 16).ok()?;
    // Two uppercase digits.
    (format!("{byte:02X}") == digits).then_some(byte)
}
