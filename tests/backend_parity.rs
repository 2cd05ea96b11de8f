//! One saved model gives the same numbers on every backend that is compiled in.
//!
//! The reference is ndarray in 32 bits. For each model of [`models`], every other backend loads what
//! the reference saved, and computes what a [`Quantity`] names; the output is one table of the largest
//! errors. `cargo test --features flex,wgpu,tch --test backend_parity` prints it.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use burn::lr_scheduler::LrScheduler;
use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor};
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use clap::ValueEnum;
use transformer::{BackendChoice, BackendTask, Precision, run_at, run_on};
use transformer_core::{
    GreedyOptions, MaxLength, NormPlacement, Positions, Transformer, TransformerConfig,
    WEIGHTS_FILE, WeightTying, greedy, padded,
};
use transformer_train::{
    LabelSmoothedCrossEntropy, PaperAdam, ProgressDisplay, TokenizedPair, Trainer, TrainingConfig,
    noam_schedule,
};

/// What is compared, and how far it may be from the reference.
struct Quantity {
    name: &'static str,
    /// Of an error relative to the reference's largest number, unless it says otherwise.
    bound: f64,
    half_bounds: Option<HalfBounds>,
    why: &'static str,
}

/// Bounds in 16 bits, for what is compared in them.
struct HalfBounds {
    f16: f64,
    bf16: f64,
}

/// 16 bits keep 11 or 8 bits of each number: a few roundings of 5e-4 or 4e-3, of what is not the
/// largest.
const HALF: HalfBounds = HalfBounds {
    f16: 1e-3,
    bf16: 8e-3,
};

const QUANTITIES: [Quantity; 10] = [
    Quantity {
        name: "init",
        bound: 0.0,
        half_bounds: None,
        why: "drawn on the host: bit for bit",
    },
    Quantity {
        name: "memory",
        bound: 5e-6,
        half_bounds: Some(HALF),
        why: "sums in another order, through four layers: some tens of 6e-8",
    },
    Quantity {
        name: "logits",
        bound: 5e-6,
        half_bounds: Some(HALF),
        why: "as memory",
    },
    Quantity {
        name: "loss",
        bound: 5e-6,
        half_bounds: Some(HALF),
        why: "as logits",
    },
    Quantity {
        name: "gradients",
        bound: 5e-5,
        half_bounds: None,
        why: "of each tensor's largest; differences of near numbers lose digits",
    },
    Quantity {
        name: "50 updates",
        bound: 5e-6,
        half_bounds: None,
        why: "losses, as loss; at this learning rate roundings do not grow",
    },
    Quantity {
        name: "greedy",
        bound: 0.0,
        half_bounds: None,
        why: "sentences whose tokens differ",
    },
    Quantity {
        name: "cached",
        bound: 5e-6,
        half_bounds: Some(HALF),
        why: "logits token by token, beside the reference's all at once",
    },
    Quantity {
        name: "saved",
        bound: 0.0,
        half_bounds: None,
        why: "bytes that differ when it writes what it read",
    },
    Quantity {
        name: "again",
        bound: 0.0,
        half_bounds: None,
        why: "two trainings of one seed, dropout on (libtorch: one thread)",
    },
];

