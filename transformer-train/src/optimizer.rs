//! Adam(0.9, 0.98, 1e-9) (§5.3), whose state a checkpoint can save, with AdamW's weight decay.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{
    Adam, AdamState, AdaptiveMomentumState, GradientsParams, MultiGradientsParams, Optimizer,
    SimpleOptimizer,
};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Tensor};
use transformer_core::ops::{self, AdamStep, Moments};

use crate::training_model::device;

/// Adam with the paper's constants; its state is Burn's.
#[derive(Debug, Clone, Copy, Default)]
pub struct PaperAdamRule {
    weight_decay: f64,
}

const BETA_1: f32 = 0.9;
const BETA_2: f32 = 0.98;
const EPSILON: f32 = 1e-9;

impl PaperAdamRule {
    /// A parameter, shrunk by its weight decay: matrices only. Biases and the parameters of norms have
    /// one dimension.
    fn decayed<B: Backend, const D: usize>(
        &self,
        learning_rate: f64,
        parameter: Tensor<B, D>,
    ) -> Tensor<B, D> {
        match D >= 2 && self.weight_decay > 0.0 {
            true => parameter.mul_scalar(1.0 - learning_rate * self.weight_decay),
            false => parameter,
        }
    }
}

impl<B: Backend> SimpleOptimizer<B> for PaperAdamRule {
    type State<const D: usize> = AdamState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: f64,
        tensor: Tensor<B, D>,
        grad: Tensor<B, D>,
        state: Option<AdamState<B, D>>,
    ) -> (Tensor<B, D>, Option<AdamState<B, D>>) {
        let (time, moments) = match state {
            Some(AdamState { momentum }) => {
                let (first, second) = (momentum.moment_1, momentum.moment_2);
                (momentum.time + 1, Some(Moments { first, second }))
            }
            None => (1, None),
        };
        let step = AdamStep {
            beta_1: BETA_1,
            beta_2: BETA_2,
            epsilon: EPSILON,
            learning_rate: lr,
            time,
        };
        let tensor = self.decayed(lr, tensor);
        let (tensor, Moments { first, second }) = ops::adam(tensor, grad, moments, &step);
        let momentum = AdaptiveMomentumState::new(time, first, second);
        (tensor, Some(AdamState::new(momentum)))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &B::Device) -> Self::State<D> {
        <Adam as SimpleOptimizer<B>>::to_device(state, device)
    }
}

/// Adam with the paper's constants, behind a handle.
///
/// Burn's `Learner` gives no access to its optimizer; a clone of this handle shares the state of the
/// one that the learner holds, so that it can be saved after any update.
pub struct PaperAdam<M, B>
where
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    shared: Arc<Mutex<OptimizerAdaptor<PaperAdamRule, M, B>>>,
    clip_norm: Option<f64>,
}

impl<M, B> Clone for PaperAdam<M, B>
where
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            clip_norm: self.clip_norm,
        }
    }
}

impl<M, B> PaperAdam<M, B>
where
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    /// A new optimizer; with `clip_norm` the gradients of an update are scaled down together to at
    /// most that Euclidean norm (the paper does not clip).
    pub fn new(clip_norm: Option<f64>) -> Self {
        let adam = OptimizerAdaptor::from(PaperAdamRule::default());
        Self {
            shared: Arc::new(Mutex::new(adam)),
            clip_norm,
        }
    }

    /// Shrinks each parameter of two or more dimensions to `1 - rate · weight_decay` of its value before
    /// each step, as AdamW does (Loshchilov and Hutter, 2019; PyTorch's `AdamW`). The paper does not.
    ///
    /// Biases and the parameters of norms have one dimension, and do not decay; neither do frozen
    /// parameters, and parameters without a gradient in that step.
    pub fn with_weight_decay(self, weight_decay: f64) -> Self {
        {
            let mut adam = self.adam();
            let moments = adam.to_record();
            let decaying: OptimizerAdaptor<PaperAdamRule, M, B> =
                OptimizerAdaptor::from(PaperAdamRule { weight_decay });
            *adam = decaying.load_record(moments);
        }
        self
    }

    /// One step with gradients whose [`global_norm`] has been read back.
    pub(crate) fn step_with_norm(
        &mut self,
        lr: f64,
        module: M,
        grads: GradientsParams,
        norm: f64,
    ) -> M {
        let grads = match self.clip_norm {
            Some(max_norm) => scaled_down::<B, M>(&module, grads, norm, max_norm),
            None => grads,
        };
        self.adam().step(lr, module, grads)
    }

    /// The optimizer itself. A panic while it is locked does not leave it inconsistent: `step` consumes
    /// and returns modules.
    fn adam(&self) -> MutexGuard<'_, OptimizerAdaptor<PaperAdamRule, M, B>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M, B> Optimizer<M, B> for PaperAdam<M, B>
