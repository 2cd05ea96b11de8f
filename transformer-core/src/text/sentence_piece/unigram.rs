//! The unigram model: the most probable way to split a text into pieces.

use crate::text::sentence_piece::model_file::Kind;
use crate::text::sentence_piece::normalizer::character;
use crate::text::sentence_piece::pieces::{Part, Pieces};

/// How much less an unknown character's log-probability is than the least probable piece's.
const UNKNOWN_PENALTY: f32 = 10.0;

/// Beyond this log-probability, paths are measured from where the next piece begins, because single precision could not
/// distinguish them.
const FAR: f32 = 100_000.0;

/// A unigram model; its pieces are passed with the text.
#[derive(Debug)]
pub(super) struct Unigram {
    /// The log-probability of an unknown character.
    unknown_score: f32,
}

/// The most probable path to a position of the text.
#[derive(Debug, Clone, Copy, Default)]
struct Path {
    score: f32,
    /// The length of the last piece; 0 if no path ends here.
    length: usize,
    /// The last piece; `None` if it is unknown.
    piece: Option<u32>,
}

impl Unigram {
    /// The model of these pieces.
    pub fn new(pieces: &Pieces) -> Self {
        let normal = pieces.all().iter();
        let normal = normal.filter(|piece| piece.kind == Kind::Normal);
        let least = normal.fold(f32::MAX, |least, piece| least.min(piece.score));
        Self {
            unknown_score: least - UNKNOWN_PENALTY,
        }
    }

    /// Splits a normalized text into parts. Of two equally probable paths, the one with the longer last piece is kept.
    /// All sums are in single precision, in the order of the text.
    pub fn parts(&self, text: &[u8], pieces: &Pieces) -> Vec<Part> {
        let mut paths = vec![Path::default(); text.len() + 1];
        let mut start = 0;
        let mut furthest = 0;
        while start < text.len() {
            if paths[start].score.abs() > FAR {
                move_scores(&mut paths, start, furthest);
            }
            let here = paths[start].score;
            let mut extend = |length: usize, score: f32, piece: Option<u32>| {
                let path = &mut paths[start + length];
                let score = score + here;
                if path.length == 0 || score > path.score {
                    *path = Path {
                        score,
                        length,
                        piece,
                    };
                }
                furthest = furthest.max(start + length);
            };
            let length_of_first = character(&text[start..]);
            let mut first_is_known = false;
            for (length, id) in pieces.prefixes(&text[start..]) {
                let piece = pieces.get(id);
                let score = match piece.kind {
                    Kind::Unused => continue,
                    // More than any log-probability, and more for one long piece than for several short ones.
                    Kind::UserDefined => (0.1 * (length as f64 - 1.0)) as f32,
                    _ => piece.score,
                };
                extend(length, score, Some(id));
                first_is_known |= length == length_of_first;
            }
            if !first_is_known {
                extend(length_of_first, self.unknown_score, None);
            }
            start += length_of_first;
        }
        backwards(&paths)
    }
}

/// Measures the paths that end between `start` and `furthest` from the path that ends at `start`.
fn move_scores(paths: &mut [Path], start: usize, furthest: usize) {
    let origin = paths[start].score;
    for path in paths.iter_mut().take(furthest + 1).skip(start) {
        if path.length > 0 {
            path.score -= origin;
        }
    }
}

/// The parts of the path to the end of the text.
fn backwards(paths: &[Path]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut end = paths.len() - 1;
    while let Path {
        length: length @ 1..,
        piece,
        ..
    } = paths[end]
    {
        parts.push(Part { length, piece });
        end -= length;
    }
    parts.reverse();
    parts
}
