//! The library's configurations of a run, and the library's names of the keys.

use std::fmt::Display;
use std::time::Duration;

use toml::{Table, Value};
use transformer_core::TransformerConfig;
use transformer_core::decoding::SPECIAL_TOKENS;
use transformer_core::models::WeightTying;
use transformer_train::TrainingConfig;

use super::error::RunFileError;
use super::key::Key;
use super::keys::{self, ModelKeys, RunFile};
use super::preset::Preset;
use super::values::Values;

/// Keys of the library's configurations with a different name in the run file.
const RENAMED: [(&str, &str); 13] = [
    ("schedule_start", "init.continue_schedule"),
    ("learning_rate_factor", "training.peak_rate"),
    ("validate_every", "validation.every"),
    ("keep_checkpoints", "checkpoint.keep_last"),
    ("checkpoint_every", "checkpoint.every_updates"),
    ("checkpoint_minutes", "checkpoint.every_minutes"),
    ("src_vocab_size", "tokenizer.vocab_size"),
    ("tgt_vocab_size", "tokenizer.vocab_size"),
    ("max_len", "model.positions.learned.max_len"),
    ("first", "model.positions.sines-then-cosines.first"),
    ("buckets", "model.positions.relative-bias.buckets"),
    ("max_distance", "model.positions.relative-bias.max_distance"),
    ("base", "model.positions.rotary.base"),
];

/// Sections whose keys have the library's names.
const SAME_NAMES: [&str; 4] = ["training", "model", "validation", "checkpoint"];

/// The path of an option of the library's configurations, such as `training.warmup` for `warmup`. It is the path of a
/// key or of a part of a key's value.
pub fn path_of(option: &str) -> Option<&'static str> {
    let renamed = RENAMED.iter().find(|(library, _)| *library == option);
    let of_same_name = || {
        let mut sections = SAME_NAMES.iter();
        let key = sections.find_map(|section| keys::find(&format!("{section}.{option}")));
        key.map(|key| key.path)
    };
    renamed.map(|(_, path)| *path).or_else(of_same_name)
}

/// The key that sets an option of the library's configurations.
pub fn key_of(option: &str) -> Option<&'static Key> {
    keys::of_path(path_of(option)?).map(|(key, _)| key)
}

/// Settings that can be changed for a model that already has weights.
const WITHOUT_WEIGHTS: [&str; 3] = ["dropout", "attention_dropout", "activation_dropout"];

impl RunFile {
    /// The configuration of the training, not validated.
    pub fn training_config(&self) -> TrainingConfig {
        let training = &self.training;
        TrainingConfig {
            seed: training.seed,
            batch_tokens: training.batch_tokens,
            batches_per_update: training.batches_per_update,
            schedule: training.schedule,
            warmup: training.warmup,
            peak_rate: training.peak_rate,
            weight_decay: training.weight_decay,
            label_smoothing: training.label_smoothing,
            clip_norm: training.clip_norm,
            precision: training.precision,
            skip_limit: training.skip_limit,
            updates: training.updates,
            ema_decay: training.ema_decay,
            validate_every: self.validation.every,
            best_by: self.validation.best_by.criterion(),
            patience: self.validation.patience,
            checkpoint_every: self.checkpoint.every_updates,
            checkpoint_minutes: self.checkpoint.every_minutes,
            keep_checkpoints: self.checkpoint.keep_last,
            keep_best: self.checkpoint.keep_best,
            average_last: self.checkpoint.average_last,
            ..TrainingConfig::default()
        }
    }

    /// The maximum training time.
    pub fn max_duration(&self) -> Option<Duration> {
        // In range, because `check` has checked it.
        let minutes = self.training.minutes?;
        Duration::try_from_secs_f64(minutes * 60.0).ok()
    }

