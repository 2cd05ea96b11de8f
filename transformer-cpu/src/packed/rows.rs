//! Rows of 8-bit values, with one scale per row.

use crate::sizes::check_rows;

/// Rounds each row of `width` values to 8 bits: `scale · q`, with integers `q` from -127 to 127 and the row's
/// scale, its largest magnitude divided by 127. Returns all `q`, and the scale of each row.
///
/// A row of zeros, or of values below 10⁻³⁶, has scale zero; a row with infinity or NaN has scale NaN.
///
/// # Panics
/// When the values do not fill whole rows.
///
/// ```
/// use transformer_cpu::quantized_rows;
///
/// let (q, scales) = quantized_rows(&[254.0, -1.2, 100.9, 0.0, 0.0, 0.0], 3);
/// assert_eq!(q, [127, -1, 50, 0, 0, 0]);
/// assert_eq!(scales, [2.0, 0.0]);
/// ```
pub fn quantized_rows(values: &[f32], width: usize) -> (Vec<i8>, Vec<f32>) {
    check_rows(values.len(), width);
    // At least one, as `chunks` requires.
    let width = width.max(1);
    let mut q = vec![0; values.len()];
    let rows = values.chunks(width).zip(q.chunks_mut(width));
    let scales = rows.map(|(values, q)| quantize_row::<u8, 0>(values, q));
    let scales = scales.collect();
    (q.into_iter().map(u8::cast_signed).collect(), scales)
}

/// Writes `q + OFFSET` of a row, and returns its scale. The offset is zero or 128; negative sums are in two's
/// complement.
#[inline(always)]
pub(crate) fn quantize_row<V: From<u8>, const OFFSET: u8>(values: &[f32], q: &mut [V]) -> f32 {
    /// Adding it rounds to an integer, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let scale = scale_of(values);
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    for (q, &value) in q.iter_mut().zip(values) {
        *q = V::from((value * inverse + ROUND).to_bits() as u8 ^ OFFSET);
    }
    scale
}

/// The scale of a row.
#[inline(always)]
fn scale_of(values: &[f32]) -> f32 {
    // The bit patterns of magnitudes have the order of their values, with infinity and NaN above all others.
    let bits = values.iter().map(|value| value.abs().to_bits());
    let largest = f32::from_bits(bits.fold(0, u32::max));
    let scale = largest / 127.0;
    if scale < f32::MIN_POSITIVE {
        0.0
    } else if largest.is_finite() {
        scale
    } else {
        f32::NAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_within_half_a_step_of_its_row() {
        let width = 37;
        let values: Vec<f32> = (0..5 * width)
            .map(|i| ((i * i) as f32).sin() * 10.0_f32.powi((i / width) as i32 - 2))
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

    /// 2⁻¹²⁶, the smallest normal number, is the smallest scale.
    #[test]
    fn the_least_and_the_largest_numbers_stay_within_range() {
        let least = 127.0 * f32::MIN_POSITIVE;
        for (largest, expected) in [
            (0.0, 0),
            (1e-44, 0),
            (least / 2.0, 0),
            (least, 127),
            (f32::MAX, 127),
        ] {
            let (weights, scales) = quantized_rows(&[largest, -largest], 2);
            assert_eq!(weights, [expected, -expected], "{largest}");
            assert!(scales[0].is_finite() && scales[0] >= 0.0);
        }
        for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (_, scales) = quantized_rows(&[number, 1.0, 1.0, 2.0], 2);
            assert!(scales[0].is_nan() && scales[1] == 2.0 / 127.0);
        }
    }
}
