//! The loop that decodes.

use burn::tensor::backend::Backend;
use rand_chacha::ChaCha8Rng;

use super::Hypothesis;
use super::batches::{batches, check_source, unknown_token};
use super::beam::Best;
use super::options::{DecodeOptions, MaxLength, Sampling, Strategy};
use super::rules::Rules;
use super::stepper::{Step, Stepper};
use crate::error::{DecodeError, DecodeOptionsError, SourceProblem};
use crate::transformer::Transformer;

/// Decodes sources with a model, or with an ensemble: the mean of its models' probabilities.
///
/// ```
/// use burn_ndarray::NdArray;
/// use transformer_core::{DecodeOptions, Search, TransformerConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Default::default();
/// let model = TransformerConfig::notebook_mini(1000).init::<NdArray>(42, &device)?;
///
/// let search = Search::new(&[&model], DecodeOptions::beam(4), &device)?;
/// let targets = search.run(&[vec![5, 3, 7, 2], vec![9, 2]])?;
/// assert_eq!(targets.len(), 2);
/// println!("{:?}", targets[0][0].tokens);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Search<'a, B: Backend> {
    models: Vec<&'a Transformer<B>>,
    options: DecodeOptions,
    prefixes: &'a [Vec<u32>],
    device: B::Device,
}

/// Decodes sources, taking the most likely token at each step. The hypotheses come in the order of
/// the sources.
///
/// # Errors
/// When a source is empty, too long, or holds a token that the model does not know.
pub fn greedy<B: Backend>(
    model: &Transformer<B>,
    sources: &[impl AsRef<[u32]>],
    max_length: MaxLength,
    device: &B::Device,
) -> Result<Vec<Hypothesis>, DecodeError> {
    let options = DecodeOptions {
        max_length,
        ..DecodeOptions::greedy()
    };
    let search = Search {
        models: vec![model],
        options,
        prefixes: &[],
        device: device.clone(),
    };
    let found = search.run(sources)?;
    Ok(found.into_iter().flatten().collect())
}

impl<'a, B: Backend> Search<'a, B> {
    /// A search with the models of an ensemble, or with one.
    ///
    /// # Errors
    /// When an option is out of range, or the models have different vocabularies.
    pub fn new(
        models: &[&'a Transformer<B>],
        options: DecodeOptions,
        device: &B::Device,
    ) -> Result<Self, DecodeOptionsError> {
        options.validate()?;
        let Some((first, others)) = models.split_first() else {
            return Err(DecodeOptionsError::NoModel);
        };
        let vocabulary = |model: &Transformer<B>| {
            let config = model.config();
            let sizes = [config.src_vocab_size, config.tgt_vocab_size];
            (sizes, [config.pad_id, config.bos_id, config.eos_id])
        };
        if others
            .iter()
            .any(|other| vocabulary(other) != vocabulary(first))
        {
            return Err(DecodeOptionsError::Vocabularies);
        }
        let vocab_size = first.config().tgt_vocab_size;
        if let Some(token) = unknown_token(&options.banned_tokens, vocab_size) {
            return Err(DecodeOptionsError::BannedToken { token, vocab_size });
        }
        Ok(Self {
            models: models.to_vec(),
            options,
            prefixes: &[],
            device: device.clone(),
        })
    }

    /// Gives each target the tokens that it must begin with, one list for each source.
    pub fn with_prefixes(self, prefixes: &'a [Vec<u32>]) -> Self {
        Self { prefixes, ..self }
    }

    /// Finds targets for sources: for each, in the order given, `n_best` hypotheses or fewer, the
    /// best first.
    ///
    /// Sources of similar length are decoded side by side. What is found for one does not depend on
    /// the others, beyond the rounding of sums.
    ///
    /// # Errors
    /// When a source is empty, too long, or holds a token that the model does not know, or a prefix is
    /// or does; when a model's weights are so damaged that it computes no numbers.
    ///
    /// # Panics
    /// When there are prefixes, but not one for each source.
    pub fn run(&self, sources: &[impl AsRef<[u32]>]) -> Result<Vec<Vec<Hypothesis>>, DecodeError> {
        self.stream(sources, |_, _| ())
    }

    /// [`run`](Self::run), telling each token as soon as it is certain: the source's place, and the
    /// token. With a beam of one, or one sample, that is at once; otherwise when the source's search
    /// has ended. Only the best hypothesis is told, without `<eos>`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn stream(
        &self,
        sources: &[impl AsRef<[u32]>],
        mut on_token: impl FnMut(usize, u32),
    ) -> Result<Vec<Vec<Hypothesis>>, DecodeError> {
        let sources: Vec<&[u32]> = sources.iter().map(AsRef::as_ref).collect();
        self.check(&sources)?;
        let lengths: Vec<usize> = sources.iter().map(|source| source.len()).collect();
        let mut found = vec![Vec::new(); sources.len()];
        // Hypotheses of a source see the places of all of them.
        let crowd = (self.options.width() / 16).max(1).pow(2);
        for batch in batches(&lengths, self.options.batch_tokens / crowd) {
            let targets = batch
                .iter()
                .map(|&index| self.targets(index, sources[index]));
            let batch: Vec<&[u32]> = batch.iter().map(|&index| sources[index]).collect();
            self.decode(&batch, targets.collect(), &mut on_token, &mut found)?;
        }
        Ok(found)
    }

