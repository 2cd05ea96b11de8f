//! Tests with directories that they write themselves, with the names and keys of Hugging Face's classes.

mod gpt2;
mod t5;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use burn::tensor::{DType, TensorData};
use burn_ndarray::NdArray;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::formats::directory::ModelDirectory;
use crate::formats::error::ModelError;
use crate::formats::fill::collected;
use crate::formats::hugging_face::names;
use crate::formats::names::{CONFIG_FILE, GENERATION_FILE, WEIGHTS_FILE};
use crate::formats::state_dict::write;
use crate::models::config::TransformerConfig;
use crate::models::transformer::Transformer;
use crate::models::tying::WeightTying;
use crate::nn::positions::Positions;
use crate::nn::sublayer::NormPlacement;
use transformer_kernels::Activation;

const TYPES: [&str; 4] = ["marian", "m2m_100", "bart", "mbart"];

// No two sizes alike.
const VOCAB: usize = 7;
const TGT_VOCAB: usize = 9;
const D_MODEL: usize = 8;
const ENCODER_FF: usize = 6;
const DECODER_FF: usize = 10;
const MAX_LEN: usize = 5;
const LAYERS: [(&str, usize); 2] = [("encoder", 2), ("decoder", 1)];

/// A tensor in a file: type, shape and bytes.
type Stored = (Dtype, Vec<usize>, Vec<u8>);
type Tensors = BTreeMap<String, Stored>;

fn config(model_type: &str) -> Value {
    let is_m2m100 = model_type == "m2m_100";
    json!({
        "model_type": model_type,
        "vocab_size": VOCAB,
        "d_model": D_MODEL,
        "encoder_layers": LAYERS[0].1,
        "decoder_layers": LAYERS[1].1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": ENCODER_FF,
        "decoder_ffn_dim": DECODER_FF,
        "max_position_embeddings": MAX_LEN,
        "activation_function": if is_m2m100 { "relu" } else { "swish" },
        "dropout": 0.25,
        "attention_dropout": 0.125,
        "scale_embedding": model_type != "bart",
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": if model_type == "marian" { 1 } else { 2 },
        "torch_dtype": "float32",
        "id2label": {"0": "LABEL_0"},
        "num_beams": null,
    })
}

/// Names and shapes in the classes' state dicts, with tied tensors once.
fn shapes(model_type: &str) -> Vec<(String, Vec<usize>)> {
    let mut shapes = vec![("model.shared.weight".to_owned(), vec![VOCAB, D_MODEL])];
    let mut linear = |name: String, input, output| {
        shapes.push((format!("{name}.weight"), vec![output, input]));
        shapes.push((format!("{name}.bias"), vec![output]));
    };
    let mut norms = Vec::new();
    for (side, layers) in LAYERS {
        let is_decoder = side == "decoder";
        for layer in 0..layers {
            let layer = format!("model.{side}.layers.{layer}");
            let attentions = if is_decoder {
                &["self", "encoder"][..]
            } else {
                &["self"]
            };
            for attention in attentions {
                for projection in ["q", "k", "v", "out"] {
                    let name = format!("{layer}.{attention}_attn.{projection}_proj");
                    linear(name, D_MODEL, D_MODEL);
                }
                norms.push(format!("{layer}.{attention}_attn_layer_norm"));
            }
            let inner = if is_decoder { DECODER_FF } else { ENCODER_FF };
            linear(format!("{layer}.fc1"), D_MODEL, inner);
            linear(format!("{layer}.fc2"), inner, D_MODEL);
            norms.push(format!("{layer}.final_layer_norm"));
        }
        if model_type.ends_with("bart") {
            norms.push(format!("model.{side}.layernorm_embedding"));
        }
        if ["m2m_100", "mbart"].contains(&model_type) {
            norms.push(format!("model.{side}.layer_norm"));
        }
    }
    for norm in norms {
        shapes.push((format!("{norm}.weight"), vec![D_MODEL]));
        shapes.push((format!("{norm}.bias"), vec![D_MODEL]));
    }
    if model_type.ends_with("bart") {
        for (side, _) in LAYERS {
            let name = format!("model.{side}.embed_positions.weight");
            shapes.push((name, vec![MAX_LEN + 2, D_MODEL]));
        }
    }
    if model_type != "m2m_100" {
        shapes.push(("final_logits_bias".to_owned(), vec![1, VOCAB]));
    }
    shapes
}

/// Values that half precision represents exactly.
fn random(rng: &mut ChaCha8Rng, shape: &[usize]) -> Stored {
    let count: usize = shape.iter().product();
    let numbers = (0..count).map(|_| f32::from(rng.random_range(-100_i8..100)) / 64.0);
    let bytes = numbers.flat_map(f32::to_le_bytes).collect();
    (Dtype::F32, shape.to_vec(), bytes)
}

fn tensors(model_type: &str) -> Tensors {
    let rng = &mut ChaCha8Rng::seed_from_u64(5);
    let mut tensors: Tensors = shapes(model_type)
        .into_iter()
        .map(|(name, shape)| (name, random(rng, &shape)))
        .collect();
    // The unused rows.
    for (side, _) in LAYERS {
        if let Some((.., bytes)) = tensors.get_mut(&format!("model.{side}.embed_positions.weight"))
        {
            bytes[..4 * 2 * D_MODEL].fill(0);
        }
    }
    tensors
}

