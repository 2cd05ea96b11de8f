//! Instructions for exact dot products of 8-bit integers: a file for each level.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
pub mod portable;
#[cfg(target_arch = "x86_64")]
pub mod vnni;

use super::quantize::INPUTS;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Level, arch, level};

/// Instructions that multiply rows by signed bytes, `INPUTS` at a time, and accumulate in vectors of 32-bit sums. A
/// value is proof that the processor has them.
pub trait Dot: Copy {
    /// Rows of the largest tile, as in [`super::tiles::Tiles::ROWS`].
    const ROWS: usize;
    /// Columns per vector.
    const COLUMNS: usize;
    /// The type of a row's values, which are from 0 to 255.
    type Value: Copy;
    /// The weights of `INPUTS` inputs, per column.
    type Weights: Copy;
    /// `INPUTS` values of a row, repeated for every column.
    type Inputs: Copy;
    /// The sums of the columns.
    type Sums: Copy;

    fn zeros(self) -> Self::Sums;
    /// Zeros.
    fn no_weights(self) -> Self::Weights;
    /// The weights of `COLUMNS` columns; panics for any other number.
    fn weights(self, columns: &[[i8; INPUTS]]) -> Self::Weights;
    fn inputs(self, x: [Self::Value; INPUTS]) -> Self::Inputs;
    fn add(self, sums: Self::Sums, x: Self::Inputs, weights: Self::Weights) -> Self::Sums;
    /// Writes `COLUMNS` sums; panics if `to` has any other length.
    fn store(self, sums: Self::Sums, to: &mut [i32]);
    /// Runs a task, compiled for these instructions.
    fn run<T: Task<Self::Value>>(self, task: T);
}

/// Work on rows of values `V` that is compiled for each instruction set.
pub trait Task<V> {
    /// Must be inlined, as must everything that it calls.
    fn run<D: Dot<Value = V>>(self, dot: D);
}

/// Instructions for rows of bytes.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub enum Bytes {
    Avx512(vnni::Avx512),
    Avx2(vnni::Avx2),
}

#[cfg(target_arch = "x86_64")]
impl Bytes {
    /// The processor's best, up to the level that `TRANSFORMER_SIMD` selects. `None` if it has none: rows of 16-bit
    /// integers are then faster.
    pub fn new() -> Option<Self> {
        let avx512 = matches!(arch(), pulp::Arch::V4(_)).then(vnni::Avx512::new);
        let avx2 = (level() >= Level::AvxVnni).then(vnni::Avx2::new);
        let avx2 = avx2.flatten().map(Self::Avx2);
        avx512.flatten().map(Self::Avx512).or(avx2)
    }

    /// Runs a task.
    pub fn run<T: Task<u8>>(self, task: T) {
        match self {
            Self::Avx512(avx512) => avx512.run(task),
            Self::Avx2(avx2) => avx2.run(task),
        }
    }
}

/// Runs a task on rows of 16-bit integers with the processor's best instructions, up to the level that
/// `TRANSFORMER_SIMD` selects.
pub fn run_words<T: Task<i16>>(task: T) {
    #[cfg(target_arch = "x86_64")]
    if let (pulp::Arch::V3(_) | pulp::Arch::V4(_), Some(avx2)) = (arch(), avx2::Avx2::new()) {
        return avx2.run(task);
    }
    portable::Portable.run(task);
}
