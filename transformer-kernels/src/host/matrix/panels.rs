//! Large products, in tiles whose sums stay in registers.
//!
//! The columns of `W` are cut into panels. Some inner rows of a panel are copied, in the order in which they are read,
//! and stay in the second-level cache while they are multiplied with all rows of `x`. The crate gemm copies both factors
//! as a whole before it multiplies, and collects a transposed matrix number by number.
//!
//! Each number of a result is the sum of a fixed sequence of sums: bit for bit, it depends neither on other rows nor on
//! tasks and threads.

use std::cell::Cell;
use std::mem::MaybeUninit;

use pulp::x86::V4;
use pulp::{Arch, NullaryFnOnce, Simd, f32x16};
use rayon::prelude::*;

use super::Matrix;
use crate::host::buffer::by_tasks;
use crate::host::columns::Columns;
use crate::host::sized;
use crate::simd::arch;
use crate::sizes::count;

/// Rows of a tile. Its sums have 24 of the 32 registers, and the columns of a panel four.
const ROWS: usize = 6;

/// Vectors in a row of a panel.
const VECTORS: usize = 4;

/// Columns of a panel.
const WIDTH: usize = 16 * VECTORS;

/// The sums of a tile.
type Sums = [[f32x16; VECTORS]; ROWS];

/// Inner rows of a panel that are copied at a time.
const DEPTH: usize = 512;

/// Tasks for each thread, where the product has enough rows.
const TASKS: usize = 4;

/// Rows of a task, at least and at most: with fewer, copying the panels would take too much of the time, and more do not
/// stay in the cache.
const TASK_ROWS: [usize; 2] = [16 * ROWS, 170 * ROWS];

/// Tiles of a transposed `x` that a task copies: their rows are whole lines of the cache.
const TASK_TILES: usize = 16;

thread_local! {
    /// The panel that is multiplied.
    static PANEL: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// `x · w`, on all threads; `None` where gemm is faster: without AVX-512, and for so few columns that most of a panel
/// would be empty.
///
/// # Panics
/// When the inner sizes do not agree.
pub fn product(x: Matrix<'_>, w: Matrix<'_>) -> Option<Vec<f32>> {
    assert_eq!(x.columns, w.rows, "inner sizes of a product");
    match arch() {
        Arch::V4(simd) if w.columns >= WIDTH / 2 => Some(product_by(simd, x, w)),
        _ => None,
    }
}

fn product_by(simd: V4, x: Matrix<'_>, w: Matrix<'_>) -> Vec<f32> {
    let size = count(&[x.rows, w.columns]);
    if w.rows == 0 {
        return vec![0.0; size];
    }
    let mut out = Vec::with_capacity(size);
    let spare = &mut out.spare_capacity_mut()[..size];
    let copied = (x.column_stride != 1).then(|| copy_tiles(x));
    let rows = rows_of_task(x.rows, w.columns);
    let tasks: Vec<_> = (0..x.rows)
        .step_by(rows)
        .zip(spare.chunks_mut((rows * w.columns).max(1)))
        .flat_map(|(first, out)| {
            let rows = first..x.rows.min(first + rows);
            let x = match &copied {
                None => Factor::Rows(x.rows(rows.clone())),
                Some(tiles) => Factor::Tiles(&tiles[first / ROWS * tile_stride(x.columns)..]),
            };
            let panels = Columns::new(out, rows.len(), w.columns).split(WIDTH);
            panels.enumerate().map(move |(panel, out)| {
                let first = panel * WIDTH;
                let columns = w.transposed().rows(first..first + out.width());
                let w = columns.transposed();
                Task { simd, x, w, out }
            })
        })
        .collect();
    tasks
        .into_par_iter()
        .with_max_len(1)
        .for_each(|task| simd.vectorize(task));
    #[allow(unsafe_code, reason = "tasks write into uninitialised memory")]
    // SAFETY: the capacity is `size` at least. Each number belongs to a task, which has set it; if one had panicked, so
    // would `for_each` have.
    unsafe {
        out.set_len(size);
    }
    out
}

/// Rows of a task: whole tiles, and no more than leave each thread its tasks.
fn rows_of_task(rows: usize, columns: usize) -> usize {
    let panels = columns.div_ceil(WIDTH).max(1);
    let groups = (TASKS * rayon::current_num_threads()).div_ceil(panels);
    let rows = rows.div_ceil(groups).next_multiple_of(ROWS);
    rows.clamp(TASK_ROWS[0], TASK_ROWS[1])
}

/// The rows of `x`.
#[derive(Clone, Copy)]
enum Factor<'a> {
    /// Each is contiguous.
    Rows(Matrix<'a>),
    /// `[tile, inner, ROWS]`, the tiles [`tile_stride`] apart.
    Tiles(&'a [f32]),
}

/// From a tile to the next one: an odd number of cache lines, so that tiles that are written side by side fall into
/// different sets of the cache.
fn tile_stride(inner: usize) -> usize {
    const LINE: usize = 16;
    count(&[inner, ROWS]).next_multiple_of(LINE) | LINE
}

/// The rows of a matrix whose columns are contiguous, in tiles, with zeros after the last row.
fn copy_tiles(x: Matrix<'_>) -> Vec<f32> {
    let columns = x.transposed();
    let stride = tile_stride(x.columns);
    let all = count(&[x.rows.div_ceil(ROWS), stride]);
    by_tasks(all, TASK_TILES * stride, |task, out| {
        for k in 0..columns.rows {
            let rows = &columns.row(k)[task * TASK_TILES * ROWS..];
            for (tile, rows) in out.chunks_exact_mut(stride).zip(rows.chunks(ROWS)) {
                let to = &mut tile[k * ROWS..][..ROWS];
                match <&[f32; ROWS]>::try_from(rows) {
                    Ok(rows) => to.copy_from_slice(rows),
                    Err(_) => to[..rows.len()].copy_from_slice(rows),
                }
            }
        }
    })
}

/// A panel of a product, for some of the rows.
struct Task<'a> {
    simd: V4,
    x: Factor<'a>,
    w: Matrix<'a>,
    out: Columns<'a, MaybeUninit<f32>>,
}

impl NullaryFnOnce for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        let mut buffer = PANEL.take();
        let inner = self.w.rows;
        for first in (0..inner).step_by(DEPTH) {
            let depth = DEPTH.min(inner - first);
            let panel = sized(&mut buffer, depth * WIDTH);
            copy_panel(self.w.rows(first..first + depth), panel);
            let (panel, _) = V4::as_simd_f32s(panel).0.as_chunks();
            for row in (0..self.out.rows()).step_by(ROWS) {
                let sums = match self.x {
                    Factor::Rows(x) => {
                        // Rows after the last one repeat it.
                        let rows: [&[f32]; ROWS] = std::array::from_fn(
                            #[inline(always)]
                            |at| &x.row((row + at).min(x.rows - 1))[first..first + depth],
                        );
                        sums(self.simd, panel, Rows(rows))
                    }
                    Factor::Tiles(tiles) => {
                        let tile = &tiles[row / ROWS * tile_stride(inner)..][first * ROWS..];
                        sums(self.simd, panel, Tile(tile.as_chunks().0))
                    }
                };
                self.add(row, &sums, first == 0);
            }
        }
        PANEL.set(buffer);
    }
}

