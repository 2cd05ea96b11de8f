//! jemalloc, its settings, and the call that returns pages.

#![allow(unsafe_code, reason = "an allocator's interface is unsafe")]

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::ptr::null_mut;

use tikv_jemallocator::Jemalloc;

/// jemalloc's settings, which it looks up under this name. The last setting lets a small tensor use a part of a freed
/// block of any size. By default, the tensor would get new pages, and memory would grow without limit.
// SAFETY: jemalloc's own symbol of this name is weak, so that this one replaces it. It has the type that jemalloc
// declares: a pointer to text that ends with a zero, and that lives as long as the program.
#[used]
#[cfg_attr(
    not(any(
        target_vendor = "apple",
        target_os = "android",
        target_os = "dragonfly"
    )),
    unsafe(export_name = "malloc_conf")
)]
// There, tikv-jemalloc-sys builds jemalloc with a prefix.
#[cfg_attr(
    any(
        target_vendor = "apple",
        target_os = "android",
        target_os = "dragonfly"
    ),
    unsafe(export_name = "_rjem_malloc_conf")
)]
static SETTINGS: &[u8; 67] =
    b"oversize_threshold:0,dirty_decay_ms:-1,lg_extent_max_active_fit:16\0";

// No zero before the last byte, and one there.
const _: () = assert!(std::ffi::CStr::from_bytes_with_nul(SETTINGS).is_ok());

/// An allocator that keeps the pages of freed blocks: jemalloc, except that zeros are written here. On systems that are
/// not Unix, it is the system's allocator.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageKeeper;

// SAFETY: every block is allocated by jemalloc with the requested layout. None of the methods panics.
unsafe impl GlobalAlloc for PageKeeper {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: jemalloc has the same contract as this method, which the caller upholds.
        unsafe { Jemalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
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

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: jemalloc allocated the block, as it does all blocks, and has the same contract as this method, which
        // the caller upholds.
        unsafe { Jemalloc.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: jemalloc allocated the block, as it does all blocks, and has the same contract as this method, which
        // the caller upholds.
        unsafe { Jemalloc.realloc(block, layout, size) }
    }
}

/// Returns the pages of freed blocks to the system. Does nothing if [`PageKeeper`] is the system's allocator.
pub fn return_pages() {
    // Purges all arenas: 4096 is jemalloc.h's MALLCTL_ARENAS_ALL.
    let purge = c"arena.4096.purge";
    // SAFETY: the name ends with a zero, and this control neither reads nor writes memory of the caller. jemalloc
    // returns only pages without a block, and any thread may request that.
    let error = unsafe {
        tikv_jemalloc_sys::mallctl(purge.as_ptr(), null_mut(), null_mut(), null_mut(), 0)
    };
    debug_assert_eq!(error, 0, "jemalloc knows the name");
}
