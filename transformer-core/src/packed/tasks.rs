//! The distribution of work on several sources over rayon's threads: each thread computes a whole step of its own
//! sources, so that threads synchronize once per step.

use std::mem;
use std::ops::Range;

use rayon::prelude::*;

use transformer_cpu::{PackedPrecision, Threads};

/// The fewest multiplications in a step that several threads compute. They synchronize after each matrix
/// multiplication: in a smaller step, they would spend most of their time waiting.
const LEAST_WORK: usize = 1 << 26;

/// A matrix multiplication with fewer rows takes as long as one with this many: the time to read its weights.
const READING: usize = 8;

/// The fewest rows per task, on average. With fewer, a task would spend most of its time reading the weights.
const ROWS: usize = 16;

/// The threads for a step that multiplies `rows` rows by `weights` weights.
pub fn threads(
    rows: usize,
    weights: usize,
    precision: PackedPrecision,
    threads: Threads,
) -> Threads {
    // Four multiplications in 8 bits take as long as one in f32.
    let at_once = match precision {
        PackedPrecision::F32 => 1,
        PackedPrecision::Int8 => 4,
    };
    let work = rows.max(READING).saturating_mul(weights / at_once);
    match work < LEAST_WORK {
        true => Threads::This,
        false => threads,
    }
}

/// The number of tasks for this many rows.
pub fn count(rows: usize, threads: Threads) -> usize {
    match threads {
        Threads::This => 1,
        Threads::All => (rows / ROWS).clamp(1, rayon::current_num_threads()),
    }
}

/// Divides items, with the given numbers of rows, into tasks with about equal numbers of rows.
pub fn deal(rows: &[usize], threads: Threads) -> Vec<Range<usize>> {
    let all: usize = rows.iter().sum();
    let count = count(all, threads);
    let mut ends = vec![0; count];
    let mut before = 0;
    for (index, rows) in rows.iter().enumerate() {
        // The task whose range of rows contains the middle of the item.
        let task = (before + rows / 2) * count / all.max(1);
        ends[task.min(count - 1)] = index + 1;
        before += rows;
    }
    let mut first = 0;
    let tasks = ends.into_iter().filter(|&end| end > 0);
    tasks
        .map(|end| mem::replace(&mut first, end)..end)
        .collect()
}

/// Runs tasks in parallel, each on one thread; a single task uses `threads` for its matrix multiplications. The results
/// are in the order of the tasks.
///
/// A single task with all threads starts on a thread of the pool: from any other thread, each matrix multiplication
/// would be handed over and waited for.
pub fn run<T: Send, R: Send>(
    tasks: Vec<T>,
    threads: Threads,
    compute: impl Fn(T, Threads) -> R + Send + Sync,
) -> Vec<R> {
    match tasks.len() {
        0 | 1 => {
            let tasks = tasks.into_iter();
            let compute_all = || tasks.map(|task| compute(task, threads)).collect();
            match threads {
                Threads::This => compute_all(),
                Threads::All => rayon::scope(|_| compute_all()),
            }
        }
        _ => {
            let tasks = tasks.into_par_iter();
            tasks.map(|task| compute(task, Threads::This)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_dealt_in_order_and_evenly() {
        for rows in [
            vec![],
            vec![0],
            vec![3],
            vec![1; 15],
            vec![1; 16],
            vec![4; 100],
            vec![90, 1, 1, 1],
            vec![1, 1, 1, 90],
            (1..60).rev().collect(),
        ] {
            let tasks = deal(&rows, Threads::All);
            let all: usize = rows.iter().sum();
            let items: Vec<usize> = tasks.iter().cloned().flatten().collect();
            assert_eq!(items, (0..rows.len()).collect::<Vec<_>>());
            assert!(tasks.len() <= count(all, Threads::All));
            assert!(deal(&rows, Threads::This).len() <= 1);
            let most = rows.iter().max().copied().unwrap_or(0);
            for task in tasks {
                let own: usize = rows[task].iter().sum();
                assert!(
                    own <= all / count(all, Threads::All) + most + 1,
                    "{own} of {rows:?}"
                );
            }
        }
    }

    #[test]
    fn a_step_of_little_work_is_one_thread_s() {
        use PackedPrecision::{F32, Int8};
        let all = |rows, weights, precision| {
            threads(rows, weights, precision, Threads::All) == Threads::All
        };
        // A token of a model with two million weights, and of one with sixty million.
        assert!(!all(1, 2_000_000, F32));
        assert!(all(1, 60_000_000, F32));
        assert!(all(64, 2_000_000, F32));
        assert!(!all(64, 2_000_000, Int8));
        assert!(all(usize::MAX, 2_000_000, Int8));
        assert_eq!(threads(1000, 60_000_000, F32, Threads::This), Threads::This);
    }

    #[test]
    fn results_are_in_the_order_of_the_tasks() {
        for tasks in [0, 1, 2, 50] {
            let found = run((0..tasks).collect(), Threads::All, |task, _| task * 2);
            assert_eq!(found, (0..tasks).map(|task| task * 2).collect::<Vec<_>>());
        }
    }
}
