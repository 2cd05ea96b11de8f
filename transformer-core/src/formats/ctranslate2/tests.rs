use std::fs;
use std::path::Path;

use burn::tensor::{Int, Tensor};
use burn_ndarray::NdArray;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::formats::ctranslate2::export::CTranslate2Export;
use crate::formats::ctranslate2::names::POSITIONS;
use crate::formats::directory::ModelDirectory;
use crate::formats::names::CONFIG_FILE;
use crate::models::transformer::Transformer;
use crate::models::tying::WeightTying;
use crate::nn::norm::NormKind;
use crate::nn::sublayer::NormPlacement;

fn base() -> TransformerConfig {
    TransformerConfig {
        d_model: 16,
        n_heads: 2,
        d_ff: 24,
        n_encoder_layers: 1,
        n_decoder_layers: 2,
        attention_bias: true,
        ..TransformerConfig::base(11)
    }
}

/// Marian's: targets begin with `<pad>`, the last token, whose embedding is zero.
fn marian() -> TransformerConfig {
    TransformerConfig {
        positions: Positions::SinesThenCosines {
            inclusive: false,
            first: 0,
        },
        generator_bias: true,
        pad_id: 10,
        bos_id: 10,
        excluded_tokens: vec![10],
        ..base()
    }
}

fn configs() -> [TransformerConfig; 7] {
    [
        base(),
        marian(),
        TransformerConfig {
            positions: Positions::SinesThenCosines {
                inclusive: true,
                first: 2,
            },
            norm: NormPlacement::Pre,
            final_norm: true,
            attention_bias: false,
            embedding_scale: false,
            decoder_n_heads: Some(4),
            decoder_d_ff: Some(20),
            bos_id: 2,
            ..base()
        },
        TransformerConfig {
            positions: Positions::Learned { max_len: 9 },
            embedding_norm: true,
            tying: WeightTying::SourceTarget,
            activation: transformer_kernels::Activation::Gelu,
            layer_norm_eps: 1e-6,
            ..base()
        },
        TransformerConfig {
            tgt_vocab_size: 7,
            tying: WeightTying::None,
            source_eos: false,
            source_bos: Some(1),
            activation: transformer_kernels::Activation::Silu,
            ..base()
        },
        // The first T5's and the later ones' keys, together.
        TransformerConfig {
            norm: NormPlacement::Pre,
            final_norm: true,
            layer_norm: NormKind::RootMeanSquare,
            layer_norm_eps: 1e-6,
            positions: Positions::RelativeBias {
                buckets: 6,
                max_distance: 5,
            },
            d_k: Some(5),
            d_v: Some(5),
            gated: true,
            activation: transformer_kernels::Activation::GeluTanh,
            attention_bias: false,
            attention_scale: false,
            feed_forward_bias: false,
            generator_scale: true,
            embedding_scale: false,
            // T5's family has one rate for all.
            attention_dropout: 0.1,
            activation_dropout: 0.1,
            bos_id: 0,
            ..base()
        },
        TransformerConfig {
            positions: Positions::Relative { max_distance: 3 },
            ..base()
        },
    ]
}

fn names(count: usize, pad: u32) -> Vec<String> {
    let mut names: Vec<String> = (0..count).map(|id| format!("w{id}")).collect();
    for (id, name) in [(pad, "<pad>"), (1, "<s>"), (2, "</s>"), (3, "<unk>")] {
        name.clone_into(&mut names[id as usize]);
    }
    names
}

fn model(config: &TransformerConfig) -> Transformer<NdArray> {
    let mut model: Transformer<NdArray> = config.init(3, &Default::default()).unwrap();
    if config.excluded_tokens == [config.pad_id] {
        model.src_embedding.weight = model.src_embedding.weight.map(|weight| {
            let device = weight.device();
            let rows = config.pad_id as usize;
            let zeros = Tensor::zeros([1, config.d_model], &device);
            let kept = weight.slice(0..rows);
            Tensor::cat(vec![kept, zeros], 0).detach()
        });
    }
    model
}

