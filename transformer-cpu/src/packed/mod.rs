//! Multiplication by packed weights, which are laid out once in the order in which the processor reads them.
//!
//! A weight `[d_input, d_output]` is split into panels of 32 outputs, and the multiplication into tiles: some rows
//! times one panel, whose sums stay in registers while the panel is read from start to end. Each result is one sum
//! in the order of the inputs. A row's results therefore do not depend on the other rows, the tiles or the
//! threads, bit for bit.

#[cfg(target_arch = "x86_64")]
mod amx;
mod dot;
mod float;
mod int8;
mod quantize;
pub mod rows;
#[cfg(test)]
mod tests;
mod tiles;

use rayon::prelude::*;

use self::float::FloatPanels;
use self::int8::Int8Panels;
pub use self::quantize::ProductBuffer;
use self::tiles::{PANEL, Part};
use crate::products::columns::Columns;
use crate::products::matrix::LARGE_MATRIX;
use crate::sizes::count;
use crate::types::WeightLayout;

/// How a packed matrix stores its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PackedPrecision {
    /// Single precision, the default.
    #[default]
    F32,
    /// 8 bits: each weight is `scale · q`, with an integer `q` from -127 to 127 and one scale per output.
    Int8,
}

/// Which threads compute a multiplication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread.
    This,
    /// All of rayon's threads, if the matrix is large.
    All,
}

/// A packed weight `[d_input, d_output]`.
///
/// ```
/// use transformer_cpu::WeightLayout;
/// use transformer_cpu::{PackedMatrix, PackedPrecision, ProductBuffer, Threads};
///
/// // 1·3 + 2·6 = 15, 1·4 + 2·7 = 18, 1·5 + 2·8 + 100 = 121
/// let weight = [3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
/// let layout = WeightLayout::InputByOutput;
/// let packed = PackedMatrix::new(&weight, [2, 3], layout, PackedPrecision::F32);
/// let mut y = [0.0; 3];
/// let mut buffer = ProductBuffer::default();
/// packed.product(&[1.0, 2.0], Some(&[0.0, 0.0, 100.0]), &mut y, &mut buffer, Threads::This);
/// assert_eq!(y, [15.0, 18.0, 121.0]);
/// ```
#[derive(Debug, Clone)]
pub struct PackedMatrix {
    d_input: usize,
    d_output: usize,
    panels: Panels,
}

#[derive(Debug, Clone)]
enum Panels {
    Float(FloatPanels),
    Int8(Int8Panels),
}

impl PackedMatrix {
    /// Packs a weight with sizes `[d_input, d_output]`, stored in either layout.
    ///
    /// With more than 65 793 inputs, whose sums could overflow 32 bits, it stays in single precision. In 8 bits,
    /// an output with an infinite or NaN weight becomes NaN.
    ///
    /// # Panics
    /// When there are not `d_input · d_output` values.
    pub fn new(
        values: &[f32],
        sizes: [usize; 2],
        layout: WeightLayout,
        precision: PackedPrecision,
    ) -> Self {
        assert_eq!(values.len(), count(&sizes), "length of a weight {sizes:?}");
        let panels = match precision {
            PackedPrecision::Int8 if int8::fits(sizes[0]) => {
                Panels::Int8(Int8Panels::quantized(values, sizes, layout))
            }
            _ => Panels::Float(FloatPanels::new(values, sizes, layout)),
        };
        Self::of(sizes, panels)
    }

    /// Packs 8-bit weights `[d_output, d_input]` with one scale per output. `sizes` are `[d_input, d_output]`, as
    /// everywhere.
    ///
    /// With more than 65 793 inputs, they are expanded to single precision.
    ///
    /// # Panics
    /// When there are not `d_output · d_input` weights and `d_output` scales.
    pub fn from_int8(weights: &[i8], scales: &[f32], sizes: [usize; 2]) -> Self {
        let [d_input, d_output] = sizes;
        assert_eq!(
            [weights.len(), scales.len()],
            [count(&sizes), d_output],
            "number of values and of scales of an 8-bit weight {sizes:?}"
        );
        let panels = if int8::fits(d_input) {
            Panels::Int8(Int8Panels::new(weights, scales, sizes))
        } else {
            let outputs = weights.chunks_exact(d_input).zip(scales);
            let expanded = outputs.flat_map(|(weights, scale)| {
                weights.iter().map(move |&weight| scale * f32::from(weight))
            });
            let expanded: Vec<f32> = expanded.collect();
            let layout = WeightLayout::OutputByInput;
            Panels::Float(FloatPanels::new(&expanded, sizes, layout))
        };
        Self::of(sizes, panels)
    }

    fn of([d_input, d_output]: [usize; 2], panels: Panels) -> Self {
        Self {
            d_input,
            d_output,
            panels,
        }
    }

    /// Width of an input row.
    pub fn d_input(&self) -> usize {
        self.d_input
    }

    /// Width of an output row.
    pub fn d_output(&self) -> usize {
        self.d_output
    }