    fn check(&self, sources: &[&[u32]]) -> Result<(), DecodeError> {
        assert!(
            self.prefixes.is_empty() || self.prefixes.len() == sources.len(),
            "{} prefixes for {} sources",
            self.prefixes.len(),
            sources.len()
        );
        for (index, source) in sources.iter().enumerate() {
            let problem = |problem| DecodeError { index, problem };
            let (length, limit) = (source.len(), self.options.max_src_len);
            for model in &self.models {
                check_source(source, model.config()).map_err(problem)?;
            }
            if length > limit {
                return Err(problem(SourceProblem::OverLimit { length, limit }));
            }
            let vocab_size = self.models[0].config().tgt_vocab_size;
            if let Some(token) = unknown_token(self.prefix(index), vocab_size) {
                return Err(problem(SourceProblem::UnknownPrefix { token, vocab_size }));
            }
            let (length, limit) = (self.prefix(index).len(), self.limit(length));
            if length > limit {
                return Err(problem(SourceProblem::PrefixTooLong { length, limit }));
            }
        }
        Ok(())
    }

    fn prefix(&self, index: usize) -> &[u32] {
        self.prefixes.get(index).map_or(&[], Vec::as_slice)
    }

    /// Tokens that the target of a source may have.
    fn limit(&self, src_len: usize) -> usize {
        let limits = self
            .models
            .iter()
            .map(|model| self.options.max_length.limit(src_len, model.config()));
        limits.min().expect("there is a model")
    }

