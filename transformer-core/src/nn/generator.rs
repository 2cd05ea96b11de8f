//! The projection to vocabulary logits (§3.4).

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::nn::embedding::TokenEmbedding;
use crate::nn::error::assert_sizes;
use crate::nn::init::WeightInit;
use transformer_kernels::{self as ops, ProductPrecision, WeightLayout};

/// The configuration of [`Generator`].
#[derive(Config, Debug)]
pub struct GeneratorConfig {
    /// Width of the hidden states.
    pub d_model: usize,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Whether the matrix is shared with an embedding.
    #[config(default = false)]
    pub tied: bool,
    /// Whether logits have a bias; the paper's have none.
    #[config(default = false)]
    pub bias: bool,
    /// Whether hidden states are divided by √d_model before the projection, as in T5 with tied embeddings.
    #[config(default = false)]
    pub scaled: bool,
}

impl GeneratorConfig {
    /// A projection with weights drawn from the backend's random number generator.
    ///
    /// # Panics
    /// When a size is zero.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Generator<B> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// A projection with weights from `init`.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(&self, init: &mut WeightInit, device: &B::Device) -> Generator<B> {
        assert_sizes(&[("d_model", self.d_model), ("vocab_size", self.vocab_size)]);
        let zeros = || Param::from_tensor(Tensor::zeros([self.vocab_size], device));
        Generator {
            weight: (!self.tied).then(|| {
                let linear = init.linear(self.d_model, self.vocab_size, false, device);
                linear.weight
            }),
            bias: self.bias.then(zeros),
            scaled: self.scaled,
            precision: ProductPrecision::F32,
        }
    }
}

/// Maps the decoder's output to one logit per entry of the target vocabulary (§3.4).
///
/// A tied generator stores no matrix; it uses an embedding's, transposed and not scaled.
#[derive(Module, Debug)]
pub struct Generator<B: Backend> {
    /// `[d_model, vocab_size]`; `None` when tied.
    pub weight: Option<Param<Tensor<B, 2>>>,
    /// `[vocab_size]`; `None` without a bias.
    pub bias: Option<Param<Tensor<B, 1>>>,
    scaled: bool,
    /// The precision of the matrix multiplication in training.
    #[module(skip)]
    pub(crate) precision: ProductPrecision,
}

impl<B: Backend> Generator<B> {
    /// Logits, before the softmax.
    ///
    /// # Shapes
    /// - hidden: `[.., d_model]`, such as `[batch, len, d_model]`, or selected rows `[rows, d_model]`
    /// - embedding: the tied embedding; ignored by an untied generator
    /// - output: `[.., vocab_size]`
    ///
    /// # Panics
    /// When the generator is tied and there is no embedding, or `hidden` is not `d_model` wide.
    pub fn forward<const D: usize>(
        &self,
        hidden: Tensor<B, D>,
        embedding: Option<&TokenEmbedding<B>>,
    ) -> Tensor<B, D> {
        let hidden = match self.scaled {
            true => {
                let d_model = hidden.dims()[D - 1];
                hidden * (d_model as f64).powf(-0.5)
            }
            false => hidden,
        };
        let bias = self.bias.as_ref().map(Param::val);
        let (weight, layout) = match (&self.weight, embedding) {
            (Some(weight), _) => (weight.val(), WeightLayout::InputByOutput),
            (None, Some(embedding)) => (embedding.weight.val(), WeightLayout::OutputByInput),
            (None, None) => panic!("a tied generator needs its embedding"),
        };
        ops::linear(hidden, weight, bias, layout, self.precision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::embedding::EmbeddingConfig;
    use burn_ndarray::NdArray;

    fn generator(tied: bool) -> Generator<NdArray> {
        let config = GeneratorConfig::new(4, 5).with_tied(tied);
        config.init_from(&mut WeightInit::new(1), &Default::default())
    }

    fn hidden() -> Tensor<NdArray, 3> {
        Tensor::ones([2, 3, 4], &Default::default())
    }

    #[test]
    fn an_untied_generator_needs_no_embedding() {
        let logits = generator(false).forward(hidden(), None);
        assert_eq!(logits.dims(), [2, 3, 5]);
    }

    /// Each logit is the sum of an entry's vector, since the hidden states are ones.
    #[test]
    fn a_tied_generator_multiplies_by_its_embedding() {
        let config = EmbeddingConfig::new(5, 4).with_tied(true);
        let init = &mut WeightInit::new(1);
        let embedding: TokenEmbedding<NdArray> = config.init_from(init, &Default::default());
        let logits = generator(true).forward(hidden(), Some(&embedding));
        let sums = embedding.weight.val().sum_dim(1).into_data();
        let sums: Vec<f32> = sums.iter().collect();
        for row in logits.into_data().iter().collect::<Vec<f32>>().chunks(5) {
            for (logit, sum) in row.iter().zip(&sums) {
                assert!((logit - sum).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn chosen_rows_have_the_logits_of_their_positions() {
        let (generator, hidden) = (generator(false), hidden().cumsum(1));
        let all = generator.forward(hidden.clone(), None);
        let rows = hidden.slice([1..2, 1..3]).squeeze_dim::<2>(0);
        let expected = all.slice([1..2, 1..3]).squeeze_dim::<2>(0);
        let difference = (generator.forward(rows, None) - expected).abs().max();
        assert!(difference.into_scalar() < 1e-6);
    }

    #[test]
    #[should_panic(expected = "a tied generator needs its embedding")]
    fn a_tied_generator_needs_its_embedding() {
        generator(true).forward(hidden(), None);
    }
}
