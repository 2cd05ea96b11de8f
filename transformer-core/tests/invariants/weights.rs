//! Model directories: a saved model is loaded bit for bit, and an invalid directory is an error with
//! its reason.

use std::fs;
use std::path::Path;

use burn::module::{AutodiffModule, Module, Param, ParamId};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};
use rand::RngExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use transformer_core::formats::{
    CONFIG_FILE, ModelError, PytorchExport, PytorchSystem, WEIGHTS_FILE, load_weights, quantize,
    save_weights,
};
use transformer_core::models::WeightTying;
use transformer_core::{ModelDirectory, Transformer, TransformerConfig};

use crate::common::*;

pub fn configs() -> Vec<TransformerConfig> {
    let mut configs = variants();
    configs.push(TransformerConfig {
        src_vocab_size: 11,
        tying: WeightTying::All,
        attention_bias: false,
        generator_bias: false,
        ..tiny()
    });
    configs
}

pub fn logits<B: Backend>(model: &Transformer<B>) -> Vec<f64> {
    let src = tokens(&[[5, 3, 7, 10, 2], [4, 2, 0, 0, 0]]);
    let tgt = tokens(&[[1, 8, 4], [1, 3, 9]]);
    values(model.forward(src, tgt))
}

fn load<B: Backend>(directory: &Path) -> Result<Transformer<B>, ModelError> {
    Transformer::load(directory, &B::Device::default())
}

/// A directory with the model of [`tiny`], drawn from `seed`.
fn saved(seed: u64) -> (TempDir, Transformer<NdArray>) {
    let directory = tempfile::tempdir().unwrap();
    let model = model::<NdArray>(&tiny(), seed);
    model.save(directory.path()).unwrap();
    (directory, model)
}

/// Asserts that the directory does not load, with a message that names the file and says why.
#[track_caller]
pub fn assert_refused(directory: &Path, file: &str, reason: &str) {
    let error = load::<NdArray>(directory).expect_err(reason);
    let message = error.to_string();
    let named = directory.join(file).display().to_string();
    assert!(message.starts_with(&named), "{message}");
    assert!(message.contains(reason), "{message}");
}

#[test]
fn a_loaded_model_is_the_saved_one() {
    for config in configs() {
        let directory = tempfile::tempdir().unwrap();
        // The directory is created if missing.
        let directory = directory.path().join("models/tiny");
        let model = model::<NdArray>(&config, 1);
        model.save(&directory).unwrap();

        let loaded = load::<NdArray>(&directory).unwrap();
        assert_eq!(loaded.config(), &config);
        assert_eq!(parameters(&loaded), parameters(&model));
        assert_eq!(logits(&loaded), logits(&model));
        let mut files: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        files.sort();
        assert_eq!(files, [CONFIG_FILE, WEIGHTS_FILE]);
    }
}

#[test]
fn a_model_moves_between_backends() {
    for config in configs() {
        let directory = tempfile::tempdir().unwrap();
        let model = model::<NdArray>(&config, 2);
        model.save(directory.path()).unwrap();
        let flex = load::<Flex>(directory.path()).unwrap();
        assert_eq!(parameters(&flex), parameters(&model));
        assert_close(&logits(&flex), &logits(&model), 1e-5);

        flex.save(directory.path()).unwrap();
        let back = load::<NdArray>(directory.path()).unwrap();
        assert_eq!(logits(&back), logits(&model));
    }
}

#[test]
fn a_model_in_training_saves_and_loads() {
    let directory = tempfile::tempdir().unwrap();
    let model = model::<Autodiff<NdArray>>(&tiny_without_dropout(), 3);
    model.save(directory.path()).unwrap();
    let plain = load::<NdArray>(directory.path()).unwrap();
    // With gradients other kernels run, which round otherwise.
    assert_close(&logits(&plain), &logits(&model), 1e-5);

    let tracked = load::<Autodiff<NdArray>>(directory.path()).unwrap();
    let gradients_of_loss = tracked
        .forward(tokens(&[[5, 2]]), tokens(&[[1, 4]]))
        .powi_scalar(2)
        .sum()
        .backward();
    assert_eq!(
        gradients(&tracked, &gradients_of_loss).len(),
        parameters(&model).len()
    );
}

