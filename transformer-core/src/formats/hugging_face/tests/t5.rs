//! T5's family.

use super::*;
use crate::formats::format::Files;
use crate::formats::hugging_face::config::config as of_keys;
use crate::formats::hugging_face::keys::Keys;
use crate::nn::norm::NormKind;

const HEADS: usize = 2;
/// Not `d_model / n_heads`.
const D_KV: usize = 3;
const D_FF: usize = 6;
const BUCKETS: usize = 5;

/// The first T5 and T5 v1.1.
const KINDS: [bool; 2] = [false, true];

fn config(is_v1_1: bool) -> Value {
    let mut config = json!({
        "model_type": "t5",
        "vocab_size": VOCAB,
        "d_model": D_MODEL,
        "d_kv": D_KV,
        "d_ff": D_FF,
        "num_layers": LAYERS[0].1,
        "num_decoder_layers": LAYERS[1].1,
        "num_heads": HEADS,
        "relative_attention_num_buckets": BUCKETS,
        "relative_attention_max_distance": 9,
        "dropout_rate": 0.25,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "task_specific_params": {"translation": {"prefix": "translate: ", "num_beams": 4}},
    });
    if is_v1_1 {
        config["feed_forward_proj"] = json!("gated-gelu");
        config["tie_word_embeddings"] = json!(false);
    }
    config
}

/// Names and shapes in the class's state dict, with tied tensors once.
fn shapes(is_v1_1: bool) -> Vec<(String, Vec<usize>)> {
    let inner = HEADS * D_KV;
    let mut shapes = vec![("shared.weight".to_owned(), vec![VOCAB, D_MODEL])];
    if is_v1_1 {
        shapes.push(("lm_head.weight".to_owned(), vec![VOCAB, D_MODEL]));
    }
    let mut push = |name: String, shape: &[usize]| {
        shapes.push((format!("{name}.weight"), shape.to_vec()));
    };
    for (side, layers) in LAYERS {
        let bias = "block.0.layer.0.SelfAttention.relative_attention_bias";
        push(format!("{side}.{bias}"), &[BUCKETS, HEADS]);
        push(format!("{side}.final_layer_norm"), &[D_MODEL]);
        let attentions = match side {
            "decoder" => &["SelfAttention", "EncDecAttention"][..],
            _ => &["SelfAttention"],
        };
        for layer in 0..layers {
            let sublayer = |at: usize| format!("{side}.block.{layer}.layer.{at}");
            for (at, attention) in attentions.iter().enumerate() {
                for projection in ["q", "k", "v"] {
                    let name = format!("{}.{attention}.{projection}", sublayer(at));
                    push(name, &[inner, D_MODEL]);
                }
                push(format!("{}.{attention}.o", sublayer(at)), &[D_MODEL, inner]);
                push(format!("{}.layer_norm", sublayer(at)), &[D_MODEL]);
            }
            let last = sublayer(attentions.len());
            let inner: &[&str] = if is_v1_1 { &["wi_0", "wi_1"] } else { &["wi"] };
            for inner in inner {
                push(format!("{last}.DenseReluDense.{inner}"), &[D_FF, D_MODEL]);
            }
            push(format!("{last}.DenseReluDense.wo"), &[D_MODEL, D_FF]);
            push(format!("{last}.layer_norm"), &[D_MODEL]);
        }
    }
    shapes
}

fn tensors(is_v1_1: bool) -> Tensors {
    let rng = &mut ChaCha8Rng::seed_from_u64(5);
    let shapes = shapes(is_v1_1).into_iter();
    shapes
        .map(|(name, shape)| (name, random(rng, &shape)))
        .collect()
}

fn of_kind(is_v1_1: bool) -> TempDir {
    directory(&config(is_v1_1), &tensors(is_v1_1))
}

/// The configuration of the first T5.
fn first() -> TransformerConfig {
    TransformerConfig {
        d_model: D_MODEL,
        n_heads: HEADS,
        d_k: Some(D_KV),
        d_v: Some(D_KV),
        d_ff: D_FF,
        n_encoder_layers: LAYERS[0].1,
        n_decoder_layers: LAYERS[1].1,
        norm: NormPlacement::Pre,
        final_norm: true,
        layer_norm: NormKind::RootMeanSquare,
        layer_norm_eps: 1e-6,
        positions: Positions::RelativeBias {
            buckets: BUCKETS,
            max_distance: 9,
        },
        attention_scale: false,
        feed_forward_bias: false,
        generator_scale: true,
        embedding_scale: false,
        dropout: 0.25,
        attention_dropout: 0.25,
        activation_dropout: 0.25,
        pad_id: 0,
        bos_id: 0,
        eos_id: 1,
        ..TransformerConfig::base(VOCAB)
    }
}

