//! The pieces of a pair are drawn anew in each epoch, and depend on the seed, the epoch and the pair only.

mod support;

use transformer_train::data::{
    CacheOptions, Corpus, CorpusError, CorpusFile, CorpusFiles, ExampleSource, PairCache,
    TokenizedPair,
};

use support::{all, bpe, dropped, file, folder, lines, with_text, words};

#[test]
fn dropout_is_decided_by_seed_epoch_and_pair() {
    let folder = folder();
    let [one, again, other] = [1, 1, 2].map(|seed| dropped(&folder, 0.1, seed));
    let epochs = |cache: &PairCache| (0..6).map(|epoch| all(cache, epoch)).collect::<Vec<_>>();
    // In another order.
    let backwards: Vec<_> = (0..6).rev().map(|epoch| all(&again, epoch)).collect();
    assert!(backwards.into_iter().rev().eq(epochs(&one)));
    assert_ne!(epochs(&one), epochs(&other));
    assert_ne!(all(&one, 0), all(&one, 1));
    assert_ne!(one.checksum(), other.checksum());

    let none = dropped(&folder, 0.0, 1);
    let plain = Corpus::from_tsv(folder.path().join("sentences.tsv")).unwrap();
    let plain = plain.tokenize(&bpe(), 128).unwrap().pairs;
    assert_eq!(all(&none, 3), plain);
    // Batches are planned without dropout.
    assert_eq!(one.lengths(), plain.lengths());
}

#[test]
fn pieces_that_are_drawn_spell_the_sentence_and_are_not_too_many() {
    let folder = folder();
    let tokenizers = bpe();
    for dropout in [0.1, 0.5, 0.95] {
        let cache = dropped(&folder, dropout, 7);
        let plain = dropped(&folder, 0.0, 7);
        let planned = all(&plain, 0);
        let side = |pairs: &[TokenizedPair], len: fn(&TokenizedPair) -> usize| {
            pairs.iter().map(len).max().unwrap()
        };
        let source_len = |pair: &TokenizedPair| pair.source.len();
        let target_len = |pair: &TokenizedPair| pair.target.len();
        let (longest_source, longest_target) =
            (side(&planned, source_len), side(&planned, target_len));
        let mut split = 0;
        for epoch in 0..20 {
            for (index, drawn) in all(&cache, epoch).into_iter().enumerate() {
                let text = cache.text(index).unwrap();
                assert_eq!(
                    tokenizers.source().decode(&drawn.source).unwrap(),
                    text.source
                );
                assert_eq!(
                    tokenizers.target().decode(&drawn.target).unwrap(),
                    text.target
                );
                let [source, target] = [planned[index].source.len(), planned[index].target.len()];
                assert!(drawn.source.len() <= (source + source.div_ceil(2)).min(longest_source));
                assert!(drawn.target.len() <= (target + target.div_ceil(2)).min(longest_target));
                split += usize::from(drawn != planned[index]);
            }
        }
        assert!(split > 0 || dropout > 0.9, "{dropout}");
    }
}

#[test]
fn dropout_needs_the_text_and_the_tokenizers_of_the_cache() {
    let folder = folder();
    let corpus = file(&folder, "corpus.tsv", lines(3));
    let files = CorpusFiles::new().with(CorpusFile::tsv(corpus), 1.0);
    let tokenizers = words(&folder);
    let cache = |options| {
        let path = folder.path().join("pairs.cache");
        PairCache::build(path, &files, &tokenizers, &options).unwrap()
    };
    let without_text = cache(CacheOptions::default());
    let error = without_text.with_dropout(&tokenizers, 0.1, 0).unwrap_err();
    assert!(matches!(error, CorpusError::NoText { .. }));
    let message = error.to_string();
    assert!(
        message.contains("pairs.cache: the cache contains no text"),
        "{message}"
    );

    let error = cache(with_text()).with_dropout(&bpe(), 0.1, 0).unwrap_err();
    assert!(matches!(error, CorpusError::OtherTokenizers { .. }));
    let error = cache(with_text()).with_dropout(&tokenizers, 1.0, 0);
    let error = error.unwrap_err();
    assert_eq!(error.to_string(), "`dropout` is 1; it must be in [0, 1)");
    let error = cache(with_text()).with_dropout(&tokenizers, 0.1, 0);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("BPE"), "{error}");
}
