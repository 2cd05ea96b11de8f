//! `generation_config.json`: decoding options under Hugging Face's keys. Any model directory may have it, ours too;
//! older Hugging Face directories have the keys in `config.json`.
//!
//! `docs/guide/pretrained.md` has a table of all keys: read, refused or ignored.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::decoding::{DecodeOptions, LengthPenalty, MaxLength, Sampling, Strategy};
use crate::formats::error::ModelError;
use crate::formats::files::replace_file_with;
use crate::formats::format::Files;
#[cfg(feature = "text")]
use crate::formats::hugging_face::config::start_token;
use crate::formats::hugging_face::config::{Family, ModelType, token_of_all};
use crate::formats::hugging_face::derived::in_force;
use crate::formats::hugging_face::keys::Keys;
use crate::formats::names::GENERATION_FILE;
use crate::models::config::TransformerConfig;

/// Keys of unsupported searches, and the values that have no effect.
const OTHER_SEARCHES: [(&str, f64); 8] = [
    ("encoder_repetition_penalty", 1.0),
    ("encoder_no_repeat_ngram_size", 0.0),
    ("diversity_penalty", 0.0),
    ("num_beam_groups", 1.0),
    ("typical_p", 1.0),
    ("epsilon_cutoff", 0.0),
    ("eta_cutoff", 0.0),
    ("guidance_scale", 1.0),
];

/// Keys of unsupported rules, which have no effect only if absent.
const OTHER_RULES: [&str; 14] = [
    "assistant_early_exit",
    "begin_suppress_tokens",
    "constraints",
    "dola_layers",
    "exponential_decay_length_penalty",
    "force_words_ids",
    "forced_decoder_ids",
    "max_time",
    "min_p",
    "penalty_alpha",
    "prompt_lookup_num_tokens",
    "sequence_bias",
    "stop_strings",
    "watermarking_config",
];

/// Hugging Face's default for sampling.
const TOP_K: usize = 50;

/// Hugging Face's default, which counts new tokens only, unlike every other `max_length`.
const MAX_LENGTH: usize = 20;

impl DecodeOptions {
    /// The decoding options of a model directory: from its `generation_config.json`, or else from a Hugging Face
    /// `config.json`, with the defaults of its class. `None` if it has neither, as most of ours. As in Hugging Face, a
    /// `config.json` with decoding options overrides a `generation_config.json` with `_from_model_config`.
    ///
    /// Options that these files omit have Hugging Face's defaults: a beam of 1, scored by the mean log-probability.
    /// Only the maximum length has our default, not 20 tokens.
    ///
    /// # Errors
    /// When a file is damaged, an option is out of range, or a key requests an unsupported search.
    pub fn of_directory(directory: impl AsRef<Path>) -> Result<Option<Self>, ModelError> {
        Files::of(&directory)?.options()
    }

    /// Writes the options to `generation_config.json` in the existing directory of a model with this configuration,
    /// without `batch_tokens`, `max_src_len`, `n_best` and `shortlist`.
    ///
    /// # Errors
    /// When the file cannot be written (an existing one is then unchanged), or an option has no Hugging Face key: the
    /// paper's length penalty, a coverage penalty, a maximum length that is 0 or depends on the source (except the
    /// default), a sampling seed other than 0, a repetition penalty without a beam, a banned `<eos>` that is forced at
    /// the end.
    pub fn save(
        &self,
        directory: impl AsRef<Path>,
        config: &TransformerConfig,
    ) -> Result<(), ModelError> {
        let path = directory.as_ref().join(GENERATION_FILE);
        let keys = to_keys(&path, Some(self), config)?;
        replace_file_with(&path, keys.to_json()).map_err(ModelError::io(path))
    }
}

/// The decoding options of a model directory, and their file.
pub(crate) fn options_of(files: &Files) -> Result<Option<(PathBuf, DecodeOptions)>, ModelError> {
    let model = model_keys(files)?;
    let Some(keys) = in_force(model.as_ref(), files.generation()?)? else {
        return Ok(None);
    };
    let eos = match &model {
        Some(model) => Some(token_of_all(ModelType::of(model)?, model, "eos_token_id")?),
        None => keys.token("eos_token_id")?,
    };
    let start = match (&model, files.config()) {
        (Some(model), _) => Start::of(ModelType::of(model)?.family() != Family::Gpt2),
        (None, Some(_)) => Start::of(Keys::of_config(files)?.flag_or("prompt_bos", true)?),
        (None, None) => Start::Token,
    };
    let options = options(&keys, eos, start)?;
    Ok(Some((keys.path().to_owned(), options)))
}

