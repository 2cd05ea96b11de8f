//! Parts shared by the tests: small corpora in files and their tokenizers.

#![allow(dead_code, reason = "each test uses some of these")]

pub mod run;
pub mod threads;

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use transformer_core::Tokenizers;
use transformer_core::text::Tokenizer;
use transformer_train::data::{
    CacheOptions, CorpusFile, CorpusFiles, ExampleSource, PairCache, TokenizedPair, train_bpe,
};

pub fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub fn file(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

/// A tokenizer of the words `a` to `j`: tokens 4 to 13.
pub fn words(folder: &TempDir) -> Tokenizers {
    let special = ["<pad>", "<bos>", "<eos>", "<unk>"];
    let words = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let vocabulary = special.iter().chain(&words).enumerate();
    let vocabulary: Vec<_> = vocabulary
        .map(|(id, word)| format!("{word:?}: {id}"))
        .collect();
    let json = format!(
        r#"{{
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {{"type": "WhitespaceSplit"}},
            "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "<unk>"}}
        }}"#,
        vocabulary.join(", ")
    );
    Tokenizer::from_file(file(folder, "words.json", json))
        .unwrap()
        .into()
}

/// A byte-level BPE of words that are a piece each, and of bytes.
pub fn bpe() -> Tokenizers {
    let text = [
        "the cat sat on the mat and the dog",
        "the dog and the cat sat on the log",
        "the mat and the log",
    ];
    train_bpe(text.into_iter(), 290).unwrap().into()
}

/// Lines of one to five words, with as many more on the other side.
pub fn lines(count: usize) -> String {
    let word = |number: usize| char::from(b'a' + (number % 10) as u8).to_string();
    let line = |number: usize| {
        let source: Vec<_> = (0..=number % 5)
            .map(|at| word(number * 7 + at * 3))
            .collect();
        let target: Vec<_> = source.iter().rev().cloned().chain([word(number)]).collect();
        format!("{}\t{}\n", source.join(" "), target.join(" "))
    };
    (0..count).map(line).collect()
}

pub fn all(source: &PairCache, epoch: usize) -> Vec<TokenizedPair> {
    (0..source.len())
        .map(|index| source.get(index, epoch).unwrap())
        .collect()
}

pub fn with_text() -> CacheOptions {
    CacheOptions {
        keep_text: true,
        ..CacheOptions::default()
    }
}

/// Pairs of sentences, most of them of words that [`bpe`] knows.
pub const SENTENCES: &str = "the cat sat on the mat and the dog sat on the log and sat\tthe log sat\n\
                             the cat sat on the mat\tthe dog and the cat and the mat\n\
                             the dog sat on the log\tthe mat on the cat and the dog\n\
                             on the mat and on the log\tthe dog\n\
                             the dog and the cat\tthe mat and the log\n\
                             the cat\tthe mat\n\
                             a cat on a mat\ta dog on a log\n\
                             x\tthe\n";

/// A cache of [`SENTENCES`] whose pieces are drawn.
pub fn dropped(folder: &TempDir, dropout: f64, seed: u64) -> PairCache {
    let corpus = file(folder, "sentences.tsv", SENTENCES);
    let files = CorpusFiles::new().with(CorpusFile::tsv(corpus), 1.0);
    let path = folder.path().join("text.cache");
    let cache = PairCache::open_or_build(path, &files, &bpe(), &with_text()).unwrap();
    cache.with_dropout(&bpe(), dropout, seed).unwrap()
}
