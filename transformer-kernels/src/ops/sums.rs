//! The sum of squares, for Euclidean norms.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::autodiff::{first, plain, wrapped};
use crate::kernels::Kernels;

/// The sum of the squares of all values.
///
/// Fused if no gradients are computed. On flex and ndarray, the fused sum is the same for any number of threads,
/// bit for bit; Burn's own sum on flex is not, for large tensors.
///
/// # Shapes
/// - x: any
/// - output: `[1]`
pub fn sum_of_squares<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, 1> {
    first!(fused::<B, D>(&x)).unwrap_or_else(|| x.square().sum())
}

fn fused<B: Backend, I: Kernels, const D: usize>(x: &Tensor<B, D>) -> Option<Tensor<B, 1>> {
    let x = plain::<B, I, D>(x)?;
    Some(wrapped(I::sum_of_squares(&x)))
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;
    use crate::testing::{assert_close, on_each, plain as numbers, values};

    on_each!(kernel_is_the_composition);
    on_each!(threads_change_nothing on slices);

    fn kernel_is_the_composition<I: Kernels>() {
        for shape in [[1, 1], [3, 5], [300, 1000]] {
            let found = fused::<I, I, 2>(&numbers(1, shape)).expect("a kernel");
            let exact = numbers::<NdArray<f64>, 2>(1, shape).square().sum();
            assert_close(&format!("{shape:?}"), &[values(found)], &[values(exact)]);
        }
    }

    #[cfg(any(feature = "flex", feature = "ndarray"))]
    fn threads_change_nothing<I: Kernels>() {
        // Burn's flex uses several threads for sums of more than 4 Mi values.
        let x = numbers::<I, 2>(1, [2100, 2001]);
        let sum = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let pool = pool.expect("a pool of threads");
            pool.install(|| values(sum_of_squares(x.clone()))[0].to_bits())
        };
        let alone = sum(1);
        for round in 0..5 {
            for threads in [2, 3, 8] {
                assert_eq!(sum(threads), alone, "{threads} threads, round {round}");
            }
        }
    }
}
