//! Operands, rounded to bf16 and laid out for tiles.

use rayon::prelude::*;

use crate::buffer::{odd_lines, task_of_rows};
use crate::products::matrix::Matrix;
use crate::simd::vectorised;
use crate::sizes::count;

/// The operands of two neighboring terms of a sum, in bf16: the first in the lower half.
pub type Pair = u32;

/// The value in bf16, in the upper half: rounded to nearest, ties to even.
#[inline(always)]
fn to_bf16(x: f32) -> u32 {
    let bits = x.to_bits();
    match x.is_nan() {
        // Rounding could turn NaN into infinity.
        true => bits | 0x0040_0000,
        false => bits.wrapping_add(0x7fff + (bits >> 16 & 1)),
    }
}

#[inline(always)]
fn pair(first: f32, second: f32) -> Pair {
    to_bf16(first) >> 16 | to_bf16(second) & 0xffff_0000
}

/// The values rounded to bf16.
pub fn rounded(values: &[f32]) -> Vec<f32> {
    let mut out = values.to_vec();
    vectorised!({
        for x in &mut out {
            *x = f32::from_bits(to_bf16(*x) & 0xffff_0000);
        }
    });
    out
}

/// The columns of a matrix in panels: `[panel, pair of rows, WIDTH]`. The last pair and the last panel are padded
/// with zeros.
pub fn columns<const WIDTH: usize>(matrix: Matrix<'_>, is_large: bool) -> Vec<[Pair; WIDTH]> {
    let pairs = matrix.rows.div_ceil(2);
    let mut panels = vec![[0; WIDTH]; count(&[matrix.columns.div_ceil(WIDTH), pairs])];
    let panel = |(panel, pairs): (usize, &mut [[Pair; WIDTH]])| {
        let first = panel * WIDTH;
        vectorised!(match matrix.column_stride {
            1 => write_columns(matrix, first, pairs),
            _ => {
                let rows = matrix.transposed();
                write_rows(rows.rows(first..rows.rows.min(first + WIDTH)), pairs);
            }
        });
    };
    match is_large {
        true => panels.par_chunks_mut(pairs).enumerate().for_each(panel),
        false => panels.chunks_mut(pairs).enumerate().for_each(panel),
    }
    panels
}

/// The pairs of a matrix's rows, padded with zeros to a multiple of `HEIGHT` rows.
pub struct Rows<const HEIGHT: usize> {
    pub pairs: Vec<Pair>,
    /// Distance from a row to the next.
    pub row_stride: usize,
    /// Distance from a pair of a row to the next.
    pub pair_stride: usize,
}

impl<const HEIGHT: usize> Rows<HEIGHT> {
    /// The pairs of a matrix, in its memory order: the pairs of a row, or the rows of a pair, are adjacent.
    pub fn new(matrix: Matrix<'_>, is_large: bool) -> Self {
        let pairs = matrix.columns.div_ceil(2);
        let height = matrix.rows.next_multiple_of(HEIGHT);
        if matrix.row_stride == 1 {
            let pair_stride = odd_lines(height);
            let mut all = vec![0; count(&[pairs, pair_stride])];
            let columns = matrix.transposed();
            in_parts(&mut all, pair_stride, is_large, |pair, out| {
                vectorised!(write_pair(columns, pair, 0, out));
            });
            return Self {
                pairs: all,
                row_stride: 1,
                pair_stride,
            };
        }
        let row_stride = odd_lines(pairs);
        let mut all = vec![0; count(&[height, row_stride])];
        let used = &mut all[..matrix.rows * row_stride];
        in_parts(used, row_stride, is_large, |row, out| {
            vectorised!(write_pairs(matrix.row(row), out));
        });
        Self {
            pairs: all,
            row_stride,
            pair_stride: 1,
        }
    }
}

/// Calls `write` for each part of `width` pairs, on all threads or on this one.
fn in_parts(
    pairs: &mut [Pair],
    width: usize,
    is_large: bool,
    write: impl Fn(usize, &mut [Pair]) + Sync,
) {
    let several = task_of_rows(width);
    let task = |(task, out): (usize, &mut [Pair])| {
        for (part, out) in out.chunks_mut(width).enumerate() {
            write(task * (several / width) + part, out);
        }
    };
    match is_large {
        true => pairs.par_chunks_mut(several).enumerate().for_each(task),
        false => task((0, pairs)),
    }
}

/// Writes the pairs of a row.
#[inline(always)]
fn write_pairs(row: &[f32], out: &mut [Pair]) {
    let (twos, last) = row.as_chunks::<2>();
    for (to, &[first, second]) in out.iter_mut().zip(twos) {
        *to = pair(first, second);
    }
    if let [last] = last {
        out[twos.len()] = pair(*last, 0.0);
    }
}

/// Writes a panel whose columns are these rows.
#[inline(always)]
fn write_rows<const WIDTH: usize>(rows: Matrix<'_>, panel: &mut [[Pair; WIDTH]]) {
    // Pairs of a row that are written together, so that the cache lines to which they are scattered stay in the
    // first-level cache.
    const BLOCK: usize = 32;
    for at in 0..rows.rows {
        let row = rows.row(at);
        for (block, panel) in panel.chunks_mut(BLOCK).enumerate() {
            let numbers = &row[2 * BLOCK * block..];
            let mut pairs = [0; BLOCK];
            write_pairs(&numbers[..numbers.len().min(2 * BLOCK)], &mut pairs);
            for (to, pair) in panel.iter_mut().zip(pairs) {
                to[at] = pair;
            }
        }
    }
}

/// Writes a panel whose columns are those of a matrix, starting at `first`.
#[inline(always)]
fn write_columns<const WIDTH: usize>(
    matrix: Matrix<'_>,
    first: usize,
    panel: &mut [[Pair; WIDTH]],
) {
    for (pair, out) in panel.iter_mut().enumerate() {
        write_pair(matrix, pair, first, out);
    }
}

/// Writes a pair of rows of a matrix, starting at the column `first`.
#[inline(always)]
fn write_pair(matrix: Matrix<'_>, at: usize, first: usize, out: &mut [Pair]) {
    let one = &matrix.row(2 * at)[first..];
    if 2 * at + 1 == matrix.rows {
        for (to, &one) in out.iter_mut().zip(one) {
            *to = pair(one, 0.0);
        }
        return;
    }
    let other = &matrix.row(2 * at + 1)[first..];
    for ((to, &one), &other) in out.iter_mut().zip(one).zip(other) {
        *to = pair(one, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_the_nearest_and_to_the_even() {
        for (x, expected) in [
            (1.0, 1.0),
            (1.0 + 1.0 / 256.0, 1.0),
            (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0),
            (1.0 + 1.1 / 256.0, 1.0 + 2.0 / 256.0),
            (-0.0, -0.0),
            (f32::MAX, f32::INFINITY),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
        ] {
            assert_eq!(rounded(&[x])[0].to_bits(), f32::to_bits(expected), "{x}");
        }
        for nan in [0x7f80_0001, 0xffff_ffff, 0x7fff_8000] {
            assert!(rounded(&[f32::from_bits(nan)])[0].is_nan(), "{nan:x}");
        }
    }
}