/// The decoder's start token in the files of a model directory: Hugging Face's, or our `config.json`.
#[cfg(feature = "text")]
pub(crate) fn start_token_of(files: &Files) -> Result<Option<u32>, ModelError> {
    let generation = files.generation()?;
    if let Some(model) = model_keys(files)? {
        let keys = in_force(Some(&model), generation)?;
        return start_token(ModelType::of(&model)?, &model, keys.as_ref()).map(Some);
    }
    if let Some(keys) = generation
        && let Some(token) = keys.token("decoder_start_token_id")?
    {
        return Ok(Some(token));
    }
    match files.config() {
        Some(_) => Keys::of_config(files)?.token("bos_id"),
        None => Ok(None),
    }
}

/// The keys of `config.json`, if it is Hugging Face's.
fn model_keys(files: &Files) -> Result<Option<Keys>, ModelError> {
    if files.config().is_none() {
        return Ok(None);
    }
    let keys = Keys::of_config(files)?;
    Ok(Some(keys).filter(|keys| keys.value("model_type").is_some()))
}

/// What comes before the first token that a model predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// `<bos>`, which Hugging Face's lengths count.
    Token,
    /// A prompt without `<bos>`, as in GPT-2, which is part of the target.
    Prompt,
}

impl Start {
    fn of(prompt_bos: bool) -> Self {
        match prompt_bos {
            true => Self::Token,
            false => Self::Prompt,
        }
    }

    /// Number of tokens that Hugging Face's lengths count and ours do not.
    fn counted(self) -> usize {
        match self {
            Self::Token => 1,
            Self::Prompt => 0,
        }
    }

    /// A maximum of new tokens.
    fn new_tokens(self, tokens: usize) -> MaxLength {
        match self {
            Self::Token => MaxLength::Tokens(tokens),
            Self::Prompt => MaxLength::SourcePlus(tokens),
        }
    }
}

/// The options of a file. `eos` is the model's end token, if known.
fn options(keys: &Keys, eos: Option<u32>, start: Start) -> Result<DecodeOptions, ModelError> {
    for (key, without_effect) in OTHER_SEARCHES {
        if keys.number(key)?.unwrap_or(without_effect) != without_effect {
            return Err(keys.refusal(key, "which is not supported"));
        }
    }
    for key in OTHER_RULES {
        if keys.value(key).is_some() {
            return Err(keys.refusal(key, "which is not supported"));
        }
    }
    if keys.flag("token_healing")? == Some(true) {
        return Err(keys.refusal("token_healing", "which is not supported"));
    }
    let (forced_first, forced_last) = (
        keys.token("forced_bos_token_id")?,
        is_last_forced(keys, eos)?,
    );
    for key in ["forced_bos_token_id", "min_new_tokens"] {
        if start == Start::Prompt && keys.value(key).is_some_and(|value| *value != 0) {
            return Err(keys.refusal(key, "which is not supported for a language model"));
        }
    }
    let exponent = keys.number("length_penalty")?.unwrap_or(1.0);
    let options = DecodeOptions {
        strategy: strategy(keys)?,
        length_penalty: match exponent == 0.0 {
            true => LengthPenalty::None,
            false => LengthPenalty::Power(exponent),
        },
        max_length: max_length(keys, start)?,
        min_length: min_length(keys, start)?,
        early_stopping: keys.flag("early_stopping")?.unwrap_or(false),
        banned_tokens: banned_tokens(keys, eos, forced_first, forced_last)?,
        forced_first,
        forced_last,
        no_repeat_ngram: keys.size("no_repeat_ngram_size")?.unwrap_or(0),
        repetition_penalty: repetition_penalty(keys)?,
        renormalize: keys.flag("renormalize_logits")?.unwrap_or(false),
        ..DecodeOptions::greedy()
    };
    if let MaxLength::Tokens(most) = options.max_length
        && options.min_length > most
    {
        let key = match keys.value("min_new_tokens") {
            Some(_) => "min_new_tokens",
            None => "min_length",
        };
        return Err(keys.refusal(key, format!("but a target has at most {most} tokens")));
    }
    match options.validate() {
        Ok(()) => Ok(options),
        Err(source) => Err(ModelError::Options {
            path: keys.path().to_owned(),
            source,
        }),
    }
}

