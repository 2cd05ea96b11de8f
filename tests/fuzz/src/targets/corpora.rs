//! Text: corpora, plain and compressed, and the cache of their pairs.

use std::path::Path;

use transformer_core::Tokenizers;
use transformer_train::data::{
    BatchSampler, CacheOptions, Corpus, CorpusFile, CorpusFiles, ExampleSource, PairCache,
    read_sentences, train_bpe,
};

use super::{Target, read, write};
use crate::mutate::{Format, compressed};

const TSV: &str =
    "the cat\tle chat\r\n\n\u{feff}a dog\tun chien\tCC BY 2.0\n\t\n one \t un \nAn été\tUn été\n";

fn seeds() -> Vec<Vec<u8>> {
    let plain = TSV.as_bytes().to_vec();
    let twice = [compressed(&plain), compressed(&plain)].concat();
    vec![plain.clone(), compressed(&plain), twice]
}

/// `source<TAB>target` lines.
pub fn tsv(folder: &Path) -> Target {
    let path = folder.join("corpus.tsv");
    Target {
        format: Format::Gzip,
        seeds: seeds(),
        run: Box::new(move |input| {
            write(&path, input);
            let _ = read_sentences(&path);
            let files = CorpusFiles::new().with(CorpusFile::tsv(&path), 1.0);
            let read = files.read();
            let streamed: Result<Corpus, _> = files.pairs().collect();
            assert_eq!(read.is_ok(), streamed.is_ok());
            let _ = files.distinct_sources();
            match (read, streamed) {
                (Ok((read, _)), Ok(streamed)) => {
                    assert_eq!(read, streamed);
                    let _ = read.hold_out(1, 0);
                    true
                }
                _ => false,
            }
        }),
    }
}

/// Two files, line by line, one of which is damaged.
pub fn parallel(folder: &Path) -> Target {
    let [path, other] = ["source", "target"].map(|name| folder.join(name));
    let lines = b"le chat\nun chien\n\nun\nUn \xc3\xa9t\xc3\xa9\n";
    write(&other, lines);
    let plain = b"the cat\na dog\n\none\nA summer\n".to_vec();
    Target {
        format: Format::Gzip,
        seeds: vec![plain.clone(), compressed(&plain)],
        run: Box::new(move |input| {
            write(&path, input);
            let turned = Corpus::from_parallel(&other, &path).is_ok();
            let read = Corpus::from_parallel(&path, &other).is_ok();
            assert_eq!(read, turned);
            read
        }),
    }
}

/// A cache of tokenized pairs, with and without their text.
pub fn cache(folder: &Path) -> Target {
    let corpus = folder.join("corpus.tsv");
    write(&corpus, TSV.as_bytes());
    let files = CorpusFiles::new().with(CorpusFile::tsv(&corpus), 1.5);
    let tokenizers = train_bpe(["the cat and the dog"].into_iter(), 280);
    let tokenizers = Tokenizers::shared(tokenizers.expect("a tokenizer"));
    let path = folder.join("cache");
    let seeds = [false, true].map(|keep_text| {
        let options = CacheOptions {
            keep_text,
            ..CacheOptions::default()
        };
        PairCache::build(&path, &files, &tokenizers, &options).expect("a cache");
        read(&path)
    });
    Target {
        format: Format::Sealed,
        seeds: seeds.to_vec(),
        run: Box::new(move |input| {
            write(&path, input);
            let Ok(cache) = PairCache::open(&path) else {
                return false;
            };
            let lengths = cache.lengths().into_owned();
            for (index, lengths) in lengths.into_iter().enumerate() {
                if let Ok(pair) = cache.get(index, 0) {
                    assert!(pair.source.len() <= lengths.source);
                }
                let _ = cache.text(index);
            }
            let _ = (cache.checksum(), cache.checked_first());
            // An epoch has as many examples as its weights say.
            let is_short = cache.weights().iter().all(|(_, weight)| *weight < 100.0);
            if is_short && let Ok(sampler) = BatchSampler::of_source(&cache, 64, 0) {
                let _ = sampler.epoch(0);
            }
            if let Ok(cache) = cache.with_dropout(&tokenizers, 0.5, 0) {
                for index in 0..cache.len() {
                    let _ = cache.get(index, 1);
                }
            }
            true
        }),
    }
}
