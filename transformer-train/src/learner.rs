//! Burn's own training loop with the paper's optimizer, schedule and loss: a [`Learner`] for [`SupervisedTraining`].
//!
//! [`SupervisedTraining`]: burn::train::SupervisedTraining

use std::marker::PhantomData;

use burn::module::Module;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::train::{InferenceStep, Learner, LearningComponentsMarker, TrainOutput, TrainStep};

use crate::config::TrainingConfig;
use crate::data::Update;
use crate::error::TrainError;
use crate::objective::gradients::{gradients, sums};
use crate::objective::loss::LossOptions;
use crate::objective::statistics::{DeviceStatistics, UpdateItem};
use crate::objective::{Objective, Trainable, prepared};
use crate::optim::adam::{Adam, Clipped, global_norm};
use crate::optim::schedule::RateSchedule;

pub use crate::loaders::{Batches, Updates};

/// What [`learner`] returns.
pub type TrainingLearner<B, M> = Learner<
    LearningComponentsMarker<
        B,
        RateSchedule,
        TrainingModel<B, M>,
        Clipped<Adam<TrainingModel<B, M>, B>>,
    >,
>;

/// Burn's `Learner` with the paper's Adam, schedule, clipping and loss, as set by a configuration: for Burn's
/// [`SupervisedTraining`](burn::train::SupervisedTraining), with its metrics, display and checkpoints.
///
/// It uses the configuration's keys for schedule, optimizer, loss, clipping and precision. [`Updates`] and
/// [`Batches`], which load the examples, use the keys for batches and length. All other keys apply only to
/// [`Trainer`](crate::Trainer). An epoch of Burn's loop is the updates between two validations.
///
/// Dropout is drawn from Burn's generator. [`Trainer`](crate::Trainer) seeds it at each update, but Burn's loop
/// does not: seed it before the run ([`Backend::seed`]).
///
/// ```
/// use burn::train::SupervisedTraining;
/// use burn::train::metric::{LearningRateMetric, LossMetric};
/// use burn_autodiff::Autodiff;
/// use burn_ndarray::NdArray;
/// use transformer_core::TransformerConfig;
/// use transformer_train::{TrainingConfig, learner};
/// use transformer_train::data::TokenizedPair;
/// use transformer_train::learner::{Batches, Updates};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let directory = folder.path();
/// # let config = TransformerConfig { d_model: 8, n_heads: 2, d_ff: 8, ..TransformerConfig::notebook_mini(10) };
/// # let pairs: Vec<_> = (3..10).map(|token| TokenizedPair { source: vec![token], target: vec![token] }).collect();
/// let model = config.init::<Autodiff<NdArray>>(0, &Default::default())?;
/// let run = TrainingConfig { updates: 6, validate_every: 3, warmup: 2, ..TrainingConfig::default() };
/// let train = Updates::new(&model, pairs.clone(), &run)?;
/// let valid = Batches::new(&model, pairs, &run)?;
/// let epochs = train.epochs();
/// let trained = SupervisedTraining::new(directory, train, valid)
///     .metrics((LossMetric::<NdArray>::new(),))
///     .metric_train_numeric(LearningRateMetric::new())
///     .num_epochs(epochs)
///     .launch(learner(model, &run)?);
/// let model = trained.model.model;
/// # let _ = model;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the configuration is out of range, or does not fit the model: a model without a width needs a
/// [`peak_rate`](TrainingConfig::peak_rate).
pub fn learner<B: AutodiffBackend, M: Trainable<B>>(
    model: M,
    config: &TrainingConfig,
) -> Result<TrainingLearner<B, M>, TrainError> {
    config.validate()?;
    let schedule = RateSchedule::of(config, Objective::<B>::width(&model))?;
    let model = prepared::<B, M>(model, config.precision)?;
    let model = TrainingModel::new(model, config.loss_options());
    let optimizer = Clipped::new(config.adam().init(), config.clip_norm);
    Ok(Learner::new(model, optimizer, schedule))
}

/// A model with its loss, as a step of Burn's training loop: on an [`Update`] in training, on a batch of examples
/// in validation.
#[derive(Module, Debug)]
pub struct TrainingModel<B: Backend, M> {
    /// The model.
    pub model: M,
    label_smoothing: f64,
    backend: PhantomData<B>,
}

impl<B: Backend, M: Objective<B>> TrainingModel<B, M> {
    /// A model with its loss computed by these options.
    pub fn new(model: M, options: LossOptions) -> Self {
        let LossOptions { label_smoothing } = options;
        Self {
            model,
            label_smoothing,
            backend: PhantomData,
        }
    }

    fn options(&self) -> LossOptions {
        LossOptions::smoothed(self.label_smoothing)
    }
}

impl<B: AutodiffBackend, M: Trainable<B>> TrainStep for TrainingModel<B, M> {
    type Input = Update<<M as Objective<B>>::Example>;
    type Output = UpdateItem;

    /// The gradient of the mean loss over all batches of the update; the loss and the gradient norm are read back
    /// from the device.
    fn step(&self, update: Self::Input) -> TrainOutput<Self::Output> {
        let (grads, statistics) = gradients::<B, M>(&self.model, &update, &self.options());
        let norm = global_norm::<B, M>(&self.model, &grads);
        TrainOutput {
            grads,
            item: UpdateItem::read(statistics, norm),
        }
    }
}

impl<B: Backend, M: Objective<B>> InferenceStep for TrainingModel<B, M> {
    type Input = Vec<M::Example>;
    type Output = DeviceStatistics<B>;

    fn step(&self, examples: Self::Input) -> Self::Output {
        DeviceStatistics::new(sums(&self.model, &examples, &self.options()))
    }
}
