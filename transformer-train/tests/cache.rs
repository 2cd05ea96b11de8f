//! A cache holds the pairs of its files as they are in memory; it is made anew when it would hold others, and
//! refused when it is damaged.

mod support;

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;
use transformer_core::Tokenizers;
use transformer_core::text::Tokenizer;
use transformer_train::data::{
    CacheOptions, Corpus, CorpusError, CorpusFile, CorpusFiles, ExampleSource, Pair, PairCache,
    PairFilters, TokenizedPair,
};

use support::{all, bpe, file, folder, lines, with_text, words};

// The contents of a cache.

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn what_is_written_is_read(
        pairs in prop::collection::vec(("[a-zé ]{0,20}[a-z<>ñ]", "[the cats]{0,20}[日x]"), 1..40),
        weight in 0.5..3.0,
        keep_text: bool,
    ) {
        let folder = folder();
        let pair = |(source, target): (String, String)| Pair {
            source: source.trim().into(),
            target: target.trim().into(),
        };
        let corpus: Corpus = pairs.into_iter().map(pair).collect();
        let path = folder.path().join("corpus.tsv");
        corpus.write_tsv(&path).unwrap();
        let tokenizers = bpe();
        let expected = corpus.tokenize(&tokenizers, 128).unwrap().pairs;

        let files = CorpusFiles::new().with(CorpusFile::tsv(path), weight);
        let options = CacheOptions { keep_text, ..CacheOptions::default() };
        let path = folder.path().join("cache");
        let built = PairCache::build(&path, &files, &tokenizers, &options).unwrap();
        let opened = PairCache::open(&path).unwrap();
        let in_memory = files.tokenize(&tokenizers, &options.filters).unwrap();
        prop_assert_eq!(&in_memory.pairs, &expected);
        for cache in [built, opened] {
            prop_assert_eq!(&all(&cache, 0), &expected);
            prop_assert_eq!(cache.lengths(), expected.lengths());
            prop_assert_eq!(cache.weights(), vec![(0..expected.len(), weight)]);
            prop_assert_eq!(cache.checksum(), in_memory.checksum());
            prop_assert_eq!(cache.filtered(), &in_memory.filtered);
            for (index, pair) in corpus.pairs().iter().enumerate() {
                let found = cache.text(index).ok();
                prop_assert_eq!(found.as_ref(), keep_text.then_some(pair));
            }
        }
    }
}

/// They are read and tokenized in chunks of some thousands.
#[test]
fn many_pairs_keep_their_order() {
    let folder = folder();
    let path = file(&folder, "corpus.tsv", lines(9001));
    let tokenizers = words(&folder);
    let expected = Corpus::from_tsv(&path).unwrap();
    let expected = expected.tokenize(&tokenizers, 128).unwrap().pairs;
    let files = CorpusFiles::new().with(CorpusFile::tsv(path), 1.0);
    let options = CacheOptions::default();
    let cache = folder.path().join("cache");
    let cache = PairCache::build(cache, &files, &tokenizers, &options).unwrap();
    assert_eq!(all(&cache, 0), expected);
    assert_eq!(cache.checksum(), expected.checksum());
}

