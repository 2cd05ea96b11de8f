//! The trainer is independent of the model: it trains, saves and resumes a module that is no
//! Transformer.

use std::path::Path;
use transformer_instances as _;

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{Embedding, Linear};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use serde::{Deserialize, Serialize};
use transformer_core::decoding::padded;
use transformer_core::formats::{
    WEIGHTS_FILE, load_config, load_weights, save_config, save_weights,
};
use transformer_core::nn::ProductPrecision;
use transformer_train::data::{Checksum, Example, ExampleProblem, Lengths};
use transformer_train::objective::{
    LabelSmoothedCrossEntropy, LossOptions, LossSums, Objective, check_tokens,
};
use transformer_train::progress::ProgressDisplay;
use transformer_train::run::same_config;
use transformer_train::validation::evaluate;
use transformer_train::{TrainError, Trainer, TrainingConfig};

type Inner = NdArray;
type Tracked = Autodiff<Inner>;

/// A text, as tokens, and its class.
#[derive(Clone, Debug)]
struct Labelled {
    text: Vec<u32>,
    class: u32,
}

impl Example for Labelled {
    const NAME: &'static str = "text";

    fn lengths(&self) -> Lengths {
        Lengths {
            source: self.text.len(),
            target: 1,
        }
    }

    fn add_to(&self, checksum: &mut Checksum) {
        checksum.tokens(&self.text);
        checksum.tokens(&[self.class]);
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BagConfig {
    vocab_size: usize,
    classes: usize,
    width: usize,
}

const CONFIG: BagConfig = BagConfig {
    vocab_size: 12,
    classes: 3,
    width: 8,
};

/// Adds up the embeddings of a text's tokens, and projects the sum to classes.
#[derive(Module, Debug)]
struct BagOfWords<B: Backend> {
    embedding: Embedding<B>,
    output: Linear<B>,
    #[module(skip)]
    config: BagConfig,
}

impl BagConfig {
    /// The same weights each time, even if other tests draw random numbers in this process.
    fn init<B: Backend>(&self) -> BagOfWords<B> {
        let matrix = |rows: usize, columns: usize| {
            let values: Vec<f32> = (0..rows * columns)
                .map(|at| (at as f32 * 0.7).sin() / 2.0)
                .collect();
            let values = TensorData::new(values, [rows, columns]);
            Param::from_data(values, &Default::default())
        };
        BagOfWords {
            embedding: Embedding {
                weight: matrix(self.vocab_size, self.width),
            },
            output: Linear {
                weight: matrix(self.width, self.classes),
                bias: None,
            },
            config: self.clone(),
        }
    }
}

impl<B: Backend> Objective<B> for BagOfWords<B> {
    type Example = Labelled;
    type Batch = (Tensor<B, 2, Int>, Tensor<B, 1, Int>);

    fn width(&self) -> Option<usize> {
        Some(self.config.width)
    }

    fn check(&self, example: &Labelled) -> Result<(), ExampleProblem> {
        check_tokens(&example.text, self.config.vocab_size)?;
        match example.class as usize {
            class if class < self.config.classes => Ok(()),
            class => {
                let problem = format!("has class {class}, of {}", self.config.classes);
                Err(ExampleProblem::Other(problem))
            }
        }
    }

    fn batch(&self, examples: &[Labelled], device: &B::Device) -> Self::Batch {
        let texts: Vec<_> = examples.iter().map(|one| one.text.clone()).collect();
        let classes: Vec<_> = examples.iter().map(|one| one.class as i32).collect();
        let classes = Tensor::from_ints(classes.as_slice(), device);
        (padded(&texts, 0, device), classes)
    }

    fn loss(&self, (texts, classes): Self::Batch, options: &LossOptions) -> LossSums<B> {
        let sum = self.embedding.forward(texts).sum_dim(1).squeeze_dim(1);
        LabelSmoothedCrossEntropy::without_padding(options.label_smoothing)
            .sums(self.output.forward(sum), classes)
    }

    fn save(&self, directory: &Path) -> Result<(), TrainError> {
        save_config(directory, "bag-of-words", &self.config)?;
        Ok(save_weights(self, directory.join(WEIGHTS_FILE))?)
    }

    fn restore(self, directory: &Path) -> Result<Self, TrainError> {
        let before: BagConfig = load_config(directory, "bag-of-words")?;
        same_config(directory, &before, &self.config)?;
        Ok(load_weights(self, directory.join(WEIGHTS_FILE))?)
    }
}

/// A text's class is its first token, modulo 3; the others are noise.
fn texts(count: usize) -> Vec<Labelled> {
    (0..count)
        .map(|index| Labelled {
            text: (0..=index % 4)
                .map(|at| (3 + (index + at * 3) % 9) as u32)
                .collect(),
            class: (index % 3) as u32,
        })
        .collect()
}

fn run() -> TrainingConfig {
    TrainingConfig {
        batch_tokens: 16,
        warmup: 10,
        updates: 60,
        validate_every: 10,
        label_smoothing: 0.0,
        ..TrainingConfig::default()
    }
}

fn trainer(config: TrainingConfig) -> Trainer<Tracked, BagOfWords<Tracked>> {
    Trainer::new(CONFIG.init(), config).display(ProgressDisplay::Silent)
}

fn weights<T: Backend, M: Module<T>>(model: &M) -> Vec<f32> {
    struct Values(Vec<f32>);
    impl<T: Backend> ModuleVisitor<T> for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<T, D>>) {
            self.0.extend(param.val().into_data().iter::<f32>());
        }
    }
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    values.0
}

