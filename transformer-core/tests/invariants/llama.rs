//! The layers of Llama, compared with Hugging Face's modules: outputs and gradients (`scripts/make-llama-fixture`).

use std::path::Path;

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use safetensors::SafeTensors;
use transformer_core::{
    Activation, AttentionConfig, AttentionWeights, FeedForwardConfig, Mask, NormConfig, NormKind,
};

use crate::common::*;

type Training = Autodiff<NdArray>;

/// Numbers of single precision: sums of some tens of numbers of up to 20.
const BOUND: f64 = 1e-5;

/// The tensors of a file.
struct Fixture(Vec<u8>);

impl Fixture {
    fn read(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/llama");
        Self(std::fs::read(folder.join(name).with_extension("safetensors")).unwrap())
    }

    fn tensor<const D: usize>(&self, name: &str) -> Tensor<Training, D> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = file.tensor(name).unwrap();
        let bytes = tensor.data().chunks(4);
        let numbers = bytes.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        let data = TensorData::new(numbers.collect(), tensor.shape().to_vec());
        Tensor::from_data(data, &Default::default())
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
        assert_close(y.clone(), self.tensor::<D>("y"), BOUND);
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
        let expected = self.fixture.tensor::<D>(&format!("grad.{name}"));
        let found = input.grad(&self.found).unwrap();
        assert_close(found, expected.inner(), BOUND);
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
