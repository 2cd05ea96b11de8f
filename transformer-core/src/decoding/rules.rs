//! Rules that force or exclude the next token of a hypothesis.

use crate::decoding::candidates::Candidates;
use crate::decoding::options::{DecodeOptions, Strategy};
use crate::special_tokens::SpecialTokens;

/// The tokens that a target must begin with: [`DecodeOptions::forced_first`], then the prefix of its request, which
/// may begin with that token itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beginning<'a> {
    forced: Option<u32>,
    /// The prefix, without the forced token.
    rest: &'a [u32],
    /// Whether they are a prompt, which is read but not predicted.
    is_prompt: bool,
}

impl<'a> Beginning<'a> {
    /// The beginning of a request with this prefix, which is a prompt if the request has no source.
    pub fn new(options: &DecodeOptions, prefix: &'a [u32], is_prompt: bool) -> Self {
        let forced = options.forced_first;
        let rest = forced.and_then(|token| prefix.strip_prefix(&[token]));
        Self {
            forced,
            rest: rest.unwrap_or(prefix),
            is_prompt,
        }
    }

    pub fn is_prompt(self) -> bool {
        self.is_prompt
    }

    /// Number of tokens.
    pub fn len(self) -> usize {
        usize::from(self.forced.is_some()) + self.rest.len()
    }

    /// The tokens, in order.
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
    /// The maximum length of the target.
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

    /// Whether the model reads `<bos>` before the target.
    pub fn starts_with_bos(&self) -> bool {
        let Beginning { is_prompt, .. } = self.beginning;
        !is_prompt || self.special_tokens.prompt_bos || self.beginning.len() == 0
    }

    /// Whether a token of the beginning counts as certain: the options force it, renormalization leaves no other token,
    /// or the model excludes it, so that its log-probability would end the search within the prefix.
    pub fn is_certain(&self, at: usize, log_prob: f32) -> bool {
        let is_forced = at == 0 && self.beginning.forced.is_some();
        is_forced || self.options.renormalize || log_prob == f32::NEG_INFINITY
    }

    /// How many of the most likely tokens suffice to choose the tokens that follow a target; `None` if all are needed.
    pub fn needed(&self, target: &[u32]) -> Option<usize> {
        let options = self.options;
        let chosen = match &options.strategy {
            Strategy::Beam { size } => size.saturating_mul(2),
            Strategy::Sample(sampling) if sampling.top_k > 0 => sampling.top_k,
            Strategy::Sample(_) => return None,
        };
        let changes_all = options.renormalize || options.repetition_penalty != 1.0;
        if changes_all || self.forced(target.len()).is_some() {
            return None;
        }
        let repeating = completing(target, options.no_repeat_ngram).len();
        // Each of them may be among the most likely. One more for `min_length`.
        let others = options.banned_tokens.len() + repeating + 1;
        Some(chosen.saturating_add(others))
    }

    /// The only token that may come at a position, by the beginning or by the options.
    fn forced(&self, at: usize) -> Option<u32> {
        let last = self.options.forced_last && at + 1 >= self.limit;
        let last = last.then_some(self.special_tokens.eos);
        self.beginning.token(at).or(last)
    }

    /// Applies the rules: excluded tokens get −∞, the log-probabilities of repeated tokens are multiplied by their
    /// penalty, and a certain token gets 0 (forced by the options, or in a prefix and excluded by the model). Then the
    /// remaining probabilities are divided by their sum, if the options say so.
    ///
    /// The tokens of the beginning and `<eos>` are candidates.
    pub fn apply(&self, target: &[u32], candidates: &mut Candidates<'_>) -> Applied {
        let at = target.len();
        if let Some(token) = self.forced(at) {
            let is_certain = match self.beginning.token(at) {
                Some(_) if self.beginning.is_prompt => {
                    // Read, not predicted.
                    if let Some(log_prob) = candidates.get_mut(token) {
                        *log_prob = 0.0;
                    }
                    true
                }
                Some(_) => self.is_certain(at, candidates.get(token)),
                None => true,
            };
            return force(token, is_certain, candidates);
        }
        let mut is_changed = false;
        let mut exclude = |token: u32| {
            if let Some(log_prob) = candidates.get_mut(token) {
                is_changed |= *log_prob > f32::NEG_INFINITY;
                *log_prob = f32::NEG_INFINITY;
            }
        };
        self.options
            .banned_tokens
            .iter()
            .copied()
            .for_each(&mut exclude);
        if target.len() < self.options.min_length {
            exclude(self.special_tokens.eos);
        }
        completing(target, self.options.no_repeat_ngram)
            .into_iter()
            .for_each(exclude);
        let changed = self.penalize_repeated(target, candidates);
        is_changed |= !changed.is_empty();
        Applied {
            changed,
            log_sum: match self.options.renormalize && is_changed {
                true => normalize(candidates.log_probs_mut()),
                false => 0.0,
            },
        }
    }

