//! Token embeddings (§3.4).

use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::module::embedding;
use burn::tensor::{Int, Tensor};

use crate::config::TransformerConfig;
use crate::init::WeightInit;

/// A table of learned vectors, one per entry of a vocabulary, multiplied by √d_model when looked
/// up.
#[derive(Module, Debug)]
pub struct TokenEmbedding<B: Backend> {
    /// `[vocab_size, d_model]`
    pub weight: Param<Tensor<B, 2>>,
    scaled: bool,
}

impl<B: Backend> TokenEmbedding<B> {
    /// A new one, drawn from `init`.
    ///
    /// Entries are `N(0, 1/d_model)` where they are scaled or serve the generator too, `N(0, 1)`
    /// otherwise: what enters the stack is of unit variance, and the first logits are small.
    pub fn new(
        vocab_size: usize,
        config: &TransformerConfig,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> Self {
        let small = config.embedding_scale || config.tying.ties_generator();
        let std = if small {
            (config.d_model as f64).powf(-0.5)
        } else {
            1.0
        };
        Self {
            weight: init.normal([vocab_size, config.d_model], std, device),
            scaled: config.embedding_scale,
        }
    }

    /// Looks tokens up.
    ///
    /// # Shapes
    /// - tokens: `[batch, len]`
    /// - output: `[batch, len, d_model]`
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let weight = self.weight.val();
        let [_, d_model] = weight.dims();
        let x = embedding(weight, tokens);
        if self.scaled {
            x * (d_model as f64).sqrt()
        } else {
            x
        }
    }
}
