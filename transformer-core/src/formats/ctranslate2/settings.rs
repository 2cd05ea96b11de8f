//! The configuration of a model, from `config.json`, the vocabularies, and the variables of `model.bin`.

use std::path::Path;

use serde_json::Map;
use transformer_kernels::Activation;

use crate::formats::ctranslate2::model_file::ModelFile;
use crate::formats::ctranslate2::names::{OF_GENERATOR, OF_KEYS, OF_SOURCE, OF_TARGET, POSITIONS};
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

/// The specification of a decoder without encoder.
const DECODER: &str = "TransformerDecoderSpec";

const INNER: &str = "layer_0/ffn/linear_0/weight";
const QUERY_KEY_VALUE: &str = "self_attention/linear_0/weight";

/// The attentions of a layer, of which only decoders of sources have the last.
const ATTENTIONS: [&str; 2] = ["self_attention", "attention"];

/// T5's bias on the scores of a layer.
const RELATIVE_BIAS: &str = "self_attention/relative_attention_bias";

/// The settings that are read, or that change no result, by the last part of their names.
const KNOWN: [&str; 21] = [
    "activation",
    "alibi",
    "alibi_use_positive_positions",
    "alignment_heads",
    "alignment_layer",
    "embeddings_merge",
    "head_dim",
    "num_heads",
    "num_heads_kv",
    "pre_norm",
    "queries_scale",
    "relative_attention_max_distance",
    "rotary_base",
    "rotary_dim",
    "rotary_interleave",
    "scale_embeddings",
    "scale_outputs",
    "start_from_zero_embedding",
    "with_source_bos",
    "with_source_eos",
    "with_target_bos",
];

/// A setting of which 0 is a value, too.
const ROTARY_SCALING: &str = "rotary_scaling_type";

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

/// The stacks of a specification.
#[derive(Clone, Copy, PartialEq)]
enum Stack {
    Encoder,
    Decoder,
}

impl Stack {
    /// The beginning of the names of its variables.
    fn name(self) -> &'static str {
        match self {
            Self::Encoder => "encoder",
            Self::Decoder => "decoder",
        }
    }
}

