//! Where there is no jemalloc.

#![allow(unsafe_code, reason = "an allocator's interface is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, on systems that are not Unix; elsewhere, an allocator that keeps the pages of freed blocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageKeeper;

// SAFETY: each method is the one of the system's allocator, which has the same contract.
unsafe impl GlobalAlloc for PageKeeper {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the system allocated the block, as it does all blocks, and the caller upholds the contract.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the system allocated the block, as it does all blocks, and the caller upholds the contract.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// Does nothing: the system's allocator keeps the pages that it wants to keep.
pub fn return_pages() {}
