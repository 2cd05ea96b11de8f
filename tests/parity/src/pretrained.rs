//! A model directory of Hugging Face's, beside the results that Hugging Face and CTranslate2 compute from it.
//!
//! | file | has |
//! |---|---|
//! | `expected.json` | texts, the tokens of each, and its translations by greedy decoding and by a beam of four |
//! | `io.safetensors` | `input_ids`, `attention_mask`, `decoder_input_ids` and `logits` of one batch |
//!
//! Greedy decoding, by the model and by a packed one, and the beam have the options of the directory, but a length
//! penalty of 1, and the first token and the length that `expected.json` names. Where two tokens are equally likely up
//! to rounding, greedy decoding may choose either.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use tempfile::TempDir;
use transformer_core::PackedModel;
use transformer_core::decoding::{
    LengthPenalty, MaxLength, NextToken, SourceTarget, Strategy, padded, score,
};
use transformer_core::formats::{CONFIG_FILE, CTRANSLATE2_FILE, GENERATION_FILE, WEIGHTS_FILE};
use transformer_core::packed::PackedPrecision;
use transformer_core::{
    DecodeOptions, Request, Search, Tokenizers, Transformer, TransformerConfig,
};

use super::compare::OUTPUT_BOUND;
use super::expected::{Expected, Sentence, Target, Vocabulary, translated};
use super::io::Io;
use super::language_model::OfLanguageModel;
use super::report::{Difference, Report, Row, TF32_ERROR, difference};
use super::translations::OfTranslations;
use super::{IO_FILE, Result};

/// Largest difference of the log-probabilities of two tokens that are equally likely up to rounding, of two logits that
/// are each off by their bound: either token may be the next one. As much may lie between the mean log-probabilities of
/// two translations that are equally good.
pub(super) const TIE: f64 = 2.0 * OUTPUT_BOUND;
/// Hypotheses of the beam.
pub(super) const BEAM: usize = 4;
/// Share of the sentences whose translations may be other ones than CTranslate2's.
const OTHER_THAN_CTRANSLATE2: f64 = 0.01;
/// Tokens that are scored side by side.
pub(super) const BATCH_TOKENS: usize = 2048;
/// PyTorch's file of weights.
const PYTORCH_FILE: &str = "pytorch_model.bin";
/// Most characters of a sentence in a note.
const MOST_SHOWN: usize = 40;

/// A model directory, and results computed from it by other systems.
pub struct Pretrained(Kind);

enum Kind {
    HuggingFace(OfHuggingFace),
    Translations(OfTranslations),
    LanguageModel(OfLanguageModel),
}

impl Pretrained {
    /// Reads the results expected of a directory.
    ///
    /// # Errors
    /// When `expected.json` or `io.safetensors` cannot be read.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        let directory = directory.as_ref();
        let has = |name| directory.join(name).exists();
        Ok(Self(if !has(CONFIG_FILE) || has(CTRANSLATE2_FILE) {
            Kind::Translations(OfTranslations::open(directory)?)
        } else if TransformerConfig::load_language_model(directory).is_ok() {
            Kind::LanguageModel(OfLanguageModel::open(directory)?)
        } else {
            Kind::HuggingFace(OfHuggingFace::open(directory)?)
        }))
    }

    /// Sets a text that comes before each of the texts of a Hugging Face directory, as T5's names of tasks do.
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        if let Kind::HuggingFace(own) = &mut self.0 {
            own.expected.prefix = prefix.to_owned();
        }
        self
    }

    /// For a backend that multiplies in TF32, as [`Report::in_tf32`]: tokens and translations are equally likely, if their
    /// log-probabilities differ by no more than these errors.
    pub fn in_tf32(mut self) -> Self {
        let tie = match &mut self.0 {
            Kind::HuggingFace(own) => &mut own.tie,
            Kind::Translations(own) => &mut own.tie,
            Kind::LanguageModel(own) => &mut own.tie,
        };
        *tie = TIE * TF32_ERROR;
        self
    }

    /// Measures how far tokens, logits or scores, and translations are from those expected.
    ///
    /// # Errors
    /// When the model or its tokenizers cannot be read, or the expected results do not fit them.
    pub fn compare<B: Backend>(&self, device: &B::Device) -> Result<Report> {
        match &self.0 {
            Kind::HuggingFace(own) => own.compare::<B>(device),
            Kind::Translations(own) => own.compare::<B>(device),
            Kind::LanguageModel(own) => own.compare::<B>(device),
        }
    }
}

