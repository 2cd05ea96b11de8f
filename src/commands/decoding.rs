//! The decoding flags of the commands that translate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use transformer_core::decoding::{LengthPenalty, MaxLength, Sampling, Shortlist, Strategy};
use transformer_core::{DecodeOptions, ModelDirectory, Tokenizers};

use super::options_error;

/// The search for translations. Each flag overrides an option of the model's `generation_config.json`.
#[derive(Debug, Clone, Args)]
#[command(
    next_help_heading = "Decoding (defaults come from the model's generation_config.json, if it has one)"
)]
pub struct Decoding {
    /// Beam size, the number of hypotheses kept at each step; 1 is greedy decoding [default: 4]
    #[arg(long, value_name = "N")]
    beam: Option<usize>,
    /// Length penalty that divides log-probabilities: a number A means ((5 + length) / 6)^A, as in GNMT; `length^A` is
    /// Hugging Face's length_penalty; `average` is `length^1`. `train` chooses `average` [default: 0.6]
    #[arg(long, value_name = "A", value_parser = length_penalty, allow_negative_numbers = true)]
    length_penalty: Option<LengthPenalty>,
    /// With a length or coverage penalty: true stops the search once N hypotheses are finished, where N is the beam size
    /// (as in CTranslate2); false also requires that no unfinished hypothesis, scored at its current length, is better
    /// than the worst of the N best finished ones (as in Hugging Face). Without these penalties, the value does not
    /// matter: the search stops when no unfinished hypothesis can still be among the results [default: true]
    #[arg(long, value_name = "BOOL")]
    early_stopping: Option<bool>,
    /// Weight of the coverage penalty on source tokens that receive little attention [default: 0]
    #[arg(long, value_name = "B", allow_negative_numbers = true)]
    coverage_penalty: Option<f64>,
    /// Sample each token from its distribution instead of searching. Samples depend only on --seed and the sentence, so
    /// equal sentences have equal samples
    #[arg(long, conflicts_with_all = ["beam", "length_penalty", "early_stopping", "coverage_penalty"])]
    sample: bool,
    /// Sampling temperature, by which log-probabilities are divided [default: 1]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f64>,
    /// Sample from the K most likely tokens; 0 for all tokens [default: 0]
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Sample from the most likely tokens whose probabilities add up to P (nucleus sampling) [default: 1]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f64>,
    /// Minimum length of a translation in tokens, at most the maximum length [default: 0]
    #[arg(long, value_name = "N")]
    min_length: Option<usize>,
    /// Maximum length of a translation in tokens [default: 50 more than the source sentence]
    #[arg(long, value_name = "N")]
    max_length: Option<usize>,
    /// Forbid repeating any N-gram of tokens; 0 is off [default: 0]
    #[arg(long, value_name = "N")]
    no_repeat_ngram: Option<usize>,
    /// Repetition penalty, a factor on the log-probability of tokens that the translation already contains, including
    /// its start token; 1 is off [default: 1]
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    repetition_penalty: Option<f64>,
    /// Renormalize the probabilities after rules such as --no-repeat-ngram have excluded tokens, as Hugging Face's
    /// renormalize_logits does [default: false]
    #[arg(long, value_name = "BOOL")]
    renormalize: Option<bool>,
    /// Lexical shortlist of target tokens to search among, in Marian's binary format, such as Firefox's lex.*.bin;
    /// `none` for all tokens [default: the one that Marian's settings name, or none]
    #[arg(long, value_name = "FILE")]
    shortlist: Option<PathBuf>,
    /// Batch size in source tokens, including padding
    #[arg(long, value_name = "N", default_value_t = 2048)]
    batch_tokens: usize,
    /// Maximum length of a sentence in tokens; on some backends, memory grows with its square
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub max_source_length: usize,
}

impl Decoding {
    /// The file of a shortlist, if one is given.
    pub fn shortlist_file(&self) -> Option<&Path> {
        let given = self.shortlist.as_deref();
        given.filter(|path| path.as_os_str() != "none")
    }

