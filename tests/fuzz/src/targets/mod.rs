//! The code that is fuzzed.

mod choices;
mod command_line;
mod corpora;
mod ctranslate2;
mod directories;
mod documents;
mod kernels;
mod marian;
mod rows;
mod runs;
mod tokenizers;
mod weights;

use std::fs;
use std::path::{Path, PathBuf};

use burn_flex::{Flex, FlexDevice};
use transformer_core::decoding::{MaxLength, NextToken};
use transformer_core::packed::PackedPrecision;
use transformer_core::{
    DecodeOptions, PackedModel, Request, Search, Tokenizers, Transformer, TransformerConfig,
};

use crate::mutate::Format;

/// A reader, or another function, with inputs that it accepts.
pub struct Target {
    /// The format of an input.
    pub format: Format,
    /// Inputs that are accepted, of which others are made. The first is read as it is.
    pub seeds: Vec<Vec<u8>>,
    /// Reads an input, and uses the result. Returns whether it was accepted.
    pub run: Run,
}

/// Reads an input.
pub type Run = Box<dyn FnMut(&[u8]) -> bool>;

/// Makes a target, whose files are in a folder of its own.
pub type Make = fn(&Path) -> Target;

/// Every target, by its name.
pub const ALL: &[(&str, Make)] = &[
    ("pt", weights::pt),
    ("safetensors", weights::safetensors),
    ("model-weights", weights::model),
    ("int8-weights", weights::int8),
    ("average", weights::average),
    ("config", directories::config),
    ("int8-config", directories::int8_config),
    ("hugging-face-config", directories::hugging_face_config),
    ("gpt2-config", directories::gpt2_config),
    ("hugging-face-index", directories::hugging_face_index),
    ("generation-config", directories::generation_config),
    ("ctranslate2-model", ctranslate2::model),
    ("ctranslate2-config", ctranslate2::config),
    ("ctranslate2-vocabulary", ctranslate2::vocabulary),
    ("argos-package", ctranslate2::package),
    ("marian-binary", marian::binary),
    ("marian-archive", marian::archive),
    ("marian-vocabulary", marian::vocabulary),
    ("marian-decoder", marian::decoder),
    ("marian-shortlist", marian::shortlist),
    ("tokenizer-json", tokenizers::json),
    ("spm", tokenizers::pieces),
    ("vocab-json", tokenizers::vocabulary),
    ("merges", tokenizers::merges),
    ("tokenizer-config", tokenizers::settings),
    ("tsv", corpora::tsv),
    ("parallel", corpora::parallel),
    ("pair-cache", corpora::cache),
    ("run-toml", runs::run_file),
    ("run-json", runs::record),
    ("optimizer", runs::optimizer),
    ("training-weights", runs::training_weights),
    ("log", runs::log),
    ("command-line", command_line::command_line),
    ("document-text", documents::text),
    ("document-html", documents::html),
    ("document-xml", documents::xml),
    ("document-markdown", documents::markdown),
    ("document-srt", documents::srt),
    ("document-vtt", documents::vtt),
    ("document-tsv", documents::tsv),
    ("document-po", documents::po),
    ("requests", documents::requests),
    ("kernel-embedding", kernels::embedding),
    ("kernel-linear", kernels::linear),
    ("kernel-attention", kernels::attention),
    ("kernel-layer-norm", kernels::layer_norm),
    ("kernel-activation", kernels::activation),
    ("kernel-dropout", kernels::dropout),
    ("kernel-cross-entropy", kernels::cross_entropy),
    ("kernel-log-softmax", kernels::log_softmax),
    ("kernel-adam", kernels::adam),
    ("kernel-sums", kernels::sums),
    ("kernel-packed", rows::packed),
    ("kernel-rows", rows::rows),
    ("kernel-attend", rows::attend),
];

/// The device of the models that are read.
fn device() -> FlexDevice {
    FlexDevice
}

/// Reads a directory of another library, and encodes a text. Returns whether the model was accepted.
fn is_read(directory: &Path, text: &str) -> bool {
    let plain = Transformer::<Flex>::load(directory, &device());
    let packed = PackedModel::load(directory, PackedPrecision::Int8);
    if let (Ok(model), Ok(packed)) = (&plain, &packed) {
        search_with(model, DecodeOptions::beam(2));
        search_with(packed, DecodeOptions::beam(2));
    }
    if let Ok(tokenizers) = Tokenizers::load(directory) {
        let _ = tokenizers.encode_source(text);
    }
    plain.is_ok()
}

/// A folder of the repository's fixtures.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures")
        .join(name)
}

/// The bytes of a file of the repository.
fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Writes a file of a target's own.
fn write(path: &Path, bytes: &[u8]) {
    if let Err(error) = fs::write(path, bytes) {
        panic!("{}: {error}", path.display());
    }
}

/// A model of a few hundred numbers, for vocabularies of 13 tokens.
fn tiny() -> TransformerConfig {
    TransformerConfig {
        d_model: 4,
        n_heads: 2,
        d_ff: 4,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..TransformerConfig::torch_nn(13, 13)
    }
}

fn tiny_model() -> Transformer<Flex> {
    tiny()
        .init(0, &device())
        .expect("a configuration that can be")
}

/// Searches with a model that was read, as far as it can.
fn search_with<M: NextToken>(model: &M, options: DecodeOptions) {
    let options = DecodeOptions {
        max_length: MaxLength::Tokens(3),
        ..options
    };
    if let Ok(search) = Search::new(model, options) {
        // An error where a log-probability is NaN, or a model reads no source.
        let _ = search.run(&[Request::new([3, 4]), Request::new([5])]);
        let _ = search.run(&[Request::new([])]);
    }
}

/// Copies files of a folder.
fn copy(from: &Path, to: &Path, names: &[&str]) {
    fs::create_dir_all(to).expect("a folder can be made");
    for name in names {
        write(&to.join(name), &read(&from.join(name)));
    }
}