/// A directory of Hugging Face's, and results computed from it.
struct OfHuggingFace {
    directory: PathBuf,
    expected: Expected,
    io: Io,
    /// Largest difference of two log-probabilities that are equal up to rounding.
    tie: f64,
}

impl OfHuggingFace {
    fn open(directory: &Path) -> Result<Self> {
        let directory = directory.to_owned();
        let expected = Expected::read(&directory)?;
        let path = directory.join(IO_FILE);
        let io = Io::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self {
            directory,
            expected,
            io,
            tie: TIE,
        })
    }

    /// Measures how far tokens, logits and translations are from those expected.
    fn compare<B: Backend>(&self, device: &B::Device) -> Result<Report> {
        let model = Transformer::<B>::load(&self.directory, device)?;
        let tokenizers = Tokenizers::load(&self.directory)?;
        let mut rows = vec![self.tokens(&tokenizers, model.config())?];
        rows.extend(self.texts(&tokenizers, model.config())?);
        rows.push(self.logits("logits", &model)?);
        if let Some(other) = self.with_pytorch_weights()? {
            let model = Transformer::<B>::load(other.path(), device)?;
            rows.push(self.logits("logits, .bin", &model)?);
        }
        let decoding = Decoding::new(self, &model)?;
        let mut notes = Vec::new();
        rows.push(decoding.greedy("greedy", &model, &mut notes)?);
        {
            let packed = PackedModel::new(model.clone(), PackedPrecision::F32);
            rows.push(decoding.greedy("greedy, packed", &packed, &mut notes)?);
        }
        rows.push(decoding.beam(&mut notes)?);
        rows.extend(decoding.beside_ctranslate2(&mut notes)?);
        Ok(Report {
            title: self.directory.display().to_string(),
            rows,
            notes,
        })
    }

    /// The number of texts with other tokens than expected.
    fn tokens(&self, tokenizers: &Tokenizers, config: &TransformerConfig) -> Result<Row> {
        let mut wrong = 0;
        let mut compared = 0;
        for sentence in self.expected.texts() {
            let ids =
                tokenizers.encode_source(&format!("{}{}", self.expected.prefix, sentence.text));
            let ids = ids.map_err(|error| self.expected.named(error))?;
            let ids = config.special_tokens().end_source(&ids);
            wrong += usize::from(ids != sentence.ids);
            compared += 1;
        }
        let mut row = count("token ids", wrong, compared);
        match self.expected.sentences.len() - compared {
            0 => {}
            spelled => row.note += &format!("; {spelled} with special tokens left out"),
        }
        Ok(row)
    }

    /// The number of translations whose tokens have another text than expected, where texts are.
    fn texts(&self, tokenizers: &Tokenizers, config: &TransformerConfig) -> Result<Option<Row>> {
        let (mut wrong, mut compared) = (0, 0);
        for sentence in &self.expected.sentences {
            for expected in [&sentence.beam1, &sentence.beam4] {
                if let Some(text) = &expected.text {
                    let target = self.expected.target(expected, config)?;
                    wrong += usize::from(tokenizers.target().decode(&target.tokens)? != *text);
                    compared += 1;
                }
            }
        }
        Ok((compared > 0).then(|| count("texts", wrong, compared)))
    }

    /// The largest difference of the logits after real target tokens.
    fn logits<B: Backend>(&self, quantity: &str, model: &Transformer<B>) -> Result<Row> {
        self.logits_row(quantity, model)
            .map_err(|error| format!("{}: {error}", self.directory.join(IO_FILE).display()).into())
    }

    fn logits_row<B: Backend>(&self, quantity: &str, model: &Transformer<B>) -> Result<Row> {
        let config = model.config();
        let load = |name: &str, vocab_size: usize| -> Result<Vec<Vec<u32>>> {
            let rows = self.io.tokens(name, vocab_size)?;
            match config.max_len() {
                Some(max_len) if rows[0].len() > max_len => {
                    Err(format!("`{name}` is longer than the {max_len} positions").into())
                }
                _ => Ok(rows),
            }
        };
        let pad = config.pad_id;
        let src = load("input_ids", config.src_vocab_size)?;
        let tgt = load("decoder_input_ids", config.tgt_vocab_size)?;
        let is_read: Vec<Vec<u32>> = load("attention_mask", 2)?;
        let is_no_padding: Vec<Vec<u32>> = src
            .iter()
            .map(|row| row.iter().map(|&token| u32::from(token != pad)).collect())
            .collect();
        if is_read != is_no_padding {
            return Err("`attention_mask` is not 0 for padding and 1 for everything else".into());
        }
        let (logits, shape) = self.io.of_rank::<3>("logits", DType::F32)?;
        let [len, vocab_size] = [tgt[0].len(), config.tgt_vocab_size];
        if shape != [src.len(), len, vocab_size] || src.len() != tgt.len() {
            return Err("`input_ids`, `decoder_input_ids` and `logits` do not fit".into());
        }
        let device = model.device();
        let found = model.forward(padded(&src, pad, &device), padded(&tgt, pad, &device));
        let found: Vec<f64> = found.into_data().iter().collect();
        let expected: Vec<f64> = logits.iter().collect();
        let real = |logits: &[f64]| -> Vec<f64> {
            let rows = logits.chunks(vocab_size).zip(tgt.concat()).enumerate();
            // The first token of a target is real, whatever it is.
            let real = rows.filter(|(row, (_, token))| row % len == 0 || *token != pad);
            real.flat_map(|(_, (logits, _))| logits.to_vec()).collect()
        };
        let error = difference(real(&found).into_iter(), real(&expected).into_iter());
        Ok(Row::new(quantity, error, OUTPUT_BOUND))
    }

    /// A directory of the same model with PyTorch's file of weights only, if there are others beside it, which are
    /// read first.
    fn with_pytorch_weights(&self) -> Result<Option<TempDir>> {
        let has = |name: &str| self.directory.join(name).exists();
        if !has(PYTORCH_FILE) || !(has(WEIGHTS_FILE) || has("model.safetensors.index.json")) {
            return Ok(None);
        }
        let copy = tempfile::tempdir()?;
        for name in [CONFIG_FILE, GENERATION_FILE, PYTORCH_FILE] {
            let path = self.directory.join(name);
            if path.exists() {
                fs::copy(&path, copy.path().join(name))
                    .map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        Ok(Some(copy))
    }
}

/// The sentences, decoded by a model.
struct Decoding<'a, B: Backend> {
    model: &'a Transformer<B>,
    expected: &'a Expected,
    options: DecodeOptions,
    tie: f64,
}