fn strategy(keys: &Keys) -> Result<Strategy, ModelError> {
    let size = keys.size("num_beams")?.unwrap_or(1);
    if !keys.flag("do_sample")?.unwrap_or(false) {
        return Ok(Strategy::Beam { size });
    }
    if size > 1 {
        return Err(keys.refusal("num_beams", "but `do_sample` with a beam is not supported"));
    }
    Ok(Strategy::Sample(Sampling {
        temperature: keys.number("temperature")?.unwrap_or(1.0),
        top_k: match keys.is_null("top_k") {
            true => 0,
            false => keys.size("top_k")?.unwrap_or(TOP_K),
        },
        top_p: keys.number("top_p")?.unwrap_or(1.0),
        ..Sampling::default()
    }))
}

/// In a beam search, Hugging Face applies the penalty to log-probabilities, as we do; otherwise to logits, which we do
/// not have.
fn repetition_penalty(keys: &Keys) -> Result<f64, ModelError> {
    let penalty = keys.number("repetition_penalty")?.unwrap_or(1.0);
    let is_beam = keys.size("num_beams")?.is_some_and(|size| size > 1);
    match penalty == 1.0 || is_beam {
        true => Ok(penalty),
        false => Err(keys.refusal(
            "repetition_penalty",
            "which without a beam (`num_beams`) applies to logits; only log-probabilities are supported",
        )),
    }
}

/// Hugging Face's lengths count the start token, except lengths of "new" tokens.
fn max_length(keys: &Keys, start: Start) -> Result<MaxLength, ModelError> {
    let (new, all) = (keys.size("max_new_tokens")?, keys.size("max_length")?);
    match (new, all) {
        (Some(0), _) => Err(keys.refusal("max_new_tokens", "but must be at least 1")),
        (Some(new), _) => Ok(start.new_tokens(new)),
        (None, Some(0 | 1)) => Err(keys.refusal(
            "max_length",
            "but must be at least 2, including the start token",
        )),
        (None, Some(MAX_LENGTH)) => Ok(start.new_tokens(MAX_LENGTH)),
        (None, Some(all)) => Ok(MaxLength::Tokens(all - start.counted())),
        (None, None) => Ok(MaxLength::default()),
    }
}

fn min_length(keys: &Keys, start: Start) -> Result<usize, ModelError> {
    let (new, all) = (keys.size("min_new_tokens")?, keys.size("min_length")?);
    Ok(match (start, new) {
        (Start::Token, Some(new)) => new,
        _ => all.unwrap_or(0).saturating_sub(start.counted()),
    })
}

/// The tokens of both keys. A bad word that is `<eos>` alone is ignored, as in Hugging Face.
fn banned_tokens(
    keys: &Keys,
    eos: Option<u32>,
    forced_first: Option<u32>,
    forced_last: bool,
) -> Result<Vec<u32>, ModelError> {
    let mut banned = keys.words("bad_words_ids")?;
    banned.retain(|&token| Some(token) != eos);
    let suppressed = keys.tokens("suppress_tokens")?;
    // Hugging Face also suppresses a forced token, which leaves none.
    for (key, forced) in [
        ("forced_bos_token_id", forced_first),
        ("forced_eos_token_id", eos.filter(|_| forced_last)),
    ] {
        if forced.is_some_and(|token| suppressed.contains(&token)) {
            return Err(keys.refusal("suppress_tokens", format!("but `{key}` is one of them")));
        }
    }
    banned.extend(suppressed);
    Ok(banned)
}

fn is_last_forced(keys: &Keys, eos: Option<u32>) -> Result<bool, ModelError> {
    let Some(forced) = keys.token("forced_eos_token_id")? else {
        return Ok(false);
    };
    match eos {
        Some(eos) if eos != forced => Err(keys.refusal(
            "forced_eos_token_id",
            format!("but `eos_token_id` is {eos}"),
        )),
        _ => Ok(true),
    }
}