/// A model of each kind: the norm's place, positions, tying, and what else a layer may have.
fn models() -> [(&'static str, TransformerConfig); 4] {
    let base = TransformerConfig {
        d_model: 32,
        n_heads: 4,
        d_ff: 64,
        n_encoder_layers: 2,
        n_decoder_layers: 2,
        dropout: 0.0,
        ..TransformerConfig::base(VOCAB_SIZE)
    };
    let learned = Positions::Learned { max_len: 16 };
    [
        ("post-norm, sinusoidal, tied", base.clone()),
        (
            "pre-norm, learned, untied",
            TransformerConfig {
                norm: NormPlacement::Pre,
                final_norm: true,
                positions: learned,
                tying: WeightTying::None,
                ..base.clone()
            },
        ),
        (
            "post-norm, learned, generator tied",
            TransformerConfig {
                positions: learned,
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
                ..base
            },
        ),
    ]
}

const VOCAB_SIZE: usize = 24;
const MODEL_SEED: u64 = 11;

/// Sources of several lengths, one of them of nothing: every key of its row is blocked.
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

/// What a backend computed, by quantity: lists of numbers, each compared by itself.
type Measured = Vec<(&'static str, Vec<Vec<f64>>)>;

/// Measures a backend on the model in a directory.
struct Measure<'a> {
    config: &'a TransformerConfig,
    directory: &'a Path,
}

/// What can be measured in 16 bits.
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
        measured.push(("init", parameters(&drawn)));

        let model = Transformer::<B>::load(self.directory, &device).unwrap();
        let again = tempfile::tempdir().unwrap();
        model.save(&again).unwrap();
        let bytes = std::fs::read(again.path().join(WEIGHTS_FILE)).unwrap();
        measured.push(("saved", vec![bytes.into_iter().map(f64::from).collect()]));

        let options = GreedyOptions {
            max_length: MaxLength::Tokens(8),
        };
        // Greedy decoding refuses the source of nothing.
        let mut sources = sources();
        sources.retain(|source| !source.is_empty());
        let hypotheses = greedy(&model, &sources, &options, &device).unwrap();
        let tokens = hypotheses.iter().map(|hypothesis| {
            let mut tokens: Vec<f64> = hypothesis.tokens.iter().map(|&t| t.into()).collect();
            tokens.resize(8, -1.0);
            tokens
        });
        measured.push(("greedy", tokens.collect()));

        measured.extend(self.training::<Autodiff<B>>(&device));
        let trainings = [(); 2].map(|()| self.train_with_dropout::<Autodiff<B>>(&device));
        let [first, second] = trainings;
        let differ = f64::from(u8::from(first != second));
        measured.push(("again", vec![vec![differ]]));
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
            let hidden = model.decode_next(token, &mut cache, None);
            model.generate(hidden)
        });
        let cached = Tensor::cat(steps.collect(), 1);

        let loss = self.loss(logits.clone(), labels);
        vec![
            ("memory", vec![numbers(memory.hidden)]),
            ("logits", vec![numbers(logits)]),
            ("cached", vec![numbers(cached)]),
            ("loss", vec![numbers(loss)]),
        ]
    }

    fn loss<B: Backend>(&self, logits: Tensor<B, 3>, labels: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        LabelSmoothedCrossEntropy::new(0.1, self.config.pad_id)
            .mean(logits.flatten(0, 1), labels.flatten(0, 1))
    }

    /// All gradients, and the losses of 50 updates.
    fn training<B: AutodiffBackend>(&self, device: &B::Device) -> Measured {
        let mut model = Transformer::<B>::load(self.directory, device).unwrap();
        let schedule = TrainingConfig {
            warmup: 400,
            ..TrainingConfig::default()
        };
        let mut schedule = noam_schedule(&schedule, self.config.d_model);
        let mut optimizer = PaperAdam::new(None);
        let mut all_gradients = Vec::new();
        let mut losses = Vec::new();
        for update in 0..50 {
            let Batch { src, tgt, labels } = Batch::new(self.config, device);
            let loss = self.loss(model.forward(src, tgt), labels);
            losses.extend(numbers(loss.clone()));
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            if update == 0 {
                all_gradients = self::gradients(&model, &gradients);
            }
            model = optimizer.step(schedule.step(), model, gradients);
        }
        vec![("gradients", all_gradients), ("50 updates", vec![losses])]
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
        let trained = Trainer::new(training, vec![device.clone()])
            .display(ProgressDisplay::Silent)
            .train(model, pairs.clone(), pairs)
            .unwrap();
        parameters(&trained.model)
    }
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

/// How far what was measured is from the reference, by quantity's own measure.
fn error(quantity: &str, found: &[Vec<f64>], expected: &[Vec<f64>]) -> f64 {
    assert_eq!(found.len(), expected.len(), "{quantity}");
    let of_each = found.iter().zip(expected).map(|(found, expected)| {
        assert_eq!(found.len(), expected.len(), "{quantity}");
        match quantity {
            "greedy" => f64::from(u8::from(found != expected)),
            "saved" => {
                let differ = found.iter().zip(expected).filter(|(a, b)| a != b);
                differ.count() as f64
            }
            // Compared with itself already.
            "again" => found[0],
            _ => relative(found, expected),
        }
    });
    match quantity {
        "greedy" => of_each.sum(),
        // In this order, what is not a number is the largest.
        _ => of_each
            .max_by(f64::total_cmp)
            .expect("something to compare"),
    }
}

