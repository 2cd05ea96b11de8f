//! The files in JSON of model directories: ours and Hugging Face's.

use std::path::{Path, PathBuf};

use burn_flex::Flex;
use transformer_core::decoding::MaxLength;
use transformer_core::formats::{CONFIG_FILE, GENERATION_FILE, WEIGHTS_FILE, quantize};
use transformer_core::packed::PackedPrecision;
use transformer_core::{
    DecodeOptions, LanguageModel, ModelDirectory, PackedModel, Request, Search, Transformer,
    TransformerConfig,
};

use super::{Run, Target, copy, device, fixture, read, search_with, tiny_model, write};
use crate::mutate::Format;

const INDEX: &str = "model.safetensors.index.json";

/// A target of a file in JSON.
fn json(path: PathBuf, seeds: Vec<Vec<u8>>, mut load: impl FnMut() -> bool + 'static) -> Target {
    let run: Run = Box::new(move |input| {
        write(&path, input);
        load()
    });
    Target {
        format: Format::Json,
        seeds,
        run,
    }
}

/// `config.json` beside the weights of a translation model.
pub fn config(folder: &Path) -> Target {
    tiny_model().save(folder).expect("a model");
    let path = folder.join(CONFIG_FILE);
    let translation = read(&path);
    let language = TransformerConfig {
        d_model: 4,
        n_heads: 2,
        d_ff: 4,
        n_decoder_layers: 1,
        ..TransformerConfig::language_model(13)
    };
    let other = folder.join("language");
    language.save(&other).expect("a configuration");
    let seeds = vec![translation, read(&other.join(CONFIG_FILE))];
    let folder = folder.to_owned();
    json(path, seeds, move || {
        let translation = Transformer::<Flex>::load(&folder, &device());
        let language = LanguageModel::<Flex>::load(&folder, &device());
        if let Ok(model) = &translation {
            search_with(model, DecodeOptions::beam(2));
        }
        if let Ok(model) = &language {
            search_with(model, DecodeOptions::beam(2));
        }
        translation.is_ok() || language.is_ok()
    })
}

/// `config.json` beside weights in 8 bits.
pub fn int8_config(folder: &Path) -> Target {
    let [plain, int8] = ["plain", "int8"].map(|name| folder.join(name));
    tiny_model().save(&plain).expect("a model");
    quantize(&ModelDirectory::open(&plain).unwrap(), &int8).expect("a model in 8 bits");
    let path = int8.join(CONFIG_FILE);
    let seeds = vec![read(&path)];
    json(path, seeds, move || {
        let packed = PackedModel::load(&int8, PackedPrecision::Int8);
        let is_read = Transformer::<Flex>::load(&int8, &device()).is_ok();
        assert_eq!(is_read, packed.is_ok());
        if let Ok(model) = packed {
            search_with(&model, DecodeOptions::beam(2));
        }
        is_read
    })
}

/// A copy of a fixture's directory, without the results computed from it.
fn pretrained(name: &str, folder: &Path, weights: &[&str]) -> PathBuf {
    let model = folder.join("model");
    let from = fixture("pretrained").join(name);
    copy(&from, &model, &[CONFIG_FILE, GENERATION_FILE]);
    copy(&from, &model, weights);
    model
}

/// Hugging Face's `config.json`, of each type, beside the weights of a BART.
pub fn hugging_face_config(folder: &Path) -> Target {
    let model = pretrained("bart", folder, &[WEIGHTS_FILE]);
    let of = |name: &str| read(&fixture("pretrained").join(name).join(CONFIG_FILE));
    let seeds = ["bart", "mbart", "m2m100", "marian-en-fr"].map(of).to_vec();
    json(model.join(CONFIG_FILE), seeds, move || {
        let _ = DecodeOptions::of_directory(&model);
        let read = Transformer::<Flex>::load(&model, &device());
        if let Ok(model) = &read {
            search_with(model, DecodeOptions::beam(2));
        }
        read.is_ok() || TransformerConfig::load(&model).is_ok()
    })
}

/// Hugging Face's `config.json` of a language model, beside the weights of a GPT-2.
pub fn gpt2_config(folder: &Path) -> Target {
    let model = folder.join("model");
    let from = fixture("pretrained/gpt2");
    copy(&from, &model, &[CONFIG_FILE, WEIGHTS_FILE]);
    let of = |name: &str| read(&fixture("pretrained").join(name).join(CONFIG_FILE));
    let seeds = ["gpt2", "gpt2-sharded"].map(of).to_vec();
    json(model.join(CONFIG_FILE), seeds, move || {
        let options = DecodeOptions::of_directory(&model);
        let read = LanguageModel::<Flex>::load(&model, &device());
        if let (Ok(model), Ok(Some(options))) = (&read, options) {
            let options = DecodeOptions {
                max_length: MaxLength::Tokens(4),
                ..options
            };
            let search = Search::new(model, options);
            let _ = search.map(|search| search.run(&[Request::prompt([5, 6])]));
        }
        read.is_ok()
    })
}

/// The index of weights in parts.
pub fn hugging_face_index(folder: &Path) -> Target {
    let parts: Vec<String> = (1..=8)
        .map(|part| format!("model-{part:05}-of-00008.safetensors"))
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let model = pretrained("nllb-sharded", folder, &parts);
    let seeds = vec![read(&fixture("pretrained/nllb-sharded").join(INDEX))];
    json(model.join(INDEX), seeds, move || {
        TransformerConfig::load(&model).is_ok()
    })
}

/// `generation_config.json`.
pub fn generation_config(folder: &Path) -> Target {
    let model = pretrained("bart", folder, &[WEIGHTS_FILE]);
    let of = |name: &str| read(&fixture("pretrained").join(name).join(GENERATION_FILE));
    let seeds = ["bart", "mbart", "m2m100", "marian-en-fr"].map(of).to_vec();
    let plain = Transformer::<Flex>::load(&model, &device()).expect("a model");
    json(model.join(GENERATION_FILE), seeds, move || {
        let options = DecodeOptions::of_directory(&model);
        let is_read = options.as_ref().is_ok_and(|options| options.is_some());
        if let Ok(Some(options)) = options {
            options
                .validate()
                .expect("options of a directory are in range");
            search_with(&plain, options);
        }
        let _ = TransformerConfig::load(&model);
        is_read
    })
}
