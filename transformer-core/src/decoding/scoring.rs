//! The probabilities of given targets.

use crate::decoding::batches::batches;
use crate::decoding::error::DecodeError;
use crate::decoding::next_token::NextToken;
use crate::decoding::request::SourceTarget;
use transformer_cpu::Threads;

/// The probability of a target.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TargetScore {
    /// The log-probability of each token, given the source and the tokens before it.
    pub log_probs: Vec<f32>,
}

impl TargetScore {
    /// The log-probability of the whole target.
    pub fn log_prob(&self) -> f64 {
        self.log_probs.iter().copied().map(f64::from).sum()
    }

    /// The exponential of the mean negative log-probability per token; 1 for a target without tokens.
    pub fn perplexity(&self) -> f64 {
        let tokens = self.log_probs.len().max(1) as f64;
        (-self.log_prob() / tokens).exp()
    }
}

/// Computes the log-probability of each target given its source, with a model or an
/// [`Ensemble`](crate::decoding::Ensemble). On a backend with gradients (`Autodiff`), dropout is active: score with
/// `model.valid()` instead.
///
/// A batch has at most `batch_tokens` tokens on its longer side, padding included, but at least one pair.
///
/// # Errors
/// When a source is empty, or a source or target is too long or has a token outside its vocabulary.
pub fn score<M: NextToken>(
    model: &M,
    pairs: &[SourceTarget],
    batch_tokens: usize,
) -> Result<Vec<TargetScore>, DecodeError> {
    let tokens = model.vocabulary().special_tokens;
    let pairs: Vec<[Vec<u32>; 2]> = pairs.iter().map(|pair| pair.ended(tokens)).collect();
    for (index, [source, target]) in pairs.iter().enumerate() {
        let problem = |problem| DecodeError { index, problem };
        model.check_source(source).map_err(problem)?;
        model.check_target(target).map_err(problem)?;
    }
    let lengths: Vec<usize> = pairs
        .iter()
        .map(|[source, target]| source.len().max(target.len()))
        .collect();
    let mut scores = vec![
        TargetScore {
            log_probs: Vec::new()
        };
        pairs.len()
    ];
    for batch in batches(&lengths, batch_tokens) {
        let sources: Vec<&[u32]> = batch.iter().map(|&index| &pairs[index][0][..]).collect();
        let targets = batch.iter().map(|&index| match &pairs[index][1][..] {
            // A model reads at least one token.
            [] => std::slice::from_ref(&tokens.eos),
            target => target,
        });
        let targets: Vec<&[u32]> = targets.collect();
        let state = &mut model.start(&sources, Threads::All);
        let found = model.read(&targets, state);
        for (index, mut log_probs) in batch.into_iter().zip(found) {
            log_probs.truncate(pairs[index][1].len());
            scores[index].log_probs = log_probs;
        }
    }
    Ok(scores)
}