/// A folder with the model of a configuration.
fn exported(config: &TransformerConfig, int8: bool) -> (TempDir, Transformer<NdArray>) {
    let folder = tempfile::tempdir().unwrap();
    let model = model(config);
    let export = CTranslate2Export {
        source: &names(config.src_vocab_size, config.pad_id),
        target: &names(config.tgt_vocab_size, config.pad_id),
        int8,
    };
    model.save_ctranslate2(folder.path(), export).unwrap();
    (folder, model)
}

fn logits(model: &Transformer<NdArray>) -> Vec<f32> {
    let tokens =
        |rows: [[i32; 5]; 2]| Tensor::<NdArray, 2, Int>::from_ints(rows, &Default::default());
    let src = tokens([[4, 3, 6, 5, 2], [3, 1, 3, 2, 5]]);
    let tgt = tokens([[4, 5, 3, 6, 2], [3, 1, 4, 5, 2]]);
    model.forward(src, tgt).into_data().to_vec().unwrap()
}

fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }
}

fn read(path: &Path) -> Transformer<NdArray> {
    let directory = ModelDirectory::open(path).unwrap();
    assert_eq!(directory.format(), "CTranslate2");
    directory.transformer(&Default::default()).unwrap()
}

fn refusal(path: &Path) -> String {
    ModelDirectory::open(path).err().unwrap().to_string()
}

#[test]
fn an_exported_model_is_read_as_it_was() {
    for config in configs() {
        let (folder, model) = exported(&config, false);
        let found = read(folder.path());
        assert_eq!(json!(found.config()), json!(model.config()));
        assert_eq!(logits(&found), logits(&model));
    }
}

/// A row's values differ by at most half a step of its scale.
#[test]
fn an_8_bit_model_is_read_in_8_bits() {
    for config in configs() {
        let (folder, model) = exported(&config, true);
        let directory = ModelDirectory::open(folder.path()).unwrap();
        assert!(directory.is_int8());
        let plain = model.src_embedding.weight.val().into_data();
        let plain: Vec<f32> = plain.to_vec().unwrap();
        let found = directory
            .parameter("src_embedding.weight")
            .numbers()
            .unwrap();
        for (row, found) in plain.chunks(16).zip(found.chunks(16)) {
            let largest = row
                .iter()
                .fold(0.0_f32, |most, value| most.max(value.abs()));
            for (value, found) in row.iter().zip(found) {
                assert!(
                    (value - found).abs() <= largest / 127.0 * 0.501,
                    "{value} {found}"
                );
            }
        }
        let found: Transformer<NdArray> = directory.transformer(&Default::default()).unwrap();
        let differences = logits(&found).into_iter().zip(logits(&model));
        assert!(differences.clone().any(|(found, plain)| found != plain));
        for (found, plain) in differences {
            assert!((found - plain).abs() < 0.2, "{found} {plain}");
        }
    }
}

/// The variables of a file in version 6: their names, types, shapes and bytes.
type Variables = Vec<(String, u8, Vec<u32>, Vec<u8>)>;

fn variables(bytes: &[u8]) -> (Variables, Vec<(String, String)>) {
    let mut rest = &bytes[4..];
    fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
        let (first, after) = rest.split_at(count);
        *rest = after;
        first
    }
    fn number(rest: &mut &[u8]) -> u32 {
        u32::from_le_bytes(take(rest, 4).try_into().unwrap())
    }
    fn text(rest: &mut &[u8]) -> String {
        let len = u16::from_le_bytes(take(rest, 2).try_into().unwrap());
        let text = take(rest, len.into());
        String::from_utf8(text[..text.len() - 1].to_vec()).unwrap()
    }
    text(&mut rest);
    number(&mut rest);
    let found = (0..number(&mut rest)).map(|_| {
        let name = text(&mut rest);
        let rank = take(&mut rest, 1)[0];
        let shape = (0..rank).map(|_| number(&mut rest)).collect();
        let kind = take(&mut rest, 1)[0];
        let size = number(&mut rest) as usize;
        (name, kind, shape, take(&mut rest, size).to_vec())
    });
    let found = found.collect();
    let aliases = (0..number(&mut rest)).map(|_| (text(&mut rest), text(&mut rest)));
    (found, aliases.collect())
}

