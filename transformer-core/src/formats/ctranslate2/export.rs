//! Export of models to CTranslate2.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use burn::tensor::TensorData;
use burn::tensor::backend::Backend;
use serde_json::{Value, json};
use transformer_cpu::quantized_rows;
use transformer_kernels::Activation;

use crate::formats::ctranslate2::map;
use crate::formats::ctranslate2::names::{
    BIAS_OF_GENERATOR, BIASES, OF_GENERATOR, OF_SOURCE, OF_TARGET, POSITIONS,
};
use crate::formats::error::ModelError;
use crate::formats::files::replace_file;
use crate::formats::fill::collected;
use crate::formats::hugging_face::config_export::without_defaults;
use crate::formats::hugging_face::keys::shown;
use crate::formats::name_map::TiedNames;
use crate::formats::names::{CONFIG_FILE, CTRANSLATE2_FILE};
use crate::models::config::TransformerConfig;
use crate::models::transformer::Transformer;
use crate::nn::norm::NormKind;
use crate::nn::positions::Positions;
use crate::nn::sublayer::NormPlacement;

/// Positions of a written table of sines and cosines: CTranslate2 translates no longer texts.
const MOST_POSITIONS: usize = 2048;

/// The bias of a token that decoding excludes: its probability is 0.
const EXCLUDED: f32 = -1e9;

/// How a model is written for CTranslate2.
#[derive(Debug, Clone, Copy)]
pub struct CTranslate2Export<'a> {
    /// The tokens of the source in the order of their ids.
    pub source: &'a [String],
    /// The tokens of the target.
    pub target: &'a [String],
    /// Whether matrices are written in 8-bit integers.
    pub int8: bool,
}

impl TransformerConfig {
    /// Checks that [`Transformer::save_ctranslate2`] can write a model with this configuration, the one in the
    /// `config.json` of `directory`. Nothing is written.
    ///
    /// # Errors
    /// When CTranslate2 does not support the configuration; the error names the file and the unsupported key.
    pub fn check_ctranslate2(&self, directory: impl AsRef<Path>) -> Result<(), ModelError> {
        let own = without_defaults(self);
        let plain = TransformerConfig::default();
        let supported = TransformerConfig {
            n_kv_heads: plain.n_kv_heads,
            d_v: own.d_k,
            decoder_mixer: plain.decoder_mixer,
            layer_norm: match self.layer_norm {
                NormKind::UnbiasedDeviation => NormKind::Variance,
                kind => kind,
            },
            positions: match self.positions {
                Positions::Alibi | Positions::Rotary { .. } => plain.positions,
                positions => positions,
            },
            source_bos: self.source_bos.filter(|&bos| bos == self.bos_id),
            ..own.clone()
        };
        let [own, supported] = [json!(own), json!(supported)];
        let keys = own.as_object().into_iter().flatten();
        let mut differing = keys.filter(|(key, value)| supported.get(key) != Some(value));
        match differing.next() {
            None if !self.is_language_model() => Ok(()),
            None => Err(ModelError::OtherModel {
                path: directory.as_ref().join(CONFIG_FILE),
                found: "language-model".to_owned(),
                expected: "transformer".to_owned(),
            }),
            Some((key, value)) => Err(ModelError::Unsupported {
                path: directory.as_ref().join(CONFIG_FILE),
                key: key.clone(),
                value: shown(Some(value)),
                problem: "which cannot be written for CTranslate2".to_owned(),
            }),
        }
    }
}

