//! A model against what PyTorch computed: fixtures, errors and their bounds.
//!
//! A fixture is a folder as `scripts/make-pytorch-fixture` makes it, of any sizes.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use burn::lr_scheduler::LrScheduler;
use burn::module::{AutodiffModule, Module, ModuleMapper, Param};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{BoolStore, DType, Int, Tensor, TensorData};
use burn_autodiff::Autodiff;
use safetensors::SafeTensors;
use serde::Deserialize;
use transformer_core::{
    Activation, AttentionMask, EncoderLayer, LayerConfig, LayerNormFormula, MaxLength,
    NormPlacement, Positions, PytorchError, PytorchExport, PytorchSystem, Transformer,
    TransformerConfig, WeightTying, greedy, sinusoidal_encoding,
};
use transformer_train::{LabelSmoothedCrossEntropy, PaperAdam, TrainingConfig, noam_schedule};

/// Largest absolute error of what the model computes.
const OUTPUT_BOUND: f64 = 2e-5;
/// Largest absolute error of the loss.
const LOSS_BOUND: f64 = 1e-5;
/// Largest error of a gradient: this, …
const GRADIENT_BOUND: f64 = 1e-6;
/// … and this share of the largest entry of its tensor.
const GRADIENT_SHARE: f64 = 1e-4;
/// Largest absolute error of the first losses of training, before small differences grow.
const FIRST_LOSSES_BOUND: f64 = 2e-5;
/// How many losses those are.
const FIRST_LOSSES: usize = 3;
/// The file of inputs and of what PyTorch computed.
const IO_FILE: &str = "io.safetensors";
/// Positions that a class's table of sines and cosines may have.
const MOST_POSITIONS: usize = 1_000_000;
/// Largest absolute error of any loss of training.
const LOSSES_BOUND: f64 = 1e-3;

/// A system's weights, inputs, and what PyTorch computed.
pub struct Fixture {
    folder: PathBuf,
    system: System,
    io: Io,
}

/// Which of a fixture's two weight files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WeightsFile {
    /// `weights.safetensors`
    Safetensors,
    /// `weights.pt`
    Pt,
}

impl WeightsFile {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Safetensors, Self::Pt];

    /// Its name in the folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "weights.safetensors",
            Self::Pt => "weights.pt",
        }
    }
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

impl Fixture {
    /// Reads a folder.
    ///
    /// # Errors
    /// When a file cannot be read or does not describe a fixture.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref().to_owned();
        let path = folder.join("config.json");
        let read =
            || -> Result<System> { System::from_json(serde_json::from_slice(&fs::read(&path)?)?) };
        let system = read().map_err(|error| format!("{}: {error}", path.display()))?;
        let path = folder.join(IO_FILE);
        let io = Io::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { folder, system, io })
    }

    /// Measures how far the model is from PyTorch.
    ///
    /// # Errors
    /// When the weights cannot be read, or `io.safetensors` lacks something or does not fit them.
    pub fn compare<B: Backend>(&self, weights: WeightsFile, device: &B::Device) -> Result<Report> {
        let path = self.folder.join(weights.name());
        let rows = match &self.system {
            System::Model(system) => system.compare::<B>(&path, &self.io, device),
            System::Layer(config) => compare_layer::<B>(config, &path, &self.io, device),
        };
        let rows = rows.map_err(|error| match error.downcast::<PytorchError>() {
            Ok(error) => error.to_string(),
            Err(error) => format!("{}: {error}", self.folder.join(IO_FILE).display()),
        });
        Ok(Report {
            title: format!("{} ({})", self.folder.display(), weights.name()),
            rows: rows?,
        })
    }

    /// Writes the weights, read and written by us, to a folder of the same name in `out`, in both
    /// formats and with the buffers that the PyTorch classes keep.
    ///
    /// # Errors
    /// When the weights cannot be read or written, or the folder would be the fixture's own.
    pub fn export<B: Backend>(
        &self,
        weights: WeightsFile,
        out: &Path,
        device: &B::Device,
    ) -> Result<()> {
        let path = self.folder.join(weights.name());
        let folder = self.folder.canonicalize()?;
        let out = out.join(folder.file_name().unwrap_or_default());
        let named = |error| format!("{}: {error}", out.display());
        fs::create_dir_all(&out).map_err(named)?;
        if out.canonicalize().map_err(named)? == folder {
            return Err(format!("{}: would be overwritten", out.display()).into());
        }
        let files = WeightsFile::ALL.map(|weights| out.join(weights.name()));
        match &self.system {
            System::Model(ModelSystem {
                system,
                config,
                max_len,
                ..
            }) => {
                let model = Transformer::<B>::from_pytorch(&path, *system, config, device)?;
                let options = PytorchExport {
                    position_table: Some(*max_len),
                };
                for file in files {
                    model.to_pytorch(file, *system, &options)?;
                }
            }
            System::Layer(config) => {
                let layer = EncoderLayer::<B>::from_pytorch(&path, config, device)?;
                for file in files {
                    layer.to_pytorch(file, config)?;
                }
            }
        }
        Ok(())
    }
}

