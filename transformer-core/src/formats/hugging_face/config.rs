//! Reads `config.json` of Hugging Face's types into our configuration; the keys of T5's and GPT-2's families are in
//! [`t5`] and [`gpt2`].
//!
//! Sizes, activation, dropout rates, tying and special tokens are read. Keys that request something that the type's
//! class or our model does not support are refused by name and value. All others are ignored: for training (`init_std`,
//! `encoder_layerdrop`, …), for other heads (`classifier_dropout`, `id2label`, …), for the library (`architectures`,
//! `use_cache`, `dtype`, …), and unknown ones.

use serde_json::{Map, Value};

use crate::formats::error::ModelError;
use crate::formats::hugging_face::derived::in_force;
use crate::formats::hugging_face::keys::{Keys, shown};
use crate::formats::hugging_face::{gpt2, t5};
use crate::models::config::TransformerConfig;
use crate::models::tying::WeightTying;
use crate::nn::error::ConfigError;
use crate::nn::norm::NormKind;
use crate::nn::positions::Positions;
use crate::nn::sublayer::NormPlacement;
use transformer_kernels::Activation;

/// A type whose layers differ from T5's.
const UMT5: &str = "umt5";

/// The default number of positions of a class that computes them.
pub(crate) const MAX_POSITIONS: usize = 1024;

/// A type of model, as named by `model_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelType {
    Marian,
    M2m100,
    Bart,
    Mbart,
    T5,
    Mt5,
    Gpt2,
}

/// Types with the same keys in `config.json` and the same tensor names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// With Marian, M2M100 and mBART.
    Bart,
    T5,
    /// Language models.
    Gpt2,
}

impl ModelType {
    const ALL: [Self; 7] = [
        Self::Marian,
        Self::M2m100,
        Self::Bart,
        Self::Mbart,
        Self::T5,
        Self::Mt5,
        Self::Gpt2,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Marian => "marian",
            Self::M2m100 => "m2m_100",
            Self::Bart => "bart",
            Self::Mbart => "mbart",
            Self::T5 => "t5",
            Self::Mt5 => "mt5",
            Self::Gpt2 => "gpt2",
        }
    }

    /// The class with the embeddings, all stacks and the projection to logits.
    pub fn class(self) -> &'static str {
        match self {
            Self::Marian => "MarianMTModel",
            Self::M2m100 => "M2M100ForConditionalGeneration",
            Self::Bart => "BartForConditionalGeneration",
            Self::Mbart => "MBartForConditionalGeneration",
            Self::T5 => "T5ForConditionalGeneration",
            Self::Mt5 => "MT5ForConditionalGeneration",
            Self::Gpt2 => "GPT2LMHeadModel",
        }
    }

    pub fn of(keys: &Keys) -> Result<Self, ModelError> {
        let name = keys.text("model_type")?;
        if name == Some(UMT5) {
            let problem =
                "whose layers each have relative biases of their own, which is not supported";
            return Err(keys.refusal("model_type", problem));
        }
        let found = Self::ALL
            .into_iter()
            .find(|known| Some(known.name()) == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            keys.refusal("model_type", format!("not one of {known}"))
        })
    }

    /// The class's default token, for a key that `config.json` lacks.
    pub fn default_token(self, key: &str) -> Option<u32> {
        let tokens = match self {
            Self::Marian => [Some(58100), None, Some(0), Some(58100), Some(0)],
            Self::M2m100 => [Some(1), Some(0), Some(2), Some(2), None],
            Self::Bart => [Some(1), Some(0), Some(2), Some(2), Some(2)],
            Self::Mbart => [Some(1), Some(0), Some(2), None, Some(2)],
            Self::T5 => [Some(0), None, Some(1), None, None],
            Self::Mt5 => [Some(0), None, Some(1), Some(0), None],
            Self::Gpt2 => [None, Some(50256), Some(50256), None, None],
        };
        let [pad, bos, eos, start, forced_last] = tokens;
        match key {
            "pad_token_id" => pad,
            "bos_token_id" => bos,
            "eos_token_id" => eos,
            "decoder_start_token_id" => start,
            "forced_eos_token_id" => forced_last,
            _ => None,
        }
    }

    pub fn family(self) -> Family {
        match self {
            Self::Marian | Self::M2m100 | Self::Bart | Self::Mbart => Family::Bart,
            Self::T5 | Self::Mt5 => Family::T5,
            Self::Gpt2 => Family::Gpt2,
        }
    }

    fn norm(self) -> NormPlacement {
        match self {
            Self::Marian | Self::Bart => NormPlacement::Post,
            _ => NormPlacement::Pre,
        }
    }

    fn has_learned_positions(self) -> bool {
        matches!(self, Self::Bart | Self::Mbart)
    }

    fn has_embedding_norm(self) -> bool {
        matches!(self, Self::Bart | Self::Mbart)
    }

    /// Whether `final_logits_bias` is part of the class.
    pub fn has_generator_bias(self) -> bool {
        matches!(self, Self::Marian | Self::Bart | Self::Mbart)
    }

    /// The positions of a type of BART's family.
    fn positions(self, pad_id: u32, max_len: usize) -> Positions {
        match self {
            Self::Marian => Positions::SinesThenCosines {
                inclusive: false,
                first: 0,
            },
            Self::M2m100 => Positions::SinesThenCosines {
                inclusive: true,
                first: pad_id as usize + 1,
            },
            _ => Positions::Learned { max_len },
        }
    }
}

