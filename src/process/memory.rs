//! Counts the bytes of all blocks of the allocator, so that a test can limit them. The feature `count-memory` turns
//! this on; it costs two additions per block.

#![allow(unsafe_code, reason = "an allocator's interface is unsafe")]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use transformer_alloc::PageKeeper;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
static OVER: OnceLock<fn(usize)> = OnceLock::new();

/// The allocator of every program of this package, which counts.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// [`PageKeeper`], and a count of its bytes.
struct Counting;

// SAFETY: each method is the one of `PageKeeper`, which has the same contract. Counting touches no block, and does not
// panic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { PageKeeper.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { PageKeeper.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: `PageKeeper` allocated the block, as it does all blocks, and the caller upholds the contract.
        unsafe { PageKeeper.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match size.checked_sub(layout.size()) {
            Some(more) => allocated(more),
            None => freed(layout.size() - size),
        }
        // SAFETY: `PageKeeper` allocated the block, as it does all blocks, and the caller upholds the contract.
        unsafe { PageKeeper.realloc(block, layout, size) }
    }
}

/// The bytes of all blocks that are not freed.
pub fn live_bytes() -> usize {
    LIVE.load(Relaxed)
}

/// Limits the live bytes. The first block that would exceed the limit calls the function of [`on_excess`] and removes
/// the limit.
pub fn limit_live_bytes(limit: usize) {
    LIMIT.store(limit, Relaxed);
}

/// Sets the function that is called with the bytes that would be live. It runs within the allocator: it may allocate,
/// but must not panic.
pub fn on_excess(over: fn(usize)) {
    OVER.get_or_init(|| over);
}

/// Counts a block that is about to be allocated.
fn allocated(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed).wrapping_add(bytes);
    let limit = LIMIT.load(Relaxed);
    let is_first = || {
        let taken = LIMIT.compare_exchange(limit, usize::MAX, Relaxed, Relaxed);
        taken.is_ok()
    };
    if live > limit
        && is_first()
        && let Some(over) = OVER.get()
    {
        over(live);
    }
}

/// Counts a block that is freed.
fn freed(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}