    /// The model's options, overridden by the given flags.
    ///
    /// # Errors
    /// The first flag that is out of range.
    pub fn over(
        &self,
        of_model: DecodeOptions,
        n_best: usize,
        seed: u64,
    ) -> Result<DecodeOptions, String> {
        let options = DecodeOptions {
            strategy: self.strategy(&of_model.strategy, seed),
            n_best,
            length_penalty: match self.sample {
                true => LengthPenalty::None,
                false => self.length_penalty.unwrap_or(of_model.length_penalty),
            },
            early_stopping: self.early_stopping.unwrap_or(of_model.early_stopping),
            coverage_penalty: match self.sample {
                true => 0.0,
                false => self.coverage_penalty.unwrap_or(of_model.coverage_penalty),
            },
            max_length: self
                .max_length
                .map_or(of_model.max_length, MaxLength::Tokens),
            min_length: self.min_length.unwrap_or(of_model.min_length),
            no_repeat_ngram: self.no_repeat_ngram.unwrap_or(of_model.no_repeat_ngram),
            repetition_penalty: self
                .repetition_penalty
                .unwrap_or(of_model.repetition_penalty),
            renormalize: self.renormalize.unwrap_or(of_model.renormalize),
            shortlist: match self.shortlist_file() {
                Some(path) => {
                    let shortlist = Shortlist::load(path).map_err(|error| error.to_string())?;
                    Some(Arc::new(shortlist))
                }
                None => of_model.shortlist.filter(|_| self.shortlist.is_none()),
            },
            batch_tokens: self.batch_tokens,
            max_src_len: self.max_source_length,
            ..of_model
        };
        check_pairs_of_flags(&options, self.beam.is_some())?;
        self.check_flags_of_strategy(&options.strategy)?;
        options.validate().map_err(options_error)?;
        Ok(options)
    }

    /// Refuses flags of sampling in a search, and flags of a search in sampling, which --sample or the model's file
    /// selects.
    fn check_flags_of_strategy(&self, strategy: &Strategy) -> Result<(), String> {
        let given = match strategy {
            Strategy::Beam { .. } => [
                ("--temperature", self.temperature.map(|t| t.to_string())),
                ("--top-k", self.top_k.map(|k| k.to_string())),
                ("--top-p", self.top_p.map(|p| p.to_string())),
            ],
            Strategy::Sample(_) => [
                (
                    "--early-stopping",
                    self.early_stopping.map(|stops| stops.to_string()),
                ),
                (
                    "--length-penalty",
                    self.length_penalty.as_ref().map(in_flag),
                ),
                (
                    "--coverage-penalty",
                    self.coverage_penalty.map(|b| b.to_string()),
                ),
            ],
        };
        let needed = match strategy {
            Strategy::Beam { .. } => "needs sampling; add --sample",
            Strategy::Sample(_) => {
                "needs a search, but the model's file selects sampling; add --beam"
            }
        };
        let given = given
            .into_iter()
            .find_map(|(flag, value)| Some((flag, value?)));
        match given {
            Some((flag, value)) => Err(format!("{flag} {value}: {needed}")),
            None => Ok(()),
        }
    }

    fn strategy(&self, of_model: &Strategy, seed: u64) -> Strategy {
        let sampling = match of_model {
            Strategy::Sample(sampling) => sampling.clone(),
            Strategy::Beam { .. } => Sampling::default(),
        };
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(sampling.temperature),
            top_k: self.top_k.unwrap_or(sampling.top_k),
            top_p: self.top_p.unwrap_or(sampling.top_p),
            seed,
        };
        match (self.beam, of_model) {
            (Some(size), _) => Strategy::Beam { size },
            (None, Strategy::Beam { size }) if !self.sample => Strategy::Beam { size: *size },
            (None, _) => Strategy::Sample(sampling),
        }
    }
}

/// The options for a model: source tokens are candidates of a shortlist where source and target share a vocabulary.
///
/// # Errors
/// When a language model, which has no sources, is given a shortlist, a shortlist is of another vocabulary, or the
/// tokenizers cannot be read.
pub fn options_for(
    directory: &ModelDirectory,
    options: DecodeOptions,
) -> super::Result<DecodeOptions> {
    let Some(shortlist) = options.shortlist.as_deref() else {
        return Ok(options);
    };
    if directory.config().is_language_model() {
        return Err("--shortlist: a language model has no source sentences".into());
    }
    let vocab_size = directory.config().tgt_vocab_size;
    if let Some(token) = shortlist
        .largest()
        .filter(|&token| token as usize >= vocab_size)
    {
        let path = directory.path().display();
        return Err(format!(
            "--shortlist: token {token} is outside the vocabulary of {path}, {vocab_size} tokens; it was made for another model"
        )
        .into());
    }
    let is_complete =
        shortlist.has_source_tokens() || !Tokenizers::of(directory.files())?.share_vocabulary();
    if is_complete {
        return Ok(options);
    }
    let shortlist = shortlist.clone().with_source_tokens();
    Ok(DecodeOptions {
        shortlist: Some(Arc::new(shortlist)),
        ..options
    })
}