/// Files are in single precision; a backend that computes in double precision reads and writes them.
#[test]
fn a_model_moves_to_double_precision_and_back() {
    type Double = burn_ndarray::NdArray<f64>;
    let (directory, model) = saved(4);
    let double = load::<Double>(directory.path()).unwrap();
    assert_close(&logits(&double), &logits(&model), 1e-5);
    let quantized = directory.path().join("int8");
    quantize(&ModelDirectory::open(directory.path()).unwrap(), &quantized).unwrap();
    let integers = load::<Double>(&quantized).unwrap();
    let expected = load::<NdArray>(&quantized).unwrap();
    assert_close(&logits(&integers), &logits(&expected), 1e-5);

    double.save(directory.path()).unwrap();
    let back = load::<NdArray>(directory.path()).unwrap();
    assert_eq!(logits(&back), logits(&model));

    let drawn: Transformer<Double> = tiny().init(4, &Default::default()).unwrap();
    drawn.save(directory.path()).unwrap();
    let loaded = load::<Double>(directory.path()).unwrap();
    assert_eq!(logits(&loaded), logits(&drawn));
    let single = load::<NdArray>(directory.path()).unwrap();
    assert_close(&logits(&single), &logits(&drawn), 1e-5);
}

#[test]
fn saving_replaces_an_older_model() {
    let (directory, _) = saved(5);
    let other = model::<NdArray>(&configs()[4], 6);
    other.save(directory.path()).unwrap();
    assert_eq!(
        logits(&load::<NdArray>(directory.path()).unwrap()),
        logits(&other)
    );
}

// The configuration

#[test]
fn a_configuration_is_read_back_to_the_last_digit() {
    let directory = tempfile::tempdir().unwrap();
    let rng = &mut rng(7);
    for _ in 0..100 {
        let config = TransformerConfig {
            dropout: rng.random(),
            layer_norm_eps: rng.random_range(1e-9..1e-3),
            ..tiny()
        };
        config.save(directory.path()).unwrap();
        let loaded = TransformerConfig::load(directory.path()).unwrap();
        assert_eq!(loaded, config);
    }
}

#[test]
fn a_missing_file_is_named() {
    let (directory, _) = saved(7);
    fs::remove_file(directory.path().join(WEIGHTS_FILE)).unwrap();
    assert_refused(directory.path(), WEIGHTS_FILE, "No such file");
    fs::remove_file(directory.path().join(CONFIG_FILE)).unwrap();
    assert_refused(directory.path(), CONFIG_FILE, "No such file");
}

#[test]
fn invalid_configurations_are_refused() {
    let (directory, _) = saved(8);
    let valid = fs::read_to_string(directory.path().join(CONFIG_FILE)).unwrap();
    let edited = |key: &str, value: Value| {
        let mut config: Value = serde_json::from_str(&valid).unwrap();
        config[key] = value;
        config.to_string()
    };
    let cases = [
        (String::new(), "EOF"),
        (valid[..valid.len() / 2].to_owned(), "EOF"),
        ("[]".to_owned(), "invalid length 0"),
        (edited("d_modle", json!(512)), "unknown field `d_modle`"),
        (edited("d_model", json!(-4)), "-4"),
        (edited("d_model", json!(12.5)), "12.5"),
        (edited("d_model", json!("12")), "\"12\""),
        (edited("norm", json!("middle")), "unknown variant `middle`"),
        (edited("pad_id", json!(4_294_967_296_u64)), "4294967296"),
        (edited("d_model", json!(0)), "`d_model` is 0"),
        (edited("dropout", json!(1.5)), "`dropout` is 1.5"),
        (
            edited("eos_id", json!(11)),
            "`eos_id` is 11, outside the vocabulary of 11",
        ),
        (edited("n_heads", json!(u64::MAX)), "at most 16777216"),
        (
            edited("positions", json!({"learned": {"max_len": 0}})),
            "`max_len` is 0",
        ),
        (
            edited(
                "positions",
                json!({"sines-then-cosines": {"inclusive": true}}),
            ),
            "missing field `first`",
        ),
        (
            edited("excluded_tokens", json!([3, 11])),
            "`excluded_tokens` has 11, outside the vocabulary of 11",
        ),
    ];
    for (text, reason) in cases {
        fs::write(directory.path().join(CONFIG_FILE), text).unwrap();
        assert_refused(directory.path(), CONFIG_FILE, reason);
    }
}