impl Task<'_> {
    /// Adds the sums of a tile, or writes them where they are the first.
    #[inline(always)]
    fn add(&mut self, row: usize, sums: &Sums, are_first: bool) {
        let simd = self.simd;
        let rows = row..self.out.rows().min(row + ROWS);
        for (row, sums) in rows.zip(sums) {
            let out = self.out.row(row);
            if are_first {
                out.fill(MaybeUninit::new(0.0));
            }
            #[allow(unsafe_code, reason = "memory that has been initialised")]
            // SAFETY: every number of the row has been set, when its first sums were added.
            let out = unsafe { &mut *(std::ptr::from_mut(out) as *mut [f32]) };
            let (vectors, rest) = V4::as_mut_simd_f32s(out);
            for (out, &sum) in vectors.iter_mut().zip(sums) {
                *out = simd.add_f32s(*out, sum);
            }
            if let Some(&sum) = sums.get(vectors.len()) {
                let all = simd.add_f32s(simd.partial_load_f32s(rest), sum);
                simd.partial_store_f32s(rest, all);
            }
        }
    }
}

/// Copies a panel, with zeros after its last column.
#[inline(always)]
fn copy_panel(w: Matrix<'_>, panel: &mut [f32]) {
    if w.columns < WIDTH {
        panel.fill(0.0);
    }
    match w.column_stride {
        1 => {
            for (row, to) in panel.chunks_exact_mut(WIDTH).enumerate() {
                to[..w.columns].copy_from_slice(w.row(row));
            }
        }
        _ => w.transposed().write_transposed(1.0, WIDTH, panel),
    }
}

/// `ROWS` rows of `x`, at the inner rows of a panel.
trait Numbers: Copy {
    /// At the first of them only: the compiler then knows that smaller indices need no check, and loads a number into
    /// all lanes of a vector by one instruction.
    fn first(self, depth: usize) -> Self;

