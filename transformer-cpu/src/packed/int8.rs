//! Panels in 8 bits.

use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::amx;
#[cfg(target_arch = "x86_64")]
use super::dot::Bytes;
use super::dot::{self, Dot, Task};
use super::quantize::{INPUTS, QuantizedRows};
use super::rows::quantized_rows;
use super::tiles::{PANEL, PARALLEL, Part, Tiles, compute, prefetch_next};
use crate::types::WeightLayout;

/// Whether sums over this many inputs fit into 32 bits, with terms of at most 255 · 128.
pub fn fits(d_input: usize) -> bool {
    d_input <= i32::MAX as usize / (255 * 128)
}

/// A weight in 8 bits: `[panel, d_input / INPUTS, PANEL, INPUTS]`, zero-padded after the last input and output.
///
/// The rows that multiply it are stored as `q + 128`, because processors multiply unsigned by signed bytes. Each sum
/// is therefore too large by 128 times the sum of the output's weights.
#[derive(Debug, Clone)]
pub struct Int8Panels {
    d_input: usize,
    groups: Vec<Group>,
    outputs: Vec<Outputs>,
}

/// The weights of `INPUTS` inputs in a panel: two cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Group(pub [[i8; INPUTS]; PANEL]);

/// One scale and one correction per output of a panel.
#[derive(Debug, Clone)]
struct Outputs {
    scales: [f32; PANEL],
    /// 128 times the sum of the weights.
    excess: [i32; PANEL],
}

impl Int8Panels {
    /// Packs weights `[d_output, d_input]` with one scale per output.
    pub fn new(weights: &[i8], scales: &[f32], [d_input, d_output]: [usize; 2]) -> Self {
        let groups = d_input.div_ceil(INPUTS);
        let group = |at: usize| {
            let (first, input) = (at / groups * PANEL, at % groups * INPUTS);
            let outputs = d_output.min(first + PANEL) - first;
            let inputs = INPUTS.min(d_input - input);
            let from = weights[first * d_input + input..].chunks(d_input);
            let mut group = Group([[0; INPUTS]; PANEL]);
            for (to, from) in group.0[..outputs].iter_mut().zip(from) {
                match from.first_chunk() {
                    Some(from) if inputs == INPUTS => *to = *from,
                    _ => to[..inputs].copy_from_slice(&from[..inputs]),
                }
            }
            group
        };
        let packed = (0..d_output.div_ceil(PANEL) * groups).into_par_iter();
        let of_panels = scales.par_chunks(PANEL).enumerate().map(|(panel, scales)| {
            let weights = weights[panel * PANEL * d_input..].chunks(d_input.max(1));
            let mut outputs = Outputs {
                scales: [0.0; PANEL],
                excess: [0; PANEL],
            };
            outputs.scales[..scales.len()].copy_from_slice(scales);
            for (excess, weights) in outputs.excess[..scales.len()].iter_mut().zip(weights) {
                *excess = 128 * weights.iter().map(|&weight| i32::from(weight)).sum::<i32>();
            }
            outputs
        });
        Self {
            d_input,
            groups: packed.with_min_len(PARALLEL).map(group).collect(),
            outputs: of_panels.collect(),
        }
    }

    /// Quantizes a weight `[d_input, d_output]`, given its memory layout.
    pub fn quantized(values: &[f32], sizes: [usize; 2], layout: WeightLayout) -> Self {
        let [d_input, d_output] = sizes;
        // Without inputs, all scales are zero.
        let (mut weights, mut scales) = (vec![0; values.len()], vec![0.0; d_output]);
        let panels = weights.par_chunks_mut((PANEL * d_input).max(1));
        let panels = panels.zip(scales.par_chunks_mut(PANEL)).enumerate();
        panels.for_each(|(panel, (weights, scales))| {
            let first = panel * PANEL;
            let (own_weights, own_scales) = match layout {
                WeightLayout::OutputByInput => {
                    quantized_rows(&values[first * d_input..][..weights.len()], d_input)
                }
                WeightLayout::InputByOutput => {
                    let mut transposed = vec![0.0; weights.len()];
                    transpose(&values[first..], d_output, &mut transposed, d_input);
                    quantized_rows(&transposed, d_input)
                }
            };
            weights.copy_from_slice(&own_weights);
            scales.copy_from_slice(&own_scales);
        });
        Self::new(&weights, &scales, sizes)
    }

