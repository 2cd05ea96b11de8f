//! Every parameter of a model, by path and shape, without building it.

use crate::models::config::TransformerConfig;
use crate::models::language_model_config::LanguageModelConfig;
use crate::nn::layer_config::LayerConfig;

/// A parameter: its path in the module, and its shape.
pub(crate) type Parameter = (String, Vec<usize>);

impl LayerConfig {
    /// The parameters of an [`EncoderLayer`](crate::EncoderLayer).
    pub(crate) fn encoder_layer_parameters(&self) -> Vec<Parameter> {
        [
            self.self_attention_parameters(),
            norm("self_attention_sublayer.norm", self.d_model),
            self.feed_forward_parameters(),
            norm("feed_forward_sublayer.norm", self.d_model),
        ]
        .concat()
    }

    /// The parameters of a [`DecoderLayer`](crate::DecoderLayer).
    pub(crate) fn decoder_layer_parameters(&self) -> Vec<Parameter> {
        [
            self.self_attention_parameters(),
            norm("self_attention_sublayer.norm", self.d_model),
            self.cross_attention_parameters(),
            norm("cross_attention_sublayer.norm", self.d_model),
            self.feed_forward_parameters(),
            norm("feed_forward_sublayer.norm", self.d_model),
        ]
        .concat()
    }

    /// Width of all heads' queries or keys.
    pub(crate) fn keys(&self) -> usize {
        self.n_heads * self.d_k
    }

    /// Width of all heads' values.
    pub(crate) fn values(&self) -> usize {
        self.n_heads * self.d_v
    }

    fn self_attention_parameters(&self) -> Vec<Parameter> {
        let path = |part| format!("self_attention.{part}");
        let (width, bias) = (2 * self.keys() + self.values(), self.attention_bias);
        [
            linear(path("query_key_value"), self.d_model, width, bias),
            linear(path("heads.projection"), self.values(), self.d_model, bias),
        ]
        .concat()
    }

    fn cross_attention_parameters(&self) -> Vec<Parameter> {
        let path = |part| format!("cross_attention.{part}");
        let (width, bias) = (self.keys() + self.values(), self.attention_bias);
        [
            linear(path("query"), self.d_model, self.keys(), bias),
            linear(path("key_value"), self.d_model, width, bias),
            linear(path("heads.projection"), self.values(), self.d_model, bias),
        ]
        .concat()
    }

    fn feed_forward_parameters(&self) -> Vec<Parameter> {
        [
            linear("feed_forward.inner", self.d_model, self.d_ff, true),
            linear("feed_forward.outer", self.d_ff, self.d_model, true),
        ]
        .concat()
    }
}

impl TransformerConfig {
    /// The names of the trainable parameters of a model of this configuration, as `model.safetensors` has them,
    /// tied ones once. The model need not be built.
    ///
    /// ```
    /// use transformer_core::TransformerConfig;
    ///
    /// let names = TransformerConfig::base(1000).parameter_names();
    /// assert!(names.contains(&"encoder.layers.5.feed_forward.inner.weight".to_owned()));
    /// ```
    pub fn parameter_names(&self) -> Vec<String> {
        let parameters = self.parameters(usize::MAX).into_iter();
        parameters.map(|(name, _)| name).collect()
    }

    /// The parameters of a [`Transformer`](crate::Transformer); of each stack, those of at most `max_layers` layers.
    pub(crate) fn parameters(&self, max_layers: usize) -> Vec<Parameter> {
        let mut parameters = self.parameters_outside_layers();
        for (stack, layers, of_layer) in [
            (
                "encoder",
                self.n_encoder_layers,
                self.encoder_layer().encoder_layer_parameters(),
            ),
            (
                "decoder",
                self.n_decoder_layers,
                self.decoder_layer().decoder_layer_parameters(),
            ),
        ] {
            for index in 0..layers.min(max_layers) {
                let in_stack = of_layer
                    .iter()
                    .map(|(path, shape)| (format!("{stack}.layers.{index}.{path}"), shape.clone()));
                parameters.extend(in_stack);
            }
        }
        parameters
    }

    /// The parameters of a [`Transformer`](crate::Transformer) that are in no layer.
    pub(crate) fn parameters_outside_layers(&self) -> Vec<Parameter> {
        let table = |path: &str, rows| vec![(path.to_owned(), vec![rows, self.d_model])];
        let mut parameters = table("src_embedding.weight", self.src_vocab_size);
        if !self.tying.ties_source_target() {
            parameters.extend(table("tgt_embedding.weight", self.tgt_vocab_size));
        }
        if let Some(max_len) = self.max_len() {
            parameters.extend(table("src_positions.learned", max_len));
            parameters.extend(table("tgt_positions.learned", max_len));
        }
        if self.embedding_norm {
            parameters.extend(norm("src_embedding_norm", self.d_model));
            parameters.extend(norm("tgt_embedding_norm", self.d_model));
        }
        if self.final_norm {
            parameters.extend(norm("encoder.final_norm", self.d_model));
            parameters.extend(norm("decoder.final_norm", self.d_model));
        }
        let (width, vocab_size) = (self.d_model, self.tgt_vocab_size);
        let mut generator = linear("generator", width, vocab_size, self.generator_bias);
        if self.tying.ties_generator() {
            generator.remove(0);
        }
        parameters.extend(generator);
        parameters
    }
}

impl LanguageModelConfig {
    /// The parameters of a [`LanguageModel`](crate::LanguageModel) that are in no layer.
    pub(crate) fn parameters_outside_layers(&self) -> Vec<Parameter> {
        let table = |path: &str, rows| vec![(path.to_owned(), vec![rows, self.d_model])];
        let mut parameters = table("embedding.weight", self.vocab_size);
        if let Some(max_len) = self.max_len() {
            parameters.extend(table("positions.learned", max_len));
        }
        if self.final_norm {
            parameters.extend(norm("decoder.final_norm", self.d_model));
        }
        let (width, vocab_size) = (self.d_model, self.vocab_size);
        let mut generator = linear("generator", width, vocab_size, self.generator_bias);
        if self.tied {
            generator.remove(0);
        }
        parameters.extend(generator);
        parameters
    }
}

/// The number of elements of the parameters.
pub(crate) fn count(parameters: &[Parameter]) -> u128 {
    let size = |(_, shape): &Parameter| shape.iter().map(|&size| size as u128).product::<u128>();
    parameters.iter().map(size).sum()
}

fn linear(path: impl AsRef<str>, d_input: usize, d_output: usize, bias: bool) -> Vec<Parameter> {
    let path = path.as_ref();
    let weight = (format!("{path}.weight"), vec![d_input, d_output]);
    let bias = bias.then(|| (format!("{path}.bias"), vec![d_output]));
    [weight].into_iter().chain(bias).collect()
}

fn norm(path: &str, width: usize) -> Vec<Parameter> {
    ["gamma", "beta"]
        .map(|name| (format!("{path}.{name}"), vec![width]))
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::init::WeightInit;
    use crate::nn::layer_config::{Positions, WeightTying};
    use burn_ndarray::NdArray;
    use burn_store::ModuleSnapshot;

    /// The parameters of a model that is built.
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
