//! Adam(0.9, 0.98, 1e-9) (§5.3) with AdamW's weight decay, and gradient clipping for any optimizer.

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{
    Adam as BurnAdam, AdamState, AdaptiveMomentumState, GradientsParams, LearningRate,
    MultiGradientsParams, Optimizer, SimpleOptimizer,
};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Tensor};
use transformer_core::ops::{self, AdamStep, Moments};

use crate::config::TrainingConfig;
use crate::objective::gradients::device;

/// The constants of [`Adam`]. Defaults: the paper's (§5.3), without weight decay.
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::{GradientsParams, Optimizer};
/// use burn::tensor::Tensor;
/// use burn_autodiff::Autodiff;
/// use burn_ndarray::NdArray;
/// use transformer_train::optim::{Adam, AdamConfig};
///
/// type B = Autodiff<NdArray>;
/// let device = Default::default();
/// let linear: Linear<B> = LinearConfig::new(2, 1).init(&device);
/// let mut adam: Adam<Linear<B>, B> = AdamConfig { weight_decay: 0.1, ..AdamConfig::default() }.init();
/// let loss = linear.forward(Tensor::<B, 2>::ones([3, 2], &device)).sum();
/// let gradients = GradientsParams::from_grads(loss.backward(), &linear);
/// let linear = adam.step(1e-3, linear, gradients);
/// # let _ = linear;
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamConfig {
    /// Decay of the moving average of the gradient, β₁.
    pub beta_1: f32,
    /// Decay of the moving average of the squared gradient, β₂.
    pub beta_2: f32,
    /// Term added to the denominator, ε.
    pub epsilon: f32,
    /// Scales each parameter of two or more dimensions by `1 - rate · weight_decay` before each step, as AdamW
    /// does (Loshchilov and Hutter, 2019; PyTorch's `AdamW`). The paper has no weight decay.
    ///
    /// Biases and the parameters of norms have one dimension and do not decay; nor do frozen parameters and
    /// parameters without a gradient in that step.
    pub weight_decay: f64,
}

impl TrainingConfig {
    /// The paper's Adam, with this configuration's weight decay.
    pub fn adam(&self) -> AdamConfig {
        AdamConfig {
            weight_decay: self.weight_decay,
            ..AdamConfig::default()
        }
    }
}

impl Default for AdamConfig {
    fn default() -> Self {
        Self {
            beta_1: 0.9,
            beta_2: 0.98,
            epsilon: 1e-9,
            weight_decay: 0.0,
        }
    }
}

impl AdamConfig {
    /// Creates the optimizer of a module.
    pub fn init<M: AutodiffModule<B>, B: AutodiffBackend>(self) -> Adam<M, B> {
        OptimizerAdaptor::from(AdamRule(self))
    }
}

/// Adam for a module, as a Burn optimizer; its state is the same as for Burn's Adam.
pub type Adam<M, B> = OptimizerAdaptor<AdamRule, M, B>;

/// The moments of each parameter.
pub(crate) type AdamRecord<M, B> = <Adam<M, B> as Optimizer<M, B>>::Record;

/// One step of [`Adam`] for one parameter.
#[derive(Debug, Clone, Copy)]
pub struct AdamRule(AdamConfig);

impl AdamRule {
    /// Applies weight decay to a parameter of two or more dimensions.
    fn decayed<B: Backend, const D: usize>(
        &self,
        learning_rate: f64,
        parameter: Tensor<B, D>,
    ) -> Tensor<B, D> {
        let weight_decay = self.0.weight_decay;
        match D >= 2 && weight_decay > 0.0 {
            true => parameter.mul_scalar(1.0 - learning_rate * weight_decay),
            false => parameter,
        }
    }
}

impl<B: Backend> SimpleOptimizer<B> for AdamRule {
    type State<const D: usize> = AdamState<B, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
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
            beta_1: self.0.beta_1,
            beta_2: self.0.beta_2,
            epsilon: self.0.epsilon,
            learning_rate: lr,
            time,
        };
        let tensor = self.decayed(lr, tensor);
        let (tensor, Moments { first, second }) = ops::adam(tensor, grad, moments, &step);
        let momentum = AdaptiveMomentumState::new(time, first, second);
        (tensor, Some(AdamState::new(momentum)))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &B::Device) -> Self::State<D> {
        <BurnAdam as SimpleOptimizer<B>>::to_device(state, device)
    }
}

/// Clips the gradients of a step to a maximum global Euclidean norm, then calls any optimizer (the paper does not
/// clip). With a maximum, a step whose norm is not finite is skipped.
#[derive(Debug, Clone)]
pub struct Clipped<O> {
    optimizer: O,
    max_norm: Option<f64>,
}

impl<O> Clipped<O> {
    /// Clips to `max_norm`; `None`: no clipping, and no step is skipped.
    ///
    /// # Panics
    /// When `max_norm` is not positive and finite.
    pub fn new(optimizer: O, max_norm: Option<f64>) -> Self {
        if let Some(max_norm) = max_norm {
            let is_norm = max_norm > 0.0 && max_norm.is_finite();
            assert!(is_norm, "gradients cannot be clipped to {max_norm}");
        }
        Self {
            optimizer,
            max_norm,
        }
    }
}

