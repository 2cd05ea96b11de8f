//! The average of models is the mean of each weight, for any type of model; models that do not go together
//! are refused by file and name, and nothing is written.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use tempfile::TempDir;
use transformer_train::run::{AverageError, average_models, newest_checkpoints};

const CONFIG: &str = r#"{"format": 1, "model": "tagger", "n_tags": 2}"#;

/// A tensor: its name, type, shape and bytes.
type Tensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

fn f32s(name: &'static str, shape: &[usize], numbers: &[f32]) -> Tensor {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    (name, Dtype::F32, shape.to_vec(), bytes.collect())
}

fn f64s(name: &'static str, numbers: &[f64]) -> Tensor {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    (name, Dtype::F64, vec![numbers.len()], bytes.collect())
}

fn i64s(name: &'static str, numbers: &[i64]) -> Tensor {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    (name, Dtype::I64, vec![numbers.len()], bytes.collect())
}

/// A directory of models.
struct Models(TempDir);

impl Models {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes weights, and no configuration.
    fn weights(&self, name: &str, tensors: &[Tensor]) -> PathBuf {
        let model = self.path(name);
        fs::create_dir_all(&model).unwrap();
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            let view = TensorView::new(*dtype, shape.clone(), bytes).unwrap();
            (*name, view)
        });
        safetensors::serialize_to_file(views, None, &model.join("model.safetensors")).unwrap();
        model
    }

    fn model(&self, name: &str, tensors: &[Tensor]) -> PathBuf {
        let model = self.weights(name, tensors);
        fs::write(model.join("config.json"), CONFIG).unwrap();
        model
    }

    /// The error of averaging these, which must write nothing.
    fn refused(&self, models: &[PathBuf]) -> String {
        let out = self.path("averaged");
        let error = average_models(models, &out).unwrap_err();
        assert!(!out.exists(), "{error}");
        // Shorter: without the folder of this test.
        let folder = format!("{}/", self.0.path().display());
        error.to_string().replace(&folder, "")
    }
}

fn bytes(model: &Path) -> Vec<u8> {
    fs::read(model.join("model.safetensors")).unwrap()
}

/// A tensor of a model, in 32 bits.
fn read_f32s(model: &Path, name: &str) -> Vec<f32> {
    let bytes = bytes(model);
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = file.tensor(name).unwrap();
    assert_eq!(tensor.dtype(), Dtype::F32);
    let (numbers, _) = tensor.data().as_chunks::<4>();
    numbers
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect()
}

#[test]
fn each_weight_is_the_mean_of_its_values() {
    let models = Models::new();
    let tensors = |weight: [f32; 4], bias: f32, table: f64| {
        [
            f32s("weight", &[2, 2], &weight),
            f32s("bias", &[1], &[bias]),
            f64s("scale", &[table]),
        ]
    };
    let all = [
        models.model("first", &tensors([1.0, -2.0, 0.5, 16_777_216.0], 1.0, 1.0)),
        models.model("second", &tensors([2.0, 2.0, 0.25, 1.0], 0.0, 2.0)),
        models.model("third", &tensors([6.0, 3.0, 0.0, 1.0], 0.0, 4.5)),
    ];
    let two = models.path("two");
    average_models(&all[..2], &two).unwrap();
    assert_eq!(read_f32s(&two, "weight")[..3], [1.5, 0.0, 0.375]);

    let three = models.path("three");
    average_models(&all, &three).unwrap();
    // In 32 bits 2^24 + 1 is 2^24, and the last mean would be 5 592 405.5.
    assert_eq!(read_f32s(&three, "weight"), [3.0, 1.0, 0.25, 5_592_406.0]);
    assert_eq!(read_f32s(&three, "bias"), [1.0 / 3.0]);
    let written = bytes(&three);
    let file = SafeTensors::deserialize(&written).unwrap();
    assert_eq!(file.len(), 3);
    let scale = file.tensor("scale").unwrap();
    assert_eq!(
        (scale.dtype(), scale.data()),
        (Dtype::F64, &2.5f64.to_le_bytes()[..])
    );
    assert_eq!(
        fs::read_to_string(three.join("config.json")).unwrap(),
        CONFIG
    );
    assert_eq!(fs::read_dir(&three).unwrap().count(), 2);
}