    fn targets(&self, index: usize, source: &[u32]) -> Targets<'_> {
        let config = self.models[0].config();
        Targets {
            index,
            limit: self.limit(source.len()),
            rules: Rules::new(&self.options, config.eos_id, self.prefix(index)),
            options: &self.options,
            eos_id: config.eos_id,
            live: vec![Live::default()],
            ended: Vec::new(),
            random: match &self.options.strategy {
                Strategy::Beam { .. } => Vec::new(),
                Strategy::Sample(sampling) => (0..self.options.n_best)
                    .map(|sample| sampling.random(source, sample))
                    .collect(),
            },
        }
    }

    /// Decodes a batch; what is found goes to its source's place in `found`.
    ///
    /// Fails where the models say what is not a number.
    fn decode(
        &self,
        sources: &[&[u32]],
        mut targets: Vec<Targets<'_>>,
        on_token: &mut impl FnMut(usize, u32),
        found: &mut [Vec<Hypothesis>],
    ) -> Result<(), DecodeError> {
        let bos_id = self.models[0].config().bos_id;
        let with_attention = self.options.coverage_penalty > 0.0;
        let mut stepper = Stepper::new(&self.models, sources, &self.device);
        // Targets of each source: one before the first token, then as many as the strategy has.
        let mut width = 1;
        loop {
            let mut kept = Vec::new();
            for (at, target) in targets.iter_mut().enumerate() {
                if target.is_done() {
                    found[target.index] = target.take_best();
                    if self.options.width() > 1 {
                        let best = found[target.index].first();
                        let tokens = best.map_or(&[][..], |best| &best.tokens);
                        tokens
                            .iter()
                            .for_each(|&token| on_token(target.index, token));
                    }
                } else {
                    kept.push(at);
                }
            }
            if kept.is_empty() {
                return Ok(());
            }
            let parents = |at: usize| {
                let live = &targets[at].live;
                live.iter().map(move |live| at * width + live.parent)
            };
            let rows: Vec<usize> = kept.iter().copied().flat_map(parents).collect();
            stepper.select(&kept, &rows);
            let mut at = 0..;
            targets.retain(|_| at.next().is_some_and(|at| kept.binary_search(&at).is_ok()));
            width = rows.len() / kept.len();

            let last = targets.iter().flat_map(|target| &target.live);
            let last: Vec<u32> = last
                .map(|live| live.tokens.last().copied().unwrap_or(bos_id))
                .collect();
            let Step {
                mut log_probs,
                attention,
            } = stepper.step(&last, with_attention);
            let vocab_size = log_probs.len() / last.len();
            let src_len = attention.len() / last.len();
            for (at, target) in targets.iter_mut().enumerate() {
                let rows = at * width..(at + 1) * width;
                let log_probs = &mut log_probs[rows.start * vocab_size..rows.end * vocab_size];
                if log_probs.iter().any(|log_prob| log_prob.is_nan()) {
                    return Err(DecodeError {
                        index: target.index,
                        problem: SourceProblem::NotNumbers,
                    });
                }
                target.attend(&attention[rows.start * src_len..rows.end * src_len]);
                target.advance(log_probs);
                if self.options.width() == 1
                    && target.ended.is_empty()
                    && let Some(&token) = target.live[0].tokens.last()
                {
                    on_token(target.index, token);
                }
            }
        }
    }
}

/// The targets of one source while they grow.
struct Targets<'a> {
    /// The source's place among those given.
    index: usize,
    /// Tokens that a target may have.
    limit: usize,
    rules: Rules<'a>,
    options: &'a DecodeOptions,
    eos_id: u32,
    /// Those that grow; as many in every source of the batch.
    live: Vec<Live>,
    ended: Vec<Hypothesis>,
    /// Of each sample.
    random: Vec<ChaCha8Rng>,
}

/// A target that grows.
#[derive(Debug, Clone, Default)]
struct Live {
    tokens: Vec<u32>,
    /// Which of the targets before the last token it continues.
    parent: usize,
    /// The model's log-probability.
    log_prob: f64,
    /// The same, with the rules' penalties.
    rank: f64,
    /// How much its tokens attend to each source token, together; empty unless asked for.
    coverage: Vec<f32>,
    /// Whether it only fills its place in the batch.
    is_dead: bool,
}

