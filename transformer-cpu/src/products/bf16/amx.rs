//! Products by AMX. A tile is 16 rows of 16 pairs, or 16 lines with a pair of each of 16 columns.
//!
//! A factor is laid out in the order in which it lies in memory: one tile of the inner dimension after another, or
//! one row or panel after another.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use super::panels::{Pair, in_parts, pair, write_pairs};
use super::tiles::Instructions;
pub use crate::amx::Amx;
use crate::amx::{COLUMNS, Columns, ROWS, Rows, TILE, Tiles};
use crate::buffer::{LINE, odd_lines};
use crate::products::matrix::Matrix;
use crate::simd::vectorised;
use crate::sizes::count;
use crate::transpose::{BLOCK, Transposition};

const _: () = assert!(LINE == TILE && BLOCK == TILE);

/// Inner terms of a tile.
const TERMS: usize = 2 * TILE;

/// Both factors of a product.
pub struct Factors {
    rows: PackedRows,
    columns: PackedColumns,
    /// Tiles of the inner dimension.
    steps: usize,
    /// Columns of the product.
    width: usize,
}

impl Instructions for Amx {
    const ROWS: usize = ROWS;
    const TASKS: usize = 2;
    const TASK_PAIRS: usize = 1 << 18;
    type Factors = Factors;

    fn factors(self, x: Matrix<'_>, other: Matrix<'_>, is_large: bool) -> Factors {
        Factors {
            rows: PackedRows::new(x, is_large),
            columns: PackedColumns::new(other, is_large),
            steps: x.columns.div_ceil(TERMS),
            width: other.columns,
        }
    }

    fn multiply(self, factors: &Factors, first: usize, out: &mut [MaybeUninit<f32>]) {
        self.with_tiles(|tiles| factors.multiply(tiles, first, out));
    }
}

impl Factors {
    /// Writes the rows from `first` on.
    fn multiply(&self, tiles: &Tiles, first: usize, out: &mut [MaybeUninit<f32>]) {
        let &Factors { steps, width, .. } = self;
        for panel in 0..width.div_ceil(COLUMNS) {
            let columns = self.columns.panel(panel);
            let first_column = panel * COLUMNS;
            let used = COLUMNS.min(width - first_column);
            for (block, out) in out.chunks_mut(ROWS * width).enumerate() {
                let height = out.len() / width;
                let rows = self.rows.block(first + block * ROWS, height);
                let out = &mut out[first_column..];
                if used == COLUMNS && height == rows.count {
                    tiles.product_bf16(rows, columns, steps, out, width);
                    continue;
                }
                // The block reaches beyond the last row or column.
                let mut sums = [[MaybeUninit::uninit(); COLUMNS]; ROWS];
                let whole = sums.as_flattened_mut();
                tiles.product_bf16(rows, columns, steps, whole, COLUMNS);
                for (out, sums) in out.chunks_mut(width).zip(&sums) {
                    out[..used].copy_from_slice(&sums[..used]);
                }
            }
        }
    }
}

/// Rows of a factor, padded with zeros to a multiple of `TILE` rows, each a multiple of `TILE` pairs.
struct PackedRows {
    pairs: Vec<Pair>,
    /// From a row of a tile to the next one.
    stride: usize,
    /// From a tile to the one to the right of it.
    step: usize,
}

impl PackedRows {
    fn new(matrix: Matrix<'_>, is_large: bool) -> Self {
        let transposition = Transposition::new();
        let height = matrix.rows.next_multiple_of(TILE);
        if matrix.row_stride != 1 {
            let stride = odd_lines(matrix.columns.div_ceil(2));
            let mut pairs = vec![0; count(&[height, stride])];
            let used = &mut pairs[..matrix.rows * stride];
            in_parts(used, stride, is_large, |row, out| {
                vectorised!(write_pairs(matrix.row(row), out));
            });
            return Self {
                pairs,
                stride,
                step: TILE,
            };
        }
        let terms = matrix.transposed();
        let step = count(&[height, TILE]);
        let mut pairs = vec![0; count(&[terms.rows.div_ceil(TERMS), step])];
        in_parts(&mut pairs, step, is_large, |tile, out| {
            let terms = terms.rows(tile * TERMS..terms.rows.min((tile + 1) * TERMS));
            vectorised!(for (tile, out) in tiles_of(out).iter_mut().enumerate() {
                write_lines(terms, tile * TILE, out);
                transposition.apply(out);
            });
        });
        Self {
            pairs,
            stride: TILE,
            step,
        }
    }

    /// Some rows, from `first` on, in one tile or two.
    fn block(&self, first: usize, rows: usize) -> Rows<'_, Pair> {
        Rows {
            items: &self.pairs[first * self.stride..],
            stride: self.stride,
            step: self.step,
            count: rows.next_multiple_of(TILE),
        }
    }
}

