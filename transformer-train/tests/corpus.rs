//! A corpus file is read, whatever it holds, or refused with a message that names the file and the line.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tempfile::TempDir;
use transformer_train::data::{Corpus, CorpusError, CorpusFile, CorpusFiles, Pair, read_sentences};

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn file(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

fn gzip(content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content.as_ref()).unwrap();
    encoder.finish().unwrap()
}

fn corpus(pairs: &[(&str, &str)]) -> Corpus {
    let pair = |&(source, target): &(&str, &str)| Pair {
        source: source.into(),
        target: target.into(),
    };
    pairs.iter().map(pair).collect()
}

/// Reads a file of this content as tab-separated text.
fn read(content: impl AsRef<[u8]>) -> Result<Corpus, CorpusError> {
    let folder = folder();
    Corpus::from_tsv(file(&folder, "corpus.tsv", content))
}

/// The message for a file of this content, which has to name it.
fn refusal(content: impl AsRef<[u8]>) -> String {
    let message = read(content).unwrap_err().to_string();
    assert!(message.contains("corpus.tsv"), "{message}");
    assert!(!message.contains('\n'), "{message}");
    message
}

fn assert_mentions(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "{word:?} in {message:?}");
    }
}

// Files that are read.

#[test]
fn plain_and_gzip_read_the_same_whatever_the_name() {
    let text = "Go.\tVa !\nHi.\tSalut !\n";
    let expected = corpus(&[("Go.", "Va !"), ("Hi.", "Salut !")]);
    assert_eq!(read(text).unwrap(), expected);
    assert_eq!(read(gzip(text)).unwrap(), expected);
    let two_members = [gzip("Go.\tVa !\n"), gzip("Hi.\tSalut !\n")].concat();
    assert_eq!(read(two_members).unwrap(), expected);
}

#[test]
fn line_ends_marks_blanks_and_spaces_are_removed() {
    let text = "\u{feff}a\t1\r\n\n \t \r\n\u{feff}\n  b \t\u{a0}2\u{feff}\r\nc\t3";
    let expected = corpus(&[("a", "1"), ("b", "2"), ("c", "3")]);
    assert_eq!(read(text).unwrap(), expected);
}

#[test]
fn columns_after_the_second_are_ignored() {
    let text = "a\t1\tCC-BY 2.0\t#7\nb\t2\t\n";
    assert_eq!(read(text).unwrap(), corpus(&[("a", "1"), ("b", "2")]));
}

#[test]
fn parallel_files_pair_line_by_line() {
    let folder = folder();
    let source = file(&folder, "a.en", "one\n\nthree\nfo\tur\n\n");
    let target = file(&folder, "a.fr", gzip("un\ndeux\n\nquatre\n \n"));
    assert_eq!(
        Corpus::from_parallel(source, target).unwrap(),
        corpus(&[("one", "un"), ("fo ur", "quatre")])
    );
}

/// Both formats leave out the same pairs. Lines of white space are no pair in either.
#[test]
fn pairs_with_an_empty_side_or_too_long_are_left_out_and_counted() {
    let folder = folder();
    let [long, half] = [600_000, 300_000].map(|words| "x ".repeat(words));
    let pairs = [
        ("a", "1"),
        ("", "2"),
        ("c", " "),
        ("", ""),
        (&*long, "5"),
        ("f", &*long),
        // Each side would do.
        (&*half, &*half),
        ("h", "8"),
    ];
    let lines =
        |line: fn((&str, &str)) -> String| -> String { pairs.into_iter().map(line).collect() };
    let tsv = lines(|(source, target)| format!("{source}\t{target}\n"));
    let source = lines(|(source, _)| format!("{source}\n"));
    let target = lines(|(_, target)| format!("{target}\n"));
    for corpus_file in [
        CorpusFile::tsv(file(&folder, "a.tsv", gzip(tsv))),
        CorpusFile::parallel(file(&folder, "a.en", source), file(&folder, "a.fr", target)),
    ] {
        let files = CorpusFiles::new().with(corpus_file, 1.0);
        let (read, unusable) = files.read().unwrap();
        assert_eq!(read, corpus(&[("a", "1"), ("h", "8")]));
        assert_eq!((unusable.empty_side, unusable.oversized), (2, 3));
        assert_eq!(
            unusable.left_out("pair"),
            [
                "2 pairs are skipped: a side is empty",
                "3 pairs are skipped: longer than 1048576 bytes",
            ]
        );
    }
    // They are lines all the same.
    let message = refusal(format!("a\t1\n\t2\n{long}\nd 4\n"));
    assert_mentions(&message, &["line 4", "no tab"]);
}

