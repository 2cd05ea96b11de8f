//! The layers of Llama, compared with Hugging Face's modules: outputs and gradients (`scripts/make-llama-fixture`).

use std::path::{Path, PathBuf};

use burn::module::{AutodiffModule, Param};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, TensorData};
use safetensors::SafeTensors;
use transformer_core::decoding::{MaxLength, NextToken, greedy};
use transformer_core::nn::{
    Activation, AttentionConfig, AttentionWeights, FeedForwardConfig, Mask, NormConfig, NormKind,
};
use transformer_core::packed::PackedPrecision;
use transformer_core::{LanguageModel, PackedModel, Request};

use crate::common::*;

type Training = Autodiff<NdArray>;

/// Numbers of single precision: sums of some tens of numbers of up to 20.
const BOUND: f64 = 1e-5;

/// The tensors of a file.
struct Fixture(Vec<u8>);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/llama")
}

impl Fixture {
    fn read(name: &str) -> Self {
        let path = folder().join(name).with_extension("safetensors");
        Self(std::fs::read(path).unwrap())
    }

    /// A matrix of tokens.
    fn tokens(&self, name: &str) -> Vec<Vec<u32>> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = file.tensor(name).unwrap();
        let numbers = tensor.data().chunks(8);
        let numbers = numbers.map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()) as u32);
        let numbers: Vec<u32> = numbers.collect();
        let rows = numbers.chunks(tensor.shape()[1]);
        rows.map(<[u32]>::to_vec).collect()
    }

    fn tensor<const D: usize>(&self, name: &str) -> Tensor<Training, D> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let shape = file.tensor(name).unwrap().shape().to_vec();
        let data = TensorData::new(self.numbers(name), shape);
        Tensor::from_data(data, &Default::default())
    }

    /// The numbers of a tensor.
    fn numbers(&self, name: &str) -> Vec<f64> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let bytes = file.tensor(name).unwrap().data().chunks(4);
        let numbers = bytes.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        numbers.map(f64::from).collect()
    }

    /// A tensor whose gradient is asked for.
    fn input<const D: usize>(&self, name: &str) -> Tensor<Training, D> {
        self.tensor(name).require_grad()
    }

    fn parameter<const D: usize>(&self, name: &str) -> Param<Tensor<Training, D>> {
        Param::from_tensor(self.tensor(name))
    }

    /// Compares an output, and returns a comparison of gradients.
    fn compare<const D: usize>(&self, y: Tensor<Training, D>) -> Gradients<'_> {
        assert_close(&values(y.clone()), &self.numbers("y"), BOUND);
        let probed = y * self.tensor("probe");
        Gradients {
            fixture: self,
            found: probed.sum().backward(),
        }
    }
}

struct Gradients<'a> {
    fixture: &'a Fixture,
    found: <Training as burn::tensor::backend::AutodiffBackend>::Gradients,
}

impl Gradients<'_> {
    fn compare<const D: usize>(&self, name: &str, input: &Tensor<Training, D>) -> &Self {
        let expected = self.fixture.numbers(&format!("grad.{name}"));
        let found = input.grad(&self.found).unwrap();
        assert_close(&values(found), &expected, BOUND);
        self
    }
}

#[test]
fn root_mean_square_norm_is_llama_s() {
    let fixture = Fixture::read("norm");
    let config = NormConfig::new(12).with_kind(NormKind::RootMeanSquare);
    let mut norm = config.init(&Default::default());
    norm.gamma = fixture.parameter("gamma");
    let x = fixture.input("x");
    let gradients = fixture.compare::<3>(norm.forward(x.clone()));
    gradients
        .compare("x", &x)
        .compare("gamma", &norm.gamma.val());
}

