//! The threads that compute on a processor.

/// Makes this thread one of the threads of rayon's pool, which compute the kernels of flex and ndarray, unless the pool
/// has only one. To be called once, by the program's first thread.
///
/// A thread outside the pool wakes one of the pool for every operation, and sleeps until it is done; a thread of the pool
/// begins with a task itself. A step of training has thousands of operations.
///
/// The pool's only thread cannot be this one: while this thread waits for sentences that another one reads, the tasks of that
/// one would wait for this thread.
#[cfg(any(feature = "ndarray", feature = "flex"))]
pub fn compute_on_this_thread() {
    use rayon::ThreadPoolBuilder;

    let count = match std::env::var("RAYON_NUM_THREADS").map(|count| count.parse()) {
        Ok(Ok(count @ 1..)) => count,
        // As rayon does.
        _ => std::thread::available_parallelism().map_or(1, usize::from),
    };
    if count > 1 {
        let pool = ThreadPoolBuilder::new().num_threads(count);
        // With an error there is a pool already, which does without this thread.
        let _ = pool.use_current_thread().build_global();
    }
}

/// No backend computes on rayon's threads.
#[cfg(not(any(feature = "ndarray", feature = "flex")))]
pub fn compute_on_this_thread() {}
