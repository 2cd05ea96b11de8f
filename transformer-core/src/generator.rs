//! The projection to vocabulary logits (§3.4).

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::embedding::TokenEmbedding;
use crate::init::WeightInit;
use crate::ops::{self, WeightLayout};

/// The configuration of [`Generator`].
#[derive(Config, Debug)]
pub struct GeneratorConfig {
    /// Width of the hidden states.
    pub d_model: usize,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Whether its matrix is that of an embedding.
    #[config(default = false)]
    pub tied: bool,
    /// Whether logits have a bias; the paper's have none.
    #[config(default = false)]
    pub bias: bool,
}

impl GeneratorConfig {
    /// A projection with weights drawn from the backend's random number generator.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Generator<B> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// A projection with weights from `init`.
    pub fn init_from<B: Backend>(&self, init: &mut WeightInit, device: &B::Device) -> Generator<B> {
        let zeros = || Param::from_tensor(Tensor::zeros([self.vocab_size], device));
        Generator {
            weight: (!self.tied).then(|| {
                let linear = init.linear(self.d_model, self.vocab_size, false, device);
                linear.weight
            }),
            bias: self.bias.then(zeros),
        }
    }
}

/// Maps the decoder's output to one logit per entry of the target vocabulary.
///
/// If it is tied it stores no matrix, but uses that of an embedding, transposed and not scaled.
#[derive(Module, Debug)]
pub struct Generator<B: Backend> {
    /// `[d_model, vocab_size]`; `None` when tied.
    pub weight: Option<Param<Tensor<B, 2>>>,
    /// `[vocab_size]`; `None` without bias.
    pub bias: Option<Param<Tensor<B, 1>>>,
}

impl<B: Backend> Generator<B> {
    /// Logits, before the softmax.
    ///
    /// # Shapes
    /// - hidden: `[batch, len, d_model]`
    /// - embedding: used when tied
    /// - output: `[batch, len, vocab_size]`
    pub fn forward(&self, hidden: Tensor<B, 3>, embedding: &TokenEmbedding<B>) -> Tensor<B, 3> {
        let bias = self.bias.as_ref().map(Param::val);
        let (weight, layout) = match &self.weight {
            Some(weight) => (weight.val(), WeightLayout::InputByOutput),
            None => (embedding.weight.val(), WeightLayout::OutputByInput),
        };
        ops::linear(hidden, weight, bias, layout)
    }
}