/// A file of these variables in an older version. Before version 3, tensors with aliases are there twice.
fn older(version: u32, (mut all, aliases): (Variables, Vec<(String, String)>)) -> Vec<u8> {
    let text = |text: &str| {
        let mut bytes = (text.len() as u16 + 1).to_le_bytes().to_vec();
        bytes.extend(text.bytes());
        bytes.push(0);
        bytes
    };
    if version < 3 {
        for (alias, name) in &aliases {
            let (_, kind, shape, bytes) = all.iter().find(|own| own.0 == *name).unwrap().clone();
            all.push((alias.clone(), kind, shape, bytes));
        }
    }
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(text("TransformerSpec"));
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend((all.len() as u32).to_le_bytes());
    for (name, kind, shape, values) in all {
        bytes.extend(text(&name));
        bytes.push(shape.len() as u8);
        bytes.extend(shape.iter().flat_map(|size| size.to_le_bytes()));
        let width = [4, 1, 2, 4, 2, 2][usize::from(kind)];
        let (kind, count) = match version {
            4.. => (kind, values.len()),
            _ => (width, values.len() / usize::from(width)),
        };
        bytes.push(kind);
        bytes.extend((count as u32).to_le_bytes());
        bytes.extend(values);
    }
    if version >= 3 {
        bytes.extend((aliases.len() as u32).to_le_bytes());
        for (alias, name) in aliases {
            bytes.extend(text(&alias));
            bytes.extend(text(&name));
        }
    }
    bytes
}

#[test]
fn every_version_is_read() {
    let (folder, model) = exported(&marian(), false);
    let path = folder.path().join(CTRANSLATE2_FILE);
    let newest = fs::read(&path).unwrap();
    for version in 2..=6 {
        fs::write(&path, older(version, variables(&newest))).unwrap();
        // Before aliases, the matrices are not tied, and their products are rounded otherwise.
        assert_close(&logits(&read(folder.path())), &logits(&model));
    }
    for version in [0, 1, 7] {
        fs::write(&path, older(version, variables(&newest))).unwrap();
        let expected =
            format!("version {version} of CTranslate2's format; versions 2 to 6 can be read");
        assert!(refusal(folder.path()).ends_with(&expected));
    }
}

/// A matrix in other types has the values that its rounding gives.
#[test]
fn half_precision_and_16_bit_integers_are_read() {
    let (folder, model) = exported(&base(), false);
    let path = folder.path().join(CTRANSLATE2_FILE);
    let (all, aliases) = variables(&fs::read(&path).unwrap());
    let name = "encoder/layer_0/ffn/linear_0/weight";
    type Convert = fn(f32) -> Vec<u8>;
    let types: [(u8, Convert, f32); 3] = [
        (
            2,
            |value| ((value * 1000.0).round() as i16).to_le_bytes().to_vec(),
            5.01e-4,
        ),
        (
            4,
            |value| burn::tensor::f16::from_f32(value).to_le_bytes().to_vec(),
            5e-4,
        ),
        (
            5,
            |value| burn::tensor::bf16::from_f32(value).to_le_bytes().to_vec(),
            4e-3,
        ),
    ];
    for (kind, convert, most) in types {
        let mut all = all.clone();
        let matrix = all.iter_mut().find(|own| own.0 == name).unwrap();
        let (values, _) = matrix.3.as_chunks::<4>();
        matrix.3 = values
            .iter()
            .flat_map(|value| convert(f32::from_le_bytes(*value)))
            .collect();
        matrix.1 = kind;
        if kind == 2 {
            all.push((
                format!("{name}_scale"),
                0,
                vec![],
                1000_f32.to_le_bytes().to_vec(),
            ));
        }
        fs::write(&path, older(6, (all, aliases.clone()))).unwrap();
        let [found, plain] = [&read(folder.path()), &model].map(|model| {
            let weight = &model.encoder.layers[0].feed_forward.inner.weight;
            weight.val().into_data().to_vec::<f32>().unwrap()
        });
        for (found, plain) in found.iter().zip(&plain) {
            assert!((found - plain).abs() <= most, "{kind}: {found} {plain}");
        }
        assert_ne!(found, plain);
    }
}

