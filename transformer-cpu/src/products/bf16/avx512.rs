//! bf16 matrix multiplication with AVX512-BF16: one instruction adds two products to the sum of each of sixteen
//! columns.

use std::arch::x86_64::*;
use std::mem::{MaybeUninit, transmute};

use super::panels::{Pair, Rows, columns};
use crate::products::matrix::Matrix;
use crate::simd::arch;

/// Rows per tile. Its sums take 24 registers, a panel's columns two, and a row's pair one.
pub const ROWS: usize = 12;

/// Columns per tile: two registers.
const COLUMNS: usize = 32;

/// The sums of a tile.
type Sums = [[__m512; 2]; ROWS];

/// Pairs of a panel's terms that are multiplied with several tiles in succession: 32 KiB, which stay in or near
/// the first-level cache.
const BLOCK: usize = 256;

/// Proof that the processor has the instructions.
#[derive(Clone, Copy)]
pub struct Dot(());

impl Dot {
    /// `None` if the processor does not have them, or `TRANSFORMER_SIMD` selects older ones.
    pub fn new() -> Option<Self> {
        let has_all = matches!(arch(), pulp::Arch::V4(_))
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bf16");
        has_all.then_some(Self(()))
    }

    /// Writes all of `out`: the rows of the result starting at `first`.
    pub fn multiply(self, factors: &Factors, first: usize, out: &mut [MaybeUninit<f32>]) {
        #[allow(unsafe_code, reason = "the processor's instructions, by std::arch")]
        // SAFETY: a value of this type proves that the processor has the instructions.
        unsafe {
            factors.multiply(first, out);
        }
    }
}

/// Both operands, rounded and laid out for these instructions.
pub struct Factors {
    /// Pairs of terms per sum.
    pairs: usize,
    rows: Rows<ROWS>,
    /// `[panel, pair, COLUMNS]`
    panels: Vec<[Pair; COLUMNS]>,
    /// Columns of the result.
    width: usize,
}

impl Factors {
    /// Prepares matrices that are not empty.
    pub fn new(x: Matrix<'_>, other: Matrix<'_>, is_large: bool) -> Self {
        Self {
            pairs: x.columns.div_ceil(2),
            rows: Rows::new(x, is_large),
            panels: columns(other, is_large),
            width: other.columns,
        }
    }

    /// Writes the rows starting at `first`.
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn multiply(&self, first: usize, out: &mut [MaybeUninit<f32>]) {
        let zeros = [[_mm512_setzero_ps(); 2]; ROWS];
        let tile = ROWS * self.width;
        let mut sums = vec![zeros; out.len().div_ceil(tile)];
        for (panel, columns) in self.panels.chunks_exact(self.pairs).enumerate() {
            for (block, columns) in columns.chunks(BLOCK).enumerate() {
                let pair = block * BLOCK;
                let is_last = pair + columns.len() == self.pairs;
                for (at, (out, sums)) in out.chunks_mut(tile).zip(&mut sums).enumerate() {
                    let before = if block == 0 { zeros } else { *sums };
                    let after = self.add(first + at * ROWS, pair, columns, before);
                    match is_last {
                        true => self.write(after, panel * COLUMNS, out),
                        false => *sums = after,
                    }
                }
            }
        }
    }

    /// Adds to each sum the products of its row's and its column's pairs, in order: of the rows starting at `row`
    /// and the pairs starting at `pair`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn add(&self, row: usize, pair: usize, columns: &[[Pair; COLUMNS]], sums: Sums) -> Sums {
        let Rows {
            row_stride,
            pair_stride,
            ..
        } = self.rows;
        let pairs = &self.rows.pairs[row * row_stride + pair * pair_stride..];
        let last = (ROWS - 1) * row_stride + (columns.len() - 1) * pair_stride;
        assert!(
            last < pairs.len(),
            "a tile outside its {} pairs",
            pairs.len()
        );
        let mut sums = sums;
        for (pair, &columns) in columns.iter().enumerate() {
            let [left, right] = halves(columns);
            for (row, sums) in sums.iter_mut().enumerate() {
                #[allow(unsafe_code, reason = "the bound is asserted once, for all of them")]
                // SAFETY: neither the row nor the pair is larger than those of `last`, which lies within the slice.
                let pair = unsafe { *pairs.get_unchecked(row * row_stride + pair * pair_stride) };
                let pair = bf16(_mm512_set1_epi32(pair.cast_signed()));
                sums[0] = _mm512_dpbf16_ps(sums[0], pair, left);
                sums[1] = _mm512_dpbf16_ps(sums[1], pair, right);
            }
        }
        sums
    }

    /// Writes a tile whose columns begin at `first`, up to the last row and column.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn write(&self, sums: Sums, first: usize, out: &mut [MaybeUninit<f32>]) {
        for (row, sums) in out.chunks_exact_mut(self.width).zip(sums) {
            let row = &mut row[first..];
            match row.first_chunk_mut::<COLUMNS>() {
                Some(row) => *row = numbers(sums),
                None => row.copy_from_slice(&numbers(sums)[..row.len()]),
            }
        }
    }
}

#[inline(always)]
fn halves(columns: [Pair; COLUMNS]) -> [__m512bh; 2] {
    #[allow(unsafe_code, reason = "vectors are made of arrays")]
    // SAFETY: both types are 128 bytes, and every bit pattern is a value of each.
    unsafe {
        transmute(columns)
    }
}

#[inline(always)]
fn bf16(pairs: __m512i) -> __m512bh {
    #[allow(unsafe_code, reason = "a vector of integers is reinterpreted as bf16")]
    // SAFETY: both types are 64 bytes, and every bit pattern is a value of each.
    unsafe {
        transmute(pairs)
    }
}

#[inline(always)]
fn numbers(sums: [__m512; 2]) -> [MaybeUninit<f32>; COLUMNS] {
    #[allow(unsafe_code, reason = "arrays are made of vectors")]
    // SAFETY: both types are 32 numbers of four bytes, and every bit pattern is a value of each.
    unsafe {
        transmute(sums)
    }
}
