//! A run with a cache is the run in memory, and is resumed as one.

mod support;

use std::path::Path;
use transformer_instances as _;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use tempfile::TempDir;
use transformer_core::nn::Positions;
use transformer_core::{Transformer, TransformerConfig};
use transformer_train::data::{
    CacheOptions, Corpus, CorpusFile, CorpusFiles, PairCache, PairFilters, TokenizedPair,
};
use transformer_train::progress::ProgressDisplay;
use transformer_train::{Trained, Trainer, TrainingConfig};

use support::{SENTENCES, bpe, dropped, file, folder, lines, words};

type B = Autodiff<NdArray>;

fn model_config(vocab_size: usize) -> TransformerConfig {
    TransformerConfig {
        d_model: 8,
        n_heads: 2,
        d_ff: 16,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        // Burn draws dropout from one generator per process.
        dropout: 0.0,
        ..TransformerConfig::base(vocab_size)
    }
}

fn run(updates: usize) -> TrainingConfig {
    TrainingConfig {
        seed: 5,
        batch_tokens: 40,
        batches_per_update: 2,
        warmup: 4,
        updates,
        validate_every: 4,
        ..TrainingConfig::default()
    }
}

/// A run in a directory continues the one that is there.
fn trainer_of(vocab_size: usize, updates: usize, out: Option<&Path>) -> Trainer<B, Transformer<B>> {
    let model = model_config(vocab_size).init(3, &Default::default());
    let trainer = Trainer::new(model.unwrap(), run(updates)).display(ProgressDisplay::Silent);
    match out {
        Some(out) => trainer.directory(out).resume(true),
        None => trainer,
    }
}

/// [`trainer_of`], for the vocabulary of [`words`].
fn trainer(updates: usize, out: Option<&Path>) -> Trainer<B, Transformer<B>> {
    trainer_of(14, updates, out)
}

/// Every weight of the model, and the losses of each validation.
fn result(trained: &Trained<Transformer<NdArray>>) -> (Vec<f32>, Vec<[f64; 2]>) {
    struct Values(Vec<f32>);
    impl<T: Backend> ModuleVisitor<T> for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<T, D>>) {
            self.0.extend(param.val().into_data().iter::<f32>());
        }
    }
    let mut values = Values(Vec::new());
    trained.model.visit(&mut values);
    let losses = trained.validations.iter();
    let losses = losses.map(|at| [at.train_loss, at.valid_loss]);
    (values.0, losses.collect())
}

/// Two corpora of these weights, and a cache of them.
fn corpora(
    folder: &TempDir,
    weights: [f64; 2],
    options: &CacheOptions,
) -> (CorpusFiles, PairCache) {
    let [first, second] = weights;
    let files = CorpusFiles::new()
        .with(CorpusFile::tsv(file(folder, "1.tsv", lines(21))), first)
        .with(CorpusFile::tsv(file(folder, "2.tsv", lines(10))), second);
    let path = folder.path().join("cache");
    let cache = PairCache::open_or_build(path, &files, &words(folder), options).unwrap();
    (files, cache)
}

fn valid(folder: &TempDir) -> Vec<TokenizedPair> {
    let path = file(folder, "valid.tsv", lines(8));
    let corpus = Corpus::from_tsv(path).unwrap();
    corpus.tokenize(&words(folder), 128).unwrap().pairs
}

#[test]
fn a_run_with_a_cache_is_the_run_in_memory() {
    let folder = folder();
    for weights in [[1.0, 1.0], [2.0, 1.0], [1.0, 2.5]] {
        let (files, cache) = corpora(&folder, weights, &CacheOptions::default());
        let in_memory = files
            .tokenize(&words(&folder), &PairFilters::default())
            .unwrap();
        let train = in_memory.pairs.clone();
        let in_memory = trainer(12, None).train(in_memory, valid(&folder)).unwrap();
        let cached = trainer(12, None).train(cache, valid(&folder)).unwrap();
        assert_eq!(cached.validations.len(), 3);
        assert!(result(&cached) == result(&in_memory));
        // Weights of one are no weights; others change the run.
        let list = trainer(12, None).train(train, valid(&folder)).unwrap();
        assert_eq!(result(&list) == result(&cached), weights == [1.0, 1.0]);
    }
}