/// A sentence that is not translated as by another system.
struct Unlike<'a> {
    sentence: &'a Sentence,
    ours: Target,
    hugging_face: Target,
    ctranslate2: Option<Target>,
}

impl<'a, B: Backend> Decoding<'a, B> {
    fn new(pretrained: &'a OfHuggingFace, model: &'a Transformer<B>) -> Result<Self> {
        let expected = &pretrained.expected;
        let options = DecodeOptions::of_directory(&pretrained.directory)?.unwrap_or_default();
        Ok(Self {
            model,
            expected,
            options: DecodeOptions {
                n_best: 1,
                max_length: MaxLength::Tokens(expected.limit),
                forced_first: expected.forced_first.or(options.forced_first),
                ..options
            },
            tie: pretrained.tie,
        })
    }

    /// The number of texts that a model decodes greedily to other tokens than Hugging Face's, and not because of a tie.
    fn greedy(
        &self,
        quantity: &str,
        model: &impl NextToken,
        notes: &mut Vec<String>,
    ) -> Result<Row> {
        let options = DecodeOptions {
            strategy: Strategy::Beam { size: 1 },
            length_penalty: LengthPenalty::None,
            ..self.options.clone()
        };
        let found = self.found(model, options)?;
        let (mut wrong, mut ties) = (0, 0);
        for (sentence, ours) in self.expected.texts().zip(&found) {
            let expected = self.expected.target(&sentence.beam1, self.model.config())?;
            if *ours == expected {
                continue;
            }
            let gap = self.gap(sentence, [ours, &expected])?;
            match gap.is_some_and(|(_, gap)| gap.abs() <= self.tie) {
                true => ties += 1,
                false => wrong += 1,
            }
            let shown = shown(sentence);
            notes.push(match gap {
                Some((at, gap)) => format!(
                    "{quantity}: {shown}: token {} is another one than Hugging Face's; log-probability {gap:+.1e}",
                    at + 1
                ),
                None => format!("{quantity}: {shown}: one of the two is cut"),
            });
        }
        let mut row = count(quantity, wrong, found.len());
        if ties > 0 {
            row.note = format!(
                "  {wrong} of {} differ, and {ties} after a tie",
                found.len()
            );
        }
        Ok(row)
    }

