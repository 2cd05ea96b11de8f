//! An allocator that keeps the pages of freed tensors for the next ones.
//!
//! glibc's returns large blocks to the system at once, and half of a training step on the CPU is then
//! spent on page faults. jemalloc returns blocks of 8 MiB and more, and any block after some seconds: both
//! are switched off by its settings. For zeroed memory it asks the system for new pages: here, a block is
//! allocated like any other, and zeros are written to it. libtorch allocates with it, too.

#![cfg(unix)]
#![allow(unsafe_code, reason = "an allocator's interface is unsafe")]

use std::alloc::{GlobalAlloc, Layout};

use tikv_jemallocator::Jemalloc;

/// The allocator of every program of this package.
#[global_allocator]
static ALLOCATOR: PageKeeper = PageKeeper;

/// jemalloc's settings, which it looks for under this name. The last lets a small tensor have a part of a
/// freed block of any size; by default it would get new pages, and memory would grow without end.
#[used]
#[unsafe(export_name = "malloc_conf")]
static SETTINGS: &[u8; 67] =
    b"oversize_threshold:0,dirty_decay_ms:-1,lg_extent_max_active_fit:16\0";

/// jemalloc, except that zeros are written here, and that blocks are counted where a test asks for that.
struct PageKeeper;

// SAFETY: every call is jemalloc's; zeros are written to a block of that size. Counting touches no block.
unsafe impl GlobalAlloc for PageKeeper {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(0, layout.size());
        unsafe { Jemalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(0, layout.size());
        let block = unsafe { Jemalloc.alloc(layout) };
        if !block.is_null() {
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(layout.size(), 0);
        unsafe { Jemalloc.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), size);
        unsafe { Jemalloc.realloc(block, layout, size) }
    }
}

/// Counts a block that is freed and one that is allocated, of these bytes.
#[cfg(feature = "count-memory")]
fn count(freed: usize, allocated: usize) {
    match allocated.checked_sub(freed) {
        Some(more) => crate::memory::allocated(more),
        None => crate::memory::freed(freed - allocated),
    }
}

#[cfg(not(feature = "count-memory"))]
fn count(_freed: usize, _allocated: usize) {}
