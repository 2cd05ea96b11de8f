//! Weights in 8 bits.

/// The largest 8-bit weight. −128 is none, so that a weight and its negative are both there.
const LARGEST: f32 = 127.0;

/// Rows in 8 bits: each number is about `scale · q`, where the scale of a row is its largest magnitude / 127, and q is
/// from −127 to 127. A row of zeros, or of numbers too small for a scale, has the scale 0 and zeros.
///
/// # Shapes
/// - values: `[rows, width]`, finite
/// - output: `[rows, width]`, and the scales, `[rows]`
///
/// # Panics
/// When the values are not whole rows.
///
/// ```
/// use transformer_kernels::quantized_rows;
///
/// let (weights, scales) = quantized_rows(&[0.5, -1.27, 0.004, 0.0, 0.0, 0.0], 3);
/// assert_eq!(weights, [50, -127, 0, 0, 0, 0]);
/// assert_eq!(scales, [0.01, 0.0]);
/// ```
pub fn quantized_rows(values: &[f32], width: usize) -> (Vec<i8>, Vec<f32>) {
    assert!(
        values.len().is_multiple_of(width.max(1)),
        "{} numbers are no rows of {width}",
        values.len()
    );
    let mut weights = Vec::with_capacity(values.len());
    let mut scales = Vec::with_capacity(values.len() / width.max(1));
    for row in values.chunks(width.max(1)) {
        let largest = row.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
        let scale = largest / LARGEST;
        scales.push(scale);
        // Rounding may bring a quotient of tiny numbers above 127.
        weights.extend(row.iter().map(|number| match scale > 0.0 {
            true => (number / scale).round().clamp(-LARGEST, LARGEST) as i8,
            false => 0,
        }));
    }
    (weights, scales)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_within_half_a_step_of_its_row() {
        let width = 37;
        let values: Vec<f32> = (0..5 * width)
            .map(|i| ((i * i) as f32).sin() * 10.0_f32.powi(i as i32 / width as i32 - 2))
            .collect();
        let (weights, scales) = quantized_rows(&values, width);
        assert_eq!((weights.len(), scales.len()), (values.len(), 5));
        for (row, (values, &scale)) in values.chunks(width).zip(&scales).enumerate() {
            let own = &weights[row * width..][..width];
            let largest = own.iter().map(|weight| weight.unsigned_abs()).max();
            assert_eq!(largest, Some(127));
            for (&value, &weight) in values.iter().zip(own) {
                let error = f64::from(value) - f64::from(scale) * f64::from(weight);
                assert!(error.abs() <= 0.5001 * f64::from(scale), "{value}: {error}");
            }
        }
    }

    /// 1e-44 / 127 is 0 in single precision, and 1e-43 / 127 is rounded up to the least number above it.
    #[test]
    fn the_least_and_the_largest_numbers_stay_within_range() {
        for (largest, expected) in [(0.0, 0), (1e-44, 0), (1e-43, 71), (f32::MAX, 127)] {
            let (weights, scales) = quantized_rows(&[largest, -largest], 2);
            assert_eq!(weights, [expected, -expected], "{largest}");
            assert!(scales[0].is_finite() && scales[0] >= 0.0);
        }
    }
}