/// The file's keys: the model's special tokens, the tokens that it never generates, and the options, if any.
pub(crate) fn to_keys(
    path: &Path,
    options: Option<&DecodeOptions>,
    config: &TransformerConfig,
) -> Result<Keys, ModelError> {
    let start = match config.is_language_model() {
        true => "bos_token_id",
        false => "decoder_start_token_id",
    };
    let mut keys = vec![
        (start, json!(config.bos_id)),
        ("eos_token_id", json!(config.eos_id)),
        ("pad_token_id", json!(config.pad_id)),
    ];
    let mut banned_tokens = config.excluded_tokens.clone();
    if let Some(options) = options {
        let start = Start::of(config.prompt_bos || !config.is_language_model());
        keys.extend(option_keys(path, options, start)?);
        if options.forced_last {
            keys.push(("forced_eos_token_id", json!(config.eos_id)));
        }
        let banned = options.banned_tokens.iter().copied();
        let further = banned.filter(|token| !config.excluded_tokens.contains(token));
        // As a bad word, `<eos>` would be ignored.
        let (end, further): (Vec<u32>, _) = further.partition(|&token| token == config.eos_id);
        if !end.is_empty() {
            if options.forced_last {
                return Err(no_key(
                    path,
                    "banned_tokens",
                    format!("{end:?}, also forced last"),
                ));
            }
            keys.push(("suppress_tokens", json!(end)));
        }
        banned_tokens.extend::<Vec<u32>>(further);
    }
    if !banned_tokens.is_empty() {
        let words: Vec<[u32; 1]> = banned_tokens.into_iter().map(|token| [token]).collect();
        keys.push(("bad_words_ids", json!(words)));
    }
    let keys = keys.into_iter().map(|(key, value)| (key.to_owned(), value));
    Ok(Keys::new(path.to_owned(), keys.collect()))
}

/// The keys of options that differ from Hugging Face's defaults, except the banned tokens and the forced last token.
fn option_keys(
    path: &Path,
    options: &DecodeOptions,
    start: Start,
) -> Result<Vec<(&'static str, Value)>, ModelError> {
    let refuse = |key: &str, value: String| Err(no_key(path, key, value));
    let mut keys = Vec::new();
    match &options.strategy {
        Strategy::Beam { size } => keys.push(("num_beams", json!(size))),
        Strategy::Sample(Sampling { seed, .. }) if *seed != 0 => {
            return refuse("seed", seed.to_string());
        }
        Strategy::Sample(sampling) => keys.extend([
            ("do_sample", json!(true)),
            ("temperature", json!(sampling.temperature)),
            ("top_k", json!(sampling.top_k)),
            ("top_p", json!(sampling.top_p)),
        ]),
    }
    keys.push(match options.length_penalty {
        LengthPenalty::None => ("length_penalty", json!(0.0)),
        LengthPenalty::Power(exponent) => ("length_penalty", json!(exponent)),
        LengthPenalty::Paper(exponent) => {
            let formula = format!("((5 + length) / 6)^{exponent}");
            return refuse("length_penalty", formula);
        }
    });
    match options.max_length {
        MaxLength::Tokens(0) => return refuse("max_length", "0".to_owned()),
        // The value 20 of `max_length` means 20 new tokens.
        MaxLength::Tokens(most) if most + start.counted() == MAX_LENGTH => match start {
            Start::Token => keys.push(("max_new_tokens", json!(most))),
            Start::Prompt => return refuse("max_length", most.to_string()),
        },
        MaxLength::Tokens(most) => {
            let all = most.saturating_add(start.counted());
            keys.push(("max_length", json!(all)));
        }
        default if default == MaxLength::default() => {}
        MaxLength::SourcePlus(more) if more > 0 && start == Start::Prompt => {
            keys.push(("max_new_tokens", json!(more)));
        }
        MaxLength::SourcePlus(more) => {
            return refuse("max_length", format!("the source's length + {more}"));
        }
    }
    if options.early_stopping {
        keys.push(("early_stopping", json!(true)));
    }
    if options.coverage_penalty != 0.0 {
        return refuse("coverage_penalty", options.coverage_penalty.to_string());
    }
    if options.min_length > 0 {
        let all = options.min_length.saturating_add(start.counted());
        keys.push(("min_length", json!(all)));
    }
    if let Some(token) = options.forced_first {
        keys.push(("forced_bos_token_id", json!(token)));
    }
    if options.no_repeat_ngram > 0 {
        keys.push(("no_repeat_ngram_size", json!(options.no_repeat_ngram)));
    }
    if options.repetition_penalty != 1.0 {
        // Without a beam, the key means a different penalty.
        if !matches!(options.strategy, Strategy::Beam { size } if size > 1) {
            return refuse("repetition_penalty", options.repetition_penalty.to_string());
        }
        keys.push(("repetition_penalty", json!(options.repetition_penalty)));
    }
    if options.renormalize {
        keys.push(("renormalize_logits", json!(true)));
    }
    Ok(keys)
}

