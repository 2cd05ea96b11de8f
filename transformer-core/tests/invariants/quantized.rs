//! Model directories in 8 bits: the model with its matrices rounded, and an error with the reason for each
//! directory that is refused.

use std::fs;
use std::path::{Path, PathBuf};

use rand::RngExt;
use tempfile::TempDir;
use transformer_core::formats::{
    CONFIG_FILE, GENERATION_FILE, TOKENIZER_FILE, WEIGHTS_FILE, quantize,
};
use transformer_core::{DecodeOptions, ModelDirectory, Transformer, TransformerConfig};

use crate::common::*;
use crate::weights::{Stored, assert_refused, configs, edit, find, logits, parse};

/// A directory with a model and one with the same in 8 bits.
fn quantized(config: &TransformerConfig, seed: u64) -> (TempDir, PathBuf, Transformer<NdArray>) {
    let folder = tempfile::tempdir().unwrap();
    let model = model::<NdArray>(config, seed);
    let [plain, int8] = ["plain", "int8"].map(|name| folder.path().join(name));
    model.save(&plain).unwrap();
    quantize(&ModelDirectory::open(&plain).unwrap(), &int8).unwrap();
    (folder, int8, model)
}

/// The weights of each output of a matrix, or of each token of a table; `None` for parameters that stay as
/// they are.
fn outputs((path, shape, values): &NamedValues) -> Option<Vec<Vec<f64>>> {
    let &[rows, columns] = &shape[..] else {
        return None;
    };
    if !path.ends_with(".weight") {
        return None;
    }
    let of_row = |row: usize| values[row * columns..][..columns].to_vec();
    let of_column = |column: usize| values[column..].iter().step_by(columns).copied().collect();
    Some(match path.ends_with("embedding.weight") {
        true => (0..rows).map(of_row).collect(),
        false => (0..columns).map(of_column).collect(),
    })
}

#[test]
fn matrices_are_rounded_output_by_output_and_nothing_else_changes() {
    for config in configs() {
        let (_folder, int8, model) = quantized(&config, 31);
        assert!(ModelDirectory::open(&int8).unwrap().is_int8());
        assert_eq!(TransformerConfig::load(&int8).unwrap(), config);
        let loaded = Transformer::<NdArray>::load(&int8, &Default::default()).unwrap();
        let (before, after) = (parameters(&model), parameters(&loaded));
        assert_eq!(before.len(), after.len());
        for (before, after) in before.iter().zip(&after) {
            let Some(outputs_before) = outputs(before) else {
                assert_eq!(before, after);
                continue;
            };
            for (before, after) in outputs_before.iter().zip(outputs(after).unwrap()) {
                let largest = before.iter().map(|weight| weight.abs()).fold(0.0, f64::max);
                let step = largest / 127.0;
                for (before, after) in before.iter().zip(after) {
                    assert!((before - after).abs() <= 0.501 * step);
                    let steps = after / step;
                    assert!((steps - steps.round()).abs() < 1e-4, "{steps}");
                }
            }
        }
        let types = parse(&fs::read(int8.join(WEIGHTS_FILE)).unwrap());
        for Stored { name, dtype, .. } in types {
            let expected = if name.ends_with(".weight") {
                "I8"
            } else {
                "F32"
            };
            assert_eq!(dtype, expected, "{name}");
        }
    }
}

#[test]
fn every_way_to_load_a_quantized_directory_gives_one_model() {
    let (_folder, int8, _) = quantized(&tiny(), 32);
    let device = Default::default();
    let loaded = Transformer::<NdArray>::load(&int8, &device).unwrap();
    let flex = Transformer::<Flex>::load(&int8, &Default::default()).unwrap();
    assert_eq!(parameters(&flex), parameters(&loaded));

    let directory = ModelDirectory::open(&int8).unwrap();
    let mut filled = model::<Autodiff<NdArray>>(&tiny(), 33);
    directory.fill(&mut filled).unwrap();
    assert_eq!(parameters(&filled), parameters(&loaded));
    let wider = TransformerConfig { d_ff: 15, ..tiny() };
    let error = directory.fill(&mut model::<NdArray>(&wider, 33));
    let message = error.unwrap_err().to_string();
    assert!(message.contains("feed_forward"), "{message}");

    // Saved again, it is a model in 32 bits.
    let again = tempfile::tempdir().unwrap();
    loaded.save(again.path()).unwrap();
    assert!(!ModelDirectory::open(again.path()).unwrap().is_int8());
    let back = Transformer::<NdArray>::load(again.path(), &device).unwrap();
    assert_eq!(logits(&back), logits(&loaded));
}

