//! Rules for values beyond their types, and for combinations of values. Ranges that the library checks
//! (`TrainingConfig::validate`, `TransformerConfig::validate`) are not repeated here. For beams and vocabularies,
//! `DecodeOptions::validate` and `TokenizerConfig::validate` are called.

use toml::Value;
use transformer_core::DecodeOptions;
use transformer_core::decoding::{DecodeOptionsError, SPECIAL_TOKENS};
use transformer_core::models::WeightTying;
use transformer_core::nn::Positions;
use transformer_train::data::{
    MAX_VOCAB_SIZE, MIN_VOCAB_SIZE, TokenizerConfig, TokenizerError, TokenizerKind,
};

use super::error::RunFileError;
use super::keys::{self, RunFile, TokenizerKeys};
use super::values::Values;

/// The maximum number of minutes of a run, nearly two thousand years. Clocks cannot add much more to the current time.
const MOST_MINUTES: f64 = 1e9;

impl TokenizerKeys {
    /// Whether both sides share one vocabulary.
    pub fn is_shared(&self) -> bool {
        self.shared.unwrap_or(!self.names_two())
    }

    fn names_two(&self) -> bool {
        self.target_kind.is_some() || self.source_file.is_some() || self.target_file.is_some()
    }
}

/// The first key that breaks a rule, and the rule.
#[derive(Default)]
struct Rules {
    broken: Option<(&'static str, String)>,
}

impl Rules {
    fn require(&mut self, path: &'static str, holds: bool, rule: impl Into<String>) {
        if !holds {
            self.broken.get_or_insert_with(|| (path, rule.into()));
        }
    }
}

impl RunFile {
    /// # Errors
    /// The first broken rule, with the place that set the value.
    pub(super) fn check(&self, values: &Values) -> Result<(), RunFileError> {
        self.check_effects(values)?;
        let mut rules = Rules::default();
        self.check_data(&mut rules);
        self.check_paths(&mut rules);
        self.check_tokenizer(&mut rules);
        self.check_vocabulary(&mut rules);
        self.check_model(&mut rules);
        self.check_validation(&mut rules);
        self.check_training(&mut rules);
        let Some((path, rule)) = rules.broken else {
            return Ok(());
        };
        let value = keys::find(path).and_then(|key| key.of(&self.table()).cloned());
        let value = match value {
            // As they are written on the command line.
            Some(Value::Float(number)) => number.to_string(),
            Some(Value::String(name)) if path.ends_with("_lang") => name,
            value => value.map_or(String::new(), |value| value.to_string()),
        };
        Err(values.refuse(path, value, rule))
    }

    fn check_training(&self, rules: &mut Rules) {
        let training = &self.training;
        rules.require(
            "training.batch_tokens",
            training.batch_tokens > 1,
            "must be at least 2, for a piece and the end-of-sentence token",
        );
        let in_time = |minutes: f64| minutes > 0.0 && minutes <= MOST_MINUTES;
        let rule = format!("must be above 0, and at most {MOST_MINUTES}");
        let minutes = training.minutes.is_none_or(in_time);
        rules.require("training.minutes", minutes, &*rule);
        let wait = in_time(training.max_wait_minutes);
        rules.require("training.max_wait_minutes", wait, rule);
    }

    /// An empty path would be the current directory.
    fn check_paths(&self, rules: &mut Rules) {
        for (path, value) in [
            ("init.model", &self.init.model),
            ("tokenizer.file", &self.tokenizer.file),
            ("tokenizer.source_file", &self.tokenizer.source_file),
            ("tokenizer.target_file", &self.tokenizer.target_file),
        ] {
            let is_empty = value
                .as_ref()
                .is_some_and(|path| path.as_os_str().is_empty());
            rules.require(path, !is_empty, "must not be empty");
        }
    }

    fn check_data(&self, rules: &mut Rules) {
        let data = &self.data;
        rules.require(
            "data.hold_out",
            data.hold_out != Some(0),
            "must be at least 1; to hold out none, use --valid FILE instead",
        );
        rules.require("data.max_pieces", data.max_pieces > 0, "must be at least 1");
        let is_ratio = |ratio: f64| ratio >= 1.0 && ratio.is_finite();
        let ratio = data.max_ratio.is_none_or(is_ratio);
        rules.require("data.max_ratio", ratio, "must be at least 1, and finite");
        let Some(valid) = &data.valid else {
            return;
        };
        rules.require(
            "data.valid",
            !valid.is_empty(),
            "must name a file of pairs, or be absent",
        );
        rules.require(
            "data.valid",
            valid.0.iter().all(|entry| entry.weight == 1.0),
            "must have no weight: each pair is validated on once",
        );
    }

