//! Runs a model or a layer as PyTorch ran it, and measures the differences.

use std::path::Path;

use burn::lr_scheduler::LrScheduler;
use burn::module::{AutodiffModule, Module, ModuleMapper, Param};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Bool, BoolStore, DType, Int, Tensor};
use burn_autodiff::Autodiff;
use transformer_core::PackedModel;
use transformer_core::decoding::{MaxLength, NextToken, greedy, padded};
use transformer_core::formats::PytorchExport;
use transformer_core::nn::{
    AttentionWeights, Block, Context, Layer, LayerConfig, Mask, sinusoidal_encoding,
};
use transformer_core::packed::PackedPrecision;
use transformer_core::{Request, Transformer};
use transformer_train::objective::Labels;
use transformer_train::optim::{AdamConfig, RateSchedule};

use super::Result;
use super::config::ModelSystem;
use super::io::Io;
use super::report::{Difference, Row, difference};

/// Largest absolute error of the model's outputs.
pub(super) const OUTPUT_BOUND: f64 = 2e-5;
/// Largest absolute error of the first losses of training, before small differences grow.
const FIRST_LOSSES_BOUND: f64 = 2e-5;
/// The number of those losses.
const FIRST_LOSSES: usize = 3;
/// Largest absolute error of any loss of training.
const LOSSES_BOUND: f64 = 1e-3;

impl ModelSystem {
    pub fn compare<B: Backend>(
        &self,
        path: &Path,
        io: &Io,
        device: &B::Device,
    ) -> Result<Vec<Row>> {
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

        let trained = model.valid();
        rows.push(self.greedy_row("greedy rows", &trained, io)?);
        {
            let packed = PackedModel::new(trained, PackedPrecision::F32);
            rows.push(self.greedy_row("greedy rows, packed", &packed, io)?);
        }
        rows.extend(self.training_rows(model, &batch, io)?);
        Ok(rows)
    }

    fn batch<B: Backend>(&self, io: &Io, device: &B::Device) -> Result<TokenBatch<B>> {
        let load = |name: &str, vocab_size: usize| -> Result<Vec<Vec<u32>>> {
            let rows = io.tokens(name, vocab_size)?;
            if let Some(max_len) = self.config.max_len()
                && rows[0].len() > max_len
            {
                return Err(format!("`{name}` is longer than the {max_len} positions").into());
            }
            Ok(rows)
        };
        let src = load("src", self.config.src_vocab_size)?;
        let tgt = load("tgt", self.config.tgt_vocab_size)?;
        let labels = load("labels", self.config.tgt_vocab_size)?;
        // The rows of a tensor have one length.
        let shapes = [&tgt, &labels].map(|rows| [rows.len(), rows[0].len()]);
        if src.len() != tgt.len() || shapes[0] != shapes[1] {
            return Err("`src`, `tgt` and `labels` are not of one batch".into());
        }
        let pad_id = self.config.pad_id;
        Ok(TokenBatch {
            src: padded(&src, pad_id, device),
            tgt: padded(&tgt, pad_id, device),
            labels: Labels::new(&labels, pad_id, device),
        })
    }

    /// The mean loss of a batch, as training computes it.
    fn loss<B: Backend>(&self, model: &Transformer<B>, batch: &TokenBatch<B>) -> Tensor<B, 1> {
        let hidden = model.decode(batch.tgt.clone(), &model.encode(batch.src.clone()));
        let labels = batch.labels.clone();
        let sums = labels.loss(hidden, self.label_smoothing, |rows| model.generate(rows));
        sums.loss / sums.weight
    }

    /// The number of rows that a model decodes to other tokens than PyTorch's.
    fn greedy_row(&self, quantity: &str, model: &impl NextToken, io: &Io) -> Result<Row> {
        let config = &self.config;
        let sources = io.tokens("src", config.src_vocab_size)?;
        let expected = io.tokens("greedy", config.tgt_vocab_size)?;
        let len = expected[0].len();
        if len < 2 {
            return Err("`greedy` has no token after `<bos>`".into());
        }
        let requests: Vec<_> = sources.into_iter().map(Request::exact).collect();
        let hypotheses = greedy(model, &requests, MaxLength::Tokens(len - 1))?;
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
        let mut row = Row::new(quantity, error, 0.5);
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
        let mut optimizer = AdamConfig::default().init();
        let mut schedule = RateSchedule::new(&self.training, self.config.d_model);
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
    labels: Labels<B>,
}

pub(super) fn compare_layer<B: Backend>(
    config: &LayerConfig,
    path: &Path,
    io: &Io,
    device: &B::Device,
) -> Result<Vec<Row>> {
    let mut rows = layer_rows::<Autodiff<B>>(config, path, io, device)?;
    if io.contains("positional_encoding") {
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
    if (shape, d_model) != ([batch, len], config.d_model()) {
        return Err("`x` and `key_blocked` do not fit".into());
    }
    let layer = Layer::<B>::from_pytorch(path, config, device)?;
    let x = Tensor::<B, 3>::from_data(x.clone(), device);
    let blocked = Tensor::<B, 2, Bool>::from_data(blocked.clone(), device);
    let mask = Mask::padding(blocked.clone());
    let at = Context {
        mask: Some(&mask),
        weights: AttentionWeights::Return,
        ..Context::default()
    };
    let output = layer.forward(x, &at, None);
    let y = output.hidden;
    let weights = output.self_attention.ok_or("no attention weights")?;

    let real: Tensor<B, 3> = blocked.bool_not().float().unsqueeze_dim(2);
    let count = real.clone().sum() * d_model as f64;
    let loss = (y.clone().powi_scalar(2) * real).sum() / count;
    let mut rows = vec![
        io.row("y", y.into_data(), OUTPUT_BOUND)?,
        io.row("attention_weights", weights.into_data(), OUTPUT_BOUND)?,
        io.loss_row(scalar(&loss))?,
    ];
    let gradients = GradientsParams::from_grads(loss.backward(), &layer);
    let gradients = as_module(&layer, gradients).state_dict(config)?;
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

/// A module that holds each parameter's gradient instead of the parameter, so that gradients have the
/// names and layouts of parameters.
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
        // A parameter that no gradient reaches has gradient zero.
        param.map(|value| gradient.unwrap_or_else(|| value.zeros_like()))
    }
}
