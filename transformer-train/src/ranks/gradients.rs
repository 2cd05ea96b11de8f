//! Sums gradients over all processes (all-reduce).

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData, Transaction};

use crate::ranks::Ranks;

/// Sums the gradients of a module over all processes; a single process keeps its own unchanged.
///
/// They are sent as one f32 buffer, in the order of the module's parameters, which is the same in every process,
/// unlike ids. One count per parameter follows: in how many processes it has a gradient. A parameter without a
/// gradient in any process gets none, as in a single process. Frozen parameters are not in the buffer.
///
/// `buffer` keeps its allocation between updates.
pub(crate) fn sum_gradients<B: AutodiffBackend, M: AutodiffModule<B>>(
    ranks: &Ranks,
    module: &M,
    grads: GradientsParams,
    buffer: &mut Vec<f32>,
) -> GradientsParams {
    if ranks.is_alone() {
        return grads;
    }
    let mut own = Own::<B::InnerBackend> {
        grads,
        parameters: Vec::new(),
        read: Some(Transaction::default()),
    };
    Module::<B>::visit(module, &mut own);
    fill(buffer, &own.parameters, own.read);
    ranks.sum_in_place(buffer);

    let numbers: usize = own.parameters.iter().map(|parameter| parameter.len).sum();
    let (numbers, holders) = buffer.split_at(numbers);
    let mut summed = Summed {
        numbers,
        holders: holders.iter(),
        result: GradientsParams::new(),
    };
    Module::<B>::visit(module, &mut summed);
    summed.result
}

/// A parameter's slot in the buffer.
struct Place {
    len: usize,
    /// Whether this process has a gradient for it.
    is_here: bool,
}

/// Takes the gradients of this process, to read them from the device together.
struct Own<I: Backend> {
    grads: GradientsParams,
    parameters: Vec<Place>,
    /// Always `Some`: replaced as each tensor is added.
    read: Option<Transaction<I>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Own<B::InnerBackend> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !param.is_require_grad() {
            return;
        }
        let grad = self.grads.remove::<B::InnerBackend, D>(param.id);
        self.parameters.push(Place {
            len: param.val().shape().num_elements(),
            is_here: grad.is_some(),
        });
        if let Some(grad) = grad {
            self.read = self.read.take().map(|read| read.register(grad));
        }
    }
}

/// Fills the buffer with the gradients of this process, zeros for missing ones, followed by the flags.
fn fill<I: Backend>(buffer: &mut Vec<f32>, parameters: &[Place], read: Option<Transaction<I>>) {
    let mut read = read.map_or(Vec::new(), Transaction::execute).into_iter();
    buffer.clear();
    for parameter in parameters {
        let data = match parameter.is_here {
            true => read.next(),
            false => None,
        };
        match data {
            Some(data) => {
                let data = data.convert::<f32>();
                buffer.extend_from_slice(data.as_slice().expect("converted to f32 above"));
            }
            None => buffer.resize(buffer.len() + parameter.len, 0.0),
        }
    }
    let flags = parameters.iter().map(|parameter| match parameter.is_here {
        true => 1.0,
        false => 0.0,
    });
    buffer.extend(flags);
}

/// Assigns every parameter its gradient from the buffer.
struct Summed<'a> {
    /// The values for the remaining parameters.
    numbers: &'a [f32],
    /// In how many processes each of them has a gradient.
    holders: std::slice::Iter<'a, f32>,
    result: GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Summed<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !param.is_require_grad() {
            return;
        }
        let weight = param.val();
        let (numbers, rest) = self.numbers.split_at(weight.shape().num_elements());
        self.numbers = rest;
        if self.holders.next().is_some_and(|&holders| holders > 0.0) {
            let data = TensorData::new(numbers.to_vec(), weight.shape());
            let grad = Tensor::<B::InnerBackend, D>::from_data(data, &weight.device());
            self.result.register(param.id, grad);
        }
    }
}