/// How far a model is from PyTorch, quantity by quantity.
pub struct Report {
    title: String,
    rows: Vec<Row>,
}

impl Report {
    /// Whether every error is within its bound.
    pub fn passed(&self) -> bool {
        self.rows.iter().all(Row::passed)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        writeln!(
            f,
            "  {:<20} {:>9} {:>9} {:>9}",
            "", "absolute", "relative", "bound"
        )?;
        for row in &self.rows {
            writeln!(f, "  {row}")?;
        }
        Ok(())
    }
}

/// The largest error of a quantity.
struct Row {
    quantity: String,
    error: Difference,
    bound: f64,
    note: String,
}

/// How far two tensors are apart.
#[derive(Debug, Clone, Copy)]
struct Difference {
    absolute: f64,
    /// The largest entry that there should be.
    largest: f64,
}

impl Row {
    fn new(quantity: &str, error: Difference, bound: f64) -> Self {
        Self {
            quantity: quantity.to_owned(),
            error,
            bound,
            note: String::new(),
        }
    }

    /// How much of its bound an error takes; more than 1 is too much, and so is what is not a number.
    fn share(&self) -> f64 {
        let share = self.error.absolute / self.bound;
        if share.is_nan() { f64::INFINITY } else { share }
    }

    fn passed(&self) -> bool {
        self.share() <= 1.0
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { absolute, largest } = self.error;
        // Nothing is relative to what is zero up to rounding.
        let relative = match absolute / largest {
            relative if largest > f64::from(f32::EPSILON) => format!("{relative:.1e}"),
            _ => "-".to_owned(),
        };
        write!(
            f,
            "{:<20} {absolute:>9.1e} {relative:>9} {:>9.1e}  {}{}",
            self.quantity,
            self.bound,
            if self.passed() { "ok" } else { "FAILED" },
            self.note,
        )
    }
}

/// What a `config.json` describes.
enum System {
    Model(ModelSystem),
    Layer(LayerConfig),
}

struct ModelSystem {
    system: PytorchSystem,
    config: TransformerConfig,
    /// Positions of the tables that the PyTorch classes keep.
    max_len: usize,
    label_smoothing: f64,
    training: TrainingConfig,
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
    layer_norm: LayerNormFormula,
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

fn variance() -> LayerNormFormula {
    LayerNormFormula::Variance
}

impl System {
    fn from_json(json: serde_json::Value) -> Result<Self> {
        if json["system"] == "encoder-layer" {
            let json: LayerJson = serde_json::from_value(json)?;
            Ok(Self::Layer(json.config()?))
        } else {
            let json: ModelJson = serde_json::from_value(json)?;
            Ok(Self::Model(json.model()?))
        }
    }
}

impl LayerJson {
    fn config(&self) -> Result<LayerConfig> {
        if !self.layer_norm_eps.is_finite() || self.layer_norm_eps <= 0.0 {
            return Err(format!("`layer_norm_eps` is {}", self.layer_norm_eps).into());
        }
        Ok(LayerConfig {
            norm: self.norm,
            attention_bias: self.attention_bias,
            activation: self.activation,
            layer_norm: self.layer_norm,
            layer_norm_eps: self.layer_norm_eps,
            dropout: 0.0,
            ..LayerConfig::new(self.d_model, self.n_heads, self.d_ff)?
        })
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
            return Err(format!("`label_smoothing` is {}", self.label_smoothing).into());
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

/// The tensors of `io.safetensors`.
struct Io(BTreeMap<String, TensorData>);

impl Io {
    fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path)?;
        let tensors = SafeTensors::deserialize(&bytes)?;
        let mut io = BTreeMap::new();
        for (name, tensor) in tensors.tensors() {
            let dtype = match tensor.dtype() {
                safetensors::Dtype::F32 => DType::F32,
                safetensors::Dtype::I64 => DType::I64,
                safetensors::Dtype::BOOL => DType::Bool(BoolStore::Native),
                other => return Err(format!("`{name}` is {other:?}").into()),
            };
            let mut bytes = tensor.data().to_vec();
            if matches!(dtype, DType::Bool(_)) {
                bytes
                    .iter_mut()
                    .for_each(|byte| *byte = u8::from(*byte != 0));
            }
            let data = TensorData::from_bytes_vec(bytes, tensor.shape(), dtype);
            io.insert(name, data);
        }
        Ok(Self(io))
    }