fn write_config(directory: &Path, config: &Value) {
    fs::write(directory.join(CONFIG_FILE), config.to_string()).unwrap();
}

fn write_tensors(path: &Path, tensors: &Tensors) {
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        let view = TensorView::new(*dtype, shape.clone(), bytes).unwrap();
        (name, view)
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn directory(config: &Value, tensors: &Tensors) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    write_config(directory.path(), config);
    write_tensors(&directory.path().join(WEIGHTS_FILE), tensors);
    directory
}

fn of_type(model_type: &str) -> TempDir {
    directory(&config(model_type), &tensors(model_type))
}

fn load(directory: &Path) -> Result<Transformer<NdArray>, ModelError> {
    Transformer::load(directory, &Default::default())
}

/// Paths, shapes and bits of all parameters.
fn bits(model: &Transformer<NdArray>) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
    let tensors = collected(model).into_iter();
    tensors
        .map(|(path, data)| (path, (data.shape.to_vec(), data.as_bytes().to_vec())))
        .collect()
}

/// A file's tensors, read by the crate `safetensors`.
fn stored(path: &Path) -> Tensors {
    let bytes = fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    file.iter()
        .map(|(name, view)| {
            let stored = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
            (name.to_owned(), stored)
        })
        .collect()
}

/// Asserts that the directory is refused in one line that begins with the file's path.
#[track_caller]
fn assert_refused(directory: &Path, file: &str, reason: &str) {
    let message = match load(directory) {
        Ok(_) => panic!("loaded despite: {reason}"),
        Err(error) => error.to_string(),
    };
    let named = directory.join(file).display().to_string();
    assert!(message.starts_with(&named), "{message}");
    assert!(message.contains(reason), "{message}");
    assert!(!message.contains('\n') && message.len() < 2000, "{message}");
    assert!(TransformerConfig::load(directory).is_err() || reason.contains("tied"));
}

#[test]
fn each_type_has_the_configuration_of_its_class() {
    for model_type in TYPES {
        let directory = of_type(model_type);
        let found = TransformerConfig::load(directory.path()).unwrap();
        let is_bart = model_type.ends_with("bart");
        let is_pre_norm = ["m2m_100", "mbart"].contains(&model_type);
        let is_marian = model_type == "marian";
        let expected = TransformerConfig {
            d_model: D_MODEL,
            n_heads: 2,
            d_ff: ENCODER_FF,
            decoder_d_ff: Some(DECODER_FF),
            n_encoder_layers: 2,
            n_decoder_layers: 1,
            norm: if is_pre_norm {
                NormPlacement::Pre
            } else {
                NormPlacement::Post
            },
            final_norm: is_pre_norm,
            positions: match model_type {
                "marian" => Positions::SinesThenCosines {
                    inclusive: false,
                    first: 0,
                },
                "m2m_100" => Positions::SinesThenCosines {
                    inclusive: true,
                    first: 2,
                },
                _ => Positions::Learned { max_len: MAX_LEN },
            },
            attention_bias: true,
            generator_bias: model_type != "m2m_100",
            embedding_scale: model_type != "bart",
            embedding_norm: is_bart,
            tying: WeightTying::All,
            activation: match model_type {
                "m2m_100" => Activation::Relu,
                _ => Activation::Silu,
            },
            dropout: 0.25,
            attention_dropout: 0.125,
            pad_id: 1,
            bos_id: if is_marian { 1 } else { 2 },
            eos_id: 2,
            excluded_tokens: if is_marian { vec![1] } else { Vec::new() },
            ..TransformerConfig::base(VOCAB)
        };
        assert_eq!(found, expected, "{model_type}");
    }
}

#[test]
fn import_export_import_changes_no_bit() {
    for model_type in TYPES {
        for has_bias in [true, false] {
            let mut tensors = tensors(model_type);
            if let Some((.., bytes)) = tensors.get_mut("final_logits_bias")
                && !has_bias
            {
                bytes.fill(0);
            }
            let original = directory(&config(model_type), &tensors);
            let model = load(original.path()).unwrap();
            let has_bias = has_bias && model_type != "m2m_100";
            assert_eq!(model.config().generator_bias, has_bias);
            assert_eq!(model.generator.bias.is_some(), has_bias);

            let copy = tempfile::tempdir().unwrap();
            let copy = copy.path().join("new/folder");
            model.save_hugging_face(&copy).unwrap();
            // The same names, layouts and bits.
            assert_eq!(stored(&copy.join(WEIGHTS_FILE)), tensors, "{model_type}");
            let again = load(&copy).unwrap();
            assert_eq!(again.config(), model.config());
            assert_eq!(bits(&again), bits(&model));
        }
    }
}

