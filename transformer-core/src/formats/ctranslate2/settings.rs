//! The configuration of a model, from `config.json`, the vocabularies, and the variables of `model.bin`.

use std::path::Path;

use serde_json::Map;
use transformer_kernels::Activation;

use crate::formats::ctranslate2::model_file::ModelFile;
use crate::formats::ctranslate2::names::{OF_GENERATOR, OF_SOURCE, OF_TARGET, POSITIONS};
use crate::formats::ctranslate2::vocabulary;
use crate::formats::error::ModelError;
use crate::formats::format::Files;
use crate::formats::hugging_face::keys::Keys;
use crate::formats::name_map::is_table;
use crate::formats::names::CONFIG_FILE;
use crate::formats::vocabularies::{END, Side, Vocabularies};
use crate::models::config::TransformerConfig;
use crate::models::tying::WeightTying;
use crate::nn::norm::NormKind;
use crate::nn::positions::Positions;
use crate::nn::sublayer::NormPlacement;

/// The keys of a directory's `config.json`, which the oldest directories lack.
pub(super) fn keys(files: &Files) -> Result<Keys, ModelError> {
    match files.config() {
        Some(_) => Keys::of_config(files),
        None => Ok(Keys::new(files.path(CONFIG_FILE), Map::new())),
    }
}

/// The lists of tokens, with the names that `config.json` has for `<unk>` and `</s>`.
pub(super) fn vocabularies(files: &Files, keys: &Keys) -> Result<Vocabularies, ModelError> {
    let unknown = keys.text("unk_token")?.unwrap_or("<unk>");
    vocabulary::read(files, unknown, end_token(keys)?)
}

fn end_token(keys: &Keys) -> Result<&str, ModelError> {
    Ok(keys.text("eos_token")?.unwrap_or(END))
}

/// What describes a model.
pub(super) struct Description<'a> {
    pub keys: &'a Keys,
    pub vocabularies: &'a Vocabularies,
    /// The path of `file`.
    pub path: &'a Path,
    pub file: &'a ModelFile,
}