#[test]
fn a_configuration_names_its_format_and_its_model() {
    let (directory, model) = saved(8);
    let path = directory.path().join(CONFIG_FILE);
    let text = fs::read_to_string(&path).unwrap();
    let start = "{\n  \"format\": 1,\n  \"model\": \"transformer\",\n";
    assert!(text.starts_with(start), "{text}");

    // Files of earlier versions have neither.
    let mut config: Value = serde_json::from_str(&text).unwrap();
    for key in ["format", "model"] {
        config.as_object_mut().unwrap().remove(key);
        fs::write(&path, config.to_string()).unwrap();
        let loaded = load::<NdArray>(directory.path()).unwrap();
        assert_eq!(loaded.config(), model.config());
    }
}

#[test]
fn a_newer_format_or_another_model_is_refused_by_name() {
    let (directory, _) = saved(8);
    let path = directory.path().join(CONFIG_FILE);
    let config = fs::read_to_string(&path).unwrap();
    // Whatever else a newer file has.
    for newer in [
        config.replace("\"format\": 1", "\"format\": 3, \"heads\": []"),
        "{\"format\": 3}".to_owned(),
    ] {
        fs::write(&path, newer).unwrap();
        let expected = "format 3; this version reads formats up to 2";
        assert_refused(directory.path(), CONFIG_FILE, expected);
    }
    fs::write(&path, config.replace("\"format\": 1", "\"format\": \"1\"")).unwrap();
    assert_refused(directory.path(), CONFIG_FILE, "line 2");
    fs::write(&path, config.replace("transformer", "language-model")).unwrap();
    let expected = "a language model has no encoder";
    assert_refused(directory.path(), CONFIG_FILE, expected);
}

/// Errors in a configuration report their line.
#[test]
fn an_unknown_key_is_named_with_its_line() {
    let (directory, _) = saved(8);
    let path = directory.path().join(CONFIG_FILE);
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("d_model", "d_modle")).unwrap();
    assert_refused(directory.path(), CONFIG_FILE, "unknown field `d_modle`");
    assert_refused(directory.path(), CONFIG_FILE, "line 6");
}

/// A misspelled key is an error at any level, not a default.
#[test]
fn an_unknown_key_inside_positions_is_refused() {
    let (directory, _) = saved(8);
    let mut config = serde_json::to_value(&variants()[1]).unwrap();
    config["positions"] = json!({"learned": {"max_len": 16, "max_length": 512}});
    fs::write(directory.path().join(CONFIG_FILE), config.to_string()).unwrap();
    assert_refused(directory.path(), CONFIG_FILE, "unknown field `max_length`");
}

#[test]
fn a_configuration_of_another_size_is_refused() {
    let (directory, model) = saved(9);
    let write = |config: TransformerConfig| config.save(directory.path()).unwrap();
    // Smaller than the file, larger, and of the same size with other tensors.
    write(TransformerConfig { d_ff: 13, ..tiny() });
    assert_refused(directory.path(), WEIGHTS_FILE, "feed_forward.inner.weight");
    write(TransformerConfig { d_ff: 64, ..tiny() });
    assert_refused(directory.path(), WEIGHTS_FILE, "feed_forward.inner.weight");
    write(TransformerConfig {
        n_decoder_layers: 2,
        ..tiny()
    });
    assert_refused(
        directory.path(),
        WEIGHTS_FILE,
        "`decoder.layers.2.cross_attention.query.weight` is unknown",
    );
    write(TransformerConfig {
        generator_bias: false,
        ..tiny()
    });
    assert_refused(
        directory.path(),
        WEIGHTS_FILE,
        "`generator.bias` is unknown",
    );
    write(TransformerConfig {
        n_heads: 6,
        d_k: Some(1),
        d_v: Some(5 * 2 / 6 + 1),
        ..tiny()
    });
    assert_refused(directory.path(), WEIGHTS_FILE, "self_attention");
    write(tiny());
    assert_eq!(
        logits(&load::<NdArray>(directory.path()).unwrap()),
        logits(&model)
    );
}