#[test]
fn filters_count_what_they_leave_out_by_the_first_reason() {
    let folder = folder();
    let first = "a\tb\n\
                 a\tb\n\
                 a b c d\tb c d e\n\
                 a b c d e\tb\n\
                 a b c\td\n\
                 a b\tc\n\
                 j\tb\n\
                 a\tb c d\n";
    // The second line is in the first file, too long, and a duplicate: that is found first.
    let second = "a\tc\n\
                  a b c d e\tb\n\
                  j\tc\n\
                  c\ta b c\n";
    let valid: Corpus = [Pair {
        source: "j".into(),
        target: "a".into(),
    }]
    .into_iter()
    .collect();
    let files = CorpusFiles::new()
        .with(CorpusFile::tsv(file(&folder, "1.tsv", first)), 1.0)
        .with(CorpusFile::tsv(file(&folder, "2.tsv", second)), 2.0)
        .without_sources_of(&valid);
    let tokenizers = words(&folder);
    let options = CacheOptions {
        filters: PairFilters {
            max_pieces: 4,
            max_ratio: Some(2.0),
            drop_duplicates: true,
        },
        keep_text: false,
    };
    let cache = folder.path().join("cache");
    let cache = PairCache::build(cache, &files, &tokenizers, &options).unwrap();
    let filtered = cache.filtered();
    assert_eq!((filtered.read, filtered.kept), (12, 4));
    assert_eq!((filtered.held_out, filtered.duplicates), (2, 2));
    assert_eq!((filtered.too_long, filtered.uneven), (1, 3));
    assert_eq!(filtered.to_string(), "4 of 12 pairs");
    assert_eq!(
        filtered.left_out(),
        [
            "2 pairs are skipped: their source sentence is held out",
            "2 pairs are skipped: equal to an earlier pair",
            "1 pair is skipped: more than 4 pieces on a side",
            "3 pairs are skipped: one side has more than 2 times the pieces of the other",
        ]
    );
    let pair = |source: &[u32], target: &[u32]| TokenizedPair {
        source: source.to_vec(),
        target: target.to_vec(),
    };
    let expected = [
        pair(&[4], &[5]),
        pair(&[4, 5, 6, 7], &[5, 6, 7, 8]),
        pair(&[4, 5], &[6]),
        pair(&[4], &[6]),
    ];
    assert_eq!(all(&cache, 0), expected);
    assert_eq!(cache.weights(), [(0..3, 1.0), (3..4, 2.0)]);
    let in_memory = files.tokenize(&tokenizers, &options.filters).unwrap();
    assert_eq!(
        (&in_memory.pairs[..], &in_memory.filtered),
        (&expected[..], filtered)
    );
    assert_eq!(in_memory.weights(), cache.weights());
}

/// With words that the tokenizer knows no token for.
#[test]
fn pairs_that_cannot_be_encoded_are_left_out_and_the_first_is_named() {
    let folder = folder();
    let json = r#"{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": {"a": 4, "b": 5}, "unk_token": "<unk>"}}"#;
    let tokenizers = Tokenizer::from_file(file(&folder, "tokenizer.json", json)).unwrap();
    let tokenizers = Tokenizers::shared(tokenizers);
    let text = "a\tb\n\nb\tc\nc\ta\nb\ta\n";
    let path = file(&folder, "corpus.tsv", text);
    let files = CorpusFiles::new().with(CorpusFile::tsv(&path), 1.0);
    let options = CacheOptions::default();
    let cache = folder.path().join("cache");
    PairCache::build(&cache, &files, &tokenizers, &options).unwrap();
    let cache = PairCache::open(cache).unwrap();
    let in_memory = files.tokenize(&tokenizers, &options.filters).unwrap();
    assert_eq!(cache.filtered(), &in_memory.filtered);
    assert_eq!(cache.filtered().to_string(), "2 of 4 pairs");
    let lines = cache.filtered().left_out();
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    let start = "2 pairs are skipped: the tokenizer cannot encode them; the first: ";
    let expected = format!("{start}{}: line 3: the target sentence: ", path.display());
    assert!(line.starts_with(&expected), "{line}");

    let (corpus, _) = files.read().unwrap();
    let tokenized = corpus.tokenize(&tokenizers, 128).unwrap();
    assert_eq!((tokenized.pairs.len(), tokenized.left_out), (2, 0));
    let positions: Vec<usize> = tokenized.failed.iter().map(|(at, _)| *at).collect();
    assert_eq!(
        (&tokenized.positions[..], &positions[..]),
        (&[0, 3][..], &[1, 2][..])
    );
    assert_eq!(
        tokenized.to_string(),
        "2 pairs, 2 skipped (cannot be encoded)"
    );
    assert_eq!(files.place_of(&corpus.pairs()[2]), Some((path, 4)));
}

#[test]
fn pairs_that_cannot_be_used_are_counted_beside_those_that_are_filtered() {
    let folder = folder();
    let text = "a\tb\na\t\na\tb\n\tc\nc\td\n";
    let files = CorpusFiles::new().with(CorpusFile::tsv(file(&folder, "corpus.tsv", text)), 1.0);
    let options = CacheOptions {
        filters: PairFilters {
            drop_duplicates: true,
            ..PairFilters::default()
        },
        ..CacheOptions::default()
    };
    let path = folder.path().join("cache");
    PairCache::build(&path, &files, &words(&folder), &options).unwrap();
    let cache = PairCache::open(path).unwrap();
    let filtered = cache.filtered();
    assert_eq!(filtered.to_string(), "2 of 5 pairs");
    assert_eq!(
        filtered.left_out(),
        [
            "2 pairs are skipped: a side is empty",
            "1 pair is skipped: equal to an earlier pair",
        ]
    );
}

