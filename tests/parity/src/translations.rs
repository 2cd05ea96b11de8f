//! A model directory of CTranslate2 or Marian, beside the results that its own library computes from it, in single
//! precision.
//!
//! `expected.json` has texts, the tokens of each, and its translations by greedy decoding and by a beam of four, the
//! first of which may have the log-probabilities of its tokens. CTranslate2 does not run the model on an empty text.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;
use serde::Deserialize;
use transformer_core::decoding::{
    LengthPenalty, MaxLength, NextToken, SourceTarget, Strategy, score,
};
use transformer_core::packed::PackedPrecision;
use transformer_core::{
    DecodeOptions, ModelDirectory, PackedModel, Request, Search, Tokenizers, Transformer,
};

use super::Result;
use super::compare::OUTPUT_BOUND;
use super::expected::{EXPECTED_FILE, Target, read_json, spells_special, translated};
use super::pretrained::{BATCH_TOKENS, BEAM, TIE, beginning, count};
use super::report::{Report, Row, difference};

/// The results of a directory.
#[derive(Deserialize)]
pub(super) struct Expected {
    sentences: Vec<Sentence>,
    max_decoding_length: usize,
}

#[derive(Deserialize)]
struct Sentence {
    text: String,
    source: Vec<String>,
    beam1: Translation,
    beam4: Translation,
}

#[derive(Deserialize)]
struct Translation {
    tokens: Vec<String>,
    /// The log-probability of each token and of the end, by `score_batch`.
    log_probs: Option<Vec<f64>>,
}

/// A text, by the ids of its tokens.
struct Case<'a> {
    text: &'a str,
    source: Vec<u32>,
    /// The token that ends a target.
    eos: u32,
    greedy: Target,
    beam: Target,
    /// Of the greedy translation.
    log_probs: Option<&'a [f64]>,
}

/// A directory, and results computed from it.
pub(super) struct OfTranslations {
    directory: PathBuf,
    /// Tokens that no translation has.
    banned_tokens: Vec<u32>,
    expected: Expected,
    /// Largest difference of two log-probabilities that are equal up to rounding.
    pub tie: f64,
}

impl OfTranslations {
    /// Reads the results expected of a directory.
    pub fn open(directory: &Path) -> Result<Self> {
        let mut expected: Expected = read_json(&directory.join(EXPECTED_FILE))?;
        expected
            .sentences
            .retain(|sentence| !spells_special(&sentence.text) && !sentence.text.is_empty());
        let options = ModelDirectory::open(directory)?.options()?;
        Ok(Self {
            directory: directory.to_owned(),
            banned_tokens: options.unwrap_or_default().banned_tokens,
            expected,
            tie: TIE,
        })
    }

    /// Measures how far tokens, scores and translations are from those expected.
    pub fn compare<B: Backend>(&self, device: &B::Device) -> Result<Report> {
        let model = Transformer::<B>::load(&self.directory, device)?;
        let tokenizers = Tokenizers::load(&self.directory)?;
        let cases = self.cases(&tokenizers, model.config().eos_id)?;
        let mut notes = Vec::new();
        let mut rows = vec![
            self.tokens(&tokenizers, &model, &cases)?,
            self.greedy("greedy", &model, &cases, &mut notes)?,
        ];
        rows.extend(log_probs(&model, &cases)?);
        {
            let packed = PackedModel::load(&self.directory, PackedPrecision::F32)?;
            rows.push(self.greedy("greedy, packed", &packed, &cases, &mut notes)?);
        }
        rows.push(self.beam(&model, &cases, &mut notes)?);
        Ok(Report {
            title: self.directory.display().to_string(),
            rows,
            notes,
        })
    }