fn relative(found: &[f64], expected: &[f64]) -> f64 {
    let largest = expected.iter().fold(0.0, |most: f64, e| most.max(e.abs()));
    let differences = found.iter().zip(expected).map(|(f, e)| (f - e).abs());
    let worst = differences.max_by(f64::total_cmp).unwrap_or(0.0);
    // Where all should be zero, what is there counts as it is.
    if largest > 1e-6 {
        worst / largest
    } else {
        worst
    }
}

/// A backend in one precision.
#[derive(Clone, Copy)]
struct Column {
    backend: BackendChoice,
    precision: Precision,
}

impl Column {
    fn all() -> Vec<Self> {
        let precisions = [Precision::F32, Precision::F16, Precision::Bf16];
        let of = |&backend| precisions.map(|precision| Self { backend, precision });
        BackendChoice::value_variants()
            .iter()
            .flat_map(of)
            .collect()
    }

    fn bound(self, quantity: &Quantity) -> Option<f64> {
        let half = quantity.half_bounds.as_ref();
        match self.precision {
            Precision::F32 => Some(quantity.bound),
            Precision::F16 => half.map(|bounds| bounds.f16),
            Precision::Bf16 => half.map(|bounds| bounds.bf16),
        }
    }
}

fn main() -> ExitCode {
    // With several threads, libtorch adds in an order that changes from run to run.
    #[cfg(feature = "tch")]
    tch::set_num_threads(1);

    let mut table: Vec<(Column, Vec<f64>)> = Vec::new();
    let mut failures = String::new();
    for (name, config) in models() {
        let directory = tempfile::tempdir().unwrap();
        let model = config.init::<NdArray>(MODEL_SEED, &Default::default());
        model.unwrap().save(&directory).unwrap();
        let measure = || Measure {
            config: &config,
            directory: directory.path(),
        };
        let reference = measure().run::<NdArray>(Default::default());
        for column in Column::all() {
            let Column { backend, precision } = column;
            let measured = match precision {
                Precision::F32 => run_on(backend, measure()),
                _ => run_at(backend, precision, MeasureInference(measure())),
            };
            let measured = match measured {
                Ok(measured) => measured,
                Err(error) if precision == Precision::F32 => panic!("{error}"),
                Err(_) => continue,
            };
            let of =
                |of: &Measured, name| of.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
            let errors = QUANTITIES.iter().map(|quantity| {
                let Some(found) = of(&measured, quantity.name) else {
                    return f64::NEG_INFINITY;
                };
                let mut expected = of(&reference, quantity.name);
                if quantity.name == "cached" {
                    expected = of(&reference, "logits");
                }
                let error = error(quantity.name, &found, &expected.expect("it was measured"));
                let bound = column
                    .bound(quantity)
                    .expect("what is measured has a bound");
                // In this order, so that what is not a number fails.
                if error.total_cmp(&bound).is_gt() {
                    let _ = writeln!(
                        failures,
                        "{backend} {precision}, {name}: {} {error:.1e}, bound {bound:.1e}",
                        quantity.name
                    );
                }
                error
            });
            let errors: Vec<f64> = errors.collect();
            match table
                .iter_mut()
                .find(|(c, _)| (c.backend, c.precision) == (backend, precision))
            {
                Some((_, worst)) => {
                    for (worst, error) in worst.iter_mut().zip(errors) {
                        if error.total_cmp(worst).is_gt() {
                            *worst = error;
                        }
                    }
                }
                None => table.push((column, errors)),
            }
        }
    }
    print_table(&table);
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        print!("{failures}");
        ExitCode::FAILURE
    }
}

fn print_table(table: &[(Column, Vec<f64>)]) {
    println!(
        "Largest error beside ndarray in f32, over {} models",
        models().len()
    );
    print!("{:<12}", "");
    for (Column { backend, precision }, _) in table {
        print!("{:>14}", format!("{backend} {precision}"));
    }
    println!("{:>10}", "bound");
    for (index, quantity) in QUANTITIES.iter().enumerate() {
        print!("{:<12}", quantity.name);
        for (_, errors) in table {
            let error = errors[index];
            let cell = match error {
                f64::NEG_INFINITY => "-".to_owned(),
                0.0 => "0".to_owned(),
                _ => format!("{error:.1e}"),
            };
            print!("{cell:>14}");
        }
        println!(
            "{:>10}  {}",
            format!("{:.0e}", quantity.bound),
            quantity.why
        );
    }
}
