//! Rules for values, beyond their type, and combinations that contradict each other. The ranges that the library
//! checks (`TrainingConfig::validate`, `TransformerConfig::validate`) are not repeated here; for beams and
//! vocabularies, `DecodeOptions::validate` and `TokenizerConfig::validate` are called.

use std::fmt::Display;

use transformer_core::{DecodeOptions, DecodeOptionsError, Positions, SPECIAL_TOKENS};
use transformer_train::metrics::TextMetric;
use transformer_train::{
    MAX_VOCAB_SIZE, MIN_VOCAB_SIZE, TokenizerConfig, TokenizerError, TokenizerKind,
};

use super::RunFile;
use super::error::RunFileError;
use super::key::value_of;
use super::keys::TokenizerKeys;
use super::values::Values;

/// The most minutes of a run, nearly two thousand years: no clock adds much more to the time of day.
const MOST_MINUTES: f64 = 1e9;

impl TokenizerKeys {
    /// With `shared`, where it is absent, as the other keys imply it.
    pub(super) fn with_shared(self) -> Self {
        Self {
            shared: Some(self.is_shared()),
            ..self
        }
    }

    /// Whether there is one vocabulary for both sides.
    pub fn is_shared(&self) -> bool {
        self.shared.unwrap_or(!self.names_two())
    }

    fn names_two(&self) -> bool {
        self.target_kind.is_some() || self.source_file.is_some() || self.target_file.is_some()
    }
}

/// The values, and the error about one of them.
struct Rules<'a>(&'a Values);

impl Rules<'_> {
    fn require(
        &self,
        path: &str,
        value: impl Display,
        holds: bool,
        rule: &str,
    ) -> Result<(), RunFileError> {
        match holds {
            true => Ok(()),
            false => Err(RunFileError::Value {
                subject: self.0.subject(path, value),
                rule: rule.to_owned(),
            }),
        }
    }

    /// For a number that may be absent, which then breaks no rule.
    fn number<T: Display + Copy>(
        &self,
        path: &str,
        value: Option<T>,
        holds: impl FnOnce(T) -> bool,
        rule: &str,
    ) -> Result<(), RunFileError> {
        match value {
            Some(value) => self.require(path, value, holds(value), rule),
            None => Ok(()),
        }
    }
}

impl RunFile {
    /// # Errors
    /// The first rule that is broken, by the place that gave the value.
    pub(super) fn check(&self, values: &Values) -> Result<(), RunFileError> {
        let rules = Rules(values);
        self.check_effects(values)?;
        self.check_data(&rules)?;
        self.check_paths(&rules)?;
        self.check_tokenizer(&rules)?;
        self.check_vocabulary(&rules)?;
        self.check_model(&rules)?;
        self.check_validation(&rules)?;
        rules.require(
            "training.batch_tokens",
            self.training.batch_tokens,
            self.training.batch_tokens > 1,
            "must be at least 2, for a piece and the token that ends it",
        )?;
        let in_time = |minutes: f64| minutes > 0.0 && minutes <= MOST_MINUTES;
        rules.number(
            "training.minutes",
            self.training.minutes,
            in_time,
            &format!("must be above 0, and at most {MOST_MINUTES}"),
        )?;
        rules.number(
            "training.max_wait_minutes",
            Some(self.training.max_wait_minutes),
            in_time,
            &format!("must be above 0, and at most {MOST_MINUTES}"),
        )
    }

    /// An empty path would be the current directory.
    fn check_paths(&self, rules: &Rules<'_>) -> Result<(), RunFileError> {
        for (path, value) in [
            ("init.model", &self.init.model),
            ("tokenizer.file", &self.tokenizer.file),
            ("tokenizer.source_file", &self.tokenizer.source_file),
            ("tokenizer.target_file", &self.tokenizer.target_file),
        ] {
            if let Some(value) = value {
                let is_path = !value.as_os_str().is_empty();
                rules.require(path, shown(value), is_path, "must not be empty")?;
            }
        }
        Ok(())
    }

    fn check_data(&self, rules: &Rules<'_>) -> Result<(), RunFileError> {
        rules.number(
            "data.hold_out",
            self.data.hold_out,
            |hold_out| hold_out > 0,
            "must be at least 1; to hold out none, give --valid FILE instead",
        )?;
        rules.require(
            "data.max_pieces",
            self.data.max_pieces,
            self.data.max_pieces > 0,
            "must be at least 1",
        )?;
        rules.number(
            "data.max_ratio",
            self.data.max_ratio,
            |ratio| ratio >= 1.0 && ratio.is_finite(),
            "must be at least 1, and finite",
        )?;
        let Some(valid) = &self.data.valid else {
            return Ok(());
        };
        rules.require(
            "data.valid",
            shown(valid),
            !valid.is_empty(),
            "must name a file of pairs, or be absent",
        )?;
        rules.require(
            "data.valid",
            shown(valid),
            valid.0.iter().all(|entry| entry.weight == 1.0),
            "must have no weight: each pair is validated on once",
        )
    }

