//! One saved model gives the same numbers on every backend that is compiled in.
//!
//! The reference is ndarray in 32 bits. For each model of [`models`], every backend loads the model that
//! the reference saved and computes each [`Quantity`]; the output is a table of the largest errors, and one for each
//! 16-bit type. `cargo test --features flex,wgpu,tch --test backend_parity` prints them.

#[path = "support/devices.rs"]
mod devices;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use burn::lr_scheduler::LrScheduler;
use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Element, Int, Tensor, TensorData};
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use clap::ValueEnum;
use transformer_core::decoding::{MaxLength, greedy, padded};
use transformer_core::formats::WEIGHTS_FILE;
use transformer_core::models::WeightTying;
use transformer_core::nn::{
    Activation, AttentionWeights, NormConfig, NormKind, NormPlacement, Positions,
};
use transformer_core::{Request, Transformer, TransformerConfig};
use transformer_program::{BackendChoice, BackendTask, Precision, Target, run_at, run_on};
use transformer_train::data::TokenizedPair;
use transformer_train::objective::LabelSmoothedCrossEntropy;
use transformer_train::optim::{AdamConfig, RateSchedule};
use transformer_train::progress::ProgressDisplay;
use transformer_train::{Trainer, TrainingConfig};

use devices::every_backend;

/// A quantity that is compared, and the bound of its error.
struct Quantity {
    name: &'static str,
    /// The largest error, relative to the largest expected number of a list; `None` where no number may
    /// differ.
    bound: Option<f64>,
    /// Whether it is compared in 16 bits, too.
    in_half: bool,
    why: &'static str,
}

/// 16 bits keep 11 or 8 bits of each number. Errors are some three roundings of 5e-4 or 4e-3; twice as much for other
/// orders of sums.
const F16_BOUND: f64 = 3e-3;
const BF16_BOUND: f64 = 2e-2;
/// TF32 keeps 11 bits of the factors of a matrix multiplication.
const TF32_BOUND: f64 = 5e-3;

const QUANTITIES: [Quantity; 12] = [
    same("init", "drawn on the host"),
    near(
        "memory",
        5e-6,
        "sums in another order, through four layers: some tens of 6e-8",
    )
    .in_half(),
    near("logits", 5e-6, "as memory").in_half(),
    near("cached", 5e-6, "logits token by token, as all at once").in_half(),
    near("loss", 5e-6, "as logits").in_half(),
    near(
        "norms",
        5e-6,
        "of features whose squares are out of f16's range",
    )
    .in_half(),
    near(
        "gradients",
        5e-5,
        "of each tensor's largest; differences of near numbers lose digits",
    ),
    near(
        "50 updates",
        5e-6,
        "losses, as loss; at this learning rate roundings do not grow",
    ),
    near(
        "frozen",
        5e-6,
        "the same with a frozen embedding: a backward pass that some parameters have no part in",
    ),
    same("greedy", "tokens of a sentence"),
    same("saved", "the file that it writes of the model that it read"),
    same(
        "again",
        "two trainings of one seed, dropout on (libtorch: one thread)",
    ),
];

const fn near(name: &'static str, bound: f64, why: &'static str) -> Quantity {
    Quantity {
        name,
        bound: Some(bound),
        in_half: false,
        why,
    }
}

const fn same(name: &'static str, why: &'static str) -> Quantity {
    Quantity {
        name,
        bound: None,
        in_half: false,
        why,
    }
}

impl Quantity {
    const fn in_half(self) -> Self {
        Self {
            in_half: true,
            ..self
        }
    }

    fn bound_in(&self, backend: BackendChoice, precision: Precision) -> f64 {
        match (precision, self.bound) {
            // An error in an activation near zero turns ReLU's derivative from 0 to 1.
            (Precision::F32, Some(_)) if backend.multiplies_in_tf32() => match self.name {
                "gradients" => f64::INFINITY,
                _ => TF32_BOUND,
            },
            (Precision::F32 | Precision::Int8, bound) => bound.unwrap_or(0.0),
            (Precision::F16, _) => F16_BOUND,
            (Precision::Bf16, _) => BF16_BOUND,
        }
    }

