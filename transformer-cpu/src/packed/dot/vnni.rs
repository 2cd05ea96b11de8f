//! VNNI, which multiplies bytes and adds four products in 32 bits, in vectors of AVX-512 or of AVX2.
#![allow(unsafe_code, reason = "the processor's instructions, by std::arch")]

use std::arch::x86_64::*;

use super::{Dot, Task};
use crate::packed::quantize::INPUTS;

/// Instructions on vectors of one width.
macro_rules! vnni {
    (
        $(#[$doc:meta])*
        $name:ident: $($feature:tt)&&+;
        $vector:ty: $columns:literal columns, $rows:literal rows;
        $zero:ident, $load:ident, $set:ident, $add:ident, $store:ident
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name(());

        impl $name {
            /// `None` if the processor does not have them.
            pub fn new() -> Option<Self> {
                let all = $(is_x86_feature_detected!($feature))&&+;
                all.then_some(Self(()))
            }
        }

        impl Dot for $name {
            const ROWS: usize = $rows;
            const COLUMNS: usize = $columns;
            type Value = u8;
            type Weights = $vector;
            type Inputs = $vector;
            type Sums = $vector;

            #[inline(always)]
            fn zeros(self) -> $vector {
                // SAFETY: a value of this type proves that the processor has the instruction.
                unsafe { $zero() }
            }

            #[inline(always)]
            fn no_weights(self) -> $vector {
                self.zeros()
            }

            #[inline(always)]
            fn weights(self, columns: &[[i8; INPUTS]]) -> $vector {
                assert_eq!(columns.len(), Self::COLUMNS);
                // SAFETY: a value of this type proves that the processor has the instruction, which reads four bytes
                // per column: as many as there are. They need no alignment.
                unsafe { $load(columns.as_ptr().cast()) }
            }

            #[inline(always)]
            fn inputs(self, x: [u8; INPUTS]) -> $vector {
                // SAFETY: a value of this type proves that the processor has the instruction.
                unsafe { $set(i32::from_ne_bytes(x)) }
            }

            #[inline(always)]
            fn add(self, sums: $vector, x: $vector, weights: $vector) -> $vector {
                // SAFETY: a value of this type proves that the processor has the instruction.
                unsafe { $add(sums, x, weights) }
            }

            #[inline(always)]
            fn store(self, sums: $vector, to: &mut [i32]) {
                assert_eq!(to.len(), Self::COLUMNS);
                // SAFETY: a value of this type proves that the processor has the instruction, which writes a sum of
                // four bytes per column: as many as there is memory for. It needs no alignment.
                unsafe { $store(to.as_mut_ptr().cast(), sums) }
            }

            fn run<T: Task<u8>>(self, task: T) {
                $(#[target_feature(enable = $feature)])+
                fn run<T: Task<u8>>(task: T, dot: $name) {
                    task.run(dot);
                }
                // SAFETY: a value of this type proves that the processor has the instructions.
                unsafe { run(task, self) }
            }
        }
    };
}

vnni! {
    /// AVX512-VNNI: sixteen columns per instruction.
    Avx512: "avx512f" && "avx512bw" && "avx512dq" && "avx512vl" && "avx512vnni";
    __m512i: 16 columns, 12 rows;
    _mm512_setzero_si512, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_dpbusd_epi32, _mm512_storeu_si512
}

vnni! {
    /// AVX-VNNI, of processors that may lack AVX-512: eight columns per instruction.
    Avx2: "avx2" && "avxvnni";
    __m256i: 8 columns, 6 rows;
    _mm256_setzero_si256, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_dpbusd_avx_epi32, _mm256_storeu_si256
}