impl<B: Backend> Transformer<B> {
    /// Saves the model to a directory, which is created if missing, in the format of CTranslate2: `model.bin`,
    /// `config.json` and the vocabularies. CTranslate2 4 reads it and computes the same results, for texts of up to
    /// 2048 tokens if positions are sinusoidal.
    ///
    /// # Errors
    /// When CTranslate2 does not support the configuration; the error names the unsupported key. When the vocabularies
    /// have other sizes than the model, or a file cannot be written; existing ones are then unchanged.
    pub fn save_ctranslate2(
        &self,
        directory: impl AsRef<Path>,
        export: CTranslate2Export<'_>,
    ) -> Result<(), ModelError> {
        let directory = directory.as_ref();
        let config = self.config();
        config.check_ctranslate2(directory)?;
        let model_path = directory.join(CTRANSLATE2_FILE);
        let sizes = [config.src_vocab_size, config.tgt_vocab_size];
        if sizes != [export.source.len(), export.target.len()] {
            return Err(ModelError::Weights {
                path: model_path,
                problem: format!(
                    "vocabularies of {} and {} tokens for a model of {} and {}",
                    export.source.len(),
                    export.target.len(),
                    sizes[0],
                    sizes[1]
                ),
            });
        }
        let map = map(config, usize::MAX).map_err(ModelError::unnamed(&model_path))?;
        let mut matrices = map.export(&collected(self), TiedNames::First);
        let starts_with_zeros = starts_with_zeros(config, &matrices);
        match starts_with_zeros {
            true => matrices
                .values_mut()
                .for_each(|data| drop_last_token(data, config)),
            false => exclude(
                &config.excluded_tokens,
                config.tgt_vocab_size,
                &mut matrices,
            ),
        }
        add_positions(config, &mut matrices);
        let aliases = aliases(config);
        let scalars = scalars(config, starts_with_zeros);

        let dropped = usize::from(starts_with_zeros);
        let lists = lists(&export, config, dropped);
        let settings = settings(&export, config, starts_with_zeros);
        fs::create_dir_all(directory).map_err(ModelError::io(directory))?;
        for (name, tokens) in lists {
            let path = directory.join(name);
            let written = replace_file(&path, |side| {
                fs::write(side, format!("{:#}\n", json!(tokens)))
            });
            written.map_err(ModelError::io(path))?;
        }
        let config_path = directory.join(CONFIG_FILE);
        // Both are on disk before either replaces an existing file.
        let at_work = Cell::new(&config_path);
        replace_file(&config_path, |side| -> io::Result<()> {
            fs::write(side, format!("{settings:#}\n"))?;
            at_work.set(&model_path);
            replace_file(&model_path, |side| {
                let mut file = BufWriter::new(fs::File::create(side)?);
                write(&mut file, &matrices, &scalars, &aliases, export.int8)?;
                file.into_inner()?.sync_all()
            })
        })
        .map_err(|source| ModelError::io(at_work.get())(source))
    }
}

/// Whether the last token of both vocabularies only starts targets, with an embedding of zeros, as in Marian's models.
fn starts_with_zeros(config: &TransformerConfig, matrices: &BTreeMap<String, TensorData>) -> bool {
    let last = config.pad_id as usize + 1;
    let is_only_start = config.pad_id == config.bos_id
        && config.excluded_tokens == [config.pad_id]
        && [config.src_vocab_size, config.tgt_vocab_size] == [last, last];
    let embeddings = [OF_SOURCE, OF_TARGET].into_iter();
    let mut embeddings = embeddings.filter_map(|name| matrices.get(name));
    is_only_start
        && embeddings.all(|data| {
            let row = data.iter::<f32>().skip((last - 1) * config.d_model);
            row.into_iter().all(|value| value == 0.0)
        })
}

/// Removes the last of the rows, if there is one per token.
fn drop_last_token(data: &mut TensorData, config: &TransformerConfig) {
    let mut shape = data.shape.to_vec();
    if shape[0] == config.tgt_vocab_size {
        shape[0] -= 1;
        let len: usize = shape.iter().product();
        let values: Vec<f32> = data.iter().take(len).collect();
        *data = TensorData::new(values, shape);
    }
}

/// Gives these tokens a bias that no logit outweighs.
fn exclude(tokens: &[u32], n_tokens: usize, matrices: &mut BTreeMap<String, TensorData>) {
    if tokens.is_empty() {
        return;
    }
    let mut bias: Vec<f32> = match matrices.get(BIAS_OF_GENERATOR) {
        Some(bias) => bias.iter().collect(),
        None => vec![0.0; n_tokens],
    };
    for &token in tokens {
        bias[token as usize] = EXCLUDED;
    }
    let bias = TensorData::new(bias, [n_tokens]);
    matrices.insert(BIAS_OF_GENERATOR.to_owned(), bias);
}

/// Whether positions are a table of sines and cosines.
fn has_sines(config: &TransformerConfig) -> bool {
    config.positions.are_added() && config.max_len().is_none()
}

/// Adds the table of sines and cosines, if positions are these.
fn add_positions(config: &TransformerConfig, matrices: &mut BTreeMap<String, TensorData>) {
    let d_model = config.d_model;
    if let Some(values) = config.positions.fixed_values(0, MOST_POSITIONS, d_model) {
        let table = TensorData::new(values, [MOST_POSITIONS, d_model]);
        matrices.insert(POSITIONS[0].to_owned(), table);
    }
}

