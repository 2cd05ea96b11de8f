//! The configuration of a model, from `special:model.yml`.

use std::collections::BTreeMap;

use serde_json::Value;
use transformer_kernels::Activation;

use crate::formats::error::ModelError;
use crate::formats::hugging_face::keys::Keys;
use crate::formats::marian::names::POSITIONS;
use crate::formats::state_dict::stored::StoredTensor;
use crate::formats::vocabularies::{END, Vocabularies};
use crate::models::config::TransformerConfig;
use crate::models::tying::WeightTying;
use crate::nn::layer::Mixer;
use crate::nn::norm::NormKind;
use crate::nn::positions::Positions;
use crate::nn::sublayer::NormPlacement;

/// What describes a model.
pub(super) struct Description<'a> {
    pub keys: &'a Keys,
    pub tensors: &'a BTreeMap<String, StoredTensor>,
    /// With a padding token.
    pub vocabularies: &'a Vocabularies,
}

/// Keys that must be absent, false, zero or empty: no layer of ours computes what they stand for.
const UNSUPPORTED: [&str; 9] = [
    "lemma-dim-emb",
    "right-left",
    "transformer-no-affine",
    "transformer-no-projection",
    "transformer-pool",
    "transformer-rnn-projection",
    "transformer-tied-layers",
    "transformer-disable-position-embeddings",
    "ulr",
];

impl Description<'_> {
    /// The configuration, whose vocabularies have the sizes of the file's.
    pub fn config(&self) -> Result<TransformerConfig, ModelError> {
        let keys = self.keys;
        self.refuse_others()?;
        let (source, target) = (&self.vocabularies.source, self.vocabularies.target());
        let d_ff = keys.size_of_all("transformer-dim-ffn")?;
        let decoder_d_ff = keys
            .size("transformer-decoder-dim-ffn")?
            .filter(|&size| size != 0);
        let (norm, final_norm) = self.norms()?;
        let learned = keys.flag_or("transformer-train-position-embeddings", false)?;
        Ok(TransformerConfig {
            src_vocab_size: source.tokens.len() - source.appended,
            tgt_vocab_size: target.tokens.len() - target.appended,
            d_model: self.positive("dim-emb")?,
            n_heads: self.positive("transformer-heads")?,
            d_ff,
            decoder_d_ff: decoder_d_ff.filter(|&size| size != d_ff),
            n_encoder_layers: keys.size_of_all("enc-depth")?,
            n_decoder_layers: keys.size_of_all("dec-depth")?,
            decoder_mixer: self.mixer()?,
            norm,
            final_norm,
            layer_norm: NormKind::Variance,
            layer_norm_eps: 1e-6,
            positions: match learned {
                true => Positions::Learned {
                    max_len: self
                        .tensors
                        .get(POSITIONS)
                        .map_or(0, |table| table.shape[0]),
                },
                false => Positions::SinesThenCosines {
                    inclusive: true,
                    first: 0,
                },
            },
            embedding_scale: !learned,
            embedding_norm: self.normalizes("transformer-postprocess-emb", "d")?,
            attention_bias: true,
            generator_bias: !keys.flag_or("output-omit-bias", false)?,
            tying: self.tying()?,
            activation: self.activation()?,
            pad_id: self.vocabularies.pad,
            bos_id: self.vocabularies.pad,
            eos_id: target.id(END).expect("every vocabulary has it"),
            excluded_tokens: vec![self.vocabularies.pad],
            ..TransformerConfig::default()
        })
    }

    /// A size above 0.
    fn positive(&self, key: &str) -> Result<usize, ModelError> {
        match self.keys.size_of_all(key)? {
            0 => Err(self.keys.refusal(key, "not a size")),
            size => Ok(size),
        }
    }

    /// Refuses what no layer of ours computes.
    fn refuse_others(&self) -> Result<(), ModelError> {
        let keys = self.keys;
        if keys.text("type")? != Some("transformer") {
            return Err(keys.refusal("type", "but only `transformer` can be read"));
        }
        let is_set = |value: &Value| match value {
            Value::Bool(flag) => *flag,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::Array(list) => !list.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => false,
        };
        for key in UNSUPPORTED {
            if keys.value(key).is_some_and(is_set) {
                return Err(keys.refusal(key, "which is not supported"));
            }
        }
        for key in ["transformer-ffn-depth", "transformer-decoder-ffn-depth"] {
            // 0 in the decoder stands for the encoder's.
            if !matches!(keys.size(key)?, None | Some(0 | 2)) {
                return Err(
                    keys.refusal(key, "but only feed-forward layers of depth 2 are supported")
                );
            }
        }
        Ok(())
    }

    /// The operations before or after each sublayer, without dropout, which only training needs.
    fn operations(&self, key: &str, default: &str) -> Result<String, ModelError> {
        let operations = self.keys.text(key)?.unwrap_or(default);
        Ok(operations.replace('d', ""))
    }

    /// Whether operations normalize, and nothing else.
    fn normalizes(&self, key: &str, default: &str) -> Result<bool, ModelError> {
        match self.operations(key, default)?.as_str() {
            "" => Ok(false),
            "n" => Ok(true),
            _ => Err(self.keys.refusal(key, "but only `n` and `d` are supported")),
        }
    }

    /// Where sublayers are normalized, and whether the output of a stack is.
    fn norms(&self) -> Result<(NormPlacement, bool), ModelError> {
        let (before, after) = ("transformer-preprocess", "transformer-postprocess");
        let placement = match (
            self.operations(before, "")?.as_str(),
            self.operations(after, "dan")?.as_str(),
        ) {
            ("", "an") => NormPlacement::Post,
            ("n", "a") => NormPlacement::Pre,
            _ => {
                let problem = "but only `dan` after each sublayer, or `n` before and `da` after it, are supported";
                return Err(self.keys.refusal(after, problem));
            }
        };
        Ok((
            placement,
            self.normalizes("transformer-postprocess-top", "")?,
        ))
    }

    fn mixer(&self) -> Result<Mixer, ModelError> {
        let keys = self.keys;
        let key = "transformer-decoder-autoreg";
        match keys.text(key)?.unwrap_or("self-attention") {
            "self-attention" => Ok(Mixer::SelfAttention),
            "rnn" if keys.text("dec-cell")? == Some("ssru") => Ok(Mixer::Recurrence),
            "rnn" => Err(keys.refusal("dec-cell", "but only `ssru` is supported")),
            _ => Err(keys.refusal(key, "but only self-attention and `rnn` are supported")),
        }
    }

    fn activation(&self) -> Result<Activation, ModelError> {
        let key = "transformer-ffn-activation";
        match self.keys.text(key)?.unwrap_or("swish") {
            "relu" => Ok(Activation::Relu),
            "swish" => Ok(Activation::Silu),
            // Marian's GELU is x σ(1.702 x).
            _ => Err(self
                .keys
                .refusal(key, "but only `relu` and `swish` are supported")),
        }
    }

    fn tying(&self) -> Result<WeightTying, ModelError> {
        let is_set = |key| self.keys.flag_or(key, false);
        let all = is_set("tied-embeddings-all")?;
        let source = all || is_set("tied-embeddings-src")?;
        let generator = all || is_set("tied-embeddings")?;
        Ok(match (source, generator) {
            (true, true) => WeightTying::All,
            (true, false) => WeightTying::SourceTarget,
            (false, true) => WeightTying::TargetGenerator,
            (false, false) => WeightTying::None,
        })
    }
}