where
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    type Record = <OptimizerAdaptor<PaperAdamRule, M, B> as Optimizer<M, B>>::Record;

    fn step(&mut self, lr: f64, module: M, grads: GradientsParams) -> M {
        let grads = match self.clip_norm {
            Some(max_norm) => clip_global_norm(&module, grads, max_norm),
            None => grads,
        };
        self.adam().step(lr, module, grads)
    }

    fn step_multi(&mut self, lr: f64, module: M, grads: MultiGradientsParams) -> M {
        // Clipping needs the whole gradient of every parameter at once.
        let mut gathered = Gathered {
            parts: grads,
            result: GradientsParams::new(),
        };
        Module::<B>::visit(&module, &mut gathered);
        self.step(lr, module, gathered.result)
    }

    fn to_record(&self) -> Self::Record {
        self.adam().to_record()
    }

    fn load_record(self, record: Self::Record) -> Self {
        {
            let mut adam = self.adam();
            *adam = adam.clone().load_record(record);
        }
        self
    }
}

/// The Euclidean norm of all gradients together, `[1]`, on the device of the module; zero if there are none.
pub fn global_norm<B: AutodiffBackend, M: AutodiffModule<B>>(
    module: &M,
    grads: &GradientsParams,
) -> Tensor<B::InnerBackend, 1> {
    let mut squares = SumOfSquares::<B::InnerBackend> { grads, sum: None };
    Module::<B>::visit(module, &mut squares);
    match squares.sum {
        Some(sum) => sum.sqrt(),
        None => Tensor::zeros([1], &device::<B>(module)),
    }
}

/// Scales all gradients together so that their Euclidean norm is at most `max_norm`. Their norm is read
/// back from the device.
pub fn clip_global_norm<B: AutodiffBackend, M: AutodiffModule<B>>(
    module: &M,
    grads: GradientsParams,
    max_norm: f64,
) -> GradientsParams {
    let norm = global_norm::<B, M>(module, &grads).into_scalar();
    scaled_down::<B, M>(module, grads, norm.elem(), max_norm)
}

/// Scales gradients whose Euclidean norm is `norm` to at most `max_norm`.
fn scaled_down<B: AutodiffBackend, M: AutodiffModule<B>>(
    module: &M,
    grads: GradientsParams,
    norm: f64,
    max_norm: f64,
) -> GradientsParams {
    if norm <= max_norm {
        return grads;
    }
    let mut scaled = Scaled {
        grads,
        scale: max_norm / norm,
        result: GradientsParams::new(),
    };
    Module::<B>::visit(module, &mut scaled);
    scaled.result
}

/// Adds up the squares of every parameter's gradient.
struct SumOfSquares<'a, I: Backend> {
    grads: &'a GradientsParams,
    sum: Option<Tensor<I, 1>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for SumOfSquares<'_, B::InnerBackend> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(grad) = self.grads.get::<B::InnerBackend, D>(param.id) {
            let square = ops::sum_of_squares(grad);
            self.sum = Some(match self.sum.take() {
                Some(sum) => sum + square,
                None => square,
            });
        }
    }
}

/// Multiplies every parameter's gradient by the same number.
struct Scaled {
    grads: GradientsParams,
    scale: f64,
    result: GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Scaled {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(grad) = self.grads.remove::<B::InnerBackend, D>(param.id) {
            self.result.register(param.id, grad.mul_scalar(self.scale));
        }
    }
}

