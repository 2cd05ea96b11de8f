//! From files of text to a model that translates.

use std::fs;
use std::path::{Path, PathBuf};
use transformer_instances as _;

use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_core::formats::TOKENIZER_FILE;
use transformer_core::text::Tokenizer;
use transformer_core::{Tokenizers, TransformerConfig, Translator};
use transformer_train::data::{
    Corpus, CorpusFile, CorpusFiles, TRAINING_FILE, TokenizedPair, VALIDATION_FILE, read_sentences,
    train_bpe,
};
use transformer_train::objective::Objective;
use transformer_train::progress::ProgressDisplay;
use transformer_train::{Trainer, TrainingConfig};

const ENGLISH: &str = "the cat sat\nthe dog sat\nthe cat and the dog sat\na cat\na dog\n";
const FRENCH: &str = "le chat est assis\nle chien est assis\nle chat et le chien sont assis\n\
                      un chat\nun chien\n";

fn files(folder: &Path) -> [PathBuf; 2] {
    let [english, french] = ["text.en", "text.fr"].map(|name| folder.join(name));
    fs::write(&english, ENGLISH).unwrap();
    fs::write(&french, FRENCH).unwrap();
    [english, french]
}

#[test]
fn two_files_become_a_model_that_translates() {
    let folder = tempfile::tempdir().unwrap();
    let [english, french] = files(folder.path());
    let out = folder.path().join("model");
    let device = Default::default();

    let corpus = Corpus::from_parallel(english, french).unwrap();
    let (train, valid) = corpus.hold_out(1, 0).unwrap();
    fs::create_dir(&out).unwrap();
    train.write_tsv(out.join(TRAINING_FILE)).unwrap();
    valid.write_tsv(out.join(VALIDATION_FILE)).unwrap();
    let tokenizer = train_bpe(train.sentences(), 280).unwrap();
    let tokenizers = Tokenizers::shared(tokenizer.clone());
    let (train, valid) = (
        train.tokenize(&tokenizers, 128).unwrap(),
        valid.tokenize(&tokenizers, 128).unwrap(),
    );
    let config = TransformerConfig {
        d_model: 8,
        n_heads: 2,
        d_ff: 8,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..TransformerConfig::base(tokenizer.vocab_size())
    };
    let run = TrainingConfig {
        updates: 2,
        ..TrainingConfig::default()
    };
    let model = config.init::<Autodiff<NdArray>>(0, &device).unwrap();
    let trainer = |resume| {
        Trainer::new(model.clone(), run.clone())
            .display(ProgressDisplay::Silent)
            .directory(&out)
            .tokenizers(&tokenizers)
            .resume(resume)
    };
    // Those of a run that ended before its first checkpoint. They would be loaded first.
    let others = || train_bpe(["another text, another text"].into_iter(), 280).unwrap();
    Tokenizers::separate(others(), others()).save(&out).unwrap();
    trainer(false)
        .train(train.pairs.clone(), valid.pairs.clone())
        .unwrap();
    let found = Tokenizers::load(&out).unwrap();
    assert!(found.have_vocabularies_of(&tokenizers));

    let read = |name| Corpus::from_tsv(out.join(name)).unwrap().len();
    assert_eq!((read(TRAINING_FILE), read(VALIDATION_FILE)), (4, 1));
    let saved = Tokenizer::from_file(out.join(TOKENIZER_FILE)).unwrap();
    let sentence = "the cat and a dog";
    assert_eq!(
        saved.encode(sentence).unwrap(),
        tokenizer.encode(sentence).unwrap()
    );
    let translator = Translator::load(&out).unwrap();
    translator.translate(sentence).unwrap();

    // Resuming does not write the tokenizer again.
    let written = fs::read_to_string(out.join(TOKENIZER_FILE)).unwrap() + "\n";
    fs::write(out.join(TOKENIZER_FILE), &written).unwrap();
    let again = || trainer(true).train(train.pairs.clone(), valid.pairs.clone());
    again().unwrap();
    let left = fs::read_to_string(out.join(TOKENIZER_FILE)).unwrap();
    assert_eq!(left, written);

    // Nor does it go on beside another.
    let other = train_bpe(["another text, another text"].into_iter(), 280).unwrap();
    other.to_file(out.join(TOKENIZER_FILE)).unwrap();
    let error = again().unwrap_err().to_string();
    let expected = format!(
        "{}: the given tokenizers differ from the run's; load them from this directory",
        out.display()
    );
    assert_eq!(error, expected);
}