impl Description<'_> {
    /// The configuration of the model, whose vocabularies have the sizes of the file's.
    pub fn config(&self) -> Result<TransformerConfig, ModelError> {
        self.refuse_others()?;
        let of_source = match self.is_language_model() {
            true => OF_TARGET,
            false => OF_SOURCE,
        };
        let [src_vocab_size, tgt_vocab_size] = [self.size(of_source, 0)?, self.size(OF_TARGET, 0)?];
        let d_model = self.size(OF_TARGET, 1)?;
        let n_heads = |stack| self.n_heads(stack);
        let d_ff = |stack: Stack| self.size(&format!("{}/{INNER}", stack.name()), 0);
        let (n_heads, decoder_n_heads) = self.first_and_other(n_heads)?;
        let (d_ff, decoder_d_ff) = self.first_and_other(d_ff)?;
        let n_kv_heads = self.n_kv_heads(n_heads)?;
        let d_k = self.d_k(n_heads, n_kv_heads)?;
        let widths = (d_k * n_heads != d_model).then_some(d_k);
        let layer_norm = self.layer_norm()?;
        let gated = self.same("layer_0/ffn/linear_0_noact/weight", |name| self.has(name))?;
        let positions = self.positions(d_model, d_k)?;
        // The file has no rates. T5's family has one for all.
        let attention_dropout = match positions {
            Positions::RelativeBias { .. } => TransformerConfig::default().dropout,
            _ => TransformerConfig::default().attention_dropout,
        };
        Ok(TransformerConfig {
            src_vocab_size,
            tgt_vocab_size,
            d_model,
            n_heads,
            decoder_n_heads,
            n_kv_heads: (n_kv_heads != n_heads).then_some(n_kv_heads),
            d_k: widths,
            d_v: widths,
            d_ff,
            decoder_d_ff,
            n_encoder_layers: match self.is_language_model() {
                true => 0,
                false => self.n_layers(Stack::Encoder),
            },
            n_decoder_layers: self.n_layers(Stack::Decoder),
            norm: match self.same("pre_norm", |name| self.flag(name, true))? {
                true => NormPlacement::Pre,
                false => NormPlacement::Post,
            },
            final_norm: self.same("layer_norm/gamma", |name| self.has(name))?,
            layer_norm,
            layer_norm_eps: match self.keys.number("layer_norm_epsilon")? {
                Some(epsilon) => epsilon,
                None if layer_norm == NormKind::RootMeanSquare => 1e-6,
                None => 1e-5,
            },
            positions,
            attention_dropout,
            activation_dropout: attention_dropout,
            attention_bias: self.same("layer_0/self_attention/linear_0/bias", |name| {
                self.has(name)
            })?,
            attention_scale: self.attention_scale(d_k)?,
            feed_forward_bias: self.same("layer_0/ffn/linear_0/bias", |name| self.has(name))?,
            generator_bias: self.has("decoder/projection/bias"),
            generator_scale: self.is_factor(
                "decoder/scale_outputs",
                self.scale_of_outputs(),
                (d_model as f64).powf(-0.5),
            )?,
            embedding_scale: self.embedding_scale(d_model)?,
            embedding_norm: self.same("layernorm_embedding/gamma", |name| self.has(name))?,
            tying: self.tying()?,
            activation: self.activation()?,
            gated,
            ..self.tokens()?
        })
    }

    fn is_language_model(&self) -> bool {
        self.file.specification == DECODER
    }

    fn stacks(&self) -> &'static [Stack] {
        match self.is_language_model() {
            true => &[Stack::Decoder],
            false => &[Stack::Encoder, Stack::Decoder],
        }
    }

    /// A size of the first stack, and the decoder's if it differs.
    fn first_and_other(
        &self,
        of: impl Fn(Stack) -> Result<usize, ModelError>,
    ) -> Result<(usize, Option<usize>), ModelError> {
        let [first, last] = [of(self.stacks()[0])?, of(Stack::Decoder)?];
        Ok((first, (last != first).then_some(last)))
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
        let end = end_token(keys)?;
        let eos_id = target.id(END).ok_or_else(|| {
            keys.refusal("eos_token", format!("but the vocabulary has no `{end}`"))
        })?;
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
        if self.is_language_model() {
            return Ok(TransformerConfig {
                pad_id,
                bos_id,
                eos_id,
                // Without `tokenizer.json`: with one token for both, such as GPT-2's, texts have none before them.
                prompt_bos: bos_id != eos_id,
                ..TransformerConfig::default()
            });
        }
        let adds_eos = keys.flag_or("add_source_eos", self.flag("with_source_eos", false))?;
        // Sources of OpenNMT's models, whose decoder starts with `<s>`, do not end in `</s>`. All other libraries' do,
        // such as T5's, whose decoder starts with `<pad>`; CTranslate2 expects it of the program that calls it.
        let source_eos = adds_eos || starts_with_zeros || start != bos || bos_id == pad_id;
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
        let known = [
            DECODER,
            "TransformerSpec",
            "TransformerBase",
            "TransformerBig",
        ];
        let found = &self.file.specification;
        if !known.contains(&found.as_str()) {
            let problem = "but only TransformerSpec and TransformerDecoderSpec can be read";
            return Err(self.refusal("specification", found, problem));
        }
        let refused = |name: &&String| {
            let key = name.rsplit('/').next().unwrap_or(name);
            key == ROTARY_SCALING || !KNOWN.contains(&key) && self.flag(name, false)
        };
        if let Some(name) = self.file.scalars.keys().find(refused) {
            return Err(self.refusal(name, "set", "which is not supported"));
        }
        Ok(())
    }

    /// The names under which later layers have the bias of the first one, which must be the same tensor.
    pub fn shared_biases(&self) -> Result<Vec<String>, ModelError> {
        let tensors = &self.file.dict.tensors;
        let mut shared = Vec::new();
        for stack in self.stacks() {
            let first = format!("{}/layer_0/{RELATIVE_BIAS}", stack.name());
            let Some(bias) = tensors.get(&first) else {
                continue;
            };
            let of_stack =
                |name: &&String| name.starts_with(stack.name()) && name.ends_with(RELATIVE_BIAS);
            for name in tensors
                .keys()
                .filter(of_stack)
                .filter(|name| **name != first)
            {
                if !tensors[name].is_view_of(bias) {
                    return Err(self.unlike(name, &first));
                }
                shared.push(name.clone());
            }
        }
        Ok(shared)
    }

    /// The error for two values that must be the same.
    fn unlike(&self, name: &str, other: &str) -> ModelError {
        self.refusal(name, &format!("unlike `{other}`"), "which is not supported")
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
            Some(0) => Err(self.refusal(name, "empty", "but every model needs it")),
            Some(&size) => Ok(size),
            None => Err(self.refusal(name, "absent", "but every model needs it")),
        }
    }

    /// A value of all stacks, which must be the same.
    fn same<T: PartialEq>(&self, key: &str, of: impl Fn(&str) -> T) -> Result<T, ModelError> {
        let names = self
            .stacks()
            .iter()
            .map(|stack| format!("{}/{key}", stack.name()));
        let names: Vec<String> = names.collect();
        let value = of(&names[0]);
        match names.iter().all(|name| of(name) == value) {
            true => Ok(value),
            false => Err(self.unlike(&names[0], &names[1])),
        }
    }

    /// Whether a value is this factor, instead of 1.
    fn is_factor(&self, key: &str, value: f64, factor: f64) -> Result<bool, ModelError> {
        match value {
            1.0 => Ok(false),
            value if (value / factor - 1.0).abs() < 1e-6 => Ok(true),
            value => {
                let problem = format!("neither 1 nor {factor}");
                Err(self.refusal(key, &value.to_string(), &problem))
            }
        }
    }

    fn n_layers(&self, stack: Stack) -> usize {
        let name = stack.name();
        let has = |index: &usize| self.has(&format!("{name}/layer_{index}/{QUERY_KEY_VALUE}"));
        (0..).take_while(has).count()
    }

    /// The heads of a stack: the older specifications stand for a number.
    fn n_heads(&self, stack: Stack) -> Result<usize, ModelError> {
        let key = format!("{}/num_heads", stack.name());
        let default = match self.file.specification.as_str() {
            "TransformerBase" => Some(8.0),
            "TransformerBig" => Some(16.0),
            _ => None,
        };
        match self.value(&key).or(default) {
            Some(value) if value >= 1.0 && value.fract() == 0.0 => Ok(value as usize),
            Some(value) => Err(self.refusal(&key, &value.to_string(), "not a number of heads")),
            None => Err(self.refusal(&key, "absent", "but every model needs it")),
        }
    }

    /// Heads of keys and values, in every layer.
    fn n_kv_heads(&self, n_heads: usize) -> Result<usize, ModelError> {
        let count = self.value_of_layers(&ATTENTIONS, "num_heads_kv", n_heads as f64)?;
        match count >= 1.0 && count.fract() == 0.0 {
            true => Ok(count as usize),
            false => {
                let found = count.to_string();
                Err(self.refusal("num_heads_kv", &found, "not a number of heads"))
            }
        }
    }

    /// Width of a head, by the rows of the first joint projection.
    fn d_k(&self, n_heads: usize, n_kv_heads: usize) -> Result<usize, ModelError> {
        let name = format!("{}/layer_0/{QUERY_KEY_VALUE}", self.stacks()[0].name());
        let (rows, heads) = (
            self.size(&name, 0)?,
            n_heads.saturating_add(n_kv_heads.saturating_mul(2)),
        );
        match rows.is_multiple_of(heads) {
            true => Ok(rows / heads),
            false => {
                let problem =
                    format!("which {heads} heads of queries, keys and values do not divide");
                Err(self.refusal(&name, &format!("of {rows} rows"), &problem))
            }
        }
    }

    /// Whether scores are divided by √d_k: by default, or by a factor of every attention.
    fn attention_scale(&self, d_k: usize) -> Result<bool, ModelError> {
        let default = (d_k as f64).powf(-0.5);
        let key = "queries_scale";
        let value = self.value_of_layers(&ATTENTIONS, key, default)?;
        self.is_factor(key, value, default)
    }

    /// The value of a setting in these attentions of every layer, which must be the same.
    fn value_of_layers(
        &self,
        attentions: &[&str],
        key: &str,
        default: f64,
    ) -> Result<f64, ModelError> {
        let mut values = Vec::new();
        for &stack in self.stacks() {
            let of_layer = match stack == Stack::Encoder || self.is_language_model() {
                true => &attentions[..1],
                false => attentions,
            };
            for layer in 0..self.n_layers(stack) {
                for attention in of_layer {
                    let name = format!("{}/layer_{layer}/{attention}/{key}", stack.name());
                    let value = self.value(&name).unwrap_or(default);
                    values.push((name, value));
                }
            }
        }
        let Some((first, value)) = values.first() else {
            return Ok(default);
        };
        match values.iter().find(|(_, other)| other != value) {
            None => Ok(*value),
            Some((name, _)) => Err(self.unlike(name, first)),
        }
    }

    /// The factor on the decoder's outputs, of which 0 stands for none.
    fn scale_of_outputs(&self) -> f64 {
        let scale = self.value("decoder/scale_outputs");
        scale.filter(|scale| *scale != 0.0).unwrap_or(1.0)
    }

    fn layer_norm(&self) -> Result<NormKind, ModelError> {
        let has_beta = self.same("layer_0/ffn/layer_norm/beta", |name| self.has(name))?;
        Ok(match has_beta {
            true => NormKind::Variance,
            false => NormKind::RootMeanSquare,
        })
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
        self.is_factor(key, factor, root)
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
    fn positions(&self, d_model: usize, d_k: usize) -> Result<Positions, ModelError> {
        // A bias that grows with the position of the key differs from ours by a constant per query, if keys after the
        // query are blocked.
        let alibi = self.same("alibi", |name| self.flag(name, false))?;
        let is_relative = |name: &String| name.contains("/relative_");
        let has_others = self.has_rotary() || self.file.dict.tensors.keys().any(is_relative);
        if alibi && (has_others || !self.is_language_model()) {
            return Err(self.refusal("decoder/alibi", "set", "which is not supported here"));
        }
        let bias = |name: &str| self.file.dict.tensors.get(name).map(|bias| bias.shape[0]);
        if let Some(buckets) = self.same(&format!("layer_0/{RELATIVE_BIAS}"), bias)? {
            let key = "self_attention/relative_attention_max_distance";
            let max_distance = self.same(&format!("layer_0/{key}"), |name| self.value(name))?;
            return Ok(Positions::RelativeBias {
                buckets,
                max_distance: max_distance.unwrap_or(128.0) as usize,
            });
        }
        let table = |name: &str| self.file.dict.tensors.get(name).map(|table| table.shape[0]);
        if let Some(rows) = self.same(&format!("layer_0/{OF_KEYS}"), table)? {
            return Ok(Positions::Relative {
                max_distance: rows / 2,
            });
        }
        if self.has_rotary() {
            return self.rotary(d_k);
        }
        if alibi {
            return Ok(Positions::Alibi);
        }
        let Some(table) = self.file.dict.tensors.get(POSITIONS[1]) else {
            return Ok(Positions::SinesThenCosines {
                inclusive: true,
                first: 1,
            });
        };
        if table.shape.first() == Some(&0) {
            return Err(self.refusal(POSITIONS[1], "empty", "but has a row per position"));
        }
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

    fn has_rotary(&self) -> bool {
        let is_rotary = |name: &String| name.ends_with("/rotary_dim");
        self.file.scalars.keys().any(is_rotary)
    }

    /// Rotary positions of whole heads, whose pairs are half a head apart, as in Llama. Attention between decoder and
    /// encoder has none.
    fn rotary(&self, d_k: usize) -> Result<Positions, ModelError> {
        let value = |key, default| self.value_of_layers(&ATTENTIONS[..1], key, default);
        let dim = value("rotary_dim", 0.0)?;
        if dim != 0.0 && dim != d_k as f64 {
            let problem = format!("but only whole heads, of width {d_k}, are supported");
            return Err(self.refusal("rotary_dim", &dim.to_string(), &problem));
        }
        if value("rotary_interleave", 1.0)? != 0.0 {
            let problem = "which is not supported";
            return Err(self.refusal("rotary_interleave", "set", problem));
        }
        Ok(Positions::Rotary {
            base: value("rotary_base", 10000.0)?,
        })
    }
}