/// Nothing is allocated for a configuration that the file cannot fill: this test would not end.
#[test]
fn absurd_sizes_with_a_tiny_file_are_refused() {
    let limit = 1 << 24;
    for config in [
        TransformerConfig {
            d_model: limit,
            ..tiny()
        },
        TransformerConfig {
            d_ff: limit,
            ..tiny()
        },
        TransformerConfig {
            n_heads: limit,
            d_k: Some(limit),
            d_v: Some(limit),
            ..tiny()
        },
        TransformerConfig {
            n_encoder_layers: limit,
            n_decoder_layers: limit,
            ..tiny()
        },
        TransformerConfig {
            src_vocab_size: limit,
            ..tiny()
        },
        TransformerConfig {
            positions: transformer_core::nn::Positions::Learned { max_len: limit },
            ..tiny()
        },
    ] {
        let (directory, _) = saved(10);
        config.save(directory.path()).unwrap();
        assert_refused(directory.path(), WEIGHTS_FILE, "bytes of weights");
    }
    // Layers of a few numbers, each of which is some kilobytes of memory.
    let (directory, _) = saved(10);
    let config = TransformerConfig {
        d_model: 2,
        n_heads: 1,
        d_k: Some(1),
        d_v: Some(1),
        d_ff: 1,
        n_encoder_layers: 50_000,
        ..tiny()
    };
    config.save(directory.path()).unwrap();
    assert_refused(directory.path(), WEIGHTS_FILE, "50003 layers");
}

#[test]
fn a_damaged_configuration_never_panics() {
    let (directory, _) = saved(11);
    let path = directory.path().join(CONFIG_FILE);
    let valid = fs::read(&path).unwrap();
    let rng = &mut rng(11);
    for _ in 0..300 {
        let mut bytes = valid.clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = *b"0123456789eE+-.,:{}[]\"ntx\xff"
                .get(rng.random_range(0..26))
                .unwrap();
        }
        fs::write(&path, bytes).unwrap();
        let _ = load::<NdArray>(directory.path());
    }
}

// The weights

#[test]
fn weights_are_loaded_into_a_model_whose_frozen_parameters_stay_frozen() {
    let (directory, saved) = saved(11);
    let mut model = model::<Autodiff<NdArray>>(&tiny(), 12);
    model.src_embedding = model.src_embedding.no_grad();
    let loaded = load_weights(model, directory.path().join(WEIGHTS_FILE)).unwrap();
    assert_eq!(parameters(&loaded), parameters(&saved));
    assert!(!loaded.src_embedding.weight.is_require_grad());
    let encoder = &loaded.encoder.layers[0];
    assert!(encoder.feed_forward.inner.weight.is_require_grad());
    // And without gradients, and with them again.
    assert!(
        !loaded
            .valid()
            .train::<Autodiff<NdArray>>()
            .src_embedding
            .weight
            .is_require_grad()
    );
}

#[test]
fn any_module_s_weights_are_saved_and_problems_with_them_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("parts/linear.safetensors");
    let device = Default::default();
    let linear = |d_output| LinearConfig::new(3, d_output).init::<NdArray>(&device);
    let saved = linear(4);
    save_weights(&saved, &path).unwrap();
    let loaded = load_weights(linear(4), &path).unwrap();
    assert_eq!(loaded.weight.to_data(), saved.weight.to_data());
    assert_eq!(
        loaded.bias.unwrap().to_data(),
        saved.bias.unwrap().to_data()
    );

    let refused = |module| {
        let error = load_weights::<NdArray, Linear<NdArray>>(module, &path).unwrap_err();
        error.to_string()
    };
    let message = refused(linear(5));
    assert!(
        message.starts_with(&path.display().to_string()),
        "{message}"
    );
    assert!(
        message.contains("[3, 5]") && message.contains("[3, 4]"),
        "{message}"
    );
    let message = refused(LinearConfig::new(3, 4).with_bias(false).init(&device));
    assert!(message.ends_with("`bias` is unknown"), "{message}");
    let missing = load_weights(linear(4), directory.path().join("none")).unwrap_err();
    assert!(missing.to_string().contains("No such file"), "{missing}");
}

