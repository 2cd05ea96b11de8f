//! Source and target with a tokenizer each, of different kinds: letters to phones.

use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_core::decoding::SourceTarget;
use transformer_core::formats::{SOURCE_TOKENIZER_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE};
use transformer_core::models::WeightTying;
use transformer_core::{ModelDirectory, Tokenizers, Transformer, TransformerConfig, Translator};
use transformer_instances as _;
use transformer_train::data::{Corpus, Pair, TokenizerConfig, TokenizerKind, train_tokenizer};
use transformer_train::objective::{LossOptions, Objective};
use transformer_train::progress::ProgressDisplay;
use transformer_train::validation::evaluate;
use transformer_train::{Trainer, TrainingConfig};

const PAIRS: [(&str, &str); 4] = [
    ("chat", "ʃ a"),
    ("chien", "ʃ j ɛ̃"),
    ("hache", "a ʃ"),
    ("ta", "t a"),
];

fn corpus() -> Corpus {
    let pair = |(source, target): (&str, &str)| Pair {
        source: source.into(),
        target: target.into(),
    };
    PAIRS.map(pair).into_iter().collect()
}

/// Seven letters for the source, five phones for the target.
fn tokenizers() -> Tokenizers {
    let trained = |kind, side: fn((&'static str, &'static str)) -> &'static str| {
        let config = TokenizerConfig {
            kind,
            vocab_size: 100,
        };
        train_tokenizer(PAIRS.map(side).into_iter(), &config).unwrap()
    };
    let source = trained(TokenizerKind::Characters, |(source, _)| source);
    let target = trained(TokenizerKind::Words, |(_, target)| target);
    Tokenizers::separate(source, target)
}

fn config(tokenizers: &Tokenizers) -> TransformerConfig {
    TransformerConfig {
        src_vocab_size: tokenizers.source().vocab_size(),
        tgt_vocab_size: tokenizers.target().vocab_size(),
        tying: WeightTying::TargetGenerator,
        d_model: 8,
        n_heads: 2,
        d_ff: 8,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..TransformerConfig::base(1)
    }
}

#[test]
fn letters_and_phones_are_trained_saved_translated_scored_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let device = Default::default();
    let tokenizers = tokenizers();
    let sizes = [tokenizers.source(), tokenizers.target()].map(|side| side.vocab_size());
    assert_eq!(sizes, [4 + 7, 4 + 5]);
    let pairs = corpus().tokenize(&tokenizers, 128).unwrap().pairs;
    // A token for each letter, and one for each phone.
    assert_eq!((pairs[1].source.len(), pairs[1].target.len()), (5, 3));

    let config = config(&tokenizers);
    let model = config.init::<Autodiff<NdArray>>(0, &device).unwrap();
    let train = |resume, updates| {
        let run = TrainingConfig {
            updates,
            ..TrainingConfig::default()
        };
        Trainer::new(model.clone(), run)
            .display(ProgressDisplay::Silent)
            .directory(&out)
            .tokenizers(&tokenizers)
            .resume(resume)
            .train(pairs.clone(), pairs.clone())
    };
    train(false, 2).unwrap();
    for (name, is_there) in [
        (SOURCE_TOKENIZER_FILE, true),
        (TARGET_TOKENIZER_FILE, true),
        (TOKENIZER_FILE, false),
    ] {
        assert_eq!(out.join(name).exists(), is_there, "{name}");
    }
    assert!(
        Tokenizers::load(&out)
            .unwrap()
            .have_vocabularies_of(&tokenizers)
    );
    train(true, 3).unwrap();

    let directories = [ModelDirectory::open(&out).unwrap()];
    let translator = Translator::<Transformer<NdArray>>::of(&directories, &device).unwrap();
    let found = translator.translate_n_best(&["chat"], "ʃ j").unwrap();
    let best = &found[0][0];
    assert!(best.text.starts_with("ʃ j"), "{}", best.text);
    // Of the target's vocabulary, and separated by spaces.
    let phones: Vec<String> = best
        .hypothesis
        .tokens
        .iter()
        .filter(|&&token| token > 3)
        .map(|&token| tokenizers.target().token(token))
        .collect();
    assert_eq!(best.text, phones.join(" "));
    assert_eq!(
        translator.align("chat", best).unwrap().len(),
        best.hypothesis.tokens.len()
    );

    let scores = translator.score(&["chat", "ta"], &["ʃ a", "t a"]).unwrap();
    assert_eq!(scores.len(), 2);
    let source = tokenizers.source().encode("chat").unwrap();
    let target = tokenizers.target().encode("ʃ a").unwrap();
    let maps = translator
        .model()
        .attention_maps(&SourceTarget::new(source, target))
        .unwrap();
    // `<eos>` after the letters; `<bos>` before the phones.
    assert_eq!(maps.cross[0].dims(), [1, 2, 3, 5]);

    // The phones, and an `<eos>` for each word.
    let statistics = evaluate(translator.model(), pairs, 100, &LossOptions::smoothed(0.0)).unwrap();
    assert_eq!(statistics.tokens, 9.0 + 4.0);
}

#[test]
fn tokenizers_that_were_exchanged_do_not_fit() {
    let tokenizers = tokenizers();
    let model = config(&tokenizers)
        .init::<NdArray>(0, &Default::default())
        .unwrap();
    model.check_tokenizers(&tokenizers).unwrap();
    let exchanged = Tokenizers::separate(tokenizers.target().clone(), tokenizers.source().clone());
    assert_eq!(
        model.check_tokenizers(&exchanged).unwrap_err().to_string(),
        "target_tokenizer.json: 11 tokens, but the model's vocabulary has 9"
    );
}
