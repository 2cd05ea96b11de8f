//! Loops that run on every processor.

use super::{Dot, Task};
use crate::packed::quantize::INPUTS;

/// Eight columns at a time.
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
