//! A model directory of an earlier version is read, and has the same outputs as then
//! (`tests/fixtures/saved-0.1.0`).

use std::fs;
use std::path::PathBuf;

use burn::tensor::{Int, Tensor, TensorData};
use burn_ndarray::NdArray;
use serde::Deserialize;
use transformer_core::decoding::{MaxLength, greedy};
use transformer_core::{Request, Tokenizers, Transformer};

#[derive(Deserialize)]
struct Expected {
    sentences: Vec<String>,
    sources: Vec<Vec<u32>>,
    greedy: Vec<Vec<u32>>,
    forward: Forward,
}

#[derive(Deserialize)]
struct Forward {
    src: Vec<i64>,
    tgt: Vec<i64>,
    logits_shape: [usize; 3],
    logits: Vec<f32>,
}

fn directory() -> PathBuf {
    [
        env!("CARGO_MANIFEST_DIR"),
        "../tests/fixtures/saved-0.1.0/model",
    ]
    .iter()
    .collect()
}

fn expected() -> Expected {
    let json = fs::read_to_string(directory().join("expected.json")).unwrap();
    serde_json::from_str(&json).unwrap()
}

#[test]
fn a_tokenizer_of_0_1_0_encodes_as_it_did() {
    let expected = expected();
    let tokenizers = Tokenizers::load(directory()).unwrap();
    let tokenizer = tokenizers.source();
    for (sentence, source) in expected.sentences.iter().zip(&expected.sources) {
        let tokens = tokenizer.encode(sentence).unwrap();
        assert_eq!([&tokens[..], &[2]].concat(), *source);
    }
}

#[test]
fn a_model_of_0_1_0_gives_the_logits_and_targets_that_it_gave() {
    let device = Default::default();
    let Expected {
        sources,
        greedy: targets,
        forward,
        ..
    } = expected();
    let model = Transformer::<NdArray>::load(directory(), &device).unwrap();
    let rows = forward.logits_shape[0];
    let tokens = |tokens: Vec<i64>| {
        let shape = [rows, tokens.len() / rows];
        Tensor::<NdArray, 2, Int>::from_data(TensorData::new(tokens, shape), &device)
    };
    let logits = model.forward(tokens(forward.src), tokens(forward.tgt));
    assert_eq!(logits.dims(), forward.logits_shape);
    // Not bit for bit: rounding depends on the processor's vector width.
    for (found, expected) in logits.into_data().iter::<f32>().zip(forward.logits) {
        assert!((found - expected).abs() < 1e-4, "{found}, not {expected}");
    }

    let requests: Vec<_> = sources
        .iter()
        .map(|source| Request::exact(&source[..]))
        .collect();
    let hypotheses = greedy(&model, &requests, MaxLength::default()).unwrap();
    for (hypothesis, target) in hypotheses.iter().zip(targets) {
        assert_eq!(hypothesis.tokens, target);
    }
}
