//! The tokenizers of a run: its own, those of the model to start from, those in given files, or new ones.

use std::path::Path;

use transformer_core::Tokenizers;
use transformer_core::formats::{SOURCE_TOKENIZER_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE};
use transformer_core::text::{TextError, Tokenizer};
use transformer_train::data::{TokenizerConfig, TokenizerError, TokenizerKind, train_tokenizer};

use super::data::Training;
use super::earlier::{CACHE_FILE, Earlier};
use super::errors::train_error;
use super::plan::Plan;
use crate::commands::Result;
use crate::commands::languages::{check_target, one_pair};
use crate::process::note;
use crate::run_file::{InitKeys, TokenizerKeys};

/// The tokenizers that exist before any pair is read; `None` if they must be trained. A run that has tokenizers keeps
/// them, and its keys are set accordingly. The plan gets their vocabularies.
///
/// # Errors
/// When a file cannot be read, or the tokenizers do not fit the run.
pub fn given_tokenizers(plan: &mut Plan, earlier: Option<&Earlier>) -> Result<Option<Tokenizers>> {
    let tokenizers = match earlier.filter(|run| Tokenizers::are_in(run.directory())) {
        Some(earlier) => {
            let saved = saved(plan, earlier)?;
            check_languages(plan, earlier, &saved)?;
            Some(between_languages(saved, plan)?)
        }
        None => named(plan)?,
    };
    if let Some(tokenizers) = &tokenizers {
        plan.use_tokenizers(tokenizers)?;
        if let Some(earlier) = earlier {
            let checked = earlier.check_model(&plan.model, &plan.frozen);
            checked.map_err(|error| train_error(error, &plan.values))?;
        }
    }
    Ok(tokenizers)
}

/// The tokenizers trained on the training pairs. The plan gets their vocabularies.
///
/// # Errors
/// When a file cannot be read; when a resumed run has lost its tokenizers, and its pairs are saved only as pieces.
pub fn trained_tokenizers(
    plan: &mut Plan,
    train: &Training,
    earlier: Option<&Earlier>,
) -> Result<Tokenizers> {
    let text = match train {
        Training::Given(text) | Training::Saved(text) => text,
        Training::Cached(_) => return Err(lost(plan, earlier).into()),
    };
    let keys = &plan.run.tokenizer;
    let tokenizers = match keys.is_shared() {
        true => {
            let both = text.with_sentences(|sentences| trained(keys, sentences, keys.kind))?;
            Tokenizers::shared(both?)
        }
        // Source and target sentences alternate.
        false => {
            let target_kind = keys.target_kind.unwrap_or(keys.kind);
            let source = text.with_sentences(|sides| trained(keys, sides.step_by(2), keys.kind))?;
            let target =
                text.with_sentences(|sides| trained(keys, sides.skip(1).step_by(2), target_kind))?;
            Tokenizers::separate(source?, target?)
        }
    };
    plan.use_tokenizers(&tokenizers)?;
    Ok(tokenizers)
}

/// The error if a run has lost its tokenizers, but not its pairs as pieces.
fn lost(plan: &Plan, earlier: Option<&Earlier>) -> String {
    let directory = earlier.map_or(Path::new(""), Earlier::directory);
    let names: &[&str] = match plan.run.tokenizer.is_shared() {
        true => &[TOKENIZER_FILE],
        false => &[SOURCE_TOKENIZER_FILE, TARGET_TOKENIZER_FILE],
    };
    let mut paths = names.iter().map(|name| directory.join(name));
    let missing = paths.find(|path| !path.exists());
    let missing = missing.unwrap_or_else(|| directory.join(TOKENIZER_FILE));
    format!(
        "{}: is missing; restore it, or remove {}, so that the tokenizer is trained again on the run's pairs",
        missing.display(),
        directory.join(CACHE_FILE).display()
    )
}

/// The tokenizers of the model to start from, or in the files that the run names.
fn named(plan: &Plan) -> Result<Option<Tokenizers>> {
    if let Some(init) = &plan.run.init.model {
        let tokenizers = match &plan.init {
            Some(directory) => Tokenizers::of(directory.files())?,
            None => Tokenizers::load(init)?,
        };
        let sizes = [plan.model.src_vocab_size, plan.model.tgt_vocab_size];
        tokenizers.check(sizes, plan.model.special_tokens(), init)?;
        let tokenizers = between_languages(tokenizers, plan)?;
        check_dropout(plan, &[tokenizers.source(), tokenizers.target()], init)?;
        return Ok(Some(tokenizers));
    }
    let keys = &plan.run.tokenizer;
    if let Some(file) = &keys.file {
        return Ok(Some(Tokenizers::shared(from_file(plan, file)?)));
    }
    match (&keys.source_file, &keys.target_file) {
        (Some(source), Some(target)) => Ok(Some(Tokenizers::separate(
            from_file(plan, source)?,
            from_file(plan, target)?,
        ))),
        _ => Ok(None),
    }
}

/// The tokenizer in a file, if it has the special tokens of the run's model.
fn from_file(plan: &Plan, file: &Path) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::from_file(file)?;
    let special_tokens = plan.model.special_tokens();
    tokenizer.check(file, tokenizer.vocab_size(), special_tokens)?;
    check_dropout(plan, &[&tokenizer], file)?;
    Ok(tokenizer)
}

