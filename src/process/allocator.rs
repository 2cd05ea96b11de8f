//! An allocator that keeps the pages of freed tensors for the next ones.
//!
//! glibc's allocator returns large blocks to the system immediately, and page faults then take half of a training step on
//! the CPU. jemalloc returns blocks of 8 MiB and more immediately, and any block after some seconds; its settings here
//! switch off both. For zeroed memory, jemalloc asks the system for new pages; here, a block is allocated as usual, and
//! zeros are written to it. libtorch uses this allocator, too.
//!
//! Not all kept pages are used again: blocks of many sizes leave gaps into which no later block fits. A training run
//! therefore returns all free pages once a minute ([`give_pages_back_each_minute`]), which costs the page faults of part of
//! a step.

#![allow(unsafe_code, reason = "an allocator's interface is unsafe")]

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use tikv_jemallocator::Jemalloc;

/// The allocator of every program of this package.
#[global_allocator]
static ALLOCATOR: PageKeeper = PageKeeper;

/// jemalloc's settings, which it looks up under this name. The last setting lets a small tensor use a part of a freed
/// block of any size. By default, the tensor would get new pages, and memory would grow without limit.
// SAFETY: jemalloc's own symbol of this name is weak, so that this one replaces it. It has the type that jemalloc
// declares: a pointer to text that ends with a zero, and that lives as long as the program.
#[used]
#[unsafe(export_name = "malloc_conf")]
static SETTINGS: &[u8; 67] =
    b"oversize_threshold:0,dirty_decay_ms:-1,lg_extent_max_active_fit:16\0";

/// jemalloc, except that zeros are written here, and that blocks are counted if a test needs that.
struct PageKeeper;

// SAFETY: every block is allocated by jemalloc with the requested layout. None of the methods panics, and counting
// touches no block.
unsafe impl GlobalAlloc for PageKeeper {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(0, layout.size());
        // SAFETY: jemalloc has the same contract as this method, which the caller upholds.
        unsafe { Jemalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(0, layout.size());
        // SAFETY: jemalloc has the same contract as this method, which the caller upholds.
        let block = unsafe { Jemalloc.alloc(layout) };
        // Hides the origin of the block, because the compiler would turn `malloc` and zeros into `calloc`.
        let block = black_box(block);
        if !block.is_null() {
            // SAFETY: the block has this many bytes, and nothing else refers to it yet.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(layout.size(), 0);
        // SAFETY: jemalloc allocated the block, as it does all blocks, and has the same contract as this method, which
        // the caller upholds.
        unsafe { Jemalloc.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), size);
        // SAFETY: jemalloc allocated the block, as it does all blocks, and has the same contract as this method, which
        // the caller upholds.
        unsafe { Jemalloc.realloc(block, layout, size) }
    }
}

/// Returns the pages of freed blocks to the system once a minute, for as long as the program runs.
pub fn give_pages_back_each_minute() {
    let each_minute = || loop {
        thread::sleep(Duration::from_mins(1));
        give_pages_back();
    };
    // Without the thread, the run only needs more memory.
    let _ = thread::Builder::new().spawn(each_minute);
}

/// Returns the pages of freed blocks to the system.
fn give_pages_back() {
    // Purges all arenas: 4096 is jemalloc.h's MALLCTL_ARENAS_ALL.
    let purge = c"arena.4096.purge";
    // SAFETY: the name ends with a zero, and this control neither reads nor writes memory of the caller. jemalloc returns
    // only pages without a block, and any thread may request that.
    let error = unsafe {
        tikv_jemalloc_sys::mallctl(purge.as_ptr(), null_mut(), null_mut(), null_mut(), 0)
    };
    debug_assert_eq!(error, 0, "jemalloc knows the name");
}

/// Counts the bytes of a freed and of an allocated block.
#[cfg(feature = "count-memory")]
fn count(freed: usize, allocated: usize) {
    match allocated.checked_sub(freed) {
        Some(more) => super::memory::allocated(more),
        None => super::memory::freed(freed - allocated),
    }
}

#[cfg(not(feature = "count-memory"))]
fn count(_freed: usize, _allocated: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of some bytes, of pages, and above what jemalloc keeps by default.
    const SIZES: [usize; 5] = [1, 100, 5000, 1 << 16, 9 << 20];

    /// Freed memory is not zero.
    #[test]
    fn zeros_are_zeros_in_memory_that_was_used() {
        for size in SIZES {
            for _ in 0..10 {
                drop(black_box(vec![0xff_u8; size]));
                let zeros = black_box(vec![0_u8; size]);
                assert!(zeros.iter().all(|&byte| byte == 0), "{size} bytes");
            }
        }
    }

    /// New pages would cost a page fault per 4 KiB. Also to be tried in an optimised build: `cargo test --release --lib`.
    #[cfg(target_os = "linux")]
    #[test]
    fn zeros_need_no_new_pages() {
        let faults = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // The tenth field of the line. The second field is the name of the thread.
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            fields.split(' ').nth(7).unwrap().parse::<usize>().unwrap()
        };
        let more = || {
            let before = faults();
            (0..10).for_each(|_| drop(black_box(vec![0_u8; 9 << 20])));
            faults() - before
        };
        // The first block has new pages, and so may other first allocations.
        more();
        let more = more();
        // Out of 23 040. Another test may allocate a block at the same time.
        assert!(more < 10_000, "{more} page faults");
    }

    /// Until then, pages are kept, and the contents of blocks never change.
    #[cfg(target_os = "linux")]
    #[test]
    fn pages_are_given_back_when_asked_for() {
        const MIB: usize = 1 << 20;
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let (_, resident) = status.split_once("VmRSS:").unwrap();
            let kib = resident.split_whitespace().next().unwrap();
            kib.parse::<usize>().unwrap() << 10
        };
        let kept = black_box(vec![0xff_u8; 3 * MIB]);
        let before = resident();
        drop(black_box(vec![0xff_u8; 256 * MIB]));
        let freed = resident();
        give_pages_back();
        let after = resident();
        // Other tests need less memory at the same time.
        assert!(freed > before + 192 * MIB, "{before} {freed}");
        assert!(after < freed - 192 * MIB, "{freed} {after}");
        assert!(kept.iter().all(|&byte| byte == 0xff));
    }

    #[test]
    fn numbers_stay_when_their_block_grows_or_shrinks() {
        let mut bytes: Vec<u8> = Vec::new();
        for size in SIZES {
            let grown = (bytes.len()..size).map(|at| (at % 251) as u8);
            bytes.extend(grown);
            bytes.shrink_to_fit();
            let expected = (0..size).map(|at| (at % 251) as u8);
            assert!(bytes.iter().copied().eq(expected), "{size} bytes");
        }
        bytes.truncate(300);
        bytes.shrink_to_fit();
        assert!(
            bytes
                .iter()
                .copied()
                .eq((0..300).map(|at| (at % 251) as u8))
        );
    }

    #[test]
    fn blocks_are_aligned() {
        #[derive(Clone)]
        #[repr(align(4096))]
        struct Page([u8; 4096]);
        for pages in [1, 3, 100] {
            let pages = black_box(vec![Page([1; 4096]); pages]);
            assert_eq!(pages.as_ptr().addr() % 4096, 0);
            assert!(pages.iter().all(|page| page.0 == [1; 4096]));
        }
    }

    /// jemalloc reads them as text that ends with a zero.
    #[test]
    fn settings_end_with_a_zero() {
        assert_eq!(SETTINGS.iter().position(|&byte| byte == 0), Some(66));
    }
}
