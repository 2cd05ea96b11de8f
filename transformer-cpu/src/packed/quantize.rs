//! Quantized rows for 8-bit matrix multiplication.

use super::rows::quantize_row;
use crate::simd::vectorised;

/// Inputs multiplied by one instruction.
pub const INPUTS: usize = 4;

/// Rows of a tile of the processor's matrix unit.
const TILE: usize = 16;

/// Memory that is reused between multiplications.
#[derive(Debug, Default)]
pub struct ProductBuffer {
    values: Vec<[u8; INPUTS]>,
    scales: Vec<f32>,
}

/// Rows in 8 bits.
#[derive(Debug, Clone, Copy)]
pub struct QuantizedRows<'a> {
    /// `q + 128`: `[rows, d_input / INPUTS, INPUTS]`. Values after the last input are arbitrary, as are the extra
    /// rows that fill whole tiles of 16.
    pub values: &'a [[u8; INPUTS]],
    /// `[rows]`
    pub scales: &'a [f32],
}

impl ProductBuffer {
    /// Quantizes rows `[rows, width]`.
    pub(super) fn quantize(&mut self, x: &[f32], [rows, width]: [usize; 2]) -> QuantizedRows<'_> {
        let groups = width.div_ceil(INPUTS);
        self.values
            .resize(rows.next_multiple_of(TILE) * groups, [0; INPUTS]);
        self.scales.clear();
        self.scales.resize(rows, 0.0);
        if width > 0 {
            let values = self.values.as_flattened_mut();
            let values = values.chunks_exact_mut(groups * INPUTS);
            let rows = x.chunks_exact(width).zip(values).zip(&mut self.scales);
            vectorised!({
                for ((x, values), scale) in rows {
                    *scale = quantize_row::<128>(x, values);
                }
            });
        }
        QuantizedRows {
            values: &self.values,
            scales: &self.scales,
        }
    }
}
