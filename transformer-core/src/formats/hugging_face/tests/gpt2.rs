//! GPT-2's family.

use super::*;
use crate::models::language_model::LanguageModel;

const HEADS: usize = 2;
const LAYERS: usize = 2;
/// Not four times as wide as the model.
const D_FF: usize = 6;

fn config(is_tied: bool) -> Value {
    json!({
        "model_type": "gpt2",
        "vocab_size": VOCAB,
        "n_embd": D_MODEL,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_inner": D_FF,
        "n_positions": MAX_LEN,
        "layer_norm_epsilon": 0.25,
        "resid_pdrop": 0.25,
        "embd_pdrop": 0.25,
        "attn_pdrop": 0.125,
        "tie_word_embeddings": is_tied,
        "bos_token_id": 6,
        "eos_token_id": 6,
        "reorder_and_upcast_attn": true,
        "summary_type": "cls_index",
        "n_ctx": MAX_LEN,
    })
}

fn tensors(is_tied: bool) -> Tensors {
    let mut shapes = vec![
        ("transformer.wte.weight".to_owned(), vec![VOCAB, D_MODEL]),
        ("transformer.wpe.weight".to_owned(), vec![MAX_LEN, D_MODEL]),
    ];
    if !is_tied {
        shapes.push(("lm_head.weight".to_owned(), vec![VOCAB, D_MODEL]));
    }
    let mut push = |name: String, weight: &[usize]| {
        let output = vec![weight[weight.len() - 1]];
        shapes.push((format!("{name}.weight"), weight.to_vec()));
        shapes.push((format!("{name}.bias"), output));
    };
    push("transformer.ln_f".to_owned(), &[D_MODEL]);
    for layer in 0..LAYERS {
        // A `Conv1D` has the shape [input, output].
        for (name, weight) in [
            ("ln_1", &[D_MODEL][..]),
            ("attn.c_attn", &[D_MODEL, 3 * D_MODEL]),
            ("attn.c_proj", &[D_MODEL, D_MODEL]),
            ("ln_2", &[D_MODEL]),
            ("mlp.c_fc", &[D_MODEL, D_FF]),
            ("mlp.c_proj", &[D_FF, D_MODEL]),
        ] {
            push(format!("transformer.h.{layer}.{name}"), weight);
        }
    }
    let rng = &mut ChaCha8Rng::seed_from_u64(5);
    let shapes = shapes.into_iter();
    shapes
        .map(|(name, shape)| (name, random(rng, &shape)))
        .collect()
}

fn of_kind(is_tied: bool) -> TempDir {
    directory(&config(is_tied), &tensors(is_tied))
}

fn load(directory: &Path) -> Result<LanguageModel<NdArray>, ModelError> {
    LanguageModel::load(directory, &Default::default())
}

fn bits(model: &LanguageModel<NdArray>) -> BTreeMap<String, Vec<u8>> {
    let tensors = collected(model).into_iter();
    tensors
        .map(|(path, data)| (path, data.as_bytes().to_vec()))
        .collect()
}

/// Asserts that the directory is refused in one line that begins with the file's path.
#[track_caller]
fn assert_refused(directory: &Path, file: &str, reason: &str) {
    let message = load(directory).unwrap_err().to_string();
    let named = directory.join(file).display().to_string();
    assert!(message.starts_with(&named), "{message}");
    assert!(message.contains(reason), "{message}");
    assert!(!message.contains('\n') && message.len() < 2000, "{message}");
}

fn ours() -> TransformerConfig {
    TransformerConfig {
        d_model: D_MODEL,
        n_heads: HEADS,
        d_ff: D_FF,
        n_encoder_layers: 0,
        n_decoder_layers: LAYERS,
        norm: NormPlacement::Pre,
        final_norm: true,
        layer_norm_eps: 0.25,
        positions: Positions::Learned { max_len: MAX_LEN },
        attention_bias: true,
        embedding_scale: false,
        tying: WeightTying::TargetGenerator,
        activation: Activation::GeluTanh,
        dropout: 0.25,
        attention_dropout: 0.125,
        pad_id: 6,
        bos_id: 6,
        eos_id: 6,
        prompt_bos: false,
        ..TransformerConfig::base(VOCAB)
    }
}

#[test]
fn keys_are_read_with_the_defaults_of_the_class() {
    let read = |config: &Value| {
        let directory = directory(config, &tensors(true));
        TransformerConfig::load_language_model(directory.path()).unwrap()
    };
    assert_eq!(read(&config(true)), ours());
    let untied = directory(&config(false), &tensors(false));
    let untied = TransformerConfig::load_language_model(untied.path()).unwrap();
    assert_eq!(untied.tying, WeightTying::None);
    // Other keys.
    let mut other = config(true);
    other["scale_attn_weights"] = json!(false);
    other["activation_function"] = json!("relu");
    other["pad_token_id"] = json!(3);
    let expected = TransformerConfig {
        attention_scale: false,
        activation: Activation::Relu,
        pad_id: 3,
        ..ours()
    };
    assert_eq!(read(&other), expected);
}

