//! Products by tiles: some rows of one factor with 32 columns of the other.

use std::arch::x86_64::__cpuid;
use std::mem::MaybeUninit;

use rayon::prelude::*;

pub use super::amx::Amx;
pub use super::avx512::Dot;
use crate::products::matrix::{LARGE, Matrix};
use crate::sizes::count;

/// Instructions that multiply tiles. A value is the proof that the processor has them.
pub trait Instructions: Copy + Sync {
    /// Rows of a tile.
    const ROWS: usize;
    /// Tasks for each thread, where the rows allow it.
    const TASKS: usize;
    /// Pairs of the rows of one task, which stay in the second cache.
    const TASK_PAIRS: usize;
    /// Both factors, rounded and laid out for these instructions.
    type Factors: Sync;

    /// The factors of matrices that are not empty.
    fn factors(self, x: Matrix<'_>, other: Matrix<'_>, is_large: bool) -> Self::Factors;

    /// Writes the rows of the product from `first` on: all numbers of `out`.
    fn multiply(self, factors: &Self::Factors, first: usize, out: &mut [MaybeUninit<f32>]);
}

/// The product by the fastest instructions of this processor, if they are faster than to multiply in f32.
///
/// # Panics
/// When the sizes do not agree.
pub fn product(x: Matrix<'_>, other: Matrix<'_>) -> Option<Vec<f32>> {
    match Amx::new() {
        Some(amx) => Some(product_by(amx, x, other)),
        None => fast_dot().map(|dot| product_by(dot, x, other)),
    }
}

/// Whether [`product`] returns one.
pub fn is_fast() -> bool {
    Amx::new().is_some() || fast_dot().is_some()
}

/// AVX512-BF16 where it is faster than f32: Intel's processors multiply by it at half the pace of f32.
fn fast_dot() -> Option<Dot> {
    let vendor = __cpuid(0);
    let is_intel = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes)
        == [*b"Genu", *b"ineI", *b"ntel"];
    Dot::new().filter(|_| !is_intel)
}

/// The product, on all threads where it is large. A sum's terms are added in an order that depends on their number
/// only, by one thread.
///
/// # Panics
/// When the sizes do not agree.
pub fn product_by<I: Instructions>(instructions: I, x: Matrix<'_>, other: Matrix<'_>) -> Vec<f32> {
    assert_eq!(x.columns, other.rows, "inner sizes of a product");
    let size = count(&[x.rows, other.columns]);
    if size == 0 || x.columns == 0 {
        return vec![0.0; size];
    }
    let is_large = size.saturating_mul(x.columns) >= LARGE;
    let factors = instructions.factors(x, other, is_large);
    let rows = I::ROWS * tiles_of_task::<I>(x.rows, x.columns.div_ceil(2));
    let mut out = Vec::with_capacity(size);
    let spare = &mut out.spare_capacity_mut()[..size];
    let task = |(task, out): (usize, &mut [MaybeUninit<f32>])| {
        instructions.multiply(&factors, task * rows, out);
    };
    match is_large {
        true => spare
            .par_chunks_mut(rows * other.columns)
            .enumerate()
            .for_each(task),
        false => task((0, spare)),
    }
    #[allow(unsafe_code, reason = "tiles are written into uninitialised memory")]
    // SAFETY: the capacity is `size` at least. Each number belongs to a task, and `multiply` has initialised all of its.
    unsafe {
        out.set_len(size);
    }
    out
}

/// Tiles in a task: as many as stay in the cache, or fewer where each thread would have too few tasks. No sum
/// depends on it.
fn tiles_of_task<I: Instructions>(rows: usize, pairs: usize) -> usize {
    let most = I::TASK_PAIRS / (I::ROWS * pairs);
    rows.div_ceil(I::ROWS)
        .div_ceil(I::TASKS * rayon::current_num_threads())
        .clamp(1, most.clamp(1, 10))
}