/// Parameters that are no floating-point numbers.
#[derive(Module, Debug)]
struct Choices<B: Backend> {
    places: Param<Tensor<B, 1, Int>>,
    chosen: Param<Tensor<B, 1, Bool>>,
}

#[test]
fn integers_and_booleans_are_loaded_as_they_were_saved() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(WEIGHTS_FILE);
    let choices = |places: [i32; 3], chosen: [bool; 3]| Choices::<NdArray> {
        places: Param::initialized(
            ParamId::new(),
            Tensor::from_ints(places, &Default::default()),
        ),
        chosen: Param::initialized(
            ParamId::new(),
            Tensor::from_bool(chosen.into(), &Default::default()),
        ),
    };
    let saved = choices([7, -8, i32::MAX], [true, false, true]);
    save_weights(&saved, &path).unwrap();
    let load = || load_weights(choices([0; 3], [false; 3]), &path);
    let loaded = load().unwrap();
    assert_eq!(loaded.places.to_data(), saved.places.to_data());
    assert_eq!(loaded.chosen.to_data(), saved.chosen.to_data());

    // A byte that is no boolean never becomes one.
    edit(directory.path(), |tensors| {
        find(tensors, "chosen").bytes[1] = 2;
    });
    let message = load().unwrap_err().to_string();
    let expected = "`chosen` holds 2; a boolean must be 0 or 1";
    assert!(message.ends_with(expected), "{message}");
    edit(directory.path(), |tensors| {
        find(tensors, "chosen").dtype = "U8".to_owned();
    });
    let message = load().unwrap_err().to_string();
    assert!(message.ends_with("`chosen` is u8, not bool"), "{message}");
}

/// Its matrices have another layout than ours: square ones would be read as their transposes.
#[test]
fn weights_of_pytorch_are_not_read_as_ours() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.pt");
    let model = model::<NdArray>(&tiny(), 11);
    let system = PytorchSystem::TorchNn;
    model
        .to_pytorch(&path, system, &PytorchExport::default())
        .unwrap();
    let message = load_weights(model, &path).unwrap_err().to_string();
    assert!(message.contains("a header of "), "{message}");
}

#[test]
fn truncated_weights_are_refused() {
    let (directory, _) = saved(12);
    let path = directory.path().join(WEIGHTS_FILE);
    let whole = fs::read(&path).unwrap();
    let cuts = (0..whole.len())
        .step_by(97)
        .chain(whole.len() - 40..whole.len());
    for len in cuts {
        fs::write(&path, &whole[..len]).unwrap();
        assert_refused(directory.path(), WEIGHTS_FILE, "");
    }
    fs::write(&path, [&whole[..], &[0; 8]].concat()).unwrap();
    assert_refused(directory.path(), WEIGHTS_FILE, "");
    fs::write(&path, &whole).unwrap();
    load::<NdArray>(directory.path()).unwrap();
}

/// Cut so that the configuration's bytes are there: the parser must refuse it.
#[test]
fn truncated_weights_of_a_smaller_configuration_are_refused() {
    let (directory, _) = saved(12);
    TransformerConfig {
        n_decoder_layers: 1,
        ..tiny()
    }
    .save(directory.path())
    .unwrap();
    let path = directory.path().join(WEIGHTS_FILE);
    let whole = fs::read(&path).unwrap();
    for len in (whole.len() * 4 / 5..whole.len()).step_by(101) {
        fs::write(&path, &whole[..len]).unwrap();
        assert_refused(directory.path(), WEIGHTS_FILE, "");
    }
}