    /// The longest time that one of several processes waits for the others.
    pub fn longest_wait(&self) -> Duration {
        // In range, because `check` has checked it.
        Duration::try_from_secs_f64(self.training.max_wait_minutes * 60.0).unwrap_or(Duration::MAX)
    }

    /// The configuration of the model: the given keys override the preset, or `init`, the model to start from. All keys
    /// of `[model]` are then set to its values. The vocabularies have only the special tokens until the tokenizers are
    /// known. The configuration is not validated.
    ///
    /// # Errors
    /// When a key other than the dropout rates differs from `init`.
    pub fn resolve_model(
        &mut self,
        init: Option<&TransformerConfig>,
        values: &Values,
    ) -> Result<TransformerConfig, RunFileError> {
        if let Some(init) = init {
            let config = self.model.resolve(init)?;
            only_dropout_differs(init, &config, values)?;
            return Ok(config);
        }
        let preset = *self.model.preset.get_or_insert(Preset::Small);
        let base = preset.config(SPECIAL_TOKENS.len());
        let tying = match self.tokenizer.is_shared() {
            true => base.tying,
            false => of_separate_vocabularies(base.tying),
        };
        self.model.resolve(&TransformerConfig { tying, ..base })
    }
}

/// The part of this weight tying that is possible with two vocabularies.
fn of_separate_vocabularies(tying: WeightTying) -> WeightTying {
    match tying.ties_generator() {
        true => WeightTying::TargetGenerator,
        false => WeightTying::None,
    }
}

fn only_dropout_differs(
    init: &TransformerConfig,
    config: &TransformerConfig,
    values: &Values,
) -> Result<(), RunFileError> {
    let [before, now] = [keys_of(init)?, keys_of(config)?];
    for key in ModelKeys::SECTION.keys {
        let [before, now] = [&before, &now].map(|table| table.get(key.name));
        if before != now && !WITHOUT_WEIGHTS.contains(&key.name) {
            let [before, now] =
                [before, now].map(|value| value.map_or("absent".into(), Value::to_string));
            let rule = format!(
                "is {before} in the model of `init.model`, from which only dropout may differ"
            );
            return Err(values.refuse(key.path, now, rule));
        }
    }
    Ok(())
}

impl ModelKeys {
    /// `base` with the given keys. All keys are then set to its values.
    fn resolve(&mut self, base: &TransformerConfig) -> Result<TransformerConfig, RunFileError> {
        let mut table = Table::try_from(base).map_err(of_model)?;
        table.extend(Table::try_from(&*self).map_err(of_model)?);
        table.remove("preset");
        let config = table.try_into().map_err(of_model)?;
        let keys: Self = keys_of(&config)?.try_into().map_err(of_model)?;
        *self = Self {
            preset: self.preset,
            ..keys
        };
        Ok(config)
    }
}

/// The keys of a configuration, including those that come from its tokenizers.
fn keys_of(config: &TransformerConfig) -> Result<Table, RunFileError> {
    let mut keys = Table::try_from(config).map_err(of_model)?;
    let absent = ModelKeys::SECTION.keys.iter().map(|key| key.name);
    let absent: Vec<_> = absent.filter(|&name| !keys.contains_key(name)).collect();
    for name in absent {
        // A configuration omits some switches with default values, but a run file has all of them.
        let with_switch = |switch: bool| {
            let mut keys = keys.clone();
            keys.insert(name.to_owned(), switch.into());
            let read = keys.clone().try_into::<TransformerConfig>();
            read.is_ok_and(|read| read == *config).then_some(keys)
        };
        if let Some(found) = [false, true].into_iter().find_map(with_switch) {
            keys = found;
        }
    }
    Ok(keys)
}

