//! The threads that compute on the CPU.

use std::error::Error;
use std::ffi::OsString;
use std::num::IntErrorKind;
use std::{env, mem, thread};

use rayon::ThreadPoolBuilder;

/// The environment variable for the number of threads.
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// The maximum number of threads on a machine with fewer processors. More threads than processors are not faster. Each
/// idle thread of rayon looks for work in the queues of all others, which takes time that grows with the square of the
/// number of threads.
const MOST_THREADS: usize = 64;

/// Makes this thread one of the threads that compute the kernels of flex and ndarray. To be called once, by the
/// program's first thread.
///
/// For every operation, a thread outside rayon's pool wakes a thread of the pool, and sleeps until the operation is
/// done. A thread of the pool starts with a task itself. A training step has thousands of operations.
///
/// With one thread, this thread gets a pool of its own. It cannot be the only thread of the pool of all threads: while it
/// waits for sentences that another thread reads, the tasks of that thread would wait for this one.
///
/// # Errors
/// When `RAYON_NUM_THREADS` is not a number, or the threads cannot be started.
pub fn compute_on_this_thread() -> Result<(), String> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let most = processors.max(MOST_THREADS);
    let asked = asked_threads(env::var_os(VARIABLE))?;
    let count = asked.unwrap_or(processors).min(most);
    if asked.is_some_and(|asked| asked > most) {
        super::note(format_args!(
            "{VARIABLE}: using {most} threads on {processors} processors; more would be slower"
        ));
    }
    let pool = ThreadPoolBuilder::new()
        .num_threads(count)
        .use_current_thread();
    let built = match count {
        // The pool lasts as long as the program.
        1 => pool.build().map(mem::forget),
        _ => pool.build_global(),
    };
    match built {
        Err(error) if error.source().is_some() => Err(format!(
            "{count} threads cannot be started: {error}; lower {VARIABLE}"
        )),
        // Any other error means that there is a pool already. It works without this thread.
        _ => Ok(()),
    }
}

/// The number of threads that the variable sets; `None` if it is empty, unset or 0, as for rayon.
fn asked_threads(variable: Option<OsString>) -> Result<Option<usize>, String> {
    let Some(text) = variable.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    match text.parse() {
        Ok(0) => Ok(None),
        Ok(count) => Ok(Some(count)),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(Some(usize::MAX)),
        Err(_) => Err(format!(
            "{VARIABLE}={text}: must be a whole number of threads"
        )),
    }
}
