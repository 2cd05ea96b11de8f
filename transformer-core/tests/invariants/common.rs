//! Tiny models and the helpers that the test files share.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use transformer_core::decoding::padded;
use transformer_core::models::WeightTying;
use transformer_core::nn::{Activation, Mixer, NormKind, NormPlacement, Positions};
use transformer_core::{Request, Transformer, TransformerConfig};

pub type NdArray = burn_ndarray::NdArray;
pub type Flex = burn_flex::Flex;
pub type Autodiff<B> = burn_autodiff::Autodiff<B>;

/// Untied, with every bias, and no two sizes alike. Its dropouts must not act without gradients.
pub fn tiny() -> TransformerConfig {
    TransformerConfig {
        src_vocab_size: 13,
        tgt_vocab_size: 11,
        d_model: 12,
        n_heads: 2,
        d_k: Some(3),
        d_v: Some(5),
        d_ff: 14,
        n_encoder_layers: 2,
        n_decoder_layers: 3,
        attention_bias: true,
        generator_bias: true,
        tying: WeightTying::None,
        dropout: 0.1,
        attention_dropout: 0.2,
        activation_dropout: 0.3,
        ..TransformerConfig::base(13)
    }
}

/// [`tiny`] for tests with gradients: each call computes the same.
pub fn tiny_without_dropout() -> TransformerConfig {
    TransformerConfig {
        dropout: 0.0,
        attention_dropout: 0.0,
        activation_dropout: 0.0,
        ..tiny()
    }
}

/// [`tiny`] with the norm after and before, positions sinusoidal and learned; with the keys that only pretrained models
/// have; with positions as T5 has them; with ALiBi's; with relative ones; with a recurrence in the decoder; and with
/// the layers of Llama.
pub fn variants() -> Vec<TransformerConfig> {
    let mut variants = Vec::new();
    for (norm, final_norm) in [(NormPlacement::Post, false), (NormPlacement::Pre, true)] {
        for positions in [Positions::Sinusoidal, Positions::Learned { max_len: 16 }] {
            variants.push(TransformerConfig {
                norm,
                final_norm,
                positions,
                ..tiny()
            });
        }
    }
    variants.push(TransformerConfig {
        d_model: 13,
        decoder_n_heads: Some(3),
        decoder_d_ff: Some(9),
        embedding_norm: true,
        positions: Positions::SinesThenCosines {
            inclusive: true,
            first: 2,
        },
        ..tiny()
    });
    variants.push(TransformerConfig {
        positions: Positions::RelativeBias {
            buckets: 7,
            max_distance: 4,
        },
        attention_scale: false,
        generator_scale: true,
        ..tiny()
    });
    variants.push(TransformerConfig {
        positions: Positions::Alibi,
        n_heads: 3,
        ..tiny()
    });
    variants.push(TransformerConfig {
        positions: Positions::Relative { max_distance: 2 },
        n_heads: 4,
        n_kv_heads: Some(2),
        d_k: Some(3),
        d_v: Some(5),
        ..tiny()
    });
    variants.push(TransformerConfig {
        decoder_mixer: Mixer::Recurrence,
        ..tiny()
    });
    variants.push(TransformerConfig {
        norm: NormPlacement::Pre,
        final_norm: true,
        layer_norm: NormKind::RootMeanSquare,
        positions: Positions::Rotary { base: 100.0 },
        n_heads: 4,
        n_kv_heads: Some(2),
        d_k: Some(6),
        activation: Activation::Silu,
        gated: true,
        feed_forward_bias: false,
        ..tiny()
    });
    variants
}

pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// A model with random biases and norms, as in a trained one.
pub fn model<B: Backend>(config: &TransformerConfig, seed: u64) -> Transformer<B> {
    let model = config.init(seed, &B::Device::default()).unwrap();
    shaken(model, seed)
}

/// Every parameter moved by up to 0.3.
pub fn shaken<B: Backend, M: Module<B>>(module: M, seed: u64) -> M {
    module.map(&mut Shaker(rng(seed)))
}

struct Shaker(ChaCha8Rng);

