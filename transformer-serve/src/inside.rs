//! What a model does with a sentence: its attention, head by head, and the tree of its beam search.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use transformer_core::burn::tensor::Tensor;
use transformer_core::burn::tensor::backend::Backend;
use transformer_core::decoding::{
    DecodeOptions, Next, NextToken, Request, RequestProblem, Search, SourceTarget, Threads,
    Vocabulary,
};
use transformer_core::nn::AttentionWeights;
use transformer_core::text::TextError;
use transformer_core::{Transformer, Translator};
use utoipa::ToSchema;

/// Attention of one kind: `[layers][heads][queries][keys]`.
type Maps = Vec<Vec<Vec<Vec<f32>>>>;

/// A sentence, its translation, and how the model came to it.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[non_exhaustive]
pub struct Inside {
    /// The source's tokens, `<eos>` included.
    pub source: Vec<String>,
    /// The target's tokens, after the one that the decoder starts with.
    pub target: Vec<String>,
    /// Per source token, its part of the sentence with the spaces before it; together they are the sentence.
    pub source_parts: Vec<String>,
    /// Per target token, its part of the translation; together they are the translation.
    pub target_parts: Vec<String>,
    /// The encoder's self-attention: `[layers][heads][source][source]`.
    #[schema(value_type = Vec<Vec<Vec<Vec<f32>>>>)]
    pub encoder: Maps,
    /// The decoder's self-attention; each row is of the token before: `[layers][heads][target][target]`.
    #[schema(value_type = Vec<Vec<Vec<Vec<f32>>>>)]
    pub decoder: Maps,
    /// The attention of each target token, while it is predicted, to the source: `[layers][heads][target][source]`.
    #[schema(value_type = Vec<Vec<Vec<Vec<f32>>>>)]
    pub cross: Maps,
    /// The hypotheses of the beam, step by step.
    pub beam: Vec<Vec<Node>>,
}

/// A hypothesis of the beam: a token that continues a hypothesis of the step before.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[non_exhaustive]
pub struct Node {
    /// The last token.
    pub token: String,
    /// The index of the hypothesis that it continues, in the step before.
    pub parent: usize,
    /// The log-probability of all tokens.
    pub log_prob: f64,
    /// Whether the translation begins with it.
    pub is_chosen: bool,
}

/// Looks at the translation of a sentence.
///
/// # Errors
/// When the sentence is too long.
pub fn inside<B: Backend>(
    translator: &Translator<Transformer<B>>,
    sentence: &str,
) -> Result<Inside, TextError> {
    let tokenizers = translator.tokenizers();
    let sentence = sentence.trim();
    let source = tokenizers.encode_source(sentence)?;
    let model = translator.model();
    let options = DecodeOptions {
        forced_first: tokenizers
            .target_first()
            .or(translator.options().forced_first),
        ..translator.options().clone()
    };
    let recorder = Recorder {
        model,
        search: Mutex::default(),
    };
    let found = Search::new(&recorder, options)?.run(&[Request::new(source.clone())])?;
    let mut parts = [Vec::new(), Vec::new()];
    let mut target = Vec::new();
    if let Some(hypothesis) = found.into_iter().flatten().next() {
        let translation = translator.translation(hypothesis)?;
        for alignment in translator.alignments(&[(sentence, &translation)])? {
            parts = [
                cut(sentence, &alignment.source),
                cut(&translation.text, &alignment.target),
            ];
        }
        target = translation.hypothesis.tokens;
    }
    let [source_parts, target_parts] = parts;
    let search = recorder
        .search
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let maps = model.attention_maps(&SourceTarget::unfinished(source.clone(), &target[..]))?;
    let token = |token: u32| tokenizers.target().token(token);
    Ok(Inside {
        source: maps
            .source
            .iter()
            .map(|&token| tokenizers.source().token(token))
            .collect(),
        encoder: on_host(maps.encoder),
        decoder: on_host(maps.decoder),
        cross: on_host(maps.cross),
        beam: search.tree(&target, token),
        source_parts,
        target_parts,
        target: target.into_iter().map(token).collect(),
    })
}

/// A text in one part per token: from the end of the token before to its own. What follows the last token is in its
/// part.
fn cut(text: &str, tokens: &[Range<usize>]) -> Vec<String> {
    let mut at = 0;
    let last = tokens.iter().rposition(|token| !token.is_empty());
    let parts = tokens.iter().enumerate().map(|(index, token)| {
        let end = match token {
            _ if Some(index) == last => text.len(),
            token if token.is_empty() => at,
            token => token.end.max(at),
        };
        let part = text.get(at..end).unwrap_or_default();
        at = end;
        part.to_owned()
    });
    parts.collect()
}