/// Tokenizers between the languages of the run.
///
/// # Errors
/// When there is no token for one of them, or the target language is needed and not given.
fn between_languages(tokenizers: Tokenizers, plan: &Plan) -> Result<Tokenizers> {
    let InitKeys {
        source_lang,
        target_lang,
        ..
    } = &plan.run.init;
    let tokenizers = tokenizers.with_languages(source_lang.as_deref(), target_lang.as_deref());
    let tokenizers = tokenizers.map_err(|error| match error {
        TextError::Language { name, known } if known.is_empty() => {
            let (key, flag) = match source_lang {
                Some(_) => ("init.source_lang", "--source-lang"),
                None => ("init.target_lang", "--target-lang"),
            };
            plan.refuse(key, name, one_pair(flag)).to_string()
        }
        error => error.to_string(),
    })?;
    check_target(&tokenizers)?;
    Ok(tokenizers)
}

/// Checks that there are merges to drop, if the run drops any.
fn check_dropout(plan: &Plan, tokenizers: &[&Tokenizer], path: &Path) -> Result {
    let dropout = plan.run.tokenizer.dropout;
    for tokenizer in tokenizers {
        if dropout > 0.0
            && let Err(error) = tokenizer.check_dropout()
        {
            let rule = format!("{}: {error}", path.display());
            return Err(plan.refuse("tokenizer.dropout", dropout, rule).into());
        }
    }
    Ok(())
}

/// The tokenizers of the resumed run.
fn saved(plan: &mut Plan, earlier: &Earlier) -> Result<Tokenizers> {
    let tokenizers = Tokenizers::load(earlier.directory())?;
    let keys = &mut plan.run.tokenizer;
    let pieces = tokenizers.source().vocab_size();
    let before = earlier.file.as_ref().map(|file| &file.run.tokenizer);
    let asked_before = before.map_or(pieces, |before| before.vocab_size);
    if plan.values.is_given("tokenizer.vocab_size") && keys.vocab_size != asked_before {
        note(format_args!(
            "ignoring {}: a resumed run keeps its tokenizer, which has {pieces} pieces",
            plan.values.subject("tokenizer.vocab_size", keys.vocab_size)
        ));
    }
    if let Some(before) = before {
        let asked = TokenizerKeys {
            vocab_size: before.vocab_size,
            ..keys.clone()
        };
        if asked != *before {
            note("ignoring changes of `[tokenizer]`: a resumed run keeps its tokenizer");
        }
        *keys = before.clone();
    }
    let both = [tokenizers.source(), tokenizers.target()];
    check_dropout(plan, &both, earlier.directory())?;
    Ok(tokenizers)
}

/// Checks that the languages are those with which the updates of the run were made. A language may have several names.
///
/// # Errors
/// The first key with a different language.
fn check_languages(plan: &Plan, earlier: &Earlier, saved: &Tokenizers) -> Result {
    let made = earlier.file.as_ref().filter(|_| earlier.updates() > 0);
    let Some(before) = made.map(|file| &file.run.init) else {
        return Ok(());
    };
    let now = &plan.run.init;
    let languages = |init: &InitKeys| (init.source_lang.clone(), init.target_lang.clone());
    if languages(now) == languages(before) {
        return Ok(());
    }
    let bytes = |source: &Option<String>, target: &Option<String>| -> Result<_> {
        let tokenizers = saved.clone();
        let tokenizers = tokenizers.with_languages(source.as_deref(), target.as_deref())?;
        Ok(tokenizers.to_bytes()?)
    };
    let of_run = bytes(&before.source_lang, &before.target_lang)?;
    let with_source = bytes(&now.source_lang, &before.target_lang)?;
    let with_target = bytes(&before.source_lang, &now.target_lang)?;
    for (key, flag, given, was, bytes) in [
        (
            "init.source_lang",
            "--source-lang",
            &now.source_lang,
            &before.source_lang,
            with_source,
        ),
        (
            "init.target_lang",
            "--target-lang",
            &now.target_lang,
            &before.target_lang,
            with_target,
        ),
    ] {
        let run = earlier.directory().display();
        let (given, rule) = match (given, was) {
            (Some(given), was) if bytes != of_run => {
                let was = was.as_deref().unwrap_or("the language of its model");
                let rule = format!(
                    "the run in {run} was made with {was}; start a new run with --init {run} and another --out"
                );
                (given.as_str(), rule)
            }
            (None, Some(was)) => {
                let rule = format!("the run in {run} was made with {was}; set it with {flag}");
                ("absent", rule)
            }
            _ => continue,
        };
        return Err(plan.refuse(key, given, rule).into());
    }
    Ok(())
}

/// A tokenizer trained on sentences. Its vocabulary size was checked with the other keys.
fn trained(
    keys: &TokenizerKeys,
    sentences: impl Iterator<Item = String> + Send,
    kind: TokenizerKind,
) -> std::result::Result<Tokenizer, TokenizerError> {
    let vocab_size = keys.vocab_size;
    train_tokenizer(sentences, &TokenizerConfig { kind, vocab_size })
}
