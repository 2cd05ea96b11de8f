//! The systems that a fixture's `config.json` describes.

use serde::Deserialize;
use transformer_core::TransformerConfig;
use transformer_core::formats::PytorchSystem;
use transformer_core::models::WeightTying;
use transformer_core::nn::{Activation, LayerConfig, NormKind, NormPlacement, Positions};
use transformer_train::TrainingConfig;

use super::Result;

/// Positions that a class's table of sines and cosines may have.
const MOST_POSITIONS: usize = 1_000_000;

/// The system that a `config.json` describes.
pub(super) enum System {
    Model(Box<ModelSystem>),
    Layer(Box<LayerConfig>),
}

pub(super) struct ModelSystem {
    pub system: PytorchSystem,
    pub config: TransformerConfig,
    /// Positions of the tables that the PyTorch classes keep.
    pub max_len: usize,
    pub label_smoothing: f64,
    pub training: TrainingConfig,
}

#[derive(Deserialize)]
struct LayerJson {
    d_model: usize,
    n_heads: usize,
    d_ff: usize,
    norm: NormPlacement,
    attention_bias: bool,
    activation: Activation,
    #[serde(default = "variance")]
    layer_norm: NormKind,
    layer_norm_eps: f64,
}

#[derive(Deserialize)]
struct ModelJson {
    system: PytorchSystem,
    #[serde(flatten)]
    layer: LayerJson,
    n_layers: usize,
    src_vocab: usize,
    tgt_vocab: usize,
    max_len: usize,
    final_norm: bool,
    positions: PositionsJson,
    generator_bias: bool,
    embedding_scale: bool,
    tied: TiedJson,
    pad: u32,
    bos: u32,
    eos: u32,
    label_smoothing: f64,
    training: TrainingJson,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PositionsJson {
    Sinusoidal,
    Learned,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TiedJson {
    None,
    SrcTgt,
    TgtGenerator,
    All,
}

#[derive(Deserialize)]
struct TrainingJson {
    optimizer: String,
    beta1: f64,
    beta2: f64,
    eps: f64,
    schedule: String,
    factor: f64,
    warmup: usize,
}

fn variance() -> NormKind {
    NormKind::Variance
}

impl System {
    pub fn from_json(json: serde_json::Value) -> Result<Self> {
        if json["system"] == "encoder-layer" {
            let json: LayerJson = serde_json::from_value(json)?;
            Ok(Self::Layer(Box::new(json.config()?)))
        } else {
            let json: ModelJson = serde_json::from_value(json)?;
            Ok(Self::Model(Box::new(json.model()?)))
        }
    }
}

impl LayerJson {
    fn config(&self) -> Result<LayerConfig> {
        let mut config = LayerConfig::new(self.d_model, self.n_heads, self.d_ff)?;
        config.self_attention.bias = self.attention_bias;
        config.feed_forward.activation = self.activation;
        config.sublayer.placement = self.norm;
        config.sublayer.norm.kind = self.layer_norm;
        config.sublayer.norm.epsilon = self.layer_norm_eps;
        config.sublayer.dropout = 0.0;
        config.validate()?;
        Ok(config)
    }
}

impl ModelJson {
    fn model(self) -> Result<ModelSystem> {
        let config = TransformerConfig {
            src_vocab_size: self.src_vocab,
            tgt_vocab_size: self.tgt_vocab,
            d_model: self.layer.d_model,
            n_heads: self.layer.n_heads,
            d_ff: self.layer.d_ff,
            n_encoder_layers: self.n_layers,
            n_decoder_layers: self.n_layers,
            norm: self.layer.norm,
            final_norm: self.final_norm,
            layer_norm: self.layer.layer_norm,
            layer_norm_eps: self.layer.layer_norm_eps,
            positions: match self.positions {
                PositionsJson::Sinusoidal => Positions::Sinusoidal,
                PositionsJson::Learned => Positions::Learned {
                    max_len: self.max_len,
                },
            },
            attention_bias: self.layer.attention_bias,
            generator_bias: self.generator_bias,
            embedding_scale: self.embedding_scale,
            tying: match self.tied {
                TiedJson::None => WeightTying::None,
                TiedJson::SrcTgt => WeightTying::SourceTarget,
                TiedJson::TgtGenerator => WeightTying::TargetGenerator,
                TiedJson::All => WeightTying::All,
            },
            activation: self.layer.activation,
            dropout: 0.0,
            pad_id: self.pad,
            bos_id: self.bos,
            eos_id: self.eos,
            ..TransformerConfig::base(self.src_vocab)
        };
        config.validate()?;
        if !(1..=MOST_POSITIONS).contains(&self.max_len) {
            let max_len = self.max_len;
            return Err(format!("`max_len` is {max_len}, not 1 to {MOST_POSITIONS}").into());
        }
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            let smoothing = self.label_smoothing;
            return Err(format!("`label_smoothing` is {smoothing}; it must be in [0, 1]").into());
        }
        Ok(ModelSystem {
            system: self.system,
            config,
            max_len: self.max_len,
            label_smoothing: self.label_smoothing,
            training: self.training.config()?,
        })
    }
}

impl TrainingJson {
    fn config(&self) -> Result<TrainingConfig> {
        let paper = self.optimizer == "adam"
            && self.schedule == "noam"
            && (self.beta1, self.beta2, self.eps) == (0.9, 0.98, 1e-9);
        if !paper {
            return Err("only Adam(0.9, 0.98, 1e-9) with the paper's schedule is compared".into());
        }
        let config = TrainingConfig {
            warmup: self.warmup,
            learning_rate_factor: self.factor,
            ..TrainingConfig::default()
        };
        config.validate()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_its_configuration_refuses_is_refused() {
        let json = include_str!("../../fixtures/encoder-layer/config.json");
        let mut json: serde_json::Value = serde_json::from_str(json).expect("JSON");
        assert!(System::from_json(json.clone()).is_ok());
        json["layer_norm_eps"] = 0.0.into();
        let error = System::from_json(json).err().expect("an error").to_string();
        assert!(error.starts_with("`layer_norm_eps` is 0"), "{error}");
    }
}