    /// How it stores its weights.
    pub fn precision(&self) -> PackedPrecision {
        match self.panels {
            Panels::Float(_) => PackedPrecision::F32,
            Panels::Int8(_) => PackedPrecision::Int8,
        }
    }

    /// Reads the weights of one output, `[d_input]`. For an embedding table packed as
    /// [`WeightLayout::OutputByInput`], this is the embedding of a token.
    ///
    /// # Panics
    /// When there is no such output, or `into` is not `d_input` long.
    pub fn read_output(&self, output: usize, into: &mut [f32]) {
        assert!(
            output < self.d_output,
            "output {output} of a weight with {}",
            self.d_output
        );
        assert_eq!(into.len(), self.d_input, "length of an output");
        match &self.panels {
            Panels::Float(panels) => panels.read_output(output, into),
            Panels::Int8(panels) => panels.read_output(output, into),
        }
    }

    /// The weight of the given outputs, in the given order. Their results are the same, bit for bit.
    ///
    /// # Panics
    /// When there is no such output.
    pub fn select(&self, outputs: &[u32]) -> Self {
        if let Some(output) = outputs
            .iter()
            .find(|&&output| output as usize >= self.d_output)
        {
            panic!("output {output} of a weight with {}", self.d_output);
        }
        let panels = match &self.panels {
            Panels::Float(panels) => Panels::Float(panels.select(outputs)),
            Panels::Int8(panels) => Panels::Int8(panels.select(outputs)),
        };
        Self::of([self.d_input, outputs.len()], panels)
    }

    /// Computes `x W + b` for every row.
    ///
    /// In 8 bits, each row of `x` is quantized first, as in [`quantized_rows`](crate::quantized_rows); the results
    /// are the same on every processor. A row with infinity or NaN gives a row of NaN.
    ///
    /// # Shapes
    /// - x: `[rows, d_input]`
    /// - bias: `[d_output]`
    /// - out: `[rows, d_output]`, overwritten
    ///
    /// # Panics
    /// When the lengths do not agree.
    pub fn product(
        &self,
        x: &[f32],
        bias: Option<&[f32]>,
        out: &mut [f32],
        buffer: &mut ProductBuffer,
        threads: Threads,
    ) {
        let rows = self.rows(x, bias, out);
        let parts = self.parts(bias, Columns::new(out, rows, self.d_output), threads);
        match &self.panels {
            Panels::Float(panels) => on_threads(parts, |part| panels.product(x, part)),
            Panels::Int8(panels) => {
                let sizes = [rows, self.d_input];
                #[cfg(target_arch = "x86_64")]
                if let Some(bytes) = dot::Bytes::new() {
                    let x = buffer.bytes.quantize(x, sizes);
                    return on_threads(parts, |part| panels.part(x, part).run(bytes));
                }
                let x = buffer.words.quantize(x, sizes);
                on_threads(parts, |part| panels.part(x, part).run());
            }
        }
    }

    /// The number of rows, if the lengths agree.
    fn rows(&self, x: &[f32], bias: Option<&[f32]>, out: &[f32]) -> usize {
        let rows = match [self.d_input, self.d_output] {
            [0, 0] => 0,
            [0, d_output] => out.len() / d_output,
            [d_input, _] => x.len() / d_input,
        };
        assert_eq!(
            [x.len(), out.len()],
            [self.d_input, self.d_output].map(|width| count(&[rows, width])),
            "lengths of x and of the output, for {rows} rows and a weight [{}, {}]",
            self.d_input,
            self.d_output
        );
        if let Some(bias) = bias {
            assert_eq!(
                bias.len(),
                self.d_output,
                "length of the bias and output width"
            );
        }
        rows
    }

    /// The parts of the result, one per thread.
    fn parts<'a>(
        &self,
        bias: Option<&'a [f32]>,
        out: Columns<'a>,
        threads: Threads,
    ) -> impl Iterator<Item = Part<'a>> + use<'a> {
        let threads = match threads {
            Threads::All if count(&[self.d_input, self.d_output]) >= LARGE_MATRIX => {
                rayon::current_num_threads()
            }
            _ => 1,
        };
        let panels = self.d_output.div_ceil(PANEL);
        let width = panels.div_ceil(threads).max(1) * PANEL;
        out.split(width).enumerate().map(move |(which, out)| {
            let first = which * width;
            Part {
                first_panel: first / PANEL,
                bias: bias.map(|bias| &bias[first..first + out.width()]),
                out,
            }
        })
    }
}

/// Computes each part; several parts on rayon's threads.
fn on_threads<'a>(mut parts: impl Iterator<Item = Part<'a>>, compute: impl Fn(Part<'a>) + Sync) {
    let Some(first) = parts.next() else {
        return;
    };
    let mut others: Vec<_> = parts.collect();
    if others.is_empty() {
        compute(first);
    } else {
        others.push(first);
        others.into_par_iter().for_each(&compute);
    }
}
