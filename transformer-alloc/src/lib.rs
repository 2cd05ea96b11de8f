//! An allocator that keeps the pages of freed tensors for the next ones. One line makes it the allocator of a program:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: transformer_alloc::PageKeeper = transformer_alloc::PageKeeper;
//!
//! fn main() {
//!     // Where a run of hours begins.
//!     transformer_alloc::return_pages_each_minute();
//!     let zeros = vec![0_f32; 1 << 20];
//!     assert_eq!(zeros[1 << 19], 0.0);
//! }
//! ```
//!
//! # Why
//! glibc's allocator returns large blocks to the system immediately, and page faults then take half of a training step
//! on the CPU. jemalloc returns blocks of 8 MiB and more immediately, and any block after some seconds; its settings
//! here switch off both. For zeroed memory, jemalloc asks the system for new pages; here, a block is allocated as
//! usual, and zeros are written to it. On Linux, libraries in C and C++ such as libtorch use this allocator, too.
//!
//! Not all kept pages are used again: blocks of many sizes leave gaps into which no later block fits. A program that
//! trains for hours therefore returns all free pages once a minute ([`return_pages_each_minute`]), which costs the page
//! faults of part of a step.
//!
//! # Other systems
//! jemalloc is used on Unix. Elsewhere, [`PageKeeper`] is the system's allocator, and the functions do nothing. It is
//! tested on Linux.

#[cfg(unix)]
mod jemalloc;
#[cfg(not(unix))]
mod system;

#[cfg(unix)]
pub use jemalloc::{PageKeeper, return_pages};
#[cfg(not(unix))]
pub use system::{PageKeeper, return_pages};

/// Returns the pages of freed blocks to the system once a minute, for as long as the program runs. Does nothing if
/// [`PageKeeper`] is the system's allocator.
pub fn return_pages_each_minute() {
    #[cfg(unix)]
    {
        use std::thread;
        use std::time::Duration;

        let each_minute = || loop {
            thread::sleep(Duration::from_mins(1));
            return_pages();
        };
        // Without the thread, the run only needs more memory.
        let _ = thread::Builder::new().spawn(each_minute);
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
