//! Counter-based random numbers: the backward pass recomputes the dropped entries, so no mask is stored.

use std::ops::Range;

/// Which entries of a tensor dropout keeps (§5.4): a function of a seed, a row and a column.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    seed: u64,
    /// Entries whose hash is below it are dropped.
    threshold: u32,
    /// `1 / (1 - p)`
    scale: f32,
}

impl Keep {
    /// Drops with probability `p` in [0, 1); the same seed drops the same entries.
    pub fn new(p: f64, seed: u64) -> Self {
        Self {
            seed,
            threshold: (p * f64::from(u32::MAX)) as u32,
            scale: (1.0 / (1.0 - p)) as f32,
        }
    }

    /// Applies dropout to a row.
    #[inline(always)]
    pub fn apply(self, row: usize, values: &mut [f32]) {
        let factor = self.row(row);
        for (column, value) in values.iter_mut().enumerate() {
            *value *= factor(column);
        }
    }

    /// The factors of a row's columns: zero or `1 / (1 - p)`.
    #[inline(always)]
    pub fn row(self, row: usize) -> impl Fn(usize) -> f32 {
        let counter = self.counter(row);
        #[inline(always)]
        move |column| self.factor(counter, column)
    }

    /// A range of rows, to be read column by column.
    pub fn rows(self, rows: Range<usize>) -> KeptRows {
        let counters = rows.map(|row| self.counter(row));
        let (starts, steps) = counters.map(|[start, step]| (start, step)).unzip();
        KeptRows {
            keep: self,
            starts,
            steps,
        }
    }

    /// The first value hashed in a row, and the step to the next.
    #[inline(always)]
    fn counter(self, row: usize) -> [u32; 2] {
        // The finalizer of SplitMix64, so that rows are independent.
        let mut z = self.seed ^ (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        [z as u32, (z >> 32) as u32 | 1]
    }

    #[inline(always)]
    fn factor(self, [start, step]: [u32; 2], column: usize) -> f32 {
        // Chris Wellons' two-round 32-bit hash.
        let mut x = start.wrapping_add((column as u32).wrapping_mul(step));
        x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
        x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
        x ^= x >> 16;
        if x < self.threshold { 0.0 } else { self.scale }
    }
}

/// The entries that dropout keeps in some rows of a tensor, read column by column; the same entries as [`Keep`]
/// gives row by row.
#[derive(Debug, Clone)]
pub struct KeptRows {
    keep: Keep,
    starts: Vec<u32>,
    steps: Vec<u32>,
}

impl KeptRows {
    /// Writes the factors of a column, starting at row `first`.
    ///
    /// # Panics
    /// When there are too few rows.
    #[inline(always)]
    pub fn column(&self, column: usize, first: usize, factors: &mut [f32]) {
        let rows = first..first + factors.len();
        let counters = self.starts[rows.clone()].iter().zip(&self.steps[rows]);
        for (factor, (&start, &step)) in factors.iter_mut().zip(counters) {
            *factor = self.keep.factor([start, step], column);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_drop_the_same() {
        let keep = Keep::new(0.3, 5);
        let rows = keep.rows(11..41);
        let mut factors = [0.0; 27];
        for column in [0, 1, 70, 1 << 20] {
            rows.column(column, 3, &mut factors);
            for (row, factor) in (14..41).zip(factors) {
                assert_eq!(factor, keep.row(row)(column), "row {row}, column {column}");
            }
        }
    }

    #[test]
    fn a_tenth_is_dropped_wherever_one_looks() {
        let keep = Keep {
            scale: 1.0,
            ..Keep::new(0.1, 7)
        };
        let kept: Vec<Vec<f32>> = (0..1000)
            .map(|row| (0..1000).map(keep.row(row)).collect())
            .collect();
        // Of a thousand, 100 ± 9.5 are dropped: the bound is six standard deviations.
        let mut pairs = 0.0;
        for i in 0..1000 {
            let row: f32 = kept[i].iter().sum();
            let column: f32 = kept.iter().map(|row| row[i]).sum();
            assert!((row - 900.0).abs() < 57.0, "row {i}: {row}");
            assert!((column - 900.0).abs() < 57.0, "column {i}: {column}");
            pairs += kept[i]
                .iter()
                .zip(&kept[(i + 1) % 1000])
                .filter(|(a, b)| **a + **b == 0.0)
                .count() as f32;
        }
        // Neighboring rows both drop a column in one of a hundred cases: 10 000 ± 100.
        assert!((pairs - 10_000.0).abs() < 600.0, "{pairs}");
        let neighbours = kept
            .iter()
            .flat_map(|row| row.windows(2))
            .filter(|pair| pair[0] + pair[1] == 0.0)
            .count();
        assert!(neighbours.abs_diff(9_990) < 600, "{neighbours}");
    }
}