    fn check_tokenizer(&self, rules: &mut Rules) {
        let tokenizer = &self.tokenizer;
        let (dropout, path) = (tokenizer.dropout, "tokenizer.dropout");
        rules.require(path, (0.0..1.0).contains(&dropout), "must be in [0, 1)");
        let kinds = [Some(tokenizer.kind), tokenizer.target_kind];
        let is_bpe = |kind| kind == TokenizerKind::Bpe;
        rules.require(
            path,
            dropout == 0.0 || kinds.into_iter().flatten().all(is_bpe),
            "drops merges, which only `tokenizer.kind` \"bpe\" has",
        );
        let [has_source, has_target] =
            [&tokenizer.source_file, &tokenizer.target_file].map(Option::is_some);
        rules.require(
            "tokenizer.source_file",
            has_target || !has_source,
            "needs `tokenizer.target_file`, too",
        );
        rules.require(
            "tokenizer.target_file",
            has_source || !has_target,
            "needs `tokenizer.source_file`, too",
        );
        let shared = tokenizer.is_shared();
        rules.require(
            "tokenizer.shared",
            !(shared && tokenizer.names_two()),
            "contradicts `tokenizer.target_kind`, or `tokenizer.source_file` and `tokenizer.target_file`",
        );
        rules.require(
            "tokenizer.shared",
            shared || tokenizer.file.is_none(),
            "contradicts `tokenizer.file`, which is for both sides",
        );
    }

    /// Checks the vocabulary size of tokenizers that are trained.
    fn check_vocabulary(&self, rules: &mut Rules) {
        let path = "tokenizer.vocab_size";
        if self.overruled_by(path).is_some() {
            return;
        }
        let tokenizer = &self.tokenizer;
        let vocab_size = tokenizer.vocab_size;
        let kinds = [Some(tokenizer.kind), tokenizer.target_kind];
        for kind in kinds.into_iter().flatten() {
            let rule = match (TokenizerConfig { kind, vocab_size }).validate() {
                Ok(()) => continue,
                Err(TokenizerError::VocabTooSmall { .. }) => format!(
                    "must be at least {MIN_VOCAB_SIZE}, for the special tokens and the 256 bytes"
                ),
                Err(TokenizerError::VocabWithoutText { .. }) => format!(
                    "must be at least {}, for the special tokens and one other token",
                    SPECIAL_TOKENS.len() + 1
                ),
                Err(TokenizerError::VocabTooLarge { .. }) => {
                    format!("must be at most {MAX_VOCAB_SIZE}")
                }
                Err(error) => error.to_string(),
            };
            rules.require(path, false, rule);
        }
    }

    /// Checks the keys of the model as far as possible before the preset is applied.
    fn check_model(&self, rules: &mut Rules) {
        let (init, model) = (&self.init, &self.model);
        for (path, is_given) in [
            ("init.continue_schedule", init.continue_schedule),
            ("init.source_lang", init.source_lang.is_some()),
            ("init.target_lang", init.target_lang.is_some()),
        ] {
            let holds = !is_given || init.model.is_some();
            rules.require(path, holds, "needs `init.model`");
        }
        if let Some(directory) = &init.model {
            let directory = directory.display();
            let rule = format!("has no effect: the model is read from `init.model`, {directory}");
            rules.require("model.preset", model.preset.is_none(), rule);
        }
        rules.require(
            "model.n_encoder_layers",
            model.n_encoder_layers != Some(0),
            "must be at least 1: sentence pairs need an encoder",
        );
        rules.require(
            "model.positions",
            model.positions != Some(Positions::Learned { max_len: 1 }),
            "must have at least 2 positions, for a piece and the end-of-sentence token",
        );
        let separate = !self.tokenizer.is_shared() && init.model.is_none();
        let ties = model.tying.is_some_and(WeightTying::ties_source_target);
        rules.require(
            "model.tying",
            !(separate && ties),
            "ties source and target embeddings, whose vocabularies are separate; see `tokenizer.shared`",
        );
    }

    fn check_validation(&self, rules: &mut Rules) {
        let validation = &self.validation;
        let sentences = validation.sentences != Some(0);
        rules.require("validation.sentences", sentences, "must be at least 1");
        if let Err(error) = DecodeOptions::beam(validation.beam).validate() {
            let rule = match error {
                DecodeOptionsError::Range { rule, .. } => format!("must be {rule}"),
                error => error.to_string(),
            };
            rules.require("validation.beam", false, rule);
        }
        rules.require(
            "validation.length_penalty",
            validation.length_penalty.is_none_or(f64::is_finite),
            "must be finite",
        );
        let metrics = &validation.metrics;
        let twice = (1..metrics.len()).find(|&at| metrics[..at].contains(&metrics[at]));
        if let Some(at) = twice {
            let rule = format!("names `{}` twice", metrics[at].key());
            rules.require("validation.metrics", false, rule);
        }
        let metric = validation.best_by.metric();
        rules.require(
            "validation.best_by",
            metric.is_none_or(|metric| metrics.contains(&metric)),
            "is not measured; add it to `validation.metrics`",
        );
    }
}