    fn get(&self, name: &str) -> Result<&TensorData> {
        Ok(self
            .0
            .get(name)
            .ok_or_else(|| format!("`{name}` is missing"))?)
    }

    /// A tensor of `D` dimensions of numbers of the given kind, not empty.
    fn of_rank<const D: usize>(
        &self,
        name: &str,
        dtype: DType,
    ) -> Result<(&TensorData, [usize; D])> {
        let data = self.get(name)?;
        match <[usize; D]>::try_from(&data.shape[..]) {
            Ok(dims) if data.dtype == dtype && dims.contains(&0) => {
                Err(format!("`{name}` is empty").into())
            }
            Ok(dims) if data.dtype == dtype => Ok((data, dims)),
            _ => Err(format!(
                "`{name}` is {} {:?}, not {D} dimensions of {}",
                data.dtype.name(),
                &data.shape[..],
                dtype.name()
            )
            .into()),
        }
    }

    /// Rows of tokens of a vocabulary.
    fn tokens(&self, name: &str, vocab_size: usize) -> Result<Vec<Vec<u32>>> {
        let (data, [_, len]) = self.of_rank(name, DType::I64)?;
        let tokens = data
            .iter::<i64>()
            .map(|token| {
                let known = u32::try_from(token).ok();
                known.filter(|&token| (token as usize) < vocab_size)
            })
            .collect::<Option<Vec<u32>>>()
            .ok_or_else(|| format!("`{name}` holds tokens outside the vocabulary"))?;
        Ok(tokens.chunks(len).map(<[u32]>::to_vec).collect())
    }

    /// How far a tensor is from the one of that name.
    fn difference(&self, name: &str, found: &TensorData) -> Result<Difference> {
        let expected = self.get(name)?;
        let shapes = [&expected.shape[..], &found.shape[..]];
        if shapes[0] != shapes[1] {
            return Err(format!("`{name}` is {:?}, not {:?}", shapes[0], shapes[1]).into());
        }
        Ok(difference(found.iter(), expected.iter()))
    }

    fn row(&self, name: &str, found: TensorData, bound: f64) -> Result<Row> {
        Ok(Row::new(name, self.difference(name, &found)?, bound))
    }

    fn loss_row(&self, found: f64) -> Result<Row> {
        let [expected] = self.get("loss")?.iter().collect::<Vec<f64>>()[..] else {
            return Err("`loss` is not one number".into());
        };
        let error = difference([found].into_iter(), [expected].into_iter());
        Ok(Row::new("loss", error, LOSS_BOUND))
    }

