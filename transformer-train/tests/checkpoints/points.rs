//! A model of eight numbers, whose calls can be watched, and the files of its runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::module::{Module, Param};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Tensor, TensorData};
use safetensors::SafeTensors;
use serde_json::Value;
use transformer_core::formats::{WEIGHTS_FILE, load_weights, save_weights};
use transformer_train::data::{Checksum, Example, Lengths};
use transformer_train::objective::{LossOptions, LossSums, Objective};
use transformer_train::optim::Schedule;
use transformer_train::progress::ProgressDisplay;
use transformer_train::{TrainError, Trainer, TrainingConfig};

/// Burn draws random numbers from one generator per process: a test that trains must hold this lock.
pub fn alone() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call of the trainer to the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    /// A batch to train on.
    TrainingBatch,
    /// A batch to validate on.
    ValidationBatch,
    /// To save or restore itself: once before, once after.
    Files,
}

type Watch = Box<dyn FnMut(Call)>;

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Calls `watch` whenever the trainer calls the model in `run`.
pub fn watched<T>(watch: impl FnMut(Call) + 'static, run: impl FnOnce() -> T) -> T {
    WATCH.with_borrow_mut(|slot| *slot = Some(Box::new(watch)));
    let result = run();
    WATCH.with_borrow_mut(|slot| *slot = None);
    result
}

fn note(call: Call) {
    WATCH.with_borrow_mut(|watch| {
        if let Some(watch) = watch {
            watch(call);
        }
    });
}

/// A point `x`, and the point that the model is to find for it.
#[derive(Clone, Debug)]
pub struct Point {
    x: [f32; 2],
    y: [f32; 2],
}

impl Example for Point {
    fn lengths(&self) -> Lengths {
        Lengths {
            source: 1,
            target: 1,
        }
    }

    fn add_to(&self, checksum: &mut Checksum) {
        for number in self.x.iter().chain(&self.y) {
            checksum.bytes(&number.to_le_bytes());
        }
    }
}

/// Nine points, one of which spoils its update.
pub fn points() -> Vec<Point> {
    let mut points: Vec<_> = (0..9).map(point).collect();
    points[4].y = [f32::NAN; 2];
    points
}

/// Points to validate on.
pub fn held_out() -> Vec<Point> {
    (20..25).map(point).collect()
}

fn point(index: u8) -> Point {
    let at = f32::from(index);
    Point {
        x: [at.sin(), at.cos()],
        y: [(2.0 * at).sin(), 0.5],
    }
}

/// `x W + b + c`; `c` is frozen.
#[derive(Module, Debug)]
pub struct Points<B: Backend> {
    /// `W`
    pub weight: Param<Tensor<B, 2>>,
    /// `b`
    pub bias: Param<Tensor<B, 1>>,
    /// `c`
    pub frozen: Param<Tensor<B, 1>>,
}

/// The numbers of a model by the names of its tensors.
pub type Weights = BTreeMap<String, Vec<f32>>;

/// The first weights.
pub fn first_weights() -> Weights {
    let tensor = |name: &str, numbers: &[f32]| (name.to_owned(), numbers.to_vec());
    BTreeMap::from([
        tensor("weight", &[0.5, -0.25, 0.125, 1.0]),
        tensor("bias", &[0.0, 0.75]),
        tensor("frozen", &[0.1, -0.3]),
    ])
}

impl<B: Backend> Points<B> {
    /// The model of the first weights.
    pub fn init() -> Self {
        let first = first_weights();
        let device = Default::default();
        let weight = TensorData::new(first["weight"].clone(), [2, 2]);
        let vector = |name: &str| TensorData::new(first[name].clone(), [2]);
        Self {
            weight: Param::from_data(weight, &device),
            bias: Param::from_data(vector("bias"), &device),
            frozen: Param::from_data(vector("frozen"), &device).set_require_grad(false),
        }
    }
}

impl<B: Backend> Objective<B> for Points<B> {
    type Example = Point;
    /// Points and those to be found, `[batch, 2]` each.
    type Batch = (Tensor<B, 2>, Tensor<B, 2>);

    fn width(&self) -> Option<usize> {
        Some(2)
    }

    fn batch(&self, points: &[Point], device: &B::Device) -> Self::Batch {
        note(match self.weight.is_require_grad() {
            true => Call::TrainingBatch,
            false => Call::ValidationBatch,
        });
        let rows = |point: fn(&Point) -> [f32; 2]| -> Tensor<B, 2> {
            let numbers: Vec<f32> = points.iter().flat_map(point).collect();
            Tensor::from_data(TensorData::new(numbers, [points.len(), 2]), device)
        };
        (rows(|point| point.x), rows(|point| point.y))
    }

