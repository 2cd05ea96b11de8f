//! The search for a batch of requests: the decoding loop.

use std::mem;
use std::ops::ControlFlow;

use crate::decoding::Hypothesis;
use crate::decoding::error::DecodeError;
use crate::decoding::next_token::{Next, NextToken, Vocabulary};
use crate::decoding::options::DecodeOptions;
use crate::decoding::targets::Targets;
use transformer_kernels::AttentionWeights;

/// Only the most likely tokens are asked for if they are at most this part of the vocabulary.
const FEW: usize = 8;

/// A batch of requests during the search.
pub(super) struct BatchSearch<'a, M: NextToken> {
    model: &'a M,
    options: &'a DecodeOptions,
    vocabulary: Vocabulary,
    /// The model's state.
    state: M::State,
    /// The targets of each source that is not finished.
    targets: Vec<Targets<'a>>,
    /// Targets per source: one before the first token, then as many as the strategy decodes.
    width: usize,
    decoded: Decoded,
}

impl<'a, M: NextToken> BatchSearch<'a, M> {
    /// A batch of sources that the model has read, each with one empty target.
    pub fn new(
        model: &'a M,
        options: &'a DecodeOptions,
        state: M::State,
        targets: Vec<Targets<'a>>,
    ) -> Self {
        Self {
            model,
            options,
            vocabulary: model.vocabulary(),
            state,
            targets,
            width: 1,
            decoded: Decoded::default(),
        }
    }