/// Exact sines and cosines are used instead of a table in half precision, with which CTranslate2 computes. So would a
/// model that has learned the table, as which it is read when one value, of a position that no text reaches, is
/// another.
#[test]
fn a_table_in_half_precision_changes_logits_by_its_rounding() {
    let (folder, model) = exported(&base(), false);
    let path = folder.path().join(CTRANSLATE2_FILE);
    let (all, aliases) = variables(&fs::read(&path).unwrap());
    let rounded = |last: f32| {
        let mut all = all.clone();
        let tables = all.iter_mut().filter(|own| POSITIONS.contains(&&own.0[..]));
        for table in tables {
            let (values, _) = table.3.as_chunks::<4>();
            let mut values: Vec<f32> = values.iter().copied().map(f32::from_le_bytes).collect();
            *values.last_mut().unwrap() += last;
            let halves = values
                .iter()
                .flat_map(|value| burn::tensor::f16::from_f32(*value).to_le_bytes());
            table.3 = halves.collect();
            table.1 = 4;
        }
        fs::write(&path, older(6, (all, aliases.clone()))).unwrap();
        read(folder.path())
    };
    let [exact, learned] = [0.0, 1.0].map(rounded);
    let positions = |model: &Transformer<NdArray>| model.config().positions;
    assert_eq!(positions(&exact), Positions::Sinusoidal);
    assert_eq!(positions(&learned), Positions::Learned { max_len: 2048 });
    assert_eq!(logits(&exact), logits(&model));
    let pairs = logits(&exact).into_iter().zip(logits(&learned));
    let largest = pairs.fold(0.0_f32, |most, (one, other)| most.max((one - other).abs()));
    assert!((1e-5..1e-3).contains(&largest), "{largest}");
}

#[test]
fn a_file_that_ends_early_is_refused() {
    let (folder, _) = exported(&marian(), true);
    let path = folder.path().join(CTRANSLATE2_FILE);
    let whole = fs::read(&path).unwrap();
    let (all, aliases) = variables(&whole);
    // All lengths, with little data.
    let header = older(6, (all.into_iter().take(2).collect(), aliases));
    for bytes in [&header[..], &whole[..300]] {
        for end in 0..bytes.len() {
            fs::write(&path, &bytes[..end]).unwrap();
            let message = refusal(folder.path());
            assert!(message.contains("model.bin: "), "{message}");
        }
    }
    let mut longer = whole.clone();
    longer.push(0);
    fs::write(&path, longer).unwrap();
    assert!(refusal(folder.path()).ends_with("1 bytes follow the last variable"));
}

#[test]
fn what_no_layer_computes_is_refused_by_name() {
    let (folder, _) = exported(&base(), false);
    let path = folder.path().join(CTRANSLATE2_FILE);
    let (all, aliases) = variables(&fs::read(&path).unwrap());
    let cases: [(&str, Vec<u32>, &str); 8] = [
        (
            "decoder/alibi",
            vec![],
            "`encoder/alibi` is unlike `decoder/alibi`",
        ),
        (
            "decoder/layer_0/self_attention/sliding_window",
            vec![],
            "`decoder/layer_0/self_attention/sliding_window` is set, which is not supported",
        ),
        (
            "decoder/layer_0/ffn/layer_norm/layer_norm_use_residual",
            vec![],
            "`decoder/layer_0/ffn/layer_norm/layer_norm_use_residual` is set, which is not supported",
        ),
        (
            "decoder/layer_0/self_attention/rotary_scaling_type",
            vec![],
            "`decoder/layer_0/self_attention/rotary_scaling_type` is set, which is not supported",
        ),
        (
            "decoder/layer_1/self_attention/queries_scale",
            vec![],
            "`decoder/layer_1/self_attention/queries_scale` is unlike \
             `encoder/layer_0/self_attention/queries_scale`",
        ),
        (
            "encoder/layer_0/self_attention/relative_asymmetric_position_keys",
            vec![1],
            "`encoder/layer_0/self_attention/relative_asymmetric_position_keys` is unknown",
        ),
        (
            "encoder/num_heads",
            vec![],
            "`encoder/num_heads`: there twice",
        ),
        (
            "encoder/layer_0/ffn/linear_2/weight",
            vec![1],
            "`encoder/layer_0/ffn/linear_2/weight` is unknown",
        ),
    ];
    for (name, shape, expected) in cases {
        let mut all = all.clone();
        let kind = if shape.is_empty() { 1 } else { 0 };
        let bytes = if shape.is_empty() {
            vec![1]
        } else {
            vec![0; 4]
        };
        all.push((name.to_owned(), kind, shape, bytes));
        fs::write(&path, older(6, (all, aliases.clone()))).unwrap();
        let message = refusal(folder.path());
        assert!(message.contains(expected), "{message}");
    }
}

