//! 8-bit matrix multiplication with AMX.

use super::int8::{Group, Product};
use super::quantize::INPUTS;
use super::tiles::PANEL;
use crate::amx::{Amx, COLUMNS, Columns, ROWS, Rows, TILE, Tiles};
use crate::simd::vectorised;

const _: () = assert!(PANEL == COLUMNS && size_of::<Group>() == INPUTS * COLUMNS);

/// Number of rows from which tiles are faster than vectors: fewer rows leave most of a tile empty.
const ENOUGH: usize = 5;

/// AMX, if the processor has it and multiplies this many rows faster with it. The inputs must fill whole tiles.
pub fn suits(rows: usize, inputs: usize) -> Option<Amx> {
    let fills_tiles = inputs > 0 && inputs.is_multiple_of(TILE * INPUTS);
    (rows >= ENOUGH && fills_tiles).then(Amx::new).flatten()
}

/// Computes a part of the result; the inputs fill whole tiles.
pub fn run(product: Product<'_, u8>, amx: Amx) {
    amx.with_tiles(|tiles| compute(product, tiles));
}

fn compute(mut product: Product<'_, u8>, tiles: &Tiles) {
    let (rows, groups) = (product.part.out.rows(), product.groups);
    let panels = product.part.out.width().div_ceil(PANEL);
    let mut sums = [[0; COLUMNS]; ROWS];
    for panel in 0..panels {
        let weights = Columns {
            lines: &product.weights[panel * groups..][..groups],
            step: TILE,
        };
        for first in (0..rows).step_by(ROWS) {
            let count = ROWS.min(rows - first);
            let factor = Rows {
                items: &product.x.values[first * groups..],
                stride: groups,
                step: TILE,
                count: count.next_multiple_of(TILE),
            };
            tiles.product(factor, weights, groups / TILE, &mut sums);
            vectorised!(for (row, sums) in (first..).zip(&sums[..count]) {
                product.write(row, panel, sums);
            });
        }
    }
}