fn v1_1() -> TransformerConfig {
    TransformerConfig {
        tying: WeightTying::SourceTarget,
        generator_scale: false,
        activation: Activation::GeluTanh,
        gated: true,
        ..first()
    }
}

/// The configuration read from keys.
fn read(config: &Value) -> Result<TransformerConfig, ModelError> {
    let directory = tempfile::tempdir().unwrap();
    write_config(directory.path(), config);
    let keys = Keys::of_config(&Files::of(directory.path()).unwrap()).unwrap();
    let (_, read) = of_keys(&keys, None)?;
    Ok(read)
}

#[test]
fn each_model_of_the_family_has_its_configuration() {
    assert_eq!(read(&config(false)).unwrap(), first());
    assert_eq!(read(&config(true)).unwrap(), v1_1());
    // mT5 has other defaults.
    let mut mt5 = config(false);
    mt5["model_type"] = json!("mt5");
    mt5.as_object_mut()
        .unwrap()
        .remove("decoder_start_token_id");
    assert_eq!(read(&mt5).unwrap(), v1_1());
    let mut short = config(false);
    for key in [
        "num_decoder_layers",
        "relative_attention_num_buckets",
        "relative_attention_max_distance",
        "dropout_rate",
    ] {
        short.as_object_mut().unwrap().remove(key);
    }
    let expected = TransformerConfig {
        n_decoder_layers: 2,
        positions: Positions::RelativeBias {
            buckets: 32,
            max_distance: 128,
        },
        dropout: 0.1,
        attention_dropout: 0.1,
        activation_dropout: 0.1,
        ..first()
    };
    assert_eq!(read(&short).unwrap(), expected);
}

#[test]
fn the_feed_forward_network_is_that_of_the_class() {
    use Activation::{Gelu, GeluTanh, Relu, Silu};
    for (keys, expected) in [
        (json!({"feed_forward_proj": "relu"}), (Relu, false)),
        (json!({"feed_forward_proj": "gelu"}), (Gelu, false)),
        (json!({"feed_forward_proj": "gated-relu"}), (Relu, true)),
        (json!({"feed_forward_proj": "gated-gelu"}), (GeluTanh, true)),
        (json!({"feed_forward_proj": "gated-silu"}), (Silu, true)),
        (json!({"feed_forward_proj": "gelu_new"}), (GeluTanh, false)),
        (
            json!({"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu"}),
            (Gelu, true),
        ),
        (
            json!({"feed_forward_proj": "relu", "is_gated_act": true}),
            (Relu, true),
        ),
    ] {
        let mut config = config(false);
        for (key, value) in keys.as_object().unwrap() {
            config[key] = value.clone();
        }
        let read = read(&config).unwrap();
        assert_eq!((read.activation, read.gated), expected, "{keys}");
    }
}

#[test]
fn import_export_import_changes_no_bit() {
    for is_v1_1 in KINDS {
        let model = load(of_kind(is_v1_1).path()).unwrap();
        let copy = tempfile::tempdir().unwrap();
        model.save_hugging_face(copy.path()).unwrap();
        assert_eq!(stored(&copy.path().join(WEIGHTS_FILE)), tensors(is_v1_1));
        let again = load(copy.path()).unwrap();
        assert_eq!(again.config(), model.config());
        assert_eq!(bits(&again), bits(&model));
        let keys = fs::read_to_string(copy.path().join(CONFIG_FILE)).unwrap();
        let keys: Value = serde_json::from_str(&keys).unwrap();
        for (key, value) in config(is_v1_1).as_object().unwrap() {
            assert!(
                key == "task_specific_params" || keys[key] == *value,
                "{key}"
            );
        }
    }
}

