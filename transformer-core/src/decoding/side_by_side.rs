//! Batches decoded at the same time, each on one thread.

use rayon::prelude::*;

use crate::decoding::batches::batches;

/// Minimum number of batches per thread, so that all threads finish at about the same time.
const PER_THREAD: usize = 4;

/// Batches of sources of similar length, of at most `batch_tokens` tokens each, and of between half of `most` tokens
/// and `most`; `None` if they would not be enough for all threads.
pub(super) fn batches_for_threads(
    lengths: &[usize],
    batch_tokens: usize,
    most: usize,
) -> Option<Vec<Vec<usize>>> {
    let most = most.min(batch_tokens);
    let all: usize = lengths.iter().sum();
    let tokens = most.min(all / (PER_THREAD * rayon::current_num_threads()));
    (tokens >= most / 2).then(|| batches(lengths, tokens))
}

/// The result of every batch, in the order of the batches.
pub(super) fn map<R: Send>(
    batches: &[Vec<usize>],
    decode: impl Fn(&[usize]) -> R + Send + Sync,
) -> Vec<R> {
    let batches = batches.par_iter().with_max_len(1);
    batches.map(|batch| decode(batch)).collect()
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
            let found = with_threads(threads, || batches_for_threads(&lengths, 2048, 1024));
            let found = found.unwrap();
            assert!(found.len() >= PER_THREAD * threads);
            let mut indices = found.concat();
            indices.sort_unstable();
            assert_eq!(indices, (0..2000).collect::<Vec<_>>());
            let tokens = |batch: &Vec<usize>| lengths[batch[0]] * batch.len();
            assert!(found.iter().all(|batch| tokens(batch) <= 1024));
        }
    }

    #[test]
    fn few_tokens_are_left_to_one_batch_at_a_time() {
        let found = |threads, sources, most| {
            let lengths = vec![8; sources];
            with_threads(threads, || batches_for_threads(&lengths, 2048, most))
        };
        // Eight batches of 128 tokens at least.
        assert!(found(2, 8 * 16 - 1, 256).is_none());
        assert_eq!(found(2, 8 * 16, 256).map(|batches| batches.len()), Some(8));
        assert_eq!(found(2, 8 * 64, 256).map(|batches| batches.len()), Some(16));
        // Batches of one thread are as small.
        assert!(found(1, 8 * 8 - 1, 256).is_none());
        assert_eq!(found(1, 8 * 64, 256).map(|batches| batches.len()), Some(16));
    }

    #[test]
    fn results_are_in_the_order_of_the_batches() {
        let batches: Vec<Vec<usize>> = (0..50).map(|index| vec![index]).collect();
        let found = with_threads(3, || map(&batches, |batch| batch[0] * 2));
        assert_eq!(found, (0..50).map(|index| index * 2).collect::<Vec<_>>());
    }
}