/// Adds up each parameter's gradients from several devices.
struct Gathered {
    parts: MultiGradientsParams,
    result: GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Gathered {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some((grad, _)) = self.parts.remove::<B::InnerBackend, D>(param.id) {
            let grad = grad.to_device(&param.val().device());
            self.result.register(param.id, grad);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::Linear;
    use burn::tensor::TensorData;
    use burn_autodiff::Autodiff;
    use burn_ndarray::NdArray;

    type Tracked = Autodiff<NdArray>;

    const WEIGHT: [f32; 2] = [0.5, -2.0];
    const BIAS: [f32; 2] = [0.25, 1.0];

    /// A matrix of one row, and a bias.
    fn linear() -> Linear<Tracked> {
        let device = Default::default();
        Linear {
            weight: Param::from_data(TensorData::from([WEIGHT]), &device),
            bias: Some(Param::from_data(TensorData::from(BIAS), &device)),
        }
    }

    fn values<const D: usize>(param: &Param<Tensor<Tracked, D>>) -> Vec<f64> {
        param.val().into_data().iter().collect()
    }

    /// AdamW in double precision, as PyTorch's documentation has it: a parameter after steps of the given
    /// rates and gradients.
    fn adam_w(mut parameter: f64, decay: f64, steps: &[(f64, f64)]) -> f64 {
        let (beta_1, beta_2) = (0.9_f64, 0.98_f64);
        let (mut first, mut second) = (0.0_f64, 0.0_f64);
        for (time, &(rate, gradient)) in (1..).zip(steps) {
            parameter -= rate * decay * parameter;
            first = beta_1 * first + (1.0 - beta_1) * gradient;
            second = beta_2 * second + (1.0 - beta_2) * gradient * gradient;
            let corrected = second / (1.0 - beta_2.powi(time));
            parameter -= rate * first / (1.0 - beta_1.powi(time)) / (corrected.sqrt() + 1e-9);
        }
        parameter
    }

    #[test]
    fn steps_with_weight_decay_are_adam_w_s_for_matrices_and_adam_s_for_biases() {
        let device = Default::default();
        let decay = 0.3;
        let steps = [(0.1, 0.5_f32), (0.05, -2.0), (0.2, 0.125)];
        let mut linear = linear();
        let mut optimizer =
            PaperAdam::<Linear<Tracked>, Tracked>::new(None).with_weight_decay(decay);
        for (rate, gradient) in steps {
            let mut grads = GradientsParams::new();
            let weight = Tensor::<NdArray, 2>::from_data([[gradient, -gradient]], &device);
            grads.register(linear.weight.id, weight);
            let bias = Tensor::<NdArray, 1>::from_data([gradient, -gradient], &device);
            grads.register(linear.bias.as_ref().unwrap().id, bias);
            linear = optimizer.step(rate, linear, grads);
        }
        let of = |sign: f64| steps.map(|(rate, gradient)| (rate, sign * f64::from(gradient)));
        let check = |found: Vec<f64>, initial: [f32; 2], decay: f64| {
            for (at, sign) in [1.0, -1.0].into_iter().enumerate() {
                let expected = adam_w(initial[at].into(), decay, &of(sign));
                let found = found[at];
                assert!((found - expected).abs() < 2e-6, "{found}, not {expected}");
            }
        };
        check(values(&linear.weight), WEIGHT, decay);
        check(values(linear.bias.as_ref().unwrap()), BIAS, 0.0);
    }

    #[test]
    fn a_parameter_without_a_gradient_does_not_decay() {
        let mut optimizer = PaperAdam::<Linear<Tracked>, Tracked>::new(None).with_weight_decay(0.5);
        let linear = optimizer.step(1.0, linear(), GradientsParams::new());
        assert_eq!(values(&linear.weight), WEIGHT.map(f64::from));
    }

    #[test]
    fn weight_decay_keeps_the_moments() {
        let device = Default::default();
        let mut optimizer = PaperAdam::<Linear<Tracked>, Tracked>::new(None);
        let linear = linear();
        let mut grads = GradientsParams::new();
        let weight = Tensor::<NdArray, 2>::from_data([[1.0_f32, 1.0]], &device);
        grads.register(linear.weight.id, weight);
        optimizer.step(0.1, linear, grads);
        let optimizer = optimizer.with_weight_decay(0.5);
        assert_eq!(
            Optimizer::<Linear<Tracked>, Tracked>::to_record(&optimizer).len(),
            1
        );
    }
}