impl<M, B, O> Optimizer<M, B> for Clipped<O>
where
    M: AutodiffModule<B>,
    B: AutodiffBackend,
    O: Optimizer<M, B>,
{
    type Record = O::Record;

    fn step(&mut self, lr: LearningRate, module: M, grads: GradientsParams) -> M {
        let Some(max_norm) = self.max_norm else {
            return self.optimizer.step(lr, module, grads);
        };
        let norm: f64 = global_norm::<B, M>(&module, &grads).into_scalar().elem();
        match norm.is_finite() {
            true => {
                let grads = scaled_down::<B, M>(&module, grads, norm, max_norm);
                self.optimizer.step(lr, module, grads)
            }
            false => module,
        }
    }

    fn step_multi(&mut self, lr: LearningRate, module: M, grads: MultiGradientsParams) -> M {
        if self.max_norm.is_none() {
            return self.optimizer.step_multi(lr, module, grads);
        }
        // Clipping needs every parameter's complete gradient at once.
        let mut gathered = Gathered {
            parts: grads,
            result: GradientsParams::new(),
        };
        Module::<B>::visit(&module, &mut gathered);
        self.step(lr, module, gathered.result)
    }

    fn to_record(&self) -> Self::Record {
        self.optimizer.to_record()
    }

    fn load_record(self, record: Self::Record) -> Self {
        Self {
            optimizer: self.optimizer.load_record(record),
            ..self
        }
    }
}

/// The Euclidean norm of all gradients, `[1]`, on the module's device; zero if there are none.
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

/// Scales all gradients so that their global Euclidean norm is at most `max_norm`, if it is finite. The norm is read back
/// from the device.
pub fn clip_global_norm<B: AutodiffBackend, M: AutodiffModule<B>>(
    module: &M,
    grads: GradientsParams,
    max_norm: f64,
) -> GradientsParams {
    let norm = global_norm::<B, M>(module, &grads).into_scalar();
    scaled_down::<B, M>(module, grads, norm.elem(), max_norm)
}

/// Scales gradients with Euclidean norm `norm` to at most `max_norm`.
pub(crate) fn scaled_down<B: AutodiffBackend, M: AutodiffModule<B>>(
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

/// Sums the squares of all gradients.
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

/// Multiplies every gradient by one factor.
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

/// Sums each parameter's gradients over several devices.
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
    use burn::optim::SgdConfig;
    use burn::tensor::TensorData;
    use burn_autodiff::Autodiff;
    use burn_ndarray::NdArray;

    type Tracked = Autodiff<NdArray>;

    const WEIGHT: [f32; 2] = [0.5, -2.0];
    const BIAS: [f32; 2] = [0.25, 1.0];

    /// A matrix with one row, and a bias.
    fn linear() -> Linear<Tracked> {
        let device = Default::default();
        Linear {
            weight: Param::from_data(TensorData::from([WEIGHT]), &device),
            bias: Some(Param::from_data(TensorData::from(BIAS), &device)),
        }
    }

    fn decaying(weight_decay: f64) -> Adam<Linear<Tracked>, Tracked> {
        let config = AdamConfig {
            weight_decay,
            ..AdamConfig::default()
        };
        config.init()
    }

    fn values<const D: usize>(param: &Param<Tensor<Tracked, D>>) -> Vec<f64> {
        param.val().into_data().iter().collect()
    }

    /// AdamW in double precision, as in PyTorch's documentation: a parameter after steps with the given rates and
    /// gradients.
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
        let decay = 0.3;
        let steps = [(0.1, 0.5_f32), (0.05, -2.0), (0.2, 0.125)];
        let mut linear = linear();
        let mut optimizer = decaying(decay);
        for (rate, gradient) in steps {
            let grads = gradients(&linear, [gradient, -gradient]);
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
        let linear = decaying(0.5).step(1.0, linear(), GradientsParams::new());
        assert_eq!(values(&linear.weight), WEIGHT.map(f64::from));
    }

    /// The gradients of the parameters of [`linear`]: the same values for weight and bias.
    fn gradients(linear: &Linear<Tracked>, values: [f32; 2]) -> GradientsParams {
        let device = Default::default();
        let mut grads = GradientsParams::new();
        let weight = Tensor::<NdArray, 2>::from_data([values], &device);
        grads.register(linear.weight.id, weight);
        let bias = Tensor::<NdArray, 1>::from_data(values, &device);
        grads.register(linear.bias.as_ref().unwrap().id, bias);
        grads
    }

    /// Burn's SGD without momentum: a step with rate 1 subtracts the gradient.
    #[test]
    fn any_optimizer_steps_by_clipped_gradients() {
        let sgd = SgdConfig::new().init::<Tracked, Linear<Tracked>>();
        let linear = linear();
        // Their norm is √(2 (9 + 16)) = √50; clipping to √2 divides by five.
        let grads = gradients(&linear, [3.0, -4.0]);
        let mut clipped = Clipped::new(sgd.clone(), Some(2.0_f64.sqrt()));
        let stepped = clipped.step(1.0, linear.clone(), grads);
        for (found, expected) in values(&stepped.weight).iter().zip([0.5 - 0.6, -2.0 + 0.8]) {
            assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
        }
        for max_norm in [None, Some(8.0)] {
            let grads = gradients(&linear, [3.0, -4.0]);
            let stepped = Clipped::new(sgd.clone(), max_norm).step(1.0, linear.clone(), grads);
            assert_eq!(values(&stepped.weight), [-2.5, 2.0]);
        }
    }

    #[test]
    fn a_step_whose_norm_is_not_finite_is_skipped() {
        let adam = AdamConfig::default().init::<Linear<Tracked>, Tracked>();
        let mut clipped = Clipped::new(adam, Some(1.0));
        let linear = linear();
        let grads = gradients(&linear, [f32::NAN, 1.0]);
        let linear = clipped.step(1.0, linear, grads);
        assert_eq!(values(&linear.weight), WEIGHT.map(f64::from));
        assert!(Optimizer::<Linear<Tracked>, Tracked>::to_record(&clipped).is_empty());
    }
}