#[test]
fn the_inner_width_is_four_times_the_model_s_where_it_is_null() {
    let mut config = config(true);
    for keys in [Value::Null, json!("absent")] {
        config["n_inner"] = keys.clone();
        if !keys.is_null() {
            config.as_object_mut().unwrap().remove("n_inner");
        }
        let directory = directory(&config, &tensors(true));
        let reason = "`transformer.h.0.mlp.c_fc.weight` is [8, 6], not [8, 32]";
        assert_refused(directory.path(), WEIGHTS_FILE, reason);
    }
}

/// The matrices of a `Conv1D` have our layout; the projection to logits is transposed.
#[test]
fn each_number_is_where_its_product_needs_it() {
    let tensors = tensors(false);
    let ours = collected(&load(of_kind(false).path()).unwrap());
    for (path, name) in [
        (
            "decoder.layers.1.self_attention.query_key_value.weight",
            "transformer.h.1.attn.c_attn.weight",
        ),
        (
            "decoder.layers.1.feed_forward.outer.weight",
            "transformer.h.1.mlp.c_proj.weight",
        ),
    ] {
        assert_eq!(ours[path].as_bytes(), tensors[name].2, "{name}");
    }
    let theirs = matrix(&tensors, "lm_head.weight");
    let generator = ours["generator.weight"].as_slice::<f32>().unwrap();
    for (at, &number) in generator.iter().enumerate() {
        assert_eq!(number, theirs[at % VOCAB][at / VOCAB]);
    }
}

#[test]
fn import_export_import_changes_no_bit() {
    for is_tied in [true, false] {
        let model = load(of_kind(is_tied).path()).unwrap();
        let copy = tempfile::tempdir().unwrap();
        model.save_hugging_face(copy.path()).unwrap();
        assert_eq!(stored(&copy.path().join(WEIGHTS_FILE)), tensors(is_tied));
        let again = load(copy.path()).unwrap();
        assert_eq!(again.config(), model.config());
        assert_eq!(bits(&again), bits(&model));
        let keys = fs::read_to_string(copy.path().join(CONFIG_FILE)).unwrap();
        let keys: Value = serde_json::from_str(&keys).unwrap();
        for (key, value) in config(is_tied).as_object().unwrap() {
            let is_ignored = ["reorder_and_upcast_attn", "summary_type", "n_ctx"];
            assert!(
                is_ignored.contains(&&key[..]) || keys[key] == *value,
                "{key}"
            );
        }
    }
}

/// As in files of the class without the projection, of older versions, and in PyTorch's format.
#[test]
fn files_without_prefix_with_masks_and_of_other_formats_hold_the_same_model() {
    let expected = bits(&load(of_kind(true).path()).unwrap());
    let mut without: Tensors = tensors(true)
        .into_iter()
        .map(|(name, tensor)| (name.replace("transformer.", ""), tensor))
        .collect();
    let masks = [
        ("bias", vec![1, 1, MAX_LEN, MAX_LEN]),
        ("masked_bias", vec![1]),
    ];
    for (name, shape) in masks {
        let rng = &mut ChaCha8Rng::seed_from_u64(6);
        without.insert(format!("h.1.attn.{name}"), random(rng, &shape));
    }
    let plain = directory(&config(true), &without);
    assert_eq!(bits(&load(plain.path()).unwrap()), expected);
    let bin = tempfile::tempdir().unwrap();
    write_config(bin.path(), &config(true));
    write_bin(&bin.path().join("pytorch_model.bin"), &without);
    assert_eq!(bits(&load(bin.path()).unwrap()), expected);
    let opened = ModelDirectory::open(plain.path()).unwrap();
    assert!(opened.unused_tensors().is_empty());
}

#[test]
fn values_of_keys_that_ask_for_another_model_are_refused_by_name() {
    for (key, value, reason) in [
        (
            "scale_attn_by_inverse_layer_idx",
            json!(true),
            "true, but must be false for type gpt2",
        ),
        (
            "add_cross_attention",
            json!(true),
            "true, but must be false",
        ),
        ("is_encoder_decoder", json!(true), "true, but must be false"),
        ("scale_attn_weights", json!(1), "1, not true or false"),
        (
            "activation_function",
            json!("tanh"),
            "\"tanh\", not one of relu, gelu, gelu_new",
        ),
        (
            "embd_pdrop",
            json!(0.5),
            "0.5, but `resid_pdrop` is 0.25; only equal rates are supported",
        ),
        ("hidden_size", json!(9), "9, but `n_embd` is 8"),
        ("num_hidden_layers", json!(9), "9, but `n_layer` is 2"),
        ("n_embd", Value::Null, "null, not a size"),
        ("n_positions", json!(0), "0; it must be at least 1"),
        ("n_layer", json!(0), "0; it must be at least 1"),
        ("n_inner", json!(-1), "-1, not a size"),
        ("layer_norm_epsilon", json!(0.0), "0; it must be positive"),
        (
            "layer_norm_epsilon",
            Value::Null,
            "null, but a value is required",
        ),
        ("bos_token_id", json!(7), "7, outside the vocabulary of 7"),
        ("eos_token_id", json!([5, 6]), "[5,6], not a single token"),
        ("eos_token_id", json!(7), "7, outside the vocabulary of 7"),
        (
            "quantization_config",
            json!({"bits": 4}),
            "{\"bits\":4}, which is not supported",
        ),
    ] {
        let directory = of_kind(true);
        let mut config = config(true);
        config[key] = value;
        write_config(directory.path(), &config);
        let reason = format!("`{key}` is {reason}");
        assert_refused(directory.path(), CONFIG_FILE, &reason);
    }
    let directory = of_kind(true);
    let mut config = config(true);
    config["n_head"] = json!(3);
    write_config(directory.path(), &config);
    let reason = "`n_embd` 8 is not divisible by `n_head` 3";
    assert_refused(directory.path(), CONFIG_FILE, reason);
}

