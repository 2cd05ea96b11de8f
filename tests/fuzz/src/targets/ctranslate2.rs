//! The files of CTranslate2's directories.

use std::path::{Path, PathBuf};

use burn_flex::Flex;
use transformer_core::formats::{CONFIG_FILE, CTRANSLATE2_FILE, CTranslate2Export};
use transformer_core::models::WeightTying;
use transformer_core::nn::Positions;
use transformer_core::{Transformer, TransformerConfig};

use super::{Target, device, is_read, read, tiny, write};
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
