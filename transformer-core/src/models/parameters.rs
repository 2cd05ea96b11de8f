//! Every parameter of a model, by path and shape, without building it.

use crate::models::config::TransformerConfig;
use crate::nn::parameters::{Parameter, linear_parameters, within};

impl TransformerConfig {
    /// The path, as in `model.safetensors`, and the shape of every parameter of a model with this configuration. Tied
    /// parameters are listed once; no model is built.
    ///
    /// ```
    /// use transformer_core::TransformerConfig;
    ///
    /// let shapes = TransformerConfig::base(1000).parameter_shapes();
    /// let inner = "encoder.layers.5.feed_forward.inner.weight".to_owned();
    /// assert!(shapes.contains(&(inner, vec![512, 2048])));
    /// ```
    pub fn parameter_shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.parameters(usize::MAX)
    }

    /// The parameters of the model, including those of at most `max_layers` layers per stack.
    pub(crate) fn parameters(&self, max_layers: usize) -> Vec<Parameter> {
        let mut parameters = self.parameters_outside_stacks();
        if !self.is_language_model() {
            parameters.extend(within("encoder", self.encoder().parameters(max_layers)));
        }
        parameters.extend(within("decoder", self.decoder().parameters(max_layers)));
        parameters
    }

    /// The parameters outside the stacks.
    fn parameters_outside_stacks(&self) -> Vec<Parameter> {
        let mut parameters = match self.is_language_model() {
            true => self.side_parameters("", self.tgt_vocab_size, true),
            false => {
                let tied = self.tying.ties_source_target();
                let mut sides = self.side_parameters("src_", self.src_vocab_size, true);
                sides.extend(self.side_parameters("tgt_", self.tgt_vocab_size, !tied));
                sides
            }
        };
        let mut generator =
            linear_parameters(self.d_model, self.tgt_vocab_size, self.generator_bias);
        if self.tying.ties_generator() {
            generator.remove(0);
        }
        parameters.extend(within("generator", generator));
        parameters
    }

    /// Embedding, positions and norm of one side, with names that begin with `side`.
    fn side_parameters(
        &self,
        side: &str,
        vocab_size: usize,
        has_embedding: bool,
    ) -> Vec<Parameter> {
        let table = |path: &str, rows| (format!("{side}{path}"), vec![rows, self.d_model]);
        let mut parameters = Vec::new();
        if has_embedding {
            parameters.push(table("embedding.weight", vocab_size));
        }
        if let Some(max_len) = self.max_len() {
            parameters.push(table("positions.learned", max_len));
        }
        if self.embedding_norm {
            let norm = self.norm_config().parameters();
            parameters.extend(within(&format!("{side}embedding_norm"), norm));
        }
        parameters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::tying::WeightTying;
    use crate::nn::init::WeightInit;
    use crate::nn::layer::Mixer;
    use crate::nn::norm::NormKind;
    use crate::nn::parameters::count;
    use crate::nn::positions::Positions;
    use burn_ndarray::NdArray;
    use burn_store::ModuleSnapshot;

    /// The parameters of a built model.
    fn built(config: &TransformerConfig) -> Vec<Parameter> {
        let model = config
            .init_from::<NdArray>(&mut WeightInit::zeros(), &Default::default())
            .unwrap();
        let mut parameters: Vec<_> = model
            .collect(None, None, false)
            .into_iter()
            .map(|tensor| (tensor.full_path(), tensor.shape.iter().copied().collect()))
            .collect();
        parameters.sort();
        parameters
    }

    fn listed(config: &TransformerConfig) -> Vec<Parameter> {
        let mut parameters = config.parameters(usize::MAX);
        parameters.sort();
        parameters
    }

    #[test]
    fn they_are_those_of_a_built_model() {
        let base = TransformerConfig {
            d_model: 6,
            n_heads: 3,
            d_ff: 5,
            n_encoder_layers: 1,
            n_decoder_layers: 2,
            ..TransformerConfig::base(11)
        };
        let configs = [
            TransformerConfig {
                d_k: Some(4),
                d_v: Some(3),
                tying: WeightTying::None,
                tgt_vocab_size: 13,
                ..base.clone()
            },
            TransformerConfig {
                tying: WeightTying::SourceTarget,
                attention_bias: true,
                ..base.clone()
            },
            TransformerConfig {
                tying: WeightTying::TargetGenerator,
                generator_bias: true,
                final_norm: true,
                ..base.clone()
            },
            TransformerConfig {
                positions: Positions::Learned { max_len: 7 },
                decoder_n_heads: Some(1),
                decoder_d_ff: Some(4),
                embedding_norm: true,
                ..base.clone()
            },
            TransformerConfig {
                positions: Positions::RelativeBias {
                    buckets: 7,
                    max_distance: 5,
                },
                decoder_n_heads: Some(1),
                ..base.clone()
            },
            TransformerConfig {
                decoder_mixer: Mixer::Recurrence,
                ..base.clone()
            },
            TransformerConfig {
                layer_norm: NormKind::RootMeanSquare,
                final_norm: true,
                gated: true,
                n_kv_heads: Some(1),
                positions: Positions::Rotary { base: 10_000.0 },
                ..base.clone()
            },
            TransformerConfig {
                gated: true,
                feed_forward_bias: false,
                ..base
            },
        ];
        for config in configs {
            let expected = built(&config);
            assert_eq!(listed(&config), expected);
            assert_eq!(config.num_params(), count(&expected));
        }
    }
}
