//! Panels in single precision.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::tiles::{PANEL, PARALLEL, Part, Tiles, compute, prefetch_next};
use crate::simd::arch;
use crate::types::WeightLayout;

/// A weight in single precision: `[panel, d_input, PANEL]`, zero-padded after the last output.
#[derive(Debug, Clone)]
pub struct FloatPanels {
    d_input: usize,
    rows: Vec<PanelRow>,
}

/// The weights of one input in a panel: two cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct PanelRow([f32; PANEL]);

impl FloatPanels {
    /// Packs a weight `[d_input, d_output]`, given its memory layout.
    pub fn new(values: &[f32], [d_input, d_output]: [usize; 2], layout: WeightLayout) -> Self {
        // Without inputs there is nothing to pack, whatever the number of outputs.
        let panels = if d_input == 0 {
            0
        } else {
            d_output.div_ceil(PANEL)
        };
        let row = |at: usize| {
            let (first, input) = (at / d_input * PANEL, at % d_input);
            let outputs = first..d_output.min(first + PANEL);
            let mut row = PanelRow([0.0; PANEL]);
            match layout {
                WeightLayout::InputByOutput => {
                    let from = &values[input * d_output..][outputs.clone()];
                    row.0[..outputs.len()].copy_from_slice(from);
                }
                WeightLayout::OutputByInput => {
                    let from = values[first * d_input + input..].iter().step_by(d_input);
                    let columns = row.0[..outputs.len()].iter_mut();
                    columns.zip(from).for_each(|(to, &weight)| *to = weight);
                }
            }
            row
        };
        let rows = (0..panels * d_input).into_par_iter();
        let rows = rows.with_min_len(PARALLEL).map(row).collect();
        Self { d_input, rows }
    }

    /// Reads the weights of one output.
    pub fn read_output(&self, output: usize, into: &mut [f32]) {
        let rows = &self.rows[output / PANEL * self.d_input..][..self.d_input];
        for (to, row) in into.iter_mut().zip(rows) {
            *to = row.0[output % PANEL];
        }
    }

    /// The panels of the given outputs.
    pub fn select(&self, outputs: &[u32]) -> Self {
        let d_input = self.d_input;
        let mut rows = vec![PanelRow([0.0; PANEL]); outputs.len().div_ceil(PANEL) * d_input];
        for (panel, outputs) in rows.chunks_mut(d_input.max(1)).zip(outputs.chunks(PANEL)) {
            for (column, &output) in outputs.iter().enumerate() {
                let (from, of_panel) = (output as usize / PANEL, output as usize % PANEL);
                let from = &self.rows[from * d_input..][..d_input];
                for (to, from) in panel.iter_mut().zip(from) {
                    to.0[column] = from.0[of_panel];
                }
            }
        }
        Self { d_input, rows }
    }

    /// Computes a part of the result for rows `[rows, d_input]`.
    pub fn product(&self, x: &[f32], part: Part<'_>) {
        arch().dispatch(self.part(x, part));
    }

    /// A part of the result, for any instruction set.
    pub fn part<'a>(&'a self, x: &'a [f32], part: Part<'a>) -> Product<'a> {
        Product {
            x,
            d_input: self.d_input,
            weights: &self.rows[part.first_panel * self.d_input..],
            part,
        }
    }
}

/// A part of the result of a multiplication.
pub struct Product<'a> {
    x: &'a [f32],
    d_input: usize,
    /// Starting at the part's first panel.
    weights: &'a [PanelRow],
    part: Part<'a>,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (rows, columns) = (self.part.out.rows(), self.part.out.width());
        let mut product = SimdProduct {
            simd,
            product: self,
        };
        compute(&mut product, rows, columns.div_ceil(PANEL));
    }
}

/// A part of the result, computed with vectors.
struct SimdProduct<'a, S> {
    simd: S,
    product: Product<'a>,
}

impl<S: Simd> Tiles for SimdProduct<'_, S> {
    const ROWS: usize = match S::REGISTER_COUNT {
        _ if S::F32_LANES == 1 => 4,
        32.. => 12,
        _ => 6,
    };

    #[inline(always)]
    fn tile<const M: usize, const P: usize>(&mut self, row: usize, panel: usize) {
        if S::F32_LANES == 1 {
            // The compiler makes two vectors of these eight values.
            self.vectors::<M, P, 8>(row, panel);
        } else {
            self.vectors::<M, P, 2>(row, panel);
        }
    }
}

impl<S: Simd> SimdProduct<'_, S> {
    /// Computes a tile, `N` vectors of a panel at a time.
    #[inline(always)]
    fn vectors<const M: usize, const P: usize, const N: usize>(
        &mut self,
        row: usize,
        panel: usize,
    ) {
        let (simd, d_input) = (self.simd, self.product.d_input);
        let mut x: [&[f32]; M] = [&[]; M];
        for (i, x) in x.iter_mut().enumerate() {
            *x = &self.product.x[(row + i) * d_input..][..d_input];
        }
        let mut weights: [&[PanelRow]; P] = [&[]; P];
        for (i, weights) in weights.iter_mut().enumerate() {
            *weights = &self.product.weights[(panel + i) * d_input..][..d_input];
        }
        for first in (0..PANEL / S::F32_LANES).step_by(N) {
            let mut sums = [[[simd.splat_f32s(0.0); N]; P]; M];
            for k in 0..d_input {
                if P == 1 {
                    prefetch_next(weights[0], k, row);
                }
                let mut w = [[simd.splat_f32s(0.0); N]; P];
                for (w, weights) in w.iter_mut().zip(&weights) {
                    w.copy_from_slice(&S::as_simd_f32s(&weights[k].0).0[first..first + N]);
                }
                for (sums, x) in sums.iter_mut().zip(&x) {
                    let x = simd.splat_f32s(x[k]);
                    for (sums, w) in sums.iter_mut().zip(&w) {
                        for (sum, &w) in sums.iter_mut().zip(w) {
                            *sum = simd.mul_add_e_f32s(x, w, *sum);
                        }
                    }
                }
            }
            for (i, sums) in sums.iter().enumerate() {
                for (j, sums) in sums.iter().enumerate() {
                    let column = (panel + j) * PANEL + first * S::F32_LANES;
                    self.write(row + i, column, sums);
                }
            }
        }
    }

    /// Writes results of a row, starting at a column; those beyond the last column are dropped.
    #[inline(always)]
    fn write<const N: usize>(&mut self, row: usize, column: usize, sums: &[S::f32s; N]) {
        let simd = self.simd;
        let Part { bias, out, .. } = &mut self.product.part;
        let out = out.row(row).get_mut(column..).unwrap_or_default();
        let bias = bias.map(|bias| bias.get(column..).unwrap_or_default());
        let whole = N * S::F32_LANES;
        if let Some(out) = out.get_mut(..whole) {
            let (out, _) = S::as_mut_simd_f32s(out);
            match bias {
                Some(bias) => {
                    let (bias, _) = S::as_simd_f32s(&bias[..whole]);
                    for ((out, &sum), &bias) in out.iter_mut().zip(sums).zip(bias) {
                        *out = simd.add_f32s(sum, bias);
                    }
                }
                None => out.copy_from_slice(sums),
            }
        } else {
            let mut all = [0.0; PANEL];
            let (vectors, _) = S::as_mut_simd_f32s(&mut all);
            vectors[..N].copy_from_slice(sums);
            out.iter_mut().zip(all).for_each(|(out, sum)| *out = sum);
            if let Some(bias) = bias {
                out.iter_mut().zip(bias).for_each(|(out, b)| *out += b);
            }
        }
    }
}
