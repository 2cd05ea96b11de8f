//! Pretrained models whose results are changed: the comparison notices every kind of error. That there is none, on any
//! backend, is shown in `backends`.

#[path = "../../support/fixtures.rs"]
mod fixtures;
#[path = "../../support/process.rs"]
mod process;

use std::fs;
use std::path::Path;
use std::process::Command;

use burn_ndarray::NdArray;
use fixtures::{change_json, copied, mbart_with_language_last};
use parity::Pretrained;
use process::{run, stdout};
use safetensors::SafeTensors;
use serde_json::{Value, json};

#[test]
fn a_source_may_end_in_its_language_and_the_decoder_start_with_the_targets() {
    let copy = mbart_with_language_last();
    let pretrained = Pretrained::open(copy.path()).unwrap();
    let report = pretrained.compare::<NdArray>(&Default::default()).unwrap();
    assert!(report.passed());
}

#[test]
fn the_comparison_notices_errors() {
    let compared = |change: &dyn Fn(&Path)| {
        let copy = copied("m2m100");
        change(copy.path());
        let report = Pretrained::open(copy.path())
            .and_then(|pretrained| pretrained.compare::<NdArray>(&Default::default()));
        report.map(|report| report.passed()).map_err(|error| {
            let path = format!("{}/", copy.path().display());
            error.to_string().replace(&path, "")
        })
    };
    assert_eq!(compared(&|_| {}), Ok(true));
    let sentence = |change: &dyn Fn(&mut Value)| {
        compared(&|path| {
            let path = path.join("expected.json");
            change_json(&path, |value| change(&mut value["sentences"][3]));
        })
    };
    assert_eq!(
        sentence(&|sentence| sentence["ids"][1] = json!(7)),
        Ok(false)
    );
    let greedy = |sentence: &mut Value| sentence["beam1"]["ids"][3] = json!(7);
    assert_eq!(sentence(&greedy), Ok(false));
    let start = |sentence: &mut Value| sentence["beam4"]["ids"][0] = json!(7);
    let error = sentence(&start).unwrap_err();
    assert!(error.starts_with("expected.json: "), "{error}");
    let logit = |number: f32| {
        compared(&|path| {
            let path = path.join("io.safetensors");
            let mut bytes = fs::read(&path).unwrap();
            let file = SafeTensors::deserialize(&bytes).unwrap();
            let of_logits = file.tensor("logits").unwrap().data();
            let at = of_logits.as_ptr() as usize - bytes.as_ptr() as usize;
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            fs::write(path, bytes).unwrap();
        })
    };
    for number in [f32::NAN, 0.5] {
        assert_eq!(logit(number), Ok(false));
    }
    let error = compared(&|path| fs::remove_file(path.join("io.safetensors")).unwrap());
    assert!(error.unwrap_err().starts_with("io.safetensors: "));
}

/// A language model with another epsilon, scale of the scores, activation or order of a matrix's numbers.
#[test]
fn the_comparison_notices_another_language_model() {
    let compared = |change: &dyn Fn(&Path)| {
        let copy = copied("gpt2");
        change(copy.path());
        let pretrained = Pretrained::open(copy.path()).unwrap();
        let report = pretrained.compare::<NdArray>(&Default::default()).unwrap();
        report.passed()
    };
    assert!(compared(&|_| {}));
    for (key, value) in [
        ("layer_norm_epsilon", json!(1e-5)),
        ("scale_attn_weights", json!(false)),
        ("activation_function", json!("gelu")),
    ] {
        let change = |path: &Path| {
            change_json(&path.join("config.json"), |config| {
                config[key] = value.clone();
            });
        };
        assert!(!compared(&change), "{key}");
    }
    // `attn.c_proj` is square: transposed, it has the same shape.
    let transpose = |path: &Path| {
        let path = path.join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = file.tensor("h.0.attn.c_proj.weight").unwrap();
        let (width, numbers) = (tensor.shape()[0], tensor.data().to_vec());
        let at = tensor.data().as_ptr() as usize - bytes.as_ptr() as usize;
        for row in 0..width {
            for column in 0..width {
                let [from, to] = [(row, column), (column, row)].map(|(a, b)| 4 * (a * width + b));
                bytes[at + to..at + to + 4].copy_from_slice(&numbers[from..from + 4]);
            }
        }
        fs::write(path, bytes).unwrap();
    };
    assert!(!compared(&transpose));
}

/// The fourth token of one translation is as likely as another up to rounding: their logits are 3e-6 apart in f64.
/// Which of them is chosen here does not matter.
#[test]
fn either_of_two_equally_likely_tokens_is_greedy_s() {
    let [expected, equal, unlikely] = [49, 39, 17];
    let reports = [expected, equal].map(|token| {
        let (is_same, out) = with_fourth_token(token);
        assert!(is_same, "{out}");
        out
    });
    let has_tie = |out: &String| {
        out.contains("0 of 15 differ, and 1 after a tie")
            && out.contains(": token 4 is another one")
    };
    assert!(reports.iter().any(has_tie), "{reports:?}");
    let (is_same, out) = with_fourth_token(unlikely);
    assert!(!is_same, "{out}");
    assert!(out.contains("FAILED  1 of 15 differ"), "{out}");
}

/// Whether the program accepts a model's translations if the fourth token of one of those expected is `token`; and its
/// report.
fn with_fourth_token(token: u32) -> (bool, String) {
    let copy = copied("nllb-sharded");
    change_json(&copy.path().join("expected.json"), |expected| {
        let text = "I was hoping that you'd know the answer.";
        let mut sentences = expected["sentences"].as_array_mut().unwrap().iter_mut();
        let sentence = sentences.find(|sentence| sentence["text"] == text).unwrap();
        // After the start token, the language, and two more.
        let fourth = &mut sentence["beam1"]["ids"][4];
        assert_eq!(*fourth, 49);
        *fourth = token.into();
    });
    let output = run(Command::new(env!("CARGO_BIN_EXE_parity"))
        .arg("--pretrained")
        .arg(copy.path()));
    (output.status.success(), stdout(&output))
}