#[test]
fn garbage_is_refused() {
    let (directory, _) = saved(13);
    let path = directory.path().join(WEIGHTS_FILE);
    let len = fs::metadata(&path).unwrap().len() as usize;
    let rng = &mut rng(13);
    let noise: Vec<u8> = (0..len).map(|_| rng.random()).collect();
    let zeros = vec![0; len];
    // A header of the largest length, of the whole file's, and one that is no JSON.
    let with_header = |header: u64| [&header.to_le_bytes()[..], &noise[8..]].concat();
    for bytes in [
        noise.clone(),
        zeros,
        with_header(u64::MAX),
        with_header(len as u64 - 8),
        with_header(100),
    ] {
        fs::write(&path, bytes).unwrap();
        assert_refused(directory.path(), WEIGHTS_FILE, "");
    }
}

#[test]
fn a_damaged_header_never_panics() {
    let (directory, _) = saved(14);
    let path = directory.path().join(WEIGHTS_FILE);
    let whole = fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let rng = &mut rng(14);
    for at in (0..8).chain((8..header).step_by(13)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << rng.random_range(0..8);
        fs::write(&path, bytes).unwrap();
        let _ = load::<NdArray>(directory.path());
    }
}

#[test]
fn a_missing_tensor_is_named() {
    let (directory, _) = saved(15);
    edit(directory.path(), |tensors| {
        tensors.retain(|tensor| tensor.name != "encoder.layers.1.feed_forward.inner.bias");
    });
    assert_refused(
        directory.path(),
        WEIGHTS_FILE,
        "`encoder.layers.1.feed_forward.inner.bias` is missing",
    );
}

/// However large it is.
#[test]
fn a_large_missing_tensor_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let config = TransformerConfig {
        src_vocab_size: 1000,
        ..tiny()
    };
    model::<NdArray>(&config, 15)
        .save(directory.path())
        .unwrap();
    edit(directory.path(), |tensors| {
        tensors.retain(|tensor| tensor.name != "src_embedding.weight");
    });
    assert_refused(
        directory.path(),
        WEIGHTS_FILE,
        "`src_embedding.weight` is missing",
    );
}

#[test]
fn an_extra_tensor_is_named() {
    let (directory, _) = saved(16);
    edit(directory.path(), |tensors| {
        tensors.push(Stored {
            name: "encoder.layers.7.bias".to_owned(),
            dtype: "F32".to_owned(),
            shape: vec![2],
            bytes: vec![0; 8],
        });
    });
    assert_refused(
        directory.path(),
        WEIGHTS_FILE,
        "`encoder.layers.7.bias` is unknown",
    );
}

#[test]
fn a_mis_shaped_tensor_is_named_with_both_shapes() {
    let (directory, _) = saved(17);
    edit(directory.path(), |tensors| {
        find(tensors, "src_embedding.weight").shape = vec![12, 13];
    });
    assert_refused(directory.path(), WEIGHTS_FILE, "src_embedding.weight");
    assert_refused(directory.path(), WEIGHTS_FILE, "[13, 12]");
    assert_refused(directory.path(), WEIGHTS_FILE, "[12, 13]");
    edit(directory.path(), |tensors| {
        find(tensors, "src_embedding.weight").shape = vec![156];
    });
    assert_refused(directory.path(), WEIGHTS_FILE, "src_embedding.weight");
}

#[test]
fn a_tensor_of_another_type_is_named() {
    let (directory, _) = saved(18);
    for dtype in ["I32", "U32"] {
        edit(directory.path(), |tensors| {
            find(tensors, "src_embedding.weight").dtype = dtype.to_owned();
        });
        assert_refused(directory.path(), WEIGHTS_FILE, "`src_embedding.weight` is ");
        assert_refused(directory.path(), WEIGHTS_FILE, ", not f32");
    }
    edit(directory.path(), |tensors| {
        let tensor = find(tensors, "src_embedding.weight");
        tensor.dtype = "F16".to_owned();
        tensor.bytes.truncate(tensor.bytes.len() / 2);
    });
    assert_refused(directory.path(), WEIGHTS_FILE, "");
}

