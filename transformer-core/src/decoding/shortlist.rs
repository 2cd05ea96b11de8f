//! Lexical shortlists: the target tokens that a source may need.

use std::sync::Arc;

use thiserror::Error;

/// A lexical shortlist: for each source token, the target tokens that it may be translated to. With
/// [`DecodeOptions::shortlist`](crate::DecodeOptions::shortlist), the search considers only these, and multiplies by
/// the rows of only these tokens in the matrix of logits, which is most of the work of a small model.
///
/// A source's candidates are the first [`frequent`](Self::frequent) tokens of the vocabulary, the tokens listed for
/// each of its tokens and, with a shared vocabulary, its tokens themselves, such as names and numbers.
///
/// ```
/// use transformer_core::decoding::Shortlist;
///
/// // Tokens 0 to 3 are always candidates; the source token 4 may be translated to 7 or 9.
/// let lists = [&[][..], &[], &[], &[], &[9, 7]];
/// let shortlist = Shortlist::new(4, &lists).with_source_tokens();
/// assert_eq!(shortlist.candidates(&[4, 1]), [0, 1, 2, 3, 4, 7, 9]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortlist {
    frequent: u32,
    has_source_tokens: bool,
    /// Per source token, where its list begins, and the end of the last list.
    offsets: Vec<usize>,
    /// The lists, one after the other, each in ascending order.
    lists: Arc<Vec<u32>>,
    /// Found once, because every search asks for it.
    largest: Option<u32>,
}

/// Lists of a shortlist that do not follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("list {list} begins at {begin} and ends at {end}, of {len} tokens in all")]
pub struct ShortlistError {
    /// The number of the list, counted from 0.
    pub list: usize,
    /// Where it begins.
    pub begin: usize,
    /// Where it ends.
    pub end: usize,
    /// The number of tokens of all lists.
    pub len: usize,
}

impl Shortlist {
    /// A shortlist of the first `frequent` tokens and of a list per source token.
    pub fn new(frequent: u32, lists: &[impl AsRef<[u32]>]) -> Self {
        let mut offsets = vec![0];
        let mut all = Vec::new();
        for list in lists {
            let begin = all.len();
            all.extend_from_slice(list.as_ref());
            all[begin..].sort_unstable();
            offsets.push(all.len());
        }
        Self::of(frequent, offsets, all)
    }

    /// A shortlist of lists that follow each other in `lists`, and begin at `offsets`; the last offset is the end of
    /// the last list.
    ///
    /// # Errors
    /// When a list does not lie within `lists`.
    pub fn from_offsets(
        frequent: u32,
        offsets: &[usize],
        mut lists: Vec<u32>,
    ) -> Result<Self, ShortlistError> {
        let len = lists.len();
        for (list, ends) in offsets.windows(2).enumerate() {
            let (begin, end) = (ends[0], ends[1]);
            let tokens = lists.get_mut(begin..end);
            tokens
                .ok_or(ShortlistError {
                    list,
                    begin,
                    end,
                    len,
                })?
                .sort_unstable();
        }
        Ok(Self::of(frequent, offsets.to_vec(), lists))
    }

    /// A shortlist of sorted lists.
    fn of(frequent: u32, offsets: Vec<usize>, lists: Vec<u32>) -> Self {
        // Tokens before the first list and behind the last are in none.
        let ends = offsets.first().zip(offsets.last());
        let listed = ends.and_then(|(&first, &last)| lists.get(first..last));
        let largest = listed.unwrap_or_default().iter().copied().max();
        Self {
            frequent,
            has_source_tokens: false,
            largest: largest.max(frequent.checked_sub(1)),
            offsets,
            lists: Arc::new(lists),
        }
    }

    /// Source tokens are candidates, too: for models whose source and target share a vocabulary.
    pub fn with_source_tokens(self) -> Self {
        Self {
            has_source_tokens: true,
            ..self
        }
    }

    /// Whether source tokens are candidates.
    pub fn has_source_tokens(&self) -> bool {
        self.has_source_tokens
    }

    /// The number of tokens that are candidates of every source: the first ones of the vocabulary.
    pub fn frequent(&self) -> u32 {
        self.frequent
    }

    /// The list of each source token, in ascending order.
    pub fn lists(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.offsets
            .windows(2)
            .map(|ends| &self.lists[ends[0]..ends[1]])
    }

    /// The candidates of a source, in ascending order. A source token without a list adds none.
    pub fn candidates(&self, source: &[u32]) -> Vec<u32> {
        let mut candidates: Vec<u32> = (0..self.frequent).collect();
        for &token in source {
            let token = token as usize;
            if let Some(&[begin, end]) = self.offsets.get(token..token.saturating_add(2)) {
                candidates.extend_from_slice(&self.lists[begin..end]);
            }
        }
        if self.has_source_tokens {
            candidates.extend_from_slice(source);
        }
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    /// The largest token that may be a candidate besides the source's own; `None` if there is none.
    pub fn largest(&self) -> Option<u32> {
        self.largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_sorted_and_occur_once() {
        let shortlist = Shortlist::new(2, &[vec![5, 3, 1], vec![], vec![3, 9]]);
        assert_eq!(shortlist.candidates(&[2, 0, 2]), [0, 1, 3, 5, 9]);
        // Without a list, and outside the lists.
        assert_eq!(shortlist.candidates(&[1, 3, u32::MAX]), [0, 1]);
        assert_eq!(shortlist.candidates(&[]), [0, 1]);
        let shared = shortlist.with_source_tokens();
        assert_eq!(shared.candidates(&[1, 7]), [0, 1, 7]);
        let lists: Vec<_> = shared.lists().collect();
        assert_eq!(lists, [&[1, 3, 5][..], &[], &[3, 9]]);
    }

    #[test]
    fn lists_lie_within_all_tokens() {
        let of = |offsets: &[usize]| Shortlist::from_offsets(0, offsets, vec![4, 2, 3]);
        assert_eq!(
            of(&[0, 2, 3]),
            Ok(Shortlist::new(0, &[[2, 4].as_slice(), &[3]]))
        );
        assert!(of(&[]).unwrap().candidates(&[0]).is_empty());
        // 4 and 3 are in no list.
        assert_eq!(of(&[1, 2]).unwrap().largest(), Some(2));
        assert_eq!(of(&[7]).unwrap().largest(), None);
        let error = of(&[0, 1, 4]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "list 1 begins at 1 and ends at 4, of 3 tokens in all"
        );
        assert!(of(&[2, 1]).is_err());
    }
}