    /// The gradient that takes most of its bound.
    fn gradient_row(&self, found: &BTreeMap<String, TensorData>) -> Result<Row> {
        let mut worst: Option<Row> = None;
        let mut count = 0;
        for (name, gradient) in found {
            let key = format!("grad.{name}");
            // A tied tensor has one gradient, under one of its names.
            let twin = |(other, data): (&String, &TensorData)| {
                self.0.contains_key(&format!("grad.{other}"))
                    && data.as_bytes() == gradient.as_bytes()
            };
            if !self.0.contains_key(&key) && found.iter().any(twin) {
                continue;
            }
            let error = self.difference(&key, gradient)?;
            let bound = GRADIENT_SHARE * error.largest + GRADIENT_BOUND;
            let mut row = Row::new("", error, bound);
            row.note = format!("  {name}");
            count += 1;
            if worst
                .as_ref()
                .is_none_or(|worst| row.share() > worst.share())
            {
                worst = Some(row);
            }
        }
        for key in self.0.keys() {
            if let Some(name) = key.strip_prefix("grad.")
                && !found.contains_key(name)
            {
                return Err(format!("the model has no `{name}`").into());
            }
        }
        let mut worst = worst.ok_or("no gradients to compare")?;
        worst.quantity = format!("worst of {count} gradients");
        Ok(worst)
    }
}

/// The largest difference; not a number where any of them is not.
fn difference(found: impl Iterator<Item = f64>, expected: impl Iterator<Item = f64>) -> Difference {
    let mut difference = Difference {
        absolute: 0.0,
        largest: 0.0,
    };
    for (found, expected) in found.zip(expected) {
        let error = (found - expected).abs();
        // In this order, what is not a number is the largest.
        if error.total_cmp(&difference.absolute).is_gt() {
            difference.absolute = error;
        }
        difference.largest = difference.largest.max(expected.abs());
    }
    difference
}

impl ModelSystem {
    fn compare<B: Backend>(&self, path: &Path, io: &Io, device: &B::Device) -> Result<Vec<Row>> {
        let batch = self.batch::<B>(io, device)?;
        let model = Transformer::<B>::from_pytorch(path, self.system, &self.config, device)?;
        let memory = model.encode(batch.src.clone());
        let logits = model.generate(model.decode(batch.tgt.clone(), &memory));
        let mut rows = vec![
            io.row("memory", memory.hidden.into_data(), OUTPUT_BOUND)?,
            io.row("logits", logits.into_data(), OUTPUT_BOUND)?,
        ];

        let batch = self.batch::<Autodiff<B>>(io, device)?;
        let model =
            Transformer::<Autodiff<B>>::from_pytorch(path, self.system, &self.config, device)?;
        let loss = self.loss(&model, &batch);
        rows.push(io.loss_row(scalar(&loss))?);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let gradients = as_module(&model, gradients).state_dict(self.system, &NO_BUFFERS)?;
        rows.push(io.gradient_row(&gradients)?);

        rows.push(self.greedy_row::<B>(&model.valid(), io, device)?);
        rows.extend(self.training_rows(model, &batch, io)?);
        Ok(rows)
    }

    fn batch<B: Backend>(&self, io: &Io, device: &B::Device) -> Result<TokenBatch<B>> {
        let load = |name: &str, vocab_size: usize| -> Result<Tensor<B, 2, Int>> {
            let rows = io.tokens(name, vocab_size)?;
            if let Some(max_len) = self.config.max_len()
                && rows[0].len() > max_len
            {
                return Err(format!("`{name}` is longer than the {max_len} positions").into());
            }
            Ok(transformer_core::padded(&rows, self.config.pad_id, device))
        };
        let batch = TokenBatch {
            src: load("src", self.config.src_vocab_size)?,
            tgt: load("tgt", self.config.tgt_vocab_size)?,
            labels: load("labels", self.config.tgt_vocab_size)?,
        };
        if batch.src.dims()[0] == batch.tgt.dims()[0] && batch.tgt.dims() == batch.labels.dims() {
            Ok(batch)
        } else {
            Err("`src`, `tgt` and `labels` are not of one batch".into())
        }
    }

    fn loss<B: Backend>(&self, model: &Transformer<B>, batch: &TokenBatch<B>) -> Tensor<B, 1> {
        let logits = model.forward(batch.src.clone(), batch.tgt.clone());
        LabelSmoothedCrossEntropy::new(self.label_smoothing, self.config.pad_id)
            .mean(logits.flatten(0, 1), batch.labels.clone().flatten(0, 1))
    }

    /// How many rows are decoded to other tokens than PyTorch's.
    fn greedy_row<B: Backend>(
        &self,
        model: &Transformer<B>,
        io: &Io,
        device: &B::Device,
    ) -> Result<Row> {
        let config = &self.config;
        let sources = io.tokens("src", config.src_vocab_size)?;
        let expected = io.tokens("greedy", config.tgt_vocab_size)?;
        let len = expected[0].len();
        if len < 2 {
            return Err("`greedy` has no token after `<bos>`".into());
        }
        let hypotheses = greedy(model, &sources, MaxLength::Tokens(len - 1), device)?;
        if hypotheses.len() != expected.len() {
            return Err("`src` and `greedy` are not of one batch".into());
        }
        let rows = hypotheses.iter().map(|hypothesis| {
            let end = hypothesis.finished.then_some(config.eos_id);
            let mut row = vec![config.bos_id];
            row.extend(hypothesis.tokens.iter().copied().chain(end));
            row.resize(len, config.pad_id);
            row
        });
        let wrong = rows
            .zip(&expected)
            .filter(|(row, expected)| row != *expected);
        let error = Difference {
            absolute: wrong.count() as f64,
            largest: expected.len() as f64,
        };
        let mut row = Row::new("greedy rows", error, 0.5);
        row.note = "  identical".to_owned();
        if error.absolute > 0.0 {
            row.note = "  of those differ".to_owned();
        }
        Ok(row)
    }