    /// The largest error; without a bound, the number of lists that differ.
    fn error(&self, found: &[Vec<f64>], expected: &[Vec<f64>]) -> f64 {
        assert_eq!(found.len(), expected.len(), "{}", self.name);
        let lists = || found.iter().zip(expected);
        match self.bound {
            None => lists().filter(|(f, e)| f != e).count() as f64,
            Some(_) => lists().map(|(f, e)| relative(f, e)).fold(0.0, larger),
        }
    }
}

/// The larger error; NaN is larger than any number.
fn larger(a: f64, b: f64) -> f64 {
    if b.total_cmp(&a).is_gt() { b } else { a }
}

/// Models with each placement of the norm, positions, tying, and sizes of heads, with relative positions, and with
/// Llama's layers.
fn models() -> [(&'static str, TransformerConfig); 6] {
    let base = TransformerConfig {
        d_model: 32,
        n_heads: 4,
        d_ff: 64,
        n_encoder_layers: 2,
        n_decoder_layers: 2,
        dropout: 0.0,
        ..TransformerConfig::base(VOCAB_SIZE)
    };
    [
        ("post-norm, sinusoidal, tied", base.clone()),
        (
            "pre-norm, learned, untied",
            TransformerConfig {
                norm: NormPlacement::Pre,
                final_norm: true,
                positions: LEARNED,
                tying: WeightTying::None,
                ..base.clone()
            },
        ),
        (
            "post-norm, learned, generator tied",
            TransformerConfig {
                positions: LEARNED,
                tying: WeightTying::TargetGenerator,
                attention_bias: true,
                ..base.clone()
            },
        ),
        (
            "pre-norm, sinusoidal, tied, d_k 6, d_v 10",
            TransformerConfig {
                norm: NormPlacement::Pre,
                final_norm: true,
                d_k: Some(6),
                d_v: Some(10),
                ..base.clone()
            },
        ),
        (
            "relative positions",
            TransformerConfig {
                positions: Positions::Relative { max_distance: 3 },
                ..base.clone()
            },
        ),
        (
            "Llama's layers",
            TransformerConfig {
                norm: NormPlacement::Pre,
                final_norm: true,
                layer_norm: NormKind::RootMeanSquare,
                positions: Positions::Rotary { base: 10_000.0 },
                n_kv_heads: Some(2),
                activation: Activation::Silu,
                gated: true,
                feed_forward_bias: false,
                ..base
            },
        ),
    ]
}

const LEARNED: Positions = Positions::Learned { max_len: 16 };
const VOCAB_SIZE: usize = 24;
const MODEL_SEED: u64 = 11;

/// Sources of several lengths, one of them empty: every key of its row is blocked.
fn sources() -> Vec<Vec<u32>> {
    vec![
        vec![5, 9, 3, 7, 2],
        vec![4, 2],
        vec![],
        vec![11, 12, 13, 14, 15, 16, 2],
    ]
}

fn targets() -> Vec<Vec<u32>> {
    vec![
        vec![6, 8, 10],
        vec![4, 9, 23, 20, 21, 3],
        vec![7],
        vec![17, 18, 19, 22, 5],
    ]
}

struct Batch<B: Backend> {
    src: Tensor<B, 2, Int>,
    tgt: Tensor<B, 2, Int>,
    labels: Tensor<B, 2, Int>,
}

impl<B: Backend> Batch<B> {
    fn new(config: &TransformerConfig, device: &B::Device) -> Self {
        let (begin, end) = ([config.bos_id], [config.eos_id]);
        let tensor = |rows: Vec<Vec<u32>>| padded(&rows, config.pad_id, device);
        let targets = targets();
        let join = |parts: [&[u32]; 2]| parts.concat();
        Self {
            src: tensor(sources()),
            tgt: tensor(targets.iter().map(|row| join([&begin, row])).collect()),
            labels: tensor(targets.iter().map(|row| join([row, &end])).collect()),
        }
    }
}

/// The numbers that a backend computed, by the quantity's name: lists, each compared by itself.
type Measured = BTreeMap<&'static str, Vec<Vec<f64>>>;

/// Measures a backend on the model in a directory.
struct Measure<'a> {
    config: &'a TransformerConfig,
    directory: &'a Path,
}

impl<'a> Measure<'a> {
    fn new(config: &'a TransformerConfig, directory: &'a tempfile::TempDir) -> Self {
        let directory = directory.path();
        Self { config, directory }
    }
}

/// Measures only the quantities that are compared in 16 bits, too.
struct MeasureInference<'a>(Measure<'a>);

