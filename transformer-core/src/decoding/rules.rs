//! Rules that force next tokens of a hypothesis, or exclude them.

use crate::decoding::options::DecodeOptions;
use crate::special_tokens::SpecialTokens;

/// The tokens that a target must begin with: [`DecodeOptions::forced_first`], then the prefix of its request, which
/// may begin with that token itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beginning<'a> {
    forced: Option<u32>,
    /// The prefix, without the forced token.
    rest: &'a [u32],
}

impl<'a> Beginning<'a> {
    pub fn new(options: &DecodeOptions, prefix: &'a [u32]) -> Self {
        let forced = options.forced_first;
        let rest = forced.and_then(|token| prefix.strip_prefix(&[token]));
        Self {
            forced,
            rest: rest.unwrap_or(prefix),
        }
    }

    /// Number of tokens.
    pub fn len(self) -> usize {
        usize::from(self.forced.is_some()) + self.rest.len()
    }

    /// The tokens, in their order.
    pub fn tokens(self) -> impl Iterator<Item = u32> + use<'a> {
        self.forced.into_iter().chain(self.rest.iter().copied())
    }

    /// The token at a position.
    fn token(self, at: usize) -> Option<u32> {
        self.tokens().nth(at)
    }
}

/// The rules of [`DecodeOptions`], for the hypotheses of one source.
pub(super) struct Rules<'a> {
    options: &'a DecodeOptions,
    special_tokens: SpecialTokens,
    beginning: Beginning<'a>,
    /// The most tokens of the target.
    limit: usize,
}

impl<'a> Rules<'a> {
    pub fn new(
        options: &'a DecodeOptions,
        special_tokens: SpecialTokens,
        beginning: Beginning<'a>,
        limit: usize,
    ) -> Self {
        Self {
            options,
            special_tokens,
            beginning,
            limit,
        }
    }

    /// The tokens that the target must begin with.
    pub fn beginning(&self) -> Beginning<'a> {
        self.beginning
    }

    /// Whether a token that the target must begin with counts as certain: it is forced by the options, or the model
    /// excludes it, so that its log-probability would end the search within the prefix.
    pub fn is_certain(&self, at: usize, log_prob: f32) -> bool {
        let is_forced = at == 0 && self.beginning.forced.is_some();
        is_forced || log_prob == f32::NEG_INFINITY
    }

    /// Sets the log-probabilities of excluded tokens to −∞, multiplies those of repeated ones by
    /// their penalty, and sets that of a certain token to 0: one that the options force, or one of a prefix that
    /// the model excludes. Returns repeated and certain tokens, with their log-probabilities before.
    ///
    /// # Shapes
    /// - log_probs: `[tgt_vocab_size]`
    pub fn apply(&self, target: &[u32], log_probs: &mut [f32]) -> Vec<(u32, f32)> {
        let at = target.len();
        if let Some(token) = self.beginning.token(at) {
            let is_certain = self.is_certain(at, log_probs[token as usize]);
            return force(token, is_certain, log_probs);
        }
        if self.options.forced_last && at + 1 >= self.limit {
            return force(self.special_tokens.eos, true, log_probs);
        }
        for &token in &self.options.banned_tokens {
            log_probs[token as usize] = f32::NEG_INFINITY;
        }
        if target.len() < self.options.min_length {
            log_probs[self.special_tokens.eos as usize] = f32::NEG_INFINITY;
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
        // The start token is there, too, as for Hugging Face: it may be `<eos>`.
        let mut repeated = [target, &[self.special_tokens.bos][..]].concat();
        repeated.sort_unstable();
        repeated.dedup();
        let changed = repeated.into_iter().filter_map(|token| {
            // A start token may be outside the vocabulary.
            let log_prob = log_probs.get_mut(token as usize)?;
            let original = *log_prob;
            *log_prob *= penalty;
            Some((token, original))
        });
        changed.collect()
    }
}

