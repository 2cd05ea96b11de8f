//! Files of weights: PyTorch's state dicts, old and new, and those of model directories.

use std::fs;
use std::path::Path;

use burn_flex::Flex;
use transformer_core::formats::{PytorchExport, PytorchSystem, WEIGHTS_FILE, quantize};
use transformer_core::packed::PackedPrecision;
use transformer_core::{DecodeOptions, ModelDirectory, PackedModel, Transformer};
use transformer_train::run::average_models;

use super::{Target, device, fixture, read, search_with, tiny, tiny_model, write};
use crate::mutate::{Format, files_of, old_archive};

const SYSTEM: PytorchSystem = PytorchSystem::TorchNn;

/// The file that [`tiny_model`] has for PyTorch, with an extension.
fn exported(folder: &Path, extension: &str) -> Vec<u8> {
    let path = folder.join("seed").with_extension(extension);
    let exported = tiny_model().to_pytorch(&path, SYSTEM, &PytorchExport::default());
    exported.expect("a state dict");
    read(&path)
}

fn state_dict(folder: &Path, format: Format, seeds: Vec<Vec<u8>>) -> Target {
    let path = folder.join("weights");
    Target {
        format,
        seeds,
        run: Box::new(move |input| {
            write(&path, input);
            Transformer::<Flex>::from_pytorch(&path, SYSTEM, &tiny(), &device()).is_ok()
        }),
    }
}

/// `.pt` files: the archives, and those from before PyTorch 1.6.
pub fn pt(folder: &Path) -> Target {
    let archive = exported(folder, "pt");
    let files = files_of(&archive).expect("an archive");
    let file = |end: &str| {
        let mut files = files.iter();
        let found = files.find(|(name, _)| name.ends_with(end));
        found.map(|(_, bytes)| bytes.clone())
    };
    let storages: Vec<Vec<u8>> = (0..)
        .map_while(|key| file(&format!("/data/{key}")))
        .collect();
    let pickle = file("data.pkl").expect("a pickle");
    let old = old_archive(&pickle, &storages);
    let malicious = read(&fixture("malicious.pt"));
    let seeds = vec![archive, old, malicious];
    state_dict(folder, Format::Pytorch, seeds)
}

/// State dicts in `.safetensors` files.
pub fn safetensors(folder: &Path) -> Target {
    let seeds = vec![exported(folder, "safetensors")];
    state_dict(folder, Format::Safetensors, seeds)
}

/// `model.safetensors` of a model directory.
pub fn model(folder: &Path) -> Target {
    tiny_model().save(folder).expect("a model");
    let path = folder.join(WEIGHTS_FILE);
    let folder = folder.to_owned();
    Target {
        format: Format::Safetensors,
        seeds: vec![read(&path)],
        run: Box::new(move |input| {
            write(&path, input);
            let plain = Transformer::<Flex>::load(&folder, &device());
            let packed = PackedModel::load(&folder, PackedPrecision::F32);
            // Either both readers must refuse, or neither.
            assert_eq!(plain.is_ok(), packed.is_ok());
            if let (Ok(plain), Ok(packed)) = (&plain, &packed) {
                search_with(plain, DecodeOptions::beam(2));
                search_with(packed, DecodeOptions::beam(2));
            }
            plain.is_ok()
        }),
    }
}

/// `model.safetensors` of a directory in 8 bits.
pub fn int8(folder: &Path) -> Target {
    let [plain, int8] = ["plain", "int8"].map(|name| folder.join(name));
    tiny_model().save(&plain).expect("a model");
    quantize(&ModelDirectory::open(&plain).unwrap(), &int8).expect("a model in 8 bits");
    let path = int8.join(WEIGHTS_FILE);
    Target {
        format: Format::Safetensors,
        seeds: vec![read(&path)],
        run: Box::new(move |input| {
            write(&path, input);
            let is_read = Transformer::<Flex>::load(&int8, &device()).is_ok();
            for precision in [PackedPrecision::Int8, PackedPrecision::F32] {
                let packed = PackedModel::load(&int8, precision);
                assert_eq!(is_read, packed.is_ok());
                if let Ok(model) = packed {
                    search_with(&model, DecodeOptions::beam(2));
                }
            }
            is_read
        }),
    }
}

/// `model.safetensors` of one of two models that are averaged.
pub fn average(folder: &Path) -> Target {
    let [one, other, out] = ["one", "other", "out"].map(|name| folder.join(name));
    for model in [&one, &other] {
        tiny_model().save(model).expect("a model");
    }
    let path = other.join(WEIGHTS_FILE);
    Target {
        format: Format::Safetensors,
        seeds: vec![read(&path)],
        run: Box::new(move |input| {
            write(&path, input);
            let averaged = average_models(&[&one, &other], &out).is_ok();
            let alone = average_models(&[&other], out.join("alone")).is_ok();
            let _ = fs::remove_dir_all(&out);
            averaged || alone
        }),
    }
}