impl BackendTask for MeasureInference<'_> {
    type Output = Measured;

    fn run<B: Backend>(self, device: B::Device) -> Measured {
        self.0.inference::<B>(&device)
    }
}

impl BackendTask for Measure<'_> {
    type Output = Measured;

    fn run<B: Backend>(self, device: B::Device) -> Measured {
        let mut measured = self.inference::<B>(&device);
        let drawn = self.config.init::<B>(MODEL_SEED, &device).unwrap();
        measured.insert("init", parameters(&drawn));

        let model = Transformer::<B>::load(self.directory, &device).unwrap();
        let again = tempfile::tempdir().unwrap();
        model.save(&again).unwrap();
        let bytes = std::fs::read(again.path().join(WEIGHTS_FILE)).unwrap();
        measured.insert("saved", vec![bytes.into_iter().map(f64::from).collect()]);

        // Greedy decoding refuses the empty source.
        let mut sources = sources();
        sources.retain(|source| !source.is_empty());
        let requests: Vec<_> = sources.into_iter().map(Request::exact).collect();
        let hypotheses = greedy(&model, &requests, MaxLength::Tokens(8)).unwrap();
        let tokens = hypotheses.iter().map(|hypothesis| {
            hypothesis
                .tokens
                .iter()
                .map(|&token| token.into())
                .collect()
        });
        measured.insert("greedy", tokens.collect());

        measured.extend(self.training::<Autodiff<B>>(&device));
        for name in ["once", "again"] {
            measured.insert(name, self.train_with_dropout::<Autodiff<B>>(&device));
        }
        measured
    }
}

impl Measure<'_> {
    fn inference<B: Backend>(&self, device: &B::Device) -> Measured {
        let model = Transformer::<B>::load(self.directory, device).unwrap();
        let Batch { src, tgt, labels } = Batch::new(self.config, device);
        let memory = model.encode(src);
        let logits = model.generate(model.decode(tgt.clone(), &memory));

        let mut cache = model.start_decoding(&memory);
        let steps = tgt.split(1, 1).into_iter().map(|token| {
            let output = model.decode_next(token, &mut cache, AttentionWeights::Discard);
            model.generate(output.hidden)
        });
        let cached = Tensor::cat(steps.collect(), 1);

        let loss = self.loss(logits.clone(), labels);
        // Burn's type of a device is the one that the process used it with first, whatever `B` is.
        assert_eq!(logits.dtype(), <B::FloatElem as Element>::dtype());
        Measured::from([
            ("memory", vec![numbers(memory.hidden)]),
            ("logits", vec![numbers(logits)]),
            ("cached", vec![numbers(cached)]),
            ("loss", vec![numbers(loss)]),
            ("norms", norms::<B>(device)),
        ])
    }

    fn loss<B: Backend>(&self, logits: Tensor<B, 3>, labels: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        LabelSmoothedCrossEntropy::new(0.1, self.config.pad_id)
            .mean(logits.flatten(0, 1), labels.flatten(0, 1))
    }

    /// All gradients, and the losses of 50 updates. Models with learned positions, whose source embedding is tied to
    /// nothing, are also trained with a frozen one; more would take long on llvmpipe.
    fn training<B: AutodiffBackend>(&self, device: &B::Device) -> Measured {
        let model = Transformer::<B>::load(self.directory, device).unwrap();
        let mut frozen = model.clone();
        let mut gradients = Vec::new();
        let losses = self.updates(model, |model, of_first| {
            gradients = self::gradients(model, of_first);
        });
        let mut measured = Measured::from([("gradients", gradients), ("50 updates", vec![losses])]);
        if self.config.positions == LEARNED {
            frozen.src_embedding = frozen.src_embedding.no_grad();
            measured.insert("frozen", vec![self.updates(frozen, |_, _| ())]);
        }
        measured
    }

    /// The losses of 50 updates. `first` gets the gradients of the first one.
    fn updates<B: AutodiffBackend>(
        &self,
        mut model: Transformer<B>,
        mut first: impl FnMut(&Transformer<B>, &GradientsParams),
    ) -> Vec<f64> {
        let device = &model.src_embedding.weight.device();
        let schedule = TrainingConfig {
            warmup: 400,
            ..TrainingConfig::default()
        };
        let mut schedule = RateSchedule::new(&schedule, self.config.d_model);
        let mut optimizer = AdamConfig::default().init();
        let mut losses = Vec::new();
        for update in 0..50 {
            let Batch { src, tgt, labels } = Batch::new(self.config, device);
            let loss = self.loss(model.forward(src, tgt), labels);
            losses.extend(numbers(loss.clone()));
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            if update == 0 {
                first(&model, &gradients);
            }
            model = optimizer.step(schedule.step(), model, gradients);
        }
        losses
    }

    /// The weights after a few updates of the whole training loop.
    fn train_with_dropout<B: AutodiffBackend>(&self, device: &B::Device) -> Vec<Vec<f64>> {
        let config = TransformerConfig {
            dropout: 0.1,
            attention_dropout: 0.1,
            ..self.config.clone()
        };
        let training = TrainingConfig {
            seed: 3,
            batch_tokens: 16,
            warmup: 4,
            updates: 6,
            validate_every: 6,
            ..TrainingConfig::default()
        };
        let pairs: Vec<TokenizedPair> = sources()
            .into_iter()
            .zip(targets())
            .map(|(source, target)| TokenizedPair { source, target })
            .collect();
        let model = config.init::<B>(MODEL_SEED, device).unwrap();
        let trained = Trainer::new(model, training)
            .display(ProgressDisplay::Silent)
            .train(pairs.clone(), pairs)
            .unwrap();
        parameters(&trained.model)
    }
}

