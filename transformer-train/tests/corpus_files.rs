//! Corpora that are read from their files pair by pair are the corpora that are read whole.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use transformer_train::data::{Corpus, CorpusError, CorpusFile, CorpusFiles, Pair, train_bpe};

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn file(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

/// Sources of 1, 2 or 3 targets each, in two files; the second begins again in the middle of the first.
fn files(folder: &TempDir) -> CorpusFiles {
    let lines = |sources: std::ops::Range<usize>| -> Vec<[String; 2]> {
        sources
            .flat_map(|s| {
                (0..=s % 3).map(move |t| [format!("source {s}"), format!("target {s}.{t}")])
            })
            .collect()
    };
    let tsv: String = (lines(0..60).iter())
        .map(|[source, target]| format!("{source}\t{target}\n"))
        .collect();
    let side = |side: usize| -> String {
        let lines = lines(40..100);
        lines
            .iter()
            .map(|pair| format!("{}\n", pair[side]))
            .collect()
    };
    CorpusFiles::new()
        .with(CorpusFile::tsv(file(folder, "a.tsv", tsv)), 1.0)
        .with(
            CorpusFile::parallel(file(folder, "b.en", side(0)), file(folder, "b.fr", side(1))),
            2.0,
        )
}

/// The same corpora, in memory.
fn in_memory(folder: &TempDir) -> Corpus {
    let path = |name: &str| folder.path().join(name);
    let mut corpus = Corpus::from_tsv(path("a.tsv")).unwrap();
    corpus.extend(Corpus::from_parallel(path("b.en"), path("b.fr")).unwrap());
    corpus
}

fn read(files: &CorpusFiles) -> Result<Corpus, CorpusError> {
    files.pairs().collect()
}

#[test]
fn every_pair_is_found_again_by_its_file_and_line() {
    let folder = folder();
    let tsv = file(&folder, "a.tsv", "a\tb\n\nonly\t\nc\td\n");
    let [source, target] =
        [("b.en", "e\n\nf\n"), ("b.fr", "g\n\nh\n")].map(|(name, text)| file(&folder, name, text));
    let files = CorpusFiles::new()
        .with(CorpusFile::tsv(&tsv), 1.0)
        .with(CorpusFile::parallel(&source, &target), 1.0);
    let (corpus, places, unusable) = files.read_with_places().unwrap();
    assert_eq!((corpus.len(), unusable.count()), (4, 1));
    let found: Vec<_> = (0..corpus.len()).map(|pair| places.of(pair)).collect();
    assert_eq!(
        found,
        [(&*tsv, 1), (&*tsv, 4), (&*source, 1), (&*source, 3)]
    );
}

#[test]
fn pairs_are_those_of_the_files_in_their_order() {
    let folder = folder();
    let files = files(&folder);
    assert_eq!(read(&files).unwrap(), in_memory(&folder));
    assert_eq!(files.read().unwrap().0, in_memory(&folder));
}

#[test]
fn split_is_that_of_the_corpus_in_memory() {
    let folder = folder();
    let files = files(&folder);
    for (n_sources, seed) in [(0, 0), (1, 0), (1, 1), (7, 1), (30, 2), (99, 3)] {
        let (train, valid) = files.clone().hold_out(n_sources, seed).unwrap();
        let (expected_train, expected_valid) =
            in_memory(&folder).hold_out(n_sources, seed).unwrap();
        assert_eq!(valid, expected_valid);
        assert_eq!(read(&train).unwrap(), expected_train);
    }
    let error = files.clone().hold_out(100, 0).unwrap_err().to_string();
    assert_eq!(
        error,
        in_memory(&folder).hold_out(100, 0).unwrap_err().to_string()
    );
}

#[test]
fn pairs_are_counted_and_written_as_those_in_memory() {
    let folder = folder();
    let files = files(&folder);
    assert_eq!(files.distinct_sources().unwrap(), 100);
    let (train, _) = files.hold_out(30, 2).unwrap();
    assert_eq!(train.distinct_sources().unwrap(), 70);
    let (one, other) = (
        folder.path().join("one.tsv"),
        folder.path().join("other.tsv"),
    );
    train.write_tsv(&one).unwrap();
    read(&train).unwrap().write_tsv(&other).unwrap();
    assert!(fs::read(one).unwrap() == fs::read(other).unwrap());

    let missing = CorpusFiles::new().with(CorpusFile::tsv(folder.path().join("missing.tsv")), 1.0);
    let path = folder.path().join("none.tsv");
    let error = missing.write_tsv(&path).unwrap_err().to_string();
    assert!(error.contains("missing.tsv: cannot open"), "{error}");
    assert!(!path.exists());
}

#[test]
fn holding_out_twice_holds_out_both() {
    let folder = folder();
    let (train, first) = files(&folder).hold_out(10, 0).unwrap();
    let (train, second) = train.hold_out(10, 0).unwrap();
    let train = read(&train).unwrap();
    assert_eq!((first.len(), second.len()), (10, 10));
    for held_out in [&first, &second] {
        for Pair { source, .. } in held_out.pairs() {
            assert!(train.pairs().iter().all(|pair| pair.source != *source));
        }
    }
}

#[test]
fn sources_of_another_corpus_are_left_out() {
    let folder = folder();
    let valid: Corpus = [
        ("source 1", "any"),
        ("source 50", "any"),
        ("nowhere", "any"),
    ]
    .into_iter()
    .map(|(source, target)| Pair {
        source: source.into(),
        target: target.into(),
    })
    .collect();
    let train = read(&files(&folder).without_sources_of(&valid)).unwrap();
    let expected: Corpus = (in_memory(&folder).into_iter())
        .filter(|pair| !["source 1", "source 50"].contains(&&*pair.source))
        .collect();
    assert!(expected.len() < in_memory(&folder).len());
    assert_eq!(train, expected);
}

#[test]
fn sentences_are_both_sides_of_each_pair() {
    let folder = folder();
    let files = files(&folder);
    let sentences: Vec<String> = files
        .with_sentences(|sentences| sentences.collect())
        .unwrap();
    assert!(
        in_memory(&folder)
            .sentences()
            .eq(sentences.iter().map(String::as_str))
    );
    // A reader may stop early.
    let first = files.with_sentences(|sentences| sentences.next()).unwrap();
    assert_eq!(first.unwrap(), "source 0");
    // The same tokenizer.
    let streamed = files.with_sentences(|sentences| train_bpe(sentences, 280));
    let expected = train_bpe(in_memory(&folder).sentences(), 280).unwrap();
    assert_eq!(
        streamed.unwrap().unwrap().to_json().unwrap(),
        expected.to_json().unwrap()
    );
}

/// A second reading of a pipe would find nothing, or wait for ever.
#[cfg(unix)]
#[test]
fn only_regular_files_can_be_read_again() {
    let files = CorpusFiles::new().with(CorpusFile::tsv("/dev/null"), 1.0);
    let errors = [
        read(&files).unwrap_err(),
        files.clone().hold_out(1, 0).unwrap_err(),
        files
            .with_sentences(|sentences| sentences.count())
            .unwrap_err(),
    ];
    for error in errors {
        let error = error.to_string();
        assert!(
            error.starts_with("/dev/null: not a regular file; "),
            "{error}"
        );
    }
    let once = files.read().unwrap_err().to_string();
    assert_eq!(once, "/dev/null: no sentence pair");
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn errors_of_the_files_are_not_lost() {
    let folder = folder();
    let good = file(&folder, "good.tsv", "a\t1\n");
    let cut = file(&folder, "cut.tsv", "b\t2\nc\n");
    let empty = file(&folder, "empty.tsv", "\n");
    let missing = folder.path().join("missing.tsv");
    for (bad, expected) in [
        (&cut, "line 2: no tab"),
        (&empty, "no sentence pair"),
        (&missing, "cannot open"),
    ] {
        let files = CorpusFiles::new()
            .with(CorpusFile::tsv(&good), 1.0)
            .with(CorpusFile::tsv(bad), 1.0)
            .with(CorpusFile::tsv(&good), 1.0);
        let errors = [
            read(&files).unwrap_err(),
            files.clone().hold_out(1, 0).unwrap_err(),
            // The sentences before the error are read, none after it.
            files
                .with_sentences(|sentences| {
                    let last = sentences.last().unwrap();
                    assert_eq!(last, if *bad == cut { "2" } else { "1" });
                })
                .unwrap_err(),
        ];
        for error in errors {
            let error = error.to_string();
            assert!(
                error.contains(name(bad)) && error.contains(expected),
                "{error}"
            );
        }
    }
}
