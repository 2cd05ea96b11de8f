//! Products by tiles: some rows of one factor with 32 columns of the other.

use std::arch::x86_64::__cpuid;
use std::mem::MaybeUninit;

use rayon::prelude::*;

use super::avx512::{Dot, Factors, ROWS};
use crate::products::matrix::{LARGE, Matrix};
use crate::sizes::count;

/// Tasks for each thread, where the rows allow it.
const TASKS: usize = 4;

/// Pairs of the rows of one task, which stay in the second cache.
const TASK_PAIRS: usize = 1 << 16;

/// AVX512-BF16 where it is faster than f32: Intel's processors multiply by it at half the pace of f32.
pub fn fast_dot() -> Option<Dot> {
    let vendor = __cpuid(0);
    let is_intel = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes)
        == [*b"Genu", *b"ineI", *b"ntel"];
    Dot::new().filter(|_| !is_intel)
}

/// The product by these instructions, on all threads where it is large. A sum's terms are added in an order that depends on their number
/// only, by one thread.
///
/// # Panics
/// When the sizes do not agree.
pub fn product(dot: Dot, x: Matrix<'_>, other: Matrix<'_>) -> Vec<f32> {
    assert_eq!(x.columns, other.rows, "inner sizes of a product");
    let size = count(&[x.rows, other.columns]);
    if size == 0 || x.columns == 0 {
        return vec![0.0; size];
    }
    let is_large = size.saturating_mul(x.columns) >= LARGE;
    let factors = Factors::new(x, other, is_large);
    let rows = ROWS * tiles_of_task(x.rows, x.columns.div_ceil(2));
    let mut out = Vec::with_capacity(size);
    let spare = &mut out.spare_capacity_mut()[..size];
    let task = |(task, out): (usize, &mut [MaybeUninit<f32>])| {
        dot.multiply(&factors, task * rows, out);
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
fn tiles_of_task(rows: usize, pairs: usize) -> usize {
    let most = TASK_PAIRS / (ROWS * pairs);
    rows.div_ceil(ROWS)
        .div_ceil(TASKS * rayon::current_num_threads())
        .clamp(1, most.clamp(1, 10))
}
