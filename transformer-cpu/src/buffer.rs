//! Reusable memory, new memory filled by tasks, and the sizes of tasks.

use std::mem::MaybeUninit;

use rayon::prelude::*;

/// Values per task of a thread. It does not depend on the number of threads, so neither do sums.
pub const TASK: usize = 16_384;

/// Rows of a given width per task of a thread.
pub fn rows_of_task(width: usize) -> usize {
    (TASK / width.max(1)).max(1)
}

/// Values in the rows of a task; at least one, as `chunks` requires.
pub fn task_of_rows(width: usize) -> usize {
    rows_of_task(width) * width.max(1)
}

/// The first `count` values of a buffer, which grows if it is shorter. They keep the values of its last use.
///
/// ```
/// use transformer_cpu::sized;
///
/// let mut buffer = vec![7.0];
/// assert_eq!(sized(&mut buffer, 3), [7.0, 0.0, 0.0]);
/// assert_eq!(sized(&mut buffer, 2), [7.0, 0.0]);
/// ```
pub fn sized(buffer: &mut Vec<f32>, count: usize) -> &mut [f32] {
    if buffer.len() < count {
        buffer.resize(count, 0.0);
    }
    &mut buffer[..count]
}

/// Four-byte values per cache line.
pub const LINE: usize = 16;

/// Rounds a number of four-byte values up to an odd number of cache lines: a stride at which successive rows map
/// to different cache sets.
pub fn odd_lines(numbers: usize) -> usize {
    numbers.next_multiple_of(LINE) | LINE
}

/// `len` new values, written on all threads in tasks of `task` values each; the last task may have fewer. `write`
/// receives the index of a task and its values, which are zero.
///
/// # Panics
/// When `task` is zero, or `write` panics.
pub fn by_tasks(len: usize, task: usize, write: impl Fn(usize, &mut [f32]) + Sync) -> Vec<f32> {
    by_tasks_with(len, task, write).0
}

/// [`by_tasks`], also returning the results of `write`, in the order of the tasks.
///
/// Each task zeroes its own values: if this thread zeroed all of them, the others would wait.
pub fn by_tasks_with<R: Send>(
    len: usize,
    task: usize,
    write: impl Fn(usize, &mut [f32]) -> R + Sync,
) -> (Vec<f32>, Vec<R>) {
    let mut numbers = Vec::with_capacity(len);
    let results = numbers.spare_capacity_mut()[..len]
        .par_chunks_mut(task)
        .enumerate()
        .map(|(index, numbers)| {
            numbers.fill(MaybeUninit::new(0.0));
            #[allow(unsafe_code, reason = "memory that has been initialized")]
            // SAFETY: every number has just been set.
            let numbers = unsafe { &mut *(std::ptr::from_mut(numbers) as *mut [f32]) };
            write(index, numbers)
        })
        .collect();
    #[allow(unsafe_code, reason = "tasks write into uninitialized memory")]
    // SAFETY: the capacity is `len` at least. Each number belongs to a task, which has set it; if one had panicked, so
    // would `collect` have.
    unsafe {
        numbers.set_len(len);
    }
    (numbers, results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "task 2")]
    fn a_panic_in_a_task_reaches_the_caller() {
        by_tasks(10, 3, |task, _| assert_ne!(task, 2, "task {task}"));
    }

    /// Whole tasks, a partial task, and none. Reused memory is zeroed, too.
    #[test]
    fn each_task_receives_its_numbers_and_they_are_zero() {
        for (len, task) in [(0, 3), (2, 3), (9, 3), (10, 3)] {
            drop(vec![f32::NAN; len]);
            let (numbers, lens) = by_tasks_with(len, task, |index, numbers| {
                assert!(numbers.iter().all(|x| *x == 0.0));
                for (at, x) in numbers.iter_mut().enumerate() {
                    *x = (index * task + at) as f32;
                }
                numbers.len()
            });
            let expected: Vec<f32> = (0..len).map(|at| at as f32).collect();
            assert_eq!(numbers, expected);
            assert_eq!(lens.iter().sum::<usize>(), len);
            assert!(lens.iter().rev().skip(1).all(|len| *len == task));
        }
    }
}
