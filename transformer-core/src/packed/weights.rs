//! The weights of a packed model, by name.

use std::collections::HashMap;
use std::convert::Infallible;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::decoding::to_host;
use transformer_cpu::{PackedMatrix, PackedPrecision};
use transformer_kernels::WeightLayout;

/// Weights by their names in `model.safetensors`. A packed model requests each of them once.
pub(crate) trait NamedWeights {
    /// The error of a weight that is missing or cannot be read.
    type Error;

    /// Reads and packs a matrix.
    ///
    /// # Shapes
    /// - sizes: `[d_input, d_output]`, in either layout
    fn matrix(
        &mut self,
        name: &str,
        sizes: [usize; 2],
        layout: WeightLayout,
    ) -> Result<PackedMatrix, Self::Error>;

    /// Reads a weight that stays in f32: a bias, a vector of a norm, or learned positions.
    fn numbers(&mut self, name: &str, count: usize) -> Result<Vec<f32>, Self::Error>;
}

/// The weights of a module in memory. Each is freed as soon as it has been requested.
pub(crate) struct ModuleWeights<B: Backend> {
    tensors: HashMap<String, Tensor<B, 1>>,
    precision: PackedPrecision,
}

impl<B: Backend> ModuleWeights<B> {
    pub fn new<M: Module<B>>(model: M, precision: PackedPrecision) -> Self {
        let mut collector = Collector {
            path: Vec::new(),
            tensors: HashMap::new(),
        };
        model.visit(&mut collector);
        Self {
            tensors: collector.tensors,
            precision,
        }
    }

    fn take(&mut self, name: &str, count: usize) -> Vec<f32> {
        let tensor = self.tensors.remove(name);
        let values = to_host(tensor.unwrap_or_else(|| panic!("the model has no `{name}`")));
        assert_eq!(values.len(), count, "elements of `{name}`");
        values
    }
}

impl<B: Backend> NamedWeights for ModuleWeights<B> {
    type Error = Infallible;

    fn matrix(
        &mut self,
        name: &str,
        sizes: [usize; 2],
        layout: WeightLayout,
    ) -> Result<PackedMatrix, Infallible> {
        let [d_input, d_output] = sizes;
        let values = self.take(name, d_input * d_output);
        Ok(PackedMatrix::new(&values, sizes, layout, self.precision))
    }

    fn numbers(&mut self, name: &str, count: usize) -> Result<Vec<f32>, Infallible> {
        Ok(self.take(name, count))
    }
}

/// Collects every parameter under its path in the module.
struct Collector<B: Backend> {
    path: Vec<String>,
    tensors: HashMap<String, Tensor<B, 1>>,
}

impl<B: Backend> ModuleVisitor<B> for Collector<B> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let tensor = param.val();
        let count = tensor.dims().iter().product::<usize>();
        self.tensors
            .insert(self.path.join("."), tensor.reshape([count]));
    }
}