#[test]
fn halves_are_averaged_in_single_precision() {
    let models = Models::new();
    // The bits of 1 and 2, and of 1 and 1 + 2^-7, whose means 16 bits of the second type do not have.
    let halves = |f16: u16, bf16: u16| {
        [
            ("f16", Dtype::F16, vec![1], f16.to_le_bytes().to_vec()),
            ("bf16", Dtype::BF16, vec![1, 1], bf16.to_le_bytes().to_vec()),
        ]
    };
    let first = models.model("first", &halves(0x3c00, 0x3f80));
    let second = models.model("second", &halves(0x4000, 0x3f81));
    let config = r#"{"model_type": "bart", "torch_dtype": "float16", "d_model": 8}"#;
    for model in [&first, &second] {
        fs::write(model.join("config.json"), config).unwrap();
    }
    let out = models.path("averaged");
    average_models(&[first, second], &out).unwrap();
    assert_eq!(read_f32s(&out, "f16"), [1.5]);
    assert_eq!(read_f32s(&out, "bf16"), [1.0 + 1.0 / 256.0]);
    let written = fs::read_to_string(out.join("config.json")).unwrap();
    assert!(written.contains(r#""torch_dtype": "float32""#), "{written}");
}

#[test]
fn the_average_of_one_is_itself_bit_for_bit() {
    let models = Models::new();
    let numbers = [
        -0.0,
        f32::MIN_POSITIVE / 3.0,
        f32::MAX,
        f32::NEG_INFINITY,
        0.1,
    ];
    let model = models.model("model", &[f32s("a", &[5], &numbers), i64s("b", &[1, -1])]);
    let out = models.path("averaged");
    average_models(&[&model], &out).unwrap();
    assert!(bytes(&out) == bytes(&model));

    let twice = models.path("twice");
    average_models(&[&model, &model], &twice).unwrap();
    assert!(bytes(&twice) == bytes(&model));
}

#[test]
fn a_model_without_a_configuration_is_averaged_too() {
    let models = Models::new();
    let first = models.weights("first", &[f32s("a", &[1], &[1.0])]);
    let second = models.weights("second", &[f32s("a", &[1], &[2.0])]);
    let out = models.path("averaged");
    average_models(&[&first, &second], &out).unwrap();
    assert_eq!(read_f32s(&out, "a"), [1.5]);
    assert!(!out.join("config.json").exists());

    let third = models.model("third", &[f32s("a", &[1], &[3.0])]);
    fs::remove_dir_all(&out).unwrap();
    assert_eq!(
        models.refused(&[first, third]),
        "third/config.json: `format` is 1, but absent in first/config.json"
    );
}

#[test]
fn models_that_differ_are_refused_by_file_and_name() {
    let models = Models::new();
    let first = models.model(
        "first",
        &[f32s("a", &[2, 1], &[1.0, 2.0]), i64s("table", &[1, 2])],
    );
    let table = || i64s("table", &[1, 2]);
    let a = || f32s("a", &[2, 1], &[1.0, 2.0]);
    for (tensors, expected) in [
        (vec![table()], "`a` is absent, but F32 [2, 1] in"),
        (
            vec![a(), table(), f32s("b", &[1], &[0.0])],
            "`b` is F32 [1], but absent in",
        ),
        (
            vec![f32s("a", &[1, 2], &[1.0, 2.0]), table()],
            "`a` is F32 [1, 2], but F32 [2, 1] in",
        ),
        (
            vec![f64s("a", &[1.0, 2.0]), table()],
            "`a` is F64 [2], but F32 [2, 1] in",
        ),
        (
            vec![a(), i64s("table", &[1, 3])],
            "`table` has other values than in",
        ),
    ] {
        let second = models.model("second", &tensors);
        let error = models.refused(&[first.clone(), second]);
        let named = format!("second/model.safetensors: {expected} first/model.safetensors");
        assert!(error.starts_with(&named), "{error}");
    }

    let second = models.model("second", &[a(), table()]);
    fs::write(second.join("config.json"), CONFIG.replace('2', "3")).unwrap();
    assert_eq!(
        models.refused(&[first.clone(), second.clone()]),
        "second/config.json: `n_tags` is 3, but 2 in first/config.json"
    );
    fs::write(second.join("config.json"), &CONFIG[..20]).unwrap();
    let error = models.refused(&[first, second]);
    assert!(error.starts_with("second/config.json: EOF"), "{error}");
    assert_eq!(models.refused(&[]), "no model to average");
}

#[test]
fn damaged_weights_are_named() {
    let models = Models::new();
    let first = models.model("first", &[f32s("a", &[2], &[1.0, 2.0])]);
    let second = models.model("second", &[f32s("a", &[2], &[1.0, 2.0])]);
    let whole = bytes(&second);
    let mut long_header = whole.clone();
    long_header[..8].fill(255);
    for damaged in [
        &whole[..0],
        &whole[..4],
        &whole[..12],
        &whole[..whole.len() - 1],
        &long_header[..],
    ] {
        fs::write(second.join("model.safetensors"), damaged).unwrap();
        let error = models.refused(&[first.clone(), second.clone()]);
        assert!(error.starts_with("second/model.safetensors: "), "{error}");
    }
    fs::remove_file(second.join("model.safetensors")).unwrap();
    let error = models.refused(&[first, second]);
    assert!(error.starts_with("second/model.safetensors: "), "{error}");
}

#[test]
fn tokenizers_and_options_are_copied_from_the_model_or_from_the_run_of_a_checkpoint() {
    let models = Models::new();
    let tensors = [f32s("a", &[1], &[1.0])];
    let run = models.model("run", &tensors);
    let files = ["tokenizer.json", "generation_config.json"];
    for name in files {
        fs::write(run.join(name), "the run's").unwrap();
    }
    let checkpoint = models.model("run/checkpoints/update-00000004", &tensors);
    let bare = models.model("bare", &tensors);
    for (number, chosen) in [&[&run, &bare][..], &[&checkpoint], &[&bare, &checkpoint]]
        .into_iter()
        .enumerate()
    {
        let out = models.path(&format!("averaged {number}"));
        average_models(chosen, &out).unwrap();
        for name in files {
            assert_eq!(fs::read_to_string(out.join(name)).unwrap(), "the run's");
        }
    }

    let other = models.model("other", &tensors);
    fs::write(other.join("source_tokenizer.json"), "the run's").unwrap();
    assert_eq!(
        models.refused(&[run, other]),
        "other: not the tokenizer of run"
    );
}

#[test]
fn a_model_is_not_overwritten() {
    let models = Models::new();
    let first = models.model("first", &[f32s("a", &[1], &[1.0])]);
    let second = models.model("second", &[f32s("a", &[1], &[2.0])]);
    let before = bytes(&second);
    let error = average_models(&[&first, &second], &second).unwrap_err();
    assert!(matches!(error, AverageError::Occupied(out) if out == second));
    assert!(bytes(&second) == before);
}

#[test]
fn the_newest_checkpoints_are_found_and_counted() {
    let models = Models::new();
    let checkpoints = models.path("run/checkpoints");
    for name in [
        "update-00000012",
        "update-00000004",
        "update-100000000",
        "update-00000016.tmp",
        "notes",
    ] {
        fs::create_dir_all(checkpoints.join(name)).unwrap();
    }
    let run = models.path("run");
    assert_eq!(
        newest_checkpoints(&run, 2).unwrap(),
        ["update-00000012", "update-100000000"].map(|name| checkpoints.join(name))
    );
    let error = newest_checkpoints(&run, 4).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "run: has 3 checkpoints, fewer than 4; a larger `keep_checkpoints` keeps more"
        ),
        "{error}"
    );
    let nowhere = newest_checkpoints(models.path("nowhere"), 1).unwrap_err();
    assert!(nowhere.to_string().contains("nowhere: has 0 checkpoints"));
}
