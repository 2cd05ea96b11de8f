use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use burn_ndarray::NdArray;
use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::*;
use crate::formats::directory::ModelDirectory;
use crate::formats::name_map::TiedNames;
use crate::models::config::TransformerConfig;
use crate::models::transformer::Transformer;

/// The settings of a small model, after these lines.
fn settings(more: &str) -> String {
    let of_all = "type: transformer\ndim-vocabs:\n  - 6\n  - 6\ndim-emb: 8\ntransformer-heads: 2\n\
        transformer-dim-ffn: 12\nenc-depth: 1\ndec-depth: 2\nversion: v1.12 0000\n";
    let has = |key: &str| {
        more.lines()
            .any(|line| line.starts_with(&format!("{key}:")))
    };
    let mut text = more.to_owned();
    let mut skipped = false;
    for line in of_all.lines() {
        let key = line.split(':').next().unwrap();
        skipped = if line.starts_with(' ') {
            skipped
        } else {
            has(key)
        };
        if !skipped {
            text += line;
            text.push('\n');
        }
    }
    text
}

const STUDENT: &str = "transformer-decoder-autoreg: rnn\ndec-cell: ssru\ntied-embeddings-all: true\n\
    transformer-preprocess: \"\"\ntransformer-postprocess: dan\ntransformer-ffn-activation: relu\n";
const PRE: &str = "transformer-preprocess: n\ntransformer-postprocess: da\ntransformer-postprocess-top: n\n\
    transformer-postprocess-emb: nd\ntied-embeddings: true\ntransformer-decoder-dim-ffn: 10\n";
const POSITIONS: &str = "transformer-train-position-embeddings: true\ntied-embeddings-src: true\noutput-omit-bias: true\n";

/// A tensor in a file: its name, type, shape and bytes.
type Stored = (String, u64, Vec<usize>, Vec<u8>);

/// The tensors of a random model with these settings, in Marian's layouts, and the model's parameters by path.
fn tensors(settings: &str, int8: bool) -> (Vec<Stored>, HashMap<String, TensorData>) {
    let keys = yaml(Path::new("x"), settings.as_bytes()).unwrap();
    let side = || crate::formats::vocabularies::Side {
        tokens: tokens(),
        ..Default::default()
    };
    let vocabularies = crate::formats::vocabularies::Vocabularies::extended(side(), None);
    let mut dict = crate::formats::state_dict::StateDict::default();
    if settings.contains("train-position") {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.bin");
        let wpos = vec![("Wpos".to_owned(), 0x404, vec![9, 8], vec![0; 9 * 8 * 4])];
        fs::write(&path, binary(settings, &wpos)).unwrap();
        let size = fs::metadata(&path).unwrap().len();
        dict = model_file::read(&path, files::open(&path).unwrap(), size)
            .unwrap()
            .dict;
    }
    let description = Description {
        keys: &keys,
        tensors: &dict.tensors,
        vocabularies: &vocabularies,
    };
    let config = description.config().unwrap();
    // The last row of the embeddings is the padding token's.
    let own = TransformerConfig {
        pad_id: 2,
        bos_id: 2,
        excluded_tokens: Vec::new(),
        ..config.clone()
    };
    let model: Transformer<NdArray> = own.init(5, &Default::default()).unwrap();
    let mut ours = parameters(&model);
    // Marian's sides share one table.
    if let Some(table) = ours.get("tgt_positions.learned").cloned() {
        ours.insert("src_positions.learned".to_owned(), table);
    }
    let map = Map::transformer(&names::NAMES, &config, 9).unwrap();
    let mut stored = Vec::new();
    for (name, data) in map.export(&ours, TiedNames::Every) {
        // Marian has a shared matrix once.
        let is_other = match name.as_str() {
            "decoder_ff_logit_out_W" => config.tying.ties_generator() || int8,
            "decoder_ff_logit_out_Wt" => config.tying.ties_generator() || !int8,
            "Wemb" => !config.tying.ties_source_target(),
            "encoder_Wemb" | "decoder_Wemb" => config.tying.ties_source_target(),
            _ => false,
        };
        if is_other {
            continue;
        }
        let values = data.to_vec::<f32>().unwrap();
        let shape = data.shape.to_vec();
        let is_matrix = shape.len() == 2 && shape[0] > 1 && !names::is_table(&name);
        let matrix = |values: &[f32]| {
            // `[d_output, d_input]` to `[d_input, d_output]`.
            let [rows, columns] = [shape[0], shape[1]];
            let at = |at: usize| values[at % rows * columns + at / rows];
            (0..rows * columns).map(at).collect::<Vec<f32>>()
        };
        let in_file = match is_matrix {
            true => vec![shape[1], shape[0]],
            false => shape.clone(),
        };
        stored.push(match is_matrix && int8 {
            true => {
                let largest = values
                    .iter()
                    .fold(0_f32, |most, value| most.max(value.abs()));
                let multiplier = 127.0 / largest;
                let integers = values
                    .iter()
                    .map(|value| (value * multiplier).round() as i8 as u8);
                let mut bytes: Vec<u8> = integers.collect();
                bytes.extend(multiplier.to_le_bytes());
                bytes.resize(bytes.len().next_multiple_of(256), 0);
                (name, 0x4101, in_file, bytes)
            }
            false => {
                let values = if is_matrix { matrix(&values) } else { values };
                let bytes = values.iter().flat_map(|value| value.to_le_bytes());
                (name, 0x404, in_file, bytes.collect())
            }
        });
    }
    (stored, ours)
}