#[test]
fn gated_feed_forward_is_llama_s() {
    for (name, activation) in [
        ("feed_forward_silu", Activation::Silu),
        ("feed_forward_gelu", Activation::Gelu),
    ] {
        let fixture = Fixture::read(name);
        let config = FeedForwardConfig::new(12, 20)
            .with_activation(activation)
            .with_gated(true)
            .with_bias(false);
        let mut network = config.init(&Default::default());
        network.inner.weight = fixture.parameter("inner");
        network.outer.weight = fixture.parameter("outer");
        let gate = network.gate.as_mut().unwrap();
        gate.weight = fixture.parameter("gate");
        let gate = gate.weight.val();
        let x = fixture.input("x");
        let gradients = fixture.compare::<3>(network.forward(x.clone()));
        gradients
            .compare("x", &x)
            .compare("inner", &network.inner.weight.val())
            .compare("gate", &gate)
            .compare("outer", &network.outer.weight.val());
    }
}

fn attention_config() -> AttentionConfig {
    AttentionConfig::new(12, 4)
        .with_n_kv_heads(Some(2))
        .with_d_k(Some(8))
        .with_d_v(Some(8))
}

fn attention_is_llama_s(name: &str, config: &AttentionConfig) {
    let fixture = Fixture::read(name);
    let mut attention = config.init_self(&Default::default());
    attention.query_key_value.weight = fixture.parameter("query_key_value");
    attention.heads.projection.weight = fixture.parameter("projection");
    let x = fixture.input("x");
    let mask = Mask::causal(5, 5, &Default::default());
    for weights in [AttentionWeights::Discard, AttentionWeights::Return] {
        let output = attention.forward(x.clone(), Some(&mask), weights).output;
        let gradients = fixture.compare::<3>(output);
        gradients
            .compare("x", &x)
            .compare("query_key_value", &attention.query_key_value.weight.val())
            .compare("projection", &attention.heads.projection.weight.val());
    }
}

#[test]
fn rotary_positions_are_llama_s() {
    let config = attention_config().with_rotary_base(Some(100.0));
    attention_is_llama_s("rotary", &config);
}

#[test]
fn heads_in_groups_are_llama_s() {
    attention_is_llama_s("attention", &attention_config());
}

/// The language model that Hugging Face's is, and what that computed.
fn language_model() -> (LanguageModel<Training>, Fixture) {
    let device = Default::default();
    let model = LanguageModel::load(folder().join("model"), &device).unwrap();
    (model, Fixture::read("model/io"))
}

#[test]
fn a_language_model_is_llama_s() {
    let (model, fixture) = language_model();
    let sequences = fixture.tokens("tokens");
    let logits = model.forward(tokens(&sequences));
    assert_close(&values(logits.clone()), &fixture.numbers("logits"), BOUND);

    let [batch, len, vocab_size] = logits.dims();
    let rows = batch * (len - 1);
    let predicted = logits.slice_dim(1, 0..len - 1).reshape([rows, vocab_size]);
    let labels: Tensor<Training, 2, Int> = tokens(&sequences).slice_dim(1, 1..len);
    let log_probs = log_softmax(predicted, 1).gather(1, labels.reshape([rows, 1]));
    let loss = log_probs.mean().neg();
    assert_close(&values(loss.clone()), &fixture.numbers("loss"), BOUND);
    let found = gradients(&model, &loss.backward());
    // Two layers of seven parameters, embedding, norm and generator.
    assert_eq!(found.len(), 2 * 7 + 3);
    for (name, _, found) in found {
        assert_close(&found, &fixture.numbers(&format!("grad.{name}")), BOUND);
    }
}

/// Prompts are read in one pass, the rest token by token; unpacked and packed.
#[test]
fn a_language_model_goes_on_as_llama_does() {
    let (model, fixture) = language_model();
    let model = model.valid();
    let packed = PackedModel::of_language_model(model.clone(), PackedPrecision::F32);
    goes_on_as_llama_does(&model, &fixture);
    goes_on_as_llama_does(&packed, &fixture);
}

fn goes_on_as_llama_does(model: &impl NextToken, fixture: &Fixture) {
    let expected = fixture.tokens("continued");
    let prompts = expected
        .iter()
        .map(|row| Request::prompt(row[1..3].to_vec()));
    let limit = MaxLength::Tokens(expected[0].len() - 1);
    let found = greedy(model, &prompts.collect::<Vec<_>>(), limit).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.tokens, expected[1..]);
    }
}
