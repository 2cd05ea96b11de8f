//! The projection to vocabulary logits (§3.4).

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::config::TransformerConfig;
use crate::embedding::TokenEmbedding;
use crate::init::WeightInit;
use crate::linear::at_every_position;

/// Maps what the decoder computes to one logit per entry of the target vocabulary.
///
/// When it is tied it stores no matrix: it uses the target embedding's, transposed and not scaled.
#[derive(Module, Debug)]
pub struct Generator<B: Backend> {
    /// `[d_model, tgt_vocab_size]`; `None` when tied.
    pub weight: Option<Param<Tensor<B, 2>>>,
    /// `[tgt_vocab_size]`; `None` without bias.
    pub bias: Option<Param<Tensor<B, 1>>>,
}

impl<B: Backend> Generator<B> {
    pub(crate) fn new(
        config: &TransformerConfig,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> Self {
        let vocab_size = config.tgt_vocab_size;
        Self {
            weight: (!config.tying.ties_generator()).then(|| {
                init.linear(config.d_model, vocab_size, false, device)
                    .weight
            }),
            bias: config
                .generator_bias
                .then(|| Param::from_tensor(Tensor::zeros([vocab_size], device))),
        }
    }

    /// Logits, before any softmax.
    ///
    /// # Shapes
    /// - hidden: `[batch, tgt_len, d_model]`
    /// - tgt_embedding: the target embedding, used when tied
    /// - output: `[batch, tgt_len, tgt_vocab_size]`
    pub fn forward(&self, hidden: Tensor<B, 3>, tgt_embedding: &TokenEmbedding<B>) -> Tensor<B, 3> {
        let bias = self.bias.as_ref().map(Param::val);
        let (weight, transposed) = match &self.weight {
            Some(weight) => (weight.val(), false),
            None => (tgt_embedding.weight.val(), true),
        };
        at_every_position(hidden, weight, bias, transposed)
    }
}