/// Each kind of norm of features up to 512, which 16 bits hold exactly.
fn norms<B: Backend>(device: &B::Device) -> Vec<Vec<f64>> {
    let features: Vec<f32> = (0..512).map(|i| (i * 37 % 129 - 64) as f32 * 8.0).collect();
    let data = TensorData::from(&features[..]).convert::<B::FloatElem>();
    let x = Tensor::<B, 1>::from_data(data, device);
    [
        NormKind::Variance,
        NormKind::UnbiasedDeviation,
        NormKind::RootMeanSquare,
    ]
    .map(|kind| {
        let norm = NormConfig::new(512).with_kind(kind).init(device);
        numbers(norm.forward(x.clone()))
    })
    .into()
}

fn numbers<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    tensor.into_data().iter().collect()
}

fn parameters<B: Backend>(model: &Transformer<B>) -> Vec<Vec<f64>> {
    struct Values(Vec<Vec<f64>>);
    impl<B: Backend> ModuleVisitor<B> for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0.push(numbers(param.val()));
        }
    }
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    values.0
}

fn gradients<B: AutodiffBackend>(
    model: &Transformer<B>,
    gradients: &GradientsParams,
) -> Vec<Vec<f64>> {
    struct Values<'a>(&'a GradientsParams, Vec<Vec<f64>>);
    impl<B: Backend> ModuleVisitor<B> for Values<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let gradient = self.0.get::<B, D>(param.id);
            self.1
                .push(numbers(gradient.expect("every parameter has a gradient")));
        }
    }
    let mut values = Values(gradients, Vec::new());
    model.valid().visit(&mut values);
    values.1
}

fn relative(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0, |most: f64, e| most.max(e.abs()));
    let differences = found.iter().zip(expected).map(|(f, e)| (f - e).abs());
    let worst = differences.fold(0.0, larger);
    // Where all expected numbers are zero, the error is absolute.
    if largest > 1e-6 {
        worst / largest
    } else {
        worst
    }
}

/// A model, as the reference saved and measured it.
struct Reference {
    model: &'static str,
    config: TransformerConfig,
    directory: tempfile::TempDir,
    measured: Measured,
}

