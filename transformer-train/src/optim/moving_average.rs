//! The exponential moving average of a model's weights.

use burn::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::container::TensorContainer;

/// The averaged weights of a model. After the `n`-th update that was not skipped, with the trained weights `w` and
/// the average `e`, which starts at the initial weights:
///
/// `e ← d e + (1 - d) w`, with `d = min(decay, (1 + n) / (10 + n))`.
///
/// The smaller `d` of the first updates follows TensorFlow and Marian. Without it, the random initial weights
/// would dominate the average, and the first validations, for `1 / (1 - decay)` updates or more.
pub(crate) struct MovingAverage<M> {
    decay: f64,
    model: M,
}

impl<M> MovingAverage<M> {
    /// An average that starts at `model`.
    pub fn new(decay: f64, model: M) -> Self {
        Self { decay, model }
    }

    /// The model with the averaged weights.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The model with the averaged weights.
    pub fn into_model(self) -> M {
        self.model
    }

    /// The average after the `n`-th update of `trained` that was not skipped.
    ///
    /// The parameters of `trained` have the ids of the average's. Frozen parameters and integer tensors do not
    /// change.
    pub fn next<B, T>(self, trained: &T, n: usize) -> Self
    where
        B: AutodiffBackend,
        T: AutodiffModule<B, InnerModule = M>,
        M: Module<B::InnerBackend>,
    {
        let mut weights = Weights(TensorContainer::new());
        Module::<B>::visit(trained, &mut weights);
        let mut towards = Towards {
            weights: weights.0,
            rate: 1.0 - decay(self.decay, n),
        };
        Self {
            decay: self.decay,
            model: Module::<B::InnerBackend>::map(self.model, &mut towards),
        }
    }
}

/// The decay in the `n`-th update.
fn decay(limit: f64, n: usize) -> f64 {
    let n = n as f64;
    limit.min((1.0 + n) / (10.0 + n))
}

/// Every trained parameter, without gradients, by id.
struct Weights(TensorContainer<ParamId>);

impl<B: AutodiffBackend> ModuleVisitor<B> for Weights {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if param.is_require_grad() {
            let weight: Tensor<B::InnerBackend, D> = param.val().inner();
            self.0
                .register::<B::InnerBackend>(param.id, weight.into_primitive());
        }
    }
}

/// Moves each parameter by a fraction of its distance to the weight with the same id. This is the formula above;
/// written as `e + (1 - d) (w - e)`, it keeps an unchanged weight exact to the last bit.
struct Towards {
    weights: TensorContainer<ParamId>,
    rate: f64,
}

impl<B: Backend> ModuleMapper<B> for Towards {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(weight) = self.weights.remove::<B>(&param.id) else {
            return param;
        };
        let weight = Tensor::<B, D>::from_primitive(weight);
        param.map(|average| {
            let step = (weight - average.clone()).mul_scalar(self.rate);
            average + step
        })
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

    /// The ids are the same each time.
    fn linear(weight: [f32; 2], bias: [f32; 2]) -> Linear<Tracked> {
        let device = Default::default();
        let weight = Tensor::<Tracked, 2>::from_data(TensorData::from([weight]), &device);
        let bias = Tensor::<Tracked, 1>::from_data(TensorData::from(bias), &device);
        Linear {
            weight: Param::initialized(ParamId::from(1_u64), weight.require_grad()),
            // Frozen.
            bias: Some(Param::initialized(ParamId::from(2_u64), bias)),
        }
    }

    fn values<const D: usize>(param: &Param<Tensor<NdArray, D>>) -> Vec<f64> {
        param.val().into_data().iter().collect()
    }

    #[test]
    fn the_decay_rises_to_its_limit() {
        // 2/11, 3/12, 5/14
        for (n, expected) in [(1, 0.181_818), (2, 0.25), (4, 0.357_143)] {
            assert!((decay(0.999, n) - expected).abs() < 1e-6, "{n}");
        }
        // (1 + n) / (10 + n) is 0.9 for n = 80.
        assert!(decay(0.9, 79) < 0.9);
        assert_eq!([decay(0.9, 80), decay(0.9, 10_000)], [0.9, 0.9]);
    }

    #[test]
    fn each_weight_is_the_formula_s_and_frozen_ones_stay() {
        let first = linear([1.0, -2.0], [0.1, 0.2]);
        let mut average = MovingAverage::new(0.3, first.valid());
        let mut expected = [1.0, -2.0];
        let steps = [[2.0_f32, -4.0], [0.5, 8.0], [-1.0, 3.0], [7.0, 0.25]];
        for (n, weight) in (1..).zip(steps) {
            average = average.next::<Tracked, _>(&linear(weight, [9.0, 9.0]), n);
            let n = n as f64;
            let d = f64::min(0.3, (1.0 + n) / (10.0 + n));
            for (e, w) in expected.iter_mut().zip(weight) {
                *e = d * *e + (1.0 - d) * f64::from(w);
            }
        }
        for (found, expected) in values(&average.model().weight).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
        }
        let bias = average.into_model().bias.unwrap();
        assert_eq!(values(&bias), [0.1_f32, 0.2].map(f64::from));
    }

    #[test]
    fn weights_that_do_not_change_are_their_average_bit_for_bit() {
        let weights = [0.1, -1.0 / 3.0];
        let model = linear(weights, [0.0, 0.0]);
        let mut average = MovingAverage::new(0.999, model.valid());
        for n in 1..=20 {
            average = average.next::<Tracked, _>(&model, n);
        }
        assert_eq!(values(&average.model().weight), weights.map(f64::from));
    }
}