#[test]
fn the_gate_and_the_inner_layer_keep_their_places() {
    let tensors = tensors(true);
    let ours = collected(&load(of_kind(true).path()).unwrap());
    for (path, name) in [("gate", "wi_0"), ("inner", "wi_1")] {
        let data = &ours[&format!("decoder.layers.0.feed_forward.{path}.weight")];
        let name = format!("decoder.block.0.layer.2.DenseReluDense.{name}.weight");
        let theirs = matrix(&tensors, &name);
        for (at, &number) in data.as_slice::<f32>().unwrap().iter().enumerate() {
            assert_eq!(number, theirs[at % D_FF][at / D_FF], "{name}");
        }
    }
}

/// As in MADLAD-400's and the first T5's files.
#[test]
fn tied_tensors_may_have_any_of_their_names() {
    for is_v1_1 in KINDS {
        let expected = bits(&load(of_kind(is_v1_1).path()).unwrap());
        let mut tensors = tensors(is_v1_1);
        let shared = tensors.remove("shared.weight").unwrap();
        tensors.insert("decoder.embed_tokens.weight".to_owned(), shared.clone());
        let only = directory(&config(is_v1_1), &tensors);
        assert_eq!(bits(&load(only.path()).unwrap()), expected);
        tensors.insert("encoder.embed_tokens.weight".to_owned(), shared);
        let unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
        let rng = &mut ChaCha8Rng::seed_from_u64(6);
        tensors.insert(unused.to_owned(), random(rng, &[BUCKETS, HEADS]));
        let both = directory(&config(is_v1_1), &tensors);
        assert_eq!(bits(&load(both.path()).unwrap()), expected);

        let other = random(rng, &[VOCAB, D_MODEL]);
        tensors.insert("encoder.embed_tokens.weight".to_owned(), other);
        let differing = directory(&config(is_v1_1), &tensors);
        let reason = "`decoder.embed_tokens.weight` differs from `encoder.embed_tokens.weight`, which it is tied to";
        assert_refused(differing.path(), WEIGHTS_FILE, reason);
    }
}

#[test]
fn every_format_holds_the_same_model() {
    use burn::tensor::bf16;
    let expected = bits(&load(of_kind(true).path()).unwrap());
    let bin = tempfile::tempdir().unwrap();
    write_config(bin.path(), &config(true));
    write_bin(&bin.path().join("pytorch_model.bin"), &tensors(true));
    assert_eq!(bits(&load(bin.path()).unwrap()), expected);
    let halves = tensors(true).into_iter().map(|(name, (_, shape, bytes))| {
        let (numbers, _) = bytes.as_chunks::<4>();
        let halves = numbers
            .iter()
            .flat_map(|&bytes| bf16::from_f32(f32::from_le_bytes(bytes)).to_le_bytes());
        (name, (Dtype::BF16, shape, halves.collect()))
    });
    let halves = directory(&config(true), &halves.collect());
    assert_eq!(bits(&load(halves.path()).unwrap()), expected);
}

#[test]
fn values_of_keys_that_ask_for_another_model_are_refused_by_name() {
    let no_activation = "not one of relu, gelu, gelu_new, gelu_pytorch_tanh, silu, swish";
    for (key, value, reason) in [
        (
            "model_type",
            json!("umt5"),
            "\"umt5\", whose layers each have relative biases of their own",
        ),
        (
            "feed_forward_proj",
            json!("tanh"),
            &format!("\"tanh\", {no_activation}"),
        ),
        ("feed_forward_proj", json!("gated"), "\"gated\", not one of"),
        (
            "feed_forward_proj",
            json!("a-relu"),
            "\"a-relu\", not one of",
        ),
        (
            "feed_forward_proj",
            Value::Null,
            "null, but a value is required",
        ),
        (
            "dense_act_fn",
            json!("gelu_fast"),
            "\"gelu_fast\", not one of",
        ),
        ("is_gated_act", json!("yes"), "\"yes\", not true or false"),
        (
            "is_encoder_decoder",
            json!(false),
            "false, but must be true for type t5",
        ),
        (
            "tie_encoder_decoder",
            json!(true),
            "true, but must be false",
        ),
        ("hidden_size", json!(9), "9, but `d_model` is 8"),
        ("head_dim", json!(4), "4, but `d_kv` is 3"),
        ("num_hidden_layers", json!(3), "3, but `num_layers` is 2"),
        ("num_heads", Value::Null, "null, not a size"),
        ("d_kv", json!(-1), "-1, not a size"),
        ("d_kv", json!(0), "0; it must be at least 1"),
        ("num_decoder_layers", json!(0), "0; it must be at least 1"),
        ("num_heads", json!(1 << 25), "33554432; at most 16777216"),
        ("dropout_rate", json!(1.5), "1.5; a dropout probability"),
        ("layer_norm_epsilon", json!(0.0), "0; it must be positive"),
        (
            "relative_attention_num_buckets",
            json!(3),
            "3 and `relative_attention_max_distance` 9; there must be",
        ),
        (
            "decoder_start_token_id",
            Value::Null,
            "null, not a single token",
        ),
        ("eos_token_id", json!(99), "99, outside the vocabulary of 7"),
        (
            "quantization_config",
            json!({"bits": 4}),
            "{\"bits\":4}, which is not supported",
        ),
    ] {
        let directory = of_kind(false);
        let mut config = config(false);
        config[key] = value;
        write_config(directory.path(), &config);
        let reason = format!("`{key}` is {reason}");
        assert_refused(directory.path(), CONFIG_FILE, &reason);
    }
}

