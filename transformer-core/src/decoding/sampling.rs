//! Sampling: the next token is drawn.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::decoding::candidates::Candidates;
use crate::decoding::options::Sampling;

impl Sampling {
    /// The random numbers of a sample, which depend on its source but not on the other sources.
    pub(super) fn random(&self, source: &[u32], sample: usize) -> ChaCha8Rng {
        let words = [self.seed, sample as u64, hash(source), 0];
        let mut seed = [0; 32];
        for (bytes, word) in seed.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        ChaCha8Rng::from_seed(seed)
    }

    /// Draws a token; `None` if every token is banned.
    ///
    /// Each token gets a random number `-ln u`, with u between 0 and 1, and the token with the largest ratio of weight
    /// to random number is drawn: an exponential race, in which a token wins in proportion to its weight. A rounding
    /// error in the weights, which may differ between batches, changes the draw only if two tokens are that close; with
    /// cumulative sums, it would move the bounds of all tokens.
    pub(super) fn draw(&self, candidates: &Candidates<'_>, random: &mut ChaCha8Rng) -> Option<u32> {
        let kept = self.kept(candidates);
        let most = kept
            .iter()
            .map(|&(_, log_prob)| log_prob)
            .fold(f64::NEG_INFINITY, f64::max);
        let key = random.random();
        let multiples = kept.iter().map(|&(token, log_prob)| {
            let weight = ((log_prob - most) / self.temperature).exp();
            (token, weight / -uniform(key, token).ln())
        });
        let drawn = multiples.max_by(|(_, a), (_, b)| a.total_cmp(b));
        drawn.map(|(token, _)| token)
    }

    /// The tokens that may be drawn, with their log-probabilities.
    fn kept(&self, candidates: &Candidates<'_>) -> Vec<(u32, f64)> {
        let all = candidates.log_probs().iter().enumerate();
        let mut kept: Vec<(u32, f64)> = all
            .filter(|(_, log_prob)| log_prob.is_finite())
            .map(|(at, &log_prob)| (candidates.token(at), f64::from(log_prob)))
            .collect();
        let truncates = self.top_k > 0 && self.top_k < kept.len();
        if truncates || self.top_p < 1.0 {
            kept.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        }
        if truncates {
            kept.truncate(self.top_k);
        }
        if self.top_p < 1.0 {
            kept.truncate(self.nucleus(&kept));
        }
        kept
    }

    /// The number of most likely tokens whose total probability reaches `top_p`, at this temperature and among the
    /// given tokens.
    fn nucleus(&self, sorted: &[(u32, f64)]) -> usize {
        let Some(&(_, most)) = sorted.first() else {
            return 0;
        };
        let weights = sorted
            .iter()
            .map(|&(_, log_prob)| ((log_prob - most) / self.temperature).exp());
        let total: f64 = weights.clone().sum();
        let mut sum = 0.0;
        for (count, weight) in weights.enumerate() {
            if sum >= self.top_p * total {
                return count;
            }
            sum += weight;
        }
        sorted.len()
    }
}

/// A token's random number between 0 and 1: the output of SplitMix64, seeded with the key, at the token's index.
fn uniform(key: u64, token: u32) -> f64 {
    let z = key.wrapping_add((u64::from(token) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let bits = (z ^ (z >> 31)) >> 12;
    (bits as f64 + 0.5) / (1_u64 << 52) as f64
}

/// FNV-1a, the same on every machine.
fn hash(tokens: &[u32]) -> u64 {
    let bytes = tokens.iter().flat_map(|token| token.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probabilities 1/8, 1/2, 0, 1/4 and 1/8.
    fn log_probs() -> Vec<f32> {
        let probs = [0.125_f32, 0.5, 0.0, 0.25, 0.125];
        probs.map(f32::ln).to_vec()
    }

    fn draw(sampling: &Sampling, log_probs: &[f32], random: &mut ChaCha8Rng) -> Option<u32> {
        sampling.draw(&Candidates::new(None, &mut log_probs.to_vec()), random)
    }

    /// The frequency of each token in 20 000 draws.
    fn frequencies(sampling: &Sampling) -> Vec<f64> {
        let mut random = sampling.random(&[3], 0);
        let mut counts = [0; 5];
        for _ in 0..20_000 {
            counts[draw(sampling, &log_probs(), &mut random).unwrap() as usize] += 1;
        }
        counts.map(|count| f64::from(count) / 20_000.0).to_vec()
    }

    /// Within 5 standard errors, at most 0.018.
    fn assert_near(found: &[f64], expected: [f64; 5]) {
        for (found, expected) in found.iter().zip(expected) {
            let error = 5.0 * (expected * (1.0 - expected) / 20_000.0).sqrt();
            assert!((found - expected).abs() <= error, "{found} {expected}");
        }
    }

    #[test]
    fn tokens_are_drawn_by_their_probabilities() {
        let all = Sampling::default();
        assert_near(&frequencies(&all), [0.125, 0.5, 0.0, 0.25, 0.125]);
    }

    #[test]
    fn a_temperature_of_one_half_squares_probabilities() {
        let cold = Sampling {
            temperature: 0.5,
            ..Sampling::default()
        };
        // 1/4, 1/16, 1/64 and 1/64, divided by their sum, 22/64.
        let expected = [1.0 / 22.0, 16.0 / 22.0, 0.0, 4.0 / 22.0, 1.0 / 22.0];
        assert_near(&frequencies(&cold), expected);
    }

    #[test]
    fn top_k_and_top_p_cut_the_least_likely_off() {
        let two = [0.0, 2.0 / 3.0, 0.0, 1.0 / 3.0, 0.0];
        for (top_k, top_p, expected) in [
            (2, 1.0, two),
            (0, 0.7, two),
            // A sum of exactly `top_p`.
            (0, 0.75, two),
            (1, 0.9, [0.0, 1.0, 0.0, 0.0, 0.0]),
            (9, 1.0, [0.125, 0.5, 0.0, 0.25, 0.125]),
        ] {
            let cut = Sampling {
                top_k,
                top_p,
                ..Sampling::default()
            };
            assert_near(&frequencies(&cut), expected);
        }
    }

    #[test]
    fn rounding_errors_hardly_change_the_draws() {
        // Probability 1/2 for the first of 8000 tokens; the others are equally likely.
        let mut exact = vec![(0.5_f32 / 7999.0).ln(); 8000];
        exact[0] = 0.5_f32.ln();
        let mut rounded = exact.clone();
        rounded[0] += 1e-5;
        let sampling = Sampling::default();
        let mut random = [sampling.random(&[3], 0), sampling.random(&[3], 0)];
        let others = (0..2000).filter(|_| {
            let [first, second] = &mut random;
            draw(&sampling, &exact, first) != draw(&sampling, &rounded, second)
        });
        assert_eq!(others.count(), 0);
    }

    #[test]
    fn where_everything_is_banned_nothing_is_drawn() {
        let sampling = Sampling::default();
        let drawn = draw(
            &sampling,
            &[f32::NEG_INFINITY; 3],
            &mut sampling.random(&[], 0),
        );
        assert_eq!(drawn, None);
    }

    #[test]
    fn every_sample_has_its_own_numbers() {
        let draw = |source: &[u32], sample| {
            let mut random = Sampling::default().random(source, sample);
            std::array::from_fn::<u64, 4, _>(|_| random.random())
        };
        assert_eq!(draw(&[7, 3], 1), draw(&[7, 3], 1));
        assert_ne!(draw(&[7, 3], 1), draw(&[7, 3], 2));
        assert_ne!(draw(&[7, 3], 1), draw(&[3, 7], 1));
    }
}
