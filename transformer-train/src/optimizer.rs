//! Adam(0.9, 0.98, 1e-9) (§5.3), whose state a checkpoint can save.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{
    Adam, AdamState, AdaptiveMomentumState, GradientsParams, MultiGradientsParams, Optimizer,
    SimpleOptimizer,
};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use transformer_core::ops::{self, AdamStep, Moments};

/// Adam with the paper's constants; its state is Burn's.
#[derive(Debug, Clone, Copy)]
pub struct PaperAdamRule;

const BETA_1: f32 = 0.9;
const BETA_2: f32 = 0.98;
const EPSILON: f32 = 1e-9;

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
        let adam = OptimizerAdaptor::from(PaperAdamRule);
        Self {
            shared: Arc::new(Mutex::new(adam)),
            clip_norm,
        }
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

/// Scales all gradients together so that their Euclidean norm is at most `max_norm`.
pub fn clip_global_norm<B: AutodiffBackend, M: AutodiffModule<B>>(
    module: &M,
    grads: GradientsParams,
    max_norm: f64,
) -> GradientsParams {
    let mut squares = SumOfSquares::<B::InnerBackend> {
        grads: &grads,
        sum: None,
    };
    Module::<B>::visit(module, &mut squares);
    let Some(sum) = squares.sum else {
        return grads;
    };
    let scale = (sum.sqrt().clamp_min(max_norm).recip() * max_norm).reshape([1]);
    let mut scaled = Scaled {
        grads,
        scale,
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
struct Scaled<I: Backend> {
    grads: GradientsParams,
    scale: Tensor<I, 1>,
    result: GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Scaled<B::InnerBackend> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(grad) = self.grads.remove::<B::InnerBackend, D>(param.id) {
            let scaled = grad * self.scale.clone().unsqueeze();
            self.result.register(param.id, scaled);
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