    /// The sum of squares; in training, each difference is multiplied by a random number, as by dropout.
    fn loss(&self, (x, y): Self::Batch, _: &LossOptions) -> LossSums<B> {
        let [rows, _] = x.dims();
        let device = x.device();
        let shift = self.bias.val() + self.frozen.val();
        let mut off = x.matmul(self.weight.val()) + shift.unsqueeze::<2>() - y;
        if self.weight.is_require_grad() {
            let noise = off.random_like(Distribution::Uniform(0.5, 1.5));
            off = off * noise;
        }
        let tokens = Tensor::from_floats([rows as f32], &device);
        LossSums::new(off.square().sum(), tokens)
    }

    fn save(&self, directory: &Path) -> Result<(), TrainError> {
        note(Call::Files);
        save_weights(self, directory.join(WEIGHTS_FILE))?;
        note(Call::Files);
        Ok(())
    }

    fn restore(self, directory: &Path) -> Result<Self, TrainError> {
        note(Call::Files);
        let restored = load_weights(self, directory.join(WEIGHTS_FILE))?;
        note(Call::Files);
        Ok(restored)
    }
}

/// Updates of two batches of two points each; an epoch ends with a smaller one after three.
pub fn run() -> TrainingConfig {
    TrainingConfig {
        seed: 5,
        batch_tokens: 2,
        batches_per_update: 2,
        schedule: Schedule::Constant,
        peak_rate: Some(0.05),
        warmup: 1,
        updates: 12,
        validate_every: 4,
        ..TrainingConfig::default()
    }
}

/// A trainer of the model, which resumes the run in a directory, if there is one.
pub fn trainer<B: AutodiffBackend>(config: &TrainingConfig, out: &Path) -> Trainer<B, Points<B>> {
    Trainer::new(Points::init(), config.clone())
        .display(ProgressDisplay::Silent)
        .directory(out)
        .resume(true)
}

/// The updates of the checkpoints in a run's directory.
pub fn checkpoints(out: &Path) -> Vec<usize> {
    let entries = fs::read_dir(out.join("checkpoints")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut updates: Vec<_> = names
        .map(|name| name.strip_prefix("update-").unwrap().parse().unwrap())
        .collect();
    updates.sort_unstable();
    updates
}

/// The directory of a checkpoint.
pub fn checkpoint(out: &Path, update: usize) -> PathBuf {
    out.join(format!("checkpoints/update-{update:08}"))
}

/// The tensors of a file.
pub fn weights(file: &Path) -> Weights {
    let bytes = fs::read(file).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let numbers = |bytes: &[u8]| -> Vec<f32> {
        let (numbers, _) = bytes.as_chunks::<4>();
        numbers
            .iter()
            .map(|&four| f32::from_le_bytes(four))
            .collect()
    };
    let tensors = file.tensors().into_iter();
    tensors
        .map(|(name, tensor)| (name, numbers(tensor.data())))
        .collect()
}

/// The tensors of the model in a directory.
pub fn model(directory: &Path) -> Weights {
    weights(&directory.join(WEIGHTS_FILE))
}

/// Files by their paths in a directory.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The files of a directory and of those below it.
pub fn read(directory: &Path) -> Files {
    let mut files = Files::new();
    let mut below = vec![PathBuf::new()];
    while let Some(folder) = below.pop() {
        for entry in fs::read_dir(directory.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => below.push(path),
                false => {
                    files.insert(path, fs::read(entry.path()).unwrap());
                }
            }
        }
    }
    files
}

/// Writes files into a directory that is not there yet.
pub fn write(files: &Files, directory: &Path) {
    fs::create_dir(directory).unwrap();
    for (path, content) in files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// A file that a run leaves, apart from the clock.
#[derive(Debug, PartialEq)]
pub enum Left {
    Bytes(Vec<u8>),
    Record(Value),
    /// Adam's moments: their order in the file is random. That they are right shows in the updates after them.
    Moments,
}

/// Every file that a run has left.
pub fn left(out: &Path) -> BTreeMap<PathBuf, Left> {
    let files = read(out).into_iter();
    files
        .map(|(path, content)| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let left = match name {
                "run.json" => Left::Record(without_clock(&content)),
                "optimizer.mpk" => Left::Moments,
                _ => Left::Bytes(content),
            };
            (path, left)
        })
        .collect()
}

fn without_clock(json: &[u8]) -> Value {
    fn remove(value: &mut Value) {
        if let Value::Object(fields) = value {
            for name in ["seconds", "checkpoint_minutes", "optimizer_checksum"] {
                fields.remove(name);
            }
            fields.values_mut().for_each(remove);
        } else if let Value::Array(values) = value {
            values.iter_mut().for_each(remove);
        }
    }
    let mut value = serde_json::from_slice(json).unwrap();
    remove(&mut value);
    value
}
