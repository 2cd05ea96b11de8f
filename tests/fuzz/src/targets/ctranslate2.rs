//! The files of CTranslate2's directories.

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use burn_flex::Flex;
use transformer_core::formats::{CONFIG_FILE, CTRANSLATE2_FILE, CTranslate2Export};
use transformer_core::models::WeightTying;
use transformer_core::nn::Positions;
use transformer_core::{Transformer, TransformerConfig};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::{Target, device, fixture, is_read, read, tiny, write};
use crate::mutate::Format;

const VOCABULARY: &str = "shared_vocabulary.json";

/// A directory of a small model.
fn directory(folder: &Path, name: &str, int8: bool) -> PathBuf {
    let config = TransformerConfig {
        // A table of sines and cosines would be most of the file.
        positions: Positions::Learned { max_len: 8 },
        // One list for both sides.
        tying: WeightTying::All,
        ..tiny()
    };
    let model: Transformer<Flex> = config
        .init(0, &device())
        .expect("a configuration that can be");
    let mut tokens: Vec<String> = (0..config.src_vocab_size)
        .map(|id| format!("w{id}"))
        .collect();
    for (id, name) in ["<pad>", "<s>", "</s>", "<unk>"].into_iter().enumerate() {
        name.clone_into(&mut tokens[id]);
    }
    let directory = folder.join(name);
    let export = CTranslate2Export {
        source: &tokens,
        target: &tokens,
        int8,
    };
    model.save_ctranslate2(&directory, export).expect("a model");
    directory
}

/// `model.bin`.
pub fn model(folder: &Path) -> Target {
    let seeds = [("f32", false), ("int8", true)]
        .map(|(name, int8)| read(&directory(folder, name, int8).join(CTRANSLATE2_FILE)));
    let directory = folder.join("f32");
    Target {
        format: Format::Bytes,
        seeds: seeds.to_vec(),
        run: Box::new(move |input| {
            write(&directory.join(CTRANSLATE2_FILE), input);
            is_read(&directory, "w4 w5 </s>")
        }),
    }
}

/// A file in JSON.
fn json(folder: &Path, name: &str) -> Target {
    let directory = directory(folder, "f32", false);
    let path = directory.join(name);
    Target {
        format: Format::Json,
        seeds: vec![read(&path)],
        run: Box::new(move |input| {
            write(&path, input);
            is_read(&directory, "w4 w5 </s>")
        }),
    }
}

/// `config.json`.
pub fn config(folder: &Path) -> Target {
    json(folder, CONFIG_FILE)
}

/// The list of tokens.
pub fn vocabulary(folder: &Path) -> Target {
    json(folder, VOCABULARY)
}

/// An archive of Argos Translate.
pub fn package(folder: &Path) -> Target {
    let directory = directory(folder, "f32", false);
    let names = [CTRANSLATE2_FILE, CONFIG_FILE, VOCABULARY].map(|name| {
        let bytes = read(&directory.join(name));
        (format!("package/model/{name}"), bytes)
    });
    let pieces = fixture("pretrained/marian-student-int8").join("vocab.spm");
    let others = [
        ("package/metadata.json".to_owned(), b"{}".to_vec()),
        ("package/sentencepiece.model".to_owned(), read(&pieces)),
    ];
    let files: Vec<(String, Vec<u8>)> = names.into_iter().chain(others).collect();
    let packed = |method| {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(method);
        for (name, bytes) in &files {
            zip.start_file(name, options).expect("an entry");
            zip.write_all(bytes).expect("an entry is written");
        }
        zip.finish().expect("an archive").into_inner()
    };
    let path = folder.join("package.argosmodel");
    Target {
        format: Format::Bytes,
        seeds: vec![
            packed(CompressionMethod::Stored),
            packed(CompressionMethod::Deflated),
        ],
        run: Box::new(move |input| {
            write(&path, input);
            is_read(&path, "w4 w5")
        }),
    }
}
