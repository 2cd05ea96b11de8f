//! The tokenizers of a run: its own, those of the model it starts from, given ones, or new ones.

use transformer_core::{SPECIAL_TOKENS, Tokenizer, Tokenizers};
use transformer_program::note;
use transformer_program::run_file::TokenizerKeys;
use transformer_train::{
    MIN_VOCAB_SIZE, TokenizerConfig, TokenizerError, TokenizerKind, train_tokenizer,
};

use super::data::Training;
use super::earlier::{CACHE_FILE, Earlier};
use super::init::{between_languages, initial_tokenizers};
use super::plan::Plan;
use crate::commands::Result;

/// The tokenizers, trained on the pairs to train on where there are none yet. A run that has some keeps them, and
/// its keys then say so.
///
/// # Errors
/// When a file cannot be read, or the vocabulary is too small for the kind of tokenizer.
pub fn tokenizers(
    plan: &mut Plan,
    earlier: Option<&Earlier>,
    train: &Training,
) -> Result<Tokenizers> {
    if let Some(earlier) = earlier.filter(|run| Tokenizers::are_in(run.directory())) {
        return between_languages(saved(plan, earlier)?, plan);
    }
    if let Some(init) = &plan.run.init.model {
        return between_languages(initial_tokenizers(init)?, plan);
    }
    let keys = &plan.run.tokenizer;
    if let Some(file) = &keys.file {
        return Ok(Tokenizers::shared(Tokenizer::from_file(file)?));
    }
    if let (Some(source), Some(target)) = (&keys.source_file, &keys.target_file) {
        return Ok(Tokenizers::separate(
            Tokenizer::from_file(source)?,
            Tokenizer::from_file(target)?,
        ));
    }
    let text = match train {
        Training::Given(text) | Training::Saved(text) => text,
        Training::Cached(_) => {
            return Err(format!("there is {CACHE_FILE}, but no tokenizer").into());
        }
    };
    if keys.is_shared() {
        let tokenizer = text.with_sentences(|sentences| trained(plan, sentences, keys.kind))?;
        return Ok(Tokenizers::shared(tokenizer?));
    }
    // Both sides come in turn.
    let source = text.with_sentences(|sides| trained(plan, sides.step_by(2), keys.kind))?;
    let target_kind = keys.target_kind.unwrap_or(keys.kind);
    let target =
        text.with_sentences(|sides| trained(plan, sides.skip(1).step_by(2), target_kind))?;
    Ok(Tokenizers::separate(source?, target?))
}

/// The tokenizers of the run that goes on.
fn saved(plan: &mut Plan, earlier: &Earlier) -> Result<Tokenizers> {
    let tokenizers = Tokenizers::load(earlier.directory())?;
    let keys = &mut plan.run.tokenizer;
    let pieces = tokenizers.source().vocab_size();
    let before = earlier.file.as_ref().map(|file| &file.run.tokenizer);
    let asked_before = before.map_or(pieces, |before| before.vocab_size);
    if plan.values.is_given("tokenizer.vocab_size") && keys.vocab_size != asked_before {
        note(format_args!(
            "{}: the run keeps its tokenizer, of {pieces} pieces",
            plan.values.subject("tokenizer.vocab_size", keys.vocab_size)
        ));
    }
    if let Some(before) = before {
        let asked = TokenizerKeys {
            vocab_size: before.vocab_size,
            ..keys.clone()
        };
        if asked != *before {
            note("`[tokenizer]`: the run keeps its tokenizer, and what else was set there");
        }
        *keys = before.clone();
    }
    Ok(tokenizers)
}

/// A tokenizer trained on sentences.
fn trained(
    plan: &Plan,
    sentences: impl Iterator<Item = String> + Send,
    kind: TokenizerKind,
) -> Result<Tokenizer> {
    let vocab_size = plan.run.tokenizer.vocab_size;
    let refuse = |rule| plan.refuse("tokenizer.vocab_size", vocab_size, rule);
    match train_tokenizer(sentences, &TokenizerConfig { kind, vocab_size }) {
        Ok(tokenizer) => Ok(tokenizer),
        Err(TokenizerError::VocabTooSmall { .. }) => Err(refuse(format!(
            "must be at least {MIN_VOCAB_SIZE}, for the special tokens and the 256 bytes"
        ))
        .into()),
        Err(TokenizerError::VocabWithoutText { .. }) => Err(refuse(format!(
            "must be at least {}, for the special tokens and a token of text",
            SPECIAL_TOKENS.len() + 1
        ))
        .into()),
        Err(error) => Err(error.into()),
    }
}
