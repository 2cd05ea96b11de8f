//! The threads that compute on a processor.

use std::error::Error;
use std::ffi::OsString;
use std::num::IntErrorKind;
use std::{env, thread};

use rayon::ThreadPoolBuilder;

/// The environment variable of the number of threads.
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// The most threads on a machine with fewer processors. More than there are processors compute nothing faster, and
/// each of rayon's idle threads looks for work in the queues of all others: the time of that grows with the square of
/// their number.
const MOST_THREADS: usize = 64;

/// Makes this thread one of the threads of rayon's pool, which compute the kernels of flex and ndarray, unless the pool
/// has only one. To be called once, by the program's first thread.
///
/// A thread outside the pool wakes one of the pool for every operation, and sleeps until it is done; a thread of the pool
/// begins with a task itself. A step of training has thousands of operations.
///
/// The pool's only thread cannot be this one: while this thread waits for sentences that another one reads, the tasks of that
/// one would wait for this thread.
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
            "{VARIABLE}: {most} threads compute, on {processors} processors; more would be slower"
        ));
    }
    if count == 1 {
        return Ok(());
    }
    let pool = ThreadPoolBuilder::new().num_threads(count);
    match pool.use_current_thread().build_global() {
        Err(error) if error.source().is_some() => Err(format!(
            "{count} threads cannot be started: {error}; a smaller {VARIABLE} starts fewer"
        )),
        // Any other error: there is a pool already, which does without this thread.
        _ => Ok(()),
    }
}

/// The number of threads that the variable asks for; `None` where it does not, also by 0, as for rayon.
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
