//! The pieces of a model, and their lookup.

use std::collections::HashMap;

use crate::text::sentence_piece::model_file::{AlgorithmName, Kind, ModelFile, Piece};
use crate::text::sentence_piece::trie::Trie;

/// A piece must have fewer bytes than this.
const TOO_LONG: usize = 8000;

/// The vocabulary of a model.
#[derive(Debug)]
pub(super) struct Pieces {
    list: Vec<Piece>,
    /// The pieces into which text is split; in a BPE, which needs them for merging, all pieces.
    of_text: Trie,
    /// The other pieces: text may spell them.
    reserved: HashMap<String, u32>,
    /// The user-defined pieces, which are never split.
    user_defined: Trie,
    unknown: Option<u32>,
    /// The ids of the bytes that spell unknown characters.
    bytes: Option<Box<[u32; 256]>>,
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// In bytes.
    pub length: usize,
    /// Its piece; `None` if unknown.
    pub piece: Option<u32>,
}

impl Pieces {
    /// The pieces of a file.
    ///
    /// # Errors
    /// When a piece is empty, too long or duplicated, or one that the model needs is missing.
    pub fn new(file: &mut ModelFile<'_>) -> Result<Self, String> {
        let mut list = std::mem::take(&mut file.pieces);
        let mut reserved = HashMap::new();
        let mut unknown = None;
        let mut bytes = [None; 256];
        for piece in &mut list {
            // Some converters write this by mistake: the byte has its own piece.
            if piece.text == "\0" && file.byte_fallback {
                piece.kind = Kind::Unused;
            }
        }
        let mut of_text: Vec<(&str, u32)> = Vec::new();
        for (piece, id) in list.iter().zip(0..) {
            let Piece { text, kind, .. } = piece;
            check_text(piece).map_err(|problem| format!("its piece {id} {problem}"))?;
            if text == "\0" {
                continue;
            }
            if kind.is_text() || file.algorithm == AlgorithmName::Bpe {
                of_text.push((text.as_str(), id));
            } else if reserved.insert(text.clone(), id).is_some() {
                return Err(twice(text));
            }
            match *kind {
                Kind::Unknown if unknown.is_some() => {
                    return Err(format!("its piece {id} is a second unknown piece"));
                }
                Kind::Unknown => unknown = Some(id),
                Kind::Byte(_) if !file.byte_fallback => {
                    return Err(format!(
                        "its piece {id} is a byte, but byte fallback is off"
                    ));
                }
                Kind::Byte(byte) => bytes[usize::from(byte)] = Some(id),
                _ => {}
            }
        }
        of_text.sort_unstable();
        if let Some(same) = of_text.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(twice(same[0].0));
        }
        if of_text.is_empty() {
            return Err("it has no pieces".into());
        }
        if unknown.is_none() && !file.byte_fallback {
            return Err("it has no unknown piece".into());
        }
        let bytes = match file.byte_fallback {
            false => None,
            true => Some(all_bytes(bytes)?),
        };
        let is_user_defined = |&(_, id): &(&str, u32)| list[id as usize].kind == Kind::UserDefined;
        Ok(Self {
            user_defined: Trie::new(of_text.iter().copied().filter(is_user_defined)),
            of_text: Trie::new(of_text),
            reserved,
            unknown,
            bytes,
            list,
        })
    }

    /// A piece by its id.
    pub fn get(&self, id: u32) -> &Piece {
        &self.list[id as usize]
    }

    /// All pieces.
    pub fn all(&self) -> &[Piece] {
        &self.list
    }

    /// Lengths and ids of the pieces that a text begins with, shortest first.
    pub fn prefixes(&self, text: &[u8]) -> impl Iterator<Item = (usize, u32)> {
        self.of_text.prefixes(text)
    }

    /// The piece for a text, which may be an unused one.
    pub fn of_text(&self, text: &[u8]) -> Option<u32> {
        let id = self.of_text.get(text)?;
        self.get(id).kind.is_text().then_some(id)
    }

    /// The piece with this name, of any kind.
    pub fn named(&self, name: &str) -> Option<u32> {
        let reserved = self.reserved.get(name).copied();
        reserved.or_else(|| self.of_text.get(name.as_bytes()))
    }

    /// The user-defined pieces, which are never split.
    pub fn user_defined(&self) -> &Trie {
        &self.user_defined
    }

    /// The id of the unknown piece.
    pub fn unknown(&self) -> Option<u32> {
        self.unknown
    }

    /// The ids of the bytes that spell unknown characters.
    pub fn bytes(&self) -> Option<&[u32; 256]> {
        self.bytes.as_deref()
    }
}

fn check_text(Piece { text, kind, .. }: &Piece) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    if text.len() >= TOO_LONG {
        return Err("is too long");
    }
    let is_unused_nul = text == "\0" && *kind == Kind::Unused;
    match text.contains('\0') && !is_unused_nul {
        true => Err("contains a NUL"),
        false => Ok(()),
    }
}

fn twice(text: &str) -> String {
    format!("it has the piece {text:?} twice")
}

fn all_bytes(bytes: [Option<u32>; 256]) -> Result<Box<[u32; 256]>, String> {
    let mut ids = Box::new([0; 256]);
    for (byte, (id, found)) in ids.iter_mut().zip(bytes).enumerate() {
        *id = found.ok_or_else(|| format!("it has no piece for the byte {byte:#04x}"))?;
    }
    Ok(ids)
}
