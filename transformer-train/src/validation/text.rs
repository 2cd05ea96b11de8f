//! Validation by decoding: scores translations of the model during training.

use burn::tensor::backend::Backend;
use transformer_core::decoding::NextToken;
use transformer_core::{DecodeOptions, Tokenizers, Translator};

use crate::data::Pair;
use crate::metrics::{MetricError, TextMetric};
use crate::validation::{
    HookError, Measurement, SampleOutput, ValidationContext, ValidationMetrics,
};

/// Translates the validation sources at each validation, and scores the translations: for
/// [`Trainer::validate_with`](crate::Trainer::validate_with), with any model that the search can decode.
///
/// By default, all pairs are translated by greedy decoding and scored with BLEU and chrF. The values equal those
/// of `transformer evaluate` for the same model, pairs and options.
///
/// ```no_run
/// use burn_autodiff::Autodiff;
/// use burn_ndarray::NdArray;
/// use transformer_core::{DecodeOptions, Tokenizers, TransformerConfig};
/// use transformer_train::metrics::TextMetric;
/// use transformer_train::{Trainer, TrainingConfig};
/// use transformer_train::data::{Corpus, train_bpe};
/// use transformer_train::validation::TextValidation;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (train, valid) = Corpus::from_tsv("pairs.tsv")?.hold_out(1000, 0)?;
/// let tokenizers = Tokenizers::shared(train_bpe(train.sentences(), 8000)?);
/// let config = TransformerConfig::base(tokenizers.source().vocab_size());
/// let model = config.init::<Autodiff<NdArray>>(0, &Default::default())?;
/// let decoding = TextValidation::new(valid.clone(), &tokenizers)
///     .metrics([TextMetric::Bleu, TextMetric::ExactMatch])
///     .options(DecodeOptions::beam(4))
///     .sentences(500)
///     .samples(3);
/// let trained = Trainer::new(model, TrainingConfig::default())
///     .validate_with(decoding)
///     .train(
///         train.tokenize(&tokenizers, 128)?.pairs,
///         valid.tokenize(&tokenizers, 128)?.pairs,
///     )?;
/// for validation in &trained.validations {
///     println!("{}: BLEU {}", validation.update, validation.numbers["BLEU"]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TextValidation {
    sources: Vec<String>,
    references: Vec<String>,
    tokenizers: Tokenizers,
    options: DecodeOptions,
    metrics: Vec<TextMetric>,
    samples: usize,
}

impl TextValidation {
    /// Greedy decoding of these pairs' sources, scored with BLEU and chrF.
    pub fn new(pairs: impl IntoIterator<Item = Pair>, tokenizers: &Tokenizers) -> Self {
        let pairs = pairs.into_iter().map(|pair| (pair.source, pair.target));
        let (sources, references) = pairs.unzip();
        Self {
            sources,
            references,
            tokenizers: tokenizers.clone(),
            options: DecodeOptions::greedy(),
            metrics: vec![TextMetric::Bleu, TextMetric::Chrf],
            samples: 0,
        }
    }

    /// Scores with these metrics, each under its [name](TextMetric::name).
    pub fn metrics(mut self, metrics: impl IntoIterator<Item = TextMetric>) -> Self {
        self.metrics = metrics.into_iter().collect();
        self
    }

    /// Decodes with these options.
    pub fn options(mut self, options: DecodeOptions) -> Self {
        self.options = options;
        self
    }

    /// Translates only the first `most` pairs.
    pub fn sentences(mut self, most: usize) -> Self {
        self.sources.truncate(most);
        self.references.truncate(most);
        self
    }

    /// Shows the translations of the first `count` pairs in the displays. Without metrics, no others are translated.
    pub fn samples(mut self, count: usize) -> Self {
        self.samples = count;
        self
    }
}

impl TextValidation {
    /// A translator that borrows the model.
    fn translator<'m, M: NextToken>(&self, model: &'m M) -> Result<Translator<&'m M>, HookError> {
        let translator = Translator::new(model, self.tokenizers.clone())?;
        Ok(translator.with_options(self.options.clone())?)
    }
}