    fn check_tokenizer(&self, rules: &Rules<'_>) -> Result<(), RunFileError> {
        let tokenizer = &self.tokenizer;
        let in_range = (0.0..1.0).contains(&tokenizer.dropout);
        rules.require(
            "tokenizer.dropout",
            tokenizer.dropout,
            in_range,
            "must be in [0, 1)",
        )?;
        let cuts_words = [TokenizerKind::Bpe; 2]
            == [
                tokenizer.kind,
                tokenizer.target_kind.unwrap_or(tokenizer.kind),
            ];
        rules.require(
            "tokenizer.dropout",
            tokenizer.dropout,
            tokenizer.dropout == 0.0 || cuts_words,
            "drops merges, which only `tokenizer.kind` \"bpe\" has",
        )?;
        for (path, one, other, rule) in [
            (
                "tokenizer.source_file",
                &tokenizer.source_file,
                &tokenizer.target_file,
                "needs `tokenizer.target_file` beside it",
            ),
            (
                "tokenizer.target_file",
                &tokenizer.target_file,
                &tokenizer.source_file,
                "needs `tokenizer.source_file` beside it",
            ),
        ] {
            if let Some(file) = one {
                rules.require(path, shown(file), other.is_some(), rule)?;
            }
        }
        let shared = tokenizer.is_shared();
        rules.require(
            "tokenizer.shared",
            shared,
            !(shared && tokenizer.names_two()),
            "contradicts `tokenizer.target_kind`, or `tokenizer.source_file` and `tokenizer.target_file`",
        )?;
        rules.require(
            "tokenizer.shared",
            shared,
            shared || tokenizer.file.is_none(),
            "contradicts `tokenizer.file`, which is for both sides",
        )
    }

    /// The vocabulary of tokenizers that are to be trained.
    fn check_vocabulary(&self, rules: &Rules<'_>) -> Result<(), RunFileError> {
        let path = "tokenizer.vocab_size";
        if self.overruled_by(path).is_some() {
            return Ok(());
        }
        let tokenizer = &self.tokenizer;
        let vocab_size = tokenizer.vocab_size;
        for kind in [Some(tokenizer.kind), tokenizer.target_kind]
            .into_iter()
            .flatten()
        {
            let rule = match (TokenizerConfig { kind, vocab_size }).validate() {
                Ok(()) => continue,
                Err(TokenizerError::VocabTooSmall { .. }) => format!(
                    "must be at least {MIN_VOCAB_SIZE}, for the special tokens and the 256 bytes"
                ),
                Err(TokenizerError::VocabWithoutText { .. }) => format!(
                    "must be at least {}, for the special tokens and a token of text",
                    SPECIAL_TOKENS.len() + 1
                ),
                Err(TokenizerError::VocabTooLarge { .. }) => {
                    format!("must be at most {MAX_VOCAB_SIZE}")
                }
                Err(error) => error.to_string(),
            };
            rules.require(path, vocab_size, false, &rule)?;
        }
        Ok(())
    }

    /// Checks the model's keys as far as possible before its preset is known.
    fn check_model(&self, rules: &Rules<'_>) -> Result<(), RunFileError> {
        rules.require(
            "init.continue_schedule",
            self.init.continue_schedule,
            !self.init.continue_schedule || self.init.model.is_some(),
            "needs `init.model`",
        )?;
        for (path, language) in [
            ("init.source_lang", &self.init.source_lang),
            ("init.target_lang", &self.init.target_lang),
        ] {
            if let Some(language) = language {
                let has_model = self.init.model.is_some();
                rules.require(path, language, has_model, "needs `init.model`")?;
            }
        }
        if let (Some(preset), Some(model)) = (&self.model.preset, &self.init.model) {
            let rule = format!(
                "has no effect: the model is that of `init.model`, {}",
                model.display()
            );
            return rules.require("model.preset", shown(preset), false, &rule);
        }
        if let Some(positions @ Positions::Learned { max_len: 1 }) = &self.model.positions {
            return rules.require(
                "model.positions",
                shown(positions),
                false,
                "must be 2 or more positions, for a piece and the token that ends it",
            );
        }
        let separate = !self.tokenizer.is_shared() && self.init.model.is_none();
        match self.model.tying {
            Some(tying) if separate => rules.require(
                "model.tying",
                shown(&tying),
                !tying.ties_source_target(),
                "shares source and target embeddings, whose vocabularies are separate; see `tokenizer.shared`",
            ),
            _ => Ok(()),
        }
    }

    fn check_validation(&self, rules: &Rules<'_>) -> Result<(), RunFileError> {
        let validation = &self.validation;
        rules.number(
            "validation.sentences",
            validation.sentences,
            |count| count > 0,
            "must be at least 1",
        )?;
        match DecodeOptions::beam(validation.beam).validate() {
            Ok(()) => {}
            Err(DecodeOptionsError::Range { value, rule, .. }) => {
                let rule = format!("must be {rule}");
                rules.require("validation.beam", value, false, &rule)?;
            }
            Err(error) => {
                rules.require(
                    "validation.beam",
                    validation.beam,
                    false,
                    &error.to_string(),
                )?;
            }
        }
        let metrics = &validation.metrics;
        let twice = |(at, metric): (usize, &TextMetric)| {
            let is_again = metrics[..at].contains(metric);
            is_again.then(|| metric.key())
        };
        if let Some(key) = metrics.iter().enumerate().find_map(twice) {
            let rule = format!("names `{key}` twice");
            rules.require("validation.metrics", shown(metrics), false, &rule)?;
        }
        let best_by = validation.best_by;
        let is_measured = best_by
            .metric()
            .is_none_or(|metric| metrics.contains(&metric));
        rules.require(
            "validation.best_by",
            shown(&best_by),
            is_measured,
            "is not measured; add it to `validation.metrics`",
        )
    }
}

/// A value as the file has it.
fn shown(value: &impl serde::Serialize) -> String {
    value_of(value).map_or(String::new(), |value| value.to_string())
}
