//! The limits of every input: it may not panic on any thread, keep more memory than 64 MiB and 100 times
//! its size, or last longer than ten seconds. An input that breaks one is saved. A failure that ends the
//! process, such as a stack overflow, is seen by [`supervise`](crate::supervise).

use std::fs;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use transformer_program::memory::{limit_live_bytes, live_bytes, on_excess};

use crate::console::say;

/// Bytes that any input may keep, and those for each of its own.
const BASE: usize = 64 << 20;
const FACTOR: usize = 100;
/// The longest that an input may take.
const LONGEST: Duration = Duration::from_secs(10);

/// The input that is read now.
struct Current {
    target: &'static str,
    input: Vec<u8>,
    since: Instant,
}

static CURRENT: Mutex<Option<Current>> = Mutex::new(None);
/// The file that has the input that is read now, for the supervisor.
static CURRENT_FILE: OnceLock<PathBuf> = OnceLock::new();
/// Panics since the input was begun.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Whether a panic is expected now.
static EXPECTED: AtomicBool = AtomicBool::new(false);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to watch this process; `current` is the file for the input that is read.
pub fn install(current: PathBuf) {
    CURRENT_FILE.get_or_init(|| current);
    std::panic::set_hook(Box::new(|panic| {
        if !EXPECTED.load(Ordering::Relaxed) {
            lock(&PANICS).push(described(panic));
        }
    }));
    on_excess(|bytes| {
        let mib = bytes >> 20;
        end(&format!("more memory than the limit: {mib} MiB in all"));
    });
    thread::spawn(|| {
        loop {
            thread::sleep(Duration::from_millis(500));
            let current = lock(&CURRENT);
            let is_late = current
                .as_ref()
                .is_some_and(|current| current.since.elapsed() > LONGEST);
            drop(current);
            if is_late {
                end(&format!("more than {} seconds", LONGEST.as_secs()));
            }
        }
    });
}

/// A panic in one line: its place and its message.
fn described(panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map_or(String::new(), ToString::to_string);
    let message = panic.payload_as_str().unwrap_or("no message");
    let message: String = message.chars().take(300).collect();
    format!("panic at {place}: {}", message.replace('\n', " "))
}

/// Saves the input that is read now, and ends the process.
fn end(problem: &str) {
    let current = lock(&CURRENT).take();
    if let Some(Current { target, input, .. }) = current {
        report(target, &input, problem);
    }
    exit(1);
}

/// Reads an input. Returns whether it was accepted, or the limit that it broke.
pub fn watched(
    target: &'static str,
    input: &[u8],
    run: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<bool, String> {
    if let Some(file) = CURRENT_FILE.get() {
        // Without it the supervisor knows the target at most.
        let _ = fs::write(file, [target.as_bytes(), b"\n", input].concat());
    }
    *lock(&CURRENT) = Some(Current {
        target,
        input: input.to_vec(),
        since: Instant::now(),
    });
    limit_live_bytes(live_bytes() + BASE + FACTOR * input.len());
    let result = catch_unwind(AssertUnwindSafe(|| run(input)));
    limit_live_bytes(usize::MAX);
    *lock(&CURRENT) = None;
    let panics = std::mem::take(&mut *lock(&PANICS));
    match (result, panics.into_iter().next()) {
        (Ok(accepted), None) => Ok(accepted),
        (_, Some(panic)) => Err(panic),
        (Err(_), None) => Err("a panic without a message".into()),
    }
}

/// Whether a call panics, which must happen here.
pub fn panics(call: impl FnOnce()) -> bool {
    EXPECTED.store(true, Ordering::Relaxed);
    let result = catch_unwind(AssertUnwindSafe(call));
    EXPECTED.store(false, Ordering::Relaxed);
    result.is_err()
}

/// Saves an input under the name of its target and a hash of it, and prints how to read it again.
pub fn report(target: &str, input: &[u8], problem: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("found")
        .join(target);
    let path = folder.join(format!("{:016x}", hash(input)));
    let saved = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, input));
    say(format_args!("{target}: {problem}"));
    match saved {
        Ok(()) => say(format_args!(
            "  {} bytes in {path}\n  again: scripts/fuzz --target {target} --replay {path}",
            input.len(),
            path = path.display()
        )),
        Err(error) => say(format_args!("  {}: {error}", path.display())),
    }
}

/// FNV-1a.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