impl Description<'_> {
    /// The configuration of the model, whose vocabularies have the sizes of the file's.
    pub fn config(&self) -> Result<TransformerConfig, ModelError> {
        let [encoder, decoder] = ["encoder", "decoder"];
        self.refuse_others()?;
        let d_model = self.size(OF_TARGET, 1)?;
        let [n_heads, decoder_n_heads] = [self.n_heads(encoder)?, self.n_heads(decoder)?];
        let d_ff = self.size("encoder/layer_0/ffn/linear_0/weight", 0)?;
        let decoder_d_ff = self.size("decoder/layer_0/ffn/linear_0/weight", 0)?;
        let [src_vocab_size, tgt_vocab_size] = [self.size(OF_SOURCE, 0)?, self.size(OF_TARGET, 0)?];
        let tokens = self.tokens()?;
        Ok(TransformerConfig {
            src_vocab_size,
            tgt_vocab_size,
            d_model,
            n_heads,
            decoder_n_heads: (decoder_n_heads != n_heads).then_some(decoder_n_heads),
            d_ff,
            decoder_d_ff: (decoder_d_ff != d_ff).then_some(decoder_d_ff),
            n_encoder_layers: self.n_layers(encoder),
            n_decoder_layers: self.n_layers(decoder),
            norm: match self.same_flag("pre_norm", true)? {
                true => NormPlacement::Pre,
                false => NormPlacement::Post,
            },
            final_norm: self.has("encoder/layer_norm/gamma"),
            layer_norm: NormKind::Variance,
            layer_norm_eps: self.keys.number("layer_norm_epsilon")?.unwrap_or(1e-5),
            positions: self.positions(d_model)?,
            attention_bias: self.has("encoder/layer_0/self_attention/linear_0/bias"),
            generator_bias: self.has("decoder/projection/bias"),
            embedding_scale: self.embedding_scale(d_model)?,
            embedding_norm: self.has("encoder/layernorm_embedding/gamma"),
            tying: self.tying()?,
            activation: self.activation()?,
            ..tokens
        })
    }

    /// The special tokens of a configuration.
    fn tokens(&self) -> Result<TransformerConfig, ModelError> {
        let keys = self.keys;
        let (source, target) = (&self.vocabularies.source, self.vocabularies.target());
        let pad_id = self.vocabularies.pad;
        let bos = keys.text("bos_token")?.unwrap_or("<s>");
        // Before `config.json`, a variable chose between the two.
        let old_start = match self.flag("with_target_bos", true) {
            true => bos,
            false => end_token(keys)?,
        };
        let start = match keys.is_absent("decoder_start_token") {
            true => Some(old_start),
            false => keys.text("decoder_start_token")?,
        };
        let start = start.ok_or_else(|| {
            keys.refusal(
                "decoder_start_token",
                "so the decoder's first input is not known",
            )
        })?;
        let eos_id = self.id(target, "eos_token", END)?;
        let starts_with_zeros = self.flag("decoder/start_from_zero_embedding", false);
        let bos_id = match starts_with_zeros {
            // The rows of `<pad>` are the only ones of zeros.
            true if source.appended > 0 && target.appended > 0 => pad_id,
            true => {
                let key = "decoder/start_from_zero_embedding";
                return Err(self.refusal(key, "1", "but the vocabulary has a padding token"));
            }
            false if start == end_token(keys)? => eos_id,
            false => self.id(target, "decoder_start_token", start)?,
        };
        let adds_eos = keys.flag_or("add_source_eos", self.flag("with_source_eos", false))?;
        // Sources of OpenNMT's models, whose decoder starts with `<s>`, do not end in `</s>`. All other libraries' do;
        // CTranslate2 expects it of the program that calls it.
        let source_eos = adds_eos || starts_with_zeros || start != bos;
        let source_bos = keys.flag_or("add_source_bos", self.flag("with_source_bos", false))?;
        if source_eos && source.id(END) != Some(eos_id) {
            let problem = format!("which the source's vocabulary does not have as token {eos_id}");
            return Err(keys.refusal("eos_token", problem));
        }
        let first_appended = target.tokens.len() - target.appended;
        Ok(TransformerConfig {
            pad_id,
            bos_id,
            eos_id,
            source_eos,
            source_bos: match source_bos {
                true => Some(self.id(source, "bos_token", bos)?),
                false => None,
            },
            excluded_tokens: (first_appended as u32..target.tokens.len() as u32).collect(),
            ..TransformerConfig::default()
        })
    }

    fn id(&self, side: &Side, key: &str, name: &str) -> Result<u32, ModelError> {
        let id = side.id(name);
        id.ok_or_else(|| {
            self.keys
                .refusal(key, format!("but the vocabulary has no `{name}`"))
        })
    }

    /// Refuses what no layer of ours computes.
    fn refuse_others(&self) -> Result<(), ModelError> {
        let known = ["TransformerSpec", "TransformerBase", "TransformerBig"];
        let found = &self.file.specification;
        if !known.contains(&found.as_str()) {
            let problem = "but only TransformerSpec can be read";
            return Err(self.refusal("specification", found, problem));
        }
        for stack in ["encoder", "decoder"] {
            for key in [
                "alibi",
                "multi_query_attention",
                "scale_outputs",
                "no_final_norm",
            ] {
                let key = format!("{stack}/{key}");
                if self.flag(&key, false) {
                    return Err(self.refusal(&key, "set", "which is not supported"));
                }
            }
        }
        let is_relative = |name: &&String| name.contains("/relative_");
        match self.file.dict.tensors.keys().find(is_relative) {
            Some(name) => Err(self.refusal(name, "there", "but such positions are not supported")),
            None => Ok(()),
        }
    }

    fn refusal(&self, key: &str, value: &str, problem: &str) -> ModelError {
        ModelError::Unsupported {
            path: self.path.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
            problem: problem.to_owned(),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.file.dict.tensors.contains_key(name)
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.file.scalars.get(name).map(|scalar| scalar.value)
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        self.value(name).map_or(default, |value| value != 0.0)
    }

    /// A dimension of a matrix.
    fn size(&self, name: &str, dimension: usize) -> Result<usize, ModelError> {
        let tensor = self.file.dict.tensors.get(name);
        match tensor.and_then(|tensor| tensor.shape.get(dimension)) {
            Some(&size) => Ok(size),
            None => Err(self.refusal(name, "absent", "but every model needs it")),
        }
    }

    /// A value of both stacks, which must be the same.
    fn same<T: PartialEq>(&self, key: &str, of: impl Fn(&str) -> T) -> Result<T, ModelError> {
        let [encoder, decoder] = ["encoder", "decoder"].map(|stack| format!("{stack}/{key}"));
        let value = of(&encoder);
        match value == of(&decoder) {
            true => Ok(value),
            false => Err(self.refusal(&encoder, "another", &format!("than `{decoder}`"))),
        }
    }

    fn same_flag(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        self.same(key, |name| self.flag(name, default))
    }

    fn n_layers(&self, stack: &str) -> usize {
        let has = |index: &usize| {
            self.has(&format!(
                "{stack}/layer_{index}/self_attention/linear_0/weight"
            ))
        };
        (0..).take_while(has).count()
    }

    /// The heads of a stack: the older specifications stand for a number.
    fn n_heads(&self, stack: &str) -> Result<usize, ModelError> {
        let key = format!("{stack}/num_heads");
        let default = match self.file.specification.as_str() {
            "TransformerBase" => Some(8.0),
            "TransformerBig" => Some(16.0),
            _ => None,
        };
        match self.value(&key).or(default) {
            Some(value) if value >= 1.0 => Ok(value as usize),
            Some(value) => Err(self.refusal(&key, &value.to_string(), "not a number of heads")),
            None => Err(self.refusal(&key, "absent", "but every model needs it")),
        }
    }

    fn activation(&self) -> Result<Activation, ModelError> {
        let key = "activation";
        match self.same(key, |name| self.value(name).unwrap_or(0.0))? as i64 {
            0 => Ok(Activation::Relu),
            1 => Ok(Activation::GeluTanh),
            2 => Ok(Activation::Silu),
            3 => Ok(Activation::Gelu),
            other => {
                let problem = "not 0 (ReLU), 1 or 3 (GELU), or 2 (Swish)";
                Err(self.refusal(key, &other.to_string(), problem))
            }
        }
    }

    /// Whether embeddings are multiplied by √d_model: a flag, or the factor itself.
    fn embedding_scale(&self, d_model: usize) -> Result<bool, ModelError> {
        let root = (d_model as f64).sqrt();
        let key = "scale_embeddings";
        let factor = self.same(key, |name| match self.file.scalars.get(name) {
            Some(scalar) if scalar.is_float && scalar.value != 0.0 => scalar.value,
            Some(scalar) if scalar.value == 0.0 => 1.0,
            _ => root,
        })?;
        match factor {
            1.0 => Ok(false),
            factor if (factor / root - 1.0).abs() < 1e-6 => Ok(true),
            factor => {
                let problem = "neither 1 nor the square root of the width";
                Err(self.refusal(key, &factor.to_string(), problem))
            }
        }
    }

    /// The matrices that are stored once.
    fn tying(&self) -> Result<WeightTying, ModelError> {
        let are_same = |one: &str, other: &str| {
            let tensors = &self.file.dict.tensors;
            let pair = (tensors.get(one), tensors.get(other));
            matches!(pair, (Some(one), Some(other)) if one.is_view_of(other))
        };
        let has_one_list = self.vocabularies.target.is_none();
        let of_source = are_same(OF_SOURCE, OF_TARGET) && has_one_list;
        Ok(match (of_source, are_same(OF_TARGET, OF_GENERATOR)) {
            (true, true) => WeightTying::All,
            (true, false) => WeightTying::SourceTarget,
            (false, true) => WeightTying::TargetGenerator,
            (false, false) => WeightTying::None,
        })
    }

    /// The kind of positions: a table of sines and cosines is recognized by its values.
    fn positions(&self, d_model: usize) -> Result<Positions, ModelError> {
        let Some(table) = self.file.dict.tensors.get(POSITIONS[1]) else {
            return Ok(Positions::SinesThenCosines {
                inclusive: true,
                first: 1,
            });
        };
        let fixed = [false, true].into_iter().flat_map(|inclusive| {
            (0..3).map(move |first| Positions::SinesThenCosines { inclusive, first })
        });
        for positions in fixed.chain([Positions::Sinusoidal]) {
            let is_same = is_table(table, positions, positions.first(), d_model);
            if positions.check(d_model).is_ok() && is_same.unwrap_or(false) {
                return Ok(positions);
            }
        }
        let max_len = self.size(POSITIONS[1], 0)?;
        Ok(Positions::Learned { max_len })
    }
}