#[test]
fn settings_out_of_range_are_named() {
    let folder = folder();
    let path = file(&folder, "corpus.tsv", "a\tb\n");
    let tokenizers = words(&folder);
    let refused = |weight, filters: PairFilters| {
        let files = CorpusFiles::new().with(CorpusFile::tsv(&path), weight);
        files
            .tokenize(&tokenizers, &filters)
            .unwrap_err()
            .to_string()
    };
    let base = PairFilters::default;
    assert_eq!(
        refused(-1.0, base()),
        "`weight` is -1; it must be positive and finite"
    );
    let filters = PairFilters {
        max_ratio: Some(0.5),
        ..base()
    };
    assert_eq!(
        refused(1.0, filters),
        "`max_ratio` is 0.5; it must be at least 1"
    );
    let filters = PairFilters {
        max_pieces: 0,
        ..base()
    };
    assert_eq!(
        refused(1.0, filters),
        "`max_pieces` is 0; it must be at least 1"
    );
}

// Files that are refused, and caches that are made anew.

/// A small cache, and its inputs.
fn small(folder: &TempDir, options: &CacheOptions) -> (PathBuf, CorpusFiles, Tokenizers) {
    let corpus = file(folder, "corpus.tsv", lines(3));
    let files = CorpusFiles::new().with(CorpusFile::tsv(corpus), 1.0);
    let tokenizers = words(folder);
    let path = folder.path().join("pairs.cache");
    PairCache::build(&path, &files, &tokenizers, options).unwrap();
    (path, files, tokenizers)
}

#[test]
fn damage_anywhere_is_an_error_that_names_the_file() {
    for options in [CacheOptions::default(), with_text()] {
        let folder = folder();
        let (path, ..) = small(&folder, &options);
        let whole = fs::read(&path).unwrap();
        let opened = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let error = PairCache::open(&path).unwrap_err();
            assert!(error.to_string().contains("pairs.cache: "), "{error}");
            error
        };
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            let error = opened(&bytes);
            match at {
                0..8 => assert!(matches!(error, CorpusError::NotACache { .. })),
                8..12 => assert!(matches!(error, CorpusError::CacheFormat { known: 1, .. })),
                _ => assert!(matches!(error, CorpusError::CacheDamaged { .. })),
            }
            opened(&whole[..at]);
        }
        opened(&[&whole[..], b"\0"].concat());
        let error = opened(b"a\tb\n").to_string();
        assert!(
            error.ends_with("pairs.cache: not a cache of pairs"),
            "{error}"
        );
        fs::write(&path, &whole).unwrap();
        assert_eq!(PairCache::open(&path).unwrap().len(), 3);
    }
}

