//! Counts the bytes of all blocks of the allocator, so that a test can limit them. The feature `count-memory` turns this
//! on; it costs two additions per block.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
static OVER: OnceLock<fn(usize)> = OnceLock::new();

/// The bytes of all blocks that are not freed; 0 with the system's allocator, as on Windows.
pub fn live_bytes() -> usize {
    LIVE.load(Relaxed)
}

/// Limits the live bytes. The first block that would exceed the limit calls the function of [`on_excess`] and removes the
/// limit.
pub fn limit_live_bytes(limit: usize) {
    LIMIT.store(limit, Relaxed);
}

/// Sets the function that is called with the bytes that would be live. It runs within the allocator: it may allocate, but
/// must not panic.
pub fn on_excess(over: fn(usize)) {
    OVER.get_or_init(|| over);
}

/// Counts a block that is about to be allocated.
pub(crate) fn allocated(bytes: usize) {
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
pub(crate) fn freed(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}
