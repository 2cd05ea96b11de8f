//! Transposition of 16 × 16 blocks in registers.

#![allow(unsafe_code, reason = "the processor's instructions, by std::arch")]

use crate::simd::arch;

/// Lines of a block, and values per line.
pub const BLOCK: usize = 16;

/// Lines of values.
pub type Block = [[f32; BLOCK]; BLOCK];

/// The instructions that transpose blocks. A value is proof that the processor has them.
#[derive(Debug, Clone, Copy)]
pub struct Transposition(Instructions);

#[derive(Debug, Clone, Copy)]
enum Instructions {
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Transposition {
    /// The processor's best instructions, up to the level that `TRANSFORMER_SIMD` selects.
    pub fn new() -> Self {
        Self(match arch() {
            // AVX-512 vectors were not faster on a Xeon: memory is the limit.
            #[cfg(target_arch = "x86_64")]
            pulp::Arch::V4(_) | pulp::Arch::V3(_) => Instructions::Avx2,
            _ => Instructions::Portable,
        })
    }

    /// Transposes a block.
    #[inline(always)]
    pub fn apply(self, block: &mut Block) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: pulp has found the instructions of its level, AVX2 among them.
            Instructions::Avx2 => unsafe { x86::by_avx2(block) },
            Instructions::Portable => {
                let given = *block;
                for (at, line) in block.iter_mut().enumerate() {
                    for (to, from) in line.iter_mut().zip(&given) {
                        *to = from[at];
                    }
                }
            }
        }
    }
}

/// Swaps the upper right and lower left quarters of a block, then recurses into each quarter.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::mem::transmute;

    use super::{BLOCK, Block};

    /// Values per AVX2 register.
    const HALF: usize = BLOCK / 2;

    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn by_avx2(block: &mut Block) {
        let (upper, lower) = block.split_at_mut(HALF);
        for (above, below) in upper.iter_mut().zip(lower) {
            above[HALF..].swap_with_slice(&mut below[..HALF]);
        }
        for (first, column) in [(0, 0), (0, HALF), (HALF, 0), (HALF, HALF)] {
            let quarter: [__m256i; HALF] = std::array::from_fn(|line| {
                let line = &block[first + line][column..];
                let half: &[f32; HALF] = line.first_chunk().expect("half a line");
                // SAFETY: both are 32 bytes, of which every pattern of bits is a value.
                unsafe { transmute(*half) }
            });
            let quarter = quarter_by_avx2(quarter);
            for (line, numbers) in block[first..].iter_mut().zip(quarter) {
                // SAFETY: both are 32 bytes, of which every pattern of bits is a value.
                let half: [f32; HALF] = unsafe { transmute(numbers) };
                line[column..][..HALF].copy_from_slice(&half);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn quarter_by_avx2(mut lines: [__m256i; HALF]) -> [__m256i; HALF] {
        for (line, other) in [(0, 4), (1, 5), (2, 6), (3, 7)] {
            let (a, b) = (lines[line], lines[other]);
            lines[line] = _mm256_permute2x128_si256::<0x20>(a, b);
            lines[other] = _mm256_permute2x128_si256::<0x31>(a, b);
        }
        for (line, other) in [(0, 2), (1, 3), (4, 6), (5, 7)] {
            let (a, b) = (lines[line], lines[other]);
            lines[line] = _mm256_unpacklo_epi64(a, b);
            lines[other] = _mm256_unpackhi_epi64(a, b);
        }
        for (line, other) in [(0, 1), (2, 3), (4, 5), (6, 7)] {
            let (a, b) = (lines[line], lines[other]);
            // Even lanes of `b` beside those of `a`, and odd lanes likewise.
            let evens_of_b = _mm256_shuffle_epi32::<0b10_10_00_00>(b);
            let odds_of_a = _mm256_shuffle_epi32::<0b11_11_01_01>(a);
            lines[line] = _mm256_blend_epi32::<0b1010_1010>(a, evens_of_b);
            lines[other] = _mm256_blend_epi32::<0b1010_1010>(odds_of_a, b);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One per instruction set of this processor.
    fn each() -> Vec<Transposition> {
        let all = [
            Some(Instructions::Portable),
            #[cfg(target_arch = "x86_64")]
            is_x86_feature_detected!("avx2").then_some(Instructions::Avx2),
        ];
        let all: Vec<_> = all.into_iter().flatten().map(Transposition).collect();
        println!("run by {all:?}");
        all
    }

    #[test]
    fn lines_become_columns() {
        for transposition in each().into_iter().chain([Transposition::new()]) {
            let number = |line: usize, at: usize| (100 * line + at) as f32;
            let mut block: Block =
                std::array::from_fn(|line| std::array::from_fn(|at| number(line, at)));
            transposition.apply(&mut block);
            for (at, line) in block.iter().enumerate() {
                let expected: [f32; BLOCK] = std::array::from_fn(|line| number(line, at));
                assert_eq!(*line, expected, "{transposition:?}, line {at}");
            }
        }
    }
}