#[test]
fn only_a_cache_is_replaced() {
    let folder = folder();
    let options = CacheOptions::default();
    let (path, files, tokenizers) = small(&folder, &options);
    let open = || PairCache::open_or_build(&path, &files, &tokenizers, &options);
    let mut bytes = fs::read(&path).unwrap();

    fs::write(&path, "my thesis").unwrap();
    assert!(matches!(open(), Err(CorpusError::NotACache { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "my thesis");

    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = open().unwrap_err().to_string();
    let expected = "; remove the file to rebuild it";
    assert!(error.ends_with(expected), "{error}");

    // Of a later version.
    bytes[8] = 2;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(open().unwrap().len(), 3);
    assert_eq!(PairCache::open(&path).unwrap().len(), 3);
}

#[test]
fn a_cache_that_cannot_be_made_leaves_nothing() {
    let folder = folder();
    let (path, _, tokenizers) = small(&folder, &CacheOptions::default());
    let before = fs::read(&path).unwrap();
    let cut = file(&folder, "cut.tsv", "a\tb\nc\n");
    let names = || {
        let entries = fs::read_dir(&folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let expected = names();
    let files = CorpusFiles::new().with(CorpusFile::tsv(cut), 1.0);
    let error = PairCache::build(&path, &files, &tokenizers, &CacheOptions::default());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("cut.tsv: line 2: no tab"), "{error}");
    assert_eq!(names(), expected);
    assert_eq!(fs::read(&path).unwrap(), before);

    #[cfg(unix)]
    {
        let files = CorpusFiles::new().with(CorpusFile::tsv("/dev/null"), 1.0);
        let error = PairCache::build(&path, &files, &tokenizers, &CacheOptions::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("/dev/null: not a regular file"), "{error}");
        assert_eq!(names(), expected);
    }

    let nowhere = folder.path().join("absent").join("pairs.cache");
    let files = CorpusFiles::new().with(CorpusFile::tsv(folder.path().join("corpus.tsv")), 1.0);
    let error = PairCache::build(nowhere, &files, &tokenizers, &CacheOptions::default());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("pairs.cache: cannot write"), "{error}");
}

/// A file that is written again has another inode number.
#[cfg(unix)]
#[test]
fn a_cache_is_made_anew_only_when_it_would_hold_other_pairs() {
    use std::os::unix::fs::MetadataExt;

    let folder = folder();
    let options = CacheOptions::default();
    let (path, files, tokenizers) = small(&folder, &options);
    let [corpus] = files.corpora() else {
        unreachable!("one corpus");
    };
    let corpus = corpus.0.clone();
    let made_anew = |files: &CorpusFiles, tokenizers: &Tokenizers, options: &CacheOptions| {
        let number = || fs::metadata(&path).unwrap().ino();
        let before = number();
        let cache = PairCache::open_or_build(&path, files, tokenizers, options).unwrap();
        assert_eq!(cache.weights()[0].1, files.corpora()[0].1);
        number() != before
    };
    assert!(!made_anew(&files, &tokenizers, &options));
    // The same text elsewhere, and other weights.
    let copy = file(&folder, "copy.tsv", lines(3));
    let heavy = CorpusFiles::new().with(CorpusFile::tsv(copy), 2.0);
    assert!(!made_anew(&heavy, &tokenizers, &options));
    // The tokenizer as it is saved and loaded again.
    tokenizers.save(&folder).unwrap();
    let loaded = Tokenizers::load(&folder).unwrap();
    assert!(!made_anew(&files, &loaded, &options));

    let no_ratio = CacheOptions {
        filters: PairFilters {
            max_ratio: Some(9.0),
            ..PairFilters::default()
        },
        ..options.clone()
    };
    let held_out: Corpus = [Pair {
        source: "nowhere".into(),
        target: "a".into(),
    }]
    .into_iter()
    .collect();
    let without = files.clone().without_sources_of(&held_out);
    let twice = files.clone().with(corpus.clone(), 1.0);
    let other = bpe();
    let separate = Tokenizers::separate(tokenizers.source().clone(), other.source().clone());
    let changes = [
        (&files, &tokenizers, &with_text()),
        (&files, &tokenizers, &no_ratio),
        (&without, &tokenizers, &options),
        (&twice, &tokenizers, &options),
        (&files, &other, &options),
        (&files, &separate, &options),
    ];
    for (files, tokenizers, options) in changes {
        assert!(made_anew(files, tokenizers, options));
        assert!(!made_anew(files, tokenizers, options));
    }
    let CorpusFile::Tsv(path) = &corpus else {
        unreachable!("a file of tabs");
    };
    // As many bytes as before.
    let text = lines(3).replacen('a', "b", 1);
    assert_ne!(text, lines(3));
    made_anew(&files, &tokenizers, &options);
    fs::write(path, text).unwrap();
    assert!(made_anew(&files, &tokenizers, &options));
}

/// A trained tokenizer that was saved and loaded is saved to the same file again.
#[test]
fn a_tokenizer_is_recognised_after_it_was_saved() {
    let folder = folder();
    let tokenizers = bpe();
    tokenizers.save(&folder).unwrap();
    let loaded = Tokenizers::load(&folder).unwrap();
    let json = |tokenizers: &Tokenizers| tokenizers.source().to_json().unwrap();
    assert_eq!(json(&loaded), json(&tokenizers));
}