#[test]
fn weights_of_another_configuration_are_refused_by_tensor() {
    let untied = directory(&config(false), &tensors(true));
    let reason = "`lm_head.weight` is missing";
    assert_refused(untied.path(), WEIGHTS_FILE, reason);
    let tied = directory(&config(true), &tensors(false));
    let reason = "`lm_head.weight` differs from `transformer.wte.weight`, which it is tied to";
    assert_refused(tied.path(), WEIGHTS_FILE, reason);
    let mut transposed = tensors(true);
    let (_, shape, _) = transposed
        .get_mut("transformer.h.1.attn.c_attn.weight")
        .unwrap();
    shape.reverse();
    let transposed = directory(&config(true), &transposed);
    let reason = "`transformer.h.1.attn.c_attn.weight` is [24, 8], not [8, 24]";
    assert_refused(transposed.path(), WEIGHTS_FILE, reason);
    let error = super::load(of_kind(true).path()).unwrap_err().to_string();
    assert!(
        error.ends_with("describes a model of type `language-model`, not `transformer`"),
        "{error}"
    );
    let error = TransformerConfig::load(of_kind(true).path()).unwrap_err();
    assert!(matches!(error, ModelError::OtherModel { .. }), "{error}");
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
        json!("x"),
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
fn configurations_of_ours_are_refused_by_key() {
    let out = tempfile::tempdir().unwrap();
    for (config, reason) in [
        (
            TransformerConfig {
                prompt_bos: true,
                ..ours()
            },
            "`prompt_bos` is absent, which model type gpt2 does not support",
        ),
        (
            TransformerConfig {
                norm: NormPlacement::Post,
                ..ours()
            },
            "`norm` is \"post\", which model type gpt2",
        ),
        (
            TransformerConfig {
                generator_bias: true,
                ..ours()
            },
            "`generator_bias` is true, which model type gpt2",
        ),
        (
            TransformerConfig {
                positions: Positions::Sinusoidal,
                ..ours()
            },
            "`positions` is \"sinusoidal\", which no supported",
        ),
    ] {
        let message = config.check_hugging_face(out.path()).unwrap_err();
        let message = message.to_string();
        assert!(message.contains(reason), "{message}");
    }
}

/// A prompt has no start token, so that lengths count the prompt's.
#[test]
fn lengths_of_generation_are_those_of_a_prompt_and_what_follows() {
    use crate::decoding::{DecodeOptions, MaxLength};
    let directory = of_kind(true);
    let read = |keys: &Value| {
        fs::write(directory.path().join(GENERATION_FILE), keys.to_string()).unwrap();
        DecodeOptions::of_directory(directory.path())
    };
    for (keys, expected) in [
        (json!({"max_new_tokens": 4}), (MaxLength::SourcePlus(4), 0)),
        (json!({"max_length": 20}), (MaxLength::SourcePlus(20), 0)),
        (
            json!({"max_length": 30, "min_length": 7}),
            (MaxLength::Tokens(30), 7),
        ),
        (json!({}), (MaxLength::default(), 0)),
    ] {
        let options = read(&keys).unwrap().unwrap();
        assert_eq!((options.max_length, options.min_length), expected, "{keys}");
        // In a directory of ours, too.
        let copy = tempfile::tempdir().unwrap();
        let model = load(directory.path()).unwrap();
        model.save(copy.path()).unwrap();
        options.save(copy.path(), model.config()).unwrap();
        let again = DecodeOptions::of_directory(copy.path()).unwrap();
        assert_eq!(again, Some(options));
    }
    for (key, value) in [
        ("min_new_tokens", json!(1)),
        ("forced_bos_token_id", json!(5)),
    ] {
        let message = read(&json!({key: value})).unwrap_err().to_string();
        let expected = format!("`{key}` is {value}, which is not supported for a language model");
        assert!(message.ends_with(&expected), "{message}");
    }
}