    /// Searches until every source is finished, or `on_token` stops the search.
    ///
    /// Fails if the model's log-probabilities are NaN.
    pub fn run(
        mut self,
        on_token: &mut impl FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<Decoded, DecodeError> {
        if self.read_beginnings(on_token)?.is_break() {
            return Ok(self.stopped());
        }
        loop {
            let ControlFlow::Continue(kept) = self.finish(on_token) else {
                return Ok(self.stopped());
            };
            if kept.is_empty() {
                return Ok(self.decoded);
            }
            self.select(&kept);
            if self.step(on_token)?.is_break() {
                return Ok(self.stopped());
            }
        }
    }

    /// Reads in one pass the tokens that the targets must begin with, up to the length of the shortest beginning. The
    /// last of them is read by the first step.
    fn read_beginnings(
        &mut self,
        on_token: &mut impl FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, DecodeError> {
        let bos = self.vocabulary.special_tokens.bos;
        let rows = self.targets.iter().map(|targets| targets.first_tokens(bos));
        let rows: Vec<(Vec<u32>, usize)> = rows.collect();
        let shortest = rows.iter().map(|(row, _)| row.len()).min().unwrap_or(0);
        let begun: Vec<&[u32]> = rows
            .iter()
            .map(|(row, start)| &row[*start..shortest])
            .collect();
        let log_probs = if self.targets.iter().all(Targets::have_prompt) {
            let read = rows.iter().map(|(row, _)| &row[..shortest - 1]);
            if shortest > 1 {
                let read: Vec<&[u32]> = read.collect();
                self.model.read_prompts(&read, &mut self.state);
            }
            vec![vec![0.0; shortest]; begun.len()]
        } else if shortest > 2
            && self.options.coverage_penalty == 0.0
            && self.options.shortlist.is_none()
        {
            self.model.read(&begun, &mut self.state)
        } else {
            // The coverage penalty needs the attention of every token, and a shortlist leaves out some probabilities;
            // a single token is read as fast by a step.
            return Ok(ControlFlow::Continue(()));
        };
        let mut flow = ControlFlow::Continue(());
        for ((targets, tokens), log_probs) in self.targets.iter_mut().zip(begun).zip(&log_probs) {
            if has_nan(log_probs) {
                return Err(targets.not_a_number());
            }
            targets.begin(tokens, log_probs);
            if self.options.width() == 1 {
                flow = flow_on(flow, || {
                    tokens
                        .iter()
                        .try_for_each(|&token| on_token(targets.index, token))
                });
            }
        }
        Ok(flow)
    }

    /// Collects the hypotheses of the finished sources. Returns the indices of the others.
    fn finish(
        &mut self,
        on_token: &mut impl FnMut(usize, u32) -> ControlFlow<()>,
    ) -> ControlFlow<(), Vec<usize>> {
        let mut flow = ControlFlow::Continue(());
        let mut kept = Vec::new();
        let all = mem::take(&mut self.targets);
        for (at, mut targets) in all.into_iter().enumerate() {
            if !targets.is_done() {
                kept.push(at);
                self.targets.push(targets);
                continue;
            }
            let hypotheses = targets.take_best();
            // A single target was emitted token by token.
            if self.options.width() > 1
                && let Some(best) = hypotheses.first()
            {
                let mut tokens = best.tokens.iter();
                flow = flow_on(flow, || {
                    tokens.try_for_each(|&token| on_token(targets.index, token))
                });
            }
            self.decoded.hypotheses.push((targets.index, hypotheses));
        }
        flow?;
        ControlFlow::Continue(kept)
    }

    /// Reorders the model's state: only the kept sources remain, and each target continues its parent.
    fn select(&mut self, kept: &[usize]) {
        let rows = kept.iter().zip(&self.targets).flat_map(|(&at, targets)| {
            let first = at * self.width;
            targets.parents().map(move |parent| first + parent)
        });
        let rows: Vec<usize> = rows.collect();
        self.model.select(&mut self.state, kept, &rows);
        self.width = rows.len() / kept.len();
    }

    /// Extends every target by a token.
    fn step(
        &mut self,
        on_token: &mut impl FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, DecodeError> {
        let Next {
            mut log_probs,
            tokens,
            attention,
        } = self.next_token();
        let attention = attention.unwrap_or_default();
        let of_source = attention.len() / self.targets.len();
        let mut attention = attention.chunks(of_source.max(1));
        let of_source = log_probs.len() / self.targets.len();
        let mut tokens = tokens.as_deref().map(|tokens| tokens.chunks(of_source));
        let rows = log_probs.chunks_mut(of_source);
        let mut flow = ControlFlow::Continue(());
        for (targets, log_probs) in self.targets.iter_mut().zip(rows) {
            if has_nan(log_probs) {
                return Err(targets.not_a_number());
            }
            targets.attend(attention.next().unwrap_or_default());
            let tokens = tokens.as_mut().and_then(Iterator::next);
            targets.advance(tokens, log_probs);
            if let Some(token) = targets.certain_token() {
                flow = flow_on(flow, || on_token(targets.index, token));
            }
        }
        Ok(flow)
    }

    /// The prediction of every target's next token, with the attention of its last one if there is a coverage penalty.
    fn next_token(&mut self) -> Next {
        let bos = self.vocabulary.special_tokens.bos;
        let last = self.targets.iter();
        let last: Vec<u32> = last.flat_map(|targets| targets.last_tokens(bos)).collect();
        let attention = match self.options.coverage_penalty > 0.0 {
            true => AttentionWeights::Return,
            false => AttentionWeights::Discard,
        };
        let needed = self.targets.iter().map(Targets::needed);
        let needed = match self.options.shortlist {
            Some(_) => None,
            None => needed.reduce(|one, other| Some(one?.max(other?))).flatten(),
        };
        match needed.filter(|needed| needed.saturating_mul(FEW) <= self.vocabulary.size) {
            Some(needed) => self
                .model
                .next_best(&last, &mut self.state, attention, needed),
            None => self.model.next(&last, &mut self.state, attention),
        }
    }

    /// The result when the caller stops the search; unfinished targets have their tokens so far.
    fn stopped(mut self) -> Decoded {
        let growing = self.targets.iter_mut();
        let hypotheses = growing.map(|targets| (targets.index, targets.cut_short()));
        self.decoded.hypotheses.extend(hypotheses);
        self.decoded.is_stopped = true;
        self.decoded
    }
}

/// The result of the search for a batch.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    /// The hypotheses of each request, with its index.
    hypotheses: Vec<(usize, Vec<Hypothesis>)>,
    /// Whether the caller stopped the search.
    pub is_stopped: bool,
}

impl Decoded {
    /// Moves the hypotheses into `found`, which has an entry per request.
    pub fn place(self, found: &mut [Vec<Hypothesis>]) {
        for (index, hypotheses) in self.hypotheses {
            found[index] = hypotheses;
        }
    }
}

/// Whether a value is NaN. The loop has no early exit, so that it is vectorized.
fn has_nan(numbers: &[f32]) -> bool {
    numbers
        .iter()
        .fold(false, |any, number| any | number.is_nan())
}

/// The result of `next`, unless `flow` is `Break`.
fn flow_on(flow: ControlFlow<()>, next: impl FnOnce() -> ControlFlow<()>) -> ControlFlow<()> {
    match flow {
        ControlFlow::Continue(()) => next(),
        stopped => stopped,
    }
}
