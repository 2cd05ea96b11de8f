//! `generation_config.json`: how a model is to be decoded, in Hugging Face's keys. Any model directory may have
//! it, ours too; old directories of Hugging Face's have the keys in `config.json`.
//!
//! Ignored are keys of the library (`use_cache`, `output_scores`, …), unknown ones, and:
//! - `renormalize_logits`: Marian's directories ask by it for a softmax without `<pad>`, which is part of the model
//!   (`TransformerConfig::excluded_tokens`);
//! - `num_return_sequences`: a matter of the caller.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::decoding::{DecodeOptions, LengthPenalty, MaxLength, Sampling, Strategy};
use crate::error::ModelError;
use crate::formats::files::replace_file_with;
use crate::formats::hugging_face::keys::Keys;
use crate::formats::own::config::CONFIG_FILE;
use crate::models::config::TransformerConfig;

/// The file of the defaults of decoding in a model directory, in Hugging Face's format.
pub const GENERATION_FILE: &str = "generation_config.json";

/// Keys of searches that we do not have, and their values without effect.
const OTHER_SEARCHES: [(&str, f64); 7] = [
    ("encoder_repetition_penalty", 1.0),
    ("encoder_no_repeat_ngram_size", 0.0),
    ("diversity_penalty", 0.0),
    ("num_beam_groups", 1.0),
    ("typical_p", 1.0),
    ("epsilon_cutoff", 0.0),
    ("eta_cutoff", 0.0),
];

/// Keys of rules that we do not have, which have no effect only where they are absent.
const OTHER_RULES: [&str; 13] = [
    "begin_suppress_tokens",
    "constraints",
    "dola_layers",
    "exponential_decay_length_penalty",
    "force_words_ids",
    "forced_decoder_ids",
    "guidance_scale",
    "max_time",
    "min_p",
    "penalty_alpha",
    "sequence_bias",
    "stop_strings",
    "watermarking_config",
];

/// Hugging Face's default, where samples are drawn.
const TOP_K: usize = 50;

impl DecodeOptions {
    /// The options that a model directory was saved with: those of its `generation_config.json`, or else of a
    /// Hugging Face directory's `config.json`. `None` where it has neither, as most of ours.
    ///
    /// An option that these files leave out has Hugging Face's default: a beam of 1, scores by the mean
    /// log-probability. Only the longest target is then ours, not 20 tokens.
    ///
    /// # Errors
    /// When a file is damaged, an option is out of range, or a key asks for a search that we do not have.
    pub fn of_directory(directory: impl AsRef<Path>) -> Result<Option<Self>, ModelError> {
        let found = options_of_directory(directory.as_ref())?;
        Ok(found.map(|(_, options)| options))
    }