/// The other names of shared matrices, each with the name that the matrix is written under.
fn aliases(config: &TransformerConfig) -> Vec<(String, &'static str)> {
    let mut aliases = Vec::new();
    let mut of_target = OF_TARGET;
    if config.tying.ties_source_target() {
        aliases.push((OF_TARGET.to_owned(), OF_SOURCE));
        of_target = OF_SOURCE;
    }
    if config.tying.ties_generator() {
        aliases.push((OF_GENERATOR.to_owned(), of_target));
    }
    if has_sines(config) {
        aliases.push((POSITIONS[1].to_owned(), POSITIONS[0]));
    }
    if let Positions::RelativeBias { .. } = config.positions {
        let [n_encoder, n_decoder] = [config.n_encoder_layers, config.n_decoder_layers];
        for (first, n_layers) in BIASES.into_iter().zip([n_encoder, n_decoder]) {
            let later =
                (1..n_layers).map(|layer| first.replace("layer_0", &format!("layer_{layer}")));
            aliases.extend(later.map(|name| (name, first)));
        }
    }
    aliases
}

/// A variable without dimensions.
enum Scalar {
    I8(i8),
    I16(i16),
    I32(i32),
    F32(f32),
}

/// The settings of the architecture, by name.
fn scalars(config: &TransformerConfig, starts_with_zeros: bool) -> Vec<(String, Scalar)> {
    let activation = match config.activation {
        Activation::Relu => 0,
        Activation::GeluTanh => 1,
        Activation::Silu => 2,
        Activation::Gelu => 3,
    };
    let scale = match config.embedding_scale {
        true => (config.d_model as f32).sqrt(),
        false => 1.0,
    };
    let stacks = [
        ("encoder", config.n_heads),
        ("decoder", config.decoder_n_heads()),
    ];
    let mut scalars = Vec::new();
    for (stack, n_heads) in stacks {
        let is_pre = config.norm == NormPlacement::Pre;
        let settings = [
            ("activation", Scalar::I8(activation)),
            ("num_heads", Scalar::I16(n_heads as i16)),
            ("pre_norm", Scalar::I8(i8::from(is_pre))),
            ("scale_embeddings", Scalar::F32(scale)),
        ];
        scalars.extend(settings.map(|(name, scalar)| (format!("{stack}/{name}"), scalar)));
    }
    if config.generator_scale {
        let scale = (config.d_model as f32).sqrt().recip();
        scalars.push(("decoder/scale_outputs".to_owned(), Scalar::F32(scale)));
    }
    for (name, is_self) in attentions(config) {
        if !config.attention_scale {
            scalars.push((format!("{name}/queries_scale"), Scalar::F32(1.0)));
        }
        if let (true, Positions::RelativeBias { max_distance, .. }) = (is_self, config.positions) {
            let scalar = Scalar::I32(max_distance as i32);
            scalars.push((format!("{name}/relative_attention_max_distance"), scalar));
        }
    }
    let start = Scalar::I8(i8::from(starts_with_zeros));
    scalars.push(("decoder/start_from_zero_embedding".to_owned(), start));
    // Alignments are the mean of all heads of the last layer.
    scalars.push(("decoder/alignment_layer".to_owned(), Scalar::I16(-1)));
    scalars.push(("decoder/alignment_heads".to_owned(), Scalar::I16(0)));
    scalars
}

/// The attentions of all layers, and whether each is self-attention.
fn attentions(config: &TransformerConfig) -> Vec<(String, bool)> {
    let encoder = (0..config.n_encoder_layers).map(|layer| format!("encoder/layer_{layer}"));
    let decoder = (0..config.n_decoder_layers).map(|layer| format!("decoder/layer_{layer}"));
    let cross = decoder
        .clone()
        .map(|layer| (format!("{layer}/attention"), false));
    let own = encoder.chain(decoder);
    let own = own.map(|layer| (format!("{layer}/self_attention"), true));
    own.chain(cross).collect()
}

/// The vocabularies, by file.
fn lists<'a>(
    export: &CTranslate2Export<'a>,
    config: &TransformerConfig,
    dropped: usize,
) -> Vec<(&'static str, &'a [String])> {
    let [source, target] = [export.source, export.target].map(|all| &all[..all.len() - dropped]);
    match config.tying.ties_source_target() && source == target {
        true => vec![("shared_vocabulary.json", source)],
        false => vec![
            ("source_vocabulary.json", source),
            ("target_vocabulary.json", target),
        ],
    }
}