/// Columns of a factor in panels, padded with zeros. A panel has a multiple of `TILE` lines, and a line has a pair of
/// each column.
struct PackedColumns {
    lines: Vec<[Pair; COLUMNS]>,
    /// From a panel to the next one.
    panel: usize,
    /// From a tile to the one below it.
    step: usize,
}

impl PackedColumns {
    fn new(matrix: Matrix<'_>, is_large: bool) -> Self {
        let transposition = Transposition::new();
        let panels = matrix.columns.div_ceil(COLUMNS);
        let steps = matrix.rows.div_ceil(TERMS);
        let mut lines = vec![[0; COLUMNS]; count(&[panels, steps, TILE])];
        let (panel, step) = match matrix.column_stride {
            1 => (TILE, panels * TILE),
            _ => (steps * TILE, TILE),
        };
        let by_rows = |(tile, lines): (usize, &mut [[Pair; COLUMNS]])| {
            let terms = matrix.rows(tile * TERMS..matrix.rows.min((tile + 1) * TERMS));
            vectorised!(for pair in 0..terms.rows.div_ceil(2) {
                let (first, second) = rows_of_pair(terms, pair);
                let panels = lines[pair..].iter_mut().step_by(TILE);
                for (at, line) in panels.enumerate() {
                    write_line(&first[at * COLUMNS..], second.get(at * COLUMNS..), line);
                }
            });
        };
        let columns = matrix.transposed();
        let by_columns = |(at, lines): (usize, &mut [[Pair; COLUMNS]])| {
            let panel = columns.rows(at * COLUMNS..columns.rows.min((at + 1) * COLUMNS));
            vectorised!(
                for (tile, lines) in lines.chunks_exact_mut(TILE).enumerate() {
                    for half in 0..panel.rows.div_ceil(TILE) {
                        let mut pairs = [[0; TILE]; TILE];
                        let rows = half * TILE..panel.rows.min((half + 1) * TILE);
                        for (row, pairs) in rows.zip(&mut pairs) {
                            let row = &panel.row(row)[tile * TERMS..];
                            write_pairs(&row[..row.len().min(TERMS)], pairs);
                        }
                        transposition.apply(&mut pairs);
                        for (line, pairs) in lines.iter_mut().zip(pairs) {
                            line[half * TILE..][..TILE].copy_from_slice(&pairs);
                        }
                    }
                }
            );
        };
        let chunk = panel.max(step);
        match (matrix.column_stride == 1, is_large) {
            (true, true) => lines.par_chunks_mut(chunk).enumerate().for_each(by_rows),
            (true, false) => lines.chunks_mut(chunk).enumerate().for_each(by_rows),
            (false, true) => lines.par_chunks_mut(chunk).enumerate().for_each(by_columns),
            (false, false) => lines.chunks_mut(chunk).enumerate().for_each(by_columns),
        }
        Self { lines, panel, step }
    }

    fn panel(&self, panel: usize) -> Columns<'_, [Pair; COLUMNS]> {
        Columns {
            lines: &self.lines[panel * self.panel..],
            step: self.step,
        }
    }
}

fn tiles_of(pairs: &mut [Pair]) -> &mut [[[Pair; TILE]; TILE]] {
    pairs.as_chunks_mut().0.as_chunks_mut().0
}

/// Two rows that are a pair; the second may be missing.
#[inline(always)]
fn rows_of_pair(terms: Matrix<'_>, pair: usize) -> (&[f32], &[f32]) {
    let second = match 2 * pair + 1 < terms.rows {
        true => terms.row(2 * pair + 1),
        false => &[],
    };
    (terms.row(2 * pair), second)
}

/// Writes the pairs of `TILE` columns from one on, as far as there are.
#[inline(always)]
fn write_lines(terms: Matrix<'_>, column: usize, lines: &mut [[Pair; TILE]; TILE]) {
    for (pair, line) in (0..terms.rows.div_ceil(2)).zip(lines) {
        let (first, second) = rows_of_pair(terms, pair);
        write_line(&first[column..], second.get(column..), line);
    }
}

/// Writes the pairs of neighbouring columns; without a second row, with zeros in its place.
#[inline(always)]
fn write_line<const N: usize>(first: &[f32], second: Option<&[f32]>, line: &mut [Pair; N]) {
    let second = second.unwrap_or_default();
    if let (Some(first), Some(second)) = (first.first_chunk::<N>(), second.first_chunk::<N>()) {
        *line = std::array::from_fn(|at| pair(first[at], second[at]));
        return;
    }
    let second = second.iter().copied().chain(std::iter::repeat(0.0));
    for ((to, &first), second) in line.iter_mut().zip(first).zip(second) {
        *to = pair(first, second);
    }
}