#[test]
fn hostile_configurations_cause_no_panic() {
    let values = [
        Value::Null,
        json!(-1),
        json!(0),
        json!(1),
        json!(1 << 24),
        json!(u64::MAX),
        json!(1e300),
        json!(true),
        json!("gated-"),
        json!([]),
        json!({}),
    ];
    let directory = of_kind(true);
    let keys = config(true);
    for key in keys.as_object().unwrap().keys() {
        for value in &values {
            let mut config = keys.clone();
            config[key] = value.clone();
            write_config(directory.path(), &config);
            // Whether it is accepted depends on the value.
            let _ = load(directory.path());
        }
    }
}

#[test]
fn weights_of_another_kind_are_refused_by_tensor() {
    let wrong = directory(&config(true), &tensors(false));
    let reason = "`decoder.block.0.layer.2.DenseReluDense.wi.weight` is unknown";
    assert_refused(wrong.path(), WEIGHTS_FILE, reason);
    let wrong = directory(&config(false), &tensors(true));
    let reason = "`lm_head.weight` differs from `shared.weight`, which it is tied to";
    let mut tensors = tensors(false);
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    tensors.insert("lm_head.weight".to_owned(), random(rng, &[VOCAB, D_MODEL]));
    let untied = directory(&config(false), &tensors);
    assert_refused(untied.path(), WEIGHTS_FILE, reason);
    let reason = "`decoder.block.0.layer.2.DenseReluDense.wi.weight` is missing";
    assert_refused(wrong.path(), WEIGHTS_FILE, reason);
}

#[test]
fn configurations_of_ours_are_written_or_refused_by_key() {
    let out = tempfile::tempdir().unwrap();
    for config in [
        v1_1(),
        TransformerConfig {
            // An exact GELU is written in the key that overrides the other.
            activation: Activation::Gelu,
            // Their defaults.
            d_k: None,
            d_v: None,
            ..v1_1()
        },
    ] {
        let model = config.init::<NdArray>(0, &Default::default()).unwrap();
        model.save_hugging_face(out.path()).unwrap();
        let read = load(out.path()).unwrap();
        assert_eq!(read.config().activation, config.activation);
        assert_eq!(read.config().d_k(), config.d_k());
        assert_eq!(bits(&read), bits(&model));
    }
    for (config, reason) in [
        (
            TransformerConfig {
                attention_scale: true,
                ..first()
            },
            "`attention_scale` is absent, which model type t5 does not support",
        ),
        (
            TransformerConfig {
                generator_scale: false,
                ..first()
            },
            "`generator_scale` is absent, which model type t5",
        ),
        (
            TransformerConfig {
                tying: WeightTying::None,
                ..v1_1()
            },
            "`tying` is \"none\", which model type t5",
        ),
        (
            TransformerConfig {
                attention_dropout: 0.0,
                ..first()
            },
            "`attention_dropout` is 0.0, which model type t5",
        ),
        (
            TransformerConfig {
                d_v: Some(2),
                ..first()
            },
            "`d_v` is 2, which model type t5",
        ),
    ] {
        let message = config.check_hugging_face(out.path()).unwrap_err();
        let message = message.to_string();
        assert!(message.contains(reason), "{message}");
    }
}
