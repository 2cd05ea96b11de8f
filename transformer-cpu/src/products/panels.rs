//! Large matrix multiplications, in tiles whose sums stay in registers.
//!
//! The columns of `W` are split into panels. A task copies a block of a panel, some of its inner rows, in the
//! order in which they are read, and multiplies it with its rows of `x` while it is in the second-level cache.
//! Contiguous rows of `x` are read in place; a transposed `x` is copied once, six rows at a time. By contrast,
//! gemm synchronizes all threads after every 512 inner rows, and gathers a transposed `W` element by element.
//!
//! Each result is a sum of block sums, and the block sizes depend only on the number of inner rows. It therefore
//! does not depend on other rows, tasks or threads, bit for bit.

use std::cell::Cell;
use std::mem::MaybeUninit;

use pulp::x86::V4;
use pulp::{Arch, NullaryFnOnce, Simd, f32x16};
use rayon::prelude::*;

use super::columns::Columns;
use super::matrix::Matrix;
use crate::buffer::{LINE, by_tasks, odd_lines, sized};
use crate::simd::arch;
use crate::sizes::count;

/// Rows per tile. Its sums take 24 of the 32 registers, and a row of a block four more.
const ROWS: usize = 6;

/// Vectors per row of a block.
const VECTORS: usize = 4;

/// Columns per panel.
const WIDTH: usize = 16 * VECTORS;

/// Maximum inner rows per block.
const MOST_DEPTH: usize = 512;

/// Tasks per thread, if there are enough rows.
const TASKS_OF_THREAD: usize = 4;

/// Minimum rows per task: with fewer, copying blocks would take too much of the time.
const LEAST_ROWS: usize = 16 * ROWS;

/// Maximum rows per task.
const MOST_ROWS: usize = 170 * ROWS;

/// Groups of `ROWS` rows of a transposed `x` per copying task: 96 neighboring values of each column.
const GROUPS_OF_TASK: usize = 16;