/// Excludes all tokens but one. Its log-probability counts, unless it is certain.
fn force(token: u32, is_certain: bool, log_probs: &mut [f32]) -> Vec<(u32, f32)> {
    let log_prob = log_probs[token as usize];
    log_probs.fill(f32::NEG_INFINITY);
    if is_certain {
        log_probs[token as usize] = 0.0;
        vec![(token, log_prob)]
    } else {
        log_probs[token as usize] = log_prob;
        Vec::new()
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
        rules(&options, prefix).apply(target, &mut log_probs);
        log_probs
    }

    /// For targets of at most six tokens.
    fn rules<'a>(options: &'a DecodeOptions, prefix: &'a [u32]) -> Rules<'a> {
        let special_tokens = SpecialTokens {
            pad: 3,
            bos: 0,
            eos: 2,
        };
        Rules::new(options, special_tokens, Beginning::new(options, prefix), 6)
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

    /// Its rank stays a number, and the model's log-probability is returned.
    #[test]
    fn a_token_of_a_prefix_that_the_model_excludes_is_certain() {
        let options = DecodeOptions::greedy();
        let mut log_probs = [-1.0, OUT, -3.0, -4.0, -5.0];
        let changed = rules(&options, &[4, 1]).apply(&[4], &mut log_probs);
        assert_eq!(log_probs, [OUT, 0.0, OUT, OUT, OUT]);
        assert_eq!(changed, [(1, OUT)]);
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
        let changed = rules(&options, &[]).apply(&[3, 1, 3], &mut log_probs);
        // With the start token, 0.
        assert_eq!(log_probs, [-1.5, -3.0, -3.0, -6.0, -5.0]);
        assert_eq!(changed, [(0, -1.0), (1, -2.0), (3, -4.0)]);
    }

    #[test]
    fn a_prefix_comes_after_the_forced_token_or_begins_with_it() {
        let options = DecodeOptions {
            forced_first: Some(4),
            ..DecodeOptions::greedy()
        };
        let beginning = |prefix: &[u32]| -> Vec<u32> {
            let beginning = Beginning::new(&options, prefix);
            let tokens: Vec<u32> = (0..).map_while(|at| beginning.token(at)).collect();
            assert_eq!(tokens.len(), beginning.len());
            tokens
        };
        assert_eq!(beginning(&[]), [4]);
        assert_eq!(beginning(&[4]), [4]);
        assert_eq!(beginning(&[3, 4]), [4, 3, 4]);
        assert_eq!(beginning(&[4, 4, 3]), [4, 4, 3]);
    }

    /// Certain for the rank; the model's log-probability is returned.
    #[test]
    fn tokens_that_the_options_force_are_certain() {
        let options = DecodeOptions {
            forced_first: Some(4),
            forced_last: true,
            banned_tokens: vec![2, 4],
            min_length: 6,
            ..DecodeOptions::greedy()
        };
        for (prefix, target, expected, before) in [
            (&[][..], &[][..], [OUT, OUT, OUT, OUT, 0.0], vec![(4, -5.0)]),
            (&[4, 1], &[], [OUT, OUT, OUT, OUT, 0.0], vec![(4, -5.0)]),
            (&[4, 1], &[4], [OUT, -2.0, OUT, OUT, OUT], vec![]),
            (&[1], &[4], [OUT, -2.0, OUT, OUT, OUT], vec![]),
            (&[], &[4, 1, 1, 1], [-1.0, -2.0, OUT, -4.0, OUT], vec![]),
            (
                &[],
                &[4, 1, 1, 1, 1],
                [OUT, OUT, 0.0, OUT, OUT],
                vec![(2, -3.0)],
            ),
        ] {
            let mut log_probs = [-1.0, -2.0, -3.0, -4.0, -5.0];
            let changed = rules(&options, prefix).apply(target, &mut log_probs);
            assert_eq!((log_probs, changed), (expected, before));
        }
    }
}