fn parameters(model: &Transformer<NdArray>) -> HashMap<String, TensorData> {
    use burn_store::ModuleSnapshot;
    let views = model.collect(None, None, false).into_iter();
    views
        .map(|view| (view.full_path(), view.to_data().unwrap()))
        .collect()
}

fn tokens() -> Vec<String> {
    ["</s>", "<unk>", "a", "b", "c", "d"]
        .map(str::to_owned)
        .into()
}

/// A file in the binary format.
fn binary(settings: &str, tensors: &[Stored]) -> Vec<u8> {
    let text = (
        "special:model.yml".to_owned(),
        0x101,
        vec![settings.len()],
        settings.as_bytes().to_vec(),
    );
    let all: Vec<&Stored> = tensors.iter().chain([&text]).collect();
    let mut bytes = Vec::new();
    let mut put = |number: usize| bytes.extend((number as u64).to_le_bytes());
    put(1);
    put(all.len());
    for (name, kind, shape, values) in &all {
        put(name.len() + 1);
        put(*kind as usize);
        put(shape.len());
        put(values.len());
    }
    for (name, ..) in &all {
        bytes.extend(name.as_bytes());
        bytes.push(0);
    }
    for (_, _, shape, _) in &all {
        bytes.extend(shape.iter().flat_map(|&size| (size as i32).to_le_bytes()));
    }
    let offset = 256 - (bytes.len() + 8) % 256;
    bytes.extend((offset as u64).to_le_bytes());
    bytes.resize(bytes.len() + offset, 0);
    for (_, _, _, values) in &all {
        bytes.extend(values);
    }
    bytes
}

/// An archive of NumPy arrays.
fn archive(settings: &str, tensors: &[Stored]) -> Vec<u8> {
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut put = |name: &str, kind: &str, shape: &str, values: &[u8]| {
        let mut header =
            format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
        while (header.len() + 11) % 16 != 0 {
            header.push(' ');
        }
        header.push('\n');
        zip.start_file(format!("{name}.npy"), options).unwrap();
        zip.write_all(b"\x93NUMPY\x01\x00").unwrap();
        zip.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
        zip.write_all(header.as_bytes()).unwrap();
        zip.write_all(values).unwrap();
    };
    for (name, _, shape, values) in tensors {
        let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
        put(name, "<f4", &format!("{},", shape.join(", ")), values);
    }
    put(
        "special:model.yml",
        "<i1",
        &format!("{},", settings.len()),
        settings.as_bytes(),
    );
    zip.finish().unwrap().into_inner()
}

/// A directory with this model and a list of tokens.
fn directory(name: &str, model: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), model).unwrap();
    let ids = tokens().into_iter().enumerate();
    let list: String = ids
        .map(|(id, token)| format!("\"{token}\": {id}\n"))
        .collect();
    fs::write(folder.path().join("vocab.yml"), list).unwrap();
    folder
}