    /// Reads the weights of one output.
    pub fn read_output(&self, output: usize, into: &mut [f32]) {
        let (panel, column) = (output / PANEL, output % PANEL);
        let scale = self.outputs[panel].scales[column];
        let groups = self.d_input.div_ceil(INPUTS);
        let groups = &self.groups[panel * groups..][..groups];
        for (to, group) in into.chunks_mut(INPUTS).zip(groups) {
            for (to, &weight) in to.iter_mut().zip(&group.0[column]) {
                *to = scale * f32::from(weight);
            }
        }
    }

    /// The panels of the given outputs.
    pub fn select(&self, outputs: &[u32]) -> Self {
        let groups = self.d_input.div_ceil(INPUTS);
        let mut selected = Self {
            d_input: self.d_input,
            groups: Vec::with_capacity(outputs.len().div_ceil(PANEL) * groups),
            outputs: Vec::with_capacity(outputs.len().div_ceil(PANEL)),
        };
        for of_panel in outputs.chunks(PANEL) {
            let first = selected.groups.len();
            selected
                .groups
                .resize(first + groups, Group([[0; INPUTS]; PANEL]));
            let mut to = Outputs {
                scales: [0.0; PANEL],
                excess: [0; PANEL],
            };
            for (column, &output) in of_panel.iter().enumerate() {
                let (panel, from) = (output as usize / PANEL, output as usize % PANEL);
                let weights = &self.groups[panel * groups..][..groups];
                for (to, weights) in selected.groups[first..].iter_mut().zip(weights) {
                    to.0[column] = weights.0[from];
                }
                to.scales[column] = self.outputs[panel].scales[from];
                to.excess[column] = self.outputs[panel].excess[from];
            }
            selected.outputs.push(to);
        }
        selected
    }

    /// A part of the result, for any instruction set.
    pub fn part<'a, V>(&'a self, x: QuantizedRows<'a, V>, part: Part<'a>) -> Product<'a, V> {
        let groups = self.d_input.div_ceil(INPUTS);
        Product {
            x,
            groups,
            weights: &self.groups[part.first_panel * groups..],
            outputs: &self.outputs[part.first_panel..],
            part,
        }
    }
}

/// Copies some outputs of a weight `[d_input, d_output]`, starting at the first of `values`: `[outputs, d_input]`.
fn transpose(values: &[f32], d_output: usize, outputs: &mut [f32], d_input: usize) {
    // Whole cache lines are read and written.
    const BLOCK: usize = 16;
    for block in (0..d_input).step_by(BLOCK) {
        let inputs = block..d_input.min(block + BLOCK);
        for (column, output) in outputs.chunks_exact_mut(d_input).enumerate() {
            for (to, input) in output[inputs.clone()].iter_mut().zip(inputs.clone()) {
                *to = values[input * d_output + column];
            }
        }
    }
}

/// A part of the result of a multiplication of rows of values `V`.
pub struct Product<'a, V> {
    pub x: QuantizedRows<'a, V>,
    /// Number of groups of inputs.
    pub groups: usize,
    /// Starting at the part's first panel, as are the outputs.
    pub weights: &'a [Group],
    outputs: &'a [Outputs],
    pub part: Part<'a>,
}

#[cfg(target_arch = "x86_64")]
impl Product<'_, u8> {
    /// Computes it with AMX where that is faster, otherwise with these instructions.
    pub fn run(self, bytes: Bytes) {
        match amx::suits(self.part.out.rows(), self.groups * INPUTS) {
            Some(amx) => amx::run(self, amx),
            None => bytes.run(self),
        }
    }
}

impl Product<'_, i16> {
    /// Computes it with the best instructions for 16-bit integers.
    pub fn run(self) {
        dot::run_words(self);
    }
}