impl<B: Backend> ModuleMapper<B> for Shaker {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| {
            let tracked = tensor.is_require_grad();
            let noise = uniform(&mut self.0, tensor.dims()) * 0.3;
            let moved = (tensor.detach() + noise).into_data();
            Tensor::from_data(moved, &B::Device::default()).set_require_grad(tracked)
        })
    }
}

/// Requests of sources without an added `<eos>`.
pub fn exact(sources: &[impl AsRef<[u32]>]) -> Vec<Request> {
    let requests = sources.iter();
    requests
        .map(|source| Request::exact(source.as_ref()))
        .collect()
}

/// Numbers in [-1, 1).
pub fn uniform<B: Backend, const D: usize>(
    rng: &mut ChaCha8Rng,
    shape: [usize; D],
) -> Tensor<B, D> {
    let count = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|_| rng.random_range(-1.0..1.0)).collect();
    Tensor::from_data(TensorData::new(values, shape), &B::Device::default())
}

/// The rows, padded with `<pad>` 0.
pub fn tokens<B: Backend>(rows: &[impl AsRef<[u32]>]) -> Tensor<B, 2, Int> {
    padded(rows, 0, &B::Device::default())
}

pub fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// The largest difference; NaN if there is one, so that it passes neither for a small difference nor for a
/// large one.
pub fn largest_difference(left: &[f64], right: &[f64]) -> f64 {
    assert_eq!(left.len(), right.len());
    let differences = left.iter().zip(right).map(|(a, b)| (a - b).abs());
    differences.max_by(f64::total_cmp).unwrap_or(0.0)
}

/// Asserts that no two values differ by more than `tolerance`; tensors or plain numbers.
#[track_caller]
pub fn assert_close(left: impl Numbers, right: impl Numbers, tolerance: f64) {
    let (left, right) = (left.numbers(), right.numbers());
    let difference = largest_difference(&left, &right);
    assert!(
        difference <= tolerance,
        "off by {difference}: {left:?} is not {right:?}"
    );
}

pub trait Numbers {
    fn numbers(self) -> Vec<f64>;
}

impl Numbers for &[f64] {
    fn numbers(self) -> Vec<f64> {
        self.to_vec()
    }
}

impl Numbers for &Vec<f64> {
    fn numbers(self) -> Vec<f64> {
        self.clone()
    }
}

impl<B: Backend, const D: usize> Numbers for Tensor<B, D> {
    fn numbers(self) -> Vec<f64> {
        values(self)
    }
}

/// A parameter's path, shape and values.
pub type NamedValues = (String, Vec<usize>, Vec<f64>);

/// Every parameter, in the order of the modules.
pub fn parameters<B: Backend>(module: &impl Module<B>) -> Vec<NamedValues> {
    let mut collector = Collector {
        path: Vec::new(),
        found: Vec::new(),
    };
    module.visit(&mut collector);
    collector.found
}

struct Collector {
    path: Vec<String>,
    found: Vec<NamedValues>,
}

impl<B: Backend> ModuleVisitor<B> for Collector {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let tensor = param.val();
        self.found
            .push((self.path.join("."), tensor.dims().to_vec(), values(tensor)));
    }
}

/// Every parameter's gradient; panics where there is none.
pub fn gradients<B: AutodiffBackend>(
    module: &impl Module<B>,
    gradients: &B::Gradients,
) -> Vec<NamedValues> {
    let mut collector = GradientCollector::<B> {
        path: Vec::new(),
        gradients,
        found: Vec::new(),
    };
    module.visit(&mut collector);
    collector.found
}

struct GradientCollector<'a, B: AutodiffBackend> {
    path: Vec<String>,
    gradients: &'a B::Gradients,
    found: Vec<NamedValues>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for GradientCollector<'_, B> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let name = self.path.join(".");
        let gradient = param.val().grad(self.gradients);
        let gradient = gradient.unwrap_or_else(|| panic!("`{name}` has no gradient"));
        self.found
            .push((name, gradient.dims().to_vec(), values(gradient)));
    }
}