fn refusal(path: &Path) -> String {
    match ModelDirectory::open(path) {
        Ok(_) => panic!("read"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_parameter_is_read_from_every_kind_of_file() {
    for more in [STUDENT, PRE, POSITIONS, "transformer-postprocess: dan\n"] {
        let settings = settings(more);
        let (floats, ours) = tensors(&settings, false);
        let (integers, _) = tensors(&settings, true);
        for (name, file, tolerance) in [
            ("model.bin", binary(&settings, &floats), 0.0),
            ("model.npz", archive(&settings, &floats), 0.0),
            ("model.intgemm.bin", binary(&settings, &integers), 0.005),
        ] {
            let folder = directory(name, &file);
            let read = ModelDirectory::open(folder.path()).unwrap();
            assert_eq!((read.config().pad_id, read.config().eos_id), (6, 0));
            assert_eq!(read.options().unwrap().unwrap().banned_tokens, [1]);
            let model = read.transformer::<NdArray>(&Default::default()).unwrap();
            let found = parameters(&model);
            assert_eq!(found.len(), ours.len());
            for (path, expected) in &ours {
                let found = found[path].to_vec::<f32>().unwrap();
                let expected = expected.to_vec::<f32>().unwrap();
                let pairs = found.iter().zip(&expected);
                let is_table = path.ends_with("embedding.weight");
                let rest = if is_table {
                    8
                } else {
                    usize::from(path == "generator.bias")
                };
                let without_pad = path.starts_with("generator.weight");
                if without_pad {
                    // `[8, 7]` beside `[8, 6]`.
                    let own = found.chunks(7).flat_map(|row| &row[..6]);
                    assert!(
                        own.zip(&expected)
                            .all(|(own, other)| (own - other).abs() <= tolerance)
                    );
                    continue;
                }
                assert_eq!(found.len(), expected.len() + rest, "{path}");
                assert!(found[expected.len()..].iter().all(|&value| value == 0.0));
                for (own, other) in pairs {
                    assert!(
                        (own - other).abs() <= tolerance,
                        "{path}: {own} instead of {other}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_no_layer_computes_is_refused_by_name() {
    for (more, expected) in [
        ("type: s2s\n", "`type` is \"s2s\", but only `transformer`"),
        (
            "dec-cell: gru\ntransformer-decoder-autoreg: rnn\n",
            "`dec-cell` is \"gru\"",
        ),
        (
            "transformer-decoder-autoreg: average-attention\n",
            "`transformer-decoder-autoreg` is \"average-attention\"",
        ),
        (
            "transformer-ffn-activation: gelu\n",
            "`transformer-ffn-activation` is \"gelu\"",
        ),
        ("transformer-ffn-depth: 3\n", "`transformer-ffn-depth` is 3"),
        (
            "transformer-preprocess: n\n",
            "`transformer-postprocess` is absent",
        ),
        (
            "transformer-postprocess: dhn\n",
            "`transformer-postprocess` is \"dhn\"",
        ),
        (
            "transformer-postprocess-top: a\n",
            "`transformer-postprocess-top` is \"a\"",
        ),
        (
            "transformer-tied-layers:\n  - 1\n  - 1\n",
            "`transformer-tied-layers` is [1,1]",
        ),
        ("lemma-dim-emb: 4\n", "`lemma-dim-emb` is 4"),
        (
            "transformer-rnn-projection: true\n",
            "`transformer-rnn-projection` is true",
        ),
        ("dim-emb: many\n", "`dim-emb` is \"many\""),
        ("dim-vocabs:\n  - 6\n", "`dim-vocabs` is [6]"),
        ("dim-vocabs:\n  - 3\n  - 6\n", "6 tokens for a model of 3"),
        (
            "dim-vocabs:\n  - 99999999999\n  - 6\n",
            "more than any matrix has rows",
        ),
        ("enc-depth: 99999999999\n", "is missing"),
        ("transformer-heads: 0\n", "`transformer-heads` is 0"),
        ("dim-emb: 0\n", "`dim-emb` is 0"),
        ("a: [\n", "not YAML settings"),
    ] {
        let folder = directory("model.bin", &binary(&settings(more), &[]));
        let found = refusal(folder.path());
        assert!(found.contains(expected), "{found}\ninstead of {expected}");
        assert!(!found.contains('\n'), "{found}");
    }
}

#[test]
fn files_are_found_by_settings_or_because_there_are_no_others() {
    let settings = settings(STUDENT);
    let model = binary(&settings, &tensors(&settings, true).0);
    let folder = directory("model.bin", &model);
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    // Not a model: a shortlist, the state of an optimizer, and another system's file.
    for name in ["lex.s2t.bin", "model.npz.optimizer.npz"] {
        fs::write(path(name), &model).unwrap();
    }
    fs::write(path("other.bin"), b"something else").unwrap();
    // PyTorch's files are archives.
    fs::write(path("pytorch_model.bin"), b"PK\x03\x04 and more").unwrap();
    ModelDirectory::open(folder.path()).unwrap();

    fs::write(path("best.bin"), &model).unwrap();
    assert!(refusal(folder.path()).contains("2 models of Marian (best.bin, model.bin)"));
    // Folders are ignored, so that no file outside the directory is read.
    let decoder = "models:\n  - ../../elsewhere/best.bin\nvocabs:\n  - /x/vocab.yml\n  - /x/vocab.yml\nbeam-size: 3\nnormalize: 0.6\n";
    fs::write(path("decoder.yml"), decoder).unwrap();
    let read = ModelDirectory::open(folder.path()).unwrap();
    let options = read.options().unwrap().unwrap();
    assert_eq!(
        options.strategy,
        crate::decoding::Strategy::Beam { size: 3 }
    );
    assert_eq!(
        options.length_penalty,
        crate::decoding::LengthPenalty::Power(0.6)
    );

    fs::write(path("decoder.yml"), format!("{decoder}word-penalty: 1\n")).unwrap();
    assert!(refusal(folder.path()).contains("`word-penalty` is 1"));
    fs::write(path("decoder.yml"), decoder.replace("best.bin", "none.bin")).unwrap();
    assert!(refusal(folder.path()).contains("none.bin"));
    fs::write(
        path("decoder.yml"),
        decoder.replace("models:", "models: 3\nothers:"),
    )
    .unwrap();
    assert!(
        refusal(folder.path()).contains("not YAML settings")
            || refusal(folder.path()).contains("`models` is 3")
    );
    fs::remove_file(path("best.bin")).unwrap();
    // Without names of files, its options count; it is never ignored.
    fs::write(path("decoder.yml"), "beam-size: 2\n").unwrap();
    let read = ModelDirectory::open(folder.path()).unwrap();
    let options = read.options().unwrap().unwrap();
    assert_eq!(
        options.strategy,
        crate::decoding::Strategy::Beam { size: 2 }
    );
    fs::write(path("decoder.yml"), "beam-size: 0\n").unwrap();
    assert!(refusal(folder.path()).contains("decoder.yml: "));
    fs::write(path("decoder.yml"), "beam-size: [1\n").unwrap();
    let message = refusal(folder.path());
    assert!(
        message.contains("decoder.yml: not YAML settings: "),
        "{message}"
    );
    assert!(!message.contains("-->"), "{message}");
    fs::remove_file(path("decoder.yml")).unwrap();
    fs::remove_file(path("vocab.yml")).unwrap();
    assert!(refusal(folder.path()).contains("0 vocabularies"));
    fs::write(path("vocab.yml"), "a: 0\n").unwrap();
    assert!(refusal(folder.path()).contains("vocab.yml: `<unk>` is missing"));
    fs::write(path("vocab.yml"), "a: 99999999999\n").unwrap();
    assert!(refusal(folder.path()).contains("the id 99999999999"));
    fs::write(path("vocab.yml"), "a: 5\nb: 5\n").unwrap();
    assert!(refusal(folder.path()).contains("`a` and another token have the id 5"));
    fs::write(path("vocab.yml"), "- 1\n").unwrap();
    assert!(refusal(folder.path()).contains("vocab.yml: not a vocabulary"));
    fs::remove_file(path("vocab.yml")).unwrap();
    fs::write(path("vocab.spm"), b"\x12\x80").unwrap();
    assert!(refusal(folder.path()).contains("vocab.spm: not a SentencePiece model"));
}

#[test]
fn tensors_have_values_and_multipliers() {
    let settings = settings(STUDENT);
    let (mut integers, _) = tensors(&settings, true);
    let at = integers.iter().position(|(_, kind, ..)| *kind == 0x4101);
    let (name, _, shape, _) = &integers[at.unwrap()];
    let (name, values) = (name.clone(), shape.iter().product::<usize>());
    for multiplier in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        integers[at.unwrap()].3[values..][..4].copy_from_slice(&multiplier.to_le_bytes());
        let folder = directory("model.bin", &binary(&settings, &integers));
        let expected =
            format!("`{name}`: a multiplier of {multiplier}; it must be finite and positive");
        let error = refusal(folder.path());
        assert!(error.contains(&expected), "{error}");
    }
    // Without values, its other size would be a number of scales.
    integers[at.unwrap()].2 = vec![2_147_483_647, 0];
    let folder = directory("model.bin", &binary(&settings, &integers));
    let error = refusal(folder.path());
    assert!(
        error.contains(&format!("`{name}`: [2147483647, 0] of ")),
        "{error}"
    );
}

#[test]
fn damage_is_an_error_in_one_line() {
    let settings = settings(STUDENT);
    let (floats, _) = tensors(&settings, false);
    let (integers, _) = tensors(&settings, true);
    for (name, file) in [
        ("model.bin", binary(&settings, &integers)),
        ("model.npz", archive(&settings, &floats)),
    ] {
        let open = |file: &[u8]| {
            let folder = directory(name, file);
            let read = ModelDirectory::open(folder.path());
            read.and_then(|read| read.transformer::<NdArray>(&Default::default()))
        };
        open(&file).unwrap();
        for len in (8..file.len()).step_by(file.len() / 60) {
            let error = open(&file[..len]).expect_err("a cut file").to_string();
            assert!(!error.contains('\n'), "{error}");
        }
        // Each of these bytes is of a header.
        for at in 8..600 {
            let mut damaged = file.clone();
            damaged[at] ^= 0x80;
            if let Err(error) = open(&damaged) {
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }
}
