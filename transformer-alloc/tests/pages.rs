//! The allocator of a program that uses this crate: blocks are sound, and their pages are kept until they are returned.

use std::hint::black_box;

#[global_allocator]
static ALLOCATOR: transformer_alloc::PageKeeper = transformer_alloc::PageKeeper;

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

/// New pages would cost a page fault per 4 KiB: without the settings of the crate, and without zeros of its own, this
/// test fails. To be tried in an optimized build, too.
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
        for _ in 0..10 {
            let mut block = black_box(vec![0_u8; 9 << 20]);
            block.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
            drop(black_box(block));
        }
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
fn pages_are_returned_on_request() {
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
    transformer_alloc::return_pages();
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