#[test]
fn every_problem_is_in_one_error() {
    let (directory, _) = saved(19);
    edit(directory.path(), |tensors| {
        find(tensors, "src_embedding.weight").shape = vec![12, 13];
        find(tensors, "generator.bias").name = "generator.offset".to_owned();
    });
    for problem in [
        "src_embedding.weight",
        "`generator.bias` is missing",
        "`generator.offset` is unknown",
    ] {
        assert_refused(directory.path(), WEIGHTS_FILE, problem);
    }
}

// Failed saves

#[test]
fn a_directory_that_cannot_be_made_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    let error = model::<NdArray>(&tiny(), 20)
        .save(file.join("model"))
        .unwrap_err();
    assert!(matches!(error, ModelError::Io { .. }));
    assert!(error.to_string().contains("file/model"), "{error}");
    assert_eq!(fs::read_to_string(file).unwrap(), "not a directory");
}

#[test]
fn weights_that_cannot_be_written_leave_the_older_model() {
    older_model_survives_a_directory_at(WEIGHTS_FILE);
}

#[test]
fn a_config_that_cannot_be_written_leaves_the_older_model() {
    older_model_survives_a_directory_at(CONFIG_FILE);
}

/// Saves over a model with a directory in the way of the file's side file.
fn older_model_survives_a_directory_at(file: &str) {
    let (directory, older) = saved(21);
    let side = format!("{file}.{}.tmp", std::process::id());
    fs::create_dir(directory.path().join(side)).unwrap();

    let error = model::<NdArray>(&configs()[4], 22)
        .save(directory.path())
        .unwrap_err();
    assert!(matches!(error, ModelError::Io { .. }), "{error}");
    assert!(error.to_string().contains(file), "{error}");
    let survivor = load::<NdArray>(directory.path()).unwrap();
    assert_eq!(logits(&survivor), logits(&older));
}

/// A process that was killed while it saved leaves its side files; in a container the next one has
/// the same number.
#[test]
fn a_leftover_of_a_killed_save_is_no_obstacle() {
    let (directory, _) = saved(23);
    for file in [WEIGHTS_FILE, CONFIG_FILE] {
        let side = format!("{file}.{}.tmp", std::process::id());
        fs::write(directory.path().join(side), "half a file").unwrap();
    }
    let newer = model::<NdArray>(&tiny(), 24);
    newer.save(directory.path()).unwrap();
    assert_eq!(
        logits(&load::<NdArray>(directory.path()).unwrap()),
        logits(&newer)
    );
}

// Reading and writing safetensors files by hand: eight bytes of length, a JSON header, the data.

pub struct Stored {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

pub fn find<'a>(tensors: &'a mut [Stored], name: &str) -> &'a mut Stored {
    tensors
        .iter_mut()
        .find(|tensor| tensor.name == name)
        .unwrap()
}

/// Rewrites a model directory's weights.
pub fn edit(directory: &Path, change: impl FnOnce(&mut Vec<Stored>)) {
    let path = directory.join(WEIGHTS_FILE);
    let mut tensors = parse(&fs::read(&path).unwrap());
    change(&mut tensors);
    fs::write(&path, serialize(&tensors)).unwrap();
}

pub fn parse(file: &[u8]) -> Vec<Stored> {
    let len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: serde_json::Map<String, Value> = serde_json::from_slice(&file[8..8 + len]).unwrap();
    let data = &file[8 + len..];
    header
        .into_iter()
        .filter(|(name, _)| name != "__metadata__")
        .map(|(name, tensor)| {
            let offset = |at: usize| tensor["data_offsets"][at].as_u64().unwrap() as usize;
            Stored {
                name,
                dtype: tensor["dtype"].as_str().unwrap().to_owned(),
                shape: serde_json::from_value(tensor["shape"].clone()).unwrap(),
                bytes: data[offset(0)..offset(1)].to_vec(),
            }
        })
        .collect()
}

fn serialize(tensors: &[Stored]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for tensor in tensors {
        let first = data.len();
        data.extend_from_slice(&tensor.bytes);
        header.insert(
            tensor.name.clone(),
            json!({
                "dtype": tensor.dtype,
                "shape": tensor.shape,
                "data_offsets": [first, data.len()],
            }),
        );
    }
    let mut header = serde_json::to_vec(&header).unwrap();
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes(), &header[..], &data].concat()
}
