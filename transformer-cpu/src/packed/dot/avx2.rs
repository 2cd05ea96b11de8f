//! AVX2. Its only instruction that multiplies bytes adds pairs in 16 bits, which can overflow, so values and weights
//! are multiplied in 16 bits.
#![allow(unsafe_code, reason = "the processor's instructions, by std::arch")]

use std::arch::x86_64::*;

use super::{Dot, Task};
use crate::packed::quantize::INPUTS;

/// Four columns per instruction.
#[derive(Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// `None` if the processor does not have them.
    pub fn new() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }
}

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
