//! Linear layers.

use rayon::prelude::*;

use super::matrix::Matrix;
use super::product;
use crate::buffer::task_of_rows;
use crate::simd::vectorised;
use crate::sizes::count;
use crate::types::{ProductPrecision, WeightLayout};

/// The sizes of a linear layer, and the precision of its multiplications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearShape {
    /// Number of rows of `x`.
    pub rows: usize,
    /// Width of an input row.
    pub d_input: usize,
    /// Width of an output row.
    pub d_output: usize,
    /// Layout of the weight in memory.
    pub layout: WeightLayout,
    /// Precision of the multiplication and of those in its gradients.
    pub precision: ProductPrecision,
}

impl LinearShape {
    /// `[rows, d_input]`
    fn input<'a>(&self, values: &'a [f32]) -> Matrix<'a> {
        whole(values, self.rows, self.d_input)
    }

    /// `[rows, d_output]`
    fn output<'a>(&self, values: &'a [f32]) -> Matrix<'a> {
        whole(values, self.rows, self.d_output)
    }

    /// `[d_input, d_output]`
    fn weight<'a>(&self, values: &'a [f32]) -> Matrix<'a> {
        let Self {
            d_input, d_output, ..
        } = *self;
        match self.layout {
            WeightLayout::InputByOutput => whole(values, d_input, d_output),
            WeightLayout::OutputByInput => whole(values, d_output, d_input).transposed(),
        }
    }
}

/// A matrix of all these values.
fn whole(values: &[f32], rows: usize, columns: usize) -> Matrix<'_> {
    let shape = [rows, columns];
    assert_eq!(values.len(), count(&shape), "length of a matrix {shape:?}");
    Matrix::new(values, rows, columns, columns)
}

/// Computes `x W + b` for every row.
///
/// # Panics
/// When the length of a slice does not match its shape.
///
/// ```
/// use transformer_cpu::{ProductPrecision, WeightLayout};
/// use transformer_cpu::{LinearShape, linear};
///
/// let shape = LinearShape {
///     rows: 1,
///     d_input: 2,
///     d_output: 3,
///     layout: WeightLayout::InputByOutput,
///     precision: ProductPrecision::F32,
/// };
/// // 1·3 + 2·6 = 15, 1·4 + 2·7 = 18, 1·5 + 2·8 + 100 = 121
/// let weight = [3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
/// let y = linear(&[1.0, 2.0], &weight, Some(&[0.0, 0.0, 100.0]), shape);
/// assert_eq!(y, [15.0, 18.0, 121.0]);
/// ```
pub fn linear(x: &[f32], weight: &[f32], bias: Option<&[f32]>, shape: LinearShape) -> Vec<f32> {
    let mut output = product(shape.input(x), shape.weight(weight), shape.precision);
    let d_output = shape.d_output;
    if let Some(bias) = bias {
        assert_eq!(bias.len(), d_output, "length of the bias");
        output
            .par_chunks_mut(task_of_rows(d_output))
            .for_each(|rows| {
                vectorised!({
                    for row in rows.chunks_exact_mut(d_output) {
                        row.iter_mut().zip(bias).for_each(|(y, &b)| *y += b);
                    }
                });
            });
    }
    output
}

/// Gradient of `x`, given the gradient of the output: `dY Wᵀ`.
///
/// # Panics
/// When the length of a slice does not match its shape.
pub fn linear_input_gradient(grad: &[f32], weight: &[f32], shape: LinearShape) -> Vec<f32> {
    let weight = shape.weight(weight).transposed();
    product(shape.output(grad), weight, shape.precision)
}

/// Gradient of the weight, in its layout: `xᵀ dY`.
///
/// # Panics
/// When the length of a slice does not match its shape.
pub fn linear_weight_gradient(grad: &[f32], x: &[f32], shape: LinearShape) -> Vec<f32> {
    let (grad, x) = (shape.output(grad), shape.input(x));
    match shape.layout {
        WeightLayout::InputByOutput => product(x.transposed(), grad, shape.precision),
        WeightLayout::OutputByInput => product(grad.transposed(), x, shape.precision),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "length of a matrix [2, 3]")]
    fn more_numbers_than_the_shape_has_are_refused() {
        let shape = LinearShape {
            rows: 2,
            d_input: 3,
            d_output: 1,
            layout: WeightLayout::InputByOutput,
            precision: ProductPrecision::F32,
        };
        linear(&[0.0; 7], &[0.0; 3], None, shape);
    }
}
