//! An allocator that keeps the pages of freed tensors for the next ones.
//!
//! glibc's returns large blocks to the system at once, and half of a training step on the CPU is then
//! spent on page faults. jemalloc does so in two cases: with blocks of 8 MiB and more, which a setting
//! changes, and where zeros are asked for, which are written here. It serves libtorch, too.

#![cfg(unix)]
#![allow(unsafe_code, reason = "an allocator's interface is unsafe")]

use std::alloc::{GlobalAlloc, Layout};

use tikv_jemallocator::Jemalloc;

/// The allocator of every program of this package.
#[global_allocator]
static ALLOCATOR: PageKeeper = PageKeeper;

/// What jemalloc looks for by this name: its settings.
#[used]
#[unsafe(export_name = "malloc_conf")]
static SETTINGS: &[u8; 42] = b"oversize_threshold:0,dirty_decay_ms:30000\0";

/// jemalloc, but for zeros.
struct PageKeeper;

// SAFETY: every call is jemalloc's; zeros are written to a block of that size.
unsafe impl GlobalAlloc for PageKeeper {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe { Jemalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = unsafe { Jemalloc.alloc(layout) };
        if !block.is_null() {
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { Jemalloc.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        unsafe { Jemalloc.realloc(block, layout, size) }
    }
}