#[test]
fn a_model_is_not_trained_with_tokenizers_that_do_not_fit_it() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = train_bpe(ENGLISH.lines(), 280).unwrap();
    let entries = tokenizer.vocab_size();
    let tokenizers = Tokenizers::shared(tokenizer);
    let small = TransformerConfig {
        d_model: 8,
        n_heads: 2,
        d_ff: 8,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..TransformerConfig::base(entries)
    };
    let too_few = TransformerConfig {
        src_vocab_size: entries - 1,
        tgt_vocab_size: entries - 1,
        ..small.clone()
    };
    let other_eos = TransformerConfig { eos_id: 7, ..small };
    let vocabulary = format!(
        "tokenizer.json: {entries} tokens, but the model's vocabulary has {}",
        entries - 1
    );
    let eos = "tokenizer.json: `<eos>` is token 2, but the model's `eos_id` is 7";
    let device = Default::default();
    let pairs = || {
        vec![TokenizedPair {
            source: vec![8],
            target: vec![9],
        }]
    };
    for (config, expected) in [(&too_few, vocabulary.as_str()), (&other_eos, eos)] {
        let model = config.init::<Autodiff<NdArray>>(0, &device).unwrap();
        let out = folder.path().join("model");
        let error = Trainer::new(model, TrainingConfig::default())
            .display(ProgressDisplay::Silent)
            .directory(&out)
            .tokenizers(&tokenizers)
            .train(pairs(), pairs())
            .unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(!out.exists());
    }

    let small = TransformerConfig {
        d_model: 8,
        n_heads: 2,
        d_ff: 8,
        n_decoder_layers: 1,
        ..TransformerConfig::language_model(entries)
    };
    let too_few = TransformerConfig {
        src_vocab_size: entries - 1,
        tgt_vocab_size: entries - 1,
        ..small.clone()
    };
    let other_eos = TransformerConfig {
        eos_id: 7,
        ..small.clone()
    };
    for (config, expected) in [
        (&small, None),
        (&too_few, Some(vocabulary.as_str())),
        (&other_eos, Some(eos)),
    ] {
        let model = config.init_language_model::<NdArray>(0, &device).unwrap();
        let found = model.check_tokenizers(&tokenizers);
        assert_eq!(
            found.err().map(|error| error.to_string()).as_deref(),
            expected
        );
    }
}

#[test]
fn long_pairs_are_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let [english, french] = files(folder.path());
    let corpus = Corpus::from_parallel(english, french).unwrap();
    let tokenizers = Tokenizers::shared(train_bpe(corpus.sentences(), 280).unwrap());
    let all = corpus.tokenize(&tokenizers, usize::MAX).unwrap();
    assert_eq!((all.pairs.len(), all.left_out), (5, 0));
    assert_eq!(all.to_string(), "5 pairs");

    let length = |pair: &TokenizedPair| pair.source.len().max(pair.target.len());
    let mut lengths: Vec<_> = all.pairs.iter().map(length).collect();
    lengths.sort_unstable();
    let limit = lengths[2];
    let kept = corpus.tokenize(&tokenizers, limit).unwrap();
    let within: Vec<_> = all
        .pairs
        .iter()
        .filter(|pair| length(pair) <= limit)
        .cloned()
        .collect();
    assert!(kept.left_out > 0);
    assert_eq!(kept.left_out, 5 - within.len());
    assert_eq!(kept.pairs, within);
    let at_positions = kept.positions.iter().map(|&at| &all.pairs[at]);
    assert!(at_positions.eq(&kept.pairs));
    let expected = format!(
        "{} pairs, {} skipped (more than {limit} pieces)",
        within.len(),
        kept.left_out
    );
    assert_eq!(kept.to_string(), expected);
}

#[test]
fn several_files_are_one_corpus_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["b.tsv", "a.tsv"].map(|name| folder.path().join(name));
    for path in &paths {
        let name = path.file_stem().unwrap().to_str().unwrap();
        fs::write(path, format!("{name} 1\tx\n{name} 2\ty\n")).unwrap();
    }
    let read = |paths: [&Path; 2]| {
        let files = paths.map(CorpusFile::tsv).into_iter();
        let files = files.fold(CorpusFiles::new(), |files, file| files.with(file, 1.0));
        files.read()
    };
    let (corpus, _) = read([&paths[0], &paths[1]]).unwrap();
    let sources: Vec<_> = corpus.pairs().iter().map(|pair| &pair.source).collect();
    assert_eq!(sources, ["b 1", "b 2", "a 1", "a 2"]);
    let error = read([&paths[0], &folder.path().join("c.tsv")]).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("c.tsv"), "{error}");
}

#[test]
fn a_text_in_one_language_is_read_sentence_by_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    fs::write(&path, "\u{feff}One.\r\n\n  Two\tthree. \n").unwrap();
    assert_eq!(read_sentences(&path).unwrap(), ["One.", "Two three."]);
    fs::write(&path, b"One.\nca\xe9\n").unwrap();
    let error = read_sentences(&path).unwrap_err().to_string();
    assert!(
        error.contains("line 2") && error.contains("not UTF-8"),
        "{error}"
    );
}