    /// The numbers that the inner row `k` is multiplied with.
    fn at(self, k: usize) -> [f32; ROWS];
}

#[derive(Clone, Copy)]
struct Rows<'a>([&'a [f32]; ROWS]);

impl Numbers for Rows<'_> {
    #[inline(always)]
    fn first(self, depth: usize) -> Self {
        let [a, b, c, d, e, f] = self.0;
        Self([
            &a[..depth],
            &b[..depth],
            &c[..depth],
            &d[..depth],
            &e[..depth],
            &f[..depth],
        ])
    }

    #[inline(always)]
    fn at(self, k: usize) -> [f32; ROWS] {
        let [a, b, c, d, e, f] = self.0;
        [a[k], b[k], c[k], d[k], e[k], f[k]]
    }
}

#[derive(Clone, Copy)]
struct Tile<'a>(&'a [[f32; ROWS]]);

impl Numbers for Tile<'_> {
    #[inline(always)]
    fn first(self, depth: usize) -> Self {
        Self(&self.0[..depth])
    }

    #[inline(always)]
    fn at(self, k: usize) -> [f32; ROWS] {
        self.0[k]
    }
}

/// The products of `ROWS` rows with a panel.
#[inline(always)]
fn sums(simd: V4, panel: &[[f32x16; VECTORS]], x: impl Numbers) -> Sums {
    let x = x.first(panel.len());
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    for (k, w) in panel.iter().enumerate() {
        for (sums, x) in sums.iter_mut().zip(x.at(k)) {
            let x = simd.splat_f32s(x);
            for (sum, &w) in sums.iter_mut().zip(w) {
                *sum = simd.mul_add_e_f32s(x, w, *sum);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Framed, product_of};
    use super::*;

    /// The instructions, where this processor has them.
    fn avx512() -> Option<V4> {
        let simd = V4::try_new();
        if simd.is_none() {
            println!("not run: this processor has no AVX-512");
        }
        simd
    }

    /// Whole and broken tiles, panels and depths; more rows than a task has; a factor that is transposed, or neither.
    #[test]
    fn products_of_all_sizes_are_exact() {
        let Some(simd) = avx512() else { return };
        for sizes in [
            [6, 16, 64],
            [1, 1, 1],
            [5, 17, 3],
            [7, 512, 65],
            [100, 513, 130],
            [1030, 40, 17],
            [97, 1030, 31],
            [0, 5, 7],
            [5, 7, 0],
            [5, 0, 7],
        ] {
            let [rows, inner, columns] = sizes;
            let x = Framed::new([rows, inner], 1);
            let w = Framed::new([inner, columns], 2);
            let (x_turned, w_turned) = (x.transposed(), w.transposed());
            let expected = product_of(&x, &w, sizes);
            for (x, w) in [
                (x.view(), w.view()),
                (x_turned.view().transposed(), w.view()),
                (x.view(), w_turned.view().transposed()),
            ] {
                assert_eq!(product_by(simd, x, w), expected, "{sizes:?}");
            }
        }
    }

    #[test]
    fn a_row_does_not_depend_on_the_others_or_on_threads() {
        let Some(simd) = avx512() else { return };
        let (rows, inner, columns) = (205, 700, 200);
        let numbers = |count: usize, seed: usize| -> Vec<f32> {
            let number = |at: usize| ((at * 7919 + seed) % 1013) as f32 / 506.0 - 1.0;
            (0..count).map(number).collect()
        };
        let (x, w) = (numbers(rows * inner, 1), numbers(inner * columns, 2));
        let x = Matrix::new(&x, rows, inner, inner);
        let w = Matrix::new(&w, inner, columns, columns);
        let mut columns_of_x = vec![0.0; rows * inner];
        x.write_transposed(1.0, rows, &mut columns_of_x);
        let x_turned = Matrix::new(&columns_of_x, inner, rows, rows);
        let all = product_by(simd, x, w);
        for threads in [1, 3, 40] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().expect("a pool of threads");
            for x in [x, x_turned.transposed()] {
                let again = pool.install(|| product_by(simd, x, w));
                assert_eq!(again, all, "{threads} threads");
            }
        }
        for row in [0, 5, 6, 203, 204] {
            let alone = product_by(simd, x.rows(row..row + 1), w);
            assert_eq!(alone, all[row * columns..][..columns], "row {row}");
        }
    }

    #[test]
    #[should_panic(expected = "inner sizes of a product")]
    fn factors_that_do_not_fit_are_refused() {
        let numbers = [0.0; 4 * WIDTH];
        let x = Matrix::new(&numbers, 4, WIDTH, WIDTH);
        product(x, x);
    }
}