    /// Where two targets of a text differ first, and by how much our token's log-probability there is higher than the
    /// other's, by our model; `None` if no token differs. The rules of the options, such as a penalty of repetitions,
    /// are not regarded.
    fn gap(&self, sentence: &Sentence, targets: [&Target; 2]) -> Result<Option<(usize, f64)>> {
        let eos = self.model.config().eos_id;
        let [ours, other] = targets.map(|target| target.ended(eos));
        let Some(at) = ours.iter().zip(&other).position(|(a, b)| a != b) else {
            return Ok(None);
        };
        let [ours, other] = [ours, other].map(|target| self.log_probs(sentence, target));
        let gap = f64::from(ours?[at]) - f64::from(other?[at]);
        Ok(Some((at, gap)))
    }

    /// The number of translations by the beam, as Hugging Face's ends, that are neither Hugging Face's nor
    /// CTranslate2's, and not as good.
    fn beam(&self, notes: &mut Vec<String>) -> Result<Row> {
        let vocabulary = self.expected.vocabulary()?;
        let (mut as_hugging_face, mut as_ctranslate2, mut as_good) = (0, 0, 0);
        let found = self.by_beam(false)?;
        let count_of_all = found.len();
        for (sentence, ours) in self.expected.texts().zip(found) {
            let unlike = self.unlike(sentence, ours, &vocabulary)?;
            if unlike.ours == unlike.hugging_face {
                as_hugging_face += 1;
                continue;
            }
            let [ours, hugging_face, ctranslate2] = self.scores(&unlike)?;
            if Some(&unlike.ours) == unlike.ctranslate2.as_ref() {
                as_ctranslate2 += 1;
            } else if ours >= hugging_face - self.tie && ours >= ctranslate2 - self.tie {
                as_good += 1;
            }
            notes.push(unlike.note("beam 4", [ours, hugging_face, ctranslate2]));
        }
        let worse = count_of_all - as_hugging_face - as_ctranslate2 - as_good;
        let mut row = count("beam 4", worse, count_of_all);
        row.note = format!(
            "  {as_hugging_face} Hugging Face's, {as_ctranslate2} CTranslate2's, {as_good} as good, {worse} others"
        );
        Ok(row)
    }

    /// The number of translations by the beam, as CTranslate2's ends, that are not CTranslate2's, where these are
    /// known.
    fn beside_ctranslate2(&self, notes: &mut Vec<String>) -> Result<Option<Row>> {
        let mut texts = self.expected.texts();
        if !texts.any(|sentence| sentence.ct2.is_some()) {
            return Ok(None);
        }
        let vocabulary = self.expected.vocabulary()?;
        let (mut wrong, mut compared) = (0, 0);
        for (sentence, ours) in self.expected.texts().zip(self.by_beam(true)?) {
            let unlike = self.unlike(sentence, ours, &vocabulary)?;
            let Some(ctranslate2) = &unlike.ctranslate2 else {
                continue;
            };
            compared += 1;
            // It does not say whether a target ended or was cut.
            if ctranslate2.tokens != unlike.ours.tokens {
                wrong += 1;
                notes.push(unlike.note("as CTranslate2", self.scores(&unlike)?));
            }
        }
        let mut row = count("as CTranslate2", wrong, compared);
        row.bound = OTHER_THAN_CTRANSLATE2 * compared as f64;
        Ok(Some(row))
    }

