//! The choice of the source sentences that are held out of training, the same for a corpus in memory and in files.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::data::error::CorpusError;

/// Chooses `n_sources` among the first pairs of all distinct sources: their positions, ascending.
///
/// # Errors
/// [`CorpusError::TooFewSources`] when none would be left.
pub(crate) fn choose(
    mut first_pairs: Vec<usize>,
    n_sources: usize,
    seed: u64,
) -> Result<Vec<usize>, CorpusError> {
    if n_sources >= first_pairs.len() {
        return Err(CorpusError::TooFewSources {
            asked: n_sources,
            distinct: first_pairs.len(),
        });
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (chosen, _) = first_pairs.partial_shuffle(&mut rng, n_sources);
    let mut chosen = chosen.to_vec();
    chosen.sort_unstable();
    Ok(chosen)
}