/// The configuration of a model, except for the generator's bias, which only the weights show. `generation` has the
/// keys of `generation_config.json`.
pub(crate) fn config(
    keys: &Keys,
    generation: Option<&Keys>,
) -> Result<(ModelType, TransformerConfig), ModelError> {
    let model_type = ModelType::of(keys)?;
    refuse_other_models(model_type, keys)?;
    let generation = in_force(Some(keys), generation)?;
    let generation = generation.as_ref();
    let config = match model_type.family() {
        Family::Bart => of_bart_family(model_type, keys)?,
        Family::T5 => t5::config(model_type, keys)?,
        Family::Gpt2 => gpt2::config(keys)?,
    };
    let eos_id = end_token(model_type, keys, generation)?;
    let pad_id = match model_type.family() {
        // Without a token for padding, Hugging Face, too, fills batches with `<eos>`.
        Family::Gpt2 => keys.token("pad_token_id")?.unwrap_or(eos_id),
        _ => token_of_all(model_type, keys, "pad_token_id")?,
    };
    let config = TransformerConfig {
        pad_id,
        bos_id: start_token(model_type, keys, generation)?,
        eos_id,
        ..config
    };
    match config.validate() {
        Ok(()) => Ok((model_type, config)),
        Err(source) => {
            let starts = |keys: &&Keys| {
                let mut names = START_TOKENS.into_iter();
                names.any(|name| keys.value(name).is_some())
            };
            let of_start = source.keys().contains(&"bos_id") && model_type.family() != Family::Gpt2;
            let file = generation.filter(starts).filter(|_| of_start);
            Err(ModelError::HuggingFaceConfig {
                path: file.unwrap_or(keys).path().to_owned(),
                problem: problem(model_type, &source),
            })
        }
    }
}