    fn training_rows<B: AutodiffBackend>(
        &self,
        mut model: Transformer<B>,
        batch: &TokenBatch<B>,
        io: &Io,
    ) -> Result<Vec<Row>> {
        let (expected, [updates]) = io.of_rank("training_losses", DType::F32)?;
        let expected: Vec<f64> = expected.iter().collect();
        let mut optimizer = PaperAdam::new(None);
        let mut schedule = noam_schedule(&self.training, self.config.d_model);
        let mut found = Vec::new();
        for _ in 0..updates {
            let loss = self.loss(&model, batch);
            found.push(scalar(&loss));
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(schedule.step(), model, gradients);
        }
        let first = FIRST_LOSSES.min(updates);
        let row = |quantity: String, losses: usize, bound| {
            let pairs = (found[..losses].iter(), expected[..losses].iter());
            Row::new(
                &quantity,
                difference(pairs.0.copied(), pairs.1.copied()),
                bound,
            )
        };
        Ok(vec![
            row(format!("first {first} losses"), first, FIRST_LOSSES_BOUND),
            row(format!("all {updates} losses"), updates, LOSSES_BOUND),
        ])
    }
}

const NO_BUFFERS: PytorchExport = PytorchExport {
    position_table: None,
};

struct TokenBatch<B: Backend> {
    src: Tensor<B, 2, Int>,
    tgt: Tensor<B, 2, Int>,
    labels: Tensor<B, 2, Int>,
}

fn compare_layer<B: Backend>(
    config: &LayerConfig,
    path: &Path,
    io: &Io,
    device: &B::Device,
) -> Result<Vec<Row>> {
    let mut rows = layer_rows::<Autodiff<B>>(config, path, io, device)?;
    if io.0.contains_key("positional_encoding") {
        let (_, [len, d_model]) = io.of_rank("positional_encoding", DType::F32)?;
        let ours = sinusoidal_encoding::<B>(0, len, d_model, device).into_data();
        rows.push(io.row("positional_encoding", ours, OUTPUT_BOUND)?);
    }
    Ok(rows)
}

fn layer_rows<B: AutodiffBackend>(
    config: &LayerConfig,
    path: &Path,
    io: &Io,
    device: &B::Device,
) -> Result<Vec<Row>> {
    let (x, [batch, len, d_model]) = io.of_rank("x", DType::F32)?;
    let (blocked, shape) = io.of_rank::<2>("key_blocked", DType::Bool(BoolStore::Native))?;
    if (shape, d_model) != ([batch, len], config.d_model) {
        return Err("`x` and `key_blocked` do not fit".into());
    }
    let layer = EncoderLayer::<B>::from_pytorch(path, config, device)?;
    let x = Tensor::<B, 3>::from_data(x.clone(), device);
    let blocked = Tensor::<B, 2, burn::tensor::Bool>::from_data(blocked.clone(), device);
    let mask = AttentionMask::padding(blocked.clone());
    let mut maps = Vec::new();
    let y = layer.forward(x, Some(&mask), Some(&mut maps));
    let weights = maps.remove(0);

    let real: Tensor<B, 3> = blocked.bool_not().float().unsqueeze_dim(2);
    let count = real.clone().sum() * d_model as f64;
    let loss = (y.clone().powi_scalar(2) * real).sum() / count;
    let mut rows = vec![
        io.row("y", y.into_data(), OUTPUT_BOUND)?,
        io.row("attention_weights", weights.into_data(), OUTPUT_BOUND)?,
        io.loss_row(scalar(&loss))?,
    ];
    let gradients = GradientsParams::from_grads(loss.backward(), &layer);
    let gradients = as_module(&layer, gradients).state_dict(config);
    rows.push(io.gradient_row(&gradients)?);
    Ok(rows)
}

fn scalar<B: Backend>(tensor: &Tensor<B, 1>) -> f64 {
    tensor
        .to_data()
        .iter()
        .next()
        .expect("a tensor of one element")
}

/// A module that holds each parameter's gradient in the parameter's place, so that names and layouts
/// of parameters are those of gradients.
fn as_module<B: AutodiffBackend, M: AutodiffModule<B>>(
    module: &M,
    gradients: GradientsParams,
) -> M::InnerModule {
    module.valid().map(&mut Replace { gradients })
}

struct Replace {
    gradients: GradientsParams,
}

impl<B: Backend> ModuleMapper<B> for Replace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let gradient = self.gradients.remove::<B, D>(param.id);
        // What no gradient reaches has gradient zero.
        param.map(|value| gradient.unwrap_or_else(|| value.zeros_like()))
    }
}