// Files that are refused.

#[test]
fn missing_file_is_named() {
    let path = folder().path().join("nowhere.tsv");
    let error = Corpus::from_tsv(path).unwrap_err();
    assert!(matches!(error, CorpusError::Open { .. }));
    assert_mentions(&error.to_string(), &["nowhere.tsv", "cannot open"]);
}

#[test]
fn directory_is_named() {
    let folder = folder();
    let error = Corpus::from_tsv(folder.path()).unwrap_err().to_string();
    let name = folder.path().file_name().unwrap().to_str().unwrap();
    assert_mentions(&error, &[name, "is a directory"]);
}

#[test]
fn file_without_a_pair_is_refused() {
    for content in ["", "\n\n", " \t \n", "\u{feff}"] {
        assert_mentions(&refusal(content), &["no sentence pair"]);
    }
    assert_mentions(&refusal(gzip("")), &["no sentence pair"]);
}

#[test]
fn bytes_that_are_not_utf8_are_located() {
    let message = refusal(b"a\t1\nca\xe9\t2\n");
    assert_mentions(&message, &["line 2", "not UTF-8", "byte 3"]);
}

#[test]
fn line_without_a_tab_is_located() {
    assert_mentions(&refusal("a\t1\n\nb 2\n"), &["line 3", "no tab"]);
}

#[test]
fn file_of_unusable_pairs_is_refused_with_the_reason() {
    let message = refusal("a\t\n\t2\n");
    let reason = "no sentence pair; 2 pairs are skipped: a side is empty";
    assert_mentions(&message, &[reason]);
    // Another kind of file, of one line.
    let message = refusal(gzip(vec![b'a'; 4 << 20]));
    let reason = "no sentence pair; 1 pair is skipped: longer than 1048576 bytes";
    assert_mentions(&message, &[reason]);
}

#[test]
fn sentence_that_is_too_long_is_located() {
    let folder = folder();
    let path = file(&folder, "a.en", ["one\n", &"a".repeat(4 << 20)].concat());
    let message = read_sentences(path).unwrap_err().to_string();
    assert_mentions(&message, &["a.en: line 2: longer than 1048576 bytes"]);
}

#[test]
fn longest_line_is_read() {
    let text = format!("a\t{}\n", "b".repeat((1 << 20) - 2));
    assert_eq!(read(text).unwrap().len(), 1);
}

#[test]
fn gzip_cut_anywhere_is_refused() {
    let whole = gzip("Go.\tVa !\nHi.\tSalut !\n");
    for length in 2..whole.len() {
        let message = refusal(&whole[..length]);
        assert_mentions(&message, &["line", "gzip data is truncated or corrupt"]);
    }
}

#[test]
fn truncated_gzip_names_the_line_reached() {
    let text: String = (0..20_000).map(|i| format!("a {i}\tb {i}\n")).collect();
    let whole = gzip(text);
    let message = refusal(&whole[..whole.len() / 2]);
    let (_, rest) = message.split_once("line ").unwrap();
    let line: usize = rest.split_once(':').unwrap().0.parse().unwrap();
    assert!((5_000..15_000).contains(&line), "{message}");
}

#[test]
fn corrupt_gzip_is_refused() {
    let mut bytes = gzip("Go.\tVa !\nHi.\tSalut !\n");
    let checksum = bytes.len() - 8;
    bytes[checksum] ^= 1;
    assert_mentions(&refusal(bytes), &["gzip data is truncated or corrupt"]);
}

/// The bytes that Python's bz2 and lzma, and the programs zstd, lz4 and zip begin their files with.
#[test]
fn other_compressed_files_name_the_program_that_decompresses_them() {
    for (start, program, command) in [
        (&b"BZh91AY&SY\x92\x94\x1e\x88"[..], "bzip2", "bzip2 -d"),
        (b"BZh11AY&SY\x92\x94\x1e\x88", "bzip2", "bzip2 -d"),
        (b"\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4F", "xz", "xz -d"),
        (b"\x28\xb5\x2f\xfd\x04\x58\x41\x00\x00", "zstd", "zstd -d"),
        (b"\x04\x22\x4d\x18\x64\x40\xa7", "lz4", "lz4 -d"),
        (b"PK\x03\x04\x14\x00", "zip", "unzip"),
    ] {
        let message = refusal(start);
        let expected =
            format!("corpus.tsv: is compressed by {program}; decompress it first: {command}");
        assert!(message.ends_with(&expected), "{message}");
    }
    // Text that begins like them.
    for start in ["BZh9", "BZh91AY", "PK", "BZh", "7zXZ"] {
        assert_eq!(
            read(format!("{start}\tun\n")).unwrap(),
            corpus(&[(start, "un")])
        );
    }
}

