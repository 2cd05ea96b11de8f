//! Validation by decoding: its numbers are those of `Translator` and of the metrics, its samples are shown.

mod support;

use std::ops::ControlFlow;
use transformer_instances as _;

use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_core::decoding::MaxLength;
use transformer_core::{DecodeOptions, Tokenizers, Transformer, TransformerConfig, Translator};
use transformer_train::data::{Corpus, Pair, TokenizedPair, train_bpe};
use transformer_train::metrics::{TextMetric, corpus_bleu, corpus_chrf, corpus_error_rates};
use transformer_train::progress::{PlainLines, ProgressDisplay};
use transformer_train::validation::TextValidation;
use transformer_train::{TrainError, Trainer, TrainingConfig};

use support::run::{Page, alone};

type B = Autodiff<NdArray>;

/// Words that are translated one by one.
fn corpus() -> Corpus {
    let numbers = ["one", "two", "three", "four"];
    let nombres = ["un", "deux", "trois", "quatre"];
    let all = (0..4).flat_map(|a| (0..4).map(move |b| (a, b)));
    let pairs = all.map(|(a, b)| Pair {
        source: format!("{} {}", numbers[a], numbers[b]),
        target: format!("{} {}", nombres[a], nombres[b]),
    });
    pairs.collect()
}

struct Parts {
    tokenizers: Tokenizers,
    model: Transformer<B>,
    pairs: Vec<TokenizedPair>,
}

fn parts() -> Parts {
    let tokenizers: Tokenizers = train_bpe(corpus().sentences(), 280).unwrap().into();
    let config = TransformerConfig {
        d_model: 16,
        n_heads: 2,
        d_ff: 32,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        dropout: 0.0,
        ..TransformerConfig::base(tokenizers.source().vocab_size())
    };
    Parts {
        model: config.init(3, &Default::default()).unwrap(),
        pairs: corpus().tokenize(&tokenizers, 128).unwrap().pairs,
        tokenizers,
    }
}

fn run(updates: usize) -> TrainingConfig {
    TrainingConfig {
        batch_tokens: 100,
        updates,
        warmup: 10,
        peak_rate: Some(0.01),
        validate_every: updates.div_ceil(2),
        ..TrainingConfig::default()
    }
}

fn options() -> DecodeOptions {
    DecodeOptions {
        max_length: MaxLength::Tokens(12),
        ..DecodeOptions::beam(2)
    }
}

#[test]
fn numbers_equal_those_of_a_translator_and_the_metrics() {
    let _alone = alone();
    let Parts {
        tokenizers,
        model,
        pairs,
    } = parts();
    let decoding = TextValidation::new(corpus(), &tokenizers)
        .metrics(TextMetric::ALL)
        .options(options())
        .sentences(8);
    let by_hand = ["1", "2", "3", "4", "5"];
    let trained = Trainer::new(model, run(60))
        .display(ProgressDisplay::Silent)
        .validate_with(decoding)
        .validate_with_fn(by_hand, move |at| {
            let translator = Translator::new(at.model.clone(), tokenizers.clone())?;
            let translator = translator.with_options(options())?;
            let pairs = corpus().into_iter().take(8);
            let (sources, expected): (Vec<_>, Vec<_>) =
                pairs.map(|pair| (pair.source, pair.target)).unzip();
            let found = translator.translate_batch(&sources)?;
            let rates = corpus_error_rates(&found, &expected)?;
            Ok(ControlFlow::Continue([
                corpus_bleu(&found, &expected)?.score,
                corpus_chrf(&found, &expected)?.score,
                rates.exact_match(),
                rates.sequence_error_rate(),
                rates.token_error_rate(),
            ]))
        })
        .train(pairs.clone(), pairs)
        .unwrap();
    assert_eq!(trained.validations.len(), 2);
    for validation in &trained.validations {
        for (metric, again) in TextMetric::ALL.into_iter().zip(by_hand) {
            let (found, expected) = (validation.numbers[metric.name()], validation.numbers[again]);
            assert_eq!(found, expected, "{metric:?}");
        }
        let wrong = validation.numbers["WER %"];
        assert_eq!(validation.numbers["Exact match %"] + wrong, 100.0);
    }
    // The model has learned something, so that the numbers compared are not trivial.
    let chrf = |index: usize| trained.validations[index].numbers["chrF"];
    assert!(chrf(1) > 0.0, "{} and {}", chrf(0), chrf(1));
}

#[test]
fn samples_follow_the_line_of_their_validation() {
    let _alone = alone();
    let Parts {
        tokenizers,
        model,
        pairs,
    } = parts();
    let page = Page::default();
    let decoding = TextValidation::new(corpus(), &tokenizers)
        .metrics([TextMetric::ExactMatch])
        .options(options())
        .samples(2);
    let trained = Trainer::new(model, run(4))
        .display(ProgressDisplay::Silent)
        .observer(PlainLines::new(page.clone()))
        .validate_with(decoding)
        .train(pairs.clone(), pairs)
        .unwrap();
    let translator = Translator::new(trained.model, tokenizers).unwrap();
    let translator = translator.with_options(options()).unwrap();
    let text = page.text();
    let lines: Vec<_> = text.lines().collect();
    let starts: Vec<_> = (0..lines.len())
        .filter(|&line| lines[line].starts_with("validation"))
        .collect();
    assert_eq!(starts.len(), 2, "{text}");
    let last = &lines[starts[1]..];
    assert!(last[0].contains("  Exact match % "), "{text}");
    let corpus = corpus();
    let sources: Vec<_> = corpus.pairs().iter().map(|pair| &pair.source).collect();
    let hypotheses = translator.translate_batch(&sources).unwrap();
    let pairs = corpus.pairs().iter().zip(&hypotheses).take(2);
    for ((pair, hypothesis), shown) in pairs.zip(last[1..].chunks(3)) {
        let hypothesis = hypothesis.replace('\t', " ");
        let expected = [
            format!("  source      {}", pair.source),
            format!("  hypothesis  {hypothesis}"),
            format!("  reference   {}", pair.target),
        ];
        assert_eq!(shown, expected, "{text}");
    }
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("  ")).count(),
        12
    );
}

#[test]
fn a_sentence_that_is_too_long_is_refused_before_the_first_update() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let Parts {
        tokenizers,
        model,
        pairs,
    } = parts();
    let limit = DecodeOptions {
        max_src_len: 1,
        ..options()
    };
    let error = Trainer::new(model, run(4))
        .display(ProgressDisplay::Silent)
        .directory(&out)
        .validate_with(TextValidation::new(corpus(), &tokenizers).options(limit))
        .train(pairs.clone(), pairs)
        .unwrap_err();
    assert!(matches!(error, TrainError::Metrics { .. }), "{error}");
    let error = error.to_string();
    assert!(error.starts_with("validation: source 0 has "), "{error}");
    assert!(!out.exists());
}
