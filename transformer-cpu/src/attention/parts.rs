//! Keys and values in parts that follow one another.

use std::ops::Range;

use super::heads::HeadRows;
use crate::products::matrix::Matrix;

/// Keys of all parts.
pub fn key_len(parts: &[[HeadRows<'_>; 2]]) -> usize {
    parts.iter().map(|[key, _]| key.len()).sum()
}

/// Some keys of a head that stand in one part.
pub struct Portion<'a> {
    pub key: Matrix<'a>,
    pub value: Matrix<'a>,
    /// Their positions among the keys of all parts.
    pub positions: Range<usize>,
}

impl<'a> Portion<'a> {
    /// The portions of these keys, part by part.
    pub fn all(
        parts: &'a [[HeadRows<'a>; 2]],
        head: usize,
        keys: Range<usize>,
    ) -> impl Iterator<Item = Self> + 'a {
        let mut before = 0;
        parts.iter().filter_map(move |[key, value]| {
            let part = before..before + key.len();
            before = part.end;
            let positions = keys.start.max(part.start)..keys.end.min(part.end);
            (!positions.is_empty()).then(|| {
                let rows = positions.start - part.start..positions.end - part.start;
                Portion {
                    key: key.head(head).rows(rows.clone()),
                    value: value.head(head).rows(rows),
                    positions,
                }
            })
        })
    }

    /// Some of these keys, by their positions.
    pub fn of(&self, positions: Range<usize>) -> [Matrix<'a>; 2] {
        let first = self.positions.start;
        let rows = positions.start - first..positions.end - first;
        [self.key, self.value].map(|matrix| matrix.rows(rows.clone()))
    }
}