impl Reference {
    /// Only of the quantities that are compared in that precision.
    fn new((model, config): (&'static str, TransformerConfig), precision: Precision) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let drawn = config.init::<NdArray>(MODEL_SEED, &Default::default());
        drawn.unwrap().save(&directory).unwrap();
        let measure = Measure::new(&config, &directory);
        let device = Default::default();
        let measured = match precision {
            Precision::F32 => measure.run::<NdArray>(device),
            _ => measure.inference::<NdArray>(&device),
        };
        Self {
            model,
            config,
            directory,
            measured,
        }
    }

    /// The numbers that a backend computes of the model; `None` where it lacks the precision.
    fn measure(&self, target: Target<'_>, precision: Precision) -> Option<Measured> {
        let measure = Measure::new(&self.config, &self.directory);
        match precision {
            Precision::F32 => Some(run_on(target, measure).expect("the backend starts")),
            _ => run_at(target, precision, MeasureInference(measure)).ok(),
        }
    }

    /// The expected numbers of a quantity; some are the same backend's, computed in another way.
    fn expected<'a>(&'a self, quantity: &Quantity, measured: &'a Measured) -> &'a [Vec<f64>] {
        match quantity.name {
            "cached" => &self.measured["logits"],
            "again" => &measured["once"],
            name => &self.measured[name],
        }
    }
}

/// A backend in one precision: the largest error of each quantity over all models, where it is
/// compared.
struct Column {
    name: String,
    errors: [Option<f64>; QUANTITIES.len()],
}

/// Names the 16-bit type that a process compares.
const PRECISION: &str = "TRANSFORMER_PARITY_PRECISION";

fn main() -> ExitCode {
    // With several threads, libtorch adds in an order that changes from run to run.
    #[cfg(feature = "tch")]
    tch::set_num_threads(1);

    let passed = match std::env::var(PRECISION) {
        Ok(name) => compare(Precision::from_str(&name, false).expect("a precision")),
        // Each in a process of its own. int8 is for packed models, whose tests are in transformer-core.
        Err(_) => {
            let single = compare(Precision::F32);
            let half = [Precision::F16, Precision::Bf16].map(compare_elsewhere);
            single && half == [true; 2]
        }
    };
    match passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs this program for a precision.
fn compare_elsewhere(precision: Precision) -> bool {
    let program = std::env::current_exe().expect("this program has a path");
    let status = Command::new(program)
        .env(PRECISION, precision.to_string())
        .status();
    status.expect("this program runs").success()
}

/// Prints the table of a precision, and whatever is out of bounds.
fn compare(precision: Precision) -> bool {
    let references = models().map(|model| Reference::new(model, precision));
    let mut columns = Vec::new();
    let mut failures = Vec::new();
    for target in every_backend() {
        let backend = target.backend;
        let name = format!("{backend} {precision}");
        let mut worst = [const { None }; QUANTITIES.len()];
        for reference in &references {
            let Some(measured) = reference.measure(target, precision) else {
                continue;
            };
            for (quantity, worst) in QUANTITIES.iter().zip(&mut worst) {
                if precision != Precision::F32 && !quantity.in_half {
                    continue;
                }
                let Some(found) = measured.get(quantity.name) else {
                    continue;
                };
                let error = quantity.error(found, reference.expected(quantity, &measured));
                let bound = quantity.bound_in(backend, precision);
                // In this order, so that NaN fails.
                if error.total_cmp(&bound).is_gt() {
                    let (model, quantity) = (reference.model, quantity.name);
                    failures.push(format!(
                        "{name}, {model}: {quantity} {error:.1e}, bound {bound:.1e}"
                    ));
                }
                *worst = Some(larger(worst.unwrap_or(0.0), error));
            }
        }
        if worst.iter().any(Option::is_some) {
            columns.push(Column {
                name,
                errors: worst,
            });
        }
    }
    match columns.is_empty() {
        true => println!("{precision}: not compared, no backend computes in it here"),
        false => print_table(&columns),
    }
    for failure in &failures {
        println!("{failure}");
    }
    failures.is_empty()
}

fn print_table(columns: &[Column]) {
    let models = models().len();
    println!("Largest error beside ndarray in f32, over {models} models");
    print!("{:<12}", "");
    for Column { name, .. } in columns {
        print!("{name:>14}");
    }
    println!("{:>10}", "bound");
    for (index, quantity) in QUANTITIES.iter().enumerate() {
        print!("{:<12}", quantity.name);
        for Column { errors, .. } in columns {
            let cell = match errors[index] {
                None => "-".to_owned(),
                Some(0.0) => "0".to_owned(),
                Some(error) => format!("{error:.1e}"),
            };
            print!("{cell:>14}");
        }
        let bound = quantity
            .bound
            .map_or("the same".to_owned(), |bound| format!("{bound:.0e}"));
        println!("{bound:>10}  {}", quantity.why);
    }
    println!("in 16 bits the bounds are {F16_BOUND:.0e} (f16) and {BF16_BOUND:.0e} (bf16)");
    println!(
        "on cuda, whose f32 multiplications are in TF32, {TF32_BOUND:.0e}, and gradients are not compared"
    );
}
