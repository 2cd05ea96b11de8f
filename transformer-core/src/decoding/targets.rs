//! The targets of one source during the search.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::decoding::Hypothesis;
use crate::decoding::beam::Best;
use crate::decoding::candidates::Candidates;
use crate::decoding::error::{DecodeError, RequestProblem};
use crate::decoding::options::{DecodeOptions, Sampling, Strategy};
use crate::decoding::rules::{Applied, Beginning, Rules, normalize};
use crate::decoding::shortlist::Shortlist;
use crate::special_tokens::SpecialTokens;

/// The targets of one source during the search.
pub(super) struct Targets<'a> {
    /// Index of the request.
    pub index: usize,
    /// The maximum length of a target.
    limit: usize,
    rules: Rules<'a>,
    options: &'a DecodeOptions,
    eos: u32,
    /// The unfinished targets; the same number in every source of the batch.
    live: Vec<Live>,
    ended: Vec<Hypothesis>,
    /// The tokens that the targets are limited to, in ascending order; `None` if the model does so, or for all tokens.
    limited_to: Option<Vec<u32>>,
    /// The generator of each sample.
    random: Vec<ChaCha8Rng>,
}

/// An unfinished target.
#[derive(Debug, Clone, Default)]
struct Live {
    tokens: Vec<u32>,
    /// Index of the target that it continues, among the targets of the previous step.
    parent: usize,
    /// The model's log-probability.
    log_prob: f64,
    /// The log-probability with the rules' penalties.
    rank: f64,
    /// The sum of its tokens' attention to each source token; empty unless requested.
    coverage: Vec<f32>,
    /// Whether it has ended, and only fills its row in the batch.
    is_dead: bool,
}

impl<'a> Targets<'a> {
    /// One empty target, which must begin with `beginning` and may have at most `limit` tokens.
    ///
    /// The random numbers of samples are seeded with `seed`, a sequence of tokens.
    pub fn new(
        index: usize,
        limit: usize,
        options: &'a DecodeOptions,
        special_tokens: SpecialTokens,
        beginning: Beginning<'a>,
        seed: &[u32],
    ) -> Self {
        Self {
            index,
            limit,
            rules: Rules::new(options, special_tokens, beginning, limit),
            options,
            eos: special_tokens.eos,
            live: vec![Live::default()],
            ended: Vec::new(),
            limited_to: None,
            random: match &options.strategy {
                Strategy::Beam { .. } => Vec::new(),
                Strategy::Sample(sampling) => (0..options.n_best)
                    .map(|sample| sampling.random(seed, sample))
                    .collect(),
            },
        }
    }