    fn penalize_repeated(
        &self,
        target: &[u32],
        candidates: &mut Candidates<'_>,
    ) -> Vec<(u32, f32)> {
        let penalty = self.options.repetition_penalty as f32;
        if penalty == 1.0 {
            return Vec::new();
        }
        // A start token counts as repeated, as in Hugging Face's transformers. It may be `<eos>`.
        let mut repeated = target.to_vec();
        repeated.extend(self.starts_with_bos().then_some(self.special_tokens.bos));
        repeated.sort_unstable();
        repeated.dedup();
        let changed = repeated.into_iter().filter_map(|token| {
            // A start token may be outside the vocabulary.
            let log_prob = candidates.get_mut(token)?;
            let original = *log_prob;
            *log_prob *= penalty;
            Some((token, original))
        });
        changed.collect()
    }
}

/// Restores the model's log-probabilities from those after the rules.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Applied {
    /// Repeated and certain tokens, with the model's log-probabilities.
    changed: Vec<(u32, f32)>,
    /// The logarithm of the sum by which the other probabilities were divided.
    log_sum: f32,
}

impl Applied {
    /// The model's log-probability of a token that the rules did not exclude; after the rules it is `log_prob`.
    pub fn before(&self, token: u32, log_prob: f32) -> f64 {
        let changed = self.changed.iter().find(|(other, _)| *other == token);
        match changed {
            Some(&(_, before)) => f64::from(before),
            None => f64::from(log_prob) + f64::from(self.log_sum),
        }
    }
}

/// Excludes all tokens but one, which keeps its log-probability unless it is certain.
fn force(token: u32, is_certain: bool, candidates: &mut Candidates<'_>) -> Applied {
    let log_prob = candidates.get(token);
    candidates.log_probs_mut().fill(f32::NEG_INFINITY);
    if let Some(forced) = candidates.get_mut(token) {
        *forced = if is_certain { 0.0 } else { log_prob };
    }
    Applied {
        changed: vec![(token, log_prob)],
        log_sum: 0.0,
    }
}