/// `config.json`.
fn settings(
    export: &CTranslate2Export<'_>,
    config: &TransformerConfig,
    starts_with_zeros: bool,
) -> Value {
    let name = |id: u32| &export.target[id as usize];
    let unknown = ["<unk>", "[UNK]"].into_iter();
    let mut unknown = unknown.filter(|name| export.target.iter().any(|token| token == name));
    // A vector of zeros replaces the first token, which must be one of the file's.
    let start = match starts_with_zeros {
        true => config.eos_id,
        false => config.bos_id,
    };
    json!({
        "add_source_bos": config.source_bos.is_some(),
        "add_source_eos": config.source_eos,
        "bos_token": name(start),
        "decoder_start_token": name(start),
        "eos_token": name(config.eos_id),
        "layer_norm_epsilon": config.layer_norm_eps,
        "unk_token": unknown.next().unwrap_or("<unk>"),
    })
}

/// Writes `model.bin` in version 6.
fn write(
    file: &mut impl Write,
    matrices: &BTreeMap<String, TensorData>,
    scalars: &[(String, Scalar)],
    aliases: &[(String, &str)],
    int8: bool,
) -> io::Result<()> {
    let is_quantized =
        |name: &str, data: &TensorData| int8 && data.shape.len() == 2 && name.ends_with("/weight");
    let quantized = matrices
        .iter()
        .filter(|(name, data)| is_quantized(name, data));
    let count = matrices.len() + quantized.count() + scalars.len();
    file.write_all(&6_u32.to_le_bytes())?;
    write_text(file, "TransformerSpec")?;
    file.write_all(&7_u32.to_le_bytes())?;
    file.write_all(&(count as u32).to_le_bytes())?;
    for (name, data) in matrices {
        let shape = &data.shape;
        if !is_quantized(name, data) {
            write_variable(file, name, shape, 0, data.as_bytes())?;
            continue;
        }
        let values: Vec<f32> = data.iter().collect();
        let (integers, scales) = quantized_rows(&values, shape[1]);
        let bytes: Vec<u8> = integers.into_iter().map(i8::cast_unsigned).collect();
        // CTranslate2 divides by its scales. Rows of zeros have a scale of 0 here.
        let divisors = scales
            .iter()
            .map(|&scale| if scale > 0.0 { scale.recip() } else { 1.0 });
        let divisors: Vec<u8> = divisors.flat_map(f32::to_le_bytes).collect();
        write_variable(file, name, shape, 1, &bytes)?;
        write_variable(file, &format!("{name}_scale"), &shape[..1], 0, &divisors)?;
    }
    for (name, scalar) in scalars {
        match scalar {
            Scalar::I8(value) => write_variable(file, name, &[], 1, &value.to_le_bytes())?,
            Scalar::I16(value) => write_variable(file, name, &[], 2, &value.to_le_bytes())?,
            Scalar::I32(value) => write_variable(file, name, &[], 3, &value.to_le_bytes())?,
            Scalar::F32(value) => write_variable(file, name, &[], 0, &value.to_le_bytes())?,
        }
    }
    file.write_all(&(aliases.len() as u32).to_le_bytes())?;
    for (alias, name) in aliases {
        write_text(file, alias)?;
        write_text(file, name)?;
    }
    file.flush()
}

fn write_variable(
    file: &mut impl Write,
    name: &str,
    shape: &[usize],
    kind: u8,
    bytes: &[u8],
) -> io::Result<()> {
    let size = u32::try_from(bytes.len()).map_err(|_| {
        io::Error::other(format!(
            "`{name}` has more than 4 GiB, the limit of the format"
        ))
    })?;
    write_text(file, name)?;
    file.write_all(&[shape.len() as u8])?;
    for &size in shape {
        file.write_all(&(size as u32).to_le_bytes())?;
    }
    file.write_all(&[kind])?;
    file.write_all(&size.to_le_bytes())?;
    file.write_all(bytes)
}

fn write_text(file: &mut impl Write, text: &str) -> io::Result<()> {
    file.write_all(&(text.len() as u16 + 1).to_le_bytes())?;
    file.write_all(text.as_bytes())?;
    file.write_all(&[0])
}
