//! Compares whole corpora with Python's sentencepiece; `scripts/check-sentencepiece` runs this.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use crate::text::sentence_piece::SentencePiece;

/// A line of `NAME.jsonl`: a text and the library's pieces for it, with the model `NAME.spm`.
#[derive(Debug, Deserialize)]
struct Line {
    text: String,
    pieces: Vec<String>,
    ids: Vec<u32>,
    /// The text of the pieces.
    decoded: String,
}

/// Compares the lines of a model: returns their number, and the ones that differ.
fn compare(path: &Path) -> (usize, Vec<String>) {
    let model = SentencePiece::from_bytes(&fs::read(path).unwrap()).unwrap();
    let lines = File::open(path.with_extension("jsonl")).unwrap();
    let mut count = 0;
    let mut different = Vec::new();
    for line in BufReader::new(lines).lines() {
        let line: Line = serde_json::from_str(&line.unwrap()).unwrap();
        let found = model.encode(&line.text).unwrap();
        let ids: Vec<u32> = found.iter().filter_map(|piece| piece.id).collect();
        let pieces: Vec<String> = found.into_iter().map(|piece| piece.text).collect();
        let decoded = model.decode(pieces.iter().map(String::as_str));
        count += 1;
        if (&pieces, &ids, &decoded) != (&line.pieces, &line.ids, &line.decoded) {
            different.push(format!("{line:?}\n  but {pieces:?} {ids:?} {decoded:?}"));
        }
    }
    (count, different)
}

#[test]
#[ignore = "needs files made by scripts/check-sentencepiece"]
fn every_line_has_the_pieces_of_the_library() {
    let directory = std::env::var_os("SENTENCE_PIECE_CHECK").expect("SENTENCE_PIECE_CHECK");
    let files = fs::read_dir(directory).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let is_model = |path: &Path| path.extension().is_some_and(|ending| ending == "spm");
    let mut models = 0;
    let mut all_different = 0;
    for path in paths.filter(|path| is_model(path)) {
        let (count, different) = compare(&path);
        println!(
            "{}: {count} lines, {} different",
            path.display(),
            different.len()
        );
        for line in different.iter().take(5) {
            println!("{line}");
        }
        models += 1;
        all_different += different.len();
    }
    assert!(models > 0, "no models");
    assert_eq!(all_different, 0);
}