#[test]
fn a_run_with_a_cache_is_resumed_to_the_run_that_was_not_stopped() {
    for weights in [[1.0, 2.0], [1.0, 2.5]] {
        let folder = folder();
        let cache = || corpora(&folder, weights, &CacheOptions::default()).1;
        let whole = trainer(14, None).train(cache(), valid(&folder)).unwrap();
        let out = folder.path().join("model");
        let out = Some(out.as_path());
        trainer(7, out).train(cache(), valid(&folder)).unwrap();
        let resumed = trainer(14, out).train(cache(), valid(&folder)).unwrap();
        assert_eq!(resumed.updates, 14);
        assert!(result(&resumed).0 == result(&whole).0);
    }
}

#[test]
fn a_run_in_memory_is_resumed_with_a_cache() {
    let folder = folder();
    let (files, cache) = corpora(&folder, [1.0, 1.0], &CacheOptions::default());
    let pairs = files
        .tokenize(&words(&folder), &PairFilters::default())
        .unwrap()
        .pairs;
    let whole = trainer(14, None)
        .train(pairs.clone(), valid(&folder))
        .unwrap();
    let out = folder.path().join("model");
    let out = Some(out.as_path());
    trainer(7, out).train(pairs, valid(&folder)).unwrap();
    let resumed = trainer(14, out).train(cache, valid(&folder)).unwrap();
    assert!(result(&resumed).0 == result(&whole).0);
}

#[test]
fn a_run_is_not_resumed_with_other_weights() {
    let folder = folder();
    let cache = |weights| corpora(&folder, weights, &CacheOptions::default()).1;
    let out = folder.path().join("model");
    let out = Some(out.as_path());
    trainer(4, out)
        .train(cache([1.0, 2.0]), valid(&folder))
        .unwrap();
    let other = trainer(8, out).train(cache([2.0, 1.0]), valid(&folder));
    let error = other.unwrap_err().to_string();
    assert!(error.contains("trained on 31 pairs"), "{error}");
}

#[test]
fn a_pair_that_is_too_long_is_refused_before_the_run() {
    let folder = folder();
    let learned = |max_len| TransformerConfig {
        positions: Positions::Learned { max_len },
        ..model_config(14)
    };
    let refused = |max_len, batch_tokens| {
        let (_, cache) = corpora(&folder, [1.0, 1.0], &CacheOptions::default());
        let model = learned(max_len).init::<B>(3, &Default::default()).unwrap();
        let run = TrainingConfig {
            batch_tokens,
            ..run(4)
        };
        let trainer = Trainer::new(model, run).display(ProgressDisplay::Silent);
        let error = trainer.train(cache, valid(&folder)).unwrap_err();
        error.to_string()
    };
    // Six words and the end.
    assert_eq!(
        refused(7, 6),
        "training pairs: pair 4 has 6 source and 7 target tokens, more than the batch limit of 6"
    );
    let too_long = refused(6, 40);
    let expected = "has 7 tokens, more than the model's 6 learned positions";
    assert!(too_long.ends_with(expected), "{too_long}");
}

#[test]
fn a_run_with_dropout_of_pieces_is_resumed_to_the_run_that_was_not_stopped() {
    let folder = folder();
    let tokenizers = bpe();
    let pairs = Corpus::from_tsv(file(&folder, "valid.tsv", SENTENCES)).unwrap();
    let valid = pairs.tokenize(&tokenizers, 128).unwrap().pairs;
    let train = |updates, dropout, out: Option<&Path>| {
        let trainer = trainer_of(tokenizers.source().vocab_size(), updates, out);
        trainer.train(dropped(&folder, dropout, 3), valid.clone())
    };
    let whole = train(8, 0.1, None).unwrap();
    let out = folder.path().join("model");
    let out = Some(out.as_path());
    train(5, 0.1, out).unwrap();
    let resumed = train(8, 0.1, out).unwrap();
    assert!(result(&resumed).0 == result(&whole).0);
    let plain = train(8, 0.0, None).unwrap();
    assert!(result(&plain).0 != result(&whole).0);
    let error = train(9, 0.2, out).unwrap_err().to_string();
    assert!(error.contains("trained on"), "{error}");
}