    /// The sentences, by ids.
    fn cases(&self, tokenizers: &Tokenizers, eos: u32) -> Result<Vec<Case<'_>>> {
        let ids = |tokenizer: &transformer_core::text::Tokenizer| -> HashMap<String, u32> {
            let ids = 0..tokenizer.vocab_size() as u32;
            ids.map(|id| (tokenizer.name(id), id)).collect()
        };
        let [of_source, of_target] = [ids(tokenizers.source()), ids(tokenizers.target())];
        let known = |ids: &HashMap<String, u32>, names: &[String]| -> Result<Vec<u32>> {
            let unknown = ids.get("<unk>");
            let id = |name: &String| {
                let id = ids.get(name).or(unknown).copied();
                id.ok_or_else(|| format!("no token {name:?}").into())
            };
            names.iter().map(id).collect()
        };
        let target = |translation: &Translation| -> Result<Target> {
            Ok(Target {
                tokens: known(&of_target, &translation.tokens)?,
                finished: translation.tokens.len() < self.expected.max_decoding_length,
            })
        };
        let case = |sentence: &'_ Sentence| -> Result<_> {
            Ok((
                known(&of_source, &sentence.source)?,
                target(&sentence.beam1)?,
                target(&sentence.beam4)?,
            ))
        };
        let sentences = self.expected.sentences.iter();
        sentences
            .map(|sentence| {
                let (source, greedy, beam) = case(sentence)?;
                Ok(Case {
                    text: &sentence.text,
                    source,
                    eos,
                    greedy,
                    beam,
                    log_probs: sentence.beam1.log_probs.as_deref(),
                })
            })
            .collect()
    }

    /// The number of texts with other tokens than expected. Without a tokenizer, texts are their tokens.
    fn tokens<B: Backend>(
        &self,
        tokenizers: &Tokenizers,
        model: &Transformer<B>,
        cases: &[Case<'_>],
    ) -> Result<Row> {
        let special_tokens = model.config().special_tokens();
        let mut wrong = 0;
        for (sentence, case) in self.expected.sentences.iter().zip(cases) {
            let ids = match tokenizers.source().model_type() {
                "WordLevel" => {
                    let words = sentence.source.iter().map(String::as_str);
                    let words: Vec<&str> = words.filter(|&word| word != "</s>").collect();
                    tokenizers.encode_source(&words.join(" "))?
                }
                _ => tokenizers.encode_source(&sentence.text)?,
            };
            wrong += usize::from(special_tokens.end_source(&ids) != case.source);
        }
        Ok(count("token ids", wrong, cases.len()))
    }

    /// The number of texts that a model decodes greedily to other tokens, and not because of a tie.
    fn greedy(
        &self,
        quantity: &str,
        model: &impl NextToken,
        cases: &[Case<'_>],
        notes: &mut Vec<String>,
    ) -> Result<Row> {
        let options = DecodeOptions {
            strategy: Strategy::Beam { size: 1 },
            length_penalty: LengthPenalty::None,
            ..self.options()
        };
        let mut wrong = 0;
        for (case, ours) in cases.iter().zip(found(model, cases, options)?) {
            let expected = &case.greedy;
            if ours.tokens == expected.tokens {
                continue;
            }
            let [ours, theirs] = [mean(model, case, &ours)?, mean(model, case, expected)?];
            let text = beginning(case.text);
            notes.push(format!(
                "{quantity}: {text}: ours {ours:.5}, expected {theirs:.5}"
            ));
            wrong += usize::from((ours - theirs).abs() > self.tie);
        }
        Ok(count(quantity, wrong, cases.len()))
    }

    /// The number of translations by the beam that are not the expected ones, and not as good.
    fn beam<B: Backend>(
        &self,
        model: &Transformer<B>,
        cases: &[Case<'_>],
        notes: &mut Vec<String>,
    ) -> Result<Row> {
        let options = DecodeOptions {
            strategy: Strategy::Beam { size: BEAM },
            length_penalty: LengthPenalty::AVERAGE,
            ..self.options()
        };
        let (mut same, mut as_good) = (0, 0);
        for (case, ours) in cases.iter().zip(found(model, cases, options)?) {
            let expected = &case.beam;
            if ours.tokens == expected.tokens {
                same += 1;
                continue;
            }
            let [ours, theirs] = [mean(model, case, &ours)?, mean(model, case, expected)?];
            as_good += usize::from(ours >= theirs - self.tie);
            let text = beginning(case.text);
            notes.push(format!(
                "beam 4: {text}: ours {ours:.5}, expected {theirs:.5}"
            ));
        }
        let worse = cases.len() - same - as_good;
        let mut row = count("beam 4", worse, cases.len());
        row.note = format!("  {same} expected, {as_good} as good, {worse} others");
        Ok(row)
    }

    fn options(&self) -> DecodeOptions {
        DecodeOptions {
            max_length: MaxLength::Tokens(self.expected.max_decoding_length),
            banned_tokens: self.banned_tokens.clone(),
            ..DecodeOptions::default()
        }
    }
}

/// The largest difference of the log-probabilities of the expected translations, where they are known.
fn log_probs(model: &impl NextToken, cases: &[Case<'_>]) -> Result<Option<Row>> {
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for case in cases {
        if let Some(log_probs) = case.log_probs {
            let target = Target {
                finished: true,
                ..case.greedy.clone()
            };
            found.extend(self::scored(model, case, &target)?);
            expected.extend_from_slice(log_probs);
        }
    }
    let error = difference(found.into_iter(), expected.iter().copied());
    let row = || Row::new("log-probabilities", error, OUTPUT_BOUND);
    Ok((!expected.is_empty()).then(row))
}

/// The mean log-probability of a target's tokens.
fn mean(model: &impl NextToken, case: &Case<'_>, target: &Target) -> Result<f64> {
    let log_probs = scored(model, case, target)?;
    Ok(log_probs.iter().sum::<f64>() / log_probs.len().max(1) as f64)
}

/// The log-probability of each token of a target.
fn scored(model: &impl NextToken, case: &Case<'_>, target: &Target) -> Result<Vec<f64>> {
    let tokens = target.ended(case.eos);
    let pair = SourceTarget::exact(case.source.clone(), tokens);
    let scored = score(model, &[pair], BATCH_TOKENS)?;
    let log_probs = scored.into_iter().flat_map(|score| score.log_probs);
    Ok(log_probs.map(f64::from).collect())
}

/// The best target of each text.
fn found(
    model: &impl NextToken,
    cases: &[Case<'_>],
    options: DecodeOptions,
) -> Result<Vec<Target>> {
    let sources = cases.iter();
    let requests = sources.map(|case| Request::exact(case.source.clone()));
    let requests: Vec<Request> = requests.collect();
    let found = Search::new(model, options)?.run(&requests)?;
    found.into_iter().map(translated).collect()
}