    /// The tokens that the targets may contain, in ascending order.
    pub fn candidates(&self, shortlist: &Shortlist, source: &[u32], vocab_size: usize) -> Vec<u32> {
        let mut candidates = shortlist.candidates(source);
        candidates.retain(|&token| (token as usize) < vocab_size);
        candidates.extend(self.rules.beginning().tokens());
        candidates.push(self.eos);
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    /// Limits the targets to tokens, in ascending order. Model predictions for all tokens are then reduced to them.
    pub fn limit(&mut self, tokens: Vec<u32>) {
        self.limited_to = Some(tokens);
    }

    /// Whether the targets begin with a prompt, which is read but not predicted.
    pub fn have_prompt(&self) -> bool {
        self.rules.beginning().is_prompt()
    }

    /// The tokens that the model reads before it is free to choose one, `bos` perhaps, and then those that every target
    /// must begin with: a prompt, or others up to an `<eos>`, which ends a target. And how many of them are `bos`.
    pub fn first_tokens(&self, bos: u32) -> (Vec<u32>, usize) {
        let start = self.rules.starts_with_bos().then_some(bos);
        let beginning = self.rules.beginning().tokens();
        let beginning = beginning.take_while(|&token| self.have_prompt() || token != self.eos);
        let tokens = start.into_iter().chain(beginning).collect();
        (tokens, usize::from(start.is_some()))
    }

    /// Extends the empty target at once by tokens that it must begin with, which have these log-probabilities.
    pub fn begin(&mut self, tokens: &[u32], log_probs: &[f32]) {
        let mut live = Live::default();
        for (at, (&token, &log_prob)) in tokens.iter().zip(log_probs).enumerate() {
            live.tokens.push(token);
            live.log_prob += f64::from(log_prob);
            let is_certain = self.rules.is_certain(at, log_prob);
            live.rank += if is_certain { 0.0 } else { f64::from(log_prob) };
        }
        for random in &mut self.random {
            // A sample draws once per token, including those that it must begin with.
            for _ in tokens {
                let _: u64 = random.random();
            }
        }
        self.live = vec![live];
    }

    /// The error of a model whose log-probabilities are NaN.
    pub fn not_a_number(&self) -> DecodeError {
        DecodeError {
            index: self.index,
            problem: RequestProblem::NotANumber,
        }
    }

    /// Per target, the index of the target of the previous step that it continues.
    pub fn parents(&self) -> impl Iterator<Item = usize> {
        self.live.iter().map(|live| live.parent)
    }

    /// The last token of each target; `bos` for an empty one.
    pub fn last_tokens(&self, bos: u32) -> impl Iterator<Item = u32> {
        let last = |live: &Live| live.tokens.last().copied();
        self.live.iter().map(move |live| last(live).unwrap_or(bos))
    }

    /// The last token if there is one target only, so that the token is final.
    pub fn certain_token(&self) -> Option<u32> {
        let is_alone = self.options.width() == 1 && self.ended.is_empty();
        self.live[0].tokens.last().copied().filter(|_| is_alone)
    }

    /// Adds the last tokens' attention to the source: `[width, src_len]`.
    pub fn attend(&mut self, attention: &[f32]) {
        if attention.is_empty() {
            return;
        }
        let rows = attention.chunks(attention.len() / self.live.len());
        for (live, row) in self.live.iter_mut().zip(rows) {
            live.coverage.resize(row.len(), 0.0);
            let covered = live.coverage.iter_mut().zip(row);
            covered.for_each(|(sum, &weight)| *sum += weight);
        }
    }

    /// How many of the most likely tokens suffice for [`advance`](Self::advance); `None` if all are needed.
    pub fn needed(&self) -> Option<usize> {
        let growing = self.live.iter().filter(|live| !live.is_dead);
        let mut needed = growing.map(|live| self.rules.needed(&live.tokens));
        needed.try_fold(0, |most, needed| needed.map(|needed| most.max(needed)))
    }

    /// Extends the targets by a token. Overwrites the log-probabilities.
    ///
    /// # Shapes
    /// - tokens: the candidates, `[width, candidates]`, ascending in each row; `None` for the whole vocabulary
    /// - log_probs: `[width, candidates]`
    pub fn advance(&mut self, tokens: Option<&[u32]>, log_probs: &mut [f32]) {
        match &self.limited_to {
            Some(candidates) => {
                let rows = log_probs.chunks(log_probs.len() / self.live.len());
                let mut limited: Vec<f32> = rows
                    .flat_map(|row| candidates.iter().map(|&token| row[token as usize]))
                    .collect();
                limited.chunks_mut(candidates.len()).for_each(|row| {
                    normalize(row);
                });
                let tokens = candidates.repeat(self.live.len());
                self.choose(Some(&tokens), &mut limited);
            }
            None => self.choose(tokens, log_probs),
        }
    }

    fn choose(&mut self, tokens: Option<&[u32]>, log_probs: &mut [f32]) {
        let count = log_probs.len() / self.live.len();
        let mut tokens = tokens.map(|tokens| tokens.chunks(count));
        let mut rows: Vec<Row<'_>> = Vec::new();
        for (live, log_probs) in self.live.iter().zip(log_probs.chunks_mut(count)) {
            let tokens = tokens.as_mut().and_then(Iterator::next);
            let mut candidates = Candidates::new(tokens, log_probs);
            let applied = match live.is_dead {
                true => Applied::default(),
                false => self.rules.apply(&live.tokens, &mut candidates),
            };
            rows.push(Row {
                candidates,
                applied,
            });
        }
        let mut live = match &self.options.strategy {
            Strategy::Beam { size } => self.beam(*size, &rows),
            Strategy::Sample(sampling) => self.samples(sampling, &rows),
        };
        live.resize_with(self.options.width(), Live::dead);
        self.live = live;
    }

    /// The best `size` continuations without `<eos>`. A candidate with `<eos>` ends a target only if it
    /// is among the first `size`.
    fn beam(&mut self, size: usize, rows: &[Row<'_>]) -> Vec<Live> {
        let mut best = Best::new(2 * size);
        for (parent, (live, row)) in self.live.iter().zip(rows).enumerate() {
            if !live.is_dead {
                best.offer(parent, live.rank, &row.candidates);
            }
        }
        let candidates = best.into_sorted();
        if candidates.is_empty() {
            self.cut();
        }
        let mut continued = Vec::with_capacity(size);
        for (rank, candidate) in candidates.into_iter().enumerate() {
            let parent = candidate.parent;
            if !self.ends(parent, candidate.token) {
                if continued.len() < size {
                    let live = self.live[parent].continued(parent, candidate.token, &rows[parent]);
                    continued.push(live);
                }
            } else if rank < size {
                self.end(parent, &rows[parent]);
            }
        }
        continued
    }

    /// Draws a token per sample.
    fn samples(&mut self, sampling: &Sampling, rows: &[Row<'_>]) -> Vec<Live> {
        let mut continued = Vec::with_capacity(self.options.n_best);
        for sample in 0..self.options.n_best {
            // All samples begin with the same empty target.
            let parent = sample.min(self.live.len() - 1);
            let live = &self.live[parent];
            let random = &mut self.random[sample];
            let token = match live.is_dead {
                true => None,
                false => sampling.draw(&rows[parent].candidates, random),
            };
            match token {
                Some(token) if !self.ends(parent, token) => {
                    continued.push(live.continued(parent, token, &rows[parent]));
                    continue;
                }
                Some(_) => self.end(parent, &rows[parent]),
                None if live.is_dead => {}
                None => self.ended.push(self.unfinished(live)),
            }
            continued.push(Live::dead());
        }
        continued
    }

    /// Whether a token ends a target: an `<eos>` that is not part of a prompt.
    fn ends(&self, parent: usize, token: u32) -> bool {
        token == self.eos && self.live[parent].tokens.len() >= self.prompt_len()
    }

    /// Ends a target with `<eos>`.
    fn end(&mut self, parent: usize, row: &Row<'_>) {
        let live = &self.live[parent];
        let log_prob = live.log_prob + row.log_prob(self.eos);
        let rank = live.rank + row.rank(self.eos);
        self.ended.push(Hypothesis {
            tokens: live.tokens.clone(),
            finished: true,
            log_prob,
            score: self.score(rank, live.tokens.len() + 1, &live.coverage),
        });
    }

    /// Ends the unfinished targets without `<eos>`.
    fn cut(&mut self) {
        let growing = self.live.iter().filter(|live| !live.is_dead);
        let cut: Vec<_> = growing.map(|live| self.unfinished(live)).collect();
        self.ended.extend(cut);
    }

    fn unfinished(&self, live: &Live) -> Hypothesis {
        Hypothesis {
            tokens: live.tokens.clone(),
            finished: false,
            log_prob: live.log_prob,
            score: self.score(live.rank, live.tokens.len(), &live.coverage),
        }
    }

    fn score(&self, rank: f64, len: usize, coverage: &[f32]) -> f64 {
        let covered: f64 = coverage
            .iter()
            // Padding gets no attention.
            .filter(|&&sum| sum > 0.0)
            .map(|&sum| f64::from(sum).min(1.0).ln())
            .sum();
        rank / self.divisor(len) + self.options.coverage_penalty * covered
    }

    /// The divisor of the score of a target of `len` tokens, those of a prompt included, which do not count.
    fn divisor(&self, len: usize) -> f64 {
        let predicted = len.saturating_sub(self.prompt_len());
        self.options.length_penalty.of(predicted)
    }

    /// Number of tokens of the prompt.
    fn prompt_len(&self) -> usize {
        match self.rules.beginning() {
            prompt if prompt.is_prompt() => prompt.len(),
            _ => 0,
        }
    }

    /// Whether the search has ended.
    pub fn is_done(&self) -> bool {
        let growing = self.live.iter().filter(|live| !live.is_dead);
        let Some(best) = growing.map(|live| live.rank).max_by(f64::total_cmp) else {
            return true;
        };
        if self.is_at_limit() {
            return true;
        }
        let Strategy::Beam { size } = self.options.strategy else {
            return false;
        };
        let divisor = |len: usize| self.divisor(len.saturating_add(1));
        let len = self.live.iter().map(|live| live.tokens.len()).max();
        let (next, longest) = (divisor(len.unwrap_or(0)), divisor(self.limit));
        // Without penalties, the search ends when no unfinished target can exceed the best found. With penalties that
        // would take long: the search ends when `size` targets have ended and, without early stopping, the best
        // unfinished one currently scores no better than the `size`-th best of them.
        let is_penalized = longest != 1.0 || self.options.coverage_penalty > 0.0;
        if is_penalized && self.ended.len() >= size {
            // A beam of one is greedy decoding, which ends with its first target.
            let is_early = self.options.early_stopping || size == 1;
            if is_early || self.best_growing() <= self.ended_score(size) {
                return true;
            }
        }
        // Log-probabilities only fall. The largest divisor is the one of the longest target or, with a negative
        // exponent, of the next token.
        let reachable = best / longest.max(next);
        let out_of_reach = self.ended.iter().filter(|ended| ended.score >= reachable);
        out_of_reach.count() >= self.options.n_best
    }

    /// The score of the best unfinished target at its current length.
    fn best_growing(&self) -> f64 {
        let growing = self.live.iter().filter(|live| !live.is_dead);
        let scores = growing.map(|live| self.score(live.rank, live.tokens.len(), &live.coverage));
        scores.max_by(f64::total_cmp).unwrap_or(f64::NEG_INFINITY)
    }

    /// The score of the `place`-th best ended target, counted from 1.
    fn ended_score(&self, place: usize) -> f64 {
        let mut scores: Vec<f64> = self.ended.iter().map(|ended| ended.score).collect();
        scores.sort_by(|a, b| b.total_cmp(a));
        scores[place - 1]
    }

    /// The best hypotheses, including unfinished ones at the length limit.
    pub fn take_best(&mut self) -> Vec<Hypothesis> {
        if self.is_at_limit() {
            self.cut();
        }
        self.best_of_ended()
    }

    /// The best hypotheses so far, for a search that is stopped.
    pub fn cut_short(&mut self) -> Vec<Hypothesis> {
        self.cut();
        self.best_of_ended()
    }

    fn best_of_ended(&mut self) -> Vec<Hypothesis> {
        let mut hypotheses = std::mem::take(&mut self.ended);
        hypotheses.sort_by(|a, b| b.score.total_cmp(&a.score));
        hypotheses.truncate(self.options.n_best);
        hypotheses
    }

    fn is_at_limit(&self) -> bool {
        // All unfinished targets have the same length.
        let mut growing = self.live.iter().filter(|live| !live.is_dead);
        growing.any(|live| live.tokens.len() >= self.limit)
    }
}

/// The candidates for a target's next token, after the rules.
struct Row<'a> {
    candidates: Candidates<'a>,
    applied: Applied,
}

impl Row<'_> {
    /// The log-probability after the rules.
    fn rank(&self, token: u32) -> f64 {
        f64::from(self.candidates.get(token))
    }

    /// The model's log-probability.
    fn log_prob(&self, token: u32) -> f64 {
        self.applied.before(token, self.candidates.get(token))
    }
}

impl Live {
    fn continued(&self, parent: usize, token: u32, row: &Row<'_>) -> Self {
        let mut tokens = Vec::with_capacity(self.tokens.len() + 1);
        tokens.extend_from_slice(&self.tokens);
        tokens.push(token);
        Self {
            tokens,
            parent,
            log_prob: self.log_prob + row.log_prob(token),
            rank: self.rank + row.rank(token),
            coverage: self.coverage.clone(),
            is_dead: false,
        }
    }

    fn dead() -> Self {
        Self {
            is_dead: true,
            ..Self::default()
        }
    }
}
