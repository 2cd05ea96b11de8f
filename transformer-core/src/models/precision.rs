//! The precision of matrix multiplications in training.

use burn::tensor::backend::Backend;

use crate::models::language_model::LanguageModel;
use crate::models::transformer::Transformer;
use crate::nn::feed_forward::FeedForward;
use crate::nn::generator::Generator;
use crate::nn::heads::AttentionHeads;
use crate::nn::layer::Layer;
use crate::nn::multi_head_attention::MultiHeadAttention;
use crate::nn::recurrence::Recurrence;
use crate::nn::self_attention::SelfAttention;
use crate::nn::stack::Stack;
use transformer_kernels::ProductPrecision;

/// Layers and models whose matrix multiplications in training can have another precision than f32.
///
/// The precision applies to the forward and backward pass where gradients are computed; elsewhere, as in decoding,
/// matrix multiplications are in f32. Parameters are always in f32. The precision is not saved: newly built or loaded
/// layers and models have [`ProductPrecision::F32`].
///
/// The trainer of `transformer-train` sets it. A model of your own passes it to its layers:
///
/// ```
/// use burn::module::Module;
/// use burn::tensor::backend::Backend;
/// use transformer_core::models::MixedPrecision;
/// use transformer_core::nn::{Generator, Layer, ProductPrecision, Stack};
///
/// #[derive(Module, Debug)]
/// struct Tagger<B: Backend> {
///     encoder: Stack<B, Layer<B>>,
///     output: Generator<B>,
/// }
///
/// impl<B: Backend> MixedPrecision for Tagger<B> {
///     fn set_precision(&mut self, precision: ProductPrecision) {
///         self.encoder.set_precision(precision);
///         self.output.set_precision(precision);
///     }
/// }
/// ```
pub trait MixedPrecision {
    /// Sets the precision of all matrix multiplications.
    fn set_precision(&mut self, precision: ProductPrecision);
}

impl<B: Backend> MixedPrecision for Transformer<B> {
    fn set_precision(&mut self, precision: ProductPrecision) {
        self.encoder.set_precision(precision);
        self.decoder.set_precision(precision);
        self.generator.set_precision(precision);
    }
}

impl<B: Backend> MixedPrecision for LanguageModel<B> {
    fn set_precision(&mut self, precision: ProductPrecision) {
        self.decoder.set_precision(precision);
        self.generator.set_precision(precision);
    }
}

impl<B: Backend, L: MixedPrecision> MixedPrecision for Stack<B, L> {
    fn set_precision(&mut self, precision: ProductPrecision) {
        for layer in &mut self.layers {
            layer.set_precision(precision);
        }
    }
}

impl<B: Backend> MixedPrecision for Layer<B> {
    fn set_precision(&mut self, precision: ProductPrecision) {
        if let Some(attention) = &mut self.self_attention {
            attention.set_precision(precision);
        }
        if let Some(recurrence) = &mut self.recurrence {
            recurrence.set_precision(precision);
        }
        if let Some(attention) = &mut self.cross_attention {
            attention.set_precision(precision);
        }
        self.feed_forward.set_precision(precision);
    }
}

impl<B: Backend> MixedPrecision for SelfAttention<B> {
    fn set_precision(&mut self, precision: ProductPrecision) {
        self.heads.set_precision(precision);
    }
}

impl<B: Backend> MixedPrecision for Recurrence<B> {
    fn set_precision(&mut self, precision: ProductPrecision) {
        self.precision = precision;
    }
}

impl<B: Backend> MixedPrecision for MultiHeadAttention<B> {
    fn set_precision(&mut self, precision: ProductPrecision) {
        self.heads.set_precision(precision);
    }
}

impl<B: Backend> MixedPrecision for AttentionHeads<B> {
    fn set_precision(&mut self, precision: ProductPrecision) {
        self.precision = precision;
    }
}

impl<B: Backend> MixedPrecision for FeedForward<B> {
    fn set_precision(&mut self, precision: ProductPrecision) {
        self.precision = precision;
    }
}

impl<B: Backend> MixedPrecision for Generator<B> {
    fn set_precision(&mut self, precision: ProductPrecision) {
        self.precision = precision;
    }
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;
    use crate::models::config::TransformerConfig;

    /// The number of fields with each precision, F32 and Bf16.
    fn precisions(module: &impl std::fmt::Debug) -> [usize; 2] {
        let fields = format!("{module:?}");
        ["precision: F32", "precision: Bf16"].map(|field| fields.matches(field).count())
    }

    #[test]
    fn every_layer_has_the_precision_of_its_model() {
        let device = Default::default();
        let config = TransformerConfig {
            n_encoder_layers: 2,
            n_decoder_layers: 3,
            ..TransformerConfig::notebook_mini(10)
        };
        let mut model = config.init::<NdArray>(0, &device).unwrap();
        // Attention and feed-forward of the encoder's layers, two attentions of the decoder's, the generator.
        let fields = 2 * 2 + 3 * 3 + 1;
        assert_eq!(precisions(&model), [fields, 0]);
        model.set_precision(ProductPrecision::Bf16);
        assert_eq!(precisions(&model), [0, fields]);

        let config = TransformerConfig {
            d_model: 8,
            n_heads: 2,
            d_ff: 8,
            n_decoder_layers: 2,
            ..TransformerConfig::language_model(10)
        };
        let mut model = config.init_language_model::<NdArray>(0, &device).unwrap();
        model.set_precision(ProductPrecision::Bf16);
        assert_eq!(precisions(&model), [0, 2 * 2 + 1]);
    }
}