/// A length penalty as `--length-penalty` reads it.
fn in_flag(penalty: &LengthPenalty) -> String {
    match *penalty {
        LengthPenalty::None => "0".to_owned(),
        LengthPenalty::AVERAGE => "average".to_owned(),
        LengthPenalty::Paper(alpha) => alpha.to_string(),
        LengthPenalty::Power(alpha) => format!("length^{alpha}"),
    }
}

/// The flags that select these options. Flags with default values are omitted, except those of the strategy.
pub fn flags_of(options: &DecodeOptions) -> Vec<String> {
    let mut flags = match &options.strategy {
        Strategy::Beam { size } => {
            vec![
                format!("--beam {size}"),
                format!("--length-penalty {}", in_flag(&options.length_penalty)),
                format!("--early-stopping {}", options.early_stopping),
            ]
        }
        Strategy::Sample(sampling) => vec![
            "--sample".to_owned(),
            format!("--temperature {}", sampling.temperature),
            format!("--top-k {}", sampling.top_k),
            format!("--top-p {}", sampling.top_p),
        ],
    };
    if let MaxLength::Tokens(most) = options.max_length {
        flags.push(format!("--max-length {most}"));
    }
    if options.min_length > 0 {
        flags.push(format!("--min-length {}", options.min_length));
    }
    if options.no_repeat_ngram > 0 {
        flags.push(format!("--no-repeat-ngram {}", options.no_repeat_ngram));
    }
    if options.repetition_penalty != 1.0 {
        flags.push(format!(
            "--repetition-penalty {}",
            options.repetition_penalty
        ));
    }
    if options.renormalize {
        flags.push("--renormalize true".to_owned());
    }
    flags
}

/// Checks options that limit each other; errors name the flags. The beam size may come from the model.
fn check_pairs_of_flags(options: &DecodeOptions, has_beam: bool) -> Result<(), String> {
    let n_best = options.n_best;
    match options.strategy {
        Strategy::Beam { size } if size > 0 && n_best > size => {
            return Err(match has_beam {
                true => format!("--n-best {n_best} is above --beam {size}"),
                false => {
                    format!("--n-best {n_best} is above the beam size {size}; add --beam {n_best}")
                }
            });
        }
        _ => {}
    }
    match options.max_length {
        MaxLength::Tokens(max_length) if options.min_length > max_length => Err(format!(
            "--min-length {} is above the maximum length of {max_length} tokens",
            options.min_length
        )),
        _ => Ok(()),
    }
}

