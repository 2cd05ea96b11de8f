//! Alignment of translations with their sentences.

use std::ops::Range;

use crate::decoding::CrossAttention;
use crate::text::error::TextError;
use crate::text::tokenizer::Tokenizer;

/// The tokens of a sentence and of its translation as parts of their texts, and the attention between them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Alignment {
    /// Per source token, its bytes of the sentence, without the spaces around them. Empty for tokens that are not text,
    /// such as `<eos>`.
    pub source: Vec<Range<usize>>,
    /// Per target token, its bytes of the translation, without the spaces around them.
    pub target: Vec<Range<usize>>,
    attention: CrossAttention,
}

impl Alignment {
    /// An alignment of tokens, whose texts are found in the sentence and in the translation.
    pub(super) fn new(
        [source, target]: [(&Tokenizer, &[u32], &str); 2],
        attention: CrossAttention,
    ) -> Result<Self, TextError> {
        Ok(Self {
            source: ranges(source)?,
            target: ranges(target)?,
            attention,
        })
    }

    /// The attention of a target token to each source token, averaged over layers and heads: `[src_len]`.
    ///
    /// # Panics
    /// When the translation has no such token.
    pub fn row(&self, token: usize) -> &[f32] {
        self.attention.row(token)
    }
}

/// The part of a text that each token covers.
fn ranges(
    (tokenizer, tokens, text): (&Tokenizer, &[u32], &str),
) -> Result<Vec<Range<usize>>, TextError> {
    let decoded = tokenizer.decode(tokens)?;
    let places = places(&decoded, text);
    let mut end = 0;
    let ranges = (1..=tokens.len()).map(|count| {
        let start = end;
        let begun = tokenizer.decode(&tokens[..count])?;
        // The last characters may still change: they may be incomplete, or spaces before them be removed.
        let equal = begun.char_indices().zip(decoded.chars());
        let differs = equal.clone().find(|((_, one), other)| one != other);
        end = end.max(differs.map_or(begun.len().min(decoded.len()), |((at, _), _)| at));
        let (start, end) = (places[start], places[end]);
        let part = &text[start..end];
        let spaces = part.len() - part.trim_start().len();
        Ok(match part.trim() {
            "" => start..start,
            trimmed => start + spaces..start + spaces + trimmed.len(),
        })
    });
    ranges.collect()
}

/// The place in `text` of each byte offset of `decoded`, which is the same text but for spaces, for characters that the
/// tokenizer normalizes, and for those that its vocabulary does not have.
fn places(decoded: &str, text: &str) -> Vec<usize> {
    /// How far the two are searched for a common character.
    const FARTHEST: usize = 24;
    let one: Vec<(usize, char)> = decoded.char_indices().collect();
    let other: Vec<(usize, char)> = text.char_indices().collect();
    let place = |at: usize| other.get(at).map_or(text.len(), |(place, _)| *place);
    let mut places = vec![text.len(); decoded.len() + 1];
    let (mut i, mut j) = (0, 0);
    while i < one.len() {
        let (at, letter) = one[i];
        let length = letter.len_utf8();
        places[at..at + length].fill(place(j));
        let found = other.get(j).map(|(_, letter)| *letter);
        match found {
            Some(found) if found == letter => (i, j) = (i + 1, j + 1),
            _ if letter.is_whitespace() => i += 1,
            Some(found) if found.is_whitespace() => j += 1,
            _ => {
                let pairs = (1..FARTHEST)
                    .flat_map(|sum| (0..=sum).map(move |skipped| (skipped, sum - skipped)));
                let mut common = pairs.filter(|&(skipped, missing)| {
                    let pair = (one.get(i + skipped), other.get(j + missing));
                    matches!(pair, (Some((_, one)), Some((_, other))) if one == other && !one.is_whitespace())
                });
                let (skipped, missing) = common.next().unwrap_or((1, 1));
                let begin = at;
                for &(at, letter) in &one[i..i + skipped] {
                    let length = letter.len_utf8();
                    let place = if at == begin {
                        place(j)
                    } else {
                        place(j + missing)
                    };
                    places[at..at + length].fill(place);
                }
                (i, j) = (i + skipped, (j + missing).min(other.len()));
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenizer::tests::words;

    #[test]
    fn tokens_are_found_in_a_text_that_differs_a_little() {
        let tokenizer = words(&["a", "b", "c"]);
        let ranges = |text: &str| {
            let tokens = [tokenizer.encode(text).unwrap(), vec![2]].concat();
            ranges((&tokenizer, &tokens, text)).unwrap()
        };
        // `<eos>` covers nothing.
        assert_eq!(ranges("a  b\tc"), [0..1, 3..4, 5..6, 6..6]);
        // `x` is unknown, and its token is no text.
        let found = ranges("a x c");
        assert_eq!([&found[0], &found[2]], [&(0..1), &(4..5)]);
    }

    #[test]
    fn normalized_characters_have_the_place_of_the_original() {
        // "…" became "...", and "é" is missing.
        let places = places("ab... cd", "ab… écd");
        assert_eq!(places[0..2], [0, 1]);
        assert_eq!(places[2], 2);
        assert_eq!([places[6], places[7], places[8]], [8, 9, 10]);
        assert_eq!(super::places("", "x"), [1]);
        assert_eq!(super::places("xy", ""), [0, 0, 0]);
    }
}