impl<B: Backend, M: NextToken> ValidationMetrics<B, M> for TextValidation {
    fn names(&self) -> Vec<String> {
        let metrics = self.metrics.iter();
        metrics.map(|metric| metric.name().to_owned()).collect()
    }

    fn samples(&self) -> usize {
        self.samples.min(self.sources.len())
    }

    /// Fails if there is nothing to translate, an option is out of range, or a source is too long for the model or
    /// the options.
    fn check(&self, model: &M) -> Result<(), HookError> {
        if self.sources.is_empty() {
            return Err(MetricError::Empty.into());
        }
        Ok(self.translator(model)?.check(&self.sources, "")?)
    }

    fn measure(&mut self, at: ValidationContext<'_, M>) -> Result<Measurement, HookError> {
        let translated = match self.metrics.is_empty() {
            true => self.samples.min(self.sources.len()),
            false => self.sources.len(),
        };
        let sources = &self.sources[..translated];
        let hypotheses = self.translator(at.model)?.translate_batch(sources)?;
        let mut numbers = Vec::with_capacity(self.metrics.len());
        for metric in &self.metrics {
            numbers.push(metric.measure(&hypotheses, &self.references)?.value);
        }
        let mut measured = Measurement::new(numbers);
        let pairs = self.sources.iter().zip(&self.references);
        let samples = pairs.zip(hypotheses).take(self.samples);
        measured.samples = samples
            .map(|((source, reference), hypothesis)| SampleOutput {
                source: source.clone(),
                hypothesis,
                reference: reference.clone(),
            })
            .collect();
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use burn_ndarray::NdArray;
    use transformer_core::decoding::{Next, RequestProblem, SpecialTokens, Threads, Vocabulary};
    use transformer_core::nn::AttentionWeights;

    use super::*;
    use crate::data::train_bpe;
    use crate::metrics::{corpus_bleu, corpus_chrf};
    use crate::objective::statistics::Statistics;

    /// Translates every sentence into itself.
    struct Copier {
        vocab_size: usize,
        /// The number of sentences so far.
        translated: AtomicUsize,
    }

    /// The source of each row, and the index of the next token.
    struct Sources(Vec<Vec<u32>>, usize);

    impl NextToken for Copier {
        type State = Sources;

        fn vocabulary(&self) -> Vocabulary {
            Vocabulary {
                size: self.vocab_size,
                special_tokens: SpecialTokens::default(),
            }
        }

        fn check_source(&self, _source: &[u32]) -> Result<(), RequestProblem> {
            Ok(())
        }

        fn start(&self, sources: &[&[u32]], _: Threads) -> Sources {
            self.translated.fetch_add(sources.len(), Relaxed);
            Sources(sources.iter().map(|source| source.to_vec()).collect(), 0)
        }

        fn next(
            &self,
            last: &[u32],
            Sources(rows, position): &mut Sources,
            _attention: AttentionWeights,
        ) -> Next {
            assert_eq!(last.len(), rows.len());
            let mut log_probs = vec![-20.0_f32; rows.len() * self.vocab_size];
            for (row, source) in log_probs.chunks_mut(self.vocab_size).zip(rows) {
                // An unfinished hypothesis of a beam may be longer than the source.
                if let Some(&token) = source.get(*position) {
                    row[token as usize] = -0.001;
                }
            }
            *position += 1;
            Next::new(log_probs)
        }

        fn select(&self, Sources(all, _): &mut Sources, _sources: &[usize], rows: &[usize]) {
            *all = rows.iter().map(|&row| all[row].clone()).collect();
        }
    }

    const SOURCES: [&str; 4] = ["a b c", "a x b", "d e", "q r"];
    const REFERENCES: [&str; 4] = ["a b c", "a b", "d", "s t"];

    fn pairs() -> Vec<Pair> {
        let pairs = SOURCES.into_iter().zip(REFERENCES);
        pairs
            .map(|(source, target)| Pair {
                source: source.into(),
                target: target.into(),
            })
            .collect()
    }

    fn tokenizers() -> Tokenizers {
        train_bpe(SOURCES.into_iter(), 270).unwrap().into()
    }

    fn copier() -> Copier {
        let vocab_size = tokenizers().target().vocab_size();
        Copier {
            vocab_size,
            translated: AtomicUsize::new(0),
        }
    }

    fn measured(validation: TextValidation) -> Measurement {
        measured_by(&copier(), validation)
    }

    fn measured_by(model: &Copier, mut validation: TextValidation) -> Measurement {
        let context = ValidationContext {
            model,
            update: 1,
            statistics: &Statistics::default(),
            earlier: &[],
        };
        ValidationMetrics::<NdArray, _>::check(&validation, model).unwrap();
        ValidationMetrics::<NdArray, _>::measure(&mut validation, context).unwrap()
    }

    /// The model copies its sources, so that every score can be computed by hand or from them.
    #[test]
    fn numbers_are_those_of_the_translations() {
        let bleu = corpus_bleu(&SOURCES, &REFERENCES).unwrap().score;
        let chrf = corpus_chrf(&SOURCES, &REFERENCES).unwrap().score;
        // Token edits: 0 of 3, 1 of 2, 1 of 1, 2 of 2; one line of four is right.
        let expected = [bleu, chrf, 25.0, 75.0, 50.0];
        for options in [DecodeOptions::greedy(), DecodeOptions::beam(3)] {
            let validation = TextValidation::new(pairs(), &tokenizers())
                .metrics(TextMetric::ALL)
                .options(options);
            assert_eq!(measured(validation).numbers, expected);
        }
    }

    #[test]
    fn numbers_of_the_first_pairs_are_in_the_order_of_their_metrics() {
        let metrics = [TextMetric::TokenErrorRate, TextMetric::ExactMatch];
        let validation = TextValidation::new(pairs(), &tokenizers())
            .metrics(metrics)
            .sentences(2);
        let names = ValidationMetrics::<NdArray, Copier>::names(&validation);
        assert_eq!(names, ["Token error rate %", "Exact match %"]);
        // 1 edit of 5 tokens.
        assert_eq!(measured(validation).numbers, [20.0, 50.0]);
    }

    #[test]
    fn samples_are_the_first_pairs() {
        let validation = TextValidation::new(pairs(), &tokenizers())
            .metrics([])
            .samples(2);
        let model = copier();
        let samples = measured_by(&model, validation).samples;
        assert_eq!(samples.len(), 2);
        // No other pair is translated where nothing is measured.
        assert_eq!(model.translated.into_inner(), 2);
        let second = SampleOutput {
            source: "a x b".into(),
            hypothesis: "a x b".into(),
            reference: "a b".into(),
        };
        assert_eq!(samples[1], second);
        let all = TextValidation::new(pairs(), &tokenizers()).samples(9);
        assert_eq!(ValidationMetrics::<NdArray, Copier>::samples(&all), 4);
        assert_eq!(measured(all).samples.len(), 4);
    }

    #[test]
    fn a_validation_that_cannot_be_made_is_refused_before_training() {
        let problem = |validation: TextValidation| {
            let problem =
                ValidationMetrics::<NdArray, _>::check(&validation, &copier()).unwrap_err();
            problem.to_string()
        };
        let all = || TextValidation::new(pairs(), &tokenizers());
        assert_eq!(
            problem(all().sentences(0)),
            "a corpus metric needs at least one hypothesis and its reference"
        );
        assert_eq!(
            problem(all().options(DecodeOptions::beam(0))),
            "`beam` is 0; it must be at least 1"
        );
        let short = DecodeOptions {
            max_src_len: 1,
            ..DecodeOptions::greedy()
        };
        let found = problem(all().options(short));
        assert!(found.starts_with("source 0 has "), "{found}");
        assert!(
            found.ends_with("tokens, more than the limit of 1"),
            "{found}"
        );
    }
}