thread_local! {
    /// The current block.
    static BLOCK: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// `x · w`, on all threads; `None` without AVX-512, and for fewer than 32 columns, which would leave most of a
/// panel empty.
///
/// # Panics
/// When the inner dimensions do not agree.
pub fn product(x: Matrix<'_>, w: Matrix<'_>) -> Option<Vec<f32>> {
    assert_eq!(x.columns, w.rows, "inner dimensions of the matrices");
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
    let mut product = Vec::with_capacity(size);
    let spare = &mut product.spare_capacity_mut()[..size];
    let copied = (x.column_stride != 1).then(|| copy_groups(x));
    let height = task_height(x.rows, w.columns);
    let tasks: Vec<_> = (0..x.rows)
        .step_by(height)
        .zip(spare.chunks_mut((height * w.columns).max(1)))
        .flat_map(|(row, part)| {
            let rows = row..x.rows.min(row + height);
            let x = match &copied {
                None => Factor::Rows(x.rows(rows.clone())),
                Some(groups) => Factor::Groups(&groups[row / ROWS * group_stride(x.columns)..]),
            };
            let panels = Columns::new(part, rows.len(), w.columns).split(WIDTH);
            panels.enumerate().map(move |(panel, out)| {
                let first = panel * WIDTH;
                let w = w.columns(first..first + out.width());
                Task { simd, x, w, out }
            })
        })
        .collect();
    tasks
        .into_par_iter()
        .with_max_len(1)
        .for_each(|task| simd.vectorize(task));
    #[allow(unsafe_code, reason = "tasks write into uninitialized memory")]
    // SAFETY: the capacity is `size` at least. Each number belongs to a task, which has set it, as there is an inner
    // row; if a task had panicked, so would `for_each` have.
    unsafe {
        product.set_len(size);
    }
    product
}

/// Rows per task: few enough that every thread gets tasks, within the limits.
fn task_height(rows: usize, columns: usize) -> usize {
    let panels = columns.div_ceil(WIDTH).max(1);
    let parts = (TASKS_OF_THREAD * rayon::current_num_threads()).div_ceil(panels);
    let height = rows.div_ceil(parts).next_multiple_of(ROWS);
    height.clamp(LEAST_ROWS, MOST_ROWS)
}

/// The rows of `x`.
#[derive(Clone, Copy)]
enum Factor<'a> {
    /// Contiguous rows.
    Rows(Matrix<'a>),
    /// `[group, inner, ROWS]`, the groups [`group_stride`] apart.
    Groups(&'a [f32]),
}

/// Distance from a group of rows to the next.
fn group_stride(inner: usize) -> usize {
    odd_lines(count(&[inner, ROWS]))
}

/// The rows of a matrix with contiguous columns, in groups of `ROWS`, zero-padded after the last row.
fn copy_groups(x: Matrix<'_>) -> Vec<f32> {
    let columns = x.transposed();
    let stride = group_stride(x.columns);
    let all = count(&[x.rows.div_ceil(ROWS), stride]);
    by_tasks(all, GROUPS_OF_TASK * stride, |task, out| {
        for k in 0..columns.rows {
            let numbers = &columns.row(k)[task * GROUPS_OF_TASK * ROWS..];
            for (group, numbers) in out.chunks_exact_mut(stride).zip(numbers.chunks(ROWS)) {
                let to = &mut group[k * ROWS..][..ROWS];
                match <&[f32; ROWS]>::try_from(numbers) {
                    Ok(numbers) => to.copy_from_slice(numbers),
                    Err(_) => to[..numbers.len()].copy_from_slice(numbers),
                }
            }
        }
    })
}

/// A panel of the result, for some of the rows.
struct Task<'a> {
    simd: V4,
    x: Factor<'a>,
    /// The columns of the panel.
    w: Matrix<'a>,
    out: Columns<'a, MaybeUninit<f32>>,
}

impl NullaryFnOnce for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self {
            simd,
            x,
            w,
            mut out,
        } = self;
        let mut buffer = BLOCK.take();
        let inner = w.rows;
        let depth = inner.div_ceil(inner.div_ceil(MOST_DEPTH));
        for first in (0..inner).step_by(depth) {
            let depth = depth.min(inner - first);
            let block = aligned(&mut buffer, depth * WIDTH);
            copy_block(w.rows(first..first + depth), block);
            for row in (0..out.rows()).step_by(ROWS) {
                let sums = match x {
                    Factor::Rows(x) => {
                        // Rows after the last one repeat it.
                        let rows: [&[f32]; ROWS] = std::array::from_fn(
                            #[inline(always)]
                            |at| &x.row((row + at).min(x.rows - 1))[first..first + depth],
                        );
                        multiply(simd, block, Rows(rows))
                    }
                    Factor::Groups(groups) => {
                        let group = &groups[row / ROWS * group_stride(inner)..][first * ROWS..];
                        multiply(simd, block, Group(group.as_chunks().0))
                    }
                };
                for (row, sums) in (row..out.rows().min(row + ROWS)).zip(&sums) {
                    let out = out.row(row);
                    if first == 0 {
                        out.fill(MaybeUninit::new(0.0));
                    }
                    #[allow(unsafe_code, reason = "memory that has been initialized")]
                    // SAFETY: the sums of the first block, which come first, have found every number of the row zeroed.
                    let out = unsafe { &mut *(std::ptr::from_mut(out) as *mut [f32]) };
                    add(simd, sums, out);
                }
            }
        }
        BLOCK.set(buffer);
    }
}

/// Adds the sums of a row of a tile; those beyond the end of `out` are dropped.
#[inline(always)]
fn add(simd: V4, sums: &[f32x16; VECTORS], out: &mut [f32]) {
    let (vectors, rest) = V4::as_mut_simd_f32s(out);
    for (out, &sum) in vectors.iter_mut().zip(sums) {
        *out = simd.add_f32s(*out, sum);
    }
    if let Some(&sum) = sums.get(vectors.len()) {
        let all = simd.add_f32s(simd.partial_load_f32s(rest), sum);
        simd.partial_store_f32s(rest, all);
    }
}

