//! Rules that exclude next tokens of a hypothesis.

use super::options::DecodeOptions;

/// The rules of [`DecodeOptions`], for the hypotheses of one source.
pub(super) struct Rules<'a> {
    options: &'a DecodeOptions,
    eos_id: u32,
    /// Tokens that the target must begin with.
    prefix: &'a [u32],
}

impl<'a> Rules<'a> {
    pub fn new(options: &'a DecodeOptions, eos_id: u32, prefix: &'a [u32]) -> Self {
        Self {
            options,
            eos_id,
            prefix,
        }
    }

    /// Sets the log-probabilities of excluded tokens to −∞, and multiplies those of repeated ones by
    /// their penalty. Returns the latter tokens, with their log-probabilities before.
    ///
    /// # Shapes
    /// - log_probs: `[tgt_vocab_size]`
    pub fn apply(&self, target: &[u32], log_probs: &mut [f32]) -> Vec<(u32, f32)> {
        if let Some(&forced) = self.prefix.get(target.len()) {
            let forced = forced as usize;
            let log_prob = log_probs[forced];
            log_probs.fill(f32::NEG_INFINITY);
            log_probs[forced] = log_prob;
            return Vec::new();
        }
        for &token in &self.options.banned_tokens {
            log_probs[token as usize] = f32::NEG_INFINITY;
        }
        if target.len() < self.options.min_length {
            log_probs[self.eos_id as usize] = f32::NEG_INFINITY;
        }
        for token in completing(target, self.options.no_repeat_ngram) {
            log_probs[token as usize] = f32::NEG_INFINITY;
        }
        self.penalize_repeated(target, log_probs)
    }

    fn penalize_repeated(&self, target: &[u32], log_probs: &mut [f32]) -> Vec<(u32, f32)> {
        let penalty = self.options.repetition_penalty as f32;
        if penalty == 1.0 {
            return Vec::new();
        }
        let mut repeated = target.to_vec();
        repeated.sort_unstable();
        repeated.dedup();
        let changed = repeated.into_iter().map(|token| {
            let log_prob = &mut log_probs[token as usize];
            let original = *log_prob;
            *log_prob *= penalty;
            (token, original)
        });
        changed.collect()
    }
}

/// The tokens that would repeat an n-gram of the target.
fn completing(target: &[u32], n: usize) -> Vec<u32> {
    if n == 0 || target.len() < n {
        return Vec::new();
    }
    let begun = &target[target.len() - (n - 1)..];
    let sequences = target.windows(n);
    sequences
        .filter(|sequence| &sequence[..n - 1] == begun)
        .map(|sequence| sequence[n - 1])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: f32 = f32::NEG_INFINITY;

    fn applied(options: DecodeOptions, prefix: &[u32], target: &[u32]) -> Vec<f32> {
        let mut log_probs = vec![-1.0, -2.0, -3.0, -4.0, -5.0];
        Rules::new(&options, 2, prefix).apply(target, &mut log_probs);
        log_probs
    }

    #[test]
    fn without_rules_everything_may_follow() {
        let log_probs = applied(DecodeOptions::greedy(), &[], &[3, 3, 3]);
        assert_eq!(log_probs, [-1.0, -2.0, -3.0, -4.0, -5.0]);
    }

    #[test]
    fn a_prefix_lets_one_token_through_until_it_ends() {
        let options = DecodeOptions {
            banned_tokens: vec![1],
            min_length: 3,
            ..DecodeOptions::greedy()
        };
        let forced = applied(options.clone(), &[4, 2], &[4]);
        assert_eq!(forced, [OUT, OUT, -3.0, OUT, OUT]);
        let free = applied(options, &[4, 2], &[4, 2]);
        assert_eq!(free, [-1.0, OUT, OUT, -4.0, -5.0]);
    }

    #[test]
    fn no_sequence_is_completed_twice() {
        let with = |n, target: &[u32]| {
            let options = DecodeOptions {
                no_repeat_ngram: n,
                ..DecodeOptions::greedy()
            };
            applied(options, &[], target)
        };
        assert_eq!(with(1, &[3, 0]), [OUT, -2.0, -3.0, OUT, -5.0]);
        assert_eq!(with(2, &[0, 3, 0, 4, 0]), [-1.0, -2.0, -3.0, OUT, OUT]);
        assert_eq!(with(3, &[0, 3, 4, 0, 3]), [-1.0, -2.0, -3.0, -4.0, OUT]);
        assert_eq!(with(3, &[0, 3]), [-1.0, -2.0, -3.0, -4.0, -5.0]);
    }

    #[test]
    fn repeated_tokens_are_penalized_once() {
        let options = DecodeOptions {
            repetition_penalty: 1.5,
            ..DecodeOptions::greedy()
        };
        let mut log_probs = vec![-1.0, -2.0, -3.0, -4.0, -5.0];
        let changed = Rules::new(&options, 2, &[]).apply(&[3, 1, 3], &mut log_probs);
        assert_eq!(log_probs, [-1.0, -3.0, -3.0, -6.0, -5.0]);
        assert_eq!(changed, [(1, -2.0), (3, -4.0)]);
    }
}