/// Divides the probabilities by their sum, and returns the logarithm of the sum. Changes nothing if every token is
/// excluded.
pub(super) fn normalize(log_probs: &mut [f32]) -> f32 {
    let most = log_probs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if most == f32::NEG_INFINITY {
        return 0.0;
    }
    let sum: f64 = log_probs
        .iter()
        .map(|log_prob| f64::from((log_prob - most).exp()))
        .sum();
    let log_sum = (f64::from(most) + sum.ln()) as f32;
    log_probs
        .iter_mut()
        .for_each(|log_prob| *log_prob -= log_sum);
    log_sum
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
        rules(&options, prefix).apply(target, &mut Candidates::new(None, &mut log_probs));
        log_probs
    }

    /// The result of rules that changed tokens with these log-probabilities.
    fn of(changed: impl Into<Vec<(u32, f32)>>) -> Applied {
        Applied {
            changed: changed.into(),
            log_sum: 0.0,
        }
    }

    /// For targets of at most six tokens.
    fn rules<'a>(options: &'a DecodeOptions, prefix: &'a [u32]) -> Rules<'a> {
        let special_tokens = SpecialTokens {
            pad: 3,
            bos: 0,
            eos: 2,
            ..SpecialTokens::default()
        };
        Rules::new(
            options,
            special_tokens,
            Beginning::new(options, prefix, false),
            6,
        )
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

    /// Its rank stays finite, and the model's log-probability is returned.
    #[test]
    fn a_token_of_a_prefix_that_the_model_excludes_is_certain() {
        let options = DecodeOptions::greedy();
        let mut log_probs = [-1.0, OUT, -3.0, -4.0, -5.0];
        let changed =
            rules(&options, &[4, 1]).apply(&[4], &mut Candidates::new(None, &mut log_probs));
        assert_eq!(log_probs, [OUT, 0.0, OUT, OUT, OUT]);
        assert_eq!(changed, of([(1, OUT)]));
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
        let changed =
            rules(&options, &[]).apply(&[3, 1, 3], &mut Candidates::new(None, &mut log_probs));
        // With the start token, 0.
        assert_eq!(log_probs, [-1.5, -3.0, -3.0, -6.0, -5.0]);
        assert_eq!(changed, of([(0, -1.0), (1, -2.0), (3, -4.0)]));
    }

    /// Of the probabilities 1/2, 1/4, 1/8, 1/16, 1/16, the second and the third are left: 2/3 and 1/3.
    #[test]
    fn the_probabilities_that_are_left_sum_to_one_again() {
        let options = DecodeOptions {
            banned_tokens: vec![0, 3, 4],
            renormalize: true,
            ..DecodeOptions::greedy()
        };
        let before = [0.5_f32, 0.25, 0.125, 0.0625, 0.0625].map(f32::ln);
        let mut log_probs = before;
        let applied = rules(&options, &[]).apply(&[], &mut Candidates::new(None, &mut log_probs));
        assert_eq!(
            log_probs.map(|log_prob| log_prob == OUT),
            [true, false, false, true, true]
        );
        for (token, share) in [(1, 2.0_f64 / 3.0), (2, 1.0 / 3.0)] {
            let log_prob = log_probs[token];
            assert!(
                (f64::from(log_prob) - share.ln()).abs() < 1e-6,
                "{log_prob}"
            );
            let found = applied.before(token as u32, log_prob);
            assert!((found - f64::from(before[token])).abs() < 1e-6, "{found}");
        }
        // Without a rule that changes something, no bit changes; without a token that is left, all are −∞.
        let nothing = DecodeOptions {
            banned_tokens: Vec::new(),
            ..options.clone()
        };
        let mut log_probs = [-1.0, -2.0, -3.0, -4.0, -5.0];
        rules(&nothing, &[]).apply(&[], &mut Candidates::new(None, &mut log_probs));
        assert_eq!(log_probs, [-1.0, -2.0, -3.0, -4.0, -5.0]);
        let all = DecodeOptions {
            banned_tokens: vec![0, 1, 2, 3, 4],
            ..options.clone()
        };
        rules(&all, &[]).apply(&[], &mut Candidates::new(None, &mut log_probs));
        assert_eq!(log_probs, [OUT; 5]);
        // The token of a prefix is the only one that is left.
        let mut log_probs = before;
        let applied = rules(&options, &[3]).apply(&[], &mut Candidates::new(None, &mut log_probs));
        assert_eq!(log_probs, [OUT, OUT, OUT, 0.0, OUT]);
        assert_eq!(applied, of([(3, before[3])]));
    }

    #[test]
    fn a_prefix_comes_after_the_forced_token_or_begins_with_it() {
        let options = DecodeOptions {
            forced_first: Some(4),
            ..DecodeOptions::greedy()
        };
        let beginning = |prefix: &[u32]| -> Vec<u32> {
            let beginning = Beginning::new(&options, prefix, false);
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
            (&[4, 1], &[4], [OUT, -2.0, OUT, OUT, OUT], vec![(1, -2.0)]),
            (&[1], &[4], [OUT, -2.0, OUT, OUT, OUT], vec![(1, -2.0)]),
            (&[], &[4, 1, 1, 1], [-1.0, -2.0, OUT, -4.0, OUT], vec![]),
            (
                &[],
                &[4, 1, 1, 1, 1],
                [OUT, OUT, 0.0, OUT, OUT],
                vec![(2, -3.0)],
            ),
        ] {
            let mut log_probs = [-1.0, -2.0, -3.0, -4.0, -5.0];
            let changed =
                rules(&options, prefix).apply(target, &mut Candidates::new(None, &mut log_probs));
            assert_eq!((log_probs, changed), (expected, of(before)));
        }
    }
}