#[test]
fn a_model_of_one_s_own_learns_and_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("bag");
    let trained = trainer(run())
        .directory(&out)
        .train(texts(60), texts(30))
        .unwrap();
    let last = trained.validations.last().unwrap();
    assert!(last.valid_accuracy > 95.0, "{last:?}");

    let kept = CONFIG.init::<Inner>().restore(&out).unwrap();
    let best = trained.validations.iter().map(|v| v.valid_loss);
    let best = best.fold(f64::INFINITY, f64::min);
    let statistics = evaluate(&kept, texts(30), 16, &LossOptions::smoothed(0.0)).unwrap();
    assert_eq!(statistics.tokens, 30.0);
    assert!((statistics.mean_loss() - best).abs() < 1e-6);
}

#[test]
fn a_precision_that_it_lacks_is_refused() {
    let config = TrainingConfig {
        precision: ProductPrecision::Bf16,
        ..run()
    };
    let error = trainer(config).train(texts(60), texts(30)).unwrap_err();
    let expected = "`precision` is bf16, but this model computes in f32 only";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_resumed_run_of_it_is_the_run_that_was_not_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("bag");
    let whole = trainer(run()).train(texts(60), texts(30)).unwrap();
    let first = TrainingConfig {
        updates: 23,
        ..run()
    };
    trainer(first)
        .directory(&out)
        .train(texts(60), texts(30))
        .unwrap();
    let resumed = trainer(run())
        .directory(&out)
        .resume(true)
        .train(texts(60), texts(30))
        .unwrap();
    assert_eq!(resumed.updates, 60);
    assert!(weights::<Inner, _>(&resumed.model) == weights::<Inner, _>(&whole.model));
}

#[test]
fn another_configuration_or_model_is_not_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("bag");
    trainer(run())
        .directory(&out)
        .train(texts(60), texts(30))
        .unwrap();
    let wider = BagConfig { width: 9, ..CONFIG };
    let error = Trainer::new(wider.init::<Tracked>(), run())
        .display(ProgressDisplay::Silent)
        .directory(&out)
        .resume(true)
        .train(texts(60), texts(30))
        .unwrap_err()
        .to_string();
    assert!(error.contains("made with `width` 8, not 9"), "{error}");
    let error = trainer(run())
        .directory(&out)
        .resume(true)
        .train(texts(59), texts(30))
        .unwrap_err()
        .to_string();
    assert!(error.contains("60 texts (checksum"), "{error}");
    assert!(error.contains("59 texts (checksum"), "{error}");
    let error = transformer_core::TransformerConfig::load(&out).unwrap_err();
    let expected = "describes a model of type `bag-of-words`, not `transformer`";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[test]
fn examples_that_do_not_fit_are_refused_by_their_name() {
    let refused = |text: Vec<u32>, class| {
        let error = trainer(run()).train(vec![Labelled { text, class }], texts(3));
        error.unwrap_err().to_string()
    };
    assert_eq!(
        refused(vec![12], 0),
        "training texts: text 0 holds token 12, outside the vocabulary of 12"
    );
    assert_eq!(
        refused(vec![3], 3),
        "training texts: text 0 has class 3, of 3"
    );
    assert_eq!(
        refused(vec![3; 17], 0),
        "training texts: text 0 has 17 source and 1 target tokens, more than the batch limit of 16"
    );
    let error = trainer(run()).train(texts(3), Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "validation texts: no text to put into batches"
    );
}

/// Training with weight decay, a checkpoint and a resume leave frozen parameters as they were; the others
/// learn.
#[test]
fn frozen_parameters_stay_frozen_when_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("bag");
    let frozen = |config: TrainingConfig| {
        let mut model = CONFIG.init::<Tracked>();
        model.embedding = model.embedding.no_grad();
        Trainer::new(model, config).display(ProgressDisplay::Silent)
    };
    let run = || TrainingConfig {
        weight_decay: 0.5,
        ..run()
    };
    let initial = CONFIG.init::<Inner>();
    let whole = frozen(run()).train(texts(60), texts(30)).unwrap();
    let first = TrainingConfig {
        updates: 23,
        ..run()
    };
    frozen(first)
        .directory(&out)
        .train(texts(60), texts(30))
        .unwrap();
    let resumed = frozen(run())
        .directory(&out)
        .resume(true)
        .train(texts(60), texts(30))
        .unwrap();
    let embedding = |model: &BagOfWords<Inner>| weights::<Inner, _>(&model.embedding);
    let output = |model: &BagOfWords<Inner>| weights::<Inner, _>(&model.output);
    assert!(embedding(&whole.model) == embedding(&initial));
    assert!(embedding(&resumed.model) == embedding(&initial));
    assert!(output(&whole.model) != output(&initial));
    assert!(output(&resumed.model) == output(&whole.model));
}
