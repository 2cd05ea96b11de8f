//! Layers, against their formulas.

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use transformer_core::TransformerConfig;
use transformer_core::nn::{
    Activation, AttentionInput, AttentionWeights, Block, Context, FeedForward, FeedForwardConfig,
    Layer, LayerConfig, Mask, Norm, NormConfig, NormKind, NormPlacement, Positions, Sublayer,
    SublayerConfig, WeightInit, sinusoidal_encoding,
};

use crate::common::*;

const D_MODEL: usize = 6;

const FORMULAS: [NormKind; 3] = [
    NormKind::Variance,
    NormKind::UnbiasedDeviation,
    NormKind::RootMeanSquare,
];

/// A layer normalization in plain loops.
struct PlainNorm {
    formula: NormKind,
    eps: f64,
    gamma: Vec<f64>,
    beta: Vec<f64>,
}

impl PlainNorm {
    fn of(norm: &Norm<NdArray>, formula: NormKind, eps: f64) -> Self {
        Self {
            formula,
            eps,
            gamma: values(norm.gamma.val()),
            beta: match &norm.beta {
                Some(beta) => values(beta.val()),
                None => vec![0.0; norm.gamma.dims()[0]],
            },
        }
    }

    fn forward(&self, x: &[f64]) -> Vec<f64> {
        let n = x.len() as f64;
        let mean = match self.formula {
            NormKind::RootMeanSquare => 0.0,
            _ => x.iter().sum::<f64>() / n,
        };
        let squares = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        let deviation = match self.formula {
            NormKind::Variance | NormKind::RootMeanSquare => (squares / n + self.eps).sqrt(),
            NormKind::UnbiasedDeviation => (squares / (n - 1.0)).sqrt() + self.eps,
        };
        x.iter()
            .zip(self.gamma.iter().zip(&self.beta))
            .map(|(x, (gamma, beta))| (x - mean) / deviation * gamma + beta)
            .collect()
    }
}

fn rows(x: &Tensor<NdArray, 3>) -> Vec<Vec<f64>> {
    values(x.clone())
        .chunks(D_MODEL)
        .map(<[f64]>::to_vec)
        .collect()
}

/// The function that the tests wrap: not linear, so that pre-norm and post-norm differ.
fn square_and_shift(x: f64) -> f64 {
    x * x + 0.5
}

/// A sub-layer with its norm in plain loops, for each formula, with a negligible and with a large ε.
fn sublayers(norm: NormPlacement) -> Vec<(Sublayer<NdArray>, PlainNorm)> {
    let mut sublayers = Vec::new();
    for layer_norm in FORMULAS {
        for layer_norm_eps in [1e-5, 0.7] {
            let own = NormConfig::new(D_MODEL)
                .with_kind(layer_norm)
                .with_epsilon(layer_norm_eps);
            let config = SublayerConfig::new(own)
                .with_placement(norm)
                // Without gradients it must have no effect.
                .with_dropout(0.5);
            let sublayer = shaken(config.init(&Default::default()), 1);
            let plain = PlainNorm::of(&sublayer.norm, layer_norm, layer_norm_eps);
            sublayers.push((sublayer, plain));
        }
    }
    sublayers
}

#[test]
fn post_norm_is_the_norm_of_the_sum() {
    for (sublayer, norm) in sublayers(NormPlacement::Post) {
        let x = uniform(&mut rng(2), [2, 3, D_MODEL]);
        let found = sublayer.forward(x.clone(), |x| x.powi_scalar(2) + 0.5);
        for (x, found) in rows(&x).iter().zip(rows(&found)) {
            let sum: Vec<f64> = x.iter().map(|&x| x + square_and_shift(x)).collect();
            assert_close(&found, &norm.forward(&sum), 1e-5);
        }
    }
}

#[test]
fn pre_norm_is_the_sum_with_the_sublayer_of_the_norm() {
    for (sublayer, norm) in sublayers(NormPlacement::Pre) {
        let x = uniform(&mut rng(3), [2, 3, D_MODEL]);
        let found = sublayer.forward(x.clone(), |x| x.powi_scalar(2) + 0.5);
        for (x, found) in rows(&x).iter().zip(rows(&found)) {
            let sum: Vec<f64> = x
                .iter()
                .zip(norm.forward(x))
                .map(|(x, normed)| x + square_and_shift(normed))
                .collect();
            assert_close(&found, &sum, 1e-5);
        }
    }
}

