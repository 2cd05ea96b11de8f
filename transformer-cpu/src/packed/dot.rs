//! Instructions for exact dot products of 8-bit integers.
#![allow(unsafe_code, reason = "the processor's instructions, by std::arch")]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::quantize::INPUTS;
use crate::simd::arch;

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

/// The processor's best instructions for rows of bytes, up to the level that `TRANSFORMER_SIMD` selects. `None` if
/// rows of 16-bit integers are faster.
#[cfg(target_arch = "x86_64")]
pub fn for_bytes() -> Option<Vnni> {
    match arch() {
        pulp::Arch::V4(_) => Vnni::new(),
        _ => None,
    }
}

/// Runs a task on rows of 16-bit integers with the processor's best instructions, up to the level that
/// `TRANSFORMER_SIMD` selects.
pub fn run_words<T: Task<i16>>(task: T) {
    #[cfg(target_arch = "x86_64")]
    if let (pulp::Arch::V3(_) | pulp::Arch::V4(_), Some(avx2)) = (arch(), Avx2::new()) {
        return avx2.run(task);
    }
    Portable.run(task);
}

/// Loops that run on every processor.
#[derive(Clone, Copy)]
pub struct Portable;

impl Dot for Portable {
    const ROWS: usize = 4;
    const COLUMNS: usize = 8;
    type Value = i16;
    type Weights = [[i32; INPUTS]; 8];
    type Inputs = [i32; INPUTS];
    type Sums = [i32; 8];

    #[inline(always)]
    fn zeros(self) -> Self::Sums {
        [0; 8]
    }

    #[inline(always)]
    fn no_weights(self) -> Self::Weights {
        [[0; INPUTS]; 8]
    }

    #[inline(always)]
    fn weights(self, columns: &[[i8; INPUTS]]) -> Self::Weights {
        assert_eq!(columns.len(), Self::COLUMNS);
        let mut weights = [[0; INPUTS]; 8];
        for (to, column) in weights.iter_mut().zip(columns) {
            *to = column.map(i32::from);
        }
        weights
    }

    #[inline(always)]
    fn inputs(self, x: [i16; INPUTS]) -> Self::Inputs {
        x.map(i32::from)
    }

    #[inline(always)]
    fn add(self, mut sums: Self::Sums, x: Self::Inputs, weights: Self::Weights) -> Self::Sums {
        for (sum, w) in sums.iter_mut().zip(weights) {
            for (x, w) in x.into_iter().zip(w) {
                *sum += x * w;
            }
        }
        sums
    }

    #[inline(always)]
    fn store(self, sums: Self::Sums, to: &mut [i32]) {
        to.copy_from_slice(&sums);
    }

    fn run<T: Task<i16>>(self, task: T) {
        task.run(self);
    }
}

/// AVX-512 VNNI: sixteen columns per instruction.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Vnni(());

#[cfg(target_arch = "x86_64")]
impl Vnni {
    /// `None` if the processor does not have them.
    pub fn new() -> Option<Self> {
        let all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni");
        all.then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Dot for Vnni {
    const ROWS: usize = 12;
    const COLUMNS: usize = 16;
    type Value = u8;
    type Weights = __m512i;
    type Inputs = __m512i;
    type Sums = __m512i;

    #[inline(always)]
    fn zeros(self) -> __m512i {
        // SAFETY: a value of this type proves that the processor has the instruction.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn no_weights(self) -> __m512i {
        self.zeros()
    }

    #[inline(always)]
    fn weights(self, columns: &[[i8; INPUTS]]) -> __m512i {
        assert_eq!(columns.len(), Self::COLUMNS);
        // SAFETY: a value of this type proves that the processor has the instruction, which reads 16 columns of
        // four bytes: as many as there are. They need no alignment.
        unsafe { _mm512_loadu_si512(columns.as_ptr().cast()) }
    }

    #[inline(always)]
    fn inputs(self, x: [u8; INPUTS]) -> __m512i {
        // SAFETY: a value of this type proves that the processor has the instruction.
        unsafe { _mm512_set1_epi32(i32::from_ne_bytes(x)) }
    }

    #[inline(always)]
    fn add(self, sums: __m512i, x: __m512i, weights: __m512i) -> __m512i {
        // SAFETY: a value of this type proves that the processor has the instruction.
        unsafe { _mm512_dpbusd_epi32(sums, x, weights) }
    }

    #[inline(always)]
    fn store(self, sums: __m512i, to: &mut [i32]) {
        assert_eq!(to.len(), Self::COLUMNS);
        // SAFETY: a value of this type proves that the processor has the instruction, which writes 16 sums of four
        // bytes: as many as there is memory for. It needs no alignment.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), sums) }
    }

    fn run<T: Task<u8>>(self, task: T) {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        fn run<T: Task<u8>>(task: T, dot: Vnni) {
            task.run(dot);
        }
        // SAFETY: a value of this type proves that the processor has the instructions.
        unsafe { run(task, self) }
    }
}

/// AVX2. Its only instruction that multiplies bytes adds pairs in 16 bits, which can overflow, so values and weights
/// are multiplied in 16 bits.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// `None` if the processor does not have them.
    pub fn new() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Dot for Avx2 {
    const ROWS: usize = 6;
    const COLUMNS: usize = 4;
    type Value = i16;
    type Weights = __m256i;
    type Inputs = __m256i;
    /// Two sums per column: of the first two inputs, and of the others.
    type Sums = __m256i;

    #[inline(always)]
    fn zeros(self) -> __m256i {
        // SAFETY: a value of this type proves that the processor has the instruction.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn no_weights(self) -> __m256i {
        self.zeros()
    }

    #[inline(always)]
    fn weights(self, columns: &[[i8; INPUTS]]) -> __m256i {
        assert_eq!(columns.len(), Self::COLUMNS);
        // SAFETY: a value of this type proves that the processor has the instructions, of which the first reads
        // four columns of four bytes: as many as there are. They need no alignment.
        unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(columns.as_ptr().cast())) }
    }

    #[inline(always)]
    fn inputs(self, x: [i16; INPUTS]) -> __m256i {
        let [a, b, c, d] = x.map(i16::to_ne_bytes);
        let bytes = [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]];
        // SAFETY: a value of this type proves that the processor has the instruction.
        unsafe { _mm256_set1_epi64x(i64::from_ne_bytes(bytes)) }
    }

    #[inline(always)]
    fn add(self, sums: __m256i, x: __m256i, weights: __m256i) -> __m256i {
        // SAFETY: a value of this type proves that the processor has the instructions.
        unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(x, weights)) }
    }

    #[inline(always)]
    fn store(self, sums: __m256i, to: &mut [i32]) {
        assert_eq!(to.len(), Self::COLUMNS);
        // SAFETY: a value of this type proves that the processor has the instructions, of which the last writes four
        // sums of four bytes: as many as there is memory for. It needs no alignment.
        unsafe {
            let [low, high] = [
                _mm256_castsi256_si128(sums),
                _mm256_extracti128_si256::<1>(sums),
            ];
            _mm_storeu_si128(to.as_mut_ptr().cast(), _mm_hadd_epi32(low, high));
        }
    }

    fn run<T: Task<i16>>(self, task: T) {
        #[target_feature(enable = "avx2")]
        fn run<T: Task<i16>>(task: T, dot: Avx2) {
            task.run(dot);
        }
        // SAFETY: a value of this type proves that the processor has the instructions.
        unsafe { run(task, self) }
    }
}