/// The configuration of a model of BART's family, without start and end token.
fn of_bart_family(model_type: ModelType, keys: &Keys) -> Result<TransformerConfig, ModelError> {
    let is_m2m100 = model_type == ModelType::M2m100;
    let src_vocab_size = keys.size_of_all("vocab_size")?;
    let tying = tying(model_type, keys)?;
    let separate_vocabulary = match tying.ties_source_target() {
        true => None,
        false => keys.size("decoder_vocab_size")?,
    };
    let n_heads = keys.size_of_all("encoder_attention_heads")?;
    let decoder_n_heads = keys.size_of_all("decoder_attention_heads")?;
    let d_ff = keys.size_of_all("encoder_ffn_dim")?;
    let decoder_d_ff = keys.size_of_all("decoder_ffn_dim")?;
    let pad_id = token_of_all(model_type, keys, "pad_token_id")?;
    let max_len = keys.size("max_position_embeddings")?;
    let norm = model_type.norm();
    Ok(TransformerConfig {
        src_vocab_size,
        tgt_vocab_size: separate_vocabulary.unwrap_or(src_vocab_size),
        d_model: keys.size_of_all("d_model")?,
        n_heads,
        decoder_n_heads: (decoder_n_heads != n_heads).then_some(decoder_n_heads),
        d_ff,
        decoder_d_ff: (decoder_d_ff != d_ff).then_some(decoder_d_ff),
        n_encoder_layers: keys.size_of_all("encoder_layers")?,
        n_decoder_layers: keys.size_of_all("decoder_layers")?,
        norm,
        final_norm: norm == NormPlacement::Pre,
        layer_norm: NormKind::Variance,
        layer_norm_eps: 1e-5,
        positions: model_type.positions(pad_id, max_len.unwrap_or(MAX_POSITIONS)),
        attention_bias: true,
        generator_bias: false,
        embedding_scale: keys.flag_or("scale_embedding", is_m2m100)?,
        embedding_norm: model_type.has_embedding_norm(),
        tying,
        activation: activation(model_type, keys)?,
        dropout: keys.number("dropout")?.unwrap_or(0.1),
        attention_dropout: keys.number("attention_dropout")?.unwrap_or(if is_m2m100 {
            0.1
        } else {
            0.0
        }),
        activation_dropout: keys.number("activation_dropout")?.unwrap_or(0.0),
        // The logit of Marian's `<pad>` is always zero and means nothing.
        excluded_tokens: match model_type {
            ModelType::Marian => vec![pad_id],
            _ => Vec::new(),
        },
        // The rest is in none of these families.
        ..TransformerConfig::default()
    })
}

/// The problem of a configuration, with the file's keys.
fn problem(model_type: ModelType, source: &ConfigError) -> String {
    let key_of = match model_type.family() {
        Family::Bart => key_of,
        Family::T5 => t5::key_of,
        Family::Gpt2 => gpt2::key_of,
    };
    match *source {
        // Without the advice to set keys of ours.
        ConfigError::HeadsDoNotDivide {
            d_model,
            key,
            n_heads,
        } => format!(
            "`{}` {d_model} is not divisible by `{}` {n_heads}",
            key_of("d_model"),
            key_of(key)
        ),
        ref source => source.with_names(key_of),
    }
}

