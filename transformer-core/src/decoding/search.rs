//! Search: checks requests, and decodes them in batches.

use std::ops::ControlFlow;

use crate::decoding::Hypothesis;
use crate::decoding::batch_search::{BatchSearch, Decoded};
use crate::decoding::batches::{batches, unknown_token};
use crate::decoding::error::{DecodeError, DecodeOptionsError, RequestProblem};
use crate::decoding::next_token::NextToken;
use crate::decoding::options::{DecodeOptions, MaxLength};
use crate::decoding::request::Request;
use crate::decoding::rules::Beginning;
use crate::decoding::side_by_side::{self, batches_for_threads};
use crate::decoding::targets::Targets;
use transformer_cpu::Threads;

/// Decodes requests with a model: a [`Transformer`](crate::Transformer), a
/// [`LanguageModel`](crate::LanguageModel), an [`Ensemble`](crate::decoding::Ensemble), or any
/// [`NextToken`] (§6.1).
///
/// ```
/// use burn_ndarray::NdArray;
/// use transformer_core::{DecodeOptions, Request, Search, TransformerConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Default::default();
/// let model = TransformerConfig::notebook_mini(1000).init::<NdArray>(42, &device)?;
///
/// let search = Search::new(&model, DecodeOptions::beam(4))?;
/// let targets = search.run(&[Request::new([5, 3, 7]), Request::new([9])])?;
/// assert_eq!(targets.len(), 2);
/// println!("{:?}", targets[0][0].tokens);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Search<'a, M> {
    model: &'a M,
    options: DecodeOptions,
}

/// Decodes requests greedily, with the most likely token at each step (§6.1). The hypotheses are in the order of the
/// requests. On a backend with gradients (`Autodiff`), dropout is active: decode with `model.valid()` instead.
///
/// # Errors
/// As [`Search::run`].
pub fn greedy<M: NextToken>(
    model: &M,
    requests: &[Request],
    max_length: MaxLength,
) -> Result<Vec<Hypothesis>, DecodeError> {
    let options = DecodeOptions {
        max_length,
        ..DecodeOptions::greedy()
    };
    let found = Search { model, options }.run(requests)?;
    Ok(found.into_iter().flatten().collect())
}

impl<'a, M: NextToken> Search<'a, M> {
    /// A search with a model. On a backend with gradients (`Autodiff`), dropout is active: decode with `model.valid()`
    /// instead.
    ///
    /// # Errors
    /// When an option is out of range, names a token outside the vocabulary, or asks for more tokens than the model has
    /// positions.
    pub fn new(model: &'a M, options: DecodeOptions) -> Result<Self, DecodeOptionsError> {
        options.validate()?;
        let vocab_size = model.vocabulary().size;
        if let Some(token) = unknown_token(&options.banned_tokens, vocab_size) {
            return Err(DecodeOptionsError::BannedToken { token, vocab_size });
        }
        if let Some(token) = unknown_token(options.forced_first.as_slice(), vocab_size) {
            return Err(DecodeOptionsError::ForcedToken { token, vocab_size });
        }
        let listed = options.shortlist.as_ref();
        let largest = listed.and_then(|shortlist| shortlist.largest());
        if let Some(token) = unknown_token(largest.as_slice(), vocab_size) {
            return Err(DecodeOptionsError::Shortlist { token, vocab_size });
        }
        let min_length = options.min_length;
        match model.max_target_len() {
            Some(max_len) if min_length > max_len => Err(DecodeOptionsError::MinLength {
                min_length,
                max_len,
            }),
            _ => Ok(Self { model, options }),
        }
    }

    /// Decodes requests. Returns, for each of them in order, at most `n_best` hypotheses, best first.
    ///
    /// Sources of similar length are decoded in one batch. The hypotheses of one do not depend on the others, except
    /// for the rounding of sums.
    ///
    /// # Errors
    /// When a source is empty, a source or prefix is too long or has a token outside its vocabulary, or the model's
    /// log-probabilities are NaN.
    pub fn run(&self, requests: &[Request]) -> Result<Vec<Vec<Hypothesis>>, DecodeError> {
        let work = self.work(requests)?;
        let go_on = |_, _| ControlFlow::Continue(());
        let batch_tokens = self.options.batch_tokens;
        if let Some(most) = self.model.tokens_side_by_side()
            && let Some(batches) = batches_for_threads(&work.lengths(), batch_tokens, most)
        {
            let this = Threads::This;
            let decode = |batch: &[usize]| self.decode(&work, batch, this, &mut { go_on });
            let mut found = vec![Vec::new(); requests.len()];
            for decoded in side_by_side::map(&batches, decode) {
                decoded?.place(&mut found);
            }
            return Ok(found);
        }
        self.batch_by_batch(&work, go_on)
    }

    /// [`run`](Self::run), calling `on_token` with the index of a request and a token as soon as the token is certain:
    /// at once with a beam of one or a single sample, otherwise when the search for the request has ended. Only the
    /// best hypothesis is emitted, without `<eos>`, but with a forced first token and the tokens of a prefix.
    ///
    /// When `on_token` returns [`ControlFlow::Break`], the search stops: requests in progress return the hypotheses
    /// found so far, the others none.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn stream(
        &self,
        requests: &[Request],
        on_token: impl FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<Vec<Vec<Hypothesis>>, DecodeError> {
        self.batch_by_batch(&self.work(requests)?, on_token)
    }