/// Maps `[1, heads, queries, keys]` per layer.
fn on_host<B: Backend>(layers: Vec<Tensor<B, 4>>) -> Maps {
    let layers = layers.into_iter().map(|layer| {
        let [_, heads, queries, keys] = layer.dims();
        let data = layer.into_data().convert::<f32>();
        let mut values = data.iter::<f32>();
        let mut row = || {
            values
                .by_ref()
                .take(keys)
                .map(|value| (value * 1000.0).round() / 1000.0)
                .collect()
        };
        let mut rows = || (0..queries).map(|_| row()).collect();
        (0..heads).map(|_| rows()).collect()
    });
    layers.collect()
}

/// A model that notes which hypotheses a search continues.
struct Recorder<'a, M> {
    model: &'a M,
    search: Mutex<Recorded>,
}

/// What is noted of a search.
#[derive(Default)]
struct Recorded {
    /// The hypothesis of each row, and its place among those of its step.
    rows: Vec<(Hypothesis, usize)>,
    /// The log-probabilities of the tokens that may follow each row: `[rows, vocab_size]`.
    next: Vec<f32>,
    /// The row that each row continues, if the search has selected rows since.
    parents: Vec<usize>,
    /// Per step, its hypotheses, and the place of the one that each continues.
    steps: Vec<Vec<(Hypothesis, usize)>>,
}

/// A hypothesis of the search.
#[derive(Clone, Default)]
struct Hypothesis {
    tokens: Vec<u32>,
    log_prob: f64,
}

impl<M: NextToken> NextToken for Recorder<'_, M> {
    type State = M::State;

    fn vocabulary(&self) -> Vocabulary {
        self.model.vocabulary()
    }

    fn max_target_len(&self) -> Option<usize> {
        self.model.max_target_len()
    }

    fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
        self.model.check_source(source)
    }

    fn start(&self, sources: &[&[u32]], threads: Threads) -> M::State {
        self.model.start(sources, threads)
    }

    fn next(&self, last: &[u32], state: &mut M::State, attention: AttentionWeights) -> Next {
        let next = self.model.next(last, state, attention);
        let bos = self.vocabulary().special_tokens.bos;
        let mut search = self.search.lock().unwrap_or_else(PoisonError::into_inner);
        search.read(last, bos, self.vocabulary().size);
        search.next.clone_from(&next.log_probs);
        next
    }

    fn select(&self, state: &mut M::State, sources: &[usize], rows: &[usize]) {
        self.model.select(state, sources, rows);
        let mut search = self.search.lock().unwrap_or_else(PoisonError::into_inner);
        search.parents = rows.to_vec();
    }
}

impl Recorded {
    /// Notes the tokens that the rows end with.
    fn read(&mut self, last: &[u32], bos: u32, vocab_size: usize) {
        let parents = std::mem::take(&mut self.parents);
        let before = std::mem::take(&mut self.rows);
        let mut step = Vec::new();
        for (row, &token) in last.iter().enumerate() {
            let parent = parents.get(row).copied().unwrap_or(row);
            let (mut hypothesis, place) = before.get(parent).cloned().unwrap_or_default();
            // The start of the decoder; or a row without a hypothesis.
            if token != bos {
                let next = self.next.get(parent * vocab_size + token as usize);
                hypothesis.log_prob += next.map_or(0.0, |&next| f64::from(next));
                hypothesis.tokens.push(token);
                step.push((hypothesis.clone(), place));
            }
            self.rows.push((hypothesis, step.len().saturating_sub(1)));
        }
        if !step.is_empty() {
            self.steps.push(step);
        }
    }

    /// The hypotheses of each step; those with which the target begins are chosen.
    fn tree(self, target: &[u32], text: impl Fn(u32) -> String) -> Vec<Vec<Node>> {
        let node = |(hypothesis, parent): (Hypothesis, usize)| Node {
            token: hypothesis
                .tokens
                .last()
                .map_or_else(String::new, |&token| text(token)),
            parent,
            log_prob: hypothesis.log_prob,
            is_chosen: target.starts_with(&hypothesis.tokens),
        };
        let steps = self.steps.into_iter();
        steps
            .map(|step| step.into_iter().map(node).collect())
            .collect()
    }
}
