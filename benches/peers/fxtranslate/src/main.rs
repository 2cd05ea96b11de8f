//! Translates standard input with a student and its shortlist: `fxtranslate-peer DIRECTORY SENTENCES_PER_BATCH`.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use fxtranslate::engine::Engine;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("a directory");
    let of_batch: usize = arguments
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a number");
    let vocabulary = find(&directory, ".spm");
    let engine = Engine::load_mmapped(find(&directory, ".alphas.bin"), &vocabulary, &vocabulary);
    let shortlist = fs::read(find(&directory, ".s2t.bin")).expect("the shortlist is read");
    let engine = engine
        .expect("the model is read")
        .with_shortlist_bytes(&shortlist);
    let mut text = String::new();
    io::stdin()
        .read_to_string(&mut text)
        .expect("the text is read");
    let lines: Vec<&str> = text.lines().collect();
    let mut translations = vec![String::new(); lines.len()];
    // Lines of similar length are a batch.
    let mut order: Vec<usize> = (0..lines.len()).collect();
    if of_batch > 1 {
        order.sort_by_key(|&line| lines[line].len());
    }
    for batch in order.chunks(of_batch) {
        let texts: Vec<&str> = batch.iter().map(|&line| lines[line]).collect();
        let found = match texts[..] {
            [text] => vec![engine.translate(text)],
            _ => engine.translate_batch(&texts),
        };
        for (&line, translation) in batch.iter().zip(found) {
            translations[line] = translation;
        }
    }
    for translation in translations {
        println!("{translation}");
    }
}

fn find(directory: &str, end: &str) -> PathBuf {
    let entries = fs::read_dir(Path::new(directory)).expect("the directory is read");
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .find(|path| path.to_string_lossy().ends_with(end))
        .expect("the file is there")
}
