//! Selected rows of a tensor.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use transformer_cpu::count;

use crate::sizes::reshaped;

/// The rows of a tensor at the given indices; all dimensions but the last count as rows.
///
/// Composed on every backend: rows are only copied, forward and backward, which is cheap compared with the matrix
/// multiplication for which they are selected. Rows that are not selected have gradient zero; the gradients of a
/// row selected more than once are summed.
///
/// # Shapes
/// - x: `[.., width]`
/// - indices: `[rows]`, each below the number of rows of `x`
/// - output: `[rows, width]`
///
/// # Panics
/// Indices are not checked here: if one is out of range, the backend may panic.
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use burn_ndarray::NdArray;
/// use transformer_kernels::gather_rows;
///
/// let device = Default::default();
/// // Two sentences of two positions; the second is shorter.
/// let x = Tensor::<NdArray, 3>::from_data([[[1.0], [2.0]], [[3.0], [0.0]]], &device);
/// let real = Tensor::<NdArray, 1, Int>::from_data([0, 1, 2], &device);
/// let rows = gather_rows(x, real);
/// assert_eq!(rows.into_data().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
/// ```
pub fn gather_rows<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    indices: Tensor<B, 1, Int>,
) -> Tensor<B, 2> {
    let shape = x.dims();
    let (rows, width) = (count(&shape[..D - 1]), shape[D - 1]);
    let x: Tensor<B, 2> = reshaped(x, [rows, width]);
    x.select(0, indices)
}

#[cfg(test)]
mod tests {
    use burn::tensor::backend::AutodiffBackend;
    use burn_autodiff::Autodiff;

    use super::*;
    use crate::kernels::Kernels;
    use crate::testing::{Input, assert_close, numbers, on_each, outcome, tensor};

    on_each!(rows_and_their_gradients_go_where_they_belong);

    fn rows_and_their_gradients_go_where_they_belong<I: Kernels>() {
        fn run<B: AutodiffBackend>(shape: [usize; 3], indices: &[i64]) -> Vec<Vec<f64>> {
            let x = tensor::<B, 3>(1, shape);
            let indices = Tensor::<B, 1, Int>::from_data(indices, &Default::default());
            outcome(gather_rows(x.clone(), indices), &[Input::Three(x)])
        }
        let cases: [([usize; 3], Vec<i64>); 5] = [
            ([1, 1, 1], vec![0]),
            ([2, 3, 4], vec![0, 1, 3, 5]),
            // In another order, and a row twice.
            ([3, 2, 5], vec![4, 0, 4, 3]),
            ([3, 5, 7], (0..15).collect()),
            // Every third position is padding.
            ([30, 21, 33], (0..630).filter(|at| at % 3 != 2).collect()),
        ];
        for (shape, indices) in cases {
            let [batch, len, width] = shape;
            let x = numbers(1, batch * len * width);
            // The gradient of the output, as in `outcome`.
            let grad = numbers(99, indices.len() * width);
            let (mut rows, mut x_grad) = (Vec::new(), vec![0.0; x.len()]);
            for (&index, grad) in indices.iter().zip(grad.chunks(width)) {
                let row = index as usize * width..(index as usize + 1) * width;
                rows.extend_from_slice(&x[row.clone()]);
                for (sum, grad) in x_grad[row].iter_mut().zip(grad) {
                    *sum += grad;
                }
            }
            let found = run::<Autodiff<I>>(shape, &indices);
            assert_close(&format!("{shape:?}"), &found, &[rows, x_grad]);
        }
    }
}