    /// Writes the options into the directory of a model of that configuration, which exists, as its
    /// `generation_config.json`. Sizes of batches, the most tokens of a source and the number of targets returned
    /// are no part of it.
    ///
    /// # Errors
    /// When the file cannot be written, and then an older one stays as it was, or an option has no key of Hugging
    /// Face's: the paper's length penalty, a coverage penalty, a length that depends on the source's unless it is
    /// the default, the seed of samples unless it is 0, a repetition penalty without a beam.
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

/// The options that a model directory was saved with, and their file.
pub(crate) fn options_of_directory(
    directory: &Path,
) -> Result<Option<(PathBuf, DecodeOptions)>, ModelError> {
    let generation = Keys::read_if_there(&directory.join(GENERATION_FILE))?;
    let model = Keys::read_if_there(&directory.join(CONFIG_FILE))?;
    let model = model.filter(|keys| keys.value("model_type").is_some());
    let eos = match model.as_ref().or(generation.as_ref()) {
        Some(keys) => keys.token("eos_token_id")?,
        None => None,
    };
    let Some(keys) = generation.or(model) else {
        return Ok(None);
    };
    let options = options(&keys, eos)?;
    Ok(Some((keys.path().to_owned(), options)))
}

/// The decoder's first input, as the files of a model directory say it: Hugging Face's, or our `config.json`.
#[cfg(feature = "text")]
pub(crate) fn start_token_of_directory(directory: &Path) -> Result<Option<u32>, ModelError> {
    for (name, key) in [
        (GENERATION_FILE, "decoder_start_token_id"),
        (CONFIG_FILE, "decoder_start_token_id"),
        (CONFIG_FILE, "bos_id"),
    ] {
        if let Some(keys) = Keys::read_if_there(&directory.join(name))?
            && let Some(token) = keys.token(key)?
        {
            return Ok(Some(token));
        }
    }
    Ok(None)
}

/// The options of a file. `eos` is the token that ends a target of the model, where it is known.
fn options(keys: &Keys, eos: Option<u32>) -> Result<DecodeOptions, ModelError> {
    for (key, without_effect) in OTHER_SEARCHES {
        if keys.number(key)?.unwrap_or(without_effect) != without_effect {
            return Err(keys.refusal(key, "which this version does not have"));
        }
    }
    for key in OTHER_RULES {
        if keys.value(key).is_some() {
            return Err(keys.refusal(key, "which this version does not have"));
        }
    }
    let mut banned_tokens = keys.words("bad_words_ids")?;
    banned_tokens.extend(keys.tokens("suppress_tokens")?);
    let exponent = keys.number("length_penalty")?.unwrap_or(1.0);
    let options = DecodeOptions {
        strategy: strategy(keys)?,
        length_penalty: match exponent == 0.0 {
            true => LengthPenalty::None,
            false => LengthPenalty::Power(exponent),
        },
        max_length: max_length(keys)?,
        min_length: min_length(keys)?,
        early_stopping: keys.flag("early_stopping")?.unwrap_or(false),
        banned_tokens,
        forced_first: forced_first(keys)?,
        forced_last: is_last_forced(keys, eos)?,
        no_repeat_ngram: keys.size("no_repeat_ngram_size")?.unwrap_or(0),
        repetition_penalty: repetition_penalty(keys)?,
        ..DecodeOptions::greedy()
    };
    if let MaxLength::Tokens(most) = options.max_length
        && options.min_length > most
    {
        let key = match keys.size("min_new_tokens")? == Some(options.min_length) {
            true => "min_new_tokens",
            false => "min_length",
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
        return Err(keys.refusal(
            "num_beams",
            "but `do_sample` draws without a beam here: Hugging Face draws the hypotheses of the beam",
        ));
    }
    Ok(Strategy::Sample(Sampling {
        temperature: keys.number("temperature")?.unwrap_or(1.0),
        top_k: keys.size("top_k")?.unwrap_or(TOP_K),
        top_p: keys.number("top_p")?.unwrap_or(1.0),
        ..Sampling::default()
    }))
}

/// In a beam search Hugging Face multiplies log-probabilities, as we do; otherwise logits, which are not known here.
fn repetition_penalty(keys: &Keys) -> Result<f64, ModelError> {
    let penalty = keys.number("repetition_penalty")?.unwrap_or(1.0);
    let is_beam = keys.size("num_beams")?.is_some_and(|size| size > 1);
    match penalty == 1.0 || is_beam {
        true => Ok(penalty),
        false => Err(keys.refusal(
            "repetition_penalty",
            "which without a beam (`num_beams`) is applied to logits; this version applies it to log-probabilities",
        )),
    }
}

/// Hugging Face's lengths count the start token, unless they are of "new" tokens.
fn max_length(keys: &Keys) -> Result<MaxLength, ModelError> {
    let new = keys.size("max_new_tokens")?;
    let all = keys.size("max_length")?.map(|all| all.saturating_sub(1));
    Ok(new.or(all).map_or(MaxLength::default(), MaxLength::Tokens))
}

fn min_length(keys: &Keys) -> Result<usize, ModelError> {
    let new = keys.size("min_new_tokens")?.unwrap_or(0);
    let all = keys.size("min_length")?.unwrap_or(0);
    Ok(new.max(all.saturating_sub(1)))
}

fn forced_first(keys: &Keys) -> Result<Option<u32>, ModelError> {
    let forced = keys.token("forced_bos_token_id")?;
    // BART's key before it had that one.
    if forced.is_none() && keys.flag("force_bos_token_to_be_generated")? == Some(true) {
        return keys.token("bos_token_id");
    }
    Ok(forced)
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

/// The file's keys: the special tokens of the model, the tokens that it never produces, and options, if there are
/// any.
pub(crate) fn to_keys(
    path: &Path,
    options: Option<&DecodeOptions>,
    config: &TransformerConfig,
) -> Result<Keys, ModelError> {
    let mut keys = vec![
        ("decoder_start_token_id", json!(config.bos_id)),
        ("eos_token_id", json!(config.eos_id)),
        ("pad_token_id", json!(config.pad_id)),
    ];
    let mut banned_tokens = config.excluded_tokens.clone();
    if let Some(options) = options {
        keys.extend(option_keys(path, options)?);
        if options.forced_last {
            keys.push(("forced_eos_token_id", json!(config.eos_id)));
        }
        let banned = options.banned_tokens.iter();
        let further = banned.filter(|token| !config.excluded_tokens.contains(token));
        banned_tokens.extend(further);
    }
    if !banned_tokens.is_empty() {
        let words: Vec<[u32; 1]> = banned_tokens.into_iter().map(|token| [token]).collect();
        keys.push(("bad_words_ids", json!(words)));
    }
    let keys = keys.into_iter().map(|(key, value)| (key.to_owned(), value));
    Ok(Keys::new(path.to_owned(), keys.collect()))
}

/// The keys of options that differ from Hugging Face's defaults, but for the banned tokens and the last one.
fn option_keys(
    path: &Path,
    options: &DecodeOptions,
) -> Result<Vec<(&'static str, Value)>, ModelError> {
    let refuse = |key: &str, value: String| {
        Err(ModelError::Unsupported {
            path: path.to_owned(),
            key: key.to_owned(),
            value,
            problem: "for which this file has no key".to_owned(),
        })
    };
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
        MaxLength::Tokens(most) => keys.push(("max_length", json!(most.saturating_add(1)))),
        default if default == MaxLength::default() => {}
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
        keys.push(("min_length", json!(options.min_length.saturating_add(1))));
    }
    if let Some(token) = options.forced_first {
        keys.push(("forced_bos_token_id", json!(token)));
    }
    if options.no_repeat_ngram > 0 {
        keys.push(("no_repeat_ngram_size", json!(options.no_repeat_ngram)));
    }
    if options.repetition_penalty != 1.0 {
        // Without a beam, the key means another penalty.
        if !matches!(options.strategy, Strategy::Beam { size } if size > 1) {
            return refuse("repetition_penalty", options.repetition_penalty.to_string());
        }
        keys.push(("repetition_penalty", json!(options.repetition_penalty)));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
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

    /// Hugging Face's defaults, but for the longest target.
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
            Some(expected)
        );
        // Where both are there, one is read.
        let files = [(CONFIG_FILE, config), (GENERATION_FILE, json!({}))];
        assert_eq!(read(&files).unwrap(), Some(greedy()));
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
                "`forced_bos_token_id` is [1,2], not one",
            ),
            (
                json!({"repetition_penalty": 1.2}),
                "`repetition_penalty` is 1.2, which without a beam",
            ),
            (
                json!({"do_sample": true, "repetition_penalty": 0.5}),
                "`repetition_penalty` is 0.5, which without a beam",
            ),
            (json!({"num_beams": 0}), "`num_beams` is 0, not at least 1"),
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
                "`length_penalty` is ((5 + length) / 6)^0.6, for which this file has no key",
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
