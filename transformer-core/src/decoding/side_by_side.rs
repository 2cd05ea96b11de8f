//! Batches decoded at the same time, each on one thread.

use rayon::prelude::*;

use crate::decoding::batches::batches;

/// Minimum number of tokens per batch: with fewer, most of the time would be spent reading the weights.
const TOKENS: usize = 512;

/// Minimum number of batches per thread, so that all threads finish at about the same time.
const PER_THREAD: usize = 4;

/// Batches of sources of similar length, of at most `batch_tokens` tokens each; `None` if they would not be enough for
/// all threads.
pub(super) fn batches_for_threads(
    lengths: &[usize],
    batch_tokens: usize,
) -> Option<Vec<Vec<usize>>> {
    let threads = threads();
    let wanted = PER_THREAD * threads;
    let all: usize = lengths.iter().sum();
    if threads == 1 || all < wanted * TOKENS.min(batch_tokens) {
        return None;
    }
    Some(batches(lengths, batch_tokens.min(all / wanted)))
}

/// The result of every batch, in the order of the batches.
pub(super) fn map<R: Send>(
    batches: &[Vec<usize>],
    decode: impl Fn(&[usize]) -> R + Send + Sync,
) -> Vec<R> {
    let batches = batches.par_iter().with_max_len(1);
    batches.map(|batch| decode(batch)).collect()
}

fn threads() -> usize {
    rayon::current_num_threads()
}

#[cfg(test)]
mod tests {
    use rayon::ThreadPoolBuilder;

    use super::*;

    fn with_threads<R: Send>(threads: usize, compute: impl FnOnce() -> R + Send) -> R {
        let pool = ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(compute)
    }

    #[test]
    fn every_source_is_in_one_batch_and_every_thread_has_several() {
        let lengths: Vec<usize> = (0..2000).map(|index| 3 + index % 28).collect();
        for threads in [2, 3, 4] {
            let found = with_threads(threads, || batches_for_threads(&lengths, 2048)).unwrap();
            assert!(found.len() >= PER_THREAD * threads);
            let mut indices = found.concat();
            indices.sort_unstable();
            assert_eq!(indices, (0..2000).collect::<Vec<_>>());
            let tokens = |batch: &Vec<usize>| lengths[batch[0]] * batch.len();
            assert!(found.iter().all(|batch| tokens(batch) <= 2048));
        }
    }

    #[test]
    fn few_tokens_and_one_thread_are_left_to_one_batch_at_a_time() {
        assert!(with_threads(2, || batches_for_threads(&[9; 100], 2048)).is_none());
        assert!(with_threads(1, || batches_for_threads(&[9; 10_000], 2048)).is_none());
    }

    #[test]
    fn results_are_in_the_order_of_the_batches() {
        let batches: Vec<Vec<usize>> = (0..50).map(|index| vec![index]).collect();
        let found = with_threads(3, || map(&batches, |batch| batch[0] * 2));
        assert_eq!(found, (0..50).map(|index| index * 2).collect::<Vec<_>>());
    }
}
