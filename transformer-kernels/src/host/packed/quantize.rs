//! Numbers in 8 bits, with a scale for each row.

use crate::simd::vectorised;

/// Rounds each number of rows of `width` to 8 bits: `scale · q`, with whole numbers `q` from -127 to 127 and
/// the row's scale, the largest magnitude over 127. Returns all `q`, and the scale of each row.
///
/// A row of zeros, or of numbers below 10⁻³⁶, has the scale zero; one with infinity or NaN, the scale NaN.
///
/// # Panics
/// When the numbers are not whole rows.
///
/// ```
/// use transformer_kernels::host::quantized_rows;
///
/// let (q, scales) = quantized_rows(&[254.0, -1.2, 100.9, 0.0, 0.0, 0.0], 3);
/// assert_eq!(q, [127, -1, 50, 0, 0, 0]);
/// assert_eq!(scales, [2.0, 0.0]);
/// ```
pub fn quantized_rows(values: &[f32], width: usize) -> (Vec<i8>, Vec<f32>) {
    let rows = rows_of(values, width);
    let mut q = vec![0; values.len()];
    let mut scales = vec![0.0; rows];
    quantize::<0>(values, width, &mut q, width, &mut scales);
    (q.into_iter().map(u8::cast_signed).collect(), scales)
}

/// The number of rows of a width.
fn rows_of(values: &[f32], width: usize) -> usize {
    assert!(
        values.len().is_multiple_of(width.max(1)),
        "{} numbers are not whole rows of {width}",
        values.len()
    );
    values.len() / width.max(1)
}

/// Inputs that are multiplied by one instruction.
pub const INPUTS: usize = 4;

/// Memory that products reuse from one to the next.
#[derive(Debug, Default)]
pub struct ProductBuffer {
    values: Vec<[u8; INPUTS]>,
    scales: Vec<f32>,
}

/// Rows in 8 bits.
#[derive(Debug, Clone, Copy)]
pub struct QuantizedRows<'a> {
    /// `q + 128`: `[rows, d_input / INPUTS, INPUTS]`; numbers after the last input are arbitrary.
    pub values: &'a [[u8; INPUTS]],
    /// `[rows]`
    pub scales: &'a [f32],
}

impl ProductBuffer {
    /// Quantizes rows `[rows, width]`.
    pub(super) fn quantize(&mut self, x: &[f32], [rows, width]: [usize; 2]) -> QuantizedRows<'_> {
        let groups = width.div_ceil(INPUTS);
        self.values.resize(rows * groups, [0; INPUTS]);
        self.scales.clear();
        self.scales.resize(rows, 0.0);
        let values = self.values.as_flattened_mut();
        quantize::<128>(x, width, values, groups * INPUTS, &mut self.scales);
        QuantizedRows {
            values: &self.values,
            scales: &self.scales,
        }
    }
}

/// Writes `q + OFFSET` of each row, `stride` numbers after the row before, and its scale. The offset is zero
/// or 128; a sum below zero is the byte of the same bits.
fn quantize<const OFFSET: u8>(
    values: &[f32],
    width: usize,
    q: &mut [u8],
    stride: usize,
    scales: &mut [f32],
) {
    if width == 0 {
        return;
    }
    vectorised!({
        let rows = values.chunks_exact(width).zip(q.chunks_exact_mut(stride));
        for ((x, q), scale) in rows.zip(scales) {
            *scale = scale_of(x);
            let inverse = if *scale > 0.0 { 1.0 / *scale } else { 0.0 };
            for (q, &x) in q.iter_mut().zip(x) {
                // Adding it rounds to a whole number, which is then in the lowest bits.
                const ROUND: f32 = 12_582_912.0;
                *q = (x * inverse + ROUND).to_bits() as u8 ^ OFFSET;
            }
        }
    });
}

/// The scale of a row.
#[inline(always)]
fn scale_of(x: &[f32]) -> f32 {
    // Magnitudes are ordered as their bits are, with infinity and NaN above all numbers.
    let bits = x.iter().map(|x| x.abs().to_bits());
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