    fn unlike(
        &self,
        sentence: &'a Sentence,
        ours: Target,
        vocabulary: &Vocabulary,
    ) -> Result<Unlike<'a>> {
        let hugging_face = self.expected.target(&sentence.beam4, self.model.config())?;
        let ctranslate2 = self.expected.of_ctranslate2(sentence, vocabulary)?;
        Ok(Unlike {
            sentence,
            ours,
            hugging_face,
            ctranslate2,
        })
    }

    fn by_beam(&self, early_stopping: bool) -> Result<Vec<Target>> {
        let options = DecodeOptions {
            strategy: Strategy::Beam { size: BEAM },
            length_penalty: LengthPenalty::AVERAGE,
            early_stopping,
            ..self.options.clone()
        };
        self.found(self.model, options)
    }

    /// The best target of each text.
    fn found(&self, model: &impl NextToken, options: DecodeOptions) -> Result<Vec<Target>> {
        let sources = self.expected.texts();
        let requests: Vec<Request> = sources
            .map(|sentence| Request::exact(sentence.ids.clone()))
            .collect();
        let found = Search::new(model, options)?.run(&requests);
        let found = found.map_err(|error| self.expected.named(error))?;
        found.into_iter().map(translated).collect()
    }

    /// The scores of our translation, Hugging Face's and CTranslate2's, by our probabilities: a length penalty of 1,
    /// and tokens that were forced count as certain. −∞ where there is no translation.
    fn scores(&self, unlike: &Unlike<'_>) -> Result<[f64; 3]> {
        let eos = self.model.config().eos_id;
        let targets = [
            Some(&unlike.ours),
            Some(&unlike.hugging_face),
            unlike.ctranslate2.as_ref(),
        ];
        let mut scores = [f64::NEG_INFINITY; 3];
        for (place, target) in scores.iter_mut().zip(targets) {
            let Some(target) = target else {
                continue;
            };
            let tokens = target.ended(eos);
            let log_probs = self.log_probs(unlike.sentence, tokens.clone())?;
            let counted = log_probs
                .into_iter()
                .enumerate()
                .filter(|&(position, _)| !self.is_forced(position, &tokens));
            let sum: f64 = counted.map(|(_, log_prob)| f64::from(log_prob)).sum();
            *place = sum / tokens.len().max(1) as f64;
        }
        Ok(scores)
    }

    /// The log-probability of each token of a target of a text.
    fn log_probs(&self, sentence: &Sentence, target: Vec<u32>) -> Result<Vec<f32>> {
        let pair = SourceTarget::exact(sentence.ids.clone(), target);
        let scored = score(self.model, &[pair], BATCH_TOKENS);
        let scored = scored.map_err(|error| self.expected.named(error))?;
        Ok(scored
            .into_iter()
            .flat_map(|score| score.log_probs)
            .collect())
    }

    /// Whether the options force the token at a position of a target.
    fn is_forced(&self, position: usize, target: &[u32]) -> bool {
        let is_first = position == 0 && self.options.forced_first == Some(target[position]);
        let is_last = position + 1 == self.expected.limit
            && self.options.forced_last
            && target[position] == self.model.config().eos_id;
        is_first || is_last
    }
}

impl Unlike<'_> {
    fn note(&self, quantity: &str, scores: [f64; 3]) -> String {
        let shown = shown(self.sentence);
        let [ours, hugging_face, ctranslate2] = scores;
        let of_ctranslate2 = match &self.ctranslate2 {
            Some(target) => format!(
                ", CTranslate2's {ctranslate2:.5} ({} tokens)",
                target.tokens.len()
            ),
            None => String::new(),
        };
        format!(
            "{quantity}: {shown}: ours {ours:.5} ({} tokens), Hugging Face's {hugging_face:.5} ({} tokens){of_ctranslate2}",
            self.ours.tokens.len(),
            self.hugging_face.tokens.len(),
        )
    }
}

/// The beginning of a text, for a note.
fn shown(sentence: &Sentence) -> String {
    beginning(&sentence.text)
}

/// The beginning of a text, quoted.
pub(super) fn beginning(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The row of a number that must be zero.
pub(super) fn count(quantity: &str, wrong: usize, all: usize) -> Row {
    let error = Difference {
        absolute: wrong as f64,
        largest: all as f64,
    };
    let mut row = Row::new(quantity, error, 0.5);
    row.note = match wrong {
        0 => format!("  all {all} are the same"),
        _ => format!("  {wrong} of {all} differ"),
    };
    row
}