/// Equal features have a deviation of zero, where the root has no derivative: the output is β, and the
/// gradients are finite.
#[test]
fn a_position_of_equal_features_is_normed_to_the_shift() {
    for layer_norm in [NormKind::Variance, NormKind::UnbiasedDeviation] {
        let config = NormConfig::new(D_MODEL).with_kind(layer_norm);
        let norm = config.init::<Autodiff<NdArray>>(&Default::default());
        let norm = shaken(norm, 4);
        let x = Tensor::<Autodiff<NdArray>, 3>::ones([1, 2, D_MODEL], &Default::default())
            .require_grad();
        let y = norm.forward(x.clone());
        let shift = norm.beta.as_ref().unwrap().val();
        let shift = shift.unsqueeze::<3>().expand([1, 2, D_MODEL]);
        assert_close(y.clone(), shift, 1e-6);

        let gradients_of_loss = y.powi_scalar(2).sum().backward();
        let flows_back = values(x.grad(&gradients_of_loss).unwrap());
        assert!(
            flows_back.iter().all(|g| g.is_finite()),
            "{layer_norm:?}: {flows_back:?}"
        );
    }
}

#[test]
fn activations_have_their_known_values() {
    // At -1, 0, 1 and 2: max(0, x); x Φ(x) with Φ(1) = 0.8413447, Φ(2) = 0.9772499; x σ(x) with
    // σ(1) = 0.7310586, σ(2) = 0.8807971.
    for (activation, expected) in [
        (Activation::Relu, [0.0, 0.0, 1.0, 2.0]),
        (Activation::Gelu, [-0.1586553, 0.0, 0.8413447, 1.9544997]),
        // As PyTorch computes it.
        (
            Activation::GeluTanh,
            [-0.1588080, 0.0, 0.8411920, 1.9545977],
        ),
        (Activation::Silu, [-0.2689414, 0.0, 0.7310586, 1.7615942]),
    ] {
        let x = Tensor::from_data([[[0.0], [0.5], [1.0], [1.5]]], &Default::default());
        let expected: Vec<f64> = expected.iter().map(|y| 3.0 * y + 4.0).collect();
        assert_close(
            network::<NdArray>(activation, 0.5).forward(x),
            &expected,
            1e-5,
        );
    }
}

#[test]
fn activations_have_their_known_slopes() {
    // At -1, 1 and 2: Φ(x) + x φ(x) with φ(1) = 0.2419707, φ(2) = 0.0539910;
    // σ(x) (1 + x σ(-x)).
    for (activation, expected) in [
        (Activation::Relu, [0.0, 1.0, 1.0]),
        (Activation::Gelu, [-0.0833155, 1.0833155, 1.0852319]),
        // As PyTorch computes it.
        (Activation::GeluTanh, [-0.0829641, 1.0829641, 1.0860993]),
        (Activation::Silu, [0.0723295, 0.9276705, 1.0907843]),
    ] {
        let x =
            Tensor::<Autodiff<NdArray>, 3>::from_data([[[0.0], [1.0], [1.5]]], &Default::default())
                .require_grad();
        let slopes = network(activation, 0.0).forward(x.clone()).sum().backward();
        let expected: Vec<f64> = expected.iter().map(|slope| 6.0 * slope).collect();
        assert_close(x.grad(&slopes).unwrap(), &expected, 1e-5);
    }
}

/// `FFN(x) = 3 activation(2x - 1) + 4`.
fn network<B: Backend>(activation: Activation, activation_dropout: f64) -> FeedForward<B> {
    let config = FeedForwardConfig::new(1, 1)
        .with_activation(activation)
        .with_dropout(activation_dropout);
    let mut network = config.init_from(&mut WeightInit::zeros(), &Default::default());
    set(&mut network.inner, 2.0, -1.0);
    set(&mut network.outer, 3.0, 4.0);
    network
}

fn set<B: Backend>(linear: &mut Linear<B>, weight: f32, bias: f32) {
    let device = Default::default();
    linear.weight = Param::from_data([[weight]], &device);
    linear.bias = Some(Param::from_data([bias], &device));
}

