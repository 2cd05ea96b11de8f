//! The order in which a multiplication is computed.

use crate::products::columns::Columns;

/// Columns per panel.
pub const PANEL: usize = 32;

/// Rows of panels that are packed by one task, at least.
pub const PARALLEL: usize = 512;

/// Some columns of the result: those of some panels of the weight.
#[derive(Debug)]
pub struct Part<'a> {
    /// The panel of the first column.
    pub first_panel: usize,
    /// The bias of these columns.
    pub bias: Option<&'a [f32]>,
    /// The memory to which they are written.
    pub out: Columns<'a>,
}

/// The computation of a part of the result, by tiles.
pub trait Tiles {
    /// Rows of the largest tile, limited by the number of registers: 12, 6 or 4.
    const ROWS: usize;

    /// Computes `M` rows of `P` panels, starting at a row and a panel.
    fn tile<const M: usize, const P: usize>(&mut self, row: usize, panel: usize);
}

/// Computes a part of the result.
///
/// Each panel is read from memory once, then from a cache, for tiles with about the same number of rows. With few
/// rows, a tile spans several panels, because too few sums would wait for each other.
#[inline(always)]
pub fn compute<T: Tiles>(product: &mut T, rows: usize, panels: usize) {
    match rows {
        0 => return,
        1 if const { T::ROWS >= 6 } => return few_rows::<T, 1, 4>(product, panels),
        2 if const { T::ROWS >= 12 } => return few_rows::<T, 2, 4>(product, panels),
        2 if const { T::ROWS >= 6 } => return few_rows::<T, 2, 2>(product, panels),
        3 if const { T::ROWS >= 12 } => return few_rows::<T, 3, 2>(product, panels),
        4 if const { T::ROWS >= 12 } => return few_rows::<T, 4, 2>(product, panels),
        _ => {}
    }
    let tiles = rows.div_ceil(T::ROWS);
    for panel in 0..panels {
        for tile in 0..tiles {
            let [row, end] = [tile, tile + 1].map(|tile| tile * rows / tiles);
            tile_of_rows(product, end - row, row, panel);
        }
    }
}

/// Computes all `M` rows, `P` panels at a time.
#[inline(always)]
fn few_rows<T: Tiles, const M: usize, const P: usize>(product: &mut T, panels: usize) {
    let mut panel = 0;
    while panel + P <= panels {
        product.tile::<M, P>(0, panel);
        panel += P;
    }
    while panel < panels {
        product.tile::<M, 1>(0, panel);
        panel += 1;
    }
}

/// Computes a tile of `rows` rows in one panel.
#[inline(always)]
fn tile_of_rows<T: Tiles>(product: &mut T, rows: usize, row: usize, panel: usize) {
    match rows {
        1 if const { T::ROWS < 6 } => product.tile::<1, 1>(row, panel),
        2 if const { T::ROWS < 6 } => product.tile::<2, 1>(row, panel),
        3 if const { T::ROWS < 12 } => product.tile::<3, 1>(row, panel),
        4 if const { T::ROWS < 12 } => product.tile::<4, 1>(row, panel),
        5 if const { T::ROWS >= 6 } => product.tile::<5, 1>(row, panel),
        6 if const { T::ROWS >= 6 } => product.tile::<6, 1>(row, panel),
        7 if const { T::ROWS >= 12 } => product.tile::<7, 1>(row, panel),
        8 if const { T::ROWS >= 12 } => product.tile::<8, 1>(row, panel),
        9 if const { T::ROWS >= 12 } => product.tile::<9, 1>(row, panel),
        10 if const { T::ROWS >= 12 } => product.tile::<10, 1>(row, panel),
        11 if const { T::ROWS >= 12 } => product.tile::<11, 1>(row, panel),
        12 if const { T::ROWS >= 12 } => product.tile::<12, 1>(row, panel),
        // Tiles of about equal size have more than half of `T::ROWS` rows.
        _ => unreachable!("a tile of {rows} rows, at most {}", T::ROWS),
    }
}

/// Prefetches row `k` of the next panel while this one is multiplied: the first half in the tile that starts at
/// row 0, the second half in the others.
#[inline(always)]
pub fn prefetch_next<R>(panel: &[R], k: usize, row: usize) {
    const { assert!(size_of::<R>() == 128) };
    let next = panel.as_ptr().wrapping_add(panel.len() + k);
    let half = next
        .cast::<i8>()
        .wrapping_add(if row == 0 { 0 } else { 64 });
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        #[allow(unsafe_code, reason = "prefetching is an instruction")]
        // SAFETY: every x86-64 processor has the instruction, which is a hint: it reads nothing that the program
        // sees, and no address is wrong.
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(half);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = half;
}