/// The settings of rotary positions, in every self-attention of a file.
fn with_rotary(mut all: Variables, base: f32) -> Variables {
    for layer in ["encoder/layer_0", "decoder/layer_0", "decoder/layer_1"] {
        let name = |key| format!("{layer}/self_attention/{key}");
        let dim = 8_i32.to_le_bytes().to_vec();
        all.push((name("rotary_dim"), 3, vec![], dim));
        all.push((name("rotary_interleave"), 1, vec![], vec![0]));
        let base = base.to_le_bytes().to_vec();
        all.push((name("rotary_base"), 0, vec![], base));
    }
    all
}

#[test]
fn rotary_positions_are_of_self_attention_alone() {
    let (folder, _) = exported(&base(), false);
    let path = folder.path().join(CTRANSLATE2_FILE);
    let (all, aliases) = variables(&fs::read(&path).unwrap());
    let file = older(6, (with_rotary(all.clone(), 500.0), aliases.clone()));
    fs::write(&path, file).unwrap();
    let directory = ModelDirectory::open(folder.path()).unwrap();
    let positions = directory.config().positions;
    assert_eq!(positions, Positions::Rotary { base: 500.0 });

    let file = older(6, (with_rotary(all, 0.5), aliases));
    fs::write(&path, file).unwrap();
    let message = refusal(folder.path());
    assert!(message.contains("model.bin: `base` is 0.5"), "{message}");
}