/// `count` values of a buffer, starting at a cache line, so that no vector crosses a line.
fn aligned(buffer: &mut Vec<f32>, count: usize) -> &mut [f32] {
    let all = sized(buffer, count + LINE);
    let first = all.as_ptr().align_offset(size_of::<[f32; LINE]>());
    &mut all[first..][..count]
}

/// Copies a block. Values beyond the last column of `w` are never added to a result.
#[inline(always)]
fn copy_block(w: Matrix<'_>, block: &mut [f32]) {
    match w.column_stride {
        1 => {
            for (row, to) in block.chunks_exact_mut(WIDTH).enumerate() {
                to[..w.columns].copy_from_slice(w.row(row));
            }
        }
        _ => w.transposed().write_transposed(1.0, WIDTH, block),
    }
}

/// `ROWS` rows of `x`, at the inner rows of a block.
trait Numbers: Copy {
    /// Keeps the first `depth` inner rows: the compiler then knows that smaller indices need no bounds check, and
    /// broadcasts a value to all lanes of a vector in one instruction.
    fn first(self, depth: usize) -> Self;

    /// The values that multiply the inner row `k`.
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
struct Group<'a>(&'a [[f32; ROWS]]);

impl Numbers for Group<'_> {
    #[inline(always)]
    fn first(self, depth: usize) -> Self {
        Self(&self.0[..depth])
    }

    #[inline(always)]
    fn at(self, k: usize) -> [f32; ROWS] {
        self.0[k]
    }
}

/// The sums of a tile: `ROWS` rows of `x` times a block.
#[inline(always)]
fn multiply(simd: V4, block: &[f32], x: impl Numbers) -> [[f32x16; VECTORS]; ROWS] {
    let (block, _) = V4::as_simd_f32s(block).0.as_chunks::<VECTORS>();
    let x = x.first(block.len());
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    for (k, w) in block.iter().enumerate() {
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
    use super::super::matrix::tests::in_each_layout;
    use super::*;

    /// The instructions, if this processor has them.
    fn avx512() -> Option<V4> {
        let simd = V4::try_new();
        if simd.is_none() {
            println!("not run: this processor has no AVX-512");
        }
        simd
    }

    /// Whole and partial tiles, panels and depths; more rows than a task has; both layouts of the operands.
    #[test]
    fn products_of_all_sizes_are_exact() {
        let Some(simd) = avx512() else { return };
        for sizes in [
            [6, 16, 64],
            [1, 1, 1],
            [5, 17, 3],
            [7, 512, 65],
            [7, 9, 48],
            [100, 513, 130],
            [1030, 40, 17],
            [97, 1030, 31],
            [0, 5, 7],
            [5, 7, 0],
            [5, 0, 7],
        ] {
            in_each_layout(sizes, |x, w, expected| {
                assert_eq!(product_by(simd, x, w), expected, "{sizes:?}");
            });
        }
    }

    /// Beyond its last column, a narrow panel contains values of the previous block.
    #[test]
    fn nothing_of_another_product_is_left() {
        let Some(simd) = avx512() else { return };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        pool.expect("a pool of one thread").install(|| {
            let nan = [f32::NAN; 9 * WIDTH];
            product_by(
                simd,
                Matrix::new(&[1.0; 9], 1, 9, 9),
                Matrix::new(&nan, 9, WIDTH, WIDTH),
            );
            in_each_layout([7, 9, 33], |x, w, expected| {
                assert_eq!(product_by(simd, x, w), expected);
            });
        });
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
    #[should_panic(expected = "inner dimensions of the matrices")]
    fn factors_that_do_not_fit_are_refused() {
        let numbers = [0.0; 4 * WIDTH];
        let x = Matrix::new(&numbers, 4, WIDTH, WIDTH);
        product(x, x);
    }
}
