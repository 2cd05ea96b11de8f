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
    #[cfg(target_arch = "x86_64")]
    pub(super) bytes: RowBuffer<u8>,
    pub(super) words: RowBuffer<i16>,
}

/// Memory for quantized rows of values `V`.
#[derive(Debug, Default)]
pub struct RowBuffer<V> {
    values: Vec<[V; INPUTS]>,
    scales: Vec<f32>,
}

/// Quantized rows, stored as values `V`.
#[derive(Debug, Clone, Copy)]
pub struct QuantizedRows<'a, V> {
    /// `q + 128`: `[rows, d_input / INPUTS, INPUTS]`. Values after the last input are arbitrary, as are the extra
    /// rows that fill whole tiles of 16.
    pub values: &'a [[V; INPUTS]],
    /// `[rows]`
    pub scales: &'a [f32],
}

impl<V: Copy + Default + From<u8>> RowBuffer<V> {
    /// Quantizes rows `[rows, width]`.
    pub(super) fn quantize(
        &mut self,
        x: &[f32],
        [rows, width]: [usize; 2],
    ) -> QuantizedRows<'_, V> {
        let groups = width.div_ceil(INPUTS);
        let len = rows.next_multiple_of(TILE) * groups;
        self.values.resize(len, [V::default(); INPUTS]);
        self.scales.clear();
        self.scales.resize(rows, 0.0);
        if width > 0 {
            let values = self.values.as_flattened_mut();
            let values = values.chunks_exact_mut(groups * INPUTS);
            let rows = x.chunks_exact(width).zip(values).zip(&mut self.scales);
            vectorised!({
                for ((x, values), scale) in rows {
                    *scale = quantize_row::<V, 128>(x, values);
                }
            });
        }
        QuantizedRows {
            values: &self.values,
            scales: &self.scales,
        }
    }
}
