//! Conversions between the tensors of any backend and of a backend with kernels.

use std::any::{Any, TypeId};

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};

use crate::kernels::Kernels;

/// A tensor whose operations are recorded, over the backend `I`.
pub type Tracked<I> = FloatTensor<Autodiff<I>>;

/// The same value, if `From` and `To` are the same type.
pub fn same<From: Any, To: Any>(from: From) -> Option<To> {
    let mut from = Some(from);
    let to: &mut Option<To> = (&mut from as &mut dyn Any).downcast_mut()?;
    to.take()
}

/// An operand of a kernel of `I`: a tensor of `I` itself, without gradients, or of `Autodiff<I>`.
pub struct Operand<I: Kernels> {
    pub primitive: FloatTensor<I>,
    /// The tensor of `Autodiff<I>`.
    tracked: Option<Tracked<I>>,
}

impl<I: Kernels> Operand<I> {
    /// Whether the backend computes gradients, though not necessarily for this tensor.
    pub fn is_of_autodiff(&self) -> bool {
        self.tracked.is_some()
    }

    /// Whether a gradient of this tensor is computed.
    pub fn is_tracked(&self) -> bool {
        self.tracked
            .as_ref()
            .is_some_and(|tensor| tensor.is_tracked())
    }
}

/// The tensor as an operand, if its backend is `I` or `Autodiff<I>`, and `I` has kernels for it.
pub fn operand<B: Backend, I: Kernels, const D: usize>(
    tensor: &Tensor<B, D>,
) -> Option<Operand<I>> {
    let primitive = tensor.clone().into_primitive().tensor();
    let primitive: &dyn Any = &primitive;
    let tracked = primitive.downcast_ref::<Tracked<I>>();
    let own = match tracked {
        Some(tracked) => &tracked.primitive,
        None => primitive.downcast_ref()?,
    };
    I::prepare();
    I::supports(own).then(|| Operand {
        primitive: own.clone(),
        tracked: tracked.cloned(),
    })
}

/// The tensor as a tensor of `I` itself, without gradients, if that is its backend.
pub fn plain<B: Backend, I: Kernels, const D: usize>(
    tensor: &Tensor<B, D>,
) -> Option<FloatTensor<I>> {
    let operand = operand::<B, I, D>(tensor)?;
    (!operand.is_of_autodiff()).then_some(operand.primitive)
}

/// Whether `B` is `Autodiff` over `I`, or has the same tensors.
pub fn is_over<B: Backend, I: Kernels>() -> bool {
    TypeId::of::<FloatTensor<B>>() == TypeId::of::<Tracked<I>>()
}

/// Calls [`Kernels::prepare`], before a Burn operation that needs the preparation, too.
pub fn prepare<B: Backend>() {
    fn prepare_own<B: Backend, I: Kernels>() -> Option<()> {
        let is_own = TypeId::of::<FloatTensor<B>>() == TypeId::of::<FloatTensor<I>>();
        (is_own || is_over::<B, I>()).then(I::prepare)
    }
    let _: Option<()> = first!(prepare_own::<B>());
}

/// The tensor of a primitive; `P` is the primitive type of `B`.
pub fn wrapped<B: Backend, P: Any, const D: usize>(primitive: P) -> Tensor<B, D> {
    let primitive = same(primitive).expect("the tensors it was made from are of this backend");
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// The output of an operation. If the backend computes gradients, it is recorded with the state that its backward
/// pass needs.
pub fn record<B: Backend, I: Kernels, O: Backward<I, N>, const D: usize, const N: usize>(
    operation: O,
    parents: [&Operand<I>; N],
    output: FloatTensor<I>,
    state: O::State,
) -> Tensor<B, D> {
    if !parents.iter().all(|parent| parent.is_of_autodiff()) {
        return wrapped(output);
    }
    let node = |parent: &Operand<I>| Some(parent.tracked.as_ref()?.node.clone());
    let nodes = parents.map(|parent| node(parent).expect("all are of one backend"));
    let prepared = operation.prepare::<NoCheckpointing>(nodes);
    wrapped(match prepared.compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(state, output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    })
}

/// A result that is constant with respect to gradients.
pub fn constant<B: Backend, I: Kernels, const D: usize>(value: FloatTensor<I>) -> Tensor<B, D> {
    match is_over::<B, I>() {
        true => wrapped(Autodiff::<I>::from_inner(value)),
        false => wrapped(value),
    }
}

/// Registers the gradient of each parent. `backward` computes them from the output's gradient; its last argument
/// tells which parents need one.
pub fn pass_back<I: Kernels, S, const N: usize>(
    ops: Ops<S, N>,
    grads: &mut Gradients,
    backward: impl FnOnce(FloatTensor<I>, S, [bool; N]) -> [Option<FloatTensor<I>>; N],
) {
    let grad = grads.consume::<I>(&ops.node);
    let wanted = ops.parents.each_ref().map(Option::is_some);
    let gradients = backward(grad, ops.state, wanted);
    for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
        if let (Some(parent), Some(gradient)) = (parent, gradient) {
            grads.register::<I>(parent.id, gradient);
        }
    }
}

/// A value that only this parent's gradient needs: kept if the parent needs one.
pub fn kept_for<I: Kernels>(parent: &Operand<I>, value: FloatTensor<I>) -> Option<FloatTensor<I>> {
    parent.is_tracked().then_some(value)
}

/// The first result of a function that is generic over a backend with kernels, among the compiled backends.
macro_rules! first {
    ($function:ident::<$B:ty $(, $D:ident)?>($($argument:expr),*)) => {{
        // Unused without a backend.
        let _ = ($(&$argument,)* std::marker::PhantomData::<$B>,);
        let answer = None;
        #[cfg(feature = "flex")]
        let answer = answer.or_else(|| $function::<$B, burn_flex::Flex $(, $D)?>($($argument),*));
        #[cfg(feature = "ndarray")]
        let answer = answer.or_else(|| $function::<$B, burn_ndarray::NdArray $(, $D)?>($($argument),*));
        #[cfg(feature = "tch")]
        let answer = answer.or_else(|| $function::<$B, burn_tch::LibTorch $(, $D)?>($($argument),*));
        answer
    }};
}
pub(crate) use first;