impl<V: Copy> Task<V> for Product<'_, V> {
    #[inline(always)]
    fn run<D: Dot<Value = V>>(self, dot: D) {
        let (rows, columns) = (self.part.out.rows(), self.part.out.width());
        let mut product = DotProduct { dot, product: self };
        compute(&mut product, rows, columns.div_ceil(PANEL));
    }
}

/// A part of the result, for one instruction set.
struct DotProduct<'a, D: Dot> {
    dot: D,
    product: Product<'a, D::Value>,
}

impl<D: Dot> Tiles for DotProduct<'_, D> {
    const ROWS: usize = D::ROWS;

    #[inline(always)]
    fn tile<const M: usize, const P: usize>(&mut self, row: usize, panel: usize) {
        let (dot, groups) = (self.dot, self.product.groups);
        let mut x: [&[[D::Value; INPUTS]]; M] = [&[]; M];
        for (i, x) in x.iter_mut().enumerate() {
            *x = &self.product.x.values[(row + i) * groups..][..groups];
        }
        let mut weights: [&[Group]; P] = [&[]; P];
        for (i, weights) in weights.iter_mut().enumerate() {
            *weights = &self.product.weights[(panel + i) * groups..][..groups];
        }
        let mut results = [[[0; PANEL]; P]; M];
        // Two vectors at a time.
        for first in (0..PANEL).step_by(2 * D::COLUMNS) {
            let mut sums = [[[dot.zeros(); 2]; P]; M];
            for k in 0..groups {
                if P == 1 {
                    prefetch_next(weights[0], k, row);
                }
                let mut w = [[dot.no_weights(); 2]; P];
                for (w, weights) in w.iter_mut().zip(&weights) {
                    let columns = &weights[k].0[first..first + 2 * D::COLUMNS];
                    for (w, columns) in w.iter_mut().zip(columns.chunks_exact(D::COLUMNS)) {
                        *w = dot.weights(columns);
                    }
                }
                for (sums, x) in sums.iter_mut().zip(&x) {
                    let x = dot.inputs(x[k]);
                    for (sums, w) in sums.iter_mut().zip(&w) {
                        for (sum, &w) in sums.iter_mut().zip(w) {
                            *sum = dot.add(*sum, x, w);
                        }
                    }
                }
            }
            let all = results
                .as_flattened_mut()
                .iter_mut()
                .zip(sums.as_flattened());
            for (results, sums) in all {
                let results = &mut results[first..first + 2 * D::COLUMNS];
                for (to, &sums) in results.chunks_exact_mut(D::COLUMNS).zip(sums) {
                    dot.store(sums, to);
                }
            }
        }
        for (row, results) in (row..).zip(&results) {
            for (panel, sums) in (panel..).zip(results) {
                self.product.write(row, panel, sums);
            }
        }
    }
}

impl<V> Product<'_, V> {
    /// Writes the results of a row in a panel; those beyond the last column are dropped.
    #[inline(always)]
    pub fn write(&mut self, row: usize, panel: usize, sums: &[i32; PANEL]) {
        let Product {
            x, outputs, part, ..
        } = self;
        let Outputs { scales, excess } = &outputs[panel];
        let scale = x.scales[row];
        let results = sums.iter().zip(excess).zip(scales);
        let results = results.map(|((&sum, &excess), &s)| (sum - excess) as f32 * s * scale);
        let column = panel * PANEL;
        let out = part.out.row(row).get_mut(column..).unwrap_or_default();
        let bias = part.bias.map(|bias| bias.get(column..).unwrap_or_default());
        if let Some(out) = out.first_chunk_mut::<PANEL>() {
            match bias.and_then(|bias| bias.first_chunk::<PANEL>()) {
                Some(bias) => {
                    for ((out, y), b) in out.iter_mut().zip(results).zip(bias) {
                        *out = y + b;
                    }
                }
                None => out.iter_mut().zip(results).for_each(|(out, y)| *out = y),
            }
        } else {
            out.iter_mut().zip(results).for_each(|(out, y)| *out = y);
            if let Some(bias) = bias {
                out.iter_mut().zip(bias).for_each(|(out, b)| *out += b);
            }
        }
    }
}