/// The file's key for one of our keys, in BART's family; the keys of the special tokens are the same in all.
pub(crate) fn key_of(own: &'static str) -> &'static str {
    match own {
        "src_vocab_size" => "vocab_size",
        "tgt_vocab_size" => "decoder_vocab_size",
        "n_heads" => "encoder_attention_heads",
        "decoder_n_heads" => "decoder_attention_heads",
        "n_encoder_layers" => "encoder_layers",
        "n_decoder_layers" => "decoder_layers",
        "d_ff" => "encoder_ffn_dim",
        "decoder_d_ff" => "decoder_ffn_dim",
        "max_len" => "max_position_embeddings",
        "pad_id" => "pad_token_id",
        "bos_id" => "decoder_start_token_id",
        "eos_id" => "eos_token_id",
        other => other,
    }
}

/// Two names of one key, in BART's family.
const SAME: &[(&str, &str)] = &[
    ("num_attention_heads", "encoder_attention_heads"),
    ("hidden_size", "d_model"),
];

/// Keys of BART's family that may be absent, because the class has a default, but not null.
const NEVER_NULL: &[&str] = &[
    "activation_dropout",
    "activation_function",
    "attention_dropout",
    "dropout",
    "hidden_size",
    "max_position_embeddings",
    "num_attention_heads",
    "pad_token_id",
];

/// Refuses keys that request something that the type's class or our model does not support.
fn refuse_other_models(model_type: ModelType, keys: &Keys) -> Result<(), ModelError> {
    let (same, never_null) = match model_type.family() {
        Family::Bart => (SAME, NEVER_NULL),
        Family::T5 => (t5::SAME, t5::NEVER_NULL),
        Family::Gpt2 => (gpt2::SAME, gpt2::NEVER_NULL),
    };
    // The first four are keys of earlier versions of the library, which had one class for several types.
    let pre_norm = model_type.norm() == NormPlacement::Pre;
    let facts = [
        ("normalize_before", pre_norm),
        ("add_final_layer_norm", pre_norm),
        ("normalize_embedding", model_type.has_embedding_norm()),
        (
            "static_position_embeddings",
            !model_type.has_learned_positions(),
        ),
        ("is_encoder_decoder", true),
        ("is_decoder", false),
        ("tie_encoder_decoder", false),
    ];
    let facts = match model_type.family() {
        Family::Gpt2 => gpt2::FACTS,
        _ => &facts,
    };
    for &(key, fact) in facts {
        if keys.flag_or(key, fact)? != fact {
            let name = model_type.name();
            return Err(keys.refusal(key, format!("but must be {fact} for type {name}")));
        }
    }
    for (key, other) in same {
        let (value, expected) = (keys.size(key)?, keys.size(other)?);
        if value.is_some() && value != expected {
            let expected = shown(keys.value(other));
            return Err(keys.refusal(key, format!("but `{other}` is {expected}")));
        }
    }
    for key in never_null {
        if keys.is_null(key) {
            return Err(keys.refusal(key, "but a value is required"));
        }
    }
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    for key in ["pruned_heads", "quantization_config"] {
        if keys.value(key).is_some_and(|value| !is_empty(value)) {
            return Err(keys.refusal(key, "which is not supported"));
        }
    }
    Ok(())
}

fn tying(model_type: ModelType, keys: &Keys) -> Result<WeightTying, ModelError> {
    let ties_generator = keys.flag_or("tie_word_embeddings", true)?;
    let ties_source_target = match model_type {
        ModelType::Marian => keys.flag_or("share_encoder_decoder_embeddings", true)?,
        _ => true,
    };
    Ok(match (ties_source_target, ties_generator) {
        (true, true) => WeightTying::All,
        (true, false) => WeightTying::SourceTarget,
        (false, true) => WeightTying::TargetGenerator,
        (false, false) => WeightTying::None,
    })
}

fn activation(model_type: ModelType, keys: &Keys) -> Result<Activation, ModelError> {
    let default = match model_type {
        ModelType::M2m100 => "relu",
        _ => "gelu",
    };
    let key = "activation_function";
    activation_named(keys, key, keys.text(key)?.unwrap_or(default))
}

/// The activation of this name, which is the value of `key` or part of it.
pub(super) fn activation_named(
    keys: &Keys,
    key: &str,
    name: &str,
) -> Result<Activation, ModelError> {
    match name {
        "relu" => Ok(Activation::Relu),
        "gelu" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
        "silu" | "swish" => Ok(Activation::Silu),
        _ => {
            let known = "relu, gelu, gelu_new, gelu_pytorch_tanh, silu, swish";
            Err(keys.refusal(key, format!("not one of {known}")))
        }
    }
}

/// The name of an activation.
pub(super) fn name_of(activation: Activation) -> &'static str {
    match activation {
        Activation::Relu => "relu",
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_new",
        Activation::Silu => "swish",
    }
}

/// The keys of the decoder's start token: the first one present counts.
const START_TOKENS: [&str; 2] = ["decoder_start_token_id", "bos_token_id"];

/// The decoder's start token, chosen as by `generate`. If the keys in force have none, Hugging Face fails; we use the
/// token of `config.json`.
pub(crate) fn start_token(
    model_type: ModelType,
    keys: &Keys,
    generation: Option<&Keys>,
) -> Result<u32, ModelError> {
    let [start, bos] = START_TOKENS;
    if model_type.family() == Family::Gpt2 {
        return token_of_all(model_type, keys, bos);
    }
    let of_generation = generation.into_iter();
    let of_generation = of_generation.flat_map(|keys| START_TOKENS.map(|name| (keys, name)));
    for (keys, name) in of_generation.chain([(keys, start)]) {
        if let Some(token) = keys.token(name)? {
            return Ok(token);
        }
    }
    Err(keys.refusal(start, "not a single token"))
}

fn end_token(
    model_type: ModelType,
    keys: &Keys,
    generation: Option<&Keys>,
) -> Result<u32, ModelError> {
    let token = token_of_all(model_type, keys, "eos_token_id")?;
    if let Some(generation) = generation
        && generation.token("eos_token_id")?.unwrap_or(token) != token
    {
        return Err(generation.refusal("eos_token_id", format!("but {token} in config.json")));
    }
    Ok(token)
}

/// A token that every model must have.
pub(crate) fn token_of_all(
    model_type: ModelType,
    keys: &Keys,
    key: &str,
) -> Result<u32, ModelError> {
    let token = keys.token(key)?.or(model_type.default_token(key));
    token.ok_or_else(|| keys.refusal(key, "not a single token"))
}
