//! Token embeddings (§3.4).

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use crate::nn::error::assert_sizes;
use crate::nn::init::WeightInit;
use transformer_kernels as ops;

/// The configuration of [`TokenEmbedding`].
#[derive(Config, Debug)]
pub struct EmbeddingConfig {
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Width of a token's vector.
    pub d_model: usize,
    /// Whether vectors are multiplied by √d_model, as in the paper.
    #[config(default = true)]
    pub scaled: bool,
    /// Whether the [`Generator`](crate::nn::Generator) shares the vectors, which then start small.
    #[config(default = false)]
    pub tied: bool,
}

impl EmbeddingConfig {
    /// An embedding with vectors drawn from the backend's random number generator.
    ///
    /// # Panics
    /// When a size is zero.
    pub fn init<B: Backend>(&self, device: &B::Device) -> TokenEmbedding<B> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// An embedding with vectors from `init`.
    ///
    /// Elements are `N(0, 1/d_model)` if they are scaled or shared with the generator, `N(0, 1)` otherwise: the input
    /// of the stack has unit variance, and the first logits are small.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> TokenEmbedding<B> {
        assert_sizes(&[("vocab_size", self.vocab_size), ("d_model", self.d_model)]);
        let std = match self.scaled || self.tied {
            true => (self.d_model as f64).powf(-0.5),
            false => 1.0,
        };
        TokenEmbedding {
            weight: init.normal([self.vocab_size, self.d_model], std, device),
            scaled: self.scaled,
        }
    }
}

/// A table of learned vectors, one per entry of a vocabulary, multiplied by √d_model when looked up, if scaled (§3.4).
#[derive(Module, Debug)]
pub struct TokenEmbedding<B: Backend> {
    /// `[vocab_size, d_model]`
    pub weight: Param<Tensor<B, 2>>,
    scaled: bool,
}

impl<B: Backend> TokenEmbedding<B> {
    /// Looks up the vectors of tokens.
    ///
    /// # Shapes
    /// - tokens: `[batch, len]`
    /// - output: `[batch, len, d_model]`
    ///
    /// # Panics
    /// The backend may panic on tokens outside the vocabulary, which are not checked here.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let weight = self.weight.val();
        let [_, d_model] = weight.dims();
        let scale = match self.scaled {
            true => (d_model as f64).sqrt(),
            false => 1.0,
        };
        ops::embedding(weight, tokens, scale)
    }
}
