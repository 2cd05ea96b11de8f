//! AMX, the matrix unit of Intel processors: it multiplies tiles, which are registers of 16 rows of 64 bytes.
//!
//! The intrinsics for its instructions need a nightly compiler, so they are written in assembly here.

#![allow(unsafe_code, reason = "the processor's instructions, written out")]

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, CpuidResult};
use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::simd::{Level, level};

/// Rows of a tile; also lines of a tile of columns, where a line has four bytes of each column.
pub const TILE: usize = 16;

/// Maximum rows of a block of sums: two tiles.
pub const ROWS: usize = 2 * TILE;

/// Columns of a block of sums: two tiles.
pub const COLUMNS: usize = 32;

/// The sums of a block.
pub type Sums = [[i32; COLUMNS]; ROWS];

/// Proof that the processor has AMX for 8-bit integers, and that the operating system permits its use.
#[derive(Debug, Clone, Copy)]
pub struct Amx(());

impl Amx {
    /// `None` without AMX, or if `TRANSFORMER_SIMD` selects older instructions.
    pub fn new() -> Option<Self> {
        static IS_ALLOWED: OnceLock<bool> = OnceLock::new();
        let is_allowed = || *IS_ALLOWED.get_or_init(|| processor_has_it() && system_allows_it());
        (level() == Level::Amx && is_allowed()).then_some(Self(()))
    }

    /// Computes with this thread's tiles.
    ///
    /// Other code on this thread, such as libtorch's, may have configured the tiles. Its configuration is restored
    /// afterwards, but not the contents of its tiles.
    pub fn with_tiles<R>(self, compute: impl FnOnce(&Tiles) -> R) -> R {
        let (mut before, whole) = (Configuration::NONE, Configuration::WHOLE);
        // SAFETY: a value of this type proves that the processor has the instructions. The first writes 64 bytes to a
        // variable that has as many, the second reads 64 bytes, of a configuration that the processor accepts.
        unsafe {
            asm!(
                "sttilecfg [{before}]",
                "ldtilecfg [{whole}]",
                before = in(reg) &raw mut before,
                whole = in(reg) &raw const whole,
                options(nostack),
            );
        }
        compute(&Tiles {
            before,
            not_send: PhantomData,
        })
    }
}

/// A thread's tile configuration, in the processor's format.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    first_row: u8,
    reserved: [u8; 14],
    bytes_of_row: [u16; 16],
    rows: [u8; 16],
}

impl Configuration {
    const NONE: Self = Self {
        palette: 0,
        first_row: 0,
        reserved: [0; 14],
        bytes_of_row: [0; 16],
        rows: [0; 16],
    };

    /// All eight tiles at full size.
    const WHOLE: Self = Self {
        palette: 1,
        bytes_of_row: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
        rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
        ..Self::NONE
    };
}

/// What the processor reports about itself.
#[allow(
    unused_unsafe,
    reason = "in newer versions of Rust than ours, the call is safe"
)]
pub fn processor_id(leaf: u32) -> CpuidResult {
    // SAFETY: every processor of x86-64 has the instruction, which changes nothing else.
    unsafe { __cpuid_count(leaf, 0) }
}

fn processor_has_it() -> bool {
    // AMX-TILE and AMX-INT8.
    const PARTS: u32 = 1 << 24 | 1 << 25;
    // The code around the tile instructions is compiled for AVX-512.
    let has_avx512 = is_x86_feature_detected!("avx512f");
    has_avx512 && processor_id(7).edx & PARTS == PARTS
}

/// On Linux, a process must request permission to use the tile registers.
#[cfg(target_os = "linux")]
fn system_allows_it() -> bool {
    const ARCH_PRCTL: u64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XTILEDATA: u64 = 18;
    let result: i64;
    // SAFETY: this system call reads and writes no memory. It changes the two registers that are named.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn system_allows_it() -> bool {
    false
}

/// The tiles of a thread, configured at full size while [`Amx::with_tiles`] computes. Not `Send`.
pub struct Tiles {
    before: Configuration,
    not_send: PhantomData<*const ()>,
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: a value of this type proves that the processor has the instruction, which reads 64 bytes of a
        // configuration that the processor had.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const self.before, options(nostack, readonly));
        }
    }
}

/// Rows of the left operand, as items of four bytes, in one or two tiles of [`TILE`] rows.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub items: &'a [[u8; 4]],
    /// Items between the starts of two rows.
    pub stride: usize,
    /// Items between a tile and its right neighbor.
    pub step: usize,
    /// Number of rows: [`ROWS`] or [`TILE`].
    pub count: usize,
}

/// Columns of the right operand, in tiles of lines: a line has a four-byte item of each column.
#[derive(Clone, Copy)]
pub struct Columns<'a, L> {
    pub lines: &'a [L],
    /// Lines between a tile and the tile below it.
    pub step: usize,
}