#[test]
fn unequal_line_counts_are_both_named() {
    let folder = folder();
    let short = file(&folder, "short", "1\n2\n");
    let long = file(&folder, "long", "1\n2\n3\n4\n5");
    let message = |source: &Path, target: &Path| {
        let error = Corpus::from_parallel(source, target).unwrap_err();
        error.to_string()
    };
    let (source_shorter, target_shorter) = (message(&short, &long), message(&long, &short));
    assert_mentions(&source_shorter, &["short has 2 lines but", "long has 5"]);
    assert_mentions(&target_shorter, &["long has 5 lines but", "short has 2"]);
}

#[test]
fn parallel_files_name_the_one_that_is_wrong() {
    let folder = folder();
    let right = file(&folder, "right", "a\nb\n");
    let wrong = file(&folder, "wrong", b"a\n\xff\n");
    for (source, target) in [(&right, &wrong), (&wrong, &right)] {
        let error = Corpus::from_parallel(source, target).unwrap_err();
        assert_mentions(&error.to_string(), &["wrong: line 2: not UTF-8 at byte 1"]);
    }
}

#[test]
fn parallel_files_without_a_pair_are_refused() {
    let folder = folder();
    let source = file(&folder, "a.en", "a\n\n");
    let target = file(&folder, "a.fr", "\nb\n");
    let error = Corpus::from_parallel(source, target).unwrap_err();
    assert_mentions(&error.to_string(), &["a.en", "no sentence pair"]);
}

// Writing.

#[test]
fn written_corpus_reads_back_and_replaces_the_old_file() {
    let folder = folder();
    let path = file(&folder, "corpus.tsv", "old\tvieux\n");
    let pairs = corpus(&[("Go.", "Va !"), ("Où ?", "Là\rou là")]);
    pairs.write_tsv(&path).unwrap();
    assert_eq!(Corpus::from_tsv(&path).unwrap(), pairs);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn sentence_that_would_not_read_back_is_not_written() {
    let folder = folder();
    for text in ["", "a\tb", "a\nb", " a", "a\r", "\u{feff}a"] {
        let pairs = corpus(&[("a", "b"), ("a", text)]);
        let error = pairs.write_tsv(folder.path().join("new.tsv")).unwrap_err();
        assert!(matches!(error, CorpusError::Unwritable { .. }), "{text:?}");
        assert_mentions(&error.to_string(), &["new.tsv", "pair 2", "target"]);
    }
    let long = "b".repeat(1 << 20);
    let error = corpus(&[("a", &*long)]).write_tsv(folder.path().join("new.tsv"));
    let message = error.unwrap_err().to_string();
    assert_mentions(&message, &["new.tsv: line 1: longer than 1048576 bytes"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn failed_write_names_the_file_and_leaves_nothing() {
    let folder = folder();
    let occupied = folder.path().join("occupied.tsv");
    fs::create_dir(&occupied).unwrap();
    let absent = folder.path().join("absent").join("corpus.tsv");
    for path in [&occupied, &absent] {
        let error = corpus(&[("a", "b")]).write_tsv(path).unwrap_err();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_mentions(&error.to_string(), &[name, "cannot write"]);
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            prop::collection::vec(prop::sample::select(b"ab \t\n\r\xc3\xa9\xef\xbb\xbf".to_vec()), 0..200),
            prop::collection::vec(any::<u8>(), 0..200).prop_map(|b| [&[0x1f, 0x8b, 8, 0][..], &b].concat()),
            prop::collection::vec(any::<u8>(), 0..200).prop_map(gzip),
        ]
    ) {
        if let Ok(corpus) = read(bytes) {
            let folder = folder();
            let path = folder.path().join("again.tsv");
            corpus.write_tsv(&path).unwrap();
            prop_assert_eq!(Corpus::from_tsv(&path).unwrap(), corpus);
        }
    }
}