const MATRIX: &str = "encoder.layers.0.feed_forward.inner.weight";
const SCALE: &str = "encoder.layers.0.feed_forward.inner.weight.scale";
const NORM: &str = "encoder.layers.0.self_attention_sublayer.norm.gamma";

#[test]
fn damaged_tensors_are_named_with_their_file() {
    type Change = fn(&mut Vec<Stored>);
    fn first_scale(tensors: &mut [Stored], scale: f32) {
        find(tensors, SCALE).bytes[..4].copy_from_slice(&scale.to_le_bytes());
    }
    let cases: [(Change, String); 13] = [
        (
            |tensors| tensors.retain(|tensor| tensor.name != SCALE),
            format!("`{SCALE}` is missing"),
        ),
        (
            |tensors| tensors.retain(|tensor| tensor.name != MATRIX),
            format!("`{MATRIX}` is missing"),
        ),
        (
            |tensors| first_scale(tensors, f32::NAN),
            format!("`{SCALE}` holds NaN; a scale must be finite and at least 0"),
        ),
        (
            |tensors| first_scale(tensors, -1.5),
            format!("`{SCALE}` holds -1.5; a scale must be"),
        ),
        (
            |tensors| first_scale(tensors, f32::INFINITY),
            format!("`{SCALE}` holds inf; a scale must be"),
        ),
        (
            |tensors| {
                let scale = find(tensors, SCALE);
                scale.shape = vec![12];
                scale.bytes.truncate(4 * 12);
            },
            format!("`{SCALE}` is [12], not [14]"),
        ),
        (
            |tensors| {
                let scale = find(tensors, SCALE);
                scale.dtype = "I8".to_owned();
                scale.bytes.truncate(14);
            },
            format!("`{SCALE}` is i8, not f32"),
        ),
        (
            |tensors| find(tensors, MATRIX).shape = vec![12, 14],
            format!("`{MATRIX}` is [12, 14], not [14, 12]"),
        ),
        (
            |tensors| {
                let matrix = find(tensors, MATRIX);
                matrix.dtype = "F32".to_owned();
                matrix.bytes.resize(4 * 12 * 14, 0);
            },
            format!("`{MATRIX}` is f32, not i8"),
        ),
        (
            |tensors| find(tensors, MATRIX).dtype = "U8".to_owned(),
            format!("`{MATRIX}` is u8, not i8"),
        ),
        (
            |tensors| find(tensors, MATRIX).bytes[5] = 0x80,
            format!("`{MATRIX}` holds -128; 8-bit weights must be from -127 to 127"),
        ),
        (
            |tensors| {
                let norm = find(tensors, NORM);
                norm.dtype = "I8".to_owned();
                norm.bytes.truncate(12);
            },
            format!("`{NORM}` is i8, not f32"),
        ),
        (
            |tensors| {
                tensors.push(Stored {
                    name: format!("{NORM}.scale"),
                    dtype: "F32".to_owned(),
                    shape: vec![1],
                    bytes: vec![0; 4],
                });
            },
            format!("`{NORM}.scale` is unknown"),
        ),
    ];
    let (_folder, int8, _) = quantized(&tiny(), 34);
    let whole = fs::read(int8.join(WEIGHTS_FILE)).unwrap();
    for (change, reason) in cases {
        fs::write(int8.join(WEIGHTS_FILE), &whole).unwrap();
        edit(&int8, change);
        assert_refused(&int8, WEIGHTS_FILE, &reason);
    }
}

#[test]
fn damaged_files_are_refused() {
    let (_folder, int8, _) = quantized(&tiny(), 35);
    let path = int8.join(WEIGHTS_FILE);
    let whole = fs::read(&path).unwrap();
    for len in (0..whole.len()).step_by(211) {
        fs::write(&path, &whole[..len]).unwrap();
        assert_refused(&int8, WEIGHTS_FILE, "");
    }
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let rng = &mut rng(35);
    for at in (0..8).chain((8..header).step_by(31)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << rng.random_range(0..8);
        fs::write(&path, bytes).unwrap();
        let _ = Transformer::<NdArray>::load(&int8, &Default::default());
    }
    fs::remove_file(&path).unwrap();
    assert_refused(&int8, WEIGHTS_FILE, "No such file");
}