fn layer(norm: NormPlacement) -> LayerConfig {
    let mut config = LayerConfig::new(D_MODEL, 2, 8).unwrap();
    config.sublayer.placement = norm;
    config
}

#[test]
fn an_encoder_layer_is_self_attention_then_feed_forward() {
    for norm in [NormPlacement::Post, NormPlacement::Pre] {
        let init = &mut WeightInit::new(1);
        let layer = layer(norm).init_from(init, &Default::default());
        let layer: Layer<NdArray> = shaken(layer, 1);
        let x = uniform(&mut rng(4), [2, 3, D_MODEL]);
        let mask = Mask::padding(tokens(&[[7, 7, 0], [7, 7, 7]]).equal_elem(0));

        let discard = AttentionWeights::Discard;
        let at = Context {
            mask: Some(&mask),
            ..Context::default()
        };
        let found = layer.forward(x.clone(), &at, None).hidden;
        let attention = layer.self_attention.as_ref().unwrap();
        let attended = layer
            .self_attention_sublayer
            .forward(x, |x| attention.forward(x, Some(&mask), discard).output);
        let expected = layer
            .feed_forward_sublayer
            .forward(attended, |x| layer.feed_forward.forward(x));
        assert_close(found, expected, 0.0);
    }
}

#[test]
fn a_decoder_layer_is_self_attention_cross_attention_feed_forward() {
    for norm in [NormPlacement::Post, NormPlacement::Pre] {
        let init = &mut WeightInit::new(1);
        let layer = layer(norm)
            .with_memory()
            .init_from(init, &Default::default());
        let layer: Layer<NdArray> = shaken(layer, 1);
        let x = uniform(&mut rng(5), [2, 3, D_MODEL]);
        let memory = uniform(&mut rng(6), [2, 4, D_MODEL]);
        let mask = Mask::causal(3, 3, &Default::default());
        let memory_mask = Mask::padding(tokens(&[[7, 7, 7, 0], [7, 7, 7, 7]]).equal_elem(0));
        let at = Context {
            mask: Some(&mask),
            memory: Some(&memory),
            memory_mask: Some(&memory_mask),
            ..Context::default()
        };

        let found = layer.forward(x.clone(), &at, None);
        let attention = layer.self_attention.as_ref().unwrap();
        let x = layer
            .self_attention_sublayer
            .forward(x, |x| attention.forward(x, at.mask, at.weights).output);
        let sublayer = layer.cross_attention_sublayer.as_ref().unwrap();
        let cross_attention = layer.cross_attention.as_ref().unwrap();
        let x = sublayer.forward(x, |x| {
            let input = AttentionInput::to_memory(x, memory.clone());
            cross_attention.forward(input.mask(&memory_mask)).output
        });
        let expected = layer
            .feed_forward_sublayer
            .forward(x, |x| layer.feed_forward.forward(x));
        assert_close(found.hidden, expected, 0.0);
    }
}

/// The twelve features of a position: sines of the frequencies `10000^(-i/5)`, then cosines.
fn sines_then_cosines(position: usize) -> Vec<f64> {
    let angle = |i: i32| position as f64 * 10_000_f64.powf(-f64::from(i) / 5.0);
    let sines = (0..6).map(|i| angle(i).sin());
    sines.chain((0..6).map(|i| angle(i).cos())).collect()
}