    fn batch_by_batch(
        &self,
        work: &Work<'_>,
        mut on_token: impl FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<Vec<Vec<Hypothesis>>, DecodeError> {
        let mut found = vec![Vec::new(); work.requests.len()];
        for batch in batches(&work.lengths(), self.options.batch_tokens) {
            let decoded = self.decode(work, &batch, Threads::All, &mut on_token)?;
            let is_stopped = decoded.is_stopped;
            decoded.place(&mut found);
            if is_stopped {
                break;
            }
        }
        Ok(found)
    }

    /// Checks requests, as [`run`](Self::run) does before decoding.
    ///
    /// # Errors
    /// As [`run`](Self::run), except for NaN log-probabilities.
    pub fn check(&self, requests: &[Request]) -> Result<(), DecodeError> {
        self.work(requests).map(drop)
    }

    /// Requests with their sources, if all of them are valid.
    fn work<'r>(&self, requests: &'r [Request]) -> Result<Work<'r>, DecodeError> {
        let tokens = self.model.vocabulary().special_tokens;
        let sources = requests.iter().map(|request| request.source(tokens));
        let sources: Vec<Vec<u32>> = sources.collect();
        for (index, (request, source)) in requests.iter().zip(&sources).enumerate() {
            self.check_one(request, source)
                .map_err(|problem| DecodeError { index, problem })?;
        }
        Ok(Work { requests, sources })
    }

    fn check_one(&self, request: &Request, source: &[u32]) -> Result<(), RequestProblem> {
        self.model.check_source(source)?;
        let (length, limit) = (source.len(), self.options.max_src_len);
        if length > limit {
            return Err(RequestProblem::OverLimit { length, limit });
        }
        let vocab_size = self.model.vocabulary().size;
        if let Some(token) = unknown_token(request.prefix(), vocab_size) {
            return Err(RequestProblem::UnknownPrefix { token, vocab_size });
        }
        let length = self.beginning(request, source).len();
        let limit = self.limit(request, source);
        match self.model.max_target_len() {
            Some(max_len) if length > max_len => {
                Err(RequestProblem::PrefixOverPositions { length, max_len })
            }
            _ if length > limit => Err(RequestProblem::PrefixTooLong { length, limit }),
            _ => Ok(()),
        }
    }

    /// The maximum length of a request's target.
    fn limit(&self, request: &Request, source: &[u32]) -> usize {
        let wanted = match self.options.max_length {
            MaxLength::Tokens(tokens) => tokens,
            MaxLength::SourcePlus(more) => {
                let length = match source {
                    [] => self.beginning(request, source).len(),
                    source => source.len(),
                };
                // The end of a target of the minimum length comes after it.
                let least = match self.options.min_length {
                    0 => 0,
                    min_length => min_length.saturating_add(1),
                };
                length.saturating_add(more).max(least)
            }
        };
        wanted.min(self.model.max_target_len().unwrap_or(usize::MAX))
    }

    /// The tokens that the target of a request must begin with.
    fn beginning<'s>(&self, request: &'s Request, source: &[u32]) -> Beginning<'s> {
        Beginning::new(&self.options, request.prefix(), source.is_empty())
    }

    fn targets<'s>(&'s self, index: usize, request: &'s Request, source: &[u32]) -> Targets<'s> {
        // The draws of a sample depend on its own request only.
        let seed = match source {
            [] => request.prefix(),
            source => source,
        };
        let special_tokens = self.model.vocabulary().special_tokens;
        let limit = self.limit(request, source);
        let beginning = self.beginning(request, source);
        Targets::new(index, limit, &self.options, special_tokens, beginning, seed)
    }

    /// Decodes the requests with the given indices as a batch.
    ///
    /// Fails if the model's log-probabilities are NaN.
    fn decode(
        &self,
        work: &Work<'_>,
        batch: &[usize],
        threads: Threads,
        on_token: &mut impl FnMut(usize, u32) -> ControlFlow<()>,
    ) -> Result<Decoded, DecodeError> {
        let sources = batch.iter().map(|&index| &work.sources[index][..]);
        let sources: Vec<&[u32]> = sources.collect();
        let targets = batch.iter().zip(&sources);
        let targets =
            targets.map(|(&index, source)| self.targets(index, &work.requests[index], source));
        let mut targets: Vec<Targets<'_>> = targets.collect();
        let mut state = self.model.start(&sources, threads);
        if let Some(shortlist) = self.options.shortlist.as_deref()
            && sources.iter().all(|source| !source.is_empty())
        {
            let vocab_size = self.model.vocabulary().size;
            let candidates = targets.iter().zip(&sources);
            let candidates = candidates
                .map(|(targets, source)| targets.candidates(shortlist, source, vocab_size));
            let candidates: Vec<Vec<u32>> = candidates.collect();
            if !self.model.limit(&candidates, &mut state) {
                for (targets, candidates) in targets.iter_mut().zip(candidates) {
                    targets.limit(candidates);
                }
            }
        }
        BatchSearch::new(self.model, &self.options, state, targets).run(on_token)
    }
}

/// Requests, and their sources as the model reads them.
struct Work<'r> {
    requests: &'r [Request],
    sources: Vec<Vec<u32>>,
}

impl Work<'_> {
    /// The length of each source, or of its prefix if longer.
    fn lengths(&self) -> Vec<usize> {
        let all = self.sources.iter().zip(self.requests);
        all.map(|(source, request)| source.len().max(request.prefix().len()))
            .collect()
    }
}