/// Nothing is allocated for a configuration that the file cannot fill.
#[test]
fn another_configuration_is_refused() {
    let (_folder, int8, _) = quantized(&tiny(), 36);
    let limit = 1 << 24;
    for config in [
        TransformerConfig { d_ff: 15, ..tiny() },
        TransformerConfig {
            src_vocab_size: limit,
            ..tiny()
        },
        TransformerConfig {
            d_ff: limit,
            ..tiny()
        },
        TransformerConfig {
            n_encoder_layers: limit,
            ..tiny()
        },
    ] {
        write_config(&int8, &config, 2);
        assert_refused(&int8, WEIGHTS_FILE, "");
    }
    // The weights are not of the format.
    write_config(&int8, &tiny(), 1);
    assert_refused(&int8, WEIGHTS_FILE, ", not f32");
    let plain = tempfile::tempdir().unwrap();
    model::<NdArray>(&tiny(), 36).save(plain.path()).unwrap();
    write_config(plain.path(), &tiny(), 2);
    assert_refused(plain.path(), WEIGHTS_FILE, "is f32, not i8");
}

fn write_config(directory: &Path, config: &TransformerConfig, format: u64) {
    config.save(directory).unwrap();
    let path = directory.join(CONFIG_FILE);
    let text = fs::read_to_string(&path).unwrap();
    let format = format!("\"format\": {format}");
    fs::write(&path, text.replace("\"format\": 1", &format)).unwrap();
}

#[test]
fn what_cannot_be_quantized_is_refused_and_nothing_written() {
    let (folder, int8, _) = quantized(&tiny(), 37);
    let out = folder.path().join("out");
    let refused = |model: &Path, out: &Path| {
        let quantized = ModelDirectory::open(model).and_then(|model| quantize(&model, out));
        quantized.unwrap_err().to_string()
    };

    let message = refused(&int8, &out);
    assert!(
        message.ends_with(": the model is already in 8 bits"),
        "{message}"
    );
    let plain = folder.path().join("plain");
    let before = fs::read(plain.join(WEIGHTS_FILE)).unwrap();
    // Not into itself either.
    for there in [&int8, &plain] {
        let expected = format!("{}: already holds a model", there.display());
        assert_eq!(refused(&plain, there), expected);
    }
    assert!(fs::read(plain.join(WEIGHTS_FILE)).unwrap() == before);

    edit(&plain, |tensors| {
        find(tensors, MATRIX).bytes[4..8].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    let message = refused(&plain, &out);
    let reason = format!("`{MATRIX}` holds NaN; only finite values can be quantized");
    assert!(message.ends_with(&reason), "{message}");
    assert!(message.starts_with(&plain.join(WEIGHTS_FILE).display().to_string()));

    assert!(!out.exists());
}

/// A checkpoint's tokenizers and options are in the directory of its run.
#[test]
fn tokenizers_and_options_come_along() {
    let run = tempfile::tempdir().unwrap();
    let checkpoint = run.path().join("checkpoints/update-00000004");
    model::<NdArray>(&tiny(), 38).save(&checkpoint).unwrap();
    fs::write(run.path().join(TOKENIZER_FILE), "as it is").unwrap();
    let options = r#"{"num_beams": 3, "bad_words_ids": [[7]]}"#;
    fs::write(run.path().join(GENERATION_FILE), options).unwrap();

    let out = run.path().join("int8");
    quantize(&ModelDirectory::open(&checkpoint).unwrap(), &out).unwrap();
    let tokenizer = fs::read_to_string(out.join(TOKENIZER_FILE)).unwrap();
    assert_eq!(tokenizer, "as it is");
    let options = |directory: &Path| DecodeOptions::of_directory(directory).unwrap().unwrap();
    assert_eq!(options(&out), options(run.path()));
    let mut files: Vec<_> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    files.sort();
    assert_eq!(
        files,
        [CONFIG_FILE, GENERATION_FILE, WEIGHTS_FILE, TOKENIZER_FILE]
    );
}