/// A value that no comparison finds, a factor of no scores, and a matrix without values.
#[test]
fn values_that_are_none_are_refused() {
    let (folder, _) = exported(&base(), false);
    let path = folder.path().join(CTRANSLATE2_FILE);
    let (all, aliases) = variables(&fs::read(&path).unwrap());
    let nan = f32::NAN.to_le_bytes().to_vec();
    for (name, shape, bytes, expected) in [
        (
            "decoder/scale_outputs",
            vec![],
            nan,
            "`decoder/scale_outputs`: is NaN",
        ),
        (
            "encoder/layer_0/self_attention/queries_scale",
            vec![],
            vec![0; 4],
            "is unlike `encoder/layer_0/self_attention/queries_scale`",
        ),
        (
            "encoder/embeddings_0/weight",
            vec![11, 0],
            vec![],
            "`decoder/embeddings/weight` is empty",
        ),
    ] {
        let mut all = all.clone();
        all.retain(|(own, ..)| own != name);
        all.push((name.to_owned(), 0, shape, bytes));
        fs::write(&path, older(6, (all, aliases.clone()))).unwrap();
        let message = refusal(folder.path());
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_list_has_a_token_per_row() {
    let (folder, _) = exported(&marian(), false);
    let path = folder.path().join("shared_vocabulary.json");
    let all: Vec<String> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for found in [&all[1..], &[&all[..], &["more".to_owned()]].concat()] {
        fs::write(&path, json!(found).to_string()).unwrap();
        let message = refusal(folder.path());
        let expected = format!(
            "shared_vocabulary.json: {} tokens for a model of {}",
            found.len(),
            all.len()
        );
        assert!(message.contains(&expected), "{message}");
    }
    // OpenNMT's lists lack the unknown token, which has the last row.
    let mut known = all[..all.len() - 1].to_vec();
    "w3".clone_into(&mut known[3]);
    fs::write(&path, json!(known).to_string()).unwrap();
    let directory = ModelDirectory::open(folder.path()).unwrap();
    assert_eq!(directory.config().src_vocab_size, all.len() + 1);
}

#[test]
fn a_vocabulary_must_have_the_tokens_of_the_configuration() {
    let (folder, _) = exported(&base(), false);
    let path = folder.path().join(CONFIG_FILE);
    for (keys, expected) in [
        (
            json!({"decoder_start_token": null}),
            "`decoder_start_token` is null",
        ),
        (
            json!({"decoder_start_token": "<x>"}),
            "the vocabulary has no `<x>`",
        ),
        (json!({"eos_token": 3}), "`eos_token` is 3, not a string"),
        (
            json!({"eos_token": "<x>"}),
            "but the vocabulary has no `<x>`",
        ),
    ] {
        fs::write(&path, keys.to_string()).unwrap();
        let message = refusal(folder.path());
        assert!(message.contains(expected), "{message}");
    }
    fs::remove_file(&path).unwrap();
    let list = folder.path().join("shared_vocabulary.json");
    fs::write(&list, "[1]").unwrap();
    assert!(refusal(folder.path()).contains("shared_vocabulary.json: "));
}

#[test]
fn a_missing_file_is_named() {
    for name in [CTRANSLATE2_FILE, "shared_vocabulary.json"] {
        let (folder, _) = exported(&base(), false);
        fs::remove_file(folder.path().join(name)).unwrap();
        let message = refusal(folder.path());
        assert!(message.contains(name), "{message}");
    }
}

/// Lists without a padding token get one, at the end of the longer list.
#[test]
fn a_padding_token_is_appended_to_both_sides() {
    let config = TransformerConfig {
        tgt_vocab_size: 7,
        tying: WeightTying::TargetGenerator,
        generator_bias: true,
        ..base()
    };
    let (folder, model) = exported(&config, false);
    for name in ["source_vocabulary.json", "target_vocabulary.json"] {
        let path = folder.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("<pad>", "a word")).unwrap();
    }
    let found = read(folder.path());
    assert_eq!(found.config().pad_id, 11);
    assert_eq!(
        [found.config().src_vocab_size, found.config().tgt_vocab_size],
        [12, 12]
    );
    assert_eq!(found.config().excluded_tokens, [7, 8, 9, 10, 11]);
    let (found, plain) = (logits(&found), logits(&model));
    for (found, plain) in found.chunks(12).zip(plain.chunks(7)) {
        assert_close(&found[..7], plain);
        assert_eq!(&found[7..], [0.0; 5]);
    }
}

#[test]
fn what_ctranslate2_lacks_is_not_written() {
    let cases = [
        (
            TransformerConfig {
                positions: Positions::Alibi,
                ..base()
            },
            "positions",
        ),
        (
            TransformerConfig {
                positions: Positions::Rotary { base: 100.0 },
                ..base()
            },
            "positions",
        ),
        (
            TransformerConfig {
                d_v: Some(5),
                ..base()
            },
            "d_v",
        ),
        (
            TransformerConfig {
                n_kv_heads: Some(1),
                ..base()
            },
            "n_kv_heads",
        ),
        (
            TransformerConfig {
                layer_norm: NormKind::UnbiasedDeviation,
                ..base()
            },
            "layer_norm",
        ),
        (
            TransformerConfig {
                source_bos: Some(5),
                ..base()
            },
            "source_bos",
        ),
    ];
    for (config, key) in cases {
        let message = config.check_ctranslate2("model").unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("model/config.json: `{key}` is ")),
            "{message}"
        );
    }
    // The share of a head, which is the default.
    let with_widths = TransformerConfig {
        d_k: Some(8),
        d_v: Some(8),
        ..base()
    };
    for config in configs().into_iter().chain([with_widths]) {
        config.check_ctranslate2("model").unwrap();
    }
}