impl Targets<'_> {
    /// Notes how much the last tokens attend to the source: `[width, src_len]`.
    fn attend(&mut self, attention: &[f32]) {
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

    /// Continues the targets by a token: `[width, tgt_vocab_size]`, which it may change.
    fn advance(&mut self, log_probs: &mut [f32]) {
        let vocab_size = log_probs.len() / self.live.len();
        let mut rows: Vec<Row<'_>> = Vec::new();
        for (live, log_probs) in self.live.iter().zip(log_probs.chunks_mut(vocab_size)) {
            let penalized = match live.is_dead {
                true => Vec::new(),
                false => self.rules.apply(&live.tokens, log_probs),
            };
            rows.push(Row {
                log_probs,
                penalized,
            });
        }
        let mut live = match &self.options.strategy {
            Strategy::Beam { size } => self.beam(*size, &rows),
            Strategy::Sample(sampling) => self.samples(sampling, &rows),
        };
        live.resize_with(self.options.width(), Live::dead);
        self.live = live;
    }

    /// The best continuations. One that ends in `<eos>` counts where it is among the first `size`:
    /// others of the next `size` then take its place.
    fn beam(&mut self, size: usize, rows: &[Row<'_>]) -> Vec<Live> {
        let mut best = Best::new(2 * size);
        for (parent, (live, row)) in self.live.iter().zip(rows).enumerate() {
            if !live.is_dead {
                best.offer(parent, live.rank, row.log_probs);
            }
        }
        let candidates = best.into_sorted();
        if candidates.is_empty() {
            self.cut();
        }
        let mut continued = Vec::with_capacity(size);
        for (place, candidate) in candidates.into_iter().enumerate() {
            let parent = candidate.parent;
            if candidate.token != self.eos_id {
                if continued.len() < size {
                    let live = self.live[parent].continued(parent, candidate.token, &rows[parent]);
                    continued.push(live);
                }
            } else if place < size {
                self.end(parent, &rows[parent]);
            }
        }
        continued
    }

    /// A token drawn for each sample.
    fn samples(&mut self, sampling: &Sampling, rows: &[Row<'_>]) -> Vec<Live> {
        let mut continued = Vec::with_capacity(self.options.n_best);
        for sample in 0..self.options.n_best {
            // They all begin as one.
            let parent = sample.min(self.live.len() - 1);
            let live = &self.live[parent];
            let random = &mut self.random[sample];
            let token = match live.is_dead {
                true => None,
                false => sampling.draw(rows[parent].log_probs, random),
            };
            match token {
                Some(token) if token != self.eos_id => {
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

    /// A target took `<eos>`.
    fn end(&mut self, parent: usize, row: &Row<'_>) {
        let live = &self.live[parent];
        let log_prob = live.log_prob + row.log_prob(self.eos_id);
        let rank = live.rank + f64::from(row.log_probs[self.eos_id as usize]);
        self.ended.push(Hypothesis {
            tokens: live.tokens.clone(),
            finished: true,
            log_prob,
            score: self.score(rank, live.tokens.len() + 1, &live.coverage),
        });
    }

    /// The targets that grow are left as they are.
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
            // Padding is attended by none.
            .filter(|&&sum| sum > 0.0)
            .map(|&sum| f64::from(sum).min(1.0).ln())
            .sum();
        rank / self.options.length_penalty.of(len) + self.options.coverage_penalty * covered
    }

    /// Whether nothing better can be found.
    fn is_done(&self) -> bool {
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
        let penalty = self.options.length_penalty.of(self.limit.saturating_add(1));
        // Without penalties, what may still pass the best found is known; with them it is nearly
        // everything, for a long time, and as many as the beam has are enough.
        let is_penalized = penalty != 1.0 || self.options.coverage_penalty > 0.0;
        if is_penalized && self.ended.len() >= size {
            return true;
        }
        // Log-probabilities only fall; at best the longest target divides them by most.
        let reachable = best / penalty;
        let out_of_reach = self.ended.iter().filter(|ended| ended.score >= reachable);
        out_of_reach.count() >= self.options.n_best
    }

    /// The best hypotheses; where the limit was reached, those that have not ended too.
    fn take_best(&mut self) -> Vec<Hypothesis> {
        if self.is_at_limit() {
            self.cut();
        }
        let mut hypotheses = std::mem::take(&mut self.ended);
        hypotheses.sort_by(|a, b| b.score.total_cmp(&a.score));
        hypotheses.truncate(self.options.n_best);
        hypotheses
    }

    fn is_at_limit(&self) -> bool {
        // They are all of one length.
        let mut growing = self.live.iter().filter(|live| !live.is_dead);
        growing.any(|live| live.tokens.len() >= self.limit)
    }
}

/// What the models say about a target's next token.
struct Row<'a> {
    /// After the rules: `[tgt_vocab_size]`.
    log_probs: &'a [f32],
    /// The model's log-probabilities of tokens that a rule changed and did not ban.
    penalized: Vec<(u32, f32)>,
}

impl Row<'_> {
    /// The model's.
    fn log_prob(&self, token: u32) -> f64 {
        let penalized = self.penalized.iter().find(|(other, _)| *other == token);
        let log_prob = penalized.map(|&(_, log_prob)| log_prob);
        f64::from(log_prob.unwrap_or(self.log_probs[token as usize]))
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
            rank: self.rank + f64::from(row.log_probs[token as usize]),
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