/// A matrix of theirs, `[output, input]`.
fn matrix(tensors: &Tensors, name: &str) -> Vec<Vec<f32>> {
    let (_, shape, bytes) = &tensors[name];
    let (numbers, _) = bytes.as_chunks::<4>();
    let numbers: Vec<f32> = numbers
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect();
    numbers.chunks(shape[1]).map(<[f32]>::to_vec).collect()
}

#[test]
fn each_number_is_where_its_product_needs_it() {
    let tensors = tensors("mbart");
    let model = load(of_type("mbart").path()).unwrap();
    let ours = collected(&model);
    let at = |path: &str, row: usize, column: usize| {
        let data = &ours[path];
        data.as_slice::<f32>().unwrap()[row * data.shape[1] + column]
    };
    let layer = "model.decoder.layers.0";
    let joined = [
        (
            "decoder.layers.0.self_attention.query_key_value.weight",
            "self",
            &["q", "k", "v"][..],
        ),
        (
            "decoder.layers.0.cross_attention.query.weight",
            "encoder",
            &["q"],
        ),
        (
            "decoder.layers.0.cross_attention.key_value.weight",
            "encoder",
            &["k", "v"],
        ),
        (
            "decoder.layers.0.cross_attention.heads.projection.weight",
            "encoder",
            &["out"],
        ),
    ];
    for (path, attention, projections) in joined {
        for (nth, projection) in projections.iter().enumerate() {
            let name = format!("{layer}.{attention}_attn.{projection}_proj.weight");
            for (output, row) in matrix(&tensors, &name).iter().enumerate() {
                for (input, &expected) in row.iter().enumerate() {
                    assert_eq!(at(path, input, nth * D_MODEL + output), expected, "{name}");
                }
            }
        }
    }
    let shared = matrix(&tensors, "model.shared.weight");
    assert_eq!(at("src_embedding.weight", 3, 4), shared[3][4]);
    // The first position is their third row.
    let positions = matrix(&tensors, "model.decoder.embed_positions.weight");
    assert_eq!(at("tgt_positions.learned", 0, 5), positions[2][5]);
    let bias = matrix(&tensors, "final_logits_bias");
    assert_eq!(ours["generator.bias"].as_slice::<f32>().unwrap(), bias[0]);
}

#[test]
fn unused_rows_of_positions_may_hold_anything() {
    let mut tensors = tensors("bart");
    let expected = bits(&load(of_type("bart").path()).unwrap());
    let name = "model.encoder.embed_positions.weight";
    tensors.get_mut(name).unwrap().2[..64].fill(0xff);
    let found = load(directory(&config("bart"), &tensors).path()).unwrap();
    assert_eq!(bits(&found), expected);
}

#[test]
fn halves_are_read_as_the_numbers_that_they_are() {
    use burn::tensor::{bf16, f16};
    let tensors = tensors("mbart");
    let expected = bits(&load(of_type("mbart").path()).unwrap());
    let halved = |dtype, halve: fn(f32) -> [u8; 2]| -> Tensors {
        let halved = tensors.iter().map(|(name, (_, shape, bytes))| {
            let (numbers, _) = bytes.as_chunks::<4>();
            let halves = numbers
                .iter()
                .flat_map(|&bytes| halve(f32::from_le_bytes(bytes)));
            (name.clone(), (dtype, shape.clone(), halves.collect()))
        });
        halved.collect()
    };
    for halves in [
        halved(Dtype::F16, |number| f16::from_f32(number).to_le_bytes()),
        halved(Dtype::BF16, |number| bf16::from_f32(number).to_le_bytes()),
    ] {
        let found = load(directory(&config("mbart"), &halves).path()).unwrap();
        assert_eq!(bits(&found), expected);
    }
}

/// Writes the tensors into two files whose names end in `name`, and their index.
fn write_shards(directory: &Path, name: &str, write: impl Fn(&Path, &Tensors)) {
    let mut weight_map = serde_json::Map::new();
    let mut shards = [Tensors::new(), Tensors::new()];
    for (at, (tensor, stored)) in tensors("bart").into_iter().enumerate() {
        weight_map.insert(
            tensor.clone(),
            json!(format!("part-{}-of-2-{name}", at % 2)),
        );
        shards[at % 2].insert(tensor, stored);
    }
    for (at, shard) in shards.iter().enumerate() {
        write(&directory.join(format!("part-{at}-of-2-{name}")), shard);
    }
    let index = json!({"metadata": {"total_size": 7}, "weight_map": weight_map});
    let path = directory.join(format!("{name}.index.json"));
    fs::write(path, index.to_string()).unwrap();
}

fn write_bin(path: &Path, tensors: &Tensors) {
    let data = tensors.iter().map(|(name, (_, shape, bytes))| {
        let data = TensorData::from_bytes_vec(bytes.clone(), shape.clone(), DType::F32);
        (name.clone(), data)
    });
    let side = path.with_extension("pt");
    write(&side, &data.collect()).unwrap();
    fs::rename(side, path).unwrap();
}

