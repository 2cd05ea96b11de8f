//! Initial weights, drawn on the host so that a seed gives the same model on every backend.

use std::f64::consts::FRAC_1_SQRT_2;

use burn::module::{Param, ParamId};
use burn::nn::Linear;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Normal, Uniform};

/// A source of initial weights.
///
/// Matrices are Xavier-uniform, `U(-a, a)` with `a = g √(6 / (d_input + d_output))`, where each projection has its own
/// sizes even if several are stored side by side. The gain `g` is 1/√2 for the `W^Q`, `W^K` and `W^V` of attention, and
/// 1 for every other matrix. Biases are zero; layer norms are the identity. The values depend only on the seed and the
/// order of the calls.
///
/// The paper does not specify initial weights. fairseq and PyTorch, which draws the three projections as one matrix
/// `[3 d_model, d_model]`, use the same gain: with a gain of 1, post-norm stacks with much dropout learn several times
/// slower (decision 6 in docs/decisions/model.md).
#[derive(Debug, Clone)]
pub struct WeightInit {
    rng: Option<ChaCha8Rng>,
    attention_gain: f64,
}

/// The gain of PyTorch and fairseq.
const ATTENTION_GAIN: f64 = FRAC_1_SQRT_2;

impl WeightInit {
    /// Weights drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Some(ChaCha8Rng::seed_from_u64(seed)),
            attention_gain: ATTENTION_GAIN,
        }
    }

    /// Weights drawn from the backend's random number generator, which `B::seed` seeds.
    pub fn from_backend<B: Backend>(device: &B::Device) -> Self {
        // Not of the backend's type: f16 ends at 65 504.
        let parts = Tensor::<B, 1>::random(
            [4],
            burn::tensor::Distribution::Uniform(0.0, 65_536.0),
            (device, DType::F32),
        );
        let parts = parts.into_data();
        let parts = parts.iter::<f32>().map(|part| part as u64);
        Self::new(parts.fold(0, |seed, part| seed << 16 | part))
    }

    /// Zeros for all weights, for a model whose weights are about to be loaded. A matrix is allocated when it is first
    /// used, so never if a loaded one replaces it.
    pub fn zeros() -> Self {
        Self {
            rng: None,
            attention_gain: ATTENTION_GAIN,
        }
    }

    /// Sets the gain of `W^Q`, `W^K` and `W^V`; 1 is Xavier's.
    ///
    /// # Panics
    /// When the gain is not positive and finite.
    pub fn with_attention_gain(self, attention_gain: f64) -> Self {
        assert!(
            attention_gain > 0.0 && attention_gain.is_finite(),
            "attention gain {attention_gain} must be positive and finite"
        );
        Self {
            attention_gain,
            ..self
        }
    }

    /// The input projections of attention, drawn one by one with the attention gain and stored side by side as one
    /// matrix: `[d_input, Σ d_outputs]`.
    ///
    /// # Panics
    /// When a size is zero.
    pub fn attention_projections<B: Backend>(
        &mut self,
        d_input: usize,
        d_outputs: &[usize],
        bias: bool,
        device: &B::Device,
    ) -> Linear<B> {
        self.side_by_side(d_input, d_outputs, self.attention_gain, bias, device)
    }

    /// A linear layer `[d_input, d_output]`.
    ///
    /// # Panics
    /// When a size is zero.
    pub fn linear<B: Backend>(
        &mut self,
        d_input: usize,
        d_output: usize,
        bias: bool,
        device: &B::Device,
    ) -> Linear<B> {
        self.side_by_side(d_input, &[d_output], 1.0, bias, device)
    }

    fn side_by_side<B: Backend>(
        &mut self,
        d_input: usize,
        d_outputs: &[usize],
        gain: f64,
        bias: bool,
        device: &B::Device,
    ) -> Linear<B> {
        assert!(
            d_input > 0 && !d_outputs.is_empty() && d_outputs.iter().all(|&size| size > 0),
            "linear layer with {d_input} inputs and {d_outputs:?} outputs; sizes must be at least 1"
        );
        let width: usize = d_outputs.iter().sum();
        let weight = self.matrix([d_input, width], device, |rng, values| {
            let mut first = 0;
            for &d_output in d_outputs {
                let bound = (gain * (6.0 / (d_input + d_output) as f64).sqrt()) as f32;
                let uniform = Uniform::new(-bound, bound).expect("a positive and finite bound");
                for row in values.chunks_exact_mut(width) {
                    row[first..first + d_output].fill_with(|| uniform.sample(rng));
                }
                first += d_output;
            }
        });
        Linear {
            weight,
            bias: bias.then(|| Param::from_tensor(Tensor::zeros([width], device))),
        }
    }

    /// A matrix with elements from `N(0, std²)`, such as an embedding table.
    ///
    /// # Panics
    /// When `std` is negative or not finite in single precision.
    pub fn normal<B: Backend>(
        &mut self,
        shape: [usize; 2],
        std: f64,
        device: &B::Device,
    ) -> Param<Tensor<B, 2>> {
        let std = std as f32;
        assert!(
            std >= 0.0 && std.is_finite(),
            "standard deviation {std} must be non-negative and finite"
        );
        let normal = Normal::new(0.0, std).expect("the deviation is finite");
        self.matrix(shape, device, |rng, values| {
            values.fill_with(|| normal.sample(rng));
        })
    }

    /// A matrix of drawn values, or of zeros.
    fn matrix<B: Backend>(
        &mut self,
        shape: [usize; 2],
        device: &B::Device,
        draw: impl FnOnce(&mut ChaCha8Rng, &mut [f32]),
    ) -> Param<Tensor<B, 2>> {
        let Some(rng) = &mut self.rng else {
            return Param::uninitialized(
                ParamId::new(),
                move |device, require_grad| {
                    Tensor::zeros(shape, device).set_require_grad(require_grad)
                },
                device.clone(),
                true,
                shape.into(),
            );
        };
        let mut values = vec![0.0; shape[0] * shape[1]];
        draw(rng, &mut values);
        let data = TensorData::new(values, shape).convert::<B::FloatElem>();
        Param::from_tensor(Tensor::from_data(data, device))
    }
}

#[cfg(test)]
mod tests {
    use burn::module::{Module, ModuleVisitor};
    use burn_ndarray::NdArray;

    use super::*;
    use crate::models::config::TransformerConfig;

    /// The number of elements in memory, and of all elements.
    #[derive(Default)]
    struct Memory([usize; 2]);

    impl<B: Backend> ModuleVisitor<B> for Memory {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let size = param.lazy_shape().num_elements();
            self.0[0] += if param.is_initialized() { size } else { 0 };
            self.0[1] += size;
        }
    }

    #[test]
    fn a_model_to_be_loaded_takes_the_memory_of_its_vectors_only() {
        let config = TransformerConfig::notebook_mini(1000);
        let device = Default::default();
        let model = config.init_from::<NdArray>(&mut WeightInit::zeros(), &device);
        let mut memory = Memory::default();
        model.unwrap().visit(&mut memory);
        let [taken, all] = memory.0;
        assert_eq!(all as u128, config.num_params());
        assert!(taken * 50 < all, "{taken} of {all} elements");
    }
}