/// The error about a value of a configuration that TOML cannot represent.
fn of_model(error: impl Display) -> RunFileError {
    RunFileError::Value {
        subject: "`[model]`".to_owned(),
        rule: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use transformer_core::nn::Positions;

    use super::*;

    fn run(settings: &[&str]) -> (RunFile, Values) {
        let settings: Vec<_> = settings.iter().map(ToString::to_string).collect();
        let values = Values::from_settings(&settings).unwrap();
        (RunFile::read(&values).unwrap(), values)
    }

    #[test]
    fn every_option_of_the_training_has_a_key() {
        let json = serde_json::to_value(TrainingConfig::default()).unwrap();
        for option in json.as_object().unwrap().keys() {
            assert!(key_of(option).is_some(), "{option}");
        }
    }

    #[test]
    fn an_option_may_be_a_part_of_a_value() {
        let key = key_of("max_len").unwrap();
        assert_eq!(key.path, "model.positions");
        assert_eq!(path_of("max_len"), Some("model.positions.learned.max_len"));
        for (option, path) in RENAMED {
            let key = key_of(option).unwrap();
            assert!(path.starts_with(key.path), "{option}");
        }
    }

    #[test]
    fn given_keys_override_the_preset() {
        let (mut file, values) = run(&["model.preset=tiny", "model.d_ff=32"]);
        let config = file.resolve_model(None, &values).unwrap();
        let expected = TransformerConfig {
            d_ff: 32,
            ..Preset::Tiny.config(4)
        };
        assert_eq!(config, expected);
        // All keys are given now, with the same values.
        assert_eq!(file.model.d_model, Some(128));
        assert_eq!(file.resolve_model(None, &values).unwrap(), expected);
    }

    #[test]
    fn a_model_may_be_shaped_like_pretrained_ones() {
        let (mut file, values) = run(&[
            "model.preset=tiny",
            "model.decoder_n_heads=2",
            "model.decoder_d_ff=32",
            "model.embedding_norm=true",
            "model.positions={ sines-then-cosines = { inclusive = true, first = 2 } }",
        ]);
        let config = file.resolve_model(None, &values).unwrap();
        let expected = TransformerConfig {
            decoder_n_heads: Some(2),
            decoder_d_ff: Some(32),
            embedding_norm: true,
            positions: Positions::SinesThenCosines {
                inclusive: true,
                first: 2,
            },
            ..Preset::Tiny.config(4)
        };
        assert_eq!(config, expected);
        config.validate().unwrap();
    }

    /// They are not keys of a run file.
    #[test]
    fn tokens_are_those_of_the_model_to_start_from() {
        let init = TransformerConfig {
            bos_id: 0,
            source_bos: Some(1),
            source_eos: false,
            excluded_tokens: vec![0],
            ..Preset::Tiny.config(10)
        };
        let (mut file, values) = run(&["init.model=m", "model.dropout=0.2"]);
        let config = file.resolve_model(Some(&init), &values).unwrap();
        assert_eq!(
            config,
            TransformerConfig {
                dropout: 0.2,
                ..init
            }
        );
    }

    #[test]
    fn separate_vocabularies_share_what_they_can() {
        let (mut file, values) = run(&["tokenizer.target_kind=words"]);
        let config = file.resolve_model(None, &values).unwrap();
        assert_eq!(config.tying, WeightTying::TargetGenerator);
        config.validate().unwrap();
    }

    #[test]
    fn of_a_model_to_start_from_only_dropout_changes() {
        let init = Preset::Multi30k.config(10);
        let (mut file, values) = run(&["init.model=m", "model.dropout=0.2"]);
        let config = file.resolve_model(Some(&init), &values).unwrap();
        let expected = TransformerConfig {
            dropout: 0.2,
            ..init.clone()
        };
        assert_eq!(config, expected);
        // As `run.toml` would give them.
        assert_eq!(file.resolve_model(Some(&init), &values).unwrap(), expected);

        let (mut file, values) = run(&["init.model=m", "model.d_ff=32"]);
        let error = file.resolve_model(Some(&init), &values).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--set model.d_ff=32: is 256 in the model of `init.model`, from which only dropout may differ"
        );
    }
}
