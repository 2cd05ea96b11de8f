//! Matrix multiplication by tiles: some rows of one operand with 32 columns of the other.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use super::avx512::{Dot, Factors, ROWS};
use crate::amx::processor_id;
use crate::products::matrix::{LARGE, Matrix};
use crate::sizes::count;

/// Tasks per thread, if there are enough rows.
const TASKS: usize = 4;

/// Pairs in the rows of one task, which stay in the second-level cache.
const TASK_PAIRS: usize = 1 << 16;

/// AVX512-BF16, if it is faster than f32: on Intel processors it has half the speed of f32.
pub fn fast_dot() -> Option<Dot> {
    let vendor = processor_id(0);
    let is_intel = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes)
        == [*b"Genu", *b"ineI", *b"ntel"];
    Dot::new().filter(|_| !is_intel)
}

/// The matrix product by these instructions, on all threads if it is large. Each sum is computed by one thread, in
/// an order that depends only on its number of terms.
///
/// # Panics
/// When the sizes do not agree.
pub fn product(dot: Dot, x: Matrix<'_>, other: Matrix<'_>) -> Vec<f32> {
    assert_eq!(x.columns, other.rows, "inner dimensions of the matrices");
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
    #[allow(unsafe_code, reason = "tiles are written into uninitialized memory")]
    // SAFETY: the capacity is `size` at least. Each number belongs to a task, and `multiply` has initialized all of
    // its.
    unsafe {
        out.set_len(size);
    }
    out
}

/// Tiles per task: as many as stay in the cache, or fewer if threads would get too few tasks. Sums do not depend
/// on it.
fn tiles_of_task(rows: usize, pairs: usize) -> usize {
    let most = TASK_PAIRS / (ROWS * pairs);
    rows.div_ceil(ROWS)
        .div_ceil(TASKS * rayon::current_num_threads())
        .clamp(1, most.clamp(1, 10))
}
