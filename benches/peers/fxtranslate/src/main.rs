//! Translates standard input with a student and its shortlist: `fxtranslate-peer DIRECTORY SENTENCES_PER_BATCH
//! THREADS`.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use fxtranslate::engine::Engine;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("a directory");
    let mut number = || -> usize {
        let argument = arguments.next();
        argument.and_then(|n| n.parse().ok()).expect("a number")
    };
    let (of_batch, threads) = (number(), number());
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
    // The longest batch first, so that the threads end at the same time.
    let batches = Mutex::new(order.chunks(of_batch).rev());
    let found = Mutex::new(&mut translations);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(batch) = batches.lock().expect("no panic").next() else {
                        break;
                    };
                    let texts: Vec<&str> = batch.iter().map(|&line| lines[line]).collect();
                    let of_batch = match texts[..] {
                        [text] => vec![engine.translate(text)],
                        _ => engine.translate_batch(&texts),
                    };
                    let mut found = found.lock().expect("no panic");
                    for (&line, translation) in batch.iter().zip(of_batch) {
                        found[line] = translation;
                    }
                }
            });
        }
    });
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