/// Addresses of the operands and the sums.
struct Addresses {
    rows: *const u8,
    /// Bytes from row to row.
    rows_stride: usize,
    /// Bytes from tile to tile.
    rows_step: usize,
    columns: *const u8,
    /// Bytes from tile to tile.
    columns_step: usize,
    /// Tiles per row.
    steps: usize,
    sums: *mut u8,
}

/// Bytes of a line of columns, and of a row of sums.
const LINE: usize = 4 * COLUMNS;

impl Tiles {
    /// Multiplies rows of unsigned bytes by columns of signed bytes, four per item, over `steps` tiles of the
    /// inner dimension. Sums that overflow 32 bits wrap.
    ///
    /// # Panics
    /// When there are no steps, or the sizes do not agree.
    pub fn product<L>(
        &self,
        rows: Rows<'_>,
        columns: Columns<'_, L>,
        steps: usize,
        sums: &mut Sums,
    ) {
        let at = addresses(rows, columns, steps, sums);
        // SAFETY: `addresses` has asserted the sizes.
        unsafe { self.multiply(rows.count, at) }
    }

    /// # Safety
    /// `steps` is not zero. The `count` rows and the columns have that many tiles each, and `count` rows of
    /// `COLUMNS` sums may be written.
    unsafe fn multiply(&self, count: usize, at: Addresses) {
        let second = at.rows.wrapping_add(TILE * at.rows_stride);
        let second_sums = at.sums.wrapping_add(TILE * LINE);
        // SAFETY: a value of this type proves that the processor has the instructions. They access only the
        // memory that the caller promises.
        unsafe {
            if count == TILE {
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "2:",
                    "tileloadd tmm4, [{rows} + {rows_stride}*1]",
                    "tileloadd tmm6, [{columns} + {line}*1]",
                    "tdpbusd tmm0, tmm4, tmm6",
                    "tileloadd tmm7, [{columns} + {line}*1 + 64]",
                    "tdpbusd tmm1, tmm4, tmm7",
                    "add {rows}, {rows_step}",
                    "add {columns}, {columns_step}",
                    "dec {steps}",
                    "jnz 2b",
                    "tilestored [{sums} + {line}*1], tmm0",
                    "tilestored [{sums} + {line}*1 + 64], tmm1",
                    rows = inout(reg) at.rows => _,
                    columns = inout(reg) at.columns => _,
                    steps = inout(reg) at.steps => _,
                    rows_stride = in(reg) at.rows_stride,
                    rows_step = in(reg) at.rows_step,
                    columns_step = in(reg) at.columns_step,
                    line = in(reg) LINE,
                    sums = in(reg) at.sums,
                    out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            } else {
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "2:",
                    "tileloadd tmm4, [{rows} + {rows_stride}*1]",
                    "tileloadd tmm6, [{columns} + {line}*1]",
                    "tdpbusd tmm0, tmm4, tmm6",
                    "tileloadd tmm7, [{columns} + {line}*1 + 64]",
                    "tdpbusd tmm1, tmm4, tmm7",
                    "tileloadd tmm5, [{second} + {rows_stride}*1]",
                    "tdpbusd tmm2, tmm5, tmm6",
                    "tdpbusd tmm3, tmm5, tmm7",
                    "add {rows}, {rows_step}",
                    "add {second}, {rows_step}",
                    "add {columns}, {columns_step}",
                    "dec {steps}",
                    "jnz 2b",
                    "tilestored [{sums} + {line}*1], tmm0",
                    "tilestored [{sums} + {line}*1 + 64], tmm1",
                    "tilestored [{second_sums} + {line}*1], tmm2",
                    "tilestored [{second_sums} + {line}*1 + 64], tmm3",
                    rows = inout(reg) at.rows => _,
                    second = inout(reg) second => _,
                    columns = inout(reg) at.columns => _,
                    steps = inout(reg) at.steps => _,
                    rows_stride = in(reg) at.rows_stride,
                    rows_step = in(reg) at.rows_step,
                    columns_step = in(reg) at.columns_step,
                    line = in(reg) LINE,
                    sums = in(reg) at.sums,
                    second_sums = in(reg) second_sums,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    }
}

/// The addresses of a multiplication. Panics unless its operands have the sizes that it accesses.
fn addresses<L>(
    rows: Rows<'_>,
    columns: Columns<'_, L>,
    steps: usize,
    sums: &mut Sums,
) -> Addresses {
    const { assert!(size_of::<L>() == LINE) };
    assert!(steps > 0 && (rows.count == TILE || rows.count == ROWS));
    let last = |count: usize, stride: usize| (count - 1).checked_mul(stride);
    // The end of the last row of the last tile.
    let end = |row: Option<usize>, step: Option<usize>| row?.checked_add(step?)?.checked_add(TILE);
    let (row, step) = (last(rows.count, rows.stride), last(steps, rows.step));
    assert!(
        end(row, step).is_some_and(|end| end <= rows.items.len()),
        "tiles of rows outside their {} items",
        rows.items.len()
    );
    assert!(
        end(Some(0), last(steps, columns.step)).is_some_and(|end| end <= columns.lines.len()),
        "tiles of columns outside their {} lines",
        columns.lines.len()
    );
    Addresses {
        rows: rows.items.as_ptr().cast(),
        rows_stride: 4 * rows.stride,
        rows_step: 4 * rows.step,
        columns: columns.lines.as_ptr().cast(),
        columns_step: LINE * columns.step,
        steps,
        sums: sums.as_mut_ptr().cast(),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Calls the closure, or prints why not.
    fn with_tiles(test: impl FnOnce(Amx, &Tiles)) {
        match Amx::new() {
            Some(amx) => amx.with_tiles(|tiles| test(amx, tiles)),
            None => println!(
                "not run: this processor has no AMX, or TRANSFORMER_SIMD names older instructions"
            ),
        }
    }

    /// Bytes that depend on their position, and their sums by plain loops.
    #[test]
    fn a_block_has_the_sums_of_its_rows_and_columns() {
        with_tiles(|_, tiles| {
            for [count, steps] in [[TILE, 1], [TILE, 3], [ROWS, 1], [ROWS, 3]] {
                let inputs = 4 * TILE * steps;
                let x = |row: usize, at: usize| ((row * 31 + at * 7) % 256) as u8;
                let weight = |at: usize, column: usize| ((at * 13 + column * 5) % 256) as u8 as i8;
                // Tiles side by side, and one after another; gaps between them are filled with ones.
                for [stride, step, columns_step] in [
                    [TILE * steps + 3, TILE, TILE],
                    [TILE, TILE * ROWS, TILE + 2],
                ] {
                    let mut items = vec![[1; 4]; (count - 1) * stride + (steps - 1) * step + TILE];
                    let mut lines = vec![[[1; 4]; COLUMNS]; (steps - 1) * columns_step + TILE];
                    for at in 0..inputs {
                        let (tile, item, byte) = (at / (4 * TILE), at / 4 % TILE, at % 4);
                        for row in 0..count {
                            items[row * stride + tile * step + item][byte] = x(row, at);
                        }
                        let line = &mut lines[tile * columns_step + item];
                        for (column, bytes) in line.iter_mut().enumerate() {
                            bytes[byte] = weight(at, column);
                        }
                    }
                    let rows = Rows {
                        items: &items,
                        stride,
                        step,
                        count,
                    };
                    let columns = Columns {
                        lines: &lines,
                        step: columns_step,
                    };
                    let mut sums = [[-1; COLUMNS]; ROWS];
                    tiles.product(rows, columns, steps, &mut sums);
                    for (row, sums) in sums.iter().enumerate() {
                        let expected: [i32; COLUMNS] = std::array::from_fn(|column| {
                            let term = |at| i32::from(x(row, at)) * i32::from(weight(at, column));
                            if row < count {
                                (0..inputs).map(term).sum()
                            } else {
                                -1
                            }
                        });
                        assert_eq!(*sums, expected, "{count} rows, {steps} steps, row {row}");
                    }
                }
            }
        });
    }

    /// A tile would extend beyond them.
    #[test]
    fn factors_of_another_size_are_refused() {
        with_tiles(|_, tiles| {
            let product = |[count, items, lines, steps]: [usize; 4]| {
                let items = vec![[0; 4]; items];
                let rows = Rows {
                    items: &items,
                    stride: 2 * TILE,
                    step: TILE,
                    count,
                };
                let lines = vec![[[0_i8; 4]; COLUMNS]; lines];
                let columns = Columns {
                    lines: &lines,
                    step: TILE,
                };
                let mut sums = [[0; COLUMNS]; ROWS];
                let product = || tiles.product(rows, columns, steps, &mut sums);
                catch_unwind(AssertUnwindSafe(product)).is_ok()
            };
            let [items, lines] = [32 * 31 + 32, 32];
            assert!(product([32, items, lines, 2]));
            assert!(!product([32, items - 1, lines, 2]));
            assert!(!product([32, items, lines - 1, 2]));
            assert!(!product([31, items, lines, 2]));
            assert!(!product([32, items, lines, 0]));
            assert!(!product([32, items, lines, usize::MAX]));
        });
    }

    /// Multiplies ones, so that every sum has 64 terms.
    fn check_ones(tiles: &Tiles) {
        let rows = Rows {
            items: &[[1; 4]; TILE * ROWS],
            stride: TILE,
            step: TILE,
            count: ROWS,
        };
        let columns = Columns {
            lines: &[[[1_i8; 4]; COLUMNS]; TILE],
            step: TILE,
        };
        let mut sums = [[0; COLUMNS]; ROWS];
        tiles.product(rows, columns, 1, &mut sums);
        assert_eq!(sums, [[64; COLUMNS]; ROWS]);
    }

    /// The tile configuration of other code on the thread is restored.
    #[test]
    fn tiles_are_set_up_as_before_afterwards() {
        with_tiles(|amx, tiles| {
            check_ones(tiles);
            amx.with_tiles(check_ones);
            check_ones(tiles);
        });
    }
}
