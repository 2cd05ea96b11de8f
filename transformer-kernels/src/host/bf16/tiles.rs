//! Products by AVX512-BF16, of which an instruction adds two products of each of sixteen columns to their sums.

use std::arch::x86_64::*;
use std::mem::{MaybeUninit, transmute};

use rayon::prelude::*;

use super::panels::{Pair, Rows, columns};
use crate::host::matrix::{LARGE, Matrix};
use crate::simd::arch;
use crate::sizes::count;

/// Rows of a tile. With 24 registers of sums, two of a panel's columns and one of a row's pair are left.
const ROWS: usize = 12;

/// Columns of a tile: two registers.
const COLUMNS: usize = 32;

/// The sums of a tile.
type Sums = [[__m512; 2]; ROWS];

/// Pairs of a panel's terms that are multiplied with several tiles, one after another: 32 KiB, which stay in the
/// processor's first cache, or near it.
const BLOCK: usize = 256;

/// Pairs of the rows of one task, which stay in the second cache.
const TASK: usize = 1 << 16;

/// A value is the proof that the processor has the instructions.
#[derive(Clone, Copy)]
pub struct Dot(());

impl Dot {
    /// `None` where the processor does not have them, or `TRANSFORMER_SIMD` names older ones.
    pub fn new() -> Option<Self> {
        let has_all = matches!(arch(), pulp::Arch::V4(_))
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bf16");
        has_all.then_some(Self(()))
    }

    /// The product, on all threads where it is large. A sum's terms are added in their order, by one thread.
    ///
    /// # Panics
    /// When the sizes do not agree.
    pub fn product(self, x: Matrix<'_>, other: Matrix<'_>) -> Vec<f32> {
        assert_eq!(x.columns, other.rows, "inner sizes of a product");
        let size = count(&[x.rows, other.columns]);
        let pairs = x.columns.div_ceil(2);
        if size == 0 || pairs == 0 {
            return vec![0.0; size];
        }
        let is_large = size.saturating_mul(x.columns) >= LARGE;
        let tiles = tiles_of_task(x.rows.div_ceil(ROWS), pairs);
        let rows = Rows::<ROWS>::new(x, is_large);
        let factors = Factors {
            pairs,
            rows: &rows,
            panels: &columns::<COLUMNS>(other, is_large),
            width: other.columns,
        };
        let mut out = Vec::with_capacity(size);
        let spare = &mut out.spare_capacity_mut()[..size];
        let task = |(task, out): (usize, &mut [MaybeUninit<f32>])| {
            #[allow(unsafe_code, reason = "the processor's instructions, by std::arch")]
            // SAFETY: a value of this type proves that the processor has the instructions.
            unsafe {
                factors.multiply(task * tiles * ROWS, out);
            }
        };
        let numbers = tiles * ROWS * other.columns;
        match is_large {
            true => spare.par_chunks_mut(numbers).enumerate().for_each(task),
            false => spare.chunks_mut(numbers).enumerate().for_each(task),
        }
        #[allow(unsafe_code, reason = "tiles are written into uninitialised memory")]
        // SAFETY: the capacity is `size` at least. There is a tile for each of the rows, and a panel for each of the
        // columns, so that `multiply` has initialised all numbers.
        unsafe {
            out.set_len(size);
        }
        out
    }
}

/// As many tiles as stay in the cache, and fewer where there would not be some tasks for each thread. No sum depends
/// on it.
fn tiles_of_task(tiles: usize, pairs: usize) -> usize {
    let most = TASK / (ROWS * pairs);
    tiles
        .div_ceil(4 * rayon::current_num_threads())
        .clamp(1, most.clamp(1, 10))
}

/// What all tasks of a product have in common.
struct Factors<'a> {
    /// Pairs of a sum's terms.
    pairs: usize,
    rows: &'a Rows<ROWS>,
    /// `[panel, pair, COLUMNS]`
    panels: &'a [[Pair; COLUMNS]],
    /// Columns of the product.
    width: usize,
}

impl Factors<'_> {
    /// Writes the rows from `first` on.
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

    /// Adds to each sum the products of its row's pairs with its column's, in their order: of the rows from `row`
    /// on, the pairs from `pair` on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn add(&self, row: usize, pair: usize, columns: &[[Pair; COLUMNS]], sums: Sums) -> Sums {
        let Rows {
            row_stride,
            pair_stride,
            ..
        } = *self.rows;
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

    /// Writes a tile whose columns begin at `first`, as far as there are rows and columns.
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
    // SAFETY: both are 128 bytes, of which every pattern of bits is a value.
    unsafe {
        transmute(columns)
    }
}

#[inline(always)]
fn bf16(pairs: __m512i) -> __m512bh {
    #[allow(unsafe_code, reason = "a vector of integers is one of bf16")]
    // SAFETY: both are 64 bytes, of which every pattern of bits is a value.
    unsafe {
        transmute(pairs)
    }
}

#[inline(always)]
fn numbers(sums: [__m512; 2]) -> [MaybeUninit<f32>; COLUMNS] {
    #[allow(unsafe_code, reason = "arrays are made of vectors")]
    // SAFETY: both are 32 numbers of four bytes, of which every pattern of bits is one.
    unsafe {
        transmute(sums)
    }
}