fn length_penalty(text: &str) -> Result<LengthPenalty, String> {
    let number = |text: &str| {
        let number = text.parse::<f64>();
        number.map_err(|_| "must be a number, `average`, or `length^` and a number".to_owned())
    };
    match text.strip_prefix("length^") {
        Some(exponent) => number(exponent).map(LengthPenalty::Power),
        None if text == "average" => Ok(LengthPenalty::AVERAGE),
        None => number(text).map(LengthPenalty::Paper),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        decoding: Decoding,
    }

    fn over(of_model: &DecodeOptions, flags: &[&str]) -> Result<DecodeOptions, String> {
        let flags = Flags::parse_from([&["transformer"][..], flags].concat());
        flags.decoding.over(of_model.clone(), 1, 9)
    }

    /// Options as a pretrained model has them.
    fn of_model() -> DecodeOptions {
        DecodeOptions {
            length_penalty: LengthPenalty::AVERAGE,
            early_stopping: false,
            max_length: MaxLength::Tokens(99),
            banned_tokens: vec![7],
            forced_first: Some(5),
            forced_last: true,
            no_repeat_ngram: 3,
            renormalize: true,
            ..DecodeOptions::beam(6)
        }
    }

    #[test]
    fn a_flag_overrides_the_model_s_option_and_no_other() {
        for of_model in [of_model(), DecodeOptions::default()] {
            assert_eq!(over(&of_model, &[]), Ok(of_model.clone()));
            let expected = DecodeOptions {
                strategy: Strategy::Beam { size: 2 },
                early_stopping: true,
                ..of_model.clone()
            };
            let flags = ["--beam", "2", "--early-stopping", "true"];
            assert_eq!(over(&of_model, &flags), Ok(expected));
            let expected = DecodeOptions {
                length_penalty: LengthPenalty::Paper(0.5),
                no_repeat_ngram: 0,
                max_length: MaxLength::Tokens(7),
                min_length: 2,
                renormalize: !of_model.renormalize,
                ..of_model.clone()
            };
            let renormalize = (!of_model.renormalize).to_string();
            let flags = [
                &["--length-penalty", "0.5", "--no-repeat-ngram", "0"][..],
                &["--max-length", "7", "--min-length", "2"],
                &["--renormalize", &renormalize],
            ];
            assert_eq!(over(&of_model, &flags.concat()), Ok(expected));
        }
    }

    #[test]
    fn samples_are_drawn_where_a_flag_or_the_model_says_it() {
        let drawn = |temperature, top_k| {
            Strategy::Sample(Sampling {
                temperature,
                top_k,
                seed: 9,
                ..Sampling::default()
            })
        };
        let options = over(&of_model(), &["--sample", "--temperature", "0.5"]).unwrap();
        assert_eq!(options.strategy, drawn(0.5, 0));
        assert_eq!(options.length_penalty, LengthPenalty::None);
        let sampled = DecodeOptions {
            strategy: Strategy::Sample(Sampling {
                top_k: 50,
                ..Sampling::default()
            }),
            ..of_model()
        };
        assert_eq!(over(&sampled, &[]).unwrap().strategy, drawn(1.0, 50));
        assert_eq!(
            over(&sampled, &["--top-k", "7"]).unwrap().strategy,
            drawn(1.0, 7)
        );
        let options = over(&sampled, &["--beam", "3", "--length-penalty", "1"]).unwrap();
        assert_eq!(options.strategy, Strategy::Beam { size: 3 });
        for [flag, value] in [
            ["--length-penalty", "average"],
            ["--early-stopping", "false"],
            ["--coverage-penalty", "0.2"],
        ] {
            let error = over(&sampled, &[flag, value]).unwrap_err();
            let rule = "needs a search, but the model's file selects sampling; add --beam";
            assert_eq!(error, format!("{flag} {value}: {rule}"));
        }
    }

    #[test]
    fn a_length_penalty_is_the_paper_s_or_a_power_of_the_length() {
        for (text, expected) in [
            ("0.5", LengthPenalty::Paper(0.5)),
            ("average", LengthPenalty::Power(1.0)),
            ("length^2", LengthPenalty::Power(2.0)),
        ] {
            let options = over(&of_model(), &["--length-penalty", text]).unwrap();
            assert_eq!(options.length_penalty, expected);
        }
        for wrong in ["", "length^", "length", "mean"] {
            length_penalty(wrong).unwrap_err();
        }
    }

    #[test]
    fn the_flags_of_options_ask_for_them() {
        let beam = DecodeOptions {
            length_penalty: LengthPenalty::Power(0.8),
            early_stopping: false,
            max_length: MaxLength::Tokens(99),
            min_length: 2,
            no_repeat_ngram: 3,
            repetition_penalty: 1.5,
            renormalize: true,
            ..DecodeOptions::beam(6)
        };
        let sample = DecodeOptions::sample(Sampling {
            temperature: 0.5,
            top_k: 50,
            top_p: 0.9,
            seed: 9,
        });
        for options in [beam, sample] {
            let flags = flags_of(&options).join(" ");
            let flags: Vec<&str> = flags.split(' ').collect();
            assert_eq!(over(&DecodeOptions::default(), &flags), Ok(options));
        }
    }

    #[test]
    fn flags_that_contradict_the_model_s_options_are_named() {
        assert_eq!(
            over(&of_model(), &["--min-length", "100"]).unwrap_err(),
            "--min-length 100 is above the maximum length of 99 tokens"
        );
        assert_eq!(
            over(&of_model(), &["--top-k", "3"]).unwrap_err(),
            "--top-k 3: needs sampling; add --sample"
        );
        let flags = Flags::parse_from(["transformer"]);
        assert_eq!(
            flags.decoding.over(of_model(), 7, 0).unwrap_err(),
            "--n-best 7 is above the beam size 6; add --beam 7"
        );
    }
}