/// The encoder by hand: embedding × √d_model, position, norm, layers, norm.
#[test]
fn encoding_is_embedding_position_layers_norm() {
    let sines_first = Positions::SinesThenCosines {
        inclusive: true,
        first: 2,
    };
    for (embedding_scale, embedding_norm, final_norm) in [(true, false, true), (false, true, false)]
    {
        for positions in [
            Positions::Sinusoidal,
            Positions::Learned { max_len: 9 },
            sines_first,
        ] {
            let config = TransformerConfig {
                embedding_scale,
                embedding_norm,
                final_norm,
                positions,
                ..tiny()
            };
            let model = model::<NdArray>(&config, 7);
            let ids = [3, 11, 5, 5];
            let table = values(model.src_embedding.weight.val());
            let encodings = match &model.src_positions.learned {
                Some(learned) => values(learned.val()),
                None if positions == sines_first => (2..6).flat_map(sines_then_cosines).collect(),
                None => values(sinusoidal_encoding::<NdArray>(
                    0,
                    4,
                    12,
                    &Default::default(),
                )),
            };
            let scale = if embedding_scale { 12_f64.sqrt() } else { 1.0 };
            let mut x = Vec::new();
            for (at, &id) in ids.iter().enumerate() {
                let sum = (0..12).map(|d| table[id * 12 + d] * scale + encodings[at * 12 + d]);
                let sum: Vec<f64> = sum.collect();
                let entering = match &model.src_embedding_norm {
                    Some(norm) => {
                        PlainNorm::of(norm, config.layer_norm, config.layer_norm_eps).forward(&sum)
                    }
                    None => sum,
                };
                x.extend(entering.into_iter().map(|x| x as f32));
            }
            assert_eq!(model.src_embedding_norm.is_some(), embedding_norm);
            let data = burn::tensor::TensorData::new(x, [1, 4, 12]);
            let mut x = Tensor::<NdArray, 3>::from_data(data, &Default::default());
            for layer in &model.encoder.layers {
                x = layer.forward(x, &Context::default(), None).hidden;
            }
            assert_eq!(model.encoder.final_norm.is_some(), final_norm);
            assert_eq!(model.decoder.final_norm.is_some(), final_norm);
            if let Some(norm) = &model.encoder.final_norm {
                x = norm.forward(x);
            }
            assert_close(
                model.encode(tokens(&[ids.map(|id| id as u32)])).hidden,
                x,
                1e-5,
            );
        }
    }
}

/// The norm of the target's embeddings is its own.
#[test]
fn decoding_is_embedding_position_norm_layers() {
    let config = TransformerConfig {
        embedding_norm: true,
        ..tiny()
    };
    let model = model::<NdArray>(&config, 7);
    let (device, targets) = (Default::default(), [[1, 8, 4]]);
    let memory = model.encode(tokens(&[[5, 3, 7, 2]]));
    let positions = sinusoidal_encoding::<NdArray>(0, 3, 12, &device);
    let x = model.target_embedding().forward(tokens(&targets)) + positions.unsqueeze();
    let x = model.tgt_embedding_norm.as_ref().unwrap().forward(x);
    let at = Context {
        mask: Some(&Mask::causal(3, 3, &device)),
        memory: Some(&memory.hidden),
        ..Context::default()
    };
    let expected = model.decoder.forward(x, &at);
    assert_close(
        model.decode(tokens(&targets), &memory),
        expected.hidden,
        1e-6,
    );
}

#[test]
fn logits_are_the_generator_s_product_and_bias() {
    let model = model::<NdArray>(&tiny(), 8);
    let hidden = uniform(&mut rng(8), [1, 1, 12]);
    let weight = values(model.generator.weight.as_ref().unwrap().val());
    let bias = values(model.generator.bias.as_ref().unwrap().val());
    let x = values(hidden.clone());
    let expected: Vec<f64> = (0..11)
        .map(|token| bias[token] + (0..12).map(|d| x[d] * weight[d * 11 + token]).sum::<f64>())
        .collect();
    assert_close(model.generate(hidden), &expected, 1e-5);
}

#[test]
fn dropout_acts_where_gradients_are_taken_and_only_there() {
    let only = |dropout: f64, attention_dropout: f64, activation_dropout: f64| TransformerConfig {
        dropout,
        attention_dropout,
        activation_dropout,
        ..tiny()
    };
    let run = |config: &TransformerConfig| {
        let model = model::<Autodiff<NdArray>>(config, 9);
        values(model.forward(tokens(&[[5, 6, 7]]), tokens(&[[1, 3]])))
    };
    for config in [
        only(0.5, 0.0, 0.0),
        only(0.0, 0.5, 0.0),
        only(0.0, 0.0, 0.5),
    ] {
        assert!(largest_difference(&run(&config), &run(&config)) > 1e-3);
        let plain = model::<NdArray>(&config, 9);
        let quiet = values(plain.forward(tokens(&[[5, 6, 7]]), tokens(&[[1, 3]])));
        assert_close(&quiet, &run(&tiny_without_dropout()), 1e-5);
    }
}