/// The error for an option that the file cannot express.
fn no_key(path: &Path, key: &str, value: String) -> ModelError {
    ModelError::Unsupported {
        path: path.to_owned(),
        key: key.to_owned(),
        value,
        problem: "which this file cannot express".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::names::CONFIG_FILE;
    use std::fs;

    /// The options of a directory with these files.
    fn read(files: &[(&str, Value)]) -> Result<Option<DecodeOptions>, ModelError> {
        let directory = tempfile::tempdir().unwrap();
        for (name, json) in files {
            fs::write(directory.path().join(name), json.to_string()).unwrap();
        }
        DecodeOptions::of_directory(directory.path())
    }

    fn of(json: Value) -> DecodeOptions {
        read(&[(GENERATION_FILE, json)]).unwrap().unwrap()
    }

    /// Hugging Face's defaults, except for the maximum length.
    fn greedy() -> DecodeOptions {
        DecodeOptions {
            length_penalty: LengthPenalty::Power(1.0),
            early_stopping: false,
            ..DecodeOptions::greedy()
        }
    }

    #[test]
    fn what_is_left_out_is_hugging_face_s_default() {
        assert_eq!(of(json!({"num_beams": null, "unknown": [1]})), greedy());
        assert_eq!(read(&[]).unwrap(), None);
        let ours = json!({"format": 1, "model": "transformer"});
        assert_eq!(read(&[(CONFIG_FILE, ours)]).unwrap(), None);
    }

    #[test]
    fn marian_s_and_bart_s_options_are_ours() {
        let marian = json!({
            "bad_words_ids": [[7]],
            "decoder_start_token_id": 7,
            "eos_token_id": 0,
            "forced_eos_token_id": 0,
            "max_length": 512,
            "num_beams": 4,
            "pad_token_id": 7,
            "renormalize_logits": true,
            "diversity_penalty": 0.0,
        });
        let expected = DecodeOptions {
            strategy: Strategy::Beam { size: 4 },
            // The start token is one of the 512.
            max_length: MaxLength::Tokens(511),
            banned_tokens: vec![7],
            forced_last: true,
            renormalize: true,
            ..greedy()
        };
        assert_eq!(of(marian), expected);
        let bart = json!({
            "num_beams": 4,
            "early_stopping": true,
            "forced_bos_token_id": 0,
            "length_penalty": 2.0,
            "max_new_tokens": 24,
            "max_length": 142,
            "min_length": 56,
            "no_repeat_ngram_size": 3,
            "repetition_penalty": 1.5,
            "suppress_tokens": [3, 4],
        });
        let expected = DecodeOptions {
            strategy: Strategy::Beam { size: 4 },
            length_penalty: LengthPenalty::Power(2.0),
            early_stopping: true,
            max_length: MaxLength::Tokens(24),
            min_length: 55,
            forced_first: Some(0),
            no_repeat_ngram: 3,
            repetition_penalty: 1.5,
            banned_tokens: vec![3, 4],
            ..greedy()
        };
        // A minimum above the maximum.
        let problem = read(&[(GENERATION_FILE, bart.clone())]).unwrap_err();
        assert!(
            problem
                .to_string()
                .contains("`min_length` is 56, but a target has at most 24 tokens"),
            "{problem}"
        );
        let mut bart = bart;
        bart["max_new_tokens"] = Value::Null;
        let expected = DecodeOptions {
            max_length: MaxLength::Tokens(141),
            ..expected
        };
        assert_eq!(of(bart), expected);
    }

    /// As `generate` documents, the lengths of new tokens "will take precedence"; its default of 20 counts new tokens.
    #[test]
    fn lengths_of_new_tokens_win() {
        let lengths = |json| {
            let options = of(json);
            (options.min_length, options.max_length)
        };
        let at_most = MaxLength::Tokens;
        let both = json!({"min_length": 20, "min_new_tokens": 5, "max_length": 30});
        assert_eq!(lengths(both), (5, at_most(29)));
        let none = json!({"min_length": 20, "min_new_tokens": 0});
        assert_eq!(lengths(none), (0, MaxLength::default()));
        let more =
            json!({"min_length": 3, "min_new_tokens": 5, "max_length": 6, "max_new_tokens": 9});
        assert_eq!(lengths(more), (5, at_most(9)));
        assert_eq!(lengths(json!({"max_length": 20})), (0, at_most(20)));
        assert_eq!(lengths(json!({"max_length": 21})), (0, at_most(20)));
    }

    #[test]
    fn a_bad_word_that_is_the_end_is_left_out_and_a_suppressed_one_is_not() {
        let banned = |json| of(json).banned_tokens;
        let bad = json!({"eos_token_id": 2, "bad_words_ids": [[2], [7]], "suppress_tokens": [5]});
        assert_eq!(banned(bad), [7, 5]);
        let suppressed = json!({"eos_token_id": 2, "suppress_tokens": [2]});
        assert_eq!(banned(suppressed), [2]);
    }

    #[test]
    fn samples_are_drawn_from_fifty_tokens() {
        let expected = DecodeOptions {
            strategy: Strategy::Sample(Sampling {
                temperature: 0.5,
                top_k: 50,
                ..Sampling::default()
            }),
            ..greedy()
        };
        assert_eq!(of(json!({"do_sample": true, "temperature": 0.5})), expected);
        let top_k = |json: Value| match of(json).strategy {
            Strategy::Sample(sampling) => sampling.top_k,
            strategy => panic!("{strategy:?}"),
        };
        assert_eq!(top_k(json!({"do_sample": true, "top_k": null})), 0);
        assert_eq!(top_k(json!({"do_sample": true})), 50);
    }

    #[test]
    fn old_directories_have_the_keys_in_config_json() {
        let config = json!({
            "model_type": "bart",
            "num_beams": 3,
            "bos_token_id": 5,
            "force_bos_token_to_be_generated": true,
            "eos_token_id": 2,
            "forced_eos_token_id": 2,
        });
        let expected = DecodeOptions {
            strategy: Strategy::Beam { size: 3 },
            forced_first: Some(5),
            forced_last: true,
            ..greedy()
        };
        assert_eq!(
            read(&[(CONFIG_FILE, config.clone())]).unwrap(),
            Some(expected.clone())
        );
        // If both exist, one is read: a `generation_config.json` derived from `config.json` gives way to it.
        for (is_derived, expected) in [(false, greedy()), (true, expected)] {
            let generation = json!({"_from_model_config": is_derived});
            let files = [(CONFIG_FILE, config.clone()), (GENERATION_FILE, generation)];
            assert_eq!(read(&files).unwrap(), Some(expected));
        }
        // The defaults of the class do not count as options.
        let usual = json!({"model_type": "bart", "num_beams": 1, "early_stopping": false, "forced_eos_token_id": 2});
        let generation = json!({"_from_model_config": true});
        let files = [(CONFIG_FILE, usual), (GENERATION_FILE, generation)];
        assert_eq!(read(&files).unwrap(), Some(greedy()));
    }

    #[test]
    fn without_a_file_of_its_own_generation_has_the_defaults_of_the_class() {
        for (model_type, is_last_forced) in [
            ("marian", true),
            ("m2m_100", false),
            ("bart", true),
            ("mbart", true),
        ] {
            let forced_last = |config: Value| {
                let options = read(&[(CONFIG_FILE, config)]).unwrap().unwrap();
                options.forced_last
            };
            let absent = json!({"model_type": model_type});
            assert_eq!(forced_last(absent), is_last_forced, "{model_type}");
            let null = json!({"model_type": model_type, "forced_eos_token_id": null});
            assert!(!forced_last(null), "{model_type}");
        }
        let config = json!({"model_type": "bart", "force_bos_token_to_be_generated": true});
        let options = read(&[(CONFIG_FILE, config)]).unwrap().unwrap();
        assert_eq!(options.forced_first, Some(0));
    }

    #[test]
    fn searches_that_we_do_not_have_are_refused_by_key_and_value() {
        for (json, reason) in [
            (
                json!({"num_beam_groups": 2}),
                "`num_beam_groups` is 2, which",
            ),
            (
                json!({"early_stopping": "never"}),
                "`early_stopping` is \"never\", not true or false",
            ),
            (
                json!({"diversity_penalty": 0.5}),
                "`diversity_penalty` is 0.5, which",
            ),
            (
                json!({"penalty_alpha": 0.6}),
                "`penalty_alpha` is 0.6, which",
            ),
            (
                json!({"do_sample": true, "num_beams": 2}),
                "`num_beams` is 2, but `do_sample`",
            ),
            (
                json!({"bad_words_ids": [[1], [2, 3]]}),
                "`bad_words_ids` is [[1],[2,3]], not",
            ),
            (
                json!({"forced_bos_token_id": [1, 2]}),
                "`forced_bos_token_id` is [1,2], not a single",
            ),
            (
                json!({"repetition_penalty": 1.2}),
                "`repetition_penalty` is 1.2, which without a beam",
            ),
            (
                json!({"do_sample": true, "repetition_penalty": 0.5}),
                "`repetition_penalty` is 0.5, which without a beam",
            ),
            (
                json!({"num_beams": 0}),
                "`num_beams` is 0; it must be at least 1",
            ),
            (
                json!({"eos_token_id": 0, "forced_eos_token_id": 2}),
                "`forced_eos_token_id` is 2, but `eos_token_id` is 0",
            ),
        ] {
            let message = read(&[(GENERATION_FILE, json)]).unwrap_err().to_string();
            assert!(message.contains(GENERATION_FILE), "{message}");
            assert!(message.contains(reason), "{message}");
        }
    }

    #[test]
    fn saved_options_are_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let config = TransformerConfig::base(100);
        let options = [
            greedy(),
            DecodeOptions {
                strategy: Strategy::Beam { size: 5 },
                length_penalty: LengthPenalty::None,
                early_stopping: true,
                max_length: MaxLength::Tokens(30),
                min_length: 2,
                banned_tokens: vec![0, 9],
                forced_first: Some(8),
                forced_last: true,
                no_repeat_ngram: 3,
                repetition_penalty: 1.25,
                renormalize: true,
                ..greedy()
            },
            DecodeOptions {
                max_length: MaxLength::Tokens(19),
                banned_tokens: vec![9, config.eos_id],
                ..greedy()
            },
            DecodeOptions {
                max_length: MaxLength::Tokens(20),
                ..greedy()
            },
            DecodeOptions {
                length_penalty: LengthPenalty::Power(-1.5),
                ..greedy()
            },
            DecodeOptions {
                strategy: Strategy::Sample(Sampling {
                    temperature: 0.75,
                    top_k: 0,
                    top_p: 0.5,
                    seed: 0,
                }),
                ..greedy()
            },
        ];
        for options in options {
            options.save(directory.path(), &config).unwrap();
            let found = DecodeOptions::of_directory(directory.path()).unwrap();
            assert_eq!(found, Some(options));
        }
    }

    #[test]
    fn options_without_a_key_are_not_saved() {
        let directory = tempfile::tempdir().unwrap();
        let config = TransformerConfig::base(100);
        for (options, reason) in [
            (
                DecodeOptions::beam(4),
                "`length_penalty` is ((5 + length) / 6)^0.6, which this file cannot express",
            ),
            (
                DecodeOptions {
                    coverage_penalty: 0.5,
                    ..greedy()
                },
                "`coverage_penalty` is 0.5,",
            ),
            (
                DecodeOptions {
                    repetition_penalty: 1.5,
                    ..greedy()
                },
                "`repetition_penalty` is 1.5,",
            ),
            (
                DecodeOptions {
                    max_length: MaxLength::Tokens(0),
                    ..greedy()
                },
                "`max_length` is 0,",
            ),
            (
                DecodeOptions {
                    banned_tokens: vec![config.eos_id],
                    forced_last: true,
                    ..greedy()
                },
                "`banned_tokens` is [2], also forced last,",
            ),
            (
                DecodeOptions {
                    max_length: MaxLength::SourcePlus(7),
                    ..greedy()
                },
                "`max_length` is the source's length + 7,",
            ),
        ] {
            let message = options
                .save(directory.path(), &config)
                .unwrap_err()
                .to_string();
            assert!(message.contains(reason), "{message}");
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