#[test]
fn every_format_holds_the_same_model() {
    let expected = bits(&load(of_type("bart").path()).unwrap());
    let tensors = tensors("bart");
    let writers: [&dyn Fn(&Path); 3] = [
        &|directory| write_shards(directory, WEIGHTS_FILE, write_tensors),
        &|directory| write_bin(&directory.join("pytorch_model.bin"), &tensors),
        &|directory| write_shards(directory, "pytorch_model.bin", write_bin),
    ];
    for writer in writers {
        let directory = tempfile::tempdir().unwrap();
        write_config(directory.path(), &config("bart"));
        writer(directory.path());
        assert_eq!(bits(&load(directory.path()).unwrap()), expected);
    }
}

/// As saved by the class without the projection to logits, with the additional tensors of older versions.
#[test]
fn files_without_prefix_and_with_further_tensors_are_read() {
    let mut bare = Tensors::new();
    for (name, stored) in tensors("marian") {
        if name != "final_logits_bias" {
            bare.insert(name.strip_prefix("model.").unwrap().to_owned(), stored);
        }
    }
    let shared = bare["shared.weight"].clone();
    bare.insert("encoder.embed_tokens.weight".to_owned(), shared.clone());
    bare.insert("lm_head.weight".to_owned(), shared);
    bare.insert(
        "encoder.version".to_owned(),
        (Dtype::I64, vec![1], vec![3; 8]),
    );
    // sin(p / 10000^(i / 4)), then cos.
    let table = (0..3 * D_MODEL).flat_map(|at| {
        let (position, feature) = ((at / D_MODEL) as f64, at % D_MODEL);
        let angle = position / 10_000_f64.powf((feature % 4) as f64 / 4.0);
        let number = if feature < 4 {
            angle.sin()
        } else {
            angle.cos()
        };
        (number as f32).to_le_bytes()
    });
    let positions = (Dtype::F32, vec![3, D_MODEL], table.collect());
    bare.insert("decoder.embed_positions.weight".to_owned(), positions);
    let model = load(directory(&config("marian"), &bare).path()).unwrap();
    let mut with_bias = bits(&load(of_type("marian").path()).unwrap());
    with_bias.remove("generator.bias");
    assert_eq!(bits(&model), with_bias);

    let (.., table) = bare.get_mut("decoder.embed_positions.weight").unwrap();
    // The last cosine of position 1: 0.9999995.
    table[4 * (2 * D_MODEL - 1)..][..4].copy_from_slice(&0.999_f32.to_le_bytes());
    let wrong = directory(&config("marian"), &bare);
    let message = load(wrong.path()).unwrap_err().to_string();
    let expected = "`decoder.embed_positions.weight` is not the table of sines and cosines";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn tied_weights_must_be_equal_and_untied_ones_are_there() {
    let rng = &mut ChaCha8Rng::seed_from_u64(6);
    let mut different = tensors("bart");
    let other = random(rng, &[VOCAB, D_MODEL]);
    different.insert("lm_head.weight".to_owned(), other.clone());
    let refused = directory(&config("bart"), &different);
    let reason = "`lm_head.weight` differs from `model.shared.weight`, which it is tied to";
    assert_refused(refused.path(), WEIGHTS_FILE, reason);

    let mut untied = config("bart");
    untied["tie_word_embeddings"] = json!(false);
    let directory_of = |tensors: &Tensors| directory(&untied, tensors);
    let model = load(directory_of(&different).path()).unwrap();
    assert_eq!(model.config().tying, WeightTying::SourceTarget);
    let copy = tempfile::tempdir().unwrap();
    model.save_hugging_face(copy.path()).unwrap();
    // Since version 5, the class ties none of them.
    let shared = different["model.shared.weight"].clone();
    let mut expected = different;
    for name in names::EMBEDDINGS {
        expected.insert(name.to_owned(), shared.clone());
    }
    assert_eq!(stored(&copy.path().join(WEIGHTS_FILE)), expected);
    let again = load(copy.path()).unwrap();
    assert_eq!(again.config(), model.config());
    let tensors = tensors("bart");
    assert_refused(
        directory_of(&tensors).path(),
        WEIGHTS_FILE,
        "`lm_head.weight` is missing",
    );
}

/// As saved by version 5 for untied matrices: the shared one is not used.
#[test]
fn embeddings_may_be_separate() {
    let rng = &mut ChaCha8Rng::seed_from_u64(9);
    for model_type in TYPES {
        let mut config = config(model_type);
        config["tie_word_embeddings"] = json!(false);
        let mut tensors = tensors(model_type);
        let names = [names::EMBEDDINGS[0], names::EMBEDDINGS[1], "lm_head.weight"];
        for name in names {
            tensors.insert(name.to_owned(), random(rng, &[VOCAB, D_MODEL]));
        }
        let model = load(directory(&config, &tensors).path()).unwrap();
        assert_eq!(model.config().tying, WeightTying::None);
        let ours = collected(&model);
        for (name, path) in names
            .into_iter()
            .zip(["src_embedding.weight", "tgt_embedding.weight"])
        {
            let expected = matrix(&tensors, name).concat();
            assert_eq!(ours[path].as_slice::<f32>().unwrap(), expected, "{name}");
        }
        let copy = tempfile::tempdir().unwrap();
        model.save_hugging_face(copy.path()).unwrap();
        assert_eq!(bits(&load(copy.path()).unwrap()), bits(&model));
        let written = stored(&copy.path().join(WEIGHTS_FILE));
        for name in names {
            assert_eq!(written[name], tensors[name], "{name}");
        }
    }
}

#[test]
fn decoders_may_have_other_heads() {
    for model_type in TYPES {
        let mut config = config(model_type);
        config["decoder_attention_heads"] = json!(4);
        let model = load(directory(&config, &tensors(model_type)).path()).unwrap();
        assert_eq!(model.config().decoder_n_heads, Some(4));
        let copy = tempfile::tempdir().unwrap();
        model.save_hugging_face(copy.path()).unwrap();
        assert_eq!(load(copy.path()).unwrap().config(), model.config());
    }
}

#[test]
fn tensors_that_no_class_has_are_left_out() {
    let rng = &mut ChaCha8Rng::seed_from_u64(10);
    for (prefix, model_type) in [("model.", "mbart"), ("", "m2m_100")] {
        let mut all: Tensors = tensors(model_type)
            .into_iter()
            .map(|(name, stored)| match name.strip_prefix("model.") {
                Some(rest) => (format!("{prefix}{rest}"), stored),
                None => (name, stored),
            })
            .collect();
        let expected = bits(&load(directory(&config(model_type), &all).path()).unwrap());
        let mut unused = [
            "classification_head.dense.weight".to_owned(),
            "lm_head.bias".to_owned(),
            format!("{prefix}encoder.embed_positions._float_tensor"),
        ];
        for name in &unused {
            all.insert(name.clone(), random(rng, &[3]));
        }
        let directory = directory(&config(model_type), &all);
        assert_eq!(bits(&load(directory.path()).unwrap()), expected);
        unused.sort();
        let opened = ModelDirectory::open(directory.path()).unwrap();
        assert_eq!(opened.unused_tensors(), unused);
    }
    let ours = tempfile::tempdir().unwrap();
    let model = load(of_type("bart").path()).unwrap();
    model.save(ours.path()).unwrap();
    let opened = ModelDirectory::open(ours.path()).unwrap();
    assert!(opened.unused_tensors().is_empty());
}

/// A table in half precision, as in an old file.
#[test]
fn tables_of_positions_may_be_rounded() {
    use burn::tensor::{bf16, f16};
    // sin(p / 10000^(i / 4)), then cos.
    let numbers = (0..500 * D_MODEL).map(|at| {
        let (position, feature) = ((at / D_MODEL) as f64, at % D_MODEL);
        let angle = position / 10_000_f64.powf((feature % 4) as f64 / 4.0);
        match feature < 4 {
            true => angle.sin() as f32,
            false => angle.cos() as f32,
        }
    });
    let numbers: Vec<f32> = numbers.collect();
    let read = |dtype, halve: &dyn Fn(f32) -> [u8; 2]| {
        let bytes = numbers.iter().flat_map(|&number| halve(number)).collect();
        let mut tensors = tensors("marian");
        tensors.insert(
            "model.encoder.embed_positions.weight".to_owned(),
            (dtype, vec![500, D_MODEL], bytes),
        );
        load(directory(&config("marian"), &tensors).path())
    };
    read(Dtype::F16, &|number| f16::from_f32(number).to_le_bytes()).unwrap();
    read(Dtype::BF16, &|number| bf16::from_f32(number).to_le_bytes()).unwrap();
    // Other values.
    let other = |number: f32| f16::from_f32(number * 0.998).to_le_bytes();
    let message = read(Dtype::F16, &other).unwrap_err().to_string();
    assert!(message.contains("is not the table"), "{message}");
}

/// These keys are not part of our configuration.
#[test]
fn keys_of_the_original_are_kept() {
    for model_type in TYPES {
        let mut config = config(model_type);
        config["encoder_layerdrop"] = json!(0.25);
        config["decoder_layerdrop"] = json!(0.5);
        let original = directory(&config, &tensors(model_type));
        let model = load(original.path()).unwrap();
        let written = |save: &dyn Fn(&Path)| -> [Value; 3] {
            let copy = tempfile::tempdir().unwrap();
            save(copy.path());
            let keys = fs::read(copy.path().join(CONFIG_FILE)).unwrap();
            let keys: Value = serde_json::from_slice(&keys).unwrap();
            let names = [
                "max_position_embeddings",
                "encoder_layerdrop",
                "decoder_layerdrop",
            ];
            names.map(|name| keys[name].clone())
        };
        let original = ModelDirectory::open(original.path()).unwrap();
        let kept = written(&|copy| model.save_hugging_face_as(copy, &original).unwrap());
        assert_eq!(kept, [json!(MAX_LEN), json!(0.25), json!(0.5)]);
        // Without the original, the keys have defaults.
        let length = if model_type.ends_with("bart") {
            MAX_LEN
        } else {
            1024
        };
        let expected = [json!(length), json!(0.0), json!(0.0)];
        assert_eq!(
            written(&|copy| model.save_hugging_face(copy).unwrap()),
            expected
        );
        let ours = tempfile::tempdir().unwrap();
        model.save(ours.path()).unwrap();
        let ours = ModelDirectory::open(ours.path()).unwrap();
        let of_ours = written(&|copy| model.save_hugging_face_as(copy, &ours).unwrap());
        assert_eq!(of_ours, expected);
    }
}

/// As written by Python.
#[test]
fn numbers_that_json_does_not_have_are_read_and_not_used() {
    let directory = of_type("bart");
    let whole = config("bart").to_string();
    let path = directory.path().join(CONFIG_FILE);
    fs::write(
        &path,
        whole.replacen('{', r#"{"other": [NaN, -Infinity],"#, 1),
    )
    .unwrap();
    load(directory.path()).unwrap();
    fs::write(&path, whole.replace("\"dropout\":0.25", "\"dropout\":NaN")).unwrap();
    let reason = "`dropout` is \"NaN\", not a number";
    assert_refused(directory.path(), CONFIG_FILE, reason);
    fs::write(&path, format!("\u{feff}{whole}")).unwrap();
    assert_refused(directory.path(), CONFIG_FILE, "a byte order mark");
}

#[test]
fn marian_may_have_a_vocabulary_for_each_side() {
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    for is_tied in [true, false] {
        let mut config = config("marian");
        config["share_encoder_decoder_embeddings"] = json!(false);
        config["tie_word_embeddings"] = json!(is_tied);
        config["decoder_vocab_size"] = json!(TGT_VOCAB);
        let mut tensors = tensors("marian");
        let source = tensors.remove("model.shared.weight").unwrap();
        let target = random(rng, &[TGT_VOCAB, D_MODEL]);
        tensors.insert("model.encoder.embed_tokens.weight".to_owned(), source);
        tensors.insert("model.decoder.embed_tokens.weight".to_owned(), target);
        tensors.insert("final_logits_bias".to_owned(), random(rng, &[1, TGT_VOCAB]));
        if !is_tied {
            let head = random(rng, &[TGT_VOCAB, D_MODEL]);
            tensors.insert("lm_head.weight".to_owned(), head);
        }
        let model = load(directory(&config, &tensors).path()).unwrap();
        let (found, sizes) = (model.config(), [VOCAB, TGT_VOCAB]);
        assert_eq!([found.src_vocab_size, found.tgt_vocab_size], sizes);
        let copy = tempfile::tempdir().unwrap();
        model.save_hugging_face(copy.path()).unwrap();
        assert_eq!(stored(&copy.path().join(WEIGHTS_FILE)), tensors);
        assert_eq!(bits(&load(copy.path()).unwrap()), bits(&model));
    }
}

#[test]
fn values_of_keys_that_ask_for_another_model_are_refused_by_name() {
    let refused = [
        (
            "bart",
            "model_type",
            json!("gpt_neo"),
            "\"gpt_neo\", not one of marian, m2m_100, bart, mbart, t5, mt5, gpt2",
        ),
        (
            "bart",
            "activation_function",
            json!("tanh"),
            "\"tanh\", not one of relu, gelu",
        ),
        (
            "bart",
            "activation_function",
            json!("gelu_fast"),
            "\"gelu_fast\", not one of",
        ),
        ("bart", "hidden_size", json!(9), "9, but `d_model` is 8"),
        (
            "bart",
            "normalize_before",
            json!(true),
            "true, but must be false for type bart",
        ),
        (
            "mbart",
            "normalize_before",
            json!(false),
            "false, but must be true for type mbart",
        ),
        (
            "marian",
            "add_final_layer_norm",
            json!(true),
            "true, but must be false",
        ),
        (
            "marian",
            "normalize_embedding",
            json!(true),
            "true, but must be false",
        ),
        (
            "marian",
            "static_position_embeddings",
            json!(false),
            "false, but must be true",
        ),
        (
            "m2m_100",
            "is_encoder_decoder",
            json!(false),
            "false, but must be true",
        ),
        (
            "m2m_100",
            "tie_encoder_decoder",
            json!(true),
            "true, but must be false",
        ),
        (
            "m2m_100",
            "quantization_config",
            json!({"bits": 4}),
            "{\"bits\":4}, which is not supported",
        ),
        (
            "m2m_100",
            "eos_token_id",
            json!([2, 3]),
            "[2,3], not a single token",
        ),
        ("m2m_100", "d_model", json!(-8), "-8, not a size"),
        ("m2m_100", "encoder_layers", Value::Null, "null, not a size"),
        ("m2m_100", "dropout", json!("0.1"), "\"0.1\", not a number"),
        (
            "m2m_100",
            "scale_embedding",
            json!(1),
            "1, not true or false",
        ),
    ];
    for (model_type, key, value, reason) in refused {
        let directory = of_type(model_type);
        let mut config = config(model_type);
        config[key] = value;
        write_config(directory.path(), &config);
        assert_refused(
            directory.path(),
            CONFIG_FILE,
            &format!("`{key}` is {reason}"),
        );
    }
    // Sizes that contradict each other or are absurd.
    for (key, value, reason) in [
        (
            "encoder_attention_heads",
            json!(3),
            "`d_model` 8 is not divisible by `encoder_attention_heads` 3",
        ),
        (
            "decoder_attention_heads",
            json!(3),
            "`d_model` 8 is not divisible by `decoder_attention_heads` 3",
        ),
        (
            "pad_token_id",
            json!(2),
            "`pad_token_id` and `eos_token_id` are both 2",
        ),
        ("d_model", json!(1_u64 << 40), "at most 16777216"),
        ("vocab_size", json!(2), "outside the vocabulary of 2"),
    ] {
        let directory = of_type("bart");
        let mut config = config("bart");
        config[key] = value;
        write_config(directory.path(), &config);
        assert_refused(directory.path(), CONFIG_FILE, reason);
    }
}

#[test]
fn damaged_configurations_are_refused() {
    let directory = of_type("bart");
    let whole = config("bart").to_string();
    let nested = ["[", "]"].map(|bracket| bracket.repeat(5_000_000)).concat();
    let nested = format!("{{\"x\": {nested}, {}", &whole[1..]);
    let long = format!("{{\"x\": \"{}\", {}", "x".repeat(10_000_000), &whole[1..]);
    for (text, reason) in [
        (&whole[..whole.len() - 1], "EOF"),
        ("[]", "invalid length 0"),
        (nested.as_str(), "recursion limit exceeded"),
    ] {
        fs::write(directory.path().join(CONFIG_FILE), text).unwrap();
        assert_refused(directory.path(), CONFIG_FILE, reason);
    }
    // Unknown keys are ignored, however long.
    fs::write(directory.path().join(CONFIG_FILE), &long).unwrap();
    load(directory.path()).unwrap();
    let long = long.replace("\"x\"", "\"model_type\"");
    let long = long.replace("\"model_type\":\"bart\",", "");
    fs::write(directory.path().join(CONFIG_FILE), &long).unwrap();
    assert_refused(directory.path(), CONFIG_FILE, "xxx…, not one of marian");
}

#[test]
fn weights_of_another_configuration_are_refused_by_tensor() {
    let whole = tensors("m2m_100");
    let refused = |tensors: &Tensors, reason: &str| {
        let directory = directory(&config("m2m_100"), tensors);
        assert_refused(directory.path(), WEIGHTS_FILE, reason);
    };
    let mut missing = whole.clone();
    missing.remove("model.decoder.layers.0.encoder_attn.k_proj.bias");
    refused(
        &missing,
        "`model.decoder.layers.0.encoder_attn.k_proj.bias` is missing",
    );
    let mut unknown = whole.clone();
    let rng = &mut ChaCha8Rng::seed_from_u64(8);
    unknown.insert(
        "model.encoder.layers.2.fc1.bias".to_owned(),
        random(rng, &[6]),
    );
    refused(&unknown, "`model.encoder.layers.2.fc1.bias` is unknown");
    let mut mistyped = whole.clone();
    let doubles = (Dtype::F64, vec![D_MODEL], vec![0; 8 * D_MODEL]);
    mistyped.insert("model.encoder.layer_norm.bias".to_owned(), doubles);
    refused(
        &mistyped,
        "`model.encoder.layer_norm.bias` is f64, not f32, f16 or bf16",
    );
    let mut none = whole;
    none.retain(|name, _| name == "model.shared.weight");
    refused(&none, "is missing; and ");

    // However many layers are requested, and however wide they are.
    for (key, size) in [("encoder_layers", 1 << 24), ("decoder_ffn_dim", 1 << 24)] {
        let mut config = config("m2m_100");
        config[key] = json!(size);
        let directory = directory(&config, &tensors("m2m_100"));
        assert_refused(
            directory.path(),
            WEIGHTS_FILE,
            "not the weights of this model",
        );
    }
}

#[test]
fn an_index_names_files_beside_it() {
    let parts = tempfile::tempdir().unwrap();
    let path = parts.path();
    write_config(path, &config("bart"));
    write_shards(path, WEIGHTS_FILE, write_tensors);
    load(path).unwrap();
    let index = path.join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap();
    let edited = |from: &str, to: &str| fs::write(&index, text.replacen(from, to, 1)).unwrap();
    let [first, second] = [
        "part-0-of-2-model.safetensors",
        "part-1-of-2-model.safetensors",
    ];
    let index = "model.safetensors.index.json";

    for outside in ["../x", "/etc/passwd", "a/b", ".."] {
        edited(first, outside);
        let reason = format!("`{outside}` is not the name of a file in this directory");
        assert_refused(path, index, &reason);
    }
    edited(first, "nowhere.safetensors");
    assert_refused(path, "nowhere.safetensors", "No such file");
    edited(first, second);
    let reason = format!("`final_logits_bias` is in {first}, not in {second} as listed");
    assert_refused(path, index, &reason);
    edited("\"final_logits_bias\":", "\"else\":");
    assert_refused(path, index, "is not listed");
    edited("\"weight_map\":", "\"weights\":");
    assert_refused(path, index, "missing field `weight_map`");
    edited("", "");

    let shard = path.join(second);
    let whole = fs::read(&shard).unwrap();
    fs::write(&shard, &whole[..whole.len() - 1]).unwrap();
    assert_refused(path, second, "bytes of data, but");
    fs::write(&shard, &whole[..20]).unwrap();
    assert_refused(path, second, "a header of");
    fs::remove_file(&shard).unwrap();
    assert_refused(path, second, "No such file");
    fs::remove_file(path.join(index)).unwrap();
    let named = path.display().to_string();
    let message = load(path).unwrap_err().to_string();
    assert!(
        message.starts_with(&format!("{named}: no weights")),
        "{message}"
    );
}

#[test]
fn configurations_that_no_type_can_have_are_refused_by_key() {
    let paper = TransformerConfig {
        d_model: D_MODEL,
        n_heads: 2,
        d_ff: 4,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..TransformerConfig::base(VOCAB)
    };
    let marian = TransformerConfig {
        positions: Positions::SinesThenCosines {
            inclusive: false,
            first: 0,
        },
        attention_bias: true,
        excluded_tokens: vec![0],
        // Equal to the defaults.
        d_k: Some(4),
        decoder_d_ff: Some(4),
        ..paper.clone()
    };
    let out = tempfile::tempdir().unwrap();
    let saved = |config: &TransformerConfig| {
        let model = config.init::<NdArray>(0, &Default::default()).unwrap();
        model.save_hugging_face(out.path())
    };
    for (config, reason) in [
        (
            paper,
            "`positions` is \"sinusoidal\", which no supported Hugging Face model type has",
        ),
        (
            TransformerConfig {
                attention_bias: false,
                ..marian.clone()
            },
            "`attention_bias` is false, which model type marian does not support: it would be read as true",
        ),
        (
            TransformerConfig {
                d_k: Some(3),
                ..marian.clone()
            },
            "`d_k` is 3,",
        ),
        (
            TransformerConfig {
                excluded_tokens: Vec::new(),
                ..marian.clone()
            },
            "`excluded_tokens` is absent,",
        ),
        (
            TransformerConfig {
                layer_norm_eps: 1e-6,
                ..marian.clone()
            },
            "`layer_norm_eps` is 1e-6, which model type marian does not support",
        ),
        (
            TransformerConfig {
                positions: Positions::Learned { max_len: 5 },
                excluded_tokens: Vec::new(),
                ..marian.clone()
            },
            "`embedding_norm` is absent, which model type bart",
        ),
    ] {
        let message = saved(&config).unwrap_err().to_string();
        let named = out.path().join(CONFIG_FILE).display().to_string();
        assert!(message.starts_with(&named), "{message}");
        assert!(message.contains(reason), "{message}");
    }
    // Nothing was written.
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
    saved(&marian).unwrap();
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 3);
    let generation = fs::read_to_string(out.path().join(GENERATION_FILE)).unwrap();
    let generation: Value = serde_json::from_str(&generation).unwrap();
    let expected = json!({
        "bad_words_ids": [[0]],
        "decoder_start_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    });
    assert_eq!(generation, expected);
    let read = TransformerConfig::load(out.path()).unwrap();
    // The head width is read back as the default, `d_model / n_heads`.
    let share = TransformerConfig {
        d_k: None,
        ..marian
    };
    assert_eq!(read.decoder(), share.decoder());
}

#[test]
fn a_model_with_another_dropout_gets_the_weights_of_a_directory() {
    let directory = of_type("mbart");
    let config = TransformerConfig::load(directory.path()).unwrap();
    let other = TransformerConfig {
        dropout: 0.0,
        ..config.clone()
    };
    let mut model: Transformer<NdArray> = other.init(3, &Default::default()).unwrap();
    let opened = ModelDirectory::open(directory.path()).unwrap();
    opened.fill(&mut model).unwrap();
    assert_eq!(model.config(), &other);
    assert_eq!(bits(&model), bits(&load(directory.path()).unwrap()));

    // The same with one of our directories.
    let ours = tempfile::tempdir().unwrap();
    model.save(ours.path()).unwrap();
    let mut again: Transformer<NdArray> = config.init(4, &Default::default()).unwrap();
    let ours = ModelDirectory::open(ours.path()).unwrap();
    ours.fill(&mut again).unwrap();
    assert_eq!(bits(&again), bits(&model));

    let wider = TransformerConfig { d_ff: 16, ..config };
    let mut wider: Transformer<NdArray> = wider.init(5, &Default::default()).unwrap();
    let message = opened.fill(&mut wider).unwrap_err().to_string();
    assert!(message.contains("feed_forward.inner"), "{message}");
}

#[test]
fn the_start_token_is_that_of_generation() {
    let directory = of_type("m2m_100");
    let path = directory.path().join(GENERATION_FILE);
    fs::write(&path, r#"{"decoder_start_token_id": 6, "eos_token_id": 2}"#).unwrap();
    let config = TransformerConfig::load(directory.path()).unwrap();
    assert_eq!((config.bos_id, config.eos_id), (6, 2));
    fs::write(&path, r#"{"eos_token_id": 3}"#).unwrap();
    let reason = "`eos_token_id` is 3, but 2 in config.json";
    assert_refused(directory.path(), GENERATION_FILE, reason);
}
