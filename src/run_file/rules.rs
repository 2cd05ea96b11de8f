//! What values must be, beyond their type, and which contradict each other. The ranges that the library checks
//! (`TrainingConfig::validate`, `TransformerConfig::validate`) are not here again.

use std::fmt::Display;

use transformer_train::TokenizerKind;

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
        self.check_data(&rules)?;
        self.check_tokenizer(&rules)?;
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
        )
    }

    fn check_data(&self, rules: &Rules<'_>) -> Result<(), RunFileError> {
        let has_valid = self.data.valid.is_some();
        rules.number(
            "data.hold_out",
            self.data.hold_out,
            |hold_out| hold_out > 0 || has_valid,
            "must be at least 1, or give --valid FILE",
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
        let is_plain = !valid.0.is_empty() && valid.0.iter().all(|entry| entry.weight == 1.0);
        rules.require(
            "data.valid",
            shown(valid),
            is_plain,
            "must be a corpus, without weights",
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

    /// What can be said of the model before its preset is known.
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
        let counts = [
            ("validation.beam", Some(validation.beam)),
            ("validation.sentences", validation.sentences),
        ];
        for (path, count) in counts {
            rules.number(path, count, |count| count > 0, "must be at least 1")?;
        }
        let best_by = validation.best_by;
        let is_measured = best_by
            .metric()
            .is_none_or(|metric| validation.metrics.contains(&metric));
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
